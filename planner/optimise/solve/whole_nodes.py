"""A bound that buys instances whole: branch and bound on instance counts, with the columns still shared freely.

The relaxation pays for the share of an instance that is used. Here the instances of each supply, in a period and
reserved, must be whole; columns may still be mixed. Every node of the search is the relaxed program within bounds on
counts, priced over ALL columns, so that its bound is a proof (see `master`):

    bound = min over open nodes of (rhs * duals + sum of min(reduced cost * lower, reduced cost * upper) + routes)

A column whose fleets cost at least ``target`` in every node is in no better fleet, and is left out below that node.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from planner.optimise.solve.clock import Clock
from planner.optimise.solve.relaxation import Relaxation
from planner.optimise.solve.solvers import silent_stdout
from planner.optimise.solve.table import BoolArray, ColumnTable, IntArray
from planner.optimise.types import ProgramData
from planner.traffic.types import FloatArray

Step: TypeAlias = tuple[int, bool, float]
Bits = npt.NDArray[np.uint8]

WHOLE = 2e-3
"""How far from whole a count may be; the trace of demand on every supply makes it up to 1e-3 of an instance more."""
CLOSE = 2e-4
"""A node is priced until its value and its bound are this close, as a share."""
WITHIN = 0.999
"""Share of the gap that a bound is to prove, so that no rounding error keeps it from being enough."""
MOST_ROUNDS = 12
"""Rounds of pricing in one node."""
FIRST_GAIN = 0.2
"""Rise of the bound per branch before anything is known, as a share of an instance's price."""
DIVE_EVERY = 30
"""Of so many nodes one is followed down to a whole point."""
TYPE_GAIN, COLUMN_GAIN = 0.03, 0.01
"""The same for branches on a model, as a share of its cost."""


@dataclass(frozen=True)
class WholeBound:
    """What whole instances prove."""

    usd: float
    """At most the cost of every fleet; the target where all nodes are closed."""
    allowed: BoolArray
    """Columns that a fleet cheaper than the target may use, shape (C,)."""
    plan: IntArray
    """Columns of the cheapest whole point that was met, empty where none was."""
    plan_usd: float
    """What that point costs."""
    target: float
    """The target at the end: columns that are not allowed are in no fleet cheaper than it."""
    nodes: int


@dataclass(order=True)
class _Node:
    usd: float
    number: int
    lower: FloatArray = field(compare=False)
    upper: FloatArray = field(compare=False)
    allowed: Bits = field(compare=False)
    """Columns that may be used below it, packed."""
    branch: Step | None = field(compare=False, default=None)
    """What was branched on, whether upwards, and how far it was from whole."""


