"""What is asked of any language model, and what is done to its text before it is read."""

import re
from collections.abc import Iterable

_THINKING = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL | re.IGNORECASE)
_THINKING_TAIL = re.compile(r"\A.*</think(?:ing)?>", re.DOTALL | re.IGNORECASE)


def without_thinking(text: str) -> str:
    """The text without thinking blocks, be they closed, unfinished or unopened.

    >>> without_thinking("<think>Paris? Rome?</think> Rome")
    'Rome'
    """
    return _THINKING_TAIL.sub("", _THINKING.sub("", text)).strip()


def is_whole(text: str) -> bool:
    """Whether no half of a surrogate pair is in it, which neither files nor tokenizers take."""
    return not any("\ud800" <= c <= "\udfff" for c in text)


def few_shot(system: str, examples: Iterable[tuple[str, str]], asked: str) -> list[dict[str, str]]:
    """A chat of instructions, worked examples and what is asked.

    >>> [message["role"] for message in few_shot("Add.", [("1 + 1", "2")], "2 + 2")]
    ['system', 'user', 'assistant', 'user']
    """
    turns = [
        turn
        for question, answer in examples
        for turn in ({"role": "user", "content": question}, {"role": "assistant", "content": answer})
    ]
    return [{"role": "system", "content": system}, *turns, {"role": "user", "content": asked}]
