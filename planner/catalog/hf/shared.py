"""Families whose layers share something: caches (Gemma-3n, Gemma-4 E models) or weights (Zamba2).

Sources: vLLM 0.33.0, ``gemma3n.py``, ``gemma4.py``, ``zamba2.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from planner.catalog.hf import matrices as build
from planner.catalog.hf import recurrent
from planner.catalog.hf.attention import (
    Attention,
    Heads,
    head_dim,
    in_layer_order,
    kv_heads,
    shared_heads,
    two_shapes,
)
from planner.catalog.hf.fields import Fields, is_whole
from planner.catalog.hf.hybrid import automatic, chosen, listed, with_mixers
from planner.catalog.hf.matrices import FLOAT32, Layers, Matrices
from planner.catalog.hf.mlp import FeedForward, beside_experts, every_layer
from planner.catalog.hf.windows import Windows
from planner.catalog.matrix import Part, Split
from planner.catalog.model_shape import AttentionFamily, CacheKind, CacheLayers


def first_sharing(fields: Fields) -> int:
    """Index of the first layer that reads an earlier layer's cache; the number of layers where none does."""
    sharing = fields.optional_integer("num_kv_shared_layers")
    if sharing >= fields.layers:
        fields.note("num_kv_shared_layers", f"{sharing} of {fields.layers} layers leave none with a cache")
        return fields.layers
    return fields.layers - sharing


def shared_caches(fields: Fields, windows: Windows, full: Heads, sliding: Heads) -> Attention:
    """Attention whose last layers read the cache of the last layer of their kind.

    Checkpoints hold keys and values of theirs too; vLLM 0.30.0 and later do not build them.
    """
    first = first_sharing(fields)
    window = max((size for size in windows if size is not None), default=None)
    matrices: Matrices = ()
    caches: list[CacheLayers] = []
    for heads, kind in ((full, CacheKind.FULL), (sliding, CacheKind.SLIDING)):
        full_kind = kind is CacheKind.FULL
        of_kind = tuple(layer for layer, size in enumerate(windows) if (size is None) == full_kind)
        own = tuple(layer for layer in of_kind if layer < first)
        readers = tuple(layer for layer in of_kind if layer >= first)
        matrices += build.grouped_query(own, fields.hidden, heads.count, heads.kv, heads.key_dim, qk_norm="head")
        matrices += tuple(
            replace(matrix, shared_cache=matrix.module in UNUSED)
            for matrix in build.grouped_query(
                readers, fields.hidden, heads.count, heads.kv, heads.key_dim, qk_norm="head"
            )
        )
        kept = None if full_kind else window
        sizes = (heads.kv, heads.key_dim, heads.value_dim, kept)
        caches.append(CacheLayers(kind, len(own), *sizes, sharing_layers=len(readers)))
    ordered = in_layer_order(caches[0], caches[1], windows)
    return Attention(AttentionFamily.HYBRID, ordered, fields.heads, min(full.kv, sliding.kv), full.key_dim, matrices)


UNUSED = frozenset({"self_attn.k_proj", "self_attn.v_proj", "self_attn.k_norm"})
"""What a layer that reads another layer's keys and values has no use for."""


def per_layer_inputs(fields: Fields) -> Matrices:
    """Embeddings per layer: a second table, looked up, and projections of it and of the hidden state.

    The table has ``vocab_size_per_layer_input`` rows of ``layers x hidden_size_per_layer_input``.
    """
    width = fields.optional_integer("hidden_size_per_layer_input")
    if not width:
        return ()
    layers, hidden = every_layer(fields), fields.hidden
    rows = fields.optional_integer("vocab_size_per_layer_input", default=fields.vocabulary, least=1)
    total = width * len(layers)
    table = build.table("embed_tokens_per_layer", rows, total, part=Part.EMBEDDING, split=Split.VOCABULARY)
    projection = build.linear("per_layer_model_projection", hidden, total, (), Part.MLP, Split.COLUMN)
    gate = build.linear("per_layer_input_gate", hidden, width, layers, Part.MLP)
    back = build.linear("per_layer_projection", width, hidden, layers, Part.MLP)
    small = build.norms(("per_layer_projection_norm",), width)
    small += build.norms(("post_per_layer_input_norm",), hidden, layers)
    return (table, *projection, *gate, *back, *small)


