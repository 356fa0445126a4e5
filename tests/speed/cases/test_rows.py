"""Rows of each layout as points: names, splits and loads, and why a row is none."""

from __future__ import annotations

from typing import Any

import pytest

from planner.errors import InputError
from planner.memory.types import KvDtype, WeightDtype
from planner.speed.cases.layouts import Layout, layout_of
from planner.speed.cases.rows import Reader, measured_of, read_measured
from planner.speed.points import Figures, Load, LoadKind, Point, Served


def point_of(reader: Reader, layout: Layout, row: Any) -> Point:
    case = reader.read(layout, row)
    assert case.point is not None, case.reason
    return case.point


def reason_of(reader: Reader, layout: Layout, row: Any) -> str:
    case = reader.read(layout, row)
    assert case.point is None
    return case.reason


def test_layouts_are_known_by_columns_of_their_own() -> None:
    assert layout_of(["x", "model", "SYSTEM", "isl"]) is Layout.SILICON
    assert layout_of(["concurrency_or_rate"]) is Layout.THROUGHPUT
    assert layout_of(["model", "load", "input_tokens"]) is Layout.POINTS
    assert layout_of(["id", "tp", "attention_dp", "input_tokens", "output_tokens"]) is Layout.POINTS
    with pytest.raises(InputError, match="no table of speeds"):
        layout_of(["id", "model", "gpu", "tp"])


def test_a_silicon_point(reader: Reader, silicon: Any) -> None:
    case = reader.read(Layout.SILICON, silicon())
    assert case.point == Point(
        "s1",
        Served("vllm", "0.19.0", "meta-llama/Llama-3.1-8B-Instruct", "H100-SXM", 1, WeightDtype.BF16, KvDtype.BF16),
        Load(LoadKind.CLOSED_LOOP, 1024, 512, concurrency=16),
    )
    assert "KV cache assumed bf16" in case.notes


def test_a_batch_stands_in_for_the_concurrency(reader: Reader, silicon: Any) -> None:
    point = point_of(reader, Layout.SILICON, silicon(concurrency="", batch_size="28.0"))
    assert point.load.concurrency == 28


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ({"tp": "64", "attention_dp": "1", "moe_tp": "8", "moe_ep": "8"}, (8, 8, 1)),
        ({"tp": "16", "attention_dp": "1", "moe_tp": "4", "moe_ep": "4"}, (4, 4, 1)),
        ({"tp": "4", "attention_dp": "1", "moe_tp": "2", "moe_ep": "2"}, (2, 2, 1)),
        ({"tp": "1", "attention_dp": "64", "moe_tp": "8", "moe_ep": "8"}, (8, 8, 8)),
        ({"tp": "1", "attention_dp": "8", "moe_tp": "1", "moe_ep": "8"}, (8, 8, 8)),
        ({"tp": "4", "attention_dp": "4", "moe_tp": "1", "moe_ep": "16"}, (4, 4, 4)),
        ({"tp": "8", "attention_dp": "1", "moe_tp": "1", "moe_ep": "8"}, (8, 8, 1)),
        ({"tp": "8", "attention_dp": "0", "moe_tp": "0", "moe_ep": "0"}, (8, 1, 1)),
        ({"tp": "8"}, (8, 1, 1)),
    ],
)
def test_degrees_of_silicon_points(
    reader: Reader, silicon: Any, written: dict[str, str], read: tuple[int, ...]
) -> None:
    served = point_of(
        reader, Layout.SILICON, silicon(model="deepseek-ai/DeepSeek-R1", precision="fp8", **written)
    ).served
    assert (served.tp, served.ep, served.attention_dp) == read


def test_gpus_of_several_workers_are_no_replica(reader: Reader, silicon: Any) -> None:
    row = silicon(model="deepseek-ai/DeepSeek-R1", tp="36", moe_tp="36", moe_ep="1")
    assert "how they are split into workers is not given" in reason_of(reader, Layout.SILICON, row)
    assert "cannot be split into 3" in reason_of(reader, Layout.SILICON, silicon(tp="3"))


def test_decode_workers_share_the_concurrency(reader: Reader, silicon: Any) -> None:
    row = silicon(
        mode="disagg", model="deepseek-ai/DeepSeek-R1", precision="fp8", tp="", decode_tp="8", decode_workers="6",
        decode_batch="16", concurrency="96",
    )  # fmt: skip
    point = point_of(reader, Layout.SILICON, row)
    assert (point.served.tp, point.served.replicas, point.served.decode_only) == (8, 6, True)
    assert point.load.concurrency == 16
    without = point_of(reader, Layout.SILICON, {**row, "decode_workers": ""})
    assert without.served.replicas == 6
    assert point_of(reader, Layout.SILICON, {**row, "concurrency": ""}).load.concurrency == 16
    assert "decode_workers" in reason_of(reader, Layout.SILICON, {**row, "decode_workers": "", "decode_batch": "nan"})


