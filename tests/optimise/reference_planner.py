"""The best fleet of a tiny request by trying everything: an independent reference for the whole planner.

Every path through the slices, every configuration that starts, exact needs by counting replicas up one by one, every
number of reserved and running instances, every way to stand replicas on them. Nothing is pruned but by price: a choice
is looked at only where its GPU-hours at the cheapest price could beat the best so far.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from planner.optimise.needs.exact import holds_exactly
from planner.optimise.types import Lot, LotKind, Need, Period, ProgramData, Slice, Supply, Workload

MOST_REPLICAS = 60
MOST_INSTANCES = 8


@dataclass(frozen=True)
class Ask:
    """What a supplier sees of one pool: replicas by period, GPUs each, and its rules."""

    gpu: str
    degree: int
    replicas: tuple[int, ...]
    interruptible: bool
    regions: tuple[str, ...]
    spread: bool


@dataclass(frozen=True)
class Answer:
    """The best fleet: cost of the horizon (USD) and tokens served."""

    usd: float
    served: float

    @property
    def ratio(self) -> float:
        return self.usd / self.served


def best_fleet(
    workloads: Sequence[Workload], needs: Mapping[str, Sequence[Need]], data: ProgramData, spare: int = 0
) -> Answer | None:
    """The fleet with the least cost per served token; ``None`` where there is none."""
    choices = [_choices(w, needs[w.name], data, spare) for w in workloads]
    sunk = sum(lot.sunk_usd for lot in data.lots)
    cheapest = _cheapest_gpu_h(data)
    best: Answer | None = None
    for combination in product(*choices):
        asks = tuple(sorted((ask for asks, _ in combination for ask in asks), key=repr))
        served = sum(tokens for _, tokens in combination)
        least = sunk + sum(_gpu_hours(ask, data.periods) * cheapest.get(ask.gpu, 0.0) for ask in asks)
        if best is not None and least / served >= best.ratio:
            continue
        usd = least_usd(data, asks)
        if usd is None or (data.caps.budget_usd is not None and usd + sunk > data.caps.budget_usd * (1 + 1e-12)):
            continue
        answer = Answer(usd + sunk, served)
        if best is None or answer.ratio < best.ratio:
            best = answer
    return best


def _cheapest_gpu_h(data: ProgramData) -> dict[str, float]:
    """USD of a GPU-hour at the lot that is cheapest to run, by GPU type."""
    found: dict[str, float] = {}
    for lot in data.lots:
        usd = (lot.used_usd_per_h + lot.reserved_usd_per_h) / lot.gpus_per_instance
        found[lot.offer.gpu] = min(found.get(lot.offer.gpu, usd), usd)
    return found


def _gpu_hours(ask: Ask, periods: Sequence[Period]) -> float:
    return ask.degree * sum(n * period.hours for n, period in zip(ask.replicas, periods, strict=True))


def _choices(
    workload: Workload, needs: Sequence[Need], data: ProgramData, spare: int
) -> list[tuple[tuple[Ask, ...], float]]:
    """Every way to serve one model: its pools and the tokens that they serve, alike ones once, cheapest GPUs first."""
    by_slice: dict[str, set[tuple[Ask, float]]] = {}
    for need in needs:
        by_slice.setdefault(need.slice.key, set()).add(_pool(workload, need, data.periods, spare))
    found: set[tuple[tuple[Ask, ...], float]] = set()
    for path in _paths(workload, data.max_pools[workload.name]):
        for pools in product(*(by_slice.get(each.key, ()) for each in path)):
            asks = tuple(sorted((ask for ask, _ in pools), key=repr))
            found.add((asks, sum(tokens for _, tokens in pools)))
    cheapest = _cheapest_gpu_h(data)

    def price(choice: tuple[tuple[Ask, ...], float]) -> tuple[float, str]:
        return sum(_gpu_hours(a, data.periods) * cheapest.get(a.gpu, 0.0) for a in choice[0]) / choice[1], repr(choice)

    return sorted(found, key=price)


def _paths(workload: Workload, most: int) -> list[tuple[Slice, ...]]:
    def onward(at: int) -> Iterator[tuple[Slice, ...]]:
        if at == workload.end_node:
            yield ()
        for each in workload.slices:
            if each.start == at:
                yield from ((each, *rest) for rest in onward(each.end))

    return [path for path in onward(0) if len(path) <= most]


def _pool(workload: Workload, need: Need, periods: Sequence[Period], spare: int) -> tuple[Ask, float]:
    """A pool of a configuration: spares, least count, step and fixed counts on top of the exact need."""
    model, scaling = workload.request, need.slice.scaling
    counts = []
    for n in exact_counts(need):
        kept = max(n + spare, scaling.min_replicas)
        while kept % scaling.step:
            kept += 1
        counts.append(kept)
    if scaling.fixed:
        counts = [max(counts)] * len(counts)
    law, seconds = need.slice.traffic.law, [period.hours * 3600 for period in periods]
    offered = sum(rate * s for rate, s in zip(need.slice.mean_rate_per_s, seconds, strict=True))
    served = offered * (law.mean_prompt + law.mean_output) * (1 - need.config.length.refused_token_share)
    ask = Ask(
        need.config.gpu.id, need.config.tp, tuple(counts), model.interruptible, tuple(sorted(model.regions)),
        model.survives_region_loss,
    )  # fmt: skip
    return ask, served


def exact_counts(need: Need) -> tuple[int, ...]:
    """Least replicas of every period, counted up from one."""
    periods = range(len(need.rate_per_s))
    return tuple(next(n for n in range(1, MOST_REPLICAS) if holds_exactly(need, n, t)) for t in periods)


def least_usd(data: ProgramData, asks: tuple[Ask, ...]) -> float | None:
    """Least cost of instances that hold all pools in every period, sunk cost aside (USD)."""
    reserved = [lot for lot in data.lots if lot.reserved_usd_per_h > 0]
    best: float | None = None
    for counts in product(*(range(_most(lot) + 1) for lot in reserved)):
        bought = {lot.id: n for lot, n in zip(reserved, counts, strict=True)}
        usd = sum(lot.reserved_usd_per_h * data.hours * bought[lot.id] for lot in reserved)
        owed = sum(lot.liability_after_usd * bought[lot.id] for lot in reserved)
        if (best is not None and usd >= best) or (
            data.caps.liability_usd is not None and owed > data.caps.liability_usd
        ):
            continue
        for t in range(len(data.periods)):
            found = _least_in_period(data, asks, bought, t)
            if found is None:
                break
            usd += found
        else:
            best = usd if best is None else min(best, usd)
    return best


def _most(lot: Lot) -> int:
    return min(MOST_INSTANCES, max(lot.available)) if lot.available else MOST_INSTANCES


def _least_in_period(data: ProgramData, asks: tuple[Ask, ...], bought: Mapping[str, int], t: int) -> float | None:
    here = [Ask(a.gpu, a.degree, (a.replicas[t],), a.interruptible, a.regions, a.spread) for a in asks]
    ways = []
    for lot in data.lots:
        can = MOST_INSTANCES if lot.available is None else min(MOST_INSTANCES, lot.available[t])
        ways.append(range(min(can, bought.get(lot.id, can)) + 1))
    hours = data.periods[t].hours
    usd = {x: sum(lot.used_usd_per_h * hours * n for lot, n in zip(data.lots, x, strict=True)) for x in product(*ways)}
    for x in sorted(usd, key=lambda x: (usd[x], x)):
        if _in_quotas(data, x, bought, t) and stands(data, here, x):
            return usd[x]
    return None


def _in_quotas(data: ProgramData, x: Sequence[int], bought: Mapping[str, int], t: int) -> bool:
    for quota in data.quotas:
        used = 0
        for lot, n in zip(data.lots, x, strict=True):
            o = lot.offer
            wanted = ((quota.provider, o.provider), (quota.region, o.region), (quota.gpu, o.gpu), (quota.offer, o.id))
            if all(want in ("", have) for want, have in wanted):
                held = lot.available[t] if lot.kind is LotKind.EXISTING_COMMITMENT and lot.available else 0
                used += lot.gpus_per_instance * max(n, bought.get(lot.id, 0), held)
        if used > quota.max_gpus:
            return False
    return True


def stands(data: ProgramData, asks: Sequence[Ask], x: Sequence[int]) -> bool:
    """Whether replicas of all pools find places on x running instances by lot, also after the loss of a region."""
    instances: dict[str, int] = {}
    for lot, n in zip(data.lots, x, strict=True):
        instances[lot.supply] = instances.get(lot.supply, 0) + n
    return all(
        _gpu_stands([s for s in data.supplies if s.gpu == gpu], [a for a in asks if a.gpu == gpu], instances)
        for gpu in sorted({a.gpu for a in asks})
    )


def _gpu_stands(supplies: Sequence[Supply], asks: Sequence[Ask], instances: Mapping[str, int]) -> bool:
    """By how many replicas of each pool stand on each supply, all ways."""

    def onward(left: Sequence[Ask], placed: dict[str, list[tuple[int, int]]]) -> bool:
        if not left:
            return all(_packs(s, placed.get(s.id, []), instances[s.id]) for s in supplies)
        ask, rest = left[0], left[1:]
        allowed = [s for s in supplies if _allowed(ask, s) and instances[s.id]]
        tops = [min(ask.replicas[0], s.gpus_per_instance * instances[s.id] // ask.degree) for s in allowed]
        for counts in product(*(range(top + 1) for top in tops)):
            if _enough(ask, dict(zip([s.id for s in allowed], counts, strict=True)), allowed):
                more = {key: list(value) for key, value in placed.items()}
                for supply, n in zip(allowed, counts, strict=True):
                    more.setdefault(supply.id, []).append((ask.degree, n))
                if onward(rest, more):
                    return True
        return False

    return onward(asks, {})


def _allowed(ask: Ask, supply: Supply) -> bool:
    return (ask.interruptible or not supply.spot) and (not ask.regions or supply.region in ask.regions)


def _enough(ask: Ask, on: Mapping[str, int], supplies: Sequence[Supply]) -> bool:
    if not ask.spread:
        return sum(on.values()) == ask.replicas[0]
    regions = {s.region for s in supplies} | {"none"}
    return all(
        sum(n for s, n in zip(supplies, on.values(), strict=True) if s.region != q) >= ask.replicas[0] for q in regions
    )


def _packs(supply: Supply, replicas: Sequence[tuple[int, int]], instances: int) -> bool:
    """Replicas one by one, the largest first, into fast domains; the interruption reserve stays free."""
    size, width = supply.gpus_per_instance, supply.nvlink_domain or supply.gpus_per_instance
    whole = [(d, n) for d, n in replicas if d > size and n]
    if any(not supply.multi_node or d % size for d, _ in whole):
        return False
    taken = sum(n * d // size for d, n in whole)
    if taken > instances:
        return False
    domains = [width] * (size // width) + ([size % width] if size % width else [])
    bins = domains * (instances - taken)
    for degree, n in sorted(((d, n) for d, n in replicas if d <= size), reverse=True):
        for _ in range(n):
            place = next((i for i, free in enumerate(bins) if free >= degree), None)
            if place is None:
                return False
            bins[place] -= degree
    for degree in {d for d, n in replicas if d <= size and n}:
        room = sum(domain // degree * degree for domain in domains)
        used = sum(n * (d // degree * degree) for d, n in replicas if d <= size) + taken * room
        if used > supply.usable_share * room * instances + 1e-9:
            return False
    return not whole or taken <= supply.usable_share * instances + 1e-9
