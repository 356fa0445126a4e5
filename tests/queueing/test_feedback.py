"""What bursts do to a replica that slows down under them: by hand, in its limits, and against the simulator."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.queueing.dispersion import dispersion_of
from planner.queueing.feedback import Feedback, feedback_of
from planner.queueing.footprint import marks_held, moments_of, stack_moments
from planner.queueing.holding import Holding
from planner.queueing.load import settle_at
from planner.replay.replica import replay_replica
from planner.replay.types import Engine, Fate, Requests
from planner.speed.step import stack
from tests.queueing.laws import burst_of, law_of, speed_of

TOKENS = Holding(full=1.0, sliding=0.0, block_tokens=1, window_tokens=0, reserve_tokens=0, state=0.0)


def answer(kept=0.5, u=0.0, rho=0.0, prompt_cv2=0.0, output_prompt_s=0.0) -> Feedback:
    one = np.ones(1)
    stretch = (1.0 - u) / (1.0 - rho)
    return Feedback(kept * one, u * one, prompt_cv2 * one, stretch * one, output_prompt_s * one)


def law(prompt, output):
    return law_of(np.asarray(prompt, dtype=np.int64), np.asarray(output, dtype=np.int64))


def moments(prompt, output):
    found = law(prompt, output)
    return stack_moments([moments_of(marks_held(found, TOKENS), found)])


# ----------------------------------------------------------------------------------------------------------- by hand


def test_without_feedback_it_is_the_batch_poisson_count():
    """k = 1/2, I = 9: 1 + 8 / 2."""
    still = answer()
    assert still.dispersion(np.array([9.0])) == pytest.approx(5.0)
    assert still.passive_dispersion(np.array([9.0])) == pytest.approx(5.0)
    assert still.held_up_s(np.array([9.0])) == pytest.approx(0.0)


def test_by_hand():
    """u = 0.5, rho = 0.75: 1 − s = 0.5; k = 1/2, I = 3, equal prompts.

    Met: 0.5 * 3 / 0.25 + 0.5 = 6.5; dispersion 13; a swing of a decode time of 10 s lives 10 / 0.5 / 0.5 = 40 s; held
    up 0.5 * 2 * 0.01 * 0.5 / 0.25 = 0.02 s a token.
    """
    found = answer(u=0.5, rho=0.75, output_prompt_s=0.01)
    idc = np.array([3.0])
    assert found.met_beyond_mean(idc) == pytest.approx(6.5)
    assert found.dispersion(idc) == pytest.approx(13.0)
    assert found.swing_s(np.array([10.0])) == pytest.approx(40.0)
    assert found.held_up_s(idc) == pytest.approx(0.02)


def test_unequal_prompts_push_more():
    """c = 3 with u = 0.5 adds k u^2 c / (1 − u)^2 = 0.5 * 0.25 * 3 / 0.25 = 1.5."""
    even, uneven = (answer(u=0.5, rho=0.5, prompt_cv2=c).met_beyond_mean(np.array([1.0])) for c in (0.0, 3.0))
    assert uneven - even == pytest.approx(1.5)


@pytest.mark.parametrize(("output", "kept"), [([10, 10], 1.0), ([10, 30], 15 / 20)])
def test_kept_share_of_a_burst(output, kept):
    """Outputs of 10 and 30: of four pairs, three have the lesser of 10 and one 30, so 15 of a mean of 20."""
    assert moments([5, 5], output).kept_output[0] == pytest.approx(kept)


def test_kept_share_of_exponential_outputs_is_a_half():
    output = np.ceil(np.random.default_rng(1).exponential(400.0, 40_000))
    assert moments(np.full(40_000, 7), output).kept_output[0] == pytest.approx(0.5, abs=0.01)


def test_slow_swings_are_the_steady_state_of_each_moment():
    """Rates that wander slowly with coefficient of variation c: E[n] rises by rho c^2 n / (1 − rho)^2.

    The steady state n(r) = A r / (1 − B r) with B r = rho is convex; to second order its mean over r exceeds it by
    r^2 n'' c^2 / 2 = rho c^2 n / (1 − rho)^2. Such arrivals have I = 2 t r c^2 over a swing of t = D / (1 − s) with
    exponential outputs.
    """
    u, rho, live, cv2 = 0.4, 0.7, 50.0, 1e-2
    found = answer(u=u, rho=rho)
    s = (rho - u) / (1 - u)
    idc = np.array([2 * live * cv2 / (1 - s)]) * 1e6  # so large that I − 1 is I, and the noise of lengths is nothing
    rise = s * found.dispersion(idc) + 0.5 * u * (idc - 1) / (1 - u) ** 2
    assert rise / 1e6 == pytest.approx(rho * cv2 * live / (1 - rho) ** 2, rel=1e-4)


@settings(max_examples=60, deadline=None)
@given(
    kept=st.floats(0.05, 1.0), share=st.floats(0.0, 1.0), idc=st.floats(1.0, 100.0), low=st.floats(0.01, 0.9),
    more=st.floats(1.0, 1.09),
)  # fmt: skip
def test_more_load_swings_more(kept, share, idc, low, more):
    """``share`` of the work is prompts; met and dispersion rise with the rate, and with the bursts."""
    quiet, busy = (answer(kept, share * rho, rho) for rho in (low, low * more))
    at = np.array([idc])
    assert busy.dispersion(at) >= quiet.dispersion(at) * (1 - 1e-12)
    assert busy.met_beyond_mean(at) >= quiet.met_beyond_mean(at) * (1 - 1e-12)
    assert quiet.dispersion(at * 2) > quiet.dispersion(at)


def test_no_room_is_no_division_by_zero():
    full = feedback_of(moments([100, 100], [10, 10]), np.array([1.2]), np.array([1.5]), np.array([0.1]))
    assert np.isfinite(full.dispersion(np.array([5.0]))).all()
    assert np.isfinite(full.held_up_s(np.array([5.0]))).all()


# --------------------------------------------------------------------------------------------- against the simulator

SPEED = speed_of(dense_read_s=0.008, sequence_s=1.2e-4, compute_s_per_token=0.0, kv_read_s_per_token=0.0,
                 prefill_s_per_token=1.4e-4)  # fmt: skip
RATE, HORIZON_S = 16.0, 6000.0


def arrivals(batch: float, seed: int) -> np.ndarray:
    """Batches of geometric size with a mean of ``batch``: index of dispersion 2 batch − 1."""
    rng = np.random.default_rng(seed)
    start = np.cumsum(rng.exponential(batch / RATE, int(1.2 * HORIZON_S * RATE / batch)))
    start = start[start < HORIZON_S]
    return np.repeat(start, rng.geometric(1.0 / batch, len(start)))


def replayed(batch: float, seed: int) -> tuple[float, float, float]:
    """Rate, time per token and dispersion of the live requests of one run, prompts of 200, exponential outputs."""
    at, rng = arrivals(batch, seed), np.random.default_rng(100 + seed)
    output = np.ceil(rng.exponential(200.0, len(at))).astype(np.int64)
    requests = Requests(at, np.full_like(output, 200), output, np.zeros_like(output))
    engine = Engine(SPEED.coefficients, TOKENS, 1e12, 100_000, 8192, 10**9)
    found = replay_replica(requests, engine, HORIZON_S, int(HORIZON_S / 2))
    counted = (found.fate == Fate.SERVED) & (output > 1)
    token_s = (found.end_s - found.first_token_s)[counted].sum() / (output - 1)[counted].sum()
    live = ((found.live_request_s + found.queue_request_s) / 2.0)[50:]
    return len(at) / HORIZON_S, token_s, live.var() / live.mean()


@pytest.mark.parametrize("batch", [1.0, 4.0])
def test_against_the_simulator(batch):
    """A replica of work share 0.83, prompts 0.45, outputs of 200: the time per token to 4 %, the dispersion to 15 %.

    Without feedback the dispersion would be 1 or 4; it is about 7 and 40.
    """
    rate, token_s, dispersion = np.mean([replayed(batch, seed) for seed in range(3)], axis=0)
    output = np.ceil(np.random.default_rng(1).exponential(200.0, 20_000))
    idc = dispersion_of(burst_of(2 * batch - 1))
    load = settle_at(stack([SPEED]), moments(np.full(20_000, 200), output), idc, np.array([rate]), np.ones(1))
    assert load.work_share[0] == pytest.approx(0.83, abs=0.02)
    assert load.prefill_share[0] == pytest.approx(0.45, abs=0.02)
    assert load.token_s[0] == pytest.approx(token_s, rel=0.04)
    assert load.live_dispersion[0] == pytest.approx(dispersion, rel=0.15)
    assert batch < 0.2 * load.live_dispersion[0]
