"""Configs that are wrong: every bad key named in one message, never another exception, never a wrong figure."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from planner.catalog.hf.config import read_model_shape
from planner.catalog.hf.fields import text_config
from planner.catalog.load import load_catalog
from planner.catalog.models import read_json_object
from planner.errors import InputError

CATALOG = load_catalog()
DEFAULTS = read_json_object(CATALOG.root / "models" / "class_defaults.json")

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
}
BLOCK = "quantization_config.weight_block_size"


def bad_fields(config: dict[str, Any]) -> list[str]:
    with pytest.raises(InputError) as error:
        read_model_shape(config, "folder/config.json", class_defaults=DEFAULTS)
    assert all(problem.where == "folder/config.json" for problem in error.value.problems)
    assert all(problem.message and problem.fix for problem in error.value.problems)
    return [problem.field for problem in error.value.problems]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"head_dim": -1}, "head_dim"),
        ({"head_dim": 0}, "head_dim"),
        ({"num_key_value_heads": 7}, "num_key_value_heads"),
        ({"num_key_value_heads": 64}, "num_key_value_heads"),
        ({"num_key_value_heads": 0}, "num_key_value_heads"),
        ({"quantization_config": "fp8"}, "quantization_config"),
        ({"quantization_config": {"quant_method": "fp8", "weight_block_size": "128"}}, BLOCK),
        ({"quantization_config": {"quant_method": "fp8", "weight_block_size": [0, 128]}}, BLOCK),
        ({"text_config": "junk"}, "text_config"),
        ({"text_config": {}}, "text_config"),
        ({"text_config": {"a": 1}}, "text_config"),
        ({"text_config": {"model_type": "llama", "vocab_size": 5}}, "text_config"),
        ({"tie_word_embeddings": "maybe"}, "tie_word_embeddings"),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings"),
        ({"attention_bias": "no"}, "attention_bias"),
        ({"torch_dtype": "float7"}, "torch_dtype"),
        ({"dtype": 16}, "dtype"),
        ({"architectures": "LlamaForCausalLM"}, "architectures"),
        ({"rope_scaling": "x"}, "rope_scaling"),
        ({"rope_scaling": {"type": "linear", "factor": "x"}}, "rope_scaling.factor"),
        ({"rope_scaling": {"type": "linear", "factor": 1e9}}, "rope_scaling"),
        ({"max_position_embeddings": "x"}, "max_position_embeddings"),
        ({"num_hidden_layers": 10**30}, "num_hidden_layers"),
        ({"num_hidden_layers": 10_001}, "num_hidden_layers"),
        ({"hidden_size": 2**31}, "hidden_size"),
        ({"hidden_size": 4097}, "head_dim"),
        ({"vocab_size": float("inf")}, "vocab_size"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps"),
        ({"anything": [{"deep": float("-inf")}]}, "anything.deep"),
        ({"partial_rotary_factor": 2.5}, "partial_rotary_factor"),
        ({"expert_dtype": "int2"}, "expert_dtype"),
        ({"intermediate_size": 10**400}, "intermediate_size"),
    ],
    ids=str,
)
def test_a_bad_value_is_named(changes: dict[str, Any], field: str) -> None:
    assert bad_fields({**LLAMA, **changes}) == [field]


def test_all_bad_fields_are_in_one_message() -> None:
    wrong = {
        "tie_word_embeddings": "maybe",
        "torch_dtype": "float7",
        "quantization_config": "fp8",
        "num_key_value_heads": 7,
        "head_dim": -1,
        "rope_scaling": "x",
        "num_hidden_layers": 10**30,
        "max_position_embeddings": "x",
        "hidden_size": float("nan"),
    }
    config = {**LLAMA, **wrong}
    del config["vocab_size"]
    assert sorted(bad_fields(config)) == sorted([*wrong, "vocab_size"])


def test_a_model_type_alone_is_no_model() -> None:
    """The class defaults of qwen2 would make it one of 12 billion parameters."""
    missing = bad_fields({"model_type": "qwen2"})
    assert {"hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"} <= set(missing)


def test_what_is_wrong_in_a_catalogue_entry_is_placed_in_its_config() -> None:
    with pytest.raises(InputError, match=r"^org/model config\.json, field vocab_size: "):
        read_model_shape({**LLAMA, "vocab_size": -1}, "org/model")


@pytest.mark.parametrize("model", ["llava-hf/llava-1.5-7b-hf", "google/gemma-3-27b-it"])
def test_real_nested_configs_may_rely_on_class_defaults(model: str) -> None:
    assert any(note.startswith("class defaults of") for note in CATALOG.model_shape(model).notes)


def test_a_nested_config_without_any_size_is_refused() -> None:
    assert bad_fields({"model_type": "llava", "text_config": {"model_type": "llama"}}) == ["text_config"]


def test_a_limit_that_no_size_follows_from_may_be_infinite() -> None:
    """Nemotron-H and Mamba-2 write an infinite ``time_step_limit``."""
    assert read_model_shape({**LLAMA, "time_step_limit": [0.0, float("inf")]}, "x").num_layers == 32
    with pytest.raises(InputError, match="encoder-decoder"):
        read_model_shape({"model_type": "t5", "time_step_limit": [0.0, float("inf")]}, "x")


def test_a_chain_of_nested_configs_ends() -> None:
    config: dict[str, Any] = {"model_type": "llama"}
    for _ in range(500):
        config = {"text_config": config}
    with pytest.raises(InputError):
        read_model_shape(config, "x")


def test_an_unusable_vision_tower_is_named() -> None:
    config = {"model_type": "llava", "text_config": LLAMA, "vision_config": {"hidden_size": -5, "patch_size": "x"}}
    assert bad_fields(config) == ["vision_config.hidden_size", "vision_config.patch_size"]


JUNK: tuple[Any, ...] = ("x", -1, 2.5, [1], {"a": 1}, float("nan"), 1e308, 10**30)
NAMES = {"model_type", "architectures", "topk_method"}
"""Keys whose text is another model's when it is another text."""
OBJECTS_AND_LISTS = {
    "cross_attention_layers",
    "full_attn_idxs",
    "mlp_only_layers",
    "quantization_config",
    "rope_scaling",
    "vision_config",
}
"""Keys that may hold another object or list than they did."""
FACTORS = {"block_ffn_dim_multiplier"}
"""Keys that may hold another number above 0 than they did."""


