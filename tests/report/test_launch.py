from __future__ import annotations

import shlex

import pytest

from planner.catalog.load import load_catalog
from planner.memory.size import size
from planner.memory.types import Deployment, KvDtype, WeightDtype
from planner.report.launch import launch_command

CATALOG = load_catalog()


def command(model: str, engine: str = "vllm", **settings: object) -> list[str]:
    deployment = Deployment(**({"tp": 1, "weight_dtype": WeightDtype.BF16, "kv_dtype": KvDtype.BF16} | settings))  # type: ignore[arg-type]
    sizing = size(CATALOG.model_shape(model), CATALOG.gpu("H100-SXM"), CATALOG.engine(engine, ""), deployment)
    return shlex.split(launch_command(sizing))


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
        ("Qwen/Qwen3-32B", WeightDtype.FP8, "Qwen/Qwen3-32B", "fp8"),
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
