from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.speed.step import (
    coverage,
    decode_step_s,
    interfered_tpot_s,
    mean_prefill_work_s,
    prefill_s,
    prefill_work_s,
    stack,
)
from planner.speed.types import Band, SpeedModel, StepCoefficients

# Round numbers, so that every figure below is a sum done by hand (milliseconds as seconds).
PLAIN = {
    "dense_read_s": 4e-3,
    "expert_read_s": 8e-3,
    "expert_hit_share": 0.5,
    "kv_read_s_per_token": 1e-6,
    "sliding_read_s_per_token": 2e-6,
    "window_tokens": 100.0,
    "compute_s_per_token": 1e-4,
    "fixed_s": 1e-3,
    "sequence_s": 1e-5,
    "allreduce_s_per_token": 2e-5,
    "prefill_s_per_token": 1e-4,
    "prefill_s_per_token2": 1e-9,
    "chunk_tokens": 1000.0,
    "ttft_floor_s": 0.1,
}


def coefficients(**changes: float) -> StepCoefficients:
    return StepCoefficients(**{name: np.asarray(value) for name, value in (PLAIN | changes).items()})


def test_decode_step_by_hand() -> None:
    # B = 2, T = 1,000: 4 + 8 x (1 - 0.5^2) + 1,000 x 1e-3 + min(1,000, 200) x 2e-3 = 4 + 6 + 1 + 0.4 = 11.4 ms read;
    # compute 0.2 ms; overhead 1 + 2 x 0.03 = 1.06 ms
    assert float(decode_step_s(coefficients(), 2, 1000)) == pytest.approx(12.46e-3)


def test_decode_step_is_bound_by_compute_when_that_is_longer() -> None:
    # 4 sequences x 10 ms
    step = decode_step_s(coefficients(compute_s_per_token=10e-3), 4, 0)
    assert float(step) == pytest.approx(40e-3 + 1e-3 + 4 * 3e-5)


def test_prefill_by_hand() -> None:
    # 2,500 tokens: two chunks of 1,000 at max(100, 12) ms and one of 500 at max(50, 12) ms, 3 steps of 1 ms overhead,
    # attention 2,500^2 x 1e-9 = 6.25 ms
    assert float(prefill_s(coefficients(), 2500)) == pytest.approx(250e-3 + 3e-3 + 6.25e-3)


def test_short_prompt_streams_the_weights() -> None:
    # 10 tokens compute 1 ms, but read 4 + 8 x (1 - 0.5^10) ms
    read = 4e-3 + 8e-3 * (1 - 0.5**10)
    assert float(prefill_s(coefficients(), 10)) == pytest.approx(read + 1e-3 + 1e-7)


def test_prefill_work_mean_needs_two_moments_only() -> None:
    c = coefficients()
    prompts = np.array([10.0, 700.0, 2500.0, 30_000.0])
    mean = mean_prefill_work_s(c, prompts.mean(), (prompts**2).mean())
    assert float(mean) == pytest.approx(prefill_work_s(c, prompts).mean())


def test_cached_prefix_by_hand() -> None:
    # 2,500 tokens, of which 1,000 are cached: 1,500 in two chunks, attention of 2,500^2 - 1,000^2 pairs
    c = coefficients()
    attention = (2500**2 - 1000**2) * 1e-9
    assert float(prefill_work_s(c, 2500, 0.4)) == pytest.approx(150e-3 + attention)
    assert float(prefill_s(c, 2500, 0.4)) == pytest.approx(150e-3 + 2e-3 + attention)


@pytest.mark.parametrize("prompt", [1, 999, 1000, 2500])
def test_nothing_and_everything_cached(prompt: int) -> None:
    c = coefficients()
    for function in (prefill_work_s, prefill_s):
        assert float(function(c, prompt, 0.0)) == float(function(c, prompt)) > 0
        assert float(function(c, prompt, 1.0)) == 0.0


def test_arrays_equal_scalar_calls() -> None:
    c = coefficients()
    batch, live = np.array([[1.0], [7.0], [300.0]]), np.array([10.0, 5000.0])
    steps = decode_step_s(c, batch, live)
    assert steps.shape == (3, 2)
    for i, j in np.ndindex(steps.shape):
        assert steps[i, j] == float(decode_step_s(c, batch[i, 0], live[j]))
    prompts, cached = np.array([[0.0], [1000.0], [2500.0]]), np.array([0.0, 0.3])
    for function in (prefill_s, prefill_work_s):
        times = function(c, prompts, cached)
        for i, j in np.ndindex(times.shape):
            assert times[i, j] == float(function(c, prompts[i, 0], cached[j]))


def test_no_prompt_takes_no_time() -> None:
    assert float(prefill_s(coefficients(), 0)) == float(prefill_work_s(coefficients(), 0)) == 0.0


def test_interference_by_hand() -> None:
    # 12.46 ms a step, 37.7 % of the time on prompts: 20 ms
    assert float(interfered_tpot_s(coefficients(), 2, 1000, 0.377)) == pytest.approx(20e-3)
    assert math.isinf(float(interfered_tpot_s(coefficients(), 2, 1000, 1.0)))


