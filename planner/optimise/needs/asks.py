"""What pools may be asked to hold: every slice of a model with every value of max_model_len that is tried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.optimise.needs.lengths import length_choices
from planner.optimise.types import LengthChoice, Rejection, Slice, Workload
from planner.queueing.dispersion import dispersion_of
from planner.queueing.load import Demand, Limits
from planner.queueing.waiting import prompt_points
from planner.request import Policy, Targets
from planner.traffic.types import FloatArray
from planner.units import ms_to_s


@dataclass(frozen=True)
class Ask:
    """A slice with a value of max_model_len."""

    slice: Slice
    length: LengthChoice
    demand: Demand
    """At the busiest period's rate."""
    limits: Limits
    rate_per_s: FloatArray
    """Accepted planning rate, shape (periods,)."""
    rank: int
    """Among the slice's lengths, from the one that refuses least."""


def asks_for(workload: Workload, policy: Policy, periods: int) -> tuple[tuple[Ask, ...], tuple[Rejection, ...]]:
    """All asks of a model, and the slices that no max_model_len serves.

    Raises
    ------
    ValueError
        If a slice has rates for another number of periods.
    """
    choices, too_long = length_choices(workload.slices, workload.shape.max_position_embeddings, policy.tail_confidence)
    asks: list[Ask] = []
    for each in workload.slices:
        if len(each.planning_rate_per_s) != periods:
            raise ValueError(f"{each.key} has {len(each.planning_rate_per_s)} rates for {periods} periods")
        lengths = sorted(choices.get(each.key, ()), key=lambda c: (c.refused_token_share, c.max_model_len))
        asks += asks_of(each, lengths, policy)
    return tuple(asks), too_long


def asks_of(each: Slice, lengths: Sequence[LengthChoice], policy: Policy) -> list[Ask]:
    """A slice with each of some lengths, from the one that refuses least."""
    dispersion, limits = dispersion_of(each.traffic.burst), limits_of(each.targets, policy)
    asks = []
    for rank, length in enumerate(lengths):
        # The cut law never holds too few requests.
        rate = each.planning_rate_per_s * (length.law.requests / each.traffic.law.requests)
        demand = Demand(float(rate.max()), dispersion, prompt_points(length.law), policy.load_cv)
        asks.append(Ask(each, length, demand, limits, rate, rank))
    return asks


def limits_of(targets: Targets, policy: Policy) -> Limits:
    """The limits of a slice's replicas."""
    return Limits(
        overflow_probability=policy.overflow_probability,
        max_work_share=policy.max_work_share,
        tpot_s=ms_to_s(targets.tpot_ms) if targets.tpot_ms is not None else np.inf,
        ttft_s=ms_to_s(targets.ttft_ms) if targets.ttft_ms is not None else np.inf,
        ttft_percentile=targets.ttft_percentile,
    )
