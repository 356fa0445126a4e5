"""Judged rows on disk: the few bytes of each that later passes need, a batch after the other.

Columns are files of their own, read back in pieces (not mapped: mapped pages would count as memory).
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np

from planner.errors import InputError, Problem
from planner.traffic.tables.rows import KEPT, NO_RANK, TIMED, Column, Rows

CORE = {"pair": np.int64, "ts_us": np.int64, "prompt": np.int32, "output": np.int32, "cached": np.int32}
STATE = {"verdict": np.int16}
IDENTITY = {
    "adjusted": np.uint16, "has_id": np.bool_, "id_hash": np.uint64, "rank": np.int64, "has_logical": np.bool_,
    "logical_hash": np.uint64,
}  # fmt: skip
KINDS = CORE | STATE | IDENTITY
_NARROW = ("pair", "prompt", "output", "cached")
"""Columns of small numbers, written in as few bytes as the batch needs."""
_DEFAULTS = {"verdict": KEPT, "adjusted": 0, "id_hash": 0, "rank": NO_RANK, "logical_hash": 0}
_HASHED = ("has_id", "id_hash", "rank", "has_logical", "logical_hash")
_FLAGS = {"has_id": "id_hash", "has_logical": "logical_hash"}


@dataclass(frozen=True)
class Chunk:
    """One batch of the spool."""

    start: int
    """Rows before it."""
    size: int
    first_us: int
    last_us: int
    all_kept: bool
    """No row has a verdict, and none is stored."""
    stored: Mapping[str, tuple[int, Any]]
    """By column, where it starts in its file, and its type there."""


class Spool(AbstractContextManager["Spool"]):
    """Rows that count as arrivals, and the others that show how long the log ran."""

    def __init__(self, *, with_ids: bool) -> None:
        self._with_ids = with_ids
        self._columns = CORE | STATE | (IDENTITY if with_ids else {})
        self._stack = ExitStack()
        self._files: dict[str, IO[bytes]] = {}
        self.chunks: list[Chunk] = []
        self.rows = 0
        self.arrivals_us: tuple[int, int] | None = None
        """First and last arrival."""

    def __enter__(self) -> Spool:
        with full_disk():
            folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="planner-ingest-")))
            for name in self._columns:
                self._files[name] = self._stack.enter_context((folder / name).open("w+b", buffering=0))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def write(self, rows: Rows) -> None:
        """Add the rows of a batch that later passes need."""
        if rows.verdict is not None:
            timed = np.flatnonzero(TIMED[rows.verdict])
            rows = rows if len(timed) == len(rows) else rows.take(timed)
        if not len(rows):
            return
        self._note_arrivals(rows.offered().ts_us)
        with full_disk():
            stored = {name: self._store(name, _stored(rows, name)) for name in self._columns if name != "verdict"}
            all_kept = rows.verdict is None and not self._with_ids
            if not all_kept:
                stored["verdict"] = self._store("verdict", _stored(rows, "verdict"))
        first_us, last_us = int(rows.ts_us.min()), int(rows.ts_us.max())
        self.chunks.append(Chunk(self.rows, len(rows), first_us, last_us, all_kept, stored))
        self.rows += len(rows)

    def _note_arrivals(self, ts_us: Column) -> None:
        if len(ts_us):
            first, last = self.arrivals_us or (int(ts_us[0]), int(ts_us[0]))
            self.arrivals_us = min(first, int(ts_us.min())), max(last, int(ts_us.max()))

    def _store(self, name: str, column: Column) -> tuple[int, Any]:
        stream = self._files[name]
        place = stream.seek(0, os.SEEK_END)
        _write(stream, column)
        return place, column.dtype

    def read(self, chunk: Chunk, names: Sequence[str]) -> dict[str, Column]:
        """Columns of one batch."""
        return {name: self._load(chunk, name).astype(KINDS[name], copy=False) for name in names}

    def _load(self, chunk: Chunk, name: str) -> Column:
        if name not in chunk.stored:
            return np.full(chunk.size, KEPT, dtype=KINDS[name])
        place, kind = chunk.stored[name]
        self._files[name].seek(place)
        return np.fromfile(self._files[name], dtype=kind, count=chunk.size)

    def change(self, chunk: Chunk, places: Column, values: Mapping[str, Column | int]) -> None:
        """Overwrite columns of some rows of a batch."""
        for name, value in values.items():
            column = self._load(chunk, name)
            column[places] = value
            self._files[name].seek(chunk.stored[name][0])
            with full_disk():
                _write(self._files[name], column)

    def within(self, places: Column) -> Iterator[tuple[Chunk, Column, Column]]:
        """The batches of some rows: each with the rows' places in it, and in the sorted ``places``."""
        for chunk in self.chunks:
            low, high = np.searchsorted(places, (chunk.start, chunk.start + chunk.size))
            if high > low:
                yield chunk, places[low:high] - chunk.start, np.arange(low, high)

    def gathered(self, places: Column) -> dict[str, Column]:
        """All columns of some rows, whose places are sorted."""
        parts: dict[str, list[Column]] = {name: [] for name in self._columns}
        for chunk, inside, _ in self.within(places):
            for name, column in self.read(chunk, tuple(self._columns)).items():
                parts[name].append(column[inside])
        return {
            name: np.concatenate([np.empty(0, dtype=self._columns[name]), *columns]) for name, columns in parts.items()
        }

    def batches(self) -> Iterator[Rows]:
        """All batches, without their identifiers."""
        names = [name for name in self._columns if name not in _HASHED]
        for chunk in self.chunks:
            found = self.read(chunk, [name for name in names if not (chunk.all_kept and name == "verdict")])
            yield Rows(**found)

    def span_us(self, low_us: int, high_us: int) -> tuple[int, int]:
        """First and last time stamp of all rows, as far as they lie between the two limits."""
        firsts, lasts = [], []
        for chunk in self.chunks:
            if chunk.first_us >= low_us and chunk.last_us <= high_us:
                firsts.append(chunk.first_us)
                lasts.append(chunk.last_us)
            elif chunk.last_us >= low_us and chunk.first_us <= high_us:
                ts_us = self.read(chunk, ("ts_us",))["ts_us"]
                inside = ts_us[(ts_us >= low_us) & (ts_us <= high_us)]
                firsts += inside[:1].tolist() and [int(inside.min())]
                lasts += inside[:1].tolist() and [int(inside.max())]
        return min(firsts), max(lasts)


def _stored(rows: Rows, name: str) -> Column:
    column = getattr(rows, name)
    if column is None:
        value = getattr(rows, _FLAGS[name]) is not None if name in _FLAGS else _DEFAULTS[name]
        return np.full(len(rows), value, dtype=KINDS[name])
    if name in _NARROW:
        return np.ascontiguousarray(column, dtype=np.min_scalar_type(int(column.max())))
    return np.ascontiguousarray(column, dtype=KINDS[name])


def _write(stream: IO[bytes], column: Column) -> None:
    view = memoryview(column.data).cast("B")
    while view:
        view = view[stream.write(view) :]


class full_disk(AbstractContextManager[None]):  # noqa: N801 - reads as a statement
    """Turn a full temporary folder into one clear error."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES):
            raise InputError(no_room(error.strerror or str(error))) from None


def no_room(why: str) -> Problem:
    """The problem of a temporary folder that takes no more."""
    fix = "Free some space (about 60 bytes a row), or name another folder in TMPDIR"
    return Problem(tempfile.gettempdir(), f"the temporary folder cannot be written: {why}", fix)
