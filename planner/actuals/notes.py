"""What a reader of one model's actual figures must know: what was left out, assumed, or cannot be told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from planner.actuals.logs import LogRead
from planner.actuals.minutes import Minutes
from planner.actuals.planned import Planned
from planner.actuals.replay import PoolReplayed, Replayed
from planner.actuals.timetable import Timetable
from planner.traffic.schema import Kind


def notes_of(
    table: Timetable,
    logs: Sequence[LogRead],
    minutes: Minutes,
    planned: Planned,
    replayed: Replayed | None,
    whole_blocks: bool,
) -> Iterator[str]:
    """The notes, most important first.

    Parameters
    ----------
    whole_blocks
        Whether the log shows ten minutes in a row.
    """
    if minutes.outside:
        yield f"{minutes.outside:,} requests lie outside the time that is compared and are not counted"
    if table.label is None:
        yield f"{table.note}: planned figures of these hours are those of the mean hour of the horizon"
    if not whole_blocks:
        yield "the log is shorter than ten minutes: its peak is its mean"
    if not planned.peak_seen:
        yield "no hour of the plan's busiest period is in the logs: the two peaks are of different hours"
    if replayed is None:
        yield from _without_requests(logs)
    else:
        yield from _replayed(table, minutes, replayed)


def _without_requests(logs: Sequence[LogRead]) -> Iterator[str]:
    manifests = [log.canonical.manifest for log in logs]
    if any(log.single and log.canonical.manifest.sampling_fraction < 1 for log in logs):
        yield "overflow cannot be told from a sample of the requests"
    if any(not log.single for log in logs):
        yield "overflow cannot be told: not every log shows single requests"
    if any(manifest.kind is Kind.SUMS for manifest in manifests):
        yield "totals show no lengths: the refused share is taken as planned"
    else:
        yield "the refused share is that of the lengths of the whole log"
    coarse = max(manifest.ts_resolution_ms for manifest in manifests) / 60_000
    if coarse > 1:
        yield f"the log counts by {coarse:,.3g} minutes: its peak is no finer"


def _replayed(table: Timetable, minutes: Minutes, replayed: Replayed) -> Iterator[str]:
    lost = round(float(minutes.arrivals.sum())) - replayed.requests
    if lost > 0:
        yield f"{lost:,} requests have no lengths (failed, or not counted): they count as arrivals only"
    if replayed.without_tenant:
        which = "requests name no tenant of the plan: they take turns over the pools of all tenants"
        yield f"{replayed.without_tenant:,} {which}"
    if any(run.swept is None for run in replayed.pools):
        yield "overflow cannot be told: replicas differ by period, and the plan does not say when"
        return
    for run in replayed.pools:
        if run.stranded:
            yield f"{run.stranded:,} requests came while the plan runs no replica of {run.pool.name}"
    fills = [_fill(run, run.swept.most_tokens) for run in replayed.pools if run.swept and run.overflow is not None]
    if fills:
        yield f"live tokens at most {', '.join(fills)}"
        yield "replayed with replicas taking turns, at the planned TTFT and decode rate of the busiest period"


def _fill(run: PoolReplayed, most_tokens: float) -> str:
    """Most live tokens of any replica over the pool, with the overflow where there is any."""
    over = f" (more than full {run.overflow:.2%} of the time)" if run.overflow else ""
    return f"{most_tokens / run.limit_tokens:.0%} of the pool of {run.pool.name}{over}"
