"""Runners-up, prices at which a choice flips, what a quota is worth: each is checked by planning anew."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.errors import SolverError
from planner.optimise.explain.reasons import quota_worth, runner_up, time_left
from planner.optimise.solve.fleet import Fleet
from planner.optimise.types import Decision, LotKind
from planner.request import Quota, Targets
from tests.optimise.world import SETTINGS, fleet, offer, workload

PRICES = {"H100-SXM": 3.0, "L4": 0.8, "A100-80GB-SXM": 1.8}


def offers(size: int = 1, **usd: float):
    """One offer a GPU type; prices per GPU-hour."""
    return [offer(gpu, size, size * usd.get(gpu.replace("-", "_"), price)) for gpu, price in PRICES.items()]


def gpus_of(decision: Decision, model: str = "m") -> set[str]:
    return {part.need.config.gpu.id for c in decision.columns if c.model == model for part in c.parts}


def solved(made: Fleet) -> Decision:
    decision = made.solve(SETTINGS)
    assert decision is not None
    return decision


@pytest.mark.parametrize("size", [1, 2])
def test_the_choice_flips_at_the_price_that_is_named(size):
    """Everything else equal, on whole instances too: 1 % below that price the choice stays, 1 % above it is another."""
    made = fleet([workload("m", rate=20.0)], offers(size))
    decision = solved(made)
    runner = runner_up(made, decision, "m", SETTINGS)
    (gpu,) = gpus_of(decision)
    other = next(name for name in PRICES if name in runner.description)
    assert other != gpu
    assert runner.extra_usd >= -SETTINGS.gap * decision.usd
    assert runner.flip_usd_per_gpu_h > PRICES[gpu]
    for factor, expected in ((0.99, gpu), (1.01, other)):
        price = {gpu.replace("-", "_"): runner.flip_usd_per_gpu_h * factor}
        assert gpus_of(solved(fleet([workload("m", rate=20.0)], offers(size, **price)))) == {expected}


def test_the_runner_up_is_the_best_without_the_chosen_type():
    """One model: planning anew without that GPU type must cost what the runner-up is said to cost."""
    made = fleet([workload("m", rate=20.0)], offers())
    decision = solved(made)
    runner = runner_up(made, decision, "m", SETTINGS)
    left = [o for o in offers() if o.gpu not in gpus_of(decision)]
    other = solved(fleet([workload("m", rate=20.0)], left))
    assert runner.extra_usd == pytest.approx(other.usd - decision.usd, rel=1e-6)
    part = other.columns[0].parts[0]
    assert runner.description == f"{part.running[0]} x {part.need.config.short_label}"


def test_the_other_models_stay_as_they_are():
    """Moving one of two models: what the runner-up costs more is at least what planning both anew would cost more."""
    works = [workload("m", rate=20.0), workload("n", rate=9.0, seed=2)]
    made = fleet(works, offers(8))
    decision = solved(made)
    runner = runner_up(made, decision, "m", SETTINGS)
    types = gpus_of(decision)
    free = made.solve(SETTINGS, lambda need: need.config.model != "m" or need.config.gpu.id not in types)
    assert runner.extra_usd >= (free.usd - decision.usd) * (1 - SETTINGS.gap) - 1e-6


def test_another_configuration_where_there_is_one_gpu_type():
    made = fleet([workload("m", rate=20.0, tp_degrees=(1, 2))], [offer("L4", 2, 1.6)])
    decision = solved(made)
    chosen = decision.columns[0].parts[0].need.config
    runner = runner_up(made, decision, "m", SETTINGS)
    assert runner.description.split(" x ")[1] != chosen.short_label
    assert "L4" in runner.description
    assert runner.flip_usd_per_gpu_h is None


def test_nothing_else_is_feasible():
    made = fleet([workload("m", rate=5.0, tp_degrees=(1,))], [offer("L4", 1, 0.8)])
    assert runner_up(made, solved(made), "m", SETTINGS) is None


def test_owned_hardware_has_no_price_to_flip():
    made = fleet([workload("m", rate=20.0)], offers())
    gpu = next(iter(gpus_of(solved(made))))
    lots = tuple(
        replace(lot, kind=LotKind.OWNED, used_usd_per_h=0.1) if lot.offer.gpu == gpu else lot for lot in made._data.lots
    )
    made._data = replace(made._data, lots=lots)
    runner = runner_up(made, solved(made), "m", SETTINGS)
    assert gpu not in runner.description
    assert runner.flip_usd_per_gpu_h is None


def test_the_worth_of_a_quota_is_what_one_more_instance_saves():
    """Held to 2 GPUs fewer than wanted, in instances of 2: a GPU is worth half of what 2 more save."""
    free = solved(fleet([workload("m", rate=20.0)], offers(2)))
    (gpu,) = gpus_of(free)
    wanted = 2 * sum(n for counts in free.running.values() for n in counts)
    quota = Quota(name="q", gpu=gpu, max_gpus=wanted - 2)
    made = fleet([workload("m", rate=20.0)], offers(2), quota=[quota.model_dump()])
    held = solved(made)
    assert held.usd > free.usd * (1 + 2 * SETTINGS.gap)
    worth = quota_worth(made, held, SETTINGS)["q"]
    again = solved(
        fleet([workload("m", rate=20.0)], offers(2), quota=[quota.model_copy(update={"max_gpus": wanted}).model_dump()])
    )
    assert worth == pytest.approx((held.usd - again.usd) / 2)
    assert worth > 0


def test_a_quota_that_does_not_bind_is_worth_nothing():
    quotas = [{"name": "wide", "max_gpus": 10_000}, {"name": "of nothing", "gpu": "B200", "max_gpus": 0}]
    made = fleet([workload("m", rate=20.0)], offers(), quota=quotas)
    assert quota_worth(made, solved(made), SETTINGS) == {"wide": 0.0, "of nothing": 0.0}


def test_what_is_not_found_in_time_is_neither_none_nor_nothing():
    """Without time, a runner-up is an error and no `None`, and the worth of a quota is left out and not 0."""
    made = fleet([workload("m", rate=20.0)], offers(), quota=[{"name": "wide", "max_gpus": 10_000}])
    decision = solved(made)
    no_time = replace(SETTINGS, time_limit_s=1e-9)
    with pytest.raises(SolverError):
        runner_up(made, decision, "m", no_time)
    assert quota_worth(made, decision, no_time) == {}
    with pytest.raises(SolverError, match="time_limit_s"):
        time_left(SETTINGS, ends=0.0)


def test_a_speed_target_is_kept_by_the_runner_up_too():
    """No L4 keeps 30 ms a token: it is no runner-up."""
    made = fleet([workload("m", rate=20.0, targets=Targets(tpot_ms=30.0))], offers())
    decision = solved(made)
    runner = runner_up(made, decision, "m", SETTINGS)
    assert runner is not None
    assert "L4" not in runner.description
