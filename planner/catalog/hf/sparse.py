"""Families whose attention reads a part of the past: MiniMax-M3 (an index picks blocks) and DeepSeek-V4 (compression).

Sources: vLLM 0.33.0, ``vllm/models/minimax_m3/nvidia/model.py`` and ``common/indexer.py``,
``vllm/models/deepseek_v4/attention.py``, ``compressor.py`` and ``nvidia/model.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from planner.catalog.hf import matrices as build
from planner.catalog.hf.attention import Attention, grouped_query
from planner.catalog.hf.fields import EXPERTS_PER_TOKEN, Fields
from planner.catalog.hf.matrices import FLOAT32, Layers, Matrices
from planner.catalog.hf.mlp import FeedForward, every_layer, moe_layers
from planner.catalog.hf.windows import Windows
from planner.catalog.matrix import Matrix, Part, Split
from planner.catalog.model_shape import AttentionFamily, CacheKind, CacheLayers, CacheRole

INDEX_ELEMENT_BYTES = 2
"""MiniMax-M3 keeps index keys in bf16 whatever the cache dtype (``resolve_indexer_kv_dtype("bf16")``)."""


def minimax_m3(fields: Fields, windows: Windows) -> Attention:
    """MiniMax-M3: grouped queries, and in sparse layers an index: a key a token, queries as many as KV heads.

    Index queries are split and replicated like keys; the index key is whole on every rank.
    """
    shape = grouped_query(fields, windows, qk_norm="head")
    config = "sparse_attention_config"
    marks = fields.table(config).get("sparse_attention_freq")
    if not isinstance(marks, list) or len(marks) != fields.layers:
        fields.note(f"{config}.sparse_attention_freq", f"is no list of {fields.layers} marks")
        return shape
    sparse = tuple(layer for layer, mark in enumerate(marks) if mark)
    if not sparse:
        return shape
    heads, dim = (fields.nested_integer(config, key) for key in ("sparse_num_index_heads", "sparse_index_dim"))
    hidden = fields.hidden
    engine = "self_attn.qkv_proj"
    matrices = build.linear(
        "self_attn.index_q_proj", hidden, heads * dim, sparse, Part.ATTENTION, Split.KV_HEADS, heads=heads, fused=engine
    )
    matrices += build.linear("self_attn.index_k_proj", hidden, dim, sparse, Part.ATTENTION, fused=engine)
    matrices += build.norms(("self_attn.index_q_norm", "self_attn.index_k_norm"), dim, sparse)
    index = CacheLayers(
        CacheKind.FULL,
        len(sparse),
        1,
        dim,
        0,
        fixed_bytes_per_token=dim * INDEX_ELEMENT_BYTES,
        role=CacheRole.INDEX,
    )
    return replace(shape, cache_layers=(*shape.cache_layers, index), matrices=shape.matrices + matrices)


def minimax_m3_mlp(fields: Fields, _: bool) -> FeedForward:
    """MiniMax-M3: dense layers first, then routed and shared experts of ``intermediate_size``; a float32 router."""
    sparse, hidden, width = moe_layers(fields), fields.hidden, fields.feed_forward
    dense = tuple(layer for layer in every_layer(fields) if layer not in set(sparse))
    experts = fields.integer("num_local_experts")
    shared = fields.optional_integer("n_shared_experts") * width
    prefix = "block_sparse_moe"
    matrices = build.gated_mlp(dense, hidden, fields.optional_integer("dense_intermediate_size") or width)
    matrices += build.routed_experts(sparse, hidden, width, experts, prefix=f"{prefix}.experts", names=build.NUMBERED)
    correction = fields.flag("use_routing_bias")
    matrices += build.router(
        sparse, hidden, experts, module=f"{prefix}.gate", correction=correction, bytes_per_element=FLOAT32
    )
    if shared:
        matrices += build.shared_experts(sparse, hidden, shared, prefix=f"{prefix}.shared_experts")
    return FeedForward(matrices, len(sparse), experts, fields.integer(*EXPERTS_PER_TOKEN), width, shared)


ENTRY_BYTES = 584
"""A latent of DeepSeek-V4 in ``fp8_ds_mla``: 448 in fp8, 64 rotary elements of 2 B, 8 B of scales."""
INDEX_BYTES = 128 + 4
PAGE_ALIGNMENT = 576
WINDOW_BLOCK = 64
"""Tokens of a block of the window's latents (``vllm/v1/attention/backends/mla/sparse_swa.py``)."""
OVERLAPPED_RATIO = 4
"""Entries of this compression overlap: two parts each, and an indexer that picks among them."""
COMPRESSOR_BLOCKS = {4: 4, 128: 8}
"""Tokens of a block of compressor states, by ratio (``CompressorStateCache``)."""
STATE_ELEMENT_BYTES = 4


