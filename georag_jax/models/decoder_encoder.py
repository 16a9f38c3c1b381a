"""Texts to unit vectors with a decoder: the hidden state of the last token, as Qwen3-Embedding has it.

Reference: Zhang et al., "Qwen3 Embedding: Advancing Text Embedding and Reranking Through Foundation Models" (2025).

Dimensions: n texts, b rows of a batch, l tokens of a padded text, h width of the network, d of the vectors.
"""

import dataclasses
import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from georag_jax._errors import MissingExtraError, require
from georag_jax._types import Kind
from georag_jax.models.batches import check_texts, computed, default_batch_tokens, open_tokenizer, read_json, tokenise
from georag_jax.models.decoder import HEADLESS_DECODER, abstract_decoder, assemble, default_dtype
from georag_jax.models.decoder_config import DecoderConfig
from georag_jax.models.loading import load_state, weight_files
from georag_jax.models.weights import sha256

try:
    from tokenizers import Tokenizer
except ModuleNotFoundError as error:
    raise MissingExtraError("tokenizers", "models") from error


class LastTokenSettings(NamedTuple):
    """What shapes the vectors beyond the network.

    Attributes:
        prompts: what is put before a query and before a document.
        max_length: tokens kept of a text, special ones included.
        dim: width d of the vectors.
    """

    prompts: Mapping[Kind, str]
    max_length: int
    dim: int


class LastTokenEncoder:
    """A Qwen3-Embedding model, or another decoder with last-token pooling; implements ``georag_jax.Encoder``.

    Made by ``from_directory``.

    Attributes:
        fingerprint: names weights, prompts, length, width and dtype.
        dim: width d of the vectors.
        batch_tokens: tokens of one batch, padding included.
    """

    def __init__(
        self,
        leaves: list[jax.Array],
        config: DecoderConfig,
        tokenizer: Tokenizer,
        settings: LastTokenSettings,
        fingerprint: str,
    ):
        self.fingerprint, self.dim, self.batch_tokens = fingerprint, settings.dim, default_batch_tokens()
        self._leaves, self._config, self._tokenizer, self._settings = leaves, config, tokenizer, settings

    @classmethod
    def from_directory(
        cls, path: str | Path, *, task: str | None = None, dim: int | None = None, dtype: DTypeLike | None = None
    ) -> "LastTokenEncoder":
        """Reads a directory in the sentence-transformers layout.

        Args:
            path: the directory.
            task: what queries are for, in one sentence, put before each of them as "Instruct: TASK", a new line and
                "Query:"; by default the directory's own prompt.
            dim: width d of the vectors, the first so many entries of the network's; by default all h.
            dtype: of the weights; by default ``default_dtype()``.

        Returns:
            The encoder.

        Raises:
            FileNotFoundError: a file is missing.
            ValueError: the directory asks for something that is not implemented, or ``dim`` is not in 1..h.
            CheckpointError: the weights do not fit the network.
        """
        home = Path(path)
        config = DecoderConfig.from_mapping(read_json(home / "config.json"))
        config = dataclasses.replace(config, tie_word_embeddings=True)  # that is: no head of its own
        settings = _read_settings(home, config, task, dim)
        weights_dtype = default_dtype() if dtype is None else jnp.dtype(dtype)
        state = load_state(home, abstract_decoder(config, weights_dtype)[1], HEADLESS_DECODER)
        tokenizer = open_tokenizer(home, config.vocab_size, settings.max_length)
        parts = [*map(sha256, weight_files(home)), settings.prompts["query"], settings.prompts["document"]]
        digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
        fingerprint = (
            f"{config.model_type}:{digest}:lasttoken:{settings.max_length}:{settings.dim}:{weights_dtype.name}"
        )
        return cls(jax.tree.leaves(state), config, tokenizer, settings, fingerprint)

    def encode(
        self, texts: Sequence[str], kind: Kind = "document", progress: Callable[[int], None] | None = None
    ) -> np.ndarray:
        """Vectors of texts.

        Args:
            texts: n texts, cut to the model's length. Lone surrogates are read as "?".
            kind: "query" or "document": which prompt is put before each text, if there is one.
            progress: called after every batch with the number of texts done.

        Returns:
            [n, d] float32 with unit rows, in the order of the texts.

        Raises:
            TypeError: ``texts`` is one string, or holds something that is not a string; the message names its position.
            ValueError: an unknown kind.
        """
        require(kind in ("query", "document"), "kind", "'query' or 'document'", repr(kind))
        check_texts(texts)
        prompt, longest = self._settings.prompts[kind], self._settings.max_length
        ids = tokenise(self._tokenizer, texts, lambda text: prompt + text)
        compute = partial(last_token_vectors, self._leaves, config=self._config, dim=self.dim)
        return computed(ids, longest, self.batch_tokens, self.dim, compute, progress)


