"""Fleets with more columns than a solver takes: a proof over all of them, a program with the few that matter.

1. `lower_bound` proves a bound over all columns, and for each column what a fleet with it costs at least.
2. The integer program is built from the columns with the least of that, and solved.
3. Every fleet that uses a column left out costs at least  bound + least slack of those left out.  So

       proven = max(bound, min(bound of the small program, bound + least slack left out))

4. Where that is not within the gap, `WholeSearch` proves a bound with whole instances and which columns a better plan
   may use at all, in turns with `polish`; the program of those columns is solved last.
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
from planner.optimise.solve.table import BoolArray, ColumnTable, IntArray, most_tokens
from planner.optimise.solve.whole_nodes import WITHIN, WholeBound, WholeSearch
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
FIRST_SHARE, POLISH_SHARE, WHOLE_SHARE = 0.08, 0.12, 0.3
"""Most of the time that is left: for one of the first programs, and in one turn for polishing and for the bound."""
TURNS, FIRST_NODES, FIRST_CHOICES = 5, 250, 12
"""Turns of bound and plan; nodes and choices of the first, twice as many in each that follows."""
MOST_CHOICES = 100_000
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


@dataclass(frozen=True)
class Task:
    """One program at one theta."""

    data: ProgramData
    table: ColumnTable
    usd_per_token: float
    asked: SolverSettings
    """With what a solver is asked for: `MARGIN` of the gap."""
    clock: Clock
    progress: Watch | None

    @property
    def enough(self) -> float:
        """The gap that ends it."""
        return self.asked.gap * ENOUGH / MARGIN


def solve_at(
    data: ProgramData,
    table: ColumnTable,
    usd_per_token: float,
    settings: SolverSettings,
    clock: Clock,
    *,
    progress: Watch | None = None,
    warm_start: Collection[str] = (),
    preferred: BoolArray | None = None,
) -> Solved | None:
    """Solve the program at one theta, whatever its size; ``None`` when no fleet satisfies the constraints.

    Parameters
    ----------
    preferred
        Columns that are tried alone before all others, shape (C,), of a program with many.

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
    return _widening(Task(data, table, usd_per_token, asked, clock, progress), bound, start, preferred)


def relaxed(
    data: ProgramData, table: ColumnTable, usd_per_token: float, settings: SolverSettings, warm_start: Collection[str]
) -> IntArray:
    """Columns that the relaxed program uses at one theta; none of a program that is solved as it is.

    Raises
    ------
    SolverError
        If the relaxed program cannot be solved.
    """
    if len(table) <= FEW_COLUMNS or settings.name != "highs":
        return np.zeros(0, dtype=np.int64)
    return lower_bound(
        data, table, usd_per_token, tolerance=RELAXATION_SHARE * settings.gap, time_limit_s=settings.time_limit_s,
        threads=settings.threads, seed=settings.seed, start=_positions(table, warm_start),
    ).basic  # fmt: skip


def _widening(task: Task, bound: Bound, start: IntArray, preferred: BoolArray | None) -> Solved | None:
    """A plan from few columns, better ones from more; then plan and bound are brought together."""
    best = _first_plan(task, bound, start)
    if best is None or _ended(best, task.clock):
        return best
    begun = np.union1d(bound.basic, _positions(task.table, chosen_keys(best.program)))
    search = WholeSearch(
        task.data, task.table, task.usd_per_token, gap=task.enough, threads=task.asked.threads, seed=task.asked.seed,
        start=begun,
    )  # fmt: skip
    far = max(task.asked.gap, FIRST_DISTANCE) * abs(bound.usd)
    near = _keep(task.table, bound, start, FIRST_COLUMNS_PER_MODEL, far)
    pools = [near]
    if preferred is not None:
        pools.insert(0, np.union1d(begun, np.flatnonzero(preferred & (bound.slack <= far))))
    for kept in pools:
        with contextlib.suppress(SolverError):  # no plan in this time: the one there is stays
            settings, goal = _first(task), _goal(best.certificate.bound, task.enough)
            wider = _solve_kept(task, kept, settings, best, goal)
            if wider is not None:
                best = _better(best, wider, bound.usd, _beyond(bound, kept), task.enough)
        best, whole = _closing(task, search, best)
        if _ended(best, task.clock):
            return best
    return _last(task, whole, best)


