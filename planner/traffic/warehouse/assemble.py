"""From the small tables that a warehouse answered with to the canonical distribution; all figures stay whole numbers.

Definitions are those of `planner.traffic.tables`; what is left to do here is small enough for plain Python.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from planner.traffic.buckets import upper_edge
from planner.traffic.grid import hour_of_week
from planner.traffic.ingest import SHORTEST_WINDOW_US
from planner.traffic.prefix import CACHED
from planner.traffic.rules import CODES, TREATMENTS, Rule, adjusted_by_reason
from planner.traffic.schema import ALL, LENGTHS, PEAK, PREFIX, RATES, TAIL, Counts, Coupling
from planner.traffic.tables.definitions import (
    BELOW_CAP_RATIO,
    CAP_COUNT,
    CAP_EXCESS,
    CAP_RATIO,
    CAP_TOKENS,
    Window,
)
from planner.traffic.tables.rows import KEPT
from planner.traffic.warehouse.answers import Answers, Row
from planner.traffic.warehouse.cells import lower_edge

SUMS = ("n", "sum_prompt", "sum_output", "sum_cached", "sum_pp", "sum_po", "sum_oo")
MAXIMA = ("max_prompt", "max_output", "max_total")


def counts(answers: Answers) -> Counts:
    """What became of the rows."""
    by_code: dict[int, int] = defaultdict(int)
    by_mask: dict[int, int] = defaultdict(int)
    for row in answers.rows("verdicts"):
        by_code[row["verdict"]] += row["n"]
        if row["verdict"] == KEPT:
            by_mask[row["adjusted"]] += row["n"]
    kept = by_code.pop(KEPT, 0)
    dropped = {rule: by_code.get(CODES[rule], 0) for rule in Rule}
    return Counts(
        rows_read=kept + sum(dropped.values()),
        kept=kept,
        offered=kept + sum(n for rule, n in dropped.items() if TREATMENTS[rule].offered),
        dropped_by_reason={rule.value: n for rule, n in dropped.items() if n},
        adjusted_by_reason=adjusted_by_reason(by_mask),
    )


def models(answers: Answers) -> dict[str, int]:
    """Kept requests by model."""
    found: dict[str, int] = defaultdict(int)
    for row in answers.rows("verdicts"):
        if row["verdict"] == KEPT:
            found[row["model"]] += row["n"]
    return dict(sorted(found.items()))


def window(answers: Answers) -> Window:
    """The observed window and the resolution of its stamps."""
    (span,) = answers.rows("span")
    start, last = span["start_us"], span["last_us"]
    resolution, exact = _resolution(answers)
    return Window(start, max(last + resolution, start + SHORTEST_WINDOW_US), resolution, exact)


def _resolution(answers: Answers) -> tuple[int, bool]:
    """The divisor of the gaps in the busiest hour, or its spacing: see `planner.traffic.tables.resolution`."""
    gaps = sorted((row["gap_us"], row["n"]) for row in answers.rows("gaps"))
    if not gaps:
        return 1, True
    sizes = np.array([gap for gap, _ in gaps], dtype=np.int64)
    times = np.array([n for _, n in gaps], dtype=np.int64)
    divisor = int(np.gcd.reduce(sizes))
    rows = max(row["n"] for row in answers.rows("hours"))
    ties = 1.0 - (int(times.sum()) + 1) / rows
    spacing, median = np.percentile(np.repeat(sizes, times), [10, 50])
    if ties >= 0.2 and spacing >= 0.5 * median and spacing > divisor:
        return round(float(spacing)), False
    return divisor, True


def rates(answers: Answers) -> pa.Table:
    """Arrivals and tokens per model and minute."""
    rows = sorted(answers.rows("rates"), key=lambda row: (row["model"], row["minute_us"]))
    columns = {name: [row[name] for row in rows] for name in ("model", "n", "sum_prompt", "sum_output")}
    minutes = pa.array([row["minute_us"] for row in rows], type=pa.int64()).cast(pa.timestamp("us"))
    return pa.table({**columns, "minute_utc": minutes}).select(RATES.names).cast(RATES)


def prefix(answers: Answers) -> pa.Table:
    """Prompt and cached tokens of the kept rows by model and UTC hour of the week, as the table states them."""
    found: dict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0, 0])
    for row in answers.rows("rates"):
        sums = found[row["model"], int(hour_of_week(np.int64(row["minute_us"])))]
        for place, name in enumerate(("kept", "sum_prompt", "sum_cached")):
            sums[place] += row[name]
    rows = [
        {"model": model, "kind": CACHED, "hour_of_week": hour, "n": n, "sum_prompt": prompt, "sum_cached": cached}
        for (model, hour), (n, prompt, cached) in sorted(found.items())
        if n
    ]
    return pa.Table.from_pylist(rows, schema=PREFIX)


def lengths(answers: Answers) -> pa.Table:
    """The joint law of the whole window, and of its busiest minutes."""
    cells = answers.rows("lengths")
    rows = [*_period(cells, ALL), *_period([row for row in cells if row["busy"]], PEAK)]
    for side in ("prompt", "output"):
        upper = upper_edge(np.array([row[f"{side}_lo"] for row in rows], dtype=np.int64))
        for row, edge in zip(rows, upper, strict=True):
            row[f"{side}_hi"] = int(edge)
    return pa.Table.from_pylist(rows, schema=LENGTHS)


def _period(cells: Iterable[Row], period: str) -> list[Row]:
    """Cells of the busy and the other minutes together, sorted."""
    found: dict[tuple[Any, ...], Row] = {}
    for cell in cells:
        edges = (lower_edge(cell[f"{side}_octave"], cell[f"{side}_step"]) for side in ("prompt", "output"))
        key = (cell["model"], cell["traffic_class"], *edges)
        row = found.setdefault(key, {**dict.fromkeys(SUMS, 0), **dict.fromkeys(MAXIMA, 0)})
        for name in SUMS:
            row[name] += cell[name]
        for name in MAXIMA:
            row[name] = max(row[name], cell[name])
    keys = ("model", "traffic_class", "prompt_lo", "output_lo")
    shared = {"period": period, "coupling": Coupling.JOINT.value}
    return [{**dict(zip(keys, key, strict=True)), **shared, **_real_squares(found[key])} for key in sorted(found)]


def _real_squares(row: Row) -> Row:
    return {name: float(value) if name in ("sum_pp", "sum_po", "sum_oo") else value for name, value in row.items()}


def tail(answers: Answers) -> pa.Table:
    """The largest totals, longest first."""
    rows = sorted(
        answers.rows("tail"), key=lambda row: (row["model"], -(row["prompt"] + row["output"]), -row["prompt"])
    )
    return pa.Table.from_pylist(list(rows), schema=TAIL)


def caps(answers: Answers) -> dict[str, dict[str, dict[str, float]]]:
    """Lengths that pile up at their maximum: see `planner.traffic.tables.caps`."""
    piles: dict[tuple[str, str], dict[int, int]] = defaultdict(dict)
    for row in answers.rows("caps"):
        piles[row["model"], row["side"]][row["tokens"]] = row["n"]
    totals = models(answers)
    found: dict[str, dict[str, dict[str, float]]] = {}
    for model in totals:
        for side in ("prompt", "output"):
            pile = _pile(piles[model, side], totals[model])
            if pile:
                found.setdefault(model, {})[side] = pile
    return found


def _pile(values: Mapping[int, int], total: int) -> dict[str, float]:
    most = max(values)
    n = sum(k for tokens, k in values.items() if 1000 * tokens >= round(1000 * CAP_RATIO) * most)
    wide = sum(k for tokens, k in values.items() if 100 * tokens >= round(100 * BELOW_CAP_RATIO) * most)
    if most >= CAP_TOKENS and n < total and n >= max(CAP_COUNT, CAP_EXCESS * (wide - n)):
        return {"tokens": most, "n": n, "share": n / total}
    return {}
