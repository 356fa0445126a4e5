"""The program's families counted again from a decision, without the solver or the program: every violation in words."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from planner.optimise.program import quota_covers
from planner.optimise.supply.supplies import can_stand, room
from planner.optimise.types import Column, Decision, Lot, LotKind, Part, Placement, ProgramData, Supply

TOLERANCE = 1e-6
"""Relative: sums of floating-point prices; counts are whole and compared as such."""


def recount(data: ProgramData, decision: Decision) -> list[str]:
    """Every way in which a decision breaks the program's data, in words; empty where it holds.

    Routes, pools, places, spread over regions, packing into instances (first fit by decreasing size, replica by
    replica), reservations, availability, quotas, budget, power, carbon, liability, movement, cost and served tokens.
    """
    wrong = list(_unknown(data, decision))
    if wrong:
        return wrong
    checks = (
        _routes, _pools, _places, _spread, _packing, _reservations, _availability, _quotas, _caps, _movement, _totals,
    )  # fmt: skip
    return [words for check in checks for words in check(data, decision)]


def spent_usd(data: ProgramData, decision: Decision) -> float:
    """Cost of the horizon (USD): reserved * hours * X + sum of used * hours[t] * x[t] + sunk, over all lots."""
    total = 0.0
    for lot in data.lots:
        total += lot.sunk_usd + lot.reserved_usd_per_h * data.hours * decision.reserved.get(lot.id, 0)
        for period, count in zip(data.periods, _running(data, decision, lot), strict=True):
            total += lot.used_usd_per_h * period.hours * count
    return total


def moved_gpus(data: ProgramData, columns: Iterable[Column]) -> int:
    """GPUs of models beyond last quarter's, each model and GPU type at its largest period."""
    if data.movement is None:
        return 0
    gpus: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0] * len(data.periods))
    for column in columns:
        for part in column.parts:
            for t, count in enumerate(part.running):
                gpus[column.model, part.placement.gpu][t] += count * part.placement.gpus_per_replica
    return sum(max(0, max(counts) - data.movement.last_gpus.get(key, 0)) for key, counts in gpus.items())


def first_fit(sizes: Iterable[int], bins: Iterable[int]) -> bool:
    """Whether items, put in by decreasing size, each into the first bin that has room, all find a place."""
    free = list(bins)
    last, first = 0, 0
    for size in sorted(sizes, reverse=True):
        first = first if size == last else 0  # bins without room for this size stay without
        place = next((i for i in range(first, len(free)) if free[i] >= size), None)
        if place is None:
            return False
        free[place] -= size
        last, first = size, place
    return True


def _running(data: ProgramData, decision: Decision, lot: Lot) -> Sequence[int]:
    return decision.running.get(lot.id, (0,) * len(data.periods))


def _parts(columns: Iterable[Column]) -> Iterator[tuple[Column, Part]]:
    return ((column, part) for column in columns for part in column.parts)


def _unknown(data: ProgramData, decision: Decision) -> Iterator[str]:
    """Names and shapes: nothing else can be counted before they are right."""
    lots, supplies, periods = {lot.id for lot in data.lots}, {s.id for s in data.supplies}, len(data.periods)
    keys = {column.key for column in data.columns}
    yield from (f"column '{c.key}' is not one of the program's" for c in decision.columns if c.key not in keys)
    yield from (f"lot '{o}' is not one of the program's" for o in {*decision.running, *decision.reserved} - lots)
    yield from (f"supply '{g}' is not one of the program's" for _, g in decision.placed if g not in supplies)
    counts: list[tuple[str, Sequence[int]]] = [(f"lot '{o}'", x) for o, x in decision.running.items()]
    counts += [(f"{_words(k)} on {g}", n) for (k, g), n in decision.placed.items()]
    counts += [(f"reserved lot '{o}'", (count,) * periods) for o, count in decision.reserved.items()]
    for what, numbers in counts:
        if len(numbers) != periods:
            yield f"{what} has {len(numbers)} periods, not {periods}"
        if any(number < 0 or number != int(number) for number in numbers):
            yield f"{what} has a count that is not a whole number of at least 0"


