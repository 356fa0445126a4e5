"""Charts of lengths: the density of prompt against output, and the shares up to and beyond each length."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import altair as alt

from planner.report import traffic_rows
from planner.report.speed_chart import CAPTION_PX, TEXT_PX
from planner.report.traffic_style import (
    Spec,
    colour,
    dash,
    label,
    labelled,
    legend,
    marginals_only,
    titled,
    tokens_axis,
)
from planner.traffic.canonical import Canonical
from planner.traffic.figures import ModelFigures

LIMITS = tuple(1024 * 2**k for k in range(2, 15))
"""Candidates of max_model_len, tokens."""
Domain = tuple[float, float]
PANEL_PX, PANEL_HEIGHT_PX = 408, 230


def lengths_chart(canonical: Canonical, models: Sequence[ModelFigures]) -> Spec | None:
    """Where the requests lie: prompt against output length, the density by octave, a panel for each model."""
    rows = {one.model: traffic_rows.density_rows(canonical, one.model) for one in models}
    everything = [row for found in rows.values() for row in found]
    if not everything:
        return None
    x = min(row["p"] for row in everything), max(row["p2"] for row in everything)
    y = min(row["o"] for row in everything), max(row["o2"] for row in everything)
    densities = [row["share"] for row in everything]
    columns = min(len(models), 4) if len(models) != 4 else 2
    side = {1: 620, 2: 380, 3: 246}.get(columns, 178)
    panels = [
        _density(found, x, y, (min(densities), max(densities)), first=place % columns == 0)
        .properties(width=side, height=round(side * 0.8), title=alt.TitleParams(label(model), fontSize=TEXT_PX))
        for place, (model, found) in enumerate(rows.items())
    ]  # fmt: skip
    grid = alt.concat(*panels, columns=columns, spacing=16).resolve_scale(color="shared")
    lines = [
        "Share of a model's requests per square octave of prompt and output length, from the cells. "
        "A length of 0 is drawn below 1.",
        *marginals_only(canonical),
    ]
    return titled(grid, "Lengths: prompt against output, tokens", lines)


def _density(
    rows: traffic_rows.Rows, x: tuple[float, float], y: tuple[float, float], shares: tuple[float, float], *, first: bool
) -> alt.Chart:
    colour = alt.Color(
        "share:Q",
        scale=alt.Scale(type="log", domain=list(shares), nice=False),
        legend=alt.Legend(title="share per octave²", format="~%", orient="right", gradientLength=200, tickCount=4),
    )
    y_title = "output tokens (log)" if first else None
    chart: alt.Chart = (
        alt.Chart(alt.InlineData(values=rows))
        .mark_rect(aria=False)
        .encode(
            x=alt.X("p:Q", scale=_octaves(x), axis=tokens_axis(*x), title="prompt tokens (log)"),
            x2="p2:Q",
            y=alt.Y("o:Q", scale=_octaves(y), axis=tokens_axis(*y), title=y_title),
            y2="o2:Q",
            color=colour,
        )
    )
    return chart


def _octaves(domain: Domain) -> alt.Scale:
    return alt.Scale(type="log", base=2, domain=list(domain), nice=False)


def shares_chart(canonical: Canonical, models: Sequence[ModelFigures]) -> Spec | None:
    """Cumulated shares of prompts, outputs and totals, and the share of totals beyond each candidate limit."""
    found: dict[str, traffic_rows.Rows] = {"prompt": [], "output": [], "total": [], "beyond": []}
    for one in models:
        traffic = traffic_rows.traffic_of(canonical, one.model)
        if traffic is None:
            return None
        for name, rows in traffic_rows.share_rows(traffic, one.model).items():
            found[name] += rows
    longest = max(row["tokens"] for row in found["total"])
    limits = traffic_rows.limit_rows(longest, LIMITS)
    domain = _start(found), max([longest, *(row["limit"] for row in limits)])
    names = [one.model for one in models]
    panels = [
        _cdf(found["prompt"], names, "Prompts", domain),
        _cdf(found["output"], names, "Outputs", domain),
        _cdf(found["total"], names, "Totals, with candidates of max_model_len", domain, limits),
        _beyond(found["beyond"], names, domain, limits),
    ]
    halves = [alt.hconcat(*panels[i : i + 2], spacing=26) for i in (0, 2)]
    grid = alt.vconcat(*([legend(names)] if len(names) > 1 else []), *halves, spacing=18)
    lines = [
        "Steps lie at the largest length of each cell: never too small, at most 9 % too large. The share of totals "
        "beyond a limit is exact among the 1,000 largest.",
        *marginals_only(canonical),
    ]
    return titled(grid, "How long requests are", lines)


def _start(found: Mapping[str, traffic_rows.Rows]) -> float:
    """The power of two below which less than a thousandth of any model's requests lies."""
    rows = (row for name in ("prompt", "output", "total") for row in found[name])
    first = min(row["tokens"] for row in rows if row["share"] >= 0.001)
    return float(2 ** max(math.floor(math.log2(first)), 0))


