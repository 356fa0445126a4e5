"""The simulator against closed forms, by hand, and what must hold for any requests."""

from __future__ import annotations

import math
from dataclasses import MISSING, fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.queueing.holding import Holding
from planner.replay.replica import replay_replica
from planner.replay.types import Engine, Fate, Requests
from planner.speed.types import StepCoefficients

TOKENS = Holding(full=1.0, sliding=0.0, block_tokens=1, window_tokens=0, reserve_tokens=0, state=0.0)


def coefficients(**given: float) -> StepCoefficients:
    needed = [item.name for item in fields(StepCoefficients) if item.default_factory is MISSING]
    return StepCoefficients(**{name: np.asarray(given.get(name, 0.0)) for name in needed})


def engine(pool: float = 1e12, seats: int = 100_000, chunk: int = 10**9, **speed: float) -> Engine:
    return Engine(coefficients(**speed), TOKENS, pool, seats, chunk, 10**9)


def requests(arrival, prompt, output, cached=0) -> Requests:
    arrival = np.asarray(arrival, dtype=np.float64)

    def whole(values):
        return np.broadcast_to(np.asarray(values, dtype=np.int64), arrival.shape).copy()

    return Requests(arrival, whole(prompt), whole(output), whole(cached))


def poisson(rate: float, n: int, seed: int = 0) -> np.ndarray:
    return np.cumsum(np.random.default_rng(seed).exponential(1.0 / rate, n))


# ----------------------------------------------------------------------------------------------------------- by hand


def test_one_request_by_hand():
    """A prompt of 100 in chunks of 40: 3 steps; 0.01 s a token and 0.1 s a step; then 4 decode steps of 0.1 s."""
    one = engine(chunk=40, prefill_s_per_token=0.01, fixed_s=0.1)
    found = replay_replica(requests([2.0], 100, 5), one, 100.0)
    assert found.fate.tolist() == [Fate.SERVED]
    assert found.first_token_s[0] == pytest.approx(2.0 + 3 * 0.1 + 1.0)
    assert found.end_s[0] == pytest.approx(2.0 + 3 * 0.1 + 1.0 + 4 * 0.1)
    assert found.most_tokens == 104
    assert found.busy_s.sum() == pytest.approx(1.7)


def test_a_cached_prefix_is_not_computed_again():
    one = engine(prefill_s_per_token=0.01, fixed_s=0.1)
    found = replay_replica(requests([0.0], 100, 1, cached=60), one, 100.0)
    assert found.end_s[0] == pytest.approx(0.1 + 0.4)
    assert found.most_tokens == 100


def test_the_last_one_admitted_is_preempted_and_computed_again():
    """Two requests of 10 + 10 in a pool of 30: together they hold 20 + 2k, full after 5 tokens each; the second gives
    its 15 back and is computed again when the first is done."""
    one = engine(pool=30, fixed_s=1.0, prefill_s_per_token=0.1)
    found = replay_replica(requests([0.0, 0.0], 10, 10), one, 1000.0)
    assert found.fate.tolist() == [Fate.SERVED, Fate.SERVED]
    assert found.preemptions.tolist() == [0, 1]
    # Both prompts in one step of 3 s, then 9 steps of 1 s for the first.
    assert found.end_s[0] == pytest.approx(12.0)
    # The second has made 6 tokens when the pool is full: 16 computed again in 1 + 1.6 s make the 7th; 3 more steps.
    assert found.end_s[1] == pytest.approx(12.0 + 2.6 + 3.0)
    assert found.short_s.sum() == pytest.approx(4.0)
    assert found.most_tokens <= 30


def test_what_cannot_fit_is_refused_and_the_rest_is_served():
    one = replace(engine(pool=50, fixed_s=1.0), max_model_len=60)
    found = replay_replica(requests([0.0, 0.0, 0.0], [61, 50, 20], 1), one, 10.0)
    assert found.fate.tolist() == [Fate.REFUSED_LENGTH, Fate.REFUSED_POOL, Fate.SERVED]


def test_the_horizon_cuts():
    found = replay_replica(requests([0.0, 5.0], 1, 8), engine(fixed_s=1.0), 9.5)
    assert found.fate.tolist() == [Fate.SERVED, Fate.UNFINISHED]
    assert found.busy_s.sum() == pytest.approx(9.5)


@pytest.mark.parametrize(("arrival", "prompt", "horizon"), [([1.0, 0.0], 1, 9.0), ([0.0], 0, 9.0), ([0.0], 1, 0.0)])
def test_impossible_input(arrival, prompt, horizon):
    with pytest.raises(ValueError, match=r"order|at least|above 0"):
        replay_replica(requests(arrival, prompt, 1), engine(fixed_s=1.0), horizon)


# ------------------------------------------------------------------------------------------------------ closed forms


