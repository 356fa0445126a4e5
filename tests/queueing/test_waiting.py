"""Waiting for prefill, against closed forms and a simulation of the same queue."""

from __future__ import annotations

import numpy as np
import pytest

from planner.queueing.waiting import Prefill, PromptPoints, mean_wait_s, prompt_points, ttft_quantile_s
from tests.queueing.laws import law_of


def prefill_of(per_token_s: float, step_s: float = 0.0) -> Prefill:
    return Prefill(*(np.array([v]) for v in (per_token_s, 0.0, 8192.0, step_s, 0.0)))


POINTS = PromptPoints(np.array([1.0]), np.array([1000.0]), np.array([1000.0]))


def test_pollaczek_khinchine_for_equal_prompts():
    """M/D/1 at rho 0.5 with a service of 0.1 s: mean wait rho S / (2 (1 − rho)) = 0.05 s."""
    wait = mean_wait_s(np.array([5.0]), np.array([1.0]), POINTS, prefill_of(1e-4))
    assert wait[0] == pytest.approx(0.05)


def test_batches_wait_for_their_own_members():
    """Batches of mean 3 at rho 0.5: (0.025 + 2 * 0.1) / 0.5 = 0.45 s."""
    wait = mean_wait_s(np.array([5.0]), np.array([3.0]), POINTS, prefill_of(1e-4))
    assert wait[0] == pytest.approx((0.025 + 0.2) / 0.5)


def test_unstable_queue_never_answers():
    assert mean_wait_s(np.array([11.0]), np.array([1.0]), POINTS, prefill_of(1e-4))[0] == np.inf
    assert ttft_quantile_s(np.array([11.0]), np.array([1.0]), POINTS, prefill_of(1e-4), 0.95)[0] == np.inf


@pytest.mark.parametrize(("rate", "batch"), [(2.0, 1.0), (6.0, 1.0), (8.0, 1.0), (4.0, 3.0), (6.0, 5.0)])
def test_wait_and_percentile_against_simulation(rate, batch):
    """A first-come-first-served queue with geometric batches, by Lindley's recursion."""
    rng = np.random.default_rng(5)
    prompts = np.round(rng.lognormal(6.4, 0.8, 400)).astype(np.int64)
    points = prompt_points(law_of(prompts, np.ones_like(prompts)))
    prefill = prefill_of(0.1 / prompts.mean())
    n_batches = 150_000
    sizes = rng.geometric(1 / batch, n_batches)
    gaps = np.zeros(sizes.sum())
    gaps[np.concatenate([[0], np.cumsum(sizes)[:-1]])] = rng.exponential(batch / rate, n_batches)
    own = prefill.occupied_s(rng.choice(prompts, gaps.size).astype(float))[0]
    wait = np.zeros(gaps.size)
    for i in range(1, gaps.size):
        wait[i] = max(0.0, wait[i - 1] + own[i - 1] - gaps[i])
    predicted = mean_wait_s(np.array([rate]), np.array([batch]), points, prefill)[0]
    assert predicted == pytest.approx(wait.mean(), rel=0.08)
    quantile = ttft_quantile_s(np.array([rate]), np.array([batch]), points, prefill, 0.95)[0]
    assert quantile == pytest.approx(np.quantile(wait + own, 0.95), rel=0.15)


def test_prompt_points_keep_weight_and_the_longest():
    rng = np.random.default_rng(0)
    prompts = rng.integers(1, 120_000, 5000)
    points = prompt_points(law_of(prompts, np.ones_like(prompts)))
    assert points.weight.sum() == pytest.approx(1.0)
    assert points.longest.max() == prompts.max()
    assert np.all(points.longest >= points.mean * (1 - 1e-9))
    assert (points.weight * points.mean).sum() == pytest.approx(prompts.mean())
    assert len(points.weight) <= 45
