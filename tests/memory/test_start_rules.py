"""Every start rule: one deployment that it refuses, in the engine's own words, and one that it lets through."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from planner.catalog.load import Catalog
from planner.catalog.matrix import Matrix, Part, Stored
from planner.catalog.model_shape import ModelShape
from planner.catalog.quant import stored_formats as formats
from planner.memory.rules import sglang_rules, start_rules
from planner.memory.types import (
    Deployment,
    KvDtype,
    LoraAdapters,
    Refusal,
    SglangFlags,
    Speculative,
    VllmFlags,
    WeightDtype,
)

BF16 = Deployment(1, WeightDtype.BF16, KvDtype.BF16)
FP8_KV = replace(BF16, kv_dtype=KvDtype.FP8)
AS_FP8 = replace(BF16, weight_dtype=WeightDtype.FP8)
LLAMA = "meta-llama/Meta-Llama-3.1-8B"
QWEN_MOE_FP8 = "Qwen/Qwen3-30B-A3B-FP8"
AWQ_70B = "hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4"
V3 = "deepseek-ai/DeepSeek-V3"
V32 = "deepseek-ai/DeepSeek-V3.2"
GPT_OSS = "openai/gpt-oss-20b"
NEXT = "Qwen/Qwen3-Next-80B-A3B-Instruct"

Check = Callable[..., list[Refusal]]


@pytest.fixture(scope="module")
def refused(catalog: Catalog) -> Check:
    def check(
        shape: ModelShape | str, deployment: Deployment, gpu: str = "H100-SXM", engine: str = "vllm 0.33.0"
    ) -> list[Refusal]:
        model = catalog.model_shape(shape) if isinstance(shape, str) else shape
        name, version = engine.split()
        facts = catalog.engine(name, version)
        return start_rules.before_sizing(model, catalog.gpu(gpu), facts, deployment, weights_given=True)

    return check


def only(found: list[Refusal], rule: str) -> Refusal:
    assert {refusal.rule for refusal in found} == {rule}
    assert all(refusal.fix for refusal in found)
    return found[0]


def quantised(shape: ModelShape, stored: Stored, dtype: str, method: str) -> ModelShape:
    """The model with every matrix that a quantiser converts stored so."""
    matrices = tuple(replace(matrix, stored=stored) if matrix.linear else matrix for matrix in shape.matrices)
    return replace(
        shape, id=f"{shape.id} as {method} {stored}", matrices=matrices, native_weight_dtype=dtype, quant_method=method
    )


def with_width(shape: ModelShape, part: Part, old: int, new: int) -> ModelShape:
    """The model with matrices of a part as wide as ``new`` where they were ``old``."""

    def widened(matrix: Matrix) -> Matrix:
        if matrix.part is not part:
            return matrix
        sizes = {name: new for name in ("out_features", "in_features") if getattr(matrix, name) == old}
        return replace(matrix, **sizes)

    return replace(shape, id=f"{shape.id} {new}", matrices=tuple(map(widened, shape.matrices)))


# What ranks divide


@pytest.mark.parametrize("engine", ["vllm 0.11.0", "vllm 0.33.0", "sglang 0.5.23"])
def test_attention_heads(refused: Check, engine: str) -> None:
    found = only(refused("Qwen/Qwen2.5-7B-Instruct", replace(BF16, tp=8), engine=engine), "attention heads % tp")
    assert found.message == "Total number of attention heads (28) must be divisible by tensor parallel size (8)"
    assert found.fix == "Use a tensor-parallel degree of 1, 2, 4"
    assert not refused("Qwen/Qwen2.5-7B-Instruct", replace(BF16, tp=4), engine=engine)


def test_kv_heads_split_or_replicate(refused: Check, catalog: Catalog) -> None:
    assert "10 KV heads" in only(refused("microsoft/phi-4", replace(BF16, tp=4)), "KV heads % tp").message
    assert not refused("microsoft/phi-4", replace(BF16, tp=2))
    assert not refused(LLAMA, replace(BF16, tp=16))
    assert not refused("XiaomiMiMo/MiMo-V2-Flash", replace(AS_FP8, tp=8))  # 4 heads in full, 8 in sliding layers
    assert not refused(V3, replace(AS_FP8, tp=16))  # a latent has one head, replicated


def test_state_heads(refused: Check, catalog: Catalog) -> None:
    shape = catalog.model_shape(NEXT)
    assert not refused(shape, replace(BF16, tp=8))
    odd = replace(shape, id="odd", state_layers=tuple(replace(layers, heads=36) for layers in shape.state_layers))
    assert "must divide num heads" in only(refused(odd, replace(BF16, tp=8)), "state heads % tp").message
    nano = catalog.model_shape("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16")
    grouped = replace(nano, id="groups", state_layers=tuple(replace(layers, groups=3) for layers in nano.state_layers))
    assert "num_groups must equal 1" in only(refused(grouped, replace(BF16, tp=2)), "state heads % tp").message
    assert not refused(nano, replace(BF16, tp=2))
    assert refused(nano, replace(BF16, tp=16))  # 8 groups


def test_one_group_of_quantised_weights(refused: Check, catalog: Catalog) -> None:
    """One group is replicated, but not with quantised weights before 0.17."""
    nano = catalog.model_shape("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16")
    single = replace(nano, id="1 group", state_layers=tuple(replace(layers, groups=1) for layers in nano.state_layers))
    fp8 = replace(AS_FP8, tp=2)
    rules = {refusal.message for refusal in refused(single, fp8, engine="vllm 0.15.1") if "state" in refusal.rule}
    assert any(message.startswith("Tensor parallel currently supported for quantized models only") for message in rules)
    assert "state heads % tp" not in {refusal.rule for refusal in refused(single, fp8, engine="vllm 0.17.1")}
    assert "state heads % tp" not in {refusal.rule for refusal in refused(single, replace(BF16, tp=2))}


def test_widths(refused: Check, catalog: Catalog) -> None:
    dense = with_width(catalog.model_shape(LLAMA), Part.MLP, 14336, 14340)
    assert (
        "14340 is not divisible by tensor parallel size 8"
        in only(refused(dense, replace(BF16, tp=8)), "MLP width % tp").message
    )
    assert not refused(dense, replace(BF16, tp=4))
    experts = with_width(catalog.model_shape("Qwen/Qwen3-30B-A3B"), Part.EXPERTS, 768, 772)
    assert "expert width 772" in only(refused(experts, replace(BF16, tp=8)), "expert width % tp").message
    assert not refused(experts, replace(BF16, tp=8, expert_parallel=True))


def test_vocabulary(refused: Check, catalog: Catalog) -> None:
    """151,936 rows do not divide by 3; 128,256 do."""
    qwen = replace(catalog.model_shape("Qwen/Qwen3-8B"), id="24 heads", attention_heads=24, kv_heads=3, matrices=())
    qwen = replace(qwen, cache_layers=tuple(replace(layers, kv_heads=3) for layers in qwen.cache_layers))
    assert "151936 is not divisible by 3" in only(refused(qwen, replace(BF16, tp=3)), "vocabulary % tp").message
    assert not refused(qwen, replace(BF16, tp=3), engine="sglang 0.5.23")
    assert not refused(replace(qwen, id="llama rows", vocab_size=128_256), replace(BF16, tp=3))


def test_expert_parallelism_needs_experts(refused: Check) -> None:
    message = only(refused(LLAMA, replace(BF16, expert_parallel=True)), "expert parallelism").message
    assert message.startswith("Number of experts in the model must be greater than 0")
    assert not refused("Qwen/Qwen3-30B-A3B", replace(BF16, expert_parallel=True))


def test_pipeline_stages(refused: Check) -> None:
    found = refused("MiniMaxAI/MiniMax-M1-80k", replace(BF16, tp=8, pp=2), engine="vllm 0.19.0")
    assert "SupportsPP" in only(found, "pipeline parallelism").message
    assert "cannot fill 33" in only(refused(LLAMA, replace(BF16, pp=33)), "pipeline parallelism").message
    assert not refused(LLAMA, replace(BF16, pp=4))


def test_decode_context_parallelism(refused: Check) -> None:
    """8 KV heads, 32 queries: GQA needs tp above 8, at most tp / 8 ranks, and a divisor of 4 queries a head."""
    rule = "decode context parallelism"
    for deployment, text in (
        (replace(BF16, tp=4, dcp=3), "tp_size=4 must be divisible by dcp_size=3"),
        (replace(BF16, tp=8, dcp=2), "to be greater than the model's total number of KV heads (8)"),
        (replace(BF16, tp=16, dcp=4), "exceeds the maximum supported value (2)"),
    ):
        assert text in only(refused(LLAMA, deployment), rule).message
    assert not refused(LLAMA, replace(BF16, tp=16, dcp=2))
    assert "only MLA" in only(refused(LLAMA, replace(BF16, tp=16, dcp=2), engine="vllm 0.11.0"), rule).message
    assert not refused(V3, replace(AS_FP8, tp=8, dcp=8), engine="vllm 0.11.0")
    gemma = "google/gemma-3-27b-it"
    assert "DCP not support sliding window" in only(refused(gemma, replace(BF16, tp=16, dcp=2)), rule).message


def test_queries_of_a_head_divide_over_context_ranks(refused: Check, catalog: Catalog) -> None:
    """36 heads on 2 KV heads: 18 queries each do not divide over 4 ranks (nor do the heads over TP 8)."""
    shape = catalog.model_shape(LLAMA)
    layers = tuple(replace(layers, kv_heads=2) for layers in shape.cache_layers)
    odd = replace(shape, id="36 heads", attention_heads=36, kv_heads=2, cache_layers=layers)
    found = {refusal.rule: refusal.message for refusal in refused(odd, replace(BF16, tp=8, dcp=4))}
    assert "query heads per KV head (18) must be divisible by" in found["decode context parallelism"]
    assert "decode context parallelism" not in {refusal.rule for refusal in refused(odd, replace(BF16, tp=8, dcp=2))}


def test_lora(refused: Check, catalog: Catalog) -> None:
    assert "SupportsLoRA" in only(refused("tiiuae/falcon-40b", replace(BF16, lora=LoraAdapters(1, 16))), "LoRA").message
    found = only(refused(LLAMA, replace(BF16, lora=LoraAdapters(1, 24))), "LoRA rank")
    assert "max_lora_rank (24) must be one of" in found.message
    assert found.fix == "Use 32"
    assert "max_loras (0) must be >= 1" in only(refused(LLAMA, replace(BF16, lora=LoraAdapters(0, 16))), "LoRA").message
    assert refused(LLAMA, replace(BF16, lora=LoraAdapters(1, 1)), engine="vllm 0.11.0")
    wide = replace(catalog.model_shape(LLAMA), id="wide", vocab_size=262_144)
    adapters = replace(BF16, lora=LoraAdapters(1, 16))
    experts = replace(adapters, expert_parallel=True)
    assert "EP support" in only(refused("Qwen/Qwen3-30B-A3B", experts, engine="vllm 0.20.0"), "LoRA").message
    assert not refused("Qwen/Qwen3-30B-A3B", experts, engine="vllm 0.22.0")
    assert "vocab size must be <= 258048" in only(refused(wide, adapters), "LoRA").message
    assert not refused(replace(wide, id="narrow", vocab_size=258_048), adapters)
    assert not refused(LLAMA, replace(BF16, lora=LoraAdapters(4, 1)))


# Formats of weights


def test_fp8_blocks_of_experts(refused: Check, catalog: Catalog) -> None:
    """768 / 4 = 192 is no multiple of 128; 0.30 and later refine the block to 64 (and to 32 at TP 8)."""
    found = refused(QWEN_MOE_FP8, replace(AS_FP8, tp=4), engine="vllm 0.19.0")
    assert "The output_size of gate's and up's weight = 192 is not divisible by weight quantization block_n = 128" in (
        only(found, "fp8 block").message
    )
    assert any("input_size of down's weight = 192" in refusal.message for refusal in found)
    assert refused(QWEN_MOE_FP8, replace(AS_FP8, tp=4), engine="sglang 0.5.23")
    assert not refused(QWEN_MOE_FP8, replace(AS_FP8, tp=4, expert_parallel=True), engine="vllm 0.19.0")
    for tp in (1, 2):
        assert not refused(QWEN_MOE_FP8, replace(AS_FP8, tp=tp), engine="vllm 0.19.0")
    for tp in (4, 8):
        assert not refused(QWEN_MOE_FP8, replace(AS_FP8, tp=tp))
    narrow = with_width(catalog.model_shape(QWEN_MOE_FP8), Part.EXPERTS, 768, 320)
    assert refused(narrow, AS_FP8, engine="vllm 0.27.0")  # 320 is no multiple at any degree
    assert not refused(narrow, AS_FP8)  # refined to 64
    assert "weight = 40" in only(refused(narrow, replace(AS_FP8, tp=8)), "fp8 block").message  # to 8: too small


def test_fp8_blocks_of_dense_layers(refused: Check, catalog: Catalog) -> None:
    """Shared experts 512 wide at TP 8: 64 inputs of down are no block of 128 (SGLang issue 10852)."""
    shape = quantised(catalog.model_shape(NEXT), formats.fp8_block(128, 128), "fp8", "fp8")
    messages = [refusal.message for refusal in refused(shape, replace(AS_FP8, tp=8), engine="sglang 0.5.16")]
    assert any("input_size_per_partition = 64" in message and "shared_expert" in message for message in messages)
    dense = "Qwen/Qwen3-32B-FP8"
    assert not refused(dense, replace(AS_FP8, tp=8))
    narrow = with_width(catalog.model_shape(dense), Part.MLP, 25600, 25664)
    found = refused(narrow, replace(AS_FP8, tp=2), engine="vllm 0.33.0")
    assert "input_size_per_partition = 12832 is not divisible by weight quantization block_k = 128" in (
        only(found, "fp8 block").message
    )


def test_merged_parts_need_whole_blocks_before_0_15(refused: Check, catalog: Catalog) -> None:
    """Heads of 64 on one KV head a rank: 64 rows of keys are no block of 128."""
    shape = quantised(catalog.model_shape("Qwen/Qwen2-0.5B-Instruct"), formats.fp8_block(128, 128), "fp8", "fp8")
    old = [refusal.message for refusal in refused(shape, replace(AS_FP8, tp=2), engine="vllm 0.11.0")]
    assert any(
        "output_partition_size = 64 is not divisible by weight quantization block_n = 128" in text for text in old
    )
    new = [refusal.message for refusal in refused(shape, replace(AS_FP8, tp=2), engine="vllm 0.19.0")]
    assert not any("output_partition_size" in text for text in new)
    assert not refused(V3, replace(AS_FP8, tp=1), engine="vllm 0.11.0")  # 576 latent rows are the merged module's last


@pytest.mark.parametrize("dtype", [WeightDtype.INT4_AWQ, WeightDtype.INT4_GPTQ])
def test_int4_groups(refused: Check, catalog: Catalog, dtype: WeightDtype) -> None:
    """14,336 / 8 = 1,792 = 14 groups of 128; 13,824 / 8 = 1,728 = 13.5."""
    awq = dtype is WeightDtype.INT4_AWQ
    stored = formats.awq(4, 128) if awq else formats.gptq(4, 128, ordered=False, experts=False)
    shape = quantised(catalog.model_shape(LLAMA), stored, dtype, "awq" if awq else "gptq")
    assert not refused(shape, replace(BF16, weight_dtype=dtype, tp=8))
    narrow = with_width(shape, Part.MLP, 14336, 13824)
    message = only(refused(narrow, replace(BF16, weight_dtype=dtype, tp=8)), "quantisation group").message
    assert "input_size_per_partition = 1728 is not divisible by group_size = 128" in message
    assert not refused(narrow, replace(BF16, weight_dtype=dtype, tp=4))


def test_marlin_tiles_until_it_pads(refused: Check, catalog: Catalog) -> None:
    """Groups of 32 fit 1,760 inputs, tiles of 128 do not, until 0.25 pads them; AWQ falls back to its own kernel."""
    deployment = replace(BF16, weight_dtype=WeightDtype.INT4_GPTQ, tp=8)
    stored = formats.gptq(4, 32, ordered=False, experts=False)
    shape = with_width(
        quantised(catalog.model_shape(LLAMA), stored, WeightDtype.INT4_GPTQ, "gptq"), Part.MLP, 14336, 14080
    )
    assert "min_thread_k = 128" in only(refused(shape, deployment, engine="vllm 0.22.0"), "quantisation group").message
    assert not refused(shape, deployment, engine="vllm 0.25.0")
    awq = replace(shape, id="awq", quant_method="awq", native_weight_dtype=WeightDtype.INT4_AWQ)
    assert not refused(awq, replace(deployment, weight_dtype=WeightDtype.INT4_AWQ), engine="vllm 0.22.0")


def test_experts_halve_their_group(refused: Check, catalog: Catalog) -> None:
    stored = formats.gptq(4, 128, ordered=False, experts=True)
    shape = quantised(catalog.model_shape("Qwen/Qwen3-30B-A3B"), stored, WeightDtype.INT4_GPTQ, "gptq")
    deployment = replace(BF16, weight_dtype=WeightDtype.INT4_GPTQ)
    experts_only = replace(
        shape,
        id="experts",
        matrices=tuple(m if m.part is Part.EXPERTS else replace(m, stored=None) for m in shape.matrices),
    )
    assert not refused(experts_only, replace(deployment, tp=4))  # 192 = 1.5 x 128 = 6 x 32
    narrow = with_width(experts_only, Part.EXPERTS, 768, 320)
    assert "group_size = 32" in only(refused(narrow, replace(deployment, tp=4)), "quantisation group").message


@pytest.mark.parametrize(
    ("method", "dtype", "gpu", "engine", "least"),
    [
        ("awq", WeightDtype.INT4_AWQ, "V100-32GB", "vllm 0.33.0", "75"),
        ("fp8", WeightDtype.FP8, "T4", "vllm 0.11.0", "80"),
        ("mxfp4", WeightDtype.MXFP4, "T4", "vllm 0.33.0", "80"),
        ("modelopt", WeightDtype.FP8, "A100-80GB-SXM", "vllm 0.22.0", "89"),
        ("modelopt_fp4", WeightDtype.NVFP4, "V100-32GB", "vllm 0.33.0", "75"),
        ("awq", WeightDtype.INT4_AWQ, "V100-32GB", "sglang 0.5.23", "75"),
    ],
)
def test_methods_need_a_capability(
    refused: Check, catalog: Catalog, method: str, dtype: WeightDtype, gpu: str, engine: str, least: str
) -> None:
    shape = replace(catalog.model_shape(GPT_OSS), id=method, quant_method=method, native_weight_dtype=dtype)
    found = [r for r in refused(shape, replace(BF16, weight_dtype=dtype), gpu, engine) if r.rule == "dtype support"]
    assert f"{method} is not supported for the current GPU. Minimum capability: {least}" in found[0].message
    on_hopper = refused(shape, replace(BF16, weight_dtype=dtype), engine=engine)
    assert "dtype support" not in {refusal.rule for refusal in on_hopper}


@pytest.mark.parametrize(
    ("dtype", "gpu", "refuses", "accepts"),
    [
        (WeightDtype.FP8, "T4", "vllm 0.15.1", "vllm 0.17.1"),
        (WeightDtype.W4A16, "T4", "vllm 0.11.0", "vllm 0.15.1"),
        (WeightDtype.NVFP4, "T4", "vllm 0.15.1", "vllm 0.17.1"),
        (WeightDtype.INT8, "V100-32GB", "vllm 0.33.0", ""),
    ],
)
def test_schemes_of_compressed_tensors(
    refused: Check, catalog: Catalog, dtype: WeightDtype, gpu: str, refuses: str, accepts: str
) -> None:
    shape = replace(
        catalog.model_shape(LLAMA), id=str(dtype), quant_method="compressed-tensors", native_weight_dtype=dtype
    )
    deployment = replace(BF16, weight_dtype=dtype)
    message = only(refused(shape, deployment, gpu, refuses), "dtype support").message
    assert "Quantization scheme is not supported for the current GPU. Min capability" in message
    assert not accepts or not refused(shape, deployment, gpu, accepts)


def test_methods_in_the_registry(refused: Check) -> None:
    assessment = "jeevanchaps/Meta-Llama3.1-8B-Instruct-assessment"
    stored = replace(BF16, weight_dtype=WeightDtype.BNB_INT8)
    message = only(refused(assessment, stored), "quantisation method").message
    assert message.startswith("Unknown quantization method: bitsandbytes. Must be one of ['awq'")
    assert not refused(assessment, stored, engine="vllm 0.27.0")
    found = only(refused(assessment, replace(stored, tp=2), engine="vllm 0.27.0"), "bitsandbytes % tp")
    assert found.message == "Prequant BitsAndBytes models with tensor parallelism is not supported"
    gptq = replace(BF16, weight_dtype=WeightDtype.INT4_GPTQ)
    model = "alpindale/c4ai-command-r-plus-GPTQ"
    assert "method: gptq" in only(refused(model, gptq, engine="sglang 0.5.23"), "quantisation method").message
    assert not refused(model, gptq, engine="sglang 0.5.16")
    assert "desc_act=True" in only(refused(model, gptq), "GPTQ ordering").message
    assert not refused(model, gptq, engine="vllm 0.19.0")


def test_mxfp4_needs_experts(catalog: Catalog) -> None:
    shape, gpu, facts = catalog.model_shape(LLAMA), catalog.gpu("H100-SXM"), catalog.engine("vllm", "0.33.0")
    mxfp4 = replace(BF16, weight_dtype=WeightDtype.MXFP4)
    assert [r.rule for r in start_rules.before_sizing(shape, gpu, facts, mxfp4, weights_given=False)] == [
        "weight format"
    ]


# GPU, precision, host


def test_gpu_generation(refused: Check, catalog: Catalog) -> None:
    pascal = catalog.gpu("V100-32GB").model_copy(update={"id": "P100", "compute_capability": "6.0"})
    facts = catalog.engine("vllm", "0.11.0")
    found = start_rules.before_sizing(catalog.model_shape(LLAMA), pascal, facts, BF16, weights_given=True)
    assert "compute capability below 7.0 are not supported" in only(found, "GPU generation").message
    assert not refused(LLAMA, BF16, "V100-32GB")
    assert "below 7.5" in only(refused(LLAMA, BF16, "V100-32GB", "sglang 0.5.23"), "GPU generation").message


def test_precision_as_typed(refused: Check) -> None:
    bfloat = replace(BF16, vllm=VllmFlags(dtype="bfloat16"))
    assert "at least 8.0. Your V100-32GB GPU" in only(refused(LLAMA, bfloat, "V100-32GB"), "dtype").message
    assert not refused(LLAMA, bfloat, "A100-80GB-SXM")
    assert not refused(LLAMA, BF16, "V100-32GB")  # falls back to float16
    half = replace(BF16, vllm=VllmFlags(dtype="half"))
    assert "does not support float16" in only(refused("google/gemma-2-9b", half), "dtype").message
    assert not refused(LLAMA, half)


def test_swap_space_of_old_versions(refused: Check) -> None:
    """4 GiB a GPU: 32 GiB of 40 exceed 0.7, 16 do not."""
    host = VllmFlags(host_memory_gib=40.0)
    found = only(refused(LLAMA, replace(BF16, tp=8, vllm=host), engine="vllm 0.11.0"), "swap space")
    assert found.message.startswith("Too large swap space. 32.00 GiB out of the 40.00 GiB total CPU memory")
    assert found.fix == "Use --swap-space 3.5 or less"
    assert not refused(LLAMA, replace(BF16, tp=4, vllm=host), engine="vllm 0.11.0")
    assert not refused(LLAMA, replace(BF16, tp=8, vllm=replace(host, swap_space_gib=0.0)), engine="vllm 0.11.0")
    assert not refused(LLAMA, replace(BF16, tp=8, vllm=host), engine="vllm 0.19.0")


# Cache formats and attention backends


@pytest.mark.parametrize(
    ("model", "gpu", "engine", "starts"),
    [
        (LLAMA, "H100-SXM", "vllm 0.11.0", True),
        (LLAMA, "L40S", "vllm 0.11.0", True),
        (LLAMA, "A100-80GB-SXM", "vllm 0.11.0", False),
        (LLAMA, "RTX3090", "vllm 0.22.0", True),
        (LLAMA, "A100-80GB-SXM", "vllm 0.33.0", False),
        (LLAMA, "T4", "vllm 0.19.0", False),
        ("HuggingFaceTB/SmolLM-1.7B", "A100-80GB-SXM", "vllm 0.19.0", True),
        ("microsoft/phi-2", "A100-80GB-SXM", "vllm 0.19.0", False),
        (V3, "H100-SXM", "vllm 0.11.0", True),
        (V3, "L40S", "vllm 0.17.0", False),
        (V3, "L40S", "vllm 0.19.0", True),
        (V3, "A100-80GB-SXM", "vllm 0.33.0", False),
        (LLAMA, "MI210", "vllm 0.33.0", True),
    ],
)
def test_fp8_caches(refused: Check, catalog: Catalog, model: str, gpu: str, engine: str, starts: bool) -> None:
    """Hopper has FlashAttention 3, Ada Triton, Ampere FlashInfer's head sizes where it is picked; latents their own."""
    deployment = replace(FP8_KV, weight_dtype=WeightDtype(catalog.model_shape(model).native_weight_dtype))
    rules = {refusal.rule for refusal in refused(model, deployment, gpu, engine)} - {"dtype support"}
    assert rules == (set() if starts else {"fp8 KV support"})


