"""How each quantisation method is read: which matrix is stored how, and what is left alone."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from planner.catalog.hf.config import read_model_shape
from planner.catalog.load import load_catalog
from planner.catalog.matrix import Part, Stored
from planner.catalog.model_shape import ModelShape
from planner.catalog.models import read_json_object
from planner.catalog.quant import stored_formats as formats
from planner.catalog.quant.rules import Names, Rule, Rules, below_root
from planner.errors import InputError
from planner.memory.types import WeightDtype

CATALOG = load_catalog()
MODELS = CATALOG.root / "models"
DEFAULTS = read_json_object(MODELS / "class_defaults.json")
SIZES = {
    "hidden_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "intermediate_size": 1024,
    "vocab_size": 1000,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
}
DENSE: dict[str, Any] = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], **SIZES}
SPARSE: dict[str, Any] = {
    "model_type": "qwen3_moe",
    "architectures": ["Qwen3MoeForCausalLM"],
    **SIZES,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 256,
}
GROUPED = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True}
CHANNEL = {"num_bits": 8, "type": "float", "strategy": "channel", "dynamic": False}


def read(config: dict[str, Any], quantisation: dict[str, Any] | None = None, **options: Any) -> ModelShape:
    stated = {} if quantisation is None else {"quantization_config": quantisation}
    return read_model_shape({**config, **stated}, "test/model", **options)


def stored(shape: ModelShape, module: str, layer: int = 0) -> Stored | None:
    """How one matrix of one layer is stored."""
    return next(m.stored for m in shape.matrices if m.module == module and (layer in m.layers or not m.layers))


def compressed(weights: dict[str, Any], **settings: Any) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": None}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}, **settings}


@pytest.mark.parametrize(
    ("stated", "dtype", "expected"),
    [
        ({"quant_method": "fp8", "activation_scheme": "static"}, "fp8", formats.fp8_tensor(static=True)),
        ({"quant_method": "fp8", "weight_block_size": [128, 64]}, "fp8", formats.fp8_block(128, 64)),
        ({"quant_method": "fbgemm_fp8"}, "fp8", formats.fp8_channel()),
        ({"quant_method": "awq", "bits": 4, "group_size": 64}, "int4-awq", formats.awq(4, 64)),
        (
            {"quant_method": "gptq", "bits": 8, "group_size": -1, "desc_act": False},
            "int8-gptq",
            formats.gptq(8, 0, ordered=False, experts=False, listed=False),
        ),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bnb-4bit", formats.bnb_4bit()),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "bnb-int8", formats.int8_channel()),
        ({"quant_method": "mxfp8"}, "mxfp8", formats.mxfp8()),
        (
            {"quant_method": "auto-round", "bits": 4, "packing_format": "auto_round:auto_gptq"},
            "int4-gptq",
            formats.gptq(4, 128, ordered=False, experts=False),
        ),
        ({"quant_method": "inc", "bits": 4, "packing_format": "auto_round:auto_awq"}, "int4-awq", formats.awq(4, 128)),
        (
            {
                "quant_method": "quark",
                "global_quant_config": {"weight": {"dtype": "fp8_e4m3", "qscheme": "per_tensor"}},
            },
            "fp8",
            formats.fp8_tensor(),
        ),
        (
            {
                "quant_method": "quark",
                "global_quant_config": {"weight": {"dtype": "fp4", "qscheme": "per_group", "group_size": 32}},
            },
            "mxfp4",
            formats.mxfp4(),
        ),
        ({"quant_method": "modelopt", "quant_algo": "fp8"}, "fp8", formats.fp8_tensor(static=True)),
        ({"quant_method": "modelopt", "quant_algo": "FP8_PB_WO"}, "fp8", formats.fp8_block(128, 128)),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4", formats.nvfp4()),
        (compressed(CHANNEL, format="float-quantized"), "fp8", formats.fp8_channel()),
        (
            compressed({"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128]}),
            "fp8",
            formats.fp8_block(128, 128),
        ),
        (
            compressed(GROUPED, format="pack-quantized"),
            "w4a16",
            formats.packed_int(4, 32, symmetric=True, index_bytes=0, experts=False),
        ),
        (
            compressed({**GROUPED, "symmetric": False, "actorder": "group"}, format="pack-quantized"),
            "w4a16",
            formats.packed_int(4, 32, symmetric=False, index_bytes=4, experts=False),
        ),
        (
            compressed({"num_bits": 8, "type": "int", "strategy": "channel"}, format="int-quantized"),
            "int8",
            formats.int8_channel(),
        ),
        (compressed({"num_bits": 4, "type": "float", "group_size": 16}), "nvfp4", formats.nvfp4()),
        (compressed({"num_bits": 4, "type": "float", "group_size": 32}), "mxfp4", formats.mxfp4()),
    ],
)
def test_format_of_a_linear_layer(stated: dict[str, Any], dtype: str, expected: Stored) -> None:
    shape = read(DENSE, stated)
    assert shape.native_weight_dtype == WeightDtype(dtype)
    assert stored(shape, "mlp.up_proj") == stored(shape, "self_attn.k_proj") == expected
    assert stored(shape, "embed_tokens") is stored(shape, "lm_head") is stored(shape, "norm") is None


def test_mxfp4_converts_experts_only() -> None:
    shape = read(SPARSE, {"quant_method": "mxfp4"})
    assert stored(shape, "mlp.experts.*.up_proj") == formats.mxfp4()
    assert stored(shape, "self_attn.q_proj") is None


@pytest.mark.parametrize(
    "stated",
    [
        {"quant_method": "fp8", "modules_to_not_convert": ["model.layers.1.self_attn.q_proj"]},
        {"quant_method": "fp8", "ignored_layers": ["model.layers.1.self_attn.qkv_proj"]},
        {"quant_method": "awq", "modules_to_not_convert": ["layers.1.self_attn.q"]},
        {"quant_method": "modelopt", "quant_algo": "FP8", "exclude_modules": ["model.layers.1.self_attn*"]},
        {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["*.layers.1.self_attn.q_proj"]},
        {"quant_method": "gptq", "bits": 4, "dynamic": {"-:.*\\.1\\.self_attn.*": {}}},
        {"quant_method": "bitsandbytes", "load_in_4bit": True, "llm_int8_skip_modules": ["layers.1.self_attn"]},
        {"quant_method": "auto-round", "extra_config": {"\\.1\\.self_attn.*": {"bits": 16}}},
        {
            "quant_method": "quark",
            "global_quant_config": {"weight": {"dtype": "int8", "qscheme": "per_channel"}},
            "exclude": ["model.layers.1.self_attn.q_proj"],
        },
        compressed(CHANNEL, ignore=["re:.*layers\\.1\\.self_attn.*"]),
        compressed(CHANNEL, ignore=["model.layers.1.self_attn.q_proj"]),
        compressed(CHANNEL, ignore=["language_model.model.layers.1.self_attn.q_proj"]),
    ],
)
def test_modules_that_are_left_alone(stated: dict[str, Any]) -> None:
    """Each method names them in its own way; the other layer and the other modules are quantised."""
    shape = read(DENSE, stated)
    assert stored(shape, "self_attn.q_proj", 1) is None
    assert stored(shape, "self_attn.q_proj", 0) is not None
    assert stored(shape, "mlp.down_proj", 1) is not None


@pytest.mark.parametrize(
    "stated",
    [
        {"quant_method": "fp8", "modules_to_not_convert": ["q_proj", "model.layers.1"]},
        {"quant_method": "fp8", "modules_to_not_convert": ["model.visual.layers.1.self_attn.q_proj", "mtp.layers.1.q"]},
        compressed(CHANNEL, ignore=["re:self_attn"]),
    ],
)
def test_names_that_mean_no_module_of_the_decoder(stated: dict[str, Any]) -> None:
    """fp8 and plain names are whole; an expression is matched from the name's beginning; towers are apart."""
    assert stored(read(DENSE, stated), "self_attn.q_proj", 1) is not None


