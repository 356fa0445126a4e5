"""Tables of starts: what is read, what is never read, and what comes out."""

from __future__ import annotations

import csv
import random
import time
from collections.abc import Mapping

import pytest

from planner import units
from planner.catalog.load import load_catalog
from planner.catalog.lookup.lookup import Lookup
from planner.errors import InputError
from planner.memory.starts.case_answers import answer_cells, answer_columns
from planner.memory.starts.case_rows import CaseTable, Given, read_case, table_of
from planner.memory.starts.cases import Answer, answer
from planner.memory.types import KvDtype, WeightDtype

LOG_HEADER = (
    "id,engine,version,model,gpu,tp,pp,dp,weight_quant,kv_dtype,gpu_memory_utilization,max_model_len,"
    "max_num_batched_tokens,enforce_eager,weights_gib_per_gpu,available_kv_gib_per_gpu,kv_tokens,max_concurrency,"
    "activation_gib,nontorch_gib,cudagraph_gib,notes"
)
"""The columns of a table of start-up logs that matter here."""
QWEN2_7B = (
    "L006,vllm,0.10.1.1,Qwen/Qwen2-7B-Instruct,A100-80GB,2,1,1,none(bf16),auto(bf16),0.5,16384,2048,n,"
    "7.1217,31.83,1192160,72.76,,,0.65,"
)
ORACLE_HEADER = (
    "id,hf_id,vllm_version,tp,kv_cache_dtype,max_model_len,max_num_batched_tokens,max_num_seqs,prefix_caching,"
    "available_bytes_per_gpu,gpu,num_blocks,kv_cache_size_tokens_logged,max_concurrency,refused"
)


@pytest.fixture(scope="module")
def lookup() -> Lookup:
    return Lookup(load_catalog())


def rows(*lines: str) -> list[dict[str, str]]:
    return list(csv.DictReader(lines))


def answered(
    table: CaseTable, row: Mapping[str, str], lookup: Lookup, given: frozenset[Given] = frozenset(), engine: str = ""
) -> Answer:
    return answer(read_case(table, row, given, engine), lookup)


def test_the_header_tells_the_table() -> None:
    assert table_of(LOG_HEADER.split(",")) is CaseTable.LOGS
    assert table_of(["id", "engine", "version", "model", "gpu", "tp", "flags", "failure_kind"]) is CaseTable.LOGS
    assert table_of(ORACLE_HEADER.split(",")) is CaseTable.VLLM
    assert table_of(["id", "hf_id", "tp", "quantization", "vllm_version"]) is CaseTable.WEIGHTS
    assert table_of(["id", "hf_id", "sglang_version", "gpu_mem_mib"]) is CaseTable.SGLANG
    with pytest.raises(InputError, match="no table of cases"):
        table_of(["name", "price"])
    with pytest.raises(InputError, match="no table of cases"):
        table_of([])


def test_a_logged_start_given_its_available_memory_is_the_logged_pool(lookup: Lookup) -> None:
    """31.83 GiB at 28 KiB a token and rank (28 layers x 2 heads x 128 x 2 x 2 B) are 74,493 blocks of 16."""
    (row,) = rows(LOG_HEADER, QWEN2_7B)
    found = answered(CaseTable.LOGS, row, lookup, frozenset({Given.AVAILABLE}))
    assert found.sizing is not None
    assert found.sizing.num_blocks == int(31.83 * 2**30) // (28 * 2 * 128 * 2 * 2 * 16)
    assert found.sizing.logged_tokens == pytest.approx(1_192_160, rel=0.001)
    assert answered(CaseTable.LOGS, row, lookup, frozenset({Given.WEIGHTS})).sizing is not None


@pytest.mark.parametrize(
    ("column", "given"),
    [
        ("weights_gib_per_gpu", Given.WEIGHTS),
        ("available_kv_gib_per_gpu", Given.AVAILABLE),
    ],
)
def test_a_given_term_is_taken_from_its_column(lookup: Lookup, column: str, given: Given) -> None:
    (row,) = rows(LOG_HEADER, QWEN2_7B)
    plain = answered(CaseTable.LOGS, row, lookup, frozenset({given}))
    other = answered(CaseTable.LOGS, {**row, column: "10"}, lookup, frozenset({given}))
    assert plain.sizing is not None
    assert other.sizing is not None
    assert plain.sizing.num_blocks != other.sizing.num_blocks


MEASURED = (
    "weights_gib_per_gpu",
    "available_kv_gib_per_gpu",
    "kv_tokens",
    "max_concurrency",
    "activation_gib",
    "nontorch_gib",
    "cudagraph_gib",
)


