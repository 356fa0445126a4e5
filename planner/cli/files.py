"""Files that commands write: each appears whole or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from planner.errors import InputError, Problem


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[TextIO]:
    """A text file that takes the place of ``path`` once it is whole; until then, and if it fails, the old one stays.

    A pipe or device is written as it is. Bytes that were no UTF-8 when they were read pass through unchanged.

    Raises
    ------
    InputError
        If it cannot be written.
    """
    try:
        if is_stream(path):
            with path.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file:
                yield file
        else:
            yield from _renamed(path.resolve())
    except BrokenPipeError:
        raise
    except RuntimeError as error:  # how Path.resolve of Python 3.11 and 3.12 refuses a loop of links
        raise InputError(Problem(str(path), f"cannot be written: {error}")) from error
    except OSError as error:
        raise InputError(Problem(str(path), f"cannot be written: {error.strerror or error}")) from error


def is_stream(path: Path) -> bool:
    """Whether the path is no place for a file: a pipe, a device, or standard output."""
    return path.is_relative_to("/dev") or path.is_fifo() or path.is_char_device()


def _renamed(path: Path) -> Iterator[TextIO]:
    new = path.with_name(f".{path.name[:200]}.{os.getpid()}.new")
    if path.is_dir():
        raise IsADirectoryError(0, "it is a folder")
    if path.exists() and not os.access(path, os.W_OK):
        raise PermissionError(0, "it is read-only")
    try:
        with new.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            yield file
        if path.exists():
            shutil.copymode(path, new)
        os.replace(new, path)
    finally:
        new.unlink(missing_ok=True)
