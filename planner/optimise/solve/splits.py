"""Slices split over two GPU types, where one is limited: only those that a cheaper fleet could have.

A split serves a slice with the leading configuration (fewest GPU-hours) of each of two GPU types, at least one of them
limited, at load shares 1/8 to 7/8. Before one is made it is priced: a fleet that has it costs at least

    sum over models of the cheapest route  +  how much dearer its own model's cheapest route through it is

at list prices (`list_price`), with splits of other slices on the routes too. Where that is no less
than the cost of a fleet that is there, no cheaper fleet has the split, and it is left out without harm to the proof.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from planner.optimise.needs.columns import column_of, config_key, running
from planner.optimise.solve.list_price import ListPrice, limited_gpus
from planner.optimise.solve.table import lost_tokens, most_tokens
from planner.optimise.types import Column, Decision, Need, Part, Period, Placement, ProgramData, Workload
from planner.queueing.dispersion import Dispersion
from planner.queueing.load import Demand
from planner.traffic.types import FloatArray

SPLITS = 8
"""A slice over two GPU types is split at whole eighths of its requests."""
SPLIT_POOLS = 2
MOST_SPLITS = 400
"""Of one model in one call."""
SHARES = np.arange(1, SPLITS) / SPLITS


@dataclass(frozen=True)
class Option:
    """One way to split a slice, priced and not yet made."""

    one: Column
    other: Column
    share: float
    """Of the requests, served by ``one``."""
    usd: float
    """Least cost, the worth of lost tokens included."""


@dataclass(frozen=True)
class Splits:
    """Splits that a cheaper fleet could have."""

    columns: tuple[Column, ...]
    left_out: int
    """Beyond `MOST_SPLITS` of a model: could be in a cheaper fleet, and were not made."""


def paying_splits(
    data: ProgramData, workloads: Mapping[str, Workload], spares: Mapping[str, int], decision: Decision | None
) -> Splits:
    """Splits that a fleet cheaper than a decision could have; all that can be had where there is no decision yet.

    Parameters
    ----------
    data
        With the columns of whole slices; splits among them are passed over.
    spares
        Replicas beyond the need, by model.
    decision
        Of the same data; cost and the worth of lost tokens are compared at its cost per token.
    """
    limited = limited_gpus(data)
    names = [name for name in data.models if data.max_pools[name] >= SPLIT_POOLS]
    if not limited or not names:
        return Splits((), 0)
    price, most = ListPrice(data), most_tokens(data.models, data.columns)
    theta = decision.usd_per_token if decision is not None else 0.0
    whole: dict[str, list[Column]] = {name: [] for name in data.models}
    for column in data.columns:
        if len(column.parts) == 1:
            whole[column.model].append(column)
    options = {
        name: _options(_with_room(whole[name], data, name), spares[name], price, limited, theta, most) for name in names
    }
    routes = {name: _routes(data, name, whole[name], options.get(name, []), price, theta, most) for name in data.models}
    budget = _value(data, decision, most) - sum(found.usd for found in routes.values())
    made: list[Column] = []
    left_out = 0
    for name in names:
        paying, beyond = _nearest(options[name], routes[name], budget)
        left_out += beyond
        made += _made(paying, workloads[name], spares[name], data.periods)
    return Splits(tuple(sorted(made, key=lambda column: column.key)), left_out)


def _value(data: ProgramData, decision: Decision | None, most: Mapping[tuple[str, int], float]) -> float:
    """What a decision costs beyond sunk cost, with the worth of the tokens that it loses."""
    if decision is None:
        return float("inf")
    lost = sum(lost_tokens(column, most) for column in decision.columns)
    return decision.usd - sum(lot.sunk_usd for lot in data.lots) + decision.usd_per_token * lost


# ------------------------------------------------------------------------------------------------------------- options


def _with_room(columns: Sequence[Column], data: ProgramData, model: str) -> list[Column]:
    """Columns of slices that a route may serve with one more pool than one."""
    arcs = sorted({(column.start, column.end) for column in columns})
    ahead, behind = {0: 0}, {data.end_node[model]: 0}
    for start, end in arcs:
        if start in ahead:
            ahead[end] = min(ahead.get(end, ahead[start] + 1), ahead[start] + 1)
    for start, end in reversed(arcs):
        if end in behind:
            behind[start] = min(behind.get(start, behind[end] + 1), behind[end] + 1)
    left = data.max_pools[model] - SPLIT_POOLS
    return [c for c in columns if c.start in ahead and c.end in behind and ahead[c.start] + behind[c.end] <= left]


def _options(
    columns: Sequence[Column],
    spare: int,
    price: ListPrice,
    limited: frozenset[str],
    theta: float,
    most: Mapping[tuple[str, int], float],
) -> list[Option]:
    """Every pair of GPU types, one of them limited, at every share that can be had."""
    found = []
    for _, group in groupby(leading(columns, price.data.periods), key=lambda c: c.parts[0].need.slice.key):
        alike = list(group)
        usd = [_usd_at_shares(column.parts[0], spare, price) for column in alike]
        for a, one in enumerate(alike):
            for b in range(a + 1, len(alike)):
                other = alike[b]
                if not {one.parts[0].placement.gpu, other.parts[0].placement.gpu} & limited:
                    continue
                served = SHARES * one.served_tokens + SHARES[::-1] * other.served_tokens
                room = most.get((one.model, one.end), 0.0) - most.get((one.model, one.start), 0.0)
                cost = usd[a] + usd[b][::-1] + theta * np.maximum(room - served, 0.0)
                found += [
                    Option(one, other, float(SHARES[k]), float(cost[k])) for k in np.flatnonzero(np.isfinite(cost))
                ]
    return found


def leading(columns: Iterable[Column], periods: Sequence[Period]) -> list[Column]:
    """By slice and GPU type, the column of one part with the fewest GPU-hours."""

    def gpu_hours(part: Part) -> float:
        return part.placement.gpus_per_replica * sum(n * p.hours for n, p in zip(part.running, periods, strict=True))

    def group(column: Column) -> tuple[str, str]:
        return column.parts[0].need.slice.key, column.parts[0].placement.gpu

    parts = [column for column in columns if len(column.parts) == 1]
    ranked = sorted(parts, key=lambda c: (*group(c), gpu_hours(c.parts[0]), config_key(c.parts[0].need.config)))
    return [next(found) for _, found in groupby(ranked, key=group)]


def _usd_at_shares(part: Part, spare: int, price: ListPrice) -> FloatArray:
    """Least cost of a part at shares 1/8 to 7/8, shape (7,)."""
    scaling = part.need.slice.scaling
    counts = [running(replicas_at_share(part.need.replicas, share), spare, scaling) for share in SHARES.tolist()]
    return price.least_usd(part.placement, np.array(counts, dtype=np.float64))


def replicas_at_share(replicas: Sequence[int], share: float) -> tuple[int, ...]:
    """Least replicas for a random share of a pool's requests, as a lower bound, from those for all of them.

    n − 1 replicas do not hold all requests. A share p of them, drawn at random, has the index of dispersion
    1 + p (D − 1), so that p (n − 1) replicas or fewer would each see the same load as n − 1 see of all, or more:

        n(p)  >=  floor(p (n − 1)) + 1,      and in the same way  n(p) <= ceil(p n).
    """
    return tuple(max(int(share * (n - 1)), 0) + 1 for n in replicas)


def need_at_share(need: Need, share: float) -> Need:
    """The lower bound of a need for a random share of the slice's requests."""
    curve = need.demand.dispersion
    thinned = Dispersion(curve.log_scale, 1.0 + share * (np.maximum(curve.idc, 1.0) - 1.0))
    rates = tuple(rate * share for rate in need.rate_per_s)
    demand = Demand(max(rates), thinned, need.demand.prompts, need.demand.load_cv)
    return replace(need, demand=demand, rate_per_s=rates, replicas=replicas_at_share(need.replicas, share), exact=False)


