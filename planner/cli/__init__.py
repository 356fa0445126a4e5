"""The keyboard: parse, call the public API, print. One module per command."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import sys
from collections.abc import Iterable
from dataclasses import replace

import typer

from planner import __version__
from planner.cli.lazy import lazy_group
from planner.errors import InputError, PlannerError, Problem

MANY = 10
"""From so many further places on, a problem names the first and the last."""
INTERRUPTED = 130  # 128 + SIGINT, as shells have it

NAMES = (
    "plan deploy replay replay-week drill explain compare actuals watch pareto baselines solve-table "
    "size check-log ingest load speed catalog fit traffic"
)
COMMANDS = {name: f"planner.cli.{name.replace('-', '_')}" for name in NAMES.split()}

app = typer.Typer(
    cls=lazy_group(COMMANDS),
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    help="Plan the GPU fleet for self-hosted LLMs at the least cost per served token.",
)


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
    # Imports make many objects that live on: looking for garbage among them costs more than all other start-up work.
    gc.set_threshold(100_000)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        app()
    except PlannerError as error:
        _report(error)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        _silence_stdout()
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except OSError as error:
        _silence_stdout()
        print(f"planner: cannot read or write: {error}", file=sys.stderr)
        sys.exit(1)
    except Exception as error:
        # A bug: the user gets one line, a developer the traceback.
        if os.environ.get("PLANNER_DEBUG"):
            raise
        print(f"planner: internal error: {type(error).__name__}: {error}", file=sys.stderr)
        print("Please report it with the command; PLANNER_DEBUG=1 shows where it happened.", file=sys.stderr)
        sys.exit(1)


def _in_groups(problems: Iterable[Problem]) -> list[str]:
    """One line a problem; what is wrong with many files in the same way is said once."""
    alike: dict[Problem, dict[str, None]] = {}
    for problem in problems:
        alike.setdefault(replace(problem, where=""), {})[problem.where] = None
    lines = []
    for problem, places in alike.items():
        first, *others = places
        if len(others) < MANY:
            lines += [str(replace(problem, where=place)) for place in places]
        else:
            lines.append(str(replace(problem, where=f"{first} and {len(others):,} more, up to {others[-1]}")))
    return lines


def _report(error: PlannerError) -> None:
    message = str(error)
    if isinstance(error, InputError):
        lines = _in_groups(error.problems)
        message, count = "\n".join(lines), len(lines)
        heading = f"input cannot be used ({count} problem{'s' if count != 1 else ''})"
    else:
        heading = {3: "infeasible", 4: "the solver failed"}.get(error.exit_code, "failed")
    # Names come from files: none of their characters may act on the terminal.
    text = "".join(c if c.isprintable() or c == "\n" else "?" for c in message)
    print(f"planner: {heading}\n{text}", file=sys.stderr)


def _silence_stdout() -> None:
    """Keep the interpreter from complaining at exit about a pipe or disk that is gone."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
