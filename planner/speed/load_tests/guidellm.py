"""Reports of GuideLLM, ``benchmarks.json`` (guidellm/benchmark/schemas, GuideLLM 0.8.1; reports of version 1 too).

Every metric is split into ``successful``, ``incomplete``, ``errored`` and ``total``. ``request_latency`` is in seconds,
the token times in milliseconds. ``inter_token_latency_ms`` is (last token − first) / (tokens − 1) of a request,
weighted by its tokens: the planner's TPOT. ``time_per_output_token_ms`` divides the whole latency, first token
included, by all tokens, and is never read. ``request_concurrency`` is measured over the window without warm-up; its
``total``, and that of the rates of tokens, counts the requests that the end of the window cut off, which held the
server too, so it is preferred to ``successful``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from planner import units
from planner.speed.load_tests.collect import collect, kind_of, unusable
from planner.speed.load_tests.document import json_objects
from planner.speed.load_tests.fields import Fields
from planner.speed.load_tests.types import Findings, Format, Head, InFlight, Run, Spread

NAME = "guidellm"


def matches(head: Head) -> bool:
    """Whether it is a report."""
    return "guidellm_version" in head.keys or {"benchmarks", "inter_token_latency_ms"} <= head.keys


def read(path: Path) -> Findings:
    """The benchmarks of a report, one run each."""
    objects = []
    for place, data in json_objects(path):
        report = Fields(data)
        models = (
            report.text("model"),
            report.part("args").text("model"),
            report.part("config", "backend").text("model"),
        )
        model = next((name for name in models if name), "")
        for number, benchmark in enumerate(report.items("benchmarks"), start=1):
            objects.append((f"{place}, benchmark {number}", {**benchmark, "_report_model": model}))
    return collect(objects, _parse)


def _parse(data: Mapping[str, object], place: str) -> Run:
    fields = Fields(data)
    strategy = fields.part("config", "strategy")
    if not strategy.text("type_"):
        strategy = fields.part("args", "strategy")
    name = strategy.text("type_")
    rate = strategy.positive("rate") if name in ("constant", "poisson", "async") else None
    cap = 1.0 if name == "synchronous" else strategy.positive("streams", "max_concurrency")
    metrics = fields.part("metrics")
    totals = metrics.part("request_totals")
    e2e_s = _successful(metrics, "request_latency").positive("mean")
    model = fields.part("config", "backend").text("model") or fields.text("_report_model")
    return Run(
        place=place,
        tool=NAME,
        kind=kind_of(rate, cap),
        stated={"model": model} if model else {},
        input_tokens=_successful(metrics, "prompt_token_count").positive("mean"),
        output_tokens=_successful(metrics, "output_token_count").positive("mean"),
        asked_per_s=rate,
        done_per_s=_successful(metrics, "requests_per_second").positive("mean"),
        e2e_mean_ms=None if e2e_s is None else units.s_to_ms(e2e_s),
        output_tok_s=_of_all(metrics, "output_tokens_per_second"),
        total_tok_s=_of_all(metrics, "tokens_per_second"),
        ttft=_spread(_successful(metrics, "time_to_first_token_ms")),
        tpot=_spread(_successful(metrics, "inter_token_latency_ms")),
        in_flight=InFlight(_of_all(metrics, "request_concurrency"), cap=cap),
        asked=totals.number("total"),
        completed=totals.number("successful"),
        failed=totals.number("errored"),
        unusable=unusable(fields),
    )


def _successful(metrics: Fields, name: str) -> Fields:
    return metrics.part(name, "successful")


def _of_all(metrics: Fields, name: str) -> float | None:
    """A rate or concurrency of all requests, cut off or not: what the server did in the window."""
    every = metrics.part(name, "total").positive("mean")
    return _successful(metrics, name).positive("mean") if every is None else every


def _spread(metric: Fields) -> Spread:
    return metric.spread("mean", "median", "p90", "p99", others=metric.part("percentiles"))


FORMAT = Format(NAME, matches, read)
