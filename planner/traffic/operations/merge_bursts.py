"""The burst table of merged logs: exact where minute counts allow it, by independent sums at finer scales."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from planner.traffic.canonical_tables import of_model
from planner.traffic.grid import Span, counts_by_minute
from planner.traffic.schema import BURST
from planner.traffic.tables.definitions import BLOCK_S, MIN_FREEDOM
from planner.traffic.types import IntArray

BLOCK_MINUTES = BLOCK_S // 60
QUIET_US = BLOCK_S * 1_000_000
"""A log's window begins with its first row and ends with its last: a shorter gap between two logs is a quiet time."""


@dataclass(frozen=True)
class Stream:
    """The arrivals of one model in one log."""

    model: str
    """Its name after the merge."""
    span: Span
    """When the log was kept."""
    resolution_ms: float
    burst: pa.Table
    """The model's rows."""

    def at(self, scale_s: float) -> dict[str, Any] | None:
        """The row of windows of a scale."""
        rows = self.burst.to_pylist()
        return next((row for row in rows if row["kind"] == "window" and row["scale_s"] == scale_s), None)

    def resolves(self, scale_s: float) -> bool:
        """Whether the clock is fine enough; a row that says no because the log is too short does not count."""
        row = self.at(scale_s)
        if row is not None and row["idc"] is not None:
            return bool(row["resolution_ok"])
        scale_ms = scale_s * 1000
        return scale_ms >= 10 * self.resolution_ms or scale_ms % self.resolution_ms == 0


def stretches(spans: Iterable[Span]) -> tuple[Span, ...]:
    """The union of the windows: those that overlap, or have only a quiet time between them, become one stretch."""
    found: list[Span] = []
    for span in sorted(spans):
        if found and span.start_us <= found[-1].end_us + QUIET_US:
            found[-1] = Span(found[-1].start_us, max(found[-1].end_us, span.end_us))
        else:
            found.append(span)
    return tuple(found)


def merge_bursts(streams: Sequence[Stream], rates: pa.Table, spans: Sequence[Span]) -> pa.Table:
    """The burst table of the summed arrivals.

    Scales of whole minutes are counted again in ``rates``, the summed minute counts, over `stretches`, in blocks of an
    hour from the first whole minute. At finer scales each stream's variance is weighted with its share of the windows
    and added: the variance of a sum of independent streams where windows overlap, the pooled variance where they do
    not. Their largest count is at most the sum of the largest counts of the streams of one moment; that is what stands
    there. Batches are those of each log by itself.

    Parameters
    ----------
    streams
        One for each model of each log.
    rates
        The merged minute counts.
    spans
        Windows of all logs.
    """
    union = stretches(spans)
    by_model: dict[str, list[Stream]] = {}
    for stream in streams:
        by_model.setdefault(stream.model, []).append(stream)
    rows: list[dict[str, Any]] = []
    for model, mine in sorted(by_model.items()):
        if len(mine) == 1 and union == (mine[0].span,):
            rows += [row | {"model": model} for row in mine[0].burst.to_pylist()]
            continue
        scales = sorted({row["scale_s"] for s in mine for row in s.burst.to_pylist() if row["kind"] == "window"})
        minutes = of_model(rates, model)
        for scale in scales:
            whole = scale % 60 == 0
            rows.append(_exact(model, mine, minutes, union, scale) if whole else _summed(model, mine, union, scale))
        rows += _batches(model, mine)
    rows.sort(key=burst_order)
    return pa.Table.from_pylist(rows, schema=BURST)


