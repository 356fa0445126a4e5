"""Which pool's replicas stand on which supply: the program only says how many of a placement stand there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from planner.errors import PlannerError
from planner.optimise.types import Decision, Part, Placement

Counts = tuple[int, ...]
"""Replicas or instances, by period."""


@dataclass(frozen=True)
class Standing:
    """One pool of the plan: a part of a chosen column, with where its replicas stand."""

    name: str
    part: Part
    served_tokens: float
    on: Mapping[str, Counts]
    """Replicas by supply id and period."""

    @property
    def model(self) -> str:
        """The model that it serves."""
        return self.part.need.slice.model

    @property
    def replicas(self) -> Counts:
        """That run in each period, over all supplies."""
        return tuple(map(sum, zip(*self.on.values(), strict=True)))

    def gpus(self, supply: str) -> Counts:
        """GPUs that it takes of a supply, by period."""
        each = self.part.placement.gpus_per_replica
        return tuple(each * n for n in self.on.get(supply, (0,) * len(self.part.running)))

    def gpu_hours(self, supply: str, hours: Sequence[float]) -> float:
        """GPU-hours of its running replicas on a supply."""
        return sum(n * h for n, h in zip(self.gpus(supply), hours, strict=True))


def standings(decision: Decision, models: Sequence[str]) -> tuple[Standing, ...]:
    """The pools of a decision: models in the given order, and within a model by tenant, prompt length and GPU type.

    Replicas of a supply are handed out to the pools of a placement in that order, the supply with the most of the
    placement first, so that a pool moves as little as it can from period to period.

    Raises
    ------
    PlannerError
        If fewer replicas stand than the chosen columns run: a bug.
    """
    parts = _ordered(decision, models)
    names = _names([part for part, _ in parts])
    placed = _placed(decision)
    on = _handed_out([part for part, _ in parts], placed)
    return tuple(
        Standing(name, part, served, where) for name, (part, served), where in zip(names, parts, on, strict=True)
    )


def _ordered(decision: Decision, models: Sequence[str]) -> list[tuple[Part, float]]:
    """Parts with the tokens that each serves."""
    found = [
        (part, column.served_tokens * _kept(part) / sum(_kept(p) for p in column.parts))
        for column in decision.columns
        for part in column.parts
    ]
    position = {model: i for i, model in enumerate(models)}
    return sorted(found, key=lambda item: (position[item[0].need.slice.model], *_place(item[0])))


def _kept(part: Part) -> float:
    """Share of the slice's tokens that a part serves."""
    return part.load_share * (1.0 - part.need.config.length.refused_token_share)


def _place(part: Part) -> tuple[tuple[str, ...], int, str, str]:
    part_of = part.need.slice
    return part_of.tenants, part_of.prompt_lo_tokens, part.placement.gpu, part.need.config.label


def _names(parts: Sequence[Part]) -> list[str]:
    """The model's name; where it has several pools, with a number, none of which is another model's name."""
    models = [part.need.slice.model for part in parts]
    taken, names = set(models), []
    for model in models:
        if models.count(model) == 1:
            names.append(model)
            continue
        name = next(f"{model}/{n}" for n in range(1, len(models) + len(taken) + 1) if f"{model}/{n}" not in taken)
        taken.add(name)
        names.append(name)
    return names


def _placed(decision: Decision) -> dict[Placement, dict[str, Counts]]:
    """Replicas of each placement by supply, the supply with the most first."""
    found: dict[Placement, dict[str, Counts]] = {}
    for (placement, supply), counts in sorted(decision.placed.items(), key=lambda item: (-sum(item[1]), item[0][1])):
        if any(counts):
            found.setdefault(placement, {})[supply] = counts
    return found


def _handed_out(parts: Sequence[Part], placed: Mapping[Placement, Mapping[str, Counts]]) -> list[dict[str, Counts]]:
    left = {placement: {g: list(counts) for g, counts in supplies.items()} for placement, supplies in placed.items()}
    return [_taken(part, left.get(part.placement, {})) for part in parts]


def _taken(part: Part, left: dict[str, list[int]]) -> dict[str, Counts]:
    """What one pool takes of what is left: all of it where a region may be lost, for nobody shares such a placement."""
    taken = {supply: [0] * len(part.running) for supply in left}
    for t, wanted in enumerate(part.running):
        missing = sum(counts[t] for counts in left.values()) if part.placement.spread else wanted
        for supply, counts in left.items():
            taken[supply][t] = min(missing, counts[t])
            counts[t] -= taken[supply][t]
            missing -= taken[supply][t]
        if missing or sum(counts[t] for counts in taken.values()) < wanted:
            name = f"{part.need.slice.model} on {part.placement.gpu}"
            raise PlannerError(f"{name}: {wanted} replicas run in period {t + 1}, and fewer stand on the supplies")
    return {supply: tuple(counts) for supply, counts in taken.items() if any(counts)}
