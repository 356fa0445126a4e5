"""`planner pareto`."""

from __future__ import annotations

import csv
import io
import json as json_text
import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from planner.catalog.load import load_catalog
from planner.cli.days import day
from planner.cli.files import replacing
from planner.cli.live import plainly
from planner.cli.plan import PIPE_COLUMNS
from planner.cli.speed_plot import write_bytes
from planner.errors import InputError, Problem
from planner.frontier import UNITS, Axis, Point, frontier
from planner.inputs import read_inputs

HEADER = ("value", "usd", "usd_per_mtok", "gpus", "served_share", "gap", "proven", "planned_for", "why")


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("pareto")(pareto)


def pareto(
    request: Annotated[Path, typer.Argument(help="Request file (TOML).")],
    vary: Annotated[Axis, typer.Option(help="The limit that is varied.")],
    values: Annotated[str, typer.Option(help="Its values, such as 20,40,80 (ms) or 0,0.001,0.01 (shares).")],
    model: Annotated[
        list[str] | None, typer.Option("--model", help="Whose limit is varied; may be repeated. Default: all models.")
    ] = None,
    today: Annotated[str | None, typer.Option(help="Day that prices are judged by, ISO 8601. Default: today.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the points as JSON.")] = False,
    csv_file: Annotated[Path | None, typer.Option("--csv", help="Write the points as CSV.")] = None,
    chart: Annotated[Path | None, typer.Option(help="Draw them: .png or .svg.")] = None,
) -> None:
    """Plan anew for a range of one limit: what TTFT, TPOT, the tail budget or overflow cost."""
    wanted = _numbers(values)
    if chart is not None and chart.suffix.lower() not in (".png", ".svg"):
        raise InputError(Problem("--chart", f"'{chart.name}' is neither .png nor .svg", "Choose one of them"))
    with Console(stderr=True).status("planning") as status:
        asked_on = day(today, "--today")
        inputs = read_inputs(request, load_catalog(on=asked_on), asked_on)
        points = frontier(inputs, vary, wanted, model or (), plainly(status.update))
    if csv_file is not None:
        with replacing(csv_file) as file:
            file.write(_csv(points))
    if chart is not None and any(point.fleet for point in points):
        from planner.report.chart_file import FileKind  # noqa: PLC0415  charts load only when needed
        from planner.report.frontier_chart import frontier_file  # noqa: PLC0415

        kind = FileKind(chart.suffix.lower())
        write_bytes(chart, frontier_file(kind, points, vary, inputs.request.quarter.title))
    if json:
        typer.echo(json_text.dumps([asdict(point) for point in points], indent=2))
    else:
        _print(points, vary)


def _numbers(text: str) -> list[float]:
    try:
        return [float(item) for item in text.split(",") if item.strip()]
    except ValueError:
        raise InputError(Problem("--values", f"'{text}' is not a list of numbers", "Write 20,40,80")) from None


def _row(point: Point) -> tuple[object, ...]:
    fleet = point.fleet
    if fleet is None:
        return (point.value, "", "", "", "", "", "", "", point.why)
    return (
        point.value, fleet.usd, fleet.usd_per_mtok, fleet.gpus, fleet.served_share, fleet.gap, fleet.proven, fleet.at,
        point.why,
    )  # fmt: skip


def _csv(points: tuple[Point, ...]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    writer.writerows(_row(point) for point in points)
    return text.getvalue()


def _print(points: tuple[Point, ...], axis: Axis) -> None:
    table = Table(title=f"Cost against {axis.value} ({UNITS[axis]})")
    for name in ("limit", "USD", "USD per Mtok", "GPUs at most", "tokens served", "gap", "planned for"):
        table.add_column(name, justify="right")
    for point in points:
        fleet = point.fleet
        if fleet is None:
            table.add_row(f"{point.value:g}", "none", "", "", "", "", "")
            continue
        gap = f"{fleet.gap:.3%}" + ("" if fleet.proven else " (target not met)")
        table.add_row(
            f"{point.value:g}", f"{fleet.usd:,.0f}", f"{fleet.usd_per_mtok:.4f}", f"{fleet.gpus:,}",
            f"{fleet.served_share:.4%}", gap, f"{fleet.at:g}",
        )  # fmt: skip
    screen = Console(width=None if Console().is_terminal or "COLUMNS" in os.environ else PIPE_COLUMNS)
    screen.print(table)
    for point in points:
        if point.why:
            screen.print(Text(f"{point.value:g}: {' '.join(point.why.split())}"))
