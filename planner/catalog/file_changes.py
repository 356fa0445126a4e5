"""Change several files together: all of them, or none."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from planner.errors import InputError, Problem

WRITTEN_AGAIN = "Another program writes to the catalogue: run the command again"


@dataclass(frozen=True)
class Change:
    """A file before and after; ``None`` where it is not there."""

    path: Path
    old: bytes | None
    new: bytes | None


def read_current(path: Path) -> bytes | None:
    """A file of the catalogue; ``None`` where there is none.

    Raises
    ------
    InputError
        If it is a link or no file: what is written must stay inside the catalogue.
    """
    try:
        if path.is_symlink() or path.parent.is_symlink():
            fix = "A catalogue that is written to holds files and folders of its own"
            raise InputError(Problem(str(path), "is reached through a link", fix))
        if not path.exists():
            return None
        if not path.is_file():
            raise InputError(Problem(str(path), "is no regular file"))
        return path.read_bytes()
    except OSError as error:
        raise InputError(Problem(str(path), f"cannot be read: {error.strerror or error}")) from None


def apply_changes(changes: Sequence[Change], verify: Callable[[], None]) -> None:
    """Write the changes, then verify; where either fails, every file is again as it was.

    Each new text is written beside its file first and takes its place by renaming, so that no reader ever sees half a
    file.

    Raises
    ------
    InputError
        If a file cannot be written, or is not any more what the change was made from; and whatever ``verify`` raises.
    """
    staged: list[tuple[Change, Path | None]] = []
    done: list[Change] = []
    try:
        for change in changes:
            staged.append((change, None if change.new is None else _stage(change.path, change.new)))
        for change, new in staged:
            if read_current(change.path) != change.old:
                raise InputError(Problem(str(change.path), "has changed meanwhile", WRITTEN_AGAIN))
            done.append(change)
            _replace(change.path, new)
        verify()
    except BaseException as error:
        for change in reversed(done):
            _restore(change)
        if isinstance(error, OSError):
            where = str(error.filename or changes[0].path)
            raise InputError(Problem(where, f"cannot be written: {error.strerror or error}")) from error
        raise
    finally:
        for _, new in staged:
            if new is not None:
                new.unlink(missing_ok=True)


def _stage(path: Path, text: bytes) -> Path:
    """The text in a file beside ``path``, safely on disk."""
    path.parent.mkdir(exist_ok=True)
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    with new.open("xb") as file:
        try:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        except BaseException:
            new.unlink(missing_ok=True)
            raise
    return new


def _replace(path: Path, new: Path | None) -> None:
    if new is None:
        path.unlink(missing_ok=True)
    else:
        os.replace(new, path)


def _restore(change: Change) -> None:
    with contextlib.suppress(OSError, InputError):
        if change.old is None:
            change.path.unlink(missing_ok=True)
        elif read_current(change.path) != change.old:
            _replace(change.path, _stage(change.path, change.old))
