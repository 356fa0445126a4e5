"""What `planner load` computes: footprints by hand, closed forms, and what every option does to them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import poisson

from planner.queueing.footprint import marks_held, moments_of
from planner.queueing.holding import Holding
from planner.queueing.planned_load import PLAIN, Ask, Routing, planned_load
from planner.queueing.residence import Residence, footprint_integral
from planner.traffic.source import load_traffic
from planner.traffic.types import Tail, Traffic
from tests.queueing.laws import burst_of, law_of

TRACES = Path(__file__).parents[2] / "catalogs" / "example" / "traffic"
SINGLE = replace(PLAIN, block_tokens=1)


def traffic_of(prompt, output, *, idc: float = 1.0, minute: int = 240, minutes: int = 30) -> Traffic:
    prompt, output = np.asarray(prompt), np.asarray(output)
    one = np.ones(prompt.size, dtype=np.int64)
    order = np.argsort(-(prompt + output), kind="stable")
    return Traffic(
        "m", law_of(prompt, output), Tail(prompt[order], output[order], one), burst_of(idc),
        np.full(minutes, minute), minutes * 60.0, "test", "",
    )  # fmt: skip


def sure(**changes) -> Ask:
    return Ask(**({"decode_tokens_per_s": 40.0, "prefill_s": 5.0, "rate_cv": 0.0, "holding": SINGLE} | changes))


def test_constant_footprints_are_poisson():
    """4 requests/s that hold 1,000 tokens for 5 s: 1,000 times a Poisson number of mean 20."""
    load = planned_load(traffic_of([1000], [0]), sure(overflow=0.001))
    assert load.replica.mean_tokens == pytest.approx(20_000)
    assert load.replica.quantile_tokens == pytest.approx(1000 * poisson.isf(0.001, 20), rel=2e-3)
    assert load.formula.live_tokens == pytest.approx(20_000)
    assert load.ratio_to_formula == pytest.approx(1.0)


def test_mean_by_hand_where_lengths_vary():
    """rate E[P (s + O/v) + O^2 / (2 v)], against the product of means beside it."""
    prompt, output = np.array([100, 5000]), np.array([400, 40])
    load = planned_load(traffic_of(prompt, output), sure(prefill_s=0.2))
    mean = 4.0 * np.mean(prompt * (0.2 + output / 40) + output**2 / 80)
    assert load.replica.mean_tokens == pytest.approx(mean)
    product = 4.0 * (0.2 + 220 / 40) * (2550 + 110)
    assert load.formula.live_tokens == pytest.approx(product)
    assert load.ratio_to_formula == pytest.approx(mean / product)


def test_replicas_share_and_routing_spreads_bursts():
    traffic = traffic_of([1000, 3000], [100, 300], idc=9.0)
    random, kept = (planned_load(traffic, sure(replicas=4, routing=how)) for how in Routing)
    whole = planned_load(traffic, sure())
    assert whole.replica_idc == kept.replica_idc == 9.0
    assert random.replica_idc == 3.0
    assert random.replica.rate_per_s == 1.0
    assert random.replica.mean_tokens == pytest.approx(whole.replica.mean_tokens / 4)
    assert whole.replica.quantile_tokens / 4 < random.replica.quantile_tokens < kept.replica.quantile_tokens
    assert whole.stress.mean_tokens == pytest.approx(1.2 * whole.replica.mean_tokens)
    assert whole.stress.quantile_tokens > whole.replica.quantile_tokens


def test_doubt_about_the_rate():
    """A steady log of thousands is sure of its rate; a short one and a wandering one are not."""
    ask = replace(sure(), rate_cv=None)
    steady = planned_load(traffic_of([1000] * 7200, [100] * 7200), ask)
    assert steady.rate_cv == pytest.approx(7200**-0.5, rel=1e-6)
    short = planned_load(traffic_of([1000, 90] * 60, [10, 500] * 60, minute=4), ask)
    assert short.rate_cv > 120**-0.5
    wandering = replace(traffic_of([1000] * 7200, [100] * 7200), minute_counts=np.repeat([180, 300] * 3, 5))
    unsure = planned_load(wandering, ask)
    assert unsure.rate_cv == pytest.approx(2 * 0.25 * (6 / 5) ** 0.5, rel=0.02)
    assert unsure.replica.quantile_tokens > 1.3 * steady.replica.quantile_tokens


def test_stated_rate_and_limit():
    traffic = traffic_of([1000, 1000, 9000], [100, 100, 100])
    assert planned_load(traffic, sure(rate_per_s=7.5)).rate_per_s == 7.5
    cut = planned_load(traffic, sure(rate_per_s=7.5, max_model_len=4000))
    assert cut.rate_per_s == pytest.approx(5.0)
    assert cut.refused_share == pytest.approx(1 / 3)
    assert (cut.mean_prompt, cut.requests) == (1000, 2)


def one_mark(holding: Holding, prompt: int, output: int):
    return marks_held(law_of(np.array([prompt]), np.array([output])), holding)


def held(mark, generated: float) -> float:
    return float(mark.held(np.array([generated]))[0])


def test_blocks_by_hand():
    mark = one_mark(PLAIN, 100, 50)
    assert (mark.start[0], held(mark, 0), held(mark, 12), held(mark, 13), held(mark, 50)) == (112, 112, 112, 128, 160)


def test_sliding_window_by_hand():
    """Three quarters of a token's cache slide over 64 tokens, kept in five blocks: 0.25 t + 0.75 min(t, 80)."""
    holding = Holding(0.25, 0.75, 16, 80, 1 << 40, 0.0)
    mark = one_mark(holding, 160, 160)
    assert mark.start[0] == 160
    assert (held(mark, 0), held(mark, 160)) == (40 + 60, 80 + 60)


