"""`planner replay`: real requests against a plan's replicas, promise by promise."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from planner import units
from planner.catalog.load import load_catalog
from planner.cli.replay_files import Kept, kept_in
from planner.cli.replay_means import print_means
from planner.cli.replay_shared import REFUTED, figure, sources_of, stretch_of, traces_of
from planner.cli.traffic_folders import console, printable
from planner.errors import Problems
from planner.plan import FleetPlan
from planner.plan_file import plan_at
from planner.replay.engines import EDGES, PoolEngine, engines_of
from planner.replay.fleet import Ask, PoolReplay, Replay, least_replicas, replay_fleet
from planner.replay.mean_based import MeanFleet, mean_fleets
from planner.replay.promises import Observed, Promise
from planner.replay.trace import Trace
from planner.report import facts


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("replay")(run)


def run(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="A plan.json, or its folder.")],
    traffic: Annotated[
        list[str] | None,
        typer.Option(
            "--traffic",
            metavar="LOG[=MODEL]",
            help="Log of requests, or a folder of logs; =MODEL names the model of the plan. Repeatable.",
        ),
    ] = None,
    request: Annotated[
        Path | None,
        typer.Option("--request", help="Take every model's log, format and options from this request instead."),
    ] = None,
    log_format: Annotated[str, typer.Option("--format", help="Format of --traffic; auto tells it.")] = "auto",
    option: Annotated[
        list[str] | None, typer.Option("--option", metavar="NAME=VALUE", help="Option of the reader; repeatable.")
    ] = None,
    part: Annotated[
        str, typer.Option("--part", metavar="FROM:TO", help="Stretch of each log, as shares: 0.5:1 is the second half.")
    ] = "0:1",
    hours: Annotated[float, typer.Option(help="Length of each repeat.")] = 1.0,
    repeat: Annotated[int, typer.Option(help="Independent repeats, from other moments of the log.")] = 5,
    seed: Annotated[int, typer.Option(help="Of the moments.")] = 0,
    stress: Annotated[float, typer.Option(help="Factor on the planning rate.")] = 1.0,
    sustained: Annotated[
        bool,
        typer.Option(
            "--sustained", help="Keep the planning rate all the time; else the busiest ten minutes have it, as planned."
        ),
    ] = False,
    edge: Annotated[str, typer.Option(help=f"Edge of the speed band: {', '.join(EDGES)}. Default: the plan's.")] = "",
    slower: Annotated[float, typer.Option(help="Factor on every step time: 1.2 is a fifth slower.")] = 1.0,
    lose: Annotated[
        list[str] | None, typer.Option(metavar="POOL[=N]", help="Replicas that are gone, 1 unless stated; repeatable.")
    ] = None,
    least: Annotated[
        bool,
        typer.Option(help="Also with one replica fewer in each pool, one at a time, and the rate kept all the time."),
    ] = False,
    mean_based: Annotated[
        bool,
        typer.Option(
            "--mean-based", help="Also with the replicas of the rule of means, 1.5 times mean use, beside the plan's."
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="Folder for the plan's files with the replay in them: study, workbook, page, tables. The plan is not "
            "solved again.",
        ),
    ] = None,
) -> None:
    """Replay real requests on the replicas of a plan's busiest period, at its planning rate.

    Exit code 1 where a promise is refuted: its whole interval of confidence lies beyond the limit.
    """
    problems = Problems()
    known = problems.attempt(lambda: plan_at(plan))
    stretch = problems.attempt(lambda: stretch_of(part))
    if edge and edge not in EDGES:
        problems.add("--edge", f"'{edge}' is none of {', '.join(EDGES)}")
    if not (slower > 0 and math.isfinite(slower)):
        problems.add("--slower", "must be above 0")
    problems.raise_if_any()
    assert known is not None
    assert stretch is not None
    sources = problems.attempt(lambda: sources_of(known, traffic or [], request, log_format, option or []))
    gone = problems.attempt(lambda: _lost(known, lose or []))
    engines = problems.attempt(lambda: engines_of(known, load_catalog(), edge, slower))
    kept = problems.attempt(lambda: kept_in(output, plan, known, part=part, edge=edge, slower=slower))
    problems.raise_if_any()
    assert sources is not None
    assert gone is not None
    assert engines is not None
    traces = traces_of(sources, stretch, part)
    ask = Ask(units.hours_to_s(hours), repeat, seed, stress, gone, sustained)
    files = {model: source.path.name for model, source in sources.items()}
    with kept.ready() if kept is not None else nullcontext():
        _replay(known, engines, traces, ask, Beside(least, mean_based), as_json, kept, files)


@dataclass(frozen=True)
class Beside:
    """What is replayed beside the plan."""

    least: bool
    means: bool


def _replay(
    plan: FleetPlan, engines: Sequence[PoolEngine], traces: dict[str, Trace], ask: Ask, beside: Beside, as_json: bool,
    kept: Kept | None, files: Mapping[str, str],
) -> None:  # fmt: skip
    screen = Console(stderr=True)
    with screen.status("replaying") as status:
        result = replay_fleet(plan, engines, traces, ask, status.update)
        fewer = least_replicas(plan, engines, traces, ask, status.update) if beside.least else ()
        means = mean_fleets(plan, engines, traces, ask, status.update) if beside.means else ()
        status.update("writing the files")
        written = kept.write(result, files, fewer, means) if kept is not None else ()
    if as_json:
        typer.echo(json.dumps(_as_json(plan, result, fewer, means, beside), indent=1))
    else:
        _print(plan, result, fewer, beside.least, console())
        if beside.means:
            print_means(means, console())
        if written:
            typer.echo(f"\nwritten: {', '.join(map(str, written))}")
    if not result.passed:
        raise typer.Exit(REFUTED)


def _lost(plan: FleetPlan, texts: list[str]) -> dict[str, int]:
    names = {pool.name for pool in plan.pools}
    found: dict[str, int] = {}
    problems = Problems()
    for text in texts:
        name, _, count = (text, "", "1") if text in names else text.rpartition("=")
        if name not in names:
            problems.add("--lose", f"'{name or text}' is no pool of the plan", f"One of {', '.join(sorted(names))}")
        elif not count.isdigit() or int(count) < 1:
            problems.add("--lose", f"'{count}' is no number of replicas", "Write POOL=N")
        else:
            found[name] = int(count)
    problems.raise_if_any()
    return found


# ------------------------------------------------------------------------------------------------------------ printed


def _print(plan: FleetPlan, result: Replay, fewer: Sequence[PoolReplay], least: bool, screen: Console) -> None:
    ask = result.ask
    rates = ", ".join(f"{printable(name)} {rate:,.1f}/s" for name, rate in result.rates_per_s.items())
    screen.print(Text(f"{printable(plan.title)} (plan {plan.run_id})", style="bold"))
    when = "all the time" if ask.sustained else "in the busiest ten minutes"
    screen.print(Text(f"{ask.repeats} repeats of {ask.hours:g} h, seed {ask.seed}; {when}: {rates}"))
    screen.print(_table(result.pools))
    for pool in result.pools:
        for note in pool.notes:
            screen.print(Text(f"Note: {printable(pool.pool.name)}: {note}"))
    left_out = [name for name in facts.models(plan) if name not in result.rates_per_s]
    if left_out:
        screen.print(Text(f"Not replayed, no log is given: {', '.join(map(printable, left_out))}"))
    refuted = [f"{p.pool} {p.constraint}" for pool in result.pools for p in pool.promises if not p.passed]
    screen.print(Text(f"refuted: {', '.join(refuted)}" if refuted else "every promise stands", style="bold"))
    if least:
        screen.print()
        screen.print(Text("With one replica fewer, at the planning rate all the time:", style="bold"))
        for pool in fewer:
            screen.print(Text(f"  {printable(pool.pool.name)}, {pool.replicas}: {_broken(pool)}"))
        if not fewer:
            screen.print(Text("  no pool has more than one"))


def _broken(pool: PoolReplay) -> str:
    broken = [f"{p.constraint} {figure(p.observed.value, p.unit)}" for p in pool.promises if not p.passed]
    return f"breaks {', '.join(broken)}" if broken else "every promise stands: rounding up or a spare keeps it"


def _table(pools: Sequence[PoolReplay]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("pool", "limit", "planned", "observed", "95 % interval", "allowed", ""):
        right = name in ("planned", "observed", "95 % interval", "allowed")
        table.add_column(name, justify="right" if right else "left")
    for pool in pools:
        for row in pool.promises:
            table.add_row(
                Text(printable(f"{row.pool} x{pool.replicas}")), row.constraint, figure(row.planned, row.unit),
                figure(row.observed.value, row.unit), _interval(row), figure(row.limit, row.unit),
                "ok" if row.passed else "REFUTED",
            )  # fmt: skip
    return table


def _interval(row: Promise) -> str:
    if not math.isfinite(row.observed.low):
        return "one repeat" if math.isfinite(row.observed.value) else ""
    return f"{figure(max(row.observed.low, 0.0), row.unit)} to {figure(row.observed.high, row.unit)}"


def _as_json(
    plan: FleetPlan, result: Replay, fewer: Sequence[PoolReplay], means: Sequence[MeanFleet], beside: Beside
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "plan": plan.run_id,
        "passed": result.passed,
        "seed": result.ask.seed,
        "hours": result.ask.hours,
        "stress": result.ask.stress,
        "sustained": result.ask.sustained,
        "rates_per_s": dict(result.rates_per_s),
        "pools": [_pool_json(pool) for pool in result.pools],
    }
    if beside.least:
        found["one_replica_fewer"] = [_pool_json(pool) for pool in fewer]
    if beside.means:
        found["mean_based"] = [
            {
                "pool": each.pool, "planned_replicas": each.planned_replicas, "mean_replicas": each.mean_replicas,
                "promises": [_promise_json(p) for p in each.promises],
                "planned_promises": [_promise_json(p) for p in each.planned_promises],
            }
            for each in means
        ]  # fmt: skip
    return found


def _pool_json(pool: PoolReplay) -> dict[str, Any]:
    return {
        "pool": pool.pool.name,
        "replicas": pool.replicas,
        "passed": pool.passed,
        "promises": [_promise_json(p) for p in pool.promises],
        "repeats": [{key: _known(value) for key, value in asdict(each).items()} for each in pool.repeats],
    }  # fmt: skip


def _promise_json(p: Promise) -> dict[str, Any]:
    return {
        "constraint": p.constraint, "unit": p.unit, "planned": _known(p.planned), "limit": _known(p.limit),
        "observed": _known(p.observed.value), "interval": _pair(p.observed), "passed": p.passed,
    }  # fmt: skip


def _pair(observed: Observed) -> list[float] | None:
    return [observed.low, observed.high] if math.isfinite(observed.low) else None


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
