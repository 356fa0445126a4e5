"""The relaxed program of a large fleet: what couples the models, with whole numbers given up.

Rows, by the families of the integer program: node packing, reserved counts, quotas, caps, moved GPUs (in the model's
largest period alone, which only widens the relaxation). What a replica costs follows from the duals of the node rows:

    price[k, t] = min over supplies g that take placement k of
                  sum over degrees d of (GPUs that one replica takes of row (g, t, d)) * dual

so prices are right for every placement, whether or not a column of it was offered yet. For any multipliers,

    bound = sum over rows of rhs * dual + sum over x, X, u of min(0, reduced cost) * upper bound + sum_m cheapest route

is at most the cost of every fleet (Lagrange), over all columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy import sparse

from planner.optimise.program import quota_covers
from planner.optimise.program.parts import held_gpus
from planner.optimise.solve.table import ColumnTable, IntArray
from planner.optimise.supply.supplies import can_stand, room
from planner.optimise.types import Lot, LotKind, Placement, ProgramData, Supply
from planner.traffic.types import FloatArray


@dataclass(frozen=True)
class Rows:
    """Rows over the variables that no model owns: instances x[o, t], reserved X[o], moved u[m, gpu]."""

    matrix: sparse.csc_array
    lower: FloatArray
    upper: FloatArray
    cost: FloatArray
    most: FloatArray
    """Upper bounds of the variables, all finite."""
    node: Mapping[tuple[int, int, int], int]
    """(supply, degree, period) to row."""
    moved: Mapping[tuple[int, str], int]
    """(model, GPU type) to row."""
    busiest: IntArray
    """Period of each model in which moved GPUs are counted."""
    layout: Layout
    """Which variable is which."""


class _Builder:
    """Collects rows as triplets."""

    def __init__(self, variables: int) -> None:
        self.variables = variables
        self.triplets: list[tuple[int, int, float]] = []
        self.lower: list[float] = []
        self.upper: list[float] = []

    def row(self, terms: Sequence[tuple[int, float]], lower: float, upper: float) -> int:
        index = len(self.lower)
        self.triplets += [(index, variable, value) for variable, value in terms]
        self.lower.append(lower)
        self.upper.append(upper)
        return index

    def matrix(self) -> sparse.csc_array:
        rows, columns, values = zip(*self.triplets, strict=True) if self.triplets else ((), (), ())
        shape = (len(self.lower), self.variables)
        return sparse.csc_array(sparse.coo_array((values, (rows, columns)), shape=shape, dtype=np.float64))


@dataclass(frozen=True)
class Layout:
    """Indices of the variables that no model owns."""

    data: ProgramData
    reserved: Mapping[int, int]
    """Lot to variable, for lots that are paid every hour."""
    moved: Mapping[tuple[int, str], int]
    total: Mapping[tuple[int, int], int]
    """(supply, period) to the instances that run and are paid for it, for supplies of several GPUs an instance."""
    total_reserved: Mapping[int, int]
    """Supply to the instances that are reserved in all, for the same supplies where some are."""

    def x(self, lot: int, period: int) -> int:
        """Variable of a lot's running instances."""
        return lot * len(self.data.periods) + period

    @property
    def variables(self) -> int:
        """How many there are."""
        own = len(self.reserved) + len(self.moved) + len(self.total) + len(self.total_reserved)
        return len(self.data.lots) * len(self.data.periods) + own

    def spend(self) -> list[tuple[int, float]]:
        """Cost of the horizon as terms, sunk cost aside."""
        data = self.data
        terms = [
            (self.x(o, t), lot.used_usd_per_h * period.hours)
            for (o, lot), (t, period) in product(enumerate(data.lots), enumerate(data.periods))
            if lot.used_usd_per_h
        ]
        return terms + [(v, data.lots[o].reserved_usd_per_h * data.hours) for o, v in self.reserved.items()]


