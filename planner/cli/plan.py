"""`planner plan`."""

from __future__ import annotations

import contextlib
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
FILES = ("plan.xlsx", "plan.json")


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("plan")(plan)


def plan(
    request: Annotated[Path, typer.Argument(help="Request file (TOML), such as catalogs/example/quarter.toml.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="Folder for plan.xlsx and plan.json. Default: reports/FOLDER for FOLDER/quarter.toml, "
            "reports/FOLDER-NAME for FOLDER/NAME.toml.",
        ),
    ] = None,
    now: Annotated[
        str | None,
        typer.Option(
            help="Time stamp of the plan, ISO 8601 (UTC). The same stamp gives the same bytes. Default: clock."
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON instead of the summary.")] = False,
) -> None:
    """Plan the fleet for a quarter: the workbook for finance, the plan as JSON, and a summary."""
    created_at = _time_stamp(now)
    folder = output if output is not None else default_folder(request)
    with Console(stderr=True).status("planning") as status:
        prepared = prepare(folder)
        try:
            result = plan_quarter(request, load_catalog(), created_at=created_at, progress=status.update)
        except BaseException:
            with contextlib.suppress(OSError):
                for made in prepared:
                    made.rmdir()
            raise
        status.update("writing the workbook")
        write_outputs(result, folder)
    if json:
        typer.echo(plan_to_json(result), nl=False)
        return
    own_width = sys.stdout.isatty() or "COLUMNS" in os.environ
    render_summary(result, Console(width=None if own_width else PIPE_COLUMNS))
    typer.echo(f"\nwritten: {folder / 'plan.xlsx'}, {folder / 'plan.json'}")


def default_folder(request: Path) -> Path:
    """``reports/<folder>`` for a quarter.toml, else ``reports/<folder>-<file>``, so that requests do not collide."""
    parent = request.resolve().parent.name
    return Path("reports") / (parent if request.stem == "quarter" else f"{parent}-{request.stem}")


def prepare(folder: Path) -> list[Path]:
    """Make the folder and see that both files can be written, before any work is done.

    Returns
    -------
    list[Path]
        Folders that were made, innermost first, to be removed if no plan comes out.

    Raises
    ------
    InputError
        If the folder cannot be made or written, or a target is a folder.
    """
    fix = "Choose another folder with -o"
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(Problem(str(folder), f"cannot be written: {error.strerror}", fix)) from None
    taken = [folder / name for name in FILES if (folder / name).is_dir()]
    if taken:
        raise InputError([Problem(str(path), "is a folder", fix) for path in taken])
    return missing


def write_outputs(result: FleetPlan, folder: Path) -> None:
    """Write plan.xlsx and plan.json; each appears complete or not at all."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".plan-") as temporary:
        workbook, text = (Path(temporary) / name for name in FILES)
        write_workbook(result, workbook)
        text.write_text(plan_to_json(result), encoding="utf-8")
        for path in (workbook, text):
            os.replace(path, folder / path.name)


def _time_stamp(text: str | None) -> dt.datetime:
    if text is None:
        return dt.datetime.now(dt.UTC).replace(microsecond=0)
    try:
        stamp = dt.datetime.fromisoformat(text)
    except ValueError:
        raise InputError(Problem("--now", f"'{text}' is not an ISO 8601 time", "Write 2026-11-29T12:00:00Z")) from None
    return stamp.astimezone(dt.UTC) if stamp.tzinfo else stamp.replace(tzinfo=dt.UTC)
