"""What other methods have a language model write: made-up passages (HyDE) and rewordings (Multi-Query)."""

import re
from collections.abc import Sequence

from georag_jax._errors import require
from georag_jax.documents import Question
from georag_jax.models._text import few_shot, is_whole, without_thinking
from georag_jax.models.chat import ChatModel, Completion, Sampling
from georag_jax.models.subqueries.parse import distinct, identity, parse

_PASSAGE_SYSTEM = "Write one short passage of an encyclopedia that answers the question. State facts; nothing else."
_PASSAGE_EXAMPLES = (
    (
        "Who wrote the novel Emma?",
        "Emma is a novel by the English author Jane Austen, published in 1815. It tells of Emma Woodhouse, a young "
        "woman of Highbury who likes to make matches for others.",
    ),
    (
        "Which river flows through Dresden?",
        "Dresden is the capital of Saxony in Germany. The city lies on both banks of the Elbe, which rises in Czechia "
        "and flows into the North Sea.",
    ),
)
_REWORDING_SYSTEM = "Ask the same question in other words, on one line. Keep every name. Write nothing else."
_REWORDING_EXAMPLES = (
    ("Who wrote the novel Emma?", "Which author is the novel Emma by?"),
    ("Which river flows through Dresden?", "What is the name of the river that Dresden lies on?"),
    ("When was the company that makes the Golf founded?", "In which year did the maker of the Golf start business?"),
)
_SENTENCE_END = re.compile(r"[.!?][\"'”’)]*(?=\s|$)")


class HyDE:
    """Passages that would answer a question, were they true: their vectors find the real ones (Gao et al. 2023).

    Args:
        model: any ``ChatModel``; a ``KeptModel`` asks nothing twice.
        n: passages a question, >= 1.
        temperature: of the sampling, >= 0.
        seed: of the sampling, >= 0.

    Raises:
        ValueError: an argument is out of its range.

    References: Gao, Ma, Lin and Callan, "Precise zero-shot dense retrieval without relevance labels", 2023.
    """

    def __init__(self, model: ChatModel, *, n: int = 1, temperature: float = 0.7, seed: int = 0):
        require(n >= 1, "n", "a positive number", n)
        self._model, self._n = model, n
        self._sampling = Sampling(temperature=temperature, max_tokens=128, seed=seed)

    def passages(self, questions: Sequence[Question]) -> list[list[str]]:
        """The passages of each question: at most n, none for a blank question; a cut last sentence is left out."""
        answers = _ask(self._model, _PASSAGE_SYSTEM, _PASSAGE_EXAMPLES, questions, self._n, self._sampling)
        return [[text for text in map(_passage, own) if text] for own in answers]


class Rewordings:
    """The question in other words, as sub-queries: the pool is then that of Multi-Query retrieval.

    Args:
        model: any ``ChatModel``; a ``KeptModel`` asks nothing twice.
        n: rewordings asked for a question, >= 1.
        temperature: of the sampling, above 0, since equal answers are of no use.
        seed: of the sampling, >= 0.

    Raises:
        ValueError: an argument is out of its range.
    """

    def __init__(self, model: ChatModel, *, n: int = 4, temperature: float = 0.7, seed: int = 0):
        require(n >= 1, "n", "a positive number", n)
        require(temperature > 0, "temperature", "more than 0", temperature)
        self._model, self._n = model, n
        self._sampling = Sampling(temperature=temperature, max_tokens=64, seed=seed)

    def subqueries(self, questions: Sequence[Question]) -> list[list[str]]:
        """The rewordings of each question that differ from it and from each other; at most n, perhaps none."""
        answers = _ask(self._model, _REWORDING_SYSTEM, _REWORDING_EXAMPLES, questions, self._n, self._sampling)
        lists = []
        for question, own in zip(questions, answers, strict=True):
            lines = (text for c in own for text in parse(c.text, c.cut).subqueries[:1])
            same = identity(question.text)
            lists.append([text for text in distinct(lines) if identity(text) != same])
        return lists


def _ask(
    model: ChatModel,
    system: str,
    examples: Sequence[tuple[str, str]],
    questions: Sequence[Question],
    n: int,
    sampling: Sampling,
) -> list[list[Completion]]:
    """So many answers to each question, none to a blank one."""
    asked = {i: question.text.strip() for i, question in enumerate(questions) if question.text.strip()}
    chats = [few_shot(system, examples, text) for text in asked.values()]
    answers = dict(zip(asked, model.complete(chats, n, sampling) if chats else [], strict=True))
    return [answers.get(i, []) for i in range(len(questions))]


def _passage(completion: Completion) -> str:
    text = " ".join(without_thinking(completion.text).split())
    if completion.cut:
        ends = [match.end() for match in _SENTENCE_END.finditer(text)]
        text = text[: ends[-1]] if ends else text
    return text if is_whole(text) else ""