class Recorded(dict[str, Any]):
    """An object of a config that notes which of its keys are read."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(config)
        self.read: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.read.add(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        self.read.add(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self.read.add(str(key))
        return super().__contains__(key)


def _read_keys(config: dict[str, Any]) -> list[tuple[str, str]]:
    """The keys that reading looks at, each with the object that it is in: no other can change the shape."""
    _, nested_in = text_config(config)
    outer = Recorded(config)
    inner = Recorded(config[nested_in]) if nested_in else None
    if inner is not None:
        dict.__setitem__(outer, nested_in, inner)
    read_model_shape(outer, "x", class_defaults=DEFAULTS)
    keys = [("", key) for key in config if key in outer.read]
    return keys + [(nested_in, key) for key in (inner or ()) if inner is not None and key in inner.read]


def _small_quantiser(config: dict[str, Any]) -> dict[str, Any]:
    """Without the quantiser's list of thousands of modules, which takes long to read."""
    stated = config.get("quantization_config")
    return config if len(str(stated)) < 20_000 else {key: config[key] for key in config if key != "quantization_config"}


def _one_of_each_type() -> Iterator[tuple[str, dict[str, Any]]]:
    seen: set[str] = set()
    for model_id in CATALOG.model_ids():
        config = dict(read_json_object(CATALOG.root / "models" / CATALOG.model_sources[model_id].file))
        try:
            shape = read_model_shape(config, model_id, class_defaults=DEFAULTS)
        except InputError:
            continue
        if shape.model_type not in seen:
            seen.add(shape.model_type)
            yield model_id, _small_quantiser(config)


def _with(config: dict[str, Any], nested_in: str, key: str, value: Any) -> dict[str, Any]:
    changed = copy.copy(config)
    if nested_in:
        changed[nested_in] = {**config[nested_in], key: value}
    else:
        changed[key] = value
    return changed


def test_junk_in_any_key_of_any_supported_type_is_refused_or_not_read() -> None:
    """Whatever a key holds, reading ends in `InputError` or in the same shape as before; half of the junk per key."""
    accepted, tried = [], 0
    for model_id, config in _one_of_each_type():
        whole = replace(read_model_shape(config, model_id, class_defaults=DEFAULTS), notes=())
        for number, (where, key) in enumerate(_read_keys(config)):
            for junk in JUNK[number % 2 :: 2]:
                tried += 1
                try:
                    shape = read_model_shape(_with(config, where, key, junk), model_id, class_defaults=DEFAULTS)
                except InputError:
                    continue
                meant = key in NAMES or (key in OBJECTS_AND_LISTS and isinstance(junk, list | dict))
                meant = meant or (key in FACTORS and junk == 2.5)
                if not meant and replace(shape, notes=()) != whole:
                    accepted.append((model_id, key, junk))
    assert accepted == []
    assert tried > 5_000
