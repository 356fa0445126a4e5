"""`planner solve-table`: the cheapest fleet for a plain load table, with its proof."""

from __future__ import annotations

import json
import os
import time
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from planner.cli.numbers import number
from planner.errors import Problems
from planner.optimise.load_table.fleet import TableFleet, master_program, solve_load_table
from planner.optimise.load_table.table import LoadTable, read_load_table
from planner.optimise.types import SolverSettings
from planner.plan import SolveStatus

SHARES = "continuous: a bucket may be split over GPU types"
STATUS_WORDS = {
    SolveStatus.OPTIMAL: "optimal: proven within the gap asked for",
    SolveStatus.FEASIBLE: "feasible: the fleet carries the table, but is not proven to be within the gap asked for",
}


class SolverName(StrEnum):
    """Solvers of the integer program."""

    HIGHS = "highs"
    CBC = "cbc"


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("solve-table")(solve_table)


def solve_table(
    instance: Annotated[Path, typer.Argument(metavar="INSTANCE.json", help="A load table in Mélange's form.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    solver: Annotated[SolverName, typer.Option(help="Solver of the integer program.")] = SolverName.HIGHS,
    gap: Annotated[float, typer.Option(help="Relative gap that counts as optimal: 0.0001 is 0.01 %.")] = 1e-4,
    time_limit: Annotated[float, typer.Option(metavar="S", help="Seconds after which the best fleet is taken.")] = 60,
    threads: Annotated[int, typer.Option(help="Threads of the solver.")] = 1,
    seed: Annotated[int, typer.Option(help="Seed of the solver.")] = 0,
    lp: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the last integer program in LP form.")] = None,
) -> None:
    """Find the cheapest whole numbers of instances that carry a load table, and prove it.

    Buckets are shared over GPU types continuously; requests/s ÷ most requests/s is the part of an instance kept busy.
    """
    settings = _settings(solver, gap, time_limit, threads, seed)
    table = read_load_table(instance)
    begun = _cpu_s()
    fleet = solve_load_table(table, settings)
    solve_cpu_s = _cpu_s() - begun
    if lp is not None:
        master_program(table, fleet.cuts, fleet.kept).problem.writeLP(str(lp))
    if as_json:
        data = as_data(table, fleet, settings, solve_cpu_s)
        typer.echo(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False))
    else:
        _print(table, fleet, settings, solve_cpu_s)


def as_data(table: LoadTable, fleet: TableFleet, settings: SolverSettings, solve_cpu_s: float) -> dict[str, Any]:
    """The answer as plain values; all but ``solve_cpu_s`` is the same for the same table and settings."""
    return {
        "status": fleet.status.value,
        "cost": round(fleet.usd_per_h, 9),
        "bound": round(fleet.bound_usd_per_h, 9),
        "gap": fleet.gap,
        "gap_asked": settings.gap,
        "unit": "USD per hour",
        "fleet": {name: count for name, count in zip(table.gpus, fleet.counts, strict=True) if count},
        "busy": {name: round(busy, 6) for name, busy, count in _rows(table, fleet) if count},
        "shares": SHARES,
        "total_request_rate": table.rate_per_s,
        "buckets": len(table.buckets),
        "gpu_types": len(table.gpus),
        "slice_factor": table.slice_factor,
        "cuts": len(fleet.cuts),
        "solver": fleet.solver,
        "solver_version": fleet.solver_version,
        "pulp_version": version("pulp"),
        "solve_cpu_s": solve_cpu_s,
    }


def _rows(table: LoadTable, fleet: TableFleet) -> list[tuple[str, float, int]]:
    """By type: its name, the instances kept busy on average, and the instances bought."""
    busy = fleet.busy(table)
    return [(name, float(b), n) for name, b, n in zip(table.gpus, busy, fleet.counts, strict=True)]


def _settings(solver: SolverName, gap: float, time_limit: float, threads: int, seed: int) -> SolverSettings:
    """The solver's settings.

    Raises
    ------
    InputError
        With every option that cannot be used.
    """
    problems = Problems()
    if not 0 <= gap < 1:
        problems.add("--gap", f"is {gap:g}; it must be at least 0 and below 1")
    if not 0 < time_limit < 1e9:
        problems.add("--time-limit", f"is {time_limit:g}; it must be a number of seconds above 0")
    if not 1 <= threads <= 1024:
        problems.add("--threads", f"is {threads}; it must be 1 to 1024")
    if not 0 <= seed < 2**31:
        problems.add("--seed", f"is {seed}; it must be 0 to {2**31 - 1}")
    problems.raise_if_any()
    return SolverSettings(solver.value, gap, time_limit, threads, seed)


def _cpu_s() -> float:
    """CPU seconds of this process and of the solvers that it ran."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


def _print(table: LoadTable, fleet: TableFleet, settings: SolverSettings, solve_cpu_s: float) -> None:
    grid = Table(box=None, pad_edge=False)
    for column in ("GPU type", "instances", "busy", "USD/h each", "USD/h"):
        grid.add_column(column, justify="left" if column == "GPU type" else "right")
    for (name, busy, count), usd in zip(_rows(table, fleet), table.usd_per_h, strict=True):
        if count:
            cells = (name, f"{count:,}", f"{100 * busy / count:.1f} %", number(usd, 6), number(usd * count, 8))
            grid.add_row(*(Text(cell) for cell in cells))
    console = Console()
    console.print(grid)
    demand = f"{table.rate_per_s:g} requests/s in {len(table.buckets):,} buckets"
    lines = (
        f"cost    {number(fleet.usd_per_h, 9)} USD/h for {demand}",
        f"bound   {number(fleet.bound_usd_per_h, 9)} USD/h (gap {100 * fleet.gap:.4f} %): no fleet costs less",
        f"status  {STATUS_WORDS[fleet.status]} ({100 * settings.gap:g} %)",
        f"shares  {SHARES}",
        f"solver  {fleet.solver} {fleet.solver_version}".rstrip()
        + f", {solve_cpu_s:.3f} CPU s, {len(fleet.cuts)} cuts",
    )
    for line in lines:
        console.print(Text(line))
