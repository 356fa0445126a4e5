"""Where a replica settles in a closed loop: hand-solved points, the balance equations, and what must never happen."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.speed.operating import Operating, closed_loop, static_batch_s
from planner.speed.step import decode_step_s, interfered_tpot_s, prefill_s, prefill_work_s, stack
from planner.speed.types import Band, SpeedModel, StepCoefficients

# A 70B model on four GPUs, rounded: 9 ms of weights, 82 GB/s of cache, 3 ms fixed.
PLAIN = {
    "dense_read_s": 9e-3,
    "expert_read_s": 0.0,
    "expert_hit_share": 0.0,
    "kv_read_s_per_token": 2.5e-8,
    "sliding_read_s_per_token": 0.0,
    "window_tokens": 0.0,
    "compute_s_per_token": 4e-5,
    "fixed_s": 3e-3,
    "sequence_s": 2e-5,
    "allreduce_s_per_token": 1e-5,
    "prefill_s_per_token": 5e-5,
    "prefill_s_per_token2": 5e-10,
    "chunk_tokens": 8192.0,
    "ttft_floor_s": 0.05,
}


def coefficients(**changes: float) -> StepCoefficients:
    return StepCoefficients(**{name: np.asarray(value) for name, value in (PLAIN | changes).items()})


FREE_PROMPTS = coefficients(prefill_s_per_token=0.0, prefill_s_per_token2=0.0, ttft_floor_s=0.0)
"""What is left of a prompt is the read of its one chunk, 12 ms."""


def life_s(found: Operating, output_tokens: float) -> float:
    return float(found.concurrency / (found.output_tok_s / output_tokens))


def test_one_client_by_hand() -> None:
    """A prefix cache holds everything: the client always decodes. 9 + 3 ms, 1,050 tokens of cache, 30 us."""
    found = closed_loop(coefficients(ttft_floor_s=0.0), 1, 1000, 100, cached_share=1.0)
    tpot_s = 12e-3 + 1050 * 2.5e-8 + 3e-5
    assert float(found.tpot_s) == pytest.approx(tpot_s)
    assert float(found.output_tok_s) == pytest.approx(100 / (99 * tpot_s))
    assert float(found.total_tok_s) == pytest.approx(11 * float(found.output_tok_s))


@pytest.mark.parametrize(("clients", "prompt", "output"), [(1, 1000, 100), (64, 8000, 200), (512, 1000, 1000)])
def test_tpot_is_the_balance_of_decoding_and_prompts(clients: int, prompt: int, output: int) -> None:
    """Put the result back into the equation that it solves."""
    c = coefficients()
    found = closed_loop(c, clients, prompt, output)
    life = life_s(found, output)
    streams = clients * (output - 1) * float(found.tpot_s) / life
    share = clients / life * float(prefill_work_s(c, prompt))
    assert 0 < share < 1
    step_s = interfered_tpot_s(c, streams, streams * (prompt + output / 2), share)
    assert float(step_s) == pytest.approx(float(found.tpot_s), rel=1e-6)


def test_prompts_take_most_of_the_time_and_leave_the_rest() -> None:
    """200 clients with prompts of half a second and 20 tokens: decoding waits for prompts, and never stops."""
    found = closed_loop(coefficients(), 200, 10_000, 20)
    rate = float(found.output_tok_s) / 20
    busy = rate * float(prefill_work_s(coefficients(), 10_000))
    assert 0.8 < busy < 1
    assert np.isfinite(found.tpot_s)


def test_nothing_cached_is_the_default() -> None:
    plain, none = closed_loop(coefficients(), 32, 2000, 200), closed_loop(coefficients(), 32, 2000, 200, cached_share=0)
    assert plain == none


@pytest.mark.parametrize("share", [0.25, 0.5, 1.0])
def test_a_prefix_cache_speeds_everything_up(share: float) -> None:
    without = closed_loop(coefficients(), 32, 4000, 200)
    found = closed_loop(coefficients(), 32, 4000, 200, cached_share=share)
    assert float(found.tpot_s) < float(without.tpot_s)
    assert float(found.output_tok_s) > float(without.output_tok_s)


def test_with_everything_cached_prompts_cost_nothing() -> None:
    cached = closed_loop(coefficients(), 32, 4000, 200, cached_share=1.0)
    tpot_s = float(cached.tpot_s)
    streams = 32 * 199 * tpot_s / life_s(cached, 200)
    assert tpot_s == pytest.approx(float(decode_step_s(coefficients(), streams, streams * 4100)))


def test_accepted_drafts_divide_the_step() -> None:
    one, two = (closed_loop(FREE_PROMPTS, 1, 1000, 1001, cached_share=1.0, acceptance=a) for a in (1.0, 2.0))
    assert float(two.tpot_s) == pytest.approx(float(one.tpot_s) / 2)
    assert float(two.output_tok_s) == pytest.approx(2 * float(one.output_tok_s))


def test_room_that_is_never_full_changes_nothing() -> None:
    for room in (64, 1000, np.inf):
        found = closed_loop(coefficients(), 64, 1000, 200, room=room)
        for item in fields(Operating):
            value = getattr(closed_loop(coefficients(), 64, 1000, 200), item.name)
            assert float(getattr(found, item.name)) == pytest.approx(float(value))


def test_whoever_finds_no_room_waits() -> None:
    """Of 200 clients 50 run: TPOT and throughput are those of 50, and Little's law holds for all 200."""
    full, fifty = closed_loop(coefficients(), 200, 1000, 200, room=50), closed_loop(coefficients(), 50, 1000, 200)
    assert float(full.tpot_s) == pytest.approx(float(fifty.tpot_s))
    assert float(full.output_tok_s) == pytest.approx(float(fifty.output_tok_s))
    for found, clients in ((full, 200), (fifty, 50)):
        assert float(found.concurrency) == clients
        assert clients == pytest.approx(float(found.output_tok_s) / 200 * float(found.ttft_s + 199 * found.tpot_s))
    assert float(full.ttft_s) == pytest.approx(3 * life_s(fifty, 200) + float(fifty.ttft_s))  # three turns