def test_interference_matches_a_step_by_step_count() -> None:
    """Count tokens over an hour in which one prompt's work is inserted every fifth of a second."""
    c = coefficients()
    step = float(decode_step_s(c, 2, 1000))
    work = float(prefill_work_s(c, 500))
    clock, tokens, next_prompt = 0.0, 0, 0.0
    while clock < 3600:
        if clock >= next_prompt:
            clock += work
            next_prompt += 0.2
        else:
            clock += step
            tokens += 1
    assert clock / tokens == pytest.approx(float(interfered_tpot_s(c, 2, 1000, work / 0.2)), rel=1e-3)


def _model(c: StepCoefficients) -> SpeedModel:
    return SpeedModel(c, Band(0.8, 1.2), Band(0.5, 2.0), "test")


def test_stacked_candidates_equal_each_alone() -> None:
    one, two = coefficients(), coefficients(dense_read_s=1e-3, chunk_tokens=300, expert_hit_share=0.0, window_tokens=0)
    both = stack([_model(one), _model(two)])
    assert both.dense_read_s.shape == (2,)
    for function, arguments in (
        (decode_step_s, (8, 5000)),
        (prefill_s, (2500,)),
        (prefill_work_s, (2500,)),
        (interfered_tpot_s, (8, 5000, 0.3)),
    ):
        alone = [float(function(c, *arguments)) for c in (one, two)]
        np.testing.assert_allclose(function(both, *arguments), alone, rtol=1e-14)


batches = st.floats(min_value=0.0, max_value=4096.0)
shares = st.floats(min_value=0.0, max_value=1.0)
tokens = st.integers(min_value=1, max_value=200_000)
positive = st.floats(min_value=1e-9, max_value=1e-1)


@st.composite
def any_coefficients(draw: st.DrawFn) -> StepCoefficients:
    values = {field.name: draw(positive) for field in dataclasses.fields(StepCoefficients)}
    values |= {
        "expert_hit_share": draw(shares),
        "window_tokens": float(draw(st.integers(0, 4096))),
        "chunk_tokens": float(draw(st.integers(1, 16384))),
    }
    return coefficients(**values)


@given(batches, batches, shares)
def test_coverage_is_a_share_that_grows(batch: float, more: float, hit: float) -> None:
    low, high = float(coverage(batch, hit)), float(coverage(batch + more, hit))
    assert 0.0 <= low <= high <= 1.0


def test_coverage_of_one_token_is_its_experts() -> None:
    assert float(coverage(1, 8 / 256)) == pytest.approx(8 / 256)
    assert float(coverage(64, 0.0)) == 0.0


@settings(max_examples=200)
@given(any_coefficients(), batches, batches, tokens, tokens)
def test_more_load_is_never_faster(c: StepCoefficients, batch: float, more: float, live: int, longer: int) -> None:
    slack = 1 - 1e-12
    step = float(decode_step_s(c, batch, live))
    assert float(decode_step_s(c, batch + more, live)) >= step * slack
    assert float(decode_step_s(c, batch, live + longer)) >= step * slack


@settings(max_examples=200)
@given(any_coefficients(), tokens, tokens)
def test_longer_prompts_are_never_faster(c: StepCoefficients, prompt: int, longer: int) -> None:
    slack = 1 - 1e-12
    assert float(prefill_work_s(c, prompt + longer)) >= float(prefill_work_s(c, prompt)) * slack
    assert float(prefill_s(c, prompt + longer)) >= float(prefill_s(c, prompt)) * slack
    assert float(prefill_s(c, prompt)) >= float(prefill_work_s(c, prompt)) * slack


@given(any_coefficients(), batches, tokens, st.floats(0, 2), st.floats(0, 2))
def test_more_prefill_is_never_faster(c: StepCoefficients, batch: float, live: int, share: float, more: float) -> None:
    assert float(interfered_tpot_s(c, batch, live, share + more)) >= float(interfered_tpot_s(c, batch, live, share))


@settings(max_examples=200)
@given(any_coefficients(), tokens, shares, shares)
def test_a_longer_cached_prefix_is_never_slower(c: StepCoefficients, prompt: int, share: float, other: float) -> None:
    less, more = sorted((share, other))
    for function in (prefill_work_s, prefill_s):
        assert float(function(c, prompt, more)) <= float(function(c, prompt, less)) * (1 + 1e-9) + 1e-12


@settings(max_examples=200)
@given(any_coefficients(), batches, tokens, shares)
def test_more_bandwidth_is_never_slower(c: StepCoefficients, batch: float, live: int, share: float) -> None:
    reads = ("dense_read_s", "expert_read_s", "kv_read_s_per_token", "sliding_read_s_per_token")
    faster = dataclasses.replace(c, **{name: getattr(c, name) * share for name in reads})
    assert float(decode_step_s(faster, batch, live)) <= float(decode_step_s(c, batch, live))
