from __future__ import annotations

from dataclasses import replace

import pytest

from planner.catalog.load import Catalog
from planner.memory.fixes import fixes
from planner.memory.size import size
from planner.memory.types import (
    Deployment,
    GivenTerms,
    KvDtype,
    LoraAdapters,
    SglangFlags,
    Speculative,
    VllmFlags,
    WeightDtype,
)

BF16 = WeightDtype.BF16
LLAMA_8B = "meta-llama/Meta-Llama-3.1-8B"


def test_every_fix_starts_and_the_length_is_the_longest_that_does(catalog: Catalog) -> None:
    shape, gpu = catalog.model_shape("meta-llama/Meta-Llama-3.1-8B"), catalog.gpu("RTX4090")
    facts, deployment = catalog.engine("vllm", "0.33.0"), Deployment(1, WeightDtype.BF16, KvDtype.BF16)
    refused = size(shape, gpu, facts, deployment)
    found = fixes(shape, gpu, facts, deployment, GivenTerms(), refused)
    assert found
    assert all(fix.sizing.starts for fix in found)
    capped = found[0].sizing
    longer = Deployment(1, WeightDtype.BF16, KvDtype.BF16, max_model_len=capped.max_model_len + 1)
    assert not size(shape, gpu, facts, longer).starts


def test_typed_weights_hold_only_for_their_format(catalog: Catalog) -> None:
    shape, gpu = catalog.model_shape("meta-llama/Llama-3.1-70B-Instruct"), catalog.gpu("H100-SXM")
    facts, given = catalog.engine("vllm", "0.33.0"), GivenTerms(weights_gib=131.4)
    deployment = Deployment(1, WeightDtype.BF16, KvDtype.BF16, max_model_len=4096)
    refused = size(shape, gpu, facts, deployment, given)
    found = {fix.change: fix.sizing for fix in fixes(shape, gpu, facts, deployment, given, refused)}
    assert found["int4 (AWQ) weights"].terms[0].gib < 40
    assert not any(change.startswith("fp8 KV cache") for change in found)


@pytest.mark.parametrize(
    ("model", "gpu", "deployment", "change"),
    [
        (LLAMA_8B, "H100-SXM", Deployment(1, BF16, KvDtype.BF16, 8192, 512, 256), "max_num_seqs 256"),
        ("Qwen/Qwen2.5-7B-Instruct", "H100-SXM", Deployment(8, BF16, KvDtype.BF16, 8192), "4 GPUs (TP 4)"),
        (LLAMA_8B, "A100-80GB-SXM", Deployment(1, BF16, KvDtype.FP8, 8192), "16-bit KV cache"),
        ("Qwen/Qwen3-1.7B", "V100-32GB", Deployment(1, WeightDtype.FP8, KvDtype.BF16, 8192), "16-bit weights"),
        (LLAMA_8B, "H100-SXM", Deployment(1, BF16, KvDtype.BF16, 999_999), "cap max_model_len at 131,072"),
    ],
)
def test_a_setting_that_is_wrong_is_changed_first(
    catalog: Catalog, model: str, gpu: str, deployment: Deployment, change: str
) -> None:
    shape, facts = catalog.model_shape(model), catalog.engine("vllm", "0.33.0")
    refused = size(shape, catalog.gpu(gpu), facts, deployment)
    found = fixes(shape, catalog.gpu(gpu), facts, deployment, GivenTerms(), refused)
    assert found[0].change == change
    assert found[0].sizing.starts


def test_no_fix_needs_more_gpus_than_a_machine_has(catalog: Catalog) -> None:
    shape, gpu = catalog.model_shape("meta-llama/Meta-Llama-3.1-405B"), catalog.gpu("GB300")
    facts, deployment = catalog.engine("vllm", "0.33.0"), Deployment(1, BF16, KvDtype.BF16, 999_999)
    found = fixes(shape, gpu, facts, deployment, GivenTerms(), size(shape, gpu, facts, deployment))
    assert found
    assert max(fix.sizing.deployment.tp for fix in found) <= gpu.max_gpus_per_node


def test_a_model_that_no_single_change_saves_has_no_fix(catalog: Catalog) -> None:
    shape, gpu = catalog.model_shape("deepseek-ai/DeepSeek-V3"), catalog.gpu("T4")
    facts, deployment = catalog.engine("vllm", "0.33.0"), Deployment(1, WeightDtype.FP8, KvDtype.BF16)
    refused = size(shape, gpu, facts, deployment)
    assert fixes(shape, gpu, facts, deployment, GivenTerms(), refused) == ()


