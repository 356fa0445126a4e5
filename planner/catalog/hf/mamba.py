"""Families with Mamba layers, alone or beside attention.

Module names are the checkpoint's; splits are those of vLLM's model files (0.33.0 unless another release is named).
"""

from __future__ import annotations

from collections.abc import Sequence

from planner.catalog.hf import matrices as build
from planner.catalog.hf import recurrent
from planner.catalog.hf.attention import Attention
from planner.catalog.hf.fields import EXPERTS_PER_TOKEN, Fields
from planner.catalog.hf.hybrid import (
    FULL,
    attention_free,
    automatic,
    beside,
    chosen,
    listed,
    others,
)
from planner.catalog.hf.matrices import Layers, Matrices, latent_projections
from planner.catalog.hf.mlp import FeedForward, every_layer
from planner.catalog.hf.recurrent import Mixer
from planner.catalog.hf.windows import Windows
from planner.catalog.matrix import Part

NEMOTRON_KINDS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
"""Letters of ``hybrid_override_pattern``."""


def nemotron_kinds(fields: Fields) -> Sequence[object]:
    """Kind of each block of Nemotron-H: ``layers_block_type``, or the letters of ``hybrid_override_pattern``."""
    stated = fields.per_layer("layers_block_type")
    if stated:
        return stated
    pattern = fields.get("hybrid_override_pattern")
    if not isinstance(pattern, str) or set(pattern) - set(NEMOTRON_KINDS) or len(pattern) != fields.layers:
        letters = ", ".join(NEMOTRON_KINDS)
        fields.note("hybrid_override_pattern", f"is no pattern of {letters} for {fields.layers} blocks")
        return ()
    return [NEMOTRON_KINDS[letter] for letter in pattern]


def nemotron_h(fields: Fields, _: Windows) -> Attention:
    """Nemotron-H: every block is Mamba-2, attention, an MLP or experts; the head size has two names."""
    kinds = nemotron_kinds(fields)
    heads, dim = fields.integer("mamba_num_heads"), fields.integer("mamba_head_dim")
    mixer = recurrent.mamba2(
        chosen(kinds, "mamba"),
        fields.hidden,
        intermediate=heads * dim,
        heads=heads,
        head_dim=dim,
        state=fields.integer("ssm_state_size"),
        groups=fields.integer("n_groups"),
        kernel=fields.integer("conv_kernel"),
        conv_bias=fields.flag("use_conv_bias", default=True),
        bias=fields.flag("use_bias"),
        precision=recurrent.asked_precision(fields, "mamba_ssm_cache_dtype"),
        chunk=fields.optional_integer("chunk_size"),
    )
    size = fields.optional_integer("head_dim", "attention_head_dim", least=1) or None
    return beside(fields, chosen(kinds, "attention"), (mixer,), dim=size, prefix="mixer")


def nemotron_mlp(fields: Fields, bias: bool) -> FeedForward:
    """MLP and expert blocks of Nemotron-H: two matrices each, no gate.

    ``moe_latent_size``: experts work on a latent, made and undone by two projections that every rank holds whole.
    The router's correction is float32.
    """
    kinds, hidden = nemotron_kinds(fields), fields.hidden
    dense, sparse = chosen(kinds, "mlp"), chosen(kinds, "moe")
    matrices = build.plain_mlp(dense, hidden, fields.feed_forward, prefix="mixer", bias=bias)
    if not sparse:
        return FeedForward(matrices)
    experts, width = fields.integer("n_routed_experts"), fields.integer("moe_intermediate_size")
    latent = fields.optional_integer("moe_latent_size")
    shared = fields.optional_integer("n_shared_experts") * fields.optional_integer(
        "moe_shared_expert_intermediate_size"
    )
    matrices += build.routed_experts(sparse, latent or hidden, width, experts, prefix="mixer.experts", gated=False)
    matrices += build.router(sparse, hidden, experts, module="mixer.gate", correction=True)
    if shared:
        matrices += build.shared_experts(sparse, hidden, shared, prefix="mixer.shared_experts", gated=False)
    if latent:
        matrices += latent_projections(sparse, hidden, latent, "mixer.fc1_latent_proj", "mixer.fc2_latent_proj")
    return FeedForward(
        matrices,
        moe_layers=len(sparse),
        num_experts=experts,
        experts_per_token=fields.integer(*EXPERTS_PER_TOKEN),
        moe_intermediate=width,
        shared_intermediate=shared,
    )


