"""Footprints in token-equivalents: bounds on what the engine really holds, and moments against direct integration."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.catalog.load import load_catalog
from planner.memory.size import size
from planner.memory.types import Deployment, KvDtype, WeightDtype
from planner.queueing.footprint import marks_of, moments_of, pool_token_equivalents, token_equivalent_bytes
from planner.queueing.live_tokens import Residence, dispersion_scale_s, footprint_integral, squared_mean_integral
from tests.queueing.laws import law_of, plain_sizing


def sliding_sizing(window: int = 1024, block: int = 16):
    return replace(
        plain_sizing(block=block), sliding_bytes_per_token=65536.0, window_tokens=window, sliding_reserve_tokens=window
    )


def held_bytes(sizing, tokens: int) -> float:
    blocks = -(-tokens // sizing.block_size_tokens) * sizing.block_size_tokens
    return sizing.bytes_per_token * blocks + sizing.sliding_bytes_per_token * min(tokens, sizing.sliding_reserve_tokens)


def bound_at_the_end(marks, sizing) -> float:
    return marks.end[0] * token_equivalent_bytes(sizing)


@settings(max_examples=200, deadline=None)
@given(prompt=st.integers(1, 50_000), output=st.integers(0, 5000), window=st.sampled_from([128, 1024, 8192]))
def test_marks_bound_what_a_request_holds(prompt, output, window):
    """At every age: full * whole blocks + sliding * min(t, reserve) bytes at most."""
    sizing = sliding_sizing(window)
    marks = marks_of(law_of(np.array([prompt]), np.array([output])), sizing)
    for generated in {0, output // 2, output}:
        bound = (marks.start[0] + marks.growth[0] * generated) * token_equivalent_bytes(sizing)
        assert held_bytes(sizing, prompt + generated) <= bound * (1 + 1e-12)
    assert bound_at_the_end(marks, sizing) <= held_bytes(sizing, prompt + output) + 16 * token_equivalent_bytes(sizing)


@settings(max_examples=100, deadline=None)
@given(prompt=st.integers(1, 5000), output=st.integers(0, 500), state=st.sampled_from([0.0, 2e6, 5e7]))
def test_marks_bound_what_a_request_with_recurrent_states_holds(prompt, output, state):
    """At every age: the states of its layers, however short it is, beside the cache of the other layers."""
    sizing = replace(sliding_sizing(1024), state_bytes_per_request=state)
    marks = marks_of(law_of(np.array([prompt]), np.array([output])), sizing)
    for generated in {0, output}:
        bound = (marks.start[0] + marks.growth[0] * generated) * token_equivalent_bytes(sizing)
        assert held_bytes(sizing, prompt + generated) + state <= bound * (1 + 1e-12)
    without = marks_of(law_of(np.array([prompt]), np.array([output])), replace(sizing, state_bytes_per_request=0.0))
    assert (marks.start - without.start)[0] * token_equivalent_bytes(sizing) == pytest.approx(state)


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
    assert marks.growth.tolist() == [1.0, 0.0]
    assert marks.end[1] <= 4096 + 16


@pytest.mark.parametrize("model", ["openai/gpt-oss-20b", "google/gemma-3-27b-it", "meta-llama/Llama-3.1-8B-Instruct"])
def test_pool_holds_at_least_what_the_engine_admits_at_full_length(model):
    """The planner never counts on more requests of max_model_len than the engine's own maximum concurrency."""
    catalog = load_catalog()
    deployment = Deployment(2, WeightDtype.MXFP4 if "oss" in model else WeightDtype.BF16, KvDtype.BF16, 16384)
    facts = catalog.engine("vllm", "0.33.0")
    sizing = size(catalog.model_shape(model), catalog.gpu("H100-SXM"), facts, deployment)
    assert sizing.starts, sizing.refusals
    marks = marks_of(law_of(np.array([16_000]), np.array([384])), sizing)
    ours = pool_token_equivalents(sizing) / marks.end[0]
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
    for weight, p, o, start, growth in zip(
        marks.weight, marks.prompt, marks.output, marks.start, marks.growth, strict=True
    ):
        prefill = 0.1 + 2e-4 * p + 1e-9 * p * p
        held = np.where(ages < prefill + 0.02 * o, start + growth * np.clip((ages - prefill) / 0.02, 0, None), 0.0)
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
