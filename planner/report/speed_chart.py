"""The chart of speed against concurrency: a Vega-Lite specification from curves and measured points.

Pure: same curves and points, same specification. `planner.report.speed_page` makes files of it.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import altair as alt

from planner.report.speed_curve import DEFAULT_WIDTH_PX, MOST_CURVES, Planned, Series, SpeedCurve, decode_rate
from planner.report.text import one_line
from planner.speed.points import Figures, Point

FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
"""The first is bundled with vl-convert, so pictures do not depend on the machine's fonts; a browser takes the next."""
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#B8860B", "#333333")
"""Told apart with any colour vision (after M. Okabe and K. Ito, "Color Universal Design", 2008; two darker)."""
DASHES = ([1, 0], [7, 3], [2, 2], [9, 3, 2, 3], [4, 4], [12, 4])
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
ONE_COLUMN_BELOW_PX = 720
AXIS_PX, Y_EXTENT_PX = 82, 46
"""Room of a y axis with its title beside the panel, and of its labels: equal, so that panels stand in line."""
PADDING_PX, GAP_PX = 14, 18
ROW_HEIGHT_PX = 230
LOG_MARGIN = 1.15
"""Room above and below what a logarithmic axis shows."""
TEXT_PX, TITLE_PX, CAPTION_PX = 12, 17, 11
SOURCES_NAMED, SOURCE_CHARACTERS = 3, 160
"""Of measured points, in the caption."""
CHARACTER_EM = 0.52
"""Mean width of a character of Liberation Sans in ems; lines are broken with it."""


@dataclass(frozen=True)
class Panel:
    """One figure against concurrency."""

    title: str
    unit: str
    log: bool
    series: Callable[[SpeedCurve], Series]
    measured: Callable[[Figures], float | None]
    planned: Callable[[Planned], float]


PANELS = (
    Panel(
        "Decode rate of one stream",
        "tokens/s",
        False,
        series=lambda curve: curve.decode_tok_s,
        measured=lambda figures: decode_rate(figures.tpot_ms),
        planned=lambda plan: plan.decode_tok_s,
    ),
    Panel(
        "Time per output token (TPOT)",
        "ms",
        False,
        series=lambda curve: curve.tpot_ms,
        measured=lambda figures: figures.tpot_ms,
        planned=lambda plan: plan.tpot_ms,
    ),
    Panel(
        "Time to first token (TTFT)",
        "ms, log",
        True,
        series=lambda curve: curve.ttft_ms,
        measured=lambda figures: figures.ttft_ms,
        planned=lambda plan: plan.ttft_ms,
    ),
    Panel(
        "Replica's output",
        "tokens/s",
        False,
        series=lambda curve: curve.output_tok_s,
        measured=lambda figures: figures.output_tok_s,
        planned=lambda plan: plan.output_tok_s,
    ),
)


def speed_chart(
    curves: Sequence[SpeedCurve], measured: Sequence[Point] = (), *, title: str = "", width_px: int = DEFAULT_WIDTH_PX
) -> dict[str, Any]:
    """Decode rate, TPOT, TTFT and output of a replica against concurrency, with bands and measured points.

    Parameters
    ----------
    curves
        One to six; every label once.
    measured
        Drawn where a curve covers them (`SpeedCurve.covers`), left out otherwise.
    title
        Heading; the model's id where empty.
    width_px
        Of the whole picture; below 720 the panels stand in one column.

    Returns
    -------
    dict[str, Any]
        A Vega-Lite specification with its data and light colours.

    Raises
    ------
    ValueError
        If there are no curves or too many, or a label occurs twice.
    """
    labels = [curve.label for curve in curves]
    if not 1 <= len(set(labels)) == len(labels) <= MOST_CURVES:
        raise ValueError(f"a chart needs 1 to {MOST_CURVES} curves, each label once")
    columns = 1 if width_px < ONE_COLUMN_BELOW_PX else 2
    panel_px = (width_px - 2 * PADDING_PX - (columns - 1) * GAP_PX) // columns - AXIS_PX
    drawn = [_panel(panel, curves, measured).properties(width=panel_px, height=ROW_HEIGHT_PX) for panel in PANELS]
    rows: list[alt.HConcatChart | alt.LayerChart]
    rows = [alt.hconcat(*drawn[i : i + columns], spacing=GAP_PX) for i in range(0, len(drawn), columns)]
    if len(curves) > 1:
        rows.insert(0, _legend(curves, measured))
    grid = alt.vconcat(*rows, spacing=GAP_PX).properties(title=_heading(curves, measured, title, width_px))
    caption = alt.TitleParams(
        _broken(caption_lines(curves, measured), width_px, CAPTION_PX),
        orient="bottom", anchor="start", fontSize=CAPTION_PX, fontWeight="normal", offset=14,
    )  # fmt: skip
    return {**alt.vconcat(grid).properties(title=caption).to_dict(), "config": LIGHT}


