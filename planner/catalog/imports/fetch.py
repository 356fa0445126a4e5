"""Where a price catalogue lies: a file, a folder, a zip, or an address that the user gives."""

from __future__ import annotations

import http.client
import io
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from http.client import HTTPMessage
from pathlib import Path, PurePosixPath
from typing import IO

from planner import units
from planner.catalog.imports.shared import SourceFile
from planner.catalog.web_address import is_allowed, may_follow
from planner.errors import InputError, Problem

TIMEOUT_S = 30.0
"""For a connection and for each part of an answer; the whole answer may take ten times as long."""
MOST_BYTES = 256 * units.BYTES_PER_MIB
"""Of a file, an answer, or all members of a zip together."""
MOST_MEMBERS = 200
_CHUNK_BYTES = units.BYTES_PER_MIB
_BY_HAND = "Get the file by other means and give its path"


def source_files(where: str, *, timeout_s: float = TIMEOUT_S, most_bytes: int = MOST_BYTES) -> tuple[SourceFile, ...]:
    """The CSV files of a path or address, sorted by name.

    A folder gives its ``*.csv`` and those of its folders; a zip gives its ``*.csv``. Nothing is written to disk.

    Raises
    ------
    InputError
        If it cannot be read, is larger than `most_bytes`, or a zip names a member outside itself.
    """
    if urllib.parse.urlsplit(where).scheme in ("http", "https"):
        name = PurePosixPath(urllib.parse.urlsplit(where).path).name
        return _opened(name, where, _fetched(where, timeout_s, most_bytes), most_bytes)
    path = Path(where)
    if path.is_dir():
        files = sorted(path.rglob("*.csv"))
        if not files:
            raise InputError(Problem(where, "holds no CSV file"))
        return tuple(_text(file.relative_to(path).as_posix(), str(file), _read(file, most_bytes)) for file in files)
    return _opened(path.name, where, _read(path, most_bytes), most_bytes)


def _opened(name: str, where: str, data: bytes, most_bytes: int) -> tuple[SourceFile, ...]:
    if data[:2] == b"PK":
        return _members(where, data, most_bytes)
    return (_text(name, where, data),)


def _text(name: str, where: str, data: bytes) -> SourceFile:
    try:
        return SourceFile(name, where, data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InputError(Problem(where, f"is no UTF-8 text: {error.reason} at byte {error.start}")) from None


def _read(path: Path, most_bytes: int) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(most_bytes + 1)
    except OSError as error:
        raise InputError(Problem(str(path), f"cannot be read: {error.strerror or error}")) from None
    return _bounded(str(path), data, most_bytes)


def _bounded(where: str, data: bytes, most_bytes: int) -> bytes:
    if len(data) > most_bytes:
        raise InputError(Problem(where, f"is larger than {most_bytes:,} bytes"))
    return data


def _members(where: str, data: bytes, most_bytes: int) -> tuple[SourceFile, ...]:
    """CSV members of a zip: none that names a place outside, and together no more than the limit once unpacked."""
    found, left = [], most_bytes
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = [entry for entry in archive.infolist() if not entry.is_dir()]
            _check_names(where, entries)
            for entry in sorted(entries, key=lambda entry: entry.filename):
                if entry.filename.endswith(".csv"):
                    with archive.open(entry) as member:
                        unpacked = _bounded(f"{where}!{entry.filename}", member.read(left + 1), left)
                    left -= len(unpacked)
                    found.append(_text(entry.filename, f"{where}!{entry.filename}", unpacked))
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError) as error:
        raise InputError(Problem(where, f"is no zip that can be read: {error}", _BY_HAND)) from None
    if not found:
        raise InputError(Problem(where, "holds no CSV file"))
    return tuple(found)


def _check_names(where: str, entries: list[zipfile.ZipInfo]) -> None:
    if len(entries) > MOST_MEMBERS:
        raise InputError(Problem(where, f"holds {len(entries):,} files, more than {MOST_MEMBERS}"))
    for entry in entries:
        name = PurePosixPath(entry.filename)
        if name.is_absolute() or ".." in name.parts or "\\" in entry.filename or ":" in entry.filename:
            raise InputError(Problem(where, f"names a file outside itself: {entry.filename!r:.120}"))


def _fetched(address: str, timeout_s: float, most_bytes: int) -> bytes:
    if not is_allowed(address):
        raise InputError(Problem(f"{address:.200}", "cannot be used", "Give an https address, or http on this machine"))
    request = urllib.request.Request(address, headers={"User-Agent": "planner"})
    ends = time.monotonic() + 10 * timeout_s
    try:
        with urllib.request.build_opener(_Redirects()).open(request, timeout=timeout_s) as answer:
            return _bounded(address, _parts(answer, most_bytes, ends), most_bytes)
    except urllib.error.HTTPError as error:
        error.close()
        raise InputError(Problem(address, f"the server answers HTTP {error.code}", _BY_HAND)) from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error or type(error).__name__
        raise InputError(Problem(address, f"cannot be reached: {reason!s:.200}", _BY_HAND)) from None


def _parts(answer: http.client.HTTPResponse, most_bytes: int, ends: float) -> bytes:
    """The answer, read until one byte more than allowed, or a moment of the monotonic clock."""
    parts: list[bytes] = []
    size = 0
    while size <= most_bytes:
        if time.monotonic() > ends:
            raise TimeoutError("the answer takes too long")
        part = answer.read1(_CHUNK_BYTES)
        if not part:
            break
        parts.append(part)
        size += len(part)
    return b"".join(parts)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirections to allowed addresses only, and never from https to http."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        """The next request."""
        if not may_follow(req.full_url, newurl):
            raise InputError(Problem(req.full_url, f"leads to {newurl!r:.120}, which is not followed", _BY_HAND))
        return super().redirect_request(req, fp, code, msg, headers, newurl)