def _first_plan(task: Task, bound: Bound, start: IntArray) -> Solved | None:
    """A plan from the columns of the relaxation, and from more where those make none; ``None`` where none do."""
    kept, per_model = np.union1d(bound.basic, start), FIRST_COLUMNS_PER_MODEL
    while True:
        timed_out = False
        try:
            best = _solve_kept(task, kept, _first(task), None, _goal(bound.usd, task.enough))
        except SolverError:
            best, timed_out = None, True
        if best is not None:
            return _better(None, best, bound.usd, _beyond(bound, kept), task.enough)
        if task.clock.left_s <= 0.0 or (timed_out and kept.size == len(task.table)):
            limit = f"{task.asked.time_limit_s:g} s"
            raise SolverError(f"No plan was found within {limit}; allow more time (solver.time_limit_s)")
        if kept.size == len(task.table):
            return None
        kept, per_model = _keep(task.table, bound, start, per_model, np.inf), per_model * WIDEN


def _first(task: Task) -> SolverSettings:
    """The settings with the time of one of the first programs."""
    return replace(task.asked, time_limit_s=max(FIRST_SHARE * task.clock.left_s, LEAST_SOLVE_S))


def _beyond(bound: Bound, kept: IntArray) -> float:
    """What every fleet costs at least that uses a column left out."""
    return bound.usd + float(np.delete(bound.slack, kept).min(initial=np.inf))


def _closing(task: Task, search: WholeSearch, best: Solved) -> tuple[Solved, WholeBound]:
    """A bound with whole instances and a polished plan, brought together in turns that grow."""
    for turn in range(TURNS):
        limited = Clock.of(WHOLE_SHARE * task.clock.left_s)
        target = (1.0 - WITHIN * task.enough) * best.certificate.objective
        whole = search.run(target, FIRST_NODES << turn, limited)
        best = _better(None, best, whole.usd, np.inf, task.enough)
        if whole.plan.size and whole.plan_usd < best.certificate.objective:
            with contextlib.suppress(SolverError):
                dived = _solve_kept(task, whole.plan, _first(task), None, None)
                if dived is not None:
                    best = _better(best, dived, whole.usd, whole.usd, task.enough)
        if _ended(best, task.clock):
            break
        best = _polished(task, best, FIRST_CHOICES << turn, turn, POLISH_SHARE)
        if _ended(best, task.clock) or not search.goes_on:
            break
    return best, whole


def _last(task: Task, whole: WholeBound, best: Solved) -> Solved:
    """The program of the columns that the bound leaves, then of all; the rest of the time for polishing."""
    kept = np.union1d(np.flatnonzero(whole.allowed), _positions(task.table, chosen_keys(best.program)))
    # Columns that are left out are in no fleet cheaper than the target; where that is not enough, none is left out.
    for columns, beyond in ((kept, whole.target), (np.arange(len(task.table)), np.inf)):
        if columns.size > MOST_LAST_COLUMNS or _ended(best, task.clock):
            break
        with contextlib.suppress(SolverError):  # no plan in the time that was left: the one there is stays
            last = _solve_kept(task, columns, task.asked, best, None)
            best = best if last is None else _better(best, last, whole.usd, beyond, task.enough)
    return best if _ended(best, task.clock) else _polished(task, best, MOST_CHOICES, TURNS, 1.0)


def _ended(best: Solved, clock: Clock) -> bool:
    """Whether the gap is proven or time is up."""
    return best.certificate.status is SolveStatus.OPTIMAL or clock.left_s <= 0.0


def _goal(bound: float, gap: float) -> float | None:
    """Cost of a plan that is good enough for a bound."""
    return bound / (1.0 - gap) if bound > 0 else None


def _polished(task: Task, best: Solved, choices: int, turn: int, share: float) -> Solved:
    """The same program with a plan at most as dear; its own objective leaves some lost tokens out."""
    before, enough = best.certificate, task.enough
    moved = task.usd_per_token * (total_most(task.data) - total_most(best.data))
    goal = _goal(before.bound, enough)
    objective = moved + polish(
        best.program, before.objective - moved, Clock.of(share * task.clock.left_s), seed=task.asked.seed + turn,
        choices=choices, stop_at=None if goal is None else goal - moved,
    )  # fmt: skip
    status = proven_status(objective, before.bound, enough)
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
    task: Task, kept: IntArray, asked: SolverSettings, best: Solved | None, stop_at: float | None
) -> Solved | None:
    """The program of the columns kept; its objective and bound are moved to the lost tokens of all columns."""
    columns = sorted((task.table.columns[i] for i in kept), key=lambda c: c.key)
    small = replace(task.data, columns=tuple(columns))
    moved = task.usd_per_token * (total_most(task.data) - total_most(small))
    program = build(small, task.usd_per_token)
    warm = chosen_keys(best.program) if best is not None else []
    limited = replace(asked, time_limit_s=min(asked.time_limit_s, max(task.clock.left_s, 0.1)))
    certificate = solve_program(
        program, limited, progress=task.progress, warm_start=warm, stop_at=None if stop_at is None else stop_at - moved
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
