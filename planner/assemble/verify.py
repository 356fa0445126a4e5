"""A plan checked against itself, without the solver: money, tokens, instances, replicas, routes, limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from planner import units
from planner.assemble.claims import horizon_faults, pool_faults, proof_faults
from planner.assemble.money import pool_costs, pool_gpu_hours, supply_usd, totals_of
from planner.assemble.packing import instances_needed, over_the_reserve
from planner.assemble.routing_check import routing_faults
from planner.assemble.rows import used_of
from planner.errors import PlannerError
from planner.plan import FleetPlan, PlanModel, PlanSupply, Pool, Purchase

USD_TOLERANCE = 0.005
RELATIVE = 1e-6
"""Of sums and shares: rounding of binary numbers."""
RELATIVE_USD = 1e-9
"""Of money beyond millions, where half a cent is below the rounding of sums."""
ROOM_TOLERANCE = 1e-6


def verify(plan: FleetPlan) -> None:
    """Recompute a plan from its own figures: every sum, every limit, every replica's place.

    Raises
    ------
    PlannerError
        Naming everything that does not hold.
    """
    # Figures are looked up by period and supply: a plan of a wrong shape has none to recompute.
    wrong = list(_shape(plan)) or [fault for family in FAMILIES for fault in family(plan)]
    if wrong:
        raise PlannerError("The plan does not hold when recomputed: " + "; ".join(wrong))


def _differ(one: float, other: float) -> bool:
    return abs(one - other) > RELATIVE * max(abs(one), abs(other))


def _differ_usd(one: float, other: float) -> bool:
    return abs(one - other) > max(USD_TOLERANCE, RELATIVE_USD * max(abs(one), abs(other)))


def _shape(plan: FleetPlan) -> Iterator[str]:
    """Names are unique, and everything has a figure for every period."""
    for what, names in (
        ("pool", [p.name for p in plan.pools]),
        ("purchase", [p.offer_id for p in plan.purchases]),
        ("supply", [s.id for s in plan.supplies]),
    ):
        yield from (f"{what} {name} stands twice" for name, count in Counter(names).items() if count > 1)
    hours = sum(period.hours for period in plan.periods)
    if _differ(hours, plan.horizon_hours):
        yield f"the periods have {hours:g} hours of {plan.horizon_hours:g}"
    names = [period.name for period in plan.periods]
    for pool in plan.pools:
        counts = [len(place.replicas) for place in pool.placements]
        if [period.period for period in pool.periods] != names or any(n != len(names) for n in counts):
            yield f"{pool.name}: its periods are not the plan's"
    for p in plan.purchases:
        if any(len(counts) != len(names) for counts in (p.instances_by_period, p.paid_by_period)):
            yield f"{p.offer_id}: its periods are not the plan's"
    known = {supply.id for supply in plan.supplies} & {p.supply for p in plan.purchases}
    for pool in plan.pools:
        yield from (
            f"{pool.name}: stands on {place.supply}, which is not bought"
            for place in pool.placements
            if place.supply not in known
        )


def _money(plan: FleetPlan) -> Iterator[str]:
    """Cost from purchases, on pools, and against the objective."""
    usd = sum(_usd(plan, p) for p in plan.purchases)
    for p in plan.purchases:
        if _differ_usd(p.usd, _usd(plan, p)):
            yield f"{p.offer_id}: {p.usd:.4f} USD is not its hours at its prices, {_usd(plan, p):.4f} USD"
    if _differ_usd(plan.totals.usd, usd):
        yield f"total {plan.totals.usd:.4f} USD is not the sum of the purchases, {usd:.4f} USD"
    if _differ_usd(usd, plan.solve.objective):
        yield f"cost {usd:.4f} USD is not the objective {plan.solve.objective:.4f} USD"
    served = sum(pool.served_mtok for pool in plan.pools)
    if _differ_usd(plan.solve.usd_per_mtok * served, usd):
        yield f"{usd / served:.6f} USD per million tokens is not {plan.solve.usd_per_mtok:.6f}"
    cost = supply_usd(plan.purchases)
    stands = [pool_gpu_hours(pool, plan.periods) for pool in plan.pools]
    for pool, share in zip(plan.pools, pool_costs(stands, cost), strict=True):
        if _differ_usd(pool.usd, share):
            yield f"{pool.name}: {pool.usd:.4f} USD is not its part of its supplies' cost, {share:.4f} USD"


def _usd(plan: FleetPlan, p: Purchase) -> float:
    """Reserved price x reserved instances x horizon + used price x instance-hours + what is sunk."""
    instance_hours = sum(n * period.hours for n, period in zip(p.instances_by_period, plan.periods, strict=True))
    return (
        p.reserved_usd_per_h * p.reserved_instances * plan.horizon_hours
        + p.used_usd_per_h * instance_hours
        + p.sunk_usd
    )


def _totals(plan: FleetPlan) -> Iterator[str]:
    """Every figure of the totals, from pools and purchases."""
    again = totals_of(plan.pools, plan.purchases, plan.periods)
    for name, value in again.model_dump().items():
        stated = getattr(plan.totals, name)
        if (_differ_usd if name.endswith("usd") else _differ)(stated, value):
            yield f"total {name} {stated:g} is not {value:g}"


def _purchases(plan: FleetPlan) -> Iterator[str]:
    """Instances that run are reserved and can be had; counts, hours, power and carbon follow from them."""
    for p in plan.purchases:
        runs, name = p.instances_by_period, p.offer_id
        hours = sum(n * period.hours for n, period in zip(runs, plan.periods, strict=True))
        if p.reserved_usd_per_h > 0 and max(runs) > p.reserved_instances:
            yield f"{name}: {max(runs)} instances run, {p.reserved_instances} are reserved"
        for period, n, can in zip(plan.periods, runs, p.available_by_period or runs, strict=True):
            if n > can:
                yield f"{name}: {n} instances run in {period.name}, {can} can be had"
        if any(paid < max(n, p.reserved_instances) for n, paid in zip(runs, p.paid_by_period, strict=True)):
            yield f"{name}: fewer instances are paid than run or are reserved"
        if p.instances != max(p.paid_by_period) or p.gpus_bought != p.instances * p.gpus_per_instance:
            yield f"{name}: {p.gpus_bought} GPUs are not those of the most instances paid"
        if p.gpus_used > p.gpus_bought:
            yield f"{name}: {p.gpus_used} GPUs used of {p.gpus_bought}"
        for what, stated, value in (
            ("instance-hours", p.instance_hours, hours),
            ("kW", p.power_kw, p.power_kw_per_instance * max(runs)),
            ("kg CO2e", p.carbon_kg, p.carbon_kg_per_instance_h * hours),
        ):
            if _differ(stated, value):
                yield f"{name}: {stated:g} {what} are not those of its running instances, {value:g}"


def _nodes(plan: FleetPlan) -> Iterator[str]:
    """Replicas of every supply and period fit the instances that run there, packed first fit, none split."""
    for supply in plan.supplies:
        for t, period in enumerate(plan.periods):
            replicas = [
                (pool.tp, place.replicas[t])
                for pool in plan.pools
                for place in pool.placements
                if place.supply == supply.id
            ]
            yield from _node(plan, supply, replicas, t, f"{supply.id} in {period.name}")


def _node(plan: FleetPlan, supply: PlanSupply, replicas: list[tuple[int, int]], t: int, where: str) -> Iterator[str]:
    runs = sum(p.instances_by_period[t] for p in plan.purchases if p.supply == supply.id)
    needed = instances_needed(supply, replicas)
    if needed is None:
        yield f"{where}: a replica is larger than what one instance, or one fast domain, can hold"
    elif needed > runs:
        yield f"{where}: replicas need {needed} instances, {runs} run"
    elif over_the_reserve(supply, replicas, runs) > ROOM_TOLERANCE:
        yield f"{where}: replicas take the reserve of {1 - supply.usable_share:.0%}"


def _replicas(plan: FleetPlan) -> Iterator[str]:
    """Each pool runs what it needs in every period, where it may, also after the loss of a region."""
    rules = {model.name: model for model in plan.models}
    supplies = {supply.id: supply for supply in plan.supplies}
    for pool in plan.pools:
        for t, period in enumerate(pool.periods):
            where = f"{pool.name} in {period.period}"
            stand = sum(place.replicas[t] for place in pool.placements)
            if stand != period.replicas:
                yield f"{where}: {period.replicas} replicas run, {stand} stand on supplies"
            if not period.replicas_needed <= period.replicas_asked <= period.replicas:
                yield f"{where}: {period.replicas} replicas run, {period.replicas_needed} are needed"
        if pool.model in rules:
            yield from _rules(pool, rules[pool.model], supplies)


def _rules(pool: Pool, rule: PlanModel, supplies: dict[str, PlanSupply]) -> Iterator[str]:
    on = [(supplies[place.supply], place.replicas) for place in pool.placements if place.supply in supplies]
    for supply, _ in on:
        if supply.gpu != pool.gpu:
            yield f"{pool.name}: runs on {pool.gpu}, and {supply.id} has {supply.gpu}"
        if supply.spot and not rule.interruptible:
            yield f"{pool.name}: stands on spot, and its model may not be interrupted"
        if rule.regions and supply.region not in rule.regions:
            yield f"{pool.name}: stands in {supply.region or 'any region'}, where its model may not"
    if not rule.survives_region_loss:
        return
    for region in sorted({supply.region for supply, _ in on}):
        for t, period in enumerate(pool.periods):
            left = sum(replicas[t] for supply, replicas in on if supply.region != region)
            if left < period.replicas_asked:
                yield f"{pool.name} in {period.period}: {left} replicas are left without {region}"


def _busiest(plan: FleetPlan) -> Iterator[str]:
    """A pool's own counts are those of its busiest period, and its requests those of all periods."""
    for pool in plan.pools:
        peak = max(pool.periods, key=lambda period: period.planning_rate_per_s)
        asked = pool.replicas_needed + pool.replicas_spare
        found = (peak.replicas_needed, peak.replicas_asked, peak.replicas, peak.replicas * pool.tp)
        if (pool.replicas_needed, asked, pool.replicas, pool.gpus) != found:
            yield f"{pool.name}: its replicas are not those of {peak.period}"
        arrive = sum(
            period.mean_rate_per_s * units.hours_to_s(hours.hours)
            for period, hours in zip(pool.periods, plan.periods, strict=True)
        )
        if _differ(arrive, pool.offered_requests):
            yield f"{pool.name}: {pool.offered_requests:g} requests are not those of its periods, {arrive:g}"
        if pool.served_mtok > pool.capacity_mtok * (1 + RELATIVE):
            yield f"{pool.name}: serves {pool.served_mtok:g} M tokens, and could {pool.capacity_mtok:g}"


