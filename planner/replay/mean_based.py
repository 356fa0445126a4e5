"""A fleet by the rule of means beside the plan's: why the plan buys more than 1.5 times the mean.

Many sizing guides count replicas from means: mean requests in the system by Little's law, times what a mean request
holds, times a head-room factor. Bursts and long requests are left out of it; what that does is replayed here.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.replay.promises import Promise


@dataclass(frozen=True)
class MeanFleet:
    """One pool with the replicas of the rule of means, replayed at the planning rate all the time.

    Attributes
    ----------
    pool
        Pool of the plan.
    planned_replicas
        Of the plan, in the pool's busiest period.
    mean_replicas
        By the rule.
    promises
        The plan's promises with ``mean_replicas``; empty where the rule asks for no fewer than the plan, and nothing
        was replayed.
    planned_promises
        The same with ``planned_replicas``, of the same requests.
    """

    pool: str
    planned_replicas: int
    mean_replicas: int
    promises: tuple[Promise, ...]
    planned_promises: tuple[Promise, ...] = ()