def test_flashinfer_stores_fp8_on_ampere_when_asked_for(refused: Check) -> None:
    found = only(refused(LLAMA, FP8_KV, "A100-80GB-SXM"), "fp8 KV support")
    assert "native FP8 (fp8e4nv) requires SM89+" in found.message
    assert "--attention-backend FLASHINFER" in found.fix
    assert not refused(LLAMA, replace(FP8_KV, vllm=VllmFlags(attention_backend="FLASHINFER")), "A100-80GB-SXM")


def test_e5m2_caches(refused: Check, catalog: Catalog) -> None:
    """Checkpoints whose method brings scales for the cache take none; packed integers do since 0.25."""
    e5m2 = replace(FP8_KV, kv_cache_dtype_name="fp8_e5m2")
    fp8 = replace(e5m2, weight_dtype=WeightDtype.FP8)
    message = only(refused("Qwen/Qwen3-32B-FP8", fp8), "KV cache format").message
    assert message == "fp8_e5m2 kv-cache is not supported with fp8 checkpoints"
    assert not refused(LLAMA, e5m2)
    packed = replace(
        catalog.model_shape(LLAMA), id="packed", quant_method="compressed-tensors", native_weight_dtype="w4a16"
    )
    assert refused(packed, replace(e5m2, weight_dtype=WeightDtype.W4A16), engine="vllm 0.22.0")
    assert not refused(packed, replace(e5m2, weight_dtype=WeightDtype.W4A16), engine="vllm 0.25.0")


