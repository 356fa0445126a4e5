"""Families with recurrent, shared, compressed or unlike layers, each checked by hand or by its published size."""

from __future__ import annotations

from typing import Any

import pytest

from planner.catalog.hf.config import read_model_shape
from planner.catalog.hf.families import REGISTRY
from planner.catalog.load import load_catalog
from planner.catalog.matrix import Part, Split
from planner.catalog.model_shape import AttentionFamily, CacheKind, CacheLayers, CacheRole, ModelShape, StateKind
from planner.errors import InputError
from planner.memory.states import VLLM_STATES, states_bytes

CATALOG = load_catalog()
BASE: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
}


def read(model_type: str, **changes: Any) -> ModelShape:
    return read_model_shape({**BASE, "model_type": model_type, **changes}, "test/model")


def elements(shape: ModelShape, *modules: str) -> int:
    return sum(matrix.elements for matrix in shape.matrices if matrix.module in modules)


def problems(model_type: str, **changes: Any) -> set[str]:
    with pytest.raises(InputError) as error:
        read(model_type, **changes)
    return {problem.field for problem in error.value.problems}


GATED_DELTA = {
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 8,
    "linear_num_value_heads": 4,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
    "head_dim": 16,
}


def test_every_fourth_layer_of_qwen_hybrids_is_attention_with_a_gate() -> None:
    """Queries 2 x 4 x 16 wide; 6 delta layers convolve 2 x 16 + 64 channels and keep 4 x 16 x 8 elements."""
    shape = read("qwen3_5_text", **GATED_DELTA, mamba_ssm_dtype="float32")
    assert shape.cache_layers == (CacheLayers(CacheKind.FULL, 2, 2, 16, 16),)
    (state,) = shape.state_layers
    assert (state.layers, state.conv_channels, state.heads * state.head_dim * state.state_size) == (
        (0, 1, 2, 4, 5, 6),
        96,
        512,
    )
    assert states_bytes(shape.state_layers, 1, VLLM_STATES) == 6 * (3 * 96 * 2 + 512 * 4)
    assert elements(shape, "self_attn.q_proj") == 2 * 64 * 128
    assert elements(shape, "linear_attn.in_proj_qkv", "linear_attn.in_proj_z") == 6 * 64 * (96 + 64)
    listed = read("qwen3_5_text", **GATED_DELTA, layer_types=["full_attention"] + ["linear_attention"] * 7)
    assert listed.state_layers[0].layers == tuple(range(1, 8))
    assert listed.state_layers[0].state_bytes_per_element is None


def test_only_qwen3_5_reads_the_precision_of_its_states() -> None:
    shape = read("qwen3_next", **GATED_DELTA, mamba_ssm_dtype="float32", **EXPERTS)
    assert shape.state_layers[0].state_bytes_per_element is None
    assert problems("qwen3_5_text", **GATED_DELTA, mamba_ssm_dtype="int4") == {"mamba_ssm_dtype"}


EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
MAMBA2 = {
    "mamba_num_heads": 4,
    "mamba_head_dim": 16,
    "ssm_state_size": 8,
    "n_groups": 2,
    "conv_kernel": 4,
    "mlp_bias": False,
    "head_dim": 16,
}


def test_blocks_of_nemotron_h_by_letters_and_by_names() -> None:
    """M Mamba-2, * attention, - MLP, E experts; in_proj is 64 x (2 x 64 + 2 x 2 x 8 + 4)."""
    experts = {
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "n_shared_experts": 1,
        "moe_shared_expert_intermediate_size": 48,
        "moe_latent_size": 16,
    }
    shape = read("nemotron_h", **MAMBA2, **experts, hybrid_override_pattern="MEM*-MEM", mamba_ssm_cache_dtype="float32")
    names = ["mamba", "moe", "mamba", "attention", "mlp", "mamba", "moe", "mamba"]
    assert shape.cache_layers == (CacheLayers(CacheKind.FULL, 1, 2, 16, 16),)
    assert shape.state_layers[0].layers == (0, 2, 5, 7)
    assert elements(shape, "mixer.in_proj") == 4 * 64 * (128 + 32 + 4)
    assert elements(shape, "mixer.experts.*.up_proj") == 2 * 4 * 16 * 32
    assert elements(shape, "mixer.shared_experts.up_proj") == 2 * 64 * 48
    assert elements(shape, "mixer.fc1_latent_proj", "mixer.fc2_latent_proj") == 2 * 2 * 64 * 16
    assert elements(shape, "mixer.up_proj") == 64 * 128
    assert states_bytes(shape.state_layers, 1, VLLM_STATES) == 4 * (3 * (64 + 32) * 2 + 4 * 16 * 8 * 4)
    named = read("nemotron_h", **MAMBA2, **experts, layers_block_type=names, mamba_ssm_cache_dtype="float32")
    assert named.matrices == shape.matrices
    alone = {**BASE, "model_type": "nemotron_h", **MAMBA2, **experts, "layers_block_type": names}
    del alone["num_hidden_layers"]
    assert read_model_shape(alone, "x").num_layers == 8
    assert problems("nemotron_h", **MAMBA2, **experts, hybrid_override_pattern="MEM*") == {"hybrid_override_pattern"}


