from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.speed.ttft import admission_wait_s, closed_loop_ttft_s, running_ttft_s
from planner.speed.types import StepCoefficients

# Round numbers, so that every figure below is a sum done by hand. A prompt of 1,000 tokens: 100 ms of compute and 1 ms
# of attention; alone it takes one chunk with 2 ms of overhead.
C = StepCoefficients(
    **{
        name: np.asarray(value)
        for name, value in {
            "dense_read_s": 4e-3,
            "expert_read_s": 0.0,
            "expert_hit_share": 0.0,
            "kv_read_s_per_token": 0.0,
            "sliding_read_s_per_token": 0.0,
            "window_tokens": 1.0,
            "compute_s_per_token": 1e-4,
            "fixed_s": 2e-3,
            "sequence_s": 0.0,
            "allreduce_s_per_token": 0.0,
            "prefill_s_per_token": 1e-4,
            "prefill_s_per_token2": 1e-9,
            "chunk_tokens": 1000.0,
            "ttft_floor_s": 0.03,
        }.items()
    }
)


def engine(client_s: float = 0.001, wait_steps: float = 3.0, together_share: float = 0.1) -> StepCoefficients:
    return dataclasses.replace(
        C,
        ttft_client_s=np.asarray(client_s),
        ttft_wait_steps=np.asarray(wait_steps),
        ttft_together_share=np.asarray(together_share),
    )


def test_a_single_client_by_hand() -> None:
    # floor 30 + front end 1 + prefill 103 + 3 steps x 10 ms; no other prompt
    assert float(running_ttft_s(engine(), 1, 1000, 0.01)) == pytest.approx(0.164)


def test_prompts_that_arrive_together_by_hand() -> None:
    # 21 requests: floor 30 + front end 21 + prefill 103 + 30, and half of a tenth of 20 others: 1 x 101 ms
    assert float(running_ttft_s(engine(), 21, 1000, 0.01)) == pytest.approx(0.285)


def test_in_lockstep_half_of_the_others_go_first() -> None:
    # 21 together: the mean place in the queue is the 11th, so ten prompts of 101 ms go first
    lockstep, staggered = (float(running_ttft_s(engine(together_share=s), 21, 1000, 0.01)) for s in (1.0, 0.0))
    assert lockstep - staggered == pytest.approx(1.01)


def test_a_cached_prefix_is_not_computed() -> None:
    # half of the prompt cached: 500 tokens of compute 50 ms, attention 1 - 0.25 of 1 ms, overhead 2 ms
    assert float(running_ttft_s(engine(client_s=0.0, wait_steps=0.0), 1, 1000, 0.01, 0.5)) == pytest.approx(
        0.03 + 0.05275
    )


def test_wait_for_a_place_by_hand() -> None:
    # 30 clients, room for 10: 10 leave every life of 6 s, so 20 waiting are two lives away from their turn
    assert float(admission_wait_s(30, 10, 6.0)) == pytest.approx(12.0)


@pytest.mark.parametrize(("clients", "room"), [(10, 10), (3, 10), (3, np.inf)])
def test_whoever_finds_room_does_not_wait(clients: float, room: float) -> None:
    assert float(admission_wait_s(clients, room, 6.0)) == 0.0


def test_without_room_nobody_is_served() -> None:
    assert np.isinf(admission_wait_s(3, 0, 6.0))


def test_closed_loop_by_hand() -> None:
    # 42 clients, room for 21: the 21 that run see 285 ms (above) and live 285 + 100 x 10 ms, one life is waited for
    found = closed_loop_ttft_s(engine(), 42, 1000, 101, 0.01, room=21)
    assert float(found) == pytest.approx(0.285 + 1.285)


def test_littles_law_holds() -> None:
    # clients = throughput x (TTFT + decoding), with the throughput of the requests that run
    ttft = float(closed_loop_ttft_s(engine(), 50, 1000, 101, 0.01, room=20))
    life = float(running_ttft_s(engine(), 20, 1000, 0.01)) + 100 * 0.01
    assert 20 / life * (ttft + 100 * 0.01) == pytest.approx(50)


def test_points_of_several_engines_at_once() -> None:
    both = dataclasses.replace(
        C,
        ttft_client_s=np.array([0.001, 0.0]),
        ttft_wait_steps=np.array([3.0, 10.0]),
        ttft_together_share=np.array([0.1, 0.0]),
    )
    assert running_ttft_s(both, 21, 1000, 0.01) == pytest.approx(np.array([0.285, 0.03 + 0.103 + 0.1]))


def test_an_infinite_tpot_makes_an_infinite_ttft_without_a_warning() -> None:
    assert np.isinf(closed_loop_ttft_s(engine(), 4, 1000, 101, np.inf, room=2))


@given(
    clients=st.integers(1, 500),
    room=st.floats(1, 500),
    prompt=st.integers(1, 20_000),
    output=st.integers(1, 5000),
    tpot=st.floats(1e-3, 0.2),
)
def test_more_of_anything_never_shortens_the_wait(
    clients: int, room: float, prompt: int, output: int, tpot: float
) -> None:
    c = engine()

    def ttft(n: int = clients, places: float = room, p: int = prompt, o: int = output, t: float = tpot) -> float:
        return float(closed_loop_ttft_s(c, n, p, o, t, room=places))

    now = ttft()
    assert ttft(n=clients + 1) >= now
    assert ttft(p=prompt + 100) >= now
    assert ttft(o=output + 100) >= now
    assert ttft(t=tpot * 1.5) >= now


def test_an_engine_constant_never_shortens_the_wait() -> None:
    base = float(running_ttft_s(engine(), 8, 1000, 0.01))
    for name in ("ttft_client_s", "ttft_wait_steps", "ttft_together_share"):
        more = dataclasses.replace(engine(), **{name: getattr(engine(), name) + 0.5})
        assert float(running_ttft_s(more, 8, 1000, 0.01)) > base
