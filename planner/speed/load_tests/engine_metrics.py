"""Names of the engines' metrics (vllm/v1/metrics/loggers.py of 0.33.0; sglang/srt/observability/metrics_collector.py of
0.5.23, and the names that earlier releases had), and the state that they describe at one time.

Only ``request_time_per_output_token_seconds`` holds the TPOT of requests; the others hold the gap before each token,
whose mean is TPOT weighted by tokens, and whose percentiles are not those of TPOT. Gauges of running and waiting
requests add up to what is in the replica.
"""

from __future__ import annotations

import bisect
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from planner.speed.load_tests.exposition import Series
from planner.speed.load_tests.histogram import Histogram


@dataclass(frozen=True)
class Names:
    """What one engine calls its metrics; of several names the first that has data."""

    prefix: str
    running: str
    waiting: str
    tpot: tuple[str, ...]
    token_gap: tuple[str, ...]
    prompt: str
    generated: str
    cache_hits: tuple[str, ...]
    cache_queries: tuple[str, ...]
    ttft: str = "time_to_first_token_seconds"
    e2e: str = "e2e_request_latency_seconds"
    prompt_total: str = "prompt_tokens_total"
    generated_total: str = "generation_tokens_total"
    requests_total: str = "num_requests_total"
    throughput: str = "gen_throughput"
    accept_length: str = "spec_accept_length"
    drafts: str = "spec_decode_num_drafts_total"
    accepted: str = "spec_decode_num_accepted_tokens_total"


ENGINES: Mapping[str, Names] = {
    "vllm": Names(
        prefix="vllm:",
        running="num_requests_running",
        waiting="num_requests_waiting",
        tpot=("request_time_per_output_token_seconds",),
        token_gap=("inter_token_latency_seconds", "time_per_output_token_seconds"),
        prompt="request_prompt_tokens",
        generated="request_generation_tokens",
        cache_hits=("prefix_cache_hits_total", "gpu_prefix_cache_hits_total"),
        cache_queries=("prefix_cache_queries_total", "gpu_prefix_cache_queries_total"),
    ),
    "sglang": Names(
        prefix="sglang:",
        running="num_running_reqs",
        waiting="num_queue_reqs",
        tpot=("request_time_per_output_token_seconds",),
        token_gap=("inter_token_latency_seconds", "time_per_output_token_seconds"),
        prompt="prompt_tokens_histogram",
        generated="generation_tokens_histogram",
        cache_hits=("cached_tokens_total",),
        cache_queries=("prompt_tokens_total",),
    ),
}


@dataclass(frozen=True)
class State:
    """Sums over the series of one model at one time: gauges, counters and histograms by name without prefix."""

    values: Mapping[str, float] = field(default_factory=dict)
    histograms: Mapping[str, Histogram] = field(default_factory=dict)

    def value(self, *names: str) -> float | None:
        """The first of these metrics that is there."""
        return next((self.values[name] for name in names if name in self.values), None)

    def histogram(self, *names: str) -> Histogram:
        """The first of these with observations; an empty one if none has any."""
        found = (self.histograms[name] for name in names if name in self.histograms)
        return next((one for one in found if one.count > 0), Histogram())

    def since(self, earlier: State) -> State:
        """What was counted after an earlier state; gauges lose their meaning."""
        return State(
            {name: value - earlier.values.get(name, 0.0) for name, value in self.values.items()},
            {name: one.since(earlier.histograms.get(name, Histogram())) for name, one in self.histograms.items()},
        )

    def __add__(self, other: State) -> State:
        names, kinds = {*self.values, *other.values}, {*self.histograms, *other.histograms}
        return State(
            {name: self.values.get(name, 0.0) + other.values.get(name, 0.0) for name in names},
            {kind: self.histogram(kind) + other.histogram(kind) for kind in kinds},
        )


def times_of(series: Iterable[Series], name: str) -> list[float]:
    """Every time at which a metric was sampled."""
    return sorted({time for one in series if one.name == name for time, _ in one.samples})


def state_at(series: Iterable[Series], prefix: str, time: float) -> State:
    """The sums at a time; a series counts with its last sample until then."""
    values: dict[str, float] = defaultdict(float)
    buckets: dict[str, dict[float, float]] = defaultdict(lambda: defaultdict(float))
    for one in series:
        at = bisect.bisect_right(one.samples, time, key=lambda sample: sample[0])
        if not at:
            continue
        name, value = one.name.removeprefix(prefix), one.samples[at - 1][1]
        if name.endswith("_bucket") and "le" in one.labels:
            buckets[name.removesuffix("_bucket")][_bound(one.labels["le"])] += value
        else:
            values[name] += value
    for name in {name.removesuffix("_count") for name in values if name.endswith("_count")}:
        buckets[name].setdefault(math.inf, values[f"{name}_count"])
    histograms = {name: Histogram(dict(bounds), values.get(f"{name}_sum", 0.0)) for name, bounds in buckets.items()}
    return State(dict(values), histograms)


def _bound(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.inf
