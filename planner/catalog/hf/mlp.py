"""Feed-forward part of a config: dense MLPs, routed and shared experts, as matrices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from planner.catalog.hf import matrices as build
from planner.catalog.hf.fields import EXPERTS, EXPERTS_PER_TOKEN, Fields
from planner.catalog.hf.matrices import Layers, Matrices
from planner.catalog.matrix import Part


@dataclass(frozen=True)
class FeedForward:
    """Matrices of MLPs, experts and routers, and the shape of the experts."""

    matrices: Matrices
    moe_layers: int = 0
    num_experts: int = 0
    experts_per_token: int = 0
    moe_intermediate: int = 0
    shared_intermediate: int = 0
    dense_intermediate: int = 0
    """Width of the widest dense MLP, where the config does not state it as one number."""


@dataclass(frozen=True)
class MoeNames:
    """Modules of a sparse layer as the checkpoint names them below the layer."""

    experts: str = "mlp.experts"
    gate: str = "mlp.gate"
    shared: str = "mlp.shared_experts"
    projections: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")


_MIXTRAL_NAMES = MoeNames("block_sparse_moe.experts", "block_sparse_moe.gate", projections=build.NUMBERED)

MOE_NAMES: Mapping[str, MoeNames] = {
    "gemma4_text": MoeNames("experts", "router.proj"),
    "gpt_oss": MoeNames(gate="mlp.router"),
    "granitemoe": _MIXTRAL_NAMES,
    "llama4_text": MoeNames("feed_forward.experts", "feed_forward.router", "feed_forward.shared_expert"),
    "minimax_m2": _MIXTRAL_NAMES,
    "mixtral": _MIXTRAL_NAMES,
    "phimoe": _MIXTRAL_NAMES,
    "qwen2_moe": MoeNames(shared="mlp.shared_expert"),
    "qwen3_next": MoeNames(shared="mlp.shared_expert"),
    "qwen3_5_moe_text": MoeNames(shared="mlp.shared_expert"),
}
"""Where a family names them otherwise."""


def every_layer(fields: Fields) -> Layers:
    """Indexes of all decoder layers."""
    return tuple(range(fields.layers))


def gated(fields: Fields, bias: bool) -> FeedForward:
    """Gate, up and down in every layer: ``3 x hidden x ff`` (SwiGLU and the like)."""
    width = fields.feed_forward
    if fields.model_type == "qwen":
        width //= 2  # Qwen v1 counts both gated halves in intermediate_size
    return FeedForward(build.gated_mlp(every_layer(fields), fields.hidden, width, bias=bias))


def plain(fields: Fields, bias: bool) -> FeedForward:
    """Up and down in every layer: ``2 x hidden x ff``."""
    return FeedForward(build.plain_mlp(every_layer(fields), fields.hidden, fields.feed_forward, bias=bias))


def mixture(fields: Fields, bias: bool) -> FeedForward:
    """Routed experts (gated), shared experts and the dense layers between them.

    ``bias`` adds the biases of experts and router (gpt-oss).
    """
    hidden = fields.hidden
    experts = fields.integer(*EXPERTS)
    width = fields.optional_integer("moe_intermediate_size", least=1) or fields.feed_forward
    shared, shared_gate = shared_width(fields, width)
    sparse = moe_layers(fields)
    dense = tuple(layer for layer in range(fields.layers) if layer not in set(sparse))
    dense_width = fields.optional_integer("dense_intermediate_size", "intermediate_size_mlp") or fields.feed_forward
    names = MOE_NAMES.get(fields.model_type, MoeNames())
    matrices = build.routed_experts(
        sparse, hidden, width, experts, prefix=names.experts, bias=bias, names=names.projections
    )
    matrices += build.router(sparse, hidden, experts, module=names.gate, correction=has_router_bias(fields), bias=bias)
    if shared:
        matrices += build.shared_experts(sparse, hidden, shared, prefix=names.shared)
    if shared_gate:
        matrices += (build.table(f"{names.shared}_gate", 1, hidden, sparse, Part.ROUTER),)
    if dense:
        matrices += build.gated_mlp(dense, hidden, dense_width, prefix=names.experts.removesuffix(".experts"))
    return FeedForward(
        matrices,
        moe_layers=len(sparse),
        num_experts=experts,
        experts_per_token=fields.integer(*EXPERTS_PER_TOKEN),
        moe_intermediate=width,
        shared_intermediate=shared,
    )


CORRECTED = frozenset({"dots1", "glm4_moe", "glm4_moe_lite", "glm4v_moe_text", "solar_open"})
"""Model types whose routers carry a correction without saying so."""


def has_router_bias(fields: Fields) -> bool:
    """Whether the router carries one correction term per expert."""
    stated = fields.get("topk_method") == "noaux_tc" or fields.flag("use_routing_bias")
    return stated or fields.model_type in CORRECTED


def shared_width(fields: Fields, expert_width: int) -> tuple[int, bool]:
    """Width of the shared experts together, and whether a gate weighs them."""
    stated = fields.optional_integer("shared_expert_intermediate_size")
    if stated:
        return stated, True
    count = fields.optional_integer("n_shared_experts", "moe_num_shared_experts")
    if fields.model_type == "llama4_text":
        count = 1
    return count * expert_width, False


def moe_layers(fields: Fields) -> Layers:
    """Layers that hold routed experts, by whichever way the config says it."""
    layers = range(fields.layers)
    if isinstance(fields.get("moe_layer_freq", "moe_layers_freq"), list):
        marks = fields.per_layer("moe_layer_freq", "moe_layers_freq")
        return tuple(layer for layer, mark in zip(layers, marks, strict=False) if mark)
    if fields.model_type == "ernie4_5_moe":
        return _ernie_moe_layers(fields)
    if fields.model_type == "llama4_text":
        step = fields.optional_integer("interleave_moe_layer_step", default=1)
        return tuple(layer for layer in layers if step and (layer + 1) % step == 0)
    frequency = fields.optional_integer("moe_layer_freq", "moe_layers_freq")
    dense = {layer for layer in fields.items("mlp_only_layers") if isinstance(layer, int)}
    first = fields.optional_integer("first_k_dense_replace")
    every = frequency or fields.optional_integer("decoder_sparse_step", default=1) or 1
    offset = 0 if frequency else 1
    return tuple(layer for layer in layers if layer >= first and layer not in dense and (layer + offset) % every == 0)


def _ernie_moe_layers(fields: Fields) -> Layers:
    first = fields.optional_integer("moe_layer_start_index", default=1)
    last = fields.optional_integer("moe_layer_end_index", default=fields.layers - 1, least=-1)
    last = fields.layers - 1 if last < 0 else last
    step = fields.optional_integer("moe_layer_interval", default=1, least=1)
    return tuple(layer for layer in range(fields.layers) if first <= layer <= last and (layer + 1) % step == 0)


def beside_experts(fields: Fields, bias: bool) -> FeedForward:
    """A dense MLP in every layer and, with ``enable_moe_block``, experts beside it (Gemma-4).

    The expert branch brings three more norms and one scale per expert and per hidden dimension.
    """
    dense = gated(fields, bias)
    if not fields.flag("enable_moe_block"):
        return dense
    routed, layers = mixture(fields, bias), every_layer(fields)
    beside = tuple(m for m in routed.matrices if m.part in (Part.EXPERTS, Part.ROUTER))
    beside += build.norms(EXPERT_NORMS, fields.hidden, layers)
    beside += (build.vector("router.scale", fields.hidden, layers),)
    beside += (build.vector("router.per_expert_scale", routed.num_experts, layers),)
    return replace(routed, matrices=dense.matrices + beside, moe_layers=len(layers))


EXPERT_NORMS = ("pre_feedforward_layernorm_2", "post_feedforward_layernorm_1", "post_feedforward_layernorm_2")
"""Norms of Gemma-4's expert branch."""
