"""The program, family by family."""

from __future__ import annotations

from collections.abc import Iterable

import pulp

from planner.optimise.program.buying import add_availability, add_quotas, add_reservations
from planner.optimise.program.caps import add_budget, add_carbon_cap, add_liability_cap, add_power_cap, spend
from planner.optimise.program.parts import Program, always_runs, group, is_reserved, linear
from planner.optimise.program.serving import add_movement, add_pool_limit, add_routing
from planner.optimise.program.standing import add_node_packing, add_placement, add_spread
from planner.optimise.solve.table import lost_tokens as lost_of_column
from planner.optimise.solve.table import most_tokens
from planner.optimise.types import Column, ProgramData


def build(data: ProgramData, usd_per_token: float, *, elastic: bool = False) -> Program:
    """The program for one value of theta = ``usd_per_token``.

    With ``elastic`` every limit may be exceeded and only the excess is minimised, in GPUs or what is worth as much:
    what is short when the request is infeasible.
    """
    problem = pulp.LpProblem("fleet", pulp.LpMinimize)
    program = Program(problem, group(data), elastic)
    _add_variables(program, data)
    if not elastic:
        _add_cost(program, data, usd_per_token)
    add_routing(program, data)
    add_pool_limit(program, data)
    add_placement(program, data)
    add_spread(program, data)
    add_node_packing(program, data)
    add_reservations(program, data)
    add_availability(program, data)
    add_quotas(program, data)
    add_budget(program, data)
    add_power_cap(program, data)
    add_carbon_cap(program, data)
    add_liability_cap(program, data)
    add_movement(program, data)
    if elastic:
        problem += linear([(v, program.slack_weight[name]) for name, v in program.slack.items()])
    return program


def lost_tokens(data: ProgramData, columns: Iterable[Column]) -> dict[str, float]:
    """Tokens that a column serves less than the best path over its arc, by column key."""
    most = most_tokens(data.models, data.columns)
    return {column.key: lost_of_column(column, most) for column in columns}


def _add_variables(program: Program, data: ProgramData) -> None:
    """Variables: y by column, x by lot and period, X by lot, r by placement, yard and period; u comes with its rows."""
    problem, periods = program.problem, range(len(data.periods))
    for i, column in enumerate(data.columns):
        program.y[column.key] = problem.add_variable(f"y({i})", 0, 1, pulp.LpBinary)
    for o, lot in enumerate(data.lots):
        if is_reserved(lot):
            program.reserved[lot.id] = problem.add_variable(f"X({o})", 0, None, pulp.LpInteger)
        for t in periods:
            program.x[lot.id, t] = (
                program.reserved[lot.id]
                if always_runs(lot, data)
                else problem.add_variable(f"x({o},{t})", 0, None, pulp.LpInteger)
            )
    for k, placement in enumerate(program.groups.needed):
        yards = program.groups.yards.stands[placement]
        if len(yards) > 1 or placement.spread:
            for h in yards:
                for t in periods:
                    name = f"r({k},{h},{t})"
                    program.replicas[placement, h, t] = problem.add_variable(name, 0, None, pulp.LpInteger)


def _add_cost(program: Program, data: ProgramData, usd_per_token: float) -> None:
    """Objective (USD): what is spent, without sunk cost, and the worth of lost tokens at ``usd_per_token``."""
    lost = lost_tokens(data, data.columns)
    worth = [(program.y[c.key], usd_per_token * lost[c.key]) for c in data.columns if lost[c.key] > 0]
    problem = program.problem
    problem += linear(spend(program, data) + worth)