def _routes(data: ProgramData, decision: Decision) -> Iterator[str]:
    chosen: dict[str, list[Column]] = defaultdict(list)
    for column in decision.columns:
        chosen[column.model].append(column)
    yield from (f"model '{model}' is not one of the program's" for model in chosen if model not in data.end_node)
    for model in data.models:
        at = 0
        for column in sorted(chosen[model], key=lambda c: (c.start, c.end)):
            if column.start != at:
                yield f"{model}: its columns go from {at} on at {column.start}, not as one path"
                break
            at = column.end
        else:
            if at != data.end_node[model]:
                yield f"{model}: served up to node {at} of {data.end_node[model]}"


def _pools(data: ProgramData, decision: Decision) -> Iterator[str]:
    pools = Counter(column.model for column, _ in _parts(decision.columns))
    for model in data.models:
        if pools[model] > data.max_pools[model]:
            yield f"{model}: {pools[model]} pools, more than {data.max_pools[model]}"


def _places(data: ProgramData, decision: Decision) -> Iterator[str]:
    supplies = {s.id: s for s in data.supplies}
    for (placement, supply), counts in decision.placed.items():
        if any(counts) and not can_stand(placement, supplies[supply]):
            yield f"{_words(placement)} cannot stand on {supply}"
    for placement, need in _needs(data, decision).items():
        for t, period in enumerate(data.periods):
            stand = sum(counts[t] for (k, _), counts in decision.placed.items() if k == placement)
            if stand < need[t]:
                yield f"{period.name}: {need[t]} replicas of {_words(placement)} are needed and {stand} stand"


def _spread(data: ProgramData, decision: Decision) -> Iterator[str]:
    region = {s.id: s.region for s in data.supplies}
    for placement, need in _needs(data, decision).items():
        if not placement.spread:
            continue
        for lost in sorted({region[g] for k, g in decision.placed if k == placement} | {""}):
            for t, period in enumerate(data.periods):
                rest = sum(n[t] for (k, g), n in decision.placed.items() if k == placement and region[g] != lost)
                if rest < need[t]:
                    yield (
                        f"{period.name}: without region '{lost}' {rest} replicas of {_words(placement)} are left for "
                        f"{placement.spread}, of {need[t]} needed"
                    )


def _needs(data: ProgramData, decision: Decision) -> dict[Placement, list[int]]:
    """Replicas that the chosen columns keep running, by placement and period."""
    need: dict[Placement, list[int]] = defaultdict(lambda: [0] * len(data.periods))
    for _, part in _parts(decision.columns):
        need[part.placement] = [a + b for a, b in zip(need[part.placement], part.running, strict=True)]
    return need


def _packing(data: ProgramData, decision: Decision) -> Iterator[str]:
    instances: dict[str, list[int]] = defaultdict(lambda: [0] * len(data.periods))
    for lot in data.lots:
        instances[lot.supply] = [
            a + b for a, b in zip(instances[lot.supply], _running(data, decision, lot), strict=True)
        ]
    for supply in data.supplies:
        for t, period in enumerate(data.periods):
            counts = {k: n[t] for (k, g), n in decision.placed.items() if g == supply.id and n[t]}
            yield from (f"{period.name}: {words}" for words in _packed(supply, counts, instances[supply.id][t]))


