"""Replicas that come and go: each stretch in which one runs is replayed by itself.

A life begins empty. It ends in one of two ways: a drained replica takes no new request and finishes its own; a lost one
takes all that is on it along, and its unfinished requests are sent again, from scratch, to those that run at that
moment. Requests take turns over the replicas that run when they arrive; where none runs they are turned away, or held
by the gateway until one does.

What a client sees counts from the first time its request was sent.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from planner.replay.replica import replay_replica
from planner.replay.types import Engine, Fate, FloatArray, IntArray, Outcome, Requests

INTEGRALS = ("short_s", "full_s", "busy_s", "used_token_s", "live_request_s", "queue_request_s")
"""Time integrals of an `Outcome`, by window."""
NOBODY = -1


@dataclass(frozen=True)
class Life:
    """One stretch in which a replica runs.

    Attributes
    ----------
    up_s, stop_s
        Requests that arrive in [up, stop) may go to it.
    lost
        Whether it is lost at ``stop_s``, with all that is on it; else it finishes what it has.
    """

    up_s: float
    stop_s: float
    lost: bool = False


@dataclass(frozen=True)
class Lived:
    """What became of a pool's requests, in order of arrival, and of its replicas' time in each window."""

    requests: Requests
    life: IntArray
    """Number of the life that had each request last; `NOBODY` where none had."""
    sent: IntArray
    """How often each request was sent to a replica: above 1 where one was lost with it."""
    fate: IntArray
    seen_s: FloatArray
    """When the client saw the first token of the answer that was completed, or goes on; NaN where it has none."""
    first_token_s: FloatArray
    end_s: FloatArray
    preemptions: IntArray
    integrals: FloatArray
    """Sums over the replicas in the order of `INTEGRALS`, shape (6, W)."""
    up_s: FloatArray
    """Replicas times seconds in which they ran, by window; a drained one runs until its last request has ended."""
    most_waiting: int
    """Largest queue of any replica."""
    window_s: float

    @property
    def horizon_s(self) -> float:
        """End of the last window."""
        return self.window_s * len(self.up_s)

    @property
    def served(self) -> IntArray:
        """Places of the requests that were served."""
        return np.flatnonzero(self.fate == Fate.SERVED)

    def integral(self, name: str) -> FloatArray:
        """One of `INTEGRALS`, by window."""
        return np.asarray(self.integrals[INTEGRALS.index(name)])

    def share_of_time(self, name: str) -> float:
        """A time integral over the time that replicas ran; NaN where none did."""
        total = float(self.up_s.sum())
        return float(self.integral(name).sum()) / total if total else float("nan")


def replay_lives(
    requests: Requests, engine: Engine, lives: Sequence[Life], window_s: float, windows: int, hold: bool = False
) -> Lived:
    """Replay a pool whose replicas come and go.

    Parameters
    ----------
    requests
        In order of arrival, all before the horizon.
    lives
        Of all replicas; they may overlap.
    window_s, windows
        Length and number of the windows; the replay ends with the last one.
    hold
        Whether the gateway holds requests while no replica runs; else they are turned away (`Fate.UNROUTED`).

    Raises
    ------
    ValueError
        If a life ends before it begins, a replica is lost within a window, or as `replay_replica`.
    """
    _check(lives, window_s, windows)
    return _Run(requests, engine, lives, window_s, windows, hold).result()


def in_turns(count: int, running: Sequence[int], turn: int) -> IntArray:
    """Which of the running replicas each of ``count`` requests goes to, ``turn`` requests having gone before."""
    return np.asarray(running, dtype=np.int64)[(turn + np.arange(count, dtype=np.int64)) % len(running)]


class _Run:
    """One replay while it goes on."""

    def __init__(
        self, requests: Requests, engine: Engine, lives: Sequence[Life], window_s: float, windows: int, hold: bool
    ) -> None:
        self._requests, self._engine, self._lives, self._hold = requests, engine, lives, hold
        self._window_s, self._windows, self._horizon_s = window_s, windows, window_s * windows
        n = len(requests)
        self._life = np.full(n, NOBODY, dtype=np.int64)
        self._fate, self._sent, self._preemptions = np.zeros((3, n), dtype=np.int64)
        self._seen, self._first, self._end = np.full((3, n), np.nan)
        self._integrals, self._up = np.zeros((len(INTEGRALS), windows)), np.zeros(windows)
        self._most_waiting = self._turn = 0
        self._given: list[list[tuple[IntArray, FloatArray]]] = [[] for _ in lives]
        """Requests sent to each life, and when."""

    def result(self) -> Lived:
        held = np.empty(0, dtype=np.int64)
        for start, end in itertools.pairwise(self._edges()):
            back = [self._finish(k) for k, life in enumerate(self._lives) if life.lost and life.stop_s == start]
            again = np.sort(np.concatenate([held, *back]))
            held = self._send(again, start, end)
        self._fate[held] = Fate.UNFINISHED
        left = [k for k, life in enumerate(self._lives) if not (life.lost and life.stop_s < self._horizon_s)]
        # The compiled scheduler lets other threads run.
        with ThreadPoolExecutor(min(len(left), os.cpu_count() or 1) or 1) as threads:
            for k, outcome in zip(left, threads.map(self._replayed, left), strict=True):
                self._note(k, outcome)
        return Lived(
            self._requests, self._life, self._sent, self._fate, self._seen, self._first, self._end, self._preemptions,
            self._integrals, self._up, self._most_waiting, self._window_s,
        )  # fmt: skip

    def _edges(self) -> list[float]:
        """Moments at which a replica comes or goes."""
        moments = {moment for life in self._lives for moment in (life.up_s, life.stop_s)}
        return sorted({0.0, self._horizon_s} | {m for m in moments if 0 < m < self._horizon_s})

    def _send(self, again: IntArray, start: float, end: float) -> IntArray:
        """Requests of a stretch in which the same replicas run; what is held goes on to the next stretch."""
        low, high = np.searchsorted(self._requests.arrival_s, (start, end))
        index = np.concatenate([again, np.arange(low, high, dtype=np.int64)])
        when = np.concatenate([np.full(len(again), start), self._requests.arrival_s[low:high]])
        running = [k for k, life in enumerate(self._lives) if life.up_s <= start and life.stop_s >= end]
        if not running:
            if self._hold:
                return index
            self._fate[index], self._life[index] = Fate.UNROUTED, NOBODY
            return index[:0]
        whom = in_turns(len(index), running, self._turn)
        self._turn += len(index)
        self._life[index] = whom
        self._sent[index] += 1
        for k in running:
            self._given[k].append((index[whom == k], when[whom == k]))
        return index[:0]

    def _finish(self, k: int) -> IntArray:
        """Replay a life that is lost; its unfinished requests."""
        return self._note(k, self._replayed(k))

    def _asked(self, k: int) -> tuple[IntArray, FloatArray]:
        parts = self._given[k]
        if not parts:
            return np.empty(0, dtype=np.int64), np.empty(0)
        return np.concatenate([index for index, _ in parts]), np.concatenate([when for _, when in parts])

    def _replayed(self, k: int) -> Outcome:
        index, when = self._asked(k)
        life = self._lives[k]
        stop = life.stop_s if life.lost and life.stop_s < self._horizon_s else self._horizon_s
        mine = replace(self._requests.at(index), arrival_s=when)
        return replay_replica(mine, self._engine, stop, round(stop / self._window_s))

    def _note(self, k: int, outcome: Outcome) -> IntArray:
        """Add a life to the pool; requests that it did not finish."""
        index, _ = self._asked(k)
        life, ends = self._lives[k], outcome.end_s
        self._fate[index], self._end[index] = outcome.fate, ends
        self._preemptions[index] += outcome.preemptions
        self._seen[index], self._first[index] = outcome.seen_s, outcome.first_token_s
        unfinished: IntArray = index[outcome.fate == Fate.UNFINISHED]
        until = min(life.stop_s, self._horizon_s)
        if not life.lost:
            until = self._horizon_s if len(unfinished) else max(until, np.nanmax(ends, initial=until))
        elif life.stop_s < self._horizon_s:
            self._seen[unfinished] = self._first[unfinished] = np.nan
        sums = np.stack([getattr(outcome, name) for name in INTEGRALS])
        self._integrals[:, : sums.shape[1]] += sums
        edges = self._window_s * np.arange(self._windows + 1)
        self._up += np.diff(np.clip(edges, min(life.up_s, until), until))
        self._most_waiting = max(self._most_waiting, outcome.most_waiting)
        return unfinished


def _check(lives: Sequence[Life], window_s: float, windows: int) -> None:
    if not window_s > 0 or windows < 1:
        raise ValueError("a replay needs a window of time")
    for life in lives:
        if not 0 <= life.up_s < life.stop_s:
            raise ValueError("a life ends after it begins")
        if life.lost and life.stop_s < window_s * windows and not _whole(life.stop_s / window_s):
            raise ValueError("replicas are lost between two windows, not within one")


def _whole(number: float) -> bool:
    return abs(number - round(number)) < 1e-9


def lost_and_back(replicas: int, lost: int, at_s: float, back_s: float) -> Iterator[Life]:
    """Lives of a pool of which some are lost at a time and serve again, empty, at another.

    Raises
    ------
    ValueError
        If more are lost than there are, or they are back before they are lost.
    """
    if not 0 <= lost <= replicas:
        raise ValueError("no more replicas can be lost than there are")
    if not 0 < at_s < back_s:
        raise ValueError("replicas come back after they are lost")
    yield from (Life(0.0, float("inf")) for _ in range(replicas - lost))
    for _ in range(lost):
        yield Life(0.0, at_s, lost=True)
        yield Life(back_s, float("inf"))
