"""Which rows a fit takes, and why it leaves the others out."""

from __future__ import annotations

from typing import Any

import pytest

from planner.catalog.load import Catalog
from planner.catalog.lookup.lookup import Lookup
from planner.speed.cases.deployments import Deployments
from planner.speed.cases.rows import Reader
from planner.speed.chain import load_sources
from planner.speed.fit.collect import Collected, collect

GOOD = {
    "id": "a",
    "mode": "agg",
    "engine": "vllm",
    "version": "0.19.0",
    "model": "Qwen/Qwen3-32B",
    "system": "h200_sxm",
    "precision": "",
    "isl": "1024",
    "osl": "512",
    "batch_size": "8",
    "concurrency": "8",
    "tp": "2",
    "pp": "1",
    "attention_dp": "1",
    "ttft_ms": "120",
    "tpot_ms": "14.5",
}
FULL = {
    "id": "trt10_x",
    "source_url": "https://github.com/NVIDIA/TensorRT-LLM/blob/x/docs/source/performance/perf-overview.md",
    "engine": "trtllm",
    "version": "1.0",
    "model": "Llama-3.3-70B",
    "gpu": "H200",
    "gpus": "1",
    "tp": "1",
    "weight_dtype": "fp8",
    "input_len": "1000",
    "output_len": "1000",
    "concurrency_or_rate": "max-load",
    "output_tok_s_total": "2500",
    "notes": "offline",
}


@pytest.fixture(scope="module")
def deployments(catalog: Catalog) -> Deployments:
    return Deployments(Reader(Lookup(catalog)), load_sources(catalog.root))


def collected(deployments: Deployments, *rows: dict[str, str]) -> Collected:
    return collect(tuple(rows[0]), rows, deployments)


def test_a_closed_loop_is_taken_with_its_room(deployments: Deployments) -> None:
    found = collected(deployments, GOOD)
    assert not found.left_out
    (point,) = found.points
    assert point.kind.gpu.id == "H200-SXM"
    assert point.architecture == "Qwen3ForCausalLM"
    assert 100 < point.room < 2000  # some 900,000 tokens of bf16 cache over 1,280 a request


def test_a_full_load_is_taken_from_trtllm_bench(deployments: Deployments) -> None:
    (point,) = collected(deployments, FULL).points
    assert point.point.served.engine == "trtllm-bench"
    assert point.point.load.concurrency == 3000  # requests of the table's runs of 1000/1000
    assert point.most_sequences == 4096


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model": "nobody/nothing"}, "not understood"),
        ({"mode": "disagg", "decode_workers": "1", "decode_batch": "8", "decode_tp": "2"}, "prefill and decode apart"),
        ({"tpot_ms": ""}, "no TPOT"),
        ({"osl": "1"}, "no TPOT"),
        ({"attention_dp": "2"}, "data-parallel attention or pipeline stages"),
        ({"concurrency": "64"}, "more clients than the batch: several replicas or a queue"),
        ({"engine": "lmdeploy"}, "engine without overheads"),
        ({"system": "l4", "tp": "1"}, "does not fit the GPU"),
        ({"isl": "8000", "osl": "10", "tpot_ms": "1", "ttft_ms": "5"}, "more work than the GPU can do"),
    ],
)
def test_rows_are_left_out_with_a_reason(deployments: Deployments, change: dict[str, str], reason: str) -> None:
    row: dict[str, Any] = {**GOOD, "decode_workers": "", "decode_batch": "", "decode_tp": "", **change}
    found = collected(deployments, row)
    assert not found.points
    ((said, count),) = found.left_out.items()
    assert said.startswith(reason)
    assert count == 1


def test_a_load_that_was_measured_twice_counts_once(deployments: Deployments) -> None:
    found = collected(deployments, GOOD, {**GOOD, "id": "b", "tpot_ms": "15"})
    assert len(found.points) == 1
    assert found.left_out == {"measured twice": 1}


def test_full_loads_of_other_engines_are_left_out(deployments: Deployments) -> None:
    found = collected(deployments, {**FULL, "engine": "vllm", "version": "0.19.0"})
    assert found.left_out == {"full load of another engine than trtllm-bench": 1}
