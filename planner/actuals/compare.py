"""A past plan against logs of its horizon: every figure of `planner.study.Actuals`."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path

from planner import units
from planner.actuals.lengths import Refused, refused_of
from planner.actuals.logs import HowToRead, LogRead, read_logs, remarks_of
from planner.actuals.minutes import Minutes, busiest_per_s
from planner.actuals.money import model_usd
from planner.actuals.notes import notes_of
from planner.actuals.planned import Planned, planned_in
from planner.actuals.replay import PoolReplayed, Replayed, replay
from planner.actuals.route import Routing, routing_of
from planner.actuals.spans import hours, union, within
from planner.actuals.store import Store
from planner.actuals.timetable import EPOCH, Timetable, hours_by_period, pieces_of, timetable_of
from planner.plan import FleetPlan, Pool
from planner.report import facts
from planner.study import Actuals, ModelActual
from planner.traffic.grid import Span
from planner.traffic.schema import Kind
from planner.traffic.source import to_traffic


@dataclass(frozen=True)
class Fitted:
    """What of a model's traffic its pools take."""

    refused_share: float
    input_tokens: float
    output_tokens: float
    replayed: Replayed | None
    """``None`` where a log shows no single requests, or a sample of them."""


def actuals_of(
    plan: FleetPlan, asked: Sequence[tuple[Path, str]], how: HowToRead, until_us: int | None = None
) -> Actuals:
    """The plan against the logs.

    Parameters
    ----------
    asked
        Each log, and the model of the plan that the user says it shows (empty: nothing is said).
    until_us
        What came from then on does not count: for a quarter that is not over; a whole minute.

    Raises
    ------
    InputError
        If a log cannot be read, assigned, or lies outside the horizon; with all problems at once.
    """
    table = timetable_of(plan)
    end_us = table.horizon.end_us if until_us is None else max(until_us, table.horizon.start_us)
    bounds = within(Span(table.horizon.start_us, end_us), table.horizon)
    routings = {model: routing_of(plan, model) for model in facts.models(plan)}
    with Store(bounds, {model: routing.tenants for model, routing in routings.items()}) as store:
        logs = read_logs(asked, how, plan, bounds, store)
        found = [
            _Model(plan, table, bounds, model, routing, _logs_of(model, logs)).compared(store)
            for model, routing in routings.items()
            if _logs_of(model, logs)
        ]
    spans = union(within(log.span, bounds) for log in logs)
    without = sorted(set(routings) - {model.model for model in found})
    notes = [f"no log of {model}" for model in without] + [note for log in logs for note in remarks_of(log)]
    return Actuals(
        run_id=plan.run_id,
        title=plan.title,
        start=_moment(spans[0].start_us),
        end=_moment(spans[-1].end_us),
        models=tuple(found),
        files=tuple(sorted((log.where, log.sha256) for log in logs)),
        notes=tuple(dict.fromkeys([*([table.note] if table.note else []), *notes])),
    )


def _logs_of(model: str, logs: Sequence[LogRead]) -> list[LogRead]:
    return [log for log in logs if model in log.models.values()]


def _moment(us: int) -> dt.datetime:
    return EPOCH + dt.timedelta(microseconds=us)


@dataclass(frozen=True)
class _Model:
    """One model with its logs."""

    plan: FleetPlan
    table: Timetable
    bounds: Span
    model: str
    routing: Routing
    logs: list[LogRead]

    def compared(self, store: Store) -> ModelActual:
        """Every figure."""
        spans = union(within(log.span, self.bounds) for log in self.logs)
        by_period = hours_by_period(self.table, spans)
        planned = planned_in(self.plan, self.model, by_period)
        minutes = reduce(add, (log.minutes[self.model] for log in self.logs))
        came, seen_h = float(minutes.arrivals.sum()), hours(spans)
        fitted = self._fitted(store, spans, minutes, planned)
        usd = model_usd(self.plan, self.model, by_period)
        busiest = busiest_per_s(minutes, spans)
        worst = worst_pool(fitted.replayed)
        grown = came / planned.requests if planned.requests > 0 else None
        first = self._pools()[0]
        growth = None if grown is None else first.growth * grown
        return ModelActual(
            model=self.model,
            hours=seen_h,
            planned_requests=planned.requests,
            actual_requests=came,
            planned_input_mtok=planned.input_mtok,
            actual_input_mtok=float(minutes.input_tokens.sum()) / units.TOKENS_PER_MTOK,
            planned_output_mtok=planned.output_mtok,
            actual_output_mtok=float(minutes.output_tokens.sum()) / units.TOKENS_PER_MTOK,
            planned_peak_per_s=planned.peak_per_s,
            actual_peak_per_s=came / units.hours_to_s(seen_h) if busiest is None else busiest,
            planned_refused_share=planned.refused_share,
            actual_refused_share=fitted.refused_share,
            allowed_overflow=(worst.pool if worst else first).load.overflow_probability,
            actual_overflow=worst.overflow if worst else None,
            planned_usd=usd,
            planned_usd_per_mtok=_per_mtok(usd, planned.served_mtok * units.TOKENS_PER_MTOK),
            actual_usd_per_mtok=_per_mtok(usd, fitted.input_tokens + fitted.output_tokens),
            note="; ".join(notes_of(self.table, self.logs, minutes, planned, fitted.replayed, busiest is not None)),
            mean_rate_per_s=None if growth is None else first.stated_rate_per_s * growth,
            growth=growth,
        )

    def _pools(self) -> list[Pool]:
        return [pool for pool in self.plan.pools if pool.model == self.model]

    def _fitted(self, store: Store, spans: tuple[Span, ...], minutes: Minutes, planned: Planned) -> Fitted:
        """From single requests, else from length laws, else (totals only) as planned."""
        came_in, came_out = float(minutes.input_tokens.sum()), float(minutes.output_tokens.sum())
        manifests = [log.canonical.manifest for log in self.logs]
        if all(log.single and log.canonical.manifest.sampling_fraction == 1 for log in self.logs):
            pieces = pieces_of(self.table, spans)
            found = replay(store, self.model, self._pools(), self.routing, pieces)
            return Fitted(found.refused_share, found.fitted_input_tokens, found.fitted_output_tokens, found)
        if any(manifest.kind is Kind.SUMS for manifest in manifests):
            shares = planned.served_input_share, planned.served_output_share
            return Fitted(planned.refused_share, came_in * shares[0], came_out * shares[1], None)
        law = reduce(add, (self._law(log) for log in self.logs))
        return Fitted(law.share, came_in * law.fitted_share(0), came_out * law.fitted_share(1), None)

    def _law(self, log: LogRead) -> Refused:
        laws = [
            to_traffic(log.canonical, model=name, name=name, where=Path(log.where), sha256=log.sha256)
            for name, own in log.models.items()
            if own == self.model and name in log.canonical.manifest.models
        ]
        return reduce(add, (refused_of(traffic, self._pools(), self.routing) for traffic in laws), Refused())


def worst_pool(replayed: Replayed | None) -> PoolReplayed | None:
    """The pool with the largest overflow, of those that run; ``None`` where that of any pool cannot be told."""
    if replayed is None or any(pool.swept is None for pool in replayed.pools):
        return None
    running = [pool for pool in replayed.pools if pool.overflow is not None]
    return max(running, key=lambda pool: pool.overflow or 0.0, default=None)


def _per_mtok(usd: float, tokens: float) -> float:
    """USD per Mtok; of no tokens, infinite, or 0 where nothing is paid either."""
    if tokens > 0:
        return units.usd_per_mtok(usd, tokens)
    return float("inf") if usd > 0 else 0.0
