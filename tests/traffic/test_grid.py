"""Minutes and hours: what lies wholly inside a stretch of time, and how the week counts."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from planner.traffic.grid import Span, counts_by_minute, hour_of_week, whole_minutes
from planner.traffic.source import to_traffic
from tests.traffic.handmade import MINUTE_US, START_US, canonical_of

FIRST = START_US // MINUTE_US


@pytest.mark.parametrize(
    ("start_s", "end_s", "first", "end"),
    [(0, 120, 0, 2), (1, 120, 1, 2), (1, 179, 1, 2), (1, 59, 1, 1), (0, 0, 0, 0), (61, 62, 2, 2)],
)
def test_whole_minutes_lie_inside(start_s: int, end_s: int, first: int, end: int) -> None:
    span = Span(START_US + start_s * 1_000_000, START_US + end_s * 1_000_000)
    assert span.whole_minutes == (FIRST + first, FIRST + end)
    assert span.seconds == end_s - start_s


def test_minutes_are_counted_in_whole_ones_only() -> None:
    rates = canonical_of([("a", 0, 5, 5), ("a", 2, 5, 5), ("a", 2, 5, 5), ("a", 4, 5, 5)]).rates
    start = START_US + 30_000_000
    counts = counts_by_minute(rates, [Span(start, start + 4 * MINUTE_US), Span(start, start + 1)])
    assert [c.tolist() for c in counts] == [[0, 2, 0], []]


@pytest.mark.parametrize("late_s", [0, 30])
def test_a_model_is_seen_in_the_same_minutes(late_s: int) -> None:
    start_us = START_US + late_s * 1_000_000
    canonical = canonical_of([("a", minute, 5, 5) for minute in (1, 2, 2, 4)], minutes=6)
    window = {"window_start_us": start_us, "window_end_us": start_us + 5 * MINUTE_US}
    seen = replace(canonical, manifest=canonical.manifest.model_copy(update=window))
    traffic = to_traffic(seen, model="a", name="a", where=Path(), sha256="")
    first, counts = whole_minutes(traffic)
    assert first == FIRST + (late_s > 0)
    assert counts.tolist() == counts_by_minute(seen.rates, [seen.manifest.window])[0].tolist()


def _us(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1_000_000


@pytest.mark.parametrize(
    ("moment", "hour"),
    [
        ("2026-11-30 00:00:00", 0),  # a Monday
        ("2026-11-29 23:59:59", 167),
        ("1970-01-01 00:00:00", 72),
        ("2026-09-03 14:22:07", 3 * 24 + 14),
    ],
)
def test_hours_of_the_week_begin_on_monday(moment: str, hour: int) -> None:
    assert hour_of_week(np.array([_us(moment)])).tolist() == [hour]
