"""Vision towers and projectors of a config, for the families whose layout is known (`planner.catalog.hf.towers`).

A tower that is not known counts as 0 and is named in the model's notes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.catalog.hf.fields import NESTED_TEXT_CONFIGS, Fields, is_whole
from planner.catalog.hf.matrices import Matrices
from planner.catalog.hf.towers import TOWERS, WITH_DEFAULTS


def vision_matrices(fields: Fields) -> Matrices:
    """Tower and projector; empty without one or where its layout is not known."""
    return _tower(fields) or ()


def vision_parameters(fields: Fields) -> int | None:
    """Parameters of tower and projector: 0 without one, ``None`` where its layout is not known."""
    tower = _tower(fields)
    return None if tower is None else sum(matrix.elements for matrix in tower)


def _tower(fields: Fields) -> Matrices | None:
    vision = fields.outer.get("vision_config")
    reader = TOWERS.get(fields.outer_type)
    if not isinstance(vision, Mapping):
        if fields.outer_type in WITH_DEFAULTS and reader:
            vision = {}
        else:
            return None if fields.outer_type in TOWERS or _mentions_tower(fields.outer) else ()
    try:
        return reader(fields, vision) if reader else None
    except (LookupError, TypeError, ValueError, ArithmeticError):
        return None


def _mentions_tower(config: Mapping[str, Any]) -> bool:
    """Whether a config without ``vision_config`` speaks of a tower after all, itself or in the config of its text."""
    inner = [config.get(key) for key in NESTED_TEXT_CONFIGS]
    nested = any(isinstance(text, Mapping) and text.get("vision_config") for text in inner)
    return nested or any(config.get(key) is not None for key in TOWER_KEYS)


TOWER_KEYS = ("audio_config", "audio_processor", "embd_layer", "img_processor")
"""Keys of towers other than ``vision_config`` (Phi-3 and Phi-4 multimodal, Qwen audio)."""


def encoder_size(fields: Fields) -> tuple[int | None, int | None] | None:
    """Layers and hidden size that the vision config states under their usual names; ``None`` without a tower."""
    vision = fields.outer.get("vision_config")
    if not isinstance(vision, Mapping):
        return None
    layers = vision.get("num_hidden_layers", vision.get("vt_num_hidden_layers"))
    hidden = vision.get("hidden_size", vision.get("vt_hidden_size"))
    return (int(layers) if is_whole(layers) else None, int(hidden) if is_whole(hidden) else None)