def test_measured_columns_are_never_looked_at_unless_given(lookup: Lookup) -> None:
    table = rows(
        LOG_HEADER,
        QWEN2_7B,
        "L028,vllm,0.9.2,Qwen/Qwen3-235B-A22B-FP8,H100-80GB,4,1,1,fp8 block,auto,0.9,40960,,,,8.11,178880,,,,,",
        "L123,vllm,0.20,zai-org/GLM-5-FP8,H200-141GB,8,1,1,fp8 block,auto,,202752,,,89.34,32.11,344192,1.7,,,,",
        "L181,vllm,0.24.x,Qwen/Qwen3-8B,RTX 5090-32GB,1,1,1,none(bf16),auto,0.92,32768,,,15.27,,89040,,,,,",
    )
    expected = [answer_cells(CaseTable.LOGS, answered(CaseTable.LOGS, row, lookup)) for row in table]
    shuffled = {name: random.Random(1).sample([row[name] for row in table], len(table)) for name in MEASURED}
    for number, row in enumerate(table):
        other = row | {name: values[number] for name, values in shuffled.items()}
        assert answer_cells(CaseTable.LOGS, answered(CaseTable.LOGS, other, lookup)) == expected[number]
        nonsense = row | dict.fromkeys(MEASURED, "-999999")
        assert answer_cells(CaseTable.LOGS, answered(CaseTable.LOGS, nonsense, lookup)) == expected[number]


@pytest.mark.parametrize(
    ("line", "blocks", "tokens", "concurrency"),
    [
        ("O1,meta-llama/Meta-Llama-3.1-8B,0.33.0,1,auto,32768,8192,1024,True,21474836480,,,,,n", 10240, 163840, 5.0),
        ("O2,google/gemma-3-27b-it,0.11.0,1,auto,4096,8192,1024,True,21474836480,,,,,n", 16384, 37440, 9.11234),
        ("O3,google/gemma-3-27b-it,0.33.0,1,auto,4096,8192,1024,True,21474836480,,,,,n", 16384, 37324, 9.11234),
        ("O4,deepseek-ai/DeepSeek-V3,0.19.0,1,fp8,32768,8192,1024,True,21474836480,,,,,n", 9549, 611136, 18.6503),
    ],
)
def test_rows_of_vllms_planning_code(lookup: Lookup, line: str, blocks: int, tokens: int, concurrency: float) -> None:
    (row,) = rows(ORACLE_HEADER, line)
    cells = answer_cells(CaseTable.VLLM, answered(CaseTable.VLLM, row, lookup))
    assert (cells["predicted_num_blocks"], cells["predicted_kv_tokens"]) == (str(blocks), str(tokens))
    assert float(cells["predicted_max_concurrency"]) == pytest.approx(concurrency, rel=1e-5)
    assert cells["predicted_starts"] == "y"
    assert float(cells["predicted_available_kv_gib_per_gpu"]) == 20


def test_a_refused_start_has_reasons_and_no_pool(lookup: Lookup) -> None:
    (row,) = rows(ORACLE_HEADER, "O5,meta-llama/Meta-Llama-3.1-8B,0.33.0,1,auto,32768,8192,1024,True,4294967296,,,,,y")
    cells = answer_cells(CaseTable.VLLM, answered(CaseTable.VLLM, row, lookup))
    assert cells["predicted_starts"] == "n"
    assert "max seq len (32768)" in cells["reasons"]
    assert (cells["predicted_num_blocks"], cells["predicted_kv_tokens"], cells["predicted_bytes_per_block"]) == (
        "", "", "2097152",
    )  # fmt: skip


def test_a_length_that_was_refused_is_the_one_asked_for() -> None:
    row = {"hf_id": "x", "max_model_len": "", "max_model_len_requested": "32768"}
    assert read_case(CaseTable.VLLM, row).deployment.max_model_len == 32768
    row["max_model_len_requested"] = "model_max"
    assert read_case(CaseTable.VLLM, row).deployment.max_model_len is None


def test_rows_of_vllms_weights_count_parameters_as_created(lookup: Lookup) -> None:
    row = {"hf_id": "meta-llama/Meta-Llama-3.1-8B", "tp": "1", "quantization": "", "vllm_version": "0.33.0"}
    cells = answer_cells(CaseTable.WEIGHTS, answered(CaseTable.WEIGHTS, row, lookup))
    assert cells["predicted_weight_bytes_per_rank"] == "16060522496"
    assert float(cells["predicted_weights_gib_per_gpu"]) == units.bytes_to_gib(16060522496)


SGLANG_ROW = {
    "id": "S1",
    "hf_id": "meta-llama/Llama-3.1-8B-Instruct",
    "sglang_version": "0.5.23",
    "gpu_mem_mib": "81559",
    "gpu_cc": "9.0",
    "tp": "1",
    "dp": "1",
    "enable_dp_attention": "n",
    "kv_cache_dtype": "auto",
    "page_size": "1",
    "context_length": "131072",
    "chunked_prefill_size": "8192",
    "cuda_graph_max_bs": "256",
    "pre_model_load_gib": "78.5",
    "available_gib_after_weights": "45.0",
    "mem_fraction_static": "0.83",
    "mem_fraction_given": "n",
    "extra_args": "",
}