def test_block_size(refused: Check) -> None:
    found = only(refused(LLAMA, replace(BF16, vllm=VllmFlags(block_size_tokens=8))), "block size")
    assert found.message == "Block size must be a multiple of 16 (got 8)"
    assert not refused(LLAMA, replace(BF16, vllm=VllmFlags(block_size_tokens=32)))


def test_sparse_attention(refused: Check) -> None:
    assert "use_sparse=True" in only(refused(V32, AS_FP8, "A100-80GB-SXM", "vllm 0.27.0"), "sparse attention").message
    assert not refused(V32, AS_FP8)
    assert refused(V32, AS_FP8, "RTXPRO6000-Server", "vllm 0.22.0")
    assert not refused(V32, AS_FP8, "RTXPRO6000-Server", "vllm 0.25.0")
    assert not refused(V3, AS_FP8, "A100-80GB-SXM")


def test_architectures(refused: Check) -> None:
    found = only(refused("Qwen/Qwen3.5-27B", BF16, engine="vllm 0.11.0"), "architecture")
    assert "Qwen3_5ForConditionalGeneration is not in the model registry of vllm 0.11.0" in found.message
    assert not refused("Qwen/Qwen3.5-27B", BF16, engine="vllm 0.19.0")


# Lengths and the scheduler


