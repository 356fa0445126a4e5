"""Counts per window of every scale and sizes of batches, from the sums per hour that a warehouse answered with.

Definitions are those of `planner.traffic.tables.bursts`.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping
from fractions import Fraction

import pyarrow as pa

from planner.traffic.schema import BURST
from planner.traffic.tables.definitions import BLOCK_S, MIN_FREEDOM, SCALES_S, Window
from planner.traffic.warehouse.answers import Answers, Row

SECOND_US = 1_000_000


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
