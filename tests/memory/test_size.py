from __future__ import annotations

import dataclasses
import itertools
import math

import pytest
from hypothesis import given as generated
from hypothesis import settings
from hypothesis import strategies as st

from planner.catalog.load import Catalog, load_catalog
from planner.errors import InputError
from planner.memory.size import size, stored_dtype
from planner.memory.types import Deployment, GivenTerms, KvDtype, WeightDtype
from planner.memory.vllm import blocks
from planner.memory.vllm.replica import layout_of
from planner.memory.vllm.sizing import in_flight_tokens
from planner.origin import Origin

CATALOG = load_catalog()
BF16 = Deployment(1, WeightDtype.BF16, KvDtype.BF16)
HYBRIDS = ["openai/gpt-oss-120b", "google/gemma-3-27b-it", "google/gemma-2-27b-it", "LGAI-EXAONE/EXAONE-4.0-32B"]
HYBRIDS += ["meta-llama/Llama-4-Scout-17B-16E-Instruct", "google/gemma-4-31B-it", "LiquidAI/LFM2-1.2B"]
HYBRIDS += ["Qwen/Qwen3-Next-80B-A3B-Instruct", "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"]
PLAIN = ["meta-llama/Meta-Llama-3.1-8B", "mistralai/Mistral-7B-v0.1", "deepseek-ai/DeepSeek-V3"]


def test_terms_are_ordered_named_and_sourced_and_add_up(catalog: Catalog) -> None:
    shape, gpu = catalog.model_shape("meta-llama/Meta-Llama-3.1-8B"), catalog.gpu("H100-SXM")
    sizing = size(shape, gpu, catalog.engine("vllm", "0.33.0"), dataclasses.replace(BF16, max_model_len=8192))
    assert [term.name.split()[0] for term in sizing.terms] == ["weights", "activation", "memory", "model", "CUDA"]
    assert all(term.source for term in (sizing.gpu_memory, sizing.budget, *sizing.terms))
    assert sizing.budget.gib == pytest.approx(0.92 * 79.18)
    left = sizing.budget.gib - sum(term.gib for term in sizing.terms)
    assert sizing.available_kv_gib == pytest.approx(left, abs=1e-8)
    assert sizing.terms[0].origin is Origin.COMPUTED
    assert sizing.terms[-1].origin is Origin.FITTED


@pytest.mark.parametrize(("version", "graphs"), [("0.11.0", False), ("0.19.0", False), ("0.20.0", True)])
def test_graphs_are_deducted_from_020_on(catalog: Catalog, version: str, graphs: bool) -> None:
    shape, gpu = catalog.model_shape("meta-llama/Meta-Llama-3.1-8B"), catalog.gpu("H100-SXM")
    names = [term.name for term in size(shape, gpu, catalog.engine("vllm", version), BF16).terms]
    assert any(name.startswith("CUDA graphs") for name in names) is graphs


@pytest.mark.parametrize(
    ("version", "gpu", "seqs", "tokens"),
    [
        ("0.11.0", "H100-SXM", 1024, 8192),
        ("0.11.0", "A100-80GB-SXM", 256, 2048),
        ("0.19.0", "L4", 256, 2048),
        ("0.19.0", "B200", 1024, 8192),
        ("0.33.0", "B200", 1024, 16384),
    ],
)
def test_scheduler_defaults_by_memory(catalog: Catalog, version: str, gpu: str, seqs: int, tokens: int) -> None:
    shape = catalog.model_shape("Qwen/Qwen3-1.7B")
    sizing = size(shape, catalog.gpu(gpu), catalog.engine("vllm", version), BF16)
    assert (sizing.max_num_seqs, sizing.max_num_batched_tokens) == (seqs, tokens)


def test_h100_overheads_of_the_logs(catalog: Catalog) -> None:
    """Llama-3.1-8B on H100: activation 4.76 GiB in 0.11 logs; 1.89 in 0.19 logs, 58.11 GiB left at 0.95."""
    shape, gpu = catalog.model_shape("meta-llama/Meta-Llama-3.1-8B"), catalog.gpu("H100-SXM")
    old = size(shape, gpu, catalog.engine("vllm", "0.11.0"), BF16)
    assert old.terms[1].gib == pytest.approx(4.76, abs=0.05)
    newer = dataclasses.replace(BF16, gpu_memory_utilization=0.95, max_model_len=8192)
    sizing = size(shape, gpu, catalog.engine("vllm", "0.19.0"), newer)
    assert sizing.terms[1].gib == pytest.approx(1.89, abs=0.05)
    assert sizing.available_kv_gib == pytest.approx(58.11, rel=0.002)


