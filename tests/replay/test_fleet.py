"""Promises of a plan against what a replay saw, on the example plan and its own logs."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from planner.catalog.load import load_catalog
from planner.errors import InputError
from planner.replay.engines import engines_of
from planner.replay.fleet import Ask, least_replicas, planning_rate_per_s, replay_fleet
from planner.replay.pool import replay_pool
from planner.replay.promises import observed, promises, seen
from planner.replay.trace import Source, at_rate, read_trace

ROOT = Path(__file__).parents[2]
LOGS = ROOT / "catalogs" / "example" / "traffic"
MODEL = "chat-large"
SHORT = Ask(horizon_s=1800.0, repeats=5)


@pytest.fixture(scope="module")
def traces():
    return {MODEL: read_trace(Source(LOGS / "AzureLLMInferenceTrace_conv.csv", "azure")).part(0.5, 1.0)}


def test_engines_are_those_that_the_plan_sized(plan, engines):
    assert [each.pool.name for each in engines] == [pool.name for pool in plan.pools]
    assert all(each.notes == () for each in engines)


def test_a_planned_pool_keeps_its_promises(plan, engines, traces):
    found = replay_fleet(plan, engines, traces, SHORT)
    assert [pool.pool.model for pool in found.pools] == [MODEL]
    assert found.passed
    assert {row.constraint for row in found.pools[0].promises} >= {"token pool", "tail budget", "TPOT target"}
    assert found.rates_per_s[MODEL] == pytest.approx(planning_rate_per_s(plan, MODEL))
    assert all(each.unfinished < 0.02 * each.requests for each in found.pools[0].repeats)


def test_one_replica_fewer_breaks_one(plan, engines, traces):
    (fewer,) = least_replicas(plan, engines, traces, SHORT)
    assert fewer.replicas == found_replicas(plan) - 1
    assert not fewer.passed


def found_replicas(plan) -> int:
    pool = next(pool for pool in plan.pools if pool.model == MODEL)
    return max(period.replicas for period in pool.periods)


def test_more_load_and_slower_steps_are_never_better(plan, engines, traces):
    plain = replay_fleet(plan, engines, traces, SHORT).pools[0].repeats[0]
    stressed = replay_fleet(plan, engines, traces, Ask(600.0, 1, stress=1.2)).pools[0].repeats[0]
    slow = replay_fleet(plan, engines_of(plan, load_catalog(), slower=1.2), traces, Ask(600.0, 1)).pools[0].repeats[0]
    assert stressed.tpot_ms > plain.tpot_ms
    assert slow.tpot_ms > plain.tpot_ms
    assert slow.ttft_ms > plain.ttft_ms


def test_no_replica_is_left(plan, engines, traces):
    pool = next(pool for pool in plan.pools if pool.model == MODEL)
    with pytest.raises(InputError, match="no replica is left"):
        replay_fleet(plan, engines, traces, Ask(fewer={pool.name: 99}))


def test_replicas_share_the_requests_in_turn(plan, engines, traces):
    each = next(e for e in engines if e.pool.model == MODEL)
    requests = at_rate(traces[MODEL], 5.0, 300.0, 0)
    found = replay_pool(requests, each.engine, 3, 300.0)
    assert np.bincount(found.replica).tolist() == [(len(requests) + 2 - i) // 3 for i in range(3)]
    assert len(found.fate) == len(requests)


def test_student_by_hand():
    """1, 2, 3: mean 2, s = 1, t(0.975, 2) = 4.3027, half = 4.3027 / sqrt(3)."""
    found = observed([1.0, 2.0, 3.0])
    assert found.value == 2.0
    assert found.high - found.value == pytest.approx(4.302652729911275 / math.sqrt(3))
    assert math.isnan(observed([5.0]).low)


def test_nothing_to_serve_refutes_nothing_and_nothing_served_refutes(plan, engines, traces):
    each = next(e for e in engines if e.pool.model == MODEL)
    requests = at_rate(traces[MODEL], 1.0, 60.0, 0)
    too_long = replace(each.engine, max_model_len=1)
    refused = promises(each.pool, [seen(each.pool, replay_pool(requests, too_long, 1, 60.0))])
    assert [row.passed for row in refused if row.unit == "ms"] == [True, True]
    assert not next(row for row in refused if row.constraint == "tail budget").passed
    stuck = engines_of(plan, load_catalog(), slower=1e9)
    frozen = next(e for e in stuck if e.pool.model == MODEL)
    late = promises(each.pool, [seen(each.pool, replay_pool(requests, frozen.engine, 1, 60.0))] * 2)
    assert [row.passed for row in late if row.unit == "ms"] == [False, False]