def test_an_expert_that_is_named_stands_for_its_layer() -> None:
    kept = read(SPARSE, {"quant_method": "fp8", "modules_to_not_convert": ["model.layers.0.mlp.experts.0.up_proj"]})
    assert stored(kept, "mlp.experts.*.up_proj", 0) is None
    assert stored(kept, "mlp.experts.*.up_proj", 1) is not None


def test_router_and_its_neighbours_are_told_apart() -> None:
    """``mlp.gate`` excluded from ModelOpt is no ``mlp.experts.0.gate_proj``."""
    stated = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["model.layers.0.mlp.gate", "lm_head"]}
    assert stored(read(SPARSE, stated), "mlp.experts.*.gate_proj", 0) == formats.nvfp4()


def test_gptq_lists_and_overrides() -> None:
    listed = read(
        DENSE,
        {"quant_method": "gptq", "bits": 4, "modules_in_block_to_quantize": [["mlp.up_proj"], ["mlp.gate_proj"]]},
    )
    assert stored(listed, "mlp.up_proj") == formats.gptq(4, 128, ordered=False, experts=False)
    assert stored(listed, "mlp.down_proj") is None
    dynamic = read(DENSE, {"quant_method": "gptq", "bits": 4, "dynamic": {"+:.*down_proj": {"bits": 8}}})
    assert stored(dynamic, "mlp.down_proj") == formats.gptq(8, 128, ordered=False, experts=False, listed=False)
    head = read(DENSE, {"quant_method": "gptq", "bits": 4, "lm_head": True})
    assert stored(head, "lm_head") is not None


