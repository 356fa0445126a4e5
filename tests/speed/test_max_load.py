from __future__ import annotations

import math

import numpy as np
import pytest

from planner.speed.max_load import RESERVED_SHARE, full_batch, max_load, open_loop
from planner.speed.operating import closed_loop
from planner.speed.types import StepCoefficients

# Round numbers: a step of B sequences takes 10 ms of weights + T x 1 us of cache + B x 0.1 ms, a prompt 0.1 ms a token.
PLAIN = {
    "dense_read_s": 10e-3,
    "expert_read_s": 0.0,
    "expert_hit_share": 0.0,
    "kv_read_s_per_token": 1e-6,
    "sliding_read_s_per_token": 0.0,
    "window_tokens": 1.0,
    "compute_s_per_token": 0.0,
    "fixed_s": 0.0,
    "sequence_s": 1e-4,
    "allreduce_s_per_token": 0.0,
    "prefill_s_per_token": 1e-4,
    "prefill_s_per_token2": 0.0,
    "chunk_tokens": 8192.0,
    "ttft_floor_s": 0.05,
}


def coefficients(**changes: float) -> StepCoefficients:
    return StepCoefficients(**{name: np.asarray(value) for name, value in (PLAIN | changes).items()})


def test_batch_is_pool_over_the_tokens_held() -> None:
    # P = 1,000 and O = 200: 1,100 held on average while decoding, 1,200 where the output is reserved
    assert float(full_batch(110_000, 256, 1000, 200)) == pytest.approx(100)
    assert float(full_batch(120_000, 256, 1000, 200, held_share=RESERVED_SHARE)) == pytest.approx(100)


def test_batch_is_capped_by_the_engine_and_by_the_list() -> None:
    assert float(full_batch(110_000, 64, 1000, 200)) == 64
    assert float(full_batch(110_000, 64, 1000, 200, requests=10)) == 10


def test_no_request_runs_where_the_pool_holds_none() -> None:
    assert full_batch([1199, 1200], 64, 1000, 200).tolist() == [0, pytest.approx(1200 / 1100)]


def test_endless_list_by_hand() -> None:
    # B = 100, T = 110,000: step 10 + 110 + 10 = 130 ms; 200 steps 26 s; 100 prompts of 0.1 s 10 s: a life of 36 s, in
    # which 100 requests of 201 tokens end. TPOT (36 - 0.1) / 200.
    found = max_load(coefficients(), 110_050, 256, 1000, 201, held_share=0.5)
    batch = 110_050 / 1100.5
    assert float(found.concurrency) == pytest.approx(batch)
    step = 10e-3 + 1e-6 * batch * 1100.5 + 1e-4 * batch
    life = 200 * step + batch * 0.1
    assert life == pytest.approx(36, rel=1e-3)
    assert float(found.output_tok_s) == pytest.approx(batch * 201 / life)
    assert float(found.total_tok_s) == pytest.approx(batch * 1201 / life)
    assert float(found.tpot_s) == pytest.approx((life - 0.1) / 200)
    assert math.isinf(float(found.ttft_s))


def test_list_of_one_round_by_hand() -> None:
    # 10 requests at once: T = 10 x 1,100.5, step 10 + 11.005 + 1 = 22.005 ms; 10 x 0.1 s + 200 steps = 5.401 s
    found = max_load(coefficients(), 1e9, 256, 1000, 201, requests=10)
    assert float(found.output_tok_s) == pytest.approx(10 * 201 / 5.401)
    assert float(found.ttft_s) == pytest.approx(0.05 + 0.1)


def test_list_of_several_rounds_ends_half_a_round_later() -> None:
    # 100 requests, 10 at once: 100 x 0.1 s + 200 steps of 22.005 ms x 10.5 = 10 + 46.2105 s. A life takes 5.401 s, so
    # a request waits (56.2105 - 5.401) / 2 s on average.
    found = max_load(coefficients(), 1e9, 10, 1000, 201, requests=100)
    assert float(found.output_tok_s) == pytest.approx(100 * 201 / 56.2105)
    assert float(found.ttft_s) == pytest.approx(0.15 + (56.2105 - 5.401) / 2)


def test_a_list_of_unequal_outputs_lasts_as_long_as_its_longest() -> None:
    # 10 requests of 201 tokens, the longest 402: 5 run on average, step 10 + 5 x 1.1005 + 0.5 = 16.0025 ms, 401 of them
    found = max_load(coefficients(), 1e9, 256, 1000, 201, requests=10, longest_output_tokens=402)
    assert float(found.output_tok_s) == pytest.approx(10 * 201 / (1 + 401 * 16.0025e-3))
    # several rounds: 10 + (10 x 200 + 401 / 2) x 22.005 ms
    found = max_load(coefficients(), 1e9, 10, 1000, 201, requests=100, longest_output_tokens=402)
    assert float(found.output_tok_s) == pytest.approx(100 * 201 / (10 + 2200.5 * 22.005e-3))


