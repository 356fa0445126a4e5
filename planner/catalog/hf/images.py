"""The largest image that a vision tower is profiled with, for the families whose processor is known.

A tower that is not listed is not profiled: its images then take nothing, which is said in no term.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from planner.catalog.hf.fields import Fields, is_whole
from planner.catalog.model_shape import ImageInput

Vision = Mapping[str, Any]
COLOURS = 3
MOST_MERGED_PATCHES = 16384
"""Qwen's processors: at most 12,845,056 pixels in squares of 28 (Qwen2, 2.5) or 16,777,216 in squares of 32 (Qwen3)."""
TILE_MULTIPLE = 8
FRAMES = 2
"""Qwen's towers read frames in pairs; an image counts as two."""
VIDEO_PAIRS = 7
"""Frames of the largest video of Qwen2-VL and Qwen2.5-VL, in pairs (vllm/model_executor/models/qwen2_vl.py,
_MAX_FRAMES_PER_VIDEO 14; 16 in 0.9.2). Videos of Qwen3-VL have fewer places than an image."""


def largest_image(fields: Fields) -> ImageInput | None:
    """The largest image; ``None`` without a tower, or where its family or a size is not known."""
    vision = fields.outer.get("vision_config")
    reader = READERS.get(fields.outer_type)
    if not isinstance(vision, Mapping) or reader is None:
        return None
    try:
        image = reader(fields, vision)
    except (LookupError, TypeError, ValueError, ArithmeticError):
        return None
    return image if is_whole(image.hidden_size) and is_whole(image.intermediate_size) else None


def _siglip(fields: Fields, vision: Vision) -> ImageInput:
    """A square of fixed size, pooled to ``mm_tokens_per_image`` (Gemma-3)."""
    return ImageInput(
        tokens=int(fields.outer.get("mm_tokens_per_image", 256)),
        patches=(vision["image_size"] // vision["patch_size"]) ** 2,
        pixel_values=COLOURS * vision["image_size"] ** 2,
        hidden_size=vision["hidden_size"],
        intermediate_size=vision["intermediate_size"],
    )


def _clip(_: Fields, vision: Vision) -> ImageInput:
    """A square of fixed size, a token a patch (LLaVA 1.5)."""
    patches = (vision["image_size"] // vision["patch_size"]) ** 2
    return ImageInput(
        tokens=patches,
        patches=patches,
        pixel_values=COLOURS * vision["image_size"] ** 2,
        hidden_size=vision["hidden_size"],
        intermediate_size=vision["intermediate_size"],
    )


def _pixtral(fields: Fields, vision: Vision) -> ImageInput:
    """A square of at most ``image_size``; patches are merged in squares, and each row of tokens ends with a break."""
    side = vision["image_size"] // vision["patch_size"]
    merged = side // int(fields.outer.get("spatial_merge_size", 2))
    return ImageInput(
        tokens=merged * (merged + 1),
        patches=side**2,
        pixel_values=COLOURS * vision["image_size"] ** 2,
        hidden_size=vision["hidden_size"],
        intermediate_size=vision["intermediate_size"],
        gated=True,
    )


def _qwen2(fields: Fields, vision: Vision) -> ImageInput:
    """As `_qwen`; a video has frames as large as an image."""
    return replace(_qwen(fields, vision), most_frames=VIDEO_PAIRS)


def _qwen(_: Fields, vision: Vision) -> ImageInput:
    """Patches merged in squares, at most 16,384 of them; deep layers add outputs of their own."""
    patches = MOST_MERGED_PATCHES * int(vision["spatial_merge_size"]) ** 2
    hidden = vision["embed_dim"] if "embed_dim" in vision else vision["hidden_size"]
    width = vision.get("intermediate_size") or int(hidden * vision["mlp_ratio"])
    return ImageInput(
        tokens=MOST_MERGED_PATCHES,
        patches=patches,
        pixel_values=patches * COLOURS * FRAMES * vision["patch_size"] ** 2,
        hidden_size=hidden,
        intermediate_size=width,
        outputs=1 + len(vision.get("deepstack_visual_indexes") or ()),
        gated="fullatt_block_indexes" in vision,
    )


def _mllama(_: Fields, vision: Vision) -> ImageInput:
    """Tiles of fixed size, each padded to a multiple of 8 patches, under one mask; read by cross-attention.

    The states of the listed layers are kept for the projector; the layer at work starts from the last of them.
    """
    tiles, side = vision["max_num_tiles"], vision["image_size"] // vision["patch_size"]
    of_tile = side**2 + 1
    return ImageInput(
        tokens=tiles * of_tile,
        patches=tiles * (-of_tile % TILE_MULTIPLE + of_tile),
        pixel_values=tiles * COLOURS * vision["image_size"] ** 2,
        hidden_size=vision["hidden_size"],
        intermediate_size=vision["intermediate_size"],
        live_states=len(vision["intermediate_layers_indices"]),
        masked=True,
        in_prompt=False,
    )


READERS: Mapping[str, Callable[[Fields, Vision], ImageInput]] = {
    "gemma3": _siglip,
    "llava": _clip,
    "mistral3": _pixtral,
    "mllama": _mllama,
    "qwen2_vl": _qwen2,
    "qwen2_5_vl": _qwen2,
    "qwen3_vl": _qwen,
    "qwen3_vl_moe": _qwen,
    "qwen3_5": _qwen,
    "qwen3_5_moe": _qwen,
}
