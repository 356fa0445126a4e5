"""What the file system refuses becomes bad input: the path, and the reason in its words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from planner.errors import InputError, Problem


@contextmanager
def usable(path: Path, what: str = "read") -> Iterator[None]:
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


def _fix(error: OSError) -> str:
    if isinstance(error, PermissionError):
        return "Ask for the right to use it, or name another place"
    return "" if isinstance(error, FileNotFoundError) else "Check the path and the disk"
