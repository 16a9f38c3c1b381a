"""Pairs of texts to logits: encoders with a classification head, which read both texts at once.

References: Nogueira and Cho, "Passage Re-ranking with BERT" (2019); Williams, Nangia, Bowman, "A Broad-Coverage
Challenge Corpus for Sentence Understanding through Inference" (2018).

Dimensions: n pairs, c labels, b rows of a batch, l tokens of a padded pair.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from georag_jax._errors import MissingExtraError, require
from georag_jax.models.batches import computed, default_batch_tokens, open_tokenizer, read_json, tokenise_pairs
from georag_jax.models.bert import abstract_classifier, classifier_table
from georag_jax.models.bert_config import BertConfig
from georag_jax.models.loading import load_state
from georag_jax.models.reranking import sigmoid
from georag_jax.models.weights import sha256

try:
    from flax import nnx
    from tokenizers import Tokenizer
except ModuleNotFoundError as error:
    raise MissingExtraError((error.name or "flax").partition(".")[0], "models") from error

Pairs = Sequence[tuple[str, str]]
Progress = Callable[[int], None]  # called after every batch with the number of pairs done


class CrossEncoder:
    """A BERT or RoBERTa network with a classification head; with one label it implements ``georag_jax.Reranker``.

    Made by ``from_directory``.

    Attributes:
        fingerprint: names weights, length and what ``score`` returns, for example
            "cross-encoder:53aa51172d14:512:calibrated".
        labels: the c names of the logits, in their order.
        batch_tokens: tokens of one batch, padding included.
    """

    def __init__(
        self,
        leaves: list[jax.Array],
        config: BertConfig,
        tokenizer: Tokenizer,
        labels: tuple[str, ...],
        fingerprint: str,
        calibrated: bool,
        batch_tokens: int,
    ):
        require(batch_tokens >= 1, "batch_tokens", "at least 1", batch_tokens)
        self.fingerprint, self.labels, self.batch_tokens = fingerprint, labels, batch_tokens
        self._leaves, self._config, self._tokenizer, self._calibrated = leaves, config, tokenizer, calibrated

    @classmethod
    def from_directory(
        cls, path: str | Path, *, calibrated: bool = True, batch_tokens: int | None = None
    ) -> "CrossEncoder":
        """Reads a directory of a sequence classification model: config.json, model.safetensors, tokenizer.json.

        Args:
            path: the directory.
            calibrated: whether ``score`` is the sigmoid of the logit, in 0..1, or the logit itself.
            batch_tokens: tokens of one batch, padding included; by default ``default_batch_tokens()``.

        Returns:
            The cross-encoder.

        Raises:
            FileNotFoundError: a file is missing.
            ValueError: the directory asks for something that is not implemented; the message names it.
            CheckpointError: the weights do not fit the network.
        """
        home = Path(path)
        raw = read_json(home / "config.json")
        config, labels = BertConfig.from_mapping(raw), read_labels(raw)
        _check_modules(home)
        max_length = _max_length(home, config)
        tokenizer = open_tokenizer(home, config.vocab_size, max_length)
        weights = home / "model.safetensors"
        state = load_state(weights, abstract_classifier(config, len(labels))[1], classifier_table(config))
        if batch_tokens is None:
            batch_tokens = default_batch_tokens()
        fingerprint = f"cross-encoder:{sha256(weights)[:12]}:{max_length}:{'calibrated' if calibrated else 'logit'}"
        return cls(jax.tree.leaves(state), config, tokenizer, labels, fingerprint, calibrated, batch_tokens)

    def logits(self, pairs: Pairs, progress: Progress | None = None) -> np.ndarray:
        """Logits of pairs; the same pair has the same ones (within 1e-5) whatever it is batched with.

        Args:
            pairs: n pairs of texts, such as question and passage. Where both are too long together for the model, the
                longer one is cut first. Lone surrogates are read as "?".
            progress: called after every batch with the number of pairs done.

        Returns:
            [n, c] float32, in the order of the pairs.

        Raises:
            TypeError: something is not a pair of strings; the message names its position.
            ValueError: the tokeniser numbers segments that the network does not have.
        """
        tokens = self._tokenise(pairs)
        compute = partial(pair_logits, self._leaves, config=self._config, outputs=len(self.labels))
        return computed(tokens, self._config.longest, self.batch_tokens, len(self.labels), compute, progress)

    def probabilities(self, pairs: Pairs, progress: Progress | None = None) -> np.ndarray:
        """Calibrated logits [n, c] float32: their softmax, or the sigmoid of a single one; else as ``logits``."""
        return _calibrate(self.logits(pairs, progress))

    def score(self, pairs: Pairs, progress: Progress | None = None) -> np.ndarray:
        """The one label's logits, or their sigmoids, [n] float32; else as ``logits``.

        Raises:
            TypeError: something is not a pair of strings.
            ValueError: the model has several labels, none of which is a score.
        """
        require(len(self.labels) == 1, "score", "a model with one label", list(self.labels))
        return (self.probabilities if self._calibrated else self.logits)(pairs, progress)[:, 0]

    def _tokenise(self, pairs: Pairs) -> list[np.ndarray]:
        for i, pair in enumerate(pairs):
            two = isinstance(pair, tuple | list) and len(pair) == 2
            if not two or not all(isinstance(text, str) for text in pair):
                raise TypeError(f"pairs[{i}]: expected two str, got {pair!r:.60}")
        tokens = tokenise_pairs(self._tokenizer, pairs)
        if self._config.model_type != "bert":  # RoBERTa is never told the segments, whatever a tokenizer.json numbers
            for ids_and_segments in tokens:
                ids_and_segments[1] = 0
        most = max((int(row[1].max(initial=0)) for row in tokens), default=0)
        require(most < self._config.type_vocab_size, "tokenizer", f"{self._config.type_vocab_size} segments", most + 1)
        return tokens


class Judgements(NamedTuple):
    """Probabilities [n] float32 of natural language inference, which add up to 1 for each pair."""

    entailment: np.ndarray
    neutral: np.ndarray
    contradiction: np.ndarray


class NLI:
    """Natural language inference: whether a premise entails a hypothesis, contradicts it, or neither.

    Args:
        model: a cross-encoder whose labels are named entailment, neutral and contradiction, in any order and case.

    Attributes:
        fingerprint: the model's.

    Raises:
        ValueError: the model has other labels.
    """

    def __init__(self, model: CrossEncoder):
        names = [label.lower() for label in model.labels]
        known = sorted(names) == sorted(Judgements._fields)
        require(known, "labels of config.json", f"the names {list(Judgements._fields)}", list(model.labels))
        self.fingerprint, self._model = model.fingerprint, model
        self._columns = [names.index(field) for field in Judgements._fields]

    @classmethod
    def from_directory(cls, path: str | Path, *, batch_tokens: int | None = None) -> "NLI":
        """Reads a directory as ``CrossEncoder.from_directory`` does, with the same errors."""
        return cls(CrossEncoder.from_directory(path, batch_tokens=batch_tokens))

    def judge(self, pairs: Pairs, progress: Progress | None = None) -> Judgements:
        """Probabilities for n pairs of premise and hypothesis; else as ``CrossEncoder.logits``."""
        return Judgements(*self._model.probabilities(pairs, progress)[:, self._columns].T)


# Flat leaves instead of a module: flattening one on every call costs more than running a short pair.
@partial(jax.jit, static_argnames=("config", "outputs"))
def pair_logits(
    leaves: list[jax.Array], tokens: jax.Array, lengths: jax.Array, *, config: BertConfig, outputs: int
) -> jax.Array:
    """Logits of a classification head.

    Args:
        leaves: the weights, in the order of the leaves of ``abstract_classifier(config, outputs)[1]``.
        tokens: [b, 2, l] int32 token ids and segments, padded on the right.
        lengths: [b] int32 tokens of each pair; 0 for a row of padding.
        config: the network.
        outputs: c, logits of the head.

    Returns:
        [b, c] float32; a row of padding is finite, without meaning.
    """
    graph, abstract = abstract_classifier(config, outputs)
    model = nnx.merge(graph, jax.tree.unflatten(jax.tree.structure(abstract), leaves))
    mask = jnp.arange(tokens.shape[2]) < lengths[:, None]
    return model(tokens[:, 0], mask, tokens[:, 1])


def read_labels(raw: dict[str, Any]) -> tuple[str, ...]:
    """The names of a head's logits, from a parsed ``config.json``.

    Raises:
        ValueError: the numbers of the labels are not 0, 1, 2, ..., or several labels may hold at once.

    >>> read_labels({"id2label": {"1": "neutral", "0": "entailment"}})
    ('entailment', 'neutral')
    """
    kind = raw.get("problem_type")
    require(kind != "multi_label_classification", "config.json", "a problem_type with one label a pair", kind)
    # Upstream's own default is two labels without a name.
    given = raw.get("id2label") or {i: f"LABEL_{i}" for i in range(raw.get("num_labels") or 2)}
    labels = {int(number): name for number, name in given.items()}
    require(set(labels) == set(range(len(labels))), "id2label", "the numbers 0, 1, 2, ..", sorted(labels))
    return tuple(labels[i] for i in range(len(labels)))


def _check_modules(home: Path) -> None:
    """Refuses a directory in the sentence-transformers layout that asks for more than the network itself."""
    if not (home / "modules.json").exists():
        return
    modules = [(module["type"].rpartition(".")[2], module["path"]) for module in read_json(home / "modules.json")]
    require(modules == [("Transformer", "")], "modules.json", "one Transformer in the directory itself", modules)
    text = read_json(home / "sentence_bert_config.json")
    for field, only in {"transformer_task": "sequence-classification", "do_lower_case": False}.items():
        got = text.get(field, only)
        require(got == only, "sentence_bert_config.json", f"{field} {only!r}", repr(got))
    prompt = read_json(home / "config_sentence_transformers.json").get("default_prompt_name")
    require(prompt is None, "config_sentence_transformers.json", "no default_prompt_name", prompt)


def _max_length(home: Path, config: BertConfig) -> int:
    """Tokens kept of a pair: what the tokeniser's configuration says, at most what the network reads."""
    path = home / "tokenizer_config.json"
    length = read_json(path).get("model_max_length") if path.exists() else None
    return config.longest if length is None else min(int(length), config.longest)


def _calibrate(logits: np.ndarray) -> np.ndarray:
    if logits.shape[1] == 1:
        return sigmoid(logits)
    shifted = np.exp(logits - logits.max(1, keepdims=True))
    return shifted / shifted.sum(1, keepdims=True)