def _made(options: Sequence[Option], workload: Workload, spare: int, periods: tuple[Period, ...]) -> list[Column]:
    """Options as columns; parts that are the same in several are made once."""
    known: dict[tuple[str, float], Part] = {}

    def part(column: Column, share: float) -> Part:
        if (column.key, share) not in known:
            whole = column.parts[0]
            need = need_at_share(whole.need, share)
            counts = running(need.replicas, spare, need.slice.scaling)
            known[column.key, share] = Part(whole.placement, need, counts, share)
        return known[column.key, share]

    return [column_of(workload, (part(o.one, o.share), part(o.other, 1.0 - o.share)), periods) for o in options]


# -------------------------------------------------------------------------------------------------------------- routes


@dataclass(frozen=True)
class Route:
    """Cheapest ways through one model's routing graph, by pools used at most and node."""

    usd: float
    """Of the cheapest route."""
    ahead: FloatArray
    """From node 0, shape (pools + 1, nodes)."""
    behind: FloatArray
    """To the end, shape (pools + 1, nodes)."""

    def slack(self, option: Option) -> float:
        """How much dearer the cheapest route through a split is."""
        rest = len(self.ahead) - 1 - SPLIT_POOLS
        if rest < 0:
            return float("inf")
        before = self.ahead[: rest + 1, option.one.start]
        after = self.behind[rest::-1, option.one.end]
        return float(np.min(before + after)) + option.usd - self.usd


