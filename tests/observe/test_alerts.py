"""Alert rules: what they must hold whether or not promtool is there, and with it that they fire when they should."""

from __future__ import annotations

import datetime as dt
import json
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from planner.actuals.timetable import timetable_of
from planner.observe import ALERTS_FILE, files
from planner.observe.alerts import ALERTS
from planner.observe.calendar import calendar_of, replicas_by_period
from planner.plan import Assumption, FleetPlan, PlanPeriod
from planner.plan_file import plan_at
from tests.observe.exposition import State, lines_of, loaded, planned
from tests.report.sample import sample_plan

EXAMPLE = plan_at(Path("tests/data/fleet/plan.json"))
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")
BUSY = PlanPeriod(name="busy hours", hours=20.0, when="Mon-Fri 00-02")
QUIET = PlanPeriod(name="other hours", hours=316.0, when="Mon-Fri 02-24; Sat,Sun 00-24")


def two_weeks() -> FleetPlan:
    """The hand-made plan on two weeks from 1970-01-01, a Thursday: where promtool's clock begins. Hours are UTC."""
    plan = sample_plan()
    pools = tuple(pool.model_copy(update={"engine_version": "0.33.0"}) for pool in plan.pools)
    days = {"horizon_start": dt.date(1970, 1, 1), "horizon_end": dt.date(1970, 1, 15), "periods": (BUSY, QUIET)}
    return plan.model_copy(update={**days, "pools": pools})


def rules(plan: FleetPlan) -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(files(plan)[ALERTS_FILE])["groups"] for rule in group["rules"]]


@pytest.mark.parametrize("plan", [EXAMPLE, sample_plan(), two_weeks()], ids=["example", "sample", "two weeks"])
def test_form(plan: FleetPlan) -> None:
    """One group a pool and the clock; every alert has all that a reader needs, and every expression parses."""
    document = yaml.safe_load(files(plan)[ALERTS_FILE])
    assert set(document) == {"groups"}
    names = [group["name"] for group in document["groups"]]
    assert names == [f"planner clock {plan.run_id}", *(f"planner {pool.name}" for pool in plan.pools)]
    for group, pool in zip(document["groups"][1:], plan.pools, strict=True):
        alerts = [rule for rule in group["rules"] if "alert" in rule]
        assert [rule["alert"] for rule in alerts] == list(ALERTS)
        for rule in alerts:
            assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
            assert rule["labels"]["pool"] == pool.name
            assert rule["labels"]["model"] == pool.model
            assert rule["labels"]["severity"] in ("warning", "critical")
            assert set(rule["annotations"]) == {"summary", "description", "figure", "planned", "action", "run_id"}
            assert rule["annotations"]["run_id"] == plan.run_id
    for rule in rules(plan):
        promql_parser.parse(rule["expr"])


def test_same_plan_same_bytes() -> None:
    assert files(sample_plan()) == files(sample_plan())


def test_another_label() -> None:
    text = files(sample_plan(), "fleet_pool")[ALERTS_FILE]
    assert 'vllm:num_requests_running{fleet_pool="chat/1"}' in text
    assert "target_label: fleet_pool" in text


def of_engine(engine: str, version: str) -> list[dict[str, Any]]:
    plan = sample_plan()
    pool = plan.pools[0].model_copy(update={"engine": engine, "engine_version": version})
    return rules(plan.model_copy(update={"pools": (pool,)}))


def test_names_follow_the_release() -> None:
    """0.10 exports both names of the cache's usage; 0.5.3 of SGLang counts no retractions."""
    by_name = {rule.get("alert"): rule["expr"] for rule in of_engine("vllm", "0.10.1")}
    both = 'avg((vllm:kv_cache_usage_perc{pool="chat/1"} or vllm:gpu_cache_usage_perc{pool="chat/1"}))'
    assert by_name["PlannerKvCacheAbovePlan"].startswith(both)
    assert "vllm:time_per_output_token_seconds_sum" in by_name["PlannerTpotAboveTarget"]
    old = [rule.get("alert") for rule in of_engine("sglang", "0.5.3")]
    new = {rule.get("alert"): rule["expr"] for rule in of_engine("sglang", "0.5.23")}
    assert "PlannerPreemptionsAbovePlan" not in old
    assert "sglang:num_retracted_requests_total" in new["PlannerPreemptionsAbovePlan"]
    assert 'tp_rank=~"|0",pp_rank=~"|0",priority=""' in new["PlannerRunningAbovePlan"]


