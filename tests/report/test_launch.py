from __future__ import annotations

import shlex

import pytest

from planner.catalog.load import load_catalog
from planner.memory.size import size
from planner.memory.types import (
    Deployment,
    KvDtype,
    LoraAdapters,
    SglangFlags,
    Speculative,
    VllmFlags,
    WeightDtype,
)
from planner.report.launch import launch_command

CATALOG = load_catalog()


def command(model: str, engine: str = "vllm", version: str = "", nodes: int = 1, **settings: object) -> list[str]:
    deployment = Deployment(**({"tp": 1, "weight_dtype": WeightDtype.BF16, "kv_dtype": KvDtype.BF16} | settings))  # type: ignore[arg-type]
    sizing = size(CATALOG.model_shape(model), CATALOG.gpu("H100-SXM"), CATALOG.engine(engine, version), deployment)
    return shlex.split(launch_command(sizing, nodes))


def option(words: list[str], name: str) -> str:
    return words[words.index(name) + 1]


def test_vllm_writes_every_decision() -> None:
    words = command("Qwen/Qwen3-32B", tp=2, max_model_len=16_384, max_num_seqs=64, kv_dtype=KvDtype.FP8)
    assert words[:3] == ["vllm", "serve", "Qwen/Qwen3-32B"]
    names = ("--tensor-parallel-size", "--max-model-len", "--gpu-memory-utilization", "--max-num-seqs")
    assert [option(words, name) for name in names] == ["2", "16384", "0.92", "64"]
    assert option(words, "--max-num-batched-tokens") == "8192"
    assert option(words, "--kv-cache-dtype") == "fp8"
    assert "--quantization" not in words


def test_sglang_writes_every_decision() -> None:
    words = command("Qwen/Qwen3-32B", "sglang", tp=4, max_model_len=16_384, weight_dtype=WeightDtype.FP8)
    assert words[:5] == ["python", "-m", "sglang.launch_server", "--model-path", "Qwen/Qwen3-32B"]
    names = ("--tp-size", "--context-length", "--mem-fraction-static", "--chunked-prefill-size", "--quantization")
    assert [option(words, name) for name in names] == ["4", "16384", "0.819", "8192", "fp8"]
    assert int(option(words, "--max-running-requests")) > 0


@pytest.mark.parametrize(
    ("model", "weights", "checkpoint", "quantization"),
    [
        ("Qwen/Qwen3-32B", WeightDtype.FP8, "Qwen/Qwen3-32B", "fp8_per_tensor"),
        ("Qwen/Qwen3-32B-FP8", WeightDtype.FP8, "Qwen/Qwen3-32B-FP8", None),
        ("Qwen/Qwen3-32B", WeightDtype.INT4_GPTQ, "<int4-gptq checkpoint of Qwen/Qwen3-32B>", None),
        ("Qwen/Qwen3-32B-FP8", WeightDtype.BF16, "<bf16 checkpoint of Qwen/Qwen3-32B-FP8>", None),
        ("openai/gpt-oss-20b", WeightDtype.MXFP4, "openai/gpt-oss-20b", None),
    ],
)
def test_weights_are_made_on_loading_stored_or_asked_for(
    model: str, weights: WeightDtype, checkpoint: str, quantization: str | None
) -> None:
    words = command(model, weight_dtype=weights)
    assert words[2] == checkpoint
    assert (option(words, "--quantization") if "--quantization" in words else None) == quantization


VLLM_FLAGS = VllmFlags(
    block_size_tokens=32,
    mamba_cache_mode="align",
    mamba_ssm_cache_dtype="float32",
    hybrid_kv_cache_manager=False,
    language_model_only=True,
    async_scheduling=False,
    attention_backend="FLASHINFER",
    dtype="bfloat16",
    cpu_offload_gib=2.5,
    kv_offload_gib=20.0,
    swap_space_gib=1.0,
)
SETTINGS = {
    "tp": 8,
    "pp": 2,
    "expert_parallel": True,
    "dcp": 2,
    "prefix_caching": False,
    "enforce_eager": True,
    "lora": LoraAdapters(4, 16),
    "speculative": Speculative("mtp", 3),
}


def test_vllm_writes_every_flag_that_is_set() -> None:
    words = command("Qwen/Qwen3-30B-A3B", version="0.33.0", vllm=VLLM_FLAGS, **SETTINGS)
    for name, value in (
        ("--pipeline-parallel-size", "2"),
        ("--decode-context-parallel-size", "2"),
        ("--block-size", "32"),
        ("--mamba-cache-mode", "align"),
        ("--mamba-ssm-cache-dtype", "float32"),
        ("--attention-backend", "FLASHINFER"),
        ("--dtype", "bfloat16"),
        ("--cpu-offload-gb", "2.5"),
        ("--kv-offloading-size", "20"),
        ("--max-loras", "4"),
        ("--max-lora-rank", "16"),
        ("--speculative-config", '{"method": "mtp", "num_speculative_tokens": 3}'),
    ):
        assert option(words, name) == value
    switches = {
        "--enable-expert-parallel", "--no-enable-prefix-caching", "--enforce-eager", "--enable-lora",
        "--disable-hybrid-kv-cache-manager", "--language-model-only", "--no-async-scheduling",
    }  # fmt: skip
    assert switches <= set(words)
    assert "--swap-space" not in words  # gone since 0.18


