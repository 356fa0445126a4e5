"""`planner plan`."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from planner.catalog.load import load_catalog
from planner.cli.files import is_stream
from planner.cli.live import plainly, watching
from planner.cli.plan_files import FILES, FORMATS, files_of, formats_of, write_outputs
from planner.errors import InputError, Problem
from planner.futures.study import study_quarter
from planner.plan import plan_to_json
from planner.report.summary import render_summary
from planner.solve_options import SolveOptions

PIPE_COLUMNS = 110
OVERRIDES = "Default: the request's."


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
            help="Folder for the plan and its tables. Default: reports/FOLDER for FOLDER/quarter.toml, "
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
    solver: Annotated[str | None, typer.Option(help=f"highs or cbc. {OVERRIDES}")] = None,
    gap: Annotated[
        float | None, typer.Option(help=f"Relative gap that counts as optimal: 0.001 is 0.1 %. {OVERRIDES}")
    ] = None,
    time_limit: Annotated[
        float | None,
        typer.Option(
            metavar="S",
            help="Seconds after which the best fleet found is taken; runners-up may take as long again, and so may the "
            f"worth of quotas. {OVERRIDES}",
        ),
    ] = None,
    threads: Annotated[int | None, typer.Option(help=f"Threads of the solver. {OVERRIDES}")] = None,
    seed: Annotated[int | None, typer.Option(help=f"Seed of the solver. {OVERRIDES}")] = None,
    warm_start: Annotated[
        Path | None,
        typer.Option(
            metavar="PLAN.json",
            help="Begin from another plan's choice, such as last quarter's: pools are matched by model, prompt "
            "lengths, GPU type, tp and dtypes.",
        ),
    ] = None,
    lp: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the last integer program in LP form.")] = None,
    formats: Annotated[
        str, typer.Option("--format", metavar="LIST", help="Which files to write: some of xlsx, html, json, csv.")
    ] = ",".join(FORMATS),
    base_only: Annotated[
        bool, typer.Option("--base-only", help="Plan the request as it stands; leave its other futures out.")
    ] = False,
    processes: Annotated[
        int | None,
        typer.Option(min=1, help="Processes that share the other futures out. Default: the threads of the solver."),
    ] = None,
) -> None:
    """Plan the fleet for a quarter and its other futures: the workbook for finance, a page, JSON, and a summary."""
    created_at, wanted = _time_stamp(now), formats_of(formats)
    folder = output if output is not None else default_folder(request)
    given = {"name": solver, "gap": gap, "time_limit_s": time_limit, "threads": threads, "seed": seed}
    screen = Console(stderr=True)
    with screen.status("planning") as status:
        options = SolveOptions(
            overrides={key: value for key, value in given.items() if value is not None},
            last_plan=warm_start,
            lp_file=writable(lp, "--lp"),
            watch=watching(status.update, screen.is_terminal),
        )
        prepared = prepare(folder, files_of(wanted))
        try:
            result = study_quarter(
                request,
                load_catalog(on=created_at.date()),
                created_at=created_at,
                progress=plainly(status.update),
                options=options,
                processes=processes,
                base_only=base_only,
            )
        except BaseException:
            with contextlib.suppress(OSError):
                for made in prepared:
                    made.rmdir()
            raise
        status.update("writing the files")
        write_outputs(result, folder, wanted)
    if json:
        typer.echo(plan_to_json(result.plan), nl=False)
        return
    own_width = sys.stdout.isatty() or "COLUMNS" in os.environ
    render_summary(result, Console(width=None if own_width else PIPE_COLUMNS))
    files = [*(str(folder / name) for name in files_of(wanted)), *([str(lp)] if lp else [])]
    typer.echo(f"\nwritten: {', '.join(files)}")


def default_folder(request: Path) -> Path:
    """``reports/<folder>`` for a quarter.toml, else ``reports/<folder>-<file>``, so that requests do not collide."""
    parent = request.resolve().parent.name
    return Path("reports") / (parent if request.stem == "quarter" else f"{parent}-{request.stem}")


def prepare(folder: Path, files: Sequence[str] = FILES) -> list[Path]:
    """Make the folder and see that its files can be written, before any work is done.

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
    taken = [folder / name for name in files if (folder / name).is_dir()]
    if taken:
        raise InputError([Problem(str(path), "is a folder", fix) for path in taken])
    return missing


def writable(path: Path | None, option: str) -> Path | None:
    """A file that an option names, seen to be writable before any work is done; it is not touched.

    Raises
    ------
    InputError
        If it cannot be written.
    """
    if path is None or is_stream(path):
        return path
    why = ""
    if path.is_dir():
        why = "it is a folder"
    elif not path.parent.is_dir():
        why = "its folder is not there"
    elif not os.access(path if path.exists() else path.parent, os.W_OK):
        why = "it is read-only" if path.exists() else "its folder is read-only"
    if why:
        raise InputError(Problem(option, f"'{path}' cannot be written: {why}", "Choose another file"))
    return path


def _time_stamp(text: str | None) -> dt.datetime:
    if text is None:
        return dt.datetime.now(dt.UTC).replace(microsecond=0)
    try:
        stamp = dt.datetime.fromisoformat(text)
    except ValueError:
        raise InputError(Problem("--now", f"'{text}' is not an ISO 8601 time", "Write 2026-11-30T12:00:00Z")) from None
    return stamp.astimezone(dt.UTC) if stamp.tzinfo else stamp.replace(tzinfo=dt.UTC)
