"""Cuts for load tables: weights on GPU types, what every fleet weighs at least, and the deepest cut of given counts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import highspy
import numpy as np
import numpy.typing as npt

from planner.errors import SolverError
from planner.optimise.load_table.table import LoadTable
from planner.traffic.types import FloatArray

IntArray = npt.NDArray[np.int64]

TOLERANCE = 1e-9
"""Overload of a type that counts as none, as a share of its instances."""
LEAST_WEIGHT = 1e-8
"""Least weight of a type, as a share of the largest."""
DEPTH = 0.9
"""A cut is deep enough at this share of the deepest one's depth."""
EXCESS_OPTIONS: dict[str, bool | int | str | float] = {
    "output_flag": False,
    "threads": 1,
    "presolve": "off",
    "primal_feasibility_tolerance": 1e-10,
    "dual_feasibility_tolerance": 1e-9,
}
MOST_ASSIGNMENTS = 5000
"""Beyond so many a cut is taken as it is: it is valid at any depth."""


@dataclass(frozen=True)
class Assignment:
    """The cheapest way to serve every bucket whole when types weigh ``weights``: a cut and a point in one."""

    weights: FloatArray
    value: float
    """h(weights): at least this much weighs every fleet that can carry the table."""
    loads: FloatArray
    """Busy instances by type."""
    gpu: IntArray
    """Type that serves each bucket."""


class Pricing:
    """h(weights) on the full table, and the assignment that attains it."""

    def __init__(self, table: LoadTable) -> None:
        serves = np.isfinite(table.load)
        self._load = np.where(serves, table.load, 0.0)
        self._barred = None if serves.all() else np.where(serves, 0.0, np.inf)
        self._bucket = np.arange(table.load.shape[1])

    def __call__(self, weights: FloatArray) -> Assignment:
        """The cheapest assignment at these weights."""
        # Solvers drop coefficients of about 1e-9, which would tighten the cut; any weights are valid, so none is small.
        weights = np.maximum(weights, LEAST_WEIGHT * weights.max())
        weighed = weights[:, None] * self._load
        if self._barred is not None:
            weighed += self._barred
        gpu = weighed.argmin(axis=0)
        value = float(weighed[gpu, self._bucket].sum())
        loads: FloatArray = np.bincount(gpu, weights=self._load[gpu, self._bucket], minlength=len(weights)).astype(
            float
        )
        return Assignment(weights, value, loads, gpu)


@dataclass(frozen=True)
class Mixture:
    """A convex combination of assignments: each bucket is shared as they say."""

    assignments: tuple[Assignment, ...]
    parts: FloatArray
    """Part of each assignment; they add up to 1."""

    @property
    def loads(self) -> FloatArray:
        """Busy instances by type."""
        loads: FloatArray = self.parts @ np.array([a.loads for a in self.assignments])
        return loads

    def shares(self) -> FloatArray:
        """Share of each bucket that each type serves, shape (G, B)."""
        first = self.assignments[0]
        shares: FloatArray = np.zeros((len(first.loads), len(first.gpu)))
        for assignment, part in zip(self.assignments, self.parts, strict=True):
            shares[assignment.gpu, np.arange(len(first.gpu))] += part
        shares /= shares.sum(axis=0)
        return shares


def fits(loads: FloatArray, counts: FloatArray) -> bool:
    """Whether the counts carry the loads, up to `TOLERANCE`."""
    return bool(np.all(loads - counts <= TOLERANCE * np.maximum(counts, 1.0)))


def separate(
    price: Pricing, known: list[Assignment], counts: FloatArray, room: FloatArray, depth: float = DEPTH
) -> tuple[Assignment | None, Mixture]:
    """A cut that the counts violate, or ``None`` where the mixture fits in them; else it fits with some excess.

    The depth of weights w with w · room = 1 is h(w) − w · counts; the deepest are found by column generation, asked
    half way between the best so far and those of the restricted program (smoothing, Wentges, International
    Transactions in Operational Research 4, 1997). Assignments that are met on the way join ``known``.

    Parameters
    ----------
    counts
        Instances of each type.
    room
        Direction in which the counts grow until they suffice; positive, with sum 1, so that no cut is blind to a type.
    depth
        Share of the deepest cut's depth that suffices.
    """
    program = _Excess(counts, room)
    for assignment in known:
        program.add(assignment)
    scale = 1.0 / float(known[0].weights @ room)
    best = replace(known[0], weights=known[0].weights * scale, value=known[0].value * scale)
    while True:
        excess, weights, parts = program.solve()
        mixture = Mixture(tuple(known[i] for i in np.flatnonzero(parts)), parts[parts > 0])
        if fits(mixture.loads, counts):
            return None, mixture
        if best.value - best.weights @ counts >= depth * excess - TOLERANCE or len(known) > MOST_ASSIGNMENTS:
            return best, mixture
        found = [price(0.5 * (best.weights + weights))]
        if found[0].loads @ weights >= excess + weights @ counts - TOLERANCE:
            # The point half way does not move the restricted program: the one at its own weights does, or none.
            found.append(price(weights))
        for assignment in found:
            known.append(assignment)
            program.add(assignment)
        best = max(best, *found, key=lambda a: (a.value - a.weights @ counts) / (a.weights @ room))


class _Excess:
    """Least t so that counts + t * room carry a mixture of the assignments added: a linear program that grows."""

    def __init__(self, counts: FloatArray, room: FloatArray) -> None:
        self._types, none = len(counts), np.array([], dtype=np.int32)
        self._highs: Any = highspy.Highs()  # type: ignore[no-untyped-call]
        for option, value in EXCESS_OPTIONS.items():
            self._highs.setOptionValue(option, value)
        self._highs.addCol(1.0, 0.0, highspy.kHighsInf, 0, none, np.array([]))
        for count, step in zip(counts, room, strict=True):
            self._highs.addRow(-highspy.kHighsInf, count, 1, np.array([0], dtype=np.int32), np.array([-step]))
        self._highs.addRow(1.0, 1.0, 0, none, np.array([]))

    def add(self, assignment: Assignment) -> None:
        """Let the mixture use one more assignment."""
        rows = np.arange(self._types + 1, dtype=np.int32)
        self._highs.addCol(0.0, 0.0, highspy.kHighsInf, len(rows), rows, np.append(assignment.loads, 1.0))

    def solve(self) -> tuple[float, FloatArray, FloatArray]:
        """Least t, the weights of the types that prove it, and the part of each assignment.

        Raises
        ------
        SolverError
            If the solver stops without an answer.
        """
        self._highs.run()
        if self._highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            self._highs.clearSolver()  # once more from the start: a warm start may have gone astray
            self._highs.run()
        if self._highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            raise SolverError(f"HiGHS stopped without an answer ({self._highs.getModelStatus().name})")
        solution = self._highs.getSolution()
        weights = np.maximum(-np.array(solution.row_dual[: self._types]), 0.0)
        parts = np.maximum(np.array(solution.col_value[1:]), 0.0)
        return float(solution.col_value[0]), weights, parts / parts.sum()
