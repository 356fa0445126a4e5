"""Whether real starts started: every failure on record by its reason, and no refusal of what ran."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import pytest

from planner.catalog.load import Catalog
from planner.catalog.lookup.lookup import Lookup
from planner.catalog.matrix import Part
from planner.catalog.model_shape import ModelShape
from planner.catalog.quant import stored_formats as formats
from planner.errors import InputError
from planner.memory.rules import start_rules
from planner.memory.size import size
from planner.memory.starts.case_rows import CaseTable, read_case
from planner.memory.starts.cases import answer
from planner.memory.types import Deployment, GivenTerms, KvDtype, VllmFlags, WeightDtype

from .conftest import rows
from .test_start_rules import quantised, with_width

RULES = {
    "no_kv_memory": {"no room for KV cache", "one request of max_model_len must fit"},
    "kv_less_than_one_request": {"one request of max_model_len must fit", "no room for KV cache"},
    "oom_weight_load": {"no room for KV cache"},
    "fp8_block_divisibility": {"fp8 block"},
    "heads_not_divisible": {"attention heads % tp"},
    "kv_heads_not_divisible": {"KV heads % tp"},
    "quant_capability": {"dtype support"},
    "dtype_unsupported": {"dtype"},
    "gpu_unsupported": {"GPU generation"},
    "kv_dtype_unsupported": {"sparse attention"},
    "oom_cudagraph_capture": set(),
}
"""Rules that may refuse a failure of each kind."""

EXPLAINED = {
    "F003": "names neither the model nor the share of memory",
    "F013": "the model's config is not known",
    "F014": "names neither the model nor the GPU",
    "F015": "a second server on the same GPUs, which another allocator manages",
    "F017": "0.2.7 under WSL beside other services of the same product",
    "F018": "0.2.5 is older than every release whose rules are known; its profile took more than its predecessor's",
    "F021": "graphs are captured outside the budget: no memory rule sees it",
    "F022": "names no model; the GPU is shared with another server",
    "F023": "names no model; sleep mode counts memory as negative, so the pool comes out too large",
    "F032": "blocks made while loading, which no flag of the planner asks for",
    "F043": "0.2.x ran AWQ in float16 only; every release whose rules are known also runs it in bfloat16",
    "F048": "the model's config is not known",
    "F049": "the model's config is not known; the number of blocks is overridden",
    "F051": "a MoE backend that is asked for by name, on AMD",
    "F070": "the issue doubts its own 166.6 GB a GPU, twice the bytes of the shards, and gives no cause",
    "F073": "0.4.4 of SGLang, and a 4-bit copy whose bytes the row does not state",
    "F074": "0.4 is older than every release whose rules are known; it profiles 16,384 tokens in one piece",
    "F075": "images are profiled at 128,000 tokens by the V0 engine of 0.7",
    "F076": "a cache with scales per head",
}
"""Failures that no rule can be asked about, and why."""

UNSTATED = {
    "L008": "the same start as F002, which failed; its figures close only at a share of 0.95",
    "L042": "a quarter of five releases; only the last, 0.18, has the backend, and its tokens are 3 % off, 0.15's 27 %",
    "L043": "as L042",
    "L059": "the load figure of unified memory includes transients: weights and cache exceed the budget",
    "L124": "the checkpoint is inferred; its 27.6 GiB are not those of the one that has its name",
    "L125": "as L124",
    "L128": "the share of memory is not stated, and 5.11 GiB are left only from 0.95 on",
}
"""Starts whose row leaves out what decides."""

BF16 = Deployment(1, WeightDtype.BF16, KvDtype.BF16)
FP8 = replace(BF16, weight_dtype=WeightDtype.FP8)
LLAMA = "meta-llama/Meta-Llama-3.1-8B"


@dataclass(frozen=True)
class Start:
    """A start of the same kind as a row whose model or GPU the catalogue lacks.

    Attributes
    ----------
    change
        What makes the model like the row's.
    capability
        Of a GPU that the catalogue lacks.
    """

    model: str
    gpu: str
    engine: str
    deployment: Deployment
    change: Callable[[ModelShape], ModelShape] = lambda shape: shape
    given: GivenTerms | None = None
    capability: str = ""


def as_method(shape: ModelShape, method: str, dtype: WeightDtype) -> ModelShape:
    return replace(shape, id=f"{shape.id} {method}", quant_method=method, native_weight_dtype=dtype)


def with_heads(shape: ModelShape, heads: int, kv_heads: int) -> ModelShape:
    layers = tuple(replace(layers, kv_heads=kv_heads) for layers in shape.cache_layers)
    return replace(shape, id=f"{heads} heads", attention_heads=heads, kv_heads=kv_heads, cache_layers=layers)


def with_length(shape: ModelShape, length: int) -> ModelShape:
    return replace(shape, id=f"{shape.id} of {length}", max_position_embeddings=length)


def as_fp8_blocks(shape: ModelShape) -> ModelShape:
    return quantised(shape, formats.fp8_block(128, 128), "fp8", "fp8")


INT4 = replace(BF16, weight_dtype=WeightDtype.W4A16)
AWQ = replace(BF16, weight_dtype=WeightDtype.INT4_AWQ)
AWQ_70B = "hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4"
PACKED = partial(as_method, method="compressed-tensors", dtype=WeightDtype.W4A16)

STAND_INS = {
    "F012": Start(
        LLAMA,
        "H100-SXM",
        "vllm 0.9.0",
        replace(BF16, max_model_len=196_608),
        partial(with_length, length=196_608),
        GivenTerms(available_gib=9.97),
    ),
    "F045": Start(
        "Qwen/Qwen3.5-27B",
        "L40S",
        "vllm 0.21.0",
        replace(FP8, max_model_len=131_072, gpu_memory_utilization=0.86),
        given=GivenTerms(available_gib=7.04),
    ),
    "F027": Start(
        "Qwen/Qwen3-30B-A3B-FP8", "L40S", "vllm 0.27.0", replace(FP8, tp=8),
        partial(with_width, part=Part.EXPERTS, old=768, new=640),
    ),
    "F030": Start(
        "Qwen/Qwen3-Next-80B-A3B-Instruct", "H100-SXM", "sglang 0.5.0", replace(FP8, tp=8), as_fp8_blocks
    ),
    "F035": Start(
        "meta-llama/Llama-2-13b-hf", "V100-32GB", "vllm 0.6.3", replace(BF16, tp=3),
        partial(with_heads, heads=52, kv_heads=52),
    ),
    "F041": Start(
        "openai-community/gpt2", "A100-80GB-SXM", "vllm 0.6.3", replace(BF16, tp=2),
        partial(with_heads, heads=25, kv_heads=25),
    ),
    "F050": Start("deepseek-ai/DeepSeek-V4-Flash", "RTX4090", "vllm 0.29.0", FP8),
    "F054": Start(
        LLAMA, "RTX3090", "vllm 0.19.0", replace(BF16, tp=3), partial(with_heads, heads=24, kv_heads=2)
    ),
    "F057": Start(LLAMA, "T4", "vllm 0.11.0", replace(INT4, tp=2), PACKED),
    "F058": Start(LLAMA, "T4", "vllm 0.9.0", INT4, PACKED),
    "F059": Start(
        "jeevanchaps/Meta-Llama3.1-8B-Instruct-assessment", "T4", "vllm 0.6.3",
        replace(BF16, weight_dtype=WeightDtype.BNB_INT8), capability="5.2",
    ),
    "F060": Start(AWQ_70B, "V100-32GB", "vllm 0.6.3", AWQ),
    "F061": Start(AWQ_70B, "V100-32GB", "vllm 0.6.3", AWQ),
    "F062": Start(
        LLAMA, "T4", "vllm 0.14.0", replace(BF16, weight_dtype=WeightDtype.NVFP4, tp=2),
        partial(as_method, method="compressed-tensors", dtype=WeightDtype.NVFP4),
    ),
    "F064": Start(LLAMA, "V100-32GB", "vllm 0.6.3", replace(BF16, vllm=VllmFlags(dtype="bfloat16"))),
    "F065": Start(LLAMA, "V100-16GB", "vllm 0.6.3", BF16, capability="6.0"),
}  # fmt: skip
"""Failures whose model or GPU the catalogue lacks, as a start of the same kind."""


def rules_of_stand_in(catalog: Catalog, start: Start) -> set[str]:
    name, version = start.engine.split()
    gpu = catalog.gpu(start.gpu)
    if start.capability:
        gpu = gpu.model_copy(update={"compute_capability": start.capability})
    shape = start.change(catalog.model_shape(start.model))
    sizing = size(shape, gpu, catalog.engine(name, version), start.deployment, start.given)
    return {refusal.rule for refusal in sizing.refusals}


@pytest.fixture(scope="module")
def lookup(catalog: Catalog) -> Lookup:
    return Lookup(catalog)


def verdict(catalog: Catalog, lookup: Lookup, row: dict[str, str]) -> tuple[bool | None, set[str]]:
    """Whether the row is predicted to start, ``None`` where it cannot be answered, and the rules that refuse it."""
    found = answer(read_case(CaseTable.LOGS, row), lookup)
    if found.sizing is not None:
        return found.sizing.starts, {refusal.rule for refusal in found.sizing.refusals}
    stand_in = STAND_INS.get(row["id"])
    if stand_in is None:
        return None, set()
    rules = rules_of_stand_in(catalog, stand_in)
    return not rules, rules


@pytest.mark.parametrize("row", list(rows("start_failures.csv")), ids=lambda row: row["id"])
def test_every_failure_is_refused_by_its_rule_or_explained(
    catalog: Catalog, lookup: Lookup, row: dict[str, str]
) -> None:
    if row["id"] in EXPLAINED:
        assert row["id"] not in STAND_INS
        return
    rules = verdict(catalog, lookup, row)[1]
    assert rules & RULES[row["failure_kind"]], f"{row['message_gist']} (refused by {rules or 'nothing'})"


def test_explanations_are_of_rows_that_need_them(catalog: Catalog, lookup: Lookup) -> None:
    """Every name is a row's, and a start that is predicted right needs no explanation."""
    failures = {row["id"] for row in rows("start_failures.csv")}
    started = {row["id"]: row for row in rows("started.csv")}
    assert EXPLAINED.keys() | STAND_INS.keys() <= failures
    assert UNSTATED.keys() <= started.keys()
    assert not [name for name in UNSTATED if verdict(catalog, lookup, started[name])[0]]


