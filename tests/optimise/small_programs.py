"""Small programs by hand: lots, columns and data in one line each, and a decision read from a solved program."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping

from planner.catalog.offer import Offer, Term
from planner.optimise.program import Program, build, placed_replicas
from planner.optimise.recount import spent_usd
from planner.optimise.solve.ratio import solve_program
from planner.optimise.types import (
    Caps,
    Column,
    Decision,
    Lot,
    LotKind,
    Movement,
    Part,
    Period,
    Placement,
    ProgramData,
    SolverSettings,
    Supply,
)
from planner.plan import SolveStatus
from planner.request import Quota

EXACT = SolverSettings(name="highs", gap=1e-9, time_limit_s=60.0, threads=1, seed=0)
ONE = (Period("all", 100.0),)
TWO = (Period("day", 60.0), Period("night", 40.0))


def offer(name: str, gpu: str, gpus: int, provider: str = "p", region: str = "r") -> Offer:
    return Offer(
        id=name, provider=provider, instance_type=f"{gpus}x-{gpu}", region=region, gpu=gpu, gpus_per_instance=gpus,
        usd_per_h=1.0, term=Term.ON_DEMAND, as_of=dt.date(2026, 11, 1), source_url="https://example.org/prices",
    )  # fmt: skip


def lot(
    name: str, supply: Supply, used: float = 0.0, *, reserved: float = 0.0, sunk: float = 0.0, provider: str = "p",
    available: tuple[int, ...] | None = None, kind: LotKind = LotKind.ON_DEMAND, power: float = 0.0,
    carbon: float = 0.0, liability: float = 0.0,
) -> Lot:  # fmt: skip
    return Lot(
        id=name, supply=supply.id, kind=kind, gpus_per_instance=supply.gpus_per_instance,
        offer=offer(name, supply.gpu, supply.gpus_per_instance, provider), reserved_usd_per_h=reserved,
        used_usd_per_h=used, sunk_usd=sunk, available=available, power_kw=power, carbon_kg_per_h=carbon,
        liability_after_usd=liability,
    )  # fmt: skip


def part(gpu: str, tp: int, *running: int, **rules: object) -> Part:
    return Part(Placement(gpu, tp, **rules), None, running)


def column(model: str, parts: Part | tuple[Part, ...], served: float = 1e9, start: int = 0, end: int = 1) -> Column:
    parts = (parts,) if isinstance(parts, Part) else parts
    what = "+".join(f"{max(p.running)}x{p.placement.gpu}-tp{p.placement.gpus_per_replica}" for p in parts)
    return Column(f"{model} {start}-{end} {what} {served:g}", model, start, end, parts, served)


def data(
    columns: Iterable[Column],
    supplies: Iterable[Supply],
    lots: Iterable[Lot],
    *,
    periods: tuple[Period, ...] = ONE,
    max_pools: int = 99,
    quotas: tuple[Quota, ...] = (),
    caps: Caps | None = None,
    movement: Movement | None = None,
    models: tuple[str, ...] = (),
) -> ProgramData:
    columns = tuple(columns)
    models = models or tuple(dict.fromkeys(c.model for c in columns))
    ends = {m: max((c.end for c in columns if c.model == m), default=1) for m in models}
    pools = dict.fromkeys(models, max_pools)
    return ProgramData(
        models, ends, pools, periods, tuple(supplies), tuple(lots), columns, quotas, caps or Caps(), movement
    )


def solve(d: ProgramData, theta: float = 0.0, settings: SolverSettings = EXACT) -> Decision | None:
    """Least cost at one theta, or ``None`` where nothing is feasible."""
    program = build(d, theta)
    certificate = solve_program(program, settings)
    if certificate.status is SolveStatus.INFEASIBLE:
        return None
    return read(program, d, certificate.objective)


def read(program: Program, d: ProgramData, objective: float = 0.0) -> Decision:
    columns = tuple(c for c in d.columns if round(program.y[c.key].value() or 0) == 1)
    periods = range(len(d.periods))
    running = {lot.id: tuple(round(program.x[lot.id, t].value() or 0) for t in periods) for lot in d.lots}
    running = {name: counts for name, counts in running.items() if any(counts)}
    reserved = {name: round(v.value() or 0) for name, v in program.reserved.items()}
    return decision(d, columns, running, reserved, placed_replicas(program, d, columns, running), bound=objective)


def decision(
    d: ProgramData,
    columns: Iterable[Column],
    running: Mapping[str, tuple[int, ...]],
    reserved: Mapping[str, int] | None = None,
    placed: Mapping[tuple[Placement, str], tuple[int, ...]] | None = None,
    bound: float = 0.0,
) -> Decision:
    """A point, with cost and served tokens counted from it."""
    columns = tuple(columns)
    served = sum(c.served_tokens for c in columns)
    found = Decision(
        columns, running, reserved or {}, placed or {}, SolveStatus.OPTIMAL, 0.0, served, bound, 1, "by hand", ""
    )
    return Decision(**{**found.__dict__, "usd": spent_usd(d, found)})
