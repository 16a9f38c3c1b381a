"""Texts to unit vectors: tokenise, run an encoder over length-sorted batches, pool, normalise.

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
from georag_jax.models.batches import check_texts, computed, default_batch_tokens, open_tokenizer, read_json, tokenise
from georag_jax.models.bert import BERT, POOLED, abstract_bert, abstract_pooled
from georag_jax.models.bert_config import BertConfig
from georag_jax.models.loading import load_state
from georag_jax.models.weights import name_of, sha256

try:
    from flax import nnx
    from tokenizers import Tokenizer
except ModuleNotFoundError as error:
    raise MissingExtraError((error.name or "flax").partition(".")[0], "models") from error

# What upstream calls the output of its Transformer module, and what is made of that here.
_TOKENS, _POOLED = ("last_hidden_state", "token_embeddings"), ("pooler_output", "sentence_embedding")


class EncoderSettings(NamedTuple):
    """What a sentence encoder's directory says beyond the network.

    Attributes:
        pooling: "mean" over the tokens; "cls", the first one; or "pooled", the network's own dense layer over that.
        max_length: tokens kept of a text, special ones included.
        lower_case: whether texts are lowered before they are tokenised.
        prompts: what is put before a query and before a document.
    """

    pooling: str
    max_length: int
    lower_case: bool
    prompts: Mapping[Kind, str]


class SentenceEncoder:
    """A BERT or RoBERTa sentence encoder; implements ``georag_jax.Encoder``. Made by ``from_directory``.

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
        self.fingerprint, self.dim, self.batch_tokens = fingerprint, config.hidden_size, batch_tokens
        self._leaves, self._config, self._tokenizer, self._settings = leaves, config, tokenizer, settings

    @classmethod
    def from_directory(cls, path: str | Path, *, batch_tokens: int | None = None) -> "SentenceEncoder":
        """Reads a directory in the sentence-transformers layout, as ``georag_jax.models.resolve`` returns it.

        Args:
            path: the directory.
            batch_tokens: tokens of one batch, padding included; by default ``default_batch_tokens()``.

        Returns:
            The encoder.

        Raises:
            FileNotFoundError: a file is missing.
            ValueError: the directory asks for something that is not implemented; the message names it.
            CheckpointError: the weights do not fit the network.
        """
        home = Path(path)
        config = BertConfig.from_mapping(read_json(home / "config.json"))
        settings = read_settings(home, config)
        table = POOLED if settings.pooling == "pooled" else BERT
        state = load_state(home / "model.safetensors", _abstract(config, settings.pooling)[1], table)
        if batch_tokens is None:
            batch_tokens = default_batch_tokens()
        tokenizer = open_tokenizer(home, config.vocab_size, settings.max_length)
        fingerprint = _fingerprint(sha256(home / "model.safetensors"), config, settings)
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
        check_texts(texts)
        prompt, lower = self._settings.prompts[kind], self._settings.lower_case
        prepare = lambda text: (prompt + text).lower() if lower else prompt + text
        ids = tokenise(self._tokenizer, texts, prepare)
        compute = partial(sentence_vectors, self._leaves, config=self._config, pooling=self._settings.pooling)
        return computed(ids, self._settings.max_length, self.batch_tokens, self.dim, compute, progress)


