"""SGLang's fraction, cell, tokens and running requests against what its own code computes."""

from __future__ import annotations

import pytest

from planner import units
from planner.catalog.load import Catalog
from planner.memory.sglang import (
    default_fraction,
    max_running_requests,
    mem_fraction_static,
    multimodal_reserved_gib,
    pool_of,
    prefill_graph_sizes,
    tier_of,
)
from planner.memory.size import size
from planner.memory.types import Deployment, KvDtype, Origin, WeightDtype

from .conftest import rows


def test_pools_equal_the_engine(catalog: Catalog) -> None:
    rules = catalog.engine("sglang", "0.5.23").sglang
    checked, fractions, wrong = 0, 0, []
    for row in rows("sglang_pools.csv"):
        shape, tp = catalog.model_shape(row["hf_id"]), int(row["tp"])
        pool = pool_of(rules, shape, tp, KvDtype(row["kv"]))
        tokens = pool.tokens(int(row["rest_memory_bytes"]), 1)
        running = max_running_requests(rules, tokens, int(row["context_length"]), None)
        got = (pool.cell_bytes, tokens, running)
        expected = (float(row["cell_size_bytes"]), int(row["max_total_num_tokens"]), int(row["max_running_requests"]))
        if got != pytest.approx(expected):
            wrong.append((row["id"], got, expected))
        checked += 1
        if row["mem_fraction_given"] == "n":
            chunk = int(row["chunked_prefill_size"])
            fraction = default_fraction(rules, shape, int(row["gpu_mem_mib"]), tp, chunk)
            taken = float(row["available_gib_after_weights"]) - float(row["pre_model_load_gib"]) * (1 - fraction)
            taken -= multimodal_reserved_gib(rules, shape, int(row["gpu_mem_mib"]))
            left = int(row["rest_memory_bytes"])
            same = fraction == pytest.approx(float(row["mem_fraction_static"]), abs=5e-7)
            if not same or units.gib_to_bytes(taken) != pytest.approx(left, rel=1e-5):
                wrong.append((row["id"], fraction, row["mem_fraction_static"], units.gib_to_bytes(taken), left))
            fractions += 1
    assert wrong == []
    assert checked > 200
    assert fractions > 100


@pytest.mark.parametrize(("chunk", "sizes"), [(256, 22), (512, 30), (1024, 38), (2048, 42), (4096, 50), (8192, 58)])
def test_captured_prefill_sizes(chunk: int, sizes: int) -> None:
    assert prefill_graph_sizes(chunk) == sizes


@pytest.mark.parametrize(
    ("version", "mib", "latent", "fractions"),
    [
        ("0.5.23", 81_559, False, (0.830, 0.828, 0.819, 0.812)),
        ("0.5.23", 143_771, False, (0.903, 0.902, 0.897, 0.893)),
        ("0.5.23", 81_559, True, (0.816, 0.815, 0.805, 0.799)),
        ("0.5.23", 24_564, False, (0.704, 0.698, 0.679, 0.658)),
        ("0.5.23", 16_380, False, (0.752, 0.744, 0.728, 0.697)),
        ("0.5.16", 81_559, False, (0.830, 0.828, 0.819, 0.812)),
    ],
)
def test_fraction_by_memory_and_tp(
    catalog: Catalog, version: str, mib: int, latent: bool, fractions: tuple[float, ...]
) -> None:
    rules = catalog.engine("sglang", version).sglang
    assert tuple(mem_fraction_static(rules, mib, tp, latent=latent) for tp in (1, 2, 4, 8)) == fractions


def test_an_unknown_driver_total_is_a_labelled_guess(catalog: Catalog) -> None:
    gpu = next(gpu for gpu in catalog.gpus.values() if gpu.memory_driver_mib is None)
    shape, facts = catalog.model_shape("Qwen/Qwen3-1.7B"), catalog.engine("sglang", "0.5.23")
    deployment = Deployment(1, WeightDtype.BF16, KvDtype.BF16)
    budget = size(shape, gpu, facts, deployment).budget
    assert budget.origin is Origin.GUESS
    assert "not known" in budget.source


def test_captured_prefill_sizes_are_counted_without_listing_them() -> None:
    assert [prefill_graph_sizes(chunk) for chunk in (1, 4, 40, 4608)] == [0, 1, 8, 51]
    assert prefill_graph_sizes(2**31 - 1) == 50 + (2**31 - 1 - 4608) // 512 + 1


def test_a_gpu_beyond_every_tier_takes_the_largest(catalog: Catalog) -> None:
    rules = catalog.engine("sglang", "0.5.23").sglang
    assert tier_of(rules, 1e9) is tier_of(rules, 200_000)
