"""The bridge: why this quarter costs more or less than last quarter, in six steps of a fixed order.

With Q = million tokens served, H = GPU-hours in use, h_g and p_g = hours and effective rate of GPU type g,
p = in-use cost / H, U = unused commitments, e = reporting currency per USD, 0 = last quarter, 1 = this one:

    N           = Q1 * H0 / Q0             hours for this quarter's tokens at last quarter's tokens per GPU-hour
    M           = sum of h1_g * p0_g       this quarter's hours at last quarter's rates
    Volume      = e0 * (N - H0) * p0
    Efficiency  = e0 * (H1 - N) * p0
    Mix         = e0 * (M - H1 * p0)
    FX          = (e1 - e0) * (M + U0)
    Price       = e1 * (sum of h1_g * p1_g - M)
    Commitments = e1 * (U1 - U0)

The first four without exchange rates are the price-volume-mix bridge of cost accounting with efficiency apart; there
is no single accepted order, so this one is fixed. All six together are this quarter's cost less last quarter's,
exactly. A GPU type that was not in use last quarter has no p0_g: p1_g stands for it, so its whole effect is Mix.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from planner.compare.spending import InUse, Spending, spending_of
from planner.plan import FleetPlan

USD = "USD"
VOLUME, EFFICIENCY, MIX, FX, PRICE, COMMITMENTS = "Volume", "Efficiency", "Mix", "FX", "Price", "Commitments"
MEANINGS = {
    VOLUME: "More or fewer tokens served, at last quarter's tokens per GPU-hour and mean rate: (N - H0) x p0",
    EFFICIENCY: "More or fewer GPU-hours for the same tokens (dtype, batching, packing, TP), at last quarter's mean "
    "rate: (H1 - N) x p0. Idle GPUs of instances that run are in it",
    MIX: "Other GPU types, at last quarter's rates: sum of h1 x p0 by type - H1 x p0. A type not in use last quarter "
    "is taken at this quarter's rate, so its whole effect is here",
    FX: "Another exchange rate, on this quarter's hours at last quarter's rates and last quarter's unused commitments; "
    "0 where both plans are in USD",
    PRICE: "Another effective rate of the same GPU type: sum of h1 x (p1 - p0) by type",
    COMMITMENTS: "More or less paid for contracts and hardware in hours in which they do not run: U1 - U0",
}
"""The steps in their order, and what each one is."""


@dataclass(frozen=True)
class Step:
    """One step of the bridge, in the bridge's currency."""

    name: str
    amount: float
    meaning: str


@dataclass(frozen=True)
class GpuRates:
    """One GPU type in both quarters."""

    gpu: str
    last_hours: float
    last_usd_per_h: float
    """0 where it was not in use."""
    now_hours: float
    now_usd_per_h: float
    compared_usd_per_h: float
    """Last quarter's rate as the bridge takes it."""

    @property
    def is_new(self) -> bool:
        """Whether this quarter's rate stands for last quarter's."""
        return self.last_hours == 0 and self.now_hours > 0


@dataclass(frozen=True)
class Quarter:
    """The figures of one quarter that the bridge rests on."""

    run_id: str
    horizon_hours: float
    amount: float
    """Cost in the bridge's currency."""
    usd: float
    mtok: float
    gpu_hours: float
    usd_per_gpu_h: float
    unused_usd: float
    per_usd: float
    """Bridge's currency per USD."""


@dataclass(frozen=True)
class Bridge:
    """last.amount + sum of the steps' amounts = now.amount."""

    currency: str
    last: Quarter
    now: Quarter
    steps: tuple[Step, ...]
    gpus: tuple[GpuRates, ...]
    notes: tuple[str, ...] = ()


