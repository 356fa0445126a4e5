"""What a reader of the figures must know about how a log counts: assumptions, and rules that touched many rows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal
from zoneinfo import ZoneInfo

from planner.traffic.readers.columns import Stamps, TableFile, Wanted
from planner.traffic.rules import Adjustment, Rule
from planner.traffic.schema import Counts

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COARSE_US = 100_000
"""From a tenth of a second on, requests that share a stamp say nothing about bursts of a second."""
SATURATED = 0.01
"""From this share of refused arrivals on, what was served is visibly less than what was asked for."""
StampMeaning = Literal["arrival", "completion", "arrival from completion"]


def stamp_meaning(tables: Sequence[TableFile], wanted: Wanted) -> StampMeaning:
    """What the time stamps of the tables are, for the manifest."""
    completes = [_completes(table, wanted) for table in tables]
    if not any(completes):
        return "arrival"
    computed = all(table.columns.duration for table, ends in zip(tables, completes, strict=True) if ends)
    return "arrival from completion" if computed else "completion"


def _completes(table: TableFile, wanted: Wanted) -> bool:
    stated = (wanted.stamps or table.stamps) is Stamps.COMPLETION
    return stated or not table.columns.timestamp


def remarks(counts: Counts, meaning: StampMeaning, resolution_us: int, fraction: float) -> list[str]:
    """Sentences for the manifest and the report; none where nothing is out of the ordinary."""
    return [text for text in (*_of_time(counts, meaning, resolution_us), *_of_counts(counts, fraction)) if text]


MODEL_COLUMNS = ("model", "model_name", "model_group", "model_id", "deployment")


def unmapped_model(tables: Sequence[TableFile], wanted: Wanted) -> list[str]:
    """A sentence where a log seems to name models, but the mapping does not say so: they would become one."""
    if not wanted.mapping or "model" in wanted.mapping or wanted.model:
        return []
    named = {column for table in tables for column in table.head.columns if column.lower() in MODEL_COLUMNS}
    return [
        f"all requests are taken as one model: the mapping leaves out the column '{column}', and --map model={column} "
        "would tell models apart"
        for column in sorted(named)[:1]
    ]


def clock_changes(zone: str, start_us: int, end_us: int) -> list[str]:
    """A sentence for every change of clocks within the window: stamps without a zone are ambiguous around it."""
    clocks = ZoneInfo(zone)
    day, last = (EPOCH + timedelta(microseconds=us) for us in (start_us, end_us))
    found = []
    while day < last:
        following = min(day + timedelta(days=1), last)
        earlier, later = (moment.astimezone(clocks).utcoffset() or timedelta() for moment in (day, following))
        if earlier != later:
            hour = (
                "comes twice is read as its second pass" if later < earlier else "is left out is read as if it were not"
            )
            date = _first_after(day, following, clocks).date()
            found.append(f"the clocks of {zone} changed on {date}: in stamps without a zone, the hour that {hour}")
        day = following
    return found


def _first_after(before: datetime, after: datetime, clocks: ZoneInfo) -> datetime:
    """The local time just after the change of clocks between two moments, to the minute."""
    offset = before.astimezone(clocks).utcoffset()
    while after - before > timedelta(minutes=1):
        middle = before + (after - before) / 2
        if middle.astimezone(clocks).utcoffset() == offset:
            before = middle
        else:
            after = middle
    return after.astimezone(clocks)


def _of_time(counts: Counts, meaning: StampMeaning, resolution_us: int) -> list[str]:
    computed = counts.adjusted_by_reason.get(Adjustment.ARRIVAL_COMPUTED.value, 0)
    return [
        f"time stamps are {resolution_us / 1e6:g} s apart at the finest: requests that share one did not come as a "
        "batch, and bursts shorter than that are not seen"
        if resolution_us >= COARSE_US
        else "",
        "time stamps are those of completion and the log has no durations: arrivals are late by the time of service, "
        "and long requests more than short ones"
        if meaning == "completion"
        else "",
        f"{counts.kept - computed:,} kept requests have no usable duration: they stand at their completion"
        if meaning == "arrival from completion" and computed < counts.kept
        else "",
    ]


def _of_counts(counts: Counts, fraction: float) -> list[str]:
    aborted = counts.dropped_by_reason.get(Rule.ABORTED_EMPTY.value, 0)
    refused = counts.dropped_by_reason.get(Rule.REJECTED.value, 0)
    share = refused / counts.offered if counts.offered else 0.0
    return [
        f"{aborted:,} requests were aborted before any output was counted: they are arrivals, and the length law is "
        "drawn from the other requests"
        if aborted
        else "",
        f"{100 * share:.2g} % of the arrivals were refused: the fleet was saturated, so clients may have held back more"
        if share >= SATURATED
        else "",
        f"the log holds {100 * fraction:.4g} % of the requests, a sample: counts and rates are as logged, not scaled up"
        if fraction < 1
        else "",
    ]
