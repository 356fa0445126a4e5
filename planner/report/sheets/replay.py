"""Replay: what the plan promises against what a replay of real requests saw, limit by limit.

The sheet is there where the plan was replayed; it is of the request as it stands, whatever scenario is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from planner.replay.record import DrillRecord, Figure, PoolRecord, PromiseRecord, ReplayRecord
from planner.report import replay_words as words
from planner.report.check import Check, none
from planner.report.style import COUNT, GENERAL, GREEN, MS, MTOK, SHARE, SHARE_FINE, Kind
from planner.report.table import Column, Formula, Sheet, Table, Value, stack
from planner.report.view import View
from planner.request_study import BASE
from planner.units import TOKENS_PER_MTOK

SHEET = "Replay"
PROMISES = "tblReplayLimits"
STANDS = "Stands (1/0)"
_UNITS = {
    "Repeats": "repeats",
    "Hours of a repeat": "h",
    "Factor on the rate": "factor",
    "Factor on step times": "factor",
    "Confidence": "share",
}
NONE_LEFT = "not within the replay"


class _Row(NamedTuple):
    pool: PoolRecord
    promise: PromiseRecord


def build(view: View) -> Sheet | None:
    """The Replay sheet; nothing where the plan was not replayed."""
    record = view.study.replay
    if record is None:
        return None
    return Sheet(
        SHEET,
        "Replay: the plan against real requests",
        words.how_to_read(record),
        "Real requests on the planned replicas: do the promises stand",
        GREEN,
        stack(_tables(record)),
        wide=True,
    )


def checks(view: View) -> tuple[Check, ...]:
    """Verdicts as this workbook calculates them are those of the replay."""
    if view.study.replay is None:
        return ()
    return (none("Replayed limits whose verdict is not the replay's", f"=SUM({PROMISES}[Differs, 1/0])", SHEET),)


def cover_value(view: View) -> Value:
    """The result for the Cover."""
    return words.NOT_REPLAYED if view.study.replay is None else Formula("=tblReplay[Value]@0")


def _tables(record: ReplayRecord) -> list[Callable[[int], Table]]:
    found: list[Callable[[int], Table]] = [
        lambda top: _asked(record, top),
        lambda top: _limits(PROMISES, "Promises of the plan", record.pools, top, flags=True),
        lambda top: _seen(record.pools, top),
    ]
    for name, heading, pools in (
        ("tblReplayFewer", f"{words.FEWER}: a pool of the right size breaks a promise then", record.fewer),
        ("tblReplayMeans", words.MEANS, record.means),
    ):
        if _rows(pools):
            found.append(lambda top, n=name, h=heading, p=pools: _limits(n, h, p, top))  # type: ignore[misc]
    if record.drills:
        found.append(lambda top: _drills(record.drills, top))
    return found


def _asked(record: ReplayRecord, top: int) -> Table:
    """What came out, and how it was asked."""
    result = Formula(f'=IF(MIN({PROMISES}[{STANDS}])=1,"passed: no limit is refuted","REFUTED")')
    asked = words.what_was_asked(record)
    items = ("Result", "Plan replayed", *(item for item, _ in asked))
    values: tuple[Value, ...] = (result, f"run {record.run_id}, scenario {BASE}", *(v for _, v in asked))
    note = words.notes((*record.pools, *record.means))
    rows = (*zip(items, values, strict=True), *((("Notes", note),) if note else ()))
    columns = (
        Column("Item", 26, tuple(item for item, _ in rows)),
        Column(
            "Value",
            44,
            tuple(value for _, value in rows),
            tuple(Kind.FORMULA if isinstance(value, Formula) else Kind.RESULT for _, value in rows),
            tuple(SHARE if item == "Confidence" else GENERAL for item, _ in rows),
            left=True,
        ),
        Column("Unit", 16, tuple(_UNITS.get(item, "") for item, _ in rows)),
    )
    return Table("tblReplay", SHEET, top, columns, len(rows), workings=True)


def _rows(pools: Sequence[PoolRecord]) -> tuple[_Row, ...]:
    return tuple(_Row(pool, promise) for pool in pools for promise in pool.promises)


def _number(promise: PromiseRecord) -> str:
    return MS if promise.unit == "ms" else SHARE_FINE


def _cell(figure: Figure, least: float | None = None) -> Value:
    """A figure for a cell; an end of an interval below ``least``, which the quantity cannot be, is shown as that."""
    if figure.value is None:
        return figure.word
    return figure.value if least is None else max(figure.value, least)


def _limits(name: str, heading: str, pools: Sequence[PoolRecord], top: int, *, flags: bool = False) -> Table:
    """Limits of pools: planned, allowed, observed; the verdict is a formula.

    Refuted: the least figure that the repeats leave possible, the lower end of the interval or the one observation
    there is, lies beyond the limit. Where nothing was to be measured, nothing is refuted.
    """
    rows = _rows(pools) or (_Row(PoolRecord(pool="(none)", replicas=0, promises=()), _NOTHING),)
    numbers = tuple(_number(row.promise) for row in rows)
    stands = STANDS if flags else "Stands, 1/0"
    tested = Formula("=IF(ISNUMBER([Interval from]),[Interval from],[Observed])")
    unknown = '([Tested]="nothing to measure")'
    holds = Formula(f"=IF(ISNUMBER([Tested]),([Tested]<=[Allowed]),{unknown})*1")

    def result(header: str, width: float, values: Sequence[Value]) -> Column:
        return Column(header, width, tuple(values), Kind.RESULT, numbers)

    columns = (
        Column("Pool", 26, tuple(row.pool.pool for row in rows)),
        Column("Limit", 44, tuple(row.promise.constraint for row in rows)),
        Column("Unit", 16, tuple(row.promise.unit for row in rows)),
        Column("Replicas", 10, tuple(row.pool.replicas for row in rows), Kind.RESULT, COUNT),
        result("Planned", 12, [_cell(row.promise.planned) for row in rows]),
        result("Allowed", 12, [row.promise.limit for row in rows]),
        result("Observed", 17, [_cell(row.promise.observed) for row in rows]),
        result("Interval from", 17, [_cell(row.promise.low, 0.0) for row in rows]),
        result("Interval to", 17, [_cell(row.promise.high, 0.0) for row in rows]),
        Column("Tested", 17, tested, Kind.FORMULA, numbers),
        Column(stands, 10, holds, Kind.FORMULA, COUNT),
        Column("Verdict", 13, Formula(f'=IF([{stands}]=1,"stands","REFUTED")'), Kind.FORMULA, left=True),
        Column("Refuted, 1/0", 10, Formula(f"=1-[{stands}]"), Kind.FORMULA, COUNT, total=flags),
        Column("As replayed, 1/0", 11, tuple(int(row.promise.passed) for row in rows), Kind.RESULT, COUNT),
        Column("Differs, 1/0", 10, Formula(f"=ABS([{stands}]-[As replayed, 1/0])"), Kind.FORMULA, COUNT),
    )
    label = "Total" if flags else ""
    return Table(name, SHEET, top, columns, len(rows), heading, total_label=label, workings=True)


_NOTHING = PromiseRecord(
    constraint="no model was replayed", unit="share of time", planned=Figure(value=0.0), limit=0.0,
    observed=Figure(word="nothing to measure"), low=Figure(word="nothing to measure"),
    high=Figure(word="nothing to measure"), passed=True,
)  # fmt: skip


def _seen(pools: Sequence[PoolRecord], top: int) -> Table:
    """Figures that the replay saw."""
    rows = [pool for pool in pools if pool.seen is not None]

    def of(header: str, width: float, name: str, number: str, unit: int = 1) -> Column:
        values = tuple(float(getattr(row.seen, name)) / unit for row in rows) or (0,)
        return Column(header, width, values, Kind.RESULT, number)

    columns = (
        Column("Pool", 26, tuple(row.pool for row in rows) or ("(none)",)),
        of("Requests of a repeat", 44, "requests", COUNT),
        of("Served", 16, "served", COUNT),
        of("Refused", 10, "refused", COUNT),
        of("Unfinished at the end", 12, "unfinished", COUNT),
        of("Served, M tokens", 12, "served_tokens", MTOK, TOKENS_PER_MTOK),
        of("Preemptions", 17, "preemptions", MTOK),
        of("Live requests, one replica", 17, "live_requests", MTOK),
        of("Live tokens, one replica", 17, "live_tokens", COUNT),
        of("Waiting requests, one replica", 17, "queue_requests", "#,##0.00"),
        of("Most waiting at once", 10, "most_waiting", COUNT),
        of("Busy, share of time", 13, "busy_share", SHARE),
    )
    heading = "Figures seen, means of the repeats (most waiting at once: the largest)"
    return Table("tblReplaySeen", SHEET, top, columns, max(1, len(rows)), heading, workings=True)


def _drills(drills: Sequence[DrillRecord], top: int) -> Table:
    def result(header: str, width: float, values: Sequence[Value], number: str = COUNT) -> Column:
        return Column(header, width, tuple(values), Kind.RESULT, number)

    columns = (
        Column("Pool", 26, tuple(one.pool for one in drills)),
        Column("What goes wrong, and what came of it", 44, tuple(f"{one.what}. {one.sentence}" for one in drills)),
        Column("Drill", 16, tuple(one.name for one in drills)),
        result("From, s", 10, [one.from_s for one in drills]),
        result("Until, s", 12, [one.until_s for one in drills]),
        result("Sent again, requests", 12, [one.resent for one in drills]),
        result("Worst TTFT, ms", 17, [_cell(one.worst_ttft_ms) for one in drills], MS),
        result("Worst TPOT, ms", 17, [_cell(one.worst_tpot_ms) for one in drills], MS),
        result("Over a limit, s", 17, [one.over_s for one in drills]),
        result("Recovered after, s", 17, [_recovered(one) for one in drills]),
        result("Unfinished", 10, [one.unfinished for one in drills]),
        result("Served, M tokens", 13, [one.served_tokens / TOKENS_PER_MTOK for one in drills], MTOK),
        result("Undisturbed, M tokens", 11, [one.served_tokens_undisturbed / TOKENS_PER_MTOK for one in drills], MTOK),
    )
    return Table("tblReplayDrills", SHEET, top, columns, len(drills), words.DRILLS, workings=True)


def _recovered(one: DrillRecord) -> Value:
    return NONE_LEFT if one.recovered_after_s is None else one.recovered_after_s
