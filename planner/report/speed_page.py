"""Files of a speed chart: PNG, SVG, and a page of one file that needs no network."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from planner.report.chart_file import FileKind, html_table, library, picture, script_json
from planner.report.speed_chart import DARK, caption_lines, subtitle_lines
from planner.report.speed_curve import SpeedCurve, decode_rate
from planner.speed.points import Point


def chart_file(
    kind: FileKind, spec: Mapping[str, Any], curves: Sequence[SpeedCurve], measured: Sequence[Point] = ()
) -> bytes:
    """The chart as the bytes of a file; same arguments, same bytes.

    Parameters
    ----------
    kind
        PNG, SVG or HTML.
    spec
        From `planner.report.speed_chart.speed_chart`.
    curves, measured
        What the specification was made of: a page shows them as tables.
    """
    if kind is FileKind.HTML:
        return _page(spec, curves, measured).encode()
    return picture(kind, spec)


PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; --ink: #333; --paper: #fff; --line: #ddd; }}
@media (prefers-color-scheme: dark) {{ :root {{ --ink: #d8d8d8; --paper: #16181c; --line: #34373d; }} }}
body {{ margin: 1rem auto; padding: 0 1rem; max-width: 66rem; color: var(--ink); background: var(--paper);
  font: 15px/1.4 "Liberation Sans", Arial, Helvetica, sans-serif; }}
#chart {{ width: 100%; }}
#chart svg {{ max-width: 100%; height: auto; }}
details {{ margin: 1rem 0; overflow-x: auto; }}
summary {{ cursor: pointer; font-weight: bold; }}
table {{ border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }}
caption {{ text-align: left; padding-bottom: .3rem; }}
th, td {{ padding: .2rem .7rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }}
th:first-child, td:first-child {{ text-align: left; }}
</style>
</head>
<body>
<main>
<div id="chart" role="img" aria-label="{label}"></div>
<noscript><p>The chart needs JavaScript; its figures are in the tables below.</p></noscript>
<details>
<summary>Figures of the chart</summary>
{tables}
</details>
</main>
<!-- The first script holds Vega, Vega-Lite and Vega-Embed with what they need: BSD-3-Clause, copyright University of
Washington Interactive Data Lab and contributors; D3 and others: ISC, MIT. -->
<script>{library}</script>
<script>
(() => {{
const light = {spec};
const dark = {dark};
const wish = window.matchMedia("(prefers-color-scheme: dark)");
function draw() {{
  const spec = wish.matches ? {{...light, config: dark}} : light;
  vegaEmbed("#chart", spec, {{renderer: "svg", actions: false}});
}}
wish.addEventListener("change", draw);
draw();
}})();
</script>
</body>
</html>
"""


def _page(spec: Mapping[str, Any], curves: Sequence[SpeedCurve], measured: Sequence[Point]) -> str:
    label = f"Charts of decode rate, TPOT, TTFT and output against concurrency. {subtitle_lines(curves, measured)[0]}."
    return PAGE.format(
        title=html.escape(" ".join(spec["vconcat"][0]["title"]["text"])),
        label=html.escape(label, quote=True),
        tables="\n".join(_tables(curves, measured)),
        library=library().replace("</script", "<\\/script"),
        spec=script_json(spec),
        dark=script_json(DARK),
    )


HEADER = ("Concurrency", "Decode rate, tokens/s", "TPOT, ms", "TTFT, ms", "Replica's output, tokens/s")


def _tables(curves: Sequence[SpeedCurve], measured: Sequence[Point]) -> Iterable[str]:
    """One table for each curve, one of the measured points, and the sources."""
    for curve in curves:
        yield html_table(f"{curve.label}: prediction (80 % band)", HEADER, _curve_rows(curve))
    rows = [(curve.label, point) for curve in curves for point in measured if curve.covers(point)]
    if rows:
        yield html_table("Measured points", ("Deployment", *HEADER, "Engine", "Source"), map(_point_cells, rows))
    for line in caption_lines(curves, measured):
        yield f"<p>{html.escape(line)}</p>"


def _curve_rows(curve: SpeedCurve) -> Iterable[tuple[str, ...]]:
    """Powers of two and both ends."""
    figures = (curve.decode_tok_s, curve.tpot_ms, curve.ttft_ms, curve.output_tok_s)
    last = len(curve.concurrency) - 1
    for i, n in enumerate(curve.concurrency):
        power_of_two = n >= 1 and n.is_integer() and int(n) & (int(n) - 1) == 0
        if power_of_two or i in (0, last):
            yield (_digits(n), *(f"{_digits(s.mid[i])} ({_digits(s.low[i])}–{_digits(s.high[i])})" for s in figures))
    if curve.planned is not None:
        plan = curve.planned
        values = (plan.concurrency, plan.decode_tok_s, plan.tpot_ms, plan.ttft_ms, plan.output_tok_s)
        yield (f"plan: {_digits(values[0])}", *map(_digits, values[1:]))


def _point_cells(row: tuple[str, Point]) -> tuple[str, ...]:
    label, point = row
    found = point.measured
    figures = (point.load.concurrency, decode_rate(found.tpot_ms), found.tpot_ms, found.ttft_ms, found.output_tok_s)
    engine = f"{point.served.engine} {point.served.version}".strip()
    return (label, *("" if figure is None else _digits(figure) for figure in figures), engine, point.source)


def _digits(value: float) -> str:
    """Three significant digits, or every digit before the point."""
    text = f"{value:,.0f}" if abs(value) >= 100 else f"{value:#.3g}"
    return text.rstrip("0").rstrip(".") if "." in text else text
