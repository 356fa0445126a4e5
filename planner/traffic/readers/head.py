"""The first line of a log file: enough to tell its format, and to refuse what is no log at all."""

from __future__ import annotations

import csv
import gzip
import json
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, cast

import pyarrow as pa

from planner.errors import InputError, Problem
from planner.traffic.readers.json_start import first_element, leading_values, no_lines
from planner.traffic.readers.packed import refuse_bomb, refuse_packed
from planner.traffic.readers.parquet import parquet_columns
from planner.traffic.storage.files import LogFile, RemoteFile, gunzipped, stream_of

HEAD_BYTES = 1 << 20
LINE_CHARS = 2_000_000
"""The engine refuses longer lines."""
DELIMITERS = ",;\t|"
MOST_COLUMNS = 5_000
DATE_CHARS = 40
PACKED = (".gz", ".zst")
EXCEL_SEPARATOR = re.compile('"?sep=."?', re.IGNORECASE)
PARQUET = (".parquet", ".pq")


@dataclass(frozen=True)
class Head:
    """What the start of a file shows."""

    path: LogFile
    is_json: bool
    columns: tuple[str, ...]
    """Header of a CSV, or keys of the first JSON object; empty when the first line is neither."""
    delimiter: str
    first_row: tuple[str, ...]
    """Values of the first row, for formats that must look at one; in JSON lines only numbers and short texts."""
    types: tuple[str, ...] = ()
    """The engine's type of every column, where the file has types."""
    long_lines: bool = False
    """Whether the first object is a very long one; of one beyond `HEAD_BYTES` only the first keys are known."""
    is_array: bool = False
    """Whether the file is one JSON array of objects, rather than one object a line."""
    lists: tuple[str, ...] = ()
    """Keys of the first JSON object that hold lists of objects."""

    @property
    def is_parquet(self) -> bool:
        """Whether its columns have types of their own."""
        return self.path.suffix in PARQUET

    @property
    def is_csv(self) -> bool:
        """Whether it is delimited text."""
        return not (self.is_json or self.is_parquet)

    @property
    def is_zstd(self) -> bool:
        """Whether the file is compressed with Zstandard."""
        return self.path.suffix == ".zst"

    @property
    def is_gzip(self) -> bool:
        """Whether the file is compressed with gzip."""
        return self.path.suffix == ".gz"

    @property
    def stem(self) -> str:
        """File name without ``.gz`` or ``.zst`` and extension."""
        name = self.path.name.removesuffix(".gz").removesuffix(".zst")
        return name.rsplit(".", 1)[0]


def read_head(path: LogFile) -> Head:
    """Read the first lines of a log file.

    Raises
    ------
    InputError
        If the file is missing, a folder, empty, unreadable, not UTF-8 text, or a truncated archive.
    """
    _check_file(path)
    if path.suffix in PARQUET:
        table = parquet_columns(path)
        return Head(path, False, table.names, "", table.first_row, table.types)
    raw = _start(path)
    lines = _first_lines(path, raw)
    first = lines[0]
    if first.lstrip().startswith(("{", "[")):
        return _json_head(path, raw, first)
    delimiter = max(DELIMITERS, key=first.count)
    with wide_fields():
        rows = list(csv.reader(lines[:2], delimiter=delimiter))
    columns = tuple(name.strip() for name in rows[0]) if rows else ()
    if len(columns) > MOST_COLUMNS:
        what = f"has {len(columns):,} columns, more than {MOST_COLUMNS:,}"
        raise InputError(Problem(str(path), what, "Export the columns that are needed", row="1"))
    return Head(path, False, columns, delimiter, tuple(rows[1]) if len(rows) > 1 else ())


@contextmanager
def wide_fields() -> Iterator[None]:
    """Let a CSV field be as long as a line: a column of prompts passes the reader's limit of 128 KiB."""
    before = csv.field_size_limit(LINE_CHARS)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _check_file(path: LogFile) -> None:
    if isinstance(path, RemoteFile):
        return
    if path.is_dir():
        raise InputError(Problem(str(path), "is a folder, not a log file", "Give the log files, or a folder of them"))
    if path.exists() and not path.is_file():
        raise InputError(Problem(str(path), "is a pipe or a device", "Save the log to a file first: it is read twice"))


def _start(path: LogFile) -> bytes:
    """The first bytes, unpacked.

    Raises
    ------
    InputError
        If they cannot be read.
    """
    try:
        with opened(path) as stream:
            return stream.read(HEAD_BYTES)
    except FileNotFoundError:
        raise InputError(Problem(str(path), "no such file", "Give the path of a log file")) from None
    except (EOFError, zlib.error, gzip.BadGzipFile, pa.ArrowException) as error:
        raise InputError(_bad_archive(path, error)) from None
    except OSError as error:
        if path.suffix == ".zst" and error.errno is None:
            raise InputError(_bad_archive(path, error)) from None
        raise InputError(Problem(str(path), f"cannot be read: {error.strerror or error}")) from None


