"""The ratio of cost and served tokens by Dinkelbach's iteration, under one time limit."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from planner.errors import SolverError
from planner.optimise.program import placed_replicas, trimmed, write_lp
from planner.optimise.solve.clock import Clock
from planner.optimise.solve.scale import Solved, chosen_keys, relaxed, solve_at, total_most
from planner.optimise.solve.solvers import INTEGRALITY, Watch, available_solvers, solve_program
from planner.optimise.solve.table import ColumnTable, along_paths, table_of
from planner.optimise.types import Column, Decision, ProgramData, SolverSettings
from planner.plan import SolveStatus
from planner.traffic.types import FloatArray

__all__ = ["available_solvers", "solve_program", "solve_ratio"]

MAX_RATIO_ITERATIONS = 12


def solve_ratio(
    data: ProgramData,
    settings: SolverSettings,
    *,
    progress: Watch | None = None,
    warm_start: Collection[str] = (),
    usd_per_token: float | None = None,
    lp_file: Path | None = None,
    exact_first: bool = False,
) -> Decision | None:
    """Least cost per served token, or ``None`` when no plan satisfies the constraints.

    Dinkelbach's iteration (Management Science 13, 1967): solve with theta, set theta to the ratio of the solution, go
    on until the gap is proven. With ``LB`` the bound on cost + theta * lost of one solve and ``most`` the tokens that
    can be served at most, every plan has cost >= LB − theta * (most − served), sunk cost S aside, hence

        (cost + S) / served  >=  theta + (LB + S − theta * most) / served

    with the least possible ``served`` in the denominator while the numerator is negative, else the most. Where no
    column loses tokens theta does not matter and one solve is enough; else a good first theta mostly saves the second.

    Parameters
    ----------
    data
        The program's data.
    settings
        Solver, relative gap of the ratio, time limit (s) of the whole call, threads, seed.
    progress
        Called with a `Report` while HiGHS works.
    warm_start
        Keys of columns to begin from.
    usd_per_token
        A first theta; by default the cheapest columns at list prices tell it.
    lp_file
        Where to write the last program that was solved.
    exact_first
        Whether a plan is looked for among columns of exact needs, before all others, where there are many columns.

    Raises
    ------
    SolverError
        If the solver fails, finds no plan in time, or the program is unbounded.
    """
    clock, table = Clock.of(settings.time_limit_s), table_of(data)
    most, least = total_most(data), _least_served(data, table)
    loses, theta = _theta(data, table, usd_per_token)
    best: Decision | None = None
    bound, warm = 0.0, tuple(warm_start)
    preferred = np.array([c.exact for c in table.columns], dtype=bool) if exact_first else None
    for iteration in range(1, MAX_RATIO_ITERATIONS + 1):
        try:
            solved = solve_at(
                data, table, theta, settings, clock, progress=progress, warm_start=warm, preferred=preferred
            )
        except SolverError:
            if best is None:
                raise
            break
        if solved is None:
            return None
        decision = _decision(solved, data, iteration)
        bound = max(bound, _ratio_bound(solved.certificate.bound + _sunk(data), theta, most, least))
        improved = best is None or decision.usd_per_token < best.usd_per_token * (1 - 1e-9)
        best = decision if best is None or improved else replace(best, ratio_iterations=iteration)
        best = replace(best, usd_per_token_bound=min(bound, best.usd_per_token))
        if lp_file is not None:
            write_lp(solved.program, solved.data, lp_file)
        if best.gap <= settings.gap or not loses or not improved or clock.left_s <= 0.0:
            break
        theta, warm = best.usd_per_token, tuple(chosen_keys(solved.program))
    assert best is not None
    return _told(best, settings)


def relaxed_columns(
    data: ProgramData, settings: SolverSettings, usd_per_token: float | None, start: Collection[str]
) -> tuple[tuple[Column, ...], float]:
    """Columns that the relaxed program uses, and the theta at which it was solved; none where a program is small.

    Parameters
    ----------
    usd_per_token
        Theta, by default from list prices.
    start
        Keys of columns to begin from.
    """
    table = table_of(data)
    _, theta = _theta(data, table, usd_per_token)
    return tuple(table.columns[i] for i in relaxed(data, table, theta, settings, start)), theta


def _theta(data: ProgramData, table: ColumnTable, usd_per_token: float | None) -> tuple[bool, float]:
    """Whether any column loses tokens, and the first theta: the one given, else from list prices; else 0."""
    if not (table.lost_tokens > 0).any():
        return False, 0.0
    return True, _first_ratio(data, table) if usd_per_token is None else usd_per_token


def _ratio_bound(cost_bound: float, theta: float, most: float, least: float) -> float:
    """Lower bound on the ratio from one solve, at least 0."""
    numerator = cost_bound - theta * most
    served = least if numerator < 0 else most
    return max(0.0, theta + numerator / served) if served > 0 else 0.0


def _told(best: Decision, settings: SolverSettings) -> Decision:
    """The status by what is proven, with a note where the target was not reached."""
    if best.gap <= settings.gap:
        return replace(best, status=SolveStatus.OPTIMAL)
    note = (
        f"The plan is at most {best.gap:.3%} dearer than the best there may be; the target of {settings.gap:.3%} was "
        f"not proven within {settings.time_limit_s:g} s (solver.time_limit_s)"
    )
    return replace(best, status=SolveStatus.FEASIBLE, notes=(*best.notes, note))


def _decision(solved: Solved, data: ProgramData, iteration: int) -> Decision:
    """The solution of one program, with cost and served tokens counted from its whole numbers."""
    program, certificate = solved.program, solved.certificate
    columns = tuple(c for c in solved.data.columns if _whole(program.y[c.key]) == 1)
    periods = range(len(data.periods))
    counts = {lot.id: tuple(_whole(program.x[lot.id, t]) for t in periods) for lot in data.lots}
    reserved = {key: _whole(variable) for key, variable in program.reserved.items()}
    running, reserved = trimmed(program, solved.data, columns, counts, reserved)
    return Decision(
        columns=columns,
        running=running,
        reserved=reserved,
        placed=placed_replicas(program, solved.data, columns, running),
        status=certificate.status,
        usd=fleet_usd(data, running, reserved),
        served_tokens=sum(c.served_tokens for c in columns),
        usd_per_token_bound=0.0,
        ratio_iterations=iteration,
        solver=certificate.solver,
        solver_version=certificate.solver_version,
    )


def fleet_usd(data: ProgramData, running: dict[str, tuple[int, ...]], reserved: dict[str, int]) -> float:
    """Cost of the horizon (USD): what is reserved, what runs, and what is sunk."""
    paid = _sunk(data)
    for lot in data.lots:
        counts = running.get(lot.id, (0,) * len(data.periods))
        hours = sum(period.hours * count for period, count in zip(data.periods, counts, strict=True))
        paid += lot.used_usd_per_h * hours + lot.reserved_usd_per_h * data.hours * reserved.get(lot.id, 0)
    return paid


def _sunk(data: ProgramData) -> float:
    return sum(lot.sunk_usd for lot in data.lots)


def _least_served(data: ProgramData, table: ColumnTable) -> float:
    """At most what any choice of columns serves: each model's shortest path by served tokens."""
    least = along_paths(data.models, table.columns, [column.served_tokens for column in table.columns], min)
    return sum(least.get((model, data.end_node[model]), 0.0) for model in data.models)


