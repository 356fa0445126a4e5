"""Waiting for prefill, against closed forms and a simulation of the same queue."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from planner.queueing.dispersion import dispersion_of
from planner.queueing.live_tokens import batch_mean, thinned_idc
from planner.queueing.residence import Residence
from planner.queueing.waiting import (
    PromptPoints,
    longest_wait,
    mean_wait_s,
    prompt_points,
    ttft_quantile_s,
)
from planner.traffic.source import load_traffic
from tests.queueing.laws import law_of

TRACES = Path(__file__).parents[2] / "catalogs" / "example" / "traffic"


def prefill_of(per_token_s: float) -> Residence:
    return Residence(*(np.array([v]) for v in (0.0, per_token_s, 0.0, 0.0)))


POINTS = PromptPoints(np.array([1.0]), np.array([1000.0]), np.array([1000.0]))


def ttft(rate: float, batch: float, points: PromptPoints, prefill: Residence, share: float) -> float:
    """TTFT with bursts of one scale."""
    wait = longest_wait(np.array([rate]), np.array([[batch]]), np.array([1.0]), points, prefill, share)
    return float(ttft_quantile_s(wait, points, prefill, np.zeros(1), share)[0])


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
    assert ttft(11.0, 1.0, POINTS, prefill_of(1e-4), 0.95) == np.inf


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
    quantile = ttft(rate, batch, points, prefill, 0.95)
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


def test_the_scale_with_the_longest_wait_counts():
    """Slow, large bursts matter when the queue is loaded, and drain away when it is not."""
    scale = np.array([1.0, 60.0])
    batch = np.array([[2.0], [4.0]])
    busy = longest_wait(np.array([9.0]), batch, scale, POINTS, prefill_of(1e-4), 0.95)
    idle = longest_wait(np.array([1.0]), batch, scale, POINTS, prefill_of(1e-4), 0.95)
    assert busy.drained_s[0] == pytest.approx(0.12 * 0.1 * 59)
    assert idle.drained_s[0] == 0.0


@pytest.mark.parametrize("trace", ["code", "conv"])
@pytest.mark.parametrize(("copies", "replicas"), [(16, 4), (24, 5), (60, 20)])
def test_superposed_public_traces(trace, copies, replicas):
    """Time-shifted copies of a real trace, randomly routed: predicted over simulated 95th percentile of the wait."""
    raw = pd.read_csv(TRACES / f"AzureLLMInferenceTrace_{trace}.csv")
    seconds = (pd.to_datetime(raw.TIMESTAMP) - pd.to_datetime(raw.TIMESTAMP.iloc[0])).dt.total_seconds().to_numpy()
    prompt, length = raw.ContextTokens.to_numpy(np.float64), seconds.max() + 1e-3
    traffic = load_traffic(TRACES / f"AzureLLMInferenceTrace_{trace}.csv", name=trace)
    dispersion, points = dispersion_of(traffic.burst), prompt_points(traffic.law)
    rate = copies * seconds.size / length / replicas
    for rho in (0.6, 0.8):
        prefill = prefill_of(rho / (rate * prompt.mean()))
        simulated = []
        for seed in range(6):
            rng = np.random.default_rng(seed)
            arrival = np.concatenate([(seconds + rng.uniform(0, length)) % length for _ in range(copies)])
            mine = rng.integers(0, replicas, arrival.size) == 0
            order = np.argsort(arrival[mine])
            own = prefill.occupied_s(np.tile(prompt, copies)[mine][order])[0]
            backlog = np.concatenate([[0.0], np.cumsum(own[:-1] - np.diff(arrival[mine][order]))])
            wait = backlog - np.minimum.accumulate(np.minimum(backlog, 0.0))
            simulated.append(np.quantile(wait + own, 0.95))
        scales = dispersion.scales_s
        batch = batch_mean(thinned_idc(dispersion.at(scales), replicas))[:, None]
        found = longest_wait(np.array([rate]), batch, scales, points, prefill, 0.95)
        predicted = float(ttft_quantile_s(found, points, prefill, np.zeros(1), 0.95)[0])
        assert 0.85 <= predicted / np.mean(simulated) <= 2.2, (rho, predicted, simulated)
