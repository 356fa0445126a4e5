"""Attention of a config: heads, the cache of each layer, and the parameters of the projections."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from planner.catalog.hf_fields import HEAD_DIM, KV_HEADS, Fields
from planner.catalog.hf_windows import Windows
from planner.catalog.model_shape import AttentionFamily, CacheKind, CacheLayers


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
    return fields.optional_integer(*HEAD_DIM) or fields.hidden // fields.heads


def grouped_query(
    fields: Fields, windows: Windows, *, qkv_bias: bool, output_bias: bool, qk_norm: str, sinks: bool
) -> Attention:
    """Multi-head, multi-query and grouped-query attention: queries, keys, values, output.

    Per layer: ``hidden x heads x d + 2 x hidden x kv_heads x d + heads x d x hidden``.
    ``qk_norm``: ``""``, ``"head"`` (one vector of d each), ``"full"`` (one per head and dimension).
    """
    hidden, heads, kv, dim, layers = fields.hidden, fields.heads, kv_heads(fields), head_dim(fields), fields.layers
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


def latent(fields: Fields, layers: int) -> Attention:
    """Multi-head latent attention: one vector of ``kv_lora_rank + qk_rope_head_dim`` a token and layer.

    DeepSeek-V2 (arXiv 2405.04434). The down-projections are whole on every rank; query and key/value
    up-projections and the output are split by heads.
    """
    hidden, heads = fields.hidden, fields.heads
    rank, rope = fields.integer("kv_lora_rank"), fields.integer("qk_rope_head_dim")
    nope, value = fields.integer("qk_nope_head_dim"), fields.integer("v_head_dim")
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


def expanded_latent(fields: Fields, layers: int) -> Attention:
    """Latent weights whose cache the engine keeps expanded per head (MiniCPM3: 40 heads x 96).

    vLLM caches both keys and values at the query/key head size, ``qk_nope_head_dim + qk_rope_head_dim``.
    """
    shape = latent_weights(fields, layers)
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


def latent_weights(fields: Fields, layers: int) -> Attention:
    """Latent attention of a config that may leave ``v_head_dim`` out (then hidden over heads, as MiniCPM3)."""
    if fields.get("v_head_dim"):
        return latent(fields, layers)
    text = {**fields.text, "v_head_dim": fields.hidden // fields.heads}
    filled = Fields(text, fields.model_id, {fields.model_type: fields.defaults})
    return latent(filled, layers)


def cache_of(windows: Windows, kv: int, key_dim: int, value_dim: int) -> tuple[CacheLayers, ...]:
    """Layers of equal cache counted together: full ones first, then by window."""
    counts = Counter(windows)
    layers = []
    if counts[None]:
        layers.append(CacheLayers(CacheKind.FULL, counts[None], kv, key_dim, value_dim))
    for window in sorted(size for size in counts if size is not None):
        layers.append(CacheLayers(CacheKind.SLIDING, counts[window], kv, key_dim, value_dim, window))
    return tuple(layers)
