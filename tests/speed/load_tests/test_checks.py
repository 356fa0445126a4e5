"""Which runs are believed: the order of concurrencies, and each rule from both sides of its edge.

The run: 16 clients, 256 tokens out, TTFT 100 ms, TPOT 22 ms, so 5710 ms, 2.802 requests/s, 717.3 tokens/s.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from planner.speed.load_tests import inference_perf
from planner.speed.load_tests.checks import CAP, LITTLE, MEASURED, PARTS, RUNNING, Steady, in_flight, judged
from planner.speed.load_tests.types import InFlight, Rejected, Run, Spread
from planner.speed.points import LoadKind

RUN = Run(
    place="x.json",
    tool="vllm-bench",
    kind=LoadKind.CLOSED_LOOP,
    input_tokens=1024,
    output_tokens=256,
    done_per_s=16 / 5.71,
    e2e_mean_ms=5710,
    output_tok_s=16 / 5.71 * 256,
    ttft=Spread(100, 98, 115, 140),
    tpot=Spread(22, 21.56, 25.3, 30.8),
    in_flight=InFlight(cap=16),
    asked=160,
    completed=160,
    failed=0,
)


def steady(run: Run) -> Steady:
    verdict = judged(run)
    assert isinstance(verdict, Steady), verdict
    return verdict


def reason(run: Run, **options: bool) -> str:
    verdict = judged(run, **options)
    assert isinstance(verdict, Rejected), verdict
    return verdict.reason


def test_concurrency_takes_the_best_that_there_is() -> None:
    everything = replace(RUN, in_flight=InFlight(15.9, 15.8, 16))
    assert in_flight(everything) == (15.9, MEASURED)
    assert in_flight(replace(everything, in_flight=InFlight(None, 15.8, 16))) == (15.8, RUNNING)
    assert in_flight(RUN) == (pytest.approx(16), LITTLE)
    assert in_flight(replace(RUN, e2e_mean_ms=None)) == (16, CAP)
    bare = replace(RUN, e2e_mean_ms=None, in_flight=InFlight())
    assert in_flight(bare) == (pytest.approx(16), PARTS)
    assert in_flight(replace(bare, done_per_s=None)) == (None, "")


def test_believed_run_keeps_its_load() -> None:
    found = steady(RUN)
    assert (found.kind, found.concurrency_from, found.rate_per_s) == (LoadKind.CLOSED_LOOP, LITTLE, None)
    assert found.concurrency == pytest.approx(16)


@pytest.mark.parametrize(("failed", "kept"), [(1.6, True), (1.7, False)])
def test_one_percent_may_fail(failed: float, kept: bool) -> None:
    verdict = judged(replace(RUN, failed=failed, completed=160 - failed))
    assert isinstance(verdict, Steady) == kept
    assert kept or "of 160 requests failed, more than 1%" in reason(replace(RUN, failed=failed))


def test_nothing_completed() -> None:
    assert reason(replace(RUN, completed=0, failed=160)) == "no request completed"


def test_without_tpot_there_is_no_point_except_at_max_load() -> None:
    bare = replace(RUN, tpot=Spread())
    assert "no time per output token" in reason(bare)
    at_max = replace(
        bare, kind=LoadKind.MAX_LOAD, in_flight=InFlight(), done_per_s=20.0, e2e_mean_ms=4000, completed=500
    )
    assert (steady(at_max).kind, steady(at_max).concurrency) == (LoadKind.MAX_LOAD, None)


def test_lengths_are_needed() -> None:
    assert "prompt length and output length" in reason(replace(RUN, input_tokens=None, output_tokens=None))


class TestCap:
    def at(self, measured: float, completed: float = 1600) -> Run:
        """A run whose figures agree with so many in flight under the cap of 16."""
        rate = measured / 5.71
        return replace(
            RUN,
            in_flight=InFlight(measured=measured, cap=16),
            done_per_s=rate,
            output_tok_s=rate * 256,
            completed=completed,
            asked=completed,
        )

    def test_a_fifth_apart_is_too_much(self) -> None:
        assert steady(self.at(13.0)).concurrency == 13.0
        assert "12.5 of 16 clients were busy" in reason(self.at(12.5))
        assert steady(self.at(19.0)).concurrency == 19.0
        assert "include a queue in the client" in reason(self.at(19.5))

    def test_few_requests_per_client_are_named(self) -> None:
        assert "warm-up and drain weigh on it (48 requests, fewer than 5 per client)" in reason(self.at(12.0, 48))
        assert "fewer than" not in reason(self.at(12.0, 80))

    def test_rate_below_the_cap_is_an_open_loop(self) -> None:
        run = replace(self.at(9.0), kind=LoadKind.OPEN_LOOP, asked_per_s=9 / 5.71)
        assert steady(run).kind == LoadKind.OPEN_LOOP
        assert steady(run).rate_per_s == pytest.approx(9 / 5.71)

    def test_rate_that_the_cap_holds_back_is_a_closed_loop(self) -> None:
        run = replace(self.at(15.5), kind=LoadKind.OPEN_LOOP, asked_per_s=50.0)
        assert (steady(run).kind, steady(run).rate_per_s) == (LoadKind.CLOSED_LOOP, None)


def test_rate_that_is_not_reached_is_no_steady_state() -> None:
    run = replace(RUN, kind=LoadKind.OPEN_LOOP, in_flight=InFlight())
    assert isinstance(judged(replace(run, asked_per_s=2.8 / 0.81)), Steady)
    assert "a queue grew as long as the test ran" in reason(replace(run, asked_per_s=2.8 / 0.79))


@pytest.mark.parametrize(("factor", "kept"), [(0.91, True), (0.89, False), (1.09, True), (1.11, False)])
def test_throughput_has_to_fit_the_times(factor: float, kept: bool) -> None:
    run = replace(RUN, e2e_mean_ms=None, output_tok_s=717.34 * factor)
    assert isinstance(judged(run), Steady) == kept
    if not kept:
        assert f"{717.34 * factor:.4g} output tokens/s where 16.0 requests in flight" in reason(run)


def test_times_have_to_make_up_the_latency() -> None:
    assert isinstance(judged(replace(RUN, tpot=Spread(20.0))), Steady)
    assert "TPOT is 11 ms where 22 ms are left" in reason(replace(RUN, tpot=Spread(11.0)))


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"acceptance": 0.9}, "the accepted length"),
        ({"cached_share": 1.2}, "the cached share"),
        ({"ttft": Spread(float("inf"))}, "TTFT (mean)"),
        ({"tpot": Spread(22.0, p99_ms=float("nan"))}, "TPOT (p99)"),
        ({"in_flight": InFlight(running=float("inf"))}, "the concurrency"),
        ({"output_tok_s": 1e300}, "the throughput"),
    ],
)
def test_figures_that_nothing_can_have(change: dict[str, Any], name: str) -> None:
    assert reason(replace(RUN, **change)) == f"cannot be: {name}"


def test_single_burst_is_no_max_load() -> None:
    """1000 requests at once that all last 5.71 s: if they all fit, the test lasts as long as one of them."""
    at_once = replace(RUN, kind=LoadKind.MAX_LOAD, in_flight=InFlight(), completed=1000, asked=1000)
    assert "a single burst" in reason(replace(at_once, done_per_s=1000 / 5.71, output_tok_s=256000 / 5.71))
    assert steady(replace(at_once, done_per_s=500 / 5.71, output_tok_s=128000 / 5.71)).kind == LoadKind.MAX_LOAD


def test_speculation_is_kept_or_left_out_but_never_mixed_in() -> None:
    run = replace(RUN, acceptance=2.6, speculative="EAGLE")
    assert steady(run).run.acceptance == 2.6
    assert "--no-speculative" in reason(run, keep_speculative=False)
    assert isinstance(judged(replace(RUN, acceptance=1.0), keep_speculative=False), Steady)
    assert "give --acceptance" in reason(replace(run, acceptance=None))


class TestRealFiles:
    """inference-perf's own demonstration, which this rule or that finds wanting."""

    def run(self, data: Path, name: str) -> Run:
        return inference_perf.FORMAT.read(data / "inference_perf_kubecon" / name).runs[0]

    def test_tokens_of_chunks_counted_twice_halve_tpot(self, data: Path) -> None:
        """(3481.0 - 66.9) / 179.79 = 18.99 ms where the file has 9.17 ms."""
        assert "TPOT is 9.172 ms where 18.99 ms are left" in reason(self.run(data, "stage_1_lifecycle_metrics.json"))

    def test_more_was_asked_for_than_was_sent(self, data: Path) -> None:
        run = self.run(data, "stage_3_lifecycle_metrics.json")
        assert "not streamed" in reason(run)
        streamed = replace(run, tpot=Spread(85.0), ttft=Spread(600.0))
        assert "37.6 of 130 requests/s asked for" in reason(streamed)
        assert "requests waited 65.8 s in the client" in reason(streamed)