def test_groups_of_mamba2_are_split_like_kv_heads() -> None:
    """Of one group every rank holds B and C whole; gate, inputs and time steps are split."""
    shape = read("nemotron_h", **{**MAMBA2, "n_groups": 1}, hybrid_override_pattern="MMMM----")
    projections = [matrix for matrix in shape.matrices if matrix.module == "mixer.in_proj"]
    assert {(matrix.split, matrix.out_features, matrix.heads) for matrix in projections} == {
        (Split.COLUMN, 2 * 64 + 4, 1),
        (Split.KV_HEADS, 2 * 8, 1),
    }


def test_lfm2_adjusts_the_width_of_its_mlp() -> None:
    """Two thirds of 12,288 is 8,192; of 400 it is 266, rounded up to 512."""
    lfm2 = {"full_attn_idxs": [2, 5], "conv_L_cache": 3, "conv_dim": 64}
    shape = read("lfm2", **lfm2, block_ff_dim=400)
    assert elements(shape, "feed_forward.w1") == 8 * 64 * 512
    assert shape.state_layers[0].layers == (0, 1, 3, 4, 6, 7)
    assert states_bytes(shape.state_layers, 1, VLLM_STATES) == 6 * 2 * 64 * 2
    assert CATALOG.model_shape("LiquidAI/LFM2-1.2B").parameters.total == 1_170_340_608
    assert problems("lfm2", **lfm2, block_ffn_dim_multiplier=-1) == {"block_ffn_dim_multiplier"}


def test_jamba_alternates_attention_and_experts() -> None:
    """8 layers: attention in layer 4, experts in the odd ones; Mamba's projections are never quantised."""
    shape = read("jamba", num_experts=4, num_experts_per_tok=2, mamba_dt_rank="auto")
    assert shape.cache_layers == (CacheLayers(CacheKind.FULL, 1, 2, 16, 16),)
    assert shape.num_moe_layers == 4
    assert elements(shape, "mamba.dt_proj") == 7 * 4 * 128
    assert not any(matrix.linear for matrix in shape.matrices if matrix.part is Part.STATE)
    assert states_bytes(shape.state_layers, 1, VLLM_STATES) == 7 * (3 * 128 + 128 * 16) * 2


def test_granite_4_with_and_without_experts() -> None:
    kinds = ["mamba", "attention"] * 4
    mamba = {"mamba_n_heads": 8, "mamba_d_state": 16, "mamba_n_groups": 1, "mamba_d_conv": 4, "layer_types": kinds}
    dense = read("granitemoehybrid", **mamba, num_local_experts=0, shared_intermediate_size=96)
    assert (dense.num_experts, elements(dense, "shared_mlp.gate_proj")) == (0, 8 * 64 * 96)
    assert dense.state_layers[0].head_dim == 2 * 64 // 8
    sparse = read("granitemoehybrid", **mamba, num_local_experts=4, num_experts_per_tok=2, shared_intermediate_size=96)
    assert elements(sparse, "block_sparse_moe.experts.*.up_proj") == 8 * 4 * 64 * 128
    assert problems("granitemoehybrid", **{**mamba, "layer_types": None}, num_local_experts=0) == {"layer_types"}


