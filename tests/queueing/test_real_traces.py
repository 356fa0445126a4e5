"""Out of sample on public traces: sized on the first half hour, replayed exactly on the second.

40 tokens/s a stream, prefill 0.2 s, nothing queues: the live tokens of the trace itself against the quantile.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from planner.queueing.footprint import marks_of, moments_of
from planner.queueing.live_tokens import Residence, dispersion_scale_s, live_tokens, thinned_idc
from planner.queueing.load import dispersion_of
from planner.traffic.source import load_traffic
from tests.queueing.laws import plain_sizing

TRACES = Path(__file__).parents[2] / "catalogs" / "example" / "traffic"
PREFILL_S, TOKEN_S = 0.2, 0.025
STAY = Residence(np.asarray(PREFILL_S), np.asarray(0.0), np.asarray(0.0), np.asarray(TOKEN_S))


def overflow_share(arrival, prompt, output, size: float) -> float:
    """Share of the time in which the live tokens of a replayed trace exceed ``size``."""
    grid = np.arange(arrival.min() + 20, arrival.max(), 0.05)
    total = np.zeros(grid.size)
    first = np.searchsorted(grid, arrival)
    last = np.searchsorted(grid, arrival + PREFILL_S + TOKEN_S * output)
    for i in range(arrival.size):
        age = grid[first[i] : last[i]] - arrival[i] - PREFILL_S
        total[first[i] : last[i]] += prompt[i] + np.clip(age / TOKEN_S, 0, None)
    return float(np.mean(total > size))


@pytest.mark.parametrize("trace", ["code", "conv"])
@pytest.mark.parametrize("replicas", [1, 4])
def test_overflow_of_the_second_half(trace, replicas, tmp_path):
    raw = pd.read_csv(TRACES / f"AzureLLMInferenceTrace_{trace}.csv")
    seconds = (pd.to_datetime(raw.TIMESTAMP) - pd.to_datetime(raw.TIMESTAMP.iloc[0])).dt.total_seconds().to_numpy()
    first_half = seconds < seconds.max() / 2
    raw[first_half].to_csv(tmp_path / "first.csv", index=False)
    traffic = load_traffic(tmp_path / "first.csv", log_format="azure", name=trace)
    marks = marks_of(traffic.law, plain_sizing(block=1))
    moments = moments_of(marks, traffic.law)
    idc = dispersion_of(traffic.burst).at(dispersion_scale_s(moments, STAY))
    rate = traffic.observed_rate_per_s / replicas
    law = live_tokens(rate, float(thinned_idc(idc, replicas)), marks, moments, STAY)
    routed = np.random.default_rng(0).integers(0, replicas, raw.shape[0])
    shares = []
    for replica in range(replicas):
        rows = ~first_half & (routed == replica)
        p, o = raw.ContextTokens.to_numpy()[rows], raw.GeneratedTokens.to_numpy()[rows]
        shares.append([overflow_share(seconds[rows], p, o, law.quantile(target)) for target in (0.01, 0.001)])
    at_1_percent, at_0_1_percent = np.mean(shares, axis=0)
    assert at_1_percent <= 0.01
    assert at_0_1_percent <= 0.001
    assert law.quantile(0.01) > 1.5 * law.mean