def test_mixed_checkpoints_name_an_algorithm_per_module() -> None:
    layers = {
        "model.layers.0.self_attn.q_proj": {"quant_algo": "FP8"},
        "model.layers.0.mlp.experts.0.up_proj": {"quant_algo": "W4A16_NVFP4", "group_size": 16},
        "lm_head": {"quant_algo": "NVFP4"},
    }
    shape = read(SPARSE, {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers})
    assert shape.native_weight_dtype == WeightDtype.MIXED
    attention, experts = stored(shape, "self_attn.q_proj", 0), stored(shape, "mlp.experts.*.up_proj", 0)
    assert attention is not None
    assert experts is not None
    assert (attention.bits, attention.name) == (8, "FP8")
    assert (experts.bits, experts.name) == (4, "W4A16_NVFP4")
    assert stored(shape, "self_attn.q_proj", 1) is None
    assert stored(shape, "lm_head") is not None


def test_groups_with_targets_of_their_own() -> None:
    groups = {
        "dense": {"targets": ["re:.*self_attn.*"], "weights": CHANNEL},
        "experts": {"targets": ["re:.*experts.*"], "weights": GROUPED, "format": "pack-quantized"},
        "cache": {"targets": ["Qwen3MoeAttention"], "weights": None},
    }
    shape = read(SPARSE, {"quant_method": "compressed-tensors", "config_groups": groups})
    assert shape.native_weight_dtype == WeightDtype.MIXED
    assert stored(shape, "self_attn.q_proj") == formats.fp8_channel()
    experts = formats.packed_int(4, 32, symmetric=True, index_bytes=0, experts=True)
    assert stored(shape, "mlp.experts.*.down_proj") == experts