def deepseek_v4(fields: Fields, _: Windows) -> Attention:
    """DeepSeek-V4: every layer keeps a window of latents; most also compressed ones, by ``compress_ratios``.

    A compressor keeps keys and scores of the tokens that its next entry is made of: ``2 x parts x dim`` float32 a
    token, for ``parts x ratio`` tokens. Layers of ratio 4 pick entries by an indexer, which has a compressor too.
    Down-projections and compressors are whole on every rank; the output goes through ``o_groups`` low-rank maps.
    """
    hidden, heads, dim = fields.hidden, fields.heads, fields.integer("head_dim")
    ratios = _ratios(fields)
    layers = every_layer(fields)
    rank, groups, output_rank = (fields.integer(key) for key in ("q_lora_rank", "o_groups", "o_lora_rank"))
    matrices = build.linear("attn.wq_a", hidden, rank, layers, Part.ATTENTION, fused="attn.fused_wqa_wkv")
    matrices += build.linear("attn.wkv", hidden, dim, layers, Part.ATTENTION, fused="attn.fused_wqa_wkv")
    matrices += build.linear("attn.wq_b", rank, heads * dim, layers, Part.ATTENTION, Split.COLUMN)
    matrices += build.linear(
        "attn.wo_a", heads * dim // groups, groups * output_rank, layers, Part.ATTENTION, Split.COLUMN
    )
    matrices += build.linear("attn.wo_b", groups * output_rank, hidden, layers, Part.ATTENTION, Split.ROW)
    matrices += build.norms(("attn.q_norm",), rank, layers) + build.norms(("attn.kv_norm",), dim, layers)
    matrices += (build.vector("attn.attn_sink", heads, layers, bytes_per_element=FLOAT32),)
    window = fields.integer("sliding_window")
    caches = [_latents(CacheKind.SLIDING, len(layers), dim, window=window, block=WINDOW_BLOCK)]
    states: list[CacheLayers] = []
    for ratio in sorted({ratio for ratio in ratios if ratio > 1}):
        of_ratio = tuple(layer for layer, stated in enumerate(ratios) if stated == ratio)
        caches.append(_latents(CacheKind.FULL, len(of_ratio), dim, ratio=ratio))
        matrices += _compressor(of_ratio, hidden, dim, ratio, "attn.compressor")
        states.append(_compressor_state(len(of_ratio), dim, ratio))
        if ratio == OVERLAPPED_RATIO:
            index_dim = fields.integer("index_head_dim")
            caches.append(_index(len(of_ratio), index_dim, ratio))
            matrices += _indexer(fields, of_ratio, rank, index_dim)
            matrices += _compressor(of_ratio, hidden, index_dim, ratio, "attn.indexer.compressor")
            states.append(_compressor_state(len(of_ratio), index_dim, ratio))
    return Attention(
        AttentionFamily.HYBRID, (*caches, *states), heads, 1, dim, matrices + _hyper_connections(fields, layers)
    )


def _ratios(fields: Fields) -> Sequence[int]:
    """Compression of each decoder layer; the list may go on with the layers of multi-token prediction."""
    stated = [ratio for ratio in fields.items("compress_ratios") if isinstance(ratio, int)][: fields.layers]
    if len(stated) < fields.layers:
        fields.note("compress_ratios", f"has {len(stated)} numbers for {fields.layers} layers")
    unknown = sorted({ratio for ratio in stated if ratio > 1} - set(COMPRESSOR_BLOCKS))
    if unknown:
        fields.note("compress_ratios", f"holds {unknown[0]}; engines compress 4 or 128 tokens into one")
        return [0] * fields.layers
    return stated


def _latents(
    kind: CacheKind, count: int, dim: int, *, ratio: int = 1, window: int | None = None, block: int | None = None
) -> CacheLayers:
    return CacheLayers(
        kind,
        count,
        1,
        dim,
        0,
        window,
        fixed_bytes_per_token=ENTRY_BYTES,
        block_tokens=block,
        tokens_per_state=ratio,
        page_alignment=PAGE_ALIGNMENT,
    )


