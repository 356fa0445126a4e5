"""Fit: why the plan holds, a row per pool: limits, capacity, what binds, and the next best; then the load."""

from __future__ import annotations

from planner.assemble.money import input_work_share
from planner.plan import FleetPlan
from planner.report import facts
from planner.report.style import COUNT, GREEN, MTOK, SHARE, SHARE_FINE, USD, USD_RATE, Kind
from planner.report.table import Column, Formula, Sheet, Table, stack
from planner.units import bytes_to_gib, gib_to_mib

EXTRA = "Extra USD, re-solve"
NO_FLIP = "not found"
"""Where there is no next best, or no one price to change: several GPU types, or the next best needs this one too."""


def build(plan: FleetPlan) -> Sheet:
    """The Fit sheet."""
    return Sheet(
        "Fit",
        "Fit: why the plan holds",
        "One row for each pool, as recomputed from the plan; each limit stands on sheet Margins. Capacity: tokens of "
        "the horizon at the highest steady rate that the running replicas hold in each period. Flags: 1 = holds.",
        "Why it holds: capacity, what binds, next best, load",
        GREEN,
        stack([lambda top: _fit(plan, top), lambda top: _load(plan, top)]),
        wide=True,
    )


def _fit(plan: FleetPlan, top: int) -> Table:
    pools = plan.pools
    extra = tuple(p.runner_up.extra_usd if p.runner_up else facts.no_runner_up(p) for p in pools)
    prices = [p.runner_up.flip_usd_per_gpu_h if p.runner_up else None for p in pools]
    flips = tuple(NO_FLIP if price is None else price for price in prices)
    columns = (
        Column("Pool", 18, tuple(p.name for p in pools)),
        Column("Binding constraint", 20, tuple(p.binding_constraint for p in pools), Kind.RESULT),
        Column(
            "Limits exceeded",
            10,
            Formula("=SUMPRODUCT((tblMargins[Pool]=[Pool])*(1-tblMargins[Within (1/0)]))"),
            Kind.LINK,
            COUNT,
            total=True,
        ),
        Column(
            "Replicas enough (1/0)",
            10,
            Formula("=(tblPlan[Replicas]@>=tblPlan[Replicas needed]@+tblPlan[Spare]@)*1"),
            Kind.LINK,
        ),
        Column("Routes to it", 8, Formula("=COUNTIF(tblRoutes[Pool],[Pool])"), Kind.LINK, COUNT),
        Column("Served, M tokens", 13, Formula("=tblPlan[Served, M tokens]@"), Kind.LINK, MTOK, total=True),
        Column("Capacity, M tokens", 13, tuple(p.capacity_mtok for p in pools), Kind.RESULT, MTOK, total=True),
        Column(
            "Capacity used",
            10,
            Formula("=IF([Capacity, M tokens]>0,[Served, M tokens]/[Capacity, M tokens],0)"),
            Kind.FORMULA,
            SHARE,
        ),
        Column("Prompts' share of work", 10, tuple(input_work_share(p) for p in pools), Kind.RESULT, SHARE_FINE),
        Column(EXTRA, 14, extra, Kind.RESULT, USD),
        Column("It loses above, USD per GPU-hour, re-solve", 13, flips, Kind.RESULT, USD_RATE),
        Column("Next best configuration", 34, tuple(facts.runner_up(p) for p in pools), Kind.RESULT),
        Column("Why", 50, tuple(facts.reason(p) for p in pools), Kind.RESULT),
    )
    return Table("tblFit", "Fit", top, columns, len(pools), total_label="Total")


def _load(plan: FleetPlan, top: int) -> Table:
    pools = plan.pools
    columns = (
        Column("Pool", 18, tuple(p.name for p in pools)),
        Column(
            "Requests/s, a replica", 20, tuple(p.load.rate_per_replica_per_s for p in pools), Kind.RESULT, "#,##0.00"
        ),
        Column("Dispersion of arrivals", 10, tuple(p.load.dispersion for p in pools), Kind.RESULT, "#,##0.0"),
        Column("Dispersion of live requests", 10, tuple(p.load.live_dispersion for p in pools), Kind.RESULT, "#,##0.0"),
        Column("KV pool, tokens", 11, tuple(facts.token_pool(p) for p in pools), Kind.RESULT, COUNT),
        Column("Live tokens, mean", 12, tuple(p.load.mean_live_tokens for p in pools), Kind.RESULT, COUNT),
        Column("Live tokens, peak", 10, tuple(p.load.quantile_live_tokens for p in pools), Kind.RESULT, COUNT),
        Column("Peak may be exceeded", 10, tuple(p.load.overflow_probability for p in pools), Kind.RESULT, SHARE),
        Column("Overflow expected", 10, tuple(p.load.expected_overflow for p in pools), Kind.RESULT, SHARE_FINE),
        Column("Live requests, mean", 11, tuple(p.load.mean_live_requests for p in pools), Kind.RESULT, "#,##0.0"),
        Column("Live requests, peak", 10, tuple(p.load.quantile_live_requests for p in pools), Kind.RESULT, COUNT),
        Column("Work share", 13, tuple(p.load.work_share for p in pools), Kind.RESULT, SHARE),
        Column(
            "States a request, MiB",
            14,
            tuple(gib_to_mib(bytes_to_gib(p.memory.state_bytes_per_request)) for p in pools),
            Kind.RESULT,
            "#,##0.0",
        ),
    )
    return Table("tblLoad", "Fit", top, columns, len(pools), "Load of one replica at the planning rate", workings=True)
