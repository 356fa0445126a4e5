"""What `planner watch` prints."""

from __future__ import annotations

import math

from rich.console import Console
from rich.table import Table
from rich.text import Text

from planner.cli.traffic_folders import printable
from planner.observe.verdicts import PoolWatch, Row, Watch


def show(found: Watch, screen: Console) -> None:
    """The comparison for a reader."""
    span = f", {found.start:%Y-%m-%d %H:%M} to {found.end:%Y-%m-%d %H:%M} UTC" if found.start and found.end else ""
    screen.print(Text(f"{printable(found.title)} (plan {found.run_id}){span}", style="bold"))
    for pool in found.pools:
        screen.print()
        seen = any(row.observed is not None for row in pool.rows)
        verdict = f"{len(pool.off)} off" if pool.off else "within the plan" if seen else "not seen"
        period = f", period {printable(pool.period)}" if pool.period else ""
        screen.print(Text(f"{printable(pool.pool)}: {verdict}{period}", style="bold"))
        for number, words in enumerate(pool.off, start=1):
            screen.print(Text(f"  {number}. {words}"))
        screen.print(_table(pool))
        if pool.deviation is not None:
            screen.print(Text(f"  {usage_words(pool)}"))
        for line in (*(f"missing: {name}" for name in pool.missing), *pool.notes):
            screen.print(Text(f"  {printable(line)}", style="dim"))
    for note in found.notes:
        screen.print(Text(f"Note: {printable(note)}"))


def usage_words(pool: PoolWatch) -> str:
    """The KV usage over the planned one, as a product of what explains it."""
    assert pool.deviation is not None
    parts = sorted(((row.figure, row.effect or 0.0) for row in pool.rows if row.assumption), key=lambda p: -abs(p[1]))
    said = [f"{name} x{math.exp(effect):.2f}" for name, effect in parts if abs(effect) >= 0.005]
    rest = pool.unexplained or 0.0
    said += [f"not explained x{math.exp(rest):.2f}"] if abs(rest) >= 0.005 else []
    return f"KV usage is x{math.exp(pool.deviation):.2f} the planned: {', '.join(said) if said else 'as planned'}"


def _table(pool: PoolWatch) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 2))
    for head in ("", "observed", "plan", "", ""):
        table.add_column(head, justify="right" if head else "left")
    for row in pool.rows:
        if row.observed is not None:
            table.add_row(row.figure, f"{row.observed:,.4g}", _planned(row), row.unit, row.verdict.value)
    return table


def _planned(row: Row) -> str:
    if row.high is None:
        return "-" if row.low is None else f"from {row.low:,.4g}"
    if row.low == row.high:
        return f"{row.high:,.4g}"
    return f"{row.low:,.4g} to {row.high:,.4g}" if row.low else f"up to {row.high:,.4g}"
