"""Terms of contracts: how long one runs, and what it still costs after the horizon."""

from __future__ import annotations

import math
from collections.abc import Mapping

from planner import units
from planner.catalog.offer import Holding, Term

BLOCK_DAYS_BY_DAY = 14
BLOCK_DAYS_BY_WEEK = 182
BLOCK_MAX_INSTANCES = 256
"""Capacity Blocks are sold for whole days up to 14, then for whole weeks up to 182 days, all of it paid up front; 64
instances a block, 256 over all blocks
(https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/capacity-blocks-purchase.md, read 2026-11-30)."""
BLOCK_RULES = (
    "a capacity block is paid up front, cannot be given back, starts at most 8 weeks after it is bought, and its price "
    "is that of the day of purchase"
)
"""https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-capacity-blocks.html, read 2026-11-30."""

COMMITMENT_YEARS: Mapping[Term | Holding, int] = {Term.COMMIT_1Y: 1, Term.COMMIT_3Y: 3}


def term_hours(term: Term | Holding, horizon_hours: float) -> float | None:
    """Hours that a contract must be paid for to cover the horizon.

    A commitment of 1 or 3 years is renewed at the same price until the horizon is covered; a capacity block is the
    shortest one sold that covers it. ``None``: no such contract covers the horizon, or the term is no commitment.
    """
    if term in COMMITMENT_YEARS:
        one = units.years_to_hours(COMMITMENT_YEARS[term])
        return one * math.ceil(horizon_hours / one)
    if term is Term.CAPACITY_BLOCK:
        return _block_hours(horizon_hours)
    return None


def liability_after_usd(usd_per_h: float, paid_hours: float, horizon_hours: float) -> float:
    """What is still to be paid after the horizon: ``usd_per_h * max(0, paid_hours - horizon_hours)``."""
    return usd_per_h * max(0.0, paid_hours - horizon_hours)


def _block_hours(horizon_hours: float) -> float | None:
    days = math.ceil(horizon_hours / units.days_to_hours(1))
    if days > BLOCK_DAYS_BY_DAY:
        days = 7 * math.ceil(days / 7)
    return units.days_to_hours(days) if days <= BLOCK_DAYS_BY_WEEK else None