def test_a_long_list_is_as_good_as_endless() -> None:
    endless = max_load(coefficients(), 1e9, 100, 1000, 200)
    long = max_load(coefficients(), 1e9, 100, 1000, 200, requests=1e7)
    assert float(long.output_tok_s) == pytest.approx(float(endless.output_tok_s), rel=1e-4)


def test_a_replica_whose_pool_holds_no_request_does_nothing() -> None:
    found = max_load(coefficients(), 1000, 256, 1000, 200)
    assert float(found.output_tok_s) == float(found.total_tok_s) == float(found.concurrency) == 0
    assert math.isinf(float(found.tpot_s))
    assert math.isinf(float(found.ttft_s))


def test_one_output_token_is_prefill_alone() -> None:
    found = max_load(coefficients(), 1e9, 256, 1000, 1)
    assert float(found.output_tok_s) == pytest.approx(10)
    assert math.isnan(float(found.tpot_s))


def test_a_larger_pool_never_serves_less() -> None:
    pools = np.geomspace(2000, 1e7, 200)
    served = max_load(coefficients(), pools, 1e6, 1000, 200).output_tok_s
    assert np.all(np.diff(served) > 0)


def test_max_load_agrees_with_a_closed_loop_of_as_many_clients() -> None:
    c = coefficients(ttft_floor_s=0.0)
    full = max_load(c, 1e9, 64, 1000, 500)
    loop = closed_loop(c, 64, 1000, 500)
    assert float(full.output_tok_s) == pytest.approx(float(loop.output_tok_s), rel=0.05)


def test_open_loop_by_hand() -> None:
    # No cache, P = 1,000, O = 101, lambda = 1/s: prompts take 0.1 of the time. TPOT = (10 + 0.1 (n + 1)) / 0.9 ms and
    # n = 0.05 + 0.1 + 100 TPOT = 0.15 + (1 + 0.01 (n + 1)) / 0.9, hence n (1 - 0.01 / 0.9) = 0.15 + 1.01 / 0.9
    c = coefficients(kv_read_s_per_token=0.0)
    found = open_loop(c, 1.0, 1000, 101, 1e9, 256)
    expected = (0.15 + 1.01 / 0.9) / (1 - 0.01 / 0.9)
    assert float(found.concurrency) == pytest.approx(expected)
    assert float(found.tpot_s) == pytest.approx((10e-3 + 1e-4 * (expected + 1)) / 0.9)
    assert float(found.ttft_s) == pytest.approx(0.15)
    assert float(found.output_tok_s) == pytest.approx(101)
    assert float(found.total_tok_s) == pytest.approx(1101)


def test_open_loop_is_overloaded_beyond_what_the_full_replica_serves() -> None:
    c = coefficients()
    full = max_load(c, 110_000, 256, 1000, 200)
    limit = float(full.output_tok_s) / 200
    found = open_loop(c, np.array([limit / 2, limit * 1.01, 20.0]), 1000, 200, 110_000, 256)
    assert math.isfinite(found.concurrency[0])
    assert found.concurrency[0] < float(full.concurrency)
    assert np.isinf(found.concurrency[1:]).all()
    assert np.isinf(found.ttft_s[1:]).all()
    assert found.output_tok_s[1:] == pytest.approx(float(full.output_tok_s))


def test_open_loop_of_a_replica_whose_pool_holds_no_request() -> None:
    found = open_loop(coefficients(), 1.0, 1000, 200, 1000, 256)
    assert float(found.concurrency) == float(found.output_tok_s) == 0
    assert math.isinf(float(found.ttft_s))


def test_open_loop_at_a_low_rate_is_a_request_alone() -> None:
    found = open_loop(coefficients(), 1e-6, 1000, 200, 1e9, 256)
    assert float(found.tpot_s) == pytest.approx(10e-3 + 1.1e-3 + 1e-4, rel=1e-4)


def test_concurrency_grows_with_the_rate() -> None:
    rates = np.linspace(0.01, 2.0, 50)
    found = open_loop(coefficients(), rates, 1000, 200, 1e9, 1e5)
    assert np.all(np.diff(found.concurrency) > 0)
    assert np.all(np.diff(found.tpot_s) > 0)
