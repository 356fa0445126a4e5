"""FLOPs of one token, from the model's inventory of matrices: how many, stored at how many bits, on one rank.

A matrix costs 2 FLOPs per parameter and token; routed experts cost the share of them that a token visits. Embeddings
are looked up, not multiplied; vision towers run for images only, which traffic logs do not tell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from planner.catalog.matrix import Matrix, Part, Split
from planner.catalog.model_shape import CacheKind, CacheLayers, CacheRole, ModelShape
from planner.memory.types import WeightDtype
from planner.memory.weights import stored_as

NOT_IN_THE_BODY = frozenset({Part.EMBEDDING, Part.LM_HEAD, Part.VISION})
MIXERS = frozenset({Part.ATTENTION, Part.STATE})
FEED_FORWARD = frozenset({Part.MLP, Part.SHARED_EXPERTS, Part.EXPERTS})

MLA_PREFILL_HEAD_DIM = 160
"""Mean of the score width 192 (128 without and 64 with rotation) and the value width 128 of a head when MLA expands its
latent for prefill, in DeepSeek-V2 (arXiv:2405.04434) and every MLA checkpoint that is supported (DeepSeek, Kimi)."""
SCAN_FLOPS = 7
"""FLOPs of a recurrence for each element of its state and token: decay 1, k S 2, rank-one update 2, q S 2 (gated delta
rule, S. Yang et al., arXiv:2412.06464, eq. 10). Mamba-2 lacks k S (arXiv:2405.21060, eq. 16) and costs 5. The chunked
scan of a prefill multiplies about twice as often; with either the term is 1 to 4 % of a token's FLOPs."""


@dataclass(frozen=True)
class BodyFlops:
    """FLOPs of one token through the layers on one rank, by the bits that the multiplied matrices are stored in."""

    dense: Mapping[int, float]
    experts: Mapping[int, float]
    """Of the routed experts that a token visits."""


@lru_cache(maxsize=4096)
def body_flops(shape: ModelShape, dtype: WeightDtype, tp: int) -> BodyFlops:
    """2 FLOPs per active parameter of a rank, and the scan of recurrent layers at 16 bits."""
    routed = shape.experts_per_token / shape.num_experts if shape.is_moe else 0.0
    dense, experts = {4: 0.0, 8: 0.0, 16: _scan_flops(shape) / tp}, {4: 0.0, 8: 0.0, 16: 0.0}
    for matrix in shape.matrices:
        if matrix.part in NOT_IN_THE_BODY:
            continue
        stored = stored_as(matrix, dtype, shape.native_weight_dtype)
        bits = stored.bits if stored is not None and stored.bits in dense else 16
        is_routed = matrix.part is Part.EXPERTS
        flops = 2.0 * matrix.elements * share_of_rank(matrix, tp)
        (experts if is_routed else dense)[bits] += flops * (routed if is_routed else 1.0)
    return BodyFlops(dense, experts)


def share_of_rank(matrix: Matrix, tp: int) -> float:
    """Share of a matrix that one of ``tp`` ranks multiplies; KV heads are repeated once ``tp`` exceeds them."""
    if matrix.split is Split.WHOLE:
        return 1.0
    if matrix.split is Split.KV_HEADS:
        return max(1.0 / tp, 1.0 / max(matrix.heads, 1))
    return 1.0 / tp


def _scan_flops(shape: ModelShape) -> float:
    elements = sum(g.count * g.heads * g.head_dim * g.state_size for g in shape.state_layers)
    return float(SCAN_FLOPS * elements)


def head_flops(shape: ModelShape) -> float:
    """FLOPs of the output head for one token; prefill computes it for the last token only, which is left out there."""
    return 2.0 * shape.vocab_size * shape.hidden_size