def test_a_hybrid_without_recurrent_layers_holds_none_of_their_matrices() -> None:
    """Granite 4 Micro: every layer is attention."""
    mamba = {"mamba_n_heads": 8, "mamba_d_state": 16, "mamba_n_groups": 1, "mamba_d_conv": 4}
    shape = read("granitemoehybrid", **mamba, layer_types=["attention"] * 8, num_local_experts=0)
    assert (shape.state_layers, shape.family) == ((), AttentionFamily.GQA)
    assert not any(matrix.part is Part.STATE for matrix in shape.matrices)


def test_falcon_h1_has_both_in_every_layer() -> None:
    """Width ``mamba_d_ssm``, not ``mamba_expand x hidden``."""
    mamba = {"mamba_n_heads": 8, "mamba_d_state": 16, "mamba_n_groups": 1, "mamba_d_conv": 4, "mamba_d_ssm": 96}
    shape = read("falcon_h1", **mamba, head_dim=16)
    (state,) = shape.state_layers
    assert state.layers == tuple(range(8))
    assert shape.cache_layers[0].count == 8
    assert (state.conv_channels, state.head_dim) == (96 + 2 * 16, 12)
    assert not any(matrix.module == "mamba.norm" for matrix in shape.matrices)


def test_lightning_layers_are_those_marked_0() -> None:
    shape = read("minimax_m1", attn_type_list=[0, 0, 0, 1] * 2, head_dim=16, num_local_experts=4, num_experts_per_tok=2)
    assert shape.cache_layers == (CacheLayers(CacheKind.FULL, 2, 2, 16, 16),)
    assert states_bytes(shape.state_layers, 1, VLLM_STATES) == 6 * 4 * 16 * 16 * 2
    router = next(matrix for matrix in shape.matrices if matrix.part is Part.ROUTER)
    assert router.bytes_per_element == 4


LATENT = {"kv_lora_rank": 32, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16}
KDA = {"num_heads": 4, "head_dim": 16, "short_conv_kernel_size": 4, "kda_layers": [1, 2, 3, 5, 6, 7]}


def test_layers_of_kimi_are_counted_from_1() -> None:
    """Latents in layers 3 and 7; K3's experts work on a latent, its gate is of full rank and bounded."""
    experts = {
        "num_experts": 4,
        "num_experts_per_token": 2,
        "moe_intermediate_size": 32,
        "first_k_dense_replace": 1,
        "num_shared_experts": 1,
    }
    linear = read("kimi_linear", **LATENT, **experts, linear_attn_config=KDA)
    assert linear.cache_layers == (CacheLayers(CacheKind.FULL, 2, 1, 40, 0),)
    assert linear.state_layers[0].layers == (0, 1, 2, 4, 5, 6)
    assert states_bytes(linear.state_layers, 1, VLLM_STATES) == 6 * (3 * 3 * 64 * 2 + 4 * 16 * 16 * 4)
    assert elements(linear, "self_attn.g_a_proj") == 6 * 64 * 16
    k3 = {**KDA, "use_full_rank_gate": True, "gate_lower_bound": -5.0}
    shape = read("kimi_linear", **LATENT, **experts, linear_attn_config=k3, routed_expert_hidden_size=24)
    assert shape.state_layers[0].bounded_gate
    assert elements(shape, "block_sparse_moe.experts.*.w1") == 7 * 4 * 24 * 32
    assert elements(shape, "self_attn.g_proj") == 6 * 64 * 64
    assert read("kimi_linear", **LATENT, **experts).family is AttentionFamily.MLA
    assert problems("kimi_linear", **LATENT, **experts, linear_attn_config={"kda_layers": [1]}) == {
        "linear_attn_config.num_heads",
        "linear_attn_config.head_dim",
        "linear_attn_config.short_conv_kernel_size",
    }


def test_a_model_without_attention() -> None:
    """Falcon-Mamba: 64 layers of (3 + 16) x 8,192 x 2 B, no cache, no length of its own (vLLM: 2,048)."""
    shape = CATALOG.model_shape("tiiuae/falcon-mamba-7b")
    assert (shape.cache_layers, shape.attention_heads, shape.family) == ((), 0, AttentionFamily.NONE)
    assert states_bytes(shape.state_layers, 1, VLLM_STATES) == 64 * (3 + 16) * 8192 * 2
    assert (shape.max_position_embeddings, shape.context_unstated) == (2048, True)
    assert shape.parameters.total == pytest.approx(7.27e9, rel=0.001)
    mamba2 = read("mamba2", num_heads=8, head_dim=16, state_size=16, n_groups=2, time_step_limit=[0.0, float("inf")])
    assert mamba2.state_layers[0].conv_channels == 128 + 2 * 2 * 16


