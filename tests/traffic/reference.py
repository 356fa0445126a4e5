"""The canonical tables straight from their definitions, one row at a time: slow, and written apart from the engine.

The definitions are those of the docstrings of `planner.traffic.schema`, `planner.traffic.tables` and
`planner.traffic.rules`. Nothing of the engine is used but the names of the rules and the table of bucket edges.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from planner.traffic.buckets import EDGES
from planner.traffic.canonical import Canonical
from planner.traffic.rules import TREATMENTS, Adjustment, Rule

MINUTE, HOUR, DAY = 60_000_000, 3_600_000_000, 86_400_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TIMELESS = (Rule.MALFORMED, Rule.BAD_TIMESTAMP, Rule.IMPLAUSIBLE_TIMESTAMP, Rule.OUTSIDE_WINDOW)


@dataclass(frozen=True)
class Row:
    """A judged row of a log; ``rule`` is that which dropped it."""

    model: str
    traffic_class: str
    ts: int | None
    rule: Rule | None = None
    prompt: int = 0
    output: int = 0
    cached: int = 0
    id: Any = None
    rank: int | None = None
    logical: Any = None
    adjusted: frozenset[Adjustment] = frozenset()

    @property
    def offered(self) -> bool:
        """Whether it counts as an arrival."""
        return self.rule is None or TREATMENTS[self.rule].offered

    def dropped(self, rule: Rule) -> Row:
        """The same, dropped by a rule."""
        return replace(self, rule=rule, prompt=0, output=0, cached=0, adjusted=frozenset())


@dataclass(frozen=True)
class Asked:
    """Options of the ingest that change what a row means."""

    model: str = ""
    zone: str = "UTC"
    since: int | None = None
    until: int | None = None
    completes: bool = False
    aliases: tuple[tuple[str, str, int | None], ...] = ()
    generations: tuple[str, ...] = ()


NOTHING = Asked()


def micro(when: datetime) -> int:
    return (when - EPOCH) // timedelta(microseconds=1)


def settle(rows: Sequence[Row]) -> list[Row]:
    """Duplicates first, then further attempts at one logical request."""
    rows = list(rows)
    code = {rule: place for place, rule in enumerate(Rule)}
    by_id, by_logical = defaultdict(list), defaultdict(list)
    for place, row in enumerate(rows):
        if row.offered and row.id is not None:
            by_id[row.id].append(place)
    for places in by_id.values():
        best = min(
            places,
            key=lambda p: (
                -(-(1 << 63) if rows[p].rank is None else rows[p].rank), code.get(rows[p].rule, -1), rows[p].ts,
                rows[p].model, -rows[p].prompt, -rows[p].output, -rows[p].cached, rows[p].traffic_class,
                sum(1 << list(Adjustment).index(a) for a in rows[p].adjusted),
            ),
        )  # fmt: skip
        for place in places:
            if place != best:
                rows[place] = rows[place].dropped(Rule.DUPLICATE)
    for place, row in enumerate(rows):
        if row.offered and row.logical is not None:
            by_logical[row.logical].append(place)
    for places in by_logical.values():
        places.sort(key=lambda p: (rows[p].ts, code.get(rows[p].rule, -1), rows[p].model, rows[p].prompt,
                                   rows[p].output, rows[p].cached))  # fmt: skip
        kept = [place for place in places if rows[place].rule is None]
        for place in kept[1:]:
            rows[place] = replace(rows[place], adjusted=rows[place].adjusted | {Adjustment.RETRY})
        for place in places:
            if rows[place].rule is Rule.REJECTED and (kept or place != places[-1]):
                rows[place] = rows[place].dropped(Rule.REJECTED_RETRIED)
    return rows


@dataclass(frozen=True)
class Reference:
    """All tables as ``{key: values}``, and the figures of the manifest."""

    counts: dict[str, Any]
    models: dict[str, int]
    window: tuple[int, int]
    resolution: int
    lengths: dict[Any, Any]
    tail: dict[Any, int]
    rates: dict[Any, Any]
    burst: dict[Any, Any]
    caps: dict[str, Any]
    cached: dict[Any, Any]


def reference(
    judged: Iterable[Row], asked: Asked = NOTHING, malformed: int = 0, window: tuple[int, int] | None = None
) -> Reference:
    """Everything that an ingest writes."""
    rows = settle(list(judged))
    kept, offered = [r for r in rows if r.rule is None], [r for r in rows if r.offered]
    dropped = Counter(row.rule.value for row in rows if row.rule is not None)
    dropped[Rule.MALFORMED.value] += malformed
    low, high = span(rows, offered, asked) if window is None else window
    clocks = [r for r in rows if r.ts is not None and (r.offered or r.rule is Rule.OTHER_MODEL)]
    seen = [r.ts for r in clocks if low <= r.ts <= high]
    tick, exact = resolution(seen, low)
    end = high if window else max(high + tick, low + MINUTE)
    minutes = rates(offered)
    peak = busiest(minutes)
    return Reference(
        counts={
            "rows_read": len(rows) + malformed, "kept": len(kept), "offered": len(offered),
            "dropped_by_reason": {name: n for name, n in dropped.items() if n},
            "adjusted_by_reason": dict(Counter(a.value for row in kept for a in row.adjusted)),
        },
        models=dict(Counter(row.model for row in kept)),
        window=(low, end),
        resolution=tick,
        lengths=cells(kept, "all") | cells([r for r in kept if (r.model, r.ts // MINUTE) in peak], "peak"),
        tail=tail(kept),
        rates=minutes,
        burst=windows(offered, low, end, tick, exact) | batches(offered),
        caps=caps(kept),
        cached=cached(kept),
    )  # fmt: skip


def span(rows: Sequence[Row], offered: Sequence[Row], asked: Asked) -> tuple[int, int]:
    """Of all rows with a believable time; rows that no rule on time has seen may be a year off."""
    low, high = min(r.ts for r in offered) - 366 * DAY, max(r.ts for r in offered) + 366 * DAY
    low = low if asked.since is None else max(low, asked.since)
    high = high if asked.until is None else min(high, asked.until - 1)
    times = [r.ts for r in rows if r.ts is not None and r.rule not in TIMELESS and low <= r.ts <= high]
    return min(times), max(times)


def resolution(stamps: Sequence[int], start: int) -> tuple[int, bool]:
    """Of the busiest hour: the divisor of all gaps, or the usual gap where ties and even gaps show a clock."""
    hours = Counter((ts - start) // HOUR for ts in stamps)
    most = max(hours.values())
    hour = min(h for h, n in hours.items() if n == most)
    distinct = sorted({ts for ts in stamps if (ts - start) // HOUR == hour})
    gaps = [b - a for a, b in pairwise(distinct)]
    if not gaps:
        return 1, True
    divisor = reduce(math.gcd, gaps)
    tenth, median = np.percentile(gaps, [10, 50])
    if 1 - len(distinct) / most >= 0.2 and tenth >= median / 2 and tenth > divisor:
        return round(tenth), False
    return divisor, True


def edge(tokens: int) -> tuple[int, int]:
    place = bisect_right(EDGES, tokens)
    return EDGES[place - 1], EDGES[place]


def cells(kept: Iterable[Row], period: str) -> dict[Any, Any]:
    found = defaultdict(list)
    for r in kept:
        found[r.model, r.traffic_class, period, *edge(r.prompt), *edge(r.output)].append((r.prompt, r.output, r.cached))
    return {
        key: (
            len(rows), sum(p for p, _, _ in rows), sum(o for _, o, _ in rows), sum(c for _, _, c in rows),
            float(sum(p * p for p, _, _ in rows)), float(sum(p * o for p, o, _ in rows)),
            float(sum(o * o for _, o, _ in rows)),
            max(p for p, _, _ in rows), max(o for _, o, _ in rows), max(p + o for p, o, _ in rows),
        )
        for key, rows in found.items()
    }  # fmt: skip


def tail(kept: Iterable[Row]) -> dict[Any, int]:
    by_model = defaultdict(list)
    for r in kept:
        by_model[r.model].append((r.prompt, r.output))
    found: Counter[Any] = Counter()
    for model, pairs in by_model.items():
        least = sorted(map(sum, pairs), reverse=True)[:1000][-1]
        found.update((model, *pair) for pair in pairs if sum(pair) >= least)
    return dict(found)


def rates(offered: Iterable[Row]) -> dict[Any, Any]:
    found: dict[Any, list[int]] = defaultdict(lambda: [0, 0, 0])
    for r in offered:
        cell = found[r.model, r.ts // MINUTE]
        cell[0], cell[1], cell[2] = cell[0] + 1, cell[1] + r.prompt, cell[2] + r.output
    return {key: tuple(cell) for key, cell in found.items()}


def busiest(minutes: Mapping[Any, Any]) -> set[Any]:
    """By tokens, then arrivals; equal ones share the better rank; the busiest twentieth."""
    by_model = defaultdict(list)
    for (model, minute), (n, prompt, output) in minutes.items():
        by_model[model].append(((prompt + output, n), minute))
    found = set()
    for model, weights in by_model.items():
        order = sorted((weight for weight, _ in weights), reverse=True)
        better = {weight: place for place, weight in reversed(list(enumerate(order)))}
        for weight, minute in weights:
            if better[weight] < 0.05 * (len(order) - 1) or len(order) == 1:
                found.add((model, minute))
    return found


def windows(offered: Iterable[Row], low: int, end: int, tick: int, exact: bool) -> dict[Any, Any]:
    """Windows, mean, variance, index of dispersion, maximum and whether the stamps and the window are good enough."""
    found = {}
    arrivals = defaultdict(list)
    for r in offered:
        arrivals[r.model].append(r.ts - low)
    for scale in (1, 5, 15, 60, 300, 3600):
        step = scale * 1_000_000
        bins = [min(end - low - block, HOUR) // step for block in range(0, end - low, HOUR)]
        fine = (exact and step % tick == 0) or step >= 10 * tick
        for model, times in arrivals.items():
            places = [(ts // HOUR, ts % HOUR // step) for ts in times]
            counts = Counter((block, place) for block, place in places if place < bins[block])
            found[model, "window", float(scale)] = spread(counts, bins, scale, fine)
    return found


def spread(counts: Mapping[tuple[int, int], int], bins: Sequence[int], scale: int, fine: bool) -> tuple[Any, ...]:
    """Within blocks of an hour; at an hour, between neighbouring ones."""
    total, of_block = sum(counts.values()), Counter()
    for (block, _), n in counts.items():
        of_block[block] += n
    if scale == 3600:
        hours = [of_block[block] for block, n in enumerate(bins) if n]
        freedom, squares = len(hours) - 1, Fraction(sum((b - a) ** 2 for a, b in pairwise(hours)), 2)
    else:
        freedom = sum(n - 1 for n in bins if n)
        squares = sum(n * n for n in counts.values()) - sum(Fraction(n * n, bins[b]) for b, n in of_block.items())
    mean = total / sum(bins) if sum(bins) else 0.0
    enough = freedom >= 7 and mean > 0
    variance = float(squares / freedom) if enough else None
    idc = variance / mean if variance is not None else None
    return sum(bins), mean, variance, idc, max(counts.values(), default=0), fine and enough


def batches(offered: Iterable[Row]) -> dict[Any, Any]:
    stamps = Counter((r.model, r.ts) for r in offered)
    sizes = Counter((model, n) for (model, _), n in stamps.items())
    return {(model, "batch", n): times for (model, n), times in sizes.items()}


def caps(kept: Iterable[Row]) -> dict[str, Any]:
    found: dict[str, Any] = defaultdict(dict)
    by_model = defaultdict(list)
    for r in kept:
        by_model[r.model].append(r)
    for model, rows in by_model.items():
        for side in ("prompt", "output"):
            values = [getattr(r, side) for r in rows]
            most = max(values)
            near = sum(value * 1000 >= most * 999 for value in values)
            below = sum(value * 100 >= most * 99 for value in values) - near
            if most >= 100 and near < len(values) and near >= max(5, 3 * below):
                found[model][side] = {"tokens": most, "n": near, "share": near / len(values)}
    return dict(found)


def cached(kept: Iterable[Row]) -> dict[Any, Any]:
    """By model and UTC hour of the week, from Monday 00:00."""
    found: dict[Any, list[int]] = defaultdict(lambda: [0, 0, 0])
    for r in kept:
        when = EPOCH + timedelta(microseconds=r.ts)
        cell = found[r.model, when.weekday() * 24 + when.hour]
        cell[0], cell[1], cell[2] = cell[0] + 1, cell[1] + r.prompt, cell[2] + r.cached
    return {key: tuple(cell) for key, cell in found.items()}


def reuse(prompts: Sequence[tuple[int, Sequence[Any]]], block: int, size: int) -> int:
    """Prompt tokens that an LRU cache of ``size`` blocks answers; prompts are touched from their last block on."""
    cache: OrderedDict[Any, None] = OrderedDict()
    answered = 0
    for tokens, hashes in prompts:
        for depth, name in enumerate(hashes):
            if name not in cache:
                break
            answered += min(max(tokens - depth * block, 0), block)
        for name in reversed(hashes):
            cache[name] = None
            cache.move_to_end(name)
        while len(cache) > size:
            cache.popitem(last=False)
    return answered


def differences(found: Canonical, expected: Reference) -> list[str]:
    """Where the canonical distribution is not the reference: whole numbers and sums to the last bit."""
    manifest = found.manifest
    shown = [
        ("counts", {name: getattr(manifest.counts, name) for name in expected.counts}, expected.counts),
        ("models", manifest.models, expected.models),
        ("window", {"": (manifest.window_start_us, manifest.window_end_us)}, {"": expected.window}),
        ("resolution", {"": manifest.ts_resolution_ms}, {"": expected.resolution / 1000}),
        ("caps", manifest.caps, expected.caps),
        ("lengths", _keyed(found.lengths.drop_columns(["coupling"]), 7), expected.lengths),
        ("tail", {key: n for key, (n,) in _keyed(found.tail, 3).items()}, expected.tail),
        ("rates", {(m, micro(t.replace(tzinfo=UTC)) // MINUTE): v for (m, t), v in _keyed(found.rates, 2).items()},
         expected.rates),
        ("burst", _bursts(found.burst), expected.burst),
    ]  # fmt: skip
    if found.prefix is not None and "cached" in found.prefix["kind"].to_pylist():
        rows = _keyed(found.prefix.drop_columns(["cache_tokens"]), 3)
        shown.append(("cached", {(m, h): v for (m, kind, h), v in rows.items() if kind == "cached"}, expected.cached))
    return [
        f"{name} {key}: {mine.get(key)} is not {theirs.get(key)}"
        for name, mine, theirs in shown
        for key in sorted({*mine, *theirs}, key=repr)
        if not _same(mine.get(key), theirs.get(key))
    ]


def _keyed(table: pa.Table, keys: int) -> dict[Any, tuple[Any, ...]]:
    """Rows by their first columns; each key stands once."""
    rows = [tuple(row.values()) for row in table.to_pylist()]
    found = {row[:keys]: row[keys:] for row in rows}
    assert len(found) == len(rows)
    return found


def _bursts(table: pa.Table) -> dict[Any, Any]:
    rows = table.to_pylist()
    figures = ("windows", "mean_n", "var_n", "idc", "max_n", "resolution_ok")
    return {
        (r["model"], "window", r["scale_s"]): tuple(r[name] for name in figures) for r in rows if r["kind"] == "window"
    } | {(r["model"], "batch", r["max_n"]): r["windows"] for r in rows if r["kind"] == "batch"}


def _same(mine: Any, theirs: Any) -> bool:
    if isinstance(mine, tuple) and isinstance(theirs, tuple):
        return len(mine) == len(theirs) and all(map(_same, mine, theirs))
    if isinstance(mine, float) and isinstance(theirs, float):
        return mine == theirs or math.isclose(mine, theirs, rel_tol=1e-14)
    return bool(mine == theirs)
