"""A language model in this process: answers chats, continues texts, scores texts and answers.

Dimensions: p prompts, n samples of each, r = p n rows.
"""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from georag_jax._errors import require
from georag_jax.models.chat import Chat, Completion, Sampling
from georag_jax.models.decoder import DECODER, HEADLESS_DECODER, abstract_decoder, default_dtype
from georag_jax.models.decoder_config import DecoderConfig
from georag_jax.models.decoding import length_bucket, log_probabilities, pad_right, score_options
from georag_jax.models.generate import Generator
from georag_jax.models.gguf import convert
from georag_jax.models.loading import load_state, weight_files
from georag_jax.models.tokenizer import ChatTokenizer, read_fields
from georag_jax.models.weights import name_of, resolve_language_model, sha256


class LanguageModel:
    """A dense decoder with its tokenizer; implements ``ChatModel``. Made by ``from_path``.

    Answers are the same, up to rounding in ties of 1e-6, whatever they are computed together with: sample i of a prompt
    is drawn with a key of the seed, i and the number of the token.

    Attributes:
        fingerprint: names weights, tokenizer, template and dtype, for example "smollm2:0123456789ab:float32".
        config: the shape of the network.
        tokenizer: the tokenizer and chat template.
        ends: tokens that end an answer.
    """

    def __init__(
        self,
        leaves: list[jax.Array],
        config: DecoderConfig,
        tokenizer: ChatTokenizer,
        ends: Sequence[int],
        fingerprint: str,
    ):
        require(tokenizer.size <= config.vocab_size, "tokenizer", f"at most {config.vocab_size} tokens", tokenizer.size)
        self.config, self.tokenizer, self.ends, self.fingerprint = config, tokenizer, tuple(ends), fingerprint
        self._leaves = leaves
        self._generator = Generator(leaves, config, ends, tokenizer.decode)

    @classmethod
    def from_path(cls, name_or_path: str | Path, *, dtype: DTypeLike | None = None) -> "LanguageModel":
        """Loads a model.

        Args:
            name_or_path: a GGUF file, a directory in the Hugging Face layout, "smollm2", or a name on the model hub.
            dtype: of weights and of kept keys and values, float32 or bfloat16; by default ``default_dtype()``.

        Returns:
            The model.

        Raises:
            ModelNotFoundError: there are no such files.
            ValueError: the model has something that is not implemented; the message names it.
            CheckpointError: the weights do not fit the network.
        """
        found = resolve_language_model(name_or_path)
        path = convert(found) if found.suffix == ".gguf" else found
        config = DecoderConfig.from_mapping(read_fields(path / "config.json"))
        weights_dtype = default_dtype() if dtype is None else jnp.dtype(dtype)
        require(weights_dtype in (jnp.float32, jnp.bfloat16), "dtype", "float32 or bfloat16", weights_dtype)
        table = HEADLESS_DECODER if config.tie_word_embeddings else DECODER
        state = load_state(path, abstract_decoder(config, weights_dtype)[1], table)
        tokenizer = ChatTokenizer.from_directory(path)
        fingerprint = f"{_name(found, config, tokenizer)}:{weights_dtype.name}"
        return cls(jax.tree.leaves(state), config, tokenizer, read_ends(path, tokenizer), fingerprint)

    def complete(
        self, chats: Sequence[Chat], n: int, sampling: Sampling, progress: Callable[[int], None] | None = None
    ) -> list[list[Completion]]:
        """Answers to chats.

        Args:
            chats: each a list of messages with "role" and "content".
            n: answers to each, >= 1; independent draws.
            sampling: how tokens are drawn.
            progress: called after every batch with the number of chats done.

        Returns:
            n answers to each chat, in order.

        Raises:
            ValueError: n is out of range, the template refuses a chat, or a chat is too long for the model.
        """
        return self._generator.complete([self.chat_ids(chat) for chat in chats], n, sampling, progress)

    def generate(
        self, prompts: Sequence[str], n: int, sampling: Sampling, progress: Callable[[int], None] | None = None
    ) -> list[list[Completion]]:
        """Continues plain texts; as ``complete``, without a chat template."""
        return self._generator.complete([self.tokenizer.encode(prompt) for prompt in prompts], n, sampling, progress)

    def count(self, text: str) -> int:
        """Tokens of a text, without those that the model puts around one."""
        return len(self.tokenizer.encode(text, special=False))

    def chat_ids(self, chat: Chat) -> list[int]:
        """Tokens of a chat, up to where the answer begins."""
        return self.tokenizer.encode(self.tokenizer.render(chat), special=False)

    def log_probabilities(self, text: str) -> np.ndarray:
        """Log-probability of every token of a text after its first, given those before it.

        Args:
            text: at least two tokens, at most ``config.max_position_embeddings``.

        Returns:
            [tokens - 1] float32.

        Raises:
            ValueError: the text is too short or too long.
        """
        ids = self.tokenizer.encode(text)
        longest = self.config.max_position_embeddings
        require(2 <= len(ids) <= longest, "text", f"2 to {longest} tokens", len(ids))
        padded, _ = pad_right([ids], 1, length_bucket(len(ids)))
        return np.asarray(log_probabilities(self._leaves, padded, config=self.config))[0, : len(ids) - 1]

    def negative_log_likelihood(self, text: str) -> float:
        """Mean of minus ``log_probabilities``, in nats a token."""
        return -float(self.log_probabilities(text).mean(dtype=np.float64))

    def option_scores(self, chats: Sequence[Chat], options: Sequence[str]) -> np.ndarray:
        """Log-probabilities of given answers.

        Args:
            chats: p chats.
            options: o answers, each of at least one token; an answer need not end there.

        Returns:
            [p, o] float32: the log-probability that the answer to the chat begins with the option's tokens.

        Raises:
            ValueError: an option has no token, or a chat is too long.
        """
        option_ids = [self.tokenizer.encode(option, special=False) for option in options]
        require(bool(option_ids) and all(option_ids), "options", "answers of at least one token", list(options))
        longest = max(map(len, option_ids))
        padded, lengths = pad_right(option_ids, len(option_ids), longest)
        scores = np.zeros((len(chats), len(options)), np.float32)
        for batch in self._generator.read([self.chat_ids(chat) for chat in chats], len(options), longest):
            found = score_options(
                self._leaves, batch.logits, batch.past, batch.starts, padded, lengths, config=self.config
            )
            scores[batch.numbers] = np.asarray(found)[: len(batch.numbers)]
        return scores


def read_ends(path: Path, tokenizer: ChatTokenizer) -> list[int]:
    """The tokens that end an answer, by generation_config.json, or config.json, and the tokenizer's own."""
    given = read_fields(path / "generation_config.json").get("eos_token_id")
    if given is None:
        given = read_fields(path / "config.json").get("eos_token_id")
    own = tokenizer.number(tokenizer.specials.get("eos_token", ""))
    listed = given if isinstance(given, list) else [given]
    return sorted({number for number in (*listed, own) if number is not None})


def _name(path: Path, config: DecoderConfig, tokenizer: ChatTokenizer) -> str:
    """The model's name and twelve digits for its weights, configuration, tokenizer and template."""
    if path.is_file():  # a GGUF file holds all of them
        digest = sha256(path)
        return f"{name_of(digest) or config.model_type}:{digest[:12]}"
    files = [*weight_files(path), path / "config.json", path / "tokenizer.json"]
    parts = [*map(sha256, files), tokenizer.template or ""]
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    return f"{config.model_type}:{digest[:12]}"