def test_vllm_flags_have_the_names_of_their_version() -> None:
    words = command("Qwen/Qwen3-30B-A3B", version="0.11.0", vllm=VLLM_FLAGS, **SETTINGS)
    assert words[:2] == ["env", "VLLM_ATTENTION_BACKEND=FLASHINFER"]
    assert option(words, "--swap-space") == "1"
    assert option(words, "--limit-mm-per-prompt") == '{"image": 0, "video": 0}'
    newer = {"--mamba-cache-mode", "--kv-offloading-size", "--attention-backend", "--language-model-only"}
    assert not newer & set(words)
    assert option(command("Qwen/Qwen3-32B", version="0.30.0", weight_dtype=WeightDtype.FP8), "--quantization") == "fp8"


def test_nothing_is_written_that_is_not_set() -> None:
    words = command("Qwen/Qwen3-32B")
    assert len([word for word in words if word.startswith("--")]) == 5
    assert (
        len([word for word in command("Qwen/Qwen3-32B", "sglang") if word.startswith("--")]) == 7
    )  # with the 16-bit cache: SGLang chooses by GPU otherwise


def test_drafts_name_their_checkpoint() -> None:
    draft = Speculative("draft", 3, draft=CATALOG.model_shape("Qwen/Qwen3-0.6B"))
    config = option(command("Qwen/Qwen3-32B", speculative=draft), "--speculative-config")
    assert config == '{"method": "draft_model", "model": "Qwen/Qwen3-0.6B", "num_speculative_tokens": 3}'
    eagle = command("Qwen/Qwen3-32B", "sglang", speculative=Speculative("eagle", 4))
    assert option(eagle, "--speculative-algorithm") == "EAGLE"
    assert option(eagle, "--speculative-num-steps") == "3"
    assert option(eagle, "--speculative-num-draft-tokens") == "4"
    assert option(eagle, "--speculative-draft-model-path") == "<EAGLE head of Qwen/Qwen3-32B>"


@pytest.mark.parametrize("version", ["0.5.16", "0.5.23"])
def test_sglang_writes_every_flag_that_is_set(version: str) -> None:
    flags = SglangFlags(
        page_size_tokens=64,
        cuda_graph_max_batch=32,
        disable_overlap_schedule=True,
        max_total_tokens=100_000,
        swa_full_tokens_ratio=0.25,
        mamba_full_memory_ratio=0.5,
        mamba_ssm_dtype="bfloat16",
        max_mamba_cache_size=200,
        enable_multimodal=True,
        attention_backend="triton",
    )
    settings = SETTINGS | {"dcp": 1, "attention_dp": 4}
    words = command("Qwen/Qwen3-30B-A3B", "sglang", version, sglang=flags, **settings)
    newest = version == "0.5.23"
    for name, value in (
        ("--pp-size", "2"),
        ("--ep-size", "8"),
        ("--attn-dp-size" if newest else "--dp-size", "4"),
        ("--page-size", "64"),
        ("--cuda-graph-max-bs-decode", "32"),
        ("--max-total-tokens", "100000"),
        ("--swa-full-tokens-ratio", "0.25"),
        ("--mamba-full-memory-ratio", "0.5"),
        ("--mamba-ssm-dtype", "bfloat16"),
        ("--max-mamba-cache-size", "200"),
        ("--attention-backend", "triton"),
        ("--max-loras-per-batch", "4"),
        ("--lora-target-modules", "all"),
        ("--speculative-algorithm", "NEXTN"),
    ):
        assert option(words, name) == value
    assert ("--enable-dp-attention" in words) is not newest
    switches = {
        "--disable-cuda-graph", "--disable-radix-cache", "--disable-overlap-schedule", "--enable-multimodal",
        "--enable-lora",
    }  # fmt: skip
    assert switches <= set(words)


def test_a_replica_on_several_nodes_says_how_they_meet() -> None:
    """vLLM is started once on a Ray cluster, SGLang on each node with its rank; on one node nothing is said."""
    vllm = command("deepseek-ai/DeepSeek-R1", tp=16, nodes=2, weight_dtype=WeightDtype.FP8)
    assert option(vllm, "--distributed-executor-backend") == "ray"
    assert option(vllm, "--tensor-parallel-size") == "16"
    sglang = command("deepseek-ai/DeepSeek-R1", "sglang", tp=16, nodes=2, weight_dtype=WeightDtype.FP8)
    assert option(sglang, "--nnodes") == "2"
    assert option(sglang, "--node-rank") == "<rank of the node, 0 to 1>"
    assert option(sglang, "--dist-init-addr") == "<address of node 0>:20000"
    for engine in ("vllm", "sglang"):
        alone = command("deepseek-ai/DeepSeek-R1", engine, tp=8, weight_dtype=WeightDtype.FP8)
        assert not {"--distributed-executor-backend", "--nnodes", "--node-rank"} & set(alone)