def _index(count: int, dim: int, ratio: int) -> CacheLayers:
    return CacheLayers(
        CacheKind.FULL,
        count,
        1,
        dim,
        0,
        fixed_bytes_per_token=INDEX_BYTES,
        tokens_per_state=ratio,
        page_alignment=PAGE_ALIGNMENT,
        role=CacheRole.INDEX,
    )


def _parts(ratio: int) -> int:
    return 2 if ratio == OVERLAPPED_RATIO else 1


def _compressor_state(count: int, dim: int, ratio: int) -> CacheLayers:
    """``2 x parts x dim`` float32 of each of the last ``parts x ratio`` tokens."""
    parts = _parts(ratio)
    return CacheLayers(
        CacheKind.SLIDING,
        count,
        1,
        2 * parts * dim,
        0,
        parts * ratio,
        fixed_bytes_per_token=2 * parts * dim * STATE_ELEMENT_BYTES,
        block_tokens=COMPRESSOR_BLOCKS[ratio],
        page_alignment=PAGE_ALIGNMENT,
        role=CacheRole.COMPRESSOR,
    )


def _compressor(layers: Layers, hidden: int, dim: int, ratio: int, prefix: str) -> Matrices:
    """Keys and scores of each token, positions inside an entry (float32), and the entry's norm."""
    width = _parts(ratio) * dim
    matrices: Matrices = ()
    for name in ("wkv", "wgate"):
        module = f"{prefix}.{name}"
        matrices += build.linear(module, hidden, width, layers, Part.ATTENTION, quantised=False)
    positions = build.table(f"{prefix}.ape", ratio, width, layers, Part.ATTENTION)
    return (
        *matrices,
        replace(positions, bytes_per_element=FLOAT32),
        *build.norms((f"{prefix}.norm",), dim, layers),
    )


def _indexer(fields: Fields, layers: Layers, rank: int, dim: int) -> Matrices:
    heads = fields.integer("index_n_heads")
    matrices = build.linear("attn.indexer.wq_b", rank, heads * dim, layers, Part.ATTENTION)
    return matrices + build.linear(
        "attn.indexer.weights_proj", fields.hidden, heads, layers, Part.ATTENTION, quantised=False
    )


def _hyper_connections(fields: Fields, layers: Layers) -> Matrices:
    """Mixing of ``hc_mult`` residual streams before attention and experts, and at the end; float32."""
    streams = fields.optional_integer("hc_mult", default=4, least=1)
    mixed, width = (2 + streams) * streams, streams * fields.hidden
    matrices: list[Matrix] = []
    for name in ("hc_attn", "hc_ffn"):
        matrices.append(build.table(f"{name}_fn", mixed, width, layers))
        matrices += [build.vector(f"{name}_base", mixed, layers), build.vector(f"{name}_scale", 3, layers)]
    matrices += [build.table("hc_head_fn", streams, width)]
    matrices += [build.vector("hc_head_base", streams), build.vector("hc_head_scale", 1)]
    return tuple(replace(matrix, bytes_per_element=FLOAT32) for matrix in matrices)


def deepseek_v4_mlp(fields: Fields, _: bool) -> FeedForward:
    """DeepSeek-V4: experts in every layer; the first ``num_hash_layers`` route by a table of the vocabulary (int32)."""
    layers, hidden = every_layer(fields), fields.hidden
    experts, width = fields.integer("n_routed_experts"), fields.integer("moe_intermediate_size")
    shared = fields.optional_integer("n_shared_experts") * width
    chosen = fields.integer(*EXPERTS_PER_TOKEN)
    matrices = build.routed_experts(layers, hidden, width, experts, prefix="ffn.experts", names=build.NUMBERED)
    if shared:
        matrices += build.gated_mlp(
            layers, hidden, shared, prefix="ffn.shared_experts", part=Part.SHARED_EXPERTS, names=build.NUMBERED
        )
    matrices += build.router(layers, hidden, experts, module="ffn.gate")
    hashed = layers[: fields.optional_integer("num_hash_layers")]
    if fields.get("topk_method") == "noaux_tc":
        learned = layers[len(hashed) :]
        correction = build.vector("ffn.gate.bias", experts, learned, Part.ROUTER, bytes_per_element=FLOAT32)
        matrices += (correction,) if learned else ()
    if hashed:
        table = build.table("ffn.gate.tid2eid", fields.vocabulary, chosen, hashed, Part.ROUTER)
        matrices += (replace(table, bytes_per_element=FLOAT32),)
    return FeedForward(matrices, len(layers), experts, chosen, width, shared)
