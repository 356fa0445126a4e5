"""Families on what is bought: reservations, what can be had, and quotas."""

from __future__ import annotations

from planner.catalog.offer import Offer
from planner.optimise.program.parts import Program, Terms, held_gpus, is_reserved
from planner.optimise.types import Lot, LotKind, ProgramData
from planner.request import Quota

WORTH_OF_A_HELD_GPU = 10.0
"""In an elastic program: what is owned or committed already is not to be had more of by asking."""


def add_reservations(program: Program, data: ProgramData) -> None:
    """Only what is reserved runs.

    For each lot o with a price for every hour, and period t (instances; ``reserve(o,t)``):  x[o, t]  <=  X[o].
    Where running costs nothing beyond, x is X and there is no row.
    """
    for o, lot in enumerate(data.lots):
        if is_reserved(lot):
            reserved = program.reserved[lot.id]
            for t in range(len(data.periods)):
                if program.x[lot.id, t] is not reserved:
                    program.add_row("reservations", f"reserve({o},{t})", _less(program, lot, t), "<=", 0.0)


def add_availability(program: Program, data: ProgramData) -> None:
    """What can be had: for each lot o with a limit and period t (instances),  x[o, t]  <=  available[o, t].

    They are bounds of the variables, of X too (its largest); in an elastic program rows ``available(o,t)``.
    """
    for o, lot in enumerate(data.lots):
        if lot.available is None:
            continue
        held = lot.kind in (LotKind.OWNED, LotKind.EXISTING_COMMITMENT)
        weight = float(lot.gpus_per_instance) * (WORTH_OF_A_HELD_GPU if held else 1.0)
        if not program.elastic and lot.id in program.reserved:
            program.reserved[lot.id].upBound = max(lot.available)
        for t, most in enumerate(lot.available):
            variable = program.x[lot.id, t]
            if program.elastic:
                terms = [(variable, 1.0), *program.short(f"available[{lot.id}]", "instances", weight)]
                program.add_row("availability", f"available({o},{t})", terms, "<=", float(most))
            else:
                variable.upBound = most


def add_quotas(program: Program, data: ProgramData) -> None:
    """Quotas, for each quota q and period t (GPUs; ``quota(q,t)``).

        sum over lots o that it covers of S[o] * (X[o] where reserved, else x[o, t])  <=  max_gpus[q]  −  held[q, t]

    ``held`` are the GPUs of existing commitments, which count whether they run or not. Where all that is covered is
    reserved, one row says it for every period that holds as much.
    """
    for q, quota in enumerate(data.quotas):
        covered = [lot for lot in data.lots if quota_covers(quota, lot.offer)]
        decided = [lot for lot in covered if lot.kind is not LotKind.EXISTING_COMMITMENT]
        seen: set[tuple[int, ...]] = set()
        for t in range(len(data.periods)):
            counted = [program.reserved.get(lot.id) if is_reserved(lot) else program.x[lot.id, t] for lot in decided]
            held = held_gpus(covered, t)
            alike = (held, *(id(variable) for variable in counted))
            if alike in seen:
                continue
            seen.add(alike)
            terms: Terms = [(v, float(lot.gpus_per_instance)) for v, lot in zip(counted, decided, strict=True)]
            terms += program.short(f"quota[{quota.name}]", "GPUs", 1.0)
            program.add_row("quotas", f"quota({q},{t})", terms, "<=", float(quota.max_gpus - held))


def quota_covers(quota: Quota, offer: Offer) -> bool:
    """Whether an offer counts towards a quota; an empty field of the quota matches everything."""
    pairs = (
        (quota.provider, offer.provider),
        (quota.region, offer.region),
        (quota.gpu, offer.gpu),
        (quota.offer, offer.id),
    )
    return all(wanted in ("", actual) for wanted, actual in pairs)


def _less(program: Program, lot: Lot, t: int) -> Terms:
    return [(program.x[lot.id, t], 1.0), (program.reserved[lot.id], -1.0)]
