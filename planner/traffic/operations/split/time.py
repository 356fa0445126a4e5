"""The arrivals of a stretch of time, or of each day or week."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from planner.errors import InputError, Problem, Problems
from planner.traffic.canonical import Canonical
from planner.traffic.canonical_tables import of_model
from planner.traffic.grid import Span
from planner.traffic.operations.merge_bursts import from_minutes, window_row
from planner.traffic.operations.split.parts import without_models
from planner.traffic.schema import BURST, Manifest, iso_utc
from planner.traffic.tables.definitions import MINUTE_US

DAY_US = 86_400_000_000


class Period(StrEnum):
    """Stretches of the calendar, in UTC."""

    DAY = "day"
    WEEK = "week"
    """From Monday."""


def between(canonical: Canonical, since_us: int | None, until_us: int | None) -> Canonical:
    """The arrivals of a stretch of time, by whole minutes.

    Minute rates are cut, and bursts of a minute and more counted again in them. The log's lengths, and its index of
    dispersion below a minute, are taken to hold for the stretch: the tables do not know them by time.

    Raises
    ------
    InputError
        If a limit is no whole minute, the stretch is empty, or holds no arrival.
    """
    manifest = canonical.manifest
    start = manifest.window_start_us if since_us is None else max(since_us, manifest.window_start_us)
    end = manifest.window_end_us if until_us is None else min(until_us, manifest.window_end_us)
    problems = Problems()
    for name, limit in (("--since", since_us), ("--until", until_us)):
        if limit is not None and limit % MINUTE_US:
            problems.add(name, f"{iso_utc(limit)} is no whole minute", "The rates are known by the minute")
    if start >= end:
        seen = f"{manifest.window_start} to {manifest.window_end}"
        problems.add("--since and --until", "leave no time", f"The window is {seen}")
    problems.raise_if_any()
    if (start, end) == (manifest.window_start_us, manifest.window_end_us):
        return canonical
    span = Span(start, end)
    rates = _rates_in(canonical, span)
    alive = sorted(set(rates["model"].to_pylist()))
    if not alive:
        raise InputError(Problem("--since and --until", f"no arrival between {iso_utc(start)} and {iso_utc(end)}"))
    return _in_stretch(canonical, rates, span, alive)


def _rates_in(canonical: Canonical, span: Span) -> pa.Table:
    """The minutes that lie in a stretch, its first and last with it."""
    first, last = (pa.scalar(us // MINUTE_US * MINUTE_US, pa.int64()) for us in (span.start_us, span.end_us - 1))
    us = canonical.rates["minute_utc"].cast(pa.int64())
    return canonical.rates.filter(pc.and_(pc.greater_equal(us, first), pc.less_equal(us, last)))


def _in_stretch(canonical: Canonical, rates: pa.Table, span: Span, alive: Sequence[str]) -> Canonical:
    manifest = canonical.manifest
    silent = [model for model in canonical.models() if model not in alive]
    kept = without_models(canonical, silent)
    words = f"{iso_utc(span.start_us)} to {iso_utc(span.end_us)}"
    remarks = [
        "lengths, largest totals and bursts below a minute are those of the whole log, from before the cut in time: "
        "do not merge cuts of one log",
        *([f"models without an arrival in the stretch are left out: {', '.join(silent)}"] if silent else []),
    ]
    burst = [row for model in alive for row in _burst_in(of_model(canonical.burst, model), rates, span, model)]
    return Canonical(
        kept.manifest.model_copy(
            update={
                "window_start_us": span.start_us,
                "window_end_us": span.end_us,
                "history": [*manifest.history, f"cut to {words}"],
                "remarks": list(dict.fromkeys([*manifest.remarks, *remarks])),
            }
        ),
        lengths=kept.lengths,
        tail=kept.tail,
        rates=rates.combine_chunks(),
        burst=pa.Table.from_pylist(burst, schema=BURST),
        prefix=kept.prefix,
    )


def _burst_in(burst: pa.Table, rates: pa.Table, span: Span, model: str) -> list[dict[str, Any]]:
    rows = []
    mine = of_model(rates, model)
    per_s = (pc.sum(mine["n"]).as_py() or 0) / span.seconds
    for row in burst.to_pylist():
        scale = row["scale_s"]
        if row["kind"] != "window":
            rows.append(row)
        elif scale % 60 == 0:
            resolved = row["resolution_ok"] or row["idc"] is None
            rows.append(window_row(model, scale, from_minutes(mine, (span,), scale), resolved=resolved))
        else:
            mean, idc = per_s * scale, row["idc"]
            windows = int(span.seconds // scale)
            variance = None if idc is None else idc * mean
            rows.append(row | {"windows": windows, "mean_n": mean, "var_n": variance})
    return rows


def by_period(canonical: Canonical, period: Period) -> dict[str, Canonical]:
    """One distribution for each UTC day or week of the window that holds an arrival, by its first day.

    Raises
    ------
    InputError
        If the log counts time from its own start.
    """
    manifest = canonical.manifest
    if manifest.time_base != "UTC":
        raise InputError(Problem(f"--by-{period}", "the log counts time from its own start: it knows no calendar"))
    return {
        day.isoformat(): between(canonical, start, end)
        for day, start, end in _stretches(manifest, period)
        if _rates_in(canonical, Span(start, end)).num_rows
    }


def _stretches(manifest: Manifest, period: Period) -> list[tuple[date, int, int]]:
    first = datetime.fromtimestamp(manifest.window_start_us // 1_000_000, tz=UTC).date()
    if period is Period.WEEK:
        first -= timedelta(days=first.weekday())
    days = 7 if period is Period.WEEK else 1
    found = []
    start = first
    while (us := (start - date(1970, 1, 1)).days * DAY_US) < manifest.window_end_us:
        found.append((start, us, us + days * DAY_US))
        start += timedelta(days=days)
    return found