def test_rows_of_sglangs_planning_code(lookup: Lookup) -> None:
    """rest = 45 − 78.5 x (1 − 0.83) GiB; a token takes 131,072 B."""
    cells = answer_cells(CaseTable.SGLANG, answered(CaseTable.SGLANG, SGLANG_ROW, lookup))
    assert cells["predicted_mem_fraction_static"] == "0.83"
    assert cells["predicted_cell_size_bytes"] == "131072"
    assert cells["predicted_max_total_num_tokens"] == str(int((45 - 78.5 * (1 - 0.83)) * 2**30) // 131072) == "259317"
    assert (cells["predicted_swa_max_tokens"], cells["predicted_mamba_slots"]) == ("", "")
    assert cells["predicted_max_running_requests"] == "2048"


def test_sglangs_flags_are_those_typed_or_those_in_columns(lookup: Lookup) -> None:
    typed = read_case(CaseTable.SGLANG, SGLANG_ROW | {"extra_args": "--page-size=16 --chunked-prefill-size=-1"})
    assert typed.deployment.sglang.page_size_tokens == 16
    assert not typed.deployment.sglang.chunked_prefill
    assert typed.deployment.max_num_batched_tokens is None
    plain = {k: v for k, v in SGLANG_ROW.items() if k != "extra_args"}
    stated = read_case(
        CaseTable.SGLANG, plain | {"dp": "8", "enable_dp_attention": "y", "chunked_prefill_size": "1024"}
    )
    assert (stated.deployment.attention_dp, stated.deployment.max_num_batched_tokens) == (8, 8192)
    assert stated.deployment.sglang.cuda_graph_max_batch == 256
    given = read_case(CaseTable.SGLANG, SGLANG_ROW | {"mem_fraction_given": "y", "mem_fraction_static": "0.9"})
    assert given.deployment.gpu_memory_utilization == 0.9
    assert read_case(CaseTable.SGLANG, SGLANG_ROW).deployment.gpu_memory_utilization is None


def test_settings_in_words_reach_the_deployment() -> None:
    (row,) = rows(
        "id,engine,version,model,gpu,tp,flags,failure_kind,notes",
        'F1,vllm,0.11.0,m,H100-80GB,2,"--enforce-eager --kv-cache-dtype fp8, util 0.86",x,"max_num_seqs=128, DCP=2"',
    )
    case = read_case(CaseTable.LOGS, row)
    assert (case.deployment.enforce_eager, case.deployment.max_num_seqs, case.deployment.dcp) == (True, 128, 2)
    assert (case.kv, case.deployment.gpu_memory_utilization) == ("fp8", 0.86)


@pytest.mark.parametrize(
    ("gpu", "note", "gib"),
    [
        ("A100-80GB", "", 79.25),
        ("A100-80GB", "79.15 GiB reported", 79.15),
        ("12GB RTX", "12.00 GiB", 12.0),
        ("RTX 24GB WSL (23.99)", "", 23.99),
        ("24GB-class", "", 23.4),
    ],
)
def test_memory_that_a_row_states_is_the_gpus(lookup: Lookup, gpu: str, note: str, gib: float) -> None:
    (row,) = rows(LOG_HEADER, QWEN2_7B)
    found = answered(CaseTable.LOGS, row | {"gpu": gpu, "gpu_mem_note": note}, lookup)
    assert found.sizing is not None
    assert found.sizing.gpu_memory.gib == gib


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model": "no such model"}, "not in the catalogue"),
        ({"model": "(cut)"}, "no model is named"),
        ({"gpu": "some card"}, "GPU"),
        ({"tp": ""}, "tp is not given"),
        ({"weight_quant": "f32"}, "are not modelled"),
        ({"kv_dtype": "turboquant"}, "not known"),
        ({"engine": "tgi"}, "not in the catalogue"),
        ({"tp": "0"}, "tp is not given"),
        ({"max_model_len": "-5"}, "must be from 1"),
    ],
)
def test_a_row_that_cannot_be_answered_says_why(lookup: Lookup, change: dict[str, str], reason: str) -> None:
    (row,) = rows(LOG_HEADER, QWEN2_7B)
    cells = answer_cells(CaseTable.LOGS, answered(CaseTable.LOGS, row | change, lookup))
    assert reason in cells["reasons"]
    assert cells["predicted_starts"] == cells["predicted_num_blocks"] == cells["predicted_weights_gib_per_gpu"] == ""
    assert set(cells) == set(answer_columns(CaseTable.LOGS))