def _first_lines(path: LogFile, raw: bytes) -> list[str]:
    refuse_packed(path, raw[:512], inside=path.suffix in PACKED)
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\x00" in raw[:4096]:
        raise InputError(
            Problem(str(path), "is not UTF-8 text (UTF-16 or binary)", "Export it as UTF-8 CSV or JSON lines")
        )
    cut = len(raw) == HEAD_BYTES and len(raw.splitlines()) == 1
    # The header must be clean; a bad byte further down is one bad row and is counted there.
    lines = [line.decode("utf-8-sig", errors="replace") for line in raw.splitlines()[:2]]
    if cut and lines[0].lstrip().startswith(("{", "[")):
        return [lines[0].rstrip("�")]  # a character may be cut in two
    if not lines or not "".join(lines).strip():
        raise InputError(Problem(str(path), "is empty", "Give a log with a header and at least one row"))
    if "�" in lines[0]:
        raise InputError(Problem(str(path), "the header is not UTF-8 text", "Export it as UTF-8", row="1"))
    if cut:
        what = f"the first line is longer than {HEAD_BYTES >> 20} MiB"
        raise InputError(Problem(str(path), what, "Give CSV with a header, or JSON lines: one object a line", row="1"))
    if EXCEL_SEPARATOR.fullmatch(lines[0].strip()):
        what = f"starts with '{lines[0].strip()}', which only Excel reads"
        raise InputError(Problem(str(path), what, "Remove the first line, so that the header comes first", row="1"))
    return lines


def check_gzip(head: Head) -> None:
    """Read a compressed file to its end: the engine finds a file cut short, but not a flipped bit.

    Raises
    ------
    InputError
        If the archive is damaged, or unpacks to more than any log does.
    """
    if not (head.is_gzip or head.is_zstd):
        return
    try:
        with opened(head.path) as stream:
            unpacked = 0
            while read := len(stream.read(HEAD_BYTES)):
                unpacked += read
                refuse_bomb(head.path, unpacked)
    except (EOFError, zlib.error, OSError, pa.ArrowException) as error:
        raise InputError(_bad_archive(head.path, error)) from None


def opened(path: LogFile) -> IO[bytes]:
    """The bytes of a file, unpacked where it is compressed with gzip or Zstandard."""
    if path.suffix == ".gz":
        return gunzipped(path)
    if path.suffix == ".zst":
        with stream_of(path):  # its errors name the file
            source = path.open() if isinstance(path, RemoteFile) else str(path)
            return cast(IO[bytes], pa.input_stream(source, compression="zstd"))
    return stream_of(path)


def _bad_archive(path: LogFile, error: Exception) -> Problem:
    kind = "Zstandard" if path.suffix == ".zst" else "gzip"
    return Problem(str(path), f"is not a complete {kind} file: {error}", "Export or copy it again")


def _json_head(path: LogFile, raw: bytes, first: str) -> Head:
    """What the start of a file of JSON shows.

    Raises
    ------
    InputError
        If it is neither an array of objects nor one object a line; says how to make lines of it.
    """
    text = raw.decode("utf-8-sig", errors="replace").rstrip("�")  # a character may be cut in two
    is_array = first.lstrip().startswith("[")
    if is_array:
        found, chars = first_element(path, text, cut=len(raw) == HEAD_BYTES)
    else:
        found, chars = _object(path, text, first), len(first)
    shown = tuple(_shown(value) for value in found.values())
    lists = tuple(key for key, value in found.items() if isinstance(value, list) and value[:1] and _is_object(value[0]))
    long = chars > HEAD_BYTES // 4
    return Head(path, True, tuple(found), "", shown, long_lines=long, is_array=is_array, lists=lists)


def _is_object(value: object) -> bool:
    return isinstance(value, dict)


def _object(path: LogFile, text: str, first: str) -> dict[str, object]:
    """The first line as an object."""
    try:
        value = json.loads(first)
    except (ValueError, RecursionError):
        value = leading_values(first) if len(first) > HEAD_BYTES // 4 else None
    if isinstance(value, dict):
        return value
    raise InputError(no_lines(path, text))


def _shown(value: object) -> str:
    """A value of the first row: numbers, flags and texts as short as a date."""
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    return value if isinstance(value, str) and len(value) <= DATE_CHARS else ""