class WholeSearch:
    """Branch on instance counts until the bound is the target, nothing is left to branch on, or a turn is over.

    Open nodes stay between turns, cheapest first, with what each kind of branch has gained so far. A turn may have a
    lower target than the one before: what was closed stays closed.

    Parameters
    ----------
    gap
        Share by which the target lies below the cost of a plan, for cheaper plans that are found on the way.
    start
        Columns to begin from, such as those of the relaxation and of a good plan.
    """

    def __init__(
        self, data: ProgramData, table: ColumnTable, usd_per_token: float, *, gap: float, threads: int, seed: int,
        start: IntArray,
    ) -> None:  # fmt: skip
        with silent_stdout():
            self._relaxation = Relaxation(data, table, usd_per_token, threads, seed)
            routes = self._relaxation.first_routes()
            self._possible = bool(np.isfinite(routes.cost).all())
            if self._possible:
                self._relaxation.start(routes, start)
        self._columns, self._gap_asked = len(table), gap
        self._price = _prices(data, self._relaxation)
        self._models = ModelSplits(table, len(data.models))
        # Branches: on each count, on the GPU types of each model, on the column of each model.
        self._first = np.concatenate([FIRST_GAIN * self._price, TYPE_GAIN * routes.cost, COLUMN_GAIN * routes.cost])
        self._gain, self._tries = np.zeros((2, self._first.size)), np.zeros((2, self._first.size))
        self._open: list[_Node] = []
        self._stuck: list[_Node] = []
        self._number = self._visited = 0
        self._target, self._clock, self._cheapest = np.inf, Clock.of(0.0), np.inf
        self._plan: IntArray = np.zeros(0, dtype=np.int64)

    @property
    def goes_on(self) -> bool:
        """Whether there is anything left to branch on, and nothing that cannot be branched is cheaper."""
        return self._possible and (self._visited == 0 or (bool(self._open) and not self._proven_enough()))

    def run(self, target: float, nodes: int, clock: Clock) -> WholeBound:
        """One turn of so many nodes.

        Parameters
        ----------
        target
            Cost (USD) that is to be proven: nodes that cost as much are closed.
        """
        if not self._possible:
            return WholeBound(-np.inf, np.ones(self._columns, dtype=bool), self._plan, np.inf, -np.inf, 0)
        self._target, self._clock = min(self._target, target), clock
        until = self._number + nodes
        with silent_stdout():
            if not self._visited:
                rows = self._relaxation.rows
                everything = np.ones(self._columns, dtype=bool)
                self._open.append(self._node(-np.inf, np.zeros(rows.cost.size), rows.most, everything, None))
            while self._open and clock.left_s > 0.0 and self._number < until and not self._proven_enough():
                self._descend(heapq.heappop(self._open), self._visited % DIVE_EVERY == 0)
                self._visited += 1
        left = [node for node in (*self._open, *self._stuck) if node.usd < self._target]
        allowed = np.zeros(self._columns, dtype=bool)
        for node in left:
            allowed |= _unpacked(node.allowed, self._columns)
        usd = min((node.usd for node in left), default=self._target)
        return WholeBound(min(usd, self._target), allowed, self._plan, self._cheapest, self._target, self._number)

    def _descend(self, node: _Node, dive: bool) -> None:
        """Price a node; in a dive go on with its likelier child until there is none, else leave both open."""
        while True:
            children = self._visit(node)
            dive = dive and bool(children) and self._clock.left_s > 0.0
            if dive:
                node, *children = children
            for child in children:
                heapq.heappush(self._open, child)
            if not dive:
                return

    def _proven_enough(self) -> bool:
        """Whether no open node is cheaper than the target, or than a node that cannot be branched any more."""
        return self._open[0].usd >= min([self._target, *(node.usd for node in self._stuck)])

    def _node(
        self, usd: float, lower: FloatArray, upper: FloatArray, allowed: BoolArray, branch: Step | None
    ) -> _Node:  # fmt: skip
        self._number += 1
        return _Node(usd, self._number, lower, upper, np.packbits(allowed), branch)

    def _visit(self, node: _Node) -> list[_Node]:
        """Price a node; its children, the likelier first, or none where it is closed or whole."""
        allowed = _unpacked(node.allowed, self._columns)
        self._relaxation.restrict(node.lower, node.upper, allowed)
        before, counts, value = node.usd, np.zeros(0), np.inf
        for _ in range(MOST_ROUNDS):
            solved = self._relaxation.solve_restricted()
            if solved is None:
                return []
            value, dual, counts = solved
            found, routes = self._relaxation.lagrange(dual)
            node.usd = max(node.usd, found)
            allowed = allowed & (found + routes.slack < self._target)
            if node.usd >= self._target or value - node.usd <= CLOSE * abs(value):
                break
            if not self._relaxation.offer(self._relaxation.near(routes, value)):
                break
        self._learn(node, before)
        if node.usd >= self._target:
            return []
        node.allowed = np.packbits(allowed)
        return self._branch(node, counts, allowed, value)

    def _learn(self, node: _Node, before: float) -> None:
        if node.branch is not None and np.isfinite(before):
            kind, up, far = node.branch
            self._gain[int(up), kind] += max(0.0, min(node.usd, self._target) - before) / far
            self._tries[int(up), kind] += 1

    def _branch(self, node: _Node, counts: FloatArray, allowed: BoolArray, value: float) -> list[_Node]:
        """Two nodes for one, by the count or the model that promises the most."""
        down = counts - np.floor(counts)
        far = np.where((down > WHOLE) & (down < 1 - WHOLE) & (self._price > 0), down, 0.0)
        types, columns = self._models.weights(*self._relaxation.shares())
        far = np.concatenate([far, types, columns])
        if not far.any():
            self._settle(node, value)
            return []
        rise = (self._gain + self._first) / (self._tries + 1.0)
        score = np.where(far > 0, np.maximum(rise[0] * far, 1e-9) * np.maximum(rise[1] * (1 - far), 1e-9), 0.0)
        kind = int(np.argmax(score))
        steps = (kind, False, far[kind]), (kind, True, 1.0 - far[kind])
        if kind < counts.size:
            fewer, more = node.upper.copy(), node.lower.copy()
            fewer[kind], more[kind] = np.floor(counts[kind]), np.floor(counts[kind]) + 1.0
            children = [
                self._node(node.usd, node.lower, fewer, allowed, steps[0]),
                self._node(node.usd, more, node.upper, allowed, steps[1]),
            ]
        else:
            without, only = self._models.split(kind - counts.size)
            children = [
                self._node(node.usd, node.lower, node.upper, allowed & ~without, steps[0]),
                self._node(node.usd, node.lower, node.upper, allowed & ~only, steps[1]),
            ]
        return children if far[kind] < 0.5 else children[::-1]

    def _settle(self, node: _Node, value: float) -> None:
        """A whole point: its columns are a plan, and what costs more than it less the gap is of no more interest."""
        self._stuck.append(node)
        if value < self._cheapest:
            order, share = self._relaxation.shares()
            self._cheapest, self._plan = value, np.sort(order[share > 0.5])
            self._target = min(self._target, (1.0 - WITHIN * self._gap_asked) * value)


