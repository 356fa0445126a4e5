"""Lower bound of a large fleet by column generation: few columns in a linear program, all columns in the proof.

The relaxed program holds the columns offered so far. Its duals price replicas; at those prices every model's cheapest
route over ALL columns is found, the routes give a valid bound (see `master`), and what is cheap is offered next. It
ends when the relaxed program's value and the best bound meet.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import highspy
import numpy as np

from planner.errors import SolverError
from planner.optimise.solve.master import Rows, degrees_on, rows_of, taken
from planner.optimise.solve.paths import RouteGraph, Routes
from planner.optimise.solve.solvers import fresh_threads, silent_stdout
from planner.optimise.solve.table import BoolArray, ColumnTable, IntArray
from planner.optimise.supply.supplies import can_stand, room
from planner.optimise.types import ProgramData
from planner.traffic.types import FloatArray

LEAST_REGIONS = 2
IDLE_GPUS = 1e-3
STAND_IN = 20.0
"""Cost of a stand-in, in costs of the dearest model."""
NO_ROUTE = float("inf")
PRESENT = 1e-7
NO_PRICE = 1e30
"""Stands for the price of a replica that can stand nowhere."""


@dataclass(frozen=True)
class Bound:
    """What the relaxation proves, over all columns."""

    usd: float
    """At most the cost (with the worth of lost tokens, without sunk cost) of every fleet; −inf where nothing is."""
    slack: FloatArray
    """Every fleet with column c costs at least ``usd + slack[c]``, shape (C,)."""
    offered: IntArray
    """Columns that the relaxed program held at the end."""
    basic: IntArray
    """Columns that its solution uses."""
    relaxed_usd: float
    """Value of the relaxed program over the columns offered; the bound cannot rise above it by offering more."""
    short: float
    """Stand-ins in the solution of the relaxed program; above 0, most likely no fleet is feasible."""
    rounds: int


class Relaxation:
    """The relaxed program, which grows by columns."""

    def __init__(
        self,
        data: ProgramData,
        table: ColumnTable,
        usd_per_token: float,
        threads: int,
        seed: int,
        *,
        feasibility: bool = False,
    ) -> None:
        self._data, self._table, self._feasibility = data, table, feasibility
        rows = rows_of(data, table)
        self.rows: Rows = replace(rows, cost=np.zeros_like(rows.cost)) if feasibility else rows
        self.graph = RouteGraph(table, data)
        self._part_first = np.searchsorted(table.part_column, np.arange(len(table) + 1))
        self._worth = usd_per_token * table.lost_tokens
        self._stands = [
            [g for g, supply in enumerate(data.supplies) if can_stand(placement, supply)]
            for placement in table.placements
        ]
        self._degrees = [degrees_on(supply, table.placements) for supply in data.supplies]
        self._regions = sorted({supply.region for supply in data.supplies})
        self._place: dict[int, int] = {}
        self._offered = np.zeros(len(table), dtype=bool)
        self._allowed = np.ones(len(table), dtype=bool)
        self._lower, self._upper = np.zeros(len(rows.cost)), rows.most
        self._y_order: list[int] = []
        self._y_first: list[int] = []
        self._threads, self._seed = threads, seed
        fresh_threads()
        self._highs: Any = highspy.Highs()  # type: ignore[no-untyped-call]
        for name, value in (("output_flag", False), ("threads", threads), ("random_seed", seed)):
            self._highs.setOptionValue(name, value)
        self._idle: list[tuple[int, float]] = []

    # ---------------------------------------------------------------- prices

    def first_routes(self) -> Routes:
        """Cheapest routes at list prices: the cheapest lot's GPU-hours."""
        data, per_gpu = self._data, self._list_prices()
        cost = np.full((len(self._table.placements), len(data.supplies), len(data.periods)), np.inf)
        for k, placement in enumerate(self._table.placements):
            for g in self._stands[k]:
                size, each = data.supplies[g].gpus_per_instance, placement.gpus_per_replica
                cost[k, g] = per_gpu[g] * each * size / room(data.supplies[g], each)
        return self.graph.routes(self._column_costs(self._prices(cost), {}))

    def _list_prices(self) -> FloatArray:
        """USD per GPU and period of each supply's cheapest lot, shape (G, T); infinite where there is none."""
        data = self._data
        hours = np.array([period.hours for period in data.periods])
        per_gpu = np.full((len(data.supplies), hours.size), np.inf)
        for g, supply in enumerate(data.supplies):
            for lot in (lot for lot in data.lots if lot.supply == supply.id):
                usd = (lot.used_usd_per_h + lot.reserved_usd_per_h) * hours / lot.gpus_per_instance
                per_gpu[g] = np.minimum(per_gpu[g], usd / supply.usable_share)
        return per_gpu

    def _standing(self, node_dual: dict[tuple[int, int], FloatArray]) -> FloatArray:
        """Cost of one replica of placement k on supply g in period t at node duals (supply, degree) -> (T,)."""
        data = self._data
        cost = np.full((len(self._table.placements), len(data.supplies), len(data.periods)), np.inf)
        for k, placement in enumerate(self._table.placements):
            for g in self._stands[k]:
                total = np.zeros(len(data.periods))
                for degree in self._degrees[g]:
                    gpus = taken(data.supplies[g], degree, placement.gpus_per_replica)
                    if gpus:
                        total += gpus * node_dual[g, degree]
                cost[k, g] = total
        return cost

    def _prices(self, standing: FloatArray) -> FloatArray:
        """Least cost of one needed replica, shape (K, T); with spread, of enough replicas to lose any one region.

        With regional costs c1 <= c2 <= ..., the j cheapest regions hold 1 / (j − 1) each:  min over j >= 2 of
        (c1 + ... + cj) / (j − 1).
        """
        prices: FloatArray = standing.min(axis=1)
        regions = np.array([supply.region for supply in self._data.supplies])
        for k, placement in enumerate(self._table.placements):
            if placement.spread:
                cheapest = [standing[k, regions == region].min(axis=0) for region in self._regions]
                prices[k] = spread_price(np.stack(cheapest))
        return prices

    def _column_costs(self, prices: FloatArray, moved_dual: dict[tuple[int, str], float]) -> FloatArray:
        """Cost of each column at prices of replicas, the worth of lost tokens included, shape (C,)."""
        table = self._table
        part = np.einsum("pt,pt->p", table.running, np.minimum(prices, NO_PRICE)[table.part_placement])
        part[part >= NO_PRICE] = np.inf
        if any(moved_dual.values()):
            part += self._moved_costs(moved_dual)
        cost: FloatArray = self._worth + np.bincount(table.part_column, weights=part, minlength=len(table))
        return np.where(self._allowed, cost, np.inf)

    def _moved_costs(self, moved_dual: dict[tuple[int, str], float]) -> FloatArray:
        table = self._table
        model = table.model[table.part_column]
        gpu = [table.placements[k].gpu for k in table.part_placement]
        dual = np.array([moved_dual.get((int(m), g), 0.0) for m, g in zip(model, gpu, strict=True)])
        moved: FloatArray = dual * table.part_gpus[np.arange(len(model)), self.rows.busiest[model]]
        return moved

    # ---------------------------------------------------------------- the linear program

    def begin(self, dear: float) -> None:
        """Rows and the variables that no model owns; a dear stand-in serves a model that has no route yet."""
        rows, data = self.rows, self._data
        highs = self._highs
        highs.addVars(len(rows.cost), np.zeros(len(rows.cost)), rows.most)
        highs.changeColsCost(len(rows.cost), np.arange(len(rows.cost), dtype=np.int32), rows.cost)
        matrix = rows.matrix.tocsr()
        highs.addRows(
            len(rows.lower), rows.lower, rows.upper, matrix.nnz,
            matrix.indptr[:-1].astype(np.int32), matrix.indices.astype(np.int32), matrix.data,
        )  # fmt: skip
        self._route_row = len(rows.lower)
        self._nodes = max(data.end_node.values(), default=0)
        none = np.zeros(0, dtype=np.int32)
        for model in data.models:
            for node in range(self._nodes):
                side = 1.0 if node == 0 and data.end_node[model] > 0 else 0.0
                highs.addRow(side, side, 0, none, np.zeros(0))
        self._pool_row = self._route_row + self._nodes * len(data.models)
        for model in data.models:
            highs.addRow(-np.inf, float(data.max_pools[model]), 0, none, np.zeros(0))
        for index in range(len(data.models)):
            row = np.array([self._route_row + index * self._nodes], dtype=np.int32)
            highs.addCol(1.0 if self._feasibility else dear, 0.0, np.inf, 1, row, np.ones(1))
        self._stand_ins = len(rows.cost)
        self._ask_for_idle_gpus()

    def _ask_for_idle_gpus(self) -> None:
        """A trace of demand on every supply, worth ten times its list price: else what no column uses yet costs 0."""
        per_gpu = self._list_prices()
        if self._feasibility:
            return
        for (g, degrees), t in product(enumerate(self._degrees), range(len(self._data.periods))):
            if degrees and np.isfinite(per_gpu[g, t]):
                row = np.array([self.rows.node[g, degrees[0], t]], dtype=np.int32)
                worth = 10.0 * float(per_gpu[g, t]) + 1e-6
                self._idle.append((self._highs.getNumCol(), worth))
                self._highs.addCol(-worth, 0.0, IDLE_GPUS, 1, row, np.ones(1))

    def _place_rows(self, k: int) -> None:
        """Rows and replicas of one placement:  sum_g r[k, g, t]  >=  running of the columns; per region with spread."""
        data, placement = self._data, self._table.placements[k]
        periods = len(data.periods)
        first = self._highs.getNumRow()
        lost = self._regions if placement.spread else [None]
        none = np.zeros(0, dtype=np.int32)
        for _ in product(lost, range(periods)):
            self._highs.addRow(0.0, np.inf, 0, none, np.zeros(0))
        self._place[k] = first
        for g, t in product(self._stands[k], range(periods)):
            supply = data.supplies[g]
            terms = [
                (first + q * periods + t, 1.0)
                for q, region in enumerate(lost)
                if region is None or supply.region != region
            ]
            for degree in self._degrees[g]:
                gpus = taken(supply, degree, placement.gpus_per_replica)
                if gpus:
                    terms.append((self.rows.node[g, degree, t], gpus))
            self._add(0.0, terms)

    def _add(self, cost: float, terms: Sequence[tuple[int, float]]) -> None:
        index = np.array([row for row, _ in terms], dtype=np.int32)
        value = np.array([value for _, value in terms])
        self._highs.addCol(cost, 0.0, np.inf, len(terms), index, value)

    def offer(self, columns: IntArray) -> int:
        """Add columns that are not held yet; how many were new."""
        new = columns[~self._offered[columns]]
        for k in sorted({int(k) for c in new for k in self._table.part_placement[self._parts(c)]}):
            if k not in self._place:
                self._place_rows(k)
        for c in new:
            self._y_order.append(int(c))
            self._y_first.append(self._highs.getNumCol())
            self._add(float(self._worth[c]), self._column_terms(int(c)))
        self._offered[new] = True
        return int(new.size)

    def _parts(self, column: int) -> slice:
        return slice(int(self._part_first[column]), int(self._part_first[column + 1]))

    def _column_terms(self, c: int) -> list[tuple[int, float]]:
        table, data = self._table, self._data
        model, periods = int(table.model[c]), len(data.periods)
        name = data.models[model]
        terms: dict[int, float] = {self._route_row + model * self._nodes + int(table.start[c]): 1.0}
        if int(table.end[c]) < data.end_node[name]:
            terms[self._route_row + model * self._nodes + int(table.end[c])] = -1.0
        terms[self._pool_row + model] = float(table.pools[c])
        for p in range(*self._parts(c).indices(len(table.part_column))):
            k = int(table.part_placement[p])
            placement = table.placements[k]
            lost = len(self._regions) if placement.spread else 1
            for q, t in product(range(lost), range(periods)):
                if table.running[p, t]:
                    row = self._place[k] + q * periods + t
                    terms[row] = terms.get(row, 0.0) - float(table.running[p, t])
            row_moved = self.rows.moved.get((model, placement.gpu))
            if row_moved is not None:
                gpus = float(table.running[p, self.rows.busiest[model]]) * placement.gpus_per_replica
                terms[row_moved] = terms.get(row_moved, 0.0) - gpus
        return list(terms.items())

    def solve(self) -> tuple[float, FloatArray]:
        """Value of the relaxed program and its row duals."""
        self._highs.run()
        return self._solution()

    def _solution(self) -> tuple[float, FloatArray]:
        highs = self._highs
        status = highs.getModelStatus()
        if status != highspy.HighsModelStatus.kOptimal:
            raise SolverError(f"HiGHS could not solve the relaxation ({highs.modelStatusToString(status)})")
        solution = highs.getSolution()
        idle = sum(worth * solution.col_value[variable] for variable, worth in self._idle)
        return float(highs.getObjectiveValue()) + idle, np.array(solution.row_dual)

    def start(self, routes: Routes, columns: IntArray) -> None:
        """The program with the columns near the first routes and others that are known to be good."""
        self.begin(STAND_IN * float(routes.cost.max()) + 1.0)
        near = self.graph.cheapest(routes, 0.02 * float(routes.cost.mean()), 12)
        self.offer(np.concatenate([near, columns]))

    def near(self, routes: Routes, value: float) -> IntArray:
        """Columns to offer next: those near a cheapest route."""
        return self.graph.cheapest(routes, 0.002 * abs(value) / routes.cost.size, 8)

    def restrict(self, lower: FloatArray, upper: FloatArray, allowed: BoolArray) -> None:
        """Bounds of the variables that no model owns, and the columns that may be used, in program and proof."""
        index = np.flatnonzero((lower != self._lower) | (upper != self._upper)).astype(np.int32)
        self._highs.changeColsBounds(index.size, index, lower[index], upper[index])
        order = np.array(self._y_order, dtype=np.int64)
        changed = allowed[order] != self._allowed[order]
        most = np.where(allowed[order[changed]], np.inf, 0.0)
        where = np.array(self._y_first, dtype=np.int32)[changed]
        self._highs.changeColsBounds(where.size, where, np.zeros(where.size), most)
        self._lower, self._upper, self._allowed = lower, upper, allowed

    def solve_restricted(self) -> tuple[float, FloatArray, FloatArray] | None:
        """Value, row duals and the variables that no model owns; ``None`` where the bounds break a row."""
        self._highs.run()
        if self._highs.getModelStatus() == highspy.HighsModelStatus.kInfeasible:
            return None
        value, dual = self._solution()
        return value, dual, np.array(self._highs.getSolution().col_value)[: len(self.rows.cost)]

    def shares(self) -> tuple[IntArray, FloatArray]:
        """Columns offered and how much of each is used."""
        solution = np.array(self._highs.getSolution().col_value)
        return np.array(self._y_order, dtype=np.int64), solution[np.array(self._y_first, dtype=np.int64)]

    def used(self) -> tuple[IntArray, IntArray, float]:
        """Columns offered, those that the solution uses, and the stand-ins that it uses."""
        solution = np.array(self._highs.getSolution().col_value)
        order, share = self.shares()
        stand_ins = solution[self._stand_ins : self._stand_ins + len(self._data.models)]
        basic = np.sort(order[share > PRESENT])
        return np.sort(order), basic, float(stand_ins[stand_ins > PRESENT].sum())

    def lagrange(self, dual: FloatArray) -> tuple[float, Routes]:
        """The bound at row duals, with the routes that make it."""
        rows = self.rows
        own = dual[: len(rows.lower)].copy()
        own[np.isneginf(rows.lower) & (own > 0)] = 0.0
        own[np.isposinf(rows.upper) & (own < 0)] = 0.0
        reduced = rows.cost - rows.matrix.T @ own
        side = np.where(own > 0, rows.lower, rows.upper)
        rest = float(own[own != 0] @ side[own != 0]) + float(
            np.minimum(reduced * self._lower, reduced * self._upper).sum()
        )
        periods = range(len(self._data.periods))
        node = {
            (g, degree): -np.array([own[rows.node[g, degree, t]] for t in periods])
            for g, degrees in enumerate(self._degrees)
            for degree in degrees
        }
        moved = {key: float(own[row]) for key, row in rows.moved.items()}
        routes = self.graph.routes(self._column_costs(self._prices(self._standing(node)), moved))
        return rest + float(routes.cost.sum()), routes