def burst_order(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Rows of the burst table by model, windows before batches, by scale and size."""
    return row["model"], row["kind"] != "window", row["scale_s"], row["max_n"]


class Spread(NamedTuple):
    """Sums of squares inside blocks, and what they are taken over."""

    windows: int
    total: int
    squares: float
    freedom: int
    most: int


def from_minutes(rates: pa.Table, union: Sequence[Span], scale_s: float) -> Spread:
    """Counts per window of ``scale_s`` (whole minutes) inside blocks of an hour of each stretch.

    At an hour the squares are those of the differences between neighbouring hours, as at ingest.
    """
    found = [_spread(counts, int(scale_s) // 60) for counts in counts_by_minute(rates, union)]
    return Spread(
        windows=sum(s.windows for s in found),
        total=sum(s.total for s in found),
        squares=math.fsum(s.squares for s in found),
        freedom=sum(s.freedom for s in found),
        most=max((s.most for s in found), default=0),
    )


def _spread(counts: IntArray, minutes: int) -> Spread:
    windows = counts.size // minutes
    binned = counts[: windows * minutes].reshape(windows, minutes).sum(axis=1)
    most = int(binned.max()) if windows else 0
    if minutes >= BLOCK_MINUTES:
        squares = float((np.diff(binned) ** 2).sum()) / 2
        return Spread(windows, int(binned.sum()), squares, max(windows - 1, 0), most)
    a_block = BLOCK_MINUTES // minutes
    squares, freedom = 0.0, 0
    for start in range(0, windows, a_block):
        block = binned[start : start + a_block]
        squares += float((block * block).sum() - int(block.sum()) ** 2 / block.size)
        freedom += block.size - 1
    return Spread(windows, int(binned.sum()), squares, freedom, most)


def window_row(model: str, scale_s: float, spread: Spread, *, resolved: bool) -> dict[str, Any]:
    """A row of the burst table."""
    mean = spread.total / spread.windows if spread.windows else 0.0
    enough = spread.freedom >= MIN_FREEDOM and mean > 0
    variance = spread.squares / spread.freedom if enough else None
    return {
        "model": model,
        "kind": "window",
        "scale_s": scale_s,
        "windows": spread.windows,
        "mean_n": mean,
        "var_n": variance,
        "idc": variance / mean if variance is not None else None,
        "max_n": spread.most,
        "resolution_ok": enough and resolved,
    }


def _exact(
    model: str, streams: Sequence[Stream], rates: pa.Table, union: Sequence[Span], scale_s: float
) -> dict[str, Any]:
    resolved = all(stream.resolves(scale_s) for stream in streams)
    return window_row(model, scale_s, from_minutes(rates, union, scale_s), resolved=resolved)


def _summed(model: str, streams: Sequence[Stream], union: Sequence[Span], scale_s: float) -> dict[str, Any]:
    bins = [bins_of(span, scale_s) for span in union]
    windows, freedom = sum(map(sum, bins)), sum(k - 1 for blocks in bins for k in blocks if k)
    found = [(stream, row) for stream in streams if (row := stream.at(scale_s)) is not None]
    total = sum(round(row["mean_n"] * row["windows"]) for _, row in found)
    moving = [row for _, row in found if row["mean_n"] > 0]
    known = len(found) == len(streams) and all(row["var_n"] is not None for row in moving)
    weighted = math.fsum(row["var_n"] * row["windows"] for row in moving) if known else 0.0
    spread = Spread(
        windows=windows,
        total=total,
        squares=weighted / windows * freedom if windows else 0.0,
        freedom=freedom if known else 0,
        most=_most_at_once([(stream.span, row["max_n"]) for stream, row in found]),
    )
    return window_row(model, scale_s, spread, resolved=all(stream.resolves(scale_s) for stream in streams))


def bins_of(span: Span, scale_s: float) -> list[int]:
    """Whole windows of ``scale_s`` in each block of an hour; the last block may be short."""
    blocks = max(1, math.ceil(span.seconds / BLOCK_S))
    left = min(span.seconds - (blocks - 1) * BLOCK_S, BLOCK_S)
    return [int(BLOCK_S // scale_s)] * (blocks - 1) + [int(left // scale_s)]


def _most_at_once(most: Sequence[tuple[Span, int]]) -> int:
    """Largest sum over the streams whose windows hold one moment."""
    starts = {span.start_us for span, _ in most}
    return max((sum(n for span, n in most if span.start_us <= s < span.end_us) for s in starts), default=0)


def _batches(model: str, streams: Sequence[Stream]) -> list[dict[str, Any]]:
    """Batches of each size, over all streams; stamps that two streams share are not seen as one batch."""
    found: dict[tuple[float, int], int] = {}
    for row in (row for stream in streams for row in stream.burst.to_pylist() if row["kind"] == "batch"):
        key = row["scale_s"], row["max_n"]
        found[key] = found.get(key, 0) + row["windows"]
    return [
        {"model": model, "kind": "batch", "scale_s": scale, "windows": windows, "max_n": n}
        for (scale, n), windows in sorted(found.items())
    ]


def independence(streams: Sequence[Stream], merged: pa.Table) -> str:
    """The index of dispersion at 60 s as counted, beside what independent streams would give; empty where unknown."""
    rows = [row for stream in streams if (row := stream.at(60.0)) is not None]
    counted = next((r for r in merged.to_pylist() if r["kind"] == "window" and r["scale_s"] == 60.0), None)
    if counted is None or counted["idc"] is None or any(row["var_n"] is None for row in rows):
        return ""
    mean = math.fsum(row["mean_n"] * row["windows"] for row in rows)
    spread = math.fsum(row["var_n"] * row["windows"] for row in rows)
    return f"at 60 s the summed arrivals have an IDC of {counted['idc']:.3g}, independent ones had {spread / mean:.3g}"
