"""Changes in words: every kind once, and their effects add up to the difference of the plans."""

from __future__ import annotations

import random

import pytest

from planner.assemble.money import pool_costs, pool_gpu_hours, supply_usd, totals_of
from planner.compare.changes import Change, ChangeKind, changes, signed_usd
from planner.plan import FleetPlan, Margin, Pool, Purchase
from tests.report.sample import H100, H100_1Y, IDLE, L40S_HELD, sample_plan
from tests.report.sample_study import sample_study


def _costed(plan: FleetPlan, pools: tuple[Pool, ...], purchases: tuple[Purchase, ...]) -> FleetPlan:
    """The plan with other pools and purchases, and what these cost."""
    costs = pool_costs([pool_gpu_hours(pool, plan.periods) for pool in pools], supply_usd(purchases))
    pools = tuple(pool.model_copy(update={"usd": usd}) for pool, usd in zip(pools, costs, strict=True))
    totals = totals_of(pools, purchases, plan.periods)
    return plan.model_copy(update={"pools": pools, "purchases": purchases, "totals": totals})


def _pool(name: str, /, **update: object) -> FleetPlan:
    """The hand-made plan with one pool changed; its money stays."""
    plan = sample_plan()
    pools = tuple(pool.model_copy(update=update) if pool.name == name else pool for pool in plan.pools)
    return plan.model_copy(update={"pools": pools})


def _lots(**update: dict[str, object]) -> FleetPlan:
    """The hand-made plan with lots changed, by position: ``lot1={...}``."""
    plan = sample_plan()
    lots = tuple(p.model_copy(update=update.get(f"lot{n}", {})) for n, p in enumerate(plan.purchases))
    return plan.model_copy(update={"purchases": lots})


def _only(last: FleetPlan, now: FleetPlan) -> Change:
    found = changes(last, now)
    assert len(found) == 1, found
    return found[0]


def test_a_plan_and_itself_have_no_changes():
    assert changes(sample_plan(), sample_plan()) == ()


@pytest.mark.parametrize(
    ("update", "words"),
    [
        ({"gpu": "A100-SXM-80GB", "gpus": 8}, "code moved from 8 x A100-SXM-80GB to 3 x H100-SXM"),
        ({"gpus": 6, "replicas": 6}, "code went from 6 x H100-SXM to 3 x H100-SXM: replicas 3 (was 6)"),
        ({"tp": 2}, "code stays on 3 x H100-SXM: tp 1 (was 2)"),
        ({"weights": "Qwen/Qwen2.5-32B"}, "code stays on 3 x H100-SXM: weights Qwen/Qwen3-32B (was Qwen/Qwen2.5-32B)"),
        ({"weight_dtype": "bf16"}, "code stays on 3 x H100-SXM: fp8 weights now used (was bf16)"),
        ({"kv_dtype": "fp8"}, "code stays on 3 x H100-SXM: bf16 KV cache now used (was fp8)"),
        ({"max_model_len": 8192}, "code stays on 3 x H100-SXM: max_model_len 32,768 (was 8,192)"),
        ({"engine_version": "0.10.2"}, "code stays on 3 x H100-SXM: engine vllm 0.11.0 (was vllm 0.10.2)"),
        ({"tail_budget": 0.002}, "code stays on 3 x H100-SXM: tail budget 0.1 % (was 0.2 %)"),
        ({"prompt_hi_tokens": 900}, "code stays on 3 x H100-SXM: serves all prompts (was prompts of 0 to 899 tokens)"),
        ({"tenants": ("a", "b")}, "code stays on 3 x H100-SXM: serves all prompts (was all prompts of a, b)"),
        ({"mean_prompt_tokens": 1000.0}, "code stays on 3 x H100-SXM: mean prompt +105 %"),
        ({"mean_output_tokens": 54.0}, "code stays on 3 x H100-SXM: mean output -50 %"),
    ],
)  # fmt: skip
def test_what_changed_for_the_only_pool_of_a_model(update: dict[str, object], words: str):
    found = _only(_pool("code", **update), sample_plan())
    assert (found.kind, found.subject, found.text, found.usd) == (ChangeKind.MODEL, "code", words, 0)