def _packed(supply: Supply, counts: Mapping[Placement, int], instances: int) -> Iterator[str]:
    """Replicas on the instances of one supply in one period: by first fit, and within the share that counts."""
    size = supply.gpus_per_instance
    several = {k: n for k, n in counts.items() if k.gpus_per_replica > size}
    whole = instances - sum(n * (k.gpus_per_replica // size) for k, n in several.items())
    sizes = [k.gpus_per_replica for k, n in counts.items() if k not in several for _ in range(n)]
    domain = min(supply.nvlink_domain or size, size)
    bins = ([domain] * (size // domain) + [size % domain]) * max(whole, 0)
    # Where sizes do not divide each other, first fit may miss a packing that has each at the next power of two.
    padded = [min(1 << (one - 1).bit_length(), domain) for one in sizes]
    if whole < 0 or not (first_fit(sizes, bins) or first_fit(padded, bins)):
        yield f"replicas do not fit {instances} instances of {supply.id}"
    if supply.usable_share < 1:
        yield from _reserve(supply, counts, instances)


def _reserve(supply: Supply, counts: Mapping[Placement, int], instances: int) -> Iterator[str]:
    """The interruption reserve of spot: of the room for every size, no more than the share that counts is taken."""
    size = supply.gpus_per_instance
    for degree in sorted({k.gpus_per_replica for k in counts if k.gpus_per_replica <= size} or {1}):
        each = room(supply, degree)
        taken = sum(n * _taken(k.gpus_per_replica, degree, size, each) for k, n in counts.items())
        if taken > supply.usable_share * each * instances * (1 + TOLERANCE):
            usable = f"{supply.usable_share:.0%} of {instances} instances"
            yield f"replicas of {degree} GPUs and more take {taken} GPUs on {supply.id}, beyond {usable}"


def _taken(gpus: int, degree: int, size: int, each: int) -> int:
    """GPUs of the room for a size that a replica takes: the instances that it fills, or whole multiples of the size."""
    return gpus // size * each if gpus > size else gpus // degree * degree


def _reservations(data: ProgramData, decision: Decision) -> Iterator[str]:
    for lot in data.lots:
        reserved, running = decision.reserved.get(lot.id, 0), max(_running(data, decision, lot))
        if lot.reserved_usd_per_h > 0 and running > reserved:
            yield f"lot '{lot.id}': {running} instances run and {reserved} are reserved"


def _availability(data: ProgramData, decision: Decision) -> Iterator[str]:
    for lot in data.lots:
        if lot.available is None:
            continue
        counts = zip(data.periods, _running(data, decision, lot), lot.available, strict=True)
        yield from (
            f"{period.name}: {running} instances of lot '{lot.id}' run, {most} can be had"
            for period, running, most in counts
            if running > most
        )
        if decision.reserved.get(lot.id, 0) > max(lot.available):
            yield f"lot '{lot.id}': {decision.reserved[lot.id]} instances are reserved, {max(lot.available)} can be had"


def _quotas(data: ProgramData, decision: Decision) -> Iterator[str]:
    for quota in data.quotas:
        for t, period in enumerate(data.periods):
            used = sum(_counted(data, decision, lot, t) for lot in data.lots if quota_covers(quota, lot.offer))
            if used > quota.max_gpus:
                yield f"{period.name}: quota '{quota.name}' allows {quota.max_gpus} GPUs, {used} are taken"


def _counted(data: ProgramData, decision: Decision, lot: Lot, t: int) -> int:
    """GPUs of a lot that count towards quotas: what is held, what is reserved, or what runs."""
    if lot.kind is LotKind.EXISTING_COMMITMENT and lot.available is not None:
        return lot.available[t] * lot.gpus_per_instance
    if lot.reserved_usd_per_h > 0:
        return decision.reserved.get(lot.id, 0) * lot.gpus_per_instance
    return _running(data, decision, lot)[t] * lot.gpus_per_instance


def _caps(data: ProgramData, decision: Decision) -> Iterator[str]:
    running = {lot.id: _running(data, decision, lot) for lot in data.lots}
    found: list[tuple[str, float, float | None, str]] = [
        ("budget", spent_usd(data, decision), data.caps.budget_usd, "USD"),
        (
            "liability",
            sum(lot.liability_after_usd * decision.reserved.get(lot.id, 0) for lot in data.lots),
            data.caps.liability_usd,
            "USD",
        ),
    ]
    carbon = 0.0
    for t, period in enumerate(data.periods):
        power = sum(lot.power_kw * running[lot.id][t] for lot in data.lots)
        carbon += sum(lot.carbon_kg_per_h * period.hours * running[lot.id][t] for lot in data.lots)
        found.append((f"{period.name}: power", power, data.caps.power_kw, "kW"))
    found.append(("carbon", carbon, data.caps.carbon_kg, "kg"))
    for what, value, most, unit in found:
        if most is not None and value > most + TOLERANCE * max(1.0, abs(most)):
            yield f"{what} is {value:.10g} {unit}, more than {most:.10g}"


def _movement(data: ProgramData, decision: Decision) -> Iterator[str]:
    moved = moved_gpus(data, decision.columns)
    if data.movement is not None and moved > data.movement.max_moved_gpus:
        yield f"{moved} GPUs are moved, more than {data.movement.max_moved_gpus}"


def _totals(data: ProgramData, decision: Decision) -> Iterator[str]:
    spent, served = spent_usd(data, decision), sum(column.served_tokens for column in decision.columns)
    for what, stated, counted in (("cost", decision.usd, spent), ("served tokens", decision.served_tokens, served)):
        if abs(stated - counted) > TOLERANCE * max(1.0, abs(counted)):
            yield f"{what} is stated as {stated:.12g} and counts to {counted:.12g}"


def _words(placement: Placement) -> str:
    return f"{placement.gpu} x {placement.gpus_per_replica}"
