"""`planner compare`: the bridge from one plan's cost to another's, and what changed, in words."""

from __future__ import annotations

import json as json_text
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from planner.cli.plan import PIPE_COLUMNS
from planner.compare.bridge import USD, Bridge, Quarter, bridge, cents
from planner.compare.changes import Change, changes
from planner.errors import Problems
from planner.plan import FleetPlan
from planner.plan_file import plan_at
from planner.report.text import one_line

LONGEST = 1200
"""Characters of a text from a plan that are shown."""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("compare")(compare)


def compare(
    old: Annotated[Path, typer.Argument(help="Last quarter's plan.json, or the folder that holds it.")],
    new: Annotated[Path, typer.Argument(help="This quarter's plan.json, or the folder that holds it.")],
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Why this quarter costs more or less: the cost bridge in six steps, and every change in words."""
    last, now = _plans(old, new)
    steps, found = bridge(last, now), changes(last, now)
    if json:
        typer.echo(json_text.dumps(as_data(steps, found), indent=2, allow_nan=False))
        return
    screen = Console(width=None if Console().is_terminal else PIPE_COLUMNS, highlight=False)
    for table in (_bridge(steps), _figures(steps), _rates(steps), _changes(found)):
        screen.print(table)
    for note in steps.notes:
        screen.print(Text(f"note: {note}"))


def as_data(steps: Bridge, found: tuple[Change, ...]) -> dict[str, Any]:
    """What is printed, as plain data."""
    rows = [
        {"kind": change.kind.value, "subject": change.subject, "text": change.text, "usd": change.usd}
        for change in found
    ]
    return {"bridge": asdict(steps), "changes": rows}


def _plans(old: Path, new: Path) -> tuple[FleetPlan, FleetPlan]:
    """Both plans; what is wrong with either is said at once."""
    problems = Problems()
    last, now = (problems.attempt(lambda path=path: plan_at(path)) for path in (old, new))  # type: ignore[misc]
    problems.raise_if_any()
    assert last is not None
    assert now is not None
    return last, now


def _bridge(steps: Bridge) -> Table:
    table = _table(f"Cost bridge, {steps.currency}", ("step", ""), (steps.currency, "right"), ("meaning", ""))
    last, now = steps.last, steps.now
    _add(table, "Last quarter", f"{last.amount:,.2f}", f"plan {last.run_id}, {last.horizon_hours:,.0f} h")
    amounts = cents([step.amount for step in steps.steps], last.amount)
    for step, amount in zip(steps.steps, amounts, strict=True):
        _add(table, step.name, f"{amount:+,.2f}", step.meaning)
    _add(table, "This quarter", f"{now.amount:,.2f}", f"plan {now.run_id}, {now.horizon_hours:,.0f} h")
    return table


def _figures(steps: Bridge) -> Table:
    table = _table("Figures of the bridge", ("figure", ""), ("last quarter", "right"), ("this quarter", "right"))

    def row(text: str, value: str, number: str) -> None:
        both = (format(getattr(quarter, value), number) for quarter in (steps.last, steps.now))
        _add(table, text, *both)

    row("Hours of the horizon", "horizon_hours", ",.0f")
    row("Q: M tokens served", "mtok", ",.1f")
    row("H: GPU-hours in use", "gpu_hours", ",.1f")
    _add(table, "M tokens per GPU-hour", *(_per_hour(quarter) for quarter in (steps.last, steps.now)))
    row("p: USD per GPU-hour in use", "usd_per_gpu_h", ",.4f")
    row("U: unused commitments, USD", "unused_usd", ",.2f")
    row("Cost, USD", "usd", ",.2f")
    if steps.currency != USD:
        row(f"e: {steps.currency} per USD", "per_usd", ",.4f")
    return table


def _per_hour(quarter: Quarter) -> str:
    return f"{quarter.mtok / quarter.gpu_hours:,.4f}" if quarter.gpu_hours > 0 else "none in use"


def _rates(steps: Bridge) -> Table:
    names = ("last quarter, h", "this quarter, h", "last, USD/h", "this, USD/h")
    table = _table("GPU-hours in use and their rate", ("GPU", ""), *((name, "right") for name in names), ("", ""))
    for row in steps.gpus:
        note = "new: this quarter's rate stands for last quarter's" if row.is_new else ""
        last = f"{row.last_usd_per_h:,.4f}" if row.last_hours > 0 else "none"
        now = f"{row.now_usd_per_h:,.4f}" if row.now_hours > 0 else "none"
        _add(table, row.gpu, f"{row.last_hours:,.0f}", f"{row.now_hours:,.0f}", last, now, note)
    return table


def _changes(found: tuple[Change, ...]) -> Table:
    table = _table("What changed", ("change", ""), ("cost, USD", "right"))
    for change in found:
        _add(table, change.text, "" if change.usd is None else f"{change.usd:+,.0f}")
    if not found:
        _add(table, "Nothing", "")
    return table


def _table(title: str, *columns: tuple[str, str]) -> Table:
    table = Table(title=title)
    for name, justify in columns:
        table.add_column(name, justify=justify or "left")  # type: ignore[arg-type]
    return table


def _add(table: Table, *cells: str) -> None:
    """A row of plain text: names come from files, and may look like markup or hold line ends."""
    table.add_row(*(Text(one_line(cell, LONGEST)) for cell in cells))