def test_hostile_names_stay_text() -> None:
    name = "a'b\"c\\d{{ .Labels }}\n$x: #"
    plan = sample_plan()
    pool = plan.pools[0].model_copy(update={"name": name})
    found = rules(plan.model_copy(update={"pools": (pool,)}))
    alert = next(rule for rule in found if rule.get("alert") == "PlannerRunningAbovePlan")
    assert alert["labels"]["pool"] == name.replace("{{", '{{ "{{" }}')
    assert f"pool={json.dumps(name)}" in alert["expr"]
    for rule in found:
        promql_parser.parse(rule["expr"])
    if PROMTOOL:
        check(files(plan.model_copy(update={"pools": (pool,)}))[ALERTS_FILE])


def check(text: str) -> None:
    done = subprocess.run([PROMTOOL, "check", "rules", "/dev/stdin"], input=text, text=True, capture_output=True)  # noqa: PLW1510
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
@pytest.mark.parametrize("plan", [EXAMPLE, sample_plan()], ids=["example", "sample"])
def test_promtool_accepts_them(plan: FleetPlan) -> None:
    check(files(plan)[ALERTS_FILE])


BUSY_MIN, QUIET_MIN = 0, 125
"""Minutes after 1970-01-01 00:00, a Thursday, when samples begin: chat/1 has 3 replicas then, and 1."""
SEEN_MIN = 40
"""From the first sample until it is asked what fires."""


def series(state: State, start_min: int) -> Iterable[dict[str, str]]:
    """Input of promtool: every sample of the state, growing by the minute."""
    wait = f"_x{start_min - 1} " if start_min else ""
    for (name, labels, first), (_, _, then) in zip(lines_of(state, 0.0), lines_of(state, 60.0), strict=True):
        text = ",".join(f"{label}={json.dumps(value)}" for label, value in labels.items())
        step = f"{'+' if then >= first else '-'}{abs(then - first)!r}"
        yield {"series": f"{name}{{{text}}}", "values": f"{wait}{first!r}{step}x{SEEN_MIN}"}


def case(state: State | None, expected: Mapping[str, str], start_min: int) -> dict[str, Any]:
    """A test of promtool: exactly these alerts of chat/1 fire, by severity."""
    own = 'model="chat",pool="chat/1"'
    fired = [
        {"labels": f'ALERTS{{alertname="{name}",alertstate="firing",{own},severity="{level}"}}', "value": 1}
        for name, level in expected.items()
    ]
    asked = {"expr": 'ALERTS{alertstate="firing"}', "eval_time": f"{start_min + SEEN_MIN}m", "exp_samples": fired}
    given = list(series(state, start_min)) if state else []
    return {"interval": "1m", "input_series": given, "promql_expr_test": [asked]}


PLANNED = planned(two_weeks().pools[0], 0)
CHAT = loaded(replace(PLANNED, rate_per_s=0.99 * PLANNED.rate_per_s), 1.0)
LESS = loaded(replace(CHAT, replicas=2, rate_per_s=CHAT.rate_per_s * 0.39), 1.0)
KV, RUN, WAIT = "PlannerKvCacheAbovePlan", "PlannerRunningAbovePlan", "PlannerRequestsWaiting"
SLOW, TARGET, DEMAND = "PlannerDecodeBelowPlan", "PlannerTpotAboveTarget", "PlannerDemandAbovePlan"
GONE, SILENT = "PlannerReplicasMissing", "PlannerMetricsMissing"
FIRE: dict[str, tuple[State | None, dict[str, str], int]] = {
    "as planned": (CHAT, {}, BUSY_MIN),
    "cache full": (replace(CHAT, usage=1.0), {KV: "warning"}, BUSY_MIN),
    "many running": (replace(CHAT, live=1200.0), {RUN: "warning"}, BUSY_MIN),
    "waiting": (replace(CHAT, waiting=5.0), {WAIT: "warning"}, BUSY_MIN),
    "preempted": (replace(CHAT, preemptions_per_s=0.1), {"PlannerPreemptionsAbovePlan": "warning"}, BUSY_MIN),
    "late": (replace(CHAT, ttft_s=1.6), {"PlannerTtftAboveTarget": "critical"}, BUSY_MIN),
    "slower than planned": (replace(CHAT, tpot_s=0.045), {SLOW: "warning"}, BUSY_MIN),
    "slower than the target": (replace(CHAT, tpot_s=0.055), {SLOW: "warning", TARGET: "critical"}, BUSY_MIN),
    "slower under more load": (replace(CHAT, tpot_s=0.045, live=CHAT.live * 1.1), {}, BUSY_MIN),
    "more demand": (replace(CHAT, rate_per_s=CHAT.rate_per_s * 1.2), {DEMAND: "warning"}, BUSY_MIN),
    "a replica less": (replace(CHAT, replicas=2), {GONE: "critical"}, BUSY_MIN),
    "nothing at all": (None, {SILENT: "critical", GONE: "critical"}, BUSY_MIN),
    "fewer in a quiet hour": (LESS, {}, QUIET_MIN),
    "too much for a quiet hour": (replace(LESS, rate_per_s=CHAT.rate_per_s), {DEMAND: "warning"}, QUIET_MIN),
}


