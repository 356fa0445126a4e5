"""What the file system refuses becomes bad input: the path, and the reason in its words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from planner.errors import InputError, Problem, Problems
from planner.traffic.storage.files import RemoteFile
from planner.traffic.storage.refusals import CHANGED, WAIT


@contextmanager
def usable(path: Path | RemoteFile, what: str = "read") -> Iterator[None]:
    """Turn an error of the file system into an `InputError` about its file, or about ``path`` when it names none.

    Raises
    ------
    InputError
        If the block raises `OSError`, or the path could not be one on any file system.
    """
    if "\0" in str(path):
        raise InputError(Problem(repr(str(path)), "is no path: it holds a null character"))
    try:
        yield
    except OSError as error:
        where = error.filename if isinstance(error.filename, str) else str(path)
        raise InputError(Problem(where, f"cannot be {what}: {error.strerror or error}", _fix(error))) from None


@contextmanager
def unchanged(paths: Iterable[Path | RemoteFile]) -> Iterator[None]:
    """Refuse files on a disk that change while the block reads them: some of what is read would not be in the other.

    Raises
    ------
    InputError
        If one of them has another size or time of change at the end; object storage tells that by itself.
    """
    before = {path: _state(path) for path in paths if isinstance(path, Path)}
    yield
    problems = Problems()
    for path, state in before.items():
        if _state(path) != state:
            problems.add(str(path), CHANGED, WAIT)
    problems.raise_if_any()


def _state(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None  # whoever reads it says why
    return found.st_size, found.st_mtime_ns


def _fix(error: OSError) -> str:
    if isinstance(error, PermissionError):
        return "Ask for the right to use it, or name another place"
    return "" if isinstance(error, FileNotFoundError) else "Check the path and the disk"