def test_starts_and_refusals_are_right(catalog: Catalog, lookup: Lookup) -> None:
    """At least 95 % of the rows that say what decides, failures and starts together."""
    wrong: dict[str, list[str]] = {"start_failures.csv": [], "started.csv": []}
    counted = {"start_failures.csv": 0, "started.csv": 0}
    for table, failed in (("start_failures.csv", True), ("started.csv", False)):
        for row in rows(table):
            starts = verdict(catalog, lookup, row)[0]
            if row["id"] in EXPLAINED or row["id"] in UNSTATED or starts is None:
                continue
            counted[table] += 1
            if starts is failed:
                wrong[table].append(row["id"])
    assert counted["start_failures.csv"] >= 25
    assert counted["started.csv"] >= 60
    assert sum(map(len, wrong.values())) <= 0.05 * sum(counted.values()), f"{wrong} of {counted}"


TP_VERSION = "0.19.0"
REFINED_BLOCKS = "0.33.0"


def test_tensor_parallel_limits(catalog: Catalog) -> None:
    """The table of limits holds for 0.19.0; from 0.30 on blocks of experts are refined, and only they differ.

    It says nothing of heads and groups of recurrent layers, which have rules of their own, nor of NVFP4, whose inputs
    must divide by 16 on every rank (modelopt.py).
    """
    gpu, differing = catalog.gpu("H100-SXM"), set()
    compared = 0
    for row in rows("tp_limits.csv"):
        if row["hf_id"] not in catalog.model_sources and row["hf_id"] not in catalog.aliases:
            continue
        try:
            shape = catalog.model_shape(row["hf_id"])
        except InputError:  # a family without a reader is refused by name, elsewhere
            continue
        known = {str(dtype): dtype for dtype in WeightDtype}
        weights = known.get(shape.native_weight_dtype, WeightDtype.BF16)
        for tp in (1, 2, 4, 8, 16, 32):
            deployment = Deployment(tp, weights, KvDtype.BF16)
            for version in (TP_VERSION, REFINED_BLOCKS):
                facts = catalog.engine("vllm", version)
                found = start_rules.before_sizing(shape, gpu, facts, deployment, weights_given=True)
                divides = not {refusal.rule for refusal in found} & DIVISION_RULES
                compared += 1
                if divides != (row[f"tp{tp}"] == "ok") and weights is not WeightDtype.NVFP4:
                    differing.add((version, row["hf_id"], tp, row[f"tp{tp}"]))
    assert compared > 2000
    assert {kind for version, _, _, kind in differing if version == REFINED_BLOCKS} <= {"fp8blk_moe"}
    assert {item for item in differing if item[0] == TP_VERSION} == set()


DIVISION_RULES = {
    "attention heads % tp", "KV heads % tp", "expert width % tp", "MLP width % tp", "fp8 block",
    "quantisation group",
}  # fmt: skip
