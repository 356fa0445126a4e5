"""Margins: every limit of every pool, planned against allowed; then the error bands of the predicted times."""

from __future__ import annotations

from planner.plan import FleetPlan, Margin, Pool
from planner.plan import Measure as Band
from planner.report import facts
from planner.report.sheets.input_ids import limit_id
from planner.report.style import COUNT, GREEN, MS, SHARE, SHARE_FINE, Kind
from planner.report.table import Column, Formula, Sheet, Table, Value, stack


def build(plan: FleetPlan) -> Sheet:
    """The Margins sheet."""
    return Sheet(
        "Margins",
        "Margins: planned against allowed",
        "One row for each limit of each pool, per replica at the planning rate; times at the edge of the error band "
        "that the limits saw. Flags: 1 = holds.",
        "Every limit of every pool; error bands of the predicted times",
        GREEN,
        stack([lambda top: _margins(plan, top), lambda top: _bands(plan, top)]),
    )


def _number(margin: Margin) -> str:
    return {"share": SHARE, "share of requests": SHARE_FINE, "ms": MS}.get(margin.unit, COUNT)


def _limit(pool: Pool, margin: Margin) -> Value:
    name = limit_id(pool, margin)
    return facts.finite(margin.limit) if name is None else Formula("=<1>", (name,))


def _margins(plan: FleetPlan, top: int) -> Table:
    rows = [(pool, margin) for pool in plan.pools for margin in pool.margins]
    numbers = tuple(_number(m) for _, m in rows)
    limits = tuple(_limit(p, m) for p, m in rows)
    kinds = tuple(Kind.LINK if isinstance(limit, Formula) else Kind.RESULT for limit in limits)
    columns = (
        Column("Pool", 22, tuple(p.name for p, _ in rows)),
        Column("Constraint", 24, tuple(m.constraint for _, m in rows)),
        Column("Planned", 14, tuple(facts.finite(m.planned) for _, m in rows), Kind.RESULT, numbers),
        Column("Limit", 14, limits, kinds, numbers),
        Column("Unit", 18, tuple(m.unit for _, m in rows)),
        Column("Limit used", 12, Formula('=IFERROR([Planned]/[Limit],"n/a")'), Kind.FORMULA, SHARE),
        Column("Within (1/0)", 12, Formula("=([Planned]<=[Limit])*1"), Kind.FORMULA),
        Column("Held when recomputed (1/0)", 14, tuple(int(m.satisfied) for _, m in rows), Kind.RESULT, pad=1),
    )
    return Table("tblMargins", "Margins", top, columns, len(rows))


def _target(pool: Pool, what: str) -> Value:
    target = facts.margin(pool, what[:4].casefold())
    return _limit(pool, target) if target else "no target"


def _bands(plan: FleetPlan, top: int) -> Table:
    rows: list[tuple[Pool, str, Band]] = []
    for pool in plan.pools:
        rows.append((pool, "TPOT", pool.speed.tpot_ms))
        rows.append((pool, f"TTFT, {pool.speed.ttft_percentile:.0%} of requests", pool.speed.ttft_ms))
    targets = tuple(_target(pool, what) for pool, what, _ in rows)
    columns = (
        Column("Pool", 22, tuple(p.name for p, _, _ in rows)),
        Column("Time", 24, tuple(what for _, what, _ in rows)),
        Column("Fast edge, ms", 14, tuple(facts.finite(b.low) for _, _, b in rows), Kind.RESULT, MS),
        Column("Middle, ms", 14, tuple(facts.finite(b.value) for _, _, b in rows), Kind.RESULT, MS),
        Column("Slow edge, ms", 18, tuple(facts.finite(b.high) for _, _, b in rows), Kind.RESULT, MS),
        Column("Used, ms", 12, tuple(facts.finite(b.used) for _, _, b in rows), Kind.RESULT, MS),
        Column("Edge used", 8, tuple(b.edge for _, _, b in rows), Kind.RESULT),
        Column(
            "In band (1/0)",
            12,
            Formula("=([Used, ms]>=[Fast edge, ms])*([Used, ms]<=[Slow edge, ms])"),
            Kind.FORMULA,
        ),
        Column("Limit, ms", 14, targets, Kind.LINK, MS),
        Column("80 % band from", 38, tuple(f"{p.speed.provider}: {b.source}" for p, _, b in rows), Kind.RESULT),
    )
    return Table("tblBands", "Margins", top, columns, len(rows), "Predicted times: 80 % bands", workings=True)