def test_shared_prefix_by_hand():
    """48 tokens in three blocks are held once for all; a shorter prompt shares nothing."""
    holding = replace(PLAIN, shared_tokens=48)
    assert one_mark(holding, 100, 50).start[0] == 112 - 48
    assert held(one_mark(holding, 100, 50), 50) == 160 - 48
    assert one_mark(holding, 40, 50).start[0] == 48
    traffic = traffic_of([96], [0])
    load, plain = (planned_load(traffic, sure(holding=h)) for h in (holding, PLAIN))
    assert plain.replica.mean_tokens == pytest.approx(20 * 96)
    assert load.replica.mean_tokens == pytest.approx(20 * 48 + 48)
    assert load.replica.quantile_tokens == pytest.approx((plain.replica.quantile_tokens + 96) / 2, rel=3e-3)


def test_chunks_by_hand():
    """A prompt of 100 in chunks of 32: blocks of 32, 64, 96 and 112 tokens, each for its part of the prefill."""
    holding = replace(PLAIN, chunk_tokens=32)
    mark = one_mark(holding, 100, 0)
    at = np.array([0.0, 0.31, 0.33, 0.63, 0.65, 0.95, 0.97])[:, None]
    assert mark.prefilling(at)[:, 0].tolist() == [32, 32, 64, 64, 96, 96, 112]
    stay = Residence(*(np.asarray(v) for v in (2.0, 0.0, 0.0, 0.025)))
    law = law_of(np.array([100]), np.array([0]))
    integral = float(footprint_integral(moments_of(mark, law), stay, 1))
    assert integral == pytest.approx(2 * (0.32 * (32 + 64 + 96) + 0.04 * 112), rel=0.02)
    whole = planned_load(traffic_of([100], [0]), sure(holding=PLAIN)).replica
    chunked = planned_load(traffic_of([100], [0]), sure(holding=holding)).replica
    assert chunked.mean_tokens < 0.65 * whole.mean_tokens
    assert chunked.quantile_tokens < whole.quantile_tokens


def test_against_a_simulation_of_uncertain_bursty_traffic():
    """Gamma rates, geometric batches, lengths at random: 40,000 independent snapshots, seeds fixed."""
    rng = np.random.default_rng(1)
    prompt = np.round(rng.lognormal(6.5, 0.8, 400)).astype(np.int64)
    output = np.round(rng.lognormal(5.0, 0.7, 400)).astype(np.int64) + 1
    ask = sure(prefill_s=0.2, rate_cv=0.3, overflow=0.01)
    planned = planned_load(traffic_of(prompt, output, idc=5.0), ask).replica
    life = 0.2 + output / 40
    horizon, snapshots = float(life.max()), 40_000
    batches = rng.poisson(rng.gamma(1 / 0.09, 4 * 0.09, snapshots) / 3.0 * horizon)
    sizes = rng.geometric(1 / 3.0, batches.sum())
    which = np.repeat(np.repeat(np.arange(snapshots), batches), sizes)
    age = np.repeat(rng.uniform(0, horizon, batches.sum()), sizes)
    pick = rng.integers(0, prompt.size, age.size)
    tokens = np.where(age < life[pick], prompt[pick] + np.clip(age - 0.2, 0, None) * 40, 0.0)
    total = np.bincount(which, tokens, snapshots)
    assert total.mean() == pytest.approx(planned.mean_tokens, rel=0.02)
    assert 0.85 <= np.mean(total > planned.quantile_tokens) / 0.01 <= 1.15


def test_a_poisson_log_does_not_look_bursty(tmp_path):
    """Half an hour of Poisson arrivals: at the life of its requests the index is 1, not what chance shows."""
    found = []
    for seed in range(6):
        at = np.sort(np.random.default_rng(seed).integers(0, 1_800_000, 9900)) / 1000 + 1_700_000_000
        path = tmp_path / f"{seed}.csv"
        path.write_text("timestamp,prompt,output\n" + "".join(f"{t:.3f},1000,200\n" for t in at))
        found.append(planned_load(load_traffic(path, name="m"), replace(sure(prefill_s=0.2), rate_cv=None)))
    assert sum(load.idc == 1.0 for load in found) >= 5
    assert all(load.rate_cv < 0.08 for load in found)
    assert all(1.3 < load.replica.quantile_tokens / load.replica.mean_tokens < 1.6 for load in found)


def test_a_coarse_clock_makes_no_batches():
    """Mooncake's stamps are three seconds apart: the index at 1 s is an artefact of it and is not used."""
    traffic = load_traffic(TRACES / "mooncake_conversation_head2500.jsonl", name="m")
    load = planned_load(traffic, sure(prefill_s=0.2))
    assert traffic.burst.idc[0] > 6
    assert 1.5 < load.idc < 3.5
