"""Laws of the whole planner: what is looser is never dearer, what is stricter never cheaper, order does not matter.

Each law compares two plans of small worlds that differ in one rule. Both are within the solver's gap, so a law may be
missed by that much.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.catalog.offer import Term
from planner.optimise.pools.slices import slices_of
from planner.optimise.recount import recount
from planner.optimise.solve.fleet import Fleet
from planner.optimise.types import Caps, Movement
from planner.request import Routing, Targets, TenantRequest
from tests.optimise.world import SETTINGS, fleet, lengths, offer, traffic, workload

FEW = settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
SLACK = 1 + SETTINGS.gap
DAY = (1.0, 0.45, 0.1)
TWO_POOLS = {"max_pools": 2}
PRICES = {"H100-SXM": 2.6, "L4": 0.8, "A100-80GB-SXM": 1.7}

rates = st.floats(0.3, 40)
idcs = st.floats(1, 12)
seeds = st.integers(0, 5)
bands = st.sampled_from([(), (256,), (512,)])


def on_demand(**factors: float):
    return [
        offer(gpu, size, round(usd * size * factors.get(gpu.replace("-", "_"), 1.0), 4))
        for gpu, usd in PRICES.items()
        for size in (1, 4)
    ]


def on_term(term: Term, share: float, gpu: str = "L4"):
    """An offer of 1 GPU on another term, at a share of the price on demand."""
    plain = offer(gpu, 1, round(PRICES[gpu] * share, 4))
    return plain.model_copy(update={"id": plain.id.replace("on_demand", term.value), "term": term})


def world(works, offers, *, caps: Caps | None = None, movement: Movement | None = None, **changes) -> Fleet:
    """A fleet under caps and a movement limit; the spares are the policy's."""
    made = fleet(works, offers, **changes)
    data = replace(made._data, movement=movement, caps=caps or made._data.caps)
    return Fleet(works, made._needs, made._spares, data, lambda text: None)


def plan(works, offers, **changes):
    """The decision, which must hold when it is counted again, with every chosen need exact."""
    made = world(works, offers, **changes)
    found = made.solve(SETTINGS)
    if found is not None:
        assert recount(made.data(), found) == []
        assert all(part.need.exact for column in found.columns for part in column.parts)
        assert found.usd_per_token_bound <= found.usd_per_token * (1 + 1e-9)
    return found


def ratio(decision) -> float:
    return np.inf if decision is None else decision.usd_per_token


def never_dearer(loose, strict) -> None:
    assert ratio(loose) <= ratio(strict) * SLACK


# ------------------------------------------------------------------------------------------------- pools and periods


@FEW
@given(rate=rates, idc=idcs, seed=seeds, cut=st.sampled_from([256, 512, 1024]))
def test_a_second_pool_is_never_dearer(rate, idc, seed, cut):
    works = [workload("m", rate=rate, idc=idc, seed=seed, rates=DAY, cuts=(cut,))]
    two = plan(works, on_demand(), routing=TWO_POOLS)
    assert len(two.columns) <= 2
    never_dearer(two, plan(works, on_demand()))


@FEW
@given(rate=rates, idc=idcs, seed=seeds, cuts=bands)
def test_finer_periods_are_never_dearer(rate, idc, seed, cuts):
    """Four periods against two, each planned at the higher of two rates."""
    fine = [workload("m", rate=rate, idc=idc, seed=seed, rates=(1.0, 0.6, 0.3, 0.1), cuts=cuts)]
    coarse = [workload("m", rate=rate, idc=idc, seed=seed, rates=(1.0, 1.0, 0.3, 0.3), cuts=cuts)]
    one, two = plan(fine, on_demand(), routing=TWO_POOLS), plan(coarse, on_demand(), routing=TWO_POOLS)
    assert one.usd <= two.usd * SLACK


@FEW
@given(rate=rates, seed=seeds, cuts=bands, step=st.integers(2, 3))
def test_scaling_rules_are_never_cheaper(rate, seed, cuts, step):
    free = plan([workload("m", rate=rate, seed=seed, rates=DAY, cuts=cuts)], on_demand(), routing=TWO_POOLS)
    for rules in ({"fixed": True}, {"step": step}, {"min_replicas": step}):
        works = [workload("m", rate=rate, seed=seed, rates=DAY, cuts=cuts, scaling=rules)]
        never_dearer(free, plan(works, on_demand(), routing=TWO_POOLS))


