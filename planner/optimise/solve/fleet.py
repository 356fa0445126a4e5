"""From the screen's lower bounds to needs that are exact wherever the plan relies on them.

The program is solved with lower bounds on the needs; the chosen configurations are then sized exactly and, where one
needs more, the program is solved again. When every chosen need is exact, the plan is as good as its gap says: all other
columns were offered at no more than their true need, so the bound holds whatever they turn out to need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path

from planner.errors import PlannerError, SolverError
from planner.optimise.needs.columns import columns_of, running
from planner.optimise.needs.exact import exact_need
from planner.optimise.solve.clock import Clock
from planner.optimise.solve.known import Group, Known, group_of
from planner.optimise.solve.ratio import relaxed_columns, solve_ratio
from planner.optimise.solve.solvers import Watch
from planner.optimise.solve.splits import leading, paying_splits
from planner.optimise.types import Caps, Column, Decision, Need, Part, ProgramData, SolverSettings, Workload
from planner.plan import SolveStatus
from planner.request import Quota

MAX_ROUNDS = 400
RIVALS = 3
"""Configurations that are made exact together with a chosen one: as many rounds less, at most."""
DRAFTING = 0.3
"""Share of the time limit after which the relaxed program decides no more what is made exact."""
SETTLING = 0.8
"""Share of the time limit after which what is exact by then makes the plan."""
NOT_SPLIT = "Slices over two GPU types were not tried to the end: solver.time_limit_s was reached"
Keep = Callable[[Need], bool]


def every_need(need: Need) -> bool:
    """Keep all configurations."""
    return True


@dataclass(frozen=True)
class Aids:
    """What helps a solve, or lets it be followed; none of it changes what is proven."""

    watch: Watch | None = None
    """Called with a `Report` while the solver works."""
    warm_start: tuple[str, ...] = ()
    """Keys of columns that the first program begins from."""
    lp_file: Path | None = None
    """Where to write the last program that was solved."""


NO_AIDS = Aids()


class Fleet:
    """Needs of all models, made exact on demand, and the programs built from them.

    The only state is what was found out: exact needs, and the splits of slices that could pay. A need's exact figure
    never changes, so the order of solves does not matter for what is proven.
    """

    def __init__(
        self,
        workloads: Sequence[Workload],
        needs: Mapping[str, Sequence[Need]],
        spares: Mapping[str, int],
        data: ProgramData,
        progress: Callable[[str], None],
    ) -> None:
        self._workloads = {w.name: w for w in sorted(workloads, key=lambda w: w.name)}
        self._needs = {name: tuple(needs[name]) for name in self._workloads}
        self._groups: dict[Group, list[Need]] = {}
        for need in (need for name in self._workloads for need in self._needs[name]):
            self._groups.setdefault(group_of(need), []).append(need)
        self._spares = dict(spares)
        self._data = data
        self._progress = progress
        self._known = Known()
        self.rounds = 0
        """Programs solved by the last call of `solve`."""

    def with_rules(
        self, *, quotas: tuple[Quota, ...] | None = None, caps: Caps | None = None, max_pools: int | None = None
    ) -> Fleet:
        """The same needs under other quotas, caps or pools a model; what becomes known of exact needs is shared."""
        pools = self._data.max_pools
        data = replace(
            self._data,
            quotas=self._data.quotas if quotas is None else quotas,
            caps=self._data.caps if caps is None else caps,
            max_pools=pools if max_pools is None else dict.fromkeys(pools, max_pools),
        )
        other = Fleet(tuple(self._workloads.values()), self._needs, self._spares, data, self._progress)
        other._known = self._known
        return other

    def beside(
        self,
        workloads: Sequence[Workload],
        needs: Mapping[str, Sequence[Need]],
        data: ProgramData,
        changed: Set[str],
        progress: Callable[[str], None],
    ) -> Fleet:
        """The fleet of other lots and limits, and of other needs of some models.

        What is known of the models that did not change is copied: neither fleet learns from the other afterwards.
        """
        other = Fleet(workloads, needs, self._spares, data, progress)
        other._known = self._known.without(changed if data.supplies == self._data.supplies else set(self._needs))
        return other

    def data(self, keep: Keep = every_need) -> ProgramData:
        """The program's data with the present needs; ``keep`` filters configurations."""
        whole = [column for group in self._groups for column in self._whole(group, keep)]
        splits = [
            replace(column, parts=tuple(map(self._sized, column.parts)))
            for column in self._known.split.values()
            if all(keep(part.need) for part in column.parts)
        ]
        return replace(self._data, columns=tuple(sorted((*whole, *splits), key=lambda c: c.key)))

    def needs(self, model: str) -> tuple[Need, ...]:
        """A model's needs, exact where that is known by now."""
        return tuple(self._known.need(need) for need in self._needs[model])

    def solve(self, settings: SolverSettings, keep: Keep = every_need, *, aids: Aids = NO_AIDS) -> Decision | None:
        """The best plan whose every chosen need is exact, or ``None`` when infeasible.

        It is the best of all plans over whole slices, in every configuration, and over splits of slices between two
        GPU types of which one is limited (`splits`), unless ``keep`` leaves configurations out: then only splits that
        are known already are offered. A note says where splits were not all tried.

        The time limit is that of the whole call. Where needs do not settle in time, the plan is the best of what is
        exact by then, with its proven gap.

        Parameters
        ----------
        settings
            Solver, gap, time limit (s), threads, seed.
        keep
            Which needs may be chosen.
        aids
            A start, somebody who watches, a file for the program.

        Raises
        ------
        SolverError
            If the solver fails, or finds no plan in time.
        PlannerError
            If the needs do not settle at all (which would be a bug: every round makes at least one need exact).
        """
        clock, self.rounds = Clock.of(settings.time_limit_s), 0
        decision = self._settled(settings, keep, clock, aids)
        if keep is not every_need:
            return decision
        new, left_out = self._split(decision)
        if new:
            decision = self._with_splits(decision, settings, clock, aids)
        if left_out and decision is not None:
            note = f"{left_out:,} ways to split a slice over two GPU types could pay and were not tried"
            decision = replace(decision, notes=(*decision.notes, note))
        return decision

    def _with_splits(
        self, decision: Decision | None, settings: SolverSettings, clock: Clock, aids: Aids
    ) -> Decision | None:
        """Solve again with the splits that are known now; the plan without them is not lost."""
        try:
            other = self._settled(settings, every_need, clock, aids, decision)
        except SolverError:
            if decision is None:
                raise
            return replace(decision, status=SolveStatus.FEASIBLE, notes=(*decision.notes, NOT_SPLIT))
        if decision is None or other is None or other.usd_per_token <= decision.usd_per_token:
            return other
        # Within the gap of one another: the cheaper plan, with the bound that counts the splits too.
        bound = min(other.usd_per_token_bound, decision.usd_per_token_bound)
        return _judged(replace(decision, usd_per_token_bound=bound), settings, NOT_SPLIT)

    def _settled(
        self, settings: SolverSettings, keep: Keep, clock: Clock, aids: Aids, before: Decision | None = None
    ) -> Decision | None:
        """Solve and make chosen needs exact until all are, or time is short."""
        reserve_s = (1.0 - SETTLING) * clock.left_s
        bound: float | None = None
        if before is None:
            aids = self._drafted(settings, keep, clock, aids)
        for _ in range(MAX_ROUNDS):
            left_s = clock.left_s - reserve_s
            if left_s <= 0:
                return self._of_what_is_exact(settings, keep, clock, bound)
            try:
                found = self._solved(replace(settings, time_limit_s=left_s), keep, aids, before)
            except SolverError:
                if bound is None:
                    raise
                return self._of_what_is_exact(settings, keep, clock, bound)
            if found is None:
                return None
            loose = [part for column in found.columns for part in column.parts if not part.need.exact]
            if not loose:
                return found
            before, bound = found, max(bound or 0.0, found.usd_per_token_bound)
            self._make_exact(loose, clock)
        raise PlannerError(f"Exact needs did not settle in {MAX_ROUNDS} rounds")

    def _drafted(self, settings: SolverSettings, keep: Keep, clock: Clock, aids: Aids) -> Aids:
        """Make exact what the relaxed program uses, until it uses nothing else: far cheaper than whole solves."""
        theta, ends_s = None, (1.0 - DRAFTING) * clock.left_s
        while clock.left_s > ends_s:
            limited = replace(settings, time_limit_s=clock.left_s - ends_s)
            used, theta = relaxed_columns(self.data(keep), limited, theta, aids.warm_start)
            loose = [part for column in used for part in column.parts if not part.need.exact]
            aids = replace(aids, warm_start=tuple(column.key for column in used) or aids.warm_start)
            if not loose:
                break
            self._make_exact(loose, clock)
        return aids

    def _solved(self, settings: SolverSettings, keep: Keep, aids: Aids, before: Decision | None) -> Decision | None:
        """The program at the present needs, from an earlier plan on."""
        self.rounds += 1
        return solve_ratio(
            self.data(keep),
            settings,
            progress=aids.watch,
            warm_start=[c.key for c in before.columns] if before is not None else aids.warm_start,
            usd_per_token=before.usd_per_token if before is not None else None,
            lp_file=aids.lp_file,
            exact_first=True,
        )

    def make_exact(self, columns: Iterable[Column]) -> bool:
        """Make the needs of columns exact; whether any was not."""
        loose = [part for column in columns for part in column.parts if not part.need.exact]
        for part in loose:
            self._progress(f"exact live tokens: {part.need.config.model} on {part.need.config.label}")
            self._known.learn(part, exact_need(part.need))
        return bool(loose)

    def _make_exact(self, parts: Sequence[Part], clock: Clock) -> None:
        """Size parts exactly while there is time, and on the same GPU type what would take a part's place for less."""
        for part in parts:
            rival: Part | None = part
            for _ in range(RIVALS + 1):
                if rival is None or rival.need.exact or clock.left_s <= 0:
                    break
                self._progress(f"exact live tokens: {rival.need.config.model} on {rival.need.config.label}")
                self._known.learn(rival, exact_need(rival.need))
                leads = leading(self._whole(group_of(part.need)), self._data.periods)
                rival = leads[0].parts[0] if leads and part.load_share == 1.0 else None

    def _of_what_is_exact(self, settings: SolverSettings, keep: Keep, clock: Clock, bound: float | None) -> Decision:
        """The best plan of needs that are exact, with a bound over all that was proven before.

        Raises
        ------
        SolverError
            If there is none, or no time is left.
        """
        why = f"Exact needs did not settle within {settings.time_limit_s:g} s ({self.rounds} solves)"
        data, found = self.data(keep), None
        exact = tuple(c for c in data.columns if c.exact)
        if bound is not None and clock.left_s > 0:
            found = solve_ratio(replace(data, columns=exact), replace(settings, time_limit_s=clock.left_s))
        if bound is None or found is None:
            raise SolverError(f"{why}; allow more time (solver.time_limit_s) or a wider gap (solver.gap)")
        settled = replace(found, usd_per_token_bound=min(bound, found.usd_per_token))
        return _judged(settled, settings, f"{why}: this is the best plan of what was exact by then")

    def _whole(self, group: Group, keep: Keep = every_need) -> tuple[Column, ...]:
        """Columns of one slice on one GPU type; those of all its needs are made again only when one became exact."""
        everything, made = keep is every_need, self._known.made
        if everything and group in made:
            return made[group]
        needs = [self._known.need(need) for need in self._groups[group] if everything or keep(need)]
        if not needs:
            return ()
        name = needs[0].config.model
        columns = columns_of(self._workloads[name], needs, self._spares[name], self._data.periods, self._data.supplies)
        if everything:
            made[group] = columns
        return columns

    def _sized(self, part: Part) -> Part:
        """A part with its exact need, where it is known."""
        need = self._known.need(part.need, part.load_share)
        if not need.exact:
            return part
        spare = self._spares[need.config.model]
        return replace(part, need=need, running=running(need.replicas, spare, need.slice.scaling))

    def _split(self, decision: Decision | None) -> tuple[bool, int]:
        """Make splits that a cheaper plan could have: whether any is new, and how many more there are."""
        found = paying_splits(self.data(), self._workloads, self._spares, decision)
        known = self._known.split
        new = {column.key: column for column in found.columns if column.key not in known}
        known.update(new)
        return bool(new), found.left_out


def _judged(decision: Decision, settings: SolverSettings, note: str) -> Decision:
    """A plan with its status by what is proven, and a note where that is not what was asked for."""
    if decision.gap <= settings.gap:
        return replace(decision, status=SolveStatus.OPTIMAL)
    return replace(decision, status=SolveStatus.FEASIBLE, notes=(*decision.notes, note))
