"""Series of any number of files as arrays: one track per name and set of labels, in the order of time."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from planner.errors import InputError, Problem
from planner.prometheus import Series
from planner.traffic.histograms.names import is_read
from planner.traffic.types import FloatArray

REPLICA_LABELS = frozenset({"prometheus", "prometheus_replica", "__replica__"})
"""Labels by which twin Prometheus servers tell themselves apart: their series are one and the same."""
RANK_LABELS = ("tp_rank", "pp_rank")
"""Ranks of one replica repeat each other's figures, so the first counts."""


@dataclass(frozen=True)
class Track:
    """One series."""

    name: str
    """With ``_`` for the ``:`` and ``.`` that some exporters write."""
    labels: Mapping[str, str]
    time_s: FloatArray
    """Increasing; seconds since 1970."""
    value: FloatArray
    twin: bool = False
    """Whether it came from one of several Prometheus servers that watch the same targets."""

    @property
    def key(self) -> tuple[tuple[str, str], ...]:
        """The labels, comparable."""
        return tuple(sorted(self.labels.items()))


def tracks_of(series: Iterable[Series], since_s: float | None = None, until_s: float | None = None) -> list[Track]:
    """The series that anything is made of, between two times where they are given."""
    low, high = -math.inf if since_s is None else since_s, math.inf if until_s is None else until_s
    found = []
    for one in series:
        name = plain(one.name)
        if not is_read(name) or any(one.labels.get(label, "0") != "0" for label in RANK_LABELS):
            continue
        labels = {label: value for label, value in one.labels.items() if label not in REPLICA_LABELS}
        pairs = np.asarray(one.samples, dtype=np.float64).reshape(-1, 2)
        pairs = pairs[(pairs[:, 0] >= low) & (pairs[:, 0] <= high)]
        if len(pairs):
            twin = len(labels) < len(one.labels)
            found.append(Track(name, labels, pairs[:, 0].copy(), pairs[:, 1].copy(), twin))
    return found


def joined(tracks: Iterable[Track]) -> tuple[Track, ...]:
    """One track for each name and set of labels, in the order of time.

    Files may overlap. Twin servers scrape at slightly different moments: of their samples at one time the largest
    counts.

    Raises
    ------
    InputError
        If one series has two values at one time, as of two clusters whose labels are the same.
    """
    found: dict[tuple[str, tuple[tuple[str, str], ...]], list[Track]] = defaultdict(list)
    for track in tracks:
        found[track.name, track.key].append(track)
    return tuple(_joined(found[key]) for key in sorted(found))


def _joined(parts: list[Track]) -> Track:
    time_s = np.concatenate([part.time_s for part in parts])
    value = np.concatenate([part.value for part in parts])
    order = np.lexsort((value, time_s))
    same = np.diff(time_s[order]) == 0
    differ = np.flatnonzero(same & (value[order][1:] != value[order][:-1]))
    if differ.size and not any(part.twin for part in parts):
        labels = ", ".join(f"{name}={text}" for name, text in parts[0].key)
        pair = value[order][differ[0]], value[order][differ[0] + 1]
        what = f"is {pair[0]:,.12g} and {pair[1]:,.12g} at one time"
        fix = "Targets with the same labels: ingest them apart and merge, or name snapshots by target and time"
        raise InputError(Problem(f"{parts[0].name}{{{labels}}}", what, fix))
    order = order[np.append(~same, True)]
    return Track(parts[0].name, parts[0].labels, time_s[order], value[order])


def plain(name: str) -> str:
    """A metric's name, whichever exporter wrote it; Ray puts its own before an engine's."""
    return name.replace(":", "_").replace(".", "_").removeprefix("ray_")
