r"""From counts in buckets and the exact mean to a law of one length in the planner's own cells.

Within a bucket :math:`j` the mass is placed as :math:`x^{\theta}`, with one tilt :math:`\theta` for all buckets, solved
for so that the mean is the stated one (``_sum`` over ``_count``): bucket counts and mean are kept, and nothing else is
claimed. The mean rises with the tilt, from all mass at the lower edges to all at the upper ones, so that a solution
exists exactly if any placement has the mean. Second moments are a guess of the placement; `square_bounds` says how far
off they may be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.errors import InputError, Problem
from planner.traffic.buckets import EDGES
from planner.traffic.grid import whole_growth
from planner.traffic.types import FloatArray, IntArray

ATOMS_A_CELL = 32
"""Values by which a cell is represented; a narrower cell by every whole number in it."""
STEEPEST = 1e5


@dataclass(frozen=True)
class Bucketed:
    """Requests by bucket and their tokens, of the targets that share one set of bounds."""

    bounds: tuple[float, ...]
    """Upper bounds of the finite buckets, inclusive; the last bucket is open."""
    n: IntArray
    """Requests in every bucket, the open one last."""
    tokens: int
    """Sum of the lengths, exact."""

    @property
    def requests(self) -> int:
        """All requests."""
        return int(self.n.sum())


@dataclass(frozen=True)
class Support:
    """The whole numbers that the non-empty buckets may hold."""

    n: IntArray
    low: IntArray
    high: IntArray
    """Inclusive."""

    @property
    def least(self) -> int:
        """The smallest possible sum."""
        return int((self.n * self.low).sum())

    @property
    def most(self) -> int:
        """The largest possible sum."""
        return int((self.n * self.high).sum())


@dataclass(frozen=True)
class Marginal:
    """A law of one length: values in rising order, and how many requests have each (no whole number)."""

    value: IntArray
    weight: FloatArray
    cell: IntArray
    """The cell of each value, as an index into `EDGES`; weights of a cell add up to a whole number."""
    tokens: int
    """Sum of value times weight, but for rounding."""

    @property
    def requests(self) -> int:
        """All requests."""
        return round(float(self.weight.sum()))


def support_of(where: str, bucketed: Bucketed, limit: int | None, least: int = 1) -> Support:
    """The whole numbers in every non-empty bucket, none below ``least`` and none above ``limit``.

    Raises
    ------
    InputError
        If the open bucket holds requests and no limit is given, or requests lie above the limit.
    """
    upper = np.floor(np.asarray(bucketed.bounds, dtype=np.float64)).astype(np.int64)
    top = limit if limit is not None else -1
    low = np.maximum(np.append(0, upper + 1), least)
    high = np.append(upper, top)
    if limit is not None:
        high = np.minimum(high, limit)
    used = bucketed.n > 0
    if used[-1] and limit is None:
        what = f"{int(bucketed.n[-1]):,} requests lie in the open bucket above {upper[-1]:,} tokens"
        raise InputError(Problem(where, what, "State the longest context: --option max_model_len=TOKENS"))
    if bucketed.bounds and bucketed.bounds[0] < least and used[0]:  # a bucket for 0 alone
        low[0] = min(low[0], max(int(upper[0]), 0))
    beyond = used & (low > high)
    if beyond.any():
        at = int(np.flatnonzero(beyond)[0])
        what = f"{int(bucketed.n[at]):,} requests are longer than max_model_len of {limit or 0:,} allows"
        raise InputError(Problem(where, what, "Give the largest context that any replica had"))
    return Support(bucketed.n[used], low[used], high[used])


def feasible_support(where: str, bucketed: Bucketed, limit: int | None) -> Support:
    """`support_of`, with 0 allowed where the mean cannot be reached otherwise.

    Raises
    ------
    InputError
        If no placement of the requests within their buckets has the stated mean.
    """
    support = support_of(where, bucketed, limit)
    if support.least > bucketed.tokens:
        support = support_of(where, bucketed, limit, least=0)
    if not support.least <= bucketed.tokens <= support.most:
        what = (
            f"{bucketed.requests:,} requests in these buckets have between {support.least:,} and {support.most:,} "
            f"tokens, but the sum says {bucketed.tokens:,}"
        )
        fix = "Check that _bucket, _sum and _count are of the same series and time, and max_model_len"
        raise InputError(Problem(where, what, fix))
    return support


def place(support: Support, tokens: int) -> Marginal:
    """The law with these bucket counts and this sum."""
    atoms = _atoms(support)
    theta = _tilt(lambda tilt: float((atoms.value * atoms.tilted(tilt, atoms.bucket, support.n)).sum()), tokens)
    n_of_cell = _whole_cells(atoms, atoms.tilted(theta, atoms.bucket, support.n), support, tokens)
    kept = n_of_cell[atoms.group] > 0
    atoms = replace(atoms, **{name: getattr(atoms, name)[kept] for name in ("value", "base", "bucket", "group")})
    renumbered = np.cumsum(n_of_cell > 0) - 1
    atoms, n = replace(atoms, group=renumbered[atoms.group]), n_of_cell[n_of_cell > 0]
    theta = _tilt(lambda tilt: float((atoms.value * atoms.tilted(tilt, atoms.group, n)).sum()), tokens)
    cell = np.searchsorted(EDGES, atoms.value, side="right") - 1
    return Marginal(atoms.value, atoms.tilted(theta, atoms.group, n), cell, tokens)


def merged(parts: Sequence[Marginal]) -> Marginal:
    """The law of all requests of several laws."""
    values, place = np.unique(np.concatenate([part.value for part in parts]), return_inverse=True)
    weight = np.bincount(place, weights=np.concatenate([part.weight for part in parts]), minlength=values.size)
    cell = np.searchsorted(EDGES, values, side="right") - 1
    return Marginal(values, np.asarray(weight, dtype=np.float64), cell, sum(part.tokens for part in parts))


@dataclass(frozen=True)
class _Atoms:
    """Values that stand for the whole numbers of the buckets, in rising order."""

    value: IntArray
    base: FloatArray
    """Whole numbers that each value stands for."""
    bucket: IntArray
    group: IntArray
    """The part of a bucket that lies in one cell."""

    def tilted(self, theta: float, group: IntArray, n: IntArray) -> FloatArray:
        """Requests at each value: ``n`` of every group, within it as ``value ** theta``."""
        log = np.log(self.base) + theta * np.log(np.maximum(self.value, 0.5))
        starts = np.flatnonzero(np.diff(group, prepend=-1))
        weight = np.exp(log - np.maximum.reduceat(log, starts)[group])
        share = weight / np.add.reduceat(weight, starts)[group]
        return np.asarray(share * n[group], dtype=np.float64)


def _atoms(support: Support) -> _Atoms:
    edges = np.asarray(EDGES, dtype=np.int64)
    values, base, buckets, groups = [], [], [], []
    group = 0
    for bucket, (low, high) in enumerate(zip(support.low.tolist(), support.high.tolist(), strict=True)):
        inside = edges[(edges > low) & (edges <= high)]
        for first, after in zip([low, *inside], [*inside, high + 1], strict=True):
            found = np.unique(np.rint(np.linspace(first, after - 1, min(ATOMS_A_CELL, after - first))).astype(np.int64))
            values.append(found)
            base.append(np.full(found.size, (after - first) / found.size))
            buckets.append(np.full(found.size, bucket))
            groups.append(np.full(found.size, group))
            group += 1
    return _Atoms(np.concatenate(values), np.concatenate(base), np.concatenate(buckets), np.concatenate(groups))


def _tilt(tokens_at: Callable[[float], float], tokens: int) -> float:
    """The tilt with which the sum is the stated one; the steepest that is tried where only an edge has it."""
    if tokens_at(-STEEPEST) >= tokens:
        return -STEEPEST
    if tokens_at(STEEPEST) <= tokens:
        return STEEPEST
    return _root(lambda theta: tokens_at(theta) - tokens, -STEEPEST, STEEPEST, xtol=1e-13, rtol=1e-14)


def _root(excess: Callable[[float], float], low: float, high: float, **tolerances: float) -> float:
    from scipy.optimize import brentq  # noqa: PLC0415  slow to import, and logs of requests do not need it

    return float(brentq(excess, low, high, **tolerances))


def _whole_cells(atoms: _Atoms, weight: FloatArray, support: Support, tokens: int) -> IntArray:
    """Whole requests in every part of a bucket: bucket counts kept, and the sum still within reach."""
    starts = np.flatnonzero(np.diff(atoms.group, prepend=-1))
    ends = np.append(starts[1:], atoms.value.size) - 1
    low, high, bucket = atoms.value[starts], atoms.value[ends], atoms.bucket[starts]
    upto = np.append(0.0, np.cumsum(np.add.reduceat(weight, starts)))
    last = np.append(np.flatnonzero(np.diff(bucket)), bucket.size - 1)
    upto[last + 1] = np.cumsum(support.n)  # what the sum of floats only nearly says
    n = whole_growth(upto).astype(np.int64)
    while (n * high).sum() < tokens:
        n = _moved(n, bucket, high, tokens - int((n * high).sum()), up=True)
    while (n * low).sum() > tokens:
        n = _moved(n, bucket, low, int((n * low).sum()) - tokens, up=False)
    return n


def _moved(n: IntArray, bucket: IntArray, edge: IntArray, short: int, *, up: bool) -> IntArray:
    """Move requests of one cell to the next of its bucket, so that the reachable sum moves by ``short``, or all can.

    The next cell begins where this one ends. So as long as a request is missing to bring the upper end of what can be
    reached to the sum, moving it cannot bring the lower end beyond the sum, and the same the other way.
    """
    step = 1 if up else -1
    n = n.copy()
    for k in range(n.size) if up else range(n.size - 1, -1, -1):
        goal = k + step
        if n[k] and 0 <= goal < n.size and bucket[goal] == bucket[k]:
            moved = min(int(n[k]), -(-short // abs(int(edge[goal] - edge[k]))))
            n[k] -= moved
            n[goal] += moved
            return n
    raise AssertionError("the support was feasible")


def square_bounds(support: Support, tokens: int) -> tuple[float, float]:
    """Least and largest sum of squares that the bucket counts and the sum allow.

    The largest has the mass of every bucket at its two edges, and as much of it at the upper ones of the widest spans
    as the sum allows; the least has each bucket's mass at one value, and those values as close together as they can be.
    """
    n, low, high = (np.asarray(x, dtype=np.float64) for x in (support.n, support.low, support.high))
    left, largest = tokens - float((n * low).sum()), float((n * low**2).sum())
    for k in np.argsort(-(low + high), kind="stable"):
        width = high[k] - low[k]
        share = min(left / (n[k] * width), 1.0) if width else 0.0
        left -= share * n[k] * width
        largest += share * n[k] * (high[k] ** 2 - low[k] ** 2)
    # Values as close together as can be: one level, cut to each bucket.
    level = _root(lambda x: float((n * np.clip(x, low, high)).sum()) - tokens, low.min() - 1, high.max() + 1)
    return float((n * np.clip(level, low, high) ** 2).sum()), max(largest, 0.0)
