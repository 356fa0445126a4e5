"""A failure drill of a plan, and what it did to a pool."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class DrillKind(StrEnum):
    """What goes wrong."""

    REPLICA = "replica"
    """One replica is lost for a time."""
    NODE = "node"
    """All replicas on one instance are lost."""
    REGION = "region"
    """All replicas in one region are lost."""
    LOT = "lot"
    """All replicas on the lot with the most of them are lost."""
    BURST = "burst"
    """The longest requests of the log come together."""
    SLOW = "slow"
    """Every step takes longer than planned, all the time."""


@dataclass(frozen=True)
class Drill:
    """One thing that goes wrong with one pool.

    Attributes
    ----------
    name
        A `DrillKind`.
    pool
        Pool of the plan.
    what
        In words, with how it was derived where the plan does not say.
    from_s, until_s
        When it begins; when its cause is over: what was lost serves again (its warm-up included), the burst has
        arrived, the replay ends. Seconds from the start of the replay.
    lost
        Replicas that are gone; 0 where none is.
    replicas
        Of the pool, in its busiest period.
    """

    name: str
    pool: str
    what: str
    from_s: float
    until_s: float
    lost: int = 0
    replicas: int = 0


@dataclass(frozen=True)
class DrillWindow:
    """A stretch of time of one pool; figures are of the requests that arrived in it.

    Times are NaN where there was nothing to time.
    """

    from_s: float
    until_s: float
    requests: int
    turned_away: int
    """No replica ran."""
    ttft_ms: float
    """At the percentile of the pool's target; a request without a first token counts with its wait so far."""
    tpot_ms: float
    """Mean over output tokens."""
    short_share: float
    """Share of the running replicas' time in which a request waited for room in the pool, or had been preempted."""
    queue_requests: float
    """Mean number of waiting requests, all replicas together."""
    replicas: float
    """Mean number that ran."""
    broken: tuple[str, ...]
    """Limits that are broken: ``TTFT``, ``TPOT``, ``turned away``."""
    caused: bool = False
    """Whether the drill breaks one: beyond the limit, and clearly beyond the same window without the drill."""


@dataclass(frozen=True)
class Drilled:
    """What a drill did to its pool: the worst of the repeats.

    Attributes
    ----------
    drill
        What went wrong.
    requests
        That came to the pool, those of a burst included.
    resent
        Requests that were on a lost replica and were sent again, from scratch.
    turned_away
        Requests that found no running replica, or were on the last one when it was lost.
    refused
        Longer than ``max_model_len``, or alone larger than the token pool: as in the undisturbed run.
    unfinished
        Still waiting or running at the end of the replay.
    worst_ttft_ms, worst_tpot_ms
        Of the worst window; NaN where nothing was timed.
    ttft_limit_ms, tpot_limit_ms
        Targets; ``None`` where the plan has none.
    ttft_percentile
        Of the TTFT target.
    over_s
        Time in windows in which the drill breaks a limit.
    over_s_undisturbed
        Time in windows that break a limit without the drill.
    recovered_after_s
        From ``drill.until_s`` to the end of the last window in which the drill breaks a limit; 0 where it breaks none
        after it; ``None``: it had not recovered by the end of the replay.
    short_share, short_share_undisturbed
        Share of the running replicas' time in which a request waited for room in the pool.
    short_limit
        What the plan allows.
    most_waiting
        Largest queue of any replica.
    served_tokens, served_tokens_undisturbed
        Input and output, by the end of the replay.
    windows
        The course of the drill.
    sentence
        All of it in plain words.
    repeat, repeats
        Which repeat was the worst, from 1, and how many there were.
    notes
        Assumptions of this drill.
    """

    drill: Drill
    requests: int
    resent: int
    turned_away: int
    refused: int
    unfinished: int
    worst_ttft_ms: float
    worst_tpot_ms: float
    ttft_limit_ms: float | None
    tpot_limit_ms: float | None
    ttft_percentile: float
    over_s: float
    over_s_undisturbed: float
    recovered_after_s: float | None
    short_share: float
    short_share_undisturbed: float
    short_limit: float
    most_waiting: int
    served_tokens: int
    served_tokens_undisturbed: int
    windows: tuple[DrillWindow, ...]
    sentence: str
    repeat: int = 1
    repeats: int = 1
    notes: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether the drill breaks no limit."""
        return self.over_s == 0.0
