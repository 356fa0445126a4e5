"""`planner actuals`: a past plan against logs of its horizon."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from planner.actuals.assign import split
from planner.actuals.compare import actuals_of
from planner.actuals.logs import HowToRead, whole_minute
from planner.actuals.words import change, growth, verdict
from planner.cli.files import replacing
from planner.cli.plan import writable
from planner.cli.traffic_folders import console, printable
from planner.errors import InputError, Problem, Problems
from planner.plan import FleetPlan
from planner.plan_file import plan_at
from planner.study import Actuals, ModelActual
from planner.traffic.readers.aliases import checked, parse_aliases, read_aliases
from planner.traffic.readers.columns import Stamps
from planner.traffic.source import parse_pairs
from planner.traffic.times import moment_us


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("actuals")(run)


def run(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="A past plan.json, or its folder.")],
    logs: Annotated[
        list[str],
        typer.Argument(
            metavar="LOG[=MODEL]",
            help="Logs of its horizon: files, folders of files, globs, or canonical folders; =MODEL names the model of "
            "the plan where the log's own names do not.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Write the figures as JSON, for the next plan's request."),
    ] = None,
    log_format: Annotated[str, typer.Option("--format", help="Format of raw logs; auto tells it from the file.")] = (
        "auto"
    ),
    mapping: Annotated[
        str, typer.Option("--map", help="Columns of a plain log: timestamp=ts,prompt=in,output=out,model=m")
    ] = "",
    alias: Annotated[
        list[str] | None,
        typer.Option(
            "--alias", metavar="NAME=MODEL[@DATE]", help="Model names to merge, as in planner ingest; repeatable."
        ),
    ] = None,
    aliases: Annotated[
        Path | None,
        typer.Option("--aliases", metavar="FILE.csv", help="The same, with columns alias, weights, since, version."),
    ] = None,
    tz: Annotated[str, typer.Option("--tz", help="Time zone of time stamps that carry none.")] = "UTC",
    stamps: Annotated[
        Stamps | None,
        typer.Option("--stamps", help="What time stamps say; from a completion the duration is subtracted."),
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", metavar="NAME=VALUE", help="Option of the reader; repeatable.")
    ] = None,
    starts: Annotated[
        str, typer.Option("--starts", metavar="TIME", help="UTC time at which a log without dates starts.")
    ] = "",
    now: Annotated[
        str, typer.Option("--now", metavar="TIME", help="Compare up to this moment (UTC): the quarter is not over.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Compare a past plan with what happened: traffic, lengths, peaks, refusals, overflow and cost per token."""
    problems = Problems()
    known = problems.attempt(lambda: plan_at(plan))
    how = problems.attempt(lambda: _how(log_format, mapping, alias, aliases, tz, stamps, option, starts))
    until = problems.attempt(lambda: (whole_minute("--now", moment_us("--now", now)),))
    problems.attempt(lambda: writable(output, "-o"))
    asked = [problems.attempt(lambda text=text: split(text, known)) for text in logs] if known else []  # type: ignore[misc]
    problems.raise_if_any()
    assert known is not None
    assert how is not None
    assert until is not None
    _check_until(known, until[0])
    found = actuals_of(known, [log for log in asked if log is not None], how, until[0])
    text = found.model_dump_json(indent=1) + "\n"
    if output is not None:
        with replacing(output) as file:
            file.write(text)
    if as_json:
        typer.echo(text, nl=False)
        return
    _print(found, console())
    if output is not None:
        typer.echo(f"\nwritten: {output}")


def _how(
    log_format: str,
    mapping: str,
    alias: list[str] | None,
    aliases: Path | None,
    tz: str,
    stamps: Stamps | None,
    option: list[str] | None,
    starts: str,
) -> HowToRead:
    of_file = read_aliases(aliases).aliases if aliases else ()
    return HowToRead(
        log_format=log_format,
        mapping=parse_pairs("--map", mapping),
        aliases=checked("--alias", (*of_file, *parse_aliases("--alias", alias or []))),
        time_zone=tz,
        stamps=stamps,
        options=parse_pairs("--option", ",".join(option or [])),
        starts_us=whole_minute("--starts", moment_us("--starts", starts)),
    )


def _check_until(plan: FleetPlan, until_us: int | None) -> None:
    start_us = moment_us("horizon", plan.horizon_start.isoformat())
    if until_us is not None and start_us is not None and until_us <= start_us:
        what = f"the plan's horizon begins on {plan.horizon_start}: nothing of it is over"
        raise InputError(Problem("--now", what, "Give a later moment, or leave it out"))


def _print(found: Actuals, screen: Console) -> None:
    """The comparison: figures, a line for each model, and what must be known."""
    title = f"{printable(found.title)} (plan {found.run_id}), {found.start:%Y-%m-%d %H:%M} to "
    screen.print(Text(f"{title}{found.end:%Y-%m-%d %H:%M} UTC", style="bold"))
    for model in found.models:
        screen.print()
        screen.print(Text(f"{printable(model.model)}: {verdict(model)}", style="bold"))
        screen.print(_table(model))
        screen.print(Text(f"for the next plan: {growth(model)}"))
        for note in model.note.split("; ") if model.note else ():
            screen.print(Text(f"  {printable(note)}", style="dim"))
    if found.notes:
        screen.print()
    for note in found.notes:
        screen.print(Text(f"Note: {printable(note)}"))


def _table(model: ModelActual) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(f"in {model.hours:,.4g} h")
    for head in ("plan", "actual", "change"):
        table.add_column(head, justify="right")
    rows = (
        ("requests", model.planned_requests, model.actual_requests, ",.0f"),
        ("input, Mtok", model.planned_input_mtok, model.actual_input_mtok, ",.6g"),
        ("output, Mtok", model.planned_output_mtok, model.actual_output_mtok, ",.6g"),
        ("busiest ten minutes, requests/s", model.planned_peak_per_s, model.actual_peak_per_s, ",.4g"),
        ("cost, USD per Mtok", model.planned_usd_per_mtok, model.actual_usd_per_mtok, ",.4f"),
    )
    for label, planned, actual, form in rows:
        table.add_row(label, format(planned, form), format(actual, form), change(actual, planned))
    table.add_row("refused as too long", f"{model.planned_refused_share:.3%}", f"{model.actual_refused_share:.3%}", "")
    over = "unknown" if model.actual_overflow is None else f"{model.actual_overflow:.3%}"
    table.add_row("overflow of the pool (plan: allowed)", f"{model.allowed_overflow:.3%}", over, "")
    table.add_row("cost of these hours, USD", f"{model.planned_usd:,.2f}", "", "")
    return table
