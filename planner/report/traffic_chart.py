"""Charts of a canonical distribution: lengths, shares, rates, hours and bursts, as Vega-Lite specifications.

Pure: same distribution, same specifications. `planner.report.traffic_page` makes files of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import altair as alt
from altair.utils.schemapi import debug_mode

from planner.report import traffic_rows
from planner.report.speed_chart import CAPTION_PX
from planner.report.traffic_lengths_chart import lengths_chart, shares_chart
from planner.report.traffic_style import (
    MOST_MODELS,
    SHAPES,
    WIDTH_PX,
    Spec,
    colour,
    dash,
    label,
    labelled,
    legend,
    light_config,
    titled,
)
from planner.report.traffic_time_chart import hours_chart, rates_chart
from planner.traffic.canonical import Canonical
from planner.traffic.figures import ModelFigures

PANEL_PX = WIDTH_PX - 140
IDC_SCALES = {1: "1 s", 5: "5 s", 15: "15 s", 60: "1 min", 300: "5 min", 3600: "1 h"}


def drawn(found: Sequence[ModelFigures]) -> tuple[ModelFigures, ...]:
    """The models that are drawn, by name: those with the most requests where there are too many."""
    most = sorted(found, key=lambda one: (-one.requests, one.model))[:MOST_MODELS]
    return tuple(sorted(most, key=lambda one: one.model))


def traffic_charts(canonical: Canonical, found: Sequence[ModelFigures]) -> dict[str, Spec]:
    """The charts that the distribution has data for, by file name."""
    models = drawn(found)
    makers: dict[str, Callable[[Canonical, Sequence[ModelFigures]], Spec | None]] = {
        "lengths": lengths_chart, "shares": shares_chart, "rates": rates_chart, "hours": hours_chart,
        "bursts": bursts_chart,
    }  # fmt: skip
    with debug_mode(False):  # each chart is checked once, when it is whole
        made = {name: make(canonical, models) for name, make in makers.items()}
    left_out = len(found) - len(models)
    return {name: _finished(chart, left_out) for name, chart in made.items() if chart is not None}


def _finished(chart: Spec, left_out: int) -> Spec:
    spec = {**chart, "config": light_config()}
    if left_out:
        lines = spec["title"].setdefault("subtitle", [])
        lines.append(f"The {MOST_MODELS} models with the most requests; {left_out} more are left out.")
    return spec


def bursts_chart(canonical: Canonical, models: Sequence[ModelFigures]) -> Spec | None:
    """Index of dispersion of the arrivals against the scale, beside that of Poisson arrivals."""
    rows = labelled(traffic_rows.burst_rows(models))
    if not rows:
        return None
    names = [one.model for one in models]
    scales = sorted({row["scale"] for row in rows} | {1.0, 60.0})
    low, high = min(0.8, *(row["idc"] for row in rows)), max(2.0, *(row["idc"] for row in rows)) * 1.15
    steps = (1, 1.2, 1.5, 2, 3, 5, 7) if high / low < 10 else (1, 2, 5)
    ticks = [round(m * 10.0**k, 6) for k in range(-2, 7) for m in steps if low <= m * 10.0**k <= high]
    named = " : ".join(f"datum.value == {s} ? '{text}'" for s, text in IDC_SCALES.items())
    axis = alt.Axis(values=scales, labelExpr=f"{named} : datum.value + ' s'")
    x = alt.X(
        "scale:Q", scale=alt.Scale(type="log", domain=[scales[0] / 1.2, scales[-1] * 1.2], nice=False), axis=axis,
        title="scale: length of the windows that arrivals are counted in (log)",
    )  # fmt: skip
    y = alt.Y(
        "idc:Q", scale=alt.Scale(type="log", domain=[low, high], nice=False),
        axis=alt.Axis(values=ticks, format=",~r", labelOverlap="greedy"),
        title="variance over mean of the counts (log)",
    )  # fmt: skip
    shape = alt.Shape("model:N", legend=None, scale=alt.Scale(domain=list(map(label, names)), range=SHAPES))
    chart = alt.Chart(alt.InlineData(values=rows))
    poisson = alt.Chart(alt.InlineData(values=[{"idc": 1, "name": "Poisson"}]))
    layers = [
        poisson.mark_rule(strokeDash=[5, 4], strokeWidth=1.4).encode(y=alt.Y("idc:Q")),
        poisson.mark_text(align="left", baseline="middle", fontSize=CAPTION_PX).encode(
            x=alt.value(PANEL_PX + 6), y=alt.Y("idc:Q"), text="name:N"
        ),
        chart.mark_line(strokeWidth=1.8).encode(x=x, y=y, color=colour(names), strokeDash=dash(names)),
        chart.mark_point(filled=True, size=60, opacity=1).encode(x=x, y=y, color=colour(names), shape=shape),
    ]
    panel = alt.LayerChart(layer=layers).properties(width=PANEL_PX, height=300)
    grid = alt.vconcat(*([legend(names)] if len(names) > 1 else []), panel, spacing=18)
    lines = [
        "Counts inside blocks of one hour. Poisson arrivals have 1 at every scale; 10 means counts ten times as spread."
    ]
    return titled(grid, "Bursts: index of dispersion (IDC) of the arrivals", lines)
