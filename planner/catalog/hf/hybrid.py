"""Attention beside recurrent layers: which layers are which, and both put together to one `Attention`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from planner.catalog.hf import matrices as build
from planner.catalog.hf.attention import Attention, family_of, head_dim, kv_heads, shared_heads
from planner.catalog.hf.fields import Fields
from planner.catalog.hf.matrices import Layers
from planner.catalog.hf.recurrent import Mixer
from planner.catalog.model_shape import AttentionFamily, CacheKind, CacheLayers

FULL = ("full_attention", "attention", "*")
"""Names of layers with softmax attention."""


def chosen(kinds: Sequence[object], *names: str) -> Layers:
    """Indexes of the layers whose kind is one of ``names``."""
    return tuple(layer for layer, kind in enumerate(kinds) if kind in names)


def others(layers: int, taken: Iterable[int]) -> Layers:
    """Indexes of the layers that are not ``taken``."""
    left = set(taken)
    return tuple(layer for layer in range(layers) if layer not in left)


def listed(fields: Fields, key: str) -> Layers:
    """Layers whose indexes the config lists."""
    return tuple(sorted(layer for layer in fields.items(key) if isinstance(layer, int) and 0 <= layer < fields.layers))


def beside(
    fields: Fields,
    full: Layers,
    mixers: Sequence[Mixer],
    *,
    dim: int | None = None,
    qkv_bias: bool = False,
    output_bias: bool = False,
    qk_norm: str = "",
    query_gate: bool = False,
    prefix: str = "self_attn",
    output: str = "o_proj",
) -> Attention:
    """Grouped queries in the layers ``full`` beside ``mixers``."""
    heads = fields.heads
    kv = shared_heads(fields, heads, kv_heads(fields))
    size = dim or head_dim(fields)
    matrices = build.grouped_query(
        full,
        fields.hidden,
        heads,
        kv,
        size,
        prefix=prefix,
        output=output,
        qkv_bias=qkv_bias,
        output_bias=output_bias,
        qk_norm=qk_norm,
        query_gate=query_gate,
    )
    cache = (CacheLayers(CacheKind.FULL, len(full), kv, size, size),) if full else ()
    return with_mixers(Attention(family_of(heads, kv), cache, heads, kv, size, matrices), mixers)


def with_mixers(attention: Attention, mixers: Sequence[Mixer]) -> Attention:
    """The same attention with recurrent layers beside it, as far as there are any."""
    used = [mixer for mixer in mixers if mixer.state.layers]
    if not used:
        return attention
    matrices = attention.matrices + tuple(matrix for mixer in used for matrix in mixer.matrices)
    states = tuple(mixer.state for mixer in used)
    return replace(attention, family=AttentionFamily.HYBRID, matrices=matrices, state_layers=states)


def attention_free(mixer: Mixer) -> Attention:
    """Recurrent layers only."""
    return Attention(AttentionFamily.NONE, (), 0, 0, 0, mixer.matrices, (mixer.state,))


def typed(fields: Fields, period: int = 4) -> Sequence[object]:
    """Kind of each layer: ``layer_types``, or one full layer every ``full_attention_interval``."""
    stated = fields.per_layer("layer_types")
    if stated:
        return stated
    every = fields.optional_integer("full_attention_interval", default=period, least=1)
    return [FULL[0] if (layer + 1) % every == 0 else "linear_attention" for layer in range(fields.layers)]


def automatic(fields: Fields, key: str, derived: int) -> int:
    """A size that may be left to the class: absent, ``null`` or ``"auto"`` means ``derived``."""
    return derived if fields.get(key) in (None, "auto") else fields.integer(key)