@pytest.mark.parametrize("rho", [0.3, 0.7, 0.9])
def test_mean_wait_of_m_d_1(rho):
    """One seat, one token: each request holds the replica 1 s.  E[W] = rho / (2 (1 − rho)) x 1 s."""
    arrival = poisson(rho, 2_000_000, seed=3)
    found = replay_replica(requests(arrival, 1, 1), engine(seats=1, fixed_s=1.0), float(arrival[-1]) + 1e4)
    wait = found.end_s - arrival - 1.0
    assert wait.mean() == pytest.approx(rho / (2 * (1 - rho)), rel=0.01)


@pytest.mark.parametrize(("seats", "rho"), [(1, 0.6), (4, 0.7), (16, 0.7)])
def test_mean_wait_of_m_m_c(seats, rho):
    """Seats are servers, outputs are geometric, steps are short: Erlang C, E[W] = C / (c mu − lambda).

    A request that finds a seat waits for the next step: half a step on average, which is taken off.
    """
    step_s, mean, n = 1e-3, 1000.0, 2_000_000
    rng = np.random.default_rng(5)
    output = rng.geometric(1 / mean, n)
    load = rho * seats
    arrival = poisson(load / (mean * step_s), n, seed=105)
    found = replay_replica(requests(arrival, 1, output), engine(seats=seats, fixed_s=step_s), float(arrival[-1]) + 1e4)
    wait = found.end_s - arrival - output * step_s - step_s / 2
    terms = [load**k / math.factorial(k) for k in range(seats)]
    last = load**seats / math.factorial(seats) / (1 - rho)
    expected = last / (sum(terms) + last) / (seats * (1 - rho)) * mean * step_s
    assert wait.mean() == pytest.approx(expected, rel=0.01)


def test_live_tokens_of_m_g_infinity():
    """Nothing queues and a step lasts 20 ms: mean live tokens = rate x step x E[sum of tokens held after each step]."""
    rng = np.random.default_rng(1)
    n, rate, step_s = 400_000, 20.0, 0.02
    prompt, output = rng.integers(100, 3000, n), rng.geometric(1 / 200, n)
    arrival = poisson(rate, n, seed=2)
    found = replay_replica(requests(arrival, prompt, output), engine(fixed_s=step_s), float(arrival[-1]))
    held = (output * prompt + output * (output - 1) / 2).mean()
    assert found.used_token_s.sum() / arrival[-1] == pytest.approx(rate * step_s * held, rel=0.01)
    assert found.short_s.sum() == 0.0
    assert found.preemptions.sum() == 0


# --------------------------------------------------------------------------------------------------------- properties


@st.composite
def worlds(draw):
    n = draw(st.integers(1, 40))
    seed = draw(st.integers(0, 10**6))
    rng = np.random.default_rng(seed)
    arrival = np.sort(rng.choice([0.0, 1.0, 2.5, 7.0, 7.0, 30.0], n) + rng.choice([0.0, rng.uniform(0, 3)], n))
    asked = requests(arrival, rng.integers(1, 60, n), rng.integers(1, 40, n), rng.integers(0, 30, n))
    block = draw(st.sampled_from([1, 4, 16]))
    holding = Holding(1.0, draw(st.sampled_from([0.0, 0.5])), block, 16, 32, draw(st.sampled_from([0.0, 3.0])))
    speed = coefficients(
        fixed_s=0.05, kv_read_s_per_token=1e-4, prefill_s_per_token=draw(st.sampled_from([0.0, 1e-3])),
        compute_s_per_token=draw(st.sampled_from([0.0, 0.02])), sequence_s=1e-3,
    )  # fmt: skip
    pool = draw(st.integers(20, 400))
    return asked, Engine(speed, holding, pool, draw(st.integers(1, 12)), draw(st.integers(8, 64)), 90)


@settings(max_examples=300, deadline=None)
@given(worlds())
def test_every_request_ends_once_and_no_limit_is_broken(world):
    asked, one = world
    found = replay_replica(asked, one, 1e6)
    assert Fate.UNFINISHED not in found.fate
    served = found.fate == Fate.SERVED
    assert np.isfinite(found.end_s[served]).all()
    assert np.isnan(found.end_s[~served]).all()
    assert (found.first_token_s[served] >= asked.arrival_s[served]).all()
    assert (found.end_s[served] >= found.first_token_s[served] - 1e-9).all()
    assert found.most_tokens <= one.pool_tokens + 1e-9
    assert found.most_running <= one.max_num_seqs
    assert (asked.prompt_tokens + asked.output_tokens > one.max_model_len).sum() == (
        found.fate == Fate.REFUSED_LENGTH
    ).sum()
    again = replay_replica(asked, one, 1e6)
    assert np.array_equal(again.end_s, found.end_s, equal_nan=True)


@settings(max_examples=100, deadline=None)
@given(worlds())
def test_a_larger_pool_never_preempts_where_the_smaller_did_not(world):
    asked, one = world
    small, large = replay_replica(asked, one, 1e6), replay_replica(asked, replace(one, pool_tokens=1e9), 1e6)
    assert large.preemptions.sum() == 0
    if small.short_s.sum() == 0 and not (small.fate == Fate.REFUSED_POOL).any():
        assert np.allclose(small.end_s, large.end_s, equal_nan=True)
