"""What one pool did in a window of time, from its series: the same figures that the plan states."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from planner import units
from planner.observe.metrics import Figure, MetricName
from planner.observe.tracks import STARTED, UP, target_of
from planner.plan import Pool
from planner.prometheus import number_of
from planner.speed.load_tests.histogram import Histogram
from planner.traffic.histograms.series import Track

FRESH_S = 300.0
"""A target whose last sample is older than this at the end of the window is gone: as long as Prometheus itself looks
back for a sample (``query.lookback-delta``)."""
SINCE_START = "one scrape: counters hold what was counted since the server started, gauges one moment"
GAPS = "time per output token is the mean gap between tokens: this release exports none per request"


@dataclass(frozen=True)
class Observed:
    """One pool; ``None`` where its series do not say."""

    replicas: int | None
    rate_per_s: float | None
    """Requests that ended, of all replicas."""
    prompt_tokens: float | None
    output_tokens: float | None
    """Mean of a request."""
    tpot_s: float | None
    ttft_s: float | None
    """At the percentile of the plan, linear within a bucket."""
    live_requests: float | None
    """Mean of one replica, as the next three."""
    waiting: float | None
    kv_usage: float | None
    pool_ratio: float | None
    """Size of the KV cache over the planned one."""
    preemptions_per_s: float | None
    """Of all replicas."""
    cached_share: float | None
    """Of prompt tokens."""
    output_tokens_per_s: float | None
    seconds: float | None
    """Time over which counters counted; ``None`` where that cannot be told."""
    notes: tuple[str, ...]


def observed_of(pool: Pool, tracks: Sequence[Track], names: Sequence[MetricName]) -> Observed:
    """The figures of a pool from its tracks."""
    return _Pool(pool, tuple(tracks), tuple(names)).observed()


def increase(track: Track) -> float:
    """What a counter counted between its first and last sample: falls are restarts from 0, as in PromQL's ``increase``
    (without its extrapolation to the ends of the window). Of one sample, all that it counted.
    """
    if track.value.size == 1:
        return float(track.value[0])
    steps = np.diff(track.value)
    return float(np.where(steps < 0, track.value[1:], steps).sum())


@dataclass(frozen=True)
class _Pool:
    pool: Pool
    tracks: tuple[Track, ...]
    names: tuple[MetricName, ...]

    def observed(self) -> Observed:
        """Every figure."""
        prompt, output = self._mean(Figure.PROMPT_LENGTH), self._mean(Figure.OUTPUT_LENGTH)
        requests = self._counted(Figure.REQUESTS)
        prompts, outputs = self._counted(Figure.PROMPT_TOKENS), self._counted(Figure.OUTPUT_TOKENS)
        tpot = self._mean(Figure.TPOT)
        gap = self._mean(Figure.TOKEN_GAP) if tpot is None else None
        ttft, unsure = self._ttft()
        seconds = self._seconds
        notes = [SINCE_START] if self._one_scrape else []
        notes += [GAPS] if gap is not None else []
        notes += [unsure] if unsure else []
        return Observed(
            replicas=self._replicas(),
            rate_per_s=_over(requests, seconds),
            prompt_tokens=prompt if prompt is not None else _over(prompts, requests),
            output_tokens=output if output is not None else _over(outputs, requests),
            tpot_s=tpot if tpot is not None else gap,
            ttft_s=ttft,
            live_requests=self._gauge(Figure.RUNNING, shared=False),
            waiting=self._gauge(Figure.WAITING, shared=False),
            kv_usage=self._gauge(Figure.KV_USAGE, shared=True),
            pool_ratio=self._pool_ratio(),
            preemptions_per_s=_over(self._counted(Figure.PREEMPTIONS), seconds),
            cached_share=_over(self._counted(Figure.CACHE_HITS), self._counted(Figure.CACHE_QUERIES)),
            output_tokens_per_s=_over(outputs, seconds),
            seconds=seconds,
            notes=tuple(notes),
        )

    @cached_property
    def _one_scrape(self) -> bool:
        return all(track.value.size == 1 for track in self.tracks if track.name not in (UP, STARTED))

    @property
    def _seconds(self) -> float | None:
        """Time over which counters counted."""
        if not self._one_scrape:
            counting = [track for track in self.tracks if track.value.size > 1 and track.name not in (UP, STARTED)]
            span = max(t.time_s[-1] for t in counting) - min(t.time_s[0] for t in counting)
            return float(span)
        started = [track for track in self.tracks if track.name == STARTED]
        ages = [float(track.time_s[0] - track.value[0]) for track in started]
        return float(np.mean(ages)) if ages and min(ages) > 0 and math.isfinite(sum(ages)) else None

    def _named(self, figure: Figure, part: str = "") -> list[Track]:
        """Tracks of a figure; a target that exports it under several names counts with the first of them."""
        wanted = [r.name + part for r in self.names if r.engine == self.pool.engine and r.figure is figure]
        by_target: dict[tuple[str, ...], dict[str, list[Track]]] = defaultdict(lambda: defaultdict(list))
        for track in self.tracks:
            if track.name in wanted:
                by_target[target_of(track)][track.name].append(track)
        return [
            track
            for _, by_name in sorted(by_target.items())
            for track in next(by_name[name] for name in wanted if name in by_name)
        ]

    def _counted(self, figure: Figure) -> float | None:
        tracks = self._named(figure)
        return sum(increase(track) for track in tracks) if tracks else None

    def _mean(self, figure: Figure) -> float | None:
        """Mean of a histogram's observations: sum over count."""
        sums, counts = self._named(figure, "_sum"), self._named(figure, "_count")
        if not sums or not counts:
            return None
        return _over(sum(map(increase, sums)), sum(map(increase, counts)))

    def _ttft(self) -> tuple[float | None, str]:
        """TTFT at the plan's percentile, as ``histogram_quantile(p, sum by (le) (increase(...)))`` has it; beyond the
        last finite bound that bound. And what makes it unsure: it may be anything within its bucket.
        """
        buckets: dict[float, float] = defaultdict(float)
        for track in self._named(Figure.TTFT, "_bucket"):
            bound = number_of(track.labels.get("le", ""))
            if bound is not None and not math.isnan(bound):
                buckets[bound] += increase(track)
        histogram = Histogram(dict(buckets))
        if not histogram.count > 0:
            return None, ""
        found = histogram.quantile(self.pool.speed.ttft_percentile)
        finite = sorted(bound for bound in buckets if math.isfinite(bound))
        if found is None:
            last = finite[-1] if finite else None
            return last, f"TTFT lies beyond the last bucket: it is more than {last:g} s" if last is not None else ""
        low = max((bound for bound in finite if bound < found), default=0.0)
        high = min((bound for bound in finite if bound >= found), default=math.inf)
        planned_s = units.ms_to_s(self.pool.speed.ttft_ms.used)
        unsure = f"TTFT lies in the bucket from {low:g} to {high:g} s, as the planned {planned_s:.4g} s does"
        return found, unsure if low < planned_s < high else ""

    def _gauge(self, figure: Figure, *, shared: bool) -> float | None:
        """Mean over time and replicas; engines of one target add up, or have the mean of a share."""
        by_target: dict[tuple[str, ...], list[float]] = defaultdict(list)
        for track in self._named(figure):
            by_target[target_of(track)].append(float(track.value.mean()))
        each = [sum(values) / (len(values) if shared else 1) for values in by_target.values()]
        return sum(each) / len(each) if each else None

    def _replicas(self) -> int | None:
        """Targets that are up at the end of the window; without ``up``, those that still show running requests."""
        up = [track for track in self.tracks if track.name == UP]
        tracks = up or self._named(Figure.RUNNING)
        if not tracks:
            return None
        last = max(float(track.time_s[-1]) for track in self.tracks)
        fresh = [track for track in tracks if track.time_s[-1] >= last - FRESH_S and (not up or track.value[-1] > 0)]
        return len({target_of(track) for track in fresh})

    def _pool_ratio(self) -> float | None:
        """Mean over replicas, like with like: tokens that the engine states, or else its blocks times their size."""
        ratios = [ratio for track in self._named(Figure.POOL) if (ratio := self._size_ratio(track)) is not None]
        return sum(ratios) / len(ratios) if ratios else None

    def _size_ratio(self, track: Track) -> float | None:
        memory = self.pool.memory
        if "num_gpu_blocks" not in track.labels and "kv_cache_size_tokens" not in track.labels:
            return _over(float(track.value[-1]), float(memory.logged_tokens))
        stated = number_of(track.labels.get("kv_cache_size_tokens", ""))
        if stated is not None:
            return _over(stated, float(memory.logged_tokens))
        parts = [number_of(track.labels.get(label, "")) for label in ("num_gpu_blocks", "block_size")]
        if parts[0] is None or parts[1] is None:
            return None
        return _over(parts[0] * parts[1], float(memory.num_blocks * memory.block_size_tokens))


def _over(part: float | None, whole: float | None) -> float | None:
    """A ratio; ``None`` where either is not known, or there is nothing to divide by."""
    return None if part is None or whole is None or not whole > 0 else part / whole