def _panel(panel: Panel, curves: Sequence[SpeedCurve], measured: Sequence[Point]) -> alt.LayerChart:
    """Band, line, measured points and planned points of one figure."""
    mark = _marks(curves)
    x, y = _x(curves, measured), _y(panel, curves, measured)
    line = alt.Chart(alt.InlineData(values=line_rows(panel, curves)))
    layers = [
        line.mark_area(opacity=0.17).encode(x=x, y=alt.Y("low:Q"), y2="high:Q", color=mark.colour),
        line.mark_line(strokeWidth=2.2).encode(x=x, y=y, color=mark.colour, strokeDash=mark.dash),
    ]
    full = [{"deployment": curve.label, "concurrency": curve.full_at} for curve in curves if curve.full_at]
    if full:
        chart = alt.Chart(alt.InlineData(values=full)).mark_rule(strokeWidth=1.4, strokeDash=[1, 3])
        layers.append(chart.encode(x=x, color=mark.colour))
    points = point_rows(panel, curves, measured)
    if points:
        chart = alt.Chart(alt.InlineData(values=points)).mark_point(filled=True, size=60, opacity=1, style="measured")
        tooltip = ["deployment:N", "concurrency:Q", "value:Q", "source:N"]
        layers.append(chart.encode(x=x, y=y, color=mark.colour, shape=mark.shape, tooltip=tooltip))
    planned = planned_rows(panel, curves)
    if planned:
        chart = alt.Chart(alt.InlineData(values=planned)).mark_point(
            filled=False, shape="diamond", size=170, strokeWidth=2.4, opacity=1
        )
        layers.append(chart.encode(x=x, y=y, color=mark.colour))
    return alt.LayerChart(layer=layers)


class Marks(NamedTuple):
    """How a deployment looks: colour, dashes and shape say the same, for eyes that miss one of them."""

    colour: alt.Color
    dash: alt.StrokeDash
    shape: alt.Shape


def _marks(curves: Sequence[SpeedCurve]) -> Marks:
    labels = [curve.label for curve in curves]
    return Marks(
        alt.Color("deployment:N", legend=None, scale=alt.Scale(domain=labels)),
        alt.StrokeDash("deployment:N", legend=None, scale=alt.Scale(domain=labels, range=DASHES)),
        alt.Shape("deployment:N", legend=None, scale=alt.Scale(domain=labels, range=SHAPES)),
    )


def _legend(curves: Sequence[SpeedCurve], measured: Sequence[Point]) -> alt.LayerChart:
    """A line, the mark of what was measured, and the label, one deployment below the other."""
    mark = _marks(curves)
    rows = [{"deployment": curve.label, "row": number} for number, curve in enumerate(curves)]
    chart = alt.Chart(alt.InlineData(values=rows))
    y = alt.Y("row:O", axis=None)
    layers = [
        chart.mark_rule(strokeWidth=2.2).encode(
            x=alt.value(0), x2=alt.value(44), y=y, color=mark.colour, strokeDash=mark.dash
        ),
        chart.mark_text(align="left", baseline="middle", fontSize=TEXT_PX).encode(
            x=alt.value(54), y=y, text="deployment:N"
        ),
    ]
    if any(curve.covers(point) for curve in curves for point in measured):
        points = chart.mark_point(filled=True, size=60, opacity=1, style="measured")
        layers.append(points.encode(x=alt.value(22), y=y, color=mark.colour, shape=mark.shape))
    return alt.LayerChart(layer=layers, width=200, height=18 * len(curves))


