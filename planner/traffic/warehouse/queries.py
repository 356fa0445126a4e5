"""The small tables that a warehouse is asked for: each one a query of the judged rows alone.

Definitions are those of `planner.traffic.tables`. Windows run over grouped tables only, never over all rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import ibis

from planner.traffic.measure import MARGIN_US
from planner.traffic.rules import CODES, Rule
from planner.traffic.tables.definitions import BELOW_CAP_RATIO, BLOCK_S, PEAK_SHARE, SCALES_S, TAIL_SIZE
from planner.traffic.tables.rows import KEPT, TIMELESS
from planner.traffic.warehouse.numbers import octave, start_of, step
from planner.traffic.warehouse.repeats import OFFERED

SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US
BLOCK_US = BLOCK_S * SECOND_US
MOST_STAMPS = 2_000_000
"""Stamps of the busiest hour that the resolution is told from."""
USELESS = [CODES[rule] for rule in TIMELESS]


@dataclass(frozen=True)
class Span:
    """First and last plausible stamp in microseconds, and the start of the busiest hour: figures or subqueries."""

    start_us: Any
    last_us: Any
    busiest_us: Any
    since_us: int | None = None
    until_us: int | None = None
    """The window that was asked for, which holds for rows of other models too."""


def verdicts(rows: Any) -> Any:
    """Rows by verdict and adjustments; the kept ones also by model."""
    model = ibis.ifelse(rows.verdict == KEPT, rows.model, "")
    return rows.group_by(model=model, verdict=rows.verdict, adjusted=rows.adjusted).aggregate(n=_count)


def span(rows: Any, at: Span) -> Any:
    """One row: the first and last plausible stamp over all models, so that a filter does not shorten the window.

    Rows of other models were never judged by time; they are held to a year around the arrivals.
    """
    seen = _offered(rows)
    low = seen.aggregate(us=seen.ts_us.min() - MARGIN_US).as_scalar()
    high = seen.aggregate(us=seen.ts_us.max() + MARGIN_US).as_scalar()
    plausible = rows.filter(rows.verdict.notin(USELESS) & (rows.ts_us >= low) & (rows.ts_us <= high))
    if at.since_us is not None:
        plausible = plausible.filter(plausible.ts_us >= at.since_us)
    if at.until_us is not None:
        plausible = plausible.filter(plausible.ts_us < at.until_us)
    return plausible.aggregate(start_us=plausible.ts_us.min(), last_us=plausible.ts_us.max())


def as_subqueries(rows: Any, since_us: int | None, until_us: int | None) -> Span:
    """The span as subqueries, for SQL that a person runs in any order."""
    asked = Span(None, None, None, since_us, until_us)
    found = span(rows, asked)
    start = found.select("start_us").as_scalar()
    last = found.select("last_us").as_scalar()
    busiest = hours(rows, Span(start, last, None))
    first = busiest.order_by([ibis.desc(busiest.n), busiest.hour_us]).limit(1).select("hour_us")
    return replace(asked, start_us=start, last_us=last, busiest_us=first.as_scalar())


def hours(rows: Any, at: Span) -> Any:
    """Arrivals and rows of other models per hour of the window; ``hour_us`` counts from its start."""
    seen = _clocked(rows, at)
    return seen.group_by(hour_us=start_of(seen.ts_us - at.start_us, BLOCK_US)).aggregate(n=_count)


def gaps(rows: Any, at: Span) -> Any:
    """How often each gap between distinct stamps stands in the busiest hour."""
    seen = _clocked(rows, at)
    since = seen.ts_us - at.start_us
    busy = seen.filter((since >= at.busiest_us) & (since < at.busiest_us + BLOCK_US))
    stamps = busy.group_by("ts_us").aggregate(n=_count)
    stamps = stamps.order_by(stamps.ts_us).limit(MOST_STAMPS)
    before = stamps.ts_us.lag().over(ibis.window(order_by=stamps.ts_us))
    found = stamps.mutate(gap_us=stamps.ts_us - before)
    # Where nothing lies before, engines say null or 0; both are no gap within an hour.
    found = found.filter((found.gap_us > 0) & (found.gap_us < BLOCK_US))
    return found.group_by("gap_us").aggregate(n=_count)


def rates(rows: Any) -> Any:
    """Per model and minute: arrivals (failed ones included), the kept ones, and the tokens of those."""
    seen = _offered(rows)
    return seen.group_by(model=seen.model, minute_us=start_of(seen.ts_us, MINUTE_US)).aggregate(
        n=_count,
        kept=lambda r: ibis.ifelse(r.verdict == KEPT, 1, 0).sum(),
        sum_prompt=lambda r: r.prompt.fill_null(0).sum(),
        sum_output=lambda r: r.output.fill_null(0).sum(),
        sum_cached=lambda r: r.cached.sum(),
    )


def lengths(rows: Any) -> Any:
    """The joint law by cell, apart for the busiest twentieth of the minutes with traffic (``busy`` is 1)."""
    kept = _kept(rows)
    kept = kept.mutate(minute_us=start_of(kept.ts_us, MINUTE_US))
    told = kept.left_join(_peak_minutes(rows), ["model", "minute_us"])
    return _cells(told.mutate(busy=told.busy.fill_null(0)))


def _peak_minutes(rows: Any) -> Any:
    """Minutes of which less than `PEAK_SHARE` of the other minutes of their model are busier."""
    minutes = rates(rows)
    minutes = minutes.mutate(load=minutes.sum_prompt + minutes.sum_output)
    of_model = ibis.window(group_by=minutes.model)
    by_load = ibis.window(group_by=minutes.model, order_by=[ibis.desc(minutes.load), ibis.desc(minutes.n)])
    ranked = minutes.mutate(place=ibis.rank().over(by_load), minutes=minutes.n.count().over(of_model))
    busier = round(1 / PEAK_SHARE) * ranked.place < ranked.minutes - 1
    return ranked.filter(busier | (ranked.place == 0)).select("model", "minute_us", busy=ibis.literal(1, type="int64"))


def _cells(kept: Any) -> Any:
    wide = "decimal(38, 0)"
    # In two selects, so that the text of the octaves does not stand in that of the steps as often as it is used.
    kept = kept.mutate(prompt_octave=octave(kept.prompt), output_octave=octave(kept.output))
    kept = kept.mutate(
        prompt_step=step(kept.prompt, kept.prompt_octave), output_step=step(kept.output, kept.output_octave)
    )
    keys = ("model", "traffic_class", "busy", "prompt_octave", "prompt_step", "output_octave", "output_step")
    return kept.group_by(*keys).aggregate(
        n=_count,
        sum_prompt=lambda r: r.prompt.sum(),
        sum_output=lambda r: r.output.sum(),
        sum_cached=lambda r: r.cached.sum(),
        sum_pp=lambda r: (r.prompt * r.prompt).cast(wide).sum(),
        sum_po=lambda r: (r.prompt * r.output).cast(wide).sum(),
        sum_oo=lambda r: (r.output * r.output).cast(wide).sum(),
        max_prompt=lambda r: r.prompt.max(),
        max_output=lambda r: r.output.max(),
        max_total=lambda r: (r.prompt + r.output).max(),
    )


def tail(rows: Any) -> Any:
    """The `TAIL_SIZE` largest totals of each model with every tie of the last one."""
    kept = _kept(rows)
    kept = kept.mutate(total=kept.prompt + kept.output)
    totals = kept.group_by("model", "total").aggregate(n=_count)
    down = ibis.window(group_by=totals.model, order_by=ibis.desc(totals.total), preceding=None, following=0)
    ranked = totals.mutate(larger=totals.n.sum().over(down) - totals.n)
    largest = ranked.filter(ranked.larger < TAIL_SIZE)
    least = largest.group_by("model").aggregate(least=lambda r: r.total.min())
    top = kept.inner_join(least, "model")
    top = top.filter(top.total >= top.least)
    return top.group_by("model", "prompt", "output").aggregate(n=_count)


def caps(rows: Any) -> Any:
    """How often each length near the largest one stands, per model and side."""
    kept = _kept(rows)
    return _near_most(kept, "prompt").union(_near_most(kept, "output"))


def _near_most(kept: Any, side: str) -> Any:
    values = kept.group_by(model=kept.model, tokens=kept[side]).aggregate(n=_count)
    most = values.group_by("model").aggregate(most=lambda r: r.tokens.max())
    near = values.inner_join(most, "model")
    near = near.filter(near.tokens * 100 >= near.most * round(100 * BELOW_CAP_RATIO))
    return near.select("model", "tokens", "n", side=ibis.literal(side))


def bursts(rows: Any, at: Span) -> Any:
    """Per model and hour: arrivals, and the sum of squares and the maximum of the counts at every scale.

    Each scale is a whole number of the one before, so the counts are nested: one pass over the seconds.
    """
    counts = _seconds(rows, at).rename(at_us="second_us")
    carried: list[str] = []
    for scale, wider in itertools.pairwise(SCALES_S):
        named = {f"squares_{scale}": counts.n * counts.n, f"most_{scale}": counts.n}
        counts = counts.mutate(**named, wider_us=start_of(counts.at_us, wider * SECOND_US))
        carried += named
        counts = counts.group_by(model=counts.model, at_us=counts.wider_us).aggregate(
            n=lambda r: r.n.sum(), **{name: _carry(name) for name in carried}
        )
    return counts.rename(hour_us="at_us")


def _carry(name: str) -> Callable[[Any], Any]:
    return (lambda r: r[name].sum()) if name.startswith("squares") else (lambda r: r[name].max())


def last_hour(rows: Any, at: Span) -> Any:
    """Arrivals per second in the last hour of the window, which may end before its hour does."""
    seconds = _seconds(rows, at)
    last = at.last_us - at.start_us
    return seconds.filter(seconds.second_us >= last - last % BLOCK_US)


def batches(rows: Any) -> Any:
    """How many stamps are shared by how many arrivals of a model."""
    seen = _offered(rows)
    stamps = seen.group_by("model", "ts_us").aggregate(size=_count)
    return stamps.group_by("model", "size").aggregate(n=_count)


def _seconds(rows: Any, at: Span) -> Any:
    seen = _offered(rows)
    since = seen.ts_us - at.start_us
    return seen.group_by(model=seen.model, second_us=start_of(since, SECOND_US)).aggregate(n=_count)


def _offered(rows: Any) -> Any:
    return rows.filter(rows.verdict.isin(OFFERED))


def _kept(rows: Any) -> Any:
    return rows.filter(rows.verdict == KEPT)


def _clocked(rows: Any, at: Span) -> Any:
    """Rows that show how the clock ticks: a model filter does not make it coarser."""
    return rows.filter(rows.verdict.isin([*OFFERED, CODES[Rule.OTHER_MODEL]]) & (rows.ts_us >= at.start_us))


def _count(rows: Any) -> Any:
    return rows.count()


QUERIES: dict[str, Callable[[Any, Span], Any]] = {
    "verdicts": lambda rows, at: verdicts(rows),
    "span": span,
    "hours": hours,
    "gaps": gaps,
    "rates": lambda rows, at: rates(rows),
    "lengths": lambda rows, at: lengths(rows),
    "tail": lambda rows, at: tail(rows),
    "caps": lambda rows, at: caps(rows),
    "bursts": bursts,
    "last_hour": last_hour,
    "batches": lambda rows, at: batches(rows),
}
"""Name to query, in the order in which they are run."""
