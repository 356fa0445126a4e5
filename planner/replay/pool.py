"""A pool: requests take turns over its replicas, each replica is replayed by itself."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from planner.replay.replica import WINDOWS, replay_replica
from planner.replay.types import Engine, Fate, FloatArray, IntArray, Outcome, Requests


@dataclass(frozen=True)
class PoolOutcome:
    """What became of a pool's requests, in order of arrival, and of its replicas."""

    requests: Requests
    replica: IntArray
    """Of each request."""
    fate: IntArray
    seen_s: FloatArray
    first_token_s: FloatArray
    end_s: FloatArray
    preemptions: IntArray
    replicas: tuple[Outcome, ...]
    horizon_s: float

    @property
    def served(self) -> IntArray:
        """Places of the requests that were served."""
        return np.flatnonzero(self.fate == Fate.SERVED)

    @property
    def ttft_s(self) -> FloatArray:
        """Of the requests that have a first token, as their clients see it."""
        known = ~np.isnan(self.seen_s)
        return np.asarray(self.seen_s[known] - self.requests.arrival_s[known])

    @property
    def tpot_s(self) -> float:
        """Mean time of an output token after a request's first, over all of them; NaN where there is none.

        The mean over tokens, as Little's law has it: a request of few tokens that meets a long prompt counts little.
        """
        index = self.served[self.requests.output_tokens[self.served] > 1]
        decode = (self.end_s[index] - self.first_token_s[index]).sum()
        tokens = (self.requests.output_tokens[index] - 1).sum()
        return float(decode / tokens) if tokens else float("nan")

    def share_of_time(self, name: str) -> FloatArray:
        """A time integral of `Outcome` over the replicas' time, by window, shape (W,)."""
        total = sum(getattr(each, name) for each in self.replicas)
        window = self.horizon_s / len(total)
        return np.asarray(total / (window * len(self.replicas)))


def replay_pool(
    requests: Requests, engine: Engine, replicas: int, horizon_s: float, windows: int = WINDOWS, start: int = 0
) -> PoolOutcome:
    """Replay a pool of identical replicas; requests take turns over them in order of arrival.

    Parameters
    ----------
    start
        Replica that the first request goes to.

    Raises
    ------
    ValueError
        If there is no replica.
    """
    if replicas < 1:
        raise ValueError("a pool needs a replica")
    replica = (start + np.arange(len(requests), dtype=np.int64)) % replicas
    mine = [np.flatnonzero(replica == r) for r in range(replicas)]
    # The compiled scheduler lets other threads run.
    with ThreadPoolExecutor(min(replicas, os.cpu_count() or 1)) as threads:
        found = tuple(threads.map(lambda rows: replay_replica(requests.at(rows), engine, horizon_s, windows), mine))
    fate, preemptions = np.zeros(len(requests), dtype=np.int64), np.zeros(len(requests), dtype=np.int64)
    seen, first, end = np.full((3, len(requests)), np.nan)
    for rows, outcome in zip(mine, found, strict=True):
        fate[rows], preemptions[rows] = outcome.fate, outcome.preemptions
        seen[rows], first[rows], end[rows] = outcome.seen_s, outcome.first_token_s, outcome.end_s
    return PoolOutcome(requests, replica, fate, seen, first, end, preemptions, found, horizon_s)
