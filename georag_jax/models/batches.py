"""Texts and pairs of texts as token ids, and the batches of few shapes in which encoders read them.

Dimensions: b rows of a batch, l tokens of a padded row.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from georag_jax._errors import MissingExtraError, require

try:
    from tokenizers import Tokenizer
except ModuleNotFoundError as error:
    raise MissingExtraError("tokenizers", "models") from error

# Rows are padded to a multiple of this many tokens, and to longer steps from 128 tokens on.
_LENGTH_STEP = 8

# Texts handed to the tokeniser at a time, so that its bulky results for a large corpus never exist all at once.
_TOKENISER_CHUNK = 1024


class Batch(NamedTuple):
    """Rows of similar length, padded to few shapes so that few programs are compiled.

    Attributes:
        places: where the rows stand among all of them; fewer than b, as rows are padded too.
        tokens: [b, ..., l] int32, padded with 0 on the right and below.
        lengths: [b] int32 tokens of each row; 0 for a row of padding.
    """

    places: np.ndarray
    tokens: np.ndarray
    lengths: np.ndarray


def open_tokenizer(home: Path, vocabulary: int, max_length: int) -> Tokenizer:
    """Reads a directory's tokenizer.json.

    Args:
        home: the directory.
        vocabulary: token ids that the network has.
        max_length: tokens kept of a text, or of both texts of a pair (the longer one loses its end first), special ones
            included.

    Returns:
        The tokenizer, which truncates and does not pad.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it has more tokens than the network.
    """
    path = home / "tokenizer.json"
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    tokenizer = Tokenizer.from_file(str(path))
    size = tokenizer.get_vocab_size()
    require(size <= vocabulary, "tokenizer", f"at most {vocabulary} tokens", size)
    # A tokenizer.json may carry lengths of its own, which upstream overrides as well.
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length, strategy="longest_first")
    return tokenizer


def tokenise(tokenizer: Tokenizer, texts: Sequence[str], prepare: Callable[[str], str]) -> list[np.ndarray]:
    """Token ids [l] int32 of each text after ``prepare``; lone surrogates are read as "?"."""
    encoded: list[np.ndarray] = []
    for start in range(0, len(texts), _TOKENISER_CHUNK):
        chunk = [_valid(prepare(text)) for text in texts[start : start + _TOKENISER_CHUNK]]
        encoded += [np.array(row.ids, np.int32) for row in tokenizer.encode_batch_fast(chunk)]
    return encoded


def tokenise_pairs(tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]]) -> list[np.ndarray]:
    """Token ids and segments [2, l] int32 of each pair; lone surrogates are read as "?"."""
    encoded: list[np.ndarray] = []
    for start in range(0, len(pairs), _TOKENISER_CHUNK):
        chunk = [(_valid(first), _valid(second)) for first, second in pairs[start : start + _TOKENISER_CHUNK]]
        encoded += [np.array([row.ids, row.type_ids], np.int32) for row in tokenizer.encode_batch_fast(chunk)]
    return encoded


def check_texts(texts: Sequence[str], name: str = "texts") -> None:
    """Raises TypeError, with the position, unless this is a sequence of strings."""
    if isinstance(texts, str):
        raise TypeError(f"{name}: expected a sequence of str, got one str")
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"{name}[{i}]: expected str, got {type(text).__name__}")


def batches(rows: Sequence[np.ndarray], longest: int, batch_tokens: int) -> Iterator[Batch]:
    """The rows in batches, longest first.

    Args:
        rows: arrays [..., l] int32 with l at most ``longest``, alike but for l.
        longest: no row is padded beyond it.
        batch_tokens: tokens of one batch, padding included, unless a single row has more.
    """
    lengths = np.array([row.shape[-1] for row in rows], np.int32)
    order = np.argsort(-lengths, kind="stable")
    done = 0
    while done < len(order):
        length = _length_bucket(int(lengths[order[done]]), longest)
        # A power of two: the sizes of most requests are multiples of a small one, and leave no rows of padding.
        most = 1 << (max(1, batch_tokens // length).bit_length() - 1)
        places = order[done : done + most]
        bucket = _row_bucket(len(places), most)
        tokens = np.zeros((bucket, *rows[places[0]].shape[:-1], length), np.int32)
        for padded, place in zip(tokens, places, strict=False):
            padded[..., : lengths[place]] = rows[place]
        padded_lengths = np.zeros(bucket, np.int32)
        padded_lengths[: len(places)] = lengths[places]
        yield Batch(places, tokens, padded_lengths)
        done += len(places)


def computed(
    rows: Sequence[np.ndarray],
    longest: int,
    batch_tokens: int,
    width: int,
    compute: Callable[[np.ndarray, np.ndarray], jax.Array],
    progress: Callable[[int], None] | None,
) -> np.ndarray:
    """What a network makes of rows, in their order.

    Args:
        rows: as for ``batches``, as are ``longest`` and ``batch_tokens``.
        longest: no row is padded beyond it.
        batch_tokens: tokens of one batch.
        width: numbers that the network makes of a row.
        compute: tokens [b, ..., l] and lengths [b] of a batch to numbers [b, width].
        progress: called after every batch with the number of rows done.

    Returns:
        [n, width] float32.
    """
    out, done = np.zeros((len(rows), width), np.float32), 0
    for batch in batches(rows, longest, batch_tokens):
        out[batch.places] = np.asarray(compute(batch.tokens, batch.lengths))[: len(batch.places)]
        done += len(batch.places)
        if progress is not None:
            progress(done)
    return out


def default_batch_tokens() -> int:
    """1024 on a CPU, where larger batches leave its caches, and 32768 elsewhere."""
    return 1024 if jax.default_backend() == "cpu" else 32768


def read_json(path: Path) -> Any:
    """A JSON file, parsed; FileNotFoundError where it is missing."""
    return json.loads(path.read_text(encoding="utf-8"))


def _valid(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


def _length_bucket(length: int, longest: int) -> int:
    """Padded length: a multiple of the step, or, from 16 of them on, of an eighth of the power of two below."""
    step = max(_LENGTH_STEP, 2 ** (length.bit_length() - 4))
    return min(max(-(-length // step), 1) * step, longest)


def _row_bucket(rows: int, most: int) -> int:
    """Padded batch size: a power of four, at most the full batch."""
    bucket = 1
    while bucket < rows:
        bucket *= 4
    return min(bucket, most)
