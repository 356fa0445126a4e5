"""Weight bytes of one rank, by format and tensor parallelism.

Matrices of attention, MLP and experts are quantised; embeddings, output head, norms, biases and routers keep 16 bits.
"""

from __future__ import annotations

from functools import lru_cache

from planner.catalog.model_shape import CacheLayers, ModelShape
from planner.memory.blocks import ceil_div
from planner.memory.kv import heads_per_rank
from planner.memory.types import WeightBytes, WeightDtype

BYTES_16BIT = 2.0
BYTES_32BIT = 4.0
VOCABULARY_PADDING = 64
"""vLLM pads the vocabulary to a multiple of 64 (vocab_parallel_embedding.py)."""
INT4_GROUP = 128
MXFP4_GROUP = 32


def matrix_bytes(dtype: WeightDtype, block: tuple[int, int] | None, group: int | None) -> float:
    """Bytes per parameter of a quantised matrix, scales included.

    fp8: 1, plus a 4 B scale per block where block-quantised. int4: half a byte, plus a 2 B scale and a half-byte zero
    point per group (0.5195 B at 128). mxfp4: half a byte plus a 1 B scale per 32.
    """
    if dtype is WeightDtype.BF16:
        return BYTES_16BIT
    if dtype is WeightDtype.FP8:
        return 1.0 + (4.0 / (block[0] * block[1]) if block else 0.0)
    if dtype is WeightDtype.MXFP4:
        return 0.5 + 1.0 / MXFP4_GROUP
    return 0.5 + 2.5 / (group or INT4_GROUP)


@lru_cache(maxsize=4096)
def weight_bytes(
    shape: ModelShape, dtype: WeightDtype, tp: int, mxfp4_padding: tuple[int, int] = (1, 1)
) -> WeightBytes:
    """Bytes of rank 0 after loading.

    Column- and row-parallel matrices are split by ``tp``; keys and values are replicated once tp exceeds the KV heads;
    latent down-projections, routers, norms and biases are whole on every rank. MXFP4 converts experts only, each padded
    to ``mxfp4_padding`` (width, hidden).
    """
    counts = shape.parameters
    stored = shape.native_weight_dtype == dtype
    quantised = matrix_bytes(dtype, shape.weight_block if stored else None, shape.group_size if stored else None)
    matrices = BYTES_16BIT if dtype is WeightDtype.MXFP4 else quantised
    table = padded(shape.vocab_size, VOCABULARY_PADDING) * shape.hidden_size * BYTES_16BIT / tp
    split = counts.attention - counts.kv_projection - counts.attention_replicated
    attention = split / tp + counts.kv_projection * kv_share(shape.cache_layers, tp) + counts.attention_replicated
    dense = attention * (BYTES_16BIT if stored and shape.attention_kept_16bit else matrices)
    dense += counts.mlp / tp * matrices
    dense += (counts.other - counts.expert_biases) * BYTES_16BIT
    dense += counts.router * (BYTES_32BIT if shape.router_32bit else BYTES_16BIT)
    padding = mxfp4_padding if dtype is WeightDtype.MXFP4 else (1, 1)
    experts = expert_bytes(shape, quantised, tp, padding)
    dense += whole_bias_bytes(shape, padding)
    vision = counts.vision * BYTES_16BIT / tp
    head = 0.0 if shape.tied_embeddings else table
    return WeightBytes(
        embedding=table,
        lm_head=table,
        dense=dense,
        experts=experts,
        vision=vision,
        total=table + head + dense + experts + vision,
    )


def kv_share(cache_layers: tuple[CacheLayers, ...], tp: int) -> float:
    """Share of the key and value projections on a rank: heads are split, then replicated, by each kind of layer."""
    whole = sum(c.count * c.kv_heads * (c.key_dim + c.value_dim) for c in cache_layers)
    rank = sum(c.count * heads_per_rank(c.kv_heads, tp) * (c.key_dim + c.value_dim) for c in cache_layers)
    return rank / whole


def expert_bytes(shape: ModelShape, matrix: float, tp: int, padding: tuple[int, int]) -> float:
    """Routed experts of a rank: gate, up and down by width / tp, padded, and the biases of gate and up."""
    if not shape.is_moe:
        return 0.0
    share = shape.moe_intermediate_size / tp
    width = padded(ceil_div(shape.moe_intermediate_size, tp), padding[0]) if padding[0] > 1 else share
    growth = width / share * padded(shape.hidden_size, padding[1]) / shape.hidden_size
    total = shape.parameters.experts / tp * growth * matrix
    if shape.parameters.expert_biases:
        total += shape.num_moe_layers * shape.num_experts * 2 * width * BYTES_16BIT
    return total


def whole_bias_bytes(shape: ModelShape, padding: tuple[int, int]) -> float:
    """Biases of the experts' down-projections, which every rank holds whole."""
    if not shape.parameters.expert_biases:
        return 0.0
    return shape.num_moe_layers * shape.num_experts * padded(shape.hidden_size, padding[1]) * BYTES_16BIT


def padded(size: int, multiple: int) -> int:
    """The next multiple."""
    return ceil_div(size, multiple) * multiple
