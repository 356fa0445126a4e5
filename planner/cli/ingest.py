"""`planner ingest`: raw logs to a canonical folder, with a report of what was read, kept and dropped."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from planner.traffic import law
from planner.traffic.canonical import Canonical, check_place, write
from planner.traffic.dropped import describe, heavy_loss
from planner.traffic.ingest import Order, ingest, log_files
from planner.traffic.rules import TREATMENTS, Rule
from planner.traffic.source import parse_pairs, to_traffic
from planner.traffic.types import Traffic

TAIL_SHARES = (0.01, 0.001, 0.0)
MODELS_A_TABLE = 3
PIPE_WIDTH = 160


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("ingest")(run)


def run(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Log files, or folders of log files.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Canonical folder to write.")],
    log_format: Annotated[
        str, typer.Option("--format", help="auto, azure, litellm, mooncake, servegen or plain.")
    ] = "auto",
    mapping: Annotated[
        str, typer.Option("--map", help="Columns of a plain log: timestamp=ts,prompt=in,output=out,model=m")
    ] = "",
    alias: Annotated[
        str, typer.Option("--alias", help="Model names to merge: chat-large=llama-70b,chat=llama-70b")
    ] = "",
    model: Annotated[
        str, typer.Option("--model", help="Keep this model only; or name the rows of a log without models.")
    ] = "",
    tz: Annotated[str, typer.Option("--tz", help="Time zone of time stamps that carry none.")] = "UTC",
    option: Annotated[
        list[str] | None, typer.Option("--option", metavar="NAME=VALUE", help="Option of the reader; repeatable.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Turn request logs into the canonical traffic distribution that plans are made from.

    Only time stamps, token counts, status and model names are read: no text, no user, no key.
    """
    order = Order(
        files=tuple(path for given in files for path in log_files(given)),
        log_format=log_format,
        model=model,
        mapping=parse_pairs("--map", mapping),
        aliases=parse_pairs("--alias", alias),
        time_zone=tz,
        options=parse_pairs("--option", ",".join(option or [])),
    )
    check_place(output)
    canonical = ingest(order, show_progress=True)
    write(canonical, output)
    report = _report(canonical, output)
    if as_json:
        typer.echo(json.dumps(report, indent=2, sort_keys=True, ensure_ascii=False))
    else:
        _print(report, _console())


def _report(canonical: Canonical, output: Path) -> dict[str, Any]:
    """Everything that the report shows, as plain values."""
    manifest = canonical.manifest
    found = [to_traffic(canonical, model=m, name=m, where=output, sha256="") for m in canonical.models()]
    return {
        "output": str(output),
        **manifest.model_dump(
            mode="json",
            include={"source", "files", "window_start", "window_end", "ts_resolution_ms", "counts", "filters_applied"},
        ),
        "warnings": [warning for warning in (heavy_loss(manifest.counts),) if warning],
        "models": {traffic.model: _model_report(traffic) for traffic in found},
    }


def _model_report(traffic: Traffic) -> dict[str, Any]:
    lengths = traffic.law
    burst = traffic.burst
    unmeasured = law.unmeasured(burst)
    warnings = [law.sampling_warning(traffic, share) for share in TAIL_SHARES if share]
    return {
        "requests": lengths.requests,
        "rate_per_s": traffic.observed_rate_per_s,
        "offered_rate_per_s": traffic.offered_rate_per_s,
        "mean_prompt_tokens": lengths.mean_prompt,
        "mean_output_tokens": lengths.mean_output,
        "max_prompt_tokens": int(lengths.max_prompt.max()),
        "max_output_tokens": int(lengths.max_output.max()),
        "max_total_tokens": int(lengths.max_total.max()),
        "length_at_tail_tokens": {f"{share:.3g}": law.length_at_tail(traffic, share) for share in TAIL_SHARES},
        "idc": {
            f"{scale:.0f}": float(idc)
            for scale, idc, good in zip(burst.scale_s, burst.idc, burst.resolution_ok, strict=True)
            if good
        },
        "idc_not_measurable": {
            f"{scale:.0f}": reason for reason, scales in sorted(unmeasured.items()) for scale in scales
        },
        "caps": [{"side": c.side, "tokens": c.tokens, "share": c.share} for c in traffic.caps],
        "warnings": [warning for warning in warnings if warning],
    }


