"""The arrivals of the spool in order of time, some whole hours after the other, whatever the order of rows."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from planner.traffic.tables.cells import bucket
from planner.traffic.tables.definitions import BLOCK_US
from planner.traffic.tables.rows import KEPT, OFFERED, SEEN, Column, taken
from planner.traffic.tables.spool import Chunk, Spool, full_disk

PART_ROWS = 3_000_000
"""Rows that are held in memory at a time, unless one hour alone has more."""
_RECORD = np.dtype([("ts_us", np.int64), ("model", np.int32), ("offered", np.bool_)])


@dataclass(frozen=True)
class Hours:
    """Every row of some hours that follow each other."""

    ts_us: Column
    model: Column
    """Place of the model in its names."""
    offered: Column
    """False for rows of other models, which only show the clock of the log."""
    all_offered: bool = False

    def take(self, places: Column | slice) -> Hours:
        """The rows at these places."""
        ts_us = taken(self.ts_us, places)
        offered = np.ones(len(ts_us), dtype=np.bool_) if self.all_offered else taken(self.offered, places)
        return Hours(ts_us, taken(self.model, places), offered, self.all_offered)

    def arrivals(self) -> Hours:
        """The rows that count as arrivals."""
        return self if self.all_offered or self.offered.all() else self.take(np.flatnonzero(self.offered))


def in_order(
    spool: Spool, model_of_pair: Column, span_us: tuple[int, int], band_of_prompt: Column | None = None
) -> Iterator[Hours]:
    """Rows with ``span_us[0] <= ts_us <= span_us[1]``, hour by hour of the time since ``span_us[0]``.

    Logs are mostly in order of time, file by file: then it is enough to hold what the next batch could still add to.
    Otherwise the rows are first sorted into files of some hours each.

    With ``band_of_prompt``, by pair and prompt bucket, only kept rows, and that number in the place of the model.
    """
    chunks = sorted(spool.chunks, key=lambda chunk: chunk.first_us)
    source = _Source(spool, model_of_pair, span_us, band_of_prompt)
    if _most_waiting(chunks, span_us[0]) <= PART_ROWS:
        yield from _merged(source, chunks)
    else:
        yield from _sorted_out(source)


@dataclass(frozen=True)
class _Source:
    spool: Spool
    model_of_pair: Column
    span_us: tuple[int, int]
    band_of_prompt: Column | None = None

    def read(self, chunk: Chunk) -> Hours:
        if self.band_of_prompt is not None:
            return self._read_bands(chunk, self.band_of_prompt)
        found = self.spool.read(chunk, ("ts_us", "pair"))
        ts_us, model = found["ts_us"], self.model_of_pair.take(found["pair"])
        low, high = self.span_us
        inside = chunk.first_us >= low and chunk.last_us <= high
        if chunk.all_kept and inside:
            return Hours(ts_us, model, np.ones(chunk.size, dtype=np.bool_), all_offered=True)
        verdict = self.spool.read(chunk, ("verdict",))["verdict"]
        useful = SEEN[verdict] if inside else SEEN[verdict] & (ts_us >= low) & (ts_us <= high)
        return Hours(ts_us[useful], model[useful], OFFERED[verdict[useful]])

    def _read_bands(self, chunk: Chunk, band_of_prompt: Column) -> Hours:
        found = self.spool.read(chunk, ("ts_us", "pair", "prompt", "verdict"))
        low, high = self.span_us
        kept = np.flatnonzero((found["verdict"] == KEPT) & (found["ts_us"] >= low) & (found["ts_us"] <= high))
        band = band_of_prompt[found["pair"].take(kept), bucket(found["prompt"].take(kept))]
        return Hours(found["ts_us"].take(kept), band, np.ones(len(kept), dtype=np.bool_), all_offered=True)


def _lowest_after(chunks: list[Chunk]) -> list[int]:
    """For each batch, the first time stamp of the next one; the batches are in this order."""
    return [*(chunk.first_us for chunk in chunks[1:]), np.iinfo(np.int64).max]


def _most_waiting(chunks: list[Chunk], start_us: int) -> int:
    """Most rows that `_merged` would hold at a time."""
    waiting: list[Chunk] = []
    most = 0
    for chunk, after_us in zip(chunks, _lowest_after(chunks), strict=True):
        waiting.append(chunk)
        most = max(most, sum(c.size for c in waiting))
        waiting = [c for c in waiting if c.last_us >= _hour_start(after_us, start_us)]
    return most


def _hour_start(us: int, start_us: int) -> int:
    return start_us + (us - start_us) // BLOCK_US * BLOCK_US


def _merged(source: _Source, chunks: list[Chunk]) -> Iterator[Hours]:
    none = np.empty(0, dtype=np.int64)
    waiting = Hours(none, none, none.astype(np.bool_), all_offered=True)
    for chunk, after_us in zip(chunks, _lowest_after(chunks), strict=True):
        rows = _joined([waiting, source.read(chunk)]) if len(waiting.ts_us) else source.read(chunk)
        whole = rows.ts_us < _hour_start(after_us, source.span_us[0])
        if whole.all():
            waiting = rows.take(slice(0))
            yield rows
            continue
        waiting = rows.take(np.flatnonzero(~whole))
        if len(waiting.ts_us) < len(whole):
            yield rows.take(np.flatnonzero(whole))
    if len(waiting.ts_us):
        yield waiting


def _joined(parts: list[Hours]) -> Hours:
    ts_us, model, offered = (
        np.concatenate([getattr(p, name) for p in parts]) for name in ("ts_us", "model", "offered")
    )
    return Hours(ts_us, model, offered, all_offered=all(p.all_offered for p in parts))


def _sorted_out(source: _Source) -> Iterator[Hours]:
    """By way of files of some hours each, with at most `PART_ROWS` rows where an hour has no more."""
    start_us, last_us = source.span_us
    per_hour = np.zeros((last_us - start_us) // BLOCK_US + 1, dtype=np.int64)
    for chunk in source.spool.chunks:
        per_hour += np.bincount((source.read(chunk).ts_us - start_us) // BLOCK_US, minlength=len(per_hour))
    part_of_hour = _parts(per_hour)
    with ExitStack() as stack, full_disk():
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="planner-ingest-")))
        for chunk in source.spool.chunks:
            rows = source.read(chunk)
            if not len(rows.ts_us):
                continue
            part = part_of_hour[(rows.ts_us - start_us) // BLOCK_US]
            order = np.argsort(part, kind="stable")
            record = np.empty(len(order), dtype=_RECORD)
            for name in _RECORD.names or ():
                record[name] = getattr(rows, name)[order]
            names, starts = np.unique(part[order], return_index=True)
            for name, piece in zip(names.tolist(), np.split(record, starts[1:]), strict=True):
                with (folder / str(name)).open("ab") as stream:
                    stream.write(piece.tobytes())
        for part_name in range(int(part_of_hour[-1]) + 1):
            path = folder / str(part_name)
            if path.exists():
                record = np.fromfile(path, dtype=_RECORD)
                path.unlink()
                yield Hours(record["ts_us"].copy(), record["model"].astype(np.int64), record["offered"].copy())


def _parts(per_hour: Column) -> Column:
    """Part of each hour, so that the hours of a part have at most `PART_ROWS` rows together."""
    part_of_hour = np.empty(len(per_hour), dtype=np.int32)
    part, held = 0, 0
    for hour, n in enumerate(per_hour.tolist()):
        if held and held + n > PART_ROWS:
            part, held = part + 1, 0
        held += n
        part_of_hour[hour] = part
    return part_of_hour
