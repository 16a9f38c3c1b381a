"""Sub-queries that a server wrote earlier, in an append-only JSON lines file."""

import json
import logging
import threading
from os import PathLike
from typing import Any

_log = logging.getLogger(__name__)


class Cache:
    """Maps the settings of a request to its sub-queries; safe under threads.

    Args:
        path: the file; made at the first entry. A line that cannot be read, as a killed run leaves one at the end, is
            skipped with a warning.

    Raises:
        OSError: the file exists and cannot be read.
    """

    def __init__(self, path: str | PathLike[str]):
        self._path = path
        self._lock = threading.Lock()
        self._entries: dict[str, list[str]] = {}
        self._torn = False
        try:
            with open(path, "rb") as file:
                content = file.read()
        except FileNotFoundError:
            return
        self._torn = bool(content) and not content.endswith(b"\n")
        for number, line in enumerate(content.split(b"\n"), 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
                self._entries[_name(record["key"])] = [str(s) for s in record["subqueries"]]
            except (ValueError, KeyError, TypeError, RecursionError):
                _log.warning("%s, line %d: skipped, not a cache entry", path, number)

    def get(self, key: dict[str, Any]) -> list[str] | None:
        """The sub-queries kept under these settings; None where there are none."""
        with self._lock:
            found = self._entries.get(_name(key))
        return None if found is None else list(found)

    def put(self, key: dict[str, Any], subqueries: list[str]) -> None:
        """Keeps the sub-queries under these settings and appends them to the file.

        Raises:
            OSError: the file cannot be written.
        """
        line = json.dumps({"key": key, "subqueries": subqueries}, ensure_ascii=False) + "\n"
        with self._lock, open(self._path, "ab") as file:
            # A torn last line must not swallow the new entry.
            file.write((("\n" if self._torn else "") + line).encode())
            self._torn = False
            self._entries[_name(key)] = list(subqueries)


def _name(key: dict[str, Any]) -> str:
    return json.dumps(key, sort_keys=True, ensure_ascii=False)
