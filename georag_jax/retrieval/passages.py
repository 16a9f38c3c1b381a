"""The corpus file: one JSON object a line, checked as a whole, then read passage by passage."""

import codecs
import hashlib
import mmap
import operator
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, overload

import numpy as np

from georag_jax._jsonl import note_id, parse_object, text_field
from georag_jax.documents import Document


class CorpusScan(NamedTuple):
    """What one pass over a corpus file finds.

    Attributes:
        ids: the ids of the n passages, in file order.
        spans: [n, 2] int64, where each passage's line starts and ends in the file, in bytes.
        sha256: hexadecimal digest of the file.
        bytes: size of the file.
    """

    ids: list[str]
    spans: np.ndarray
    sha256: str
    bytes: int


def parse_passage(line: bytes, where: str) -> Document:
    """Reads one line {"id", "title"?, "text", ...}; all other keys become metadata.

    Args:
        line: UTF-8, with or without the line end.
        where: what stands before the message of an error, such as file and line.

    Raises:
        ValueError: the line is no such object; the message says why.

    >>> parse_passage(b'{"id": "a", "text": "Red.", "page": 7}', "here")
    Document(id='a', text='Red.', title='', metadata={'page': 7})
    """
    fields = parse_object(line, where)
    identifier, text = text_field(fields, "id", where), text_field(fields, "text", where)
    title = fields.get("title") or ""
    if not isinstance(title, str):
        raise ValueError(f'{where}: "title": expected a string, got {type(title).__name__}')
    title = text_field(fields, "title", where) if title.strip() else title
    return Document(identifier, text, title, {k: v for k, v in fields.items() if k not in ("id", "title", "text")})


def scan_corpus(path: str | Path) -> CorpusScan:
    """Checks every line of a corpus file in one pass that holds ids, but no texts.

    Args:
        path: a JSONL file in UTF-8; blank lines and a byte order mark are passed over.

    Raises:
        ValueError: a malformed line (the message gives file and line number), an id used twice (both line numbers),
            or no passage at all.
    """
    digest, spans, lines, position = hashlib.sha256(), array("q"), {}, 0
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            digest.update(line)
            start = position
            position += len(line)
            if number == 1 and line.startswith(codecs.BOM_UTF8):
                start, line = len(codecs.BOM_UTF8), line.removeprefix(codecs.BOM_UTF8)
            if not line.strip():
                continue
            identifier = parse_passage(line, f"{path}, line {number}").id
            note_id(lines, identifier, f"{path}, line {number}", number)
            spans.extend((start, position))
    if not lines:
        raise ValueError(f"{path} holds no passages")
    return CorpusScan(list(lines), np.array(spans, np.int64).reshape(-1, 2), digest.hexdigest(), position)


class StoredPassages(Sequence[Document]):
    """The passages of a corpus file that was checked before, read one by one as they are asked for.

    Args:
        path: the corpus file.
        spans: [n, 2] int64, from the scan of that file; may be memory-mapped.
    """

    def __init__(self, path: str | Path, spans: np.ndarray):
        with open(path, "rb") as file:
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._path, self._spans = path, spans

    def __len__(self) -> int:
        return len(self._spans)

    @overload
    def __getitem__(self, item: int) -> Document: ...

    @overload
    def __getitem__(self, item: slice) -> list[Document]: ...

    def __getitem__(self, item):
        """One passage by its number, or a list of them by a slice."""
        if isinstance(item, slice):
            return [self[number] for number in range(*item.indices(len(self)))]
        number = operator.index(item)
        start, end = self._spans[number].tolist()
        return parse_passage(self._bytes[start:end], f"{self._path}, passage {number}")
