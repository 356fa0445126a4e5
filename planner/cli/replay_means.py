"""The rule of means beside the plan, as printed by `planner replay --mean-based`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from planner.cli.traffic_folders import printable
from planner.queueing.live_tokens import MEAN_FACTOR
from planner.replay.mean_based import MeanFleet
from planner.replay.promises import Promise

POOL_FULL = "token pool"
SEATS = "concurrent sequences"


def print_means(means: Sequence[MeanFleet], screen: Console) -> None:
    """One row a pool: replicas, and what clients and pools see of each of the two fleets."""
    screen.print()
    title = f"Replicas by means times {MEAN_FACTOR:g} beside the plan's, at the planning rate all the time:"
    screen.print(Text(title, style="bold"))
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("pool")
    for name in ("replicas", "pool full", "no seat", "TPOT ms", "TTFT ms"):
        table.add_column(f"{name}: means / plan", justify="right")
    table.add_column("broken by means")
    for each in means:
        counts = f"{each.mean_replicas} / {each.planned_replicas}"
        if not each.promises:
            table.add_row(Text(printable(each.pool)), counts, *[""] * 4, "the same count or more: not replayed")
            continue
        cells = (_pair(each, POOL_FULL, "share"), _pair(each, SEATS, "share"), _pair(each, "TPOT"), _pair(each, "TTFT"))
        broken = ", ".join(p.constraint for p in each.promises if not p.passed)
        table.add_row(Text(printable(each.pool)), counts, *cells, broken or "nothing")
    screen.print(table)


def _pair(each: MeanFleet, constraint: str, unit: str = "ms") -> str:
    return f"{_one(each.promises, constraint, unit)} / {_one(each.planned_promises, constraint, unit)}"


def _one(promises: Sequence[Promise], constraint: str, unit: str) -> str:
    value = next((p.observed.value for p in promises if p.constraint.startswith(constraint)), float("nan"))
    if math.isnan(value):
        return "-"
    if math.isinf(value):
        return "none served"
    return f"{value:,.1f}" if unit == "ms" else f"{value:.2%}"
