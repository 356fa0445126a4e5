"""The stretch that a load is sized for: found by hand-made minutes, and honest about trends and short logs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from planner.traffic.stretch import WANDER, busiest_stretch
from planner.traffic.types import Tail, Traffic
from tests.queueing.laws import burst_of, law_of

START_US = 1_700_000_000_000_000 // 3_600_000_000 * 3_600_000_000


def traffic_of(minutes, *, start_us: int = START_US, window_s: float | None = None, share: float = 1.0) -> Traffic:
    minutes = np.asarray(minutes, dtype=np.int64)
    none = np.zeros(0, dtype=np.int64)
    return Traffic(
        "m", law_of(np.array([10]), np.array([5])), Tail(none, none, none), burst_of(1.0), minutes,
        len(minutes) * 60.0 if window_s is None else window_s, "test", "", window_start_us=start_us,
        sampling_fraction=share,
    )  # fmt: skip


def poisson_minutes(seed: int, rate: float, minutes: int) -> np.ndarray:
    return np.random.default_rng(seed).poisson(rate, minutes)


def test_a_short_log_is_one_stretch():
    found = busiest_stretch(traffic_of(poisson_minutes(0, 300, 30)))
    assert found.whole
    assert (found.start_us, found.end_us) == (START_US, START_US + 1800 * 1_000_000)
    assert found.rate_per_s == pytest.approx(5.0, rel=0.03)
    assert found.stationary


def test_the_busiest_hour_without_a_trend_is_taken():
    """A quiet day, a steep climb and fall with the largest hour of all, and a plateau that is a little less busy."""
    day = poisson_minutes(1, 100, 24 * 60).astype(float)
    day[600:780] += np.minimum(np.arange(180), 180 - np.arange(180)) * 5.0
    day[1000:1090] = 420 + np.random.default_rng(2).normal(0, 20, 90)
    found = busiest_stretch(traffic_of(np.round(day)))
    assert found.stationary
    assert not found.whole
    assert 1000 * 60 <= (found.start_us - START_US) / 1e6 <= 1030 * 60
    assert found.rate_per_s * 60 == pytest.approx(420, rel=0.02)


def test_a_log_that_only_climbs_says_so():
    found = busiest_stretch(traffic_of(100 + 5 * np.arange(180) + 7 * (np.arange(180) % 3)))
    assert not found.stationary
    assert found.end_us == START_US + 180 * 60_000_000, "the busiest hour, trend and all"


def test_minutes_seen_in_part_do_not_count():
    """Half a minute at either end would look like a lull."""
    minutes = np.full(32, 600)
    minutes[[0, -1]] = 300
    found = busiest_stretch(traffic_of(minutes, start_us=START_US + 30_000_000, window_s=31 * 60.0))
    assert found.level_cv2 == 0.0
    assert found.rate_per_s == pytest.approx(10.0)


def test_levels_by_hand():
    """Sixths of five minutes at 90 and 110 a minute: sample variance 6/5 of 50^2, less the Poisson part 500."""
    minutes = np.repeat([90, 110, 90, 110, 90, 110], 5)
    found = busiest_stretch(traffic_of(minutes))
    assert found.level_cv2 == pytest.approx((6 / 5 * 50**2 - 500) / 500**2)
    assert found.wander_cv2 == pytest.approx(WANDER * found.level_cv2)


def test_a_random_walk_wanders_as_assumed():
    """Neighbouring half hours of walks differ with four times the variance within one, and Poisson ones hardly do."""
    rng = np.random.default_rng(3)
    predicted, real = [], []
    for _ in range(300):
        level = 1000 * (1 + np.cumsum(rng.normal(0, 0.01, 60)))
        minutes = rng.poisson(np.maximum(level, 1))
        predicted.append(busiest_stretch(traffic_of(minutes[:30])).wander_cv2)
        real.append((minutes[30:].mean() / minutes[:30].mean() - 1) ** 2)
    assert np.mean(predicted) == pytest.approx(np.mean(real), rel=0.3)
    calm = [busiest_stretch(traffic_of(poisson_minutes(s, 1000, 30))).wander_cv2 for s in range(100)]
    assert np.mean(calm) < 0.001


def test_too_short_for_levels():
    found = busiest_stretch(traffic_of([50, 60, 40, 55]))
    assert np.isnan(found.level_cv2)
    assert np.isnan(found.trend_p)
    assert found.wander_cv2 == 0.0
    assert found.stationary


def test_a_sample_shows_the_levels_of_all_requests():
    """A tenth of the requests, scaled up: the level variance is that of all, only less well known."""
    rng = np.random.default_rng(4)
    level = np.repeat(1000 * (1 + 0.2 * rng.standard_normal(6)), 10)
    full = traffic_of(rng.poisson(level))
    thin = traffic_of(10 * rng.binomial(full.minute_counts, 0.1), share=0.1)
    assert busiest_stretch(thin).level_cv2 == pytest.approx(busiest_stretch(full).level_cv2, rel=0.15)
    assert busiest_stretch(thin).arrivals == pytest.approx(busiest_stretch(full).arrivals / 10, rel=0.05)
    unaware = replace(thin, sampling_fraction=1.0)
    assert busiest_stretch(unaware).level_cv2 > busiest_stretch(thin).level_cv2


def test_a_long_log_of_one_rate_is_one_stretch():
    """Its busiest hour would be busy by chance: sized for that, a Poisson log would overflow too rarely."""
    found = [busiest_stretch(traffic_of(poisson_minutes(seed, 300, 6 * 60))) for seed in range(40)]
    assert sum(stretch.whole for stretch in found) >= 36
    assert sum(stretch.wander_cv2 == 0.0 for stretch in found) >= 34
    swell = busiest_stretch(traffic_of(np.concatenate([poisson_minutes(0, 300, 60), poisson_minutes(1, 330, 60)])))
    assert not swell.whole
    assert swell.rate_per_s == pytest.approx(5.5, rel=0.02)
    assert not busiest_stretch(traffic_of(np.repeat([100, 200, 100], 30))).whole, "an hour and a half is two half hours"
