"""From tracks to what each model's targets counted: requests, tokens, and requests by bucket."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from planner.errors import InputError, Problem
from planner.prometheus import number_of
from planner.traffic.histograms.counters import SMALL, UNLIKELY, Counted, undo_restarts, without_repeats
from planner.traffic.histograms.names import VOCABULARIES, Vocabulary
from planner.traffic.histograms.series import Track
from planner.traffic.types import FloatArray

COUNT, SUM, FIRST_BUCKET = 0, 1, 2
"""Columns of `Side.counted`."""

OPERATION, EMBEDDINGS = "gen_ai_operation_name", "embeddings"
"""Calls that generate nothing, in the conventions of OpenTelemetry."""

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Side:
    """The histogram of one length at one target."""

    bounds: tuple[float, ...]
    """Upper bounds of the finite buckets, inclusive."""
    counted: Counted
    """Requests, tokens, then requests up to each bound."""

    @property
    def in_buckets(self) -> FloatArray:
        """Requests in every bucket, the open one last."""
        total = self.counted.total
        upto = np.append(total[FIRST_BUCKET:], total[COUNT])
        # A scrape may catch a histogram between two of its own additions.
        upto = np.minimum(np.maximum.accumulate(upto), total[COUNT])
        return np.diff(upto, prepend=0.0)


@dataclass(frozen=True)
class ModelCounts:
    """What all targets of one model counted."""

    prompt: tuple[Side, ...]
    output: tuple[Side, ...]
    notes: tuple[str, ...] = ()

    def requests(self) -> int:
        """Requests whose output was counted, if any prompt was; 0 otherwise."""
        prompts, outputs = (round(float(sum(s.in_buckets.sum() for s in side))) for side in (self.prompt, self.output))
        return outputs if prompts else 0


@dataclass(frozen=True)
class Start:
    """When counting began, as far as it is known from elsewhere."""

    started_s: float | None
    process_s: Mapping[Labels, float] = field(default_factory=dict)


def vocabulary_of(tracks: Sequence[Track], wanted: str, where: str) -> Vocabulary:
    """The exporter whose histograms are read.

    Raises
    ------
    InputError
        If none is there, or the one that is wanted.
    """
    names = {track.name for track in tracks}
    known = {one.engine: one for one in VOCABULARIES}
    if wanted and wanted not in known:
        raise InputError(Problem("option engine", f"'{wanted}' is not known", f"Use one of: {', '.join(known)}"))
    for one in VOCABULARIES:
        if wanted in ("", one.engine) and all(any(f"{n}_bucket" in names for n in s) for s in (one.prompt, one.output)):
            return one
    what = f"holds no histogram of prompt and output lengths{f' of {wanted}' if wanted else ''}"
    fix = (
        "Export the series vllm:request_prompt_tokens and vllm:request_generation_tokens (for SGLang "
        "sglang:prompt_tokens_histogram and sglang:generation_tokens_histogram; for TGI tgi_request_input_length and "
        "tgi_request_generated_tokens) with _bucket, _sum and _count"
    )
    raise InputError(Problem(where, what, fix))


def model_of(labels: Mapping[str, str], vocabulary: Vocabulary, fallback: str) -> str:
    """The model that a series belongs to."""
    return next((labels[label] for label in vocabulary.model_labels if labels.get(label)), fallback)


def collect(
    tracks: Sequence[Track], vocabulary: Vocabulary, *, fallback: str, started_s: float | None, where: str
) -> dict[str, ModelCounts]:
    """The histograms of every model.

    Parameters
    ----------
    fallback
        The model of series that name none.
    started_s
        When counting began, where the first sample counts from there rather than from itself.
    where
        The files, for messages.

    Raises
    ------
    InputError
        If a histogram has no ``_count`` or ``_sum``, or is no counter, or has one sample only and no known start.
    """
    start = Start(started_s, process_starts(tracks))
    found: dict[str, dict[str, list[Side]]] = defaultdict(lambda: {"prompt": [], "output": []})
    notes: dict[str, list[str]] = defaultdict(list)
    for side, names, values in (
        ("prompt", vocabulary.prompt, vocabulary.prompt_values),
        ("output", vocabulary.output, vocabulary.output_values),
    ):
        targets = _targets(tracks, names, vocabulary.token_labels, values)
        scraped = {model: _scraped(parts) for model, parts in _by_model(targets, vocabulary, fallback).items()}
        for labels, parts in sorted(targets.items()):
            model = model_of(dict(labels), vocabulary, fallback)
            place = f"{where}, {parts.name}{{{', '.join(f'{k}={v}' for k, v in labels)}}}"
            one, note = _side(place, labels, parts, start, scraped[model])
            if one is not None:
                found[model][side].append(one)
            notes[model] += [note] if note and side == "output" else []
    return {
        model: ModelCounts(tuple(sides["prompt"]), tuple(sides["output"]), tuple(notes[model]))
        for model, sides in sorted(found.items())
    }


@dataclass(frozen=True)
class _Parts:
    """The series of one histogram of one target."""

    name: str
    buckets: dict[float, Track] = field(default_factory=dict)
    whole: dict[str, Track] = field(default_factory=dict)

    def times(self) -> FloatArray:
        """Times at which every series has a sample."""
        every = [track.time_s for track in (*self.buckets.values(), *self.whole.values())]
        times = every[0]
        for other in every[1:]:
            times = np.intersect1d(times, other, assume_unique=True)
        return times


def _targets(
    tracks: Iterable[Track], names: Sequence[str], token_labels: Sequence[str], values: frozenset[str]
) -> dict[Labels, _Parts]:
    """The histograms of every target; of two names of one thing the first that it has."""
    targets: dict[Labels, dict[str, _Parts]] = defaultdict(dict)
    for track in tracks:
        if track.labels.get(OPERATION) == EMBEDDINGS:
            continue
        base, _, part = track.name.rpartition("_")
        token = next((track.labels[label] for label in token_labels if label in track.labels), "")
        if base not in names or part not in ("bucket", "sum", "count") or (values and token not in values):
            continue
        labels = tuple(pair for pair in track.key if pair[0] != "le" and pair[0] not in token_labels)
        parts = targets[labels].setdefault(base, _Parts(base))
        bound = number_of(track.labels.get("le", ""))
        if part != "bucket":
            parts.whole[part] = track
        elif bound is not None:
            parts.buckets[bound] = track
    return {labels: next(by_name[name] for name in names if name in by_name) for labels, by_name in targets.items()}


def _by_model(targets: Mapping[Labels, _Parts], vocabulary: Vocabulary, fallback: str) -> dict[str, list[_Parts]]:
    found: dict[str, list[_Parts]] = defaultdict(list)
    for labels, parts in targets.items():
        found[model_of(dict(labels), vocabulary, fallback)].append(parts)
    return found


def _scraped(parts: Sequence[_Parts]) -> FloatArray:
    """Every time at which any target of the model was scraped."""
    return np.unique(np.concatenate([one.times() for one in parts]))


def process_starts(tracks: Iterable[Track]) -> dict[Labels, float]:
    """When the process behind each set of labels started, in seconds since 1970."""
    return {track.key: float(track.value[0]) for track in tracks if track.name == "process_start_time_seconds"}


def _side(place: str, labels: Labels, parts: _Parts, start: Start, scraped_s: FloatArray) -> tuple[Side | None, str]:
    """The histogram of a target, and what deserves a remark about it."""
    missing = [part for part in ("sum", "count") if part not in parts.whole]
    if missing == ["count"] and math.inf in parts.buckets:
        parts.whole["count"], missing = parts.buckets[math.inf], []
    if missing or not parts.buckets:
        what = f"has no _{' and no _'.join(missing) or 'bucket'}"
        raise InputError(Problem(place, what, "Export _bucket, _sum and _count of every histogram"))
    bounds = tuple(sorted(bound for bound in parts.buckets if math.isfinite(bound)))
    times = parts.times()
    columns = [parts.whole["count"], parts.whole["sum"], *(parts.buckets[bound] for bound in bounds)]
    values = np.column_stack([track.value[np.searchsorted(track.time_s, times)] for track in columns])
    times, values, note = with_start(place, labels, times, values, start, scraped_s)
    if times.size < 2:
        return None, note
    return Side(bounds, without_repeats(undo_restarts(place, times, values), COUNT)), note


def with_start(
    place: str, labels: Labels, times: FloatArray, values: FloatArray, start: Start, scraped_s: FloatArray
) -> tuple[FloatArray, FloatArray, str]:
    """Put a zero before the first sample, where the target is known to have counted from 0 within the window."""
    if not times.size:
        raise InputError(Problem(place, "its series have no time in common", "Export all of them with one query"))
    zero_s = start.started_s
    if zero_s is None and scraped_s.size == 1:
        zero_s = _process_start(labels, start)
        if zero_s is None:
            fix = "Give a second snapshot, or the start of the server with --option started=TIME"
            raise InputError(Problem(place, "has one sample, which counts from a time that is not known", fix))
    if zero_s is None and times[0] > scraped_s[0]:
        zero_s = float(scraped_s[scraped_s < times[0]][-1])
        steps = np.diff(values[:, COUNT]) / np.diff(times) if times.size > 1 else np.zeros(1)
        first = float(values[0, COUNT])
        if first > SMALL + UNLIKELY * float(steps.max(initial=0.0)) * (times[0] - zero_s):
            note = f"{first:,.0f} requests of a target that was first scraped later are left out: they may be older"
            return times, values, note
    if zero_s is None or zero_s >= times[0]:
        return times, values, ""
    zeros = np.zeros((1, values.shape[1]))
    return np.append(zero_s, times), np.vstack([zeros, values]), ""


def _process_start(labels: Labels, start: Start) -> float | None:
    """The start of the process whose labels are among the target's."""
    fitting = [start_s for key, start_s in start.process_s.items() if set(key) <= set(labels)]
    return fitting[0] if len(fitting) == 1 else None
