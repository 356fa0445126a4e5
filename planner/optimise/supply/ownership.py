"""What owning hardware costs by the hour: capital, maintenance, room and electricity."""

from __future__ import annotations

import math
from dataclasses import dataclass

from planner import units
from planner.request import Buying, Site


@dataclass(frozen=True)
class OwningCost:
    """Cost of one bought instance, USD per hour."""

    capital_usd_per_h: float
    maintenance_usd_per_h: float
    colocation_usd_per_h: float
    energy_usd_per_h: float
    """Only in the hours in which it runs."""

    @property
    def reserved_usd_per_h(self) -> float:
        """Every hour, whether it runs or not."""
        return self.capital_usd_per_h + self.maintenance_usd_per_h + self.colocation_usd_per_h


def capital_recovery_usd_per_year(
    price_usd: float, residual_usd: float, life_years: float, cost_of_capital: float
) -> float:
    """Equal yearly amount that recovers a price over a life, with return on what is not yet recovered.

    ``CR = (P - S) * (A/P, i, n) + S * i`` with ``(A/P, i, n) = i (1 + i)**n / ((1 + i)**n - 1)``, the capital recovery
    factor of engineering economy (Blank and Tarquin, Engineering Economy, annual worth analysis); at i = 0 it is
    straight-line depreciation ``(P - S) / n``.

    Parameters
    ----------
    price_usd, residual_usd
        P, paid at the start, and S, what it still fetches at the end of its life.
    life_years
        n, above 0.
    cost_of_capital
        i, a year; 0.08 is 8 %.
    """
    if cost_of_capital == 0:
        return (price_usd - residual_usd) / life_years
    recovery = cost_of_capital / -math.expm1(-life_years * math.log1p(cost_of_capital))
    return (price_usd - residual_usd) * recovery + residual_usd * cost_of_capital


def energy_usd_per_h(power_kw: float, site: Site) -> float:
    """Electricity of a running instance: ``power_kw * PUE * usd_per_kwh``."""
    return power_kw * site.pue * site.usd_per_kwh


def owning_cost(hardware: Buying, site: Site) -> OwningCost:
    """Hourly cost of one bought instance at its site, at 8,760 hours a year."""
    capital = capital_recovery_usd_per_year(
        hardware.capex_usd,
        hardware.capex_usd * hardware.residual_share,
        hardware.life_years,
        hardware.cost_of_capital,
    )
    return OwningCost(
        capital_usd_per_h=units.per_year_to_per_h(capital),
        maintenance_usd_per_h=units.per_year_to_per_h(hardware.capex_usd * hardware.maintenance_share_per_year),
        colocation_usd_per_h=units.per_month_to_per_h(hardware.colocation_usd_per_month),
        energy_usd_per_h=energy_usd_per_h(hardware.power_kw, site),
    )