def test_less_than_one_client_is_an_idle_replica() -> None:
    found = closed_loop(coefficients(), 0.1, 1000, 100)
    idle_s = float(decode_step_s(coefficients(), 0, 0))
    assert idle_s < float(found.tpot_s) < float(closed_loop(coefficients(), 1, 1000, 100).tpot_s)
    assert np.isfinite([float(getattr(found, item.name)) for item in fields(Operating)]).all()


@pytest.mark.parametrize(("prompt", "output"), [(0, 100), (1000, 1), (0, 1), (1000, 2)])
def test_shortest_requests_have_finite_figures(prompt: int, output: int) -> None:
    found = closed_loop(coefficients(), 8, prompt, output)
    assert np.isfinite([float(getattr(found, item.name)) for item in fields(Operating)]).all()
    assert float(found.tpot_s) > 0


def test_points_at_once_equal_each_alone() -> None:
    models = [coefficients(), coefficients(dense_read_s=1e-3, chunk_tokens=300), FREE_PROMPTS]
    both = stack([SpeedModel(c, Band(0.8, 1.2), Band(0.5, 2.0), "test") for c in models])
    clients, prompts, outputs, room = (
        np.array(v) for v in ([1, 64, 300], [100, 8000, 1000], [10, 200, 900], [9, 9, 90])
    )
    together = closed_loop(both, clients, prompts, outputs, room=room)
    for i, c in enumerate(models):
        alone = closed_loop(c, clients[i], prompts[i], outputs[i], room=room[i])
        for item in fields(Operating):
            assert float(getattr(together, item.name)[i]) == pytest.approx(float(getattr(alone, item.name)), rel=1e-12)


loads = {
    "clients": st.floats(1, 2000),
    "more": st.floats(0, 500),
    "prompt": st.integers(1, 30_000),
    "output": st.integers(2, 4000),
}
SLACK = 1 - 1e-6


@settings(max_examples=100)
@given(**loads)
def test_more_clients_never_raise_the_decode_rate(clients: float, more: float, prompt: int, output: int) -> None:
    few, many = (closed_loop(coefficients(), n, prompt, output) for n in (clients, clients + more))
    assert float(many.tpot_s) >= float(few.tpot_s) * SLACK
    assert float(many.ttft_s) >= float(few.ttft_s) * SLACK


@settings(max_examples=100)
@given(**loads, room=st.floats(0.5, 500))
def test_waiting_clients_never_slow_those_that_run(
    clients: float, more: float, prompt: int, output: int, room: float
) -> None:
    few, many = (closed_loop(coefficients(), n, prompt, output, room=room) for n in (clients, clients + more))
    bound = closed_loop(coefficients(), room, prompt, output)
    assert float(few.tpot_s) <= float(many.tpot_s) / SLACK
    assert float(many.tpot_s) <= float(bound.tpot_s) / SLACK


@settings(max_examples=25)
@given(**loads, share=st.floats(1e-3, 1.0))
def test_a_faster_machine_is_never_slower(clients: float, more: float, prompt: int, output: int, share: float) -> None:
    """Bandwidth, compute and overheads, each better by the same share."""
    del more
    slow = coefficients()
    times = [item.name for item in fields(StepCoefficients) if item.name.endswith(("_s", "_token", "_token2"))]
    for name in times:
        fast = replace(slow, **{name: getattr(slow, name) * share})
        found, plain = (closed_loop(c, clients, prompt, output) for c in (fast, slow))
        assert float(found.ttft_s + (output - 1) * found.tpot_s) <= (
            float(plain.ttft_s + (output - 1) * plain.tpot_s) / SLACK
        ), name


def test_static_batch_by_hand() -> None:
    """Two prompts of 100 tokens and three tokens each: the first comes with the prefill."""
    c = coefficients()
    prefill = max(float(prefill_s(c, 100)), 2 * float(prefill_work_s(c, 100)))
    steps = 2 * (9e-3 + 3e-3 + 2 * 3e-5) + 2 * (101 + 102) * 2.5e-8
    assert static_batch_s(c, 2, 100, 3) == pytest.approx(prefill + steps)
    assert static_batch_s(c, 2, 100, 1) == pytest.approx(prefill)