def test_lengths_and_batches(catalog: Catalog) -> None:
    shape = catalog.model_shape(LLAMA)
    message = start_rules.length_allowed(shape, 131073, 131073)[0].message
    assert message == "User-specified max_model_len (131073) is greater than the derived max_model_len (131072)"
    assert start_rules.length_allowed(shape, 131072, 131072) == []
    assert (
        "(256) must be greater than or equal to max_num_seqs (512)" in start_rules.scheduler_budget(256, 512)[0].message
    )
    assert start_rules.scheduler_budget(512, 512) == []
    old, new = catalog.engine("vllm", "0.6.3"), catalog.engine("vllm", "0.11.0")
    assert "(2048) is smaller than max_model_len (8192)" in start_rules.whole_prompts(old, 2048, 8192)[0].message
    assert start_rules.whole_prompts(old, 2048, 65536) == []  # chunked above 32,768
    assert start_rules.whole_prompts(new, 2048, 8192) == []


def test_the_share_must_be_free(catalog: Catalog) -> None:
    """The context takes part of the memory before the share is checked: all of it is never free."""
    facts, gpu = catalog.engine("vllm", "0.33.0"), catalog.gpu("H100-SXM")
    found = start_rules.memory_free(facts, gpu, 1.0, 79.18)
    assert "(78.98/79.18 GiB) on startup is less than desired GPU memory utilization (1," in found[0].message
    assert found[0].fix == "Lower gpu_memory_utilization to 0.99"
    assert start_rules.memory_free(facts, gpu, 0.99, 79.18) == []
    assert start_rules.memory_free(catalog.engine("vllm", "0.11.0"), gpu, 1.0, 79.18)