class ModelSplits:
    """Two sets of the columns at the beginning of a model's routes: every route uses one column of them."""

    def __init__(self, table: ColumnTable, models: int) -> None:
        self._models, self._model = models, table.model
        self._first = table.start == 0
        gpus: list[set[str]] = [set() for _ in range(len(table))]
        for column, k in zip(table.part_column.tolist(), table.part_placement.tolist(), strict=True):
            gpus[column].add(table.placements[k].gpu)
        names = [tuple(sorted(found)) for found in gpus]
        number = {name: i for i, name in enumerate(sorted(set(names)))}
        self._types = np.array([number[name] for name in names], dtype=np.int64)
        self._kinds = len(number)
        self._heaviest_type = self._heaviest = np.zeros(models, dtype=np.int64)

    def weights(self, order: IntArray, share: FloatArray) -> tuple[FloatArray, FloatArray]:
        """How much of each model the GPU types that serve most of it serve, and the column; 0 where that is all."""
        first = self._first[order]
        order, share = order[first], share[first]
        by_type = np.zeros((self._models, self._kinds))
        np.add.at(by_type, (self._model[order], self._types[order]), share)
        self._heaviest_type = np.argmax(by_type, axis=1)
        types, served = by_type.max(axis=1), by_type.sum(axis=1)  # a stand-in may serve the rest
        ranked = order[np.lexsort((order, share, self._model[order]))]
        columns, heaviest = np.zeros(self._models), np.zeros(self._models, dtype=np.int64)
        heaviest[self._model[ranked]] = ranked  # the last of a model is its heaviest
        self._heaviest = heaviest
        np.maximum.at(columns, self._model[order], share)
        mixed = (types > WHOLE) & (types < served - WHOLE)
        shared = (columns > WHOLE) & (columns < served - WHOLE) & ~mixed
        return np.where(mixed, types, 0.0), np.where(shared, columns, 0.0)

    def split(self, kind: int) -> tuple[BoolArray, BoolArray]:
        """The set that `weights` weighed, and the model's other first columns."""
        by_column, model = divmod(kind, self._models)
        mine = self._first & (self._model == model)
        chosen = mine.copy()
        if by_column:
            chosen[:] = False
            chosen[self._heaviest[model]] = True
        else:
            chosen &= self._types == self._heaviest_type[model]
        return chosen, mine & ~chosen


def _prices(data: ProgramData, relaxation: Relaxation) -> FloatArray:
    """USD of one more instance of each total that one may branch on, 0 for every other variable."""
    layout = relaxation.rows.layout
    price = np.zeros(layout.variables)
    for (g, t), variable in layout.total.items():
        usd = [lot.used_usd_per_h for lot in data.lots if lot.supply == data.supplies[g].id and lot.used_usd_per_h > 0]
        price[variable] = min(usd, default=0.0) * data.periods[t].hours
    for g, variable in layout.total_reserved.items():
        usd = [lot.reserved_usd_per_h for lot in data.lots if lot.supply == data.supplies[g].id]
        price[variable] = min(u for u in usd if u > 0) * data.hours
    return price


def _unpacked(bits: Bits, count: int) -> BoolArray:
    return np.unpackbits(bits, count=count).astype(bool)