def _margins(plan: FleetPlan) -> Iterator[str]:
    for pool in plan.pools:
        for m in pool.margins:
            if not (m.satisfied and m.planned <= m.limit):
                yield f"{pool.name}: {m.constraint} {m.planned:g} > {m.limit:g}"


def _pool_limit(plan: FleetPlan) -> Iterator[str]:
    count = Counter(pool.model for pool in plan.pools)
    for model in plan.models:
        if not 1 <= count[model.name] <= model.max_pools:
            yield f"{model.name}: {count[model.name]} pools, at least 1 and at most {model.max_pools} are wanted"
    yield from (
        f"pool of {name}, which was not asked for" for name in count if name not in {m.name for m in plan.models}
    )


def _limits(plan: FleetPlan) -> Iterator[str]:
    """Quotas in every period, budget, liability, power and carbon, from the purchases."""
    bought = {p.offer_id: p for p in plan.purchases}
    for row in plan.quotas:
        used = used_of([bought[name] for name in row.offers if name in bought], row.unit)
        if used is not None and _differ_usd(used, row.used):
            yield f"{row.name}: {row.used:g} {row.unit} are stated, {used:g} are used"
        if max(row.used, used or 0.0) > row.limit + USD_TOLERANCE:
            yield f"{row.name}: {max(row.used, used or 0.0):g} > {row.limit:g} {row.unit}"


FAMILIES: tuple[Callable[[FleetPlan], Iterator[str]], ...] = (
    _money,
    _totals,
    _purchases,
    _nodes,
    _replicas,
    _busiest,
    _margins,
    _pool_limit,
    _limits,
    routing_faults,
    proof_faults,
    horizon_faults,
    pool_faults,
)
"""What is checked of a plan of the right shape, in order."""
