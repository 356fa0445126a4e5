"""Needs of every slice in every period: against linear scans, the reference judgement, and the unpruned set."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.optimise.needs.candidate_table import stacked
from planner.optimise.needs.candidates import undominated
from planner.optimise.needs.exact import at_rate, capacity_per_s, exact_need, holds_exactly
from planner.optimise.needs.margins import binding_constraint, shares_at
from planner.queueing.load import Constraint, PoolCheck
from planner.queueing.replicas import feasible
from planner.request import Policy, Targets
from tests.optimise.world import candidates, lengths, workload

GPUS = ("A100-80GB-SXM", "H100-SXM", "L4")
LLAMA, NEMOTRON = "meta-llama/Llama-3.1-8B-Instruct", "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"
DAY = (1.0, 0.31, 0.31, 0.05)
ALL = {"weight_dtypes": ("bf16", "fp8"), "kv_dtypes": ("bf16", "fp8"), "max_num_seqs": (64, 256, 1024)}
FEW = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def whole(model: str = LLAMA, **changes):
    values = {"rate": 30.0, "idc": 6.0, "rates": DAY, "cuts": (512, 1449), "targets": Targets(tpot_ms=60)} | ALL
    return workload("m", model, **(values | changes))


def least_by_scan(need, period: int, holds) -> int:
    return next(n for n in range(1, 10_000) if holds(need, n, period))


def periods_by_rate(need) -> dict[float, int]:
    """One period of each rate: equal rates need not be scanned twice."""
    return {rate: period for period, rate in enumerate(need.rate_per_s)}


def least_by_bound(need, period: int) -> int:
    """All numbers from 1 to a few above the answer, judged one by one with `used_shares`."""
    tried = np.arange(1, need.replicas[period] + 4)
    demand = at_rate(need, need.rate_per_s[period]).demand
    held = feasible(stacked([need.config] * len(tried)), demand, tried.astype(float), need.limits)
    return int(tried[held.argmax()])


@pytest.mark.parametrize(
    ("model", "targets"),
    [(LLAMA, Targets()), (LLAMA, Targets(tpot_ms=50, ttft_ms=1500)), (NEMOTRON, Targets(ttft_ms=2000))],
)
def test_bounds_of_all_slices_and_periods_are_those_of_a_scan_with_the_reference_judgement(model, targets):
    """All at once, bracketed and with limits as yes or no: the same least numbers as one need at a time."""
    found = candidates(whole(model, targets=targets), GPUS).needs
    assert {need.slice.key for need in found} == {f"m[{a}-{b})" for a, b in
        [("0", "512"), ("0", "1449"), ("0", ""), ("512", "1449"), ("512", ""), ("1449", "")]}  # fmt: skip
    for need in found[:: max(1, len(found) // 15)]:
        scanned = tuple(least_by_bound(need, period) for period in range(len(DAY)))
        assert need.replicas == scanned, need.config.label


@FEW
@given(
    rate=st.floats(0.2, 80), idc=st.floats(1, 30), quiet=st.floats(1e-6, 1.0), seed=st.integers(0, 5),
    ttft=st.sampled_from([None, 800.0, 3000.0]), overflow=st.floats(0.001, 0.05),
)  # fmt: skip
def test_bounds_of_any_demand_are_those_of_a_scan(rate, idc, quiet, seed, ttft, overflow):
    work = workload("m", rate=rate, idc=idc, seed=seed, rates=(quiet, 1.0), targets=Targets(ttft_ms=ttft))
    for need in candidates(work, ("L4",), Policy(overflow_probability=overflow)).needs:
        assert need.replicas == tuple(least_by_bound(need, period) for period in (0, 1))


@pytest.mark.parametrize("model", [LLAMA, NEMOTRON])
@pytest.mark.parametrize("targets", [Targets(), Targets(tpot_ms=45, ttft_ms=1500)])
def test_pruning_leaves_out_nothing_that_is_better_anywhere(model, targets):
    """Whatever is left out, one that is kept on as many GPUs of the type needs no more in any period, exact or not."""
    work = whole(model, targets=targets)
    kept, everything = (candidates(work, GPUS, prune=prune).needs for prune in (True, False))
    assert len(kept) < len(everything)
    by_group: dict[tuple[str, str, int], list] = {}
    for need in kept:
        by_group.setdefault(group_of(need), []).append(need)
    for need in everything:
        refused = need.config.length.refused_token_share
        assert any(
            other.config.length.refused_token_share <= refused
            and all(a <= b for a, b in zip(other.replicas, need.replicas, strict=True))
            for other in by_group[group_of(need)]
        ), need.config.label


def test_pruning_loses_no_exact_need():
    """The least exact GPUs of every slice, type and degree are those of the unpruned set, in the busiest period."""
    work = workload("m", rate=12.0, idc=8.0, rates=(1.0, 0.4), tp_degrees=(1,), **ALL)
    least: list[dict[tuple[str, str, int], int]] = []
    for prune in (True, False):
        best: dict[tuple[str, str, int], int] = {}
        for need in candidates(work, ("A100-80GB-SXM", "L4"), prune=prune).needs:
            group = group_of(need)
            best[group] = min(best.get(group, 10**9), exact_need(need).replicas[0])
        least.append(best)
    assert least[0] == least[1]


def group_of(need) -> tuple[str, str, int]:
    return need.slice.key, need.config.gpu.id, need.config.tp


@pytest.mark.parametrize("model", [LLAMA, NEMOTRON])
def test_bound_is_below_the_exact_need_which_is_the_least(model):
    """In every period: a scan from 1 with the exact judgement finds the exact need, never below the bound."""
    work = workload("m", model, rate=15.0, idc=6.0, rates=DAY, weight_dtypes=("bf16", "fp8"))
    found = [(need, exact_need(need)) for need in candidates(work, GPUS).needs]
    assert len(found) >= 3
    for need, exact in found:
        assert exact.exact
        assert all(a <= b for a, b in zip(need.replicas, exact.replicas, strict=True))
        scanned = {rate: least_by_scan(exact, period, holds_exactly) for rate, period in periods_by_rate(exact).items()}
        assert exact.replicas == tuple(scanned[rate] for rate in exact.rate_per_s)
    assert any(need.replicas != exact.replicas for need, exact in found)


def test_chosen_need_is_exact_and_bound_by_a_constraint():
    need = exact_need(candidates(workload("m", rate=20.0, idc=10.0), ("L4",)).needs[0])
    assert holds_exactly(need, need.replicas[0])
    assert not holds_exactly(need, need.replicas[0] - 1)
    assert binding_constraint(need) in set(Constraint)
    assert all(share <= 1.0 for share in shares_at(need, need.replicas[0] + 1, None).values())


def test_a_period_without_requests_needs_one_replica():
    need = candidates(workload("m", rate=20.0, rates=(0.0, 1.0, 0.0)), ("L4",)).needs[0]
    assert need.replicas[1] > 1
    assert need.replicas == (1, need.replicas[1], 1)
    assert exact_need(need).replicas[0] == 1


def test_equal_rates_need_equal_replicas_whatever_their_order():
    one = candidates(workload("m", rate=20.0, idc=5.0, rates=(0.5, 1.0, 0.5, 0.2)), GPUS).needs
    two = candidates(workload("m", rate=20.0, idc=5.0, rates=(0.2, 0.5, 0.5, 1.0)), GPUS).needs
    assert [(n.replicas[3], n.replicas[0], n.replicas[2], n.replicas[1]) for n in one] == [n.replicas for n in two]
    assert all(n.replicas[0] == n.replicas[2] for n in one)


def test_a_slice_of_short_prompts_has_a_shorter_max_model_len():
    prompt, output = lengths(0)
    sample = (np.append(prompt, 30_000), np.append(output, 500))
    found = candidates(workload("m", rate=8.0, sample=sample, cuts=(1024,)), ("H100-SXM",)).needs
    longest = {
        need.slice.key: max(n.config.sizing.max_model_len for n in found if n.slice is need.slice) for need in found
    }
    assert longest["m[0-1024)"] <= 2048
    assert longest["m[1024-)"] >= 30_500
    assert all(need.config.sizing.max_model_len == need.config.length.max_model_len for need in found)


def test_order_of_gpus_does_not_matter():
    work = whole()
    one, two = (candidates(work, names) for names in (GPUS, GPUS[::-1]))
    assert [(n.config.label, n.replicas) for n in one.needs] == [(n.config.label, n.replicas) for n in two.needs]
    assert [r.detail for r in one.rejections] == [r.detail for r in two.rejections]


def test_what_no_number_of_replicas_saves_is_rejected_by_the_broken_constraint():
    """A token takes an L4 longer than 20 ms even when it is alone: 16 GB of weights at 300 GB/s are 53 ms."""
    found = candidates(workload("m", targets=Targets(tpot_ms=20), tp_degrees=(1,)), ("H100-SXM", "L4"))
    assert {need.config.gpu.id for need in found.needs} == {"H100-SXM"}
    (missed,) = [r for r in found.rejections if r.gpu == "L4"]
    assert missed.reason == Constraint.TPOT
    assert missed.excess > 53 / 20
    assert "almost idle" in missed.detail


def test_a_first_token_that_can_never_come_in_time():
    found = candidates(workload("m", targets=Targets(ttft_ms=1), tp_degrees=(1,)), ("L4",))
    assert not found.needs
    assert {r.reason for r in found.rejections} == {Constraint.TTFT}


def test_a_tail_that_no_length_keeps_is_said():
    prompt, output = np.append(lengths(0)[0], 140_000), np.append(lengths(0)[1], 500)
    found = candidates(workload("m", sample=(prompt, output)), ("H100-SXM",))
    assert not found.needs
    assert [r.reason for r in found.rejections] == ["tail length"]
    assert "131072" in found.rejections[0].detail


def test_capacity_holds_and_a_little_more_does_not():
    need = exact_need(candidates(workload("m", rate=20.0, idc=5.0, rates=(1.0, 0.3)), ("L4",)).needs[0])
    for replicas in (1, need.replicas[0]):
        rate = capacity_per_s(need, replicas)
        assert holds_exactly(rated(need, rate), replicas)
        assert not holds_exactly(rated(need, rate * 1.011), replicas)
    assert capacity_per_s(need, need.replicas[0]) >= need.rate_per_s[0]


def rated(need, rate: float):
    return replace(at_rate(need, rate), rate_per_s=(rate,))


def test_sure_judgement_is_stricter_than_the_bound_and_than_the_exact_one():
    work = workload("m", rate=30.0, idc=6.0, tp_degrees=(1,))
    for need in candidates(work, GPUS).needs:
        sure = least_by_scan(
            need,
            0,
            lambda x, n, _: bool(
                feasible(stacked([x.config]), x.demand, np.array([float(n)]), x.limits, PoolCheck.SURE)[0]
            ),
        )
        assert need.replicas[0] <= exact_need(need).replicas[0] <= sure


def test_of_equal_bounds_the_larger_pool_stays_by_hand():
    """Three caps of one state: 64 with pool 120 ties with 256 and 110, which goes; 1024 with 100 needs fewer and stays.

    The fourth is another state: nothing is compared with it.
    """
    screen = SimpleNamespace(
        state=np.array([0, 0, 0, 1]),
        pool_tokens=np.array([100.0, 120.0, 110.0, 90.0]),
        max_num_seqs=np.array([1024.0, 64.0, 256.0, 64.0]),
    )
    counts = np.array([[2, 1], [3, 1], [3, 1], [9, 9]])
    kept = undominated(SimpleNamespace(screen=screen), np.arange(4), counts)
    assert kept.tolist() == [True, True, False, True]