# --------------------------------------------------------------------------------------------------------- contracts


@FEW
@given(rate=rates, seed=seeds, share=st.floats(0.3, 1.2), liability=st.floats(0, 60_000))
def test_one_more_contract_is_never_dearer(rate, seed, share, liability):
    """Also under a cap on what is owed afterwards; and a tighter cap is never cheaper."""
    works = [workload("m", rate=rate, seed=seed, rates=DAY)]
    offers = [*on_demand(), on_term(Term.COMMIT_1Y, share)]
    free = plan(works, offers)
    capped = plan(works, offers, caps=Caps(liability_usd=liability))
    never_dearer(free, capped)
    never_dearer(capped, plan(works, on_demand()))


@FEW
@given(rate=rates, seed=seeds, instances=st.integers(1, 6), price=st.floats(0.0, 2.0))
def test_a_sunk_commitment_never_raises_what_else_is_paid(rate, seed, instances, price):
    works = [workload("m", rate=rate, seed=seed, rates=DAY)]
    held = "verda/l40s/any/on_demand"
    row = {"offer": held, "instances": instances, "until": "2028-01-01", "usd_per_instance_h": price}
    with_it = plan(works, on_demand(), commitment=[row])
    assert with_it.usd - price * instances * 2160 <= plan(works, on_demand()).usd * SLACK


@FEW
@given(rate=rates, seed=seeds, share=st.floats(0.3, 0.9), reserve=st.floats(0, 0.6), more=st.floats(0, 0.3))
def test_spot_is_never_dearer_and_a_reserve_never_cheaper(rate, seed, share, reserve, more):
    offers = [*on_demand(), on_term(Term.SPOT, share)]

    def at(reserved: float, interruptible: bool = True):
        works = [workload("m", rate=rate, seed=seed, rates=DAY, interruptible=interruptible)]
        return plan(works, offers, policy={"spot_reserve": reserved})

    small = at(reserve)
    never_dearer(small, at(reserve + more))
    never_dearer(small, at(reserve, interruptible=False))


@FEW
@given(rate=rates, seed=seeds, size=st.sampled_from([1, 3, 8]), hourly=st.floats(0, 5), instances=st.integers(0, 3))
def test_owned_hardware_is_never_dearer(rate, seed, size, hourly, instances):
    works = [workload("m", rate=rate, seed=seed, rates=DAY)]
    rack = {
        "name": "rack", "gpu": "H100-SXM", "gpus_per_instance": size, "instances": instances,
        "usd_per_instance_h": hourly, "source": "register",
    }  # fmt: skip
    never_dearer(plan(works, on_demand(), owned=[rack]), plan(works, on_demand()))


# ------------------------------------------------------------------------------------------------------------ limits


@FEW
@given(rate=st.floats(2, 40), seed=seeds, most=st.integers(0, 6), more=st.integers(1, 4))
def test_a_looser_quota_is_never_dearer_where_nothing_is_split(rate, seed, most, more):
    works = [workload("m", rate=rate, seed=seed, rates=DAY)]

    def under(gpus: int):
        return plan(works, on_demand(), quota=[{"name": "q", "gpu": "L4", "max_gpus": gpus}])

    never_dearer(under(most + more), under(most))
    never_dearer(plan(works, on_demand()), under(most + more))


@FEW
@given(rate=rates, seed=seeds, share=st.floats(0.5, 1.3), wider=st.floats(1.0, 1.3))
def test_a_budget_is_kept_and_a_wider_one_never_dearer(rate, seed, share, wider):
    works = [workload("m", rate=rate, seed=seed, tail_budget=0.02)]
    free = plan(works, on_demand())
    tight = plan(works, on_demand(), caps=Caps(budget_usd=free.usd * share))
    loose = plan(works, on_demand(), caps=Caps(budget_usd=free.usd * share * wider))
    assert tight is None or tight.usd <= free.usd * share * (1 + 1e-9)
    never_dearer(loose, tight)
    never_dearer(free, loose)
    assert (share < 1) or ratio(tight) <= free.usd_per_token * SLACK


