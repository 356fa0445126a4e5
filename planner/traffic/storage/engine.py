"""How the engine reads remote files: through one fsspec file system that knows no other file."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import IO, Any

import duckdb
from fsspec import AbstractFileSystem

from planner.errors import InputError
from planner.traffic.storage.files import ENGINE_PROTOCOL, LogFile, RemoteFile

FIXED = datetime(2000, 1, 1, tzinfo=UTC)


def register(connection: duckdb.DuckDBPyConnection, files: Iterable[LogFile]) -> None:
    """Let the connection read the remote ones of the files by their `RemoteFile.engine_path`."""
    remote = {file.engine_path: file for file in files if isinstance(file, RemoteFile)}
    if remote:
        connection.register_filesystem(EngineFiles(remote))


class EngineFiles(AbstractFileSystem):  # type: ignore[misc]
    """The part of fsspec's interface that the engine calls. Names are taken as they are: nothing in them is a pattern.

    The engine goes on to the next file of a pattern, or to the next thread, as if each had a handle of its own; an
    error becomes text on its way. So handles share nothing, and an error's text is the message that people get.
    """

    protocol = (ENGINE_PROTOCOL,)
    cachable = False

    def __init__(self, files: dict[str, RemoteFile]) -> None:
        super().__init__()
        self._files = files

    def open(self, path: str, mode: str = "rb", **_: Any) -> Handle:
        """A handle for reading."""
        if mode != "rb":
            raise OSError(f"{path} is opened for reading only")
        try:
            return Handle(self._files[path].open())
        except InputError as error:
            raise StorageError(error) from None

    def glob(self, path: str, **_: Any) -> list[str]:
        """The file itself."""
        return [path] if path in self._files else []

    def exists(self, path: str, **_: Any) -> bool:
        """Whether it is one of ours."""
        return path in self._files

    def size(self, path: str) -> int:
        """Bytes of a file."""
        return self._files[path].size

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """What fsspec tells of a file."""
        return {"name": path, "size": self.size(path), "type": "file"}

    def modified(self, path: str) -> datetime:
        """A fixed moment: a connection lives as long as one run, and what changes meanwhile is told by reading."""
        return FIXED


class Handle:
    """An open file that several threads may read from.

    The engine reads at a place by `seek` and then `read`, in two calls, with nothing that keeps another thread from
    seeking in between. So a place holds for the thread that asked for it; reading on without one goes on from where
    the last such read ended, as one thread after another does with a file that cannot be read in parts.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._asked = threading.local()
        self._place = 0
        self._turn = 0

    def seek(self, offset: int, whence: int = 0) -> int:
        """Set the place of this thread's next read."""
        with self._lock:
            place = offset if whence == 0 else self._stream.seek(offset, whence)
            self._asked.place, self._asked.turn = place, self._turn
            self._place = place
        return place

    def tell(self) -> int:
        """Where reading goes on."""
        return self._place

    def read(self, length: int = -1) -> bytes:
        """As many bytes as are asked for, unless the file ends: the engine takes no fewer."""
        with self._lock:
            place = self._taken()
            try:
                self._stream.seek(place)
                data = self._stream.read(length)
            except InputError as error:
                raise StorageError(error) from None
            self._place = place + len(data)
        return data

    def _taken(self) -> int:
        """The place that this thread has asked for, unless others have read on since; else the common one."""
        asked, turn = getattr(self._asked, "place", None), getattr(self._asked, "turn", -1)
        self._asked.place = None
        if asked is not None and turn == self._turn:
            return int(asked)
        self._turn += 1
        return self._place

    def close(self) -> None:
        """Close it."""
        self._stream.close()

    def flush(self) -> None:
        """Do nothing: it is only read."""


class StorageError(OSError):
    """A refusal on its way through the engine, which hands on its name and text."""

    def __init__(self, error: InputError) -> None:
        problem = error.problems[0]
        super().__init__(f"{problem.message}. {problem.fix}" if problem.fix else problem.message)


def said(error: duckdb.Error) -> str:
    """What the storage said, where that is why the engine broke off; else nothing.

    Raises
    ------
    KeyboardInterrupt
        If Ctrl-C came while the engine waited for the storage, which it passes on as an error like others.
    """
    if re.search(rf"^{KeyboardInterrupt.__name__}\b", str(error), re.MULTILINE):
        raise KeyboardInterrupt from None
    return str(error).strip().partition(f"{StorageError.__name__}: ")[2]