def jamba(fields: Fields, _: Windows) -> Attention:
    """Jamba: one attention layer every ``attn_layer_period``; the others are Mamba, which vLLM never quantises."""
    period = fields.optional_integer("attn_layer_period", default=8, least=1)
    offset = fields.optional_integer("attn_layer_offset", default=4)
    full = tuple(layer for layer in range(fields.layers) if layer % period == offset)
    hidden = fields.hidden
    mixer = recurrent.mamba1(
        others(fields.layers, full),
        hidden,
        intermediate=fields.optional_integer("mamba_expand", default=2, least=1) * hidden,
        state=fields.optional_integer("mamba_d_state", default=16, least=1),
        kernel=fields.optional_integer("mamba_d_conv", default=4, least=1),
        time_step_rank=automatic(fields, "mamba_dt_rank", -(-hidden // 16)),
        conv_bias=fields.flag("mamba_conv_bias", default=True),
        bias=fields.flag("mamba_proj_bias"),
        norms=True,
        prefix="mamba",
    )
    return beside(fields, full, (mixer,), dim=hidden // fields.heads)


def jamba_mlp(fields: Fields, bias: bool) -> FeedForward:
    """Jamba: experts every ``expert_layer_period`` layers, as wide as the dense MLP; a single expert is an MLP."""
    period = fields.optional_integer("expert_layer_period", default=2, least=1)
    offset = fields.optional_integer("expert_layer_offset", default=1)
    experts = fields.optional_integer("num_experts", default=16, least=1)
    sparse = tuple(layer for layer in range(fields.layers) if experts > 1 and layer % period == offset)
    hidden, width = fields.hidden, fields.feed_forward
    dense = others(fields.layers, sparse)
    matrices = build.gated_mlp(dense, hidden, width, prefix="feed_forward", bias=bias)
    if not sparse:
        return FeedForward(matrices)
    matrices += build.routed_experts(sparse, hidden, width, experts, prefix="feed_forward.experts")
    matrices += build.router(sparse, hidden, experts, module="feed_forward.router")
    return FeedForward(matrices, len(sparse), experts, fields.integer(*EXPERTS_PER_TOKEN), width)


def _mamba2_of_bamba(fields: Fields, layers: Layers, *, intermediate: int = 0, gated_norm: bool = True) -> Mixer:
    """Mamba-2 as Bamba, Granite 4 and Falcon-H1 write it down (``mamba_*`` keys); as wide as ``mamba_expand`` says."""
    heads = fields.integer("mamba_n_heads")
    intermediate = intermediate or fields.optional_integer("mamba_expand", default=2) * fields.hidden
    return recurrent.mamba2(
        layers,
        fields.hidden,
        intermediate=intermediate,
        heads=heads,
        head_dim=automatic(fields, "mamba_d_head", intermediate // heads),
        state=fields.optional_integer("mamba_d_state", default=256, least=1),
        groups=fields.optional_integer("mamba_n_groups", default=1, least=1),
        kernel=fields.optional_integer("mamba_d_conv", default=4, least=1),
        conv_bias=fields.flag("mamba_conv_bias", default=True),
        bias=fields.flag("mamba_proj_bias"),
        gated_norm=gated_norm,
        prefix="mamba",
        chunk=fields.optional_integer("mamba_chunk_size"),
    )


def granite_hybrid(fields: Fields, _: Windows) -> Attention:
    """Granite 4: Mamba-2 and attention by ``layer_types``."""
    kinds = fields.per_layer("layer_types", "layers_block_type")
    if not kinds:
        fields.note("layer_types", "is missing: it says which layers are Mamba-2")
    full = chosen(kinds, *FULL)
    bias = fields.flag("attention_bias")
    mixer = _mamba2_of_bamba(fields, others(fields.layers, full))
    return beside(fields, full, (mixer,), dim=fields.hidden // fields.heads, qkv_bias=bias, output_bias=bias)


def granite_mlp(fields: Fields, _: bool) -> FeedForward:
    """Granite 4: a shared MLP in every layer and, where the config has experts, routed ones beside it."""
    layers, hidden = every_layer(fields), fields.hidden
    experts = fields.optional_integer("num_local_experts")
    shared = fields.optional_integer("shared_intermediate_size")
    part = Part.SHARED_EXPERTS if experts else Part.MLP
    matrices: Matrices = ()
    if shared:
        matrices += build.gated_mlp(layers, hidden, shared, prefix="shared_mlp", part=part)
    if not experts:
        return FeedForward(matrices)
    width = fields.feed_forward
    matrices += build.routed_experts(layers, hidden, width, experts, prefix="block_sparse_moe.experts")
    matrices += build.router(layers, hidden, experts, module="block_sparse_moe.router.layer")
    return FeedForward(matrices, len(layers), experts, fields.integer(*EXPERTS_PER_TOKEN), width, shared)


def bamba(fields: Fields, _: Windows) -> Attention:
    """Bamba: Mamba-2, and attention in the layers of ``attn_layer_indices``."""
    full = listed(fields, "attn_layer_indices")
    mixer = _mamba2_of_bamba(fields, others(fields.layers, full))
    return beside(fields, full, (mixer,), dim=fields.hidden // fields.heads)


def falcon_h1(fields: Fields, _: Windows) -> Attention:
    """Falcon-H1: attention and Mamba-2 side by side in every layer."""
    layers = every_layer(fields)
    width, gated = fields.optional_integer("mamba_d_ssm"), fields.flag("mamba_rms_norm")
    mixer = _mamba2_of_bamba(fields, layers, intermediate=width, gated_norm=gated)
    return beside(fields, layers, (mixer,))


def mamba_only(fields: Fields, _: Windows) -> Attention:
    """Mamba and Falcon-Mamba: no attention at all. Falcon-Mamba's norms of ``B``, ``C`` and time steps have no scale.

    Falcon-Mamba states ``expand: 16``, which is not used: ``intermediate_size`` is.
    """
    hidden = fields.hidden
    mixer = recurrent.mamba1(
        every_layer(fields),
        hidden,
        intermediate=fields.optional_integer("intermediate_size", "d_inner") or 2 * hidden,
        state=fields.optional_integer("state_size", default=16, least=1),
        kernel=fields.optional_integer("conv_kernel", default=4, least=1),
        time_step_rank=automatic(fields, "time_step_rank", -(-hidden // 16)),
        conv_bias=fields.flag("use_conv_bias", default=True),
        bias=fields.flag("use_bias"),
        norms=False,
        prefix="mixer",
    )
    return attention_free(mixer)


def mamba2_only(fields: Fields, _: Windows) -> Attention:
    """Mamba-2 (Codestral Mamba): no attention at all."""
    heads, dim = fields.integer("num_heads"), fields.integer("head_dim")
    mixer = recurrent.mamba2(
        every_layer(fields),
        fields.hidden,
        intermediate=fields.optional_integer("expand", default=2, least=1) * fields.hidden,
        heads=heads,
        head_dim=dim,
        state=fields.integer("state_size"),
        groups=fields.integer("n_groups"),
        kernel=fields.optional_integer("conv_kernel", default=4, least=1),
        conv_bias=fields.flag("use_conv_bias", default=True),
        bias=fields.flag("use_bias"),
        chunk=fields.optional_integer("chunk_size"),
    )
    return attention_free(mixer)


def no_mlp(_: Fields, __: bool) -> FeedForward:
    """Recurrent layers without a feed-forward part."""
    return FeedForward(())
