"""Charts of arrivals over time: the window, and the hours of the week or of the log."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from planner.report import traffic_rows
from planner.report.speed_chart import TEXT_PX
from planner.report.traffic_style import PALETTE, WIDTH_PX, Spec, clock, label, titled
from planner.traffic.canonical import Canonical
from planner.traffic.figures import ModelFigures

ROW_PX = 86


def rates_chart(canonical: Canonical, models: Sequence[ModelFigures]) -> Spec | None:
    """Arrivals per second over the window, a row for each model."""
    width = traffic_rows.bin_minutes(canonical.manifest.window)
    panels = []
    for one in models:
        rows = traffic_rows.rate_rows(canonical, one.model)
        if not rows:
            return None
        panels.append((one.model, rows))
    charts = [_over_time(canonical, model, rows, last=model == panels[-1][0]) for model, rows in panels]
    each = "a minute" if width == 1 else f"{width} minutes" if width < 60 else f"{width // 60} h"
    shade = "" if width == 1 else " Shade: up to the busiest minute of each."
    lines = [f"Line: mean over {each}, failed requests included.{shade} {clock(canonical)}"]
    return titled(alt.vconcat(*charts, spacing=10), "Arrivals over time, per second", lines)


def _time_x(canonical: Canonical, *, last: bool, title: str | None = None) -> tuple[alt.X, float]:
    """The time axis, and what to divide milliseconds by for it."""
    axis = alt.Axis(labels=last, ticks=last, labelOverlap="greedy", tickCount=8)
    if canonical.manifest.time_base == "UTC":
        span = canonical.manifest.window
        days = span.seconds / 86_400
        axis.format = "%d %b" if days > 4 else "%d %b %H:%M"
        return alt.X("t:T", scale=alt.Scale(type="utc", nice=False), axis=axis, title=title), 1
    return alt.X("t:Q", scale=alt.Scale(nice=False), axis=axis, title="hours" if last else None), 3_600_000


def _over_time(canonical: Canonical, model: str, rows: traffic_rows.Rows, *, last: bool) -> alt.LayerChart:
    x, unit = _time_x(canonical, last=last)
    values = [row | {"t": row["t"] / unit if unit != 1 else row["t"]} for row in rows]
    chart = alt.Chart(alt.InlineData(values=values))
    y = alt.Y("mean:Q", title=None, axis=alt.Axis(tickCount=4, format=",~r", minExtent=44), scale=alt.Scale(zero=True))
    layers = [chart.mark_line(strokeWidth=1.3, color=PALETTE[0]).encode(x=x, y=y)]
    if any(row["peak"] > row["mean"] for row in rows):
        layers.insert(0, chart.mark_area(opacity=0.25, color=PALETTE[0]).encode(x=x, y=alt.Y("mean:Q"), y2="peak:Q"))
    return _row(layers, model)


def _row(layers: Sequence[alt.Chart], model: str) -> alt.LayerChart:
    title = alt.TitleParams(label(model), fontSize=TEXT_PX, anchor="start", frame="group", offset=4)
    return alt.LayerChart(layer=list(layers)).properties(width=WIDTH_PX - 92, height=ROW_PX, title=title)


def hours_chart(canonical: Canonical, models: Sequence[ModelFigures]) -> Spec | None:
    """The week of each model, as a band over weeks; of a log shorter than two weeks, its hours."""
    weeks = traffic_rows.weeks_seen(canonical)
    if weeks >= 2:
        charts = [
            _week(one.model, traffic_rows.week_rows(canonical, one.model), last=one is models[-1]) for one in models
        ]
        low, high = (f"{100 * q:.0f}" for q in traffic_rows.BAND)
        lines = [
            f"Mean rate of each UTC hour, {weeks} weeks or more. Line: median. Shade: {low} to {high} %. Dots: most. "
            + ("Fewer than 8 weeks: the band is a guess. " if weeks < 8 else "")
        ]
        return titled(alt.vconcat(*charts, spacing=10), "Hour of the week, arrivals per second", lines)
    found = [(one.model, traffic_rows.hour_rows(canonical, one.model)) for one in models]
    if not all(len(rows) >= 2 for _, rows in found):
        return None
    charts = [_hours(canonical, model, rows, last=model == found[-1][0]) for model, rows in found]
    lines = [f"Whole clock hours; a profile of the week needs two weeks or more. {clock(canonical)}"]
    return titled(alt.vconcat(*charts, spacing=10), "Hours of the log, arrivals per second", lines)


def _week(model: str, rows: traffic_rows.Rows, *, last: bool) -> alt.LayerChart:
    days = "['Mon','Tue','Wed','Thu','Fri','Sat','Sun','Mon'][datum.value / 24]"
    axis = alt.Axis(values=[24 * day for day in range(8)], labelExpr=days, labels=last, ticks=last, labelAlign="left")
    x = alt.X("hour:Q", scale=alt.Scale(domain=[0, 168], nice=False), axis=axis, title=None)
    y_axis = alt.Axis(tickCount=4, format=",~r", minExtent=44)
    y = alt.Y("mid:Q", title=None, axis=y_axis, scale=alt.Scale(zero=True))
    chart = alt.Chart(alt.InlineData(values=rows))
    layers = [
        chart.mark_area(opacity=0.25, color=PALETTE[0]).encode(x=x, y=alt.Y("low:Q", title=None), y2="high:Q"),
        chart.mark_line(strokeWidth=1.5, color=PALETTE[0]).encode(x=x, y=y),
        chart.mark_point(filled=True, size=8, opacity=0.8, color=PALETTE[1]).encode(x=x, y=alt.Y("most:Q", title=None)),
    ]
    return _row(layers, model)


def _hours(canonical: Canonical, model: str, rows: traffic_rows.Rows, *, last: bool) -> alt.LayerChart:
    x, unit = _time_x(canonical, last=last)
    hour = 3_600_000 / unit
    values = [
        {"t": row["t"] / unit if unit != 1 else row["t"], "end": row["t"] / unit + hour, "mean": row["mean"]}
        for row in rows
    ]
    y = alt.Y("mean:Q", title=None, axis=alt.Axis(tickCount=4, format=",~r", minExtent=44), scale=alt.Scale(zero=True))
    bars = alt.Chart(alt.InlineData(values=values)).mark_rect(color=PALETTE[0], opacity=0.75)
    return _row([bars.encode(x=x, x2="end", y=y, y2=alt.datum(0))], model)
