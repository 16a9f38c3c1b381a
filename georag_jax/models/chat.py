"""What a language model is asked and what it answers, whoever runs it: this process or a server."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from georag_jax._errors import require

Chat = Sequence[Mapping[str, str]]  # messages, each with a "role" and a "content"


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn.

    Attributes:
        temperature: >= 0; 0 takes the likeliest token.
        top_p: in 0..1, not 0: the fewest tokens whose probabilities add up to at least this remain.
        top_k: so many of the likeliest tokens remain; 0 keeps all.
        max_tokens: of an answer, >= 1.
        stop: an answer ends before the first of these strings.
        seed: >= 0; the same seed gives the same answers, whatever else is asked for at the same time.

    Raises:
        ValueError: a number is out of its range, or a stop string is empty.
    """

    temperature: float = 0.7
    top_p: float = 1.0
    top_k: int = 0
    max_tokens: int = 256
    stop: tuple[str, ...] = ()
    seed: int = 0

    def __post_init__(self):
        require(self.temperature >= 0, "temperature", "a number >= 0", self.temperature)
        require(0 < self.top_p <= 1, "top_p", "a number above 0, at most 1", self.top_p)
        require(self.top_k >= 0, "top_k", "a number of tokens, or 0 for all", self.top_k)
        require(self.max_tokens >= 1, "max_tokens", "at least 1", self.max_tokens)
        require(all(self.stop), "stop", "strings that are not empty", self.stop)
        require(self.seed >= 0, "seed", "a number >= 0", self.seed)


class Completion(NamedTuple):
    """One answer.

    Attributes:
        text: without special tokens, stop string and what follows it.
        cut: whether the bound on tokens ended it.
    """

    text: str
    cut: bool


@runtime_checkable
class ChatModel(Protocol):
    """Answers chats.

    ``fingerprint`` names weights and settings that change answers: what is kept of them is kept under this name.
    """

    fingerprint: str

    def complete(
        self, chats: Sequence[Chat], n: int, sampling: Sampling, progress: Callable[[int], None] | None = None
    ) -> list[list[Completion]]:
        """For each chat n answers, independent draws; ``progress`` is told the number of chats that are done."""
        ...

    def count(self, text: str) -> int:
        """Tokens of a text, or a careful estimate where the tokenizer is not at hand."""
        ...
