"""What one step of a replica reads, multiplies and exchanges: bytes and FLOPs of a rank, before any efficiency."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from planner.catalog.model_shape import CacheKind, CacheRole, ModelShape
from planner.memory.kv import unpicked_bytes_per_token
from planner.memory.states import SGLANG_STATES, VLLM_STATES, states_bytes
from planner.memory.types import Sizing
from planner.speed.flops import (
    allreduces,
    attention_flops,
    body_flops,
    cache_reads,
    head_flops,
    indexer_flops,
    picked_attention_flops,
    window_flops,
)
from planner.speed.types import FloatArray

ACTIVATION_BYTES = 2
"""All-reduced activations are 16-bit in vLLM and SGLang, whatever the weights are."""


@dataclass(frozen=True)
class StepWork:
    """Work of one rank; scalars, or one entry per deployment after `stack_work`.

    Bytes read by every decode step (``dense_bytes`` with the output head), by the share of experts that a batch touches
    (``expert_bytes``), and for each live token. FLOPs of one token, by the bits that the multiplied matrices are stored
    in, dense and routed apart.
    """

    dense_bytes: FloatArray
    expert_bytes: FloatArray
    expert_hit_share: FloatArray
    cache_bytes_per_token: FloatArray
    window_bytes_per_token: FloatArray
    window_tokens: FloatArray
    state_bytes: FloatArray
    """Read and written back for each sequence."""
    dense_flops_4bit: FloatArray
    dense_flops_8bit: FloatArray
    dense_flops_16bit: FloatArray
    expert_flops_4bit: FloatArray
    expert_flops_8bit: FloatArray
    expert_flops_16bit: FloatArray
    head_flops: FloatArray
    attention_flops: FloatArray
    """Per prompt token squared."""
    window_flops: FloatArray
    """Per prompt token: attention over windows, and over the tokens that an indexer picks."""
    dense_layers: FloatArray
    moe_layers: FloatArray
    sparse_layers: FloatArray
    """Layers whose tokens an indexer picks."""
    linear_layers: FloatArray
    """Layers with a recurrent state."""
    allreduces: FloatArray
    allreduce_bytes: FloatArray
    """Sent and received over a link for one token, all all-reduces of a step together."""
    tp: FloatArray
    chunk_tokens: FloatArray


def work_of(shape: ModelShape, sizing: Sizing) -> StepWork:
    """Work of a deployment.

    A ring all-reduce moves 2 (tp − 1)/tp of the message over each link (P. Patarasu and X. Yuan, J. Parallel Distrib.
    Comput. 69(2), 2009). Layers with an indexer read its keys of every token and the cache of at most ``picked_tokens``
    tokens (DeepSeek-V3.2, https://github.com/deepseek-ai/DeepSeek-V3.2-Exp), which is what a window reads; a model
    that has windows as well is charged for every token there (slow side).

    With data-parallel attention a rank holds the cache of its own share of the sequences, and multiplies their tokens
    only; experts see all of them. With pipeline stages the batch runs as one part per stage: each stage reads its
    weights once a part, so a step reads them all, and a part touches the experts of B / pp tokens; figures per token
    are those of one stage, which works on one part at a time. The last stage holds the output head, and each part
    waits for the slowest stage, so the head is read for each part.
    """
    pp, groups = sizing.deployment.pp, sizing.deployment.attention_dp
    tp, kv_dtype = sizing.deployment.tp, sizing.deployment.kv_dtype
    flops = body_flops(shape, sizing.deployment.weight_dtype, tp)
    picked = None if sizing.sliding_bytes_per_token else picked_tokens(shape)
    # An engine may store the latent in another format than it was asked to, so the picked part is what is left.
    every_bytes = unpicked_bytes_per_token(shape, tp, kv_dtype) / pp if picked else sizing.bytes_per_token
    picked_bytes = sizing.bytes_per_token - every_bytes
    reads = cache_reads(shape, CacheKind.FULL)
    sliding_reads = cache_reads(shape, CacheKind.SLIDING)
    hit = shape.experts_per_token / shape.num_experts if shape.is_moe else 0.0
    values = {
        "dense_bytes": (sizing.weights.dense + sizing.weights.lm_head) * pp,
        "expert_bytes": sizing.weights.experts * pp,
        "expert_hit_share": 1.0 - (1.0 - hit) ** (1.0 / pp),
        "cache_bytes_per_token": every_bytes * reads / groups,
        "window_bytes_per_token": (picked_bytes * reads + sizing.sliding_bytes_per_token * sliding_reads) / groups,
        "window_tokens": picked or sizing.window_tokens,
        "state_bytes": _state_bytes(shape, sizing) / groups / pp,
        "dense_flops_4bit": flops.dense[4] / pp,
        "dense_flops_8bit": flops.dense[8] / pp,
        "dense_flops_16bit": flops.dense[16] / pp,
        "expert_flops_4bit": flops.experts[4] / pp,
        "expert_flops_8bit": flops.experts[8] / pp,
        "expert_flops_16bit": flops.experts[16] / pp,
        "head_flops": head_flops(shape) / tp,
        "attention_flops": (attention_flops(shape) / tp + indexer_flops(shape) / groups) / pp,
        "window_flops": (window_flops(shape) + picked_attention_flops(shape)) / tp / pp,
        "dense_layers": shape.num_layers - shape.num_moe_layers,
        "moe_layers": shape.num_moe_layers,
        "sparse_layers": sum(layers.count for layers in shape.cache_layers if layers.role is CacheRole.INDEX),
        "linear_layers": sum(layers.count for layers in shape.state_layers),
        "allreduces": allreduces(shape) if tp > 1 else 0,
        "allreduce_bytes": allreduces(shape) * shape.hidden_size * ACTIVATION_BYTES * 2 * (tp - 1) / tp / pp,
        "tp": tp,
        "chunk_tokens": sizing.max_num_batched_tokens,
    }
    return StepWork(**{name: np.asarray(value, dtype=np.float64) for name, value in values.items()})


def stack_work(works: list[StepWork]) -> StepWork:
    """Several deployments as arrays of shape ``(len(works),)``."""
    names = [item.name for item in fields(StepWork)]
    return StepWork(**{name: np.array([getattr(work, name) for work in works], dtype=np.float64) for name in names})


def picked_tokens(shape: ModelShape) -> int | None:
    """Tokens that sparse attention reads of a sequence; ``None`` without it."""
    return max((layers.picked_tokens or 0 for layers in shape.cache_layers), default=0) or None


def _state_bytes(shape: ModelShape, sizing: Sizing) -> float:
    """Read and written back for a sequence of the rank's own; with data-parallel attention fewer ranks share them."""
    rules = SGLANG_STATES if sizing.engine == "sglang" else VLLM_STATES
    ranks = max(1, sizing.deployment.tp // sizing.deployment.attention_dp)
    return 2.0 * states_bytes(shape.state_layers, ranks, rules)
