"""Files of a distribution's charts: PNG, SVG, and one page with all of them, which needs no network."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from planner.report.chart_file import FileKind, html_table, library, picture, script_json
from planner.report.traffic_chart import drawn, traffic_charts
from planner.report.traffic_style import dark_config
from planner.traffic.canonical import Canonical
from planner.traffic.dropped import heavy_loss
from planner.traffic.figures import ModelFigures
from planner.traffic.schema import Manifest

PAGE_NAME = "traffic.html"


def traffic_files(canonical: Canonical, found: Sequence[ModelFigures]) -> dict[str, bytes]:
    """The files by name: each chart as PNG and SVG, and the page; same distribution, same bytes."""
    charts = traffic_charts(canonical, found)
    files = {
        f"{name}{kind.value}": picture(kind, spec)
        for name, spec in charts.items()
        for kind in (FileKind.PNG, FileKind.SVG)
    }
    return {**files, PAGE_NAME: traffic_page(canonical, found, charts).encode()}


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
h1 {{ font-size: 1.5rem; }}
h2 {{ font-size: 1.15rem; margin-top: 2rem; }}
.chart {{ width: 100%; margin: 1.5rem 0; }}
.chart svg {{ max-width: 100%; height: auto; }}
.tables {{ overflow-x: auto; }}
table {{ border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }}
caption {{ text-align: left; padding-bottom: .3rem; font-weight: bold; }}
th, td {{ padding: .2rem .7rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }}
th:first-child, td:first-child {{ text-align: left; }}
</style>
</head>
<body>
<main>
<h1>{title}</h1>
<p>{summary}</p>
<noscript><p>The charts need JavaScript; the figures are in the tables below them.</p></noscript>
{charts}
<h2>Figures</h2>
<div class="tables">
{tables}
</div>
<h2>What was read, and what was assumed</h2>
<ul>
{remarks}
</ul>
<h2>What this page and its folder hold</h2>
{privacy}
</main>
<!-- The first script holds Vega, Vega-Lite and Vega-Embed with what they need: BSD-3-Clause, copyright University of
Washington Interactive Data Lab and contributors; D3 and others: ISC, MIT. -->
<script>{library}</script>
<script>
(() => {{
const charts = {specs};
const dark = {dark};
const wish = window.matchMedia("(prefers-color-scheme: dark)");
function draw() {{
  for (const [name, light] of Object.entries(charts)) {{
    const spec = wish.matches ? {{...light, config: dark}} : light;
    vegaEmbed("#chart-" + name, spec, {{renderer: "svg", actions: false}});
  }}
}}
wish.addEventListener("change", draw);
draw();
}})();
</script>
</body>
</html>
"""
PRIVACY = (
    "Held: for each model, counts of requests by prompt and output length, the exact lengths of the 1,000 longest "
    "requests, arrivals and tokens by minute, and how arrivals bunch; names of models and of log files; the first "
    "dropped rows of each rule with file, row number, column and number.",
    "Not held: any text of a prompt or an answer, any user, key, address or session.",
)


def traffic_page(canonical: Canonical, found: Sequence[ModelFigures], charts: Mapping[str, Mapping[str, Any]]) -> str:
    """One page with the charts, the figures as tables, the remarks, and a note on what the folder holds."""
    manifest = canonical.manifest
    title = "Traffic of " + (found[0].model if len(found) == 1 else f"{len(found)} models")
    boxes = (
        f'<div class="chart" id="chart-{name}" role="img" aria-label="{html.escape(_name_of(spec), quote=True)}"></div>'
        for name, spec in charts.items()
    )
    return PAGE.format(
        title=html.escape(title),
        summary=html.escape(_summary(manifest)),
        charts="\n".join(boxes),
        tables="\n".join(_tables(found)),
        remarks="\n".join(f"<li>{html.escape(line)}</li>" for line in _remarks(canonical, found)),
        privacy="\n".join(f"<p>{html.escape(line)}</p>" for line in (*PRIVACY, _smallest(manifest))),
        library=library().replace("</script", "<\\/script"),
        specs=script_json(charts),
        dark=script_json(dark_config()),
    )


