"""Each tool's file gives the figures that it was made from: units, spellings and traps one by one.

The rule of the synthetic files: 16 clients, prompts of 1024 and outputs of 256 tokens, TTFT 100 ms, TPOT 22 ms; so the
latency is 100 + 255 x 22 = 5710 ms, and 16 / 5.71 = 2.8021 requests/s make 717.34 tokens/s.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from planner.speed.load_tests import aiperf, guidellm, inference_perf, sglang_bench, vllm_bench, vllm_sweep
from planner.speed.load_tests.document import head_of
from planner.speed.load_tests.formats import FORMATS, format_of
from planner.speed.load_tests.types import Format, Run
from planner.speed.points import LoadKind

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
Changed = Callable[..., Path]


def only(tool: Format, path: Path) -> Run:
    found = tool.read(path)
    assert not found.rejected
    (run,) = found.runs
    return run


SAME_POINT = [
    (vllm_bench.FORMAT, "vllm_bench.json", 0),
    (guidellm.FORMAT, "guidellm.json", 1),
    (inference_perf.FORMAT, "inference_perf/stage_0_lifecycle_metrics.json", 0),
    (aiperf.FORMAT, "aiperf_loadgen.json", 0),
    (sglang_bench.FORMAT, "sglang.jsonl", 0),
]


@pytest.mark.parametrize(("tool", "name", "at"), SAME_POINT, ids=[tool.name for tool, _, _ in SAME_POINT])
def test_same_load_through_every_tool_gives_the_same_figures(data: Path, tool: Format, name: str, at: int) -> None:
    run = tool.read(data / name).runs[at]
    assert run.kind == LoadKind.CLOSED_LOOP
    assert run.in_flight.cap == 16
    assert (run.input_tokens, run.output_tokens) == (1024, 256)
    assert run.done_per_s == pytest.approx(2.8021, rel=1e-4)
    assert run.e2e_mean_ms == pytest.approx(5710)
    assert run.output_tok_s == pytest.approx(717.34, rel=1e-4)
    assert (run.ttft.mean_ms, run.ttft.p50_ms, run.ttft.p99_ms) == pytest.approx((100, 98, 140))
    assert (run.tpot.mean_ms, run.tpot.p50_ms, run.tpot.p90_ms) == pytest.approx((22, 21.56, 25.3))
    assert run.asked_per_s is None


EXPECTED_FORMATS = {
    "vllm_bench.json": "vllm-bench",
    "vllm_append.jsonl": "vllm-bench",
    "guidellm.json": "guidellm",
    "inference_perf/stage_0_lifecycle_metrics.json": "inference-perf",
    "inference_perf/stage_1_prometheus_metrics.json": "inference-perf",
    "inference_perf_kubecon/stage_1_lifecycle_metrics.json": "inference-perf",
    "llm_d_summary_lifecycle_metrics.json": "inference-perf",
    "aiperf_loadgen.json": "aiperf",
    "aiperf_phases.json": "aiperf",
    "genai_perf.json": "genai-perf",
    "sglang.jsonl": "sglang",
    "sglang_metrics.prom": "prometheus",
    "vllm_sweep/20260110_101500/summary.csv": "vllm-sweep",
}


@pytest.mark.parametrize("name", EXPECTED_FORMATS)
def test_exactly_one_format_claims_a_file(data: Path, tmp_path: Path, name: str) -> None:
    nameless = tmp_path / "result"
    nameless.write_bytes((data / name).read_bytes())
    found = format_of(nameless)
    assert found is not None
    assert found.name == EXPECTED_FORMATS[name]
    assert [tool.name for tool in FORMATS if tool.matches(head_of(nameless))] == [found.name]


def test_sweep_files_are_told_from_single_runs(data: Path) -> None:
    for path in (data / "vllm_sweep").rglob("*.json"):
        found = format_of(path)
        assert found is not None
        assert found.name == "vllm-sweep", path


class TestVllmBench:
    def test_json_lines_of_append_result_give_a_run_each(self, data: Path) -> None:
        runs = vllm_bench.FORMAT.read(data / "vllm_append.jsonl").runs
        assert [run.in_flight.cap for run in runs] == [1, 8, 32]
        assert runs[1].place.endswith("vllm_append.jsonl, line 2")

    def test_percentiles_and_latency_that_were_not_asked_for_are_unknown(self, data: Path) -> None:
        run = vllm_bench.FORMAT.read(data / "vllm_append.jsonl").runs[0]
        assert (run.e2e_mean_ms, run.ttft.p90_ms, run.tpot.p90_ms) == (None, None, None)
        assert run.tpot.p99_ms == pytest.approx(8.1 * 1.4)

    def test_metadata_are_texts_beside_the_figures(self, data: Path) -> None:
        run = vllm_bench.FORMAT.read(data / "vllm_append.jsonl").runs[0]
        expected = {"model": MODEL, "gpu": "H100", "tp": "2", "version": "0.11.0", "weights": "fp8", "kv": "fp8"}
        assert run.stated == {**expected, "engine": "vllm"}

    def test_lengths_without_totals_are_those_of_the_rates(self, changed: Changed) -> None:
        file = changed("vllm_bench.json", total_input_tokens=..., total_output_tokens=...)
        run = only(vllm_bench.FORMAT, file)
        assert (run.input_tokens, run.output_tokens) == pytest.approx((1024, 256), rel=1e-4)
        file = changed("vllm_bench.json", total_input_tokens=..., total_token_throughput=..., random_input_len=1000)
        assert only(vllm_bench.FORMAT, file).input_tokens == 1000

    def test_inf_is_no_rate(self, changed: Changed) -> None:
        assert only(vllm_bench.FORMAT, changed("vllm_bench.json", request_rate="inf")).asked_per_s is None
        open_loop = only(vllm_bench.FORMAT, changed("vllm_bench.json", request_rate=2.9, max_concurrency=None))
        assert (open_loop.kind, open_loop.asked_per_s) == (LoadKind.OPEN_LOOP, 2.9)

    def test_neither_rate_nor_cap_is_max_load(self, changed: Changed) -> None:
        assert only(vllm_bench.FORMAT, changed("vllm_bench.json", max_concurrency=None)).kind == LoadKind.MAX_LOAD

    def test_protocol_of_openai_names_no_engine(self, changed: Changed) -> None:
        file = changed("vllm_bench.json", backend="openai", endpoint_type="openai")
        assert "engine" not in only(vllm_bench.FORMAT, file).stated

    def test_failures_of_older_files_are_what_did_not_complete(self, changed: Changed) -> None:
        assert only(vllm_bench.FORMAT, changed("vllm_bench.json", failed=..., completed=150)).failed == 10

    def test_latency_with_the_client_queue_is_not_the_latency(self, changed: Changed) -> None:
        file = changed("vllm_bench.json", mean_e2el_ms=..., mean_e2el_including_client_queue_ms=99999.0)
        assert only(vllm_bench.FORMAT, file).e2e_mean_ms is None

    def test_acceptance_is_kept(self, changed: Changed) -> None:
        file = changed("vllm_bench.json", spec_decode_acceptance_length=2.4, spec_decode_acceptance_rate=70.0)
        assert only(vllm_bench.FORMAT, file).acceptance == 2.4

    def test_arguments_of_a_sweep_that_have_no_column_are_said(self, changed: Changed) -> None:
        file = changed("vllm_bench.json", **{"max-num-seqs": 64, "enforce_eager": True, "speculative_config": {"k": 3}})
        run = only(vllm_bench.FORMAT, file)
        assert run.notes == ("served with max_num_seqs=64, enforce_eager=True, which the points file does not keep",)
        assert run.speculative == "speculative_config"

    def test_pooling_runs_are_no_generation(self, changed: Changed) -> None:
        (rejected,) = vllm_bench.FORMAT.read(changed("vllm_bench.json", input_sequence_throughput=3.0)).rejected
        assert "generate nothing" in rejected.reason


class TestVllmSweep:
    def folder(self, data: Path, tp: int) -> Path:
        return data / f"vllm_sweep/20260110_101500/SERVE--tensor_parallel_size={tp}-BENCH--max_concurrency=16"

    def test_overrides_with_dashes_are_read_and_the_engine_is_vllm(self, data: Path) -> None:
        run = only(vllm_sweep.FORMAT, self.folder(data, 2) / "run=0.json")
        assert (run.stated["tp"], run.stated["engine"]) == ("2", "vllm")

    def test_warm_up_is_skipped_and_counted(self, data: Path) -> None:
        found = vllm_sweep.FORMAT.read(self.folder(data, 1) / "warmup.json")
        assert (found.runs, found.rejected, found.skipped) == ((), (), {vllm_sweep.WARM_UP: 1})

    def test_summary_lists_runs(self, data: Path) -> None:
        runs = vllm_sweep.FORMAT.read(self.folder(data, 2) / "summary.json").runs
        assert [run.tpot.mean_ms for run in runs] == [13.0, 13.1]

    def test_table_has_the_same_runs_as_the_files(self, data: Path) -> None:
        table = vllm_sweep.FORMAT.read(data / "vllm_sweep/20260110_101500/summary.csv").runs
        files = [only(vllm_sweep.FORMAT, self.folder(data, tp) / f"run={run}.json") for tp in (1, 2) for run in (0, 1)]
        assert [run.digest for run in table] == [run.digest for run in files]
        assert [run.stated for run in table] == [run.stated for run in files]

    def test_failure_is_rejected_in_the_tools_words(self, data: Path) -> None:
        (rejected,) = vllm_sweep.FORMAT.read(self.folder(data, 2) / "run=2.failure.json").rejected
        assert "CalledProcessError" in rejected.reason


class TestGuidellm:
    def test_time_per_output_token_with_the_first_token_is_never_read(self, changed: Changed) -> None:
        """5710 / 256 = 22.3 ms; without inter-token latency there is no TPOT, whatever it says."""
        file = changed("guidellm.json", benchmarks__1__metrics__inter_token_latency_ms=...)
        assert guidellm.FORMAT.read(file).runs[1].tpot.typical_ms is None

    def test_request_latency_is_in_seconds(self, data: Path) -> None:
        assert guidellm.FORMAT.read(data / "guidellm.json").runs[0].e2e_mean_ms == pytest.approx(30 + 255 * 8)

    def test_concurrency_is_measured_and_counts_what_the_end_cut_off(self, data: Path, changed: Changed) -> None:
        assert guidellm.FORMAT.read(data / "guidellm.json").runs[1].in_flight.measured == pytest.approx(0.98 * 16)
        older = changed("guidellm.json", benchmarks__1__metrics__request_concurrency__total=...)
        assert guidellm.FORMAT.read(older).runs[1].in_flight.measured == pytest.approx(0.93 * 16)

    def test_tokens_of_what_the_end_cut_off_count_too(self, changed: Changed) -> None:
        file = changed("guidellm.json", benchmarks__1__metrics__output_tokens_per_second__successful__mean=650.0)
        assert guidellm.FORMAT.read(file).runs[1].output_tok_s == pytest.approx(717.34, rel=1e-4)

    def test_falling_percentiles_are_refused(self, changed: Changed) -> None:
        file = changed("guidellm.json", benchmarks__1__metrics__inter_token_latency_ms__successful__median=999.0)
        assert "is above a higher percentile" in guidellm.FORMAT.read(file).rejected[0].reason

    def test_strategies(self, data: Path) -> None:
        runs = guidellm.FORMAT.read(data / "guidellm.json").runs
        kinds = [LoadKind.CLOSED_LOOP, LoadKind.CLOSED_LOOP, LoadKind.OPEN_LOOP, LoadKind.MAX_LOAD]
        assert [run.kind for run in runs] == kinds
        assert [run.in_flight.cap for run in runs] == [1, 16, None, None]
        assert {run.stated["model"] for run in runs} == {MODEL}

    def test_version_1_keeps_the_strategy_in_args(self, data: Path, tmp_path: Path) -> None:
        report = json.loads((data / "guidellm.json").read_text())
        benchmark = report["benchmarks"][1]
        benchmark["args"] = {"strategy": benchmark["config"].pop("strategy")}
        file = tmp_path / "old.json"
        file.write_text(json.dumps({"metadata": {"version": 1}, "args": {"model": MODEL}, "benchmarks": [benchmark]}))
        found = format_of(file)
        assert found is guidellm.FORMAT
        assert only(found, file).in_flight.cap == 16


class TestInferencePerf:
    def test_running_mean_is_taken_from_the_file_beside(self, data: Path) -> None:
        run = only(inference_perf.FORMAT, data / "inference_perf/stage_1_lifecycle_metrics.json")
        assert (run.kind, run.in_flight.running) == (LoadKind.OPEN_LOOP, 9.9)

    def test_cached_share_of_prompts(self, data: Path) -> None:
        run = only(inference_perf.FORMAT, data / "inference_perf/stage_0_lifecycle_metrics.json")
        assert run.cached_share == pytest.approx(0.25)

    def test_time_over_all_tokens_is_not_tpot(self, changed: Changed) -> None:
        name = "inference_perf/stage_0_lifecycle_metrics.json"
        file = changed(name, successes__latency__time_per_output_token=None)
        assert only(inference_perf.FORMAT, file).tpot.typical_ms is None

    def test_real_summary_mixes_its_stages(self, data: Path) -> None:
        (rejected,) = inference_perf.FORMAT.read(data / "llm_d_summary_lifecycle_metrics.json").rejected
        assert "mixes all stages" in rejected.reason

    def test_real_figures_are_in_seconds(self, changed: Changed) -> None:
        """The real summary, as if it were of one stage."""
        file = changed("llm_d_summary_lifecycle_metrics.json", load_summary__requested_rate=14.0)
        run = only(inference_perf.FORMAT, file)
        assert run.tpot.p50_ms == pytest.approx(16.2287, rel=1e-4)
        assert run.ttft.p99_ms == pytest.approx(4240.48, rel=1e-4)
        assert run.e2e_mean_ms == pytest.approx(16949.7, rel=1e-4)
        assert (run.input_tokens, run.output_tokens) == pytest.approx((1030.198, 976.13), rel=1e-5)

    def test_prometheus_summary_and_summary_beside_stages_are_skipped(self, data: Path) -> None:
        for name in ("stage_1_prometheus_metrics.json", "summary_lifecycle_metrics.json"):
            found = inference_perf.FORMAT.read(data / "inference_perf" / name)
            assert not found.runs
            assert not found.rejected
            assert len(found.skipped) == 1


class TestAiperf:
    def test_seconds_are_read_as_such(self, data: Path) -> None:
        run = only(aiperf.FORMAT, data / "aiperf_phases.json")
        assert (run.tpot.mean_ms, run.ttft.mean_ms) == pytest.approx((25, 110))
        assert run.e2e_mean_ms == pytest.approx(110 + 255 * 25)

    def test_unknown_unit_is_said_and_not_guessed(self, changed: Changed) -> None:
        (rejected,) = aiperf.FORMAT.read(changed("aiperf_loadgen.json", time_to_first_token__unit="ticks")).rejected
        assert "time_to_first_token is in ticks" in rejected.reason

    @pytest.mark.parametrize(("unit", "ms"), [("us", 0.022), ("ns", 2.2e-5), ("ms", 22.0)])
    def test_every_unit_of_time(self, changed: Changed, unit: str, ms: float) -> None:
        run = only(aiperf.FORMAT, changed("aiperf_loadgen.json", inter_token_latency__unit=unit))
        assert run.tpot.mean_ms == pytest.approx(ms)

    def test_chunk_latency_is_not_tpot(self, changed: Changed) -> None:
        run = only(aiperf.FORMAT, changed("aiperf_loadgen.json", inter_token_latency=...))
        assert run.tpot.typical_ms is None

    def test_load_of_both_shapes_of_config(self, data: Path) -> None:
        old, new = (only(aiperf.FORMAT, data / f"aiperf_{shape}.json") for shape in ("loadgen", "phases"))
        assert (old.in_flight.cap, new.in_flight.cap, new.in_flight.measured) == (16, 24, 23.6)
        assert old.stated == new.stated == {"model": MODEL}
        assert (old.measured_on, new.measured_on) == ("2026-01-10", "2026-09-01")

    def test_cancelled_run_is_rejected(self, changed: Changed) -> None:
        (rejected,) = aiperf.FORMAT.read(changed("aiperf_loadgen.json", was_cancelled=True)).rejected
        assert "cancelled" in rejected.reason

    def test_genai_perf_has_its_load_in_the_stimulus(self, data: Path) -> None:
        run = only(aiperf.GENAI_FORMAT, data / "genai_perf.json")
        assert (run.tool, run.in_flight.cap, run.stated) == ("genai-perf", 4, {"model": MODEL})


class TestSglang:
    def test_infinity_token_is_no_rate(self, data: Path) -> None:
        text = (data / "sglang.jsonl").read_text().splitlines()[0]
        assert '"request_rate": Infinity' in text
        assert math.isinf(json.loads(text)["request_rate"])
        assert sglang_bench.FORMAT.read(data / "sglang.jsonl").runs[0].asked_per_s is None

    def test_concurrency_is_measured_and_the_cap_apart(self, data: Path) -> None:
        run = sglang_bench.FORMAT.read(data / "sglang.jsonl").runs[2]
        assert (run.in_flight.measured, run.in_flight.cap, run.acceptance) == (15.2, 16, 2.6)
        assert run.speculative == "EAGLE"

    def test_server_says_what_it_is(self, data: Path) -> None:
        stated = sglang_bench.FORMAT.read(data / "sglang.jsonl").runs[0].stated
        expected = {"model": MODEL, "version": "0.5.23", "tp": "2", "pp": "1", "ep": "1", "engine": "sglang"}
        assert stated == {**expected, "kv": "auto"}
