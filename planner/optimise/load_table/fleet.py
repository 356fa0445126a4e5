"""The cheapest fleet for a load table, proven: Benders' cuts in the space of instance counts alone.

With x[b, g] the share of bucket b that type g serves and y[g] the instances of type g,

    minimise sum_g usd[g] * y[g]   so that   sum_g x[b, g] = 1,   sum_b load[g, b] * x[b, g] <= y[g],   y whole.

Counts y can carry the table exactly if, for all weights w >= 0 (linear programming duality),

    sum_g w[g] * y[g]  >=  h(w) := sum_b min_g w[g] * load[g, b].

So every w gives a valid cut whose right-hand side is one pass over the full table, and the assignment that attains
the minimum gives a point, its load by type. The master program holds y and the cuts, and bounds the cost from below.
Its counts are right once a mixture of points fits in them; otherwise the weights that show the misfit are the next cut
(cf. Benders, Numerische Mathematik 4, 1962; Dantzig and Wolfe, Operations Research 8, 1960).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pulp

from planner.errors import InfeasibleError, SolverError
from planner.optimise.load_table.cuts import TOLERANCE, Assignment, Mixture, Pricing, separate
from planner.optimise.load_table.table import MOST_GPUS, LoadTable
from planner.optimise.solve.solvers import proven_status, solve_program
from planner.optimise.types import Certificate, SolverSettings
from planner.plan import SolveStatus
from planner.traffic.types import FloatArray

FIRST_FACTORS = (0.8, 0.9, 1.1, 1.25)
"""The first cuts weigh a type at these multiples of its price, one type at a time, the others at their price."""
ROOM = 0.1
"""Room for every type, as a share of all instances, in the direction along which cuts are compared."""
MASTER_GAP_SHARE = 0.01
"""The master program is solved to this share of the gap, so that the fleet is the cheapest to the cent."""
CUT_SCALE = 1e4
"""Right-hand side that cuts are scaled to: solvers take rows for satisfied within about 1e-6."""
MOST_ROUNDS = 500
NAMED_BUCKETS = 5


@dataclass(frozen=True)
class TableFleet:
    """A fleet that carries a load table, with the proof that none is much cheaper."""

    counts: tuple[int, ...]
    """Instances of each type, in the table's order."""
    shares: FloatArray
    """Share of each bucket that each type serves, shape (G, B); columns add up to 1."""
    usd_per_h: float
    bound_usd_per_h: float
    """No fleet costs less."""
    status: SolveStatus
    cuts: tuple[Assignment, ...]
    kept: tuple[int, ...]
    """Types that cuts speak of, by their place in the table: the others are never needed."""
    solver: str
    solver_version: str

    @property
    def gap(self) -> float:
        """(cost − bound) / cost, at least 0."""
        return max(0.0, 1.0 - self.bound_usd_per_h / self.usd_per_h)

    def busy(self, table: LoadTable) -> FloatArray:
        """Instances kept busy by type, counted on the full table; inf where a type serves what it cannot."""
        loads: FloatArray = (np.where(self.shares > 0, table.load, 0.0) * self.shares).sum(axis=1)
        return loads


@dataclass(frozen=True)
class Master:
    """The integer program over instance counts."""

    problem: pulp.LpProblem
    y: Mapping[str, pulp.LpVariable]
    """Instances by GPU type."""


def solve_load_table(
    table: LoadTable, settings: SolverSettings, clock: Callable[[], float] = time.monotonic
) -> TableFleet:
    """The cheapest whole numbers of instances that carry the table, each bucket shared freely over types.

    Parameters
    ----------
    clock
        Seconds, for the time limit only.

    Raises
    ------
    InfeasibleError
        If a bucket cannot be served, or the instances that can be had do not suffice.
    SolverError
        If the solver is missing, or stops before any fleet is found.
    """
    kept = needed_types(table)
    small = _only(table, kept)
    _check_servable(small)
    found = _search(small, settings, clock)
    counts, shares = np.zeros(len(table.gpus), dtype=int), np.zeros(table.load.shape)
    counts[list(kept)], shares[list(kept)] = found.counts, found.shares
    whole = replace(found, counts=tuple(int(n) for n in counts), shares=shares, kept=kept)
    if overload(table, whole) > TOLERANCE:
        raise SolverError(f"The fleet that was found is overloaded by {overload(table, whole):.2g} of its instances")
    return whole


