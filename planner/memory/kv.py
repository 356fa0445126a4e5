"""Bytes of KV cache per token and GPU, by attention family, tensor parallelism and cache dtype."""

from __future__ import annotations

from functools import lru_cache

from planner.catalog.engine import EngineFacts
from planner.catalog.model_shape import CacheKind, CacheLayers, ModelShape
from planner.memory.types import KvDtype

BYTES_PER_ELEMENT = {KvDtype.BF16: 2, KvDtype.FP8: 1}


def heads_per_rank(kv_heads: int, tp: int) -> int:
    """KV heads that one rank holds: split, and replicated once there are fewer heads than ranks.

    vLLM and SGLang, ``get_num_kv_heads``: ``max(1, kv_heads // tp)``. A latent (MLA) counts as one head and is
    therefore the same on every rank.
    """
    return max(1, kv_heads // tp)


def layer_bytes_per_token(layers: CacheLayers, tp: int, kv_dtype: KvDtype) -> int:
    """Bytes of one token in one of these layers on one GPU: ``heads x (key_dim + value_dim) x element``."""
    if layers.fixed_bytes_per_token is not None:
        return layers.fixed_bytes_per_token
    if kv_dtype is KvDtype.FP8 and layers.fp8_bytes_per_token is not None:
        return layers.fp8_bytes_per_token
    return heads_per_rank(layers.kv_heads, tp) * (layers.key_dim + layers.value_dim) * BYTES_PER_ELEMENT[kv_dtype]


@lru_cache(maxsize=4096)
def _bytes_per_token(cache_layers: tuple[CacheLayers, ...], kind: CacheKind, tp: int, kv_dtype: KvDtype) -> int:
    return sum(
        layers.count * layer_bytes_per_token(layers, tp, kv_dtype) for layers in cache_layers if layers.kind is kind
    )


def bytes_per_token(shape: ModelShape, tp: int = 1, kv_dtype: KvDtype = KvDtype.BF16) -> int:
    """Bytes per token and GPU of the layers that keep every token.

    Grouped queries: ``layers x max(1, kv_heads / tp) x head_dim x 2 x element``; MLA:
    ``layers x (kv_lora_rank + qk_rope_head_dim) x element`` at every tp.
    """
    return _bytes_per_token(shape.cache_layers, CacheKind.FULL, tp, kv_dtype)


def sliding_bytes_per_token(shape: ModelShape, tp: int = 1, kv_dtype: KvDtype = KvDtype.BF16) -> int:
    """Bytes per token and GPU of the layers that keep a window, while the token is inside it."""
    return _bytes_per_token(shape.cache_layers, CacheKind.SLIDING, tp, kv_dtype)


def unpicked_bytes_per_token(shape: ModelShape, tp: int = 1, kv_dtype: KvDtype = KvDtype.BF16) -> int:
    """That part of `bytes_per_token` that a decode step reads for every token, whatever an indexer picks."""
    unpicked = tuple(layers for layers in shape.cache_layers if layers.picked_tokens is None)
    return _bytes_per_token(unpicked, CacheKind.FULL, tp, kv_dtype)


def auto_kv(shape: ModelShape, facts: EngineFacts) -> KvDtype:
    """The engine's ``auto``: 16 bits, or fp8 where the checkpoint declares it and the version follows."""
    honoured = facts.name == "sglang" or (facts.vllm.declared_fp8_kv_honoured and not shape.modelopt_unnamed)
    return KvDtype.FP8 if shape.declares_fp8_kv and honoured else KvDtype.BF16
