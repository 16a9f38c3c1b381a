"""Reads sub-queries out of whatever a language model answered."""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from georag_jax.models._text import is_whole, without_thinking

MAX_CHARACTERS = 300  # a longer sub-query is prose; encoders cut it anyway

_FENCE = re.compile(r"```[\w-]*[ \t]*\n?(.*?)(?:```|\Z)", re.DOTALL)
_ASKED_FOR = re.compile(r'"subquestions"\s*:\s*(?=\[)')  # the list of the schema that the request names
_JSON_STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"\s*(:?)')
_BULLET = re.compile(r"(?:[-*+•‣–]|\(?\d{1,3}[.):]|\(?[a-z]\))\s+", re.IGNORECASE)
_LABEL = re.compile(r"(?:sub-?\s?)?(?:question|query|q)\s*#?\d*\s*[:.)]\s*", re.IGNORECASE)
_PREAMBLE = re.compile(
    r"(?:sure|certainly|of course|okay|ok|here (?:are|is)|here's|i hope|let me|note)\b", re.IGNORECASE
)
_WRAPPING = "\"'“”‘’`*_ \t"


class Parsed(NamedTuple):
    """What one answer held.

    Attributes:
        subqueries: in the order of the answer, duplicates included.
        malformed: how many items were dropped: preambles, cut ends, items without a word.
    """

    subqueries: list[str]
    malformed: int


def identity(text: str) -> str:
    """What two sub-queries share that differ in case and punctuation only.

    >>> identity("Who wrote “Emma”?") == identity("who wrote Emma")
    True
    """
    # A text of marks alone has no words and stands for itself.
    return " ".join(re.findall(r"\w+", text.casefold())) or text.strip()


def distinct(texts: Iterable[str]) -> Iterator[str]:
    """The texts without blank ones and without those that repeat an earlier one in other case or punctuation."""
    seen = {""}
    for text in texts:
        key = identity(text)
        if key not in seen:
            seen.add(key)
            yield text


def parse(answer: str, cut: bool = False) -> Parsed:
    r"""Finds the sub-queries in an answer: JSON, fenced or bare, cut or whole, else a list of lines.

    Args:
        answer: the content of one choice; what stands in thinking blocks is ignored.
        cut: whether the answer was ended by the token limit; then an unfinished last item is dropped.

    Returns:
        The sub-queries and how many items were dropped as malformed.

    >>> parse("Sure! Here are two:\n1. Who wrote Emma?\n2. Jane Austen").subqueries
    ['Who wrote Emma?', 'Jane Austen']
    """
    text = without_thinking(answer)
    fence = _FENCE.search(text)
    body = fence.group(1).strip() if fence else text
    items = _json_items(body)
    if items is not None:
        return _clean(items)
    return _lines(body, cut)


def _json_items(text: str) -> Iterable[Any] | None:
    wanted = _ASKED_FOR.search(text)  # other lists of the object, such as thoughts, are no sub-queries
    start = wanted.end() if wanted else min((i for i in (text.find("{"), text.find("[")) if i >= 0), default=-1)
    if start < 0:
        return None
    try:
        return _list_in(json.JSONDecoder().raw_decode(text, start)[0])
    except (ValueError, RecursionError):
        found = [match for match in _JSON_STRING.finditer(text, start) if not match.group(2)]
        if not found:
            return None
    # Cut or broken JSON: the strings that were closed, and one malformed item for the rest.
    return [*(_unescape(match.group(1)) for match in found), None]


def _unescape(literal: str) -> str | None:
    try:
        return json.loads(f'"{literal}"')
    except ValueError:
        return None


def _list_in(value: Any) -> list[Any] | None:
    if isinstance(value, dict):
        lists = [v for v in value.values() if isinstance(v, list)]
        value = lists[0] if lists else list(value.values())
    return [_text_in(item) for item in value] if isinstance(value, list) else None


def _text_in(item: Any) -> Any:
    if isinstance(item, dict):
        return next((v for v in item.values() if isinstance(v, str)), None)
    return item


def _lines(text: str, cut: bool) -> Parsed:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    dropped = 0
    if cut and lines:
        lines, dropped = lines[:-1], 1
    bulleted = [line for line in lines if _BULLET.match(line)]
    if bulleted:
        dropped += len(lines) - len(bulleted)
        lines = [_BULLET.sub("", line, count=1) for line in bulleted]
    items = [None if _PREAMBLE.match(line) or line.endswith(":") else line for line in lines]
    parsed = _clean(items)
    return Parsed(parsed.subqueries, parsed.malformed + dropped)


def _clean(items: Iterable[Any]) -> Parsed:
    kept, malformed = [], 0
    for item in items:
        text = " ".join(item.split()).strip(_WRAPPING) if isinstance(item, str) else ""
        text = _LABEL.sub("", text, count=1).strip(_WRAPPING) if _LABEL.match(text) else text
        if len(re.findall(r"\w", text)) < 2 or not is_whole(text):
            malformed += 1
        elif len(text) > MAX_CHARACTERS:
            kept.append(text[:MAX_CHARACTERS].rsplit(" ", 1)[0])
        else:
            kept.append(text)
    return Parsed(kept, malformed)
