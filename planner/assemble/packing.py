"""Packing replicas into instances without the program: first fit by decreasing size, fast domain by fast domain."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from planner.plan import PlanSupply


def domains(supply: PlanSupply) -> tuple[int, ...]:
    """GPUs of each fast domain of one instance; what is left over of the instance is one more."""
    size = supply.gpus_per_instance
    width = min(supply.nvlink_domain or size, size)
    whole, rest = divmod(size, width)
    return (width,) * whole + ((rest,) if rest else ())


def instances_needed(supply: PlanSupply, replicas: Iterable[tuple[int, int]]) -> int | None:
    """Instances that hold replicas, given as (GPUs of one, how many); ``None`` where one can never stand.

    First fit by decreasing size; a replica never straddles two fast domains, and one that is larger than an instance
    takes whole instances. The least number for sizes that divide each other; for others the better of two packings,
    with each as it is and with each at the next power of two.
    """
    sizes = [(gpus, count) for gpus, count in replicas if count]
    widest = max(domains(supply))
    padded = [(gpus if gpus > widest else min(1 << (gpus - 1).bit_length(), widest), count) for gpus, count in sizes]
    found = [n for n in (_first_fit(supply, sizes), _first_fit(supply, padded)) if n is not None]
    return min(found, default=None)


def _first_fit(supply: PlanSupply, replicas: Iterable[tuple[int, int]]) -> int | None:
    size, places, opened = supply.gpus_per_instance, domains(supply), 0
    room: list[int] = []
    for gpus, count in sorted(replicas, reverse=True):
        if gpus > size:
            if not supply.multi_node or gpus % size:
                return None
            opened += count * (gpus // size)
            continue
        if gpus > max(places):
            return None
        first = 0
        for _ in range(count):
            # What had no room for a replica of this size has none for the next.
            place = next((i for i in range(first, len(room)) if room[i] >= gpus), None)
            if place is None:
                place = len(room) + places.index(next(width for width in places if width >= gpus))
                room += places
                opened += 1
            room[place] -= gpus
            first = place
    return opened


def counted_on(supply: PlanSupply, degree: int) -> float:
    """GPUs of one instance that replicas of ``degree`` GPUs may count on, the interruption reserve taken off."""
    return supply.usable_share * sum(width // degree * degree for width in domains(supply))


def over_the_reserve(supply: PlanSupply, replicas: Sequence[tuple[int, int]], instances: int) -> float:
    """GPUs that replicas take beyond the share of running instances that is counted on; at most 0 where they hold.

    For each degree d of those that fit an instance: whole multiples of d that replicas take, and all that d can use of
    the instances that a larger replica takes, against what d can count on.
    """
    size = supply.gpus_per_instance
    excess = 0.0
    for degree in sorted({gpus for gpus, count in replicas if count and gpus <= size} or {1}):
        each = sum(width // degree * degree for width in domains(supply))
        used = sum(n * (gpus // size * each if gpus > size else gpus // degree * degree) for gpus, n in replicas)
        excess = max(excess, used - counted_on(supply, degree) * instances)
    return excess
