"""Tables of rotary positions (``cos_sin_cache``) that vLLM keeps beside the weights.

One table for each distinct setting of the layers: ``rows x rotary dimension x 2 B`` (``rotary_embedding/base.py`` and
the classes beside it, vLLM 0.33.0). Tables of the common kinds are counted; a family with another kind counts 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.catalog.hf.fields import Fields, is_whole, shown

ELEMENT_BYTES = 2
MULTIMODAL_ROWS = 4
"""Rows of a multimodal table, which covers four times the longest context (``mrope.py``)."""
WITHOUT = frozenset(
    {
        "bert",
        "bloom",
        "falcon_mamba",
        "gpt2",
        "gpt_bigcode",
        "gpt_neox",
        "granitemoehybrid",
        "jamba",
        "kimi_linear",
        "mamba",
        "mamba2",
        "nemotron_h",
        "olmo2",
        "olmo3",
        "opt",
        "zamba2",
    }
)
"""Model types that have none, or make it while running."""
TWO_SETTINGS = frozenset({"gemma3_text", "gemma3n_text", "gemma4_text", "mimo_v2_flash"})
"""Model types whose sliding layers have a setting of their own."""
TIMES: Mapping[str, int] = {"deepseek_v32": 2, "deepseek_v4": 4, "gpt_oss": 2}
"""How many times the table is kept: a second one for the indexer, at 32 bits (gpt-oss), or two at 32 bits."""


def rotary_bytes(fields: Fields, longest: int, head_dim: int) -> int:
    """Bytes of the tables on every rank.

    Parameters
    ----------
    longest
        Longest context, scaled as the engine scales it.
    head_dim
        Of the full layers; for latent attention, the rotary part counts instead.
    """
    if fields.model_type in WITHOUT or fields.flag("mla_use_nope"):
        return 0
    settings = _settings(fields)
    rows = longest
    if settings.get("mrope_section") and fields.outer_type in ("qwen2_vl", "qwen2_5_vl"):
        rows *= MULTIMODAL_ROWS
    original = settings.get("original_max_position_embeddings", fields.get("original_max_position_embeddings"))
    if str(settings.get("rope_type") or settings.get("type")) in ("longrope", "su") and is_whole(original):
        rows += int(original)
    table = rows * rotary_dim(fields, settings, head_dim) * ELEMENT_BYTES
    if fields.model_type not in TWO_SETTINGS:
        return table * TIMES.get(fields.model_type, 1)
    return table * _stretch(settings) + longest * _local_dim(fields, settings, head_dim) * ELEMENT_BYTES


def rotary_dim(fields: Fields, settings: Mapping[str, Any], head_dim: int) -> int:
    """Dimensions of a head that are rotated."""
    latent = fields.optional_integer("qk_rope_head_dim")
    if latent:
        return latent
    stated = fields.optional_integer("rotary_dim")
    if stated:
        return min(stated, head_dim)
    if settings.get("rope_type") == "proportional":  # the table spans the head; what is not rotated is left at one
        return head_dim
    if fields.model_type == "chatglm":
        return head_dim // 2
    key = "partial_rotary_factor"
    share = settings.get(key, fields.get(key, default=1.0))
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        fields.note(key, f"is no share above 0 and up to 1 (got {shown(share)})")
        return head_dim
    return int(head_dim * share)


def _local_dim(fields: Fields, settings: Mapping[str, Any], head_dim: int) -> int:
    """Rotated dimensions of sliding layers: of their own head size where it differs."""
    if fields.model_type == "gemma4_text":
        return fields.optional_integer("head_dim", default=head_dim)
    return rotary_dim(fields, settings, head_dim)


def _stretch(settings: Mapping[str, Any]) -> int:
    """Factor of linear scaling, by which the table grows."""
    kind, factor = settings.get("rope_type") or settings.get("type"), settings.get("factor")
    return int(factor) if kind == "linear" and isinstance(factor, int | float) and factor >= 1 else 1


def _settings(fields: Fields) -> Mapping[str, Any]:
    """The rope settings of the full layers."""
    for key in ("rope_parameters", "rope_scaling"):
        stated = fields.text.get(key)
        if stated and isinstance(stated, Mapping):
            full = stated.get("full_attention")
            return full if isinstance(full, Mapping) else stated
    return {}