def _tokens_scale(domain: Domain) -> alt.Scale:
    return alt.Scale(type="log", base=2, domain=list(domain), nice=False, clamp=True)


def _tokens_x(domain: Domain) -> alt.X:
    return alt.X("tokens:Q", scale=_tokens_scale(domain), axis=tokens_axis(*domain), title="tokens (log)")


def _cdf(
    rows: traffic_rows.Rows, names: Sequence[str], title: str, domain: Domain, limits: traffic_rows.Rows | None = None
) -> alt.LayerChart:
    y = alt.Y(
        "share:Q", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format=".0%"), title="share of requests up to it"
    )
    return _share_panel(rows, names, y, title, domain, _limit_layers(limits or [], domain, top=False))


def _share_panel(
    rows: traffic_rows.Rows, names: Sequence[str], y: alt.Y, title: str, domain: Domain, below: Sequence[alt.Chart]
) -> alt.LayerChart:
    lines = (
        alt.Chart(alt.InlineData(values=labelled(rows)))
        .mark_line(interpolate="step-after", strokeWidth=1.8, aria=False)
        .encode(x=_tokens_x(domain), y=y, color=colour(names), strokeDash=dash(names))
    )
    return alt.LayerChart(layer=[*below, lines]).properties(
        width=PANEL_PX, height=PANEL_HEIGHT_PX, title=alt.TitleParams(title, fontSize=TEXT_PX, anchor="start")
    )


def _limit_layers(limits: traffic_rows.Rows, domain: Domain, *, top: bool) -> list[alt.Chart]:
    """Candidates of max_model_len as lines, their names where the curves are not."""
    if not limits:
        return []
    chart = alt.Chart(alt.InlineData(values=limits))
    at = alt.X("limit:Q", scale=_tokens_scale(domain), axis=tokens_axis(*domain), title="tokens (log)")
    rule = chart.mark_rule(strokeDash=[2, 3], opacity=0.6, aria=False).encode(x=at)
    text = chart.mark_text(
        fontSize=CAPTION_PX, angle=270, align="right" if top else "left", baseline="bottom", dy=-2, aria=False
    ).encode(x=at, y=alt.value(4 if top else PANEL_HEIGHT_PX - 4), text="name:N")
    return [rule, text]


def _beyond(rows: traffic_rows.Rows, names: Sequence[str], domain: Domain, limits: traffic_rows.Rows) -> alt.LayerChart:
    least = math.floor(math.log10(min(row["share"] for row in rows))) if rows else -1
    scale = alt.Scale(type="log", domain=[10.0**least, 1], nice=False)
    axis = alt.Axis(values=[10.0**k for k in range(least, 1)], format="~%", labelOverlap="greedy")
    y = alt.Y("share:Q", scale=scale, axis=axis, title="share of requests beyond it (log)")
    title = "Totals beyond a limit: what max_model_len refuses"
    return _share_panel(rows, names, y, title, domain, _limit_layers(limits, domain, top=True))
