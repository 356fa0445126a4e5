"""Families of routed experts that write their layers down in a way of their own.

Sources: vLLM 0.33.0, ``afmoe.py``, ``bailing_moe.py``, ``bailing_moe_linear.py``, ``dbrx.py``, ``exaone_moe.py``,
``granitemoeshared.py``, ``hunyuan_v1.py``, ``olmo_hybrid.py``, and transformers 5.23.0.
"""

from __future__ import annotations

from dataclasses import replace

from planner.catalog.hf import matrices as build
from planner.catalog.hf import recurrent
from planner.catalog.hf.attention import Attention, cache_of, grouped_query, head_dim, latent_in
from planner.catalog.hf.fields import EXPERTS, EXPERTS_PER_TOKEN, Fields, is_whole
from planner.catalog.hf.hybrid import FULL, beside, chosen, others, typed, with_mixers
from planner.catalog.hf.matrices import FLOAT32, Layers
from planner.catalog.hf.mlp import FeedForward, every_layer
from planner.catalog.hf.recurrent import Mixer
from planner.catalog.hf.windows import Windows
from planner.catalog.matrix import Part, Split
from planner.catalog.model_shape import AttentionFamily


def routed(
    fields: Fields,
    sparse: Layers,
    *,
    width: int,
    shared: int,
    correction: bool,
    prefix: str = "mlp",
    router_bytes: int | None = None,
    per_token: tuple[str, ...] = EXPERTS_PER_TOKEN,
) -> FeedForward:
    """Routed and shared experts in the layers ``sparse``, a gated MLP in the others."""
    hidden, experts = fields.hidden, fields.integer(*EXPERTS)
    matrices = build.gated_mlp(others(fields.layers, sparse), hidden, fields.feed_forward)
    matrices += build.routed_experts(sparse, hidden, width, experts, prefix=f"{prefix}.experts")
    matrices += build.router(
        sparse, hidden, experts, module=f"{prefix}.gate", correction=correction, bytes_per_element=router_bytes
    )
    if shared:
        matrices += build.shared_experts(sparse, hidden, shared, prefix=f"{prefix}.shared_experts")
    return FeedForward(matrices, len(sparse), experts, fields.integer(*per_token), width, shared)


def typed_or_after(fields: Fields, *first: str) -> Layers:
    """Sparse layers: those typed ``sparse``, or all from the layer that one of ``first`` names."""
    types = fields.per_layer("mlp_layer_types")
    if types:
        return tuple(layer for layer, kind in enumerate(types) if kind == "sparse")
    return tuple(range(min(fields.layers, fields.optional_integer(*first)), fields.layers))


def shared_of_equal_width(fields: Fields, _: bool) -> FeedForward:
    """K-EXAONE, AFMoE and the like: ``num_shared_experts`` as wide as a routed one; a float32 correction."""
    width = fields.integer("moe_intermediate_size")
    sparse = typed_or_after(fields, "first_k_dense_replace", "num_dense_layers", "first_last_k_dense_replace")
    shared = fields.optional_integer("num_shared_experts", "n_shared_experts") * width
    return routed(fields, sparse, width=width, shared=shared, correction=True)


def hy_v3_mlp(fields: Fields, _: bool) -> FeedForward:
    """HunYuan 3: router and correction at 32 bits (``hy_v3.py``)."""
    width = fields.integer("expert_hidden_dim", "moe_intermediate_size")
    sparse = typed_or_after(fields, "first_k_dense_replace")
    shared = fields.optional_integer("num_shared_experts") * width
    return routed(fields, sparse, width=width, shared=shared, correction=True, router_bytes=FLOAT32)


def bailing_mlp(fields: Fields, _: bool) -> FeedForward:
    """Ling and Ring: shared experts of their own width; router and correction at 32 bits where the config says so."""
    width = fields.integer("moe_intermediate_size")
    each = fields.optional_integer("moe_shared_expert_intermediate_size") or width
    return routed(
        fields,
        typed_or_after(fields, "first_k_dense_replace"),
        width=width,
        shared=fields.optional_integer("num_shared_experts", "n_shared_experts") * each,
        correction=fields.flag("moe_router_enable_expert_bias"),
        router_bytes=FLOAT32 if fields.get("router_dtype") == "fp32" else None,
    )


def bailing(fields: Fields, windows: Windows) -> Attention:
    """Ling: grouped queries, biased by ``use_bias`` or ``use_qkv_bias``."""
    bias = fields.flag("use_bias")
    return grouped_query(
        fields,
        windows,
        qkv_bias=bias or fields.flag("use_qkv_bias"),
        output_bias=bias,
        qk_norm="head" if fields.flag("use_qk_norm") else "",
    )


def bailing_hybrid(fields: Fields, _: Windows) -> Attention:
    """Ling 2.5 and 3: latent attention in the last layer of each ``layer_group_size``, linear layers between.

    They are lightning attention in Ling 2.5, and Kimi delta attention in Ling 3, where the layers after the last whole
    group are latent attention as well.
    """
    group = fields.optional_integer("layer_group_size", default=1, least=1)
    delta = fields.states("short_conv_kernel_size")
    whole = fields.layers // group * group if delta else fields.layers
    full = tuple(layer for layer in range(fields.layers) if (layer + 1) % group == 0 or layer >= whole)
    latent = latent_in(fields, full, prefix="attention")
    linear = others(fields.layers, full)
    return with_mixers(latent, (_linear_layers(fields, linear, delta),)) if linear else latent


