"""From the small tables that a warehouse answered with to the canonical distribution; all figures stay whole numbers.

Definitions are those of `planner.traffic.tables`; what is left to do here is small enough for plain Python.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from planner.traffic.buckets import upper_edge
from planner.traffic.ingest import SHORTEST_WINDOW_US
from planner.traffic.prefix import CACHED, hour_of_week
from planner.traffic.rules import CODES, TREATMENTS, Rule, adjusted_by_reason
from planner.traffic.schema import ALL, BURST, LENGTHS, PEAK, PREFIX, RATES, TAIL, Counts, Coupling
from planner.traffic.tables.definitions import (
    BELOW_CAP_RATIO,
    BLOCK_S,
    CAP_COUNT,
    CAP_EXCESS,
    CAP_RATIO,
    CAP_TOKENS,
    MIN_FREEDOM,
    SCALES_S,
    Window,
)
from planner.traffic.warehouse.verdicts import KEPT

SECOND_US = 1_000_000
Row = dict[str, Any]
SUMS = ("n", "sum_prompt", "sum_output", "sum_cached", "sum_pp", "sum_po", "sum_oo")
MAXIMA = ("max_prompt", "max_output", "max_total")


@dataclass(frozen=True)
class Answers:
    """Rows of every query of `planner.traffic.warehouse.queries`, by its name; whole numbers as ``int``."""

    tables: Mapping[str, tuple[Row, ...]]

    def rows(self, name: str) -> tuple[Row, ...]:
        """Rows of one query."""
        return self.tables[name]

    def digest(self) -> str:
        """SHA-256 of all answers, whatever the order of their rows."""
        found = hashlib.sha256()
        for name in sorted(self.tables):
            lines = sorted("\t".join(f"{k}={row[k]}" for k in sorted(row)) for row in self.tables[name])
            found.update("\n".join([name, *lines, ""]).encode())
        return found.hexdigest()


def plain_rows(table: pa.Table) -> tuple[Row, ...]:
    """Rows of an answer: engines give whole numbers as decimals, doubles or integers of any width."""
    return tuple({name: _plain(value) for name, value in row.items()} for row in table.to_pylist())


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, Decimal | float) else value


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
    keys = ("model", "traffic_class", "prompt_lo", "output_lo")
    found: dict[tuple[Any, ...], Row] = {}
    for cell in cells:
        key = tuple(cell[name] for name in keys)
        row = found.setdefault(key, {**dict.fromkeys(SUMS, 0), **dict.fromkeys(MAXIMA, 0)})
        for name in SUMS:
            row[name] += cell[name]
        for name in MAXIMA:
            row[name] = max(row[name], cell[name])
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


def bursts(answers: Answers, seen: Window) -> pa.Table:
    """Counts per window of every scale and sizes of batches: see `planner.traffic.tables.bursts`."""
    hours: dict[str, dict[int, Row]] = defaultdict(dict)
    for row in answers.rows("bursts"):
        hours[row["model"]][row["hour_us"] // (BLOCK_S * SECOND_US)] = row
    last: dict[str, dict[int, int]] = defaultdict(dict)
    for row in answers.rows("last_hour"):
        last[row["model"]][row["second_us"] // SECOND_US] = row["n"]
    rows = [
        _burst_row(model, _blocks(hours[model], last[model], bins, scale), bins, scale, seen)
        for scale in SCALES_S
        for bins in (_bins_per_block(seen, scale),)
        for model in hours
    ]
    rows += [
        {
            "model": r["model"],
            "kind": "batch",
            "scale_s": seen.resolution_us / 1e6,
            "windows": r["n"],
            "max_n": r["size"],
        }
        for r in answers.rows("batches")
    ]
    rows.sort(key=lambda row: (row["model"], row["kind"] != "window", row["scale_s"], row["max_n"]))
    return pa.Table.from_pylist(rows, schema=BURST)


def _bins_per_block(seen: Window, scale_s: int) -> list[int]:
    """Whole windows of ``scale_s`` in each one-hour block; the last block may be short."""
    blocks = max(1, -int(-seen.seconds // BLOCK_S))
    left = seen.seconds - (blocks - 1) * BLOCK_S
    return [BLOCK_S // scale_s] * (blocks - 1) + [int(min(left, BLOCK_S) // scale_s)]


def _blocks(
    hours: Mapping[int, Row], last: Mapping[int, int], bins: list[int], scale_s: int
) -> dict[int, tuple[int, int, int]]:
    """Arrivals, sum of squares and largest count of every block; the last one as far as its windows are whole."""
    found = {
        block: (row["n"], row[f"squares_{scale_s}"], row[f"most_{scale_s}"])
        if scale_s < BLOCK_S
        else (row["n"], row["n"] ** 2, row["n"])
        for block, row in hours.items()
        if block < len(bins)
    }
    final = len(bins) - 1
    if final not in found or bins[final] == BLOCK_S // scale_s:
        return found
    sizes: dict[int, int] = defaultdict(int)
    for second, n in last.items():
        place = second % BLOCK_S // scale_s
        if second // BLOCK_S == final and place < bins[final]:
            sizes[place] += n
    del found[final]
    if sizes:
        found[final] = (sum(sizes.values()), sum(n * n for n in sizes.values()), max(sizes.values()))
    return found


def _burst_row(
    model: str, blocks: Mapping[int, tuple[int, int, int]], bins: list[int], scale_s: int, seen: Window
) -> Row:
    windows = sum(bins)
    mean = sum(total for total, _, _ in blocks.values()) / windows if windows else 0.0
    if scale_s == BLOCK_S:
        hours = [blocks.get(b, (0, 0, 0))[0] for b in range(len(bins)) if bins[b]]
        freedom = len(hours) - 1
        spread = Fraction(sum((b - a) ** 2 for a, b in itertools.pairwise(hours)), 2)
    else:
        freedom = sum(k - 1 for k in bins if k)
        spread = sum((squares - Fraction(total**2, bins[b]) for b, (total, squares, _) in blocks.items()), Fraction())
    enough = freedom >= MIN_FREEDOM and mean > 0
    variance = float(spread / freedom) if enough else None
    return {
        "model": model,
        "kind": "window",
        "scale_s": float(scale_s),
        "windows": windows,
        "mean_n": mean,
        "var_n": variance,
        "idc": variance / mean if variance is not None else None,
        "max_n": max((most for _, _, most in blocks.values()), default=0),
        "resolution_ok": enough and _resolved(seen, scale_s),
    }


def _resolved(seen: Window, scale_s: int) -> bool:
    """Ten ticks a window, or exact ticks that divide it."""
    scale_us = scale_s * SECOND_US
    divides = seen.exact_ticks and scale_us % seen.resolution_us == 0
    return divides or scale_us >= 10 * seen.resolution_us
