"""What a replay takes and gives: the replica's engine, requests, and what became of each of them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from planner.queueing.holding import Holding
from planner.speed.types import StepCoefficients

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


class Fate(IntEnum):
    """How a request ended: every request ends in exactly one way."""

    UNFINISHED = 0
    """Still waiting or running at the horizon."""
    SERVED = 1
    REFUSED_LENGTH = 2
    """Longer than max_model_len."""
    REFUSED_POOL = 3
    """Alone larger than the token pool: it would be preempted for ever."""
    UNROUTED = 4
    """No pool takes it, or none of its replicas runs."""


@dataclass(frozen=True)
class Engine:
    """One replica as the scheduler sees it.

    Attributes
    ----------
    coefficients
        Step times, scalars, at the edge of the band that is replayed.
    holding
        What a request occupies.
    pool_tokens
        Token-equivalents that the pool holds.
    max_num_seqs, max_num_batched_tokens, max_model_len
        Limits of the scheduler.
    """

    coefficients: StepCoefficients
    holding: Holding
    pool_tokens: float
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int


@dataclass(frozen=True)
class Requests:
    """Requests in order of arrival, shape (N,) each."""

    arrival_s: FloatArray
    prompt_tokens: IntArray
    output_tokens: IntArray
    cached_tokens: IntArray
    """Leading prompt tokens that the prefix cache holds on arrival: they occupy the pool and need no computing."""

    def __len__(self) -> int:
        return len(self.arrival_s)

    def at(self, index: IntArray) -> Requests:
        """Some of them, in the order of ``index``."""
        return Requests(
            self.arrival_s[index], self.prompt_tokens[index], self.output_tokens[index], self.cached_tokens[index]
        )


@dataclass(frozen=True)
class Outcome:
    """What became of requests on one replica, and of the replica in each window of time.

    Windows are of equal length and cover [0, horizon).
    """

    fate: IntArray
    """`Fate` of each request, shape (N,)."""
    seen_s: FloatArray
    """When its client saw the first token, front end included; NaN where it has none."""
    first_token_s: FloatArray
    """When the engine made it."""
    end_s: FloatArray
    preemptions: IntArray
    short_s: FloatArray
    """Time in which a request waited because the pool was full, or had been preempted, by window, shape (W,)."""
    full_s: FloatArray
    """Time in which a request waited because ``max_num_seqs`` ran."""
    busy_s: FloatArray
    """Time in which a step ran."""
    used_token_s: FloatArray
    """Integral of token-equivalents held."""
    live_request_s: FloatArray
    """Integral of running requests."""
    queue_request_s: FloatArray
    """Integral of waiting requests."""
    most_tokens: float
    most_running: int
    most_waiting: int