def _x(curves: Sequence[SpeedCurve], measured: Sequence[Point]) -> alt.X:
    low, high = x_domain(curves, measured)
    ticks = [2.0**i for i in range(math.ceil(math.log2(low)), math.floor(math.log2(high)) + 1)]
    return alt.X(
        "concurrency:Q",
        title="Concurrency, requests in the replica (log2)",
        scale=alt.Scale(type="log", base=2, domain=[low, high], nice=False),
        axis=alt.Axis(values=ticks, format=",~f", labelFlush=False, labelOverlap="greedy"),
    )


def _y(panel: Panel, curves: Sequence[SpeedCurve], measured: Sequence[Point]) -> alt.Y:
    title = f"{panel.title}, {panel.unit}"
    if not panel.log:
        axis = alt.Axis(format=",~f", tickCount=6, minExtent=Y_EXTENT_PX)
        return alt.Y("value:Q", title=title, scale=alt.Scale(zero=True), axis=axis)
    drawn = [row[edge] for row in line_rows(panel, curves) for edge in ("low", "high")]
    drawn += [row["value"] for row in (*point_rows(panel, curves, measured), *planned_rows(panel, curves))]
    low, high = min(drawn) / LOG_MARGIN, max(drawn) * LOG_MARGIN
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [step * 10.0**decade for decade in decades for step in (1, 2, 5) if low <= step * 10.0**decade <= high]
    axis = alt.Axis(format=",~f", values=ticks, labelOverlap="greedy", minExtent=Y_EXTENT_PX)
    return alt.Y("value:Q", title=title, scale=alt.Scale(type="log", domain=[low, high], nice=False), axis=axis)


def x_domain(curves: Sequence[SpeedCurve], measured: Sequence[Point]) -> tuple[float, float]:
    """Least and most concurrency that anything is drawn at."""
    drawn = [n for curve in curves for n in (curve.concurrency[0], curve.concurrency[-1])]
    drawn += [curve.planned.concurrency for curve in curves if curve.planned]
    drawn += [p.load.concurrency for c in curves for p in measured if p.load.concurrency is not None and c.covers(p)]
    return min(drawn), max(drawn)


def line_rows(panel: Panel, curves: Sequence[SpeedCurve]) -> list[dict[str, Any]]:
    """The prediction and its band, a row for each curve and concurrency."""
    return [
        {"deployment": curve.label, "concurrency": n, "value": mid, "low": low, "high": high}
        for curve in curves
        for series in (panel.series(curve),)
        for n, low, mid, high in zip(curve.concurrency, series.low, series.mid, series.high, strict=True)
    ]


def point_rows(panel: Panel, curves: Sequence[SpeedCurve], measured: Sequence[Point]) -> list[dict[str, Any]]:
    """Measured points of the curves' deployments where the figure is known and above 0."""
    return [
        {"deployment": curve.label, "concurrency": point.load.concurrency, "value": value, "source": point.source}
        for curve in curves
        for point in measured
        if curve.covers(point) and (value := panel.measured(point.measured)) and value > 0
    ]


def planned_rows(panel: Panel, curves: Sequence[SpeedCurve]) -> list[dict[str, Any]]:
    """Operating points of plans."""
    return [
        {"deployment": c.label, "concurrency": c.planned.concurrency, "value": panel.planned(c.planned)}
        for c in curves
        if c.planned is not None
    ]


def _heading(curves: Sequence[SpeedCurve], measured: Sequence[Point], title: str, width_px: int) -> alt.TitleParams:
    models = dict.fromkeys(curve.served.model for curve in curves)
    text = title or f"Speed of {', '.join(models)}"
    return alt.TitleParams(
        _broken([text], width_px, TITLE_PX),
        subtitle=_broken(subtitle_lines(curves, measured), width_px, TEXT_PX),
        anchor="start", fontSize=TITLE_PX, subtitleFontSize=TEXT_PX, offset=10, subtitlePadding=5,
    )  # fmt: skip


