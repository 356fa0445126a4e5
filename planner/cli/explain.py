"""`planner explain`."""

from __future__ import annotations

import json as json_text
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from planner.cli.plan import PIPE_COLUMNS
from planner.errors import InputError, Problem
from planner.plan import FleetPlan, Frozen, Pool, QuotaUse, Rejected, RunnerUp
from planner.plan_file import plan_at
from planner.report import facts
from planner.report.text import one_line

LONGEST = 400
"""Characters of a text from a plan that are shown."""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("explain")(explain)


def explain(
    plan: Annotated[Path, typer.Argument(help="A plan.json, or the folder that holds it.")],
    model: Annotated[str | None, typer.Argument(help="One model; without it, the fleet and all of them.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Why this fleet: what binds, the runner-up and its price, what was rejected and why, what a quota is worth."""
    read = plan_at(plan)
    names = list(dict.fromkeys(pool.model for pool in read.pools))
    if model is not None and model not in names:
        raise InputError(Problem(str(plan), f"'{model}' is not in the plan", f"It has {', '.join(names)}"))
    wanted = [model] if model else names
    if json:
        typer.echo(json_text.dumps(as_data(read, wanted), indent=2, allow_nan=False))
        return
    screen = Console(width=None if Console().is_terminal else PIPE_COLUMNS, highlight=False)
    if model is None:
        _fleet(read, screen)
    for name in wanted:
        _model(read, name, screen)


def as_data(plan: FleetPlan, models: Sequence[str]) -> dict[str, Any]:
    """What is explained, as plain data."""
    return {
        "status": plan.solve.status.value,
        "gap": plan.solve.gap,
        "oldest": [_data(age) for age in facts.ages(plan)],
        "limits": [_data(limit) for limit in plan.quotas],
        "models": {
            name: {
                "pools": [_pool_data(pool) for pool in plan.pools if pool.model == name],
                "rejected": [_data(r) for r in plan.rejected if r.model == name],
            }
            for name in models
        },
    }


def _pool_data(pool: Pool) -> dict[str, Any]:
    return {
        "name": pool.name,
        "why": pool.why,
        "binding_constraint": pool.binding_constraint,
        "margins": [_data(margin) for margin in pool.margins],
        "runner_up": _data(pool.runner_up) if pool.runner_up else None,
    }


def _data(row: Frozen) -> Any:
    """A row as in plan.json, where what is infinite is a word."""
    return json_text.loads(row.model_dump_json())


def _fleet(plan: FleetPlan, screen: Console) -> None:
    solve = plan.solve
    screen.print(
        Text(
            f"{_line(plan.title)}: {solve.objective:,.0f} USD, {solve.usd_per_mtok:.4f} USD per million served "
            f"tokens; {solve.status.value}, gap {solve.gap:.3%} of {solve.gap_target:.3%} allowed ({solve.solver} "
            f"{solve.solver_version})"
        )
    )
    for age in facts.ages(plan):
        screen.print(Text(_line(f"oldest {age.kind}: {age.as_of}, {age.age_days} days before planning: {age.what}")))
        screen.print(Text(f"  from {_line(age.source)}"), soft_wrap=True)
    if plan.quotas:
        screen.print(_limits(plan.quotas))


def _limits(limits: Sequence[QuotaUse]) -> Table:
    table = Table(title="Limits of the fleet")
    for name, justify in (("limit", "left"), ("used", "right"), ("of", "right"), ("one more saves, USD", "right")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for row in limits:
        worth = "not looked for" if row.worth_usd is None else f"{row.worth_usd:,.0f}"
        _add(table, row.name, figure(row.used), f"{figure(row.limit)} {row.unit}", worth)
    return table


def _model(plan: FleetPlan, name: str, screen: Console) -> None:
    pools = [pool for pool in plan.pools if pool.model == name]
    for pool in pools:
        screen.print(Text.assemble("\n", (_line(pool.name), "bold"), f": {_line(pool.why)}"))
        screen.print(_margins(pool))
    runner = next((pool.runner_up for pool in pools if pool.runner_up), None)
    if runner is not None:
        screen.print(Text(runner_up_line(runner, sorted({pool.gpu for pool in pools}))))
    rejected = [r for r in plan.rejected if r.model == name]
    if rejected:
        screen.print(_rejected(rejected))


def runner_up_line(runner: RunnerUp, gpus: Sequence[str]) -> str:
    """The runner-up, how much dearer it is, and the price at which it would win."""
    text = f"runner-up: {_line(runner.description)}, {runner.extra_usd:+,.0f} USD over the horizon"
    if runner.flip_usd_per_gpu_h is None:
        return text
    return text + f"; it wins when {', '.join(gpus)} costs more than {runner.flip_usd_per_gpu_h:,.2f} USD per GPU-hour"


def _margins(pool: Pool) -> Table:
    table = Table(title=Text(f"binding: {_line(pool.binding_constraint)}"))
    for column, justify in (("constraint", "left"), ("planned", "right"), ("limit", "right"), ("used", "right")):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    for m in sorted(pool.margins, key=lambda m: (-m.used_share, m.constraint)):
        _add(table, m.constraint, figure(m.planned), f"{figure(m.limit)} {m.unit}", f"{m.used_share:.1%}")
    return table


def _rejected(rows: Sequence[Rejected]) -> Table:
    table = Table(title="Configurations that cannot be used")
    for column in ("rule", "configurations", "nearest"):
        table.add_column(column, justify="right" if column == "configurations" else "left")
    for row in rows:
        _add(table, row.reason, f"{row.configurations:,}", row.example)
    return table


def _add(table: Table, *cells: str) -> None:
    """A row of plain text: names come from files, and may look like markup or hold line ends."""
    table.add_row(*(Text(_line(cell)) for cell in cells))


def _line(text: str) -> str:
    return one_line(text, LONGEST)


def figure(value: float) -> str:
    """A figure with as many digits as a reader needs."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
