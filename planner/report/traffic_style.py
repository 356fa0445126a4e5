"""What the charts of a distribution share: colours, names, headings and axes."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from planner.report import traffic_rows
from planner.report.speed_chart import CHARACTER_EM, DARK, LIGHT, TEXT_PX, TITLE_PX
from planner.report.text import one_line
from planner.traffic.canonical import Canonical

WIDTH_PX = 1000
MOST_MODELS = 8
"""More lines than this nobody tells apart; those with the most requests are drawn."""
NAME_CHARACTERS = 28
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#B8860B", "#333333", "#56B4E9", "#882255")
DARK_PALETTE = ("#56B4E9", "#F58A42", "#2FC79A", "#E39CC6", "#E5B94E", "#D0D0D0", "#8FB8FF", "#D4708F")
"""Eight that any colour vision tells apart, after M. Okabe and K. Ito (2008) and P. Tol (2021)."""
DASHES = ([1, 0], [7, 3], [2, 2], [9, 3, 2, 3], [4, 4], [12, 4], [1, 3], [6, 2, 1, 2, 1, 2])
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left")
TOKEN_TICKS = [1, *(2**k for k in range(3, 25, 3))]

Spec = dict[str, Any]


def light_config() -> Spec:
    """Colours and fonts of pictures."""
    return _config(LIGHT, PALETTE, [1, 0])


def dark_config() -> Spec:
    """Colours and fonts of pages on a dark screen."""
    return _config(DARK, DARK_PALETTE, [0, 1])


def _config(base: Mapping[str, Any], palette: Sequence[str], extent: Sequence[int]) -> Spec:
    ink = base["axis"]["labelColor"]
    ranges = {"category": list(palette), "heatmap": {"scheme": "viridis", "extent": list(extent)}}
    legend = {"labelColor": ink, "titleColor": ink, "labelFontSize": TEXT_PX, "titleFontWeight": "normal"}
    header = {"labelColor": ink, "titleColor": ink, "labelFontSize": TEXT_PX}
    return {**base, "range": ranges, "legend": legend, "header": header, "rule": {"color": ink}}


def titled(chart: alt.TopLevelMixin, title: str, lines: Sequence[str]) -> Spec:
    """The chart with its heading, as a specification that has no colours yet."""
    most = int(WIDTH_PX / (TEXT_PX * CHARACTER_EM))
    heading = alt.TitleParams(
        title, subtitle=[part for line in lines for part in textwrap.wrap(line, most)], anchor="start",
        fontSize=TITLE_PX, subtitleFontSize=TEXT_PX, offset=14, subtitlePadding=5,
    )  # fmt: skip
    spec: Spec = chart.properties(title=heading).to_dict()
    spec.pop("config", None)
    return spec


def label(model: str) -> str:
    """A model's name, cut to what a chart has room for."""
    return one_line(model, NAME_CHARACTERS)


def labelled(rows: traffic_rows.Rows) -> traffic_rows.Rows:
    """Rows with the models' names as charts show them."""
    return [row | {"model": label(row["model"])} for row in rows]


def tokens_axis(low: float, high: float) -> alt.Axis:
    """A logarithmic axis of tokens: 8, 64, 512, 4k, ..."""
    ticks = [tick for tick in TOKEN_TICKS if low <= tick <= high]
    expression = "datum.value >= 1048576 ? datum.value / 1048576 + 'M' : datum.value >= 1024 ? datum.value / 1024 + 'k'"
    return alt.Axis(values=ticks, labelExpr=f"{expression} : datum.value")


def marginals_only(canonical: Canonical) -> list[str]:
    """What a chart says about lengths that were not observed together."""
    if canonical.manifest.kind.value != "marginals":
        return []
    return ["The source shows each length by itself: how they hang together is an assumption."]


def colour(names: Sequence[str]) -> alt.Color:
    """Colour by model."""
    return alt.Color("model:N", legend=None, scale=alt.Scale(domain=list(map(label, names))))


def dash(names: Sequence[str]) -> alt.StrokeDash:
    """Dashes by model, for eyes that miss a colour."""
    return alt.StrokeDash("model:N", legend=None, scale=alt.Scale(domain=list(map(label, names)), range=DASHES))


def legend(names: Sequence[str]) -> alt.LayerChart:
    """A line, a mark and the name of each model, four in a row."""
    rows = [{"model": label(name), "column": i % 4, "row": i // 4} for i, name in enumerate(names)]
    chart = alt.Chart(alt.InlineData(values=rows))
    step = WIDTH_PX // 4 - 12

    def x(offset: int) -> alt.X:
        return alt.X("column:Q", axis=None, scale=alt.Scale(domain=[0, 4], range=[offset, offset + 4 * step]))

    y = alt.Y("row:O", axis=None)
    shape = alt.Shape("model:N", legend=None, scale=alt.Scale(domain=list(map(label, names)), range=SHAPES))
    layers = [
        chart.transform_calculate(end="datum.column + 0.14")
        .mark_rule(strokeWidth=2.2)
        .encode(x=x(0), x2="end:Q", y=y, color=colour(names), strokeDash=dash(names)),
        chart.mark_point(filled=True, size=50, opacity=1).encode(x=x(17), y=y, color=colour(names), shape=shape),
        chart.mark_text(align="left", baseline="middle", fontSize=TEXT_PX).encode(x=x(42), y=y, text="model:N"),
    ]
    count = math.ceil(len(names) / 4)
    found: alt.LayerChart = alt.LayerChart(layer=layers, width=4 * step, height=18 * count)
    found = found.resolve_scale(x="independent")
    return found


def clock(canonical: Canonical) -> str:
    """What the time axis counts."""
    return "Times are UTC." if canonical.manifest.time_base == "UTC" else "Hours count from the start of the log."
