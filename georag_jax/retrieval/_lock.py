"""One build at a time in one directory."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_log = logging.getLogger(__name__)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds a file's lock while the block runs; the file is made where it is not there, and stays.

    The kernel lets go of the lock when the process ends, however it ends, so a killed build leaves nothing to clear
    away. Where the platform or the file system has no such locks the block runs without, and a warning is logged.

    Raises:
        RuntimeError: the lock is held, by another process or in this one.
    """
    with open(path, "ab") as file:
        held = _take(file, path)
        try:
            yield
        finally:
            if held and fcntl is not None:
                # Closing does not do it while a process that was forked meanwhile, such as an encoder's, lives on.
                fcntl.flock(file, fcntl.LOCK_UN)


def _take(file: BinaryIO, path: Path) -> bool:
    try:
        if fcntl is None:
            raise OSError("this platform has no flock")
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise RuntimeError(
            f"{path.parent} is being built by another process, which holds {path.name}: wait for it or stop it"
        ) from error
    except OSError as error:
        _log.warning("%s cannot be locked (%s): see to it yourself that only one build runs there", path, error)
        return False
    return True
