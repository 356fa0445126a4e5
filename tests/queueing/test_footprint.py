"""Footprints in token-equivalents: bounds on what the engine really holds, and moments against direct integration."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.catalog.load import load_catalog
from planner.memory.size import size, stored_dtype
from planner.memory.types import Deployment, KvDtype, WeightDtype
from planner.queueing.footprint import marks_of, moments_of
from planner.queueing.holding import pool_token_equivalents, token_equivalent_bytes
from planner.queueing.live_tokens import live_tokens
from planner.queueing.residence import (
    Residence,
    dispersion_scale_s,
    footprint_integral,
    squared_mean_integral,
)
from planner.traffic.types import LengthLaw
from tests.queueing.laws import law_of, law_of_requests, plain_sizing


def sliding_sizing(window: int = 1024, block: int = 16):
    return replace(
        plain_sizing(block=block), sliding_bytes_per_token=65536.0, window_tokens=window, sliding_reserve_tokens=window
    )


def blocks_held(sizing, computed: int, *, prefill: bool) -> float:
    """Bytes that vLLM holds for a request of ``computed`` tokens: whole blocks, those outside the window freed.

    Blocks are freed by what has been processed, two steps behind in decode (``KVCacheManager.allocate_slots``); in
    prefill all that the engine reserves counts.
    """
    block = sizing.block_size_tokens
    whole = -(-computed // block) * block
    outside = max(0, computed - 2 - sizing.window_tokens + 1) // block * block if sizing.window_tokens else 0
    slides = min(whole, sizing.sliding_reserve_tokens) if prefill else whole - outside
    return sizing.bytes_per_token * whole + sizing.sliding_bytes_per_token * slides + sizing.state_bytes_per_request


@settings(max_examples=300, deadline=None)
@given(
    prompt=st.integers(1, 50_000),
    output=st.integers(0, 5000),
    window=st.sampled_from([128, 1000, 1024, 8192]),
    block=st.sampled_from([16, 64, 1056]),
    state=st.sampled_from([0.0, 5e7]),
)
def test_marks_are_what_a_request_holds(prompt, output, window, block, state):
    """At every age: exact for layers that keep everything, at most two blocks too many for the window."""
    sizing = replace(sliding_sizing(window, block), state_bytes_per_request=state)
    sizing = replace(sizing, sliding_reserve_tokens=-(-(window + 8192) // block) * block + block)
    marks, unit = marks_of(law_of(np.array([prompt]), np.array([output])), sizing), token_equivalent_bytes(sizing)
    assert marks.start[0] * unit == pytest.approx(blocks_held(sizing, prompt, prefill=True))
    for generated in {0, output // 3, output // 2, output}:
        held = marks.held(np.array([float(generated)]))[0] * unit
        true = blocks_held(sizing, prompt + generated, prefill=False)
        assert true <= held * (1 + 1e-12)
        assert held <= true + 2 * block * sizing.sliding_bytes_per_token + 1e-6
    without = marks_of(law_of(np.array([prompt]), np.array([output])), replace(sizing, state_bytes_per_request=0.0))
    assert (marks.start - without.start)[0] * unit == pytest.approx(state)


@settings(max_examples=100, deadline=None)
@given(
    prompts=st.lists(st.integers(900, 989), min_size=2, max_size=30),
    generated=st.integers(0, 3000),
    block=st.sampled_from([1, 16, 272, 960, 1056]),
)
def test_a_cell_never_holds_less_than_its_requests_do_on_average(prompts, generated, block):
    """Requests of one cell of the length law, whose mean and longest prompt are all that is known."""
    p = np.array(prompts, dtype=np.int64)
    n, total = np.array([p.size]), np.array([float(p.sum())])
    zero = np.zeros(1)
    cell = LengthLaw(n, total, zero, zero, np.array([float((p * p).sum())]), zero, zero,
                     np.array([p.max()]), np.array([0]), np.array([p.max()]))  # fmt: skip
    marks = marks_of(cell, plain_sizing(block=block))
    true = np.mean(np.ceil((p + generated) / block) * block)
    assert true * (1 - 1e-12) <= marks.held(np.array([float(generated)]))[0] <= true + max(block, 89)


HYBRIDS = [  # model, tp, vLLM version: attention blocks of 272 to 2,096 tokens, 3 to 12 blocks of states
    ("Qwen/Qwen3-Next-80B-A3B-Instruct", 4, "0.19.0"),
    ("Qwen/Qwen3.5-35B-A3B", 1, "0.19.0"),
    ("Qwen/Qwen3.5-35B-A3B", 1, "0.33.0"),
    ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 1, "0.19.0"),
    ("moonshotai/Kimi-Linear-48B-A3B-Instruct", 2, "0.19.0"),
    ("openai/gpt-oss-20b", 1, "0.33.0"),
    ("google/gemma-3-27b-it", 1, "0.33.0"),
]


@pytest.mark.parametrize(("model", "tp", "version"), HYBRIDS)
@pytest.mark.parametrize(("prompt", "output"), [(300, 150), (1500, 400), (6000, 500)])
def test_planned_quantile_against_a_simulated_block_pool(model, tp, version, prompt, output):
    """Live blocks of a stationary replica, drawn request by request: never planned too low, at most 5 % too high."""
    catalog = load_catalog()
    shape = catalog.model_shape(model)
    deployment = Deployment(tp, stored_dtype(shape), KvDtype.BF16, max_model_len=16384)
    sizing = size(shape, catalog.gpu("H200-SXM"), catalog.engine("vllm", version), deployment)
    assert sizing.starts, sizing.refusals
    rng = np.random.default_rng(7)
    p = np.clip(np.round(rng.lognormal(np.log(prompt), 0.6, 4000)), 1, 15_000).astype(np.int64)
    o = np.clip(np.round(rng.lognormal(np.log(output), 0.5, 4000)), 1, 1300).astype(np.int64)
    law = law_of_requests(p, o)
    stay = Residence(*(np.asarray(v) for v in (0.02, 3e-5, 0.0, 0.02)))
    marks = marks_of(law, sizing)
    moments = moments_of(marks, law)
    rate = 40.0 / float(stay.mean_s(moments))
    planned = live_tokens(rate, 1.0, marks, moments, stay).quantile(0.01)
    needed = _simulated_quantile(sizing, p, o, stay, rate, rng)
    assert 0.99 <= planned / needed <= 1.05


def _simulated_quantile(sizing, p, o, stay, rate, rng, states: int = 40_000) -> float:
    """99 % quantile of what Poisson arrivals hold, in token-equivalents: ages are uniform over a request's life."""
    prefill = float(stay.s0) + float(stay.s1) * p
    life = prefill + float(stay.token_s) * o
    live = rng.poisson(rate * life.mean(), states)
    who = rng.choice(p.size, live.sum(), p=life / life.sum())
    age = rng.uniform(0.0, life[who])
    made = np.floor(np.maximum(age - prefill[who], 0.0) / float(stay.token_s))
    tokens, block = p[who] + made, sizing.largest_block_tokens
    whole = np.ceil(tokens / block) * block
    outside = np.floor(np.maximum(tokens - 2 - sizing.window_tokens + 1, 0) / block) * block
    slides = np.where(age < prefill[who], np.minimum(whole, sizing.sliding_reserve_tokens), whole - outside)
    held = sizing.bytes_per_token * whole + sizing.pool_state_bytes_per_request
    held += sizing.sliding_bytes_per_token * slides
    totals = np.bincount(np.repeat(np.arange(states), live), held, minlength=states)
    return float(np.quantile(totals, 0.99)) / token_equivalent_bytes(sizing)


