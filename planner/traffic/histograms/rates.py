"""Arrivals by minute, bursts and cached tokens by hour of the week, from what the targets of a model counted."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.traffic.grid import HOURS_A_WEEK, hour_of_week, whole_growth
from planner.traffic.histograms.counters import Counted
from planner.traffic.tables.definitions import BLOCK_S, MIN_FREEDOM, SCALES_S
from planner.traffic.types import FloatArray, IntArray

MINUTE_S = 60
INTERVALS_A_WINDOW = 10
"""Counts between two scrapes are spread evenly: a window must hold this many for that not to show."""


@dataclass(frozen=True)
class Span:
    """The observed window in seconds since 1970, how often it was looked at, and when it was not."""

    start_s: float
    end_s: float
    interval_s: float
    gaps: Sequence[tuple[float, float]] = ()


def minute_edges(span: Span) -> FloatArray:
    """Whole minutes, as seconds since 1970, that cover the window."""
    first, last = np.floor(span.start_s / MINUTE_S), np.ceil(span.end_s / MINUTE_S)
    return np.arange(first, max(last, first + 1) + 1) * MINUTE_S


def grown_by(counted: Sequence[Counted], time_s: FloatArray, column: int) -> FloatArray:
    """What all targets counted until each time: linear between samples."""
    return np.sum([one.at(time_s, column) for one in counted], axis=0) if counted else np.zeros(time_s.shape)


def a_minute(counted: Sequence[Counted], edges_s: FloatArray, column: int, total: int) -> IntArray:
    """Whole counts in every minute, which add up to ``total``: what was counted, if need be in proportion."""
    upto = grown_by(counted, edges_s, column)
    if upto[-1] > 0:
        upto = upto * (total / upto[-1])
    upto[-1] = total
    return whole_growth(upto).astype(np.int64)


def bursts(model: str, counted: Sequence[Counted], column: int, span: Span) -> list[dict[str, Any]]:
    """Rows of the ``burst`` table: dispersion only at scales of ten scrape intervals or more, and outside of gaps.

    The largest count of a finer scale is a bound: what two scrapes further apart than the window have between them.
    """
    return [_burst(model, counted, column, span, scale) for scale in SCALES_S]


def _burst(model: str, counted: Sequence[Counted], column: int, span: Span, scale_s: int) -> dict[str, Any]:
    edges = np.arange(span.start_s, span.end_s + 1e-6, scale_s)
    counts = np.diff(grown_by(counted, edges, column))
    fine = scale_s < INTERVALS_A_WINDOW * span.interval_s
    # Between two scrapes all may have come at once: what one more scrape on either side holds may be in the window.
    margin = span.interval_s if fine else 0.0
    most = grown_by(counted, edges[1:] + margin, column) - grown_by(counted, edges[:-1] - margin, column)
    seen = _seen(edges, span.gaps)
    block = np.floor((edges[:-1] - span.start_s) / BLOCK_S).astype(np.int64)
    mean = float(counts[seen].mean()) if seen.any() else 0.0
    spread, freedom = _neighbours(counts, seen) if scale_s == BLOCK_S else _within(counts, seen, block)
    measured = not fine and freedom >= MIN_FREEDOM and mean > 0
    return {
        "model": model,
        "kind": "window",
        "scale_s": float(scale_s),
        "windows": int(seen.sum()),
        "mean_n": mean,
        "var_n": spread / freedom if measured else None,
        "idc": spread / freedom / mean if measured else None,
        "max_n": round(float(most[seen].max(initial=0.0))),
        "resolution_ok": measured,
    }


def _seen(edges: FloatArray, gaps: Sequence[tuple[float, float]]) -> np.ndarray:
    """Windows that no gap touches."""
    seen = np.ones(edges.size - 1, dtype=np.bool_)
    for start, end in gaps:
        seen[(edges[:-1] < end) & (edges[1:] > start)] = False
    return seen


def _within(counts: FloatArray, seen: np.ndarray, block: IntArray) -> tuple[float, int]:
    """Squares about the mean of each hour, and their degrees of freedom."""
    counts, block = counts[seen], block[seen]
    if not counts.size:
        return 0.0, 0
    size = np.bincount(block)
    mean = np.bincount(block, weights=counts) / np.maximum(size, 1)
    return float(((counts - mean[block]) ** 2).sum()), int((size[size > 0] - 1).sum())


def _neighbours(counts: FloatArray, seen: np.ndarray) -> tuple[float, int]:
    """Half the squared differences of neighbouring hours: a daily swell is no burst."""
    pairs = [(b - a) ** 2 / 2 for (a, x), (b, y) in itertools.pairwise(zip(counts, seen, strict=True)) if x and y]
    return float(sum(pairs)), len(pairs)


def cached_by_hour(
    model: str, n: IntArray, queries: IntArray, hits: IntArray, edges_s: FloatArray
) -> list[dict[str, Any]]:
    """Rows of kind ``cached`` of the ``prefix`` table, from figures by minute."""
    hour = hour_of_week((edges_s[:-1] * 1e6).astype(np.int64))
    sums = [np.bincount(hour, weights=values, minlength=HOURS_A_WEEK).astype(np.int64) for values in (n, queries, hits)]
    return [
        {
            "model": model,
            "kind": "cached",
            "hour_of_week": at,
            "n": int(sums[0][at]),
            "sum_prompt": int(sums[1][at]),
            "sum_cached": int(sums[2][at]),
        }
        for at in range(HOURS_A_WEEK)
        if sums[1][at]
    ]
