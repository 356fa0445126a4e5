"""What was off, in plain words."""

from __future__ import annotations

import math

from planner import units
from planner.study import ModelActual

WORTH_SAYING = 0.10
"""Distance from the plan that is named."""
SAME = 0.005
"""Rates closer than this are printed once."""


def verdict(found: ModelActual) -> str:
    """One model in a line: everything that is more than 10 % off, and every limit that was not kept."""
    said = [
        _off("traffic", found.actual_requests, found.planned_requests),
        _off("input per request", _each(found.actual_input_mtok, found.actual_requests), _planned_input(found)),
        _off("output per request", _each(found.actual_output_mtok, found.actual_requests), _planned_output(found)),
        _off("peak", found.actual_peak_per_s, found.planned_peak_per_s),
        _off("USD per Mtok", found.actual_usd_per_mtok, found.planned_usd_per_mtok),
        _refused(found),
        _overflow(found),
    ]
    off = [text for text in said if text]
    return "; ".join(off) if off else "as planned, within 10 %"


def change(actual: float, planned: float) -> str:
    """Actual over planned minus 1, in percent; a dash where nothing was planned."""
    if not (planned > 0 and math.isfinite(actual)):
        return "-"
    return f"{actual / planned - 1:+.0%}"


def growth(found: ModelActual) -> str:
    """What the next plan may start from: the mean of these hours, that of the horizon where it differs, and growth."""
    rate = found.actual_requests / units.hours_to_s(found.hours)
    said = f"{rate:,.4g} requests/s in these hours"
    if found.mean_rate_per_s is None or found.growth is None:
        return f"{said}, in which nothing was planned"
    if found.growth <= 0:
        return "no request came"
    if abs(found.mean_rate_per_s / rate - 1) > SAME:
        said += f", {found.mean_rate_per_s:,.4g} over the horizon by the plan's own week"
    return f"{said}: x{found.growth:.4g} the {found.mean_rate_per_s / found.growth:,.4g} that the plan states"


def _each(mtok: float, requests: float) -> float:
    return mtok / requests if requests > 0 else 0.0


def _planned_input(found: ModelActual) -> float:
    return _each(found.planned_input_mtok, found.planned_requests)


def _planned_output(found: ModelActual) -> float:
    return _each(found.planned_output_mtok, found.planned_requests)


def _off(what: str, actual: float, planned: float) -> str:
    if planned <= 0:
        return f"{what} where none was planned" if actual > 0 else ""
    if not math.isfinite(actual):
        return f"{what} without end: nothing was served"
    if abs(actual / planned - 1) <= WORTH_SAYING:
        return ""
    return f"{what} {abs(actual / planned - 1):.0%} {'above' if actual > planned else 'below'} plan"


def _refused(found: ModelActual) -> str:
    """Refusals are named where there are more than planned by a tenth."""
    if found.actual_refused_share <= found.planned_refused_share * (1 + WORTH_SAYING):
        return ""
    return f"{found.actual_refused_share:.2%} refused as too long where {found.planned_refused_share:.2%} was planned"


def _overflow(found: ModelActual) -> str:
    if found.actual_overflow is None or not found.actual_overflow:
        return ""
    only = "only " if found.actual_overflow > found.allowed_overflow else ""
    return f"overflow {found.actual_overflow:.2%} where {only}{found.allowed_overflow:.2%} was allowed"
