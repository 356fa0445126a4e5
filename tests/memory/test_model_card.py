"""A model's page, over every config of the catalogue, and where it must agree with `planner size`."""

from __future__ import annotations

import json

import pytest

from planner.catalog.checkpoint import read_checkpoint
from planner.catalog.load import load_catalog
from planner.catalog.safetensors import CheckpointBytes
from planner.errors import InputError
from planner.memory.model_card import model_card
from planner.memory.size import size
from planner.memory.types import Deployment, KvDtype, WeightDtype
from planner.origin import Origin

CATALOG = load_catalog()
CONFIGS = sorted(path for path in (CATALOG.root / "models").glob("*.json") if path.name != "class_defaults.json")
REFUSED = {"BAAI/bge-large-en-v1.5": "an encoder keeps no KV cache", "RWKV/rwkv-5-world-3b": "RWKV keeps a state"}


def test_every_real_config_has_a_page_or_is_refused_with_a_reason():
    refused = {}
    for path in CONFIGS:
        found = read_checkpoint(path)
        try:
            shape = CATALOG.model_shape(found.name)
        except InputError as error:
            refused[found.name] = str(error)
            continue
        card = model_card(shape, CATALOG.engines, None)
        assert card.cache[0].full + card.cache[0].sliding > 0 or card.state_bytes, found.name
        assert all(line.n_bytes > 0 for line in card.weights), found.name
        assert not card.degrees[0].refusals, found.name
        assert {degree.tp for degree in card.degrees} == {1, 2, 4, 8, 16}
    assert len(CONFIGS) - len(refused) >= 275
    assert refused.keys() == REFUSED.keys()
    assert all(REFUSED[name] in refused[name] for name in REFUSED)


@pytest.mark.parametrize(
    ("model_id", "total"),
    [
        ("Qwen/Qwen3-8B", 16_381_470_720),
        ("Qwen/Qwen2.5-7B-Instruct", 15_231_233_024),
        ("meta-llama/Llama-3.1-8B-Instruct", 16_060_522_496),
    ],
)
def test_computed_weights_are_the_bytes_of_published_files(model_id, total):
    """``metadata.total_size`` of each model's model.safetensors.index.json."""
    card = model_card(CATALOG.model_shape(model_id), CATALOG.engines, None)
    assert (card.weights[0].n_bytes, card.weights[0].own, card.weights[0].origin) == (total, True, Origin.COMPUTED)


@pytest.mark.parametrize(
    "model_id", ["Qwen/Qwen3-8B", "google/gemma-3-27b-it", "Qwen/Qwen3-235B-A22B", "microsoft/phi-4"]
)
@pytest.mark.parametrize("tp", [1, 2, 4, 8])
def test_degrees_agree_with_what_the_engine_is_said_to_refuse(model_id, tp):
    shape, facts = CATALOG.model_shape(model_id), CATALOG.engine("vllm", "")
    degree = next(d for d in model_card(shape, CATALOG.engines, None).degrees if d.tp == tp)
    sizing = size(shape, CATALOG.gpu("B200"), facts, Deployment(tp, WeightDtype.BF16, KvDtype.BF16))
    said = {f"{refusal.rule}: {refusal.message}" for refusal in sizing.refusals if "%" in refusal.rule}
    assert set(degree.refusals) == said
    if said:
        return
    padded = sizing.bytes_per_token + sizing.sliding_bytes_per_token
    if sizing.sliding_bytes_per_token:
        assert 0.8 * padded < degree.bytes_per_token <= padded, "short groups of layers are padded in the pool"
    else:
        assert degree.bytes_per_token == padded


def test_files_come_before_what_is_computed():
    shape = CATALOG.model_shape("Qwen/Qwen3-8B")
    stored = CheckpointBytes(17_000_000_000, {"BF16": 17_000_000_000}, "headers of 5 files")
    card = model_card(shape, CATALOG.engines, stored)
    assert (card.weights[0].n_bytes, card.weights[0].origin) == (17e9, Origin.MEASURED)
    assert "(+3.78%)" in card.remarks[0]
    assert "compare before signing" in card.remarks[1]


def test_latents_are_replicated_and_experts_divided():
    degrees = model_card(CATALOG.model_shape("deepseek-ai/DeepSeek-V3"), CATALOG.engines, None).degrees
    assert len({degree.bytes_per_token for degree in degrees}) == 1
    assert [degree.replicated for degree in degrees] == [False, True, True, True, True]
    assert [degree.experts for degree in degrees] == [256, 128, 64, 32, 16]


def test_states_are_shown_by_engine():
    card = model_card(CATALOG.model_shape("Qwen/Qwen3.5-27B"), CATALOG.engines, None)
    assert {name.split()[0] for name in card.state_bytes} == {"vllm", "sglang"}
    assert all(n_bytes > 0 for n_bytes in card.state_bytes.values())
    assert json.dumps(dict(card.state_bytes))
