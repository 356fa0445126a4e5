"""Live tokens of the replicas of a pool over a stretch of time, event by event, without a time step.

A request holds its prompt from its arrival on; after the time to the first token it grows by one token for each token
decoded, and with the last one it is gone:

    live(t) = extra + prompt                          arrival <= t < first token
    live(t) = extra + prompt + rate (t - first token)   first token <= t < end,  end = first token + output / rate

So a replica's live tokens are a sum of steps and lines with the same slope, and between two events they only grow: the
time above a limit follows exactly from the two ends of each segment.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from planner.traffic.types import FloatArray, IntArray

SLACK_TOKENS = 1e-6
"""Sums of many floats are this exact: a pool that is just full does not overflow."""


@dataclass(frozen=True)
class Pace:
    """How a request of a pool grows."""

    ttft_s: float
    decode_per_s: float
    """Tokens per second of one stream."""
    extra_tokens: float
    """What a request holds beside its tokens: the rest of its last block, windows, states."""


@dataclass(frozen=True)
class Live:
    """Requests, one array entry each; times in seconds."""

    first_s: FloatArray
    """First token."""
    end_s: FloatArray
    arrival_s: FloatArray
    prompt: FloatArray
    output: FloatArray
    replica: IntArray

    def take(self, places: IntArray) -> Live:
        """The requests at these places."""
        return Live(*(getattr(self, field.name)[places] for field in fields(self)))

    def with_more(self, other: Live) -> Live:
        """These requests and others."""
        pairs = ((getattr(self, field.name), getattr(other, field.name)) for field in fields(self))
        return Live(*(np.concatenate(pair) for pair in pairs))

    def after(self, moment_s: float) -> Live:
        """Those that have not ended by then."""
        return self.take(np.flatnonzero(self.end_s > moment_s))


_NONE = np.empty(0)
NONE = Live(_NONE, _NONE, _NONE, _NONE, _NONE, np.empty(0, dtype=np.int64))


@dataclass(frozen=True)
class Swept:
    """Sums over the replicas of a pool and a stretch of time."""

    replica_s: float = 0.0
    """Replicas times seconds."""
    over_s: float = 0.0
    """The part of it with more live tokens than the limit."""
    token_s: float = 0.0
    """Live tokens times seconds."""
    most_tokens: float = 0.0
    """Of any replica at any time."""

    def __add__(self, other: Swept) -> Swept:
        return Swept(
            self.replica_s + other.replica_s,
            self.over_s + other.over_s,
            self.token_s + other.token_s,
            max(self.most_tokens, other.most_tokens),
        )


def arrivals(arrival_s: FloatArray, prompt: FloatArray, output: FloatArray, replica: IntArray, pace: Pace) -> Live:
    """Requests that grow at a pace from their arrival on."""
    first_s = arrival_s + pace.ttft_s
    return Live(first_s, first_s + output / pace.decode_per_s, arrival_s, prompt, output, replica)


def sweep(live: Live, start_s: float, end_s: float, replicas: int, limit_tokens: float, pace: Pace) -> Swept:
    """The time from ``start_s`` to ``end_s`` on replicas 0 to ``replicas`` - 1; requests on others do not count."""
    if replicas <= 0 or end_s <= start_s:
        return Swept()
    mine = live.take(np.flatnonzero((live.replica < replicas) & (live.end_s > start_s) & (live.arrival_s < end_s)))
    level, count, length_s = _segments(*_events(mine, start_s, end_s, replicas, pace), end_s, pace.decode_per_s)
    growth = pace.decode_per_s * count * length_s
    top = level + growth
    limit = limit_tokens + SLACK_TOKENS
    # Of a segment that crosses the limit, the part after the crossing.
    share = np.clip((top - limit) / np.where(growth > 0, growth, 1.0), 0.0, 1.0)
    share = np.where(level > limit, 1.0, np.where(growth > 0, share, 0.0))
    lasting = length_s > 0
    return Swept(
        replica_s=replicas * (end_s - start_s),
        over_s=float((share * length_s).sum()),
        token_s=float(((level + growth / 2) * length_s).sum()),
        most_tokens=float(top[lasting].max(initial=0.0)),
    )


def _events(
    live: Live, start_s: float, end_s: float, replicas: int, pace: Pace
) -> tuple[FloatArray, FloatArray, IntArray, IntArray]:
    """Time, step in tokens, step in growing requests, and replica of every event, by replica and time.

    Every replica begins with an event at ``start_s`` that changes nothing; requests that are live by then arrive there
    with what they have grown to.
    """
    n = live.arrival_s.size
    grown = pace.decode_per_s * np.maximum(start_s - live.first_s, 0.0)
    held = live.prompt + pace.extra_tokens
    nothing, one = np.zeros(n), np.ones(n, dtype=np.int64)
    time_s = np.concatenate(
        [np.full(replicas, start_s), live.end_s, np.maximum(live.first_s, start_s), np.maximum(live.arrival_s, start_s)]
    )
    step = np.concatenate([np.zeros(replicas), -(held + live.output), nothing, held + grown])
    growing = np.concatenate([np.zeros(replicas, dtype=np.int64), -one, one, 0 * one])
    replica = np.concatenate([np.arange(replicas), live.replica, live.replica, live.replica])
    inside = np.flatnonzero(time_s < end_s)
    order = inside[np.lexsort((time_s[inside], replica[inside]))]
    return time_s[order], step[order], growing[order], replica[order]


def _segments(
    time_s: FloatArray, step: FloatArray, growing: IntArray, replica: IntArray, end_s: float, decode_per_s: float
) -> tuple[FloatArray, IntArray, FloatArray]:
    """After each event: tokens, growing requests, and seconds until the next event of the same replica."""
    last = np.append(replica[1:] != replica[:-1], True)
    length_s = np.where(last, end_s, np.append(time_s[1:], end_s)) - time_s
    # Sums run over all replicas; each begins with what the replicas before it add up to.
    first = np.flatnonzero(np.append(True, last[:-1]))
    size = np.diff(np.append(first, time_s.size))
    count = np.cumsum(growing)
    count = count - np.repeat(count[first] - growing[first], size)
    grown = np.cumsum(decode_per_s * count * length_s)
    level = np.cumsum(step) + np.append(0.0, grown[:-1])
    before = np.append(0.0, (np.cumsum(step) + grown)[:-1])[first]
    return level - np.repeat(before, size), count, length_s
