"""What was found out about needs: those that are exact, the columns made of them, and the splits that could pay."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field

from planner.optimise.types import Column, Need, Part

Key = tuple[int, str, float]
"""Identity of a need's configuration, its slice and the share of the slice's requests."""
Group = tuple[str, str]
"""A slice and a GPU type."""


@dataclass
class Known:
    """What was found out about needs; fleets that differ in rules alone share it.

    Exact needs hold the configurations whose ids their keys have, so that no id is ever used again.
    """

    exact: dict[Key, Need] = field(default_factory=dict)
    made: dict[Group, tuple[Column, ...]] = field(default_factory=dict)
    """Columns of whole slices by group, until one of its needs becomes exact."""
    split: dict[str, Column] = field(default_factory=dict)
    """Splits by key of the column."""

    def need(self, need: Need, share: float = 1.0) -> Need:
        """The exact need where it is known, else the one given."""
        return self.exact.get(key_of(need, share), need)

    def learn(self, part: Part, exact: Need) -> None:
        """Remember the exact need of a part."""
        self.exact[key_of(part.need, part.load_share)] = exact
        if part.load_share == 1.0:
            self.made.pop(group_of(part.need), None)

    def without(self, models: Set[str]) -> Known:
        """A copy, with no columns of some models."""
        made = {group: columns for group, columns in self.made.items() if columns and columns[0].model not in models}
        split = {key: column for key, column in self.split.items() if column.model not in models}
        return Known(dict(self.exact), made, split)


def key_of(need: Need, share: float = 1.0) -> Key:
    """Of a need at a share of its slice."""
    return id(need.config), need.slice.key, share


def group_of(need: Need) -> Group:
    """Of a need."""
    return need.slice.key, need.config.gpu.id
