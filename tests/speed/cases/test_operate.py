"""Operating points of many loads: hand-solved replicas whose step takes 10 ms whatever the batch."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from planner.speed.cases.operate import Asked, Settled, settle_all
from planner.speed.points import Load, LoadKind
from planner.speed.types import StepCoefficients

STEP_S = 0.010


def coefficients(rows: int, **changed: float) -> StepCoefficients:
    """A step of 10 ms; prompts cost what is changed."""
    values = {item.name: 0.0 for item in fields(StepCoefficients)}
    values |= {"fixed_s": STEP_S, "chunk_tokens": 8192.0, "ttft_floor_s": 0.05} | changed
    return StepCoefficients(**{name: np.full(rows, value) for name, value in values.items()})


def settled(*loads: Load, room: float = 1e6, decode_only: bool = False, **changed: float) -> Settled:
    count = len(loads)
    each = [np.full(count, value) for value in (room, 1e6, 0.5, float(decode_only))]
    return settle_all(Asked(loads, coefficients(count, **changed), *each))


def closed(clients: float, output: float = 101, **more: float) -> Load:
    return Load(LoadKind.CLOSED_LOOP, 1000, output, concurrency=clients, **more)


def arrivals(rate: float) -> Load:
    return Load(LoadKind.OPEN_LOOP, 1000, 101, rate_per_s=rate)


def test_a_closed_loop_gives_each_client_its_life() -> None:
    found = settled(closed(8))
    assert found.tpot_s[0] == pytest.approx(STEP_S)
    life_s = found.ttft_s[0] + 100 * STEP_S
    assert found.output_tok_s[0] == pytest.approx(8 * 101 / life_s)
    assert found.total_tok_s[0] == pytest.approx(8 * 1101 / life_s)


def test_clients_beyond_the_room_wait() -> None:
    free, full = settled(closed(4)), settled(closed(12), room=4)
    assert full.output_tok_s[0] == pytest.approx(free.output_tok_s[0])
    life_s = free.ttft_s[0] + 100 * STEP_S
    assert full.ttft_s[0] == pytest.approx(free.ttft_s[0] + 2 * life_s)


def test_max_load_fills_the_room_and_has_no_ttft() -> None:
    """100 steps of 10 ms give each of 32 places 101 tokens a second; a list of 8 prompts fills 8."""
    found = settled(Load(LoadKind.MAX_LOAD, 1000, 101), Load(LoadKind.MAX_LOAD, 1000, 101, concurrency=8), room=32)
    assert found.concurrency.tolist() == [32, 8]
    assert found.output_tok_s == pytest.approx([32 * 101, 8 * 101])
    assert np.isnan(found.ttft_s).all()


def test_arrivals_settle_by_littles_law() -> None:
    found = settled(arrivals(4), arrivals(0.01), room=64)
    life_s = found.ttft_s + 100 * found.tpot_s
    assert found.concurrency == pytest.approx(np.array([4, 0.01]) * life_s, rel=1e-3)
    assert found.output_tok_s == pytest.approx([404, 1.01])
    assert found.total_tok_s == pytest.approx([4404, 11.01])
    assert not found.overloaded.any()


def test_a_lone_arrival_is_alone() -> None:
    """A floor of 50 ms and a prompt's step of 10 ms."""
    found = settled(arrivals(1 / 3600))
    assert found.tpot_s[0] == pytest.approx(STEP_S)
    assert found.ttft_s[0] == pytest.approx(0.06)


def test_arrivals_that_are_too_many_have_no_ttft() -> None:
    found, full = settled(arrivals(1000), room=16), settled(Load(LoadKind.MAX_LOAD, 1000, 101), room=16)
    assert found.overloaded[0] == 1
    assert np.isnan(found.ttft_s[0])
    assert found.concurrency[0] == 16
    assert found.output_tok_s[0] == pytest.approx(full.output_tok_s[0])


def test_a_pool_that_holds_no_request_serves_nothing() -> None:
    found = settled(Load(LoadKind.MAX_LOAD, 1000, 101), arrivals(1), room=0.5)
    assert found.output_tok_s.tolist() == [0, 0]


@pytest.mark.parametrize("load", [arrivals(4), Load(LoadKind.MAX_LOAD, 1000, 101)])
def test_speculation_and_cache_shorten_every_kind(load: Load) -> None:
    plain, cached, guessed = (
        settled(replace(load, **more), room=64, prefill_s_per_token=1e-5).tpot_s[0]
        for more in ({}, {"cached_share": 1.0}, {"acceptance": 2.0})
    )
    assert cached == pytest.approx(STEP_S)
    assert plain > STEP_S
    assert guessed < 0.8 * plain


def test_more_arrivals_never_make_it_faster() -> None:
    rates = np.geomspace(0.01, 100, 40)
    found = settled(*(arrivals(rate) for rate in rates), room=64, sequence_s=1e-3, prefill_s_per_token=1e-5)
    assert (np.diff(found.tpot_s) >= -1e-9).all()
    assert (np.diff(found.concurrency) >= -1e-6).all()


def test_a_static_batch_decodes_in_lockstep() -> None:
    """A prompt step of 10 ms and 100 decode steps of 10 ms: 1.01 s for 8 x 101 tokens."""
    found = settled(Load(LoadKind.STATIC_BATCH, 1000, 101, concurrency=8))
    assert found.tpot_s[0] == pytest.approx(STEP_S)
    assert found.output_tok_s[0] == pytest.approx(8 * 101 / 1.01)
    assert found.total_tok_s[0] == pytest.approx(8 * 1101 / 1.01)


def test_a_batch_beyond_the_room_runs_in_turns() -> None:
    free, full = (settled(Load(LoadKind.STATIC_BATCH, 1000, 101, concurrency=8), room=room) for room in (8, 4))
    assert full.output_tok_s[0] == pytest.approx(free.output_tok_s[0] / 2)


def test_one_output_token_has_no_tpot() -> None:
    found = settled(closed(4, output=1), Load(LoadKind.STATIC_BATCH, 1000, 1, concurrency=1))
    assert np.isnan(found.tpot_s).all()
    assert (found.ttft_s > 0).all()


def test_prompts_do_not_disturb_a_decode_worker() -> None:
    here, away = (settled(closed(64), prefill_s_per_token=1e-5, decode_only=flag) for flag in (False, True))
    assert away.tpot_s[0] == pytest.approx(STEP_S)
    assert here.tpot_s[0] > 1.3 * STEP_S


def test_cached_prompts_and_accepted_tokens_are_faster() -> None:
    plain, cached, guessed = (
        settled(closed(64, **more), prefill_s_per_token=1e-5).tpot_s[0]
        for more in ({}, {"cached_share": 0.9}, {"acceptance": 2.0})
    )
    assert cached < plain
    assert guessed < plain


def test_kinds_do_not_mix() -> None:
    """Each row of a mixed table is what it is alone."""
    loads = (closed(3), arrivals(2), Load(LoadKind.STATIC_BATCH, 9, 9, concurrency=2), Load(LoadKind.MAX_LOAD, 9, 9))
    together = settled(*loads, room=20)
    for row, load in enumerate(loads):
        alone = settled(load, room=20)
        for item in fields(Settled):
            assert getattr(together, item.name)[row] == pytest.approx(getattr(alone, item.name)[0], nan_ok=True)
