"""`planner plan`."""

from __future__ import annotations

import datetime as dt
import os
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from planner.catalog.load import load_catalog
from planner.errors import InputError, Problem
from planner.pipeline import plan_quarter
from planner.plan import FleetPlan, plan_to_json
from planner.report.summary import render_summary
from planner.report.workbook import write_workbook

PIPE_COLUMNS = 110


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("plan")(plan)


def plan(
    request: Annotated[Path, typer.Argument(help="Request file (TOML), such as catalogs/example/quarter.toml.")],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Folder for plan.xlsx and plan.json. [reports/<folder of REQUEST>]"),
    ] = None,
    now: Annotated[
        str | None,
        typer.Option(help="Time stamp of the plan, ISO 8601 (UTC); the same stamp gives the same bytes. [clock]"),
    ] = None,
) -> None:
    """Plan the fleet for a quarter: the workbook for finance, the plan as JSON, and a summary."""
    created_at = _time_stamp(now)
    folder = output if output is not None else Path("reports") / request.resolve().parent.name
    with Console(stderr=True).status("planning") as status:
        result = plan_quarter(request, load_catalog(), created_at=created_at, progress=status.update)
        status.update("writing the workbook")
        write_outputs(result, folder)
    render_summary(result, Console(width=None if sys.stdout.isatty() else PIPE_COLUMNS))
    typer.echo(f"\nwritten: {folder / 'plan.xlsx'}, {folder / 'plan.json'}")


def write_outputs(result: FleetPlan, folder: Path) -> None:
    """Write plan.xlsx and plan.json; each appears complete or not at all."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            Problem(str(folder), f"cannot be made: {error.strerror}", "Choose another folder with -o")
        ) from None
    write_workbook(result, folder / "plan.xlsx")
    with tempfile.NamedTemporaryFile("w", dir=folder, encoding="utf-8", suffix=".tmp", delete=False) as handle:
        handle.write(plan_to_json(result))
    os.chmod(handle.name, 0o644)
    os.replace(handle.name, folder / "plan.json")


def _time_stamp(text: str | None) -> dt.datetime:
    if text is None:
        return dt.datetime.now(dt.UTC).replace(microsecond=0)
    try:
        stamp = dt.datetime.fromisoformat(text)
    except ValueError:
        raise InputError(Problem("--now", f"'{text}' is not an ISO 8601 time", "Write 2026-11-29T12:00:00Z")) from None
    return stamp.astimezone(dt.UTC) if stamp.tzinfo else stamp.replace(tzinfo=dt.UTC)