def _print(report: dict[str, Any], console: Console) -> None:
    counts = report["counts"]
    console.print(
        f"{report['source']}: {counts['rows_read']:,} rows read, {counts['kept']:,} kept, "
        f"{counts['offered']:,} arrivals, {report['window_start']} to {report['window_end']}",
        highlight=False,
    )
    for warning in report["warnings"]:
        console.print(f"WARNING: {warning}", style="bold red", highlight=False, markup=False)
    for note in report["filters_applied"]:
        console.print(f"  {note}", highlight=False, markup=False)
    if counts["dropped_by_reason"]:
        console.print(_dropped(counts, several=len(report["files"]) > 1))
    models = list(report["models"].items())
    for start in range(0, len(models), MODELS_A_TABLE):
        console.print(_models(dict(models[start : start + MODELS_A_TABLE])))
    for name, model in report["models"].items():
        for line in _remarks(model):
            console.print(_printable(f"{name}: {line}"))
    console.print(f"Written to {report['output']}", highlight=False, markup=False)


def _console() -> Console:
    """Standard output; a pipe has no width, so it gets enough for every column."""
    console = Console()
    return console if console.is_terminal else Console(width=PIPE_WIDTH)


def _dropped(counts: dict[str, Any], *, several: bool) -> Table:
    """Rows dropped by each rule, with the first of them; requests that are drawn stand in no row."""
    table = Table("dropped because", "why", title="Rows dropped", title_justify="left")
    table.add_column("rows", justify="right")
    table.add_column("still an arrival")
    table.add_column("first rows (the header is row 1)")
    for reason, n in counts["dropped_by_reason"].items():
        treatment = TREATMENTS[Rule(reason)]
        shown = [describe(row, with_file=several) for row in counts["dropped_rows"].get(reason, ())]
        offered = "yes" if treatment.offered else "no"
        table.add_row(reason, treatment.why, f"{n:,}", offered, Text("\n".join(shown) or "-"))
    return table


def _models(models: dict[str, Any]) -> Table:
    """One column per model, so that figures keep their digits on a narrow terminal."""
    table = Table(Column("figure", no_wrap=True), title="Traffic", title_justify="left")
    columns = []
    for name, model in models.items():
        table.add_column(_printable(name), justify="right")
        columns.append(_figures(model))
    for label in columns[0]:
        table.add_row(label, *(column[label] for column in columns))
    return table


def _printable(name: str) -> Text:
    """A model name comes from a log: neither markup nor control characters in it may act on the terminal."""
    return Text("".join(c if c.isprintable() else "?" for c in name))


def _figures(model: dict[str, Any]) -> dict[str, str]:
    tails = model["length_at_tail_tokens"]
    return {
        "requests": f"{model['requests']:,}",
        "arrivals per s": _number(model["offered_rate_per_s"], 4),
        "mean prompt, tokens": f"{model['mean_prompt_tokens']:,.1f}",
        "mean output, tokens": f"{model['mean_output_tokens']:,.1f}",
        "largest prompt, tokens": f"{model['max_prompt_tokens']:,}",
        "largest output, tokens": f"{model['max_output_tokens']:,}",
        "max_model_len that refuses 1 %": f"{tails['0.01']:,}",
        "max_model_len that refuses 0.1 %": f"{tails['0.001']:,}",
        "max_model_len that refuses none": f"{tails['0']:,}",
        **{f"burst (IDC) at {scale} s": _idc(model["idc"], scale) for scale in _scales(model)},
    }


def _scales(model: dict[str, Any]) -> list[str]:
    return sorted([*model["idc"], *model["idc_not_measurable"]], key=int)


def _idc(found: dict[str, float], scale: str) -> str:
    """A dash where it is not measurable; a remark says why."""
    return _number(found[scale], 3) if scale in found else "-"


def _number(value: float, digits: int) -> str:
    """Significant digits without an exponent: 12,346; 0.0123; never 1.2e+04."""
    if value == 0:
        return "0"
    places = max(digits - 1 - math.floor(math.log10(abs(value))), 0)
    text = f"{value:,.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _percent(share: float) -> str:
    """A share in percent: two digits, but never 100 for less than all."""
    if 0.995 <= share < 1:
        return f"{math.floor(share * 1e4) / 100:.2f}"
    return _number(100 * share, 2)


def _remarks(model: dict[str, Any]) -> list[str]:
    lines = [
        f"{_percent(cap['share'])} % of {cap['side']} lengths sit at the cap of {cap['tokens']:,} tokens: "
        "they will grow if that limit is raised"
        for cap in model["caps"]
    ]
    return [*lines, *_not_measurable(model["idc_not_measurable"]), *model["warnings"]]


def _not_measurable(scales: dict[str, str]) -> list[str]:
    return [
        f"the burst (IDC) at {', '.join(f'{scale} s' for scale in same)} is not measurable: {reason}"
        for reason, same in itertools.groupby(scales, key=lambda scale: scales[scale])
    ]
