"""Attention of a config: heads, the cache of each layer, and the matrices of the projections."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from planner.catalog.hf import matrices as build
from planner.catalog.hf.fields import HEAD_DIM, HEADS, HIDDEN, KV_HEADS, Fields
from planner.catalog.hf.matrices import Layers, Matrices
from planner.catalog.hf.windows import Windows
from planner.catalog.model_shape import AttentionFamily, CacheKind, CacheLayers, CacheRole, StateLayers
from planner.errors import InputError, Problem


@dataclass(frozen=True)
class Attention:
    """What attention keeps and what it is made of.

    Attributes
    ----------
    matrices
        Projections, their biases, and the norms and sinks of attention, of every layer.
    state_layers
        Recurrent layers beside attention; ``matrices`` holds theirs too.
    """

    family: AttentionFamily
    cache_layers: tuple[CacheLayers, ...]
    heads: int
    kv_heads: int
    head_dim: int
    matrices: Matrices
    state_layers: tuple[StateLayers, ...] = ()


def kv_heads(fields: Fields) -> int:
    """Key/value heads: an alias that is stated, else as many as query heads (multi-head attention).

    Falcon: ``multi_query`` without ``new_decoder_architecture`` is one head, and is ignored with it.
    GPTBigCode: ``multi_query`` is one head. ChatGLM: ``multi_query_group_num``.
    """
    if fields.model_type == "falcon" and not fields.flag("new_decoder_architecture"):
        return 1 if fields.flag("multi_query", default=True) else fields.heads
    if fields.model_type == "gpt_bigcode":
        return 1 if fields.flag("multi_query", default=True) else fields.heads
    if fields.model_type == "chatglm" and not fields.flag("multi_query_attention"):
        return fields.heads
    return fields.optional_integer(*KV_HEADS, default=fields.heads)


def head_dim(fields: Fields) -> int:
    """Stated head dimension, else hidden size over query heads."""
    stated = fields.optional_integer(*HEAD_DIM, least=1)
    if not stated and fields.hidden % fields.heads and not fields.noted(*HIDDEN, *HEADS):
        fields.note("head_dim", f"is missing, and hidden size {fields.hidden} is no multiple of {fields.heads} heads")
    return stated or max(1, fields.hidden // fields.heads)


def shared_heads(fields: Fields, heads: int, kv: int, key: str = KV_HEADS[0]) -> int:
    """KV heads, noted where they do not share the query heads evenly (then as many as those)."""
    if kv >= 1 and heads % kv == 0:
        return kv
    if not fields.noted(*HEADS, *KV_HEADS, key):
        fields.note(key, f"{kv} KV heads cannot be shared by {heads} query heads", "Write a divisor of the query heads")
    return heads


def grouped_query(
    fields: Fields,
    windows: Windows,
    *,
    qkv_bias: bool = False,
    output_bias: bool = False,
    qk_norm: str = "",
    sinks: bool = False,
) -> Attention:
    """Multi-head, multi-query and grouped-query attention: queries, keys, values, output.

    Per layer: ``hidden x heads x d + 2 x hidden x kv_heads x d + heads x d x hidden``.
    ``qk_norm``: ``""``, ``"head"`` (one vector of d each), ``"full"`` (one per head and dimension).
    """
    heads, dim = fields.heads, head_dim(fields)
    kv = shared_heads(fields, heads, kv_heads(fields))
    matrices = build.grouped_query(
        tuple(range(fields.layers)),
        fields.hidden,
        heads,
        kv,
        dim,
        qkv_bias=qkv_bias,
        output_bias=output_bias,
        qk_norm=qk_norm,
        sinks=sinks,
    )
    cache = cache_of(windows, kv, dim, dim)
    mixed = len({layer.kind for layer in cache}) > 1
    return Attention(
        family=AttentionFamily.HYBRID if mixed else family_of(heads, kv),
        cache_layers=cache,
        heads=heads,
        kv_heads=kv,
        head_dim=dim,
        matrices=matrices,
    )


def family_of(heads: int, kv: int) -> AttentionFamily:
    """Name of attention with so many query and KV heads."""
    if kv == heads:
        return AttentionFamily.MHA
    return AttentionFamily.MQA if kv == 1 else AttentionFamily.GQA


def latent_if_ranked(fields: Fields, windows: Windows) -> Attention:
    """Latent attention, or plain multi-head attention where ``kv_lora_rank`` is null (deepseek-vl2-tiny)."""
    if fields.optional_integer("kv_lora_rank", least=1):
        return latent(fields, windows)
    bias = fields.flag("attention_bias")
    return grouped_query(fields, windows, qkv_bias=bias, output_bias=bias)


def latent(fields: Fields, windows: Windows) -> Attention:
    """Multi-head latent attention in every layer."""
    return latent_in(fields, tuple(range(len(windows))))


def latent_in(fields: Fields, layers: Layers, *, default_value_dim: int = 0, prefix: str = "self_attn") -> Attention:
    """Multi-head latent attention in ``layers``: one vector of ``kv_lora_rank + qk_rope_head_dim`` a token and layer.

    DeepSeek-V2 (arXiv 2405.04434). The down-projections are whole on every rank; query and key/value
    up-projections and the output are split by heads. ``default_value_dim`` stands in for a missing ``v_head_dim``.
    """
    heads = fields.heads
    rank, rope = fields.integer("kv_lora_rank"), fields.integer("qk_rope_head_dim")
    value = fields.optional_integer("v_head_dim", least=1) or default_value_dim or fields.integer("v_head_dim")
    matrices = build.latent(
        layers,
        fields.hidden,
        heads,
        query_rank=fields.optional_integer("q_lora_rank"),
        kv_rank=rank,
        nope=fields.integer("qk_nope_head_dim"),
        rope=rope,
        value=value,
        prefix=prefix,
    )
    return Attention(
        family=AttentionFamily.MLA,
        cache_layers=(CacheLayers(CacheKind.FULL, len(layers), 1, rank + rope, 0),) if layers else (),
        heads=heads,
        kv_heads=1,
        head_dim=rank + rope,
        matrices=matrices,
    )


def expanded_latent(fields: Fields, windows: Windows) -> Attention:
    """Latent weights whose cache the engine keeps expanded per head (MiniCPM3: 40 heads x 96).

    vLLM caches both keys and values at the query/key head size, ``qk_nope_head_dim + qk_rope_head_dim``. A config that
    leaves ``v_head_dim`` out means hidden size over heads.
    """
    heads, layers = fields.heads, tuple(range(len(windows)))
    shape = latent_in(fields, layers, default_value_dim=max(1, fields.hidden // heads))
    dim = fields.integer("qk_nope_head_dim") + fields.integer("qk_rope_head_dim")
    cache = CacheLayers(CacheKind.FULL, len(layers), heads, dim, dim)
    return replace(shape, family=AttentionFamily.MHA, cache_layers=(cache,), kv_heads=heads, head_dim=dim)


INDEXER_BYTES = 128 + 4
"""Key of a sparse-attention indexer in fp8, with its scale: bytes a token and layer (DeepSeek-V3.2, GLM-5)."""
SPARSE_LATENT_FP8_BYTES = 656
"""Latent of sparse attention in an fp8 cache (``fp8_ds_mla``): 512 + 16 of scales + 64 x 2 of rotary key."""


def sparse_latent(fields: Fields, windows: Windows) -> Attention:
    """Latent attention with an indexer that picks the tokens to attend to (DeepSeek-V3.2, GLM-5).

    The indexer's keys are kept for every token of each indexer layer; picking cuts compute, not what is kept.
    Its projections are whole on every rank.
    """
    shape = latent(fields, windows)
    indexers = indexer_layers(fields, len(windows))
    heads, dim = fields.integer("index_n_heads"), fields.integer("index_head_dim")
    picked = fields.optional_integer("index_topk", least=1) or None
    cache = replace(shape.cache_layers[0], fp8_bytes_per_token=SPARSE_LATENT_FP8_BYTES, picked_tokens=picked)
    index = CacheLayers(
        CacheKind.FULL, len(indexers), 1, dim, 0, fixed_bytes_per_token=INDEXER_BYTES, role=CacheRole.INDEX
    )
    return replace(
        shape,
        cache_layers=(cache, index),
        matrices=shape.matrices + build.indexer(indexers, fields.hidden, fields.integer("q_lora_rank"), heads, dim),
    )


def indexer_layers(fields: Fields, layers: int) -> Layers:
    """Layers with an indexer of their own: those typed ``full``, or all where the config shares none."""
    types = fields.per_layer("indexer_types")
    if types:
        return tuple(layer for layer, kind in enumerate(types) if kind == "full")
    if fields.optional_integer("index_topk_freq", default=1) > 1:
        fix = "Add indexer_types, which says the layers that have one"
        raise InputError(Problem(fields.model_id, "shares indexers between layers", fix, field="index_topk_freq"))
    return tuple(range(layers))


def chunked_query(fields: Fields, windows: Windows) -> Attention:
    """Grouped queries whose local layers keep one chunk (Llama-4)."""
    bias = fields.flag("attention_bias")
    shape = grouped_query(fields, windows, qkv_bias=bias, output_bias=bias)
    layers = tuple(replace(c, chunked=c.kind is CacheKind.SLIDING) for c in shape.cache_layers)
    return replace(shape, cache_layers=layers)


@dataclass(frozen=True)
class Heads:
    """Head shape of one kind of layer."""

    count: int
    kv: int
    key_dim: int
    value_dim: int


def two_shapes(
    fields: Fields, windows: Windows, full: Heads, sliding: Heads, *, qk_norm: str = "", sliding_sinks: bool = False
) -> Attention:
    """Full and sliding layers with head shapes of their own."""
    window = max((size for size in windows if size is not None), default=None)
    full_layers = tuple(layer for layer, size in enumerate(windows) if size is None)
    sliding_layers = tuple(layer for layer, size in enumerate(windows) if size is not None)
    matrices: Matrices = ()
    for heads, layers, sinks in ((full, full_layers, False), (sliding, sliding_layers, sliding_sinks)):
        matrices += build.grouped_query(
            layers,
            fields.hidden,
            heads.count,
            heads.kv,
            heads.key_dim,
            heads.value_dim,
            qk_norm=qk_norm,
            sinks=sinks,
        )
    kept = CacheLayers(CacheKind.FULL, len(full_layers), full.kv, full.key_dim, full.value_dim)
    slid = CacheLayers(CacheKind.SLIDING, len(sliding_layers), sliding.kv, sliding.key_dim, sliding.value_dim, window)
    return Attention(
        family=AttentionFamily.HYBRID,
        cache_layers=in_layer_order(kept, slid, windows),
        heads=fields.heads,
        kv_heads=min(full.kv, sliding.kv),
        head_dim=full.key_dim,
        matrices=matrices,
    )


def in_layer_order(kept: CacheLayers, slid: CacheLayers, windows: Windows) -> tuple[CacheLayers, ...]:
    """Layers that keep everything and layers that slide, as far as there are any; the first layer's kind first."""
    ordered = (kept, slid) if windows and windows[0] is None else (slid, kept)
    return tuple(layers for layers in ordered if layers.count)


