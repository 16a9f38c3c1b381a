"""Answers of a language model from picked chunks, with the chunks that they cite."""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from georag_jax._errors import require
from georag_jax.documents import Document, Question
from georag_jax.models._text import few_shot, is_whole, without_thinking
from georag_jax.models.chat import ChatModel, Sampling

REFUSAL = "The passages do not say."

_SYSTEM = (
    "Answer the question from the numbered passages alone: a name, a date, a number, yes or no, not a sentence. "
    "After it write the numbers of the passages that hold it, such as [2]. "
    f'If none holds it, write "{REFUSAL}"'
)
# The refusal stands first: a small model repeats the last answer that it sees.
_EXAMPLES = (
    (
        "[1] Emma: Emma is a novel by Jane Austen.\n"
        "[2] Highbury: Highbury is a village that Jane Austen made up.\n\n"
        "Question: When was the composer of the opera Carmen born?",
        REFUSAL,
    ),
    (
        "[1] Loire: The Loire is the longest river in France, with a length of 1,006 km.\n"
        "[2] Dresden: Dresden is the capital of Saxony and lies on the Elbe.\n"
        "[3] Elbe: The Elbe runs 1,094 km from the mountains of Czechia to the North Sea.\n\n"
        "Question: Which river is longer, the Loire or the Elbe?",
        "the Elbe [1][3]",
    ),
    (
        "[1] Jørn Utzon: Jørn Utzon was an architect, born in 1918 in Copenhagen, Denmark.\n"
        "[2] Sydney Opera House: The building on Sydney Harbour was designed by Jørn Utzon and opened in 1973.\n\n"
        "Question: In which country was the architect of the Sydney Opera House born?",
        "Denmark [1][2]",
    ),
)
_CITATION = re.compile(r"\[(\d+(?:\s*[,;]\s*\d+)*)\]")
_LABEL = re.compile(r"\A(?:the )?answer\s*(?:is)?\s*:\s*", re.IGNORECASE)
_REFUSES = re.compile(
    r"the passages? do(?:es)? not (?:say|tell|state|mention|hold|contain|give|provide)\b", re.IGNORECASE
)
_LEAST_CUT = 24  # tokens; the beginning of a passage that is shorter than this says nothing


class Answer(NamedTuple):
    """One answer.

    Attributes:
        text: without citations; ``REFUSAL`` where ``refused``.
        citations: ids of the chunks that it cites, in the order of first mention.
        invalid: numbers that it cites and no chunk has.
        refused: whether the model said that the chunks do not hold the answer, or said nothing; or there was no chunk.
        context: ids of the chunks that it was shown, in their order in the prompt.
    """

    text: str
    citations: tuple[str, ...]
    invalid: int
    refused: bool
    context: tuple[str, ...]


class Reader:
    """Answers questions from chunks, greedily.

    The chunks stand in the prompt with the best one last, next to the question, where small models read best, numbered
    from the top. Where they do not fit the budget, the worst are left out, and the last that fits is cut.

    Args:
        model: any ``ChatModel``; a ``KeptModel`` asks nothing twice.
        budget: most tokens of all chunks together, by the model's own count, >= 64. Instructions and worked examples
            take about 400 more, the answer 64.

    Raises:
        ValueError: ``budget`` is out of its range.
    """

    def __init__(self, model: ChatModel, *, budget: int = 1400):
        require(budget >= 64, "budget", "at least 64 tokens", budget)
        self._model, self._budget = model, budget
        self._sampling = Sampling(temperature=0.0, max_tokens=64, stop=("\nQuestion:",))

    def answer(
        self,
        questions: Sequence[Question],
        chunks: Sequence[Sequence[Document]],
        progress: Callable[[int], None] | None = None,
    ) -> list[Answer]:
        """The answer to each question.

        Args:
            questions: in any number.
            chunks: of each question, the best one first.
            progress: told the number of questions that are done; those without chunks are not asked and not counted.

        Returns:
            One answer a question, in the order of the questions.
        """
        shown = [self._shown(own) for own in chunks]
        asked = [i for i, own in enumerate(shown) if own]
        chats = [messages(questions[i].text, [text for _, text in shown[i]]) for i in asked]
        replies = self._model.complete(chats, 1, self._sampling, progress) if chats else []
        texts = dict(zip(asked, (own[0].text for own in replies), strict=True))
        return [read(texts.get(i, ""), [chunk for chunk, _ in own]) for i, own in enumerate(shown)]

    def _shown(self, chunks: Sequence[Document]) -> list[tuple[Document, str]]:
        """The chunks that fit and their text, the best one last."""
        fitting, left = [], self._budget
        for chunk in chunks:
            text = _rendered(chunk)
            size = self._model.count(text)
            if size > left:
                text = self._cut(text, left) if left >= _LEAST_CUT else ""
            if text:
                fitting.append((chunk, text))
            left -= size
            if left < _LEAST_CUT:
                break
        return fitting[::-1]

    def _cut(self, text: str, most: int) -> str:
        """As many words from the beginning as ``most`` tokens hold."""
        words = text.split(" ")
        low, high = 0, len(words)
        while low < high:
            middle = (low + high + 1) // 2
            fits = self._model.count(" ".join(words[:middle])) <= most
            low, high = (middle, high) if fits else (low, middle - 1)
        return " ".join(words[:low])


def messages(question: str, passages: Sequence[str]) -> list[dict[str, str]]:
    """The chat that asks for an answer: instructions, three worked examples, the numbered passages, the question."""
    numbered = "\n".join(f"[{number}] {passage}" for number, passage in enumerate(passages, 1))
    return few_shot(_SYSTEM, _EXAMPLES, f"{numbered}\n\nQuestion: {question.strip()}")


def read(reply: str, context: Sequence[Document]) -> Answer:
    """Takes a reply apart: its first paragraph, the chunks that it cites by their number, whether it refuses.

    >>> read("Answer: Denmark [1, 2][7].", [Document("a", ""), Document("b", "")])[:3]
    ('Denmark.', ('a', 'b'), 1)
    """
    paragraph = without_thinking(reply).partition("\n\n")[0]
    numbers = dict.fromkeys(int(n) for m in _CITATION.finditer(paragraph) for n in re.findall(r"\d+", m.group(1)))
    valid = [number for number in numbers if 1 <= number <= len(context)]
    text = _LABEL.sub("", " ".join(_CITATION.sub(" ", paragraph).split()))
    text = re.sub(r"\s+([.,;:!?])", r"\1", text).strip(" ,;")
    refused = not text or not is_whole(text) or _REFUSES.match(text) is not None
    return Answer(
        text=REFUSAL if refused else text,
        citations=() if refused else tuple(context[number - 1].id for number in valid),
        invalid=len(numbers) - len(valid),
        refused=refused,
        context=tuple(chunk.id for chunk in context),
    )


def _rendered(chunk: Document) -> str:
    text = " ".join(chunk.text.split())
    return f"{chunk.title}: {text}" if chunk.title else text
