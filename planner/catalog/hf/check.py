"""What a config must look like before its values are read: numbers that are numbers, objects that are objects.

Everything here is noted in `Fields.problems`; nothing raises.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from planner.catalog.hf.fields import (
    ESSENTIAL,
    HEAD_DIM,
    HEADS,
    HIDDEN,
    KV_HEADS,
    LAYERS,
    NESTED_TEXT_CONFIGS,
    VOCABULARY,
    Fields,
    is_whole,
    shown,
)

OBJECTS = ("quantization_config", "compression_config", "vision_config", "rope_scaling", "rope_parameters")
DTYPE_KEYS = ("torch_dtype", "dtype")
DTYPES = frozenset(
    {
        "auto",
        "bfloat16",
        "double",
        "float",
        "float16",
        "float32",
        "float64",
        "float8_e4m3fn",
        "float8_e5m2",
        "half",
    }
)
VISION_SIZES = (
    "depth",
    "embed_dim",
    "hidden_size",
    "image_size",
    "in_channels",
    "in_chans",
    "intermediate_size",
    "mlp_ratio",
    "num_channels",
    "num_hidden_layers",
    "num_position_embeddings",
    "out_hidden_size",
    "patch_size",
    "spatial_merge_size",
    "temporal_patch_size",
    "vt_hidden_size",
    "vt_num_hidden_layers",
)
EXPERT_DTYPES = ("fp4", "fp8")
"""vLLM 0.33.0, ``deepseek_v4/quant_config.py``."""
UNBOUNDED = ("time_step_limit",)
"""Keys that no size follows from, and whose upper end is infinity in the models' own files (Nemotron-H, Mamba-2)."""
MOST_VISION = 10**6
"""Largest size that a key of a vision tower may hold."""


def check_form(fields: Fields) -> None:
    """Note every key whose value has not the form that it must have."""
    _finite(fields)
    _objects(fields)
    _nested(fields)
    _dtypes(fields)
    _heads(fields)
    _shares(fields)
    _vision(fields)


def _finite(fields: Fields) -> None:
    for path, value in _leaves(fields.outer):
        if path.rpartition(".")[2] in UNBOUNDED:
            continue
        if isinstance(value, float) and not math.isfinite(value):
            fields.note(path, f"is no finite number (got {value})")


def _leaves(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Values that are neither objects nor lists, each with its path; without recursion, as files may nest deeply."""
    stack: list[tuple[str, Any]] = [("", config)]
    while stack:
        path, value = stack.pop()
        if isinstance(value, Mapping):
            stack.extend((f"{path}.{key}".lstrip("."), inner) for key, inner in value.items())
        elif isinstance(value, list | tuple):
            stack.extend((path, inner) for inner in value)
        else:
            yield path, value


def _objects(fields: Fields) -> None:
    for config in (fields.outer, fields.text):
        for key in (*OBJECTS, *NESTED_TEXT_CONFIGS):
            value = config.get(key)
            if value is not None and not isinstance(value, Mapping):
                fields.note(key, f"is no object (got {shown(value)})")
        if config.get("model_type") is not None and not isinstance(config["model_type"], str):
            fields.note("model_type", f"is no name (got {shown(config['model_type'])})")
        architectures = config.get("architectures")
        if architectures is not None and not (isinstance(architectures, list) and _all_text(architectures)):
            fields.note("architectures", f"is no list of names (got {shown(architectures)})")


def _all_text(values: list[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def _nested(fields: Fields) -> None:
    """A nested text config hides the outer keys, so it must not be junk beside good ones."""
    if not fields.nested_in:
        return
    hidden = [
        names[0]
        for names in (HIDDEN, LAYERS, HEADS, VOCABULARY)
        if _states(fields.outer, names) and not _states(fields.text, names)
    ]
    if hidden:
        message = f"lacks {', '.join(hidden)}, which config.json states beside it; engines read the inner one"
        fields.note(fields.nested_in, message, "Remove the object, or state all sizes in it")
    elif not any(fields.text.get(name) is not None for name in ESSENTIAL):
        fields.note(fields.nested_in, "states no size of a language model")


def _states(config: Mapping[str, Any], names: tuple[str, ...]) -> bool:
    return any(config.get(name) is not None for name in names)


def _dtypes(fields: Fields) -> None:
    for config in (fields.outer, fields.text):
        for key in DTYPE_KEYS:
            value = config.get(key)
            if value is not None and str(value).removeprefix("torch.") not in DTYPES:
                fix = f"Write one of: {', '.join(sorted(DTYPES))}"
                fields.note(key, f"is no dtype of weights (got {shown(value)})", fix)


def _heads(fields: Fields) -> None:
    """KV heads share the query heads evenly; a stated head size is at least 1."""
    if _states(fields.text, HEAD_DIM):
        fields.optional_integer(*HEAD_DIM, least=1)
    heads, kv = _first(fields, HEADS), _first(fields, KV_HEADS)
    if not (is_whole(heads) and is_whole(kv)) or heads < 1:
        return
    if kv < 1 or heads % kv:
        key = next(name for name in KV_HEADS if fields.text.get(name) is not None)
        fields.note(key, f"{kv} KV heads cannot be shared by {heads} query heads", "Write a divisor of the query heads")


def _shares(fields: Fields) -> None:
    """The share of a head that is rotated, and the format of DeepSeek-V4's experts."""
    share = fields.text.get("partial_rotary_factor")
    if share is not None and (isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1):
        fields.note("partial_rotary_factor", f"is no share above 0 and up to 1 (got {shown(share)})")
    expert = fields.text.get("expert_dtype")
    if expert is not None and expert not in EXPERT_DTYPES:
        fix = f"Write one of: {', '.join(EXPERT_DTYPES)}"
        fields.note("expert_dtype", f"is no format of experts that engines read (got {shown(expert)})", fix)


def _first(fields: Fields, names: tuple[str, ...]) -> Any:
    """The first value that the config itself states."""
    return next((fields.text[name] for name in names if fields.text.get(name) is not None), None)


def _vision(fields: Fields) -> None:
    tokens = fields.outer.get("mm_tokens_per_image")
    if tokens is not None and not (is_whole(tokens) and 0 < tokens <= MOST_VISION):
        fields.note("mm_tokens_per_image", f"is no whole number from 1 to {MOST_VISION:,} (got {shown(tokens)})")
    vision = fields.outer.get("vision_config")
    if not isinstance(vision, Mapping):
        return
    deep = vision.get("deepstack_visual_indexes")
    if deep is not None and not isinstance(deep, list):
        fields.note("vision_config.deepstack_visual_indexes", f"is no list (got {shown(deep)})")
    for key in VISION_SIZES:
        value = vision.get(key)
        if value is None:
            continue
        whole = is_whole(value) or (key == "mlp_ratio" and isinstance(value, float) and math.isfinite(value))
        if not whole or not 0 < value <= MOST_VISION:
            fields.note(f"vision_config.{key}", f"is no number from 1 to {MOST_VISION:,} (got {shown(value)})")
