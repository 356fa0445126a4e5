"""Families on the whole fleet: budget, electric power, carbon, and what is still owed afterwards."""

from __future__ import annotations

from planner.optimise.program.parts import Program, Terms
from planner.optimise.types import ProgramData


def add_budget(program: Program, data: ProgramData) -> None:
    """Budget (USD; ``budget``), with H the hours of the horizon and h[t] those of a period.

    sum over o of (reserved_usd[o] * H * X[o]  +  sum over t of used_usd[o] * h[t] * x[o, t])
        <=  budget  −  sum over o of sunk_usd[o]
    """
    if data.caps.budget_usd is None:
        return
    prices = ((lot.reserved_usd_per_h + lot.used_usd_per_h) / lot.gpus_per_instance for lot in data.lots)
    dearest = max(prices, default=0.0)
    terms = spend(program, data) + program.short("budget", "USD", _per_gpu(dearest * data.hours))
    program.add_row("budget", "budget", terms, "<=", data.caps.budget_usd - sum(lot.sunk_usd for lot in data.lots))


def add_power_cap(program: Program, data: ProgramData) -> None:
    """Electric power: for each period t (kW; ``power(t)``)  sum over o of power_kw[o] * x[o, t]  <=  power_kw."""
    if data.caps.power_kw is None:
        return
    most = max((lot.power_kw / lot.gpus_per_instance for lot in data.lots), default=0.0)
    for t in range(len(data.periods)):
        terms: Terms = [(program.x[lot.id, t], lot.power_kw) for lot in data.lots if lot.power_kw]
        terms += program.short("power", "kW", _per_gpu(most))
        program.add_row("power_cap", f"power({t})", terms, "<=", data.caps.power_kw)


def add_carbon_cap(program: Program, data: ProgramData) -> None:
    """Carbon (kg CO2e; ``carbon``):  sum over o and t of carbon_kg_per_h[o] * h[t] * x[o, t]  <=  carbon_kg."""
    if data.caps.carbon_kg is None:
        return
    most = max((lot.carbon_kg_per_h / lot.gpus_per_instance for lot in data.lots), default=0.0)
    terms: Terms = [
        (program.x[lot.id, t], lot.carbon_kg_per_h * period.hours)
        for lot in data.lots
        if lot.carbon_kg_per_h
        for t, period in enumerate(data.periods)
    ]
    terms += program.short("carbon", "kg", _per_gpu(most * data.hours))
    program.add_row("carbon_cap", "carbon", terms, "<=", data.caps.carbon_kg)


def add_liability_cap(program: Program, data: ProgramData) -> None:
    """What is owed after the horizon (USD; ``liability``):  sum of liability_after_usd[o] * X[o]  <=  liability_usd."""
    if data.caps.liability_usd is None:
        return
    most = max((lot.liability_after_usd / lot.gpus_per_instance for lot in data.lots), default=0.0)
    terms: Terms = [
        (variable, lot.liability_after_usd)
        for lot in data.lots
        if lot.liability_after_usd and (variable := program.reserved.get(lot.id)) is not None
    ]
    terms += program.short("liability", "USD", _per_gpu(most))
    program.add_row("liability_cap", "liability", terms, "<=", data.caps.liability_usd)


def spend(program: Program, data: ProgramData) -> Terms:
    """Cost of the horizon as terms (USD), without what is sunk."""
    terms: Terms = []
    for lot in data.lots:
        if lot.id in program.reserved:
            terms.append((program.reserved[lot.id], lot.reserved_usd_per_h * data.hours))
        if lot.used_usd_per_h:
            terms.extend(
                (program.x[lot.id, t], lot.used_usd_per_h * period.hours) for t, period in enumerate(data.periods)
            )
    return terms


def _per_gpu(largest: float) -> float:
    """Weight that makes one unit of a shortage count as the GPUs, of the dearest kind, that it would be."""
    return 1.0 / largest if largest > 0 else 1.0
