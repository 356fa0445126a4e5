"""Vision towers against what vLLM 0.11.0 creates: their parameters, and those that every rank holds whole."""

from __future__ import annotations

import pytest

from planner.catalog.hf.config import read_model_shape
from planner.catalog.load import load_catalog
from planner.catalog.matrix import Part, Split

CATALOG = load_catalog()


@pytest.mark.parametrize(
    ("model", "parameters", "whole"),
    [
        ("Qwen/Qwen2.5-VL-7B-Instruct", 676_550_144, 1_673_984),
        ("Qwen/Qwen3-VL-8B-Instruct", 576_388_336, 4_657_792),
        ("google/gemma-3-27b-it", 423_060_336, 7_061_760),
        ("RedHatAI/Llama-4-Scout-17B-16E-Instruct-FP8-dynamic", 871_932_416, None),
        ("meta-llama/Llama-3.2-11B-Vision-Instruct", 895_028_755, None),
    ],
)
def test_parameters_of_a_tower(model: str, parameters: int, whole: int | None) -> None:
    """Differences of the engine's parameter bytes with and without the tower, and at TP 2 and 8."""
    tower = [m for m in CATALOG.model_shape(model).matrices if m.part is Part.VISION]
    assert sum(m.elements for m in tower) == CATALOG.model_shape(model).parameters.vision == parameters
    assert not any(m.linear for m in tower)
    if whole is not None:
        assert sum(m.elements for m in tower if m.split is Split.WHOLE) == whole


@pytest.mark.parametrize(
    ("model", "billions"),
    [
        ("microsoft/Phi-3-vision-128k-instruct", 4.15),
        ("deepseek-ai/deepseek-vl2-tiny", 3.37),
        ("mistralai/Ministral-3-3B-2512", 3.85),
        ("google/gemma-4-31B-it", 31.3),
        ("llava-hf/llava-1.5-7b-hf", 7.06),
    ],
)
def test_published_sizes_include_the_tower(model: str, billions: float) -> None:
    assert CATALOG.model_shape(model).parameters.total == pytest.approx(billions * 1e9, rel=0.005)


def test_a_tower_that_is_not_known_is_named() -> None:
    config = {
        "model_type": "new_vl",
        "vision_config": {"hidden_size": 8},
        "text_config": {
            "model_type": "llama",
            "hidden_size": 64,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "intermediate_size": 128,
            "vocab_size": 100,
            "max_position_embeddings": 64,
        },
    }
    shape = read_model_shape(config, "x")
    assert shape.parameters.vision == 0
    assert any("vision tower of new_vl is not counted" in note for note in shape.notes)
    assert not any("vision tower" in note for note in CATALOG.model_shape("microsoft/phi-2").notes)
