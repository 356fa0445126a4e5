"""Families with linear attention or short convolutions: delta nets, lightning attention, LFM2.

Module names are the checkpoint's; splits are those of vLLM's model files (0.33.0 unless another release is named).
"""

from __future__ import annotations

from dataclasses import replace

from planner.catalog.hf import matrices as build
from planner.catalog.hf import recurrent
from planner.catalog.hf.attention import Attention, head_dim, latent_in
from planner.catalog.hf.fields import EXPERTS_PER_TOKEN, Fields, shown
from planner.catalog.hf.hybrid import (
    FULL,
    beside,
    chosen,
    listed,
    others,
    typed,
    with_mixers,
)
from planner.catalog.hf.matrices import FLOAT32, Layers, Matrices, latent_projections
from planner.catalog.hf.mlp import FeedForward, every_layer
from planner.catalog.hf.windows import Windows
from planner.catalog.matrix import Part, Split


def qwen_hybrid(fields: Fields, _: Windows) -> Attention:
    """Qwen3-Next, Qwen3.5 and later: gated delta nets, and attention whose queries carry an output gate.

    Only Qwen3.5's ``mamba_ssm_dtype`` is read by vLLM (``Qwen3_5ForConditionalGenerationConfig``).
    """
    kinds = typed(fields)
    full = chosen(kinds, *FULL)
    joined = fields.model_type == "qwen3_next"
    mixer = recurrent.gated_delta(
        others(len(kinds), full),
        fields.hidden,
        key_heads=fields.integer("linear_num_key_heads"),
        key_dim=fields.integer("linear_key_head_dim"),
        value_heads=fields.integer("linear_num_value_heads"),
        value_dim=fields.integer("linear_value_head_dim"),
        kernel=fields.integer("linear_conv_kernel_dim"),
        precision=None if joined else recurrent.asked_precision(fields, "mamba_ssm_dtype"),
        joined=joined,
    )
    bias = fields.flag("attention_bias")
    gate = fields.flag("attn_output_gate", default=True)
    return beside(fields, full, (mixer,), qkv_bias=bias, output_bias=bias, qk_norm="head", query_gate=gate)