def layout_of(data: ProgramData, table: ColumnTable) -> Layout:
    """Variables: x by lot and period, X of lots that are paid every hour, u where movement is limited, and totals."""
    first = len(data.lots) * len(data.periods)
    reserved = {o: first + i for i, o in enumerate(o for o, lot in enumerate(data.lots) if lot.reserved_usd_per_h > 0)}
    pairs: list[tuple[int, str]] = []
    if data.movement is not None:
        gpu = np.array([p.gpu for p in table.placements])[table.part_placement]
        pairs = sorted({(int(m), str(g)) for m, g in zip(table.model[table.part_column], gpu, strict=True)})
    whole = [g for g, supply in enumerate(data.supplies) if supply.gpus_per_instance > 1]
    committed = {data.lots[o].supply for o in reserved}
    first += len(reserved)
    moved = {pair: first + i for i, pair in enumerate(pairs)}
    first += len(moved)
    total = {key: first + i for i, key in enumerate(product(whole, range(len(data.periods))))}
    first += len(total)
    total_reserved = {g: first + i for i, g in enumerate(g for g in whole if data.supplies[g].id in committed)}
    return Layout(data, reserved, moved, total, total_reserved)


def rows_of(data: ProgramData, table: ColumnTable) -> Rows:
    """All rows that no model owns."""
    layout = layout_of(data, table)
    builder = _Builder(layout.variables)
    node = _node_rows(builder, layout, table)
    _reserved_rows(builder, layout)
    _quota_rows(builder, layout)
    _cap_rows(builder, layout)
    moved = _moved_rows(builder, layout)
    _total_rows(builder, layout)
    cost = np.zeros(layout.variables)
    for variable, usd in layout.spend():
        cost[variable] += usd
    return Rows(
        matrix=builder.matrix(),
        lower=np.array(builder.lower),
        upper=np.array(builder.upper),
        cost=cost,
        most=_most(layout, table),
        node=node,
        moved=moved,
        busiest=_busiest(data, table),
        layout=layout,
    )


def degrees_on(supply: Supply, placements: Sequence[Placement]) -> list[int]:
    """Degrees that give node rows on a supply: those that fit an instance, and 1 where a replica is larger than one."""
    each = {p.gpus_per_replica for p in placements if can_stand(p, supply)}
    fit = {d for d in each if d <= supply.gpus_per_instance}
    return sorted(fit | ({1} if each - fit else set()))


