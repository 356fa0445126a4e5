"""Yards: supplies between which a replica need not choose, so that the program need not either."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from planner.optimise.supply.supplies import can_stand, room
from planner.optimise.types import Placement, Supply


@dataclass(frozen=True)
class Yard:
    """Supplies of one GPU type that differ for a replica only in the size of their instances.

    With whole counts the rows of `add_node_packing` are exact: where every width divides the next, first fit by
    decreasing width leaves less than a width free in a domain only when no more of that width fits, whatever the sizes
    of the domains are; so replicas of one yard need no variable that says on which supply they stand.
    """

    supplies: tuple[Supply, ...]
    """More than one only where all of an instance counts and no replica takes several instances."""
    widths: Mapping[int, int]
    """GPUs that a replica takes the place of, by its GPUs; only replicas that fit an instance."""
    rows: tuple[int, ...]
    """Widths whose rows bind: the others follow from a smaller one."""

    def room(self, supply: Supply, width: int) -> float:
        """GPUs of one instance that replicas at least that wide may use, less the interruption reserve."""
        return supply.usable_share * room(supply, width)

    def taken(self, degree: int, width: int) -> int:
        """GPUs that a replica of ``degree`` GPUs takes of a row's room: whole multiples of the width it fills."""
        if degree not in self.widths:
            supply = self.supplies[0]
            return degree // supply.gpus_per_instance * room(supply, width)
        return self.widths[degree] // width * width


@dataclass(frozen=True)
class Yards:
    """All yards, and where each placement can stand."""

    yards: tuple[Yard, ...]
    stands: Mapping[Placement, tuple[int, ...]]
    """Indices of yards, ascending; empty where a placement can stand nowhere."""


def yards_of(placements: Iterable[Placement], supplies: Sequence[Supply]) -> Yards:
    """Supplies grouped into yards for these placements; supplies that take none of them are left out."""
    placed = sorted(set(placements))
    by_gpu: dict[str, list[Placement]] = defaultdict(list)
    for placement in placed:
        by_gpu[placement.gpu].append(placement)
    groups: dict[tuple[object, ...], list[Supply]] = defaultdict(list)
    for supply in supplies:
        mine = [p for p in by_gpu.get(supply.gpu, []) if can_stand(p, supply)]
        if mine:
            groups[_likeness(supply, by_gpu[supply.gpu])].append(supply)
    yards = tuple(
        _yard(tuple(part), by_gpu[part[0].gpu])
        for group in groups.values()
        for part in _divisible(group, by_gpu[group[0].gpu])
    )
    stands = {
        p: tuple(i for i, yard in enumerate(yards) if any(can_stand(p, supply) for supply in yard.supplies))
        for p in placed
    }
    return Yards(yards, stands)


def domains(supply: Supply) -> tuple[tuple[int, int], ...]:
    """Fast domains of one instance: (GPUs, how many)."""
    size = supply.gpus_per_instance
    domain = min(supply.nvlink_domain or size, size)
    whole, rest = divmod(size, domain)
    return ((domain, whole), (rest, 1)) if rest else ((domain, whole),)


def widths_of(degrees: Iterable[int], largest_domain: int) -> dict[int, int]:
    """GPUs that a replica takes the place of, so that every width divides the next.

    Where the degrees divide each other a replica takes its own. Else it takes the next power of two, or a whole domain
    where that is less: 3 GPUs take the place of 4. That may rent more than the best packing needs, never less.
    """
    ordered = sorted(set(degrees))
    if _is_chain(ordered):
        return {degree: degree for degree in ordered}
    return {degree: min(1 << (degree - 1).bit_length(), largest_domain) for degree in ordered}


def _likeness(supply: Supply, placements: Sequence[Placement]) -> tuple[object, ...]:
    """What two supplies of one yard have in common: which rules they obey, and what makes one stand alone."""
    rules = {(p.interruptible, p.regions, p.spread): replace(p, gpus_per_replica=1) for p in placements}
    obeyed = tuple(rule for rule, one in sorted(rules.items()) if can_stand(one, supply))
    region = supply.region if any(spread for _, _, spread in obeyed) else ""
    several = any(p.gpus_per_replica > supply.gpus_per_instance and can_stand(p, supply) for p in placements)
    alone = supply.id if several or supply.usable_share < 1 else ""
    return supply.gpu, obeyed, region, alone


def _divisible(group: list[Supply], placements: Sequence[Placement]) -> list[list[Supply]]:
    """The group whole where the degrees on it divide each other, else each supply by itself."""
    return [group] if _is_chain(sorted(_degrees(group, placements))) else [[supply] for supply in group]


def _degrees(supplies: Iterable[Supply], placements: Sequence[Placement]) -> set[int]:
    """GPUs of replicas that fit an instance of these supplies."""
    return {
        p.gpus_per_replica
        for supply in supplies
        for p in placements
        if can_stand(p, supply) and p.gpus_per_replica <= supply.gpus_per_instance
    }


def _is_chain(ordered: Sequence[int]) -> bool:
    return all(larger % smaller == 0 for smaller, larger in pairwise(ordered))


def _yard(supplies: tuple[Supply, ...], placements: Sequence[Placement]) -> Yard:
    largest = max(size for supply in supplies for size, _ in domains(supply))
    widths = widths_of(_degrees(supplies, placements), largest)
    rows: list[int] = []
    for width in sorted(set(widths.values()) or {1}):
        follows = any(
            width % smaller == 0 and all(room(s, smaller) <= room(s, width) for s in supplies) for smaller in rows
        )
        if not follows:
            rows.append(width)
    return Yard(supplies, widths, tuple(rows))