def test_traffic_is_in_requests_an_hour_of_each_horizon():
    """Twice the hours with twice the requests is no change; a quarter fewer requests then is +33 % now."""
    now = sample_plan()
    code = next(pool for pool in now.pools if pool.name == "code")
    longer = now.model_copy(update={"horizon_hours": 2 * now.horizon_hours})
    pools = tuple(pool.model_copy(update={"offered_requests": 2 * pool.offered_requests}) for pool in now.pools)
    (only,) = changes(longer.model_copy(update={"pools": pools}), now)
    assert only.kind is ChangeKind.HORIZON
    assert only.usd is None
    assert only.text.startswith("the horizon has 2,160 h, 2,160 fewer than last quarter's (-50.0%)")
    found = _only(_pool("code", offered_requests=0.75 * code.offered_requests), now)
    assert found.text == "code stays on 3 x H100-SXM: traffic +33 %"


def test_latency_targets_that_came_went_and_changed():
    code = next(pool for pool in sample_plan().pools if pool.name == "code")
    other = [m for m in code.margins if "target" not in m.constraint]
    tpot = next(m for m in code.margins if m.constraint == "TPOT target")
    last = _pool("code", margins=(*other, tpot.model_copy(update={"limit": 60.0})))
    found = _only(last, sample_plan())
    assert found.details == ("TPOT target 40 ms (was 60 ms)", "TTFT target 1000 ms (was none)")
    assert isinstance(tpot, Margin)
    assert _only(sample_plan(), last).details == ("TPOT target 60 ms (was 40 ms)", "TTFT target none (was 1000 ms)")


def test_replicas_that_stay_in_the_busiest_period_and_change_in_others():
    """Busy 720 h 3, other 1440 h 2: mean 2.3; were 3 all the time."""
    code = next(pool for pool in sample_plan().pools if pool.name == "code")
    periods = tuple(period.model_copy(update={"replicas": 3}) for period in code.periods)
    assert _only(_pool("code", periods=periods), sample_plan()).details == ("mean replicas 2.3 (was 3.0)",)


def test_pools_of_a_model_are_compared_by_name():
    now = sample_plan()
    kept = tuple(pool for pool in now.pools if pool.name != "chat/2")
    last = now.model_copy(
        update={"pools": tuple(p.model_copy(update={"tp": 8}) if p.name == "chat/1" else p for p in kept)}
    )
    found = next(change for change in changes(last, now) if change.subject == "chat")
    assert found.lead == "chat went from 12 x H100-SXM to 16 x H100-SXM"
    assert found.details[:3] == (
        "2 pools (was 1)", "chat/1: tp 4 (was 8)", "chat/2 new: 1 x H100-SXM tp 4 fp8/fp8, max_model_len 16,384"
    )  # fmt: skip
    back = next(change for change in changes(now, last) if change.subject == "chat")
    assert back.details[0] == "1 pool (was 2)"
    assert back.details[2] == "chat/2 gone: 1 x H100-SXM tp 4 fp8/fp8, max_model_len 16,384"


def test_models_that_are_new_or_gone_bear_all_their_cost():
    plan = sample_plan()
    vision = next(pool for pool in plan.pools if pool.name == "vision")
    without = plan.model_copy(update={"pools": tuple(pool for pool in plan.pools if pool is not vision)})
    lots = tuple(p for p in plan.purchases if p.supply != vision.placements[0].supply)
    without = without.model_copy(update={"purchases": lots})
    new, gone = _only(without, plan), _only(plan, without)
    assert new.sentence == "vision is new, on 2 x A100-SXM-80GB: traffic 2,531 requests/h; cost +7,006 USD"
    assert gone.sentence == "vision is not planned any more, was on 2 x A100-SXM-80GB: cost -7,006 USD"
    assert (new.kind, gone.kind) == (ChangeKind.NEW, ChangeKind.DROPPED)
    assert new.usd == pytest.approx(vision.usd)


def test_prices_of_what_both_plans_buy():
    last = _lots(lot0={"reserved_usd_per_h": 25.0}, lot1={"used_usd_per_h": 50.0})
    found = changes(last, sample_plan())
    assert [(change.kind, change.subject, change.usd) for change in found] == [
        (ChangeKind.PRICE, H100_1Y, None), (ChangeKind.PRICE, H100, None)
    ]  # fmt: skip
    assert found[0].text == f"Price of {H100_1Y}, USD per reserved instance-hour: 30.0000 (was 25.0000), +20 %"
    assert found[1].sentence == f"Price of {H100}, USD per instance-hour in use: 55.0400 (was 50.0000), +10 %"


