"""Texts to unit vectors: tokenise, run BERT over length-sorted batches, pool, normalise.

Reference: Reimers and Gurevych, "Sentence-BERT: Sentence Embeddings using Siamese BERT-Networks" (2019).

Dimensions: n texts, b rows of a batch, l tokens of a padded text, d width.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from georag_jax._errors import MissingExtraError, require
from georag_jax._types import Kind
from georag_jax.models.bert import BERT, BertConfig, abstract_bert
from georag_jax.models.loading import load_state
from georag_jax.models.weights import name_of, sha256

try:
    from flax import nnx
    from tokenizers import Tokenizer
except ModuleNotFoundError as error:
    raise MissingExtraError((error.name or "flax").partition(".")[0], "models") from error

# Texts are padded to a multiple of this many tokens; queries are short, so half of it is a bucket too.
_LENGTH_STEP = 32

# Texts handed to the tokeniser at a time, so that its bulky results for a large corpus never exist all at once.
_TOKENISER_CHUNK = 1024


class EncoderSettings(NamedTuple):
    """What a sentence encoder's directory says beyond the network.

    Attributes:
        pooling: "mean" over the tokens or "cls", the first one.
        max_length: tokens kept of a text, special ones included.
        lower_case: whether texts are lowered before they are tokenised.
        prompts: what is put before a query and before a document.
    """

    pooling: str
    max_length: int
    lower_case: bool
    prompts: Mapping[Kind, str]


class SentenceEncoder:
    """A BERT sentence encoder; implements ``georag_jax.Encoder``. Made by ``from_directory``.

    Attributes:
        fingerprint: names weights, pooling and length, for example "minilm:53aa51172d14:mean:256".
        dim: width d of the vectors.
        batch_tokens: tokens of one batch, padding included.
    """

    def __init__(
        self,
        leaves: list[jax.Array],
        config: BertConfig,
        tokenizer: Tokenizer,
        settings: EncoderSettings,
        fingerprint: str,
        batch_tokens: int,
    ):
        require(batch_tokens >= 1, "batch_tokens", "at least 1", batch_tokens)
        vocabulary = tokenizer.get_vocab_size()
        require(vocabulary <= config.vocab_size, "tokenizer", f"at most {config.vocab_size} tokens", vocabulary)
        # A tokenizer.json may carry lengths of its own, which upstream overrides as well.
        tokenizer.no_padding()
        tokenizer.enable_truncation(settings.max_length)
        self.fingerprint, self.dim, self.batch_tokens = fingerprint, config.hidden_size, batch_tokens
        self._leaves, self._config, self._tokenizer, self._settings = leaves, config, tokenizer, settings

    @classmethod
    def from_directory(cls, path: str | Path, *, batch_tokens: int | None = None) -> "SentenceEncoder":
        """Reads a directory in the sentence-transformers layout, as ``georag_jax.models.resolve`` returns it.

        Args:
            path: the directory.
            batch_tokens: tokens of one batch, padding included. By default 1024 on a CPU, where larger batches leave
                its caches, and 32768 elsewhere.

        Returns:
            The encoder.

        Raises:
            FileNotFoundError: a file is missing.
            ValueError: the directory asks for something that is not implemented; the message names it.
            CheckpointError: the weights do not fit the network.
        """
        home = Path(path)
        config = BertConfig.from_mapping(_read(home / "config.json"))
        settings = read_settings(home, config)
        state = load_state(home / "model.safetensors", abstract_bert(config)[1], BERT)
        if batch_tokens is None:
            batch_tokens = 1024 if jax.default_backend() == "cpu" else 32768
        tokenizer = Tokenizer.from_file(str(home / "tokenizer.json"))
        fingerprint = _fingerprint(sha256(home / "model.safetensors"), settings)
        return cls(jax.tree.leaves(state), config, tokenizer, settings, fingerprint, batch_tokens)

    def encode(
        self, texts: Sequence[str], kind: Kind = "document", progress: Callable[[int], None] | None = None
    ) -> np.ndarray:
        """Vectors of texts; the same text has the same vector (within 1e-6) whatever it is batched with.

        Args:
            texts: n texts, cut to the model's length; an empty one has the vector of its special tokens. Lone
                surrogates are read as "?".
            kind: "query" or "document": which of the model's prompts is put before each text, if it has any.
            progress: called after every batch with the number of texts done.

        Returns:
            [n, d] float32 with unit rows, in the order of the texts.

        Raises:
            TypeError: ``texts`` is one string, or holds something that is not a string; the message names its position.
            ValueError: an unknown kind.
        """
        require(kind in ("query", "document"), "kind", "'query' or 'document'", repr(kind))
        ids = self._tokenise(texts, self._settings.prompts[kind])
        lengths = np.array([len(row) for row in ids], np.int32)
        vectors = np.zeros((len(ids), self.dim), np.float32)
        order = np.argsort(-lengths, kind="stable")
        done = 0
        while done < len(order):
            length = _length_bucket(int(lengths[order[done]]), self._settings.max_length)
            rows = order[done : done + max(1, self.batch_tokens // length)]
            vectors[rows] = self._run([ids[i] for i in rows], lengths[rows], length)
            done += len(rows)
            if progress is not None:
                progress(done)
        return vectors

    def _tokenise(self, texts: Sequence[str], prompt: str) -> list[np.ndarray]:
        if isinstance(texts, str):
            raise TypeError("texts: expected a sequence of str, got one str")
        for i, text in enumerate(texts):
            if not isinstance(text, str):
                raise TypeError(f"texts[{i}]: expected str, got {type(text).__name__}")
        ids: list[np.ndarray] = []
        for start in range(0, len(texts), _TOKENISER_CHUNK):
            chunk = [prompt + text for text in texts[start : start + _TOKENISER_CHUNK]]
            if self._settings.lower_case:
                chunk = [text.lower() for text in chunk]
            chunk = [text.encode("utf-8", "replace").decode("utf-8") for text in chunk]
            ids += [np.array(row.ids, np.int32) for row in self._tokenizer.encode_batch_fast(chunk)]
        return ids

    def _run(self, ids: list[np.ndarray], lengths: np.ndarray, length: int) -> np.ndarray:
        """Vectors [b, d] of at most one batch of texts, padded to few shapes so that few are compiled."""
        rows = _row_bucket(len(ids), max(1, self.batch_tokens // length))
        padded = np.zeros((rows, length), np.int32)
        for row, text in zip(padded, ids, strict=False):
            row[: len(text)] = text
        padded_lengths = np.zeros(rows, np.int32)
        padded_lengths[: len(ids)] = lengths
        pooling = self._settings.pooling
        vectors = sentence_vectors(self._leaves, padded, padded_lengths, config=self._config, pooling=pooling)
        return np.asarray(vectors)[: len(ids)]


# Flat leaves instead of a module: flattening one on every call costs more than running a short query.
@partial(jax.jit, static_argnames=("config", "pooling"))
def sentence_vectors(
    leaves: list[jax.Array], ids: jax.Array, lengths: jax.Array, *, config: BertConfig, pooling: str
) -> jax.Array:
    """Pooled, normalised hidden states.

    Args:
        leaves: the weights, in the order of the leaves of ``abstract_bert(config)[1]``.
        ids: [b, l] int32 token ids, padded on the right.
        lengths: [b] int32 tokens of each text; 0 for a row of padding.
        config: the network.
        pooling: "mean" or "cls".

    Returns:
        [b, d] float32 with unit rows; a row of padding is finite, without meaning.
    """
    graph, abstract = abstract_bert(config)
    model = nnx.merge(graph, jax.tree.unflatten(jax.tree.structure(abstract), leaves))
    mask = jnp.arange(ids.shape[1]) < lengths[:, None]
    hidden = model(ids, mask)
    if pooling == "cls":
        pooled = hidden[:, 0]
    else:
        tokens = jnp.maximum(lengths, 1).astype(hidden.dtype)
        pooled = jnp.where(mask[..., None], hidden, 0.0).sum(axis=1) / tokens[:, None]
    return pooled / jnp.maximum(jnp.linalg.norm(pooled, axis=-1, keepdims=True), 1e-12)


def read_settings(home: Path, config: BertConfig) -> EncoderSettings:
    """Reads modules, pooling, length and prompts of a directory in the sentence-transformers layout.

    Args:
        home: the directory.
        config: the network in it.

    Returns:
        The settings.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: modules, pooling or settings that are not implemented; the message names them.
    """
    modules = _read(home / "modules.json")
    kinds = [module["type"].rpartition(".")[2] for module in modules]
    known = kinds in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"])
    require(known, "modules.json", "Transformer, Pooling and perhaps Normalize", kinds)
    require(modules[0]["path"] == "", "modules.json", "the Transformer in the directory itself", modules[0]["path"])
    main = home / "config_sentence_transformers.json"
    prompts = _prompts(_read(main) if main.exists() else {}, normalised=len(kinds) == 3)
    pooling = _pooling(_read(home / modules[1]["path"] / "config.json"), config, prompted=any(prompts.values()))
    text = _read(home / "sentence_bert_config.json")
    unknown = set(text) - {
        "max_seq_length",
        "do_lower_case",
        "transformer_task",
        "modality_config",
        "module_output_name",
    }
    require(not unknown, "sentence_bert_config.json", "no field besides the known ones", sorted(unknown))
    task = text.get("transformer_task", "feature-extraction")
    require(task == "feature-extraction", "sentence_bert_config.json", "the task feature-extraction", task)
    # Newer writers leave the length to the tokeniser's configuration.
    length = text.get("max_seq_length") or _read(home / "tokenizer_config.json")["model_max_length"]
    max_length = min(int(length), config.max_position_embeddings)
    return EncoderSettings(pooling, max_length, bool(text.get("do_lower_case", False)), prompts)


def _pooling(raw: dict[str, Any], config: BertConfig, prompted: bool) -> str:
    # One name in newer files; in older ones a flag for each mode, of which several may be set.
    flags = [key.removeprefix("pooling_mode_") for key, on in raw.items() if key.startswith("pooling_mode_") and on]
    modes = [raw["pooling_mode"]] if "pooling_mode" in raw else flags
    names = {"mean": "mean", "mean_tokens": "mean", "cls": "cls", "cls_token": "cls"}
    require(len(modes) == 1 and modes[0] in names, "pooling", "one mode, mean or cls", modes)
    width = raw.get("embedding_dimension", raw.get("word_embedding_dimension"))
    require(width == config.hidden_size, "pooling", f"the width of the network, {config.hidden_size}", width)
    without = prompted and not raw.get("include_prompt", True)
    require(not without, "pooling", "the prompt to be pooled with the text", "include_prompt=False")
    return names[modes[0]]


def _prompts(raw: dict[str, Any], normalised: bool) -> dict[Kind, str]:
    where = "config_sentence_transformers.json"
    for field in ("default_prompt_name", "truncate_dim"):
        require(raw.get(field) is None, where, f"no {field}", raw.get(field))
    similarity = raw.get("similarity_fn_name") or "cosine"
    # Rows are always of unit length here, so a model whose vector lengths matter would be ranked wrongly.
    require(normalised or similarity == "cosine", where, "cosine similarity or a Normalize module", similarity)
    given = raw.get("prompts") or {}
    document = next((given[name] for name in ("document", "passage", "corpus") if name in given), "")
    return {"query": given.get("query", ""), "document": document}


def _fingerprint(weights_sha256: str, settings: EncoderSettings) -> str:
    parts = [name_of(weights_sha256) or "bert", weights_sha256[:12], settings.pooling, str(settings.max_length)]
    if settings.lower_case or any(settings.prompts.values()):
        text = json.dumps([settings.lower_case, settings.prompts["query"], settings.prompts["document"]])
        parts.append(hashlib.sha256(text.encode()).hexdigest()[:6])
    return ":".join(parts)


def _length_bucket(length: int, longest: int) -> int:
    """Padded length: half a step, or a multiple of the step, at most the longest."""
    if length <= _LENGTH_STEP // 2:
        return min(_LENGTH_STEP // 2, longest)
    return min(-(-length // _LENGTH_STEP) * _LENGTH_STEP, longest)


def _row_bucket(rows: int, most: int) -> int:
    """Padded batch size: a power of four, at most the full batch."""
    bucket = 1
    while bucket < rows:
        bucket *= 4
    return min(bucket, most)


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