def gemma4_heads(fields: Fields) -> tuple[Heads, Heads]:
    """Head shapes of Gemma-4's full and sliding layers: full ones have ``global_head_dim`` and their own KV heads."""
    heads, local, wide = fields.heads, head_dim(fields), fields.integer("global_head_dim", "head_dim")
    kv = shared_heads(fields, heads, kv_heads(fields))
    wide_kv = fields.optional_integer("num_global_key_value_heads", default=kv, least=1)
    wide_kv = shared_heads(fields, heads, wide_kv, "num_global_key_value_heads")
    return Heads(heads, wide_kv, wide, wide), Heads(heads, kv, local, local)


def gemma4(fields: Fields, windows: Windows) -> Attention:
    """Gemma-4: global layers with heads of their own; E models share caches and add embeddings per layer.

    ``attention_k_eq_v`` stores keys only; the engine copies them into values, so neither cache nor loaded weights
    shrink.
    """
    full, sliding = gemma4_heads(fields)
    if fields.optional_integer("num_kv_shared_layers"):
        shape = shared_caches(fields, windows, full, sliding)
    else:
        shape = two_shapes(fields, windows, full, sliding, qk_norm="head")
    scalar = build.vector("layer_scalar", 1, every_layer(fields))
    return replace(shape, matrices=(*shape.matrices, scalar, *per_layer_inputs(fields)))


def gemma4_mlp(fields: Fields, bias: bool) -> FeedForward:
    """Gemma-4's MLP; with ``use_double_wide_mlp`` twice as wide in the layers that share a cache."""
    first = first_sharing(fields)
    if not fields.flag("use_double_wide_mlp") or first == fields.layers:
        return beside_experts(fields, bias)
    hidden, width = fields.hidden, fields.feed_forward
    wide = tuple(range(first, fields.layers))
    matrices = build.gated_mlp(tuple(range(first)), hidden, width) + build.gated_mlp(wide, hidden, 2 * width)
    return FeedForward(matrices, dense_intermediate=2 * width)


def gemma3n(fields: Fields, windows: Windows) -> Attention:
    """Gemma-3n: the last layers share caches; alternating updates of several streams, and a low-rank residual.

    Alternating updates (``altup``): coefficients, a router and a float32 scale per layer, and a projection per further
    stream into and out of the model. ``laurel``: down to its rank and up again.
    """
    heads, dim = fields.heads, head_dim(fields)
    kv = shared_heads(fields, heads, kv_heads(fields))
    same = Heads(heads, kv, dim, dim)
    shape = shared_caches(fields, windows, same, same)
    return replace(shape, matrices=shape.matrices + per_layer_inputs(fields) + _streams(fields) + _laurel(fields))


def _streams(fields: Fields) -> Matrices:
    """Coefficients and projections of the alternating updates."""
    streams = fields.optional_integer("altup_num_inputs", default=4, least=1)
    layers, hidden = every_layer(fields), fields.hidden
    matrices: Matrices = ()
    for name, inputs, outputs in (
        ("correction_coefs", streams, streams),
        ("prediction_coefs", streams, streams * streams),
        ("modality_router", hidden, streams),
    ):
        matrices += build.linear(f"altup.{name}", inputs, outputs, layers, Part.MLP)
    matrices += build.norms(("altup.router_norm",), hidden, layers)
    matrices += (build.vector("altup.correct_output_scale", hidden, layers, bytes_per_element=FLOAT32),)
    for name in ("altup_projections", "altup_unembed_projections"):
        matrices += build.linear(name, hidden, hidden, (), Part.MLP, Split.COLUMN, copies=streams - 1)
    return matrices


def _laurel(fields: Fields) -> Matrices:
    """A low-rank residual beside attention."""
    rank = fields.optional_integer("laurel_rank", default=64, least=1)
    layers, hidden = every_layer(fields), fields.hidden
    matrices = build.linear("laurel.linear_left", hidden, rank, layers, Part.MLP, Split.COLUMN)
    matrices += build.linear("laurel.linear_right", rank, hidden, layers, Part.MLP, Split.ROW)
    return matrices + build.norms(("laurel.post_laurel_norm",), hidden, layers)