@partial(jax.jit, static_argnames=("config", "dim"))
def last_token_vectors(
    leaves: list[jax.Array], ids: jax.Array, lengths: jax.Array, *, config: DecoderConfig, dim: int
) -> jax.Array:
    """The first entries of the last tokens' hidden states, normalised.

    Args:
        leaves: the weights, in the order of the leaves of ``abstract_decoder``.
        ids: [b, l] int32 token ids, padded on the right, where no token sees the padding.
        lengths: [b] int32 tokens of each text; 0 for a row of padding.
        config: the network.
        dim: d.

    Returns:
        [b, d] float32 with unit rows; a row of padding is finite, without meaning.
    """
    hidden, _ = assemble(config, leaves)(ids, jnp.zeros(ids.shape[0], jnp.int32))
    last = jnp.take_along_axis(hidden, jnp.maximum(lengths - 1, 0)[:, None, None], axis=1)[:, 0, :dim]
    return last / jnp.maximum(jnp.linalg.norm(last, axis=-1, keepdims=True), 1e-12)


def _read_settings(home: Path, config: DecoderConfig, task: str | None, dim: int | None) -> LastTokenSettings:
    width = config.hidden_size
    require(dim is None or 1 <= dim <= width, "dim", f"a number in 1..{width}", dim)
    modules = read_json(home / "modules.json")
    kinds = [module["type"].rpartition(".")[2] for module in modules]
    known = kinds in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"])
    require(known, "modules.json", "Transformer, Pooling and perhaps Normalize", kinds)
    require(modules[0]["path"] == "", "modules.json", "the Transformer in the directory itself", modules[0]["path"])
    prompts = _prompts(home, task)
    _check_pooling(read_json(home / modules[1]["path"] / "config.json"), width, prompted=any(prompts.values()))
    own = home / "sentence_bert_config.json"
    text = read_json(own) if own.exists() else {}
    ways = sorted(text.get("modality_config", ["text"]))
    require(ways == ["text"], own.name, "text alone to be read, not chats", ways)
    # Newer writers leave the length to the tokeniser's configuration.
    length = text.get("max_seq_length") or read_json(home / "tokenizer_config.json")["model_max_length"]
    return LastTokenSettings(prompts, min(int(length), config.max_position_embeddings), dim or width)


def _prompts(home: Path, task: str | None) -> dict[Kind, str]:
    main = home / "config_sentence_transformers.json"
    raw = read_json(main) if main.exists() else {}
    for field in ("default_prompt_name", "truncate_dim"):
        require(raw.get(field) is None, main.name, f"no {field}", raw.get(field))
    given = raw.get("prompts") or {}
    query = given.get("query", "") if task is None else f"Instruct: {task}\nQuery:"
    return {"query": query, "document": given.get("document", "")}


def _check_pooling(raw: Mapping[str, Any], width: int, prompted: bool) -> None:
    # One name in newer files; in older ones a flag for each mode.
    flags = [key.removeprefix("pooling_mode_") for key, on in raw.items() if key.startswith("pooling_mode_") and on]
    modes = [raw["pooling_mode"]] if "pooling_mode" in raw else flags
    require(modes == ["lasttoken"], "pooling", "the last token alone", modes)
    found = raw.get("embedding_dimension", raw.get("word_embedding_dimension"))
    require(found == width, "pooling", f"the width of the network, {width}", found)
    without = prompted and not raw.get("include_prompt", True)
    require(not without, "pooling", "the prompt to be pooled with the text", "include_prompt=False")
