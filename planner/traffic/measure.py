"""The passes over the rows of a log: what each of them adds up, and how the canonical tables come of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import duckdb
import numpy as np
import pyarrow as pa

from planner.traffic.dropped import note_settled
from planner.traffic.prefix import CachedTokens, tells_cached
from planner.traffic.rules import CODES, Rule, adjusted_by_reason
from planner.traffic.scan import Scan
from planner.traffic.tables.bursts import Bursts
from planner.traffic.tables.caps import SIDES, Caps, NearMaximum, caps
from planner.traffic.tables.cells import CellSums
from planner.traffic.tables.duplicates import mark_duplicates, mark_further_attempts, stage
from planner.traffic.tables.hours import in_order
from planner.traffic.tables.rates import MinuteCounts, Minutes, PeakMinutes, counted
from planner.traffic.tables.resolution import BusiestHour
from planner.traffic.tables.rows import KEPT, TIMED, Names, Rows
from planner.traffic.tables.spool import Spool
from planner.traffic.tables.tail import LongestTotals

STAGED_ROWS = 1_000_000
MARGIN_US = 366 * 86_400 * 1_000_000
"""Rows of other models were never judged by time; they may lie this far from the arrivals."""


class Tally:
    """Rows by verdict, kept rows by adjustments and by model."""

    def __init__(self) -> None:
        self.by_verdict = np.zeros(len(CODES) + 1, dtype=np.int64)
        """By code; the last entry counts the kept rows."""
        self._by_mask = np.zeros(1 << 16, dtype=np.int64)
        self._by_pair = np.zeros(0, dtype=np.int64)

    def add(self, rows: Rows) -> None:
        """Count a batch."""
        if rows.verdict is None:
            self.by_verdict[KEPT] += len(rows)
        else:
            self.by_verdict += np.roll(np.bincount(rows.verdict.astype(np.int64) + 1, minlength=len(CODES) + 1), -1)
        kept = rows.kept()
        if kept.adjusted is not None:
            some = kept.adjusted[np.flatnonzero(kept.adjusted)]
            np.add.at(self._by_mask, some, 1)
        by_pair = np.bincount(kept.pair, minlength=len(self._by_pair))
        by_pair[: len(self._by_pair)] += self._by_pair
        self._by_pair = by_pair

    def timeless(self) -> Tally:
        """Only the rows that say nothing about time, which no later pass sees."""
        found = Tally()
        found.by_verdict[~TIMED] = self.by_verdict[~TIMED]
        return found

    @property
    def kept(self) -> int:
        """Kept rows."""
        return int(self.by_verdict[KEPT])

    def dropped(self) -> dict[Rule, int]:
        """Rows that each rule dropped."""
        return {rule: int(self.by_verdict[code]) for rule, code in CODES.items()}

    def adjusted(self) -> dict[str, int]:
        """Kept rows by adjustment."""
        return adjusted_by_reason({mask: int(self._by_mask[mask]) for mask in np.flatnonzero(self._by_mask).tolist()})

    def models(self, names: Names) -> dict[str, int]:
        """Kept rows by model."""
        found: dict[str, int] = {}
        for (model, _), n in zip(names.pairs, self._by_pair.tolist(), strict=False):
            if n:
                found[model] = found.get(model, 0) + n
        return dict(sorted(found.items()))


@dataclass
class Laws:
    """What one pass in any order adds up: the length law, its tail, its caps, and the minutes."""

    cells: CellSums = field(default_factory=CellSums)
    tail: LongestTotals = field(default_factory=LongestTotals)
    near: Mapping[str, NearMaximum] = field(default_factory=lambda: {side: NearMaximum(side) for side in SIDES})
    minutes: MinuteCounts = field(default_factory=MinuteCounts)
    cached: CachedTokens | None = None
    """None where the log does not say what was cached."""

    def add(self, rows: Rows) -> None:
        """Add a batch."""
        kept = rows.kept()
        minutes, cached = counted(kept)
        self.minutes.add(minutes)
        if self.cached is not None:
            self.cached.add(minutes, cached)
        self.minutes.add(counted(rows.lost())[0])
        self.cells.add(kept)
        self.tail.add(kept)
        for near in self.near.values():
            near.add(kept)

    def caps(self, names: Names, requests: Mapping[str, int]) -> Caps:
        """See `planner.traffic.tables.caps.caps`."""
        return caps(self.near, names, requests)


@dataclass(frozen=True)
class Read:
    """All rows have been read once."""

    names: Names
    tally: Tally
    laws: Laws


def read_rows(connection: duckdb.DuckDBPyConnection, scan: Scan, spool: Spool, *, with_ids: bool) -> Read:
    """Read, judge and spool every row, and add up what needs no order.

    Where rows have ids, repeated ones must be told first: the sums are then taken from the spool.
    """
    tally, laws = Tally(), Laws(cached=CachedTokens() if tells_cached(scan.opened) else None)
    for rows in scan.rows():
        tally.add(rows)
        spool.write(rows)
        if not with_ids:
            laws.add(rows)
    if with_ids:
        _settle_ids(connection, spool, scan.names)
        tally = tally.timeless()
        for rows in spool.batches():
            tally.add(rows)
            laws.add(rows)
    return Read(scan.names, tally, laws)


def _settle_ids(connection: duckdb.DuckDBPyConnection, spool: Spool, names: Names) -> None:
    """Tell duplicates and further attempts, and note for the report of dropped rows which rows were meant."""
    twins = mark_duplicates(spool, names)
    noted = np.union1d(twins, mark_further_attempts(spool, names))
    for start in range(0, len(noted), STAGED_ROWS):
        stage(connection, spool.gathered(noted[start : start + STAGED_ROWS]), names)
    connection.execute("CREATE OR REPLACE TEMP TABLE doubled (id_hash UBIGINT)")
    for start in range(0, len(twins), STAGED_ROWS):
        ids = pa.table({"id_hash": np.unique(spool.gathered(twins[start : start + STAGED_ROWS])["id_hash"])})
        connection.register("repeated_ids", ids)
        connection.execute("INSERT INTO doubled SELECT id_hash FROM repeated_ids")
        connection.unregister("repeated_ids")
    note_settled(connection)


def span_us(spool: Spool, since_us: int | None, until_us: int | None) -> tuple[int, int]:
    """First and last time stamp, over all models, so that a model filter does not shorten the window."""
    if spool.arrivals_us is None:
        raise AssertionError("a kept row is an arrival")
    first, last = spool.arrivals_us
    low, high = first - MARGIN_US, last + MARGIN_US
    return spool.span_us(
        low if since_us is None else max(low, since_us), high if until_us is None else min(high, until_us - 1)
    )


@dataclass(frozen=True)
class Clock:
    """What the rows show in order of time."""

    resolution_us: int
    exact_ticks: bool
    bursts: Bursts


def read_in_order(spool: Spool, names: Names, span: tuple[int, int]) -> Clock:
    """Look at the arrivals once more, hour by hour: bursts, batches and the resolution of the stamps."""
    bursts, busiest = Bursts(names.models, *span), BusiestHour(span[0])
    for hours in in_order(spool, names.model_of_pair(), span):
        bursts.add(hours)
        busiest.add(hours)
    return Clock(*busiest.resolution(), bursts)


def lengths(read: Read, minutes: Minutes, spool: Spool) -> pa.Table:
    """The joint law by cell, for the whole window and for the busiest twentieth of the minutes with traffic."""
    return pa.concat_tables(
        [read.laws.cells.table(read.names, "all"), _peak_cells(read, minutes, spool).table(read.names, "peak")]
    )


def _peak_cells(read: Read, minutes: Minutes, spool: Spool) -> CellSums:
    peak, cells = PeakMinutes(minutes, read.names.model_of_pair()), CellSums()
    for chunk in spool.chunks:
        when = spool.read(chunk, ("pair", "ts_us"))
        inside = peak.holds(when["pair"], when["ts_us"])
        if not chunk.all_kept:
            inside &= spool.read(chunk, ("verdict",))["verdict"] == KEPT
        places = np.flatnonzero(inside)
        if len(places):
            tokens = spool.read(chunk, ("prompt", "output", "cached"))
            pair, ts_us, prompt, output, cached = (column.take(places) for column in (*when.values(), *tokens.values()))
            cells.add(Rows(pair, ts_us, prompt, output, cached))
    return cells
