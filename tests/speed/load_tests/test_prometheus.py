"""Metrics of engines: quantiles solved by hand, a range with two levels of load, and the real text of SGLang."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from planner.errors import InputError
from planner.speed.load_tests import prometheus
from planner.speed.load_tests.checks import RUNNING, Steady, judged
from planner.speed.load_tests.formats import format_of
from planner.speed.load_tests.histogram import Histogram
from planner.speed.load_tests.types import Rejected, Run

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
STEP_S = 15.0
TOKENS = 101
"""Output of a request: 100 gaps."""


class TestHistogram:
    HISTOGRAM = Histogram({0.01: 10.0, 0.02: 60.0, 0.04: 90.0, math.inf: 100.0}, 1.7)

    @pytest.mark.parametrize(
        ("share", "value"),
        [
            (0.05, 0.005),  # 5 of the 10 in the first bucket, which begins at 0
            (0.35, 0.015),  # 35: 25 of the 50 between 0.01 and 0.02
            (0.60, 0.02),
            (0.75, 0.03),  # 75: 15 of the 30 between 0.02 and 0.04
            (0.90, 0.04),
            (0.91, None),  # in the open bucket
        ],
    )
    def test_quantiles_are_interpolated(self, share: float, value: float | None) -> None:
        assert self.HISTOGRAM.quantile(share) == (None if value is None else pytest.approx(value))

    def test_empty_buckets_are_passed_over(self) -> None:
        sparse = Histogram({0.1: 0.0, 0.2: 0.0, 0.3: 4.0, math.inf: 4.0})
        assert sparse.quantile(0.5) == pytest.approx(0.25)
        assert Histogram().quantile(0.5) is None

    def test_difference_is_what_came_since(self) -> None:
        later = self.HISTOGRAM + Histogram({0.01: 5.0, 0.02: 5.0, 0.04: 5.0, math.inf: 5.0}, 0.02)
        since = later.since(self.HISTOGRAM)
        assert (since.count, since.mean) == (5.0, pytest.approx(0.004))

    def test_spread_is_in_milliseconds(self) -> None:
        spread = self.HISTOGRAM.spread_ms()
        assert (spread.mean_ms, spread.p50_ms, spread.p90_ms, spread.p99_ms) == (
            pytest.approx(17.0),
            pytest.approx(18.0),
            pytest.approx(40.0),
            None,
        )


LEVELS = ((8, 0.010), (32, 0.020))
TTFT_S = 0.05
BOUNDS = ("0.005", "0.01", "0.015", "0.025", "0.05", "0.1", "1.0", "+Inf")


def rows(prefix: str, names: dict[str, str], labels: dict[str, str], minutes: int = 10) -> Iterator[dict[str, Any]]:
    """Series of a server that runs each level for some minutes: everything follows from Little's law."""
    times, running, finished, seconds = [0.0], [float(LEVELS[0][0])], [0.0], [{"tpot": 0.0, "e2e": 0.0}]
    observed: list[dict[str, float]] = [dict.fromkeys(BOUNDS, 0.0)]
    for clients, tpot_s in LEVELS:
        done = STEP_S * clients / (TTFT_S + (TOKENS - 1) * tpot_s)
        for _ in range(int(minutes * 60 / STEP_S)):
            times.append(times[-1] + STEP_S)
            running.append(float(clients))
            finished.append(finished[-1] + done)
            grown = {"tpot": done * tpot_s, "e2e": done * (TTFT_S + (TOKENS - 1) * tpot_s)}
            seconds.append({key: seconds[-1][key] + value for key, value in grown.items()})
            observed.append({le: observed[-1][le] + done * (float(le) >= tpot_s) for le in BOUNDS})

    def series(name: str, values: list[float], **more: str) -> dict[str, Any]:
        metric = {"__name__": prefix + name, **labels, **more}
        return {"metric": metric, "values": [[t, repr(v)] for t, v in zip(times, values, strict=True)]}

    yield series(names["running"], running)
    yield series(names["waiting"], [0.0] * len(times))
    for le in BOUNDS:
        yield series(f"{names['tpot']}_bucket", [at[le] for at in observed], le=le)
        yield series("time_to_first_token_seconds_bucket", [n * (float(le) >= TTFT_S) for n in finished], le=le)
        yield series("e2e_request_latency_seconds_bucket", [n * (le == "+Inf") for n in finished], le=le)
    yield series(f"{names['tpot']}_sum", [at["tpot"] for at in seconds])
    yield series(f"{names['tpot']}_count", finished)
    yield series("time_to_first_token_seconds_sum", [n * TTFT_S for n in finished])
    yield series("e2e_request_latency_seconds_sum", [at["e2e"] for at in seconds])
    yield series(f"{names['prompt']}_sum", [n * 500 for n in finished])
    yield series(f"{names['prompt']}_count", finished)
    yield series(f"{names['generated']}_sum", [n * TOKENS for n in finished])
    yield series(f"{names['generated']}_count", finished)
    yield series("generation_tokens_total", [n * TOKENS for n in finished])
    yield series("prompt_tokens_total", [n * 500 for n in finished])
    yield series(names["hits"], [n * 125 for n in finished])
    yield series(names["queries"], [n * 500 for n in finished]) if names["queries"] else series("other_total", finished)


