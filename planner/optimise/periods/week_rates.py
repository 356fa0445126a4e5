"""A model's rates by hour of the week and month.

For a model with mean rate R over the horizon (what is served and paid for), a week of means m[s] and of peaks p[s] by
slot (`planner.traffic.week`), and growth of which month k has the mean g[k] and the largest day G[k]:

    level          L        = R / (mean of g[k] m[s] over the hours of the horizon)
    mean rate      a[k, s]  = L g[k] m[s]                      its mean over the horizon is R
    planning rate  b[k, s]  = max(a[k, s], L G[k] p[s] f)

The factor f >= 1 lets the busiest hour hold at least the planning rate that the request states or its log shows (mean
rate x peak factor). So of a stated peak and the peak of the week the larger one holds, and the other hours are raised
in proportion: a week whose busiest hour is stated to lie higher than its log showed is taken to lie higher throughout.
A flat week has m = p = 1, so every hour is held at the planning rate.

Then every hour also holds what will have come when a replica that is started now is ready (`warmed`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date

import numpy as np

from planner.request import Scaling
from planner.traffic.calendar import Stretch
from planner.traffic.demand import DemandRates
from planner.traffic.growth import Growth
from planner.traffic.season import WEEK_SLOTS, slot_name
from planner.traffic.types import FloatArray
from planner.traffic.week import FLAT, WeekShape

NO_GROWTH = Growth()


@dataclass(frozen=True)
class ModelWeek:
    """What the horizon must know of one model.

    Attributes
    ----------
    growth, growth_base
        Steady growth and dated steps, and the day that they count from; needed only where there is growth.
    weight
        What an hour of the model at its highest rate weighs when hours are grouped: its cost, where it is known.
    """

    name: str
    rates: DemandRates
    week: WeekShape = FLAT
    growth: Growth = NO_GROWTH
    growth_base: date | None = None
    scaling: Scaling = field(default_factory=Scaling)
    weight: float = 1.0


@dataclass(frozen=True)
class WeekRates:
    """Of one model: `mean` and `planned` of shape (stretches, slots), before hours are grouped."""

    mean: FloatArray
    planned: FloatArray
    own_peak: float
    """Highest planning rate over the mean rate as the week and growth alone have it."""
    lift: float
    """The factor f."""


def rates_of(model: ModelWeek, stretches: Sequence[Stretch], hours: FloatArray) -> WeekRates:
    """The rates of a model in every slot of every stretch.

    Parameters
    ----------
    hours
        Hours of each slot, shape (stretches, slots).

    Raises
    ------
    ValueError
        If growth has no day to count from.
    """
    growth = month_growth(model, stretches)[..., None]
    mean, peak = growth[0] * model.week.mean, growth[1] * model.week.peak
    level = float((hours * mean).sum() / hours.sum())
    own_peak = float(peak[hours > 0].max()) / level
    lift = max(1.0, model.rates.peak_factor / own_peak)
    rate = model.rates.mean_rate_per_s
    mean = rate * (mean / level)
    planned = np.maximum(mean, rate * (peak / level * lift))
    warm_up_h = model.scaling.warm_up_min / 60
    planned = np.stack([warmed(row, of, warm_up_h) for row, of in zip(planned, hours, strict=True)])
    return WeekRates(mean, planned, own_peak, lift)


def month_growth(model: ModelWeek, stretches: Sequence[Stretch]) -> FloatArray:
    """Mean and largest growth of every stretch, over the mean of the horizon; shape (2, stretches).

    Raises
    ------
    ValueError
        If growth has no day to count from.
    """
    if model.growth == NO_GROWTH:
        return np.ones((2, len(stretches)))
    if model.growth_base is None:
        raise ValueError(f"the growth of {model.name} needs a day that it counts from")
    factors = [[model.growth.factor(model.growth_base, day) for day in stretch.days] for stretch in stretches]
    mean = sum(map(sum, factors)) / sum(map(len, factors))
    return np.array([[float(np.mean(days)) for days in factors], [max(days) for days in factors]]) / mean


def warmed(rate_per_s: FloatArray, hours: FloatArray, warm_up_h: float) -> FloatArray:
    """What each slot must hold so that replicas which take ``warm_up_h`` to start are there in time.

    The load is taken to run from the rate of one hour to that of the next along a straight line. A replica that is
    ready in w hours must be asked for w hours ahead, so an hour holds its own rate and the share min(1, w) of the rise
    to the highest rate of the ceil(w) hours that follow; a warm-up of whole hours holds all of that rise. The week is
    cyclic. A holiday may stand between any two days: the hours after one are the highest of those of all days, and any
    midnight may lead into one, where the stretch has holidays.

    Parameters
    ----------
    rate_per_s
        Shape (`SLOTS`,).
    hours
        Hours of each slot in the stretch.
    """
    ahead = math.ceil(warm_up_h)
    if ahead == 0:
        return rate_per_s
    week, feast = rate_per_s[:WEEK_SLOTS], rate_per_s[WEEK_SLOTS:]
    with_holidays = hours[WEEK_SLOTS:].sum() > 0
    after_week = np.stack([np.roll(week, -k) for k in range(1, ahead + 1)])
    of_day = np.arange(24)[None, :] + np.arange(1, ahead + 1)[:, None]
    any_day = week.reshape(7, 24).max(axis=0)
    after_feast = np.where(of_day < 24, feast[of_day % 24], np.maximum(any_day, feast)[of_day % 24])
    if with_holidays:
        into = np.where(of_day < 24, 0.0, feast[of_day % 24])
        after_week = np.maximum(after_week, np.tile(into, 7))
    most = np.concatenate([after_week.max(axis=0), after_feast.max(axis=0)])
    return np.asarray(rate_per_s + min(1.0, warm_up_h) * np.maximum(0.0, most - rate_per_s))


def notes_of(model: ModelWeek, rates: WeekRates) -> list[str]:
    """How the stated peak and the week's went together, and what the week's own notes say."""
    if model.week.flat:
        return []
    stated, own = model.rates.peak_factor, rates.own_peak
    busiest = slot_name(model.week.busiest_slot)
    notes = [f"{model.name}: {note}" for note in model.week.notes]
    if rates.lift > 1:
        what = f"the week's own peak is {own:.4g} x the mean rate ({busiest}), the planning rate is {stated:.4g} x"
        notes.append(f"{model.name}: {what}: the peak of every hour is raised by {rates.lift:.4g}")
    elif stated > 1:
        what = f"the week's own peak, {own:.4g} x the mean rate ({busiest}), is held"
        notes.append(f"{model.name}: {what}; it lies above the planning rate of {stated:.4g} x")
    return notes
