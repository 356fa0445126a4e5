"""Columns of the integer program as arrays, so that hundreds of thousands are priced at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.optimise.types import Column, Placement, ProgramData
from planner.traffic.types import FloatArray

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class ColumnTable:
    """Columns and their parts as arrays; C columns, P parts, T periods.

    Columns are grouped by model and arc, so that a group is a stretch of the arrays.
    """

    columns: tuple[Column, ...]
    model: IntArray
    """Index of the model, shape (C,)."""
    start: IntArray
    end: IntArray
    pools: IntArray
    """Parts of the column: what it counts against the limit on pools, shape (C,)."""
    lost_tokens: FloatArray
    """Tokens that the column refuses although a path could serve them, shape (C,)."""
    part_column: IntArray
    """Column of each part, ascending, shape (P,)."""
    part_placement: IntArray
    """Index into `placements`, shape (P,)."""
    running: FloatArray
    """Replicas, shape (P, T)."""
    placements: tuple[Placement, ...]
    group_start: IntArray
    """First column of each group of one model, arc and number of pools."""

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def part_gpus(self) -> FloatArray:
        """GPUs of a part by period, shape (P, T)."""
        each = np.array([p.gpus_per_replica for p in self.placements], dtype=np.float64)
        gpus: FloatArray = self.running * each[self.part_placement, None]
        return gpus


def table_of(data: ProgramData) -> ColumnTable:
    """Arrays of all columns of a program's data."""
    position = {name: i for i, name in enumerate(data.models)}
    columns = sorted(data.columns, key=lambda c: (position[c.model], c.start, c.end, len(c.parts), c.key))
    placements = sorted({part.placement for column in columns for part in column.parts})
    where = {placement: k for k, placement in enumerate(placements)}
    parts = [(i, part) for i, column in enumerate(columns) for part in column.parts]
    model = np.array([position[c.model] for c in columns], dtype=np.int64)
    start = np.array([c.start for c in columns], dtype=np.int64)
    end = np.array([c.end for c in columns], dtype=np.int64)
    pools = np.array([len(c.parts) for c in columns], dtype=np.int64)
    most = most_tokens(data.models, columns)
    return ColumnTable(
        columns=tuple(columns),
        model=model,
        start=start,
        end=end,
        pools=pools,
        lost_tokens=np.array([lost_tokens(c, most) for c in columns], dtype=np.float64),
        part_column=np.array([i for i, _ in parts], dtype=np.int64),
        part_placement=np.array([where[part.placement] for _, part in parts], dtype=np.int64),
        running=np.array([part.running for _, part in parts], dtype=np.float64).reshape(len(parts), len(data.periods)),
        placements=tuple(placements),
        group_start=_group_starts(np.stack([model, start, end, pools]) if columns else np.zeros((4, 0))),
    )


def most_tokens(models: Sequence[str], columns: Sequence[Column]) -> dict[tuple[str, int], float]:
    """Most tokens that columns can serve on a path from node 0 to each node, by model and node.

    A path's lost tokens are then the same sum whatever arcs it takes: most at the end less what it serves.
    """
    return along_paths(models, columns, [column.served_tokens for column in columns], max)


def along_paths(
    models: Sequence[str],
    columns: Sequence[Column],
    values: Sequence[float],
    choose: Callable[[float, float], float],
) -> dict[tuple[str, int], float]:
    """Sum of values along the chosen path from node 0 to each node, by model and node that a path reaches.

    ``values`` are those of the columns; ``choose`` is `min` or `max`. Columns lead to higher nodes.
    """
    best = {(model, 0): 0.0 for model in models}
    for column, value in sorted(zip(columns, values, strict=True), key=lambda item: (item[0].start, item[0].end)):
        before = best.get((column.model, column.start))
        if before is not None:
            key = (column.model, column.end)
            best[key] = choose(best[key], before + value) if key in best else before + value
    return best


def lost_tokens(column: Column, most: Mapping[tuple[str, int], float]) -> float:
    """Tokens that a column serves less than the best path over its arc, at least 0."""
    ends = (column.model, column.start), (column.model, column.end)
    if any(node not in most for node in ends):
        return 0.0  # no path reaches it
    lost = most[ends[1]] - most[ends[0]] - column.served_tokens
    return lost if lost > 1e-9 * column.served_tokens else 0.0


def _group_starts(keys: npt.NDArray[np.generic]) -> IntArray:
    """Indices at which a column of ``keys`` differs from the one before it."""
    if keys.shape[1] == 0:
        return np.zeros(0, dtype=np.int64)
    changed = np.any(keys[:, 1:] != keys[:, :-1], axis=0)
    starts: IntArray = np.concatenate([[0], np.flatnonzero(changed) + 1]).astype(np.int64)
    return starts
