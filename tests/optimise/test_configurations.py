"""What is tried: approved formats only, sizings and speeds computed once, lengths on a ladder, replicas over nodes."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.memory.calibration import calibrated_size
from planner.memory.types import Deployment
from planner.optimise.needs.approved import QUALITY
from planner.optimise.needs.configurations import Replicas
from planner.optimise.needs.lengths import RUNGS, ladder, length_choices, sure_share
from planner.request import Targets
from planner.speed.chain import speed_of
from planner.traffic.law import refused_shares
from tests.optimise.world import candidates, catalog, serving, workload

BOTH = {"weight_dtypes": ("bf16", "fp8"), "kv_dtypes": ("bf16", "fp8")}


def pair(weights: str, kv: str, drop: float) -> dict[str, object]:
    return {"weight_dtype": weights, "kv_dtype": kv, "score_drop": drop, "source": "evaluation"}


def pairs_of(found) -> set[tuple[str, str, float | None]]:
    deployments = [(need.config.sizing.deployment, need.config.score_drop) for need in found.needs]
    return {(d.weight_dtype.value, d.kv_dtype.value, drop) for d, drop in deployments}


def quality_reasons(found) -> list[str]:
    return [r.detail for r in found.rejections if r.reason == QUALITY]


def test_only_listed_pairs_with_their_drops():
    listed = (pair("bf16", "bf16", 0.0), pair("fp8", "fp8", 0.012))
    found = candidates(workload("m", rate=30.0, quality=listed, **BOTH), ("L4",), prune=False)
    assert pairs_of(found) == {("bf16", "bf16", 0.0), ("fp8", "fp8", 0.012)}
    assert len(quality_reasons(found)) == 2
    assert all("not in the owner's list" in text for text in quality_reasons(found))


def test_a_drop_above_the_limit_is_a_rejection():
    listed = (pair("bf16", "bf16", 0.0), pair("fp8", "fp8", 0.012), pair("fp8", "bf16", 0.01))
    found = candidates(workload("m", quality=listed, max_score_drop=0.01, **BOTH), ("L4",), prune=False)
    assert pairs_of(found) == {("bf16", "bf16", 0.0), ("fp8", "bf16", 0.01)}
    (above,) = [r for r in found.rejections if "above" in r.detail]
    assert above.excess == pytest.approx(1.2)


def test_a_limit_without_measurements_leaves_the_checkpoints_own_formats():
    found = candidates(workload("m", max_score_drop=0.01, **BOTH), ("L4",), prune=False)
    assert pairs_of(found) == {("bf16", "bf16", None)}
    assert all("no measured score drop" in text for text in quality_reasons(found))
    assert len(quality_reasons(found)) == 3


def test_a_measured_pair_must_be_approved_as_well():
    found = candidates(workload("m", quality=(pair("bf16", "fp8", 0.0),)), ("L4",), prune=False)
    assert not found.needs
    assert "not among weight_dtypes and kv_dtypes" in " ".join(quality_reasons(found))


WEIGHTS, KV = st.sampled_from(["bf16", "fp8", "int4-awq"]), st.sampled_from(["bf16", "fp8"])


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    weights=st.sets(WEIGHTS, min_size=1), kv=st.sets(KV, min_size=1),
    listed=st.dictionaries(st.tuples(WEIGHTS, KV), st.sampled_from([0.0, 0.01, 0.05]), max_size=6),
    limit=st.sampled_from([None, 0.0, 0.01, 0.1]),
)  # fmt: skip
def test_nothing_unapproved_is_ever_offered(weights, kv, listed, limit):
    quality = tuple(pair(w, k, drop) for (w, k), drop in listed.items())
    work = workload(
        "m", weight_dtypes=tuple(sorted(weights)), kv_dtypes=tuple(sorted(kv)), quality=quality, max_score_drop=limit
    )
    found = candidates(work, ("H100-SXM",))
    for w, k, drop in pairs_of(found):
        assert w in weights
        assert k in kv
        assert drop == listed.get((w, k))
        assert not listed or (w, k) in listed
        assert limit is None or (drop is not None and drop <= limit) or (drop is None and (w, k) == ("bf16", "bf16"))
    offered = {(w, k) for w, k, _ in pairs_of(found)}
    said = " ".join(r.detail for r in found.rejections)
    assert all((w, k) in offered or f"{w}/{k} kv" in said for w in weights for k in kv if limit is not None or listed)


@pytest.mark.parametrize(
    "model",
    ["meta-llama/Llama-3.1-8B-Instruct", "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "google/gemma-3-27b-it"],
)
def test_shared_sizings_and_speeds_are_those_of_each_deployment(model):
    """What is computed once for several lengths and caps is what asking for each one gives, to the last field."""
    work = workload("m", model, rate=10.0, cuts=(512,), max_num_seqs=(64, 256), tail_budget=0.02)
    found = candidates(work, ("H100-SXM", "A100-80GB-SXM"), prune=False).needs
    assert len({need.config.sizing.max_model_len for need in found}) > 1
    seen = set()
    for need in found:
        config = need.config
        if id(config.sizing) in seen:
            continue
        seen.add(id(config.sizing))
        d = config.sizing.deployment
        asked = Deployment(
            d.tp, d.weight_dtype, d.kv_dtype, max_model_len=config.length.max_model_len, max_num_seqs=d.max_num_seqs
        )
        own = calibrated_size(work.shape, config.gpu, serving().facts, asked)
        assert own == config.sizing
        speed = speed_of(work.shape, config.gpu, own, serving().speed)
        assert speed == config.speed


def test_a_degree_beyond_a_node_needs_linked_nodes_and_pays_for_the_network():
    """H100 nodes hold 8: tp 16 is two of them, over 50 instead of 900 GB/s: its all-reduce takes 18 times as long."""
    work = workload("m", "meta-llama/Llama-3.1-70B-Instruct", tp_degrees=(8, 16))
    alone = candidates(work, ("H100-SXM",))
    assert {need.config.tp for need in alone.needs} == {8}
    linked = candidates(work, ("H100-SXM",), multi_node={"H100-SXM": 50.0}, prune=False)
    assert {need.config.tp for need in linked.needs} == {8, 16}
    speeds = {need.config.tp: need.config.speed for need in linked.needs}
    assert "over 2 nodes at 50 GB/s a GPU" in speeds[16].source
    assert "nodes" not in speeds[8].source
    fast = catalog().gpu("H100-SXM")
    wide = next(need.config for need in linked.needs if need.config.tp == 16)
    inside = speed_of(work.shape, fast, wide.sizing, serving().speed).coefficients
    ratio = wide.speed.coefficients.allreduce_s_per_token / inside.allreduce_s_per_token
    assert ratio == pytest.approx(fast.interconnect_gb_s / 50.0)
    # Two and a half nodes are none.
    assert not candidates(
        workload("m", "meta-llama/Llama-3.1-70B-Instruct", tp_degrees=(4,)), (), multi_node={"H100-SXM": 50.0}
    ).needs


def test_ladder_by_hand():
    assert ladder([256, 512]) == (256, 512)
    # Six lengths: a factor of 1.25 leaves out 1024 beside 1200, and 300 beside 320; then there are four.
    assert ladder([300, 320, 600, 1024, 1200, 4096]) == (320, 600, 1200, 4096)
    assert ladder([7]) == (7,)


@given(st.lists(st.integers(1, 2_000_000), min_size=1, max_size=60))
def test_ladder_is_short_and_reaches_every_length(lengths):
    rungs = ladder(lengths)
    assert len(rungs) <= RUNGS
    assert set(rungs) <= set(lengths)
    assert rungs[-1] == max(lengths)
    assert list(rungs) == sorted(set(rungs))


def test_every_length_choice_keeps_the_slices_own_tail_budget():
    work = workload("m", tail_budget=0.01, cuts=(128, 512, 1024, 2048))
    choices, none = length_choices(work.slices, 131_072, 0.95)
    assert not none
    assert len({choice.max_model_len for found in choices.values() for choice in found}) <= RUNGS + 3
    for each in work.slices:
        found = choices[each.key]
        assert found[-1].refused_request_share == 0.0
        for choice in found:
            assert choice.refused_request_share <= 0.01
            assert choice.refused_request_share == refused_shares(each.traffic, choice.max_model_len).requests
            assert choice.law.requests == round(each.traffic.law.requests * (1 - choice.refused_request_share))


def test_a_budget_is_kept_with_confidence():
    """A budget of 1 in 1,000: of 10,000 requests 4 may lie beyond, of 20,000 12, of 2,500 none.

    P(Binomial(10,000, 0.001) <= 4) = 0.029 and P(<= 5) = 0.067; P(Binomial(20,000, 0.001) <= 12) = 0.039 and
    P(<= 13) = 0.066; P(Binomial(2,500, 0.001) = 0) = 0.082 already.
    """
    assert sure_share(0.001, 10_000, 0.95) * 10_000 == pytest.approx(4)
    assert sure_share(0.001, 20_000, 0.95) * 20_000 == pytest.approx(12)
    assert sure_share(0.001, 2_500, 0.95) == 0.0
    assert sure_share(0.0, 2_500, 0.95) == 0.0
    assert sure_share(0.002, 10_000, 0.95) > sure_share(0.001, 10_000, 0.95) > sure_share(0.001, 10_000, 0.99)


def test_the_slice_of_all_has_the_lengths_that_it_has_alone():
    """More pools never take a plan of one pool away: its lengths stay, however many bands there are."""
    banded = workload("m", tail_budget=0.01, cuts=(128, 512, 1024, 2048))
    alone, _ = length_choices(workload("m", tail_budget=0.01).slices, 131_072, 0.95)
    among, _ = length_choices(banded.slices, 131_072, 0.95)
    lengths = [{choice.max_model_len for choice in found[banded.whole.key]} for found in (alone, among)]
    assert lengths[0] <= lengths[1]


def test_models_of_the_same_weights_may_share_their_replicas():
    """What one model left in the cache changes nothing for another with other traffic and targets."""
    one = workload("a", rate=30.0, cuts=(512,), **BOTH)
    other = workload("b", rate=4.0, seed=3, targets=Targets(tpot_ms=60), **BOTH)
    shared = Replicas(one.shape, serving(), {})
    candidates(one, ("H100-SXM", "L4"), replicas=shared)
    alone, after = (candidates(other, ("H100-SXM", "L4"), replicas=known) for known in (None, shared))
    assert [(n.config.sizing, n.config.speed, n.replicas) for n in alone.needs] == [
        (n.config.sizing, n.config.speed, n.replicas) for n in after.needs
    ]
    assert alone.rejections == after.rejections