def mimo_v2(fields: Fields, _: Windows) -> Attention:
    """MiMo-V2: ``hybrid_layer_pattern`` marks sliding layers by 1; keys and values differ in size."""
    window = fields.integer("sliding_window")
    pattern = fields.per_layer("hybrid_layer_pattern")
    if not pattern:
        fields.note("hybrid_layer_pattern", "is missing")
    windows: Windows = [window if mark else None for mark in pattern]
    value = fields.integer("v_head_dim")
    full = Heads(fields.heads, shared_heads(fields, fields.heads, kv_heads(fields)), head_dim(fields), value)
    heads = fields.optional_integer("swa_num_attention_heads", default=fields.heads, least=1)
    kv = fields.optional_integer("swa_num_key_value_heads", default=full.kv, least=1)
    sliding = Heads(
        heads,
        shared_heads(fields, heads, kv, "swa_num_key_value_heads"),
        fields.optional_integer("swa_head_dim", default=full.key_dim, least=1),
        fields.optional_integer("swa_v_head_dim", default=value, least=1),
    )
    return two_shapes(fields, windows, full, sliding, sliding_sinks=fields.flag("add_swa_attention_sink_bias"))


def cache_of(windows: Windows, kv: int, key_dim: int, value_dim: int) -> tuple[CacheLayers, ...]:
    """Layers of equal cache counted together, in order of their first layer."""
    return tuple(
        CacheLayers(CacheKind.FULL, count, kv, key_dim, value_dim)
        if window is None
        else CacheLayers(CacheKind.SLIDING, count, kv, key_dim, value_dim, window)
        for window, count in Counter(windows).items()
    )
