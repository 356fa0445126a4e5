"""What a reader of a config met that its user should know."""

from __future__ import annotations

from collections.abc import Iterator

from planner.catalog.hf.attention import Attention
from planner.catalog.hf.fields import Fields
from planner.catalog.hf.quantisation import StoredWeights
from planner.catalog.hf.vision import vision_parameters
from planner.catalog.model_shape import AttentionFamily, CacheKind, CacheRole


def notes_of(fields: Fields, attention: Attention, stored: StoredWeights) -> tuple[str, ...]:
    """Traps met while reading, in the order of a reader's interest: formats, caches, parts that are not counted."""
    declared = ("the checkpoint declares an fp8 KV cache",) if stored.kv_fp8 and not stored.without_producer else ()
    return (*stored.notes, *declared, *_cache_notes(fields, attention), *_part_notes(fields))


def _cache_notes(fields: Fields, attention: Attention) -> Iterator[str]:
    if attention.state_layers:
        count = sum(layers.count for layers in attention.state_layers)
        kinds = ", ".join(sorted({str(layers.kind) for layers in attention.state_layers}))
        yield f"{count} of {fields.layers} layers keep a state per sequence ({kinds})"
    one_head_size = attention.family not in (AttentionFamily.MLA, AttentionFamily.NONE)
    if one_head_size and attention.head_dim * attention.heads != fields.hidden:
        by_division = fields.hidden / attention.heads
        yield f"head_dim {attention.head_dim} is stated and differs from hidden/heads {by_division:g}"
    if attention.family is AttentionFamily.MLA:
        yield "latent cache: one vector a token and layer, the same on every rank"
    tokens = [layers for layers in attention.cache_layers if layers.role is CacheRole.TOKENS]
    sliding = [layers for layers in tokens if layers.kind is CacheKind.SLIDING and layers.window_tokens]
    if sliding:
        windows = ", ".join(f"{window:,}" for window in sorted({layers.window_tokens or 0 for layers in sliding}))
        yield f"{sum(layers.count for layers in sliding)} of {fields.layers} layers keep a window of {windows} tokens"
    for layers in tokens:
        if layers.tokens_per_state > 1:
            yield f"{layers.count} of {fields.layers} layers keep one entry for {layers.tokens_per_state} tokens"
    sharing = sum(layers.sharing_layers for layers in tokens)
    if sharing:
        yield f"{sharing} of {fields.layers} layers read another layer's cache and keep none"


def _part_notes(fields: Fields) -> Iterator[str]:
    if fields.nested_in:
        yield f"language model read from {fields.nested_in}"
    vision = vision_parameters(fields)
    if vision is None:
        yield f"the vision tower of {fields.outer_type} is not counted: weights are too low by it"
    elif vision:
        yield f"a vision tower of {vision:,} parameters is loaded; what profiling images adds is not predicted"
    if vision is not None and fields.outer.get("audio_config"):
        yield f"the audio tower of {fields.outer_type} is not counted: weights are too low by it"
    if fields.defaults_used:
        yield f"class defaults of {fields.model_type} used for {', '.join(sorted(fields.defaults_used))}"
    if fields.optional_integer("num_nextn_predict_layers", "num_mtp_modules", "mtp_num_hidden_layers"):
        yield "multi-token-prediction layers are not loaded without speculative decoding, and not counted"