@needs_promtool
def test_they_fire_when_they_should(tmp_path: Path) -> None:
    """Every case in one run: promtool says which one is wrong by its time and what it got."""
    plan = two_weeks()
    one = plan.model_copy(update={"pools": plan.pools[:1]})
    (tmp_path / "alerts.yaml").write_text(files(one)[ALERTS_FILE], encoding="utf-8")
    cases = [case(*found) for found in FIRE.values()]
    text = yaml.safe_dump({"rule_files": ["alerts.yaml"], "evaluation_interval": "1m", "tests": cases})
    (tmp_path / "test.yaml").write_text(text, encoding="utf-8")
    done = subprocess.run([PROMTOOL, "test", "rules", "test.yaml"], cwd=tmp_path, text=True, capture_output=True)  # noqa: PLW1510
    assert done.returncode == 0, done.stdout + done.stderr


def value_at(expression: str, hour: float) -> float:
    """A step function of the hour of the week, evaluated here: constants and ``k * (x >= bool h)`` only."""
    inner = expression.split("0 * planner:hour_of_week", 1)[1].split("}", 1)[1].split(") and on()", maxsplit=1)[0]
    total = 0.0
    for term in inner.replace(" - ", " + -").split(" + ")[1:]:
        factor, star, condition = term.partition(" * ")
        after = float(condition.rstrip(")").rsplit(" ", 1)[1]) if star else 0.0
        total += float(factor) * (hour >= after)
    return total


def test_steps_are_the_plans_own_hours() -> None:
    """Every quarter of an hour of the horizon, over the change to summer time: replicas by the expression and by the
    plan's own timetable.
    """
    calendar, label = calendar_of(EXAMPLE), timetable_of(EXAMPLE).label
    assert label is not None
    assert len(set(calendar.offset_s.tolist())) == 2
    pool = next(pool for pool in EXAMPLE.pools if pool.name == "assistant/2")
    counts = replicas_by_period(pool)
    expression = calendar.expression(counts, EXAMPLE.run_id)
    by_hour = [value_at(expression, hour) for hour in range(168)]
    assert [by_hour[hour] for hour in calendar.hour] == [counts[k] for k in label]


def test_holidays_make_steps_of_the_calendar() -> None:
    """With a holiday one week does not say it all: steps stand at moments."""
    plan = two_weeks()
    holiday = Assumption(
        id="periods_zone", assumption="zone", value="UTC", unit="", source="", source_date=None, owner="",
        note="holidays 1970-01-05",
    )  # fmt: skip
    busy = BUSY.model_copy(update={"hours": 18.0})
    quiet = QUIET.model_copy(update={"hours": 318.0, "when": f"{QUIET.when}; holidays 00-24"})
    plan = plan.model_copy(update={"assumptions": (holiday,), "periods": (busy, quiet)})
    calendar = calendar_of(plan)
    assert calendar.label is not None
    expression = calendar.expression((3.0, 1.0), plan.run_id)
    first = "vector(3) - 2 * (vector(time()) >= bool 7200) + 2 * (vector(time()) >= bool 86400)"
    assert expression.startswith(first)
    assert f"bool {4 * 86_400})" not in expression
    assert f"bool {5 * 86_400})" in expression
    promql_parser.parse(expression)


def test_without_hours_the_least_of_all_periods_counts() -> None:
    expression = calendar_of(sample_plan()).expression((3.0, 1.0), "x")
    assert expression.startswith("vector(1) and on() vector(time()) >= ")
