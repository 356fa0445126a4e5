"""The first line of a log file: enough to tell its format, and to refuse what is no log at all."""

from __future__ import annotations

import csv
import gzip
import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from planner.errors import InputError, Problem

HEAD_BYTES = 1 << 20
LINE_CHARS = 2_000_000
"""The engine refuses longer lines."""
DELIMITERS = ",;\t|"


@dataclass(frozen=True)
class Head:
    """What the start of a file shows."""

    path: Path
    is_json: bool
    columns: tuple[str, ...]
    """Header of a CSV, or keys of the first JSON object; empty when the first line is neither."""
    delimiter: str
    first_row: tuple[str, ...]
    """Second line of a CSV, for formats that must look at a value."""

    @property
    def is_csv(self) -> bool:
        """Whether it is delimited text."""
        return not self.is_json

    @property
    def is_gzip(self) -> bool:
        """Whether the file is compressed."""
        return self.path.suffix == ".gz"

    @property
    def stem(self) -> str:
        """File name without ``.gz`` and extension."""
        name = self.path.name.removesuffix(".gz")
        return name.rsplit(".", 1)[0]


def read_head(path: Path) -> Head:
    """Read the first lines of a log file.

    Raises
    ------
    InputError
        If the file is missing, a folder, empty, unreadable, not UTF-8 text, or a truncated archive.
    """
    lines = _first_lines(path)
    first = lines[0]
    if first.lstrip().startswith(("{", "[")):
        return Head(path, True, _json_keys(path, first), "", ())
    delimiter = max(DELIMITERS, key=first.count)
    with wide_fields():
        rows = list(csv.reader(lines[:2], delimiter=delimiter))
    columns = tuple(name.strip() for name in rows[0]) if rows else ()
    return Head(path, False, columns, delimiter, tuple(rows[1]) if len(rows) > 1 else ())


@contextmanager
def wide_fields() -> Iterator[None]:
    """Let a CSV field be as long as a line: a column of prompts passes the reader's limit of 128 KiB."""
    before = csv.field_size_limit(LINE_CHARS)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _first_lines(path: Path) -> list[str]:
    if path.is_dir():
        raise InputError(Problem(str(path), "is a folder, not a log file", "Give the log files, or a folder of them"))
    if path.exists() and not path.is_file():
        raise InputError(Problem(str(path), "is a pipe or a device", "Save the log to a file first: it is read twice"))
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
            raw = stream.read(HEAD_BYTES)
    except FileNotFoundError:
        raise InputError(Problem(str(path), "no such file", "Give the path of a log file")) from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(_bad_gzip(path, error)) from None
    except OSError as error:
        raise InputError(Problem(str(path), f"cannot be read: {error.strerror or error}")) from None
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\x00" in raw[:4096]:
        raise InputError(
            Problem(str(path), "is not UTF-8 text (UTF-16 or binary)", "Export it as UTF-8 CSV or JSON lines")
        )
    # The header must be clean; a bad byte further down is one bad row and is counted there.
    lines = [line.decode("utf-8-sig", errors="replace") for line in raw.splitlines()[:2]]
    if not lines or not "".join(lines).strip():
        raise InputError(Problem(str(path), "is empty", "Give a log with a header and at least one row"))
    if "�" in lines[0]:
        raise InputError(Problem(str(path), "the header is not UTF-8 text", "Export it as UTF-8", row="1"))
    return lines


def check_gzip(head: Head) -> None:
    """Read a compressed file to its end: the engine finds a file cut short, but not a flipped bit.

    Raises
    ------
    InputError
        If the archive is damaged.
    """
    if not head.is_gzip:
        return
    try:
        with gzip.open(head.path, "rb") as stream:
            while stream.read(HEAD_BYTES):
                pass
    except (EOFError, zlib.error, OSError) as error:
        raise InputError(_bad_gzip(head.path, error)) from None


def _bad_gzip(path: Path, error: Exception) -> Problem:
    return Problem(str(path), f"is not a complete gzip file: {error}", "Export or copy it again")


def _json_keys(path: Path, first: str) -> tuple[str, ...]:
    try:
        value = json.loads(first)
    except (json.JSONDecodeError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise InputError(
            Problem(str(path), "the first line is not one JSON object", "Give JSON lines: one object a line", row="1")
        )
    return tuple(value)