def _routes(
    data: ProgramData,
    model: str,
    columns: Sequence[Column],
    options: Sequence[Option],
    price: ListPrice,
    theta: float,
    most: Mapping[tuple[str, int], float],
) -> Route:
    """Cheapest routes of a model over whole slices and its splits."""
    arcs: dict[tuple[int, int, int], float] = {}

    def offer(start: int, end: int, pools: int, usd: float) -> None:
        arcs[start, end, pools] = min(arcs.get((start, end, pools), np.inf), usd)

    groups: dict[Placement, list[Column]] = {}
    for column in columns:
        groups.setdefault(column.parts[0].placement, []).append(column)
    for placement, group in groups.items():
        counts = np.array([column.parts[0].running for column in group], dtype=np.float64)
        for column, usd in zip(group, price.least_usd(placement, counts).tolist(), strict=True):
            offer(column.start, column.end, 1, usd + theta * lost_tokens(column, most))
    for option in options:
        offer(option.one.start, option.one.end, SPLIT_POOLS, option.usd)
    end, pools = data.end_node[model], data.max_pools[model]
    nodes = 1 + max((head for _, head, _ in arcs), default=end)  # those of tenants' axes lie beyond the end
    ahead = _layers(arcs, 0, max(nodes, end + 1), pools)
    back = {(b, a, n): usd for (a, b, n), usd in arcs.items()}
    return Route(float(ahead[pools, end]), ahead, _layers(back, end, max(nodes, end + 1), pools))


def _layers(arcs: Mapping[tuple[int, int, int], float], origin: int, nodes: int, pools: int) -> FloatArray:
    """Least cost from a node to each node with at most j pools, shape (pools + 1, nodes)."""
    best = np.full((pools + 1, nodes), np.inf)
    best[:, origin] = 0.0
    for j in range(1, pools + 1):
        for (tail, head, used), usd in arcs.items():
            if used <= j:
                best[j, head] = min(best[j, head], best[j - used, tail] + usd)
    return best


def _nearest(options: Sequence[Option], route: Route, budget: float) -> tuple[list[Option], int]:
    """Options whose fleets may be cheaper, at most `MOST_SPLITS`, and how many more there are.

    First the nearest slice of every pair of GPU types and share, then the next nearest, and so on.
    """
    near = [(slack, option) for option in options if (slack := route.slack(option)) < budget]
    near.sort(key=lambda item: (item[0], item[1].one.key, item[1].other.key, item[1].share))
    seen: dict[tuple[str, str, float], int] = {}
    ranked = []
    for place, (_, option) in enumerate(near):
        alike = (option.one.parts[0].placement.gpu, option.other.parts[0].placement.gpu, option.share)
        seen[alike] = seen.get(alike, 0) + 1
        ranked.append((seen[alike], place))
    chosen = [near[place][1] for _, place in sorted(ranked)[:MOST_SPLITS]]
    return chosen, len(near) - len(chosen)
