"""The decode-rate chart of a pool, drawn by Vega-Lite as a static picture inside the page.

As in the other pages the library is Vega-Lite, but the picture is made beforehand: Vega in the page costs 0.9 MB
(Plotly 4.5 MB), needs scripts, and prints late; figures that are one number each are bars in the cells of tables.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from planner.plan import Pool
from planner.report import facts
from planner.report.chart_file import VEGA_LITE, FileKind, picture
from planner.report.page.markup import Col, folded, prose, remark, table
from planner.report.page.numbers import count, decimal
from planner.report.speed_curve import SpeedCurve, decode_rate

WIDTH_PX, HEIGHT_PX = 368, 176
MOST_LABELS = 7
MEASURED_WITH = "Liberation Sans"
"""Bundled with vl-convert; the page shows the text in its own font."""
INK, GRID, LINE, LIMIT = "#333333", "#e3e3e3", "#0072b2", "#a63c00"
"""Colours that the page's style sheet turns into those of its theme."""
_ID = re.compile(r'(?<=id=")[^"]+(?=")|(?<=url\(#)[^)]+(?=\))')
_SIZE = re.compile(r'<svg [^>]*?width="([\d.]+)" height="([\d.]+)"[^>]*>')


def decode_chart(pool: Pool, curve: SpeedCurve | str | None, anchor: str) -> Markup:
    """The figure with its text alternative and its table; words where there is no curve."""
    if curve is None or isinstance(curve, str):
        why = Markup(": {}").format(prose(curve)) if curve else Markup()
        return Markup(
            '<div class="missing">Decode rate against concurrency is not drawn: it is predicted from the catalogue, '
            "which was not asked or does not hold this deployment{}.</div>"
        ).format(why)
    words = _words(pool, curve)
    svg = _inline(picture(FileKind.SVG, decode_spec(pool, curve)).decode(), anchor)
    return Markup(
        '<figure>\n<h5>Decode rate of one stream</h5>\n<div class="chart" role="img" aria-label="{}">{}</div>\n'
        "<figcaption>{}</figcaption>\n{}\n</figure>"
    ).format(f"Decode rate of one stream. {words}", Markup(svg), words, _figures(curve))


def target_rate(pool: Pool) -> float | None:
    """Least decode rate that the TPOT target allows, tokens/s."""
    limit = facts.margin(pool, "tpot")
    return decode_rate(limit.limit) if limit and math.isfinite(limit.limit) else None


def _words(pool: Pool, curve: SpeedCurve) -> str:
    parts = ["Against requests in the replica: prediction (line) and its 80 % band."]
    if curve.planned is not None and math.isfinite(curve.planned.tpot_ms):
        plan = curve.planned
        parts.append(
            f"Planned (diamond): {decimal(plan.concurrency)} requests live, {decimal(plan.decode_tok_s)} tokens/s at "
            f"the {pool.speed.tpot_ms.edge} edge of TPOT."
        )
    target = target_rate(pool)
    if target is not None:
        parts.append(f"TPOT target (dashed): {decimal(target)} tokens/s.")
    if curve.full_at is not None:
        parts.append(f"Full at {count(curve.full_at)} requests ({curve.full_why}, dotted).")
    speed = pool.speed
    if curve.source != f"{speed.provider}: {speed.tpot_ms.source.removeprefix(f'{speed.provider} ')}":
        parts.append("The curve's source is not the one the plan had.")
    return " ".join(parts)


