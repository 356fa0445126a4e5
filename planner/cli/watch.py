"""`planner watch`: a running fleet against its plan, from Prometheus or from metrics that were saved."""

from __future__ import annotations

import math
import re
import time
from pathlib import Path
from typing import Annotated

import typer

from planner.cli.traffic_folders import console
from planner.cli.watch_print import show
from planner.errors import InputError, Problem, Problems
from planner.observe.exported import saved_series
from planner.observe.live import Window, is_address, live_series, token_in
from planner.observe.metrics import metric_names
from planner.observe.tracks import POOL, wanted_names
from planner.observe.watch import TOLERANCE, Ask, watched
from planner.plan_file import plan_at
from planner.prometheus import Series
from planner.traffic.times import check_span, moment_us

OFF = 1
"""Exit code where something is off."""
_SPAN = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)(s|m|h|d)")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("watch")(run)


def run(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="A plan.json, or its folder.")],
    prometheus: Annotated[
        str,
        typer.Option(
            "--prometheus",
            metavar="URL|FILE",
            help="A server; or a file: an answer of its query_range, the text of /metrics, or a folder of them.",
        ),
    ],
    at: Annotated[str, typer.Option("--at", metavar="TIME", help="End of the window (UTC); of a server: now.")] = (""),
    length: Annotated[str, typer.Option("--window", help="Length of the window that ends then: 15m, 2h, 1d.")] = "15m",
    start: Annotated[str, typer.Option("--from", metavar="TIME", help="Start of the window.")] = "",
    end: Annotated[str, typer.Option("--to", metavar="TIME", help="End of the window, with --from.")] = "",
    pool: Annotated[list[str] | None, typer.Option("--pool", help="Pools to look at; repeatable. All by default.")] = (
        None
    ),
    tolerance: Annotated[
        float, typer.Option("--tolerance", help="Share by which a figure may lie outside of what the plan allows.")
    ] = TOLERANCE,
    cached_share: Annotated[
        float, typer.Option("--cached-share", help="Share of prompt tokens that the plan takes as cached.")
    ] = 0.0,
    pool_label: Annotated[str, typer.Option("--pool-label", help="Label of the series that names the pool.")] = POOL,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", metavar="FILE", help="File with the bearer token of the server.")
    ] = None,
    timeout: Annotated[str, typer.Option("--timeout", help="Longest wait for an answer: 30s.")] = "30s",
    every: Annotated[str, typer.Option("--every", help="Look again at this interval, until interrupted: 60s.")] = "",
    rounds: Annotated[int, typer.Option("--rounds", min=0, help="With --every: how often; 0 is without end.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON, one line a round.")] = False,
) -> None:
    """Compare a running fleet with its plan, and say which assumption is off. Exit code 1 where one is."""
    problems = Problems()
    known = problems.attempt(lambda: plan_at(plan))
    times = problems.attempt(lambda: _Times(prometheus, at, start, end, seconds_of("--window", length)))
    token = problems.attempt(lambda: token_in(token_file))
    wait_s = problems.attempt(lambda: seconds_of("--timeout", timeout))
    again_s = problems.attempt(lambda: seconds_of("--every", every) if every else 0.0)
    if not 0 <= tolerance < 1:
        problems.add("--tolerance", f"must be from 0 to below 1 (got {tolerance:g})")
    if not 0 <= cached_share < 1:
        problems.add("--cached-share", f"must be from 0 to below 1 (got {cached_share:g})")
    if every and (at or start or end or not is_address(prometheus)):
        problems.add("--every", "looks at now, again and again", "Give a server, and neither --at, --from nor --to")
    problems.raise_if_any()
    assert known is not None
    assert times is not None
    assert wait_s is not None
    assert token is not None
    ask = Ask(tuple(pool or ()), tolerance, cached_share, pool_label)
    done = 0
    while True:
        window = times.window()
        found = watched(known, _series(prometheus, window, wait_s, token), window, ask)
        if as_json:
            typer.echo(found.model_dump_json())
        else:
            show(found, console())
        done += 1
        if not again_s or done == rounds:
            break
        time.sleep(again_s)
    if not found.within:
        raise typer.Exit(OFF)


def _series(place: str, window: Window, wait_s: float, token: str) -> tuple[Series, ...]:
    if is_address(place):
        return live_series(place, wanted_names(metric_names()), window, wait_s, token)
    return saved_series(Path(place), window.end_s if math.isfinite(window.end_s) else None)


class _Times:
    """Which window is asked for: of a server one that ends now, of a file all of it, unless the options say more."""

    def __init__(self, place: str, at: str, start: str, end: str, window_s: float) -> None:
        self._live = is_address(place)
        self._window_s = window_s
        self._end_s = _moment_s("--at", at) if at else _moment_s("--to", end)
        self._start_s = _moment_s("--from", start)
        if at and (start or end):
            raise InputError(Problem("--at", "excludes --from and --to", "Give one or the other"))
        if end and not start:
            raise InputError(Problem("--to", "needs --from", "Give both, or --at with --window"))
        if self._start_s is not None and self._end_s is not None:
            if not self._start_s < self._end_s:
                raise InputError(Problem("--from", "is not before --to", "Give an earlier time"))
            check_span("--from", self._start_s, self._end_s)

    def window(self) -> Window:
        """The window; where nothing else is said about a server, the clock says when it ends."""
        end_s = self._end_s
        if end_s is None:
            end_s = time.time() if self._live else math.inf
        if self._start_s is not None:
            return Window(self._start_s, end_s)
        return Window(end_s - self._window_s if math.isfinite(end_s) else -math.inf, end_s)


def _moment_s(where: str, text: str) -> float | None:
    found = moment_us(where, text)
    return None if found is None else found / 1e6


def seconds_of(where: str, text: str) -> float:
    """Seconds of a length of time such as ``60s``, ``15m``, ``2h``, ``1d``.

    Raises
    ------
    InputError
        If it is none, or nothing.
    """
    found = _SPAN.fullmatch(text.strip())
    seconds = float(found[1]) * _SECONDS[found[2]] if found else 0.0
    if not seconds > 0:
        raise InputError(Problem(where, f"'{text:.40}' is no length of time", "Write it as 60s, 15m, 2h or 1d"))
    return seconds
