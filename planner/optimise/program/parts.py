"""What a program is made of: the problem, variables by key, rows by family, and what an elastic one is short of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pulp

from planner.optimise.program.yards import Yards, yards_of
from planner.optimise.types import Lot, LotKind, Placement, ProgramData

Variable: TypeAlias = Any
Terms: TypeAlias = list[tuple[Variable, float]]


@dataclass(frozen=True)
class Needed:
    """What the columns that use a placement need of it."""

    columns: tuple[str, ...]
    """Keys, one for each part."""
    running: tuple[tuple[int, ...], ...]
    """Replicas by period, then by part."""


@dataclass(frozen=True)
class Groups:
    """The data grouped once, so that no family looks through all columns or lots."""

    by_model: Mapping[str, tuple[int, ...]]
    """Indices of columns."""
    needed: Mapping[Placement, Needed]
    """Columns and replicas that have the placement."""
    lots: Mapping[str, tuple[Lot, ...]]
    """By supply."""
    yards: Yards


@dataclass(frozen=True)
class Program:
    """The problem with its variables by key; rows are named ``family(index,...)`` as in the LP file."""

    problem: pulp.LpProblem
    groups: Groups
    elastic: bool = False
    y: dict[str, Variable] = field(default_factory=dict)
    """Column key to 0 or 1."""
    x: dict[tuple[str, int], Variable] = field(default_factory=dict)
    """(lot id, period) to running instances; where a lot always runs all that is reserved, its `reserved` variable."""
    reserved: dict[str, Variable] = field(default_factory=dict)
    """Lot id to reserved instances; only lots with a price for it."""
    replicas: dict[tuple[Placement, int, int], Variable] = field(default_factory=dict)
    """(placement, yard, period) to replicas; only placements that can stand in several yards."""
    moved: dict[tuple[str, str], Variable] = field(default_factory=dict)
    """(model, GPU type) to GPUs beyond last quarter's."""
    slack: dict[str, Variable] = field(default_factory=dict)
    """What an elastic program may be short of, such as ``quota[small]``."""
    slack_unit: dict[str, str] = field(default_factory=dict)
    slack_weight: dict[str, float] = field(default_factory=dict)
    """Worth of one unit in the objective of an elastic program."""
    rows: dict[str, list[str]] = field(default_factory=dict)
    """Names of rows by family."""

    def add_row(self, family: str, name: str, terms: Terms, sense: str, limit: float) -> None:
        """One row ``sum of terms <= limit``, or with ``==``; one that is empty and true is left out."""
        problem, left = self.problem, linear(terms)
        if not terms and (limit >= 0 if sense == "<=" else limit == 0):
            return
        problem += (left <= limit if sense == "<=" else left == limit), name
        self.rows.setdefault(family, []).append(name)

    def needed(self, placement: Placement, period: int) -> Terms:
        """Replicas of a placement that the chosen columns need in a period: sum of running[c] * y[c]."""
        needed = self.groups.needed[placement]
        return [(self.y[key], n) for key, n in zip(needed.columns, needed.running[period], strict=True) if n]

    def short(self, name: str, unit: str, weight: float, most: float | None = None) -> Terms:
        """The term that lets a ``<=`` row be exceeded, -1 times the shortage; nothing unless the program is elastic.

        Rows that share a name share the shortage: it is the largest over them.
        """
        if not self.elastic:
            return []
        if name not in self.slack:
            self.slack[name] = self.problem.add_variable(f"short({len(self.slack)})", 0, most, pulp.LpContinuous)
            self.slack_unit[name], self.slack_weight[name] = unit, weight
        return [(self.slack[name], -1.0)]


def linear(terms: Terms) -> Any:
    """Sum of coefficients times variables; PuLP 4 has a named constructor for what PuLP 3's own one takes."""
    make = getattr(pulp.LpAffineExpression, "from_list", pulp.LpAffineExpression)
    if len({id(variable) for variable, _ in terms}) == len(terms):
        return make(terms)
    sums: dict[int, tuple[Variable, float]] = {}
    for variable, coefficient in terms:
        sums[id(variable)] = (variable, sums.get(id(variable), (variable, 0.0))[1] + coefficient)
    return make(list(sums.values()))


def solver_columns(problem: pulp.LpProblem) -> list[Variable]:
    """Variables in the order of the solver's columns: those that no row and no cost uses are none."""
    listed: list[Variable] = getattr(problem, "exported_variables", problem.variables)()
    return listed


def group(data: ProgramData) -> Groups:
    """Columns by model and by placement, lots by supply, supplies by yard."""
    by_model: dict[str, list[int]] = {model: [] for model in data.models}
    keys: dict[Placement, list[str]] = defaultdict(list)
    running: dict[Placement, list[tuple[int, ...]]] = defaultdict(list)
    for i, column in enumerate(data.columns):
        by_model[column.model].append(i)
        for part in column.parts:
            keys[part.placement].append(column.key)
            running[part.placement].append(part.running)
    lots: dict[str, list[Lot]] = defaultdict(list)
    for lot in data.lots:
        lots[lot.supply].append(lot)
    return Groups(
        by_model={model: tuple(found) for model, found in by_model.items()},
        needed={k: Needed(tuple(keys[k]), tuple(zip(*running[k], strict=True))) for k in sorted(keys)},
        lots={supply: tuple(found) for supply, found in lots.items()},
        yards=yards_of(keys, data.supplies),
    )


def is_reserved(lot: Lot) -> bool:
    """Whether instances of a lot are paid every hour of the horizon."""
    return lot.reserved_usd_per_h > 0


def always_runs(lot: Lot, data: ProgramData) -> bool:
    """Whether a reserved instance may as well run all the time: running costs nothing and no cap counts it."""
    free = lot.used_usd_per_h == 0
    unseen = (data.caps.power_kw is None or lot.power_kw == 0) and (
        data.caps.carbon_kg is None or lot.carbon_kg_per_h == 0
    )
    return is_reserved(lot) and free and unseen and (lot.available is None or len(set(lot.available)) <= 1)


def held_gpus(lots: Iterable[Lot], period: int) -> int:
    """GPUs of existing commitments: they count whether they run or not."""
    return sum(
        lot.gpus_per_instance * lot.available[period]
        for lot in lots
        if lot.kind is LotKind.EXISTING_COMMITMENT and lot.available is not None
    )
