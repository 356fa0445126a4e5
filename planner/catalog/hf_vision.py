"""Parameters of vision towers and projectors, for the families whose layout is known.

A tower that is not known counts as 0 and is named in the model's notes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from planner.catalog.hf_fields import Fields, is_whole

Vision = Mapping[str, Any]


def vision_parameters(fields: Fields) -> int | None:
    """Parameters of tower and projector: 0 without one, ``None`` where its layout is not known."""
    vision = fields.outer.get("vision_config")
    if not isinstance(vision, Mapping):
        has_tower = "img_processor" in fields.outer or fields.outer_type in (*TOWERS, *UNCOUNTED)
        return None if has_tower else 0
    reader = TOWERS.get(fields.outer_type)
    try:
        return reader(fields, vision) if reader else None
    except (LookupError, TypeError, ValueError, ArithmeticError):
        return None


def encoder_size(fields: Fields) -> tuple[int | None, int | None] | None:
    """Layers and hidden size that the vision config states under their usual names; ``None`` without a tower."""
    vision = fields.outer.get("vision_config")
    if not isinstance(vision, Mapping):
        return None
    layers = vision.get("num_hidden_layers", vision.get("vt_num_hidden_layers"))
    hidden = vision.get("hidden_size", vision.get("vt_hidden_size"))
    return (int(layers) if is_whole(layers) else None, int(hidden) if is_whole(hidden) else None)


def _block(hidden: int, width: int, *, gated: bool, bias: bool, norm_bias: bool) -> int:
    """One encoder layer: four projections, an MLP, two norms."""
    parameters = 4 * hidden * hidden + (3 if gated else 2) * hidden * width
    if bias:
        parameters += 4 * hidden + (2 if gated else 1) * width + hidden
    return parameters + 2 * hidden * (2 if norm_bias else 1)


def _linear(inputs: int, outputs: int, *, bias: bool = True) -> int:
    return inputs * outputs + (outputs if bias else 0)


def _qwen2_vl(_: Fields, vision: Vision) -> int:
    """Plain MLP of ``mlp_ratio``, merger of 2 x 2 patches into the text's hidden size."""
    hidden, merged = vision["embed_dim"], vision["embed_dim"] * vision["spatial_merge_size"] ** 2
    patch = vision["in_chans"] * vision["temporal_patch_size"] * vision["patch_size"] ** 2 * hidden
    block = _block(hidden, int(hidden * vision["mlp_ratio"]), gated=False, bias=True, norm_bias=True)
    merger = 2 * hidden + _linear(merged, merged) + _linear(merged, vision["hidden_size"])
    return int(patch + vision["depth"] * block + merger)


def _qwen2_5_vl(_: Fields, vision: Vision) -> int:
    """Gated MLP with biases, RMS norms."""
    hidden, merged = vision["hidden_size"], vision["hidden_size"] * vision["spatial_merge_size"] ** 2
    patch = vision["in_chans"] * vision["temporal_patch_size"] * vision["patch_size"] ** 2 * hidden
    block = _block(hidden, vision["intermediate_size"], gated=True, bias=True, norm_bias=False)
    merger = hidden + _linear(merged, merged) + _linear(merged, vision["out_hidden_size"])
    return int(patch + vision["depth"] * block + merger)


def _qwen3_vl(_: Fields, vision: Vision) -> int:
    """Plain MLP, a position table, and one more merger for each layer that feeds the text model deeper."""
    hidden, merged = vision["hidden_size"], vision["hidden_size"] * vision["spatial_merge_size"] ** 2
    patch = _linear(vision["in_channels"] * vision["temporal_patch_size"] * vision["patch_size"] ** 2, hidden)
    positions = vision["num_position_embeddings"] * hidden
    block = _block(hidden, vision["intermediate_size"], gated=False, bias=True, norm_bias=True)
    merger = _linear(merged, merged) + _linear(merged, vision["out_hidden_size"])
    deep = len(vision["deepstack_visual_indexes"])
    mergers = 2 * hidden + merger + deep * (2 * merged + merger)
    return int(patch + positions + vision["depth"] * block + mergers)


def _siglip(fields: Fields, vision: Vision) -> int:
    """SigLIP with Gemma-3's projector: a norm and one matrix."""
    hidden, side = vision["hidden_size"], vision["image_size"] // vision["patch_size"]
    patch = _linear(vision.get("num_channels", 3) * vision["patch_size"] ** 2, hidden)
    block = _block(hidden, vision["intermediate_size"], gated=False, bias=True, norm_bias=True)
    projector = hidden + _linear(hidden, fields.hidden, bias=False)
    return int(patch + side**2 * hidden + vision["num_hidden_layers"] * block + 2 * hidden + projector)


def _clip(fields: Fields, vision: Vision) -> int:
    """CLIP up to the layer that LLaVA reads, with a two-matrix projector."""
    hidden, side = vision["hidden_size"], vision["image_size"] // vision["patch_size"]
    patch = vision.get("num_channels", 3) * vision["patch_size"] ** 2 * hidden
    layers = vision["num_hidden_layers"] + 1 + int(fields.outer.get("vision_feature_layer", -2))
    block = _block(hidden, vision["intermediate_size"], gated=False, bias=True, norm_bias=True)
    projector = _linear(hidden, fields.hidden) + _linear(fields.hidden, fields.hidden)
    return int(patch + (side**2 + 2) * hidden + 2 * hidden + layers * block + projector)


def _pixtral(fields: Fields, vision: Vision) -> int:
    """Pixtral: gated MLP, no biases; patches merged before a two-matrix projector."""
    hidden, merge = vision["hidden_size"], int(fields.outer.get("spatial_merge_size", 2))
    patch = vision.get("num_channels", 3) * vision["patch_size"] ** 2 * hidden
    block = _block(hidden, vision["intermediate_size"], gated=True, bias=False, norm_bias=False)
    merger = hidden + _linear(merge**2 * hidden, hidden, bias=False)
    projector = _linear(hidden, fields.hidden, bias=False) + _linear(fields.hidden, fields.hidden, bias=False)
    return int(patch + hidden + vision["num_hidden_layers"] * block + merger + projector)


UNCOUNTED = ("gemma4", "kimi_k25", "llama4")
"""Multimodal model types whose tower is not counted."""
TOWERS: Mapping[str, Callable[[Fields, Vision], int]] = {
    "gemma3": _siglip,
    "llava": _clip,
    "mistral3": _pixtral,
    "qwen2_5_vl": _qwen2_5_vl,
    "qwen2_vl": _qwen2_vl,
    "qwen3_vl": _qwen3_vl,
    "qwen3_vl_moe": _qwen3_vl,
}
