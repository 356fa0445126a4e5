"""Fleets with more columns than a solver takes: a proof over all of them, a program with the few that matter.

1. `lower_bound` proves a bound over all columns, and for each column what a fleet with it costs at least.
2. The integer program is built from the columns with the least of that, and solved.
3. Every fleet that uses a column left out costs at least  bound + least slack of those left out.  So

       proven = max(bound, min(bound of the small program, bound + least slack left out))

4. Where that is not within the gap, the plan is polished (`polish`), and `whole_bound` proves a bound with whole
   instances and which columns a better plan may use at all; the program of those is solved last.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from planner.errors import SolverError
from planner.optimise.program import Program, build
from planner.optimise.solve.clock import Clock
from planner.optimise.solve.polish import polish
from planner.optimise.solve.relaxation import Bound, lower_bound, relaxed_feasible
from planner.optimise.solve.solvers import Watch, proven_status, solve_program
from planner.optimise.solve.table import ColumnTable, IntArray, most_tokens
from planner.optimise.solve.whole_nodes import whole_bound
from planner.optimise.types import Certificate, ProgramData, SolverSettings
from planner.plan import SolveStatus

FEW_COLUMNS = 300
"""Up to so many columns the program is solved as it is."""
FIRST_COLUMNS_PER_MODEL = 24
FIRST_DISTANCE = 0.02
"""Of the bound: how much dearer the fleets of the first columns are at most."""
WIDEN = 4
RELAXATION_SHARE = 0.1
"""How close value and bound of the relaxation come, as a share of the gap."""
LEAST_SHORTAGE = 1e-6
"""Stand-ins that are no rounding error."""
FIRST_SHARE, POLISH_SHARE, WHOLE_SHARE = 0.08, 0.12, 0.85
"""Of the time that is left: for the first plan, for polishing it, for the bound with whole instances."""
LEAST_SOLVE_S = 1.0
ROUNDING = 1e-6
"""USD that make no difference between plans: the program with more columns is kept then."""
MOST_LAST_COLUMNS = 6_000
"""Most columns of the last program."""
MARGIN, ENOUGH = 0.8, 0.95
"""Shares of the gap: what a solver is asked for, and what is enough over all columns; the ratio's own bound needs the
rest."""


@dataclass(frozen=True)
class Solved:
    """One program solved at one theta; objective and bound are over all columns."""

    certificate: Certificate
    program: Program
    data: ProgramData
    """With the columns that the program was built from."""


def solve_at(
    data: ProgramData,
    table: ColumnTable,
    usd_per_token: float,
    settings: SolverSettings,
    clock: Clock,
    *,
    progress: Watch | None = None,
    warm_start: Collection[str] = (),
) -> Solved | None:
    """Solve the program at one theta, whatever its size; ``None`` when no fleet satisfies the constraints.

    Raises
    ------
    SolverError
        If the solver fails or finds no plan in time.
    """
    asked = replace(settings, gap=settings.gap * MARGIN)
    if len(table) <= FEW_COLUMNS or settings.name != "highs":
        program = build(data, usd_per_token)
        certificate = solve_program(
            program, _in_time(asked, clock), progress=progress, warm_start=warm_start
        )  # fmt: skip
        return None if certificate.status is SolveStatus.INFEASIBLE else Solved(certificate, program, data)
    start = _positions(table, warm_start)
    bound = lower_bound(
        data, table, usd_per_token, tolerance=RELAXATION_SHARE * settings.gap, time_limit_s=0.4 * clock.left_s,
        threads=settings.threads, seed=settings.seed, start=start,
    )  # fmt: skip
    if bound.short:
        possible = relaxed_feasible(
            data, table, time_limit_s=0.4 * clock.left_s, threads=settings.threads, seed=settings.seed,
            start=bound.offered,
        )  # fmt: skip
        if possible.usd > LEAST_SHORTAGE or np.isinf(possible.short):
            return None
        start = np.union1d(start, possible.basic)
    return _widening(data, table, usd_per_token, asked, clock, bound, start, progress)


def _widening(
    data: ProgramData,
    table: ColumnTable,
    usd_per_token: float,
    asked: SolverSettings,
    clock: Clock,
    bound: Bound,
    start: IntArray,
    progress: Watch | None,
) -> Solved | None:
    """A plan from few columns, a better one from more; then plan and bound are brought together."""
    enough = asked.gap * ENOUGH / MARGIN
    stop_at = _goal(bound.usd, enough)
    kept, per_model, far = np.union1d(bound.basic, start), FIRST_COLUMNS_PER_MODEL, np.inf
    best: Solved | None = None
    while best is None:
        timed_out = False
        try:
            best = _solve_kept(data, kept, usd_per_token, _first(asked, clock), clock, None, progress, table, stop_at)
        except SolverError:
            timed_out = True
        if best is None:
            if clock.left_s <= 0.0 or (timed_out and kept.size == len(table)):
                limit = f"{asked.time_limit_s:g} s"
                raise SolverError(f"No plan was found within {limit}; allow more time (solver.time_limit_s)")
            if kept.size == len(table):
                return None
            kept, per_model = _keep(table, bound, start, per_model, far), per_model * WIDEN
    best = _better(None, best, bound.usd, _beyond(bound, kept), enough)
    if not _ended(best, clock):
        far = max(asked.gap, FIRST_DISTANCE) * abs(bound.usd)
        kept = np.union1d(kept, _keep(table, bound, start, FIRST_COLUMNS_PER_MODEL, far))
        with contextlib.suppress(SolverError):  # no plan in this time: the first one stays
            wider = _solve_kept(data, kept, usd_per_token, _first(asked, clock), clock, best, progress, table, stop_at)
            best = best if wider is None else _better(best, wider, bound.usd, _beyond(bound, kept), enough)
    return _closing(data, table, usd_per_token, asked, clock, bound, best, progress)


def _first(asked: SolverSettings, clock: Clock) -> SolverSettings:
    """The settings with the time of one of the first programs."""
    return replace(asked, time_limit_s=max(FIRST_SHARE * clock.left_s, LEAST_SOLVE_S))


def _beyond(bound: Bound, kept: IntArray) -> float:
    """What every fleet costs at least that uses a column left out."""
    return bound.usd + float(np.delete(bound.slack, kept).min(initial=np.inf))


def _closing(
    data: ProgramData,
    table: ColumnTable,
    usd_per_token: float,
    asked: SolverSettings,
    clock: Clock,
    bound: Bound,
    best: Solved,
    progress: Watch | None,
) -> Solved:
    """A plan and a bound brought together: polish, a bound with whole instances, the columns that it leaves."""
    enough = asked.gap * ENOUGH / MARGIN
    if _ended(best, clock):
        return best
    moved = usd_per_token * (total_most(data) - total_most(best.data))
    best = _polished(best, moved, asked, clock, POLISH_SHARE, enough, _goal(best.certificate.bound, enough))
    if _ended(best, clock):
        return best
    target = (1.0 - enough) * best.certificate.objective
    start = np.union1d(bound.basic, _positions(table, chosen_keys(best.program)))
    limited = Clock.of(WHOLE_SHARE * clock.left_s)
    whole = whole_bound(
        data, table, usd_per_token, target=target, gap=enough, clock=limited, threads=asked.threads, seed=asked.seed,
        start=start,
    )  # fmt: skip
    best = _better(None, best, whole.usd, np.inf, enough)
    if whole.plan.size:
        with contextlib.suppress(SolverError):
            dived = _solve_kept(
                data, whole.plan, usd_per_token, _first(asked, clock), clock, None, progress, table, None
            )
            if dived is not None:
                best = _better(best, dived, whole.usd, whole.usd, enough)
    if _ended(best, clock):
        return best
    kept = np.union1d(np.flatnonzero(whole.allowed), _positions(table, chosen_keys(best.program)))
    # Columns that are left out are in no fleet cheaper than the target; where that is not enough, none is left out.
    for columns, beyond in ((kept, whole.target), (np.arange(len(table)), np.inf)):
        if columns.size > MOST_LAST_COLUMNS or _ended(best, clock):
            break
        with contextlib.suppress(SolverError):  # no plan in the time that was left: the one there is stays
            last = _solve_kept(data, columns, usd_per_token, asked, clock, best, progress, table, None)
            best = best if last is None else _better(best, last, whole.usd, beyond, enough)
    if _ended(best, clock):
        return best
    moved = usd_per_token * (total_most(data) - total_most(best.data))
    return _polished(best, moved, asked, clock, 1.0, enough, _goal(best.certificate.bound, enough))


def _ended(best: Solved, clock: Clock) -> bool:
    """Whether the gap is proven or time is up."""
    return best.certificate.status is SolveStatus.OPTIMAL or clock.left_s <= 0.0


def _goal(bound: float, gap: float) -> float | None:
    """Cost of a plan that is good enough for a bound."""
    return bound / (1.0 - gap) if bound > 0 else None


def _polished(
    best: Solved, moved: float, asked: SolverSettings, clock: Clock, share: float, gap: float, goal: float | None
) -> Solved:
    """The same program with a plan at most as dear; ``moved`` are lost tokens that its own objective leaves out."""
    before = best.certificate
    stop_at = None if goal is None else goal - moved
    limited = Clock.of(share * clock.left_s)
    objective = polish(best.program, before.objective - moved, asked, limited, stop_at=stop_at) + moved
    status = proven_status(objective, before.bound, gap)
    return replace(
        best, certificate=replace(before, objective=objective, bound=min(before.bound, objective), status=status)
    )


def _keep(table: ColumnTable, bound: Bound, start: IntArray, per_model: int, far: float) -> IntArray:
    """Columns of the small program: those nearest to a cheapest route, at most so many a model, and what was used."""
    near = np.flatnonzero(bound.slack <= far)
    order = near[np.lexsort((near, bound.slack[near], table.model[near]))]
    model = table.model[order]
    rank = np.arange(order.size) - np.searchsorted(model, model)
    kept: IntArray = np.unique(np.concatenate([order[rank < per_model], bound.basic, start]))
    return kept


def _solve_kept(
    data: ProgramData,
    kept: IntArray,
    usd_per_token: float,
    asked: SolverSettings,
    clock: Clock,
    best: Solved | None,
    progress: Watch | None,
    table: ColumnTable,
    stop_at: float | None,
) -> Solved | None:
    """The program of the columns kept; its objective and bound are moved to the lost tokens of all columns."""
    columns = sorted((table.columns[i] for i in kept), key=lambda c: c.key)
    small = replace(data, columns=tuple(columns))
    moved = usd_per_token * (total_most(data) - total_most(small))
    program = build(small, usd_per_token)
    warm = chosen_keys(best.program) if best is not None else []
    limited = replace(asked, time_limit_s=min(asked.time_limit_s, max(clock.left_s, 0.1)))
    certificate = solve_program(
        program, limited, progress=progress, warm_start=warm, stop_at=None if stop_at is None else stop_at - moved
    )  # fmt: skip
    if certificate.status is SolveStatus.INFEASIBLE:
        return None
    shifted = replace(certificate, objective=certificate.objective + moved, bound=certificate.bound + moved)
    return Solved(shifted, program, small)


def _better(best: Solved | None, solved: Solved, bound: float, beyond: float, gap: float) -> Solved:
    """The cheaper of two, with the best bound that both proved."""
    certificate = solved.certificate
    proven = max(bound, min(certificate.bound, beyond), best.certificate.bound if best else -np.inf)
    cheaper = solved if best is None or certificate.objective <= best.certificate.objective + ROUNDING else best
    objective = cheaper.certificate.objective
    proven = min(proven, objective)
    status = proven_status(objective, proven, gap)
    return replace(cheaper, certificate=replace(cheaper.certificate, status=status, bound=proven))


def chosen_keys(program: Program) -> list[str]:
    """Keys of the columns that a solved program chose."""
    return [key for key, variable in program.y.items() if (variable.value() or 0.0) > 0.5]


def total_most(data: ProgramData) -> float:
    """Most tokens that any choice of columns can serve."""
    most = most_tokens(data.models, data.columns)
    return sum(most.get((model, data.end_node[model]), 0.0) for model in data.models)


def _positions(table: ColumnTable, keys: Collection[str]) -> IntArray:
    wanted = set(keys)
    found: IntArray = np.array([i for i, c in enumerate(table.columns) if c.key in wanted], dtype=np.int64)
    return found


def _in_time(settings: SolverSettings, clock: Clock) -> SolverSettings:
    return replace(settings, time_limit_s=max(clock.left_s, 0.1))
