"""Linear programs through PuLP: HiGHS asked for by name, CBC second, and a certificate that claims what is proven."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import pulp
from scipy import sparse

from planner.errors import SolverError
from planner.optimise.program import solver_columns
from planner.optimise.types import Certificate, SolverSettings
from planner.plan import SolveStatus
from planner.traffic.types import FloatArray

INTEGRALITY = 1e-5
ROW_TOLERANCE = 1e-6
ABSOLUTE_GAP = 1e-6
"""HiGHS's own: a gap of so many USD is none."""
MISREPORTED = 1e-6
"""Difference between a stated and a counted cost, as a share, beyond which HiGHS has lost its way."""
OPTIMAL, INFEASIBLE, UNBOUNDED = 1, -1, -2  # PuLP's status codes, the same in both of its lines


@dataclass(frozen=True)
class Report:
    """How far a solve has come."""

    incumbent: float
    """Cost of the best plan so far; infinite before there is one."""
    bound: float
    gap: float
    seconds: float


Watch = Callable[[Report], None]


class Solvable(Protocol):
    """What a solver reads of a program."""

    @property
    def problem(self) -> pulp.LpProblem:
        """The linear program."""

    @property
    def y(self) -> Mapping[str, Any]:
        """Variables by the keys that a warm start names."""


def solve_program(
    program: Solvable,
    settings: SolverSettings,
    *,
    progress: Watch | None = None,
    warm_start: Collection[str] = (),
    stop_at: float | None = None,
) -> Certificate:
    """Solve one integer program and say what is proven; the solution stays in the program's variables.

    Parameters
    ----------
    program
        From `build`.
    settings
        Solver, relative gap, time limit (s), threads, seed.
    progress
        Called with a `Report` whenever HiGHS has news; never called by CBC, which reports nothing.
    warm_start
        Keys of columns to begin from; HiGHS finds the rest. Ignored by CBC.
    stop_at
        Stop at a plan of at most this cost, whatever its gap (HiGHS only).

    Returns
    -------
    Certificate
        OPTIMAL only where the bound is within ``gap`` of the objective; FEASIBLE with its bound after a time limit;
        INFEASIBLE. Objective and bound are of the program as built; the objective is recounted from whole numbers.

    Raises
    ------
    SolverError
        If the solver is missing, the program is unbounded, no plan is found in time, or rows stay broken once numbers
        are whole.
    """
    if settings.name == "highs":
        return _solve_highs(program, settings, progress, warm_start, stop_at)
    return _solve_cbc(program, settings)


def available_solvers() -> list[str]:
    """Names accepted by `SolverSettings` that can run here."""
    installed = set(pulp.listSolvers(onlyAvailable=True))
    return [*(["highs"] if "HiGHS" in installed else []), *(["cbc"] if _cbc_binary() else [])]


def proven_status(objective: float, bound: float, gap: float) -> SolveStatus:
    """OPTIMAL only where the bound is close enough, whatever a solver calls it."""
    close = objective - bound <= max(gap * abs(objective), ABSOLUTE_GAP)
    return SolveStatus.OPTIMAL if close else SolveStatus.FEASIBLE


# -------------------------------------------------------------------------------------------------------------- HiGHS


def _solve_highs(
    program: Solvable,
    settings: SolverSettings,
    progress: Watch | None,
    warm_start: Collection[str],
    stop_at: float | None,
) -> Certificate:
    if "HiGHS" not in pulp.listSolvers(onlyAvailable=True):
        raise SolverError("HiGHS is not installed: pip install highspy")
    began = time.monotonic()
    options: dict[str, Any] = {"random_seed": settings.seed, "log_to_console": False}
    if stop_at is not None:
        options["objective_target"] = stop_at
    with silent_stdout():
        # HiGHS reports progress only where its log is on, and then to callbacks alone.
        solver = pulp.getSolver(
            "HiGHS", msg=progress is not None, gapRel=settings.gap, timeLimit=settings.time_limit_s,
            threads=settings.threads, **options,
        )  # fmt: skip
        _hook(solver, program, progress, warm_start)
        fresh_threads()
        program.problem.solve(solver)
        highs: Any = program.problem.solverModel
        left = max(settings.time_limit_s - (time.monotonic() - began), 1.0)
        if warm_start and _misreported(highs):
            return _solve_highs(program, replace(settings, time_limit_s=left), progress, (), stop_at)
        return _highs_certificate(program, highs, settings, left)


