"""Families whose layers are unlike each other: searched blocks, two attentions a layer, cross-attention.

Sources: vLLM 0.33.0, ``nemotron_nas.py``, ``longcat_flash.py``, ``step3p5.py``; 0.10.1, ``mllama.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from planner.catalog.hf import matrices as build
from planner.catalog.hf.attention import (
    Attention,
    Heads,
    cache_of,
    head_dim,
    kv_heads,
    latent_in,
    shared_heads,
    two_shapes,
)
from planner.catalog.hf.fields import EXPERTS_PER_TOKEN, Fields
from planner.catalog.hf.matrices import FLOAT32, Layers, Matrices
from planner.catalog.hf.mlp import FeedForward, every_layer
from planner.catalog.hf.windows import Windows
from planner.catalog.matrix import Part, Split
from planner.catalog.model_shape import AttentionFamily, CacheKind, CacheLayers

FEED_FORWARD_MULTIPLE = 256
"""Widths of searched blocks are rounded up to this (``_ffn_mult_to_intermediate_size``)."""


def _block(fields: Fields, index: int, part: str) -> Mapping[str, Any]:
    """One half of a searched block."""
    block = fields.per_layer("block_configs")[index]
    half = block.get(part) if isinstance(block, Mapping) else None
    if not isinstance(half, Mapping):
        fields.note("block_configs", f"block {index} has no {part!r}")
        return {"no_op": True}
    return half


def nemotron_nas(fields: Fields, _: Windows) -> Attention:
    """Nemotron-NAS: blocks with heads of their own, or without attention; a norm only before what is there."""
    hidden, heads, dim = fields.hidden, fields.heads, head_dim(fields)
    if not fields.per_layer("block_configs"):
        fields.note("block_configs", "is missing")
    by_kv: dict[int, list[int]] = {}
    for layer in range(len(fields.per_layer("block_configs"))):
        attention = _block(fields, layer, "attention")
        if not attention.get("no_op"):
            by_kv.setdefault(_kv_of_group(fields, heads, attention.get("n_heads_in_group"), layer), []).append(layer)
    bias = fields.flag("attention_bias")
    matrices: Matrices = ()
    caches: list[CacheLayers] = []
    for kv, found in sorted(by_kv.items()):
        layers = tuple(found)
        matrices += build.grouped_query(layers, hidden, heads, kv, dim, qkv_bias=bias, output_bias=bias)
        matrices += build.norms(("input_layernorm",), hidden, layers)
        caches.append(CacheLayers(CacheKind.FULL, len(layers), kv, dim, dim))
    family = AttentionFamily.GQA if min(by_kv, default=heads) < heads else AttentionFamily.MHA
    return Attention(family, tuple(caches), heads, min(by_kv, default=heads), dim, matrices)


def _kv_of_group(fields: Fields, heads: int, group: object, layer: int) -> int:
    if isinstance(group, int) and not isinstance(group, bool) and group > 0 and heads % group == 0:
        return heads // group
    fields.note("block_configs", f"block {layer}: {group!r:.40} heads cannot share a key of {heads} heads")
    return heads


def nemotron_nas_mlp(fields: Fields, bias: bool) -> FeedForward:
    """Nemotron-NAS: MLPs of many widths, ``2/3 x ffn_mult x hidden`` rounded up to 256 each, or none."""
    hidden = fields.hidden
    by_width: dict[int, list[int]] = {}
    for layer in range(len(fields.per_layer("block_configs"))):
        half = _block(fields, layer, "ffn")
        if not half.get("no_op"):
            by_width.setdefault(_width(fields, half, layer), []).append(layer)
    matrices: Matrices = ()
    for width, layers in sorted(by_width.items()):
        matrices += build.gated_mlp(tuple(layers), hidden, width, bias=bias)
        matrices += build.norms(("post_attention_layernorm",), hidden, tuple(layers))
    return FeedForward(matrices, dense_intermediate=max(by_width, default=1))


def _width(fields: Fields, half: Mapping[str, Any], layer: int) -> int:
    factor = half.get("ffn_mult")
    if isinstance(factor, int | float) and not isinstance(factor, bool) and 0 < factor < 1000:
        width = int(2 * factor * fields.hidden / 3)
        return -(-width // FEED_FORWARD_MULTIPLE) * FEED_FORWARD_MULTIPLE
    stated = half.get("intermediate_size")
    if isinstance(stated, int) and not isinstance(stated, bool) and stated > 0:
        return stated
    fields.note("block_configs", f"block {layer} states no width of its MLP")
    return 1


def longcat_flash(fields: Fields, _: Windows) -> Attention:
    """LongCat-Flash: two latent attentions in each layer, so twice as many caches as layers."""
    layers = every_layer(fields)
    first, second = (latent_in(fields, layers, prefix=f"self_attn.{half}") for half in (0, 1))
    caches = replace(first.cache_layers[0], count=2 * len(layers))
    return replace(first, cache_layers=(caches,), matrices=first.matrices + second.matrices)


def longcat_mlp(fields: Fields, _: bool) -> FeedForward:
    """LongCat-Flash: two dense MLPs a layer, and experts beside them; the router also knows experts that do nothing."""
    layers, hidden = every_layer(fields), fields.hidden
    width = fields.integer("ffn_hidden_size", "intermediate_size")
    expert_width = fields.integer("expert_ffn_hidden_size", "moe_intermediate_size")
    experts = fields.integer("n_routed_experts")
    choices = experts + fields.optional_integer("zero_expert_num")
    matrices: Matrices = ()
    for half in (0, 1):
        matrices += build.gated_mlp(layers, hidden, width, prefix=f"mlps.{half}")
    matrices += build.routed_experts(layers, hidden, expert_width, experts)
    matrices += build.router(
        layers, hidden, choices, module="mlp.router.classifier", correction=True, bytes_per_element=FLOAT32
    )
    per_token = fields.integer("moe_topk", *EXPERTS_PER_TOKEN)
    return FeedForward(matrices, len(layers), experts, per_token, expert_width, dense_intermediate=width)


def step3p5(fields: Fields, windows: Windows) -> Attention:
    """Step-3.5 and 3.7: full and sliding layers differ in query heads; a gate per head where the config says so."""
    kv = shared_heads(fields, fields.heads, kv_heads(fields))
    dim = head_dim(fields)
    other = fields.table("attention_other_setting")
    sliding_heads = other.get("num_attention_heads") if other.get("attention_type") == "sliding_attention" else None
    wide = fields.optional_integer("num_sliding_attention_heads", least=1) or sliding_heads
    heads = wide if isinstance(wide, int) and not isinstance(wide, bool) and wide > 0 else fields.heads
    full = Heads(fields.heads, kv, dim, dim)
    sliding = Heads(heads, shared_heads(fields, heads, kv), dim, dim)
    shape = two_shapes(fields, windows, full, sliding, qk_norm="head")
    if not fields.flag("use_head_wise_attn_gate"):
        return shape
    gates: Matrices = ()
    for kind, is_full in ((full, True), (sliding, False)):
        layers = tuple(layer for layer, size in enumerate(windows) if (size is None) == is_full)
        if layers:
            module = "self_attn.g_proj"
            gates += build.linear(module, fields.hidden, kind.count, layers, Part.ATTENTION, Split.COLUMN)
    return replace(shape, matrices=shape.matrices + gates)


def step3p5_mlp(fields: Fields, _: bool) -> FeedForward:
    """Step-3.5 and 3.7: dense layers, and sparse ones with a shared expert; router and its bias are float32."""
    hidden = fields.hidden
    sparse = _step_sparse(fields)
    dense = tuple(layer for layer in every_layer(fields) if layer not in set(sparse))
    experts, width = fields.integer("moe_num_experts", "num_experts"), fields.integer("moe_intermediate_size")
    shared = fields.optional_integer("share_expert_dim", "share_expert_dims")
    matrices = build.gated_mlp(dense, hidden, fields.feed_forward)
    matrices += build.routed_experts(sparse, hidden, width, experts, prefix="moe")
    matrices += build.router(sparse, hidden, experts, module="moe.gate", correction=True, bytes_per_element=FLOAT32)
    if shared:
        matrices += build.shared_experts(sparse, hidden, shared, prefix="share_expert")
    per_token = fields.integer("moe_top_k", *EXPERTS_PER_TOKEN)
    return FeedForward(matrices, len(sparse), experts, per_token, width, shared)


def _step_sparse(fields: Fields) -> Layers:
    """Sparse layers: typed, enumerated in a text, after ``first_k_dense_replace``, or all but the first."""
    types = fields.per_layer("mlp_layer_types")
    if types:
        return tuple(layer for layer, kind in enumerate(types) if kind == "sparse")
    listed = fields.get("moe_layers_enum")
    if isinstance(listed, str):
        indexes = {int(part) for part in listed.split(",") if part.strip().isdigit()}
        return tuple(layer for layer in every_layer(fields) if layer in indexes)
    return tuple(range(fields.optional_integer("first_k_dense_replace", default=1), fields.layers))


def mllama(fields: Fields, windows: Windows) -> Attention:
    """Llama 3.2 vision: layers of ``cross_attention_layers`` attend to image tokens, whose keys they cache.

    Engines give those layers a cache of the text's length too (vLLM: 40 layers of the 11B model; SGLang likewise).
    Cross-attention normalises queries and keys; two scalars gate its layer.
    """
    hidden, heads, dim = fields.hidden, fields.heads, head_dim(fields)
    kv = shared_heads(fields, heads, kv_heads(fields))
    listed = {layer for layer in fields.items("cross_attention_layers") if isinstance(layer, int)}
    cross = tuple(layer for layer in every_layer(fields) if layer in listed)
    own = tuple(layer for layer in every_layer(fields) if layer not in listed)
    matrices = build.grouped_query(own, hidden, heads, kv, dim)
    matrices += build.grouped_query(cross, hidden, heads, kv, dim, prefix="cross_attn", qk_norm="head")
    if cross:
        gates = ("cross_attn_attn_gate", "cross_attn_mlp_gate")
        matrices += tuple(build.vector(name, 1, cross) for name in gates)
    family = AttentionFamily.GQA if kv < heads else AttentionFamily.MHA
    cache = cache_of(windows, kv, dim, dim)
    return Attention(family, cache, heads, kv, dim, matrices)
