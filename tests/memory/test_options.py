"""Optional terms by hand: adapters, drafts, host memory, shared prefixes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner import units
from planner.catalog.load import Catalog
from planner.memory.loading import loading_of
from planner.memory.options import (
    beside_the_pool,
    effective_pool_tokens,
    loaded_weights_gib,
    offload_tier_tokens,
    option_terms,
)
from planner.memory.size import size
from planner.memory.types import (
    Deployment,
    GivenTerms,
    KvDtype,
    LoraAdapters,
    Sizing,
    Speculative,
    VllmFlags,
    WeightDtype,
)
from planner.memory.weights import weight_bytes

BF16 = Deployment(1, WeightDtype.BF16, KvDtype.BF16, max_model_len=8192)
LLAMA, LLAMA_1B = "meta-llama/Meta-Llama-3.1-8B", "meta-llama/Llama-3.2-1B-Instruct"
V3 = "deepseek-ai/DeepSeek-V3"


def sized(catalog: Catalog, model: str, deployment: Deployment, engine: str = "vllm 0.19.0", **given: float) -> Sizing:
    name, version = engine.split()
    facts, gpu = catalog.engine(name, version), catalog.gpu("H100-SXM")
    return size(catalog.model_shape(model), gpu, facts, deployment, GivenTerms(**given))


def term(sizing: Sizing, name: str) -> float:
    """Bytes of a term."""
    (found,) = (units.gib_to_bytes(each.gib) for each in sizing.terms if each.name == name)
    return found


@pytest.mark.parametrize(
    ("tp", "per_layer"),
    [
        # q and o: 4096 + 4096; k and v: 4096 + 1024; gate and up: 4096 + 14336; down: 14336 + 4096
        (1, 2 * 8192 + 2 * 5120 + 3 * 18432),
        # what is split is halved: outputs of q, k, v, gate and up, inputs of o and down
        (2, (4096 + 2048) * 2 + (4096 + 512) * 2 + (4096 + 7168) * 3),
    ],
)
def test_adapters_of_a_dense_model(catalog: Catalog, tp: int, per_layer: int) -> None:
    """32 layers, embedding and head whole on every rank; the layers are 41,943,040 parameters of rank 16 at TP 1."""
    sizing = sized(catalog, LLAMA, replace(BF16, tp=tp, lora=LoraAdapters(4, 16)))
    tables = 2 * (128_256 + 4096)
    assert term(sizing, "LoRA adapters") == pytest.approx(2 * 4 * 16 * (32 * per_layer + tables), abs=1)
    if tp == 1:
        assert 16 * 32 * per_layer == 41_943_040


def test_adapters_of_experts_since_0_15(catalog: Catalog) -> None:
    """Qwen3-30B-A3B: 128 experts of 768, gate, up and down, beside attention and router."""
    moe, lora = "Qwen/Qwen3-30B-A3B", replace(BF16, lora=LoraAdapters(1, 8))
    attention = (2048 + 4096) + 2 * (2048 + 512) + (4096 + 2048) + (2048 + 128)
    experts = 128 * 3 * (2048 + 768)
    old = term(sized(catalog, moe, lora, "vllm 0.11.0"), "LoRA adapters")
    assert old == pytest.approx(2 * 8 * 48 * attention, abs=1)
    new = term(sized(catalog, moe, lora, "vllm 0.17.0"), "LoRA adapters")
    assert new == pytest.approx(2 * 8 * 48 * (attention + experts), abs=1)


def test_merged_experts_share_an_adapter(catalog: Catalog) -> None:
    """gpt-oss holds gate and up as one: one A for both."""
    facts, shape = catalog.engine("vllm", "0.19.0"), catalog.model_shape("openai/gpt-oss-20b")
    deployment = replace(BF16, weight_dtype=WeightDtype.MXFP4, lora=LoraAdapters(1, 16))
    (merged,) = option_terms(shape, facts, deployment)
    (apart,) = option_terms(replace(shape, id="apart", architecture="Qwen3MoeForCausalLM"), facts, deployment)
    saved = 2 * 16 * shape.num_layers * shape.num_experts * shape.hidden_size
    tables = 2 * 16 * 2 * (shape.vocab_size + shape.hidden_size)
    assert units.gib_to_bytes(apart.gib - merged.gib) == pytest.approx(saved + tables, abs=1)


def test_adapters_lower_the_pool_by_their_bytes(catalog: Catalog) -> None:
    plain, adapted = sized(catalog, LLAMA, BF16), sized(catalog, LLAMA, replace(BF16, lora=LoraAdapters(8, 64)))
    assert plain.available_kv_bytes - adapted.available_kv_bytes == pytest.approx(term(adapted, "LoRA adapters"), abs=2)
    assert term(adapted, "LoRA adapters") == 8 * term(
        sized(catalog, LLAMA, replace(BF16, lora=LoraAdapters(1, 64))), "LoRA adapters"
    )


def test_weights_that_are_typed_include_what_was_loaded_with_them(catalog: Catalog) -> None:
    sizing = sized(catalog, LLAMA, replace(BF16, lora=LoraAdapters(8, 64)), weights_gib=16.0)
    assert "LoRA adapters" not in {each.name for each in sizing.terms}


def test_mtp_layer_of_deepseek_v3(catalog: Catalog) -> None:
    """One layer: 256 experts and a shared one of 3 x 7168 x 2048, attention, and 2 x 7168² at 16 bits; fp8, TP 8."""
    deployment = replace(BF16, tp=8, weight_dtype=WeightDtype.FP8, speculative=Speculative("mtp", 1))
    sizing = sized(catalog, V3, deployment)
    experts = 257 * 3 * 7168 * 2048 / 8
    heads = 128 // 8
    attention = 7168 * (1536 + 576) + 1536 * heads * 192 + 512 * heads * 256 + heads * 128 * 7168
    projection = 2 * 2 * 7168**2
    assert term(sizing, "draft weights") == pytest.approx(experts + attention + projection, rel=0.01)
    plain = sized(catalog, V3, replace(deployment, speculative=None))
    assert sizing.bytes_per_block == plain.bytes_per_block // 61 * 62


def test_draft_that_the_checkpoint_keeps_at_16_bits(catalog: Catalog) -> None:
    """Qwen3.6-27B NVFP4 excludes ``mtp*``: attention of 24 heads with gates and 4 KV heads of 256, MLP, 2 x 5120²."""
    deployment = replace(BF16, weight_dtype=WeightDtype.MIXED, speculative=Speculative("mtp", 2))
    sizing = sized(catalog, "nvidia/Qwen3.6-27B-NVFP4", deployment, "vllm 0.23.0")
    attention = 5120 * (2 * 24 + 4 + 4) * 256 + 24 * 256 * 5120
    layer = 2 * (attention + 3 * 5120 * 17408 + 2 * 5120 * 5120)
    assert term(sizing, "draft weights") == pytest.approx(layer, rel=1e-3)
    assert loaded_weights_gib(sizing) == pytest.approx(20.57, rel=0.003)  # "Model loading took 20.57 GiB memory"
    assert loaded_weights_gib(sizing) == sizing.terms[0].gib + units.bytes_to_gib(term(sizing, "draft weights"))


def test_draft_of_a_checkpoint_that_excludes_only_parts_of_it(catalog: Catalog) -> None:
    """GLM-5.1 FP8 names projection and norms of layer 78 alone; its NVFP4 sibling names all of it."""
    assert not catalog.model_shape("zai-org/GLM-5.1-FP8").draft_16bit
    assert catalog.model_shape("nvidia/GLM-5.1-NVFP4").draft_16bit


def test_sglang_logs_the_weights_without_the_draft(catalog: Catalog) -> None:
    sizing = sized(catalog, LLAMA, replace(BF16, speculative=Speculative("eagle", 4)), "sglang 0.5.23")
    assert loaded_weights_gib(sizing) == sizing.terms[0].gib


def test_separate_draft_has_weights_and_cache(catalog: Catalog) -> None:
    draft = catalog.model_shape(LLAMA_1B)
    sizing = sized(catalog, LLAMA, replace(BF16, speculative=Speculative("draft", 3, draft=draft)))
    facts = catalog.engine("vllm", "0.19.0")
    alone = weight_bytes(draft, WeightDtype.BF16, loading_of(facts, BF16)).total
    assert term(sizing, "draft weights") == pytest.approx(alone, abs=1)
    own, drafts = 32 * 2 * 8 * 128 * 2, 16 * 2 * 8 * 64 * 2
    assert sizing.bytes_per_token == own + drafts


def test_eagle_head_is_a_layer_and_a_projection(catalog: Catalog) -> None:
    sizing = sized(catalog, LLAMA, replace(BF16, speculative=Speculative("eagle", 3)))
    layer = 2 * (4096 * (4096 + 1024 + 1024 + 4096) + 3 * 4096 * 14336 + 2 * 4096)
    assert term(sizing, "draft weights") == pytest.approx(layer + 2 * 2 * 4096**2, rel=1e-3)
    assert sizing.bytes_per_token == 33 * 2 * 8 * 128 * 2


def test_drafts_and_adapters_on_sglang(catalog: Catalog) -> None:
    plain = sized(catalog, LLAMA, BF16, "sglang 0.5.23")
    options = replace(BF16, lora=LoraAdapters(8, 64), speculative=Speculative("eagle", 4))
    sizing = sized(catalog, LLAMA, options, "sglang 0.5.23")
    freed = plain.available_kv_bytes - sizing.available_kv_bytes
    assert freed == pytest.approx(term(sizing, "LoRA adapters") + term(sizing, "draft weights"), rel=1e-6)


def test_weights_in_host_memory(catalog: Catalog) -> None:
    plain = sized(catalog, LLAMA, BF16)
    moved = sized(catalog, LLAMA, replace(BF16, vllm=VllmFlags(cpu_offload_gib=4.0)))
    assert moved.available_kv_gib - plain.available_kv_gib == pytest.approx(4.0)
    all_layers = sized(catalog, LLAMA, replace(BF16, vllm=VllmFlags(cpu_offload_gib=100.0)))
    tables = 2 * 128_256 * 4096 * 2
    assert term(all_layers, "weights") == pytest.approx(
        tables, rel=0.02
    )  # embedding and head stay, and the rotary table


def test_second_tier_in_host_memory(catalog: Catalog) -> None:
    """Heads split over ranks: 131,072 B a token all together. A latent is on every rank: 8 x 61 x 576 x 2 B."""
    llama, latent = catalog.model_shape(LLAMA), catalog.model_shape(V3)
    tokens = 64 * 2**30
    assert offload_tier_tokens(llama, BF16, 64) == tokens // 131_072
    assert offload_tier_tokens(llama, replace(BF16, tp=8), 64) == tokens // 131_072
    assert offload_tier_tokens(latent, replace(BF16, tp=8), 64) == tokens // (8 * 61 * 576 * 2)


def test_shared_prefixes_stretch_the_pool(catalog: Catalog) -> None:
    sizing = sized(catalog, LLAMA, BF16)
    assert effective_pool_tokens(sizing, 0.0) == sizing.pool_tokens
    assert effective_pool_tokens(sizing, 0.5) == 2 * sizing.pool_tokens
    for share in (-0.1, 1.0):
        with pytest.raises(ValueError, match="a hit share is from 0 to below 1"):
            effective_pool_tokens(sizing, share)


def test_figures_beside_the_pool_leave_it_alone(catalog: Catalog) -> None:
    shape, tiered = catalog.model_shape(LLAMA), replace(BF16, vllm=VllmFlags(kv_offload_gib=20.0))
    sizing, plain = sized(catalog, LLAMA, tiered), sized(catalog, LLAMA, BF16)
    assert (sizing.pool_tokens, sizing.logged_tokens) == (plain.pool_tokens, plain.logged_tokens)
    effective, tier = beside_the_pool(shape, sizing, 0.25)
    assert effective.tokens == int(sizing.pool_tokens / 0.75)
    assert tier.tokens == 20 * 2**30 // 131_072
    assert beside_the_pool(shape, plain) == ()