def test_ling_between_its_latent_layers() -> None:
    """9 layers in groups of 4. Ling 2.5: layers 3 and 7 are latent; Ling 3: also layer 8, after the last group."""
    sizes = {
        "num_hidden_layers": 9,
        "layer_group_size": 4,
        "head_dim": 16,
        "num_shared_experts": 1,
        "first_k_dense_replace": 1,
        **LATENT,
        **EXPERTS,
    }
    lightning = read("bailing_hybrid", **sizes)
    assert lightning.state_layers[0].kind is StateKind.LIGHTNING
    assert lightning.state_layers[0].layers == (0, 1, 2, 4, 5, 6, 8)
    delta = read("bailing_hybrid", **sizes, short_conv_kernel_size=4)
    assert delta.state_layers[0].kind is StateKind.KIMI_DELTA
    assert delta.state_layers[0].layers == (0, 1, 2, 4, 5, 6)
    assert elements(delta, "attention.f_proj") == 6 * 64 * 64
    assert delta.cache_layers[0].count == 3


def test_olmo_hybrid_keeps_its_decay_at_16_bits() -> None:
    kinds = ["linear_attention", "linear_attention", "linear_attention", "full_attention"] * 2
    shape = read("olmo_hybrid", linear_key_head_dim=8, linear_value_head_dim=16, layer_types=kinds)
    assert shape.state_layers[0].heads == 4
    assert not any(matrix.bytes_per_element for matrix in shape.matrices)


@pytest.mark.parametrize(("version", "bias", "norms"), [(2.6, True, False), (4.0, False, False), (4.5, False, True)])
def test_the_text_model_of_minicpm_v_follows_its_version(version: float, bias: bool, norms: bool) -> None:
    modules = {matrix.module for matrix in read("minicpmv", version=version).matrices}
    assert ("self_attn.q_proj.bias" in modules, "self_attn.q_norm" in modules) == (bias, norms)


def test_the_last_layers_of_gemma_3n_read_other_layers_caches() -> None:
    """Of 8 layers 3 share; of the 5 others the fifth is full. The checkpoint holds keys of all 8."""
    shape = read("gemma3n_text", head_dim=16, sliding_window=32, num_kv_shared_layers=3, intermediate_size=[128] * 8)
    by_kind = {layers.kind: layers for layers in shape.cache_layers}
    assert (by_kind[CacheKind.SLIDING].count, by_kind[CacheKind.SLIDING].sharing_layers) == (4, 3)
    assert (by_kind[CacheKind.FULL].count, by_kind[CacheKind.FULL].sharing_layers) == (1, 0)
    assert elements(shape, "self_attn.q_proj") == 8 * 64 * 64
    unused = [matrix for matrix in shape.matrices if matrix.shared_cache]
    assert sum(matrix.elements for matrix in unused) == 3 * (2 * 64 * 32 + 16)
    assert problems("gemma3n_text", head_dim=16, num_kv_shared_layers=8) == {"num_kv_shared_layers"}


def test_gemma_4_e2b() -> None:
    """35 layers, 20 of which share; embeddings per layer: 262,144 x 35 x 256; MLPs of sharing layers twice as wide."""
    shape = CATALOG.model_shape("google/gemma-4-E2B-it")
    assert sum(layers.count for layers in shape.cache_layers) == 15
    assert sum(layers.sharing_layers for layers in shape.cache_layers) == 20
    assert elements(shape, "embed_tokens_per_layer") == 262_144 * 35 * 256
    assert elements(shape, "mlp.gate_proj") == 1536 * (15 * 6144 + 20 * 12_288)
    assert shape.active_parameters < shape.parameters.total / 2