def subtitle_lines(curves: Sequence[SpeedCurve], measured: Sequence[Point]) -> list[str]:
    """The load, and how to read the marks."""
    loads = dict.fromkeys((curve.input_tokens, curve.output_tokens) for curve in curves)
    load = "; ".join(f"prompts of {p:,.0f} and outputs of {o:,.0f} tokens (means)" for p, o in loads)
    engines = dict.fromkeys(f"{curve.served.engine} {curve.served.version}".strip() for curve in curves)
    only = f"{curves[0].label}; " if len(curves) == 1 else ""
    reading = "Line: prediction. Shade: 80 % band."
    shown = sum(any(curve.covers(point) for curve in curves) for point in measured)
    if shown:
        reading += f" Filled marks: {shown} measured point{'s' if shown != 1 else ''}."
    elif measured:
        reading += f" None of the {len(measured)} measured points is of this deployment at these lengths."
    if any(curve.full_at for curve in curves):
        reading += " Dotted vertical: replica full."
    if any(curve.planned for curve in curves):
        reading += " Open diamond: the plan."
    return [f"{only}{', '.join(engines)}; closed loop, {load}", reading]


def caption_lines(curves: Sequence[SpeedCurve], measured: Sequence[Point] = ()) -> list[str]:
    """Provider and source of each curve, where its replica is full, what the plan's mark means, and who measured."""
    lines = [f"{curve.label}: {'; '.join(_notes(curve))}." for curve in curves]
    shown = [point for point in measured if any(curve.covers(point) for curve in curves)]
    sources = list(dict.fromkeys(_measured_by(point) for point in shown))
    if sources:
        more = f"; and {len(sources) - SOURCES_NAMED} more" if len(sources) > SOURCES_NAMED else ""
        lines.append(f"Measured: {'; '.join(sources[:SOURCES_NAMED])}{more}.")
    return lines


def _measured_by(point: Point) -> str:
    engine = f"{point.served.engine} {point.served.version}".strip()
    return f"{engine}, {one_line(point.source, SOURCE_CHARACTERS) or 'no source given'}"


def _notes(curve: SpeedCurve) -> list[str]:
    notes = [curve.source]
    if curve.full_at is not None:
        notes.append(f"full at {curve.full_at:,.0f} requests ({curve.full_why}): more wait, which TTFT includes")
    if curve.planned is not None:
        notes.append(curve.planned.note)
    return notes


def _broken(lines: Sequence[str], width_px: int, font_px: int) -> list[str]:
    """Lines broken to the width of the picture."""
    most = int(width_px / (font_px * CHARACTER_EM))
    return [part for line in lines for part in textwrap.wrap(line, most, subsequent_indent="  ") or [""]]


def _config(background: str, ink: str, grid: str, palette: Sequence[str]) -> dict[str, Any]:
    """Colours and fonts of a chart."""
    text = {"labelColor": ink, "titleColor": ink}
    return {
        "background": background,
        "font": FONT,
        "padding": PADDING_PX,
        "view": {"stroke": None},
        "range": {"category": list(palette)},
        "axis": {
            **text, "gridColor": grid, "domainColor": ink, "tickColor": ink, "titleFontWeight": "normal",
            "labelFontSize": 11, "titleFontSize": TEXT_PX, "titlePadding": 8,
        },
        "text": {"color": ink},
        "title": {"color": ink, "subtitleColor": ink},
        "style": {"measured": {"stroke": background, "strokeWidth": 1}},
    }  # fmt: skip


LIGHT = _config("#ffffff", "#333333", "#e3e3e3", PALETTE)
DARK = _config("#16181c", "#d8d8d8", "#34373d", ("#56B4E9", "#F58A42", "#2FC79A", "#E39CC6", "#E5B94E", "#D0D0D0"))
"""Colours for pages that are read on a dark screen; pictures are light."""
