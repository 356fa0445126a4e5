"""The keyboard: parse, call the public API, print. One module per command."""

from __future__ import annotations

import sys

import typer

from planner import __version__
from planner.cli import catalog, ingest, plan, size
from planner.errors import InputError, PlannerError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Plan the GPU fleet for self-hosted LLMs at the least cost per served token.",
)
for command in (plan, size, ingest, catalog):
    command.register(app)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"planner {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """Plan the GPU fleet for self-hosted LLMs at the least cost per served token."""


def main() -> None:
    """Run the command line; errors become one message and an exit code, never a traceback."""
    try:
        app()
    except PlannerError as error:
        heading = "input cannot be used" if isinstance(error, InputError) else type(error).__name__
        count = len(error.problems) if isinstance(error, InputError) else 1
        print(f"planner: {heading} ({count} problem{'s' if count != 1 else ''})", file=sys.stderr)
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
