"""Files that are read whole: metrics and usage reports, small beside request logs; size and contents are checked."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from planner.errors import InputError, Problem
from planner.json_text import Placed, objects_in
from planner.traffic.disk import usable
from planner.traffic.storage.files import LogFile, RemoteFile, gunzipped, stream_of

HEAD_BYTES = 1 << 17
MAX_BYTES = 1 << 28
"""Largest file that is read whole, unpacked."""
AGAIN = "Export or copy it again"

_KEY = re.compile(r'"([\w.:-]+)"\s*:')


@dataclass(frozen=True)
class Peek:
    """How a file begins."""

    path: LogFile
    text: str
    """Its first `HEAD_BYTES`; empty where it is no text."""

    @property
    def is_json(self) -> bool:
        """Whether it begins as JSON does."""
        return self.text.lstrip().startswith(("{", "["))

    @property
    def keys(self) -> frozenset[str]:
        """Words that stand as keys of JSON objects."""
        return frozenset(_KEY.findall(self.text)) if self.is_json else frozenset()

    @property
    def first_line(self) -> str:
        """The first line with anything in it, but for the line ``sep=,`` that some write before a CSV."""
        lines = self.text.splitlines()[:3]
        return next((line for line in lines if line.strip() and not line.startswith("sep=")), "")

    @property
    def header(self) -> tuple[str, ...]:
        """Cells of the first line of a CSV, less quotes."""
        return () if self.is_json else tuple(cell.strip().strip('"') for cell in self.first_line.split(","))


def peek(path: LogFile) -> Peek:
    """How a file begins; a file that cannot be read begins with nothing, and whoever reads it says why."""
    try:
        with _stream(path) as stream:
            raw = stream.read(HEAD_BYTES)
    except (OSError, EOFError, zlib.error):
        return Peek(path, "")
    return Peek(path, "" if b"\0" in raw else raw.decode("utf-8-sig", errors="replace"))


def text_of(path: LogFile) -> str:
    """The whole text of a file, unpacked.

    Raises
    ------
    InputError
        If it cannot be read, is no UTF-8 text, or is larger than `MAX_BYTES`.
    """
    try:
        with usable(path), _stream(path) as stream:
            raw = stream.read(MAX_BYTES + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(Problem(str(path), f"is not a complete gzip file: {error}", AGAIN)) from None
    if len(raw) > MAX_BYTES:
        fix = "Export a shorter range or a coarser step into each file, and give all of them"
        raise InputError(Problem(str(path), f"is larger than {MAX_BYTES >> 20} MiB", fix))
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            Problem(str(path), f"is not UTF-8 text (byte {error.start:,})", "Export it as UTF-8")
        ) from None
    if not text.strip():
        raise InputError(Problem(str(path), "is empty", AGAIN))
    return text


def _stream(path: LogFile) -> IO[bytes]:
    if not isinstance(path, RemoteFile) and path.exists() and not path.is_file():
        raise OSError(0, "is no regular file", str(path))
    return gunzipped(path) if path.suffix == ".gz" else stream_of(path)


def json_objects(path: LogFile) -> Iterator[Placed]:
    """Objects of a JSON document, of a list in it, or of JSON lines, each with its place.

    Raises
    ------
    InputError
        If it is no JSON, or holds anything else than objects.
    """
    return objects_in(str(path), text_of(path), "an object", AGAIN)
