"""`planner drill`: what clients see when replicas, instances or a region are lost, a burst comes, or steps are slow."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from planner import units
from planner.catalog.load import load_catalog
from planner.cli.replay_shared import (
    PartOption,
    PlanArgument,
    RequestOption,
    TrafficOption,
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
from planner.replay.drills import DrillAsk, Drilled, DrillKind, drill_fleet
from planner.replay.engines import engines_of


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("drill")(run)


def run(
    plan: PlanArgument,
    traffic: TrafficOption = None,
    request: RequestOption = None,
    part: PartOption = "0:1",
    drill: Annotated[
        list[DrillKind] | None, typer.Option("--drill", help="What goes wrong; repeatable. Default: all that apply.")
    ] = None,
    pool: Annotated[
        list[str] | None, typer.Option("--pool", help="Pool of the plan; repeatable. Default: all.")
    ] = None,
    at: Annotated[int, typer.Option("--at", help="Minute at which it happens.")] = 20,
    minutes: Annotated[
        float, typer.Option("--for", help="Minutes for which replicas are lost; their warm-up comes on top.")
    ] = 10.0,
    hours: Annotated[float, typer.Option(help="Length of the replay, in whole minutes.")] = 1.0,
    repeat: Annotated[int, typer.Option(help="Repeats, from other moments of the log; the worst is told.")] = 1,
    seed: Annotated[int, typer.Option(help="Of the moments.")] = 0,
    slower: Annotated[float, typer.Option(help="Factor on every step time of the slow drill.")] = 1.2,
    burst: Annotated[
        int, typer.Option(help="Requests of the burst; 0: as many of the longest as fill every replica's token pool.")
    ] = 0,
    warm_up: Annotated[
        float | None,
        typer.Option("--warm-up", help="Minutes until a replica that is back serves. Default: the plan's."),
    ] = None,
    hold: Annotated[
        bool,
        typer.Option("--hold", help="The gateway holds requests while no replica runs, else they are turned away."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print all windows as JSON.")] = False,
) -> None:
    """Drill failures: real requests at the planning rate all the time, on the replicas of the busiest period.

    Requests of a lost replica are sent again at once; the time to their first token counts from the first sending.
    """
    problems = Problems()
    known = problems.attempt(lambda: plan_at(plan))
    stretch = problems.attempt(lambda: stretch_of(part))
    length = problems.attempt(lambda: _whole_minutes(hours))
    problems.raise_if_any()
    assert known is not None
    assert stretch is not None
    assert length is not None
    sources = problems.attempt(lambda: sources_of(known, traffic or [], request, "auto", []))
    engines = problems.attempt(lambda: engines_of(known, load_catalog()))
    problems.raise_if_any()
    assert sources is not None
    assert engines is not None
    kinds, pools = tuple(drill or ()), tuple(pool or ())
    ask = DrillAsk(length, at, minutes, kinds, pools, repeat, seed, slower, burst, warm_up, hold)
    with Console(stderr=True).status("drilling") as status:
        traces = traces_of(needed(known, sources, pools), stretch, "this part")
        found = drill_fleet(known, engines, traces, ask, status.update)
    if as_json:
        typer.echo(json.dumps(_as_json(known, ask, found), indent=1))
    else:
        _print(known, ask, found, console())


def _whole_minutes(hours: float) -> int:
    minutes = hours * 60 if math.isfinite(hours) else 0.0
    if minutes < 1 or abs(minutes - round(minutes)) > 1e-6:
        raise InputError(Problem("--hours", f"{hours:g} is no whole number of minutes", "Write 0.5 for half an hour"))
    return round(minutes)


# ------------------------------------------------------------------------------------------------------------ printed


def _print(plan: FleetPlan, ask: DrillAsk, found: Sequence[Drilled], screen: Console) -> None:
    screen.print(Text(f"{printable(plan.title)} (plan {plan.run_id})", style="bold"))
    screen.print(Text(f"{ask.repeats} repeats of {ask.minutes} min, seed {ask.seed}; planning rate all the time"))
    table = Table(box=None, header_style="bold", pad_edge=False)
    for number, name in enumerate(
        ("pool", "drill", "lost", "sent again", "turned away", "worst TTFT ms", "worst TPOT ms", "over pool", "broken",
         "recovered", "tokens served")
    ):  # fmt: skip
        table.add_column(name, justify="left" if number < 2 else "right")
    for told in found:
        table.add_row(*_row(told))
    screen.print(table)
    for told in found:
        screen.print(Text(f"{printable(told.drill.pool)}, {told.drill.name}: {printable(told.sentence)}"))
    for note in dict.fromkeys(f"{told.drill.pool}: {note}" for told in found for note in told.notes):
        screen.print(Text(f"Note: {printable(note)}"))


def _row(told: Drilled) -> list[Text]:
    after = told.recovered_after_s
    share = told.served_tokens / told.served_tokens_undisturbed if told.served_tokens_undisturbed else math.nan
    cells = (
        told.drill.pool, told.drill.name, f"{told.drill.lost} of {told.drill.replicas}" if told.drill.lost else "",
        f"{told.resent:,}", f"{told.turned_away:,}", _ms(told.worst_ttft_ms), _ms(told.worst_tpot_ms),
        "none ran" if math.isnan(told.short_share) else f"{told.short_share:.2%}",
        f"{told.over_s / units.minutes_to_s(1.0):g} min",
        "no" if after is None else f"{after / units.minutes_to_s(1.0):g} min",
        "none" if math.isnan(share) else f"{share:.1%}",
    )  # fmt: skip
    return [Text(printable(cell)) for cell in cells]


def _ms(value: float) -> str:
    return "none" if math.isnan(value) else f"{value:,.0f}"


def _as_json(plan: FleetPlan, ask: DrillAsk, found: Sequence[Drilled]) -> dict[str, Any]:
    drills = [{**finite(asdict(told)), "holds": told.holds} for told in found]
    return {"plan": plan.run_id, "asked": finite(asdict(ask)), "drills": drills}
