"""What a language model is asked: worked examples, then the question."""

import json
import re
from collections.abc import Sequence

from georag_jax.documents import Document
from georag_jax.models._text import few_shot

RESPONSE_FORMAT = {
    "type": "json_schema",
    "json_schema": {
        "name": "subquestions",
        "strict": True,
        "schema": {
            "type": "object",
            "properties": {"subquestions": {"type": "array", "items": {"type": "string"}}},
            "required": ["subquestions"],
            "additionalProperties": False,
        },
    },
}

_LIST_SYSTEM = (
    "You prepare searches. Break the user's question into short search queries, each of which stands alone: it names "
    "everything it is about and never says 'this', 'that film' or 'he'. Cover every fact that an answer needs: each "
    "step of a chain, each side of a comparison, each plausible reading. Where you know or suspect what lies between "
    "two steps, name it. Never repeat the question itself. Answer with JSON alone: "
    '{"subquestions": ["...", "..."]}'
)
_LIST_EXAMPLES = (
    (
        "In which country was the architect of the Sydney Opera House born?",
        (
            "Who designed the Sydney Opera House?",
            "Sydney Opera House architect",
            "Jørn Utzon birthplace",
            "Where was Jørn Utzon born?",
        ),
    ),
    (
        "Which river is longer, the Loire or the Elbe?",
        ("Length of the Loire", "Length of the Elbe", "Loire river in France", "Elbe river course and length"),
    ),
    (
        "What is the capital of the country whose national football team won the first World Cup?",
        (
            "Which national team won the first football World Cup?",
            "1930 FIFA World Cup winner",
            "Uruguay national football team",
            "Capital city of Uruguay",
        ),
    ),
)

_SAMPLE_SYSTEM = (
    "Break the question into the simple questions that must be answered first. Write one a line, nothing else. "
    "Each line repeats the names it is about, makes sense on its own and ends with a question mark."
)
# The names are made up: what only a worked example names can be told, and is no sub-query of any real question.
_SAMPLE_EXAMPLES = (
    (
        "In which country was the architect of the Vellmar Tower born?",
        "Who was the architect of the Vellmar Tower?\nIn which country was Jonas Ekholt born?",
    ),
    (
        "Which river is longer, the Ostra or the Lemne?",
        "How long is the river Ostra?\nHow long is the river Lemne?",
    ),
    (
        "Who is the mayor of the town where the painter of The Grey Ferry died?",
        "Who painted The Grey Ferry?\nIn which town did the painter Marta Sundby die?\nWho is the mayor of Halvik?",
    ),
    (
        "Were the films Tarnow Nights and The Brisca Affair directed by men of the same nationality?",
        "Who directed the film Tarnow Nights?\nWho directed the film The Brisca Affair?\n"
        "What nationality was the director of Tarnow Nights?\nWhat nationality was the director of The Brisca Affair?",
    ),
)
_MADE_UP = frozenset({"vellmar", "ekholt", "ostra", "lemne", "sundby", "halvik", "tarnow", "brisca"})

_FOLLOW_SYSTEM = (
    "Passages were found for a question. Write the simple questions that are still open, one a line, nothing else. "
    "Use the names that the passages give. Each line makes sense on its own and ends with a question mark."
)
_FOLLOW_EXAMPLES = (
    (
        "In which country was the architect of the Vellmar Tower born?",
        "- Vellmar Tower: An office building in Vellmar, designed by Jonas Ekholt.",
        "In which country was Jonas Ekholt born?\nWhere did the architect Jonas Ekholt grow up?",
    ),
    (
        "Which river is longer, the Ostra or the Lemne?",
        "- Ostra: The Ostra is the longest river of the province, with 312 km.",
        "How long is the river Lemne?",
    ),
    (
        "Who is the mayor of the town where the painter of The Grey Ferry died?",
        "- The Grey Ferry: A composition by the artist Marta Sundby.\n- Halvik: A town on the coast.",
        "In which town did the painter Marta Sundby die?\nWho is the mayor of Halvik?",
    ),
)
_PASSAGE_SHOWN = 240  # characters; small models lose the question in longer ones


def list_messages(question: str, most: int) -> list[dict[str, str]]:
    """The chat that asks for many sub-queries at once, as JSON.

    >>> list_messages("Who?", 5)[-1]["content"].splitlines()[-1]
    'Write 5 different search queries for this question.'
    """
    examples = [(q, json.dumps({"subquestions": lines}, ensure_ascii=False)) for q, lines in _LIST_EXAMPLES]
    wish = f"{question}\n\nWrite {most} different search queries for this question."
    return few_shot(_LIST_SYSTEM, examples, wish)


def sample_messages(question: str) -> list[dict[str, str]]:
    """The chat that asks for the few sub-queries of one sample, as lines.

    >>> [m["role"] for m in sample_messages("Who?")][-3:]
    ['user', 'assistant', 'user']
    """
    return few_shot(_SAMPLE_SYSTEM, _SAMPLE_EXAMPLES, question)


def follow_up_messages(question: str, passages: Sequence[Document]) -> list[dict[str, str]]:
    """The chat that asks, with passages at hand, what is still open.

    >>> follow_up_messages("Who?", [Document("1", "Emma is a novel.", "Emma")])[-1]["content"].splitlines()
    ['Who?', 'Passages:', '- Emma: Emma is a novel.']
    """
    examples = [(f"{q}\nPassages:\n{notes}", lines) for q, notes, lines in _FOLLOW_EXAMPLES]
    notes = "\n".join(f"- {p.title}: {_short(p.text)}" if p.title else f"- {_short(p.text)}" for p in passages)
    return few_shot(_FOLLOW_SYSTEM, examples, f"{question}\nPassages:\n{notes}")


def is_echo(subquery: str, question: str) -> bool:
    """Whether a sub-query names what only the worked examples name.

    >>> is_echo("Where did Marta Sundby die?", "Who painted Dusk?")
    True
    """
    words = lambda text: set(re.findall(r"\w+", text.casefold()))
    return bool(words(subquery) & _MADE_UP - words(question))


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _PASSAGE_SHOWN else text[:_PASSAGE_SHOWN].rsplit(" ", 1)[0] + " ..."