def test_without_a_gpu_only_what_holds_on_every_gpu_is_said(lookup: Lookup) -> None:
    """192 columns a rank are no whole number of fp8 blocks of 128, whatever the card."""
    (row,) = rows(LOG_HEADER, QWEN2_7B)
    refused = answered(
        CaseTable.LOGS, row | {"model": "Qwen/Qwen3-30B-A3B-FP8", "tp": "4", "gpu": "", "version": "0.11.0"}, lookup
    )
    assert refused.sizing is not None
    assert not refused.sizing.starts
    assert "refused on every one" in refused.notes[-1]
    unknown = answered(CaseTable.LOGS, row | {"gpu": ""}, lookup)
    assert unknown.sizing is None
    given = answered(CaseTable.LOGS, row | {"gpu": ""}, lookup, frozenset({Given.AVAILABLE}))
    assert given.sizing is not None
    assert "cache layout" in given.notes[-1]


def test_a_format_that_the_gpu_refuses_for_every_model_needs_no_known_model(lookup: Lookup) -> None:
    """AWQ kernels need compute capability 7.5; a V100 has 7.0, and no model changes that."""
    (row,) = rows(LOG_HEADER, QWEN2_7B)
    unknown = {"model": "acme/secret-30b", "weight_quant": "awq", "version": "0.11.0"}
    volta = answered(CaseTable.LOGS, row | unknown | {"gpu": "V100-32GB"}, lookup)
    assert volta.sizing is not None
    assert not volta.sizing.starts
    assert "of every model are refused" in volta.notes[-1]
    ampere = answered(CaseTable.LOGS, row | unknown, lookup)
    assert ampere.sizing is None
    assert "not in the catalogue" in ampere.reasons[0]


def test_a_row_without_a_length_gets_the_longest_that_fits(lookup: Lookup) -> None:
    (row,) = rows(LOG_HEADER, QWEN2_7B)
    tight = row | {
        "model": "meta-llama/Meta-Llama-3.1-8B",
        "gpu": "L4-24GB",
        "tp": "1",
        "gpu_memory_utilization": "0.9",
    }
    stated = answered(CaseTable.LOGS, tight | {"max_model_len": "131072"}, lookup)
    assert stated.sizing is not None
    assert not stated.sizing.starts
    opened = answered(CaseTable.LOGS, tight | {"max_model_len": ""}, lookup)
    assert opened.sizing is not None
    assert opened.sizing.starts
    assert "the longest that fits" in opened.notes[-1]
    assert opened.assumed == ("max_model_len",)
    longer = answered(CaseTable.LOGS, tight | {"max_model_len": str(opened.sizing.max_model_len + 64)}, lookup)
    assert longer.sizing is not None
    assert not longer.sizing.starts


def test_formats_of_the_checkpoint_come_before_what_is_written(lookup: Lookup) -> None:
    (row,) = rows(LOG_HEADER, QWEN2_7B)
    stored = answered(CaseTable.LOGS, row | {"model": "Qwen/Qwen3-8B-FP8", "weight_quant": "none"}, lookup)
    made = answered(CaseTable.LOGS, row | {"model": "Qwen/Qwen3-8B", "weight_quant": "fp8(runtime)"}, lookup)
    named = answered(CaseTable.LOGS, row | {"model": "acme/Qwen3-8B-FP8-dynamic", "weight_quant": ""}, lookup)
    for found in (stored, made, named):
        assert found.sizing is not None
        assert found.sizing.deployment.weight_dtype is WeightDtype.FP8
    cache = answered(CaseTable.LOGS, row | {"kv_dtype": "fp8_e5m2"}, lookup)
    assert cache.sizing is not None
    assert (cache.sizing.deployment.kv_dtype, cache.sizing.deployment.kv_cache_dtype_name) == (KvDtype.FP8, "fp8_e5m2")


def test_a_thousand_rows_a_second(lookup: Lookup) -> None:
    """Distinct lengths and memories, so that no answer is remembered; half of it on a loaded machine."""
    models = ("meta-llama/Meta-Llama-3.1-8B", "openai/gpt-oss-20b", "deepseek-ai/DeepSeek-V3", "google/gemma-3-27b-it")
    table = rows(
        ORACLE_HEADER,
        *(
            f"O{n},{models[n % 4]},0.33.0,1,auto,{1024 + n},8192,1024,True,{21474836480 + 1000 * n},,,,,n"
            for n in range(1200)
        ),
    )
    answered(CaseTable.VLLM, table[0], lookup)
    began = time.perf_counter()
    for row in table:
        answer_cells(CaseTable.VLLM, answered(CaseTable.VLLM, row, lookup))
    assert len(table) / (time.perf_counter() - began) > 500
