"""Which replicas stand on which supply: read from a solved program, first fit by decreasing width."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from planner.errors import SolverError
from planner.optimise.program.parts import Program
from planner.optimise.program.yards import Yard, domains
from planner.optimise.types import Column, Placement, ProgramData, Supply

WHOLE = 1e-9


def placed_replicas(
    program: Program, data: ProgramData, columns: Sequence[Column], running: Mapping[str, Sequence[int]]
) -> dict[tuple[Placement, str], tuple[int, ...]]:
    """Replicas by placement, supply id and period, for chosen columns and running instances by lot id.

    Replicas of a yard are placed widest first, on its supplies in order; the rows of node packing make sure that all
    find a place.

    Raises
    ------
    SolverError
        If the instances do not hold the replicas.
    """
    placed: dict[tuple[Placement, str], list[int]] = defaultdict(lambda: [0] * len(data.periods))
    for t in range(len(data.periods)):
        by_yard = _by_yard(program, columns, t)
        for h, counts in sorted(by_yard.items()):
            yard = program.groups.yards.yards[h]
            instances = {
                s.id: sum(running[lot.id][t] for lot in program.groups.lots.get(s.id, ()) if lot.id in running)
                for s in yard.supplies
            }
            for (placement, supply), count in _first_fit(yard, counts, instances).items():
                placed[placement, supply][t] = count
    return {key: tuple(counts) for key, counts in sorted(placed.items())}


def trimmed(
    program: Program,
    data: ProgramData,
    columns: Sequence[Column],
    running: Mapping[str, Sequence[int]],
    reserved: Mapping[str, int],
) -> tuple[dict[str, tuple[int, ...]], dict[str, int]]:
    """Running and reserved instances without those that the replicas do not need.

    A solver leaves them where they cost nothing (owned hardware, commitments that are paid anyway) or less than its
    gap. The dearest to run go first; nothing that held before is broken, and the cost does not rise.
    """
    left = {lot.id: list(running.get(lot.id, (0,) * len(data.periods))) for lot in data.lots}
    stands = {s.id for yard in program.groups.yards.yards for s in yard.supplies}
    for lot in data.lots:
        if lot.supply not in stands:
            left[lot.id] = [0] * len(data.periods)
    for t in range(len(data.periods)):
        by_yard = _by_yard(program, columns, t)
        for h, yard in enumerate(program.groups.yards.yards):
            _trim(program, yard, by_yard.get(h, {}), left, t)
    used = {name: tuple(counts) for name, counts in left.items() if any(counts)}
    return used, {name: max(used[name]) for name in reserved if name in used}


def _trim(program: Program, yard: Yard, counts: Mapping[Placement, int], left: dict[str, list[int]], t: int) -> None:
    """Take off what the rows of one yard can spare in one period."""
    lots = [(lot, s) for s in yard.supplies for lot in program.groups.lots.get(s.id, ())]
    spare = {
        d: sum(yard.room(s, d) * left[lot.id][t] for lot, s in lots)
        - sum(n * yard.taken(k.gpus_per_replica, d) for k, n in counts.items())
        for d in yard.rows
    }
    for lot, supply in sorted(lots, key=lambda pair: (-pair[0].used_usd_per_h / pair[0].gpus_per_instance, pair[0].id)):
        rooms = {d: yard.room(supply, d) for d in yard.rows if yard.room(supply, d) > 0}
        off = min([left[lot.id][t], *(int(spare[d] / room + WHOLE) for d, room in rooms.items())])
        left[lot.id][t] -= off
        for d, room in rooms.items():
            spare[d] -= off * room


def _by_yard(program: Program, columns: Sequence[Column], t: int) -> dict[int, dict[Placement, int]]:
    """Replicas that stand in each yard in a period; what a solution has beyond the need is taken off."""
    need: Counter[Placement] = Counter()
    for column in columns:
        for part in column.parts:
            need[part.placement] += part.running[t]
    found: dict[int, dict[Placement, int]] = defaultdict(dict)
    for placement, count in need.items():
        yards = program.groups.yards.stands[placement]
        left = count
        for h in yards:
            variable = program.replicas.get((placement, h, t))
            here = count if variable is None else round(float(variable.value() or 0.0))
            here = here if placement.spread else min(here, left)
            left -= here
            if here:
                found[h][placement] = here
    return found


def _first_fit(
    yard: Yard, counts: Mapping[Placement, int], instances: Mapping[str, int]
) -> dict[tuple[Placement, str], int]:
    """Replicas of each placement on each supply of a yard, in one period."""
    whole = {s.id: instances[s.id] for s in yard.supplies}
    placed: dict[tuple[Placement, str], int] = {}
    several = [p for p in counts if p.gpus_per_replica not in yard.widths]
    for placement in several:
        supply = yard.supplies[0]
        whole[supply.id] -= counts[placement] * (placement.gpus_per_replica // supply.gpus_per_instance)
        placed[placement, supply.id] = counts[placement]
    if any(left < 0 for left in whole.values()):
        raise SolverError("The solver's instances do not hold the replicas that take several of them")
    free = {s.id: _free_domains(s, whole[s.id]) for s in yard.supplies}
    fitting = [p for p in counts if p.gpus_per_replica in yard.widths]
    for placement in sorted(fitting, key=lambda p: (-yard.widths[p.gpus_per_replica], -p.gpus_per_replica, p)):
        left = counts[placement]
        for supply in yard.supplies:
            fit = _fill(free[supply.id], yard.widths[placement.gpus_per_replica], left)
            if fit:
                placed[placement, supply.id] = fit
                left -= fit
        if left:
            raise SolverError(
                f"The solver's instances do not hold {left} replicas of {placement.gpus_per_replica} GPUs"
            )
    return placed


def _free_domains(supply: Supply, instances: int) -> Counter[int]:
    """Fast domains of empty instances, counted by their free GPUs."""
    return Counter({size: count * instances for size, count in domains(supply)})


def _fill(free: Counter[int], width: int, most: int) -> int:
    """Put up to ``most`` replicas of a width into domains, the fullest first; how many found a place."""
    left = most
    for room in sorted(room for room, count in free.items() if room >= width and count):
        fit = min(left, room // width * free[room])
        full, rest = divmod(fit, room // width)
        free[room] -= full + (1 if rest else 0)
        free[room - room // width * width] += full
        if rest:
            free[room - rest * width] += 1
        left -= fit
    return most - left
