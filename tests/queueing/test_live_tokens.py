"""The live-token law against closed forms and against a simulation that knows nothing of it."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import poisson

from planner.queueing.footprint import marks_of, moments_of
from planner.queueing.live_tokens import (
    batch_mean,
    gamma_quantile,
    live_tokens,
    mean_formula,
    quantile_lower_bound,
    screened_quantile,
    thinned_idc,
)
from planner.queueing.residence import Residence, mean_live_tokens
from planner.traffic.source import load_traffic
from planner.traffic.types import LengthLaw
from tests.queueing.laws import law_of, plain_sizing


def stay_of(s0: float, token_s: float) -> Residence:
    return Residence(np.asarray(s0), np.asarray(0.0), np.asarray(0.0), np.asarray(token_s))


def points(prompt: np.ndarray, output: np.ndarray, block: int = 1):
    law = law_of(prompt, output)
    sizing = plain_sizing(block=block, num_blocks=400_000 // block)
    marks = marks_of(law, sizing)
    return law, marks, moments_of(marks, law)


def simulated_quantile(
    rng: np.random.Generator, prompt, output, rate: float, batch: float, stay: Residence, horizon_s: float
) -> np.ndarray:
    """Live tokens at random times of a batch-Poisson system in which nothing queues; one value per sample."""
    batches = rng.poisson(rate / batch * horizon_s)
    sizes = rng.geometric(1.0 / batch, batches)
    arrival = np.repeat(rng.uniform(0, horizon_s, batches), sizes)
    pick = rng.integers(0, len(prompt), arrival.size)
    p, o = prompt[pick], output[pick]
    prefill = float(stay.s0)
    life = prefill + float(stay.token_s) * o
    samples = np.sort(rng.uniform(horizon_s * 0.1, horizon_s, 40_000))
    decoding = arrival + prefill
    last = np.searchsorted(samples, arrival + life)

    def alive(since_s: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """Sum at each sample of the weights of the requests that are between ``since_s`` and their end."""
        begun = np.bincount(np.searchsorted(samples, since_s), weight, samples.size + 1)
        return np.cumsum(begun - np.bincount(last, weight, samples.size + 1))[:-1]

    grown = samples * alive(decoding, np.ones(arrival.size)) - alive(decoding, decoding)
    return alive(arrival, p) + grown / float(stay.token_s)


def test_seed_row_of_the_mean_formula():
    """3 req/s, 2,000 in, 400 out, 40 tok/s, prefill 0.2 s: 10.2 s, 30.6 live, 67,320 tokens."""
    row = mean_formula(3, 2000, 400, 40, 0.2)
    assert row.time_in_system_s == pytest.approx(10.2)
    assert row.live_requests == pytest.approx(30.6)
    assert row.live_tokens == pytest.approx(67_320, abs=1e-6)


def test_mean_is_exact_for_one_length():
    """With one length, lam * (P s + P O w + O^2 w / 2) is the mean, and the mean formula agrees up to s * O / 2."""
    _, _, moments = points(np.array([2000]), np.array([400]))
    mean = float(mean_live_tokens(np.asarray(3.0), moments, stay_of(0.2, 0.025)))
    assert mean == pytest.approx(3 * (2000 * 0.2 + 2000 * 400 * 0.025 + 400**2 * 0.025 / 2))


def test_mean_formula_is_biased_when_lengths_vary():
    """Covariance and variance that the product of means drops: a long-and-long mix holds far more."""
    prompt, output = np.array([100, 10_000]), np.array([10, 2000])
    law, _, moments = points(prompt, output)
    true = float(mean_live_tokens(np.asarray(1.0), moments, stay_of(0.0, 0.025)))
    product = mean_formula(1.0, law.mean_prompt, law.mean_output, 40.0, 0.0).live_tokens
    assert true == pytest.approx(np.mean(prompt * output * 0.025 + output**2 * 0.025 / 2))
    assert true > 1.8 * product


def test_constant_footprint_is_a_poisson_count():
    """Requests that only hold their prompt for a fixed time: live tokens are P times a Poisson number."""
    law, marks, moments = points(np.array([1000]), np.array([0]))
    assert law.mean_output == 0
    stay = Residence(np.asarray(5.0), np.asarray(0.0), np.asarray(0.0), np.asarray(1e-9))
    exact = live_tokens(4.0, 1.0, marks, moments, stay)
    for overflow in (0.1, 0.01, 0.001):
        count = poisson.isf(overflow, 20.0)
        assert exact.quantile(overflow) == pytest.approx(1000 * count, rel=0.01)


def test_geometric_batches_of_a_constant_footprint():
    """M^[X]/D/infinity: a compound Poisson of geometric batches, by direct convolution."""
    _, marks, moments = points(np.array([1000]), np.array([0]))
    stay = Residence(np.asarray(5.0), np.asarray(0.0), np.asarray(0.0), np.asarray(1e-9))
    idc = 9.0
    exact = live_tokens(4.0, idc, marks, moments, stay)
    # Requests of one batch arrive together and stay equally long: a geometric number each time.
    rng = np.random.default_rng(1)
    b = float(batch_mean(idc))
    batches = rng.poisson(20.0 / b, 400_000)
    totals = np.where(batches > 0, batches + rng.negative_binomial(np.maximum(batches, 1), 1 / b), 0)
    assert exact.quantile(0.01) == pytest.approx(1000 * np.quantile(totals, 0.99), rel=0.03)


@pytest.mark.parametrize("idc", [1.0, 3.0, 9.0])
def test_simulation_meets_the_target(idc):
    """Batch-Poisson control: the share of time over the quantile is 0.8 to 1.05 of the target."""
    rng = np.random.default_rng(7)
    prompt = np.round(rng.lognormal(6.6, 1.0, 3000)).astype(np.int64)
    output = np.round(rng.lognormal(5.0, 0.9, 3000)).astype(np.int64) + 1
    _, marks, moments = points(prompt, output)
    stay = stay_of(0.2, 0.025)
    law = live_tokens(5.5, idc, marks, moments, stay)
    total = np.concatenate(
        [simulated_quantile(rng, prompt, output, 5.5, float(batch_mean(idc)), stay, 40_000) for _ in range(3)]
    )
    assert total.mean() == pytest.approx(law.mean, rel=0.02)
    assert 0.75 <= np.mean(total > law.quantile(0.01)) / 0.01 <= 1.15


TRACES = Path(__file__).parents[2] / "catalogs" / "example" / "traffic"
OBSERVED = (
    "AzureLLMInferenceTrace_code.csv",
    "AzureLLMInferenceTrace_conv.csv",
    "mooncake_conversation_head2500.jsonl",
)


def observed_laws() -> list[LengthLaw]:
    rng = np.random.default_rng(3)
    prompt = np.round(rng.lognormal(7.0, 1.3, 2000)).astype(np.int64) + 1
    output = np.round(rng.lognormal(5.0, 1.2, 2000)).astype(np.int64) + 1
    return [law_of(prompt, output), *(load_traffic(TRACES / name, name=name).law for name in OBSERVED)]


def test_bound_is_a_bound_and_the_gamma_is_close():
    """On real traces and a heavy-tailed law, from a fraction of a live request to thousands."""
    stay = stay_of(0.3, 0.03)
    for law in observed_laws():
        marks = marks_of(law, plain_sizing())
        moments = moments_of(marks, law)
        for rate in (0.03, 0.3, 3.0, 30.0):
            for idc in (1.0, 20.0):
                for overflow in (0.2, 0.001):
                    exact = live_tokens(rate, idc, marks, moments, stay).quantile(overflow)
                    rates, idcs = np.asarray(rate), np.asarray(idc)
                    bound = float(quantile_lower_bound(rates, idcs, moments, stay, overflow))
                    assert bound <= exact * 1.001, (rate, idc, overflow, bound / exact)
                    if rate == 30.0 and idc == 1.0:
                        screen = float(screened_quantile(rates, idcs, moments, stay, overflow))
                        assert screen == pytest.approx(exact, rel=0.05), (rate, idc)


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 100_000), st.integers(1, 3000)), min_size=1, max_size=12),
    rate=st.floats(0.01, 50),
    idc=st.floats(1, 300),
    overflow=st.sampled_from([0.2, 0.05, 0.01, 0.001]),
)
def test_bound_holds_for_any_law(lengths, rate, idc, overflow):
    prompt, output = (np.array(side) for side in zip(*lengths, strict=True))
    _, marks, moments = points(prompt, output)
    stay = stay_of(0.2, 0.02)
    exact = live_tokens(rate, idc, marks, moments, stay)
    bound = float(quantile_lower_bound(np.asarray(rate), np.asarray(idc), moments, stay, overflow))
    assert bound <= exact.quantile(overflow) + exact.step_tokens


def test_thinning_keeps_poisson_and_dilutes_bursts():
    assert float(thinned_idc(1.0, 4)) == 1.0
    assert float(thinned_idc(17.0, 4)) == 5.0
    assert float(batch_mean(1.0)) == 1.0
    assert float(batch_mean(9.0)) == 5.0


def test_gamma_quantile_of_a_gamma():
    """With the moments of a gamma law, the quantile is that of the law."""
    from scipy.stats import gamma

    shape, scale = 3.7, 2.0
    value = gamma_quantile(
        np.asarray(shape * scale), np.asarray(shape * scale**2), np.asarray(2 / np.sqrt(shape)), 0.01
    )
    assert float(value) == pytest.approx(gamma.isf(0.01, shape, scale=scale), rel=1e-9)


def test_no_load_is_an_error():
    _, marks, moments = points(np.array([10]), np.array([10]))
    with pytest.raises(ValueError, match="positive rate"):
        live_tokens(0.0, 1.0, marks, moments, stay_of(0.1, 0.01))


def test_one_quantile_is_fast_enough_to_verify_every_chosen_pool():
    rng = np.random.default_rng(0)
    _, marks, moments = points(rng.integers(1, 9000, 5000), rng.integers(1, 2000, 5000))
    start = time.process_time()
    live_tokens(5.0, 3.0, marks, moments, stay_of(0.2, 0.03))
    assert time.process_time() - start < 2.0
