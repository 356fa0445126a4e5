"""Replicas that are lost, come back or drain: by hand, and what must hold for any lives."""

from __future__ import annotations

from dataclasses import MISSING, fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.queueing.holding import Holding
from planner.replay.pool import replay_pool
from planner.replay.segments import Life, lost_and_back, replay_lives
from planner.replay.types import Engine, Fate, Requests
from planner.speed.types import StepCoefficients

EVER = float("inf")
MINUTE = 60.0


def engine(seats: int = 1, **speed: float) -> Engine:
    needed = [item.name for item in fields(StepCoefficients) if item.default_factory is MISSING]
    coefficients = StepCoefficients(**{name: np.asarray(speed.get(name, 0.0)) for name in needed})
    return Engine(coefficients, Holding(1.0, 0.0, 1, 0, 0, 0.0), 1e9, seats, 10**9, 10**9)


def requests(arrival, output=1) -> Requests:
    arrival = np.asarray(arrival, dtype=np.float64)
    one = np.ones(len(arrival), dtype=np.int64)
    return Requests(arrival, one, one * output, 0 * one)


def lost_replica():
    """One request every 10 s in turns over two replicas that take 12 s each; one is lost from 60 s to 180 s."""
    return replay_lives(
        requests(10.0 * np.arange(30)), engine(fixed_s=12.0), list(lost_and_back(2, 1, 60.0, 180.0)), MINUTE, 5
    )


def test_the_loss_of_one_of_two_by_hand():
    """Request 5 (50 to 62 s) is lost and sent again: it and 6 to 17 queue on the one that is left, k-th from 60 + 12 k
    on, so 17 ends at 216. Then every other request goes there: 19, 21, 23, 25 wait, 27 finds it free."""
    found = lost_replica()
    wait = found.end_s - found.requests.arrival_s
    assert np.flatnonzero(found.sent > 1).tolist() == [5]
    assert wait[:5] == pytest.approx(12.0)
    assert wait[5] == pytest.approx(22.0)
    assert wait[6:18] == pytest.approx(22 + 2.0 * np.arange(1, 13))
    assert found.end_s[17] == pytest.approx(216.0)
    assert wait[[18, 20, 22, 24, 26, 28]] == pytest.approx(12.0)
    assert wait[[19, 21, 23, 25, 27]] == pytest.approx([38.0, 30.0, 22.0, 14.0, 12.0])
    assert found.fate[29] == Fate.UNFINISHED
    assert found.up_s.tolist() == [120.0, 60.0, 60.0, 120.0, 120.0]


def test_warm_up_is_time_without_requests():
    found = replay_lives(
        requests([0.0, 1.0, 70.0, 71.0]), engine(fixed_s=1.0), [Life(0.0, EVER), Life(60.0, EVER)], 60.0, 2
    )
    assert found.life.tolist() == [0, 0, 0, 1]


def test_a_drained_replica_finishes_its_own_and_takes_no_more():
    found = replay_lives(
        requests([0.0, 50.0, 60.0, 90.0]), engine(fixed_s=30.0), [Life(0.0, EVER), Life(0.0, 60.0)], 60.0, 3
    )
    assert found.life.tolist() == [0, 1, 0, 0]
    assert found.end_s[1] == pytest.approx(80.0)
    assert found.sent.tolist() == [1, 1, 1, 1]
    assert found.up_s.tolist() == [120.0, 80.0, 60.0]


def test_where_none_runs_requests_are_turned_away_or_held():
    lives = list(lost_and_back(1, 1, 60.0, 120.0))
    asked, one = requests([0.0, 55.0, 70.0, 130.0]), engine(fixed_s=10.0)
    away = replay_lives(asked, one, lives, 60.0, 3)
    assert away.fate.tolist() == [Fate.SERVED, Fate.UNROUTED, Fate.UNROUTED, Fate.SERVED]
    held = replay_lives(asked, one, lives, 60.0, 3, hold=True)
    assert held.end_s.tolist() == pytest.approx([10.0, 130.0, 140.0, 150.0])
    assert held.sent.tolist() == [1, 2, 1, 1]
    for hold, fate in ((False, Fate.UNROUTED), (True, Fate.UNFINISHED)):
        assert set(replay_lives(asked, one, [], 60.0, 3, hold).fate) == {fate}


def test_without_any_loss_it_is_the_pool():
    asked = requests(np.sort(np.random.default_rng(0).uniform(0, 290, 80)), 5)
    one = engine(seats=3, fixed_s=1.5)
    pool, lived = replay_pool(asked, one, 3, 300.0, 5), replay_lives(asked, one, [Life(0.0, EVER)] * 3, 60.0, 5)
    assert np.array_equal(pool.end_s, lived.end_s, equal_nan=True)
    assert np.array_equal(pool.fate, lived.fate)
    assert lived.integral("busy_s") == pytest.approx(sum(each.busy_s for each in pool.replicas))


@pytest.mark.parametrize("lives", [[Life(5.0, 5.0)], [Life(-1.0, 5.0)], [Life(0.0, 30.0, lost=True)]])
def test_impossible_lives(lives):
    with pytest.raises(ValueError, match=r"life|lost"):
        replay_lives(requests([0.0]), engine(fixed_s=1.0), lives, 60.0, 2)


@pytest.mark.parametrize(("lost", "at", "back"), [(3, 60.0, 120.0), (1, 60.0, 60.0), (1, 0.0, 60.0)])
def test_impossible_losses(lost, at, back):
    with pytest.raises(ValueError, match="lost"):
        list(lost_and_back(2, lost, at, back))


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    spans=st.lists(st.tuples(st.integers(0, 5), st.integers(1, 5), st.booleans()), max_size=6),
    hold=st.booleans(),
)
def test_every_request_ends_once(seed, spans, hold):
    rng = np.random.default_rng(seed)
    asked = requests(np.sort(rng.uniform(0, 300, 60)), rng.integers(1, 12, 60))
    lives = [Life(60.0 * up, 60.0 * (up + long), lost) for up, long, lost in spans]
    found = replay_lives(asked, engine(seats=2, fixed_s=2.0), lives, 60.0, 5, hold)
    served, away = found.fate == Fate.SERVED, found.fate == Fate.UNROUTED
    assert (served | away | (found.fate == Fate.UNFINISHED)).all()
    assert np.isfinite(found.end_s[served]).all()
    assert np.isnan(found.end_s[~served]).all()
    assert np.isnan(found.seen_s[away]).all()
    assert (found.end_s[served] > asked.arrival_s[served]).all()
    assert (found.sent[served] >= 1).all()
    assert (found.integral("busy_s") <= found.up_s + 24.0 * max(len(lives), 1)).all()
    if hold:
        assert not away.any()
