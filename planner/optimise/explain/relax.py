"""What would make an infeasible request feasible: the least excess over its limits, and near misses of models."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from planner.errors import InfeasibleError, SolverError
from planner.optimise.explain.reasons import plural
from planner.optimise.program import build
from planner.optimise.solve.fleet import Fleet
from planner.optimise.solve.solvers import INTEGRALITY, solve_program
from planner.optimise.types import Column, ProgramData, Rejection, SolverSettings
from planner.plan import SolveStatus

NEAR = 2.0
"""A configuration that misses a target of its model by no more than this factor is worth naming as a way out."""
WAYS_OUT = 5
LOOSER = {"TPOT target": "targets.tpot_ms", "TTFT target": "targets.ttft_ms"}
"""Limits of a model that are met by loosening them by as much as they are missed, and their keys in a request."""
LEAST_GAP = 1e-4
LEAST = "No fleet satisfies the request; the least relaxation that would"
SOME = "No fleet satisfies the request; a relaxation that would (a smaller one may do)"
BOUND = "No fleet satisfies the request; at least this is short (time was up before all needs were exact)"


@dataclass(frozen=True)
class Excess:
    """What must be had beyond the limits."""

    amounts: Mapping[str, float]
    """By name, such as ``quota[small]``, in each limit's unit; all of them together."""
    unserved: tuple[str, ...]
    """Models that no limit of the fleet would help: no column completes their routing."""
    heading: str = LEAST
    """What is claimed of the amounts."""


def raise_short(fleet: Fleet, settings: SolverSettings, rejections: Mapping[str, Sequence[Rejection]]) -> NoReturn:
    """End with what is short: the least excess over limits that makes the request feasible, and other ways out.

    Raises
    ------
    InfeasibleError
        Always.
    """
    data = fleet.data()
    try:
        excess = least_excess(fleet, settings)
    except SolverError:
        lines = [f"what is short was not found within {settings.time_limit_s:g} s (solver.time_limit_s)"]
        raise InfeasibleError("No fleet satisfies the request", lines) from None
    lines = [
        f"model '{model}': no GPU type on offer where it may stand holds a whole replica for every slice of its routing"
        for model in excess.unserved
    ]
    lines += [shortage_line(name, value, data) for name, value in sorted(excess.amounts.items())]
    if not lines:
        lines = ["some limit is short by less than the solver can tell: widen those that are nearly used up a little"]
    lines += [f"or {line}" for line in ways_out(rejections, data.columns)]
    raise InfeasibleError(excess.heading, [" ".join(line.split()) for line in lines])


def least_excess(fleet: Fleet, settings: SolverSettings) -> Excess:
    """The least excess over all limits with which there is a fleet of exact needs.

    An elastic program may exceed every limit; each GPU of excess, or what is worth as much, costs the same, and nothing
    else counts. What it chooses is made exact and it is solved again, until all that it chose is: then its fleet is
    one, and every other is short of at least as much, for needs that are not exact are lower bounds.

    Raises
    ------
    SolverError
        If the solver finds nothing in time.
    """
    ends = time.monotonic() + settings.time_limit_s
    exact_enough = replace(settings, gap=min(settings.gap, LEAST_GAP))
    while True:
        data = fleet.data()
        unserved = without_route(data)
        amounts, columns, status = elastic(_without(data, unserved), exact_enough)
        if not fleet.make_exact(columns):
            return Excess(amounts, unserved, LEAST if status is SolveStatus.OPTIMAL else SOME)
        left = ends - time.monotonic()
        if left <= 0:
            return Excess(amounts, unserved, BOUND)
        exact_enough = replace(exact_enough, time_limit_s=left)


def elastic(data: ProgramData, settings: SolverSettings) -> tuple[dict[str, float], list[Column], SolveStatus]:
    """Shortages of one elastic program, the columns that it chose, and what is proven."""
    if not data.models:
        return {}, [], SolveStatus.OPTIMAL
    program = build(data, 0.0, elastic=True)
    for model in data.models:
        program.slack[f"serve[{model}]"].upBound = 0.0
    certificate = solve_program(program, settings)
    if certificate.status is SolveStatus.INFEASIBLE:
        raise SolverError("The elastic program has no solution (a bug)")
    found = {name: float(variable.value() or 0.0) for name, variable in program.slack.items()}
    columns = [column for column in data.columns if (program.y[column.key].value() or 0.0) > 0.5]
    return {name: value for name, value in found.items() if value > INTEGRALITY}, columns, certificate.status