def _misreported(highs: Any) -> bool:
    """Whether HiGHS states another cost than its plan has: then it has cut off better plans by a false one.

    Seen with HiGHS 1.16.0 after a start of a few columns: a plan of the presolved program is reported at a cost below
    the optimum, and the search ends there.
    """
    info = highs.getInfo()
    if info.primal_solution_status != 2:
        return False
    counted = float(np.array(highs.getLp().col_cost_) @ np.array(highs.getSolution().col_value))
    stated = float(info.objective_function_value)
    return abs(counted - stated) > MISREPORTED * max(abs(counted), 1.0)


def _hook(solver: Any, program: Solvable, progress: Watch | None, columns: Collection[str]) -> None:
    """Have PuLP hand HiGHS the choice of columns to begin from, and listen to it; what to buy HiGHS finds itself."""
    wanted = set(columns) & set(program.y)

    def tell(event: Any) -> None:
        out = event.data_out
        incumbent, bound = float(out.mip_primal_bound), float(out.mip_dual_bound)
        if progress is not None:
            progress(Report(incumbent, bound, relative_gap(incumbent, bound), float(out.running_time)))

    def call(problem: pulp.LpProblem) -> None:
        highs: Any = problem.solverModel
        if wanted:
            position = {variable.name: i for i, variable in enumerate(solver_columns(problem))}
            index = np.array([position[v.name] for v in program.y.values()], dtype=np.int32)
            highs.setSolution(index.size, index, np.array([float(key in wanted) for key in program.y]))
        if progress is not None:
            highs.cbMipLogging.subscribe(tell)
        highs.run()

    # A version of PuLP without this step solves all the same, unwatched and from scratch.
    if hasattr(solver, "callSolver"):
        solver.callSolver = call


def relative_gap(objective: float, bound: float) -> float:
    """(objective − bound) / |objective|, at least 0; infinite before there is a plan."""
    if not np.isfinite(objective):
        return float("inf")
    return max(0.0, objective - bound) / abs(objective) if objective else float(bound < -ABSOLUTE_GAP)


def _highs_certificate(program: Solvable, highs: Any, settings: SolverSettings, left_s: float) -> Certificate:
    """What HiGHS proved, asked of HiGHS itself: PuLP calls a run that hit its time limit optimal."""
    name, info, version = highs.getModelStatus().name, highs.getInfo(), str(highs.version())
    if name == "kUnboundedOrInfeasible":
        name = "kInfeasible" if _has_no_point(highs, left_s) else "kUnbounded"
    if name == "kInfeasible":
        return Certificate(SolveStatus.INFEASIBLE, 0.0, 0.0, "HiGHS", version)
    if name == "kUnbounded":
        raise SolverError("The program is unbounded: a price or a need is negative")
    if info.primal_solution_status != 2:
        raise SolverError(
            f"HiGHS found no plan within {settings.time_limit_s:g} s ({name}); allow more time (solver.time_limit_s), "
            "or make the request smaller: fewer bands, week periods or GPU types"
        )
    is_mip = any(variable.cat != pulp.LpContinuous for variable in program.problem.variables())
    bound = float(info.mip_dual_bound if is_mip else info.objective_function_value)
    objective = settle(program, highs, np.array(highs.getSolution().col_value), left_s)
    bound = min(bound, objective)
    return Certificate(proven_status(objective, bound, settings.gap), objective, bound, "HiGHS", version)


def _has_no_point(highs: Any, left_s: float) -> bool:
    """Whether the rows alone cannot be kept: the objective is taken away and the rest solved again."""
    count = highs.getNumCol()
    highs.changeColsCost(count, np.arange(count, dtype=np.int32), np.zeros(count))
    highs.setOptionValue("time_limit", highs.getRunTime() + left_s)
    highs.run()
    name = highs.getModelStatus().name
    if name not in ("kInfeasible", "kOptimal"):
        raise SolverError(f"HiGHS could not tell an infeasible program from an unbounded one ({name})")
    return bool(name == "kInfeasible")


def settle(program: Solvable, highs: Any, found: FloatArray, left_s: float) -> float:
    """Round whole numbers of what was found, see that every row still holds, and count the objective again.

    A column that is chosen to 0.999999 of 1 with a million replicas may leave an instance out: then the choice is fixed
    at whole numbers and what it needs is bought again.
    """
    lp = highs.getLp()
    whole = np.array([kind.name != "kContinuous" for kind in lp.integrality_] or [False] * lp.num_col_)
    values = _rounded(found, whole)
    if _broken_rows(lp, values):
        lower, upper = np.array(lp.col_lower_), np.array(lp.col_upper_)
        binary = np.flatnonzero(whole & (lower == 0.0) & (upper == 1.0)).astype(np.int32)
        highs.changeColsBounds(binary.size, binary, values[binary], values[binary])
        highs.setOptionValue("time_limit", highs.getRunTime() + left_s)
        highs.setOptionValue("mip_feasibility_tolerance", 1e-9)
        highs.run()
        if highs.getInfo().primal_solution_status != 2:
            raise SolverError(
                "The plan that HiGHS returned does not hold once its numbers are whole, nor can it be mended"
            )
        values = _rounded(np.array(highs.getSolution().col_value), whole)
        broken = _broken_rows(lp, values)
        if broken:
            raise SolverError(f"HiGHS's plan breaks {broken} rows once its numbers are whole: the data span too far")
    for variable, value in zip(solver_columns(program.problem), values.tolist(), strict=True):
        variable.varValue = value
    return float(np.array(lp.col_cost_) @ values)


