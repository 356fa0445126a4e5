"""A log brought to another rate: how many requests, which lengths, how bursty."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from planner.errors import InputError
from planner.replay.trace import Source, Trace, at_peak, at_rate, busiest_per_s, read_trace

LOGS = Path(__file__).parents[2] / "catalogs" / "example" / "traffic"


def bursty(seed: int = 0, span_s: float = 3600.0) -> Trace:
    """Batches of 1 to 9 requests at a time: index of dispersion E[B^2] / E[B] = 19/3."""
    rng = np.random.default_rng(seed)
    starts = np.sort(rng.uniform(0, span_s, 2000))
    size = rng.integers(1, 10, len(starts))
    arrival = np.repeat(starts, size)
    return Trace(arrival, rng.integers(1, 100, len(arrival)), rng.integers(1, 100, len(arrival)), span_s)


def idc(arrival_s: np.ndarray, horizon_s: float, scale_s: float) -> float:
    counts = np.bincount((arrival_s / scale_s).astype(int), minlength=int(horizon_s / scale_s))
    return float(counts.var() / counts.mean())


@pytest.mark.parametrize("factor", [0.3, 1.0, 1.4, 7.7])
def test_the_rate_is_the_one_asked_and_bursts_keep_their_strength(factor):
    trace = bursty()
    rate = factor * trace.rate_per_s
    found = at_rate(trace, rate, 20_000.0, seed=1)
    assert len(found) / 20_000.0 == pytest.approx(rate, rel=0.03)
    assert (np.diff(found.arrival_s) >= 0).all()
    assert found.arrival_s[-1] < 20_000.0
    assert found.prompt_tokens.mean() == pytest.approx(trace.prompt_tokens.mean(), rel=0.02)
    assert idc(found.arrival_s, 20_000.0, 1.0) == pytest.approx(19 / 3, rel=0.25)


def test_the_busiest_ten_minutes_by_hand():
    """One request a minute for half an hour, and 11 more in minute 12: (10 + 11) / 600 s."""
    arrival = np.sort(np.concatenate([60.0 * np.arange(30), np.full(11, 725.0)]))
    assert busiest_per_s(arrival, 1800.0) == pytest.approx(21 / 600)
    assert busiest_per_s(arrival[:5], 300.0) == pytest.approx(5 / 300)


@pytest.mark.parametrize("peak", [0.9, 4.0, 40.0])
def test_the_busiest_ten_minutes_have_the_planning_rate(peak):
    """A log whose rate doubles in its second half: the mean is well below the peak."""
    calm, busy = bursty(1, 1800.0), bursty(2, 900.0)
    arrival = np.concatenate([calm.arrival_s, 1800.0 + busy.arrival_s])
    prompt = np.concatenate([calm.prompt_tokens, busy.prompt_tokens])
    output = np.concatenate([calm.output_tokens, busy.output_tokens])
    found = at_peak(Trace(arrival, prompt, output, 2700.0), peak, 7200.0, seed=3)
    assert busiest_per_s(found.arrival_s, 7200.0) == pytest.approx(peak, rel=0.03)
    assert len(found) / 7200.0 < 0.95 * peak


def test_the_same_seed_gives_the_same_requests_and_another_one_others():
    trace = bursty()
    one, same, other = (at_rate(trace, 9.0, 900.0, seed) for seed in (4, 4, 5))
    assert np.array_equal(one.arrival_s, same.arrival_s)
    assert not np.array_equal(one.arrival_s[:50], other.arrival_s[:50])


def test_a_part_of_a_trace_starts_at_its_own_zero():
    trace = Trace(np.array([0.0, 4.0, 6.0, 9.0]), *np.arange(1, 9).reshape(2, 4), 10.0)
    half = trace.part(0.5, 1.0)
    assert half.arrival_s.tolist() == [1.0, 4.0]
    assert half.prompt_tokens.tolist() == [3, 4]
    assert half.span_s == 5.0


@pytest.mark.parametrize(("rate", "horizon"), [(0.0, 1.0), (1.0, 0.0)])
def test_no_rate_and_no_time(rate, horizon):
    with pytest.raises(ValueError, match="above 0"):
        at_rate(bursty(), rate, horizon, 0)


def test_a_real_log_is_read_whole():
    trace = read_trace(Source(LOGS / "AzureLLMInferenceTrace_code.csv", "azure"))
    assert len(trace) == 8_819
    assert trace.rate_per_s == pytest.approx(8_819 / 3_600, rel=0.05)
    assert trace.prompt_tokens.max() == 7_437


def test_a_log_of_one_request_is_refused(tmp_path):
    log = tmp_path / "one.csv"
    log.write_text("timestamp,prompt,output\n2026-01-01T00:00:00Z,5,6\n")
    with pytest.raises(InputError, match="single requests"):
        read_trace(Source(log))
