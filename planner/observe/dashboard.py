"""A dashboard of Grafana: a row for each pool, and in every panel a line with the plan's own figure.

Format: grafana.com, "Dashboard JSON model"; schema version 42 is that of Grafana 12, which also reads older ones. The
data source is a variable.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from planner.observe.alerts import RATE_RECORD, REPLICAS_RECORD
from planner.observe.expected import (
    Expected,
    allowed_preemptions_per_s,
    expected_of,
    most_live_ratio,
    quantile_requests,
    quantile_usage,
    target_s,
)
from planner.observe.metrics import Figure
from planner.observe.promql import Queries, number
from planner.plan import FleetPlan

SCHEMA_VERSION = 42
WIDTH, COLUMNS, HEIGHT = 24, 3, 7
"""Grafana's grid has 24 columns."""
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
PLANNED = "plan"


@dataclass(frozen=True)
class Line:
    """One query of a panel, and how its series is called."""

    expr: str
    legend: str


@dataclass(frozen=True)
class Chart:
    """One panel of a pool."""

    title: str
    unit: str
    """Grafana's name of the unit."""
    lines: tuple[Line, ...]


def dashboard_text(plan: FleetPlan, queries: Sequence[Queries]) -> str:
    """The dashboard as JSON; the same plan gives the same bytes."""
    panels: list[dict[str, Any]] = []
    top = 0
    for one in queries:
        charts = tuple(_charts(one, expected_of(plan, one.pool, None), most_live_ratio(plan, one.pool), plan.run_id))
        panels.append(_row(len(panels) + 1, top, f"{one.pool.name} ({one.pool.model}, {one.pool.gpu})"))
        top += 1
        for place, chart in enumerate(charts):
            panels.append(_panel(len(panels) + 1, top + place // COLUMNS * HEIGHT, place % COLUMNS, chart))
        top += -(-len(charts) // COLUMNS) * HEIGHT
    return json.dumps(_dashboard(plan, panels), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _charts(queries: Queries, plan: Expected, live_ratio: float, run_id: str) -> Iterator[Chart]:
    """The panels of a pool whose metrics its release exports."""
    load, speed = queries.pool.load, queries.pool.speed
    tpot = queries.tpot_figure()
    quantile = f"exceeded {load.overflow_probability:.2%} of the time"
    gauges = (
        (Figure.KV_USAGE, "KV cache in use", "percentunit", quantile_usage(queries.pool, live_ratio)),
        (Figure.RUNNING, "Running requests a replica", "short", quantile_requests(queries.pool, live_ratio)),
    )
    for figure, title, unit, most in gauges:
        if queries.exported(figure):
            yield Chart(title, unit, (Line(queries.per_replica(figure), "mean"), _constant(most, quantile)))
    if queries.exported(Figure.WAITING):
        yield Chart(
            "Waiting requests a replica", "short", (Line(queries.per_replica(Figure.WAITING), "mean"), _constant(0, ""))
        )
    if queries.exported(Figure.TTFT):
        percentile = speed.ttft_percentile
        seen = Line(queries.quantile(Figure.TTFT, percentile), f"P{100 * percentile:g}")
        yield Chart("Time to first token", "s", (seen, _constant(plan.ttft_s, ""), *_target(queries, "ttft")))
    if queries.exported(tpot):
        lines = (Line(queries.mean(tpot), "mean"), Line(queries.quantile(tpot, 0.95), "P95"))
        yield Chart("Time per output token", "s", (*lines, _constant(plan.tpot_s, "mean"), *_target(queries, "tpot")))
    if queries.exported(Figure.PROMPT_TOKENS, Figure.OUTPUT_TOKENS):
        tokens = plan.prompt_tokens + plan.output_tokens
        planned = Line(f"{number(tokens)} * {_record(RATE_RECORD, queries, run_id)}", f"{PLANNED}: most in this hour")
        busiest = _constant(tokens * plan.planning_rate_per_s, "busiest period")
        yield Chart(
            "Tokens, prompts and outputs", "short", (Line(queries.tokens_per_s(), "tokens/s"), planned, busiest)
        )
    if queries.exported(Figure.PREEMPTIONS):
        allowed = _constant(allowed_preemptions_per_s(queries.pool), "allowed")
        yield Chart("Preemptions", "ops", (Line(queries.per_s(Figure.PREEMPTIONS), "per s"), allowed))
    replicas = Line(_record(REPLICAS_RECORD, queries, run_id), f"{PLANNED}: this hour")
    most_replicas = _constant(queries.pool.replicas, "busiest period")
    yield Chart("Replicas", "short", (Line(queries.up(), "up"), replicas, most_replicas))


def _constant(value: float, what: str) -> Line:
    return Line(f"vector({number(value)})", f"{PLANNED}: {what}" if what else PLANNED)


def _target(queries: Queries, word: str) -> tuple[Line, ...]:
    found = target_s(queries.pool, word)
    return () if found is None else (Line(f"vector({number(found)})", "target"),)


def _record(name: str, queries: Queries, run_id: str) -> str:
    pool = json.dumps(queries.pool.name, ensure_ascii=False)
    return f'{name}{{plan="{run_id}",pool={pool}}}'


def _row(number_: int, top: int, title: str) -> dict[str, Any]:
    place = {"h": 1, "w": WIDTH, "x": 0, "y": top}
    return {"id": number_, "type": "row", "title": _shown(title), "collapsed": False, "gridPos": place, "panels": []}


def _panel(number_: int, top: int, column: int, chart: Chart) -> dict[str, Any]:
    width = WIDTH // COLUMNS
    targets = [
        {
            "refId": chr(ord("A") + k),
            "datasource": SOURCE,
            "expr": line.expr,
            "legendFormat": line.legend,
            "range": True,
        }
        for k, line in enumerate(chart.lines)
    ]
    dashed = {"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [10, 10]}}
    return {
        "id": number_,
        "type": "timeseries",
        "title": chart.title,
        "datasource": SOURCE,
        "gridPos": {"h": HEIGHT, "w": width, "x": column * width, "y": top},
        "fieldConfig": {
            "defaults": {"unit": chart.unit, "min": 0, "custom": {"lineWidth": 1, "fillOpacity": 0}},
            "overrides": [{"matcher": {"id": "byRegexp", "options": "plan.*|target"}, "properties": [dashed]}],
        },
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "none"},
        },
        "targets": targets,
    }


def _dashboard(plan: FleetPlan, panels: list[dict[str, Any]]) -> dict[str, Any]:
    source = {
        "name": "datasource",
        "type": "datasource",
        "label": "Data source",
        "query": "prometheus",
        "current": {},
        "options": [],
        "hide": 0,
        "includeAll": False,
        "multi": False,
        "refresh": 1,
        "regex": "",
        "skipUrlSync": False,
    }
    return {
        "annotations": {"list": []},
        "description": _shown(f"Plan {plan.run_id}, {plan.horizon_start} to {plan.horizon_end}, against its fleet"),
        "editable": True,
        "fiscalYearStartMonth": 0,
        "graphTooltip": 1,
        "id": None,
        "links": [],
        "panels": panels,
        "refresh": "1m",
        "schemaVersion": SCHEMA_VERSION,
        "tags": ["planner"],
        "templating": {"list": [source]},
        "time": {"from": "now-24h", "to": "now"},
        "timepicker": {},
        "timezone": "utc",
        "title": _shown(f"{plan.title}: fleet and plan"),
        "uid": f"planner-{plan.run_id}",
        "version": 1,
    }


def _shown(text: str) -> str:
    """Text for a title: names may hold anything, and ``$`` would begin a variable there."""
    return "".join(c if c.isprintable() else "?" for c in text).replace("$", "$\u200b")[:200]