def test_sequences_within_state_blocks(catalog: Catalog) -> None:
    """Nemotron on two H100: 1,024 sequences, 524 blocks."""
    shape, facts = catalog.model_shape("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"), catalog.engine("vllm", "0.22.0")
    found = start_rules.seqs_within_state_blocks(shape, facts, BF16, 1024, 524)
    assert "max_num_seqs (1024) exceeds available Mamba cache blocks (524)" in found[0].message
    assert start_rules.seqs_within_state_blocks(shape, facts, BF16, 524, 524) == []
    assert start_rules.seqs_within_state_blocks(shape, facts, replace(BF16, enforce_eager=True), 1024, 524) == []
    assert start_rules.seqs_within_state_blocks(shape, catalog.engine("vllm", "0.19.0"), BF16, 1024, 524) == []
    assert start_rules.seqs_within_state_blocks(catalog.model_shape(LLAMA), facts, BF16, 1024, 524) == []


# SGLang's own

SGLANG = "sglang 0.5.23"


@pytest.mark.parametrize(
    ("model", "name", "gpu", "text"),
    [
        (V32, "fp8_e5m2", "H100-SXM", "DeepSeek DSA only supports bf16/bfloat16 or fp8_e4m3 kv_cache_dtype"),
        (LLAMA, "mxfp8", "H100-SXM", "requires an SM100+ (Blackwell) GPU"),
        (LLAMA, "nvfp4", "L40S", "requires an SM100+ (Blackwell) GPU"),
        (LLAMA, "fp8_e5m2", "H100-SXM", ""),
        (LLAMA, "nvfp4", "B200", ""),
        (V32, "fp8_e4m3", "H100-SXM", ""),
    ],
)
def test_sglang_cache_formats(refused: Check, model: str, name: str, gpu: str, text: str) -> None:
    deployment = replace(FP8_KV, kv_cache_dtype_name=name)
    if model == V32:
        deployment = replace(deployment, weight_dtype=WeightDtype.FP8)
    found = refused(model, deployment, gpu, SGLANG)
    assert (text in only(found, "KV cache format").message) if text else not found


