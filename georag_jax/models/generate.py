"""Prompts to answers: batches of prompts, what they have in common, and when an answer ends.

Dimensions: p prompts of a batch, n samples of each, r = p n rows.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from georag_jax._errors import require
from georag_jax.models.chat import Completion, Sampling
from georag_jax.models.decoder import Cache
from georag_jax.models.decoder_config import DecoderConfig
from georag_jax.models.decoding import Answers, begin, extend, length_bucket, pad_right, read, widen
from georag_jax.models.sampling import Knobs, mode_of, row_keys

# Room for an answer's tokens at first; it is doubled as answers grow.
_ROOM = 64

# With stop strings, this many tokens are drawn between two looks at the text.
_LOOK = 16

# A common beginning is kept from this many tokens on, and in whole steps of so many, so that few shapes are compiled.
_PREFIX_LEAST, _PREFIX_STEP = 64, 32
_PREFIXES_KEPT = 4


class Batch(NamedTuple):
    """Prompts that were read together.

    Attributes:
        numbers: which of the prompts; p of them, fewer than there are rows where the batch is padded.
        past: their common beginning, if it is kept, and the rest of each.
        starts: [rows] int32 position of what follows each prompt.
        logits: [rows, v] float32 of what follows.
    """

    numbers: list[int]
    past: tuple[Cache, ...]
    starts: np.ndarray
    logits: jax.Array


class Generator:
    """Reads prompts in batches and draws answers.

    What the prompts of a call have in common, or a prompt with the one before it, is read once and kept for later
    calls, if it is long enough: worked examples that stand before every question, for instance.

    Args:
        leaves: the weights, in the order of the leaves of ``abstract_decoder``.
        config: the network.
        ends: tokens that end an answer.
        decode: text of tokens.
    """

    def __init__(
        self,
        leaves: list[jax.Array],
        config: DecoderConfig,
        ends: Sequence[int],
        decode: Callable[[Sequence[int]], str],
    ):
        self._leaves, self._config, self._decode = leaves, config, decode
        self._ends = frozenset(ends)
        self._prefixes: dict[tuple[int, ...], Cache] = {}
        self._previous: Sequence[int] = ()
        self._most_rows, self._most_tokens = (64, 4096) if jax.default_backend() == "cpu" else (256, 32768)

    def complete(
        self, prompts: Sequence[Sequence[int]], n: int, sampling: Sampling, progress: Callable[[int], None] | None
    ) -> list[list[Completion]]:
        """Answers to prompts, n to each; ``progress`` is told the number of prompts done after every batch."""
        require(n >= 1, "n", "at least 1", n)
        answers: list[list[Completion]] = [[] for _ in prompts]
        done = 0
        for batch in self.read(prompts, n, sampling.max_tokens):
            for number, completions in zip(batch.numbers, self._answer(batch, n, sampling), strict=True):
                answers[number] = completions
            done += len(batch.numbers)
            if progress is not None:
                progress(done)
        return answers

    def read(self, prompts: Sequence[Sequence[int]], rows: int, room: int) -> Iterator[Batch]:
        """Reads prompts, the longest first.

        Args:
            prompts: tokens of each, at least one.
            rows: that follow each prompt; bounds the prompts of a batch.
            room: tokens that may follow each prompt.

        Yields:
            Batches that hold every prompt once.

        Raises:
            ValueError: a prompt is empty, or too long to leave that room.
        """
        longest = self._config.max_position_embeddings - room
        for number, prompt in enumerate(prompts):
            expected = f"1 to {longest} tokens, which leaves room for {room} of {longest + room}"
            require(1 <= len(prompt) <= longest, f"prompts[{number}]", expected, len(prompt))
        prefix = self._prefix(prompts)
        shared = 0 if prefix is None else prefix.keys[0].shape[2]
        left = sorted(range(len(prompts)), key=lambda number: -len(prompts[number]))
        while left:
            length = length_bucket(len(prompts[left[0]]) - shared)
            most = max(1, min(self._most_rows // rows, self._most_tokens // length))
            numbers, left = left[:most], left[most:]
            count = min(_power_of_two(len(numbers)), most)
            ids, lengths = pad_right([prompts[number][shared:] for number in numbers], count, length)
            kept, logits = read(self._leaves, ids, lengths, prefix, config=self._config)
            yield Batch(numbers, (kept,) if prefix is None else (prefix, kept), shared + lengths, logits)

    def _prefix(self, prompts: Sequence[Sequence[int]]) -> Cache | None:
        """Keys and values of what all prompts begin with, from before or read now; at least one token is left out."""
        if not prompts:
            return None
        known = [tokens for tokens in self._prefixes if all(_begins(prompt, tokens) for prompt in prompts)]
        best = max(known, key=len, default=())
        compared = prompts if len(prompts) > 1 else [*prompts, self._previous]
        common = _common(compared) // _PREFIX_STEP * _PREFIX_STEP
        self._previous = prompts[-1]
        if common >= len(best) + _PREFIX_LEAST:
            best = tuple(prompts[0][:common])
            ids, lengths = pad_right([best], 1, common)
            self._prefixes[best], _ = read(self._leaves, ids, lengths, None, config=self._config)
        if not best:
            return None
        self._prefixes[best] = self._prefixes.pop(best)  # the newest last
        while len(self._prefixes) > _PREFIXES_KEPT:
            del self._prefixes[next(iter(self._prefixes))]
        return self._prefixes[best]

    def _answer(self, batch: Batch, n: int, sampling: Sampling) -> list[list[Completion]]:
        count = batch.logits.shape[0]
        active = np.arange(count) < len(batch.numbers)
        keys = row_keys(sampling.seed, np.tile(np.arange(n, dtype=np.int32), count))
        knobs, mode, config = Knobs.of(sampling), mode_of(sampling), self._config
        ends, starts = np.array(sorted(self._ends), np.int32), np.repeat(batch.starts, n)
        dtype = batch.past[0].keys[0].dtype
        room, limit = _ROOM, 1
        answers = begin(
            batch.logits, active, keys, knobs, ends, samples=n, room=room, config=config, dtype=dtype, mode=mode
        )
        settled: list[Completion | None] = [None] * (len(batch.numbers) * n)
        while not self._settle(settled, np.asarray(answers.tokens)[:, :limit], sampling):
            if limit == room:
                room *= 2
                answers = widen(answers, room=room)
            limit = min(room, sampling.max_tokens, limit + _LOOK if sampling.stop else room)
            answers = _finish(answers, settled)
            answers = extend(
                self._leaves, answers, batch.past, starts, keys, knobs, ends, np.int32(limit), config=config, mode=mode
            )
        done = [completion for completion in settled if completion is not None]
        return [done[start : start + n] for start in range(0, len(done), n)]

    def _settle(self, settled: list[Completion | None], tokens: np.ndarray, sampling: Sampling) -> bool:
        """Notes the answers that are complete among tokens [r, drawn]; True if all are."""
        drawn = tokens.shape[1]
        for row, completion in enumerate(settled):
            if completion is not None:
                continue
            end = next((at for at, token in enumerate(tokens[row].tolist()) if token in self._ends), None)
            if end is None and drawn < sampling.max_tokens and not sampling.stop:
                continue
            text = self._decode(tokens[row, :end].tolist())
            stops = [at for at in map(text.find, sampling.stop) if at >= 0]
            if stops:
                settled[row] = Completion(text[: min(stops)], cut=False)
            elif end is not None or drawn == sampling.max_tokens:
                settled[row] = Completion(text, cut=end is None)
        return None not in settled


def _finish(answers: Answers, settled: Sequence[Completion | None]) -> Answers:
    """Marks the answers that a stop string ended, which the device cannot see."""
    finished = np.array(answers.finished)
    finished[: len(settled)] |= [completion is not None for completion in settled]
    return answers._replace(finished=jnp.asarray(finished))


def _begins(prompt: Sequence[int], tokens: tuple[int, ...]) -> bool:
    """Whether a prompt begins with tokens and goes on."""
    return len(prompt) > len(tokens) and tuple(prompt[: len(tokens)]) == tokens


def _common(prompts: Sequence[Sequence[int]]) -> int:
    """Tokens that all prompts begin with, less than any of them has.

    >>> _common([[1, 2, 3, 4], [1, 2, 5]]), _common([[1, 2], [1, 2]])
    (2, 1)
    """
    shortest = max(min(map(len, prompts)) - 1, 0)
    columns = zip(*prompts, strict=False)
    return next((at for at, column in enumerate(columns) if at == shortest or len(set(column)) > 1), 0)


def _power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()
