"""Counters that restart, pause and lie, each solved by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import InputError
from planner.traffic.grid import whole_growth
from planner.traffic.histograms.counters import gaps_of, scrape_interval_s, undo_restarts, without_repeats

TIMES = np.arange(6) * 15.0


def counted(*values: float, **more: np.ndarray) -> np.ndarray:
    return undo_restarts("pod a", more.get("times", TIMES[: len(values)]), np.asarray(values)[:, None]).grown[:, 0]


def test_growth_counts_from_the_first_sample() -> None:
    assert counted(100, 110, 110, 130).tolist() == [0, 10, 10, 30]


def test_a_restart_counts_from_zero() -> None:
    assert counted(100, 110, 4, 9).tolist() == [0, 10, 14, 19]


def test_a_restart_seen_by_one_counter_holds_for_all_of_the_target() -> None:
    # The rare bucket went from 2 to 3, which alone looks like growth by 1; the count says that it began anew.
    found = undo_restarts("pod a", TIMES[:3], np.array([[50.0, 2], [52, 2], [9, 3]]))
    assert found.total.tolist() == [2 + 9, 0 + 3]
    assert found.restarts == 1


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((1.5, 1.6, 1.4), "a rate rather than a counter"),
        # Two replicas were added up, and one of them restarted: 500 did not come within 15 s.
        ((1000, 1010, 500, 510), "falls from 1,010 to 500, which no restart explains"),
    ],
)
def test_what_is_no_counter_is_refused(values: tuple[float, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        counted(*values)


def test_growth_is_linear_between_samples_and_constant_outside() -> None:
    found = undo_restarts("pod a", np.array([0.0, 10.0]), np.array([[0.0], [20.0]]))
    assert found.at(np.array([-5.0, 2.5, 99.0]), 0).tolist() == [0, 5, 20]


def test_gaps_are_long_pauses_and_merge() -> None:
    times = np.array([0.0, 15, 30, 300, 315]), np.array([0.0, 15, 30, 45, 60, 400, 415])
    found = [undo_restarts("pod", t, np.arange(t.size)[:, None] * 1.0) for t in times]
    assert scrape_interval_s(found) == 15
    assert gaps_of(found, 15.0) == [(30.0, 400.0)]


@given(st.lists(st.floats(0, 3), min_size=1, max_size=50))
def test_whole_steps_stay_within_one_half_of_the_running_total(steps: list[float]) -> None:
    upto = np.append(0.0, np.cumsum(steps))
    whole = np.append(0.0, np.cumsum(whole_growth(upto)))
    assert (np.abs(whole - upto) <= 0.5 + 1e-9).all()
    assert (whole_growth(upto) >= 0).all()


def test_idle_time_is_no_repeat() -> None:
    # Scraped every 30 s, asked every 15 s, and idle from 120 s to 180 s: idle time must not be smeared.
    values = np.array([0, 0, 40, 40, 90, 90, 140, 140, 190, 190, 190, 190, 190, 190, 240, 240.0])
    found = without_repeats(undo_restarts("pod", np.arange(16) * 15.0, values[:, None]))
    assert found.time_s.tolist() == [0, 30, 60, 90, 120, 150, 180, 210, 225]
    assert found.at(np.array([180.0]), 0).tolist() == [190]


def test_a_slow_target_keeps_its_samples() -> None:
    found = undo_restarts("pod", np.arange(9) * 15.0, np.array([0, 0, 1, 1, 2, 2, 3, 3, 4.0])[:, None])
    assert without_repeats(found) is found
