"""A file of object storage or a web server, with as much of the manners of a path as the readers need."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from planner.errors import InputError, Problem
from planner.traffic.storage.refusals import CHANGED, WAIT, refusal

ENGINE_PROTOCOL = "planner-remote"
"""Under this protocol the engine asks for our files; see `planner.traffic.storage.engine`."""
BLOCK_BYTES = 1 << 23
"""Read ahead: an object store answers a request in some 50 ms, in which it could send this much."""


@dataclass(frozen=True)
class RemoteFile:
    """One object. As text it is its address without credentials, query and fragment."""

    address: str
    """As it was given or found; it may hold a signature, so it is never shown."""
    key: str = field(repr=False)
    """How its file system calls it."""
    filesystem: Any = field(compare=False, repr=False)
    """An fsspec file system."""
    size: int = field(compare=False)
    """Bytes."""

    def __str__(self) -> str:
        return shown(self.address)

    @property
    def name(self) -> str:
        """The last part of the address."""
        return str(self).rstrip("/").rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """Ending of the name, with its dot."""
        return PurePosixPath(self.name).suffix

    @property
    def engine_path(self) -> str:
        """What the engine calls it: the folders stay, as their names may hold values; credentials do not."""
        digest = hashlib.sha256(self.address.encode()).hexdigest()[:16]
        return f"{ENGINE_PROTOCOL}://{digest}/{str(self).partition('://')[2]}"

    def open(self) -> io.BufferedReader:
        """A stream that can seek.

        Raises
        ------
        InputError
            If the storage refuses it.
        """
        try:
            raw = self.filesystem.open(self.key, "rb", block_size=BLOCK_BYTES)
            if getattr(raw, "size", self.size) != self.size:
                raise InputError(Problem(str(self), CHANGED, WAIT))
            return io.BufferedReader(_Words(raw, self), BLOCK_BYTES >> 3)
        except InputError:
            raise
        except Exception as error:  # each driver has its own kinds
            raise InputError(refusal(str(self), self.address, error)) from None


class _Words(io.RawIOBase):
    """A stream of a driver whose errors are in our words, whichever kinds they are of."""

    def __init__(self, raw: Any, file: RemoteFile) -> None:
        self._raw = raw
        self._file = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return int(self._raw.seek(offset, whence))

    def tell(self) -> int:
        return int(self._raw.tell())

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._raw.read(len(buffer))
        except Exception as error:  # each driver has its own kinds
            raise InputError(refusal(str(self._file), self._file.address, error)) from None
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
        super().close()


LogFile = Path | RemoteFile


def shown(address: str) -> str:
    """An address without user, password, query and fragment: those may be keys."""
    protocol, separator, rest = address.partition("://")
    if protocol in ("http", "https"):
        rest = rest.partition("?")[0].partition("#")[0]
    host, slash, path = rest.partition("/")
    if ":" in host.rpartition("@")[0] or protocol in ("http", "https"):
        host = host.rpartition("@")[2]
    return f"{protocol}{separator}{host}{slash}{path}"


def stream_of(path: LogFile) -> io.BufferedReader:
    """The bytes of a file, packed as they are."""
    return path.open() if isinstance(path, RemoteFile) else path.open("rb")


def gunzipped(path: LogFile) -> IO[bytes]:
    """The bytes of a file that is packed with gzip."""
    return cast(IO[bytes], gzip.open(path.open() if isinstance(path, RemoteFile) else path, "rb"))


def size_of(path: LogFile) -> int:
    """Bytes of a file, packed as they are."""
    return path.size if isinstance(path, RemoteFile) else path.stat().st_size


def identity(path: LogFile) -> str:
    """Equal for two names of one file."""
    return path.address if isinstance(path, RemoteFile) else os.path.realpath(path)
