"""Families that mix attention with recurrent layers: which layers are which, what they keep, what they are made of.

Each reader gives an `Attention` that holds both, and where the feed-forward part is unusual a `FeedForward` of its own.
Module names are the checkpoint's; splits are those of vLLM's model files (0.33.0 unless another release is named).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from planner.catalog.hf import hf_matrices as build
from planner.catalog.hf import hf_state
from planner.catalog.hf.hf_attention import Attention, head_dim, kv_heads, shared_heads
from planner.catalog.hf.hf_fields import EXPERTS_PER_TOKEN, Fields, shown
from planner.catalog.hf.hf_matrices import FLOAT32, Layers, Matrices
from planner.catalog.hf.hf_mlp import FeedForward, every_layer
from planner.catalog.hf.hf_state import Mixer
from planner.catalog.hf.hf_windows import Windows
from planner.catalog.model_shape import AttentionFamily, CacheKind, CacheLayers, Part, Split

FULL = ("full_attention", "attention", "*")
"""Names of layers with softmax attention."""


def chosen(kinds: Sequence[object], *names: str) -> Layers:
    """Indexes of the layers whose kind is one of ``names``."""
    return tuple(layer for layer, kind in enumerate(kinds) if kind in names)


def others(layers: int, taken: Iterable[int]) -> Layers:
    """Indexes of the layers that are not ``taken``."""
    left = set(taken)
    return tuple(layer for layer in range(layers) if layer not in left)


def beside(
    fields: Fields,
    full: Layers,
    mixers: Sequence[Mixer],
    *,
    dim: int | None = None,
    qkv_bias: bool = False,
    output_bias: bool = False,
    qk_norm: str = "",
    query_gate: bool = False,
    prefix: str = "self_attn",
    output: str = "o_proj",
) -> Attention:
    """Grouped queries in the layers ``full`` beside ``mixers``."""
    heads = fields.heads
    kv = shared_heads(fields, heads, kv_heads(fields))
    size = dim or head_dim(fields)
    matrices = build.grouped_query(
        full,
        fields.hidden,
        heads,
        kv,
        size,
        prefix=prefix,
        output=output,
        qkv_bias=qkv_bias,
        output_bias=output_bias,
        qk_norm=qk_norm,
        query_gate=query_gate,
    )
    cache = (CacheLayers(CacheKind.FULL, len(full), kv, size, size),) if full else ()
    family = AttentionFamily.MHA if kv == heads else AttentionFamily.MQA if kv == 1 else AttentionFamily.GQA
    return with_mixers(Attention(family, cache, heads, kv, size, matrices), mixers)


def with_mixers(attention: Attention, mixers: Sequence[Mixer]) -> Attention:
    """The same attention with recurrent layers beside it, as far as there are any."""
    used = [mixer for mixer in mixers if mixer.state.layers]
    if not used:
        return attention
    matrices = attention.matrices + tuple(matrix for mixer in used for matrix in mixer.matrices)
    return Attention(
        AttentionFamily.HYBRID,
        attention.cache_layers,
        attention.heads,
        attention.kv_heads,
        attention.head_dim,
        matrices,
        tuple(mixer.state for mixer in used),
    )


def attention_free(mixer: Mixer) -> Attention:
    """Recurrent layers only."""
    return Attention(AttentionFamily.NONE, (), 0, 0, 0, mixer.matrices, (mixer.state,))


def typed(fields: Fields, period: int = 4) -> Sequence[object]:
    """Kind of each layer: ``layer_types``, or one full layer every ``full_attention_interval``."""
    stated = fields.per_layer("layer_types")
    if stated:
        return stated
    every = fields.optional_integer("full_attention_interval", default=period, least=1)
    return [FULL[0] if (layer + 1) % every == 0 else "linear_attention" for layer in range(fields.layers)]


def qwen_hybrid(fields: Fields, _: Windows) -> Attention:
    """Qwen3-Next, Qwen3.5 and later: gated delta nets, and attention whose queries carry an output gate.

    Only Qwen3.5's ``mamba_ssm_dtype`` is read by vLLM (``Qwen3_5ForConditionalGenerationConfig``).
    """
    kinds = typed(fields)
    full = chosen(kinds, *FULL)
    joined = fields.model_type == "qwen3_next"
    mixer = hf_state.gated_delta(
        others(len(kinds), full),
        fields.hidden,
        key_heads=fields.integer("linear_num_key_heads"),
        key_dim=fields.integer("linear_key_head_dim"),
        value_heads=fields.integer("linear_num_value_heads"),
        value_dim=fields.integer("linear_value_head_dim"),
        kernel=fields.integer("linear_conv_kernel_dim"),
        precision=None if joined else hf_state.asked_precision(fields, "mamba_ssm_dtype"),
        joined=joined,
    )
    bias = fields.flag("attention_bias")
    gate = fields.flag("attn_output_gate", default=True)
    return beside(fields, full, (mixer,), qkv_bias=bias, output_bias=bias, qk_norm="head", query_gate=gate)


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
    mixer = hf_state.mamba2(
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
        precision=hf_state.asked_precision(fields, "mamba_ssm_cache_dtype"),
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


def latent_projections(
    layers: Layers, hidden: int, latent: int, down: str, up: str, *, quantised: bool = True
) -> Matrices:
    """Into and out of the latent that routed experts work on, whole on every rank."""
    matrices = build.linear(down, hidden, latent, layers, Part.SHARED_EXPERTS, quantised=quantised)
    return matrices + build.linear(up, latent, hidden, layers, Part.SHARED_EXPERTS, quantised=quantised)


def lfm2(fields: Fields, _: Windows) -> Attention:
    """LFM2: gated short convolutions; attention in the layers of ``full_attn_idxs`` or typed so."""
    full = _lfm2_full(fields)
    hidden = fields.hidden
    mixer = hf_state.short_convolution(
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
    indexes = fields.items("full_attn_idxs")
    return tuple(sorted(layer for layer in indexes if isinstance(layer, int) and 0 <= layer < fields.layers))


def lfm2_mlp(fields: Fields, bias: bool) -> FeedForward:
    """LFM2's gated MLP, whose stated width is adjusted: two thirds of it, then up to a multiple."""
    width = fields.optional_integer("block_ff_dim", "intermediate_size", least=1)
    if fields.flag("block_auto_adjust_ff_dim", default=True):
        multiple = fields.optional_integer("block_multiple_of", default=256, least=1)
        width = int(2 * width / 3)
        width = int(_multiplier(fields) * width)
        width = multiple * -(-width // multiple)
    names = ("w1", "w3", "w2")
    layers = every_layer(fields)
    return FeedForward(
        build.gated_mlp(layers, fields.hidden, width, prefix="feed_forward", bias=bias, names=names, fused="w13")
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
    names = ("w1", "w3", "w2")
    matrices = build.gated_mlp(
        tuple(range(dense)), hidden, fields.feed_forward, prefix="feed_forward", bias=bias, names=names, fused="w13"
    )
    matrices += build.routed_experts(sparse, hidden, width, experts, prefix="feed_forward.experts", names=names)
    correction = fields.flag("use_expert_bias", default=True)
    matrices += build.router(sparse, hidden, experts, module="feed_forward.gate", correction=correction)
    return FeedForward(matrices, len(sparse), experts, fields.integer(*EXPERTS_PER_TOKEN), width)


def jamba(fields: Fields, _: Windows) -> Attention:
    """Jamba: one attention layer every ``attn_layer_period``; the others are Mamba, which vLLM never quantises."""
    period = fields.optional_integer("attn_layer_period", default=8, least=1)
    offset = fields.optional_integer("attn_layer_offset", default=4)
    full = tuple(layer for layer in range(fields.layers) if layer % period == offset)
    hidden = fields.hidden
    mixer = hf_state.mamba1(
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


def automatic(fields: Fields, key: str, derived: int) -> int:
    """A size that may be left to the class: absent, ``null`` or ``"auto"`` means ``derived``."""
    return derived if fields.get(key) in (None, "auto") else fields.integer(key)


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


def _mamba2_of_bamba(fields: Fields, layers: Layers, prefix: str, **sizes: int) -> Mixer:
    """Mamba-2 as Bamba, Granite 4, Falcon-H1 and Zamba2 write it down (``mamba_*`` keys)."""
    heads = fields.integer("mamba_n_heads")
    intermediate = sizes.get("intermediate") or fields.optional_integer("mamba_expand", default=2) * fields.hidden
    return hf_state.mamba2(
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
        gated_norm=bool(sizes.get("gated_norm", True)),
        prefix=prefix,
        chunk=fields.optional_integer("mamba_chunk_size"),
        with_attention=bool(sizes.get("with_attention", False)),
    )


def granite_hybrid(fields: Fields, _: Windows) -> Attention:
    """Granite 4: Mamba-2 and attention by ``layer_types``."""
    kinds = fields.per_layer("layer_types", "layers_block_type")
    if not kinds:
        fields.note("layer_types", "is missing: it says which layers are Mamba-2")
    full = chosen(kinds, *FULL)
    bias = fields.flag("attention_bias")
    mixer = _mamba2_of_bamba(fields, others(fields.layers, full), "mamba")
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
    indexes = fields.items("attn_layer_indices")
    full = tuple(sorted(layer for layer in indexes if isinstance(layer, int) and 0 <= layer < fields.layers))
    mixer = _mamba2_of_bamba(fields, others(fields.layers, full), "mamba")
    return beside(fields, full, (mixer,), dim=fields.hidden // fields.heads)


def falcon_h1(fields: Fields, _: Windows) -> Attention:
    """Falcon-H1: attention and Mamba-2 side by side in every layer."""
    layers = every_layer(fields)
    width = fields.optional_integer("mamba_d_ssm") or fields.optional_integer("mamba_expand", default=2) * fields.hidden
    gated_norm = fields.flag("mamba_rms_norm")
    mixer = _mamba2_of_bamba(
        fields, layers, "mamba", intermediate=width, gated_norm=int(gated_norm), with_attention=True
    )
    return beside(fields, layers, (mixer,))


def minimax_lightning(fields: Fields, _: Windows) -> Attention:
    """MiniMax-Text-01 and M1 (vLLM 0.19.0): lightning attention where ``attn_type_list`` says 0."""
    marks = fields.per_layer("attn_type_list", "layer_types")
    if not marks:
        fields.note("attn_type_list", "is missing: it says which layers are lightning attention")
    full = chosen(marks, *FULL) + tuple(layer for layer, mark in enumerate(marks) if mark == 1)
    dim = head_dim(fields)
    mixer = hf_state.lightning(others(fields.layers, full), fields.hidden, heads=fields.heads, head_dim=dim)
    return beside(fields, full, (mixer,))


def minimax_mlp(fields: Fields, _: bool) -> FeedForward:
    """MiniMax-Text-01 and M1: routed experts in every layer; the router is kept at 32 bits."""
    layers, hidden, width = every_layer(fields), fields.hidden, fields.feed_forward
    experts = fields.integer("num_local_experts")
    prefix = "block_sparse_moe"
    matrices = build.routed_experts(
        layers, hidden, width, experts, prefix=f"{prefix}.experts", names=("w1", "w3", "w2")
    )
    matrices += build.router(layers, hidden, experts, module=f"{prefix}.gate", bytes_per_element=FLOAT32)
    return FeedForward(matrices, len(layers), experts, fields.integer(*EXPERTS_PER_TOKEN), width)


def kimi(fields: Fields, _: Windows) -> Attention:
    """Kimi-Linear and Kimi-K3: Kimi delta attention, and latent attention in the layers of ``full_attn_layers``.

    Layers are counted from 1 there. Without ``linear_attn_config`` every layer is latent attention.
    """
    config = fields.table("linear_attn_config")
    delta = _from_one(fields, config.get("kda_layers"))
    full = others(fields.layers, delta)
    hidden, heads = fields.hidden, fields.heads
    kv_rank, rope = fields.integer("kv_lora_rank"), fields.integer("qk_rope_head_dim")
    value = fields.integer("v_head_dim")
    matrices = build.latent(
        full,
        hidden,
        heads,
        query_rank=fields.optional_integer("q_lora_rank"),
        kv_rank=kv_rank,
        nope=fields.integer("qk_nope_head_dim"),
        rope=rope,
        value=value,
    )
    if full and fields.flag("mla_use_output_gate"):
        matrices += build.linear("self_attn.g_proj", hidden, heads * value, full, Part.ATTENTION, Split.COLUMN)
    cache = (CacheLayers(CacheKind.FULL, len(full), 1, kv_rank + rope, 0),) if full else ()
    latent = Attention(AttentionFamily.MLA, cache, heads, 1, kv_rank + rope, matrices + _attention_residuals(fields))
    if not delta:
        return latent
    mixer = hf_state.kimi_delta(
        delta,
        hidden,
        heads=_size(fields, config, "num_heads"),
        head_dim=_size(fields, config, "head_dim"),
        kernel=_size(fields, config, "short_conv_kernel_size"),
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


def _size(fields: Fields, config: Mapping[str, object], key: str) -> int:
    value = config.get(key)
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    fields.note(f"linear_attn_config.{key}", f"is no whole number above 0 (got {value!r:.40})")
    return 1


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
        sparse, latent or hidden, width, experts, prefix=f"{prefix}.experts", names=("w1", "w3", "w2")
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


def mamba_only(fields: Fields, _: Windows) -> Attention:
    """Mamba and Falcon-Mamba: no attention at all. Falcon-Mamba's norms of ``B``, ``C`` and time steps have no scale.

    Falcon-Mamba states ``expand: 16``, which is not used: ``intermediate_size`` is.
    """
    hidden = fields.hidden
    mixer = hf_state.mamba1(
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
    mixer = hf_state.mamba2(
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