ORDER = (
    "cap",
    "fp8 KV",
    "max_num_batched",
    "max_num_seqs",
    "no CUDA",
    "text only",
    "fp8 weights",
    "int4",
    "2 GPUs",
    "gpu_memory",
)
"""Changes from the cheapest to the dearest."""


def test_fixes_come_in_the_order_of_what_they_cost(catalog: Catalog) -> None:
    """A shorter request, an fp8 cache, settings, weights, GPUs; a larger share of memory last, below 0.95."""
    shape, gpu = catalog.model_shape(LLAMA_8B), catalog.gpu("RTX4090")
    facts, deployment = catalog.engine("vllm", "0.33.0"), Deployment(1, BF16, KvDtype.BF16)
    refused = size(shape, gpu, facts, deployment)
    found = [fix.change for fix in fixes(shape, gpu, facts, deployment, GivenTerms(), refused)]
    places = [next(place for place, start in enumerate(ORDER) if change.startswith(start)) for change in found]
    assert places == sorted(places)
    assert {0, 1, 6, 7, 8, 9} <= set(places)
    assert "gpu_memory_utilization 0.94" in found[-1]


def test_a_minor_setting_is_named_only_where_it_serves_longer_requests(catalog: Catalog) -> None:
    shape, gpu = catalog.model_shape(LLAMA_8B), catalog.gpu("RTX4090")
    facts, deployment = catalog.engine("vllm", "0.33.0"), Deployment(1, BF16, KvDtype.BF16)
    refused = size(shape, gpu, facts, deployment)
    found = fixes(shape, gpu, facts, deployment, GivenTerms(), refused)
    cap = found[0].sizing.max_model_len
    minor = [fix for fix in found if fix.change.startswith(("max_num", "no CUDA", "gpu_memory"))]
    assert minor
    assert all(fix.sizing.max_model_len >= 1.01 * cap for fix in minor)


@pytest.mark.parametrize(
    ("model", "gpu", "engine", "deployment", "change"),
    [
        (
            "Qwen/Qwen3-30B-A3B-FP8",
            "H100-SXM",
            "0.19.0",
            Deployment(4, WeightDtype.FP8, KvDtype.BF16, 8192),
            "expert parallelism",
        ),
        (
            "Qwen/Qwen3-30B-A3B-FP8",
            "H100-SXM",
            "0.19.0",
            Deployment(4, WeightDtype.FP8, KvDtype.BF16, 8192),
            "2 GPUs (TP 2)",
        ),
        (
            LLAMA_8B,
            "H100-SXM",
            "0.33.0",
            Deployment(4, BF16, KvDtype.BF16, 8192, dcp=2),
            "no decode context parallelism",
        ),
        (
            LLAMA_8B,
            "H100-SXM",
            "0.33.0",
            Deployment(1, BF16, KvDtype.BF16, 8192, expert_parallel=True),
            "no expert parallelism",
        ),
        ("Qwen/Qwen3-VL-8B-Instruct", "RTX4090", "0.33.0", Deployment(1, BF16, KvDtype.BF16, 32_768), "text only"),
        (LLAMA_8B, "RTX4090", "0.33.0", Deployment(1, BF16, KvDtype.BF16, 16_384, 64, 65_536), "max_num_batched"),
    ],
)
def test_what_lifts_a_refusal_is_among_the_fixes(
    catalog: Catalog, model: str, gpu: str, engine: str, deployment: Deployment, change: str
) -> None:
    shape, facts = catalog.model_shape(model), catalog.engine("vllm", engine)
    refused = size(shape, catalog.gpu(gpu), facts, deployment)
    assert not refused.starts
    found = fixes(shape, catalog.gpu(gpu), facts, deployment, GivenTerms(), refused)
    assert any(fix.change.startswith(change) for fix in found), [fix.change for fix in found]
    assert all(fix.sizing.starts for fix in found)


def test_sglang_fixes_name_its_own_flags(catalog: Catalog) -> None:
    """A latent model at TP 8 whose pool is too small: data-parallel attention and the fraction."""
    shape, gpu = catalog.model_shape(LLAMA_8B), catalog.gpu("RTX4090")
    facts = catalog.engine("sglang", "0.5.23")
    deployment = Deployment(1, BF16, KvDtype.BF16, gpu_memory_utilization=0.6)
    refused = size(shape, gpu, facts, deployment)
    assert not refused.starts
    found = [fix.change for fix in fixes(shape, gpu, facts, deployment, GivenTerms(), refused)]
    assert any(change.startswith("mem_fraction_static 0.") for change in found)
    assert found[-1].startswith("mem_fraction_static")