def _linear_layers(fields: Fields, layers: Layers, delta: bool) -> Mixer:
    heads = fields.heads
    dim = fields.optional_integer("head_dim", least=1) or fields.hidden // heads
    if not delta:
        return recurrent.lightning(layers, fields.hidden, heads=heads, head_dim=dim, prefix="attention")
    return recurrent.kimi_delta(
        layers,
        fields.hidden,
        heads=heads,
        head_dim=dim,
        kernel=fields.integer("short_conv_kernel_size"),
        full_rank_gate=True,
        full_rank_decay=True,
        bounded_gate=fields.flag("kda_safe_gate", default=True),
        prefix="attention",
    )


def afmoe(fields: Fields, windows: Windows) -> Attention:
    """AFMoE (Trinity): grouped queries with a gate on what attention gives out."""
    shape = grouped_query(fields, windows, qk_norm="head")
    width = fields.heads * head_dim(fields)
    gate = build.linear("self_attn.gate_proj", fields.hidden, width, every_layer(fields), Part.ATTENTION, Split.COLUMN)
    return replace(shape, matrices=shape.matrices + gate)


def hunyuan_mlp(fields: Fields, _: bool) -> FeedForward:
    """HunYuan: experts in every layer; widths, shared experts and choices may be lists with an entry per layer."""
    width = _first(fields, "moe_intermediate_size") or fields.feed_forward
    shared = _first(fields, "num_shared_expert") * fields.feed_forward
    hidden, experts, layers = fields.hidden, fields.integer(*EXPERTS), every_layer(fields)
    matrices = build.routed_experts(layers, hidden, width, experts)
    matrices += build.router(layers, hidden, experts, module="mlp.gate.wg", bytes_per_element=FLOAT32)
    if shared:
        matrices += build.shared_experts(layers, hidden, shared, prefix="mlp.shared_mlp")
    return FeedForward(matrices, len(layers), experts, max(1, _first(fields, "moe_topk")), width, shared)


def _first(fields: Fields, key: str) -> int:
    """A number, or the first of a list of equal numbers; 0 where the config is silent."""
    stated = fields.get(key)
    if not isinstance(stated, list):
        return fields.optional_integer(key)
    numbers = {int(value) for value in stated if is_whole(value) and value >= 0}
    if len(numbers) != 1:
        fields.note(key, "differs between layers", "Only one size for all layers is modelled")
    return min(numbers, default=0)


def olmo_hybrid(fields: Fields, _: Windows) -> Attention:
    """OLMo Hybrid: gated delta nets beside attention; ``A_log`` is at the model's precision, norms as in OLMo 2."""
    kinds = typed(fields)
    full = chosen(kinds, *FULL)
    heads = fields.heads
    mixer = recurrent.gated_delta(
        others(fields.layers, full),
        fields.hidden,
        key_heads=fields.optional_integer("linear_num_key_heads", default=heads, least=1),
        key_dim=fields.integer("linear_key_head_dim"),
        value_heads=fields.optional_integer("linear_num_value_heads", default=heads, least=1),
        value_dim=fields.integer("linear_value_head_dim"),
        kernel=fields.optional_integer("linear_conv_kernel_dim", default=4, least=1),
    )
    plain = tuple(replace(matrix, bytes_per_element=None) for matrix in mixer.matrices)
    return beside(fields, full, (Mixer(mixer.state, plain),), qk_norm="full")


def dbrx(fields: Fields, windows: Windows) -> Attention:
    """DBRX: KV heads in ``attn_config``; keys and values of a plain size."""
    kv = fields.table("attn_config").get("kv_n_heads")
    heads = fields.heads
    if not isinstance(kv, int) or isinstance(kv, bool) or kv < 1 or heads % kv:
        fields.note("attn_config.kv_n_heads", f"{kv!r:.40} KV heads cannot be shared by {heads} query heads")
        kv = heads
    dim = fields.hidden // heads
    matrices = build.grouped_query(every_layer(fields), fields.hidden, heads, kv, dim)
    return Attention(AttentionFamily.GQA, cache_of(windows, kv, dim, dim), heads, kv, dim, matrices)


def dbrx_mlp(fields: Fields, _: bool) -> FeedForward:
    """DBRX: experts in every layer, by ``ffn_config``."""
    sizes = ("ffn_hidden_size", "moe_num_experts", "moe_top_k")
    width, experts, per_token = (fields.nested_integer("ffn_config", key) for key in sizes)
    layers, hidden = every_layer(fields), fields.hidden
    matrices = build.routed_experts(layers, hidden, width, experts, prefix="ffn.experts")
    matrices += build.router(layers, hidden, experts, module="ffn.router.layer")
    return FeedForward(matrices, len(layers), experts, per_token, width, dense_intermediate=width)


def minicpmv(fields: Fields, windows: Windows) -> Attention:
    """MiniCPM-V: a text model by ``version``: Qwen2 with biases (2.6), MiniCPM (4.0) or Qwen3 with norms (4.5)."""
    version = str(fields.get("version"))
    return grouped_query(
        fields,
        windows,
        qkv_bias=version == "2.6",
        qk_norm="head" if version == "4.5" else "",
    )
