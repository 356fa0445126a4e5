"""Where a routing table sends requests, many at once.

A request that several pools may take (rows with shares) goes to one of them in turn, by the shares: the k-th request of
a row's lengths takes the place of k x golden ratio, modulo 1, among the shares added up, which fills them evenly and
needs no random numbers. A request whose tenant the log does not name takes turns over all tenants' pools of its length,
by the share of the model's requests that each pool was planned for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.errors import InputError, Problem
from planner.plan import FleetPlan, Pool, Route
from planner.traffic.types import FloatArray, IntArray

GOLDEN = (math.sqrt(5) - 1) / 2
UNKNOWN = 0
"""Number of the tenant that the log does not name."""


@dataclass(frozen=True)
class Routing:
    """The rows of one model as tables over tenants and bands of prompt lengths.

    Attributes
    ----------
    pools
        Names, in the order of their numbers.
    tenants
        Names that the table tells apart; the first is that of requests without one.
    edges
        Least prompt of each band, ascending from 0.
    pool, until
        Shape (tenants, bands, choices): number of the pool, and its share added to those before it.
    """

    pools: tuple[str, ...]
    tenants: tuple[str, ...]
    edges: IntArray
    pool: IntArray
    until: FloatArray


def routing_of(plan: FleetPlan, model: str) -> Routing:
    """The table of a model; a plan without routes sends each request where a pool's own band says.

    Raises
    ------
    InputError
        If a route leads to no pool of the model.
    """
    own = [pool for pool in plan.pools if pool.model == model]
    rows = [row for row in plan.routes if row.model == model] or [row for pool in own for row in _rows(pool)]
    _check_pools(rows, own, model)
    tenants = ("", *sorted({row.tenant for row in rows} - {""}))
    edges = sorted({row.prompt_lo_tokens for row in rows} | {0})
    cells = [[_choices(rows, own, tenant, low) for low in edges] for tenant in tenants]
    most = max(len(choices) for row in cells for choices in row)
    number = {pool.name: place for place, pool in enumerate(own)}
    pool, until = np.zeros((len(tenants), len(edges), most), dtype=np.int64), np.ones((len(tenants), len(edges), most))
    for i, row in enumerate(cells):
        for j, choices in enumerate(row):
            shares = np.array([share for _, share in choices])
            # Beyond the last choice there is no turn; the last one also takes what rounding leaves.
            pool[i, j] = number[choices[-1][0]]
            pool[i, j, : len(choices)] = [number[name] for name, _ in choices]
            until[i, j, : len(choices)] = np.cumsum(shares) / shares.sum()
    return Routing(tuple(number), tenants, np.array(edges, dtype=np.int64), pool, until)


def _check_pools(rows: Sequence[Route], own: Sequence[Pool], model: str) -> None:
    """Routes of a plan that was edited may lead nowhere."""
    strange = sorted({row.pool for row in rows} - {pool.name for pool in own})
    if strange:
        known = ", ".join(f"'{pool.name}'" for pool in own)
        what = f"the plan's routes of '{model}' lead to '{strange[0]}', which is none of its pools ({known})"
        raise InputError(Problem("routes", what, "Take plan.json as `planner plan` wrote it"))


class Turns:
    """Sends requests to pools; remembers whose turn it is."""

    def __init__(self, routing: Routing) -> None:
        self._routing = routing
        self._taken = np.zeros(routing.pool.shape[:2], dtype=np.int64)
        """Requests so far, by tenant and band."""

    def pools(self, prompt: IntArray, tenant: IntArray) -> IntArray:
        """Number of the pool of each request, in order of arrival."""
        table = self._routing
        band = np.searchsorted(table.edges, prompt, side="right") - 1
        if table.pool.shape[2] == 1:
            return np.asarray(table.pool[tenant, band, 0])
        cell = tenant * len(table.edges) + band
        turn = _rank(cell, self._taken.size) + self._taken.ravel()[cell]
        self._taken += np.bincount(cell, minlength=self._taken.size).reshape(self._taken.shape)
        place = (turn + 1) * GOLDEN % 1.0
        choice = (place[:, None] >= table.until[tenant, band]).sum(axis=1)
        return np.asarray(table.pool[tenant, band, np.minimum(choice, table.pool.shape[2] - 1)])


def _rows(pool: Pool) -> list[Route]:
    return [
        Route(
            model=pool.model,
            tenant=tenant,
            prompt_lo_tokens=pool.prompt_lo_tokens,
            prompt_hi_tokens=pool.prompt_hi_tokens,
            pool=pool.name,
            share=pool.load_share,
        )
        for tenant in pool.tenants or ("",)
    ]


def _choices(rows: Sequence[Route], pools: Sequence[Pool], tenant: str, prompt: int) -> list[tuple[str, float]]:
    """Pools of a prompt length with their weights; beyond the last row of the table, those of the longest prompts."""
    told_apart = any(row.tenant for row in rows)
    of_tenant = [row for row in rows if row.tenant == tenant or not tenant]
    holding = [row for row in of_tenant if _holds(row, prompt)]
    if not holding:
        last = max(row.prompt_lo_tokens for row in of_tenant)
        holding = [row for row in of_tenant if row.prompt_lo_tokens == last]
    planned = {pool.name: pool.request_share for pool in pools}
    names = dict.fromkeys(row.pool for row in holding)
    shares = [(name, planned[name]) for name in names] if told_apart and not tenant else []
    shares = shares or [(row.pool, row.share) for row in holding]
    return [(name, share) for name, share in shares if share > 0] or [(holding[0].pool, 1.0)]


def _holds(row: Route, prompt: int) -> bool:
    return row.prompt_lo_tokens <= prompt and (row.prompt_hi_tokens is None or prompt < row.prompt_hi_tokens)


def _rank(cell: IntArray, cells: int) -> IntArray:
    """How many entries of the same cell stand before each entry."""
    order = np.argsort(cell, kind="stable")
    first = np.cumsum(np.bincount(cell, minlength=cells)) - np.bincount(cell, minlength=cells)
    rank = np.empty(cell.size, dtype=np.int64)
    rank[order] = np.arange(cell.size) - first[cell[order]]
    return rank
