"""What the engines measured beside lengths: tokens in the KV cache, prefix-cache hits, prompts of no known request."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.prometheus import number_of
from planner.traffic.histograms.collect import Start, model_of, with_start
from planner.traffic.histograms.counters import Counted, undo_restarts
from planner.traffic.histograms.names import Vocabulary
from planner.traffic.histograms.series import Track

POOL_LABELS = ("num_gpu_blocks", "block_size")
POOL_TOKENS = "kv_cache_size_tokens"


@dataclass(frozen=True)
class LiveTokens:
    """Tokens in the KV cache as the engine measured them: what a computed live-token load is checked against."""

    metric: str
    replicas: int
    mean: float
    median: float
    p99: float
    largest: float
    """Of all replicas together, as the three before."""
    p99_of_one: float
    """99 % quantile of the fullest replica."""

    def __str__(self) -> str:
        return (
            f"measured live tokens ({self.metric}, {self.replicas} replica{'s' if self.replicas > 1 else ''}): mean "
            f"{self.mean:,.0f}, half of the time at most {self.median:,.0f}, 99 % of it {self.p99:,.0f}, largest "
            f"{self.largest:,.0f}; fullest replica 99 % of the time at most {self.p99_of_one:,.0f}"
        )


def live_tokens(tracks: Sequence[Track], vocabulary: Vocabulary, fallback: str) -> dict[str, LiveTokens]:
    """Measured live tokens of every model whose engine says so.

    SGLang exports the tokens in use; vLLM the used share of the KV cache, whose size is in ``cache_config_info``.
    Cached blocks that nobody uses count in neither, and a prefix that requests share counts once.
    """
    gauges: dict[str, list[tuple[str, Track, float]]] = defaultdict(list)
    for track in _first_named(tracks, (*vocabulary.live, *vocabulary.usage)):
        pool = _pool_tokens(tracks, vocabulary, track) if track.name in vocabulary.usage else 1.0
        if pool is not None and track.time_s.size > 1 and np.isfinite(track.value).all():
            gauges[model_of(track.labels, vocabulary, fallback)].append((track.name, track, pool))
    return {model: _summary(found) for model, found in sorted(gauges.items())}


def contexts_of(tracks: Sequence[Track], vocabulary: Vocabulary, fallback: str) -> dict[str, int]:
    """Longest context of every model that the exporter states one for, tokens."""
    found: dict[str, int] = {}
    for track in tracks:
        if vocabulary.context and track.name == vocabulary.context and np.isfinite(track.value).all():
            model = model_of(track.labels, vocabulary, fallback)
            found[model] = max(found.get(model, 0), int(track.value.max()))
    return {model: tokens for model, tokens in found.items() if tokens > 0}


def _first_named(tracks: Sequence[Track], names: Sequence[str]) -> Iterator[Track]:
    """One track for every set of labels: that of the first name, and before and after it that of the others.

    For some releases a metric has both its names; an upgrade ends one and begins the other.
    """
    found: dict[object, dict[str, Track]] = defaultdict(dict)
    for track in tracks:
        if track.name in names:
            found[track.key][track.name] = track
    for _, by_name in sorted(found.items(), key=lambda item: str(item[0])):
        first, *others = (by_name[name] for name in names if name in by_name)
        for other in others:
            first = _continued(first, other)
        yield first


def _continued(track: Track, other: Track) -> Track:
    outside = (other.time_s < track.time_s[0]) | (other.time_s > track.time_s[-1])
    time_s = np.append(track.time_s, other.time_s[outside])
    value = np.append(track.value, other.value[outside])
    order = np.argsort(time_s, kind="stable")
    return replace(track, time_s=time_s[order], value=value[order])


def _pool_tokens(tracks: Sequence[Track], vocabulary: Vocabulary, gauge: Track) -> float | None:
    """Tokens of the KV cache of a gauge's engine; ``None`` where no one pool fits.

    vLLM states them since ``kv_cache_size_tokens``; before, blocks times their size are too many for hybrid models, and
    data-parallel engines each state the blocks of all (``vllm/config/cache.py``, ``vllm/v1/engine/core_client.py``).
    """
    pools = [track.labels for track in tracks if track.name == vocabulary.pool]
    fitting = [pool for pool in pools if all(gauge.labels.get(name, text) == text for name, text in pool.items())]
    sizes = {_size_tokens(pool, pools) for pool in fitting}
    return sizes.pop() if len(sizes) == 1 else None


def _size_tokens(pool: Mapping[str, str], pools: Sequence[Mapping[str, str]]) -> float | None:
    stated = number_of(pool.get(POOL_TOKENS, ""))
    if stated is not None:
        return stated
    figures = [number_of(pool.get(label, "")) for label in POOL_LABELS]
    if any(figure is None for figure in figures):
        return None
    of_all = math.prod(figure for figure in figures if figure is not None)
    return of_all / sum(_without_engine(other) == _without_engine(pool) for other in pools)


def _without_engine(labels: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in labels.items() if name != "engine"}


def _summary(gauges: Sequence[tuple[str, Track, float]]) -> LiveTokens:
    times = np.unique(np.concatenate([track.time_s for _, track, _ in gauges]))
    each = [np.interp(times, track.time_s, track.value, left=0.0, right=0.0) * pool for _, track, pool in gauges]
    total = np.sum(each, axis=0)
    return LiveTokens(
        metric=gauges[0][0],
        replicas=len(gauges),
        mean=float(total.mean()),
        median=float(np.quantile(total, 0.5)),
        p99=float(np.quantile(total, 0.99)),
        largest=float(total.max()),
        p99_of_one=max(float(np.quantile(one, 0.99)) for one in each),
    )


def counters_of(
    tracks: Sequence[Track], names: Sequence[str], vocabulary: Vocabulary, fallback: str, start: Start
) -> Mapping[str, list[Counted]]:
    """A counter of every target, by model; of several names of it the first that a target has.

    Raises
    ------
    InputError
        If a series is no counter.
    """
    found: dict[str, list[Counted]] = defaultdict(list)
    chosen = list(_first_named(tracks, names))
    scraped = np.unique(np.concatenate([track.time_s for track in chosen])) if chosen else np.empty(0)
    for track in chosen:
        place = f"{track.name}{{{', '.join(f'{k}={v}' for k, v in track.key)}}}"
        times, values, _ = with_start(place, track.key, track.time_s, track.value[:, None], start, scraped)
        if times.size > 1:
            found[model_of(track.labels, vocabulary, fallback)].append(undo_restarts(place, times, values))
    return found
