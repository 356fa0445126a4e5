"""Measured points correct a model: hand-solved factors, recovered curves, shrinkage, bands."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from planner.speed.curve import GROUPS, Loads, bands_at, corrected, fit_correction
from planner.speed.facts import Fact
from planner.speed.operating import closed_loop
from planner.speed.prior import SpeedPrior
from planner.speed.step import decode_step_s
from planner.speed.types import FloatArray, StepCoefficients

NOT_TIMES = {"expert_hit_share", "window_tokens", "chunk_tokens", "ttft_together_share"}
SPREAD = dict.fromkeys(GROUPS, 0.5)


def prior_of(tpot_noise: float = 0.001, ttft_noise: float = 0.001, edge: float = 1.28, **spread: float) -> SpeedPrior:
    values = (
        SPREAD | spread | {"tpot_noise": tpot_noise, "ttft_noise": ttft_noise, "tpot_edge": edge, "ttft_edge": edge}
    )
    facts = {name: Fact(value=value, points=1, source="test") for name, value in values.items()}
    return SpeedPrior(as_of="2026-11-01", **facts)


def coefficients(**changes: float) -> StepCoefficients:
    values = dict.fromkeys((item.name for item in fields(StepCoefficients)), 0.0) | {
        "dense_read_s": 0.006,
        "kv_read_s_per_token": 8e-8,
        "fixed_s": 0.002,
        "sequence_s": 2e-5,
        "compute_s_per_token": 3e-5,
        "prefill_s_per_token": 3e-5,
        "prefill_s_per_token2": 5e-10,
        "chunk_tokens": 8192.0,
        "ttft_floor_s": 0.05,
    }
    return StepCoefficients(**{name: np.asarray(value) for name, value in (values | changes).items()})


def loads_of(*rows: tuple[float, float, float]) -> Loads:
    return Loads(*np.array(rows, dtype=np.float64).T)


def times_of(c: StepCoefficients, loads: Loads) -> FloatArray:
    found = closed_loop(c, loads.clients, loads.input_tokens, loads.output_tokens)
    return np.stack([found.tpot_s, found.ttft_s], axis=-1)


GRID = loads_of(*((n, p, 256.0) for n in (1.0, 8.0, 32.0, 128.0) for p in (512.0, 4096.0)))


def test_every_time_of_a_step_is_in_a_group() -> None:
    members = {name for group in GROUPS.values() for name in group}
    assert members | NOT_TIMES == {item.name for item in fields(StepCoefficients)}


def test_one_point_of_one_term_is_solved_by_hand() -> None:
    """A step that is only its fixed time: TPOT = fixed. Prior ln-variances 2 x 0.5^2 on its two factors, scatter 0.1:
    ln 2 is believed to the share 0.5 / (0.5 + 0.01)."""
    nothing = dict.fromkeys((item.name for item in fields(StepCoefficients)), 0.0)
    c = coefficients(**nothing | {"fixed_s": 0.01, "chunk_tokens": 8192.0, "ttft_floor_s": 0.05})
    loads = loads_of((1.0, 1.0, 100.0))
    found = fit_correction(c, loads, np.array([[0.02, np.nan]]), prior_of(tpot_noise=0.1))
    believed = np.log(2.0) * 0.5 / 0.51
    factors = dict(zip(GROUPS, found.log_factors, strict=True))
    assert factors["decode"] == pytest.approx(believed / 2, rel=1e-3)
    assert factors["fixed"] == pytest.approx(believed / 2, rel=1e-3)
    assert factors["weights"] == pytest.approx(0.0, abs=1e-9)
    assert times_of(corrected(c, found.log_factors), loads)[0, 0] == pytest.approx(0.01 * np.exp(believed), rel=1e-3)
    ((tpot, _),) = bands_at(c, found, loads, prior_of(tpot_noise=0.1, edge=1.0))
    left = 0.5 - 0.5 * 0.5 / 0.51
    assert tpot.high == pytest.approx(np.exp(np.sqrt(left + 0.01)), rel=1e-3)
    assert tpot.low == pytest.approx(1 / tpot.high)


@pytest.mark.parametrize("factor", [0.5, 0.9, 1.6])
def test_an_exact_point_is_met_by_the_closed_loop(factor: float) -> None:
    c = coefficients()
    loads = loads_of((32.0, 2000.0, 400.0))
    measured = times_of(c, loads) * factor
    found = fit_correction(c, loads, measured, prior_of())
    assert times_of(corrected(c, found.log_factors), loads) == pytest.approx(measured, rel=0.002)


def test_a_curve_is_recovered_from_exact_points() -> None:
    """The truth is another machine: slower reads, faster prompts. Held-out loads come out right, the model was not."""
    c = coefficients()
    truth = coefficients(dense_read_s=0.009, fixed_s=0.001, sequence_s=6e-5, kv_read_s_per_token=1.3e-7,
                         compute_s_per_token=6e-5, prefill_s_per_token=2e-5, ttft_floor_s=0.08)  # fmt: skip
    found = fit_correction(c, GRID, times_of(truth, GRID), prior_of())
    held_out = loads_of((4.0, 1000.0, 500.0), (64.0, 2000.0, 300.0), (128.0, 1000.0, 800.0), (16.0, 4000.0, 100.0))
    right = times_of(truth, held_out)
    assert np.abs(times_of(c, held_out) / right - 1).max() > 0.25
    assert times_of(corrected(c, found.log_factors), held_out) == pytest.approx(right, rel=0.03)


def test_a_time_that_was_not_measured_leaves_its_coefficients_alone() -> None:
    c = coefficients()
    loads = loads_of((1.0, 100.0, 400.0))
    measured = times_of(c, loads) * [2.0, np.nan]
    found = fit_correction(c, loads, measured, prior_of())
    assert float(corrected(c, found.log_factors).ttft_floor_s) == pytest.approx(0.05, rel=1e-3)


@pytest.mark.parametrize("seed", range(5))
def test_a_corrected_step_never_gets_faster_with_load(seed: int) -> None:
    """Whatever was measured, noise that falls with load included."""
    c = coefficients(expert_read_s=0.01, expert_hit_share=0.05)
    noise = np.random.default_rng(seed).lognormal(0.0, 0.5, (len(GRID.clients), 2))
    found = fit_correction(c, GRID, times_of(c, GRID)[::-1] * noise, prior_of(tpot_noise=0.1))
    curve = corrected(c, found.log_factors)
    batches, contexts = np.meshgrid(np.geomspace(1, 1024, 40), np.geomspace(100, 1e5, 40), indexing="ij")
    steps = decode_step_s(curve, batches, batches * contexts)
    assert (np.diff(steps, axis=0) >= 0).all()
    assert (np.diff(steps, axis=1) >= 0).all()
    assert steps[-1, -1] > steps[0, 0]


def test_slower_measurements_never_give_a_faster_step() -> None:
    c = coefficients()
    measured = times_of(c, GRID)
    steps = []
    for slower in (1.0, 1.1, 1.5, 2.5):
        found = fit_correction(c, GRID, measured * slower, prior_of(tpot_noise=0.1, ttft_noise=0.4))
        steps.append(decode_step_s(corrected(c, found.log_factors), GRID.clients, GRID.clients * GRID.context_tokens))
    assert (np.diff(steps, axis=0) > 0).all()


def test_bands_are_narrow_where_measured_and_wide_far_away() -> None:
    c = coefficients()
    prior = prior_of(tpot_noise=0.05, ttft_noise=0.05)
    near = loads_of((32.0, 1000.0, 300.0))
    far = loads_of((512.0, 16000.0, 300.0))
    one = fit_correction(c, near, times_of(c, near), prior)
    many = fit_correction(c, GRID, times_of(c, GRID), prior)
    ((here, _),), ((there, _),) = (bands_at(c, one, loads, prior) for loads in (near, far))
    assert here.high < 1.11
    assert there.high > here.high * 1.2
    assert bands_at(c, many, far, prior)[0][0].high < there.high
    both = Loads(*(np.append(getattr(near, f), getattr(far, f)) for f in ("clients", "input_tokens", "output_tokens")))
    assert [tpot for tpot, _ in bands_at(c, one, both, prior)] == [here, there]


def test_waiting_requests_do_not_count_as_running() -> None:
    """100 clients, 10 of them run: the TPOT of 10 says nothing slow about the machine."""
    c = coefficients()
    crowded = loads_of((100.0, 1000.0, 300.0))
    crowded = Loads(crowded.clients, crowded.input_tokens, crowded.output_tokens, room=np.array([10.0]))
    alone = closed_loop(c, 10.0, 1000.0, 300.0)
    measured = np.array([[float(alone.tpot_s), np.nan]])
    assert fit_correction(c, crowded, measured, prior_of()).log_factors == pytest.approx(
        np.zeros(len(GROUPS)), abs=0.02
    )


def test_cached_prompts_do_not_count_as_computed() -> None:
    c = coefficients()
    loads = loads_of((64.0, 4000.0, 300.0))
    cached = Loads(loads.clients, loads.input_tokens, loads.output_tokens, cached_share=np.array([0.9]))
    found = closed_loop(c, 64.0, 4000.0, 300.0, cached_share=0.9)
    measured = np.array([[float(found.tpot_s), float(found.ttft_s)]])
    assert fit_correction(c, cached, measured, prior_of()).log_factors == pytest.approx(np.zeros(len(GROUPS)), abs=0.02)
    assert abs(fit_correction(c, loads, measured, prior_of()).log_factors).max() > 0.2


def test_factors_of_unmeasured_groups_keep_the_prior_s_spread() -> None:
    c = coefficients()
    loads = loads_of((1.0, 100.0, 400.0))
    found = fit_correction(c, loads, np.full((1, 2), np.nan), prior_of(decode=0.3))
    assert found.log_factors == pytest.approx(np.zeros(len(GROUPS)))
    assert np.sqrt(np.diag(found.covariance)) == pytest.approx([0.3] + [0.5] * 6)


def test_coefficients_may_be_stacked() -> None:
    two = corrected(coefficients(), np.array([[0.0] * 7, [np.log(2.0)] + [0.0] * 6]))
    assert two.fixed_s == pytest.approx([0.002, 0.004])
    assert two.prefill_s_per_token == pytest.approx([3e-5, 3e-5])
    assert two.chunk_tokens == 8192.0
