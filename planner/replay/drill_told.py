"""What a drill did, window by window, and in words."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from planner import units
from planner.plan import Pool
from planner.replay.drill_types import Drill, Drilled, DrillKind, DrillWindow
from planner.replay.segments import Lived
from planner.replay.types import Fate, FloatArray
from planner.report import facts

CLEARLY = 1.05
"""A figure is clearly beyond that of the undisturbed run from this factor on: single windows are noisy."""
GROUPS = (1, 2, 5, 10)
"""Minutes that a window of latencies may have."""


def tell(drill: Drill, pool: Pool, run: Lived, calm: Lived, notes: tuple[str, ...] = ()) -> Drilled:
    """The drill against the run without it."""
    ttft, tpot = _limit(pool, "ttft"), _limit(pool, "tpot")
    group = _group(calm, pool.speed.ttft_percentile)
    before = windows_of(calm, pool, group)
    windows = tuple(
        replace(after, caused=_caused(after, then))
        for after, then in zip(windows_of(run, pool, group), before, strict=True)
    )
    over = sum(w.until_s - w.from_s for w in windows if w.caused)
    found = Drilled(
        drill=drill, requests=len(run.fate), resent=int((run.sent > 1).sum()),
        turned_away=int((run.fate == Fate.UNROUTED).sum()),
        refused=int(((run.fate == Fate.REFUSED_LENGTH) | (run.fate == Fate.REFUSED_POOL)).sum()),
        unfinished=int((run.fate == Fate.UNFINISHED).sum()),
        worst_ttft_ms=_worst([w.ttft_ms for w in windows]), worst_tpot_ms=_worst([w.tpot_ms for w in windows]),
        ttft_limit_ms=ttft, tpot_limit_ms=tpot, ttft_percentile=pool.speed.ttft_percentile, over_s=over,
        over_s_undisturbed=sum(w.until_s - w.from_s for w in before if w.broken),
        recovered_after_s=_recovered(drill, windows, run.horizon_s), short_share=run.share_of_time("short_s"),
        short_share_undisturbed=calm.share_of_time("short_s"), short_limit=pool.load.overflow_probability,
        most_waiting=run.most_waiting, served_tokens=_tokens(run), served_tokens_undisturbed=_tokens(calm),
        windows=windows, sentence="", notes=notes,
    )  # fmt: skip
    return replace(found, sentence=sentence(found))


def windows_of(run: Lived, pool: Pool, group: int) -> tuple[DrillWindow, ...]:
    """Figures of the requests that arrived in each stretch of ``group`` windows."""
    wait_s = run.seen_s - run.requests.arrival_s
    open_ = (run.fate == Fate.UNFINISHED) & np.isnan(wait_s)
    wait_s = np.where(open_, run.horizon_s - run.requests.arrival_s, wait_s)
    found, most = [], len(run.up_s)
    for first in range(0, most, group):
        last = min(first + group, most)
        found.append(_window(run, pool, wait_s, first, last))
    return tuple(found)


def _window(run: Lived, pool: Pool, wait_s: FloatArray, first: int, last: int) -> DrillWindow:
    start, end = first * run.window_s, last * run.window_s
    mine = slice(*np.searchsorted(run.requests.arrival_s, (start, end)))
    fate, wait, output = run.fate[mine], wait_s[mine], run.requests.output_tokens[mine]
    timed = wait[~np.isnan(wait)]
    ttft = units.s_to_ms(float(np.quantile(timed, pool.speed.ttft_percentile))) if timed.size else math.nan
    ended = (fate == Fate.SERVED) & (output > 1)
    steps = int((output[ended] - 1).sum())
    took = float((run.end_s[mine] - run.first_token_s[mine])[ended].sum())
    tpot = units.s_to_ms(took / steps) if steps else math.nan
    away, up = int((fate == Fate.UNROUTED).sum()), float(run.up_s[first:last].sum())
    limits = (("TTFT", ttft, _limit(pool, "ttft")), ("TPOT", tpot, _limit(pool, "tpot")))
    broken = [name for name, value, limit in limits if limit is not None and value > limit]
    return DrillWindow(
        start, end, len(fate), away, ttft, tpot,
        float(run.integral("short_s")[first:last].sum()) / up if up else 0.0,
        float(run.integral("queue_request_s")[first:last].sum()) / (end - start), up / (end - start),
        tuple(broken + ["turned away"] * (away > 0)),
    )  # fmt: skip


def sentence(told: Drilled) -> str:
    """The drill in plain words."""
    if told.drill.replicas == 0:
        return "the pool runs no replica"
    parts = [f"{_cause(told.drill)}: {_latency(told)}"]
    parts.append(f"limits broken for {_minutes(told.over_s)}" if told.over_s else "no limit broken because of it")
    if told.over_s_undisturbed:
        parts[-1] += f" (some limit is for {_minutes(told.over_s_undisturbed)} without the drill too)"
    if told.over_s and told.drill.name != DrillKind.SLOW:
        parts.append(_recovery(told))
    if told.resent:
        parts.append(f"requests sent again: {told.resent:,}")
    parts.append(f"{told.turned_away:,} turned away" if told.turned_away else "none turned away")
    return "; ".join(parts)


def _cause(drill: Drill) -> str:
    if drill.lost:
        span = _minutes(drill.until_s - drill.from_s)
        return f"loses {drill.lost} of {drill.replicas} replicas, which serve again after {span}"
    return drill.what


def _latency(told: Drilled) -> str:
    found = []
    for name, worst, limit in (
        (f"TTFT p{told.ttft_percentile * 100:g}", told.worst_ttft_ms, told.ttft_limit_ms),
        ("TPOT", told.worst_tpot_ms, told.tpot_limit_ms),
    ):
        if not math.isnan(worst):
            found.append(f"{name} worst {worst:,.0f} ms" + (f" against {limit:,.0f} allowed" if limit else ""))
    return ", ".join(found) or "nothing served"


def _recovery(told: Drilled) -> str:
    if told.recovered_after_s is None:
        return "not recovered by the end of the replay"
    after = "the replicas serve again" if told.drill.lost else "it was over"
    if not told.recovered_after_s:
        return f"recovered by the time {after}"
    return f"recovered {_minutes(told.recovered_after_s)} after {after}"


def _recovered(drill: Drill, windows: tuple[DrillWindow, ...], horizon_s: float) -> float | None:
    """From the end of the cause to that of the last broken window; a cause that never ends is not recovered from."""
    last = max((w.until_s for w in windows if w.caused), default=0.0)
    if last and drill.until_s >= horizon_s:
        return None
    return None if last >= horizon_s else max(last - drill.until_s, 0.0)


def _caused(after: DrillWindow, before: DrillWindow) -> bool:
    """Beyond a limit, and clearly beyond the same window without the drill."""
    pairs = {"TTFT": (after.ttft_ms, before.ttft_ms), "TPOT": (after.tpot_ms, before.tpot_ms)}
    if after.turned_away > before.turned_away:
        return True
    return any(
        math.isnan(pairs[name][1]) or pairs[name][0] > CLEARLY * pairs[name][1]
        for name in after.broken
        if name in pairs
    )


def _group(run: Lived, percentile: float) -> int:
    """Minutes of a window: enough requests that one of them lies beyond the percentile on average."""
    each = len(run.fate) / len(run.up_s)
    return next((group for group in GROUPS if group * each * (1 - percentile) >= 1), GROUPS[-1])


def _limit(pool: Pool, word: str) -> float | None:
    margin = facts.margin(pool, word)
    return None if margin is None else margin.limit


def _tokens(run: Lived) -> int:
    served = run.served
    return int(run.requests.prompt_tokens[served].sum() + run.requests.output_tokens[served].sum())


def _worst(values: list[float]) -> float:
    return max((value for value in values if not math.isnan(value)), default=math.nan)


def _minutes(seconds: float) -> str:
    return f"{seconds / units.minutes_to_s(1.0):g} min" if seconds >= units.minutes_to_s(1.0) else f"{seconds:g} s"