def overload(table: LoadTable, fleet: TableFleet) -> float:
    """Largest overload of a type as a share of its instances, recounted on the full table; at most 0 is sound.

    A bucket that is not served in full, or by a type that cannot serve it, is an infinite overload.
    """
    if np.abs(fleet.shares.sum(axis=0) - 1).max() > TOLERANCE or fleet.shares.min() < 0:
        return float("inf")
    counts = np.array(fleet.counts, dtype=float)
    return float(((fleet.busy(table) - counts) / np.maximum(counts, 1.0)).max())


def needed_types(table: LoadTable) -> tuple[int, ...]:
    """Types that some cheapest fleet may need, by their place in the table.

    A type goes if as many of another as its price buys, n = floor(usd[g] / usd[o]), carry each bucket at least as well:
    load[o, b] <= n * load[g, b] for all b, and the other has no limit. So does one of which none can be had.
    """
    kept = [g for g, count in enumerate(table.available) if count != 0]
    for g in sorted(kept, key=lambda g: (-table.usd_per_h[g], g)):
        for other in kept:
            n = int(table.usd_per_h[g] // table.usd_per_h[other])
            free = other != g and table.available[other] is None
            if free and n >= 1 and np.all(table.load[other] <= n * table.load[g]):
                kept.remove(g)
                break
    return tuple(kept)


def master_program(table: LoadTable, cuts: Sequence[Assignment], kept: Sequence[int]) -> Master:
    """The integer program over the counts of the kept types: least cost, and one row a cut."""
    problem = pulp.LpProblem("load_table", pulp.LpMinimize)
    y = {table.gpus[g]: problem.add_variable(f"y{g}", 0, table.available[g], pulp.LpInteger) for g in kept}
    problem += pulp.lpSum(float(table.usd_per_h[g]) * n for g, n in zip(kept, y.values(), strict=True))
    for i, cut in enumerate(cuts):
        row = cut.weights * (CUT_SCALE / cut.value)
        total = pulp.lpSum(float(w) * n for w, n in zip(row, y.values(), strict=True))
        problem += total >= CUT_SCALE * (1 - TOLERANCE), f"cut{i}"
    return Master(problem, y)


def _only(table: LoadTable, kept: tuple[int, ...]) -> LoadTable:
    rows = list(kept)
    return replace(
        table,
        gpus=tuple(table.gpus[g] for g in rows),
        usd_per_h=table.usd_per_h[rows],
        load=table.load[rows],
        available=tuple(table.available[g] for g in rows),
    )


def _check_servable(table: LoadTable) -> None:
    """Every bucket with requests has a type that serves it.

    Raises
    ------
    InfeasibleError
        Naming the buckets that have none.
    """
    lost = np.flatnonzero(~np.isfinite(table.load).any(axis=0))
    if not lost.size:
        return
    names = [f"bucket ({i}, {j})" for i, j in (table.buckets[b] for b in lost[:NAMED_BUCKETS])]
    more = [f"and {lost.size - NAMED_BUCKETS:,} more"] if lost.size > NAMED_BUCKETS else []
    raise InfeasibleError("No GPU type that can be had serves these buckets, which have requests:", [*names, *more])


@dataclass(frozen=True)
class _Fleet:
    """Counts that carry the table, and the mixture of assignments that shows it."""

    counts: tuple[int, ...]
    mixture: Mixture
    usd_per_h: float


def _fleet_of(table: LoadTable, mixture: Mixture) -> _Fleet | None:
    """The least counts that hold a mixture of assignments; ``None`` where they cannot be had."""
    loads = mixture.loads
    whole = np.rint(loads)
    close = loads - whole <= TOLERANCE * np.maximum(whole, 1.0)
    counts = np.where(close, whole, np.ceil(loads))
    if any(limit is not None and n > limit for n, limit in zip(counts, table.available, strict=True)):
        return None
    return _Fleet(tuple(int(n) for n in counts), mixture, float(table.usd_per_h @ counts))


def _cheapest(fleets: Sequence[_Fleet | None]) -> _Fleet | None:
    return min((f for f in fleets if f is not None), key=lambda f: f.usd_per_h, default=None)


def _search(table: LoadTable, settings: SolverSettings, clock: Callable[[], float]) -> TableFleet:
    """Master programs and cuts in turn, until the master's counts carry the table."""
    end = clock() + settings.time_limit_s
    step = replace(settings, gap=settings.gap * MASTER_GAP_SHARE)
    price = Pricing(table)
    known = _first_assignments(table, price)
    cuts = list(known)
    best = _cheapest([_fleet_of(table, Mixture((a,), np.ones(1))) for a in known])
    room = known[0].loads + ROOM * known[0].loads.sum() + 1.0
    room /= room.sum()
    bound, seen = 0.0, set[tuple[int, ...]]()
    while True:
        master = master_program(table, cuts, range(len(table.gpus)))
        left = replace(step, time_limit_s=max(end - clock(), 0.01))
        proof = solve_program(master, left)
        if proof.status is SolveStatus.INFEASIBLE:
            raise _too_few(table, settings, clock)
        bound = max(bound, proof.bound)
        counts = tuple(round(n.value()) for n in master.y.values())
        done = best is not None and best.usd_per_h <= bound * (1 + step.gap)
        if done:
            break
        if counts in seen or len(seen) >= MOST_ROUNDS or clock() >= end:
            best = _cheapest([best, _one_more(table, price, known, np.array(counts, dtype=float), room)])
            break
        seen.add(counts)
        cut, mixture = separate(price, known, np.array(counts, dtype=float), room)
        best = _cheapest([best, _fleet_of(table, mixture)])
        if cut is None:
            break
        cuts.append(cut)
    if best is None:
        raise SolverError("The solver stopped before a fleet was found; allow more time")
    return _table_fleet(table, best, min(bound, best.usd_per_h), settings.gap, tuple(cuts), proof)


def _table_fleet(
    table: LoadTable, best: _Fleet, bound: float, gap: float, cuts: tuple[Assignment, ...],
    proof: Certificate,
) -> TableFleet:  # fmt: skip
    return TableFleet(
        counts=best.counts,
        shares=best.mixture.shares(),
        usd_per_h=best.usd_per_h,
        bound_usd_per_h=bound,
        status=proven_status(best.usd_per_h, bound, gap),
        cuts=cuts,
        kept=tuple(range(len(table.gpus))),
        solver=proof.solver,
        solver_version=proof.solver_version,
    )


def _one_more(
    table: LoadTable, price: Pricing, known: list[Assignment], counts: FloatArray, room: FloatArray
) -> _Fleet | None:
    """Counts that do not suffice, with one more instance of the cheapest type that makes them do."""
    for g in np.argsort(table.usd_per_h, kind="stable"):
        more = counts.copy()
        more[g] += 1
        cut, mixture = separate(price, known, more, room, depth=0.0)
        if cut is None:
            return _fleet_of(table, mixture)
    return None


def _first_assignments(table: LoadTable, price: Pricing) -> list[Assignment]:
    """Assignments at the prices, which attain the bound of the program without whole numbers, and around them."""
    found = [price(table.usd_per_h)]
    for g in range(len(table.gpus)):
        for factor in FIRST_FACTORS:
            weights = table.usd_per_h.copy()
            weights[g] *= factor
            found.append(price(weights))
    return found


def _too_few(table: LoadTable, settings: SolverSettings, clock: Callable[[], float]) -> InfeasibleError:
    """What is short: the share of the rate that can be carried, and what the cheapest fleet without limits takes."""
    price = Pricing(table)
    had = np.array([MOST_GPUS if n is None else n for n in table.available], dtype=float)
    # Weights w carry at most w * had / h(w) of the table; the deepest cut of an empty fleet makes that least.
    cut, _ = separate(price, [price(table.usd_per_h)], np.zeros(len(had)), had / had.sum(), depth=1.0)
    share = "" if cut is None else f" at most {100 * float(cut.weights @ had) / cut.value:.2f} % of"
    free = _search(replace(table, available=(None,) * len(had)), settings, clock)
    short = [
        f"{name}: {limit} can be had, the cheapest fleet without limits takes {count}"
        for name, limit, count in zip(table.gpus, table.available, free.counts, strict=True)
        if limit is not None and count > limit
    ]
    return InfeasibleError(f"The instances that can be had carry{share} the {table.rate_per_s:g} requests/s", short)