def test_contracts_begin_end_and_grow():
    """What was new last quarter is held now under the same offer: it goes on."""
    plan = sample_plan()
    new, idle, held = plan.purchases[0], plan.purchases[6], plan.purchases[3]
    last = plan.model_copy(update={"purchases": (held, *plan.purchases[1:3], *plan.purchases[4:6])})
    texts = [change.text for change in changes(last, plan) if change.kind is ChangeKind.CONTRACT]
    assert texts == [
        f"Contract {H100_1Y} begins with 1 instance", "Contract lambda/gpu_1x_a10/commit_1y begins with 2 instances"
    ]  # fmt: skip
    texts = [change.text for change in changes(plan, last) if change.kind is ChangeKind.CONTRACT]
    assert texts[1] == "Contract lambda/gpu_1x_a10/commit_1y has ended: 2 instances less"
    goes_on = new.model_copy(update={"offer_id": f"held/{H100_1Y}/2028-01-01/2", "kind": "existing commitment"})
    same = plan.model_copy(update={"purchases": (goes_on, *plan.purchases[1:])})
    assert not [c for c in changes(plan, same) if c.kind is ChangeKind.CONTRACT]
    more = plan.model_copy(update={"purchases": (*plan.purchases[:6], idle.model_copy(update={"instances": 5}))})
    assert _only_contract(plan, more) == "Contract lambda/gpu_1x_a10/commit_1y stands for 5 instances (was 2)"
    assert (idle.offer_id, held.offer_id) == (IDLE, L40S_HELD)


def _only_contract(last: FleetPlan, now: FleetPlan) -> str:
    (found,) = [change for change in changes(last, now) if change.kind is ChangeKind.CONTRACT]
    return found.text


def test_hardware_that_is_bought():
    now = _lots(lot0={"kind": "bought", "offer_id": "bought/rack"})
    texts = [change.text for change in changes(sample_plan(), now) if change.kind is ChangeKind.CONTRACT]
    assert texts == [f"Contract {H100_1Y} has ended: 1 instance less", "1 instance of bought/rack bought"]


def test_what_no_model_bears_is_a_line_of_its_own():
    """The idle A10 cost 2,592 USD; 3,000 last quarter."""
    found = _only(_lots(lot6={"usd": 3_000.0, "sunk_usd": 3_000.0}), sample_plan())
    assert found.kind is ChangeKind.UNSERVED
    assert found.usd == -408
    assert found.details == (f"now 2 x {IDLE}", f"last quarter 2 x {IDLE}")


def test_effects_add_up_to_the_difference():
    """Prices and pools at random, 30 times; and the study."""
    rng = random.Random(7)
    plan = sample_plan()
    for _ in range(30):
        lots = tuple(
            p.model_copy(update={"usd": p.usd * rng.uniform(0.5, 2), "used_usd_per_h": rng.uniform(1, 60)})
            for p in plan.purchases
        )
        last = _costed(plan, tuple(p for p in plan.pools if p.model == "chat" or rng.random() < 0.7), lots)
        _adds_up(last, plan)
        _adds_up(plan, last)
    study = sample_study()
    assert study.last
    for scenario in study.scenarios:
        _adds_up(study.last.plan, scenario.plan)


def _adds_up(last: FleetPlan, now: FleetPlan) -> None:
    effects = [change.usd for change in changes(last, now) if change.usd is not None]
    assert sum(effects) == pytest.approx(now.totals.usd - last.totals.usd, abs=1e-6)


def test_models_stand_by_the_size_of_their_effect_and_words_hold_no_money():
    study = sample_study()
    assert study.last
    found = changes(study.last.plan, study.plan)
    sizes = [abs(c.usd) for c in found if c.usd is not None and c.kind is not ChangeKind.UNSERVED]
    assert sizes == sorted(sizes, reverse=True)
    assert len({c.kind for c in found}) == len(ChangeKind)
    assert not any("cost" in change.text for change in found)
    assert found == changes(study.last.plan, study.plan)


def test_money_in_words():
    assert [signed_usd(usd) for usd in (-12_300.4, 1234.5, 0.2, -0.2)] == [
        "-12,300 USD", "+1,234 USD", "unchanged", "unchanged"
    ]  # fmt: skip
