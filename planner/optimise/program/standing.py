"""Families on where replicas stand: enough of them somewhere, spread over regions, packed into whole instances."""

from __future__ import annotations

from planner.optimise.program.parts import Program, Terms
from planner.optimise.types import Placement, ProgramData


def add_placement(program: Program, data: ProgramData) -> None:
    """Replicas that are needed stand somewhere.

    For each placement k that can stand in several yards h, and period t (replicas; ``place(k,t)``):

        sum over h of r[k, h, t]  >=  sum over c of running[c, k, t] * y[c]

    Where a placement can stand in one yard only, r is the right-hand side itself and is put in its place. Where it can
    stand nowhere, its columns cannot be chosen (``place(k)``). With a spread rule the rows of `add_spread` say more,
    unless they are elastic.
    """
    for k, placement in enumerate(program.groups.needed):
        yards = program.groups.yards.stands[placement]
        if not yards:
            terms: Terms = [(program.y[key], 1.0) for key in program.groups.needed[placement].columns]
            program.add_row("placement", f"place({k})", terms, "<=", 0.0)
        elif program.elastic if placement.spread else len(yards) > 1:
            for t in range(len(data.periods)):
                here: Terms = [(program.replicas[placement, h, t], -1.0) for h in yards]
                terms = program.needed(placement, t) + here
                program.add_row("placement", f"place({k},{t})", terms, "<=", 0.0)


def add_spread(program: Program, data: ProgramData) -> None:
    """Any one region may be lost: what stands elsewhere is enough.

    For each placement k with a spread rule, region q and period t (replicas; ``spread(k,q,t)``):

        sum over yards h outside q of r[k, h, t]  >=  sum over c of running[c, k, t] * y[c]

    Elastic: replicas may be missing, at the worth of their GPUs.
    """
    for k, placement in enumerate(program.groups.needed):
        if not placement.spread:
            continue
        region = {h: program.groups.yards.yards[h].supplies[0].region for h in program.groups.yards.stands[placement]}
        for q, lost in enumerate(sorted(set(region.values()))):
            for t in range(len(data.periods)):
                elsewhere: Terms = [(program.replicas[placement, h, t], -1.0) for h in region if region[h] != lost]
                terms = program.needed(placement, t) + elsewhere
                terms += program.short(f"spread[{placement.spread}]", "replicas", float(placement.gpus_per_replica))
                program.add_row("spread", f"spread({k},{q},{t})", terms, "<=", 0.0)


def add_node_packing(program: Program, data: ProgramData) -> None:
    """Replicas fit whole instances: none is split over two, nor over two fast domains of one.

    For each yard h, width d that binds there, and period t (GPUs; ``nodes(h,d,t)``):

        sum over placements k of taken[k, d] * r[k, h, t]  <=  sum over supplies g of h of usable[g] * room[g, d] *
                                                              sum over lots o of g of x[o, t]

    ``taken`` is the replica's width where it is at least d, else 0; of a replica that takes several whole instances it
    is their room. ``room[g, d]`` are the GPUs of an instance that widths of at least d can use. With whole counts the
    rows are exact (`Yard`); a width whose row follows from a smaller one has none.
    """
    here: dict[int, list[Placement]] = {}
    for placement, yards in program.groups.yards.stands.items():
        for h in yards:
            here.setdefault(h, []).append(placement)
    for h, yard in enumerate(program.groups.yards.yards):
        for d in yard.rows:
            rooms = [(lot, -yard.room(s, d)) for s in yard.supplies for lot in program.groups.lots.get(s.id, ())]
            takes = [(placement, yard.taken(placement.gpus_per_replica, d)) for placement in here[h]]
            for t in range(len(data.periods)):
                terms: Terms = []
                for placement, taken in takes:
                    if taken:
                        terms += [(v, taken * n) for v, n in _standing(program, placement, h, t)]
                terms.extend((program.x[lot.id, t], gives) for lot, gives in rooms if gives)
                program.add_row("node_packing", f"nodes({h},{d},{t})", terms, "<=", 0.0)


def _standing(program: Program, placement: Placement, h: int, t: int) -> Terms:
    """Replicas of a placement in a yard as terms: r where it has one, else all that are needed."""
    variable = program.replicas.get((placement, h, t))
    return program.needed(placement, t) if variable is None else [(variable, 1.0)]