def _first_ratio(data: ProgramData, table: ColumnTable) -> float:
    """A first theta: every model's arcs by the column with the least list price per served token, and sunk cost."""
    per_gpu_h: dict[str, float] = {}
    supplies = {supply.id: supply for supply in data.supplies}
    for lot in data.lots:
        gpu = supplies[lot.supply].gpu
        usd = (lot.used_usd_per_h + lot.reserved_usd_per_h) / lot.gpus_per_instance
        per_gpu_h[gpu] = min(per_gpu_h.get(gpu, np.inf), usd)
    price = np.array([per_gpu_h.get(p.gpu, np.inf) for p in table.placements])[table.part_placement]
    hours = np.array([period.hours for period in data.periods])
    gpu_usd = (table.part_gpus @ hours) * price
    spent = np.bincount(table.part_column, weights=gpu_usd, minlength=len(table)).astype(np.float64)
    return (_cheapest_total(data, table.columns, spent) + _sunk(data)) / max(total_most(data), 1.0)


def _cheapest_total(data: ProgramData, columns: Sequence[Column], usd: FloatArray) -> float:
    """Sum over models of the cheapest path at given costs of columns; what has no path counts 0."""
    cost = along_paths(data.models, columns, usd.tolist(), min)
    found = [cost.get((model, data.end_node[model]), np.inf) for model in data.models]
    return sum(value for value in found if np.isfinite(value))


def _whole(variable: object) -> int:
    """A variable's whole number; `solve_program` has rounded it."""
    value = float(variable.value() or 0.0)  # type: ignore[attr-defined]
    if abs(value - round(value)) > INTEGRALITY:
        raise SolverError(f"The solver returned {variable} = {value}, which is not a whole number")
    return round(value)
