"""One build at a time in one directory."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: builds are not kept apart there
    fcntl = None


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds a file's lock while the block runs; the file is made and stays.

    The kernel lets go of it when the process ends, however it ends, so a killed build leaves nothing to clear away.
    Where the platform has no such locks nothing is made and nothing is held.

    Raises:
        RuntimeError: the lock is held, by another process or in this one.
    """
    if fcntl is None:
        yield
        return
    with open(path, "ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RuntimeError(
                f"{path.parent} is being built by another process (it holds {path.name}): wait until it ends or stop it"
            ) from error
        try:
            yield
        finally:
            # Closing does not do it while a process that was forked meanwhile, such as an encoder's, lives on.
            fcntl.flock(file, fcntl.LOCK_UN)