def _rounded(values: FloatArray, whole: FloatArray) -> FloatArray:
    """Whole numbers where they are meant; a value that is far from one is an error."""
    nearest = np.round(values)
    far = np.abs(values - nearest)[whole]
    if far.size and far.max() > INTEGRALITY:
        raise SolverError(f"The solver returned a value that is {far.max():.2g} away from a whole number")
    rounded: FloatArray = np.where(whole, nearest, values)
    return rounded


def _broken_rows(lp: Any, values: FloatArray) -> int:
    """Rows that are not held, by more than `ROW_TOLERANCE` of their largest term."""
    matrix = lp.a_matrix_
    table = sparse.csc_array(
        (np.array(matrix.value_), np.array(matrix.index_), np.array(matrix.start_)), shape=(lp.num_row_, lp.num_col_)
    )
    activity = table @ values
    size = abs(table) @ np.abs(values)
    slack = ROW_TOLERANCE * np.maximum(1.0, 1e-3 * size)
    broken = (activity < np.array(lp.row_lower_) - slack) | (activity > np.array(lp.row_upper_) + slack)
    return int(broken.sum())


# ---------------------------------------------------------------------------------------------------------------- CBC


def _solve_cbc(program: Solvable, settings: SolverSettings) -> Certificate:
    """CBC as second solver: it tells no bound, so only the gap that it stopped at is claimed."""
    binary = _cbc_binary()
    if binary is None:
        raise SolverError("CBC is not installed: pip install 'pulp[cbc]'")
    solver = pulp.getSolver(
        "COIN_CMD", path=binary, msg=False, gapRel=settings.gap, timeLimit=settings.time_limit_s,
        threads=settings.threads, options=[f"randomCbcSeed {settings.seed}"],
    )  # fmt: skip
    status, proven = _outcome(program.problem, program.problem.solve(solver))
    if status == INFEASIBLE:
        return Certificate(SolveStatus.INFEASIBLE, 0.0, 0.0, "CBC", "")
    if status == UNBOUNDED:
        raise SolverError("The program is unbounded: a price or a need is negative")
    if status != OPTIMAL:
        raise SolverError(f"CBC stopped without a plan (status {status}); allow more time (solver.time_limit_s)")
    objective = float(pulp.value(program.problem.objective) or 0.0)
    if proven:
        return Certificate(SolveStatus.OPTIMAL, objective, objective - settings.gap * abs(objective), "CBC", "")
    return Certificate(SolveStatus.FEASIBLE, objective, 0.0, "CBC", "")


def _cbc_binary() -> str | None:
    """CBC's executable: from the package that ``pulp[cbc]`` brings, else from the search path."""
    if importlib.util.find_spec("cbcbox") is not None:
        return str(importlib.import_module("cbcbox").cbc_bin_path())
    return shutil.which("cbc")


def _outcome(problem: pulp.LpProblem, returned: Any) -> tuple[int, bool]:
    """PuLP's status code and whether it is proven: PuLP 3 sets two fields, PuLP 4 returns a statistics object."""
    if hasattr(problem, "sol_status"):
        return int(problem.status), int(problem.sol_status) == OPTIMAL
    code = int(returned.status)
    return (OPTIMAL if returned.has_solution else code), code == OPTIMAL


def fresh_threads() -> None:
    """Let the next HiGHS run have as many threads as it asks for: a process keeps the number of its first run."""
    importlib.import_module("highspy").Highs.resetGlobalScheduler(True)


@contextlib.contextmanager
def silent_stdout() -> Iterator[None]:
    """Keep HiGHS's banner, which it writes past Python and past its own option, out of pipes."""
    try:
        target = sys.__stdout__.fileno() if sys.__stdout__ else 1
        saved = os.dup(target)
    except (OSError, ValueError):
        yield
        return
    try:
        sys.stdout.flush()
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), target)
        yield
    finally:
        os.dup2(saved, target)
        os.close(saved)
