"""The horizon in periods: hours of the week, month by month, that are planned alike, and each model's rates in them.

Every model has a planning and a mean rate for each hour of the week in each month (`week_rates`).
Hours are grouped into periods by `planner.traffic.periods`, over the months together, and a period is planned at the
highest rate of its hours. A model whose replica counts are fixed is planned at its highest rate in every period, and
has no say in the grouping.

Months are told apart only where growth makes them differ. Where hardware leaves in the middle of the horizon, the days
before and after are grouped apart, so that what leaves can be used until then.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

import numpy as np

from planner.optimise.periods.week_rates import ModelWeek, month_growth, notes_of, rates_of
from planner.optimise.types import Period
from planner.request import Quarter, TimeChoice
from planner.traffic.calendar import Stretch, slot_hours, stretches_of
from planner.traffic.periods import periods_of
from planner.traffic.season import SLOTS, WEEK_SLOTS, Clock
from planner.traffic.types import FloatArray, IntArray

__all__ = ["Horizon", "ModelWeek", "horizon_of"]

WHOLE = "whole horizon"
MOST_POINTS = 1500
"""Distinct hours that are grouped at once: the time grows with their square. Beyond it, months are grouped first."""


@dataclass(frozen=True)
class Horizon:
    """Periods, lightest first, and the rates of the models in them.

    Attributes
    ----------
    models
        Names, in the order of the columns.
    planning_rate_per_s, mean_rate_per_s
        Shape (periods, models).
    overstatement
        Per model: mean planning rate over that of its own hours, minus 1; what grouping (and fixed counts) cost.
    flat_overstatement
        The same with one period.
    changes_a_week
        How often the period changes over an ordinary week, in the month where it changes most often.
    stretches
        Days that are told apart: months, days between departures of hardware, or the whole horizon.
    label
        Period of each slot, shape (stretches, `SLOTS`); -1 for a slot that the stretch does not have.
    hours
        Hours of each slot, of the same shape.
    """

    models: tuple[str, ...]
    periods: tuple[Period, ...]
    planning_rate_per_s: FloatArray
    mean_rate_per_s: FloatArray
    overstatement: FloatArray
    flat_overstatement: FloatArray
    changes_a_week: int
    stretches: tuple[Stretch, ...]
    label: IntArray
    hours: FloatArray
    notes: tuple[str, ...] = ()


def horizon_of(
    quarter: Quarter, time: TimeChoice | None, models: Sequence[ModelWeek], cuts: Collection[date] = ()
) -> Horizon:
    """Periods of the horizon and every model's rates in them.

    Parameters
    ----------
    time
        ``None``: one period at every model's planning rate.
    models
        In any order; columns of the result have the same.
    cuts
        Days that no period spans, such as the first on which hardware is gone; those outside the horizon do nothing.

    Raises
    ------
    InputError
        If the zone is unknown.
    ValueError
        If there is no model, a name comes twice, or growth has no day to count from.
    """
    names = tuple(model.name for model in models)
    if not names or len(set(names)) < len(names):
        raise ValueError("the horizon needs models with names of their own")
    if time is None:
        return _one_period(quarter, models)
    ordered = sorted(models, key=lambda model: model.name)
    stretches = _stretches(quarter, time, ordered, cuts)
    hours = slot_hours(stretches, Clock(time.zone, frozenset(time.holidays)))
    rates = [rates_of(model, stretches, hours) for model in ordered]
    mean, planned = (np.stack([getattr(r, of) for r in rates], axis=-1) for of in ("mean", "planned"))
    section = np.array([sum(cut <= stretch.start for cut in set(cuts)) for stretch in stretches])
    label = _grouped(planned, hours, section, time.week_periods, ordered)
    column = [ordered.index(model) for model in models]
    notes = tuple(note for model, rate in zip(ordered, rates, strict=True) for note in notes_of(model, rate))
    return _horizon(models, stretches, label, hours, mean[..., column], planned[..., column], notes)


def _one_period(quarter: Quarter, models: Sequence[ModelWeek]) -> Horizon:
    stretch = Stretch("", quarter.start, quarter.end)
    return Horizon(
        models=tuple(model.name for model in models),
        periods=(Period(WHOLE, quarter.hours),),
        planning_rate_per_s=np.array([[model.rates.planning_rate_per_s for model in models]]),
        mean_rate_per_s=np.array([[model.rates.mean_rate_per_s for model in models]]),
        overstatement=np.zeros(len(models)),
        flat_overstatement=np.zeros(len(models)),
        changes_a_week=0,
        stretches=(stretch,),
        label=np.zeros((1, SLOTS), dtype=np.int64),
        hours=slot_hours((stretch,), Clock()),
    )


def _stretches(
    quarter: Quarter, time: TimeChoice, models: Sequence[ModelWeek], cuts: Collection[date]
) -> tuple[Stretch, ...]:
    """The months, where growth makes any model differ between them, and the days between cuts."""
    months = stretches_of(quarter.start, quarter.end, by_month=True)
    by_month = time.by_month and any(np.ptp(month_growth(model, months), axis=1).max() > 1e-9 for model in models)
    return stretches_of(quarter.start, quarter.end, cuts, by_month=by_month)


def _grouped(
    planned: FloatArray, hours: FloatArray, section: IntArray, week_periods: int, models: Sequence[ModelWeek]
) -> IntArray:
    """Period of each slot of each stretch, lightest first (in weighted shares of the models' highest rates); else -1.

    Sections are grouped apart. Models that never change, or whose replicas may not, are left out.
    """
    there = hours > 0
    free = np.array([not model.scaling.fixed for model in models])
    rates = planned[there]
    varying = free & (np.ptp(rates, axis=0) > 1e-12 * rates.max(axis=0))
    cost = np.array([model.weight for model in models])
    weight = (cost / cost[free].max(initial=1e-300))[varying]
    label, groups = np.full(hours.shape, -1, dtype=np.int64), 0
    for one in np.unique(section):
        mine = there & (section == one)[:, None]
        stretch = np.nonzero(mine)[0]
        count = week_periods * int((section == one).sum())
        label[mine] = groups + _group(planned[mine][:, varying], hours[mine], stretch, count, weight)
        groups = int(label.max()) + 1
    share = rates[:, varying] / rates[:, varying].max(axis=0)
    load = [share[label[there] == k].max(axis=0) @ weight for k in range(groups)]
    rank = np.empty(groups, dtype=np.int64)
    rank[np.argsort(load, kind="stable")] = np.arange(groups)
    return np.where(there, rank[label], -1)


def _group(rates: FloatArray, hours: FloatArray, stretch: IntArray, count: int, weight: FloatArray) -> IntArray:
    """At most ``count`` groups of hours; hours with the same rates are one to begin with."""
    if not rates.shape[1]:
        return np.zeros(len(rates), dtype=np.int64)
    distinct, index = np.unique(rates, axis=0, return_inverse=True)
    index = index.ravel()
    if len(distinct) > MOST_POINTS:
        index = _by_stretch(rates, hours, stretch, count, weight)
        distinct = np.stack([rates[index == k].max(axis=0) for k in range(int(index.max()) + 1)])
    mass = np.bincount(index, hours).astype(np.float64)
    return np.asarray(periods_of(distinct, mass, count, weight=weight).label[index])


def _by_stretch(rates: FloatArray, hours: FloatArray, stretch: IntArray, count: int, weight: FloatArray) -> IntArray:
    """Groups of the hours of each stretch by itself, so few that all together can be grouped again."""
    rows = np.unique(stretch)
    each = max(MOST_POINTS // len(rows), -(-count // len(rows)))
    label, groups = np.empty(len(rates), dtype=np.int64), 0
    for row in rows:
        mine = stretch == row
        label[mine] = groups + periods_of(rates[mine], hours[mine], each, weight=weight).label
        groups = int(label[mine].max()) + 1
    return label


def _horizon(
    models: Sequence[ModelWeek],
    stretches: tuple[Stretch, ...],
    label: IntArray,
    hours: FloatArray,
    mean: FloatArray,
    planned: FloatArray,
    notes: tuple[str, ...],
) -> Horizon:
    there = hours > 0
    of, h = label[there], hours[there]
    count = int(of.max()) + 1
    length = np.bincount(of, h, count)
    held = np.stack([planned[there][of == k].max(axis=0) for k in range(count)])
    fixed = np.array([model.scaling.fixed for model in models])
    held[:, fixed] = held[:, fixed].max(axis=0)
    means = np.stack([h[of == k] @ mean[there][of == k] for k in range(count)]) / length[:, None]
    own = h @ planned[there]
    return Horizon(
        models=tuple(model.name for model in models),
        periods=tuple(_period(k, float(length[k]), label, stretches) for k in range(count)),
        planning_rate_per_s=held,
        mean_rate_per_s=means,
        overstatement=np.maximum(length @ held / own - 1.0, 0.0),
        flat_overstatement=np.maximum(length.sum() * held.max(axis=0) / own - 1.0, 0.0),
        changes_a_week=max(_changes(row[:WEEK_SLOTS]) for row in label),
        stretches=stretches,
        label=label,
        hours=hours,
        notes=notes,
    )


def _changes(week: IntArray) -> int:
    """Hours of an ordinary week whose period is not that of the hour before."""
    known = week[week >= 0]
    return int(np.count_nonzero(known != np.roll(known, 1)))


def _period(k: int, hours: float, label: IntArray, stretches: Sequence[Stretch]) -> Period:
    """``3 of 12``, the ends called lightest and busiest; with the months, where they are told apart."""
    count = int(label.max()) + 1
    mine = [stretch for stretch, row in zip(stretches, label, strict=True) if (row == k).any()]
    rank = " (lightest)" if k == 0 else " (busiest)" if k == count - 1 else ""
    days = ", ".join(stretch.name for stretch in mine if stretch.name)
    name = WHOLE if count == 1 else f"{k + 1} of {count}{rank}" + (f", {days}" if days else "")
    return Period(name, hours, mine[0].start, mine[-1].end - timedelta(days=1))
