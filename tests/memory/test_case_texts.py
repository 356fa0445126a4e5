"""Cells as people and logs write them, by the stated rules."""

from __future__ import annotations

import datetime as dt

import pytest

from planner.errors import InputError
from planner.memory.starts.case_texts import (
    kv_format,
    number,
    stated_date,
    stated_flags,
    stated_memory,
    stated_version,
    weight_format,
    whole,
    yes,
)
from planner.memory.types import KvDtype, WeightDtype


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("0.10.1.1", "0.10.1.1"),
        ("0.7.x-0.8.x (worker.py:267)", "0.7"),
        ("0.11.2 (llm-d)", "0.11.2"),
        ("~0.11.1rc (Nov 2025)", "0.11.1"),
        ("0.26.1rc1.dev608", "0.26.1rc1.dev608"),
        ("V1 0.8.x", "0.8"),
        ("0.13.0+nv26.01", "0.13.0"),
        ("0.2x", "0.20"),
        ("0.21+ (Jul 2026)", ""),
        ("0.21+", "0.21"),
        ("0.33-dev (gpu_worker.py:955, 10-06)", "0.33"),
        ("0.1.dev20073 (Aug 2026)", ""),
        ("ROCm 6.3 (2025/26)", ""),
        ("(2025-05-02)", ""),
        ("2026 ROCm", ""),
        ("nvcr 25.09-py3", ""),
        ("v0.8.5.post1", "0.8.5"),
        ("?", ""),
        ("", ""),
    ],
)
def test_a_version_is_the_first_dotted_number(text: str, version: str) -> None:
    assert stated_version(text) == version


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("(2025-05-02)", dt.date(2025, 5, 2)),
        ("2026-04 image", dt.date(2026, 4, 15)),
        ("2026-Q1", dt.date(2026, 2, 15)),
        ("0.1.dev20073 (Aug 2026)", dt.date(2026, 8, 15)),
        ("2025/26", dt.date(2026, 1, 1)),
        ("2026 ROCm", dt.date(2026, 7, 1)),
        ("(2026-02-31)", dt.date(2026, 2, 28)),
        ("2026-13", dt.date(2026, 7, 1)),
        ("nightly", None),
    ],
)
def test_a_date_is_a_day_or_the_middle_of_a_period(text: str, day: dt.date | None) -> None:
    assert stated_date(text) == day


@pytest.mark.parametrize(
    ("text", "dtype", "name"),
    [
        ("", None, ""),
        ("auto", None, ""),
        ("auto(bf16)", None, ""),
        ("fp8", KvDtype.FP8, ""),
        ("fp8?", KvDtype.FP8, ""),
        ("fp8 (derived)", KvDtype.FP8, ""),
        ("fp8_e5m2", KvDtype.FP8, "fp8_e5m2"),
        ("nvfp4_ds_mla", KvDtype.FP8, "nvfp4_ds_mla"),
        ("nvfp4_ds_mla?", KvDtype.FP8, ""),
        ("bfloat16", KvDtype.BF16, ""),
    ],
)
def test_cache_formats(text: str, dtype: KvDtype | None, name: str) -> None:
    assert kv_format(text) == (dtype, name)


def test_an_unknown_cache_format_is_said_so() -> None:
    with pytest.raises(InputError, match="turboquant"):
        kv_format("turboquant_k8v4")