@pytest.mark.parametrize(
    ("cells", "load"),
    [
        ({"concurrency_or_rate": "max-load"}, Load(LoadKind.MAX_LOAD, 280, 310)),
        ({"concurrency_or_rate": "offline"}, Load(LoadKind.MAX_LOAD, 280, 310)),
        ({"concurrency_or_rate": "declared 16"}, Load(LoadKind.MAX_LOAD, 280, 310)),
        ({"concurrency_or_rate": "num-prompts 320"}, Load(LoadKind.MAX_LOAD, 280, 310, concurrency=320)),
        ({"concurrency_or_rate": "10 req/s"}, Load(LoadKind.OPEN_LOOP, 280, 310, rate_per_s=10)),
        ({"concurrency_or_rate": "0.5 RPS"}, Load(LoadKind.OPEN_LOOP, 280, 310, rate_per_s=0.5)),
        ({"concurrency_or_rate": "inf req/s"}, Load(LoadKind.MAX_LOAD, 280, 310)),
        ({"concurrency_or_rate": "64"}, Load(LoadKind.CLOSED_LOOP, 280, 310, concurrency=64)),
        ({"concurrency_or_rate": "64", "id": "anl_7"}, Load(LoadKind.STATIC_BATCH, 280, 310, concurrency=64)),
        (
            {"concurrency_or_rate": "64", "notes": "label=a; static batch, elapsed_s=2"},
            Load(LoadKind.STATIC_BATCH, 280, 310, concurrency=64),
        ),
        (
            {"concurrency_or_rate": "1", "notes": "first-token latency at batch 1", "output_len": "1"},
            Load(LoadKind.STATIC_BATCH, 280, 1, concurrency=1),
        ),
        (
            {"concurrency_or_rate": "1", "notes": "suite D; interactive: one request at a time"},
            Load(LoadKind.CLOSED_LOOP, 280, 310, concurrency=1),
        ),
    ],
)
def test_loads_of_measured_throughput(reader: Reader, throughput: Any, cells: dict[str, str], load: Load) -> None:
    assert point_of(reader, Layout.THROUGHPUT, throughput(**cells)).load == load


@pytest.mark.parametrize(
    ("cells", "read"),
    [
        ({"gpus": "4", "tp": "2"}, (2, 1, 1, 2)),
        ({"gpus": "8", "tp": "2", "pp": "2"}, (2, 1, 1, 2)),
        ({"gpus": "", "tp": "4"}, (4, 1, 1, 1)),
        ({"gpus": "4", "tp": ""}, (4, 1, 1, 1)),
        ({"gpus": "4", "tp": "", "ep": "4"}, (4, 4, 4, 1)),
        ({"gpus": "4", "tp": "", "notes": "DEP4; source gives 4685"}, (4, 4, 4, 1)),
        ({"gpus": "8", "tp": "", "engine": "mlperf-sut"}, (1, 1, 1, 8)),
        ({"gpus": "8", "tp": "", "engine": "mlperf-sut", "model": "Llama-2-70B", "gpu": "H100"}, (4, 1, 1, 2)),
    ],
)
def test_gpus_and_degrees(reader: Reader, throughput: Any, cells: dict[str, str], read: tuple[int, ...]) -> None:
    served = point_of(reader, Layout.THROUGHPUT, throughput(**cells)).served
    assert (served.tp, served.ep, served.attention_dp, served.replicas) == read


def test_replicas_share_the_load(reader: Reader, throughput: Any) -> None:
    closed = point_of(reader, Layout.THROUGHPUT, throughput(gpus="4", concurrency_or_rate="64"))
    assert closed.load.concurrency == 16
    arrivals = point_of(reader, Layout.THROUGHPUT, throughput(gpus="4", concurrency_or_rate="10 req/s"))
    assert arrivals.load.rate_per_s == 2.5


def test_argonne_has_the_small_a100(reader: Reader, throughput: Any) -> None:
    assert point_of(reader, Layout.THROUGHPUT, throughput(gpu="A100", id="anl_1")).served.gpu == "A100-40GB-SXM"
    assert point_of(reader, Layout.THROUGHPUT, throughput(gpu="A100")).served.gpu == "A100-80GB-SXM"