def attention_flops(shape: ModelShape) -> float:
    """FLOPs of causal attention per prompt token squared, over the layers that keep every token.

    Scores and weighted values are 2 × 2 × heads × head_dim × P² / 2 a layer (T. Dao, "FlashAttention-2",
    arXiv:2307.08691, section 4.1: causal halves the 4 P² d of the full matrix). Layers that read another layer's cache
    attend as well; a compressed cache has one entry for several tokens. Sparse attention whose picks are not known is
    counted as if it read every token.
    """
    return sum(
        2.0 * shape.attention_heads * _width(layers) * _attending(layers) / layers.tokens_per_state
        for layers in _token_layers(shape, CacheKind.FULL)
        if layers.picked_tokens is None
    )


def picked_attention_flops(shape: ModelShape) -> float:
    """FLOPs of attention over picked tokens for one prompt token: 4 × heads × latent width × picks a layer.

    Exact for prompts much longer than the picks, too high before. The latent is attended to as it is stored (absorbed
    projections), so scores are as wide as the latent and values nearly.
    """
    return sum(
        4.0 * shape.attention_heads * layers.key_dim * layers.count * layers.picked_tokens
        for layers in _token_layers(shape, CacheKind.FULL)
        if layers.picked_tokens is not None
    )


def indexer_flops(shape: ModelShape) -> float:
    """FLOPs of an indexer's scores per prompt token squared, whole on every rank: 2 × heads × dim × P² / 2 a layer.

    Only where it is known how many tokens it picks; elsewhere attention is counted over every token instead.
    """
    if not any(layers.picked_tokens for layers in shape.cache_layers):
        return 0.0
    queries = [m for m in shape.matrices if m.module.endswith("indexer.wq_b")]
    return sum(float(m.out_features) * len(m.layers) for m in queries)


def window_flops(shape: ModelShape) -> float:
    """FLOPs of sliding-window attention for one prompt token: 4 × heads × head_dim × window a layer.

    Exact once the prompt is much longer than the window, too high before; the term is a few per cent of the token's
    FLOPs at most.
    """
    return sum(
        4.0 * shape.attention_heads * _width(layers) * _attending(layers) * (layers.window_tokens or 0)
        for layers in _token_layers(shape, CacheKind.SLIDING)
    )


def cache_reads(shape: ModelShape, kind: CacheKind) -> float:
    """How often a decode step reads each cached byte of a kind: more than once where further layers share a cache."""
    groups = list(_token_layers(shape, kind))
    held = sum(layers.kv_heads * (layers.key_dim + layers.value_dim) * layers.count for layers in groups)
    read = sum(layers.kv_heads * (layers.key_dim + layers.value_dim) * _attending(layers) for layers in groups)
    return read / held if held else 1.0


@lru_cache(maxsize=4096)
def allreduces(shape: ModelShape) -> int:
    """All-reduces of a step with tensor parallelism: one after each mixer and one after each feed-forward.

    M. Shoeybi et al., "Megatron-LM", arXiv:1909.08053, section 3: two a layer, one where a layer is only one of the two
    (Nemotron-H). Found by the matrices that are split by rows, whose products must be summed.
    """
    layers_of = [
        {layer for m in shape.matrices if m.split is Split.ROW and m.part in parts for layer in m.layers}
        for parts in (MIXERS, FEED_FORWARD)
    ]
    return sum(len(layers) for layers in layers_of)


def _token_layers(shape: ModelShape, kind: CacheKind) -> Iterator[CacheLayers]:
    return (g for g in shape.cache_layers if g.kind is kind and g.role is CacheRole.TOKENS)


def _attending(layers: CacheLayers) -> int:
    return layers.count + layers.sharing_layers


def _width(layers: CacheLayers) -> float:
    """Mean of the widths of a head's scores and values.

    A latent is expanded for prefill; entries of a fixed size (DeepSeek-V4) are attended to as they are.
    """
    if layers.value_dim:
        return (layers.key_dim + layers.value_dim) / 2
    return MLA_PREFILL_HEAD_DIM if layers.fixed_bytes_per_token is None else layers.key_dim
