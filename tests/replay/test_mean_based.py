"""The rule of means beside the plan: its count by hand, and what it does to real requests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from planner.catalog.load import load_catalog
from planner.cli import app
from planner.errors import InputError
from planner.replay.engines import engines_of
from planner.replay.fleet import Ask
from planner.replay.mean_based import mean_fleets, mean_replicas
from planner.replay.trace import Source, read_trace
from planner.report import facts

ROOT = Path(__file__).parents[2]
MODEL = "chat-large"
LOG = ROOT / "catalogs" / "example" / "traffic" / "AzureLLMInferenceTrace_conv.csv"


def changed(plan, **load):
    """The pool of 4 replicas' worth of load, with other figures of one replica."""
    pool = next(pool for pool in plan.pools if pool.name == MODEL)
    rates = {"planning_rate_per_s": 8.0, "rate_per_replica_per_s": 2.0}
    return pool.model_copy(update={"load": pool.load.model_copy(update=rates | load), "max_num_seqs": 256})


def test_the_count_by_hand(plan):
    """Tokens: 1.5 x 4 x half a pool = 3. Seats: 1.5 x 4 x 128 of 256 = 3; one request more needs a fourth."""
    limit = facts.margin(changed(plan), "token pool").limit
    assert mean_replicas(changed(plan, mean_formula_tokens=limit / 2, mean_live_requests=1.0)) == 3
    assert mean_replicas(changed(plan, mean_formula_tokens=1.0, mean_live_requests=128.0)) == 3
    assert mean_replicas(changed(plan, mean_formula_tokens=1.0, mean_live_requests=129.0)) == 4
    assert mean_replicas(changed(plan, mean_formula_tokens=1.0, mean_live_requests=0.1)) == 1


def test_a_plan_without_its_margins_is_refused(plan):
    with pytest.raises(InputError, match="states no token pool"):
        mean_replicas(changed(plan).model_copy(update={"margins": ()}))


def test_it_breaks_what_the_plan_keeps(plan):
    traces = {MODEL: read_trace(Source(LOG, "azure")).part(0.5, 1.0)}
    (found,) = mean_fleets(plan, engines_of(plan, load_catalog()), traces, Ask(horizon_s=1800.0, repeats=2))
    assert found.mean_replicas < found.planned_replicas
    assert not all(p.passed for p in found.promises)
    assert all(p.passed for p in found.planned_promises)


def test_it_is_printed_and_given_as_json():
    words = ["replay", str(ROOT / "reports" / "example"), "--traffic", f"{LOG}={MODEL}", "--part", "0.5:1"]
    words += ["--hours", "0.5", "--repeat", "1", "--mean-based"]
    told = CliRunner().invoke(app, words)
    assert told.exit_code == 0
    assert "Replicas by means times 1.5 beside the plan's" in told.output
    (row,) = json.loads(CliRunner().invoke(app, [*words, "--json"]).output)["mean_based"]
    assert row["mean_replicas"] < row["planned_replicas"]
    assert any(not p["passed"] for p in row["promises"])
