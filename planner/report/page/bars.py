"""Bars in the cells of tables: every one stands beside its figure, so a screen reader passes over it."""

from __future__ import annotations

import math
from collections.abc import Iterable

from markupsafe import Markup

from planner.report.page.markup import join

Segment = tuple[float, float, str]
"""From, to (shares of the track), and the kind of fill."""


def track(segments: Iterable[Segment], marks: Iterable[tuple[float, str]] = ()) -> Markup:
    """A track with filled stretches and upright marks.

    Parameters
    ----------
    segments
        Stretches as shares of the track; what lies beyond it is cut off.
    marks
        Places and kinds of marks.
    """
    fills = join(
        Markup('<i class="{}" style="left:{}%;width:{}%"></i>').format(kind, *_span(start, end))
        for start, end, kind in segments
        if start != end
    )
    ticks = join(Markup('<b class="{}" style="left:{}%"></b>').format(kind, _percent(at)) for at, kind in marks)
    return Markup('<span class="bar" aria-hidden="true">{}{}</span>').format(fills, ticks)


def meter(value: float, kind: str = "a") -> Markup:
    """A track filled from its start to ``value``, a share."""
    return track([(0.0, value, kind)])


def _clip(share: float) -> float:
    return min(1.0, max(0.0, share)) if math.isfinite(share) else 1.0


def _percent(share: float) -> str:
    return f"{100 * _clip(share):.4g}"


def _span(start: float, end: float) -> tuple[str, str]:
    low, high = sorted((_clip(start), _clip(end)))
    return _percent(low), f"{100 * (high - low):.4g}"