def taken(supply: Supply, degree: int, gpus_per_replica: int) -> float:
    """GPUs of a node row (supply, degree) that one replica takes: its own, or the room of the instances it fills.

    In blocks of ``degree``, for an instance of S GPUs holds floor(S / degree) of them whatever the replicas' sizes.
    """
    if gpus_per_replica < degree:
        return 0.0
    if gpus_per_replica <= supply.gpus_per_instance:
        return float(gpus_per_replica // degree * degree)
    return float(gpus_per_replica // supply.gpus_per_instance * room(supply, degree))


def _node_rows(builder: _Builder, layout: Layout, table: ColumnTable) -> dict[tuple[int, int, int], int]:
    """GPUs of replicas of at least ``degree``  <=  usable share * room * sum of x; replicas are added later."""
    data = layout.data
    rows: dict[tuple[int, int, int], int] = {}
    for g, supply in enumerate(data.supplies):
        lots = [o for o, lot in enumerate(data.lots) if lot.supply == supply.id]
        for degree, t in product(degrees_on(supply, table.placements), range(len(data.periods))):
            gives = -supply.usable_share * room(supply, degree)
            rows[g, degree, t] = builder.row([(layout.x(o, t), gives) for o in lots], -np.inf, 0.0)
    return rows


def _reserved_rows(builder: _Builder, layout: Layout) -> None:
    """x[o, t] <= X[o]."""
    for o, variable in layout.reserved.items():
        for t in range(len(layout.data.periods)):
            builder.row([(layout.x(o, t), 1.0), (variable, -1.0)], -np.inf, 0.0)


def _quota_rows(builder: _Builder, layout: Layout) -> None:
    """GPUs of the lots that a quota covers, in every period; existing commitments count as they are."""
    data = layout.data
    for quota in data.quotas:
        covered = [o for o, lot in enumerate(data.lots) if quota_covers(quota, lot.offer)]
        lots = [o for o in covered if data.lots[o].kind is not LotKind.EXISTING_COMMITMENT]
        for t in range(len(data.periods)):
            terms = [(layout.reserved.get(o, layout.x(o, t)), float(data.lots[o].gpus_per_instance)) for o in lots]
            builder.row(terms, -np.inf, float(quota.max_gpus - held_gpus([data.lots[o] for o in covered], t)))


def _cap_rows(builder: _Builder, layout: Layout) -> None:
    """Budget, power, carbon and liability, where the request caps them."""
    data, caps = layout.data, layout.data.caps
    if caps.budget_usd is not None:
        builder.row(layout.spend(), -np.inf, caps.budget_usd - sum(lot.sunk_usd for lot in data.lots))
    if caps.power_kw is not None:
        for t in range(len(data.periods)):
            terms = [(layout.x(o, t), lot.power_kw) for o, lot in enumerate(data.lots) if lot.power_kw]
            builder.row(terms, -np.inf, caps.power_kw)
    if caps.carbon_kg is not None:
        terms = [
            (layout.x(o, t), lot.carbon_kg_per_h * period.hours)
            for (o, lot), (t, period) in product(enumerate(data.lots), enumerate(data.periods))
            if lot.carbon_kg_per_h
        ]
        builder.row(terms, -np.inf, caps.carbon_kg)
    if caps.liability_usd is not None:
        terms = [(v, data.lots[o].liability_after_usd) for o, v in layout.reserved.items()]
        builder.row(terms, -np.inf, caps.liability_usd)


def _moved_rows(builder: _Builder, layout: Layout) -> dict[tuple[int, str], int]:
    """u[m, gpu] >= GPUs of m on gpu in its busiest period − last quarter's;  sum of u <= most moved."""
    movement = layout.data.movement
    if movement is None:
        return {}
    rows = {}
    for (model, gpu), variable in layout.moved.items():
        last = movement.last_gpus.get((layout.data.models[model], gpu), 0)
        rows[model, gpu] = builder.row([(variable, 1.0)], -float(last), np.inf)
    builder.row([(variable, 1.0) for variable in layout.moved.values()], -np.inf, float(movement.max_moved_gpus))
    return rows


def _total_rows(builder: _Builder, layout: Layout) -> None:
    """total[g, t] = sum of x over the lots of a supply that are paid as they run, and the sum of X: both are whole."""
    data = layout.data
    for (g, t), variable in layout.total.items():
        name = data.supplies[g].id
        lots = [o for o, lot in enumerate(data.lots) if lot.supply == name and lot.used_usd_per_h > 0]
        builder.row([(variable, -1.0), *((layout.x(o, t), 1.0) for o in lots)], 0.0, 0.0)
    for g, variable in layout.total_reserved.items():
        terms = [(v, 1.0) for o, v in layout.reserved.items() if data.lots[o].supply == data.supplies[g].id]
        builder.row([(variable, -1.0), *terms], 0.0, 0.0)


def _busiest(data: ProgramData, table: ColumnTable) -> IntArray:
    """Period in which a model's columns run the most GPUs in all."""
    total = np.zeros((len(data.models), len(data.periods)))
    np.add.at(total, table.model[table.part_column], table.part_gpus)
    busiest: IntArray = np.argmax(total, axis=1).astype(np.int64)
    return busiest


def _most(layout: Layout, table: ColumnTable) -> FloatArray:
    """Upper bounds that some optimal fleet keeps: no more instances than replicas of all slices at their largest."""
    data = layout.data
    largest = table.running.max(axis=1, initial=0.0)
    by_arc: dict[tuple[int, int, int], float] = {}
    nodes = np.stack([table.model, table.start, table.end], axis=1)[table.part_column]
    gpus = table.part_gpus.max(axis=1, initial=0.0)
    for key, count in zip(map(tuple, nodes.tolist()), np.maximum(largest, gpus).tolist(), strict=True):
        by_arc[key] = max(by_arc.get(key, 0.0), count)
    share = min((s.usable_share for s in data.supplies), default=1.0)
    everything = 2.0 * sum(by_arc.values()) * max(1, int(table.pools.max(initial=1))) / share + 1.0
    most = np.full(layout.variables, everything)
    for (o, lot), t in product(enumerate(data.lots), range(len(data.periods))):
        if lot.available is not None:
            most[layout.x(o, t)] = min(float(lot.available[t]), everything)
    for o, variable in layout.reserved.items():
        available: Lot = data.lots[o]
        if available.available is not None:
            most[variable] = min(float(max(available.available)), everything)
    for total in (*layout.total.values(), *layout.total_reserved.values()):
        most[total] = everything * max(1, len(data.lots))
    return most
