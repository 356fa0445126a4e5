"""Stretches of time in microseconds since 1970, ends exclusive."""

from __future__ import annotations

from collections.abc import Iterable

from planner import units
from planner.traffic.grid import Span

HOUR_US = units.SECONDS_PER_HOUR * 10**6


def union(spans: Iterable[Span]) -> tuple[Span, ...]:
    """The same time as stretches without overlap, in order; empty ones are left out."""
    found: list[Span] = []
    for span in sorted(span for span in spans if span.end_us > span.start_us):
        if found and span.start_us <= found[-1].end_us:
            found[-1] = Span(found[-1].start_us, max(found[-1].end_us, span.end_us))
        else:
            found.append(span)
    return tuple(found)


def within(span: Span, bounds: Span) -> Span:
    """The part of a stretch inside another; of length 0 where they do not meet."""
    start = max(span.start_us, bounds.start_us)
    return Span(start, max(min(span.end_us, bounds.end_us), start))


def hours(spans: Iterable[Span]) -> float:
    """Hours of stretches without overlap."""
    return sum(span.end_us - span.start_us for span in spans) / HOUR_US