def test_every_problem_of_a_deployment_is_reported_at_once(catalog: Catalog) -> None:
    shape, gpu = catalog.model_shape("meta-llama/Meta-Llama-3.1-8B"), catalog.gpu("H100-SXM")
    wrong = dataclasses.replace(BF16, tp=0, gpu_memory_utilization=1.2)
    with pytest.raises(InputError) as error:
        size(shape, gpu, catalog.engine("vllm", "0.33.0"), wrong, GivenTerms(weights_gib=-1))
    assert [problem.field for problem in error.value.problems] == ["tp", "utilization", "weights_gib"]


@pytest.mark.parametrize("count", [0, -1, 2**31, 10**300], ids=["0", "-1", "2**31", "10**300"])
@pytest.mark.parametrize("name", ["tp", "max_model_len", "max_num_seqs", "max_num_batched_tokens"])
def test_counts_have_a_bound(catalog: Catalog, name: str, count: int) -> None:
    shape, gpu, facts = catalog.model_shape("Qwen/Qwen3-1.7B"), catalog.gpu("L4"), catalog.engine("vllm", "")
    with pytest.raises(InputError) as error:
        size(shape, gpu, facts, dataclasses.replace(BF16, **{name: count}))
    assert [problem.field for problem in error.value.problems] == [name]
    assert len(str(error.value)) < 120


@pytest.mark.parametrize("gib", [-1.0, 1e6 + 1, 1e308, float("inf"), float("nan")])
@pytest.mark.parametrize("name", ["gpu_memory_gib", "weights_gib", "overhead_gib"])
def test_typed_memory_has_a_bound(catalog: Catalog, name: str, gib: float) -> None:
    shape, gpu, facts = catalog.model_shape("Qwen/Qwen3-1.7B"), catalog.gpu("L4"), catalog.engine("vllm", "")
    with pytest.raises(InputError) as error:
        size(shape, gpu, facts, BF16, GivenTerms(**{name: gib}))
    assert [problem.field for problem in error.value.problems] == [name]


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_the_largest_numbers_allowed_are_sized(catalog: Catalog, engine: str) -> None:
    shape, gpu, facts = catalog.model_shape("google/gemma-3-27b-it"), catalog.gpu("A40"), catalog.engine(engine, "")
    most = 2**31 - 1
    for deployment in (Deployment(most, BF16.weight_dtype, BF16.kv_dtype, most, most, most, 1.0), BF16):
        for given in (GivenTerms(1e6, 0.0, 0.0), GivenTerms(1e-6, 1e6, 1e6), GivenTerms(1e6)):
            sizing = size(shape, gpu, facts, deployment, given)
            assert sizing.num_blocks >= 0
            assert math.isfinite(sizing.max_concurrency)


VERSIONS = [("vllm", "0.11.0"), ("vllm", "0.19.0"), ("vllm", "0.33.0"), ("sglang", "0.5.16"), ("sglang", "0.5.23")]


@pytest.mark.parametrize(("engine", "version"), VERSIONS)
def test_no_combination_of_catalogue_entries_raises(catalog: Catalog, engine: str, version: str) -> None:
    """A refusal or a pool, never an exception; each version takes a third of the GPUs, together they take all."""
    facts = catalog.engine(engine, version)
    gpus = list(catalog.gpus.values())[VERSIONS.index((engine, version)) % 3 :: 3]
    shapes = [catalog.model_shape(model) for model in (*HYBRIDS, *PLAIN, "llava-hf/llava-1.5-7b-hf", "microsoft/phi-4")]
    for shape, gpu, tp, weights, kv in itertools.product(shapes, gpus, (1, 3, 8), WeightDtype, KvDtype):
        sizing = size(shape, gpu, facts, Deployment(tp, weights, kv))
        assert sizing.num_blocks >= 0
        assert sizing.max_num_seqs >= 1
        assert all(math.isfinite(term.gib) for term in (sizing.gpu_memory, sizing.budget, *sizing.terms))
        assert all(refusal.message and refusal.fix for refusal in sizing.refusals)


