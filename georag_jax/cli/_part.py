"""The file beside an output that keeps what is done, so that a run which was stopped can be taken up again."""

import contextlib
import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from georag_jax._jsonl import parse_object, text_field


class Part:
    """Finished records of a file that is being made, open to one process at a time.

    The first line holds the settings that the records depend on, each further one a record with an "id". Records of
    an earlier run with the same settings are taken up; a last line that was cut by its end is dropped. A file of other
    settings, or one that cannot be read, is begun afresh, with a message on standard error.

    Args:
        path: of the file; made, with its directory, where it is missing.
        settings: all that the records depend on, ready for JSON.

    Raises:
        RuntimeError: another process has it open.
        OSError: it cannot be written.
    """

    def __init__(self, path: Path, settings: dict[str, Any]):
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._starts: dict[str, int] = {}
        self._file = _open_alone(path)
        try:
            self._take_up(settings)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> "Part":
        return self

    def __exit__(self, *raised: object) -> None:
        self._file.close()

    def __contains__(self, identifier: str) -> bool:
        return identifier in self._starts

    def add(self, records: Iterable[dict[str, Any]]) -> None:
        """Appends records; they are on the disk when this returns."""
        for record in records:
            self._starts[record["id"]] = self._end
            self._write(record)
        self._file.flush()
        os.fsync(self._file.fileno())

    def lines(self, ids: Iterable[str]) -> Iterator[bytes]:
        """The lines of these records, in the order of the ids."""
        for identifier in ids:
            self._file.seek(self._starts[identifier])
            yield self._file.readline()

    def finish(self, out: Path, ids: Iterable[str]) -> None:
        """Writes these records to ``out``, in the order of the ids and all at once, and removes the part.

        Raises:
            OSError: it cannot be written; the part is still there.
        """
        temporary = out.with_name(out.name + ".tmp")
        with open(temporary, "wb") as file:
            file.writelines(self.lines(ids))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, out)
        self.remove()

    def remove(self) -> None:
        """Removes the file, as its records are elsewhere now."""
        if sys.platform == "win32":
            self._file.close()  # an open file cannot be removed there
        self.path.unlink()  # elsewhere under the lock, so that it is no other run's file by now

    def _take_up(self, settings: dict[str, Any]) -> None:
        self._file.seek(0)
        self._end = 0
        wanted = json.loads(json.dumps(settings))
        try:
            for number, line in enumerate(self._file, 1):
                if not line.endswith(b"\n"):
                    break
                record = parse_object(line, f"line {number}")
                if number > 1:
                    self._starts[text_field(record, "id", f"line {number}")] = self._end
                elif record.get("settings") != wanted:
                    self._start_afresh("is of a run with other settings")
                    break
                self._end += len(line)
        except ValueError as error:
            self._start_afresh(f"is damaged, or no file of a run ({error})")
        self._file.truncate(self._end)
        self._file.seek(self._end)
        if self._end == 0:
            self._write({"settings": settings})

    def _start_afresh(self, reason: str) -> None:
        print(f"georag: {self.path} {reason}: starting afresh", file=sys.stderr)
        self._starts.clear()
        self._end = 0

    def _write(self, record: dict[str, Any]) -> None:
        line = json.dumps(record, ensure_ascii=False).encode() + b"\n"
        self._file.write(line)
        self._end += len(line)


def _open_alone(path: Path) -> BinaryIO:
    while True:
        file = open(path, "a+b")  # noqa: SIM115 (it stays open as long as the lock is wanted)
        try:
            _lock(file, path)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                    return file
        except BaseException:
            file.close()
            raise
        # Its owner finished and removed it between the opening and the lock.
        file.close()


def _lock(file: BinaryIO, path: Path) -> None:
    if sys.platform == "win32":
        return
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise RuntimeError(f"{path}: another run is writing it: wait for that one, or choose another --out") from error
    except OSError:
        return  # a file system without locks, where two runs on one file are the user's to avoid
