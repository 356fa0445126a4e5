"""Replay: what the plan promises against what a replay of real requests saw."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from planner.replay.record import DrillRecord, Figure, PoolRecord, PromiseRecord, ReplayRecord
from planner.report import replay_words as words
from planner.report.page.bars import track
from planner.report.page.markup import Col, badge, folded, pairs, prose, remark, section, short, table
from planner.report.page.numbers import count, decimal, of_unit, share
from planner.study import Study
from planner.units import TOKENS_PER_MTOK

WIDEST = 1.25
"""End of the bars: the observed figure over the limit."""
_LIMITS = (
    Col("Pool"), Col("Replicas", "n"), Col("Limit"), Col("Planned", "n"), Col("Observed over the limit (mark)", "plot"),
    Col("Observed", "n"), Col("Interval", "n"), Col("Allowed", "n"), Col("Verdict"),
)  # fmt: skip


def replay(study: Study) -> Markup:
    """The section, where the plan was replayed."""
    record = study.replay
    if record is None:
        return Markup()
    parts = [_result(record), _limits("Promises of the plan", record.pools), _seen(record.pools)]
    for caption, pools in ((words.FEWER, record.fewer), (words.MEANS, record.means)):
        if any(pool.promises for pool in pools):
            parts.append(_limits(caption, pools))
    if record.drills:
        parts.append(_drills(record.drills))
    note = words.notes((*record.pools, *record.means))
    if note:
        parts.append(remark(note))
    parts.append(folded("How it was replayed", pairs((short(item), _text(value)) for item, value in _asked(record))))
    return section("replay", "Replay of real requests", *parts, lead=words.how_to_read(record))


def _result(record: ReplayRecord) -> Markup:
    kind = "good" if record.passed else "bad"
    which = ", ".join(f"{pool} {constraint}" for pool, constraint in record.refuted)
    return Markup('<p class="claim">{} {}</p>').format(badge(words.verdict(record), kind), short(which, 240))


def _asked(record: ReplayRecord) -> tuple[tuple[str, str | int | float], ...]:
    return (("Plan", f"run {record.run_id}"), *words.what_was_asked(record))


def _text(value: str | float) -> str:
    return short(value, 160) if isinstance(value, str) else f"{value:g}"


def _limits(caption: str, pools: Sequence[PoolRecord]) -> Markup:
    rows = [_limit_row(pool, one) for pool in pools for one in pool.promises]
    return table(caption, _LIMITS, rows)


def _limit_row(pool: PoolRecord, one: PromiseRecord) -> tuple[str, ...]:
    mark = badge("stands", "good") if one.passed else badge("refuted", "bad")
    return (
        short(pool.pool), count(pool.replicas), short(one.constraint), _figure(one.planned, one.unit), _bar(one),
        _figure(one.observed, one.unit), _interval(one), of_unit(one.limit, one.unit), mark,
    )  # fmt: skip


def _bar(one: PromiseRecord) -> Markup:
    """The observed figure as a share of the limit; the interval of confidence lies over its end."""
    at = 1 / WIDEST
    if one.observed.value is None or one.limit <= 0:
        return track([], [(at, "")])
    scale = one.limit * WIDEST
    fills = [(0.0, one.observed.value / scale, "a" if one.passed else "c")]
    if one.low.value is not None and one.high.value is not None:
        fills.append((one.low.value / scale, one.high.value / scale, "d"))
    return track(fills, [(at, "")])


def _figure(figure: Figure, unit: str) -> str:
    return figure.word if figure.value is None else of_unit(figure.value, unit)


def _interval(one: PromiseRecord) -> str:
    if one.low.value is None or one.high.value is None:
        return one.low.word
    return f"{of_unit(max(one.low.value, 0.0), one.unit)} to {of_unit(max(one.high.value, 0.0), one.unit)}"


def _seen(pools: Sequence[PoolRecord]) -> Markup:
    columns = (
        Col("Pool"), Col("Requests", "n"), Col("Served", "n"), Col("Refused", "n"), Col("Unfinished", "n"),
        Col("Served, M tokens", "n"), Col("Preemptions", "n"), Col("Live requests", "n"), Col("Live tokens", "n"),
        Col("Waiting", "n"), Col("Most waiting", "n"), Col("Busy", "n"),
    )  # fmt: skip
    rows = [
        (
            short(pool.pool), count(seen.requests), count(seen.served), count(seen.refused), count(seen.unfinished),
            decimal(seen.served_tokens / TOKENS_PER_MTOK), decimal(seen.preemptions), decimal(seen.live_requests),
            count(seen.live_tokens), decimal(seen.queue_requests), count(seen.most_waiting), share(seen.busy_share),
        )
        for pool in pools
        if (seen := pool.seen) is not None
    ]  # fmt: skip
    caption = "Figures seen: means of the repeats, live and waiting of one replica; most waiting is the largest"
    return folded("Figures seen", table(caption, columns, rows))


def _drills(drills: Sequence[DrillRecord]) -> Markup:
    columns = (
        Col("Pool"), Col("What came of it", "w"), Col("Worst TTFT, ms", "n"), Col("Worst TPOT, ms", "n"),
        Col("Over a limit, s", "n"), Col("Recovered after, s", "n"),
    )  # fmt: skip
    rows = [
        (
            short(one.pool), prose(f"{one.what}. {one.sentence}"), _figure(one.worst_ttft_ms, "ms"),
            _figure(one.worst_tpot_ms, "ms"), count(one.over_s),
            "not within the replay" if one.recovered_after_s is None else count(one.recovered_after_s),
        )
        for one in drills
    ]  # fmt: skip
    return table(words.DRILLS, columns, rows)