def gemma3n_mlp(fields: Fields, _: bool) -> FeedForward:
    """Gemma-3n's MLP: one width, or one per layer."""
    widths: Sequence[int]
    if isinstance(fields.get("intermediate_size"), list):
        widths = [width for width in fields.per_layer("intermediate_size") if is_whole(width) and width > 0]
    else:
        widths = [fields.feed_forward] * fields.layers
    if len(widths) != fields.layers:
        fields.note("intermediate_size", f"is no list of {fields.layers} whole numbers above 0")
    matrices: Matrices = ()
    for width in sorted(set(widths)):
        layers = tuple(layer for layer, size in enumerate(widths) if size == width)
        matrices += build.gated_mlp(layers, fields.hidden, width)
    return FeedForward(matrices, dense_intermediate=max(widths, default=1))


def zamba2(fields: Fields, _: Windows) -> Attention:
    """Zamba2: Mamba-2 in every layer; before each ``hybrid`` one runs a shared transformer block on doubled inputs.

    ``num_mem_blocks`` blocks are held and take turns; every use has a cache, low-rank adapters and a projection of its
    own. Queries, keys and values are ``2 x hidden`` wide, in heads of ``2 x hidden / heads``.
    """
    hidden, heads = fields.hidden, fields.heads
    uses = _uses(fields)
    if not uses:
        fields.note("layers_block_type", "is missing: it says which layers run the shared block")
    held = uses[: fields.optional_integer("num_mem_blocks", default=1, least=1)]
    dim = fields.optional_integer("attention_head_dim", least=1) or 2 * hidden // heads
    matrices = build.grouped_query(
        held, hidden, heads, heads, dim, prefix="shared_transformer.self_attn", inputs=2 * hidden
    )
    matrices += build.norms(("shared_transformer.input_layernorm",), 2 * hidden, held)
    matrices += build.linear("linear", hidden, hidden, uses, Part.ATTENTION)
    if fields.flag("use_shared_attention_adapter"):
        for name in ("q", "k", "v"):
            matrices += _adapter(
                fields, uses, f"shared_transformer.self_attn.linear_{name}_adapter", 2 * hidden, heads * dim
            )
    cache = (CacheLayers(CacheKind.FULL, len(uses), heads, dim, dim),)
    attention = Attention(AttentionFamily.HYBRID, cache, heads, heads, dim, matrices)
    inner = fields.optional_integer("mamba_expand", default=2, least=1) * hidden
    count = fields.optional_integer("n_mamba_heads", default=8, least=1)
    mixer = recurrent.mamba2(
        every_layer(fields),
        hidden,
        intermediate=inner,
        heads=count,
        head_dim=automatic(fields, "mamba_headdim", inner // count),
        state=fields.optional_integer("mamba_d_state", default=64, least=1),
        groups=fields.optional_integer("mamba_ngroups", default=1, least=1),
        kernel=fields.optional_integer("mamba_d_conv", default=4, least=1),
        conv_bias=fields.flag("use_conv_bias", default=True),
        bias=fields.flag("add_bias_linear"),
        prefix="mamba",
        chunk=fields.optional_integer("chunk_size"),
    )
    return with_mixers(attention, (mixer,))


def _uses(fields: Fields) -> Layers:
    """Layers that run a shared block: typed ``hybrid``, or listed."""
    kinds = fields.per_layer("layers_block_type", "layer_types")
    if kinds:
        return chosen(kinds, "hybrid")
    return listed(fields, "hybrid_layer_ids")


def _adapter(fields: Fields, layers: Layers, prefix: str, inputs: int, outputs: int) -> Matrices:
    """A low-rank adapter: down to the rank, up again; both split by their rows."""
    rank = fields.optional_integer("adapter_rank", default=128, least=1)
    down = build.linear(f"{prefix}.0", inputs, rank, layers, Part.ATTENTION, Split.COLUMN)
    return down + build.linear(f"{prefix}.1", rank, outputs, layers, Part.ATTENTION, Split.COLUMN)


def zamba2_mlp(fields: Fields, _: bool) -> FeedForward:
    """The shared blocks' gated MLP, with an adapter for every use."""
    hidden = fields.hidden
    width = fields.optional_integer("intermediate_size", least=1) or 4 * hidden
    uses = _uses(fields)
    held = uses[: fields.optional_integer("num_mem_blocks", default=1, least=1)]
    prefix = "shared_transformer.feed_forward"
    matrices = build.gated_mlp(held, hidden, width, prefix=prefix, bias=fields.flag("add_bias_linear"))
    matrices += build.norms(("shared_transformer.pre_ff_layernorm",), hidden, held)
    matrices += _adapter(fields, uses, f"{prefix}.gate_up_proj_adapter", hidden, 2 * width)
    return FeedForward(matrices, dense_intermediate=width)
