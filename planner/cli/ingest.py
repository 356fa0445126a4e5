"""`planner ingest`: raw logs to a canonical folder, with a report of what was read, kept and dropped."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from planner.cli.numbers import number, percent, window
from planner.errors import InputError, Problem
from planner.traffic import burstiness, law
from planner.traffic.canonical import Canonical, check_place, write
from planner.traffic.dropped import describe, heavy_loss
from planner.traffic.ingest import Order, ingest, log_files
from planner.traffic.operations.small_cells import merge_small
from planner.traffic.prefix import described
from planner.traffic.readers.aliases import AliasFile, checked, parse_aliases, read_aliases
from planner.traffic.readers.columns import Stamps
from planner.traffic.rules import REMARKS, TREATMENTS, Adjustment, Rule
from planner.traffic.schema import Kind
from planner.traffic.source import parse_pairs, to_traffic
from planner.traffic.sums.ingest import means_of
from planner.traffic.times import moment_us
from planner.traffic.types import Traffic

TAIL_SHARES = (0.01, 0.001, 0.0)
MODELS_A_TABLE = 3
PIPE_WIDTH = 160
WHAT_LEAVES = "counts, sums and maxima by model, minute and length; no text, no user, no key"


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("ingest")(run)


def run(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE...", help="Log files, folders of log files, or globs; with --backend, one table."),
    ],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="DIR", help="Canonical folder to write.")
    ] = None,
    log_format: Annotated[
        str, typer.Option("--format", help="auto, or the name of a format; a wrong one lists them all.")
    ] = "auto",
    mapping: Annotated[
        str, typer.Option("--map", help="Columns of a plain log: timestamp=ts,prompt=in,output=out,model=m")
    ] = "",
    alias: Annotated[
        list[str] | None,
        typer.Option(
            "--alias",
            metavar="NAME=WEIGHTS[@DATE]",
            help="Model names to merge: chat-large=llama-70b,chat=llama-3.3-70b@2026-08-01 (from then on); repeatable.",
        ),
    ] = None,
    aliases: Annotated[
        Path | None,
        typer.Option("--aliases", metavar="FILE.csv", help="The same, with columns alias, weights, since, version."),
    ] = None,
    model: Annotated[
        str, typer.Option("--model", help="Keep this model only; or name the rows of a log without models.")
    ] = "",
    tz: Annotated[str, typer.Option("--tz", help="Time zone of time stamps that carry none.")] = "UTC",
    stamps: Annotated[
        Stamps | None,
        typer.Option("--stamps", help="What time stamps say; from a completion the duration is subtracted."),
    ] = None,
    since: Annotated[str, typer.Option("--since", metavar="DATE", help="Keep arrivals from then on (UTC).")] = "",
    until: Annotated[str, typer.Option("--until", metavar="DATE", help="Keep arrivals before then (UTC).")] = "",
    sampling: Annotated[
        float | None,
        typer.Option("--sampling", help="Share of the requests that the log holds, above 0 and at most 1."),
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", metavar="NAME=VALUE", help="Option of the reader; repeatable.")
    ] = None,
    backend: Annotated[
        str, typer.Option("--backend", help="Aggregate a table where it stands: spark, bigquery, postgres and others.")
    ] = "",
    address: Annotated[
        str, typer.Option("--connect", metavar="URL", envvar="PLANNER_CONNECT", help="Where the backend is.")
    ] = "",
    sql_only: Annotated[bool, typer.Option("--sql-only", help="Print the backend's queries; run nothing.")] = False,
    from_tables: Annotated[
        Path | None,
        typer.Option("--from-tables", metavar="DIR", help="Results of those queries, one CSV or Parquet file each."),
    ] = None,
    min_cell: Annotated[
        int,
        typer.Option("--min-cell", metavar="N", min=1, help="Merge cells of lengths with fewer requests than this."),
    ] = 1,
    prompt_bursts: Annotated[
        bool,
        typer.Option("--prompt-bursts", help="Also measure bursts by prompt length, for plans with pools by length."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Turn request logs into the canonical traffic distribution that plans are made from.

    Only time stamps, token counts, status and model names are read: no text, no user, no key.
    """
    table = read_aliases(aliases) if aliases else AliasFile((), None)
    asked: dict[str, Any] = {
        "log_format": log_format,
        "model": model,
        "mapping": parse_pairs("--map", mapping),
        "aliases": checked("--alias", (*table.aliases, *parse_aliases("--alias", alias or []))),
        "alias_version": table.version,
        "time_zone": tz,
        "stamps": stamps,
        "since_us": moment_us("--since", since),
        "until_us": moment_us("--until", until),
        "sampling_fraction": sampling,
        "options": parse_pairs("--option", ",".join(option or [])),
    }
    if sql_only:
        from planner.cli import ingest_backend  # noqa: PLC0415  slow to import

        ingest_backend.print_sql(files, backend, address, asked)
        return
    if output is None:
        raise InputError(Problem("-o", "no folder to write to is given", "Add -o DIR"))
    check_place(output)
    _check_prompt_bursts(prompt_bursts, min_cell, bool(backend or address or from_tables))
    if backend or address or from_tables:
        from planner.cli import ingest_backend  # noqa: PLC0415  slow to import

        canonical = ingest_backend.ingested(files, backend, address, asked, from_tables)
    else:
        paths = tuple(path for given in files for path in log_files(given))
        canonical = ingest(Order(files=paths, prompt_bursts=prompt_bursts, **asked), show_progress=True)
        if prompt_bursts and canonical.prompt_burst is None:
            what = f"{canonical.manifest.source} shows no single requests, so no bursts by prompt length"
            raise InputError(Problem("--prompt-bursts", what, "Leave it out"))
    if min_cell > 1:
        canonical = merge_small(canonical, min_cell)
    write(canonical, output)
    report = _report(canonical, output)
    if as_json:
        typer.echo(json.dumps(report, indent=2, sort_keys=True, ensure_ascii=False))
    else:
        _print(report, _console())


