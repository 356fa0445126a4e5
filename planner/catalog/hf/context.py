"""The longest context that a config allows, as vLLM derives it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.catalog.hf.fields import MOST, Fields, is_whole, shown

LENGTHS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
)
"""Keys that state a longest context."""
UNBOUNDED_TYPES = frozenset({"falcon_mamba", "mamba", "mamba2"})
"""Model types without attention, whose configs need not state a longest context."""
UNSTATED_LENGTH = 2048
"""What vLLM takes where no key states a length (``_get_and_verify_max_len``, ``default_max_len``)."""


def context_unstated(fields: Fields) -> bool:
    """Whether the config states no longest context, and the engine takes any that is asked for."""
    stated = any(fields.states(name) for name in (*LENGTHS, "model_max_length"))
    return fields.model_type in UNBOUNDED_TYPES and not stated


def longest(fields: Fields) -> int:
    """Longest context that the engine accepts, as vLLM derives it (``_get_and_verify_max_len``).

    The smallest of the keys that state a length, except that ``model_max_length`` replaces them; times the rope
    factor, unless the rope type already counts it in (longrope, llama3, yarn, mrope) or the model is Gemma-3.
    """
    stated = [value for name in LENGTHS if fields.states(name) and (value := fields.optional_integer(name))]
    override = fields.optional_integer("model_max_length")
    if override:
        stated = [override]
    length = min(stated) if stated else fields.optional_integer("max_position_embeddings", default=0)
    if not length and context_unstated(fields):
        length = UNSTATED_LENGTH
    if not length:
        fields.note("max_position_embeddings", "states no longest context", "Add it")
    longest = length * _rope_factor(fields)
    if longest > MOST:
        fields.note("rope_scaling", f"stretches the longest context to {longest:.3g} tokens")
    return int(min(longest, MOST))


def _rope_factor(fields: Fields) -> float:
    scaling = _rope_scaling(fields)
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    if not isinstance(kind, str):
        fields.note("rope_scaling.rope_type", f"is no name (got {shown(kind)})")
    if kind not in ("linear", "dynamic") or fields.model_type.startswith("gemma3"):
        return 1.0
    factor = scaling.get("factor", 1.0)
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor <= MOST:
        fields.note("rope_scaling.factor", f"is no number above 0 (got {shown(factor)})")
        return 1.0
    return float(factor)


def _rope_scaling(fields: Fields) -> Mapping[str, Any]:
    """The rope settings; empty where there are none, or where they are noted as no object."""
    for key in ("rope_scaling", "rope_parameters"):
        stated = fields.text.get(key)
        if stated and isinstance(stated, Mapping):
            return stated
    return {}


def longrope_original(fields: Fields) -> int | None:
    """``original_max_position_embeddings`` of a LongRoPE model."""
    scaling = _rope_scaling(fields)
    if str(scaling.get("rope_type") or scaling.get("type")) not in ("longrope", "su"):
        return None
    key = "original_max_position_embeddings"
    stated = scaling.get(key, fields.get(key))
    if stated is not None and not (is_whole(stated) and 0 < stated <= MOST):
        fields.note(key, f"is no whole number from 1 to {MOST:,} (got {shown(stated)})")
        return None
    return None if stated is None else int(stated)
