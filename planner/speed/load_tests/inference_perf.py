"""Reports of inference-perf, ``stage_N_lifecycle_metrics.json`` (inference_perf/reportgen/base.py at 010d12fb).

Latencies are in seconds; 50 % is spelt ``median``, other percentiles ``p90`` as configured. ``time_per_output_token``
is (last token − first) / (tokens − 1), ``normalized_time_per_output_token`` the whole latency over all tokens.
``request_latency`` starts when a request is sent; what it waited in the client before is ``schedule_delay``.
``load_summary.concurrency`` is the cap of a stage. Latencies per token are null when answers were not streamed.
``stage_N_prometheus_metrics.json`` beside it has the engine's running mean. ``summary_lifecycle_metrics.json`` mixes
all stages and is no point.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from planner import units
from planner.errors import InputError
from planner.speed.load_tests.collect import collect, kind_of, merged, share, unusable
from planner.speed.load_tests.document import json_objects
from planner.speed.load_tests.fields import Fields
from planner.speed.load_tests.types import Findings, Format, Head, InFlight, Rejected, Run, Spread

NAME = "inference-perf"
BESIDE = "Prometheus summaries of inference-perf (read beside their stages)"
NOTABLE_DELAY_S = 0.1
MIXED = "summaries of several stages"


def matches(head: Head) -> bool:
    """Whether it is a report of requests or of the server's metrics."""
    return {"load_summary", "successes"} <= head.keys


def read(path: Path) -> Findings:
    """The run of a stage, with the engine's running mean from the file beside it."""
    objects = list(json_objects(path))
    if all(_is_prometheus(data) for _, data in objects):
        return Findings(skipped={BESIDE: 1})
    if "summary" in path.name and any(path.parent.glob("stage_*_lifecycle_metrics.json")):
        return Findings(skipped={MIXED: 1})
    found = collect(objects, _parse)
    beside, wrong = _running(path)
    runs = tuple(replace(run, in_flight=replace(run.in_flight, running=beside)) for run in found.runs)
    return merged([Findings(runs, found.rejected), Findings(rejected=wrong)])


def _parse(data: Mapping[str, object], place: str) -> Run:
    fields = Fields(data)
    load, successes = fields.part("load_summary"), fields.part("successes")
    latency, throughput = successes.part("latency"), successes.part("throughput")
    cap = load.positive("concurrency")
    rate = None if cap is not None else load.positive("requested_rate")
    completed, failed = successes.number("count"), fields.part("failures").number("count")
    prompt = successes.part("prompt_tokens")
    e2e_s = latency.part("request_latency").positive("mean")
    delay_s = load.part("schedule_delay").signed("mean")
    return Run(
        place=place,
        tool=NAME,
        kind=kind_of(rate, cap),
        input_tokens=prompt.positive("mean") or successes.part("prompt_len").positive("mean"),
        output_tokens=successes.part("output_tokens").positive("mean") or successes.part("output_len").positive("mean"),
        asked_per_s=rate,
        done_per_s=throughput.positive("requests_per_sec"),
        e2e_mean_ms=None if e2e_s is None else units.s_to_ms(e2e_s),
        output_tok_s=throughput.positive("output_tokens_per_sec"),
        total_tok_s=throughput.positive("total_tokens_per_sec"),
        ttft=_spread(latency.part("time_to_first_token")),
        tpot=_spread(latency.part("time_per_output_token")),
        in_flight=InFlight(cap=cap),
        asked=load.number("count"),
        completed=completed,
        failed=failed,
        cached_share=share(prompt.number("cached"), prompt.number("total")),
        unusable=unusable(fields, _mixed(load)),
        notes=(f"requests waited {delay_s:.3g} s in the client",) if delay_s and delay_s > NOTABLE_DELAY_S else (),
    )


def _spread(metric: Fields) -> Spread:
    seconds = float(units.MS_PER_S)
    return metric.spread("mean", "median" if "median" in metric else "p50", "p90", "p99", seconds)


def _mixed(load: Fields) -> str:
    """A stage says the rate it was asked for; only a summary of all stages does not."""
    known = "requested_rate" in load or "concurrency" in load
    return "" if known else "mixes all stages of the test: import stage_N_lifecycle_metrics.json of each"


def _is_prometheus(data: Mapping[str, object]) -> bool:
    successes = data.get("successes")
    return isinstance(successes, dict) and "latency" not in successes and not data.get("load_summary")


def _running(path: Path) -> tuple[float | None, tuple[Rejected, ...]]:
    """Mean of the engine's running requests, from the stage's other file, and what is wrong with that."""
    other = path.with_name(path.name.replace("lifecycle", "prometheus"))
    if other == path or not other.is_file():
        return None, ()
    try:
        found = [Fields(data) for _, data in json_objects(other)]
    except InputError as error:
        return None, tuple(Rejected(problem.where, problem.message) for problem in error.problems)
    means = [one.part("successes", "num_requests_running").positive("mean") for one in found]
    return next((mean for mean in means if mean is not None), None), ()


FORMAT = Format(NAME, matches, read)
