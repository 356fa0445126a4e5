"""Drills: what is lost, the course by hand, and what cannot be drilled."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from planner.errors import InputError
from planner.replay.drill_cases import losses, packed, warm_up_s
from planner.replay.drill_told import tell
from planner.replay.drills import Drill, DrillAsk, DrillKind, drill_fleet
from planner.replay.segments import Life, replay_lives
from planner.replay.trace import Source, read_trace
from tests.replay.test_segments import engine, lost_replica, requests

ROOT = Path(__file__).parents[2]
MODEL = "chat-large"
LOG = ROOT / "catalogs" / "example" / "traffic" / "AzureLLMInferenceTrace_conv.csv"


@pytest.fixture(scope="module")
def traces():
    return {MODEL: read_trace(Source(LOG, "azure")).part(0.5, 1.0)}


def of(plan, name):
    return next(pool for pool in plan.pools if pool.name == name)


def with_ttft_limit(pool, limit_ms: float, percentile: float):
    margins = tuple(m.model_copy(update={"limit": limit_ms}) if "TTFT" in m.constraint else m for m in pool.margins)
    speed = pool.speed.model_copy(update={"ttft_percentile": percentile})
    return pool.model_copy(update={"margins": margins, "speed": speed})


def test_the_course_by_hand(plan):
    """`test_the_loss_of_one_of_two_by_hand`: the third quartile of TTFT in minutes 2 to 4 is 31.5, 43.5 and 28 s."""
    pool = with_ttft_limit(of(plan, MODEL), 20_000.0, 0.75)
    calm = replay_lives(requests(10.0 * np.arange(30)), engine(fixed_s=12.0), [Life(0.0, math.inf)] * 2, 60.0, 5)
    told = tell(Drill("replica", MODEL, "", 60.0, 180.0, 1, 2), pool, lost_replica(), calm)
    assert [w.ttft_ms for w in told.windows[:4]] == pytest.approx([12_000.0, 31_500.0, 43_500.0, 28_000.0])
    assert told.worst_ttft_ms == pytest.approx(43_500.0)
    assert (told.over_s, told.over_s_undisturbed, told.recovered_after_s) == (180.0, 0.0, 60.0)
    assert (told.resent, told.turned_away, told.unfinished) == (1, 0, 1)
    assert not told.holds
    assert told.sentence == (
        "loses 1 of 2 replicas, which serve again after 2 min: TTFT p75 worst 43,500 ms against 20,000 allowed; limits "
        "broken for 3 min; recovered 1 min after the replicas serve again; requests sent again: 1; none turned away"
    )
    nothing = tell(Drill("replica", MODEL, "", 60.0, 180.0, 0, 2), pool, calm, calm)
    assert nothing.holds
    assert nothing.recovered_after_s == 0.0


def test_what_the_example_may_lose(plan):
    assert [(x.kind.value, x.lost) for x in losses(plan, of(plan, "assistant"))] == [
        ("replica", 1), ("node", 1), ("region", 8), ("lot", 8),
    ]  # fmt: skip
    assert warm_up_s(plan, MODEL) == 600.0
    assert warm_up_s(plan, "reasoning") is None


def test_replicas_share_instances(plan):
    """17 H100 in instances of 8 in the third period: 5 + 3 of the first pools, 5 + 2 + 1 of the next, 1 of the last."""
    nodes = packed(plan, "H100-SXM x1", 8, 2)
    assert [len(node) for node in nodes] == [8, 8, 1]
    assert nodes[0].count("assistant") == 3
    assert nodes[1].count("assistant") == 5


def test_a_replica_lost_costs_and_heals(plan, engines, traces):
    ask = DrillAsk(minutes=40, at_min=5, for_min=5.0, kinds=(DrillKind.REPLICA,), warm_up_min=0.0)
    (told,) = drill_fleet(plan, engines, traces, ask)
    assert told.drill.lost == 1
    assert told.resent > 0
    assert told.turned_away == 0
    assert told.over_s > 0
    assert any(w.caused and told.drill.from_s <= w.from_s < told.drill.until_s for w in told.windows)
    assert {w.replicas for w in told.windows if 300.0 <= w.from_s < 600.0} == {4.0}
    assert told.recovered_after_s is not None
    assert sum(w.requests for w in told.windows) == told.requests
    assert (told,) == drill_fleet(plan, engines, traces, ask)


def test_a_burst_adds_its_requests(plan, engines, traces):
    ask = DrillAsk(minutes=10, at_min=2, for_min=1.0, kinds=(DrillKind.BURST, DrillKind.SLOW), burst=50, warm_up_min=0)
    burst, slow = drill_fleet(plan, engines, traces, ask)
    assert burst.requests == slow.requests + 50
    assert burst.worst_ttft_ms > 0
    assert (slow.drill.from_s, slow.drill.until_s) == (0.0, 600.0)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (DrillAsk(for_min=0.0), "--for: must be above 0"),
        (DrillAsk(minutes=30), "the outage and warm-up end at minute 40 of 30"),
        (DrillAsk(for_min=math.inf), "--for"),
        (DrillAsk(pools=("nobody",)), "is no pool"),
        (DrillAsk(at_min=0), "--at"),
        (DrillAsk(slower=0.0), "--slower"),
        (DrillAsk(repeats=0), "--repeat"),
        (DrillAsk(minutes=10**9), "cannot be replayed"),
    ],
)
def test_what_cannot_be_drilled(plan, engines, traces, ask, words):
    with pytest.raises(InputError, match=words):
        drill_fleet(plan, engines, traces, ask)