@pytest.mark.parametrize(
    ("model", "backend", "starts"),
    [
        (GPT_OSS, "flashinfer", False),
        (GPT_OSS, "triton", True),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", "flashinfer", False),
        ("google/gemma-4-31B-it", "fa3", False),
        ("LiquidAI/LFM2-1.2B", "triton", False),
        ("LiquidAI/LFM2-1.2B", "flashinfer", True),
        (LLAMA, "flashinfer", True),
    ],
)
def test_sglang_attention_backends(refused: Check, model: str, backend: str, starts: bool) -> None:
    weights = WeightDtype.MXFP4 if model == GPT_OSS else WeightDtype.BF16
    found = refused(
        model, replace(BF16, weight_dtype=weights, sglang=SglangFlags(attention_backend=backend)), engine=SGLANG
    )
    assert {refusal.rule for refusal in found} == (set() if starts else {"attention backend"})
    assert starts or backend in found[0].message


def test_sglang_flags(refused: Check) -> None:
    only(refused(LLAMA, replace(BF16, tp=4, attention_dp=3), engine=SGLANG), "attention dp")
    assert not refused(
        "Qwen/Qwen2.5-7B-Instruct", replace(BF16, tp=8, attention_dp=2), engine=SGLANG
    )  # 28 heads over 4
    text = SglangFlags(language_only=True)
    assert (
        "encoder disaggregation"
        in only(refused(LLAMA, replace(BF16, sglang=text), engine=SGLANG), "language only").message
    )
    assert not refused("Qwen/Qwen3-VL-8B-Instruct", replace(BF16, sglang=text), engine=SGLANG)
    paged = SglangFlags(page_size_tokens=16)
    only(refused("LiquidAI/LFM2-1.2B", replace(BF16, sglang=paged), engine=SGLANG), "page size")
    uncached = replace(BF16, sglang=paged, prefix_caching=False)
    assert not refused("LiquidAI/LFM2-1.2B", uncached, engine=SGLANG)
    assert not refused(LLAMA, replace(BF16, sglang=paged), engine=SGLANG)
    unified = SglangFlags(unified_memory=True)
    only(refused("deepseek-ai/DeepSeek-V4-Flash", replace(AS_FP8, sglang=unified), engine=SGLANG), "unified memory")
    assert not refused(LLAMA, replace(BF16, sglang=unified), engine=SGLANG)
    only(refused("nvidia/Llama-3_3-Nemotron-Super-49B-v1", BF16, engine=SGLANG), "architecture")


