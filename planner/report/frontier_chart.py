"""The chart of cost against a limit: a step wherever a looser limit admits a cheaper fleet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from planner.frontier import UNITS, Axis, Point
from planner.report.chart_file import FileKind, picture
from planner.report.traffic_style import light_config, titled

WIDTH_PX, HEIGHT_PX = 620, 320
NAMES = {
    Axis.TTFT: "TTFT target",
    Axis.TPOT: "TPOT target",
    Axis.TAIL: "tail budget",
    Axis.OVERFLOW: "probability that a pool overflows",
}


def frontier_chart(points: Sequence[Point], axis: Axis, title: str) -> dict[str, Any]:
    """The chart as a Vega-Lite specification; same points, same specification."""
    rows = [
        {"value": p.value, "usd": p.fleet.usd_per_mtok, "gpus": f"{p.fleet.gpus:,} GPUs"}
        for p in points
        if p.fleet is not None
    ]
    chart = alt.Chart(alt.InlineData(values=rows))
    x = alt.X("value:Q", title=f"{NAMES[axis]} ({UNITS[axis]})", scale=alt.Scale(zero=False))
    y = alt.Y("usd:Q", title="USD per million served tokens", scale=alt.Scale(zero=False, padding=24))
    layers = [
        chart.mark_line(interpolate="step-after", strokeWidth=1.8).encode(x=x, y=y),
        chart.mark_point(filled=True, size=60, opacity=1).encode(x=x, y=y),
        chart.mark_text(dy=-14).encode(x=x, y=y, text="gpus:N"),
    ]
    panel = alt.LayerChart(layer=layers).properties(width=WIDTH_PX, height=HEIGHT_PX)
    return {**titled(alt.vconcat(panel), f"{title}: cost against the {NAMES[axis]}", _captions(points)), **_look()}


def _captions(points: Sequence[Point]) -> list[str]:
    lines = ["Each point is a fleet planned anew; a fleet that holds a tighter limit holds a looser one too."]
    lost = [p.value for p in points if p.fleet is None]
    if lost:
        lines.append(f"No fleet was found at {', '.join(f'{value:g}' for value in lost)}.")
    return lines


def _look() -> dict[str, Any]:
    return {"config": light_config()}


def frontier_file(kind: FileKind, points: Sequence[Point], axis: Axis, title: str) -> bytes:
    """The chart as the bytes of a PNG or SVG."""
    return picture(kind, frontier_chart(points, axis, title))
