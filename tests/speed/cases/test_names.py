"""Names as benchmark tables write them."""

from __future__ import annotations

import pytest

from planner.errors import InputError
from planner.speed.cases.names import Names, engine_name
from planner.speed.cases.rows import Reader


@pytest.fixture(scope="module")
def names(reader: Reader) -> Names:
    return reader.names


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("h200_sxm", "H200-SXM"),
        ("b200_sxm", "B200"),
        ("b300_sxm", "B300"),
        ("gb300", "GB300"),
        ("GB200 NVL72", "GB200"),
        ("A100-40G", "A100-40GB-SXM"),
        ("A100-80G", "A100-80GB-SXM"),
        ("a100_sxm", "A100-80GB-SXM"),
        ("a100_pcie", "A100-80GB-PCIe"),
        ("H200-NVL", "H200-NVL"),
        ("H100-80G", "H100-SXM"),
        ("H100-SXM5-80G", "H100-SXM"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM"),
        ("GH200", "GH200-96GB"),
        ("A6000", "RTXA6000"),
        ("4090", "RTX4090"),
        ("Tesla V100", "V100-32GB"),
        ("V100-16G", "V100-16GB"),
        ("mi355x", "MI355X"),
        ("rtx_pro_6000_server", "RTXPRO6000-Server"),
    ],
)
def test_spellings_of_gpus(names: Names, written: str, meant: str) -> None:
    assert names.gpu(written).found.id == meant


@pytest.mark.parametrize("written", ["A800-80G", "MI250", "RTX4090D", "Arc-B60", "H800", "24GB-class", "TPU v5e", " "])
def test_a_card_that_is_not_known_has_no_stand_in(names: Names, written: str) -> None:
    """A memory size alone would give a card of another bandwidth; an A800 has another link than an A100."""
    with pytest.raises(InputError, match="not in the catalogue"):
        names.gpu(written)


@pytest.mark.parametrize(
    ("written", "meant", "weights"),
    [
        ("zhipuai/GLM-5", "zai-org/GLM-5", ""),
        ("Llama-3.3-70B", "meta-llama/Llama-3.3-70B-Instruct", ""),
        ("llama3.1-8b", "meta-llama/Llama-3.1-8B", ""),
        ("Llama3-70B", "meta-llama/Meta-Llama-3-70B", ""),
        ("gpt_oss_120b", "openai/gpt-oss-120b", ""),
        ("gptoss-120b", "openai/gpt-oss-120b", ""),
        ("Mixtral-8x22B", "mistralai/Mixtral-8x22B-v0.1", ""),
        ("Llama-4-Scout", "meta-llama/Llama-4-Scout-17B-16E-Instruct", ""),
        ("Qwen2-72B", "Qwen/Qwen2-72B", ""),
        ("nvidia/Llama-3.3-70B-Instruct-FP4", "meta-llama/Llama-3.3-70B-Instruct", "FP4"),
        ("amd/Llama-3.1-70B-Instruct-FP8-KV", "meta-llama/Llama-3.1-70B-Instruct", "FP8-KV"),
        ("Meta-Llama-3.1-8B-Instruct-quantized.w4a16", "meta-llama/Llama-3.1-8B", "quantized.w4a16"),
        ("zai-org/GLM-5-FP8", "zai-org/GLM-5-FP8", ""),
    ],
)
def test_spellings_of_models(names: Names, written: str, meant: str, weights: str) -> None:
    found = names.model(written)
    assert (found.found.id, found.weights) == (meant, weights)


def test_mixtral_goes_on_in_two_checkpoints_of_the_same_sizes(names: Names) -> None:
    found = names.model("Mixtral-8x7B")
    assert found.found.num_experts == 8
    assert "is read as" in found.notes[0]


@pytest.mark.parametrize("written", ["Llama-3", "Qwen3", "xyz/unknown", "", "-FP8", "Llama"])
def test_a_name_that_several_sizes_share_is_none(names: Names, written: str) -> None:
    with pytest.raises(InputError, match="not in the catalogue"):
        names.model(written)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("TensorRT-LLM", "trtllm"),
        ("trt_llm", "trtllm"),
        ("vLLM", "vllm"),
        ("SGLang", "sglang"),
        ("lmdeploy", "lmdeploy"),
    ],
)
def test_spellings_of_engines(written: str, meant: str) -> None:
    assert engine_name(written) == meant