# Flat leaves instead of a module: flattening one on every call costs more than running a short query.
@partial(jax.jit, static_argnames=("config", "pooling"))
def sentence_vectors(
    leaves: list[jax.Array], ids: jax.Array, lengths: jax.Array, *, config: BertConfig, pooling: str
) -> jax.Array:
    """Pooled, normalised hidden states.

    Args:
        leaves: the weights, in the order of the leaves of ``abstract_bert(config)[1]``, or, for "pooled", of
            ``abstract_pooled(config)[1]``.
        ids: [b, l] int32 token ids, padded on the right.
        lengths: [b] int32 tokens of each text; 0 for a row of padding.
        config: the network.
        pooling: "mean", "cls" or "pooled".

    Returns:
        [b, d] float32 with unit rows; a row of padding is finite, without meaning.
    """
    graph, abstract = _abstract(config, pooling)
    model = nnx.merge(graph, jax.tree.unflatten(jax.tree.structure(abstract), leaves))
    mask = jnp.arange(ids.shape[1]) < lengths[:, None]
    output = model(ids, mask)
    if pooling == "pooled":
        pooled = output
    elif pooling == "cls":
        pooled = output[:, 0]
    else:
        tokens = jnp.maximum(lengths, 1).astype(output.dtype)
        pooled = jnp.where(mask[..., None], output, 0.0).sum(axis=1) / tokens[:, None]
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
    modules = read_json(home / "modules.json")
    kinds = [module["type"].rpartition(".")[2] for module in modules]
    known = kinds[:1] == ["Transformer"] and kinds[1:] in (["Pooling"], ["Pooling", "Normalize"], [], ["Normalize"])
    require(known, "modules.json", "Transformer, perhaps Pooling and perhaps Normalize", kinds)
    require(modules[0]["path"] == "", "modules.json", "the Transformer in the directory itself", modules[0]["path"])
    main = home / "config_sentence_transformers.json"
    prompts = _prompts(read_json(main) if main.exists() else {}, normalised=kinds[-1] == "Normalize")
    text = read_json(home / "sentence_bert_config.json")
    _check_transformer(text, _TOKENS if "Pooling" in kinds else _POOLED)
    pooling = "pooled"
    if "Pooling" in kinds:
        raw = read_json(home / modules[1]["path"] / "config.json")
        pooling = _pooling(raw, config, prompted=any(prompts.values()))
    # Newer writers leave the length to the tokeniser's configuration.
    length = text.get("max_seq_length") or read_json(home / "tokenizer_config.json")["model_max_length"]
    max_length = min(int(length), config.longest)
    return EncoderSettings(pooling, max_length, bool(text.get("do_lower_case", False)), prompts)


def _check_transformer(raw: dict[str, Any], output: tuple[str, str]) -> None:
    """Refuses a Transformer module with another task or output than the modules after it need."""
    where = "sentence_bert_config.json"
    unknown = set(raw) - {
        "max_seq_length",
        "do_lower_case",
        "transformer_task",
        "modality_config",
        "module_output_name",
    }
    require(not unknown, where, "no field besides the known ones", sorted(unknown))
    task = raw.get("transformer_task", "feature-extraction")
    require(task == "feature-extraction", where, "the task feature-extraction", task)
    ways = raw.get("modality_config", {"text": {"method": "forward", "method_output_name": _TOKENS[0]}})
    wanted = {"text": {"method": "forward", "method_output_name": output[0]}}
    require(ways == wanted, where, f"the modality_config {wanted}", ways)
    name = raw.get("module_output_name", _TOKENS[1])
    require(name == output[1], where, f"the module_output_name {output[1]}", name)


def _pooling(raw: dict[str, Any], config: BertConfig, prompted: bool) -> str:
    # One name or a list of them in newer files; in older ones a flag for each mode, of which several may be set.
    flags = [key.removeprefix("pooling_mode_") for key, on in raw.items() if key.startswith("pooling_mode_") and on]
    named = raw.get("pooling_mode", flags)
    modes = [named] if isinstance(named, str) else named
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


def _abstract(config: BertConfig, pooling: str) -> tuple[nnx.GraphDef, nnx.State]:
    return abstract_pooled(config) if pooling == "pooled" else abstract_bert(config)


def _fingerprint(weights_sha256: str, config: BertConfig, settings: EncoderSettings) -> str:
    parts = [
        name_of(weights_sha256) or config.model_type,
        weights_sha256[:12],
        settings.pooling,
        str(settings.max_length),
    ]
    if settings.lower_case or any(settings.prompts.values()):
        text = json.dumps([settings.lower_case, settings.prompts["query"], settings.prompts["document"]])
        parts.append(hashlib.sha256(text.encode()).hexdigest()[:6])
    return ":".join(parts)
