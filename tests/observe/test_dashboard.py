"""The dashboard: a grid without overlap, every query parses, and the plan's figures stand as lines."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import promql_parser
import pytest

from planner.observe import DASHBOARD_FILE, files
from planner.plan import FleetPlan
from planner.plan_file import plan_at
from tests.report.sample import sample_plan

EXAMPLE = plan_at(Path("tests/data/fleet/plan.json"))
PLANS = pytest.mark.parametrize("plan", [EXAMPLE, sample_plan()], ids=["example", "sample"])


def dashboard(plan: FleetPlan) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(files(plan)[DASHBOARD_FILE])
    return found


def overlap(a: dict[str, int], b: dict[str, int]) -> bool:
    beside = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
    below = a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
    return not (beside or below)


@PLANS
def test_form(plan: FleetPlan) -> None:
    found = dashboard(plan)
    assert found["schemaVersion"] == 42
    assert found["uid"] == f"planner-{plan.run_id}"
    assert len(found["uid"]) <= 40
    assert [v["type"] for v in found["templating"]["list"]] == ["datasource"]
    panels = found["panels"]
    ids = [panel["id"] for panel in panels]
    assert len(set(ids)) == len(ids)
    places = [panel["gridPos"] for panel in panels]
    assert all(p["x"] >= 0 and p["x"] + p["w"] <= 24 for p in places)
    assert not any(overlap(a, b) for a, b in itertools.combinations(places, 2))
    rows = [panel["title"] for panel in panels if panel["type"] == "row"]
    assert [row.split(" (")[0] for row in rows] == [pool.name for pool in plan.pools]


@PLANS
def test_queries(plan: FleetPlan) -> None:
    for panel in dashboard(plan)["panels"]:
        if panel["type"] == "row":
            continue
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        references = [target["refId"] for target in panel["targets"]]
        assert len(set(references)) == len(references)
        assert any(target["legendFormat"].startswith("plan") for target in panel["targets"])
        for target in panel["targets"]:
            promql_parser.parse(target["expr"])


def test_lines_are_the_plans_figures() -> None:
    """The first pool of the hand-made plan: 1,352,410 of 1,390,000 tokens; TPOT 38.1 of 50 ms; TTFT 640 of 1,500 ms."""
    plan = sample_plan().model_copy(update={"pools": sample_plan().pools[:1]})
    quiet = plan.pools[0].periods[1].model_copy(update={"replicas": 2})
    pool = plan.pools[0].model_copy(update={"periods": (plan.pools[0].periods[0], quiet)})
    panels = {panel["title"]: panel for panel in dashboard(plan.model_copy(update={"pools": (pool,)}))["panels"]}

    def constants(title: str) -> list[str]:
        return [t["expr"] for t in panels[title]["targets"] if t["expr"].startswith("vector")]

    assert constants("KV cache in use") == ["vector(0.972957)"]
    assert constants("Running requests a replica") == ["vector(563.504)"]
    assert constants("Time per output token") == ["vector(0.0381)", "vector(0.05)"]
    assert constants("Time to first token") == ["vector(0.64)", "vector(1.5)"]
    assert constants("Replicas") == ["vector(3)"]


def test_hostile_names() -> None:
    plan = sample_plan()
    pool = plan.pools[0].model_copy(update={"name": 'a"\\\n${datasource}'})
    found = dashboard(plan.model_copy(update={"pools": (pool,), "title": "\x1b[31m$x"}))
    assert "${datasource}" not in found["panels"][0]["title"]
    assert found["title"] == "?[31m$\u200bx: fleet and plan"
    for panel in found["panels"][1:]:
        for target in panel["targets"]:
            promql_parser.parse(target["expr"])


def test_same_plan_same_bytes() -> None:
    assert files(sample_plan())[DASHBOARD_FILE] == files(sample_plan())[DASHBOARD_FILE]
