"""What a language model is asked: three worked examples, then the question."""

import json

PROMPT_VERSION = "1"

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

_SYSTEM = (
    "You prepare searches. Break the user's question into short search queries, each of which stands alone: it names "
    "everything it is about and never says 'this', 'that film' or 'he'. Cover every fact that an answer needs: each "
    "step of a chain, each side of a comparison, each plausible reading. Where you know or suspect what lies between "
    "two steps, name it. Never repeat the question itself. Answer with JSON alone: "
    '{"subquestions": ["...", "..."]}'
)
_EXAMPLES = (
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


def messages(question: str, most: int | None = None) -> list[dict[str, str]]:
    """The chat that asks for the sub-queries of one question.

    Args:
        question: the question as asked.
        most: how many sub-queries are wanted; None leaves the number to the model, as in the examples.

    Returns:
        Messages with a role and a content each: the instructions, three worked examples, the question.

    >>> [m["role"] for m in messages("Who?")][-3:]
    ['user', 'assistant', 'user']
    """
    chat = [{"role": "system", "content": _SYSTEM}]
    for example, subquestions in _EXAMPLES:
        answer = json.dumps({"subquestions": subquestions}, ensure_ascii=False)
        chat += [{"role": "user", "content": example}, {"role": "assistant", "content": answer}]
    wish = f"\n\nWrite {most} different search queries for this question." if most else ""
    return [*chat, {"role": "user", "content": question + wish}]