VLLM = {
    "running": "num_requests_running",
    "waiting": "num_requests_waiting",
    "tpot": "request_time_per_output_token_seconds",
    "prompt": "request_prompt_tokens",
    "generated": "request_generation_tokens",
    "hits": "prefix_cache_hits_total",
    "queries": "prefix_cache_queries_total",
}
SGLANG = {
    "running": "num_running_reqs",
    "waiting": "num_queue_reqs",
    "tpot": "request_time_per_output_token_seconds",
    "prompt": "prompt_tokens_histogram",
    "generated": "generation_tokens_histogram",
    "hits": "cached_tokens_total",
    "queries": "",
}


def answer(result: list[dict[str, Any]], kind: str = "matrix") -> str:
    return json.dumps({"status": "success", "data": {"resultType": kind, "result": result}})


def written(path: Path, *answers: str) -> Path:
    path.write_text("\n".join(answers))
    return path


def read(path: Path) -> tuple[tuple[Run, ...], tuple[Rejected, ...]]:
    found = prometheus.FORMAT.read(path)
    return found.runs, found.rejected


class TestRange:
    @pytest.mark.parametrize(("engine", "names"), [("vllm", VLLM), ("sglang", SGLANG)])
    def test_each_level_is_a_point(self, tmp_path: Path, engine: str, names: dict[str, str]) -> None:
        """8 at 1.05 s make 769.5 tokens/s, 32 at 2.05 s make 1576.6."""
        file = written(tmp_path / "q.json", answer([*rows(f"{engine}:", names, {"model_name": MODEL})]))
        assert format_of(file) is prometheus.FORMAT
        (low, high), rejected = read(file)
        assert low.stated == {"engine": engine, "model": MODEL}
        assert (low.in_flight.running, high.in_flight.running) == pytest.approx((8, 32))
        assert (low.output_tok_s, high.output_tok_s) == pytest.approx((8 / 1.05 * 101, 32 / 2.05 * 101))
        assert (low.tpot.mean_ms, high.tpot.mean_ms) == pytest.approx((10, 20))
        assert (low.ttft.mean_ms, low.input_tokens, low.output_tokens) == pytest.approx((50, 500, 101))
        assert low.cached_share == pytest.approx(0.25)
        # 20 ms lies in the bucket from 15 to 25 ms: half of it is at 20, 99 % at 24.9
        assert (high.tpot.p50_ms, high.tpot.p99_ms) == pytest.approx((20, 24.9))
        assert not rejected  # the interval from 8 to 32 is of no level

    def test_points_are_believed_with_the_running_mean(self, tmp_path: Path) -> None:
        file = written(tmp_path / "q.json", answer([*rows("vllm:", VLLM, {"model_name": MODEL})]))
        for run in read(file)[0]:
            verdict = judged(run)
            assert isinstance(verdict, Steady), verdict
            assert verdict.concurrency_from == RUNNING

    def test_answers_may_be_one_a_line(self, tmp_path: Path) -> None:
        everything = [*rows("vllm:", VLLM, {"model_name": MODEL})]
        whole = read(written(tmp_path / "a.json", answer(everything)))[0]
        lines = read(written(tmp_path / "b.json", *(answer([one]) for one in everything)))[0]
        assert [run.digest for run in whole] == [run.digest for run in lines]

    def test_too_few_requests_are_no_point(self, tmp_path: Path) -> None:
        """A minute of 8 in flight is 457 requests, 3 intervals of 32 are 703: a twentieth of them is 23 and 35."""
        few = [*rows("vllm:", VLLM, {"model_name": MODEL}, minutes=1)]
        for one in few:
            one["values"] = [[t, repr(float(v) / 20 if "num_requests" not in one["metric"]["__name__"] else float(v))]
                             for t, v in one["values"]]  # fmt: skip
        runs, rejected = read(written(tmp_path / "q.json", answer(few)))
        assert not runs
        assert [one.reason for one in rejected] == [
            f"{count} requests finished at this concurrency, fewer than 100" for count in (23, 35)
        ]

    def test_restart_of_the_server_is_passed_over(self, tmp_path: Path) -> None:
        series = [*rows("vllm:", VLLM, {"model_name": MODEL})]
        for one in series:
            if "num_requests" not in one["metric"]["__name__"]:
                offset = float(one["values"][20][1])
                one["values"][20:] = [[t, repr(float(v) - offset)] for t, v in one["values"][20:]]
        runs, _ = read(written(tmp_path / "q.json", answer(series)))
        assert [run.tpot.mean_ms for run in runs] == pytest.approx([10, 20])
        assert [run.output_tok_s for run in runs] == pytest.approx([8 / 1.05 * 101, 32 / 2.05 * 101])

    def test_replicas_are_counted_and_summed(self, tmp_path: Path) -> None:
        both = [one for pod in "ab" for one in rows("vllm:", VLLM, {"model_name": MODEL, "pod": pod})]
        (low, _), _ = read(written(tmp_path / "q.json", answer(both)))
        assert low.stated["replicas"] == "2"
        assert (low.in_flight.running, low.output_tok_s) == pytest.approx((16, 16 / 1.05 * 101))

    def test_models_are_kept_apart(self, tmp_path: Path) -> None:
        both = [one for name in ("m1", "m2") for one in rows("vllm:", VLLM, {"model_name": name})]
        runs, _ = read(written(tmp_path / "q.json", answer(both)))
        assert [run.stated["model"] for run in runs] == ["m1", "m1", "m2", "m2"]

    @pytest.mark.parametrize("name", ["inter_token_latency_seconds", "time_per_output_token_seconds"])
    def test_gaps_between_tokens_give_a_mean_but_no_percentiles(self, tmp_path: Path, name: str) -> None:
        file = written(tmp_path / "q.json", answer([*rows("vllm:", {**VLLM, "tpot": name}, {"model_name": MODEL})]))
        (low, _), _ = read(file)
        assert (low.tpot.mean_ms, low.tpot.p50_ms) == (pytest.approx(10), None)
        assert low.notes == (prometheus.GAPS,)

    def test_speculation_is_counted_from_drafts(self, tmp_path: Path) -> None:
        series = [*rows("vllm:", VLLM, {"model_name": MODEL})]
        finished = next(one for one in series if one["metric"]["__name__"] == "vllm:generation_tokens_total")
        for name, factor in (("num_drafts", 1.0), ("num_accepted_tokens", 1.6)):
            values = [[t, repr(float(v) * factor)] for t, v in finished["values"]]
            series.append(
                {"metric": {"__name__": f"vllm:spec_decode_{name}_total", "model_name": MODEL}, "values": values}
            )
        (low, _), _ = read(written(tmp_path / "q.json", answer(series)))
        assert low.acceptance == pytest.approx(2.6)


