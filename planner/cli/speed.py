"""`planner speed`: step times, measured points and what they say; one module for each command of the group."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.cli import speed_fit, speed_fit_measured, speed_import, speed_plot, speed_predict
from planner.cli.speed_cases import SpeedCaseOptions, speed_cases
from planner.errors import Problems

MODULES = (speed_import, speed_predict, speed_plot, speed_fit, speed_fit_measured)
HELP = """Predict, measure and plot decode rate, TTFT and throughput of a replica.

With --cases, answer a table of points: one row comes out for each row that goes in."""


def register(app: typer.Typer) -> None:
    """Add the command group to the application."""
    group = typer.Typer(help=HELP, no_args_is_help=True)
    group.callback(invoke_without_command=True)(speed_command)
    for module in MODULES:
        module.register(group)
    app.add_typer(group, name="speed")


def speed_command(
    context: typer.Context,
    cases: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Answer a table: silicon points, measured throughput or load points."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="CSV file that --cases writes its answers to.")
    ] = None,
    calibrate_with: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Measured points, a table of the same kinds, that correct the predictions."),
    ] = None,
    score: Annotated[bool, typer.Option("--score", help="Print the errors against the measured columns.")] = False,
    score_by: Annotated[
        str,
        typer.Option(metavar="WHAT", help="Group --score by all, load, engine, gpu, model, provider (with commas)."),
    ] = "",
) -> None:
    """Answer a table of points; without --cases, one of the commands below."""
    typed = {"-o": output, "--calibrate-with": calibrate_with, "--score": score, "--score-by": score_by}
    problems = Problems()
    if context.invoked_subcommand is not None:
        named = [name for name, value in {"--cases": cases, **typed}.items() if value]
        for name in named:
            problems.add(name, f"has no effect with {context.invoked_subcommand}", "Leave it out, or type it after it")
        problems.raise_if_any()
        return
    if cases is None:
        problems.add("--cases", "is missing", "Give a table of points, or one of the commands of planner speed --help")
    problems.raise_if_any()
    assert cases is not None
    speed_cases(SpeedCaseOptions(cases, output, calibrate_with, score, score_by))