@pytest.mark.parametrize("gpu", ["A40", "GH200-96GB", "L40", "H20"])
def test_sglang_guesses_a_total_that_nvidia_smi_did_not_give(catalog: Catalog, gpu: str) -> None:
    assert catalog.gpu(gpu).memory_driver_mib is None
    shape, facts = catalog.model_shape("Qwen/Qwen3-1.7B"), catalog.engine("sglang", "0.5.23")
    sizing = size(shape, catalog.gpu(gpu), facts, BF16)
    assert sizing.starts
    assert sizing.budget.origin is Origin.GUESS
    assert "nvidia-smi total not known" in sizing.budget.source


def test_no_fix_names_a_length_that_the_model_refuses(catalog: Catalog) -> None:
    """999,999 asked: 400,000 tokens and more would fit, and the model takes 131,072."""
    shape, gpu = catalog.model_shape("meta-llama/Meta-Llama-3.1-8B"), catalog.gpu("H100-SXM")
    asked = dataclasses.replace(BF16, max_model_len=999_999)
    sizing = size(shape, gpu, catalog.engine("vllm", "0.33.0"), asked)
    fixes = {refusal.rule: refusal.fix for refusal in sizing.refusals}
    assert set(fixes.values()) == {"Set max_model_len to at most 131072"}
    assert "one request of max_model_len must fit" in fixes


def test_no_fix_names_a_length_of_nothing(catalog: Catalog) -> None:
    shape, gpu = catalog.model_shape("meta-llama/Meta-Llama-3.1-8B"), catalog.gpu("H100-SXM")
    given = GivenTerms(gpu_memory_gib=20, weights_gib=18.3999, overhead_gib=0)
    sizing = size(shape, gpu, catalog.engine("vllm", "0.33.0"), BF16, given)
    (refusal,) = sizing.refusals
    assert 0 < sizing.available_kv_gib < 0.001
    assert "Quantise" in refusal.fix


def test_several_refusals_are_reported_together(catalog: Catalog) -> None:
    shape, gpu = catalog.model_shape("Qwen/Qwen2.5-7B-Instruct"), catalog.gpu("H100-SXM")
    asked = dataclasses.replace(BF16, tp=8, max_model_len=10**6, max_num_seqs=512, max_num_batched_tokens=256)
    sizing = size(shape, gpu, catalog.engine("vllm", "0.33.0"), asked)
    rules = [refusal.rule for refusal in sizing.refusals]
    assert rules == ["attention heads % tp", "model's longest context", "scheduler budget"]
    assert all(refusal.fix for refusal in sizing.refusals)


@pytest.mark.parametrize(
    ("model", "tp", "version", "rule"),
    [
        ("microsoft/phi-4", 4, "0.33.0", "KV heads % tp"),
        ("Qwen/Qwen3-30B-A3B-FP8", 4, "0.19.0", "fp8 block"),
        ("Qwen/Qwen3-30B-A3B-FP8", 4, "0.33.0", ""),
        ("moonshotai/Kimi-K2.5", 8, "0.11.0", "architecture"),
    ],
)
def test_rules_by_version(catalog: Catalog, model: str, tp: int, version: str, rule: str) -> None:
    shape, gpu = catalog.model_shape(model), catalog.gpu("H100-SXM")
    dtype = WeightDtype.FP8 if shape.native_weight_dtype == "fp8" else WeightDtype.BF16
    deployment = Deployment(tp, dtype, KvDtype.BF16, max_model_len=2048)
    sizing = size(shape, gpu, catalog.engine("vllm", version), deployment, GivenTerms(weights_gib=10))
    assert [refusal.rule for refusal in sizing.refusals] == ([rule] if rule else [])


