"""`planner replay-week`: real requests against a plan's week, whose replicas come, warm up, and go by period."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from planner.catalog.load import load_catalog
from planner.cli.replay_shared import (
    REFUTED,
    PartOption,
    PlanArgument,
    RequestOption,
    TrafficOption,
    figure,
    finite,
    needed,
    sources_of,
    stretch_of,
    traces_of,
)  # fmt: skip
from planner.cli.traffic_folders import console, printable
from planner.errors import InputError, Problem, Problems
from planner.plan import FleetPlan
from planner.plan_file import plan_at
from planner.replay.engines import engines_of
from planner.replay.week import LEAD, TAIL, WEEK, Week, WeekAsk, replay_week
from planner.replay.week_told import HourSeen, PeriodSeen, WeekPool
from planner.report import facts
from planner.traffic.season import slot_name


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("replay-week")(run)


def run(
    plan: PlanArgument,
    traffic: TrafficOption = None,
    request: RequestOption = None,
    part: PartOption = "0:1",
    pool: Annotated[
        list[str] | None, typer.Option("--pool", help="Pool of the plan; repeatable. Default: all.")
    ] = None,
    hours: Annotated[
        str, typer.Option("--hours", metavar="FROM:TO", help="Hours of the week, from Monday 00:00 UTC.")
    ] = f"0:{WEEK}",
    full: Annotated[
        bool, typer.Option("--full", help="Replay every hour; else one of each pair of periods that follow each other.")
    ] = False,
    share: Annotated[float, typer.Option(help="Factor on every rate.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Of the moments of the log.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print all hours as JSON.")] = False,
) -> None:
    """Replay the week: each period's replicas at its planning rate, with the warm-up at every change.

    Exit code 1 where a promise is refuted in a period, or a request found no replica.
    """
    problems = Problems()
    known = problems.attempt(lambda: plan_at(plan))
    stretch = problems.attempt(lambda: stretch_of(part))
    span = problems.attempt(lambda: _hours(hours))
    problems.raise_if_any()
    assert known is not None
    assert stretch is not None
    assert span is not None
    sources = problems.attempt(lambda: sources_of(known, traffic or [], request, "auto", []))
    engines = problems.attempt(lambda: engines_of(known, load_catalog()))
    problems.raise_if_any()
    assert sources is not None
    assert engines is not None
    ask = WeekAsk(*span, tuple(pool or ()), full, share, seed)
    traces = traces_of(needed(known, sources, ask.pools), stretch, "this part")
    screen = Console(stderr=True)
    with Progress(console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task("hours", total=None)
        result = replay_week(
            known, engines, traces, ask, lambda done, total: bar.update(task, completed=done, total=total)
        )
    if as_json:
        typer.echo(json.dumps(_as_json(known, result), indent=1))
    else:
        _print(known, result, console())
    if not result.passed:
        raise typer.Exit(REFUTED)


def _hours(text: str) -> tuple[int, int]:
    low, colon, high = text.partition(":")
    if not (colon and low.isdecimal() and high.isdecimal() and len(low) < 4 and len(high) < 4):
        raise InputError(Problem("--hours", f"'{text}' is no stretch of hours", "Write FROM:TO, such as 0:24"))
    return int(low), int(high)


# ------------------------------------------------------------------------------------------------------------ printed


def _print(plan: FleetPlan, result: Week, screen: Console) -> None:
    ask = result.ask
    screen.print(Text(f"{printable(plan.title)} (plan {plan.run_id})", style="bold"))
    every = (
        "every hour" if ask.full else "one hour of each pair of periods that follow each other stands for all of them"
    )
    screen.print(
        Text(
            f"hours {ask.first} to {ask.last} of the week from Monday 00:00 UTC, {len(result.hours)} replayed "
            f"({every}); seed {ask.seed}; {ask.share:g} x the planning rate in the busiest ten minutes. "
            f"Each hour comes after {LEAD} min of lead and has {TAIL} min to end, not counted. "
            "Figures are means by period; promises are judged apart in steady hours and in those after a change."
        )
    )
    screen.print(_periods(result))
    for pool in result.pools:
        name = printable(pool.pool.name)
        for hour in pool.changes:
            screen.print(Text(f"{name}: {_change(pool, hour)}"))
        screen.print(
            Text(
                f"{name}: USD {_money(pool.usd_per_mtok)} per Mtok served at these rates; the plan's "
                f"{_money(pool.usd_per_mtok_planned)} is at its mean rates"
            )
        )
    for note in (*result.notes, *(f"{pool.pool.name}: {note}" for pool in result.pools for note in pool.notes)):
        screen.print(Text(f"Note: {printable(note)}"))
    left_out = [m for m in facts.models(plan) if m not in {pool.pool.model for pool in result.pools}]
    if left_out:
        screen.print(
            Text(f"Not replayed, no log is given or its pools are not asked for: {', '.join(map(printable, left_out))}")
        )
    refuted = [word for pool in result.pools for word in _refuted(pool)]
    screen.print(Text(f"refuted: {', '.join(map(printable, refuted))}" if refuted else "every promise stands", "bold"))


def _periods(result: Week) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for number, name in enumerate(
        ("pool", "period", "hours", "replicas", "requests", "refused", "turned away", "unfinished", "over pool",
         "TTFT ms", "TPOT ms", "busy", "USD/Mtok", "")
    ):  # fmt: skip
        table.add_column(name, justify="left" if number < 2 or not name else "right")
    for pool in result.pools:
        for period in pool.periods:
            table.add_row(*_row(pool, period))
    return table


def _row(pool: WeekPool, row: PeriodSeen) -> list[Text]:
    limits = {word: facts.margin(pool.pool, word) for word in ("ttft", "tpot")}
    ttft, tpot = (
        f"{_ms(value)}{f' of {limit.limit:,.0f}' if limit is not None else ''}"
        for value, limit in ((row.ttft_ms, limits["ttft"]), (row.tpot_ms, limits["tpot"]))
    )
    ok = not row.turned_away and all(p.passed for p in row.promises)
    cells = (
        pool.pool.name, row.period, f"{row.hours}", f"{row.replicas}", f"{row.requests:,}", f"{row.refused:,}",
        f"{row.turned_away:,}", f"{row.unfinished:,}", f"{row.short_share:.3%}", ttft, tpot, f"{row.busy_share:.1%}",
        _money(row.usd_per_mtok), "ok" if ok else "REFUTED",
    )  # fmt: skip
    return [Text(printable(cell)) for cell in cells]


def _change(pool: WeekPool, hour: HourSeen) -> str:
    names = [period.period for period in pool.pool.periods]
    return (
        f"{slot_name(hour.number)} UTC, {hour.replicas_before} to {hour.replicas} replicas ({names[hour.before]} to "
        f"{names[hour.period]}, {hour.weight} such hour{'s' if hour.weight > 1 else ''}): worst minute is "
        f"{hour.worst_minute + 1}, TTFT {_ms(hour.worst_ttft_ms)} ms"
    )


def _refuted(pool: WeekPool) -> list[str]:
    found = [
        f"{pool.pool.name} {p.constraint} in {row.period} ({figure(p.observed.value, p.unit)}, allowed "
        f"{figure(p.limit, p.unit)})"
        for row in pool.periods
        for p in row.promises
        if not p.passed
    ]
    return found + [f"{pool.pool.name} turned away in {row.period}" for row in pool.periods if row.turned_away]


def _ms(value: float) -> str:
    return f"{value:,.0f}" if math.isfinite(value) else "none"


def _money(value: float) -> str:
    return f"{value:.4f}" if math.isfinite(value) else "none"


def _as_json(plan: FleetPlan, result: Week) -> dict[str, Any]:
    pools = [
        {
            "pool": pool.pool.name,
            "passed": pool.passed,
            "usd_per_mtok": pool.usd_per_mtok,
            "usd_per_mtok_planned": pool.usd_per_mtok_planned,
            "periods": [
                {**asdict(row), "promises": [{**asdict(p), "passed": p.passed} for p in row.promises]}
                for row in pool.periods
            ],
            "hours": [asdict(hour) for hour in pool.hours],
            "notes": pool.notes,
        }
        for pool in result.pools
    ]
    found: dict[str, Any] = finite(
        {"plan": plan.run_id, "passed": result.passed, "asked": asdict(result.ask), "pools": pools,
         "notes": result.notes}
    )  # fmt: skip
    return found
