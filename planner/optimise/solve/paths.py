"""Cheapest routes of all models at given prices of replicas: the part of the relaxation that falls apart by model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.optimise.solve.table import ColumnTable, IntArray
from planner.optimise.types import ProgramData
from planner.traffic.types import FloatArray


@dataclass(frozen=True)
class Routes:
    """Cheapest paths of every model at one set of column costs."""

    cost: FloatArray
    """Of each model's cheapest path within its limit on pools, shape (M,); infinite where there is none."""
    slack: FloatArray
    """Of each column: the cheapest path through it, less the model's cheapest, shape (C,)."""


class RouteGraph:
    """Arcs of all models, grouped once: the cheapest column of a group is its arc.

    A path may use at most ``max_pools`` pools, so nodes are layered by the pools used so far:

        best[m, j, b] = min over arcs (a, b) with n pools of  best[m, j − n, a] + cost of the arc
    """

    def __init__(self, table: ColumnTable, data: ProgramData) -> None:
        first = table.group_start
        self._table = table
        self._model, self._start, self._end = table.model[first], table.start[first], table.end[first]
        self._pools = table.pools[first]
        self._ends: IntArray = np.array([data.end_node[m] for m in data.models], dtype=np.int64)
        nodes = int(self._ends.max(initial=0)) + 1
        limit = np.array([data.max_pools[m] for m in data.models], dtype=np.int64)
        self._limit = np.minimum(limit, max(nodes - 1, 1) * int(table.pools.max(initial=1)))
        self._nodes = nodes
        sizes = np.diff(np.append(first, len(table)))
        self._group_of: IntArray = np.repeat(np.arange(len(first)), sizes)

    def routes(self, cost: FloatArray) -> Routes:
        """Cheapest path of each model and the slack of each column, for column costs of shape (C,)."""
        models, layers = len(self._ends), int(self._limit.max(initial=1))
        arc = np.minimum.reduceat(cost, self._table.group_start) if len(self._table) else np.zeros(0)
        ahead = self._layers(arc, np.zeros(models, dtype=np.int64), self._start, self._end, layers)
        behind = self._layers(arc, self._ends, self._end, self._start, layers)
        everyone = np.arange(models)
        best: FloatArray = ahead[everyone, self._limit, self._ends]
        through = np.full(len(arc), np.inf)
        for used in range(layers + 1):
            left = self._limit[self._model] - self._pools - used
            usable = left >= 0
            path = ahead[self._model, used, self._start] + behind[self._model, np.maximum(left, 0), self._end]
            through = np.where(usable, np.minimum(through, path), through)
        with np.errstate(invalid="ignore"):
            slack = through[self._group_of] + cost - best[self._table.model]
        return Routes(best, np.where(np.isnan(slack), np.inf, np.maximum(slack, 0.0)))

    def _layers(self, arc: FloatArray, origin: IntArray, tail: IntArray, head: IntArray, layers: int) -> FloatArray:
        """Least cost from each model's origin to each node with at most j pools, shape (M, layers + 1, nodes)."""
        models = len(origin)
        best = np.full((models, layers + 1, self._nodes), np.inf)
        best[np.arange(models), :, origin] = 0.0
        for layer in range(1, layers + 1):
            for pools in np.unique(self._pools[self._pools <= layer]):
                chosen = self._pools == pools
                model = self._model[chosen]
                reached = best[model, layer - pools, tail[chosen]] + arc[chosen]
                np.minimum.at(best, (model, layer, head[chosen]), reached)
        return best

    def cheapest(self, routes: Routes, tolerance: float, most: int) -> IntArray:
        """Columns to offer: those on a cheapest path, and of each model those within a tolerance, at most ``most``."""
        near = np.flatnonzero(routes.slack <= tolerance)
        order = near[np.lexsort((near, routes.slack[near], self._table.model[near]))]
        model = self._table.model[order]
        first = np.searchsorted(model, model)
        rank = np.arange(order.size) - first
        picked: IntArray = np.sort(order[rank < most])
        return picked


def models_without_route(routes: Routes, models: Sequence[str]) -> list[str]:
    """Models that no columns can serve from end to end."""
    return [name for name, cost in zip(models, routes.cost, strict=True) if not np.isfinite(cost)]