@pytest.mark.parametrize(
    ("gpu", "weights", "kv", "refused"),
    [
        ("V100-32GB", WeightDtype.FP8, KvDtype.BF16, True),
        ("V100-32GB", WeightDtype.INT4_AWQ, KvDtype.BF16, True),
        ("T4", WeightDtype.INT4_AWQ, KvDtype.BF16, False),
        ("A100-80GB-SXM", WeightDtype.BF16, KvDtype.FP8, True),
        ("L40S", WeightDtype.FP8, KvDtype.FP8, False),
    ],
)
def test_what_a_gpu_generation_allows(
    catalog: Catalog, gpu: str, weights: WeightDtype, kv: KvDtype, refused: bool
) -> None:
    deployment = Deployment(1, weights, kv, max_model_len=1024, max_num_seqs=16)
    shape = catalog.model_shape("Qwen/Qwen3-1.7B")
    sizing = size(shape, catalog.gpu(gpu), catalog.engine("vllm", "0.33.0"), deployment)
    assert bool(sizing.refusals) is refused


def test_an_unmodelled_format_is_named(catalog: Catalog) -> None:
    shape = catalog.model_shape("nvidia/Qwen3-235B-A22B-NVFP4")
    assert stored_dtype(shape) is WeightDtype.NVFP4
    with pytest.raises(InputError, match="torchao"):
        stored_dtype(dataclasses.replace(shape, native_weight_dtype="unsupported: torchao"))


@settings(max_examples=150, deadline=None)
@generated(
    model=st.sampled_from(HYBRIDS + PLAIN),
    tp=st.sampled_from([1, 2, 4]),
    version=st.sampled_from(["0.11.0", "0.19.0", "0.33.0"]),
    length=st.integers(64, 131_072),
    batched=st.sampled_from([256, 2048, 8192]),
    share=st.floats(0, 1),
)
def test_a_request_never_occupies_more_than_the_linear_bound(
    model: str, tp: int, version: str, length: int, batched: int, share: float
) -> None:
    """Blocks held against ``bytes_per_token t + sliding_bytes_per_token min(t, reserve) + states``, in whole blocks."""
    shape, facts = CATALOG.model_shape(model), CATALOG.engine("vllm", version)
    length = min(length, shape.max_position_embeddings)
    deployment = Deployment(
        tp, WeightDtype.BF16, KvDtype.BF16, max_model_len=length, max_num_batched_tokens=batched, max_num_seqs=64
    )
    gpu = CATALOG.gpu("H100-SXM")
    sizing = size(shape, gpu, facts, deployment, GivenTerms(weights_gib=1, overhead_gib=1))
    pool = layout_of(shape, gpu, facts, deployment, length)
    held = max(1, round(share * length))
    occupied = 0
    for group in pool.groups:
        full = blocks.ceil_div(held, group.block_tokens)
        most = blocks.blocks_of_request(group, length, in_flight_tokens(facts.vllm, deployment, batched))
        occupied += (group.held_blocks or min(full, most)) * pool.bytes_per_block
    whole = blocks.ceil_div(held, sizing.largest_block_tokens) * sizing.largest_block_tokens
    bound = sizing.bytes_per_token * whole + sizing.sliding_bytes_per_token * min(whole, sizing.sliding_reserve_tokens)
    bound += sizing.state_bytes_per_request
    assert occupied <= bound * (1 + 1e-12)


@settings(max_examples=60, deadline=None)
@generated(lengths=st.lists(st.integers(1, 20_000), min_size=1, max_size=40), weights=st.floats(5, 60))
def test_sglang_requests_within_the_linear_bound_fit_both_pools(lengths: list[int], weights: float) -> None:
    """gpt-oss: full tokens within the full pool, window tokens within 0.8 of it."""
    shape, facts = CATALOG.model_shape("openai/gpt-oss-20b"), CATALOG.engine("sglang", "0.5.23")
    deployment = Deployment(1, WeightDtype.MXFP4, KvDtype.BF16)
    sizing = size(shape, CATALOG.gpu("H100-SXM"), facts, deployment, GivenTerms(weights_gib=weights))
    reserve = sizing.sliding_reserve_tokens
    full, window = sum(lengths), sum(min(t, reserve) for t in lengths)
    if sizing.bytes_per_token * full + sizing.sliding_bytes_per_token * window <= sizing.pool_bytes:
        assert full <= sizing.pool_tokens
        assert window <= 0.8 * sizing.pool_tokens + 1