def bridge(last: FleetPlan, now: FleetPlan) -> Bridge:
    """The steps from last quarter's cost to this quarter's."""
    before, after = spending_of(last), spending_of(now)
    currency, rates, notes = exchange(last, now)
    amounts = _amounts(before, after, *(Fraction(rate) for rate in rates))
    return Bridge(
        currency,
        _quarter(last, before, rates[0]),
        _quarter(now, after, rates[1]),
        tuple(Step(name, float(amounts[name]), meaning) for name, meaning in MEANINGS.items()),
        tuple(_rates(gpu, before, after) for gpu in gpu_types(last, now)),
        notes,
    )


def exchange(last: FleetPlan, now: FleetPlan) -> tuple[str, tuple[float, float], tuple[str, ...]]:
    """Currency of the bridge, its units per USD last quarter and now, and what a reader must know about them.

    It is the reporting currency where both plans have the same one, else USD: a rate that nobody recorded is not
    made up.
    """
    old, new = last.reporting, now.reporting
    if old is not None and new is not None and old.currency == new.currency != USD:
        return new.currency, (old.per_usd, new.per_usd), ()
    was, is_now = (USD if r is None else r.currency for r in (old, new))
    if was == is_now:
        return USD, (1.0, 1.0), ()
    note = f"Last quarter was reported in {was}, this one is in {is_now}: the bridge is in USD, without a step for FX"
    return USD, (1.0, 1.0), (note,)


def gpu_types(*plans: FleetPlan) -> tuple[str, ...]:
    """GPU types that any of the plans buys, each once, in the order of the plans."""
    return tuple(dict.fromkeys(purchase.gpu for plan in plans for purchase in plan.purchases))


def cents(amounts: Sequence[float], start: float) -> tuple[float, ...]:
    """Steps rounded to the cent so that they add up as printed: differences of the rounded levels from ``start`` on."""
    levels = [round(start, 2)]
    level = Fraction(start)
    for amount in amounts:
        level += Fraction(amount)
        levels.append(round(float(level), 2))
    return tuple(round(b - a, 2) for a, b in itertools.pairwise(levels))


def needed_hours(last: Spending, now: Spending) -> Fraction:
    """N = Q1 * H0 / Q0: GPU-hours for this quarter's tokens as last quarter used them; H0 where nothing was served."""
    return now.mtok * last.hours / last.mtok if last.mtok else last.hours


def compared_rate(gpu: str, last: Spending, now: Spending) -> Fraction:
    """Last quarter's rate of a GPU type, USD per GPU-hour; this quarter's where it was not in use then."""
    before = last.in_use.get(gpu, InUse())
    return before.usd_per_h if before.hours else now.in_use.get(gpu, InUse()).usd_per_h


def _amounts(last: Spending, now: Spending, e0: Fraction, e1: Fraction) -> dict[str, Fraction]:
    """All steps, as the module's docstring has them."""
    needed, p0 = needed_hours(last, now), last.usd_per_h
    at_last_rates = sum((use.hours * compared_rate(g, last, now) for g, use in now.in_use.items()), Fraction(0))
    return {
        VOLUME: e0 * (needed - last.hours) * p0,
        EFFICIENCY: e0 * (now.hours - needed) * p0,
        MIX: e0 * (at_last_rates - now.hours * p0),
        FX: (e1 - e0) * (at_last_rates + last.unused_usd),
        PRICE: e1 * (now.in_use_usd - at_last_rates),
        COMMITMENTS: e1 * (now.unused_usd - last.unused_usd),
    }


def _quarter(plan: FleetPlan, spent: Spending, per_usd: float) -> Quarter:
    return Quarter(
        plan.run_id,
        plan.horizon_hours,
        float(spent.usd * Fraction(per_usd)),
        float(spent.usd),
        float(spent.mtok),
        float(spent.hours),
        float(spent.usd_per_h),
        float(spent.unused_usd),
        per_usd,
    )


def _rates(gpu: str, last: Spending, now: Spending) -> GpuRates:
    before, after = last.in_use.get(gpu, InUse()), now.in_use.get(gpu, InUse())
    return GpuRates(
        gpu,
        float(before.hours),
        float(before.usd_per_h),
        float(after.hours),
        float(after.usd_per_h),
        float(compared_rate(gpu, last, now)),
    )
