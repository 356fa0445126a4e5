"""Which checkpoint and formats a model at a precision is."""

from __future__ import annotations

import pytest

from planner.errors import InputError
from planner.memory.types import KvDtype, WeightDtype
from planner.speed.cases.checkpoints import asked_format, kv_dtype
from planner.speed.cases.rows import Reader


@pytest.mark.parametrize(
    ("model", "precision", "checkpoint", "weights"),
    [
        ("deepseek-ai/DeepSeek-R1", "fp8", "deepseek-ai/DeepSeek-R1", "fp8"),
        ("deepseek-ai/DeepSeek-R1", "", "deepseek-ai/DeepSeek-R1", "fp8"),
        ("deepseek-ai/DeepSeek-R1", "fp4", "nvidia/DeepSeek-V3.1-NVFP4", "nvfp4"),
        ("deepseek-ai/DeepSeek-V3", "fp4", "nvidia/DeepSeek-V3.1-NVFP4", "nvfp4"),
        ("deepseek-ai/DeepSeek-V3.2", "nvfp4", "nvidia/DeepSeek-V3.2-NVFP4", "nvfp4"),
        ("MiniMaxAI/MiniMax-M2.5", "fp4", "nvidia/MiniMax-M2.5-NVFP4", "nvfp4"),
        ("Qwen/Qwen3-32B", "fp4", "nvidia/Qwen3-32B-NVFP4", "nvfp4"),
        ("Qwen/Qwen3-32B", "", "Qwen/Qwen3-32B", "bf16"),
        ("Qwen/Qwen3-235B-A22B-FP8", "fp8", "Qwen/Qwen3-235B-A22B-FP8", "fp8"),
        ("Qwen/Qwen3.5-397B-A17B", "fp8", "Qwen/Qwen3.5-397B-A17B", "fp8"),
        ("Qwen/Qwen3.5-397B-A17B", "fp4", "nvidia/Qwen3.5-397B-A17B-NVFP4", "nvfp4"),
        ("meta-llama/Llama-3.1-70B", "fp8", "nvidia/Llama-3.1-70B-Instruct-FP8", "fp8"),
        ("nvidia/Llama-3.1-8B-Instruct-FP8", "fp8", "meta-llama/Llama-3.1-8B-Instruct", "fp8"),
        ("moonshotai/Kimi-K2.5", "int4", "moonshotai/Kimi-K2.5", "w4a16"),
        ("openai/gpt-oss-120b", "fp4", "openai/gpt-oss-120b", "mxfp4"),
        ("openai/gpt-oss-120b", "fp8", "openai/gpt-oss-120b", "mxfp4"),
        ("zhipuai/GLM-5", "fp8", "zai-org/GLM-5-FP8", "fp8"),
        ("zhipuai/GLM-5", "fp4", "nvidia/GLM-5-NVFP4", "nvfp4"),
        ("Llama-3.3-70B", "fp4", "meta-llama/Llama-3.3-70B-Instruct", "nvfp4"),
        ("Llama-2-7b-hf", "fp16", "meta-llama/Llama-2-7b-hf", "bf16"),
        ("Meta-Llama-3.1-8B-Instruct-quantized.w8a16", "w8a16", "meta-llama/Llama-3.1-8B", "w8a16"),
        ("Meta-Llama-3.1-8B-Instruct-FP8", "bf16", "meta-llama/Llama-3.1-8B", "fp8"),
    ],
)
def test_a_model_at_a_precision(reader: Reader, model: str, precision: str, checkpoint: str, weights: str) -> None:
    found = reader.checkpoints.find(model, precision)
    assert (found.shape.id, str(found.weights)) == (checkpoint, weights)


def test_another_attention_is_no_twin(reader: Reader) -> None:
    """DeepSeek-V3.2 has V3's sizes and an indexer: it does not stand in for V3."""
    found = reader.checkpoints.find("deepseek-ai/DeepSeek-V3.2", "fp4")
    assert found.shape.id != reader.checkpoints.find("deepseek-ai/DeepSeek-V3", "fp4").shape.id


def test_what_is_read_instead_is_said(reader: Reader) -> None:
    assert "as nvfp4 is read as nvidia/DeepSeek-V3.1-NVFP4" in reader.checkpoints.find("DeepSeek-R1", "fp4").notes[-1]
    assert "stored as mxfp4, not as fp8" in reader.checkpoints.find("gpt-oss-20b", "fp8").notes[-1]


def test_the_planners_own_terms_convert_a_checkpoint(reader: Reader) -> None:
    table, own = (reader.checkpoints.find("meta-llama/Llama-3.1-70B-Instruct", "fp8", exact=e) for e in (False, True))
    assert (table.shape.id, own.shape.id) == ("nvidia/Llama-3.1-70B-Instruct-FP8", "meta-llama/Llama-3.1-70B-Instruct")
    assert table.weights is own.weights is WeightDtype.FP8


def test_fp32_is_not_modelled(reader: Reader) -> None:
    with pytest.raises(InputError, match="fp32"):
        reader.checkpoints.find("Llama-3.1-8B", "fp32")


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("int8-gptq", WeightDtype.INT8_GPTQ),
        ("bnb-int8", WeightDtype.BNB_INT8),
        ("FP4", WeightDtype.NVFP4),
        ("auto", None),
        ("int4_wo", WeightDtype.W4A16),
        ("fp8_block", WeightDtype.FP8),
        ("w8a8", WeightDtype.INT8),
        ("", None),
    ],
)
def test_words_of_formats(text: str, dtype: WeightDtype | None) -> None:
    assert asked_format(text) is dtype


@pytest.mark.parametrize(
    ("engine", "model", "precision", "stated", "kv"),
    [
        ("trtllm", "deepseek-ai/DeepSeek-R1", "fp8", "", KvDtype.FP8),
        ("trtllm", "Qwen/Qwen3-32B", "", "", KvDtype.BF16),
        ("vllm", "deepseek-ai/DeepSeek-R1", "fp8", "", KvDtype.BF16),
        ("sglang", "deepseek-ai/DeepSeek-R1", "fp4", "", KvDtype.FP8),
        ("trtllm", "deepseek-ai/DeepSeek-R1", "fp8", "fp16", KvDtype.BF16),
        ("vllm", "Qwen/Qwen3-32B", "", "fp8_e4m3", KvDtype.FP8),
    ],
)
def test_the_cache_is_as_stated_or_what_the_engine_takes(
    reader: Reader, engine: str, model: str, precision: str, stated: str, kv: KvDtype
) -> None:
    stored = reader.checkpoints.find(model, precision)
    found, note = kv_dtype(stated, engine, stored, reader.facts(engine, ""))
    assert found is kv
    assert bool(note) is not bool(stated)
