"""The fixed point of Little's law and the constraints of a replica, against hand-solved cases."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.optimise.types import Config, LengthChoice
from planner.queueing.dispersion import dispersion_of
from planner.queueing.footprint import marks_of, moments_of, stack_moments
from planner.queueing.holding import pool_token_equivalents
from planner.queueing.load import (
    Candidates,
    Constraint,
    Demand,
    Limits,
    live_request_quantile,
    scaled,
    settle,
    used_shares,
)
from planner.queueing.replicas import feasible, least_replicas
from planner.queueing.waiting import prompt_points
from planner.speed.step import stack
from tests.queueing.laws import burst_of, law_of, plain_sizing, speed_of

LAW = law_of(np.array([1000]), np.array([200]))


def candidates_of(law=LAW, *, num_blocks: int = 26785, max_num_seqs: int = 256, **speed: float) -> Candidates:
    sizing = plain_sizing(num_blocks=num_blocks, block=1, max_num_seqs=max_num_seqs)
    return Candidates(
        coefficients=stack([speed_of(**speed)]),
        moments=stack_moments([moments_of(marks_of(law, sizing), law)]),
        moment_index=np.array([0]),
        pool_tokens=np.array([pool_token_equivalents(sizing)]),
        max_num_seqs=np.array([float(max_num_seqs)]),
        ttft_edge=np.array([1.0]),
    )


def demand_of(rate: float, law=LAW, idc: float = 1.0) -> Demand:
    return Demand(rate, dispersion_of(burst_of(idc)), prompt_points(law))


def one(value: float) -> np.ndarray:
    return np.array([float(value)])


LINEAR = {"dense_read_s": 0.01, "kv_read_s_per_token": 0.0, "compute_s_per_token": 0.0, "fixed_s": 0.0,
          "sequence_s": 1e-4, "prefill_s_per_token": 0.0}  # fmt: skip


def test_fixed_point_of_a_linear_step():
    """step = 10 ms + 0.1 ms (L + 1), L = 5 * 200 * w: w = 0.0101 / (1 − 0.1) in closed form."""
    load = settle(candidates_of(**LINEAR), demand_of(5.0), one(1))
    assert load.token_s[0] == pytest.approx(0.0101 / 0.9, rel=1e-6)
    assert load.work_share[0] == pytest.approx(5 * 200 * 1e-4, rel=1e-6)


def test_prefill_stretches_every_stream():
    """20 ms of prefill for each of 5 requests a second takes a tenth of the time: w = step / 0.9."""
    quiet = settle(candidates_of(**(LINEAR | {"sequence_s": 0.0})), demand_of(5.0), one(1))
    loud = settle(candidates_of(**(LINEAR | {"sequence_s": 0.0, "prefill_s_per_token": 2e-5})), demand_of(5.0), one(1))
    assert quiet.token_s[0] == pytest.approx(0.01)
    assert loud.token_s[0] == pytest.approx(0.01 / 0.9)
    assert loud.prefill_share[0] == pytest.approx(0.1)


def test_no_steady_state_is_too_much_work():
    """50 requests/s would need 1.0 of marginal work: no fixed point."""
    shares = used_shares(candidates_of(**LINEAR), demand_of(50.0), one(1), Limits(0.01, 0.85))
    assert shares[Constraint.WORK][0] == np.inf
    assert not feasible(candidates_of(**LINEAR), demand_of(50.0), one(1), Limits(0.01, 0.85))[0]


def test_bursts_slow_the_requests_that_come_in_them():
    calm = settle(candidates_of(), demand_of(5.0), one(1))
    wild = settle(candidates_of(), demand_of(5.0, idc=20.0), one(1))
    assert wild.token_s[0] > calm.token_s[0]
    assert wild.idc[0] == pytest.approx(20.0)


def test_sequence_cap_counts_bursts():
    load = settle(candidates_of(**LINEAR), demand_of(5.0), one(1))
    burst = settle(candidates_of(**LINEAR), demand_of(5.0, idc=9.0), one(1))
    assert live_request_quantile(burst, 0.01)[0] > live_request_quantile(load, 0.01)[0] > load.live_requests[0]


@pytest.mark.parametrize(
    ("constraint", "changes", "limits"),
    [
        (Constraint.TOKEN_POOL, {"num_blocks": 13_000}, Limits(0.01, 0.85)),
        (Constraint.SEQUENCES, {"max_num_seqs": 15}, Limits(0.01, 0.85)),
        (Constraint.WORK, {}, Limits(0.01, 0.15)),
        (Constraint.TPOT, {}, Limits(0.01, 0.85, tpot_s=0.0107)),
        (Constraint.TTFT, {}, Limits(0.01, 0.85, ttft_s=0.12)),
    ],
)
def test_each_constraint_alone_needs_another_replica(constraint, changes, limits):
    """A point that violates exactly one constraint with one replica, and holds with the least number found."""
    candidates, demand = candidates_of(**changes), demand_of(5.0)
    shares = used_shares(candidates, demand, one(1), limits)
    assert {name for name, share in shares.items() if share[0] > 1} == {constraint}
    least = least_replicas(candidates, demand, limits)
    assert least[0] > 1
    assert feasible(candidates, demand, least.astype(float), limits)[0]
    assert not feasible(candidates, demand, least - 1.0, limits)[0]


def test_unreachable_target_has_no_replica_count():
    """An empty replica already needs 10 ms a token."""
    assert least_replicas(candidates_of(), demand_of(5.0), Limits(0.01, 0.85, tpot_s=0.005))[0] == 0


def test_no_candidates_no_needs():
    assert least_replicas(
        Candidates(stack([]), stack_moments([]), np.zeros(0, np.int64), np.zeros(0), np.zeros(0), np.zeros(0)),
        demand_of(1.0), Limits(0.01, 0.85),
    ).size == 0  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    rate=st.floats(0.05, 200),
    idc=st.floats(1, 50),
    blocks=st.integers(3000, 60_000),
    seqs=st.integers(8, 512),
    busy=st.floats(0.3, 0.95),
)
def test_least_is_least_and_monotone(rate, idc, blocks, seqs, busy):
    """The bisection's answer holds, one fewer does not, and more load never needs fewer."""
    limits = Limits(0.01, busy)
    candidates = candidates_of(num_blocks=blocks, max_num_seqs=seqs)
    least = least_replicas(candidates, demand_of(rate, idc=idc), limits)[0]
    assert feasible(candidates, demand_of(rate, idc=idc), one(least), limits)[0]
    if least > 1:
        assert not feasible(candidates, demand_of(rate, idc=idc), one(least - 1), limits)[0]
    assert least_replicas(candidates, demand_of(rate * 1.3, idc=idc), limits)[0] >= least
    roomier = candidates_of(num_blocks=blocks * 2, max_num_seqs=seqs * 2)
    assert least_replicas(roomier, demand_of(rate, idc=idc), limits)[0] <= least


def test_scaling_coefficients_scales_a_step():
    slow = scaled(stack([speed_of()]), 1.27)
    assert slow.dense_read_s[0] == pytest.approx(1.27 * 0.008)
    assert slow.window_tokens[0] == 0.0
    assert slow.chunk_tokens[0] == 8192.0


def test_config_types_carry_what_the_optimiser_reads():
    """The label that reports print names GPU, tp, dtypes, length and cap."""
    sizing = plain_sizing()
    marks = marks_of(LAW, sizing)
    gpu = type("G", (), {"id": "H100-SXM"})()
    config = Config(
        "m", gpu, sizing, speed_of(), LengthChoice(8192, 0, 0, LAW), marks, moments_of(marks, LAW),
        pool_token_equivalents(sizing),
    )  # fmt: skip
    assert config.label == "H100-SXM tp1 bf16/bf16 kv, max_model_len 8192, max_num_seqs 256"
    assert config.family == ("H100-SXM", 1, "bf16", "bf16")