def without_route(data: ProgramData) -> tuple[str, ...]:
    """Models whose columns do not lead from the start of their routing to its end."""
    reached = {(model, 0) for model in data.models}
    for column in sorted(data.columns, key=lambda c: (c.start, c.end)):
        if (column.model, column.start) in reached:
            reached.add((column.model, column.end))
    return tuple(model for model in data.models if (model, data.end_node[model]) not in reached)


def _without(data: ProgramData, models: Collection[str]) -> ProgramData:
    """The data without some models."""
    if not models:
        return data
    return replace(
        data,
        models=tuple(model for model in data.models if model not in models),
        columns=tuple(column for column in data.columns if column.model not in models),
    )


def shortage_line(name: str, value: float, data: ProgramData) -> str:
    """One shortage in words, with the limit it goes beyond."""
    match = re.fullmatch(r"(\w+)\[(.*)\]", name, re.DOTALL)
    kind, of = match.groups() if match else (name, "")
    whole = {
        "quota": ("quota '{}': short by {}", "GPU"),
        "available": ("'{}': short by {}", "instance"),
        "spread": ("{}: {} more must stand elsewhere, as in a further region, to survive the loss of one", "replica"),
        "pools": ("{}: {} more than max_pools", "pool"),
        "movement": ("movement{}: {} more than max_moved_gpus", "GPU"),
    }
    if kind in whole:
        text, noun = whole[kind]
        return text.format(of, plural(int(_up(value)), noun)) + _limit(kind, of, data)
    limits = {
        "budget": ("budget_usd", data.caps.budget_usd, "USD"),
        "power": ("policy.max_power_kw", data.caps.power_kw, "kW"),
        "carbon": ("policy.max_carbon_kg", data.caps.carbon_kg, "kg CO2e"),
        "liability": ("policy.max_liability_usd", data.caps.liability_usd, "USD"),
    }
    key, cap, unit = limits[kind]
    return f"{kind}: short by {_up(value, 100):,.2f} {unit} ({key} is {cap or 0.0:,.2f} {unit})"


def _limit(kind: str, of: str, data: ProgramData) -> str:
    """The limit that is exceeded, in brackets, where it is one number."""
    if kind == "quota":
        return f" (limit {next(q.max_gpus for q in data.quotas if q.name == of):,})"
    if kind == "pools":
        return f" (limit {data.max_pools[of]:,})"
    if kind == "movement" and data.movement is not None:
        return f" (limit {data.movement.max_moved_gpus:,})"
    return ""


def ways_out(rejections: Mapping[str, Sequence[Rejection]], columns: Sequence[Column]) -> list[str]:
    """Targets of single models that, a little looser, would admit a GPU type that they shut out: nearest misses first.

    Only where the target is all that is missed: loosening it by the stated share is then enough.
    """
    there = {(column.model, part.placement.gpu) for column in columns for part in column.parts}
    near = [
        r
        for found in rejections.values()
        for r in found
        if r.alone and r.reason in LOOSER and 1.0 < r.excess <= NEAR and (r.model, r.gpu) not in there
    ]
    best: dict[tuple[str, str, str], Rejection] = {}
    for r in sorted(near, key=lambda r: (r.excess, r.model, r.gpu, r.tp, r.detail)):
        best.setdefault((r.model, r.reason, r.gpu), r)
    return [_way_out(r) for r in list(best.values())[:WAYS_OUT]]


def _way_out(r: Rejection) -> str:
    percent = _up(100 * (r.excess - 1.0), 10)
    return f"{r.model}: {LOOSER[r.reason]} looser by {percent:.1f} % or more admits {r.gpu} tp{r.tp}"


def _up(value: float, parts: int = 1) -> float:
    """The least whole number, or multiple of 1 / parts, that covers a shortage; at least one of it."""
    return max(1, math.ceil(value * parts - 1e-6)) / parts