QWEN_7B, QWEN_72B = "Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-72B-Instruct"
ADAPTERS = LoraAdapters(max_loras=2, max_rank=12)


@pytest.mark.parametrize(
    ("model", "gpu", "deployment", "change"),
    [
        (
            QWEN_7B,
            "H100-SXM",
            Deployment(3, BF16, KvDtype.BF16, 8192, lora=ADAPTERS, dcp=2),
            "LoRA rank 16, no decode context parallelism and 2 GPUs (TP 2)",
        ),
        (
            QWEN_72B,
            "H100-SXM",
            Deployment(3, BF16, KvDtype.BF16, 8192, lora=ADAPTERS, dcp=2),
            "LoRA rank 16, no decode context parallelism and 4 GPUs (TP 4)",
        ),
        (
            LLAMA_8B,
            "H100-SXM",
            Deployment(1, BF16, KvDtype.BF16, 8192, 512, 256, lora=ADAPTERS),
            "max_num_seqs 256 and LoRA rank 16",
        ),
        (
            "Qwen/Qwen3-1.7B",
            "T4",
            Deployment(1, BF16, KvDtype.BF16, 8192, vllm=VllmFlags(dtype="bfloat16")),
            "default dtype",
        ),
        (
            LLAMA_8B,
            "H100-SXM",
            Deployment(1, BF16, KvDtype.BF16, 8192, gpu_memory_utilization=1.0),
            "default gpu_memory_utilization",
        ),
        (
            LLAMA_8B,
            "H100-SXM",
            Deployment(1, BF16, KvDtype.BF16, 8192, vllm=VllmFlags(block_size_tokens=20)),
            "default block size",
        ),
        (
            LLAMA_8B,
            "H100-SXM",
            Deployment(1, BF16, KvDtype.BF16, 8192, vllm=VllmFlags(attention_backend="FLASHMLA")),
            "default attention backend",
        ),
        (
            LLAMA_8B,
            "H100-SXM",
            Deployment(1, BF16, KvDtype.BF16, 8192, speculative=Speculative("mtp", 2)),
            "no speculative decoding",
        ),
    ],
)
def test_settings_that_are_wrong_are_put_right_together(
    catalog: Catalog, model: str, gpu: str, deployment: Deployment, change: str
) -> None:
    """In one change, with the number of GPUs where ranks do not divide: the next that also holds the model."""
    shape, facts = catalog.model_shape(model), catalog.engine("vllm", "0.33.0")
    refused = size(shape, catalog.gpu(gpu), facts, deployment)
    found = fixes(shape, catalog.gpu(gpu), facts, deployment, GivenTerms(), refused)
    assert found[0].change == change, ([r.rule for r in refused.refusals], [fix.change for fix in found])
    assert found[0].sizing.starts


def test_flags_of_sglang_that_do_not_suit_the_model_are_left_out(catalog: Catalog) -> None:
    shape, gpu = catalog.model_shape(LLAMA_8B), catalog.gpu("H100-SXM")
    facts = catalog.engine("sglang", "0.5.23")
    deployment = Deployment(
        1,
        BF16,
        KvDtype.BF16,
        8192,
        sglang=SglangFlags(attention_backend="torch_native", language_only=True, unified_memory=True),
    )
    refused = size(shape, gpu, facts, deployment)
    found = fixes(shape, gpu, facts, deployment, GivenTerms(), refused)
    assert found[0].change == "without language only, unified memory"
    assert found[0].sizing.starts


def test_host_memory_and_stages_are_put_right(catalog: Catalog) -> None:
    shape, gpu = catalog.model_shape(LLAMA_8B), catalog.gpu("H100-SXM")
    facts = catalog.engine("vllm", "0.11.0")
    swapping = Deployment(8, BF16, KvDtype.BF16, 8192, vllm=VllmFlags(host_memory_gib=40.0))
    stages = Deployment(1, BF16, KvDtype.BF16, 8192, pp=2)
    split = replace(shape, architecture=facts.vllm.no_pipeline[0])
    for model, deployment, change in ((shape, swapping, "swap_space 3"), (split, stages, "TP 2 without stages")):
        refused = size(model, gpu, facts, deployment)
        assert not refused.starts
        found = fixes(model, gpu, facts, deployment, GivenTerms(), refused)
        assert found[0].change == change
        assert found[0].sizing.starts