def decode_spec(pool: Pool, curve: SpeedCurve) -> dict[str, Any]:
    """The chart as a Vega-Lite specification; same pool and curve, same specification."""
    rate = curve.decode_tok_s
    rows = [
        {"n": n, "low": low, "mid": mid, "high": high}
        for n, low, mid, high in zip(curve.concurrency, rate.low, rate.mid, rate.high, strict=True)
    ]
    x = {
        "field": "n", "type": "quantitative", "title": "requests in the replica (log)",
        "scale": {"type": "log", "base": 2, "nice": False},
        "axis": {"format": ",~r", "grid": False, "values": _powers(curve)},
    }  # fmt: skip
    y = {"field": "mid", "type": "quantitative", "title": "tokens/s of one stream", "axis": {"tickCount": 5}}
    band = {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}}
    layers: list[dict[str, Any]] = [
        {"mark": {"type": "area", "color": LINE, "opacity": 0.18}, "encoding": band},
        {"mark": {"type": "line", "color": LINE, "strokeWidth": 2.2}, "encoding": {"x": x, "y": y}},
    ]
    target = target_rate(pool)
    if target is not None:
        layers.append(_rule("y", target, [6, 4]))
    if curve.full_at is not None:
        layers.append(_rule("x", curve.full_at, [2, 3]))
    plan = curve.planned
    if plan is not None and plan.concurrency > 0 and math.isfinite(plan.tpot_ms):
        mark = {"type": "point", "shape": "diamond", "size": 130, "filled": False, "strokeWidth": 2.4, "color": INK}
        layers.append({"mark": mark, **_at({"x": plan.concurrency, "y": plan.decode_tok_s})})
    return {
        "$schema": f"https://vega.github.io/schema/vega-lite/v{VEGA_LITE.split('.', maxsplit=1)[0]}.json",
        "data": {"values": rows}, "width": WIDTH_PX - 50, "height": HEIGHT_PX, "layer": layers, "config": _CONFIG,
    }  # fmt: skip


def _powers(curve: SpeedCurve) -> list[int]:
    """Powers of two for the labels of the axis, few enough to stand side by side."""
    first, last = math.floor(math.log2(curve.concurrency[0])), math.floor(math.log2(curve.concurrency[-1]))
    step = -(-(last - first + 1) // MOST_LABELS)
    return [2**power for power in range(max(0, first), last + 1, step)]


_CONFIG: Mapping[str, Any] = {
    "aria": False, "background": None, "font": MEASURED_WITH, "padding": 2, "view": {"stroke": None},
    "axis": {
        "labelColor": INK, "titleColor": INK, "domainColor": INK, "tickColor": INK, "gridColor": GRID,
        "labelLimit": 0, "titleLimit": 0, "labelOverlap": False, "labelFontSize": 12,
        "titleFontSize": 12, "titleFontWeight": "normal", "titlePadding": 6,
    },
}  # fmt: skip


def _at(place: Mapping[str, float]) -> dict[str, Any]:
    """Data and encoding of one point or rule."""
    encoding = {channel: {"field": channel, "type": "quantitative"} for channel in place}
    return {"data": {"values": [dict(place)]}, "encoding": encoding}


def _rule(channel: str, value: float, dash: list[int]) -> dict[str, Any]:
    return {"mark": {"type": "rule", "color": LIMIT, "strokeDash": dash, "strokeWidth": 1.6}, **_at({channel: value})}


def _inline(svg: str, anchor: str) -> str:
    """The picture as part of a page: it takes the width there is, and its ids are of this page."""
    named = _ID.sub(lambda found: f"{anchor}-{found[0]}", svg)
    return _SIZE.sub(r'<svg viewBox="0 0 \1 \2" focusable="false" aria-hidden="true">', named, count=1)


def _figures(curve: SpeedCurve) -> Markup:
    """Powers of two and both ends, folded."""
    rate, last = curve.decode_tok_s, len(curve.concurrency) - 1
    rows = [
        (decimal(n), decimal(rate.mid[i]), f"{decimal(rate.low[i])} to {decimal(rate.high[i])}")
        for i, n in enumerate(curve.concurrency)
        if i in (0, last) or (n.is_integer() and int(n) & (int(n) - 1) == 0)
    ]
    columns = (Col("Requests", "n"), Col("Tokens/s", "n"), Col("80 % band", "n"))
    return folded(
        "Figures of the chart",
        table("Decode rate of one stream", columns, rows, kind="tight", wide=False),
        remark(curve.source),
    )
