"""Solving: PuLP behind one module, statuses that tell the truth, and the ratio by Dinkelbach's iteration."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pulp

from planner.errors import SolverError
from planner.optimise.program import Program, build
from planner.optimise.types import Certificate, Column, Decision, ProgramData, SolverSettings
from planner.plan import SolveStatus

MAX_RATIO_ITERATIONS = 12
INTEGRALITY = 1e-5
OPTIMAL, INFEASIBLE = 1, -1  # PuLP's status codes, the same in both of its lines


def solve_program(program: Program, settings: SolverSettings) -> Certificate:
    """Solve one linear program and say what is proven.

    Raises
    ------
    SolverError
        If the solver is not installed or stops without an answer.
    """
    if settings.name == "highs":
        return _solve_highs(program, settings)
    return _solve_cbc(program, settings)


def solve_ratio(data: ProgramData, settings: SolverSettings) -> Decision | None:
    """Least cost per served token, or ``None`` when no plan satisfies the constraints.

    Dinkelbach's iteration (Management Science 13, 1967): solve with theta, set theta to the ratio of the solution,
    stop when the ratio no longer falls. The bound on the ratio follows from the bound LB of the last solve: for every
    plan, cost + theta * (most − served) >= LB, hence

        cost / served >= theta + (LB − theta * most) / served

    with the least possible ``served`` in the denominator while the numerator is negative.

    Raises
    ------
    SolverError
        If the solver fails, or the relaxation is unbounded.
    """
    theta, bound, best = 0.0, 0.0, None
    most, least = _served_range(data)
    for iteration in range(1, MAX_RATIO_ITERATIONS + 1):
        program = build(data, theta)
        certificate = solve_program(program, settings)
        if certificate.status is SolveStatus.INFEASIBLE:
            return None
        decision = _decision(program, data, certificate, iteration)
        numerator = certificate.bound - theta * most
        bound = max(bound, theta + numerator / (least if numerator < 0 else most))
        improved = best is None or decision.usd_per_token < best.usd_per_token * (1 - 1e-9)
        best = decision if best is None or improved else replace(best, ratio_iterations=iteration)
        if theta > 0 and not improved:
            break
        theta = best.usd_per_token
    if best is None:
        raise SolverError("The ratio iteration ended without a plan")
    proven = replace(best, usd_per_token_bound=min(bound, best.usd_per_token))
    return replace(proven, status=SolveStatus.OPTIMAL if proven.gap <= settings.gap else SolveStatus.FEASIBLE)


def _decision(program: Program, data: ProgramData, certificate: Certificate, iteration: int) -> Decision:
    """The solution of one program, with cost and served tokens counted from its integers."""
    columns, instances = _chosen(program, data)
    return Decision(
        columns=columns,
        instances=instances,
        status=certificate.status,
        usd=sum(data.horizon_hours * o.usd_per_h * instances.get(o.id, 0) for o in data.offers),
        served_tokens=sum(c.served_tokens for c in columns),
        usd_per_token_bound=0.0,
        ratio_iterations=iteration,
        solver=certificate.solver,
        solver_version=certificate.solver_version,
    )


def shortages(data: ProgramData, settings: SolverSettings) -> dict[str, float]:
    """What is short when nothing is feasible: the least excess over quotas (GPUs) and budget (USD), by row name."""
    program = build(data, 0.0, elastic=True)
    certificate = solve_program(program, settings)
    if certificate.status is SolveStatus.INFEASIBLE:
        return {}
    excess = {name: float(variable.value() or 0.0) for name, variable in program.slack.items()}
    return {name: value for name, value in excess.items() if value > INTEGRALITY}


def available_solvers() -> list[str]:
    """Names accepted by `SolverSettings` that can run here."""
    installed = set(pulp.listSolvers(onlyAvailable=True))
    return [*(["highs"] if "HiGHS" in installed else []), *(["cbc"] if _cbc_binary() else [])]


def _served_range(data: ProgramData) -> tuple[float, float]:
    """Most and least tokens that any choice of columns can serve."""
    most, least = 0.0, 0.0
    for model in data.models:
        columns = [c for c in data.columns if c.model == model]
        for band in range(data.bands):
            covering = [c for c in columns if c.first_band == band]
            most += max((c.served_tokens for c in covering), default=0.0)
            least += min((c.served_tokens for c in covering), default=0.0)
    return most, least


def _chosen(program: Program, data: ProgramData) -> tuple[tuple[Column, ...], dict[str, int]]:
    """Columns and whole instances of the solution; values that are not integral are a solver error."""
    for variable in [*program.y.values(), *program.x.values()]:
        value = float(variable.value() or 0.0)
        if abs(value - round(value)) > INTEGRALITY:
            raise SolverError(f"The solver returned {variable.name} = {value}, which is not a whole number")
    columns = tuple(c for c in data.columns if round(float(program.y[c.key].value() or 0.0)) == 1)
    instances = {o.id: round(float(program.x[o.id].value() or 0.0)) for o in data.offers}
    return columns, {key: count for key, count in instances.items() if count > 0}


def _solve_highs(program: Program, settings: SolverSettings) -> Certificate:
    if "HiGHS" not in pulp.listSolvers(onlyAvailable=True):
        raise SolverError("HiGHS is not installed: pip install highspy")
    with _silent_stdout():
        solver = pulp.getSolver(
            "HiGHS", msg=False, gapRel=settings.gap / 2, timeLimit=settings.time_limit_s, threads=settings.threads,
            random_seed=settings.seed,
        )  # fmt: skip
        program.problem.solve(solver)
    highs: Any = program.problem.solverModel
    model_status, info = highs.getModelStatus().name, highs.getInfo()
    # PuLP calls a run that hit its time limit optimal; HiGHS itself is asked instead.
    status = {
        "kOptimal": SolveStatus.OPTIMAL,
        "kInfeasible": SolveStatus.INFEASIBLE,
        "kUnbounded": SolveStatus.UNBOUNDED,
    }.get(model_status, SolveStatus.FEASIBLE)
    if status is SolveStatus.UNBOUNDED:
        raise SolverError("The program is unbounded: a price or a need is negative")
    if status is SolveStatus.FEASIBLE and info.primal_solution_status != 2:
        if model_status == "kUnboundedOrInfeasible":
            return Certificate(SolveStatus.INFEASIBLE, 0.0, 0.0, "HiGHS", str(highs.version()))
        raise SolverError(f"HiGHS stopped without a plan ({model_status}); allow more time (solver.time_limit_s)")
    is_mip = any(v.cat == pulp.LpInteger for v in program.problem.variables())
    bound = info.mip_dual_bound if is_mip else info.objective_function_value
    return Certificate(status, info.objective_function_value, bound, "HiGHS", str(highs.version()))


def _solve_cbc(program: Program, settings: SolverSettings) -> Certificate:
    """CBC as second solver: it tells no bound, so only the gap that it stopped at is claimed."""
    binary = _cbc_binary()
    if binary is None:
        raise SolverError("CBC is not installed: pip install 'pulp[cbc]'")
    gap = settings.gap / 2
    solver = pulp.getSolver(
        "COIN_CMD", path=binary, msg=False, gapRel=gap, timeLimit=settings.time_limit_s, threads=settings.threads
    )
    status, proven = _outcome(program.problem, program.problem.solve(solver))
    if status == INFEASIBLE:
        return Certificate(SolveStatus.INFEASIBLE, 0.0, 0.0, "CBC", "")
    if status != OPTIMAL:
        raise SolverError(f"CBC stopped without a plan (status {status}); allow more time (solver.time_limit_s)")
    objective = float(pulp.value(program.problem.objective))
    if proven:
        return Certificate(SolveStatus.OPTIMAL, objective, objective * (1 - gap), "CBC", "")
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


@contextlib.contextmanager
def _silent_stdout() -> Iterator[None]:
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