@pytest.mark.parametrize(
    ("expert_dtype", "extra", "experts"),
    [("fp4", {}, formats.mxfp4()), ("fp4", {"moe_quant_algo": "NVFP4"}, formats.nvfp4()), ("fp8", {}, None)],
)
def test_deepseek_v4_keeps_experts_apart(expert_dtype: str, extra: dict[str, Any], experts: Stored | None) -> None:
    config = {
        **read_json_object(MODELS / "deepseek-ai--DeepSeek-V4-Flash.json"),
        "expert_dtype": expert_dtype,
    }
    stated = {"quant_method": "fp8", "weight_block_size": [128, 128], **extra}
    stated_config = {**config, "expert_dtype": expert_dtype, "quantization_config": stated}
    shape = read_model_shape(stated_config, "x", class_defaults=DEFAULTS)
    block = formats.fp8_block(128, 128, scale_bytes=1 if expert_dtype == "fp4" else 4)
    by_part = {m.part: m.stored for m in shape.matrices if m.linear}
    assert by_part[Part.EXPERTS] == (experts or block)
    assert by_part[Part.SHARED_EXPERTS] == block


def test_a_companion_counts_where_modelopt_is_its_producer() -> None:
    quantisation = {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}
    named = read(DENSE, quant_config={"producer": {"name": "modelopt"}, "quantization": quantisation})
    unnamed = read(DENSE, quant_config={"quantization": quantisation})
    assert (named.modelopt_unnamed, unnamed.modelopt_unnamed) == (False, True)
    assert named.native_weight_dtype == unnamed.native_weight_dtype == "fp8"
    assert any("producer" in note for note in unnamed.notes)


@pytest.mark.parametrize(
    ("stated", "field"),
    [
        ({"quant_method": "awq", "group_size": "x"}, "group_size"),
        ({"quant_method": "fp8", "modules_to_not_convert": "lm_head"}, "modules_to_not_convert"),
        ({"quant_method": "gptq", "bits": 4, "dynamic": ["x"]}, "dynamic"),
        ({"quant_method": "gptq", "bits": 4, "dynamic": {"-:(": {}}}, "dynamic"),
        (compressed(CHANNEL, ignore=["re:("]), "ignore"),
        (
            {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {"a": {}}},
            "quantized_layers",
        ),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(stated: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError, match=field):
        read(DENSE, stated)


@pytest.mark.parametrize(
    "stated",
    [
        {"quant_method": "torchao"},
        {"quant_method": "gptq", "bits": 5},
        {"quant_method": "bitsandbytes"},
        {"quant_method": "modelopt", "quant_algo": "W4A8"},
        {"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "uint3"}}},
        {"quant_method": "auto-round", "bits": 4, "data_type": "fp"},
        compressed({"num_bits": 5, "type": "int"}),
    ],
)
def test_a_format_without_a_price_is_named(stated: dict[str, Any]) -> None:
    shape = read(DENSE, stated)
    assert shape.native_weight_dtype.startswith("unsupported: ")
    assert any("not modelled" in note for note in shape.notes)


def test_every_checkpoint_of_the_catalogue_has_a_price() -> None:
    found = set()
    for model in CATALOG.model_ids():
        with contextlib.suppress(InputError):
            found.add(CATALOG.model_shape(model).native_weight_dtype)
    assert len(found) > 8
    assert found <= set(WeightDtype)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("model.layers.3.mlp.gate", "layers.3.mlp.gate"),
        ("model.language_model.layers.3.mlp", "layers.3.mlp"),
        ("language_model.lm_head", "lm_head"),
        ("backbone.layers.0.mixer", "layers.0.mixer"),
        ("layers.0.ffn.experts", "layers.0.ffn.experts"),
    ],
)
def test_names_below_the_root(name: str, expected: str) -> None:
    assert below_root(name) == expected


def test_the_first_rule_that_matches_decides() -> None:
    shape = read(DENSE)
    up = next(m for m in shape.matrices if m.module == "mlp.up_proj")
    rules = Rules((Rule(Names(parts=("up",)), None), Rule(None, formats.mxfp8())))
    assert rules.stored(up, 0) is None
    assert Rules(rules.rules[1:]).stored(up, 0) == formats.mxfp8()
    assert Rules((Rule(None, formats.mxfp8(), experts=True),)).stored(up, 0) is None
