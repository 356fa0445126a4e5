"""Metrics of a running engine as measured points: one for each level of concurrency that was seen for long enough.

A file holds the text that vLLM or SGLang serves at ``/metrics``, or answers of Prometheus to ``query`` or
``query_range`` for the engine's own series (one answer, a list, or one a line; ``{__name__=~"vllm:.*"}`` gives all).
Of a range, the time between two samples belongs to a bin of the requests in the replica (mean of both samples of the
running and waiting gauges), and the histograms' growth there to the bin; a time in which the requests more than double
or halve is left out. Bins are steps of 25 %. Percentiles are interpolated linearly within a bucket; one that lies in
the last, open bucket is left empty. Of a single instant, histograms cover the server's whole life and the gauge one
moment, which the point's note says.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from planner.errors import InputError, Problem
from planner.speed.load_tests.collect import share
from planner.speed.load_tests.engine_metrics import ENGINES, Names, State, state_at, times_of
from planner.speed.load_tests.exposition import Series, series_of
from planner.speed.load_tests.histogram import Histogram
from planner.speed.load_tests.types import Findings, Format, Head, InFlight, Rejected, Run, Spread
from planner.speed.points import LoadKind

NAME = "prometheus"
STEP = 1.25
MIN_REQUESTS = 100
"""Requests that a bin must have finished: fewer say nothing of a 99th percentile."""
MIN_IN_FLIGHT = 0.5
INSTANT = "of one instant: histograms cover the server's whole life, the concurrency one moment"
GAPS = "mean TPOT from the gaps between tokens: this version exports none per request"


@dataclass(frozen=True)
class _Bin:
    """What was counted while about so many requests were in the replica."""

    grown: State = field(default_factory=State)
    seconds: float = 0.0
    request_seconds: float = 0.0

    def with_interval(self, grown: State, seconds: float, in_flight: float) -> _Bin:
        return _Bin(self.grown + grown, self.seconds + seconds, self.request_seconds + seconds * in_flight)


def matches(head: Head) -> bool:
    """Whether it is an exposition, or an answer of Prometheus."""
    return "resultType" in head.keys or any(
        line.startswith((f"# HELP {names.prefix}", f"# TYPE {names.prefix}", names.prefix))
        for line in head.text.splitlines()[:2000]
        for names in ENGINES.values()
    )


def read(path: Path) -> Findings:
    """The points of every engine and model in a file.

    Raises
    ------
    InputError
        If no engine's series are in it.
    """
    everything = series_of(path)
    runs: list[Run] = []
    rejected: list[Rejected] = []
    groups = list(_groups(everything))
    if not groups:
        fix = "Ask for the engine's own series, such as {__name__=~'vllm:.*'}, running requests among them"
        raise InputError(Problem(str(path), "holds no running requests of vLLM or SGLang", fix))
    for engine, model, series in groups:
        names = ENGINES[engine]
        stated = {"engine": engine, **({"model": model} if model else {}), **_replicas(series, names)}
        for found in _points(f"{path}, {model or engine}", stated, series, names):
            (rejected if isinstance(found, Rejected) else runs).append(found)  # type: ignore[arg-type]
    return Findings(tuple(runs), tuple(rejected))


def _groups(everything: Sequence[Series]) -> Iterator[tuple[str, str, list[Series]]]:
    """The series of each model of each engine; ranks of one replica repeat each other, so the first counts."""
    groups: dict[tuple[str, str], list[Series]] = defaultdict(list)
    for one in everything:
        engine = next((name for name, names in ENGINES.items() if one.name.startswith(names.prefix)), None)
        if engine and one.labels.get("tp_rank", "0") == "0":
            groups[engine, one.labels.get("model_name", "")].append(one)
    for (engine, model), series in sorted(groups.items()):
        names = ENGINES[engine]
        if any(one.name == names.prefix + names.running for one in series):
            yield engine, model, series


def _replicas(series: Sequence[Series], names: Names) -> dict[str, str]:
    gauges = [one.labels for one in series if one.name == names.prefix + names.running]
    targets = {labels.get("pod") or labels.get("instance") or "" for labels in gauges}
    return {"replicas": str(len(targets))} if len(targets) > 1 else {}


def _points(place: str, stated: dict[str, str], series: Sequence[Series], names: Names) -> Iterator[Run | Rejected]:
    times = times_of(series, names.prefix + names.running)
    states = [state_at(series, names.prefix, time) for time in times]
    if len(states) == 1:
        yield _instant(place, stated, states[0], names)
        return
    for level, found in sorted(_bins(times, states, names).items()):
        here = f"{place}, about {STEP**level:.3g} in flight"
        finished = _finished(found.grown, names)
        if finished < MIN_REQUESTS:
            message = f"{finished:.0f} requests finished at this concurrency, fewer than {MIN_REQUESTS}"
            yield Rejected(here, message)
        else:
            yield _run(here, stated, found, names)


def _bins(times: Sequence[float], states: Sequence[State], names: Names) -> dict[int, _Bin]:
    bins: dict[int, _Bin] = defaultdict(_Bin)
    for (start, before), (end, after) in pairwise(zip(times, states, strict=True)):
        grown = after.since(before)
        in_flight = (_in_flight(before, names) + _in_flight(after, names)) / 2
        if in_flight < MIN_IN_FLIGHT or _restarted(grown) or _changing(before, after, names):
            continue
        level = round(math.log(in_flight) / math.log(STEP))
        bins[level] = bins[level].with_interval(grown, end - start, in_flight)
    return bins


def _changing(before: State, after: State, names: Names) -> bool:
    """Whether the load rose or fell between two samples, more than the coming and going of requests explains."""
    low, high = sorted((_in_flight(before, names), _in_flight(after, names)))
    return high > 2 * low + 4


def _restarted(grown: State) -> bool:
    """A server that starts anew counts from nothing: its counters fall."""
    return any(value < 0 for one in grown.histograms.values() for value in one.buckets.values())


def _in_flight(state: State, names: Names) -> float:
    return (state.value(names.running) or 0.0) + (state.value(names.waiting) or 0.0)


def _finished(grown: State, names: Names) -> float:
    counts = (grown.histogram(name).count for name in (names.e2e, names.generated, *names.tpot, names.ttft))
    return next((count for count in counts if count > 0), 0.0)


def _run(place: str, stated: dict[str, str], found: _Bin, names: Names) -> Run:
    grown, seconds = found.grown, found.seconds
    run = _common(place, stated, grown, names, found.request_seconds / seconds)
    generated = grown.value(names.generated_total)
    prompts = grown.value(names.prompt_total)
    output = share(generated, seconds)
    return replace(
        run,
        done_per_s=_finished(grown, names) / seconds,
        output_tok_s=output,
        total_tok_s=None if output is None or prompts is None else output + prompts / seconds,
    )


def _instant(place: str, stated: dict[str, str], state: State, names: Names) -> Run:
    run = _common(place, stated, state, names, _in_flight(state, names))
    return replace(
        run,
        e2e_mean_ms=None,
        output_tok_s=state.value(names.throughput) or None,
        notes=(*run.notes, INSTANT),
    )


def _common(place: str, stated: dict[str, str], state: State, names: Names, in_flight: float) -> Run:
    """What bins and instants have in common."""
    per_request, gaps = state.histogram(*names.tpot), state.histogram(*names.token_gap)
    tpot = per_request.spread_ms() if per_request.count else Spread(mean_ms=gaps.spread_ms().mean_ms)
    finished = _finished(state, names)
    requests = state.value(names.requests_total)
    return Run(
        place=place,
        tool=NAME,
        kind=LoadKind.CLOSED_LOOP,
        stated=stated,
        input_tokens=_mean(state.histogram(names.prompt), state.value(names.prompt_total), requests or finished),
        output_tokens=_mean(state.histogram(names.generated), state.value(names.generated_total), requests or finished),
        e2e_mean_ms=state.histogram(names.e2e).spread_ms().mean_ms,
        ttft=state.histogram(names.ttft).spread_ms(),
        tpot=tpot,
        in_flight=InFlight(running=in_flight or None),
        completed=finished,
        cached_share=_cached(state, names),
        acceptance=_acceptance(state, names),
        notes=() if per_request.count else (GAPS,),
    )


def _mean(lengths: Histogram, total: float | None, requests: float) -> float | None:
    return lengths.mean or share(total, requests) or None


def _cached(state: State, names: Names) -> float | None:
    found = share(state.value(*names.cache_hits), state.value(*names.cache_queries))
    return None if found is None else min(found, 1.0)


def _acceptance(state: State, names: Names) -> float | None:
    accepted = share(state.value(names.accepted), state.value(names.drafts))
    return state.value(names.accept_length) or None if accepted is None else 1 + accepted


FORMAT = Format(NAME, matches, read)