def test_states_with_a_pool_of_their_own_take_nothing_from_the_token_pool():
    sizing = replace(plain_sizing(block=16), state_bytes_per_request=1e8, state_slots=64)
    assert marks_of(law_of(np.array([17]), np.array([0])), sizing).start[0] == 32


def test_a_model_of_states_alone_counts_requests():
    sizing = replace(plain_sizing(block=16), bytes_per_token=0.0, state_bytes_per_request=2e6)
    sizing = replace(sizing, num_blocks=50, bytes_per_block=2_000_000)
    law = law_of(np.array([10, 9000]), np.array([10, 500]))
    marks = marks_of(law, sizing)
    assert marks.start.tolist() == marks.end.tolist() == [1.0, 1.0]
    assert pool_token_equivalents(sizing) == 50
    stay = Residence(*(np.asarray(x) for x in (0.5, 0.0, 0.0, 0.02)))
    requests = footprint_integral(moments_of(marks, law), stay, 1)
    assert requests == pytest.approx(stay.mean_s(moments_of(marks, law)))


def test_seventeen_tokens_occupy_two_blocks():
    marks = marks_of(law_of(np.array([17]), np.array([0])), plain_sizing(block=16))
    assert marks.start[0] == 32


def test_all_sliding_layers_are_their_own_unit():
    sizing = replace(sliding_sizing(4096), bytes_per_token=0.0)
    marks = marks_of(law_of(np.array([1000, 20_000]), np.array([10, 10])), sizing)
    assert token_equivalent_bytes(sizing) == 65536.0
    assert marks.end.tolist() == [1024.0, 4096.0]