@FEW
@given(rate=rates, seed=seeds, last=st.integers(0, 3), most=st.integers(0, 12), more=st.integers(0, 6))
def test_a_looser_movement_limit_is_never_dearer(rate, seed, last, most, more):
    works = [workload("m", rate=rate, seed=seed, rates=DAY)]

    def under(moved: int):
        return plan(works, on_demand(), movement=Movement({("m", "H100-SXM"): last}, moved))

    never_dearer(under(most + more), under(most))
    never_dearer(plan(works, on_demand()), under(most + more))


# ------------------------------------------------------------------------------------------- what the owners demand


@FEW
@given(rate=rates, seed=seeds, budget=st.floats(0, 0.02), wider=st.floats(0, 0.02), cuts=bands)
def test_a_wider_tail_budget_never_raises_the_ratio(rate, seed, budget, wider, cuts):
    def at(share: float):
        works = [workload("m", rate=rate, seed=seed, tail_budget=share, cuts=cuts, rates=DAY)]
        return plan(works, on_demand(), routing=TWO_POOLS)

    never_dearer(at(budget + wider), at(budget))


@FEW
@given(rate=rates, seed=seeds, tpot=st.floats(25, 80), looser=st.floats(1, 2), overflow=st.floats(0.002, 0.05))
def test_looser_targets_and_overflow_are_never_dearer(rate, seed, tpot, looser, overflow):
    def at(tpot_ms: float, share: float):
        works = [workload("m", rate=rate, seed=seed, targets=Targets(tpot_ms=tpot_ms), cuts=(512,), rates=DAY)]
        return plan(works, on_demand(), routing=TWO_POOLS, policy={"overflow_probability": share})

    tight = at(tpot, overflow)
    never_dearer(at(tpot * looser, overflow), tight)
    never_dearer(at(tpot, overflow * looser), tight)


@FEW
@given(rate=st.floats(0.3, 4), seed=seeds, spares=st.integers(1, 3))
def test_spares_and_regions_are_never_cheaper(rate, seed, spares):
    """Three regions at different prices: surviving the loss of one takes at least what the need takes."""
    offers = [offer("L4", 1, usd, region=region) for region, usd in (("a", 0.8), ("b", 0.9), ("c", 0.7))]

    def at(count: int = 0, **rules):
        works = [workload("m", rate=rate, seed=seed, rates=(1.0, 0.3), tp_degrees=(1,), **rules)]
        return plan(works, offers, policy={"spare_replicas": count})

    plain = at()
    never_dearer(plain, at(spares))
    spread = at(survives_region_loss=True)
    never_dearer(plain, spread)
    never_dearer(at(regions=("a", "b")), at(regions=("a",)))
    never_dearer(spread, at(survives_region_loss=True, regions=("a", "b")))
    assert at(survives_region_loss=True, regions=("a",)) is None


QUALITY = [
    {"weight_dtype": "fp8", "kv_dtype": "bf16", "score_drop": 0.01, "source": "s"},
    {"weight_dtype": "fp8", "kv_dtype": "fp8", "score_drop": 0.03, "source": "s"},
    {"weight_dtype": "bf16", "kv_dtype": "bf16", "score_drop": 0.0, "source": "s"},
]


@FEW
@given(rate=rates, seed=seeds, most=st.sampled_from([0.0, 0.005, 0.01, 0.02]), more=st.sampled_from([0.01, 0.03]))
def test_only_approved_formats_are_chosen_and_a_larger_drop_is_never_dearer(rate, seed, most, more):
    def at(drop: float):
        formats = {"weight_dtypes": ("bf16", "fp8"), "kv_dtypes": ("bf16", "fp8")}
        works = [workload("m", rate=rate, seed=seed, quality=QUALITY, max_score_drop=drop, **formats)]
        found = plan(works, on_demand())
        for column in found.columns:
            d = column.parts[0].need.config.sizing.deployment
            drops = [
                q["score_drop"] for q in QUALITY if (q["weight_dtype"], q["kv_dtype"]) == (d.weight_dtype, d.kv_dtype)
            ]
            assert drops
            assert drops[0] <= drop
        return found

    never_dearer(at(most + more), at(most))


