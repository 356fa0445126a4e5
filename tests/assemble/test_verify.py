"""Every kind of damage to a plan is found when it is recomputed."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import pytest

from planner.assemble.verify import verify
from planner.errors import PlannerError
from planner.plan import FleetPlan, Route, SolveStatus
from tests.report.sample import sample_plan

PLAN = sample_plan()
Damage = Callable[[FleetPlan], FleetPlan]


def _pool(index: int, **changes: object) -> Damage:
    def damaged(plan: FleetPlan) -> FleetPlan:
        pools = list(plan.pools)
        pools[index] = pools[index].model_copy(update=changes)
        return plan.model_copy(update={"pools": tuple(pools)})

    return damaged


def _period(index: int, t: int, **changes: object) -> Damage:
    periods = list(PLAN.pools[index].periods)
    periods[t] = periods[t].model_copy(update=changes)
    return _pool(index, periods=tuple(periods))


def _stand(index: int, supply: str, replicas: tuple[int, ...]) -> Damage:
    place = PLAN.pools[index].placements[0].model_copy(update={"supply": supply, "replicas": replicas})
    return _pool(index, placements=(place,))


def _lot(index: int, **changes: object) -> Damage:
    def damaged(plan: FleetPlan) -> FleetPlan:
        lots = list(plan.purchases)
        lots[index] = lots[index].model_copy(update=changes)
        return plan.model_copy(update={"purchases": tuple(lots)})

    return damaged


def _limit(index: int, **changes: object) -> Damage:
    def damaged(plan: FleetPlan) -> FleetPlan:
        rows = list(plan.quotas)
        rows[index] = rows[index].model_copy(update=changes)
        return plan.model_copy(update={"quotas": tuple(rows)})

    return damaged


def _model(index: int, **changes: object) -> Damage:
    def damaged(plan: FleetPlan) -> FleetPlan:
        models = list(plan.models)
        models[index] = models[index].model_copy(update=changes)
        return plan.model_copy(update={"models": tuple(models)})

    return damaged


def _supply(index: int, **changes: object) -> Damage:
    def damaged(plan: FleetPlan) -> FleetPlan:
        supplies = list(plan.supplies)
        supplies[index] = supplies[index].model_copy(update=changes)
        return plan.model_copy(update={"supplies": tuple(supplies)})

    return damaged


def _total(**changes: object) -> Damage:
    return lambda plan: plan.model_copy(update={"totals": plan.totals.model_copy(update=changes)})


def _solve(**changes: object) -> Damage:
    return lambda plan: plan.model_copy(update={"solve": plan.solve.model_copy(update=changes)})


def _route(index: int, **changes: object) -> Damage:
    def damaged(plan: FleetPlan) -> FleetPlan:
        routes = list(plan.routes)
        routes[index] = routes[index].model_copy(update=changes)
        return plan.model_copy(update={"routes": tuple(routes)})

    return damaged


def _with_route(route: Route) -> Damage:
    return lambda plan: plan.model_copy(update={"routes": (*plan.routes, route)})


CHAT_1, CHAT_2, CODE, AGENTS, SEARCH, VISION = range(6)
H100_1Y, H100, H200, L40S_HELD, L40S, A100 = range(6)
OVER = PLAN.pools[CODE].margins[0].model_copy(update={"planned": 158_001.0})

DAMAGE: dict[str, tuple[Damage, str]] = {
    "objective": (_solve(objective=PLAN.totals.usd + 0.01), "is not the objective"),
    "ratio": (_solve(usd_per_mtok=PLAN.solve.usd_per_mtok * 1.001), "USD per million tokens is not"),
    "cost of a lot": (_lot(H100, usd=158_000.0), "is not its hours at its prices"),
    "total cost": (_total(usd=1.0), "is not the sum of the purchases"),
    "by use": (_total(usd_per_mtok_by_use=0.4), "total usd_per_mtok_by_use"),
    "input and output": (_total(usd_per_mtok_input=0.5), "total usd_per_mtok_input"),
    "served tokens": (_total(served_output_mtok=1.0), "total served_output_mtok"),
    "sunk": (_total(sunk_usd=0.0), "total sunk_usd"),
    "liability": (_total(liability_after_usd=0.0), "total liability_after_usd"),
    "cost of a pool": (_pool(CHAT_1, usd=1.0), "is not its part of its supplies' cost"),
    "more runs than is reserved": (_lot(H100_1Y, reserved_instances=0), "1 instances run, 0 are reserved"),
    "more runs than can be had": (_lot(L40S_HELD, available_by_period=(1, 0)), "run in other hours, 0 can be had"),
    "more runs than is paid": (_lot(H100, paid_by_period=(1, 1)), "fewer instances are paid"),
    "GPUs bought": (_lot(H100, gpus_bought=8), "are not those of the most instances paid"),
    "GPUs used": (_lot(H200, gpus_used=17), "17 GPUs used of 16"),
    "instance-hours": (_lot(H100, instance_hours=1.0), "instance-hours are not those"),
    "power of a lot": (_lot(H200, power_kw=1.0), "kW are not those"),
    "carbon of a lot": (_lot(H200, carbon_kg=1.0), "kg CO2e are not those"),
    "too few instances": (_lot(H100, instances_by_period=(1, 1)), "replicas need 3 instances, 2 run"),
    "larger than an instance": (_pool(AGENTS, tp=16), "larger than what one instance"),
    "across two fast domains": (_supply(0, nvlink_domain=2), "or one fast domain, can hold"),
    "into the spot reserve": (_lot(A100, instances_by_period=(2, 2)), "take the reserve of 20%"),
    "an unknown supply": (_stand(CHAT_1, "nowhere", (3, 1)), "which is not bought"),
    "another GPU type": (_stand(CODE, "H200-SXM x8", (0, 0)), "and H200-SXM x8 has H200-SXM"),
    "spot and not interruptible": (_model(4, interruptible=False), "may not be interrupted"),
    "a wrong region": (_model(0, regions=("eu-north1",)), "stands in us-east-1, where its model may not"),
    "the loss of a region": (_model(1, survives_region_loss=True), "0 replicas are left without us-east-1"),
    "replicas nowhere": (_stand(CHAT_1, "H100-SXM x8", (2, 1)), "3 replicas run, 2 stand on supplies"),
    "fewer than needed": (_period(CHAT_2, 1, replicas_needed=2), "1 replicas run, 2 are needed"),
    "not the busiest period": (_pool(CHAT_1, replicas_needed=2), "its replicas are not those of busy hours"),
    "requests of periods": (_period(CHAT_1, 0, mean_rate_per_s=1.0), "requests are not those of its periods"),
    "over capacity": (_pool(SEARCH, capacity_mtok=1.0), "and could 1"),
    "a limit of a replica": (_pool(CODE, margins=(OVER,)), "token pool 158001 > 158000"),
    "too many pools": (_model(0, max_pools=1), "2 pools, at least 1 and at most 1"),
    "no pool of a model": (_model(0, name="other"), "other: 0 pools"),
    "a quota exceeded": (_limit(0, limit=23.0), "H100 in us-east-1: 24 > 23 GPUs"),
    "a quota stated too low": (_limit(0, used=8.0), "8 GPUs are stated, 24 are used"),
    "the budget": (_limit(2, limit=1000.0), "> 1000 USD"),
    "power": (_limit(3, limit=51.0), "power: 52 > 51 kW"),
    "movement": (_limit(4, used=17.0), "movement: 17 > 16 GPUs moved"),
    "hours": (lambda plan: plan.model_copy(update={"horizon_hours": 2184.0}), "the periods have 2160 hours of 2184"),
    "a name twice": (_pool(CHAT_2, name="chat/1"), "pool chat/1 stands twice"),
    "periods of a pool": (_pool(CODE, periods=PLAN.pools[CODE].periods[:1]), "its periods are not the plan's"),
    "a gap in the routing": (_route(1, prompt_lo_tokens=5000), "prompts of 4,096 to 5,000 tokens are served 0 times"),
    "an overlap in the routing": (_route(0, prompt_hi_tokens=None), "to any length are served 2 times"),
    "half of the requests": (_route(2, share=0.5), "are served 0.5 times"),
    "a route to another's pool": (_route(2, pool="agents"), "agents is not its pool"),
    "a pool without a route": (_route(1, pool="chat/1"), "chat/2: nothing is routed to it"),
    "a route that the pool does not serve": (_route(0, prompt_hi_tokens=4000), "is not what that pool serves"),
    "a tenant that is not": (
        _with_route(Route(model="code", tenant="x", prompt_lo_tokens=0, prompt_hi_tokens=None, pool="code")),
        "tenant x is not the model's",
    ),
    "a bound above the cost": (_solve(bound=PLAN.solve.objective * 1.01), "lies above the cost"),
    "a gap that is not": (_solve(gap=0.5), "is not what cost and bound leave"),
    "optimal beyond the target": (
        _solve(gap_target=1e-9, bound=PLAN.solve.objective * 0.99, gap=0.01, status=SolveStatus.OPTIMAL),
        "called optimal with gap",
    ),
    "the bound by tokens": (_solve(usd_per_mtok_bound=PLAN.solve.usd_per_mtok_bound * 1.01), "is not the bound's"),
    "another last day": (
        lambda plan: plan.model_copy(update={"horizon_end": plan.horizon_end + dt.timedelta(days=1)}),
        "hours, 2160 are stated",
    ),
    "hours of a lot": (_lot(H100, hours=1.0), "are not the horizon's"),
    "a larger instance": (_supply(0, gpus_per_instance=16), "GPUs an instance, its supply has 16"),
    "more refused than may be": (_pool(CODE, refused_request_share=0.5), "of requests, "),
    "more overflow than may be": (
        _pool(CODE, load=PLAN.pools[CODE].load.model_copy(update={"expected_overflow": 0.5})),
        "overflows with probability 0.5",
    ),
    "no margins": (_pool(CODE, margins=()), "has no margin of concurrent sequences"),
    "tokens that are refused": (_pool(CODE, refused_output_share=0.5), "M output tokens"),
    "a share of a model's requests": (_pool(CHAT_1, request_share=0.5), "its pools serve 75.0"),
}


def test_the_sample_holds():
    verify(PLAN)


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_named(name: str):
    damage, words = DAMAGE[name]
    with pytest.raises(PlannerError) as found:
        verify(damage(PLAN))
    assert words in str(found.value)


def test_everything_that_is_wrong_is_said_at_once():
    damaged = _limit(4, used=17.0)(_pool(SEARCH, capacity_mtok=1.0)(PLAN))
    with pytest.raises(PlannerError, match=r"and could 1;.*17 > 16 GPUs moved"):
        verify(damaged)


def test_pools_that_share_a_slice_may_split_it():
    """code on two pools at shares 1/4 and 3/4: every request is still served once."""
    one, other = ({"request_share": share, "load_share": share} for share in (0.25, 0.75))
    routes = [route for route in PLAN.routes if route.pool == "code"]
    plan = PLAN.model_copy(
        update={
            "routes": (
                *(route for route in PLAN.routes if route.pool != "code"),
                routes[0].model_copy(update={"share": 0.25}),
                routes[0].model_copy(update={"share": 0.75, "pool": "code/2"}),
            ),
            "pools": (
                *PLAN.pools[:2],
                PLAN.pools[2].model_copy(update=one),
                *PLAN.pools[3:],
                PLAN.pools[2].model_copy(update={**other, "name": "code/2"}),
            ),
        }
    )
    from planner.assemble.routing_check import routing_faults

    assert list(routing_faults(plan)) == []