def test_zamba2_shares_blocks_and_keeps_a_cache_for_every_use() -> None:
    kinds = ["mamba", "mamba", "hybrid", "mamba"] * 2
    shape = read("zamba2", layers_block_type=kinds, n_mamba_heads=8, num_mem_blocks=1, adapter_rank=4)
    assert shape.cache_layers == (CacheLayers(CacheKind.FULL, 2, 4, 32, 32),)
    assert shape.state_layers[0].count == 8
    assert elements(shape, "shared_transformer.self_attn.q_proj") == 128 * 128
    assert elements(shape, "shared_transformer.feed_forward.gate_up_proj_adapter.1") == 2 * 4 * 2 * 128
    assert problems("zamba2") == {"layers_block_type"}


def test_nemotron_nas_reads_each_block() -> None:
    """ffn_mult 2.625 of 8,192: int(14,336) is a multiple of 256; 31 of 80 blocks have no attention."""
    shape = CATALOG.model_shape("nvidia/Llama-3_3-Nemotron-Super-49B-v1")
    assert [(layers.count, layers.kv_heads) for layers in shape.cache_layers] == [(49, 8)]
    assert any(matrix.module == "mlp.gate_proj" and matrix.out_features == 14_336 for matrix in shape.matrices)
    block = {"attention": {"no_op": True}, "ffn": {"ffn_mult": 2.0}}
    odd = {"attention": {"n_heads_in_group": 3}, "ffn": {"no_op": True}}
    assert problems("nemotron-nas", block_configs=[block] * 7 + [odd]) == {"block_configs"}


def test_longcat_has_two_attentions_a_layer() -> None:
    """Published as 560 B parameters, 27 B of them active on average; every token of 28 layers has 56 latents."""
    shape = CATALOG.model_shape("meituan-longcat/LongCat-Flash-Chat")
    assert shape.cache_layers == (CacheLayers(CacheKind.FULL, 56, 1, 576, 0),)
    assert shape.parameters.total == pytest.approx(560e9, rel=0.005)


def test_minimax_m3_keeps_an_index() -> None:
    """57 sparse layers keep a key of 128 x 2 B; with 60 x 4 x 2 x 128 x 2 B it makes 137,472 B a token."""
    shape = CATALOG.model_shape("nvidia/MiniMax-M3-NVFP4")
    index = next(layers for layers in shape.cache_layers if layers.role is CacheRole.INDEX)
    assert (index.count, index.fixed_bytes_per_token) == (57, 256)
    tokens = next(layers for layers in shape.cache_layers if layers.role is CacheRole.TOKENS)
    assert 57 * 256 + tokens.count * tokens.kv_heads * 2 * tokens.key_dim * 2 == 137_472
    assert problems("minimax_m3", sparse_attention_config={"sparse_attention_freq": [1]}, num_local_experts=4) >= {
        "sparse_attention_config.sparse_attention_freq"
    }


def test_deepseek_v4_compresses() -> None:
    """43 windows; 21 layers at 1/4 with an index, 20 at 1/128; compressors of 8,192, 2,048 and 4,096 B a token."""
    shape = CATALOG.model_shape("deepseek-ai/DeepSeek-V4-Flash")
    found = {
        (layers.role, layers.count, layers.tokens_per_state, layers.window_tokens, layers.fixed_bytes_per_token)
        for layers in shape.cache_layers
    }
    assert found == {
        (CacheRole.TOKENS, 43, 1, 128, 584),
        (CacheRole.TOKENS, 21, 4, None, 584),
        (CacheRole.TOKENS, 20, 128, None, 584),
        (CacheRole.INDEX, 21, 4, None, 132),
        (CacheRole.COMPRESSOR, 21, 1, 8, 8192),
        (CacheRole.COMPRESSOR, 21, 1, 8, 2048),
        (CacheRole.COMPRESSOR, 20, 1, 128, 4096),
    }
    assert shape.parameters.total == pytest.approx(284e9, rel=0.002)
    assert shape.active_parameters == pytest.approx(13e9, rel=0.03)


def test_deepseek_v4_refuses_a_ratio_that_engines_do_not_know() -> None:
    v4 = {
        "head_dim": 32,
        "q_lora_rank": 16,
        "o_groups": 2,
        "o_lora_rank": 8,
        "sliding_window": 128,
        "index_head_dim": 16,
        "index_n_heads": 4,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
    }
    assert read("deepseek_v4", **v4, compress_ratios=[0] * 8).cache_layers[0].window_tokens == 128
    assert problems("deepseek_v4", **v4, compress_ratios=[0] * 7 + [16]) == {"compress_ratios"}
    assert problems("deepseek_v4", **v4, compress_ratios=[0] * 7) == {"compress_ratios"}