@FEW
@given(rate=rates, idc=idcs, seed=seeds, more=st.floats(1, 3), cheaper=st.floats(0.4, 1.0))
def test_more_demand_never_costs_less_and_a_cheaper_gpu_never_more(rate, idc, seed, more, cheaper):
    def at(factor: float, price: float = 1.0):
        works = [workload("m", rate=rate * factor, idc=idc, seed=seed, rates=DAY, cuts=(512,))]
        return plan(works, on_demand(A100_80GB_SXM=price), routing=TWO_POOLS)

    one = at(1.0)
    assert one.usd <= at(more).usd * SLACK
    assert at(1.0, cheaper).usd <= one.usd * SLACK


# ------------------------------------------------------------------------------------------------------------- order


def by_tenant(order: tuple[str, ...], rate: float):
    """A model of two tenants with targets of their own, in any order."""
    prompt, output = lengths(3)
    long = prompt >= 725
    logs = {
        "acme": traffic("acme", prompt[long], output[long]),
        "acme-2": traffic("acme-2", prompt[~long], output[~long]),
    }
    targets = {"acme": Targets(tpot_ms=60), "acme-2": Targets(tpot_ms=30)}
    tenants = [TenantRequest(name=n, traffic={"path": "none"}, targets=targets[n]) for n in order]
    base = workload("m", rate=rate, sample=(prompt, output), rates=DAY)
    request = base.request.model_copy(update={"tenant": tuple(tenants)})
    by_period = rate * np.array(DAY)
    slices, end = slices_of(request, Routing(max_pools=3, cuts=(725,)), base.traffic, logs, by_period, by_period)
    return replace(base, request=request, slices=slices, end_node=end)


def shown(decision) -> tuple[object, ...]:
    """All that is decided, in an order of its own."""
    return (
        round(decision.usd, 6), sorted(c.key for c in decision.columns), sorted(decision.running.items()),
        sorted(decision.reserved.items()), sorted(decision.placed.items()),
    )  # fmt: skip


OFFERS = [*on_demand(), on_term(Term.COMMIT_1Y, 0.7)]
QUOTAS = [{"name": "few", "gpu": "L4", "max_gpus": 5}, {"name": "none", "gpu": "A100-80GB-SXM", "max_gpus": 0}]


@FEW
@given(rate=rates, order=st.permutations(range(7)))
def test_order_of_models_offers_and_quotas_does_not_matter(rate, order):
    def at(places, turn: int):
        works = [workload("m", rate=rate, rates=DAY, cuts=(512,)), workload("n", rate=rate / 2, rates=DAY)]
        return plan(works[::turn], [OFFERS[i] for i in places], quota=QUOTAS[::turn], routing=TWO_POOLS)

    assert shown(at(order, -1)) == shown(at(range(7), 1))


@FEW
@given(rate=rates)
def test_order_of_tenants_does_not_matter_and_the_same_request_is_decided_alike(rate):
    def at(names):
        return shown(plan([by_tenant(names, rate)], OFFERS, routing={"max_pools": 3}))

    one = at(("acme", "acme-2"))
    assert at(("acme-2", "acme")) == one
    assert at(("acme", "acme-2")) == one


def test_tenants_with_targets_of_their_own_are_told_apart_where_it_pays():
    """A strict tenant of short prompts need not make the other's pool strict: the plan is never dearer for it."""
    found = plan([by_tenant(("acme", "acme-2"), 20.0)], on_demand(), routing={"max_pools": 3})
    one = plan([by_tenant(("acme", "acme-2"), 20.0)], on_demand(), routing={"max_pools": 1})
    never_dearer(found, one)
    assert {c.parts[0].need.slice.targets.tpot_ms for c in one.columns} == {30}


def test_a_model_needs_a_region_that_is_on_offer():
    works = [workload("m", rate=2.0, regions=("elsewhere",))]
    assert plan(works, on_demand()) is None
    assert plan([workload("m", rate=2.0, regions=("r",))], on_demand()).usd == pytest.approx(
        plan([workload("m", rate=2.0)], on_demand()).usd
    )


def test_tenants_on_a_type_that_is_short_are_planned():
    """Nodes of tenants' own axes lie beyond the end of the routing graph, also where slices may be split."""
    tenants = by_tenant(("acme", "acme-2"), 1.0)
    short = plan([tenants], on_demand(), routing={"max_pools": 3}, quota=[{"name": "few", "gpu": "L4", "max_gpus": 5}])
    free = plan([tenants], on_demand(), routing={"max_pools": 3})
    assert short is not None
    assert free is not None
    assert short.usd_per_token >= free.usd_per_token * (1 - 1e-4)