def test_every_reason_is_listed_at_once(refused: Check) -> None:
    found = refused("Qwen/Qwen2.5-7B-Instruct", replace(FP8_KV, tp=8, dcp=3), "T4")
    assert {refusal.rule for refusal in found} == {
        "attention heads % tp",
        "decode context parallelism",
        "fp8 KV support",
    }


@pytest.mark.parametrize(
    ("name", "engine", "starts"),
    [
        ("nvfp4_ds_mla", "vllm 0.27.0", False),
        ("nvfp4_ds_mla", "vllm 0.33.0", True),
        ("fp8_e5m2", "vllm 0.33.0", True),
        ("int4_per_token_head", "vllm 0.22.0", False),
        ("fp4_e2m1", "sglang 0.5.23", False),
        ("fp8_e5m2", "sglang 0.5.23", True),
    ],
)
def test_cache_formats_in_the_parser(refused: Check, name: str, engine: str, starts: bool) -> None:
    found = refused(LLAMA, replace(FP8_KV, kv_cache_dtype_name=name), engine=engine)
    if starts:
        assert found == []
        return
    assert only(found, "KV cache format").message.startswith(f"argument --kv-cache-dtype: invalid choice: '{name}'")


MTP = Speculative("mtp", 1)


@pytest.mark.parametrize(
    ("model", "engine", "starts"),
    [
        (LLAMA, "vllm 0.33.0", False),
        (NEXT, "vllm 0.11.0", True),
        ("zai-org/GLM-4.5", "vllm 0.19.0", True),
        ("google/gemma-4-31B-it", "vllm 0.20.0", False),
        ("google/gemma-4-31B-it", "vllm 0.22.0", True),
        ("Qwen/Qwen3.5-35B-A3B", "vllm 0.19.0", True),
    ],
)
def test_own_layers_that_draft(refused: Check, model: str, engine: str, starts: bool) -> None:
    found = refused(model, replace(BF16, speculative=MTP), engine=engine)
    assert starts or "Unsupported speculative method: 'mtp'" in only(found, "speculative decoding").message
    assert not starts or found == []


def test_another_model_that_drafts(refused: Check, catalog: Catalog) -> None:
    draft = replace(catalog.model_shape(LLAMA), num_layers=4)
    separate = replace(BF16, speculative=Speculative("draft", 3, draft=draft))
    assert refused(LLAMA, separate) == []
    refusal = only(refused(LLAMA, separate, engine="vllm 0.11.0"), "speculative decoding")
    assert "with draft model is not supported yet" in refusal.message
    other = replace(separate, speculative=Speculative("draft", 3, draft=replace(draft, vocab_size=32_000)))
    assert "should have the same vocabulary size" in only(refused(LLAMA, other), "speculative decoding").message
    none = replace(BF16, speculative=Speculative("eagle", 0))
    assert "greater than zero (0)" in only(refused(LLAMA, none), "speculative decoding").message