def test_a_load_point(reader: Reader, point: Any) -> None:
    row = point(load="open loop", rate_per_s="2", concurrency="", cached_share="0.25", acceptance="1.8", pp="2")
    found = point_of(reader, Layout.POINTS, row)
    assert found.load == Load(LoadKind.OPEN_LOOP, 1024, 512, None, 2, 0.25, 1.8)
    assert found.served.pp == 2
    assert point_of(reader, Layout.POINTS, point(load="")).load.kind is LoadKind.CLOSED_LOOP


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"load": "burst"}, "no kind of load"),
        ({"concurrency": ""}, "a closed loop needs it"),
        ({"load": "open loop"}, "an open loop needs it"),
        ({"cached_share": "1.5"}, "from 0 to 1"),
        ({"acceptance": "0.5"}, "from 1 to 100"),
        ({"weight_dtype": "fp32"}, "not modelled"),
        ({"kv_dtype": "banana"}, "not known"),
        ({"tp": "0"}, "tp: is empty"),
        ({"tp": "-2"}, "tp: must be from 1"),
        ({"tp": "eight"}, "tp is no number"),
        ({"tp": "1.5"}, "no whole number"),
        ({"tp": "1e308"}, "no number"),
        ({"tp": "99999"}, "from 1 to 1024"),
        (
            {"input_tokens": "-1", "output_tokens": "0"},
            "input_tokens: must be from 1 to 100,000,000 tokens (got -1); output",
        ),
        ({"input_tokens": "inf"}, "no number"),
        ({"input_tokens": "1e308"}, "no number"),
        ({"input_tokens": "nan"}, "input_tokens: is empty"),
        ({"input_tokens": "many", "output_tokens": "x"}, "output_tokens is no number"),
        ({"concurrency": "1e17"}, "at most 10,000,000"),
        ({"concurrency": "0"}, "above 0"),
        ({"model": "", "gpu": ""}, "model: is empty; gpu: is empty"),
        ({"model": "no/such"}, "not in the catalogue"),
        ({"gpu": "MI250"}, "not in the catalogue"),
        ({"model": "x" * 5000}, "not in the catalogue"),
        ({"model": "../../etc/passwd"}, "not in the catalogue"),
    ],
)
def test_hostile_cells_are_reasons(reader: Reader, point: Any, cells: dict[str, str], reason: str) -> None:
    found = reason_of(reader, Layout.POINTS, point(**cells))
    assert reason in found
    assert len(found) < 400


def test_columns_may_be_absent(reader: Reader) -> None:
    assert reason_of(reader, Layout.SILICON, {}) == "model: is empty; gpu: is empty"
    least = {"model": "Llama-3.1-8B", "system": "h100_sxm", "isl": "10", "osl": "10", "concurrency": "1", "tp": "1"}
    case = reader.read(Layout.SILICON, least)
    assert case.id == ""
    assert case.point is not None
    assert "engine not given: vllm assumed" in case.notes


def test_measured_figures_are_of_a_replica(reader: Reader, throughput: Any) -> None:
    row = throughput(gpus="4", output_tok_s_total="4000", tpot_ms_p50="20", ttft_ms_p50="-3", tpot_p99="x")
    assert measured_of(Layout.THROUGHPUT, row, 4) == Figures(tpot_ms=20, output_tok_s=1000)
    (found,) = read_measured(reader, Layout.THROUGHPUT, [row, throughput(), throughput(model="none")])
    assert found.measured.output_tok_s == 1000


def test_means_stand_in_for_medians_of_load_points(point: Any) -> None:
    row = point(tpot_mean_ms="21", ttft_p50_ms="90", ttft_mean_ms="99")
    assert measured_of(Layout.POINTS, row) == Figures(tpot_ms=21, ttft_ms=90)


def test_attention_ranks_have_to_divide_the_gpus(reader: Reader, point: Any) -> None:
    case = reader.read(Layout.POINTS, point(tp="2", attention_dp="8"))
    assert case.point is None
    assert case.reason == "attention_dp: 8 does not divide tp 2, which counts all GPUs of a replica"


def test_gpus_that_are_no_multiple_of_a_replica_are_told(reader: Reader, throughput: Any) -> None:
    case = reader.read(Layout.THROUGHPUT, throughput(gpus="3", tp="2"))
    assert case.point is not None
    assert case.point.served.replicas == 1
    assert "3 GPUs are no multiple of tp 2 x pp 1: gpus is not looked at" in case.notes
