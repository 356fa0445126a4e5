"""Representative periods: a week in a few groups of hours, each planned at the highest rates of its hours.

The optimiser cannot hold 168 hours. Hours are clustered by the rates of all models together; a period stands for its
hours by the largest rate of each model among them, so that a fleet that holds the period holds each of its hours. What
this costs is the overstatement, period rate minus hour rate, summed over hours: the error of the clustering. Each
model's rates are counted as shares of its busiest hour, times a weight (a model's cost, where it is known).

For one model the least overstatement with K periods is a cut of its load-duration curve into K stretches, found exactly
by dynamic programming. Several models have no common load-duration curve: groups are merged two by two, always those
whose union costs least, then single hours move while that helps. For one model the exact cut is used.

Source of the load-duration idea: stretches of the sorted load curve as blocks with durations, as in power-system
expansion planning (Poncelet et al., Applied Energy 162, 2016, on what such blocks leave out).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.traffic.types import FloatArray, IntArray

MOVES = 50
"""Most rounds of single moves; each lowers the error, so it ends by itself long before."""


@dataclass(frozen=True)
class Periods:
    """Groups of slots.

    Attributes
    ----------
    label
        Period of each slot, 0 the lightest, in order of total rate.
    hours
        Hours a week of each period.
    rate_per_s
        Shape (periods, models): the largest rate of its slots.
    mean_per_s
        Shape (periods, models): the mean rate of its slots, weighted by hours.
    overstatement
        Per model: mean over the week of the period's rate over the mean of the slots' own, minus 1. The error.
    flat_overstatement
        The same with one period: what planning the whole week at its peak overstates.
    changes_a_week
        How often the period changes over an ordinary week: scale-ups and downs that a fleet would make.
    """

    label: IntArray
    hours: FloatArray
    rate_per_s: FloatArray
    mean_per_s: FloatArray
    overstatement: FloatArray
    flat_overstatement: FloatArray
    changes_a_week: int


def periods_of(
    rate_per_s: FloatArray, hours: FloatArray, count: int, weight: FloatArray | None = None, cyclic: int = 0
) -> Periods:
    """Cluster slots into at most ``count`` periods.

    Parameters
    ----------
    rate_per_s
        Shape (slots, models): what each slot must hold; no NaN.
    hours
        Hours a week of each slot; 0 for a slot that does not occur.
    count
        Periods wanted, at least 1.
    weight
        Per model; 1 by default.
    cyclic
        The first so many slots follow one another around a week, for `Periods.changes_a_week`.

    Raises
    ------
    ValueError
        If shapes do not fit, a rate is not finite, or no slot has hours.
    """
    if rate_per_s.ndim != 2 or hours.shape != rate_per_s.shape[:1] or not np.isfinite(rate_per_s).all():
        raise ValueError("rates must be finite, of shape (slots, models), with hours for every slot")
    if count < 1 or not hours.sum() > 0:
        raise ValueError("at least one period and one slot with hours are needed")
    peak = np.maximum(rate_per_s.max(axis=0), 1e-300)
    load = rate_per_s / peak * (np.ones(rate_per_s.shape[1]) if weight is None else weight)
    if rate_per_s.shape[1] == 1:
        label = _cut_duration_curve(load[:, 0], hours, count)
    else:
        label = _improve(load, hours, _merge(load, hours, count))
    return _summary(rate_per_s, hours, _ordered(label, rate_per_s), cyclic)


def _cut_duration_curve(load: FloatArray, hours: FloatArray, count: int) -> IntArray:
    """Exact: best[k][j] = min over i of best[k-1][i] + overstatement of sorted slots i..j-1, which have load j-1."""
    order = np.argsort(load, kind="stable")
    x, h = load[order], hours[order]
    n = len(x)
    total_h, total_xh = np.concatenate([[0.0], np.cumsum(h)]), np.concatenate([[0.0], np.cumsum(x * h)])
    best = np.full(n + 1, np.inf)
    best[0] = 0.0
    choices: list[IntArray] = []
    for _ in range(min(count, n)):
        stretch = x[None, :] * (total_h[None, 1:] - total_h[:-1, None]) - (total_xh[None, 1:] - total_xh[:-1, None])
        cost = best[:-1, None] + np.where(np.tri(n, n, -1, dtype=bool), np.inf, stretch)
        choice = cost.argmin(axis=0)
        best = np.concatenate([[0.0], cost[choice, np.arange(n)]])
        choices.append(choice)
    label, end = np.zeros(n, dtype=np.int64), n
    for k in range(len(choices) - 1, -1, -1):
        if end == 0:
            break
        start = int(choices[k][end - 1])
        label[order[start:end]] = k
        end = start
    return label


def _merge(load: FloatArray, hours: FloatArray, count: int) -> IntArray:
    """Greedy: from every slot by itself, always the cheapest union.

    Of joining groups i and j: mass_i * sum of (max(top_i, top_j) - top_i), and the same of j. The cheapest partner of
    every row is kept, so a union looks again only at the rows that had one of its two groups for partner.
    """
    n = len(load)
    top, mass = load.copy(), hours.copy()
    label, alive = np.arange(n), np.ones(n, dtype=bool)

    def cost(i: int) -> FloatArray:
        """Of joining ``i`` with every group."""
        joint = np.maximum(top[i], top)
        extra = mass[i] * (joint - top[i]).sum(axis=1) + mass * (joint - top).sum(axis=1)
        extra[~alive] = np.inf
        extra[i] = np.inf
        return np.asarray(extra)

    pair = np.stack([cost(i) for i in range(n)])
    partner, least = pair.argmin(axis=1), pair.min(axis=1)
    for _ in range(max(n - count, 0)):
        i = int(np.argmin(least))
        j = int(partner[i])
        top[i], mass[i] = np.maximum(top[i], top[j]), mass[i] + mass[j]
        alive[j] = False
        label[label == j] = i
        pair[j, :] = pair[:, j] = np.inf
        pair[i, :] = cost(i)
        pair[:, i] = pair[i, :]
        closer = alive & ((pair[:, i] < least) | ((pair[:, i] == least) & (i < partner)))
        stale = alive & ((partner == i) | (partner == j))
        partner[closer], least[closer], least[j] = i, pair[closer, i], np.inf
        stale[i] = True
        partner[stale] = pair[stale].argmin(axis=1)
        least[stale] = pair[stale, partner[stale]]
    return np.unique(label, return_inverse=True)[1].astype(np.int64)


def _improve(load: FloatArray, hours: FloatArray, label: IntArray) -> IntArray:
    """Move single slots while that lowers the error; slots in their order, so the result is always the same.

    A slot that leaves saves (top - top of the others) * mass of the others + hours * (top - its load); a slot that
    comes costs the same of the group that it joins.
    """
    label = label.copy()
    count = int(label.max()) + 1
    top = np.stack([load[label == k].max(axis=0) for k in range(count)])
    mass = np.bincount(label, hours, count).astype(np.float64)
    for _ in range(MOVES):
        moved = False
        for slot in range(len(load)):
            home = label[slot]
            others = label == home
            others[slot] = False
            rest = load[others].max(axis=0, initial=0.0)
            left = mass[home] - hours[slot]
            saved = left * (top[home] - rest).sum() + hours[slot] * (top[home] - load[slot]).sum()
            joint = np.maximum(top, load[slot])
            gain = saved - mass * (joint - top).sum(axis=1) - hours[slot] * (joint - load[slot]).sum(axis=1)
            gain[home] = -np.inf
            best = int(np.argmax(gain))
            if gain[best] > 1e-12:
                top[home], mass[home] = rest, left
                top[best], mass[best] = joint[best], mass[best] + hours[slot]
                label[slot] = best
                moved = True
        if not moved:
            break
    return label


def _ordered(label: IntArray, rate_per_s: FloatArray) -> IntArray:
    """Periods numbered from the lightest to the heaviest."""
    groups = np.unique(label)
    weight = [
        float((rate_per_s[label == k].max(axis=0) / np.maximum(rate_per_s.max(axis=0), 1e-300)).sum()) for k in groups
    ]
    rank = np.empty(len(groups), dtype=np.int64)
    rank[np.argsort(weight, kind="stable")] = np.arange(len(groups))
    return rank[np.searchsorted(groups, label)]


def _summary(rate: FloatArray, hours: FloatArray, label: IntArray, cyclic: int) -> Periods:
    count = int(label.max()) + 1
    top = np.stack([rate[label == k].max(axis=0) for k in range(count)])
    mass = np.bincount(label, hours, count).astype(np.float64)
    sums = np.stack([(hours[label == k, None] * rate[label == k]).sum(axis=0) for k in range(count)])
    mean = np.where(mass[:, None] > 0, sums / np.maximum(mass[:, None], 1e-300), top)
    actual = np.maximum((hours[:, None] * rate).sum(axis=0), 1e-300)
    week = label[:cyclic]
    return Periods(
        label=label,
        hours=mass,
        rate_per_s=top,
        mean_per_s=mean,
        overstatement=np.maximum((mass[:, None] * top).sum(axis=0) / actual - 1.0, 0.0),
        flat_overstatement=np.maximum(hours.sum() * rate.max(axis=0) / actual - 1.0, 0.0),
        changes_a_week=int(np.count_nonzero(week != np.roll(week, 1))) if cyclic else 0,
    )