def _name_of(spec: Mapping[str, Any]) -> str:
    """What a reader of the screen hears: the title and its first line."""
    title = spec["title"]
    return f"{title['text']}. {' '.join(title.get('subtitle', [])[:1])}"


def _summary(manifest: Manifest) -> str:
    counts = manifest.counts
    return (
        f"{manifest.source}, {manifest.window_start} to {manifest.window_end}: {counts.rows_read:,} rows read, "
        f"{counts.kept:,} kept, {counts.offered:,} arrivals."
    )


def _smallest(manifest: Manifest) -> str:
    if manifest.smallest_cell > 1:
        return f"Every cell of the lengths holds at least {manifest.smallest_cell} requests, unless a remark says less."
    return "Cells of the lengths may hold a single request; planner ingest --min-cell merges small ones."


def _tables(found: Sequence[ModelFigures]) -> Iterable[str]:
    rates = ("Model", "Requests", "Arrivals/s, mean", "busiest minute", "busiest hour", "Cached share of prompts")
    yield html_table("Rates", rates, [_rate_cells(one) for one in found])
    for side in ("prompt", "output", "total"):
        known = [one for one in found if side in one.lengths]
        if known:
            quantiles = [f"P{100 * q:.12g}" for q in known[0].lengths[side].quantiles]
            header = ("Model", "Mean", *quantiles, "Largest")
            yield html_table(f"{side.capitalize()} tokens", header, [_length_cells(one, side) for one in known])
    scales = sorted({scale for one in found for scale in one.idc})
    if scales:
        header = ("Model", *(f"{scale:.12g} s" for scale in scales), "Largest batch of one stamp")
        yield html_table("Index of dispersion (IDC)", header, [_burst_cells(one, scales) for one in found])


def _rate_cells(one: ModelFigures) -> tuple[str, ...]:
    rates = (one.arrivals_per_s, one.peak_minute_per_s, one.peak_hour_per_s)
    cached = "" if one.cached_share is None else f"{100 * one.cached_share:.1f} %"
    return one.model, f"{one.requests:,}", *(f"{rate:,.4g}" for rate in rates), cached


def _length_cells(one: ModelFigures, side: str) -> tuple[str, ...]:
    lengths = one.lengths[side]
    return one.model, f"{lengths.mean:,.1f}", *(f"{n:,}" for n in lengths.quantiles.values()), f"{lengths.most:,}"


def _burst_cells(one: ModelFigures, scales: Sequence[float]) -> tuple[str, ...]:
    idc = (f"{one.idc[scale]:.3g}" if scale in one.idc else "" for scale in scales)
    return one.model, *idc, f"{max(one.batches):,}" if one.batches else ""


def _remarks(canonical: Canonical, found: Sequence[ModelFigures]) -> list[str]:
    manifest = canonical.manifest
    counts = manifest.counts
    lines = [loss] if (loss := heavy_loss(counts)) else []
    if manifest.sampling_fraction < 1:
        lines.append(f"The log holds {100 * manifest.sampling_fraction:.3g} % of the requests; rates here are of all.")
    lines += [f"{n:,} rows dropped: {reason}" for reason, n in counts.dropped_by_reason.items()]
    lines += [f"{n:,} rows adjusted: {reason}" for reason, n in counts.adjusted_by_reason.items()]
    lines += [f"Filter: {line}" for line in manifest.filters_applied]
    lines += [f"History: {line}" for line in manifest.history]
    lines += manifest.remarks
    lines += [
        f"{one.model}: {100 * cap.share:.2g} % of {cap.side} lengths sit at the cap of {cap.tokens:,} tokens"
        for one in found
        for cap in one.caps
    ]
    lines += [f"{one.model}: {warning}" for one in found for warning in one.warnings]
    shown = {one.model for one in drawn(found)}
    hidden = [one.model for one in found if one.model not in shown]
    if hidden:
        lines.append(f"Not drawn, but in the tables: {', '.join(hidden)}")
    return lines or ["Nothing was dropped, changed or assumed."]
