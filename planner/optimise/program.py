"""The integer program: which column serves each model, and how many instances of each offer are rented.

Sets: models m, cuts 0..B of the prompt axis, columns c = (m, [first, last), configuration, offer), offers o.
Variables: y[c] in {0, 1}; x[o] whole instances >= 0.

    minimise   sum_o hours * usd_per_h[o] * x[o]  +  theta * sum_c lost[c] * y[c]
    subject to add_routing, add_node_packing, add_quotas, add_budget

``lost[c]`` are the tokens of the column's bands that it does not serve although another column could. The theta of a
Dinkelbach iteration makes the second term the worth of those tokens at the current cost per token, so that minimising
the sum minimises the ratio cost / served tokens. Written this way the objective is in USD and never near 0, and a
relative gap means what it says.

Every family is one function with its inequality in the docstring; `build` calls them in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import pulp

from planner.catalog.offer import Offer
from planner.optimise.types import Column, ProgramData
from planner.request import Quota

RowSlack = Callable[[str], Any]


@dataclass(frozen=True)
class Program:
    """The problem with its variables, by column key and offer id, and the slack variables of an elastic build."""

    problem: pulp.LpProblem
    y: dict[str, pulp.LpVariable]
    x: dict[str, pulp.LpVariable]
    slack: dict[str, pulp.LpVariable] = field(default_factory=dict)


def build(data: ProgramData, usd_per_token: float, *, elastic: bool = False) -> Program:
    """The program for one value of theta = ``usd_per_token``.

    With ``elastic`` every quota and the budget may be exceeded, and only the excess is minimised: what is short when
    the request is infeasible.
    """
    problem = pulp.LpProblem("fleet", pulp.LpMinimize)
    y = {c.key: problem.add_variable(f"y[{i}]", 0, 1, pulp.LpBinary) for i, c in enumerate(data.columns)}
    x = {o.id: problem.add_variable(f"x[{i}]", 0, None, pulp.LpInteger) for i, o in enumerate(data.offers)}
    program = Program(problem, y, x)
    if elastic:
        names = [*(quota.name for quota in data.quotas), *(["budget"] if data.budget_usd is not None else [])]
        for i, name in enumerate(names):
            program.slack[name] = problem.add_variable(f"short[{i}]", 0, None, pulp.LpContinuous)
    problem += _excess(program, data) if elastic else _cost(program, data, usd_per_token)
    add_routing(program, data)
    add_node_packing(program, data)
    add_quotas(program, data)
    add_budget(program, data)
    return program


def add_routing(program: Program, data: ProgramData) -> None:
    """Every model's bands are served exactly once: a path from cut 0 to cut B.

    For each model m:  sum of y[c] over c with first = 0                       == 1
    and for each inner cut b:  sum over last = b  −  sum over first = b        == 0
    """
    problem = program.problem
    for index, model in enumerate(data.models):
        columns = [c for c in data.columns if c.model == model]
        start = pulp.lpSum(program.y[c.key] for c in columns if c.first_band == 0)
        problem += start == 1, f"serve[{index}]"
        for cut in range(1, data.bands):
            into = pulp.lpSum(program.y[c.key] for c in columns if c.last_band == cut)
            out = pulp.lpSum(program.y[c.key] for c in columns if c.first_band == cut)
            problem += into - out == 0, f"route[{index},{cut}]"


def add_node_packing(program: Program, data: ProgramData) -> None:
    """Replicas fit whole instances, and none is split over two.

    For each offer o with S GPUs an instance and each tp degree k used on it:

        sum over c on o with tp >= k of gpus[c] * y[c]  <=  floor(S / k) * k * x[o]

    Exact when the degrees divide each other (1, 2, 4, 8): items of divisible sizes fill bins without other waste than
    the remainder of S by the smallest of them (first fit by decreasing size).
    """
    problem = program.problem
    for index, offer in enumerate(data.offers):
        columns = [c for c in data.columns if c.offer.id == offer.id]
        size = int(offer.gpus_per_instance)
        for degree in sorted({c.need.config.tp for c in columns}):
            used = pulp.lpSum(c.gpus * program.y[c.key] for c in columns if c.need.config.tp >= degree)
            room = (size // degree) * degree
            problem += used <= room * program.x[offer.id], f"nodes[{index},{degree}]"


def add_quotas(program: Program, data: ProgramData) -> None:
    """Stock and quotas: for each quota q,  sum over matching offers of S[o] * x[o]  <=  max_gpus[q]."""
    problem = program.problem
    for index, quota in enumerate(data.quotas):
        bought = pulp.lpSum(int(o.gpus_per_instance) * program.x[o.id] for o in data.offers if quota_covers(quota, o))
        slack = program.slack.get(quota.name, 0)
        problem += bought - slack <= quota.max_gpus, f"quota[{index}]"


def add_budget(program: Program, data: ProgramData) -> None:
    """Budget:  sum_o hours * usd_per_h[o] * x[o]  <=  budget_usd."""
    problem = program.problem
    if data.budget_usd is not None:
        slack = program.slack.get("budget", 0)
        problem += _rent(program, data) - slack <= data.budget_usd, "budget"


def quota_covers(quota: Quota, offer: Offer) -> bool:
    """Whether an offer counts towards a quota; an empty field of the quota matches everything."""
    pairs = (
        (quota.provider, offer.provider),
        (quota.region, offer.region),
        (quota.gpu, offer.gpu),
        (quota.offer, offer.id),
    )
    return all(wanted in ("", actual) for wanted, actual in pairs)


def lost_tokens(data: ProgramData, columns: Iterable[Column]) -> dict[str, float]:
    """Tokens of a column's bands that it refuses although another column would serve them, by column key."""
    most = data.most_served_tokens
    return {c.key: most[c.model, c.first_band, c.last_band] - c.served_tokens for c in columns}


def _rent(program: Program, data: ProgramData) -> Any:
    return pulp.lpSum(data.horizon_hours * offer.usd_per_h * program.x[offer.id] for offer in data.offers)


def _cost(program: Program, data: ProgramData, usd_per_token: float) -> Any:
    lost = lost_tokens(data, data.columns)
    worth = pulp.lpSum(usd_per_token * lost[c.key] * program.y[c.key] for c in data.columns if lost[c.key] > 0)
    return _rent(program, data) + worth


def _excess(program: Program, data: ProgramData) -> Any:
    """GPUs over quota, and the budget's excess in GPUs at the dearest offer's price so that the two add up."""
    dearest = max(o.usd_per_gpu_h * data.horizon_hours for o in data.offers)
    weights = {name: (1.0 / dearest if name == "budget" else 1.0) for name in program.slack}
    return pulp.lpSum(weights[name] * variable for name, variable in program.slack.items())