def lfm2(fields: Fields, _: Windows) -> Attention:
    """LFM2: gated short convolutions; attention in the layers of ``full_attn_idxs`` or typed so."""
    full = _lfm2_full(fields)
    hidden = fields.hidden
    mixer = recurrent.short_convolution(
        others(fields.layers, full),
        hidden,
        width=fields.optional_integer("conv_dim", default=hidden, least=1),
        kernel=fields.optional_integer("conv_L_cache", default=3, least=1),
        bias=fields.flag("conv_bias"),
    )
    return beside(fields, full, (mixer,), dim=hidden // fields.heads, qk_norm="head", output="out_proj")


def _lfm2_full(fields: Fields) -> Layers:
    if fields.states("layer_types"):
        return chosen(fields.per_layer("layer_types"), *FULL)
    return listed(fields, "full_attn_idxs")


def lfm2_mlp(fields: Fields, bias: bool) -> FeedForward:
    """LFM2's gated MLP, whose stated width is adjusted: two thirds of it, then up to a multiple."""
    width = fields.optional_integer("block_ff_dim", "intermediate_size", least=1)
    if fields.flag("block_auto_adjust_ff_dim", default=True):
        multiple = fields.optional_integer("block_multiple_of", default=256, least=1)
        width = int(2 * width / 3)
        width = int(_multiplier(fields) * width)
        width = multiple * -(-width // multiple)
    layers = every_layer(fields)
    return FeedForward(
        build.gated_mlp(
            layers, fields.hidden, width, prefix="feed_forward", bias=bias, names=build.NUMBERED, fused="w13"
        )
    )


def _multiplier(fields: Fields) -> float:
    factor = fields.get("block_ffn_dim_multiplier", default=1.0)
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor <= MOST_MULTIPLIER:
        fields.note("block_ffn_dim_multiplier", f"is no number from above 0 to {MOST_MULTIPLIER} (got {shown(factor)})")
        return 1.0
    return float(factor)


MOST_MULTIPLIER = 1000


def lfm2_moe_mlp(fields: Fields, bias: bool) -> FeedForward:
    """LFM2-MoE: dense layers first, then routed experts with a float32 correction."""
    dense = fields.optional_integer("num_dense_layers")
    sparse = tuple(range(dense, fields.layers))
    hidden, experts = fields.hidden, fields.integer("num_experts")
    width = fields.integer("moe_intermediate_size")
    matrices = build.gated_mlp(
        tuple(range(dense)),
        hidden,
        fields.feed_forward,
        prefix="feed_forward",
        bias=bias,
        names=build.NUMBERED,
        fused="w13",
    )
    matrices += build.routed_experts(
        sparse, hidden, width, experts, prefix="feed_forward.experts", names=build.NUMBERED
    )
    correction = fields.flag("use_expert_bias", default=True)
    matrices += build.router(sparse, hidden, experts, module="feed_forward.gate", correction=correction)
    return FeedForward(matrices, len(sparse), experts, fields.integer(*EXPERTS_PER_TOKEN), width)


def minimax_lightning(fields: Fields, _: Windows) -> Attention:
    """MiniMax-Text-01 and M1 (vLLM 0.19.0): lightning attention where ``attn_type_list`` says 0."""
    marks = fields.per_layer("attn_type_list", "layer_types")
    if not marks:
        fields.note("attn_type_list", "is missing: it says which layers are lightning attention")
    full = chosen(marks, *FULL) + tuple(layer for layer, mark in enumerate(marks) if mark == 1)
    dim = head_dim(fields)
    mixer = recurrent.lightning(others(fields.layers, full), fields.hidden, heads=fields.heads, head_dim=dim)
    return beside(fields, full, (mixer,))


def minimax_mlp(fields: Fields, _: bool) -> FeedForward:
    """MiniMax-Text-01 and M1: routed experts in every layer; the router is kept at 32 bits."""
    layers, hidden, width = every_layer(fields), fields.hidden, fields.feed_forward
    experts = fields.integer("num_local_experts")
    prefix = "block_sparse_moe"
    matrices = build.routed_experts(layers, hidden, width, experts, prefix=f"{prefix}.experts", names=build.NUMBERED)
    matrices += build.router(layers, hidden, experts, module=f"{prefix}.gate", bytes_per_element=FLOAT32)
    return FeedForward(matrices, len(layers), experts, fields.integer(*EXPERTS_PER_TOKEN), width)


def kimi(fields: Fields, _: Windows) -> Attention:
    """Kimi-Linear and Kimi-K3: Kimi delta attention in the layers of ``kda_layers``, latent attention in the others.

    Layers are counted from 1 there. Without ``linear_attn_config`` every layer is latent attention.
    """
    config = fields.table("linear_attn_config")
    delta = _from_one(fields, config.get("kda_layers"))
    full = others(fields.layers, delta)
    hidden, latent = fields.hidden, latent_in(fields, full)
    added = _attention_residuals(fields)
    if full and fields.flag("mla_use_output_gate"):
        width = fields.heads * fields.integer("v_head_dim")
        added += build.linear("self_attn.g_proj", hidden, width, full, Part.ATTENTION, Split.COLUMN)
    latent = replace(latent, matrices=latent.matrices + added)
    if not delta:
        return latent
    mixer = recurrent.kimi_delta(
        delta,
        hidden,
        heads=fields.nested_integer("linear_attn_config", "num_heads"),
        head_dim=fields.nested_integer("linear_attn_config", "head_dim"),
        kernel=fields.nested_integer("linear_attn_config", "short_conv_kernel_size"),
        full_rank_gate=bool(config.get("use_full_rank_gate")),
        bounded_gate=config.get("gate_lower_bound") is not None,
    )
    return with_mixers(latent, (mixer,))


def _from_one(fields: Fields, stated: object) -> Layers:
    """Layers whose numbers start at 1."""
    if fields.table("linear_attn_config") and not isinstance(stated, list):
        fields.note("linear_attn_config.kda_layers", "is no list of layers", "Number them from 1")
    numbers = stated if isinstance(stated, list) else []
    return tuple(sorted(number - 1 for number in numbers if isinstance(number, int) and 0 < number <= fields.layers))


def _attention_residuals(fields: Fields) -> Matrices:
    """Norms and weights by which layers mix earlier blocks' outputs (Kimi-K3, ``attn_res_block_size``)."""
    if not fields.optional_integer("attn_res_block_size"):
        return ()
    hidden, layers = fields.hidden, every_layer(fields)
    matrices = build.norms(("self_attention_res_norm", "mlp_res_norm"), hidden, layers)
    matrices += build.norms(("output_attn_res_norm",), hidden)
    for name in ("self_attention_res_proj", "mlp_res_proj"):
        matrices += (build.table(name, 1, hidden, layers),)
    return (*matrices, build.table("output_attn_res_proj", 1, hidden))


def kimi_mlp(fields: Fields, _: bool) -> FeedForward:
    """Kimi-Linear and Kimi-K3: dense layers first, then experts; K3's work on a latent with a norm.

    vLLM serves K3's checkpoint by the method that converts routed experts only (``models/config.py``).
    """
    hidden, width = fields.hidden, fields.integer("moe_intermediate_size")
    first = fields.optional_integer("first_k_dense_replace")
    every = fields.optional_integer("moe_layer_freq", default=1, least=1)
    sparse = tuple(layer for layer in range(first, fields.layers) if layer % every == 0)
    experts = fields.integer("num_experts", "n_routed_experts")
    shared = fields.optional_integer("num_shared_experts", "n_shared_experts") * width
    latent = fields.optional_integer("routed_expert_hidden_size")
    prefix = "block_sparse_moe"
    matrices = build.gated_mlp(others(fields.layers, sparse), hidden, fields.feed_forward)
    matrices += build.routed_experts(
        sparse, latent or hidden, width, experts, prefix=f"{prefix}.experts", names=build.NUMBERED
    )
    matrices += build.router(sparse, hidden, experts, module=f"{prefix}.gate", correction=True)
    if shared:
        matrices += build.shared_experts(sparse, hidden, shared, prefix=f"{prefix}.shared_experts")
    if latent and latent != hidden:
        names = (f"{prefix}.routed_expert_down_proj", f"{prefix}.routed_expert_up_proj")
        matrices += latent_projections(sparse, hidden, latent, *names, quantised=False)
        if fields.flag("latent_moe_use_norm"):
            matrices += build.norms((f"{prefix}.routed_expert_norm",), latent, sparse)
    per_token = fields.integer("num_experts_per_token", *EXPERTS_PER_TOKEN)
    return FeedForward(matrices, len(sparse), experts, per_token, width, shared)
