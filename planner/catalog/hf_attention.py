"""Attention of a config: heads, the cache of each layer, and the parameters of the projections."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from planner.catalog.hf_fields import HEAD_DIM, HEADS, HIDDEN, KV_HEADS, Fields
from planner.catalog.hf_windows import Windows
from planner.catalog.model_shape import AttentionFamily, CacheKind, CacheLayers
from planner.errors import InputError, Problem


@dataclass(frozen=True)
class Attention:
    """What attention needs of memory, summed over layers.

    Attributes
    ----------
    projections
        Parameters of all projections, ``kv`` and ``replicated`` included.
    kv
        The part that makes keys and values: replicated when tp exceeds the KV heads.
    replicated
        The part that every rank holds whole (down-projections to a latent).
    small
        Norms, biases and sinks: never quantised.
    """

    family: AttentionFamily
    cache_layers: tuple[CacheLayers, ...]
    heads: int
    kv_heads: int
    head_dim: int
    projections: int
    kv: int
    replicated: int
    small: int


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
    fields: Fields, windows: Windows, *, qkv_bias: bool, output_bias: bool, qk_norm: str, sinks: bool
) -> Attention:
    """Multi-head, multi-query and grouped-query attention: queries, keys, values, output.

    Per layer: ``hidden x heads x d + 2 x hidden x kv_heads x d + heads x d x hidden``.
    ``qk_norm``: ``""``, ``"head"`` (one vector of d each), ``"full"`` (one per head and dimension).
    """
    hidden, heads, dim, layers = fields.hidden, fields.heads, head_dim(fields), fields.layers
    kv = shared_heads(fields, heads, kv_heads(fields))
    keys_values = 2 * hidden * kv * dim
    small = 0
    if qkv_bias:
        small += (heads + 2 * kv) * dim
    if output_bias:
        small += hidden
    if qk_norm == "head":
        small += 2 * dim
    elif qk_norm == "full":
        small += (heads + kv) * dim
    if sinks:
        small += heads
    family = AttentionFamily.MHA if kv == heads else AttentionFamily.MQA if kv == 1 else AttentionFamily.GQA
    cache = cache_of(windows, kv, dim, dim)
    return Attention(
        family=AttentionFamily.HYBRID if len({layer.kind for layer in cache}) > 1 else family,
        cache_layers=cache,
        heads=heads,
        kv_heads=kv,
        head_dim=dim,
        projections=layers * (2 * hidden * heads * dim + keys_values),
        kv=layers * keys_values,
        replicated=0,
        small=layers * small,
    )


def latent_if_ranked(fields: Fields, windows: Windows) -> Attention:
    """Latent attention, or plain multi-head attention where ``kv_lora_rank`` is null (deepseek-vl2-tiny)."""
    if fields.optional_integer("kv_lora_rank", least=1):
        return latent(fields, windows)
    bias = fields.flag("attention_bias")
    return grouped_query(fields, windows, qkv_bias=bias, output_bias=bias, qk_norm="", sinks=False)


def latent(fields: Fields, windows: Windows, default_value_dim: int = 0) -> Attention:
    """Multi-head latent attention: one vector of ``kv_lora_rank + qk_rope_head_dim`` a token and layer.

    DeepSeek-V2 (arXiv 2405.04434). The down-projections are whole on every rank; query and key/value
    up-projections and the output are split by heads. ``default_value_dim`` stands in for a missing ``v_head_dim``.
    """
    hidden, heads, layers = fields.hidden, fields.heads, len(windows)
    rank, rope = fields.integer("kv_lora_rank"), fields.integer("qk_rope_head_dim")
    nope = fields.integer("qk_nope_head_dim")
    value = fields.optional_integer("v_head_dim", least=1) or default_value_dim or fields.integer("v_head_dim")
    query_rank = fields.optional_integer("q_lora_rank")
    down = hidden * (rank + rope) + hidden * query_rank
    query_up = (query_rank or hidden) * heads * (nope + rope)
    up = rank * heads * (nope + value)
    small = rank + query_rank
    return Attention(
        family=AttentionFamily.MLA,
        cache_layers=(CacheLayers(CacheKind.FULL, layers, 1, rank + rope, 0),),
        heads=heads,
        kv_heads=1,
        head_dim=rank + rope,
        projections=layers * (down + query_up + up + heads * value * hidden),
        kv=0,
        replicated=layers * down,
        small=layers * small,
    )


def expanded_latent(fields: Fields, windows: Windows) -> Attention:
    """Latent weights whose cache the engine keeps expanded per head (MiniCPM3: 40 heads x 96).

    vLLM caches both keys and values at the query/key head size, ``qk_nope_head_dim + qk_rope_head_dim``. A config that
    leaves ``v_head_dim`` out means hidden size over heads.
    """
    shape, layers = latent(fields, windows, max(1, fields.hidden // fields.heads)), len(windows)
    dim = fields.integer("qk_nope_head_dim") + fields.integer("qk_rope_head_dim")
    heads = fields.heads
    return Attention(
        family=AttentionFamily.MHA,
        cache_layers=(CacheLayers(CacheKind.FULL, layers, heads, dim, dim),),
        heads=heads,
        kv_heads=heads,
        head_dim=dim,
        projections=shape.projections,
        kv=0,
        replicated=shape.replicated,
        small=shape.small,
    )


INDEXER_BYTES = 128 + 4
"""Key of a sparse-attention indexer in fp8, with its scale: bytes a token and layer (DeepSeek-V3.2, GLM-5)."""
SPARSE_LATENT_FP8_BYTES = 656
"""Latent of sparse attention in an fp8 cache (``fp8_ds_mla``): 512 + 16 of scales + 64 x 2 of rotary key."""


def sparse_latent(fields: Fields, windows: Windows) -> Attention:
    """Latent attention with an indexer that picks the tokens to attend to (DeepSeek-V3.2, GLM-5).

    The indexer's keys are kept for every token of each indexer layer; picking cuts compute, not what is kept.
    Its projections are whole on every rank.
    """
    shape, layers = latent(fields, windows), len(windows)
    indexers = indexer_layers(fields, layers)
    heads, dim = fields.integer("index_n_heads"), fields.integer("index_head_dim")
    weights = fields.integer("q_lora_rank") * heads * dim + fields.hidden * (dim + heads)
    cache = replace(shape.cache_layers[0], fp8_bytes_per_token=SPARSE_LATENT_FP8_BYTES)
    index = CacheLayers(CacheKind.FULL, indexers, 1, dim, 0, fixed_bytes_per_token=INDEXER_BYTES)
    return replace(
        shape,
        cache_layers=(cache, index),
        projections=shape.projections + indexers * weights,
        replicated=shape.replicated + indexers * weights,
        small=shape.small + indexers * 2 * dim,
    )


def indexer_layers(fields: Fields, layers: int) -> int:
    """Layers with an indexer of their own: those typed ``full``, or all where the config shares none."""
    types = fields.per_layer("indexer_types")
    if types:
        return sum(1 for kind in types if kind == "full")
    if fields.optional_integer("index_topk_freq", default=1) > 1:
        fix = "Add indexer_types, which says the layers that have one"
        raise InputError(Problem(fields.model_id, "shares indexers between layers", fix, field="index_topk_freq"))
    return layers


def chunked_query(fields: Fields, windows: Windows) -> Attention:
    """Grouped queries whose local layers keep one chunk (Llama-4)."""
    bias = fields.flag("attention_bias")
    shape = grouped_query(fields, windows, qkv_bias=bias, output_bias=bias, qk_norm="", sinks=False)
    layers = tuple(replace(c, chunked=c.kind is CacheKind.SLIDING) for c in shape.cache_layers)
    return replace(shape, cache_layers=layers)


@dataclass(frozen=True)
class Heads:
    """Head shape of one kind of layer."""

    count: int
    kv: int
    key_dim: int
    value_dim: int


def two_shapes(fields: Fields, windows: Windows, full: Heads, sliding: Heads, small: tuple[int, int]) -> Attention:
    """Full and sliding layers with head shapes of their own; ``small`` is per full and per sliding layer."""
    hidden = fields.hidden
    window = max((size for size in windows if size is not None), default=None)
    n_sliding = sum(1 for size in windows if size is not None)
    counts = ((full, len(windows) - n_sliding), (sliding, n_sliding))
    keys_values = sum(n * hidden * h.kv * (h.key_dim + h.value_dim) for h, n in counts)
    queries = sum(n * hidden * h.count * (h.key_dim + h.value_dim) for h, n in counts)
    return Attention(
        family=AttentionFamily.HYBRID,
        cache_layers=(
            CacheLayers(CacheKind.FULL, counts[0][1], full.kv, full.key_dim, full.value_dim),
            CacheLayers(CacheKind.SLIDING, n_sliding, sliding.kv, sliding.key_dim, sliding.value_dim, window),
        ),
        heads=fields.heads,
        kv_heads=min(full.kv, sliding.kv),
        head_dim=full.key_dim,
        projections=queries + keys_values,
        kv=keys_values,
        replicated=0,
        small=counts[0][1] * small[0] + n_sliding * small[1],
    )


def gemma4(fields: Fields, windows: Windows) -> Attention:
    """Gemma-4: global layers have ``global_head_dim`` and their own KV heads.

    ``attention_k_eq_v`` stores keys only; the engine copies them into values, so neither cache nor loaded weights
    shrink.
    """
    if fields.optional_integer("num_kv_shared_layers") or fields.optional_integer("hidden_size_per_layer_input"):
        message = "shares caches between layers or adds per-layer embeddings (Gemma-4 E models), which is not supported"
        raise InputError(Problem(fields.model_id, message, "Choose another model", field="num_kv_shared_layers"))
    heads, local, wide = fields.heads, head_dim(fields), fields.integer("global_head_dim", "head_dim")
    kv = shared_heads(fields, heads, kv_heads(fields))
    wide_kv = fields.optional_integer("num_global_key_value_heads", default=kv, least=1)
    wide_kv = shared_heads(fields, heads, wide_kv, "num_global_key_value_heads")
    full, sliding = Heads(heads, wide_kv, wide, wide), Heads(heads, kv, local, local)
    return two_shapes(fields, windows, full, sliding, (2 * wide + 1, 2 * local + 1))


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
    sinks = fields.heads if fields.flag("add_swa_attention_sink_bias") else 0
    return two_shapes(fields, windows, full, sliding, (0, sinks))


def cache_of(windows: Windows, kv: int, key_dim: int, value_dim: int) -> tuple[CacheLayers, ...]:
    """Layers of equal cache counted together: full ones first, then by window."""
    counts = Counter(windows)
    layers = []
    if counts[None]:
        layers.append(CacheLayers(CacheKind.FULL, counts[None], kv, key_dim, value_dim))
    for window in sorted(size for size in counts if size is not None):
        layers.append(CacheLayers(CacheKind.SLIDING, counts[window], kv, key_dim, value_dim, window))
    return tuple(layers)