@pytest.mark.parametrize("model", ["openai/gpt-oss-20b", "google/gemma-3-27b-it", "meta-llama/Llama-3.1-8B-Instruct"])
def test_pool_holds_at_least_what_the_engine_admits_at_full_length(model):
    """The planner never prefills more requests of max_model_len at once than the engine's own maximum concurrency."""
    catalog = load_catalog()
    deployment = Deployment(2, WeightDtype.MXFP4 if "oss" in model else WeightDtype.BF16, KvDtype.BF16, 16384)
    facts = catalog.engine("vllm", "0.33.0")
    sizing = size(catalog.model_shape(model), catalog.gpu("H100-SXM"), facts, deployment)
    assert sizing.starts, sizing.refusals
    marks = marks_of(law_of(np.array([16_000]), np.array([384])), sizing)
    ours = pool_token_equivalents(sizing) / marks_of(law_of(np.array([16_384]), np.array([0])), sizing).start[0]
    assert marks.end[0] <= marks.start[0] + 384 * 1.001
    assert ours <= sizing.max_concurrency * 1.002
    assert ours >= 0.5 * sizing.max_concurrency


def test_moments_against_direct_integration():
    rng = np.random.default_rng(2)
    prompt, output = rng.integers(1, 4000, 50), rng.integers(1, 800, 50)
    sizing = sliding_sizing()
    law = law_of(prompt, output)
    marks = marks_of(law, sizing)
    moments = moments_of(marks, law)
    stay = Residence(*(np.asarray(v) for v in (0.1, 2e-4, 1e-9, 0.02)))
    ages = np.linspace(0, 17, 340_001)
    step = ages[1]
    mean, powers = np.zeros(ages.size), np.zeros(4)
    for index, (weight, p, o, start) in enumerate(
        zip(marks.weight, marks.prompt, marks.output, marks.start, strict=True)
    ):
        one = replace(marks, prompt=marks.prompt[[index]], longest_prompt=marks.longest_prompt[[index]])
        prefill = 0.1 + 2e-4 * p + 1e-9 * p * p
        decoding = one.held(np.clip((ages - prefill) / 0.02, 0, None)[:, None])[:, 0]
        held = np.where(ages < prefill, start, np.where(ages < prefill + 0.02 * o, decoding, 0.0))
        mean += weight * held
        powers += weight * np.array([np.sum(held**k * (held > 0)) * step for k in range(4)])
    for k in (1, 2, 3):
        assert float(footprint_integral(moments, stay, k)) == pytest.approx(powers[k], rel=2e-3)
    # The overlap of different lives leaves prefill times apart: an approximation, only used for the screen's variance.
    assert float(squared_mean_integral(moments, stay)) == pytest.approx(np.sum(mean**2) * step, rel=0.15)
    width = np.sum(mean * step) ** 2 / (np.sum(mean**2) * step)
    assert float(dispersion_scale_s(moments, stay)) == pytest.approx(width, rel=0.15)


def test_dispersion_scale_of_equal_lives_is_the_life():
    law = law_of(np.array([10_000]), np.array([1]))
    marks = marks_of(law, plain_sizing())
    stay = Residence(*(np.asarray(v) for v in (5.0, 0.0, 0.0, 1e-6)))
    assert float(dispersion_scale_s(moments_of(marks, law), stay)) == pytest.approx(5.0, rel=1e-3)
