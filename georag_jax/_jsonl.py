"""JSON Lines, read strictly: a malformed line is an error that gives file and line number."""

import codecs
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple


class Line(NamedTuple):
    """One record and where it stands.

    Attributes:
        record: the JSON object.
        where: file and line number, as messages give them.
        number: of the line, from 1.
    """

    record: dict[str, Any]
    where: str
    number: int


def parse_object(line: bytes, where: str) -> dict[str, Any]:
    """The JSON object in one line of UTF-8; ValueError "where: ..." for anything else.

    >>> parse_object(b'{"id": "a"}', "here")
    {'id': 'a'}
    """
    try:
        record = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: not valid JSON in UTF-8: {error}") from error
    if not isinstance(record, dict):
        raise ValueError(f"{where}: expected a JSON object, got {type(record).__name__}")
    return record


def text_field(record: dict[str, Any], key: str, where: str) -> str:
    """A string that is not blank under ``key``; ValueError "where: ..." where there is none."""
    if key not in record:
        raise ValueError(f'{where}: "{key}" is missing')
    value = record[key]
    if not isinstance(value, str):
        raise ValueError(f'{where}: "{key}": expected a string, got {type(value).__name__}')
    if not value.strip():
        raise ValueError(f'{where}: "{key}" is empty')
    _check_unicode(value, key, where)
    return value


def read_lines(path: str | Path) -> Iterator[tuple[bytes, str, int]]:
    """The lines that are not blank, each with file and line, and its number; a byte order mark is passed over."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if number == 1:
                line = line.removeprefix(codecs.BOM_UTF8)
            if line.strip():
                yield line, f"{path}, line {number}", number


def note_id(seen: dict[str, int], identifier: str, where: str, number: int) -> None:
    """Enters an id with its line number; ValueError "where: ..." where an earlier line has it."""
    if identifier in seen:
        raise ValueError(f"{where}: id {identifier!r} was used on line {seen[identifier]} already")
    seen[identifier] = number


def read_records(path: str | Path) -> Iterator[Line]:
    """The records of a file whose "id" is a string used once.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a malformed line, or an id used twice (both line numbers are given).
    """
    seen: dict[str, int] = {}
    for line, where, number in read_lines(path):
        record = parse_object(line, where)
        identifier = text_field(record, "id", where)
        note_id(seen, identifier, where, number)
        yield Line(record, where, number)


def string_list(record: dict[str, Any], key: str, where: str) -> tuple[str, ...]:
    """A list of strings under ``key``, empty where the key is missing; ValueError "where: ..." for anything else."""
    value = record.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError(f'{where}: "{key}": expected a list of strings, got {json.dumps(value)[:60]}')
    _check_unicode("".join(value), key, where)
    return tuple(value)


def number_list(record: dict[str, Any], key: str, where: str) -> tuple[float, ...]:
    """A list of finite numbers under ``key``, empty where the key is missing; ValueError "where: ..." else."""
    value = record.get(key, [])
    if not isinstance(value, list) or not all(_is_finite(item) for item in value):
        raise ValueError(f'{where}: "{key}": expected a list of finite numbers, got {json.dumps(value)[:60]}')
    return tuple(float(item) for item in value)


def _is_finite(item: Any) -> bool:
    # JSON has whole numbers that no float holds; a comparison takes them, and is False for NaN.
    return isinstance(item, int | float) and not isinstance(item, bool) and abs(item) <= sys.float_info.max


def _check_unicode(text: str, key: str, where: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:  # JSON can escape half of a surrogate pair, which no tokenizer takes
        raise ValueError(f'{where}: "{key}" is not valid Unicode: {error.reason}') from error