def test_fp8_weights_repacked_for_marlin(refused: Check, catalog: Catalog) -> None:
    """Below compute capability 8.9, until 0.25 pads: a rank's outputs fill tiles of 64."""
    per_tensor = Stored(bits=8, scale_bytes=4)
    shape = quantised(catalog.model_shape(LLAMA), per_tensor, "fp8", "fp8")
    odd = with_width(shape, Part.MLP, 14_336, 14_352)
    assert refused(shape, AS_FP8, "A100-80GB-SXM", "vllm 0.22.0") == []
    refusal = only(refused(odd, AS_FP8, "A100-80GB-SXM", "vllm 0.22.0"), "quantisation group")
    assert "is not divisible by tile_n_size = 64" in refusal.message
    assert refused(odd, AS_FP8, "A100-80GB-SXM", "vllm 0.25.0") == []
    assert refused(odd, AS_FP8, "H100-SXM", "vllm 0.22.0") == []


def test_nvfp4_inputs_divide_by_16(refused: Check) -> None:
    model = "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4"
    stored = replace(BF16, weight_dtype=WeightDtype.NVFP4)
    assert refused(model, replace(stored, tp=4), "B200") == []
    rules = {refusal.rule: refusal.message for refusal in refused(model, replace(stored, tp=16), "B200")}
    assert "in features size is not multiple of 16 (got 232" in rules["quantisation group"]


@pytest.mark.parametrize(
    ("model", "backend", "gpu", "engine", "kv", "reasons"),
    [
        (LLAMA, "FLASH_ATTN", "H100-SXM", "vllm 0.33.0", "fp8", []),
        (LLAMA, "FLASH_ATTN", "L40S", "vllm 0.33.0", "fp8", ["kv_cache_dtype not supported"]),
        (LLAMA, "FLASH_ATTN", "T4", "vllm 0.19.0", "bf16", ["compute capability not supported"]),
        (LLAMA, "TRITON_ATTN", "T4", "vllm 0.19.0", "bf16", []),
        (LLAMA, "FLASHMLA", "H100-SXM", "vllm 0.19.0", "bf16", ["non-MLA not supported"]),
        (V3, "FLASHINFER", "B200", "vllm 0.19.0", "bf16", ["MLA not supported"]),
        (V3, "CUTLASS_MLA", "H100-SXM", "vllm 0.19.0", "bf16", ["compute capability not supported"]),
        (V3, "FLASHMLA", "H100-SXM", "vllm 0.19.0", "fp8", []),
        (V32, "FLASHMLA", "H100-SXM", "vllm 0.19.0", "bf16", ["sparse not supported"]),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", "FLASHINFER", "H100-SXM", "vllm 0.19.0", "bf16", []),
        ("google/gemma-4-31B-it", "FLASHINFER", "H100-SXM", "vllm 0.22.0", "bf16", ["head_size not supported"]),
        (LLAMA, "SOMETHING", "H100-SXM", "vllm 0.19.0", "bf16", []),
        (LLAMA, "FLASHMLA", "H100-SXM", "vllm 0.11.0", "bf16", []),
    ],
)
def test_attention_backends_asked_for(
    refused: Check, model: str, backend: str, gpu: str, engine: str, kv: str, reasons: list[str]
) -> None:
    deployment = Deployment(8, WeightDtype.BF16, KvDtype(kv), vllm=VllmFlags(attention_backend=backend))
    if model.startswith("deepseek"):
        deployment = replace(deployment, weight_dtype=WeightDtype.FP8)
    found = refused(model, deployment, gpu, engine)
    messages = [refusal.message for refusal in found if refusal.rule == "attention backend"]
    assert bool(messages) is bool(reasons)
    assert all(message.endswith(f"Reason: {reasons}") for message in messages), messages


@pytest.mark.parametrize(
    ("model", "backend", "gpu", "kv", "text"),
    [
        (LLAMA, "fa3", "A100-80GB-SXM", "", ""),
        (LLAMA, "fa3", "B200", "", "FlashAttention v3 Backend requires SM>=80 and SM<=90"),
        (V3, "fa3", "A100-80GB-SXM", "", "FlashAttention v3 Backend requires SM>=80 and SM<=90"),
        (V3, "trtllm_mla", "B200", "fp8_e4m3", ""),
        (V3, "trtllm_mla", "H100-SXM", "", "only supported on Blackwell GPUs"),
        (V3, "trtllm_mla", "B200", "fp8_e5m2", "only supports kv-cache-dtype of fp8_e4m3"),
        (LLAMA, "trtllm_mla", "B200", "", "trtllm_mla backend can only be used with MLA models."),
        (V3, "trtllm_mha", "B200", "", "trtllm_mha backend can only be used with non-MLA models."),
        (LLAMA, "trtllm_mha", "L40S", "", "TRTLLM MHA backend for prefill requires Hopper"),
    ],
)
def test_sglang_backends_have_gpus(refused: Check, model: str, backend: str, gpu: str, kv: str, text: str) -> None:
    deployment = replace(
        BF16, tp=8, kv_cache_dtype_name=kv, sglang=SglangFlags(attention_backend=backend), weight_dtype=WeightDtype.BF16
    )
    found = refused(model, deployment, gpu, "sglang 0.5.23")
    messages = [refusal.message for refusal in found if refusal.rule == "attention backend"]
    assert len(messages) == bool(text)
    assert all(text in message for message in messages), messages


@pytest.mark.parametrize(
    ("model", "refused"), [("ai21labs/Jamba-v0.1", True), ("Qwen/Qwen3-Next-80B-A3B-Instruct", False)]
)
def test_sglang_serves_recurrent_layers_of_listed_architectures_only(
    catalog: Catalog, model: str, refused: bool
) -> None:
    found = sglang_rules.states_kept(catalog.model_shape(model), catalog.engine("sglang", "0.5.23"))
    assert [refusal.rule for refusal in found] == (["architecture"] if refused else [])