def spread_price(regional: FloatArray) -> FloatArray:
    """Least cost per needed replica that leaves one after the loss of any region, for regional costs (regions, T)."""
    if len(regional) < LEAST_REGIONS:
        return np.full(regional.shape[1], np.inf)
    total = np.cumsum(np.sort(regional, axis=0), axis=0)[1:]
    price: FloatArray = (total / np.arange(1, len(regional))[:, None]).min(axis=0)
    return price


def lower_bound(
    data: ProgramData,
    table: ColumnTable,
    usd_per_token: float,
    *,
    tolerance: float,
    time_limit_s: float,
    threads: int,
    seed: int,
    start: IntArray,
) -> Bound:
    """Column generation until value and bound are within ``tolerance`` of each other, or time is up.

    Raises
    ------
    SolverError
        If the relaxed program cannot be solved.
    """
    with silent_stdout():
        relaxation = Relaxation(data, table, usd_per_token, threads, seed)
        return _generate(relaxation, start, tolerance, time_limit_s)


def relaxed_feasible(
    data: ProgramData, table: ColumnTable, *, time_limit_s: float, threads: int, seed: int, start: IntArray
) -> Bound:
    """The same with every cost taken away but that of stand-ins, 1 each: a bound above 0 proves that no fleet exists.

    Raises
    ------
    SolverError
        If the relaxed program cannot be solved.
    """
    with silent_stdout():
        relaxation = Relaxation(data, table, 0.0, threads, seed, feasibility=True)
        return _generate(relaxation, start, 1e-3, time_limit_s)


def _generate(relaxation: Relaxation, start: IntArray, tolerance: float, time_limit_s: float) -> Bound:
    ends = time.monotonic() + time_limit_s
    none: IntArray = np.zeros(0, dtype=np.int64)
    routes = relaxation.first_routes()
    usd, slack = -np.inf, np.zeros_like(routes.slack)
    if not np.isfinite(routes.cost).all():
        return Bound(usd, slack, none, none, np.inf, NO_ROUTE, 0)
    relaxation.start(routes, start)
    rounds = 0
    while True:
        rounds += 1
        value, dual = relaxation.solve()
        found, routes = relaxation.lagrange(dual)
        if found > usd:
            usd, slack = found, routes.slack
        if value - usd <= tolerance * abs(value) or time.monotonic() > ends:
            break
        if not relaxation.offer(relaxation.near(routes, value)):
            break
    offered, basic, short = relaxation.used()
    return Bound(usd, slack, offered, basic, value, short, rounds)