@pytest.mark.parametrize(
    ("text", "stated", "dtype"),
    [
        ("", False, None),
        ("awq_marlin", True, WeightDtype.INT4_AWQ),
        ("gptq/awq int4", True, WeightDtype.INT4_AWQ),
        ("gptq-int4", True, WeightDtype.INT4_GPTQ),
        ("fp8 block", True, WeightDtype.FP8),
        ("fp8 (marlin w8a16)", True, WeightDtype.FP8),
        ("nvfp4 mixed w/ fp8", True, WeightDtype.NVFP4),
        ("mxfp4", True, WeightDtype.MXFP4),
        ("none(bf16/fp16)", True, WeightDtype.BF16),
        ("modelopt_fp4", True, WeightDtype.NVFP4),
        ("int8 w8a8", True, WeightDtype.INT8),
        ("f32", True, None),
        ("compressed-tensors", False, None),
        ("google/gemma-3-4b-it", False, None),
        ("Qwen3.5-4B (4-bit) + vision", True, WeightDtype.INT4_GPTQ),
        ("Nonesuch-7B", False, None),
        ("nvidia/Qwen3.6-27B-NVFP4", True, WeightDtype.NVFP4),
    ],
)
def test_weight_formats(text: str, stated: bool, dtype: WeightDtype | None) -> None:
    assert weight_format(text) == (stated, dtype)


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ("util 0.9, max_model_len 16000", {"utilization": "0.9", "max_model_len": "16000"}),
        ("--kv-cache-dtype fp8 --max-model-len 221000", {"kv_dtype": "fp8", "max_model_len": "221000"}),
        ("default max_model_len 131072, fp8 KV", {"max_model_len": "131072", "kv_dtype": "fp8"}),
        ("max_num_seqs=128, block 16; tokens=total_kv_blocks*16", {"max_num_seqs": "128"}),
        ("DCP=8 -> ~8.05x tokens", {"dcp": "8"}),
        ("MTP n=3, max_num_seqs 2, custom AR off", {"speculative_tokens": "3", "max_num_seqs": "2", "mtp": "y"}),
        ("MTP drafter in weights", {"mtp": "y"}),
        ("DCP=1, MTP off", {"dcp": "1"}),
        ("no MTP; zai-org/GLM-5.1-NVFP4-MTP", {}),
        ("mamba ssm fp16, prefix caching align mode", {"mamba_ssm_dtype": "fp16", "mamba_cache_mode": "align"}),
        ("dtype auto -> bfloat16; --mamba-ssm-dtype=float32", {"dtype": "bfloat16", "mamba_ssm_dtype": "float32"}),
        ("--language-model-only --max-num-seqs 8", {"language_model_only": "y", "max_num_seqs": "8"}),
        ("--chunked-prefill-size=-1", {"max_num_batched_tokens": "-1"}),
        ("--disable-radix-cache=True --page-size=16", {"disable_radix_cache": "y", "page_size": "16"}),
        ("--disable-radix-cache=False", {}),
        ("--enable-prefix-caching", {"prefix_caching": "y"}),
        ("--no-enable-prefix-caching", {"no_prefix_caching": "y"}),
        ("offline LLM class; benchmarks run offline", {"offline": "y"}),
        ("FlashInfer not installed (native sampler)", {"no_flashinfer_sampler": "y"}),
        ("VLLM_USE_FLASHINFER_SAMPLER=1", {"flashinfer_sampler": "y"}),
        ("--max-cudagraph-capture-size 8", {"max_cudagraph_capture_size": "8"}),
        ("fp8 per-block online", {"quantization": "fp8"}),
        ("weights 65.97 GiB (Marlin MXFP4); Available KV cache memory -2.14 GiB", {}),
        ("--dtype float16, 16k ctx", {"dtype": "float16", "max_model_len": "16384"}),
        ("", {}),
    ],
)
def test_settings_are_found_in_flags_and_in_words(text: str, flags: dict[str, str]) -> None:
    assert stated_flags(text) == flags


def test_counts_and_numbers() -> None:
    assert whole(" 8 ", "tp") == 8
    assert whole("131,072 (default)", "max_model_len") == 131072
    assert number("~0.9 (version default)", "utilization") == 0.9
    assert whole("", "tp") is None
    assert whole("unknown", "tp") is None
    assert number("1e3", "x") == 1000
    assert yes("Y") is True
    assert yes("False") is False
    assert yes("perhaps") is None


@pytest.mark.parametrize("text", ["eight", "8.5", "1e30", "nan", "inf", "8;9"])
def test_a_count_that_is_none_is_said_so(text: str) -> None:
    with pytest.raises(InputError, match="tp"):
        whole(text, "tp")


@pytest.mark.parametrize(
    ("text", "gib"),
    [
        ("12GB RTX 12.00 GiB", 12.0),
        ("96GB class (95.01; card not named in excerpt)", 95.01),
        ("RTX 24GB WSL (23.99)", 23.99),
        ("~63.4 GiB derived", 63.4),
        ("24GB-class (.0333*total=.79 => 23.6)", 23.6),
        ("21.48) 2080Ti-22GB", 21.48),
        ("80GB-class", None),
        (">=178 GiB", None),
        ("12.0.1 GiB", None),
        ("", None),
    ],
)
def test_memory_beside_a_cards_name(text: str, gib: float | None) -> None:
    assert stated_memory(text) == gib
