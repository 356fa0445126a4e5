"""Which checkpoints SGLang serves with an fp8 KV cache of itself."""

from __future__ import annotations

from typing import Any

import pytest

from planner.catalog.hf.config import read_model_shape

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 2,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": False,
}
STATIC = {"type": "float", "num_bits": 8, "strategy": "tensor", "symmetric": True, "dynamic": False}
FP8_ALGORITHM = {"kv_cache_quant_algo": "FP8"}


def declared(quantization: dict[str, Any] | None, companion: dict[str, Any] | None = None) -> bool:
    config = LLAMA if quantization is None else {**LLAMA, "quantization_config": quantization}
    return read_model_shape(config, "a/model", quant_config=companion).sglang_fp8_kv


def modelopt(algorithm: str, **fields: Any) -> dict[str, Any]:
    return {"quant_method": "modelopt", "quant_algo": algorithm, **fields}


@pytest.mark.parametrize(
    ("quantization", "expected"),
    [
        (None, False),
        ({"quant_method": "fp8"}, False),
        (modelopt("FP8", **FP8_ALGORITHM), True),
        (modelopt("FP8", kv_cache_scheme="FP8"), False),
        (modelopt("NVFP4", kv_cache_scheme="FP8"), True),
        (modelopt("NVFP4", kv_cache_scheme=STATIC), True),
        (modelopt("NVFP4", kv_cache_scheme={"type": "int", "num_bits": 8}), False),
    ],
)
def test_what_the_config_declares(quantization: dict[str, Any] | None, expected: bool) -> None:
    assert declared(quantization) is expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [({}, True), ({"dynamic": True}, False), ({"strategy": "channel"}, False), ({"num_bits": 4}, False)],
)
def test_packed_checkpoints_declare_static_scales_of_a_tensor(changes: dict[str, Any], expected: bool) -> None:
    packed = {
        "quant_method": "compressed-tensors",
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True},
                "input_activations": {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True},
            }
        },
        "format": "float-quantized",
        "kv_cache_scheme": {**STATIC, **changes},
    }
    assert declared(packed) is expected


def nested(**fields: Any) -> dict[str, Any]:
    return {"producer": {"name": "modelopt"}, "quantization": {**fields, **FP8_ALGORITHM}}


@pytest.mark.parametrize(
    ("companion", "expected"),
    [
        (nested(quant_algo="FP8"), True),
        (nested(quant_algo="NVFP4", group_size=16), True),
        (nested(quant_algo="NVFP4"), False),
    ],
)
def test_a_companion_of_4_bits_needs_its_group_size(companion: dict[str, Any], expected: bool) -> None:
    assert declared(None, companion) is expected


def test_the_companion_fills_in_for_a_mixed_checkpoint_alone() -> None:
    companion = nested(quant_algo="MIXED_PRECISION", quantized_layers={})
    layers = {"model.layers.0.mlp.down_proj": {"quant_algo": "FP8"}}
    assert declared(modelopt("MIXED_PRECISION", quantized_layers=layers), companion)
    assert not declared(modelopt("MIXED_PRECISION", quantized_layers=layers, kv_cache_quant_algo=None), companion)
    assert not declared(modelopt("FP8"), companion)