def test_step_layers_differ_in_query_heads() -> None:
    other = {"attention_type": "sliding_attention", "num_attention_heads": 6}
    shape = read(
        "step3p5",
        head_dim=16,
        layer_types=["full_attention", "sliding_attention"] * 4,
        sliding_window=32,
        attention_other_setting=other,
        use_head_wise_attn_gate=True,
        moe_num_experts=4,
        moe_top_k=2,
        moe_intermediate_size=32,
        share_expert_dim=32,
        moe_layers_enum="3,4,5,6,7",
    )
    assert elements(shape, "self_attn.q_proj") == 64 * 16 * (4 * 4 + 4 * 6)
    assert elements(shape, "self_attn.g_proj") == 64 * (4 * 4 + 4 * 6)
    assert shape.num_moe_layers == 5


def test_cross_attention_layers_of_llama_3_2_have_a_cache_too() -> None:
    shape = CATALOG.model_shape("meta-llama/Llama-3.2-11B-Vision-Instruct")
    assert shape.cache_layers == (CacheLayers(CacheKind.FULL, 40, 8, 128, 128),)
    assert elements(shape, "cross_attn.q_proj") == 8 * 4096 * 4096


PUBLISHED: tuple[tuple[str, dict[str, Any], float], ...] = (
    (
        "apertus",
        {
            "hidden_size": 4096,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "intermediate_size": 21504,
            "vocab_size": 131072,
        },
        8.05e9,
    ),
    (
        "bailing_moe",
        {
            "hidden_size": 2048,
            "num_hidden_layers": 28,
            "num_attention_heads": 16,
            "num_key_value_heads": 4,
            "intermediate_size": 5632,
            "moe_intermediate_size": 1408,
            "num_experts": 64,
            "num_experts_per_tok": 6,
            "num_shared_experts": 2,
            "vocab_size": 126464,
        },
        16.8e9,
    ),
    (
        "dbrx",
        {
            "hidden_size": None,
            "d_model": 6144,
            "num_hidden_layers": None,
            "n_layers": 40,
            "num_attention_heads": None,
            "n_heads": 48,
            "num_key_value_heads": None,
            "attn_config": {"kv_n_heads": 8},
            "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4},
            "vocab_size": 100352,
        },
        131.6e9,
    ),
    (
        "dots1",
        {
            "hidden_size": 4096,
            "num_hidden_layers": 62,
            "num_attention_heads": 32,
            "num_key_value_heads": 32,
            "intermediate_size": 10944,
            "moe_intermediate_size": 1408,
            "n_routed_experts": 128,
            "num_experts_per_tok": 6,
            "n_shared_experts": 2,
            "first_k_dense_replace": 1,
            "vocab_size": 152064,
        },
        142.8e9,
    ),
    (
        "exaone_moe",
        {
            "hidden_size": 6144,
            "num_hidden_layers": 48,
            "num_attention_heads": 64,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "intermediate_size": 18432,
            "moe_intermediate_size": 2048,
            "num_experts": 128,
            "num_experts_per_tok": 8,
            "num_shared_experts": 1,
            "first_k_dense_replace": 1,
            "vocab_size": 153600,
        },
        236.6e9,
    ),
    (
        "glm4",
        {
            "hidden_size": 4096,
            "num_hidden_layers": 40,
            "num_attention_heads": 32,
            "num_key_value_heads": 2,
            "head_dim": 128,
            "intermediate_size": 13696,
            "vocab_size": 151552,
        },
        9.4e9,
    ),
    (
        "hunyuan_v1_moe",
        {
            "hidden_size": 4096,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "intermediate_size": 3072,
            "moe_intermediate_size": [3072] * 32,
            "num_experts": 64,
            "moe_topk": [8] * 32,
            "num_shared_expert": [1] * 32,
            "vocab_size": 128167,
            "tie_word_embeddings": True,
        },
        80.4e9,
    ),
    (
        "hy_v3",
        {
            "hidden_size": 4096,
            "num_hidden_layers": 80,
            "num_attention_heads": 64,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "intermediate_size": 13312,
            "moe_intermediate_size": 1536,
            "num_experts": 192,
            "num_experts_per_tok": 8,
            "num_shared_experts": 1,
            "first_k_dense_replace": 1,
            "vocab_size": 120832,
        },
        295e9,
    ),
    (
        "solar_open",
        {
            "hidden_size": 4096,
            "num_hidden_layers": 48,
            "num_attention_heads": 64,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "intermediate_size": None,
            "moe_intermediate_size": 1280,
            "n_routed_experts": 128,
            "n_shared_experts": 1,
            "num_experts_per_tok": 8,
            "vocab_size": 196608,
        },
        102.6e9,
    ),
    (
        "lfm2_moe",
        {
            "hidden_size": 2048,
            "num_hidden_layers": 24,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "intermediate_size": 7168,
            "moe_intermediate_size": 1792,
            "num_experts": 32,
            "num_experts_per_tok": 4,
            "num_dense_layers": 2,
            "full_attn_idxs": [2, 6, 10, 14, 18, 21],
            "vocab_size": 65536,
            "tie_word_embeddings": True,
        },
        8.34e9,
    ),
    (
        "mistral4",
        {
            "hidden_size": 4096,
            "num_hidden_layers": 36,
            "num_attention_heads": 32,
            "num_key_value_heads": 32,
            "moe_intermediate_size": 2048,
            "intermediate_size": 12288,
            "n_routed_experts": 128,
            "num_experts_per_tok": 4,
            "n_shared_experts": 1,
            "kv_lora_rank": 256,
            "q_lora_rank": 1024,
            "qk_rope_head_dim": 64,
            "qk_nope_head_dim": 64,
            "v_head_dim": 128,
            "vocab_size": 131072,
        },
        119e9,
    ),
)
"""Apertus-8B, Ling-lite, DBRX, dots.llm1, K-EXAONE, GLM-4-0414, Hunyuan-A13B, Hy3, Solar Open, LFM2-8B-A1B
and Mistral Small 4."""