def _check_prompt_bursts(wanted: bool, min_cell: int, in_warehouse: bool) -> None:
    if wanted and in_warehouse:
        raise InputError(Problem("--prompt-bursts", "is measured from log files, not in a warehouse", "Leave it out"))
    if wanted and min_cell > 1:
        what = "would show how often the few requests of a small cell come, which --min-cell hides"
        raise InputError(Problem("--prompt-bursts", what, "Leave one of the two out"))


def _report(canonical: Canonical, output: Path) -> dict[str, Any]:
    """Everything that the report shows, as plain values."""
    manifest = canonical.manifest
    return {
        "output": str(output),
        **manifest.model_dump(
            mode="json",
            include={
                "kind",
                "source",
                "files",
                "window_start",
                "window_end",
                "time_base",
                "ts_resolution_ms",
                "ts_meaning",
                "sampling_fraction",
                "alias_map",
                "alias_map_version",
                "columns_read",
                "counts",
                "filters_applied",
                "smallest_cell",
                "remarks",
            },
        ),
        "warnings": [warning for warning in (heavy_loss(manifest.counts),) if warning],
        "models": {model: _one_model(canonical, model, output) for model in canonical.models()},
    }


def _one_model(canonical: Canonical, model: str, output: Path) -> dict[str, Any]:
    """Everything about a model; of sums, which hold no lengths, their rates and means."""
    if canonical.manifest.kind is Kind.SUMS:
        return means_of(canonical, model)
    traffic = to_traffic(canonical, model=model, name=model, where=output, sha256="")
    return {**_model_report(traffic), "prefix": described(canonical.prefix, model)}


def _model_report(traffic: Traffic) -> dict[str, Any]:
    lengths = traffic.law
    burst = traffic.burst
    unmeasured = burstiness.unmeasured(burst)
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
        f"{counts['offered']:,} arrivals, " + window(report["window_start"], report["window_end"], report["time_base"]),
        highlight=False,
    )
    for warning in report["warnings"]:
        console.print(f"WARNING: {warning}", style="bold red", highlight=False, markup=False)
    for note in report["filters_applied"]:
        console.print(f"  {note}", highlight=False, markup=False)
    if counts["dropped_by_reason"]:
        console.print(_dropped(counts, several=len(report["files"]) > 1))
    if counts["adjusted_by_reason"]:
        console.print(_adjusted(counts))
    models = list(report["models"].items())
    for start in range(0, len(models), MODELS_A_TABLE):
        console.print(_models(dict(models[start : start + MODELS_A_TABLE])))
    for name, model in report["models"].items():
        for line in _remarks(model):
            console.print(_printable(f"{name}: {line}"))
    for remark in report["remarks"]:
        console.print(_printable(remark))
    if report["smallest_cell"] > 1:
        console.print(f"Lengths are merged into cells of at least {report['smallest_cell']} requests", highlight=False)
    if report["columns_read"]:
        console.print(_printable(f"Columns read: {', '.join(report['columns_read'])}. The others stayed in the log"))
    console.print(f"Written to {report['output']}: {WHAT_LEAVES}", highlight=False, markup=False)


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


def _adjusted(counts: dict[str, Any]) -> Table:
    """Kept rows that were changed, or that a reader should know of."""
    table = Table("kept, but", "why", title="Rows adjusted", title_justify="left")
    table.add_column("rows", justify="right")
    for reason, n in counts["adjusted_by_reason"].items():
        table.add_row(reason, REMARKS[Adjustment(reason)], f"{n:,}")
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
    means = {
        "requests": f"{model['requests']:,}",
        "arrivals per s": number(model["offered_rate_per_s"], 4),
        "mean prompt, tokens": f"{model['mean_prompt_tokens']:,.1f}",
        "mean output, tokens": f"{model['mean_output_tokens']:,.1f}",
    }
    if "length_at_tail_tokens" not in model:
        return means
    tails = model["length_at_tail_tokens"]
    return {
        **means,
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
    return number(found[scale], 3) if scale in found else "-"


def _remarks(model: dict[str, Any]) -> list[str]:
    if "caps" not in model:
        return []
    lines = [
        f"{percent(cap['share'])} % of {cap['side']} lengths sit at the cap of {cap['tokens']:,} tokens: "
        "they will grow if that limit is raised"
        for cap in model["caps"]
    ]
    return [*lines, *model["prefix"], *_not_measurable(model["idc_not_measurable"]), *model["warnings"]]


def _not_measurable(scales: dict[str, str]) -> list[str]:
    return [
        f"the burst (IDC) at {', '.join(f'{scale} s' for scale in same)} is not measurable: {reason}"
        for reason, same in itertools.groupby(scales, key=lambda scale: scales[scale])
    ]
