"""Text to tokens and back, and chats to the text that a model was trained on.

A chat template is a program in the Jinja language that comes with a model; it runs in a sandbox, with the settings and
functions with which templates are written for upstream.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from georag_jax._errors import MissingExtraError
from georag_jax.models.chat import Chat

try:
    import jinja2
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment
    from tokenizers import Tokenizer
except ModuleNotFoundError as error:
    raise MissingExtraError((error.name or "jinja2").partition(".")[0], "models") from error

_SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


class ChatTokenizer:
    """The tokenizer of a language model and its chat template. Made by ``from_directory``.

    Attributes:
        specials: the special tokens by their names, such as "eos_token", as far as the model has them.
        template: the chat template, or None.
    """

    def __init__(self, tokenizer: Tokenizer, specials: Mapping[str, str], template: str | None):
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self.specials, self.template = dict(specials), template
        self._tokenizer = tokenizer

    @classmethod
    def from_directory(cls, path: Path) -> "ChatTokenizer":
        """Reads ``tokenizer.json``, and ``tokenizer_config.json`` and ``chat_template.jinja`` where they are.

        Raises:
            FileNotFoundError: there is no tokenizer.json.
        """
        file = path / "tokenizer.json"
        if not file.exists():
            raise FileNotFoundError(f"{path} lacks tokenizer.json")
        raw = read_fields(path / "tokenizer_config.json")
        named = read_fields(path / "special_tokens_map.json") | raw
        specials = {name: _content(named[name]) for name in _SPECIAL if named.get(name)}
        own = path / "chat_template.jinja"
        template = own.read_text(encoding="utf-8") if own.exists() else _default(raw.get("chat_template"))
        return cls(Tokenizer.from_file(str(file)), specials, template)

    def encode(self, text: str, special: bool = True) -> list[int]:
        """Tokens of a text, with those that the model puts around one unless ``special`` is False.

        Special tokens that are spelt out in the text are read as such. Lone surrogates are read as "?".
        """
        clean = text.encode("utf-8", "replace").decode("utf-8")
        return self._tokenizer.encode(clean, add_special_tokens=special).ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of tokens, without special ones; bytes that are no whole character become U+FFFD."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=True)

    def number(self, token: str) -> int | None:
        """The number of a token, or None."""
        return self._tokenizer.token_to_id(token)

    @property
    def size(self) -> int:
        """Number of tokens."""
        return self._tokenizer.get_vocab_size()

    def render(self, chat: Chat) -> str:
        """The text of a chat, up to where the model's answer begins.

        Args:
            chat: messages, each with a "role" and a "content".

        Returns:
            The text, special tokens spelt out.

        Raises:
            ValueError: the model has no chat template, or the template refuses the chat; the message says why.
        """
        if self.template is None:
            raise ValueError("this model has no chat template: ask it with plain text")
        try:
            return self._program.render(
                messages=[dict(message) for message in chat],
                tools=None,
                documents=None,
                add_generation_prompt=True,
                **self.specials,
            )
        except jinja2.TemplateError as error:
            raise ValueError(f"the chat template refuses this chat: {error}") from error

    @cached_property
    def _program(self) -> jinja2.Template:
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        return environment.from_string(self.template or "")


def read_fields(path: Path) -> dict[str, Any]:
    """A JSON file's object, empty if there is no such file."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _content(token: str | Mapping[str, Any]) -> str:
    return token if isinstance(token, str) else token["content"]


def _default(templates: str | Sequence[Mapping[str, str]] | None) -> str | None:
    """Older files may hold several templates by name."""
    if templates is None or isinstance(templates, str):
        return templates
    return next((entry["template"] for entry in templates if entry["name"] == "default"), None)


def _tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None, **rest: Any) -> str:
    # Jinja's own filter escapes characters of HTML.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **rest)


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)