@pytest.mark.parametrize(("model_type", "sizes", "parameters"), PUBLISHED, ids=[entry[0] for entry in PUBLISHED])
def test_published_sizes_of_families_without_a_config(
    model_type: str, sizes: dict[str, Any], parameters: float
) -> None:
    assert read(model_type, **sizes).parameters.total == pytest.approx(parameters, rel=0.01)


@pytest.mark.parametrize(
    ("model", "parameters"),
    [
        ("moonshotai/Kimi-Linear-48B-A3B-Instruct", 49.1e9),
        ("deepseek-ai/DeepSeek-V4-Pro", 1.6e12),
        ("MiniMaxAI/MiniMax-M1-80k", 456e9),
        ("stepfun-ai/Step-3.7-Flash", 196e9),
        ("ai21labs/AI21-Jamba-1.5-Mini", 51.6e9),
        ("nvidia/Nemotron-H-56B-Base-8K", 56.3e9),
        ("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8", 120.7e9),
    ],
)
def test_published_sizes_of_configs(model: str, parameters: float) -> None:
    shape = CATALOG.model_shape(model)
    assert shape.parameters.total - shape.parameters.vision == pytest.approx(parameters, rel=0.02)


@pytest.mark.parametrize(
    "config",
    [
        {**BASE, "model_type": "phi4mm", "embd_layer": {"image_embd_layer": {}}},
        {
            "model_type": "qwen2_5_omni",
            "thinker_config": {
                "text_config": {**BASE, "model_type": "qwen2_5_omni_text"},
                "vision_config": {"depth": 2},
            },
        },
    ],
    ids=["phi4mm", "omni"],
)
def test_a_tower_that_is_hidden_is_named(config: dict[str, Any]) -> None:
    """Nothing is known of its size, so the notes say that it is missing."""
    shape = read_model_shape(config, "x")
    assert shape.parameters.vision == 0
    assert any("vision tower" in note and "not counted" in note for note in shape.notes)


def test_the_kinds_of_state_are_all_read() -> None:
    """Every `StateKind` is some catalogued model's."""
    kinds = set()
    for model in CATALOG.model_ids():
        try:
            kinds |= {layers.kind for layers in CATALOG.model_shape(model).state_layers}
        except InputError:
            continue
    assert kinds == set(StateKind)


def test_the_registry_is_in_order() -> None:
    assert list(REGISTRY) == sorted(REGISTRY)