class TestInstant:
    def test_real_text_of_sglang(self, data: Path) -> None:
        """Means from sums: 866,964.6 s over 7,400,757 tokens; 7,557,572 tokens of 11,228 requests."""
        (run,), _ = read(data / "sglang_metrics.prom")
        assert run.tpot.mean_ms == pytest.approx(117.145, rel=1e-5)
        assert run.ttft.mean_ms == pytest.approx(213_653.0, rel=1e-5)
        assert run.ttft.p50_ms is None  # 8,495 of 11,008 took more than 30 s
        assert run.output_tokens == pytest.approx(7_557_572 / 11_228)
        assert run.in_flight.running == 162 + 2826
        assert prometheus.INSTANT in run.notes

    def test_real_moment_is_not_like_the_life_before_it(self, data: Path) -> None:
        verdict = judged(read(data / "sglang_metrics.prom")[0][0])
        assert isinstance(verdict, Rejected)
        assert "not of one steady time" in verdict.reason

    def test_text_and_instant_query_say_the_same(self, tmp_path: Path) -> None:
        last = [
            {"metric": one["metric"], "value": one["values"][-1]} for one in rows("vllm:", VLLM, {"model_name": MODEL})
        ]
        idle = f'vllm:num_requests_running{{model_name="{MODEL}",engine="1"}} NaN'
        lines = [idle, "# HELP vllm:x some \\n help", 'python_info{version="3.12"} 1.0', "go_gc NaN"]
        for one in last:
            labels = ",".join(f'{k}="{v}"' for k, v in one["metric"].items() if k != "__name__")
            lines.append(f"{one['metric']['__name__']}{{{labels}}} {one['value'][1]}")
        text, query = written(tmp_path / "m.prom", *lines), written(tmp_path / "q.json", answer(last, "vector"))
        assert format_of(text) is format_of(query) is prometheus.FORMAT
        (first,), (second,) = read(text)[0], read(query)[0]
        assert first.digest == second.digest
        assert first.in_flight.running == 32


class TestHostile:
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ('{"status":"error","error":"parse error: bad","data":{"resultType":""}}', "failed: parse error: bad"),
            ('{"status":"success","data":{"resultType":"scalar","result":[0,"1"]}}', "holds a scalar"),
            ('{"status":"success","data":{"resultType":"matrix","result":[]}}', "no running requests"),
            ('{"status":"success","data":{"resultType":"matrix","result":[3]}}', "holds 3, no series"),
            (answer([{"metric": {"__name__": "vllm:x"}, "values": [[1]]}]), "no figure"),
            (answer([{"metric": {"__name__": "vllm:x"}, "values": "no"}]), "no figure"),
            (answer([{"metric": {"__name__": "vllm:x"}}]), "no figure"),
            (answer([{"metric": {"__name__": "vllm:x"}, "value": [1, "one"]}]), "no figure"),
            ('vllm:num_requests_running{a="b"} many\n', "is no sample"),
            ("vllm:num_requests_running{\n", "is no sample"),
        ],
    )
    def test_message(self, tmp_path: Path, text: str, message: str) -> None:
        with pytest.raises(InputError, match=message):
            prometheus.FORMAT.read(written(tmp_path / "q.json", text))
