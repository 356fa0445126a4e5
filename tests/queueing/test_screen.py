"""Many candidates at once: the same steady states, burst curves and judgements as one at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.queueing.dispersion import Dispersion, dispersion_of, stack_dispersions
from planner.queueing.feedback import feedback_of
from planner.queueing.footprint import marks_of, moments_of, stack_moments
from planner.queueing.holding import pool_token_equivalents
from planner.queueing.live_tokens import live_tokens, quantile_lower_bound, quantile_upper_bound, thinned_idc
from planner.queueing.load import Candidates, Demand, Limits, PoolCheck, scaled, settle, used_shares, work_s
from planner.queueing.replicas import feasible, least_holding, least_replicas, peak_replicas
from planner.queueing.residence import Residence
from planner.queueing.screen import screen_of
from planner.queueing.waiting import prompt_points, stack_points
from planner.speed.step import interfered_tpot_s, mean_prefill_work_s, stack
from tests.queueing.laws import burst_of, law_of, plain_sizing, speed_of

RNG = np.random.default_rng(3)
LAW = law_of(
    np.round(RNG.lognormal(6.3, 0.9, 300)).astype(np.int64) + 1,
    np.round(RNG.lognormal(4.8, 0.8, 300)).astype(np.int64) + 1,
)


def candidates_of(blocks: list[int], seqs: list[int], experts: float, tpot_edge: float = 1.0) -> Candidates:
    """As many candidates as pools, with ever slower steps; some read experts."""
    sizing = plain_sizing()
    marks = marks_of(LAW, sizing)
    speeds = [
        speed_of(dense_read_s=0.004 * (1 + i), expert_read_s=experts, expert_hit_share=0.06 if experts else 0.0)
        for i in range(len(blocks))
    ]
    return Candidates(
        coefficients=scaled(stack(speeds), tpot_edge),
        moments=stack_moments([moments_of(marks, LAW)]),
        moment_index=np.zeros(len(blocks), dtype=np.int64),
        pool_tokens=np.array([pool_token_equivalents(plain_sizing(num_blocks=n)) for n in blocks]),
        max_num_seqs=np.array([float(n) for n in seqs]),
        ttft_edge=np.full(len(blocks), 1.1),
    )


def curve(slope: float) -> Dispersion:
    """Bursts that grow with the scale, as those of real logs do."""
    scale = np.array([1.0, 5.0, 15.0, 60.0, 300.0, 3600.0])
    return Dispersion(np.log(scale), 1.0 + slope * scale**0.6)


def plain_iteration(candidates: Candidates, demand: Demand, replicas: np.ndarray) -> np.ndarray:
    """The time per token by nothing but repetition, from an empty replica up."""
    c, m = candidates.coefficients, candidates.moments.at(candidates.moment_index)
    rate = demand.rate_per_s / replicas
    share = rate * (c.prefill_s_per_token * m.mean_prompt + c.prefill_s_per_token2 * m.mean_prompt2)
    empty = interfered_tpot_s(c, np.zeros_like(rate), np.zeros_like(rate), share)
    token_s = empty
    answer = feedback_of(m, share, rate * work_s(c, m), mean_prefill_work_s(c, m.mean_prompt, m.mean_prompt2))
    for _ in range(20_000):
        live = rate * m.mean_output * token_s
        idc = thinned_idc(demand.dispersion.at(answer.swing_s(m.mean_output * token_s)), replicas)
        seen = live + answer.met_beyond_mean(idc)
        held = rate * m.read_tokens * token_s * seen / live
        new = np.minimum(interfered_tpot_s(c, seen, held, share) + answer.held_up_s(idc), empty * 200)
        if np.all(np.abs(new - token_s) <= 1e-12 * token_s):
            break
        token_s = new
    return np.where(token_s < empty * 199, token_s, np.inf)


@settings(max_examples=40, deadline=None)
@given(rate=st.floats(0.05, 30), slope=st.floats(0.0, 3.0), experts=st.sampled_from([0.0, 0.02]), n=st.integers(1, 6))
def test_lengthened_steps_settle_where_repetition_does(rate, slope, experts, n):
    """The smallest fixed point, to 0.001 %, also where expert reads bend the step and bursts grow with the scale."""
    candidates = candidates_of([20_000] * 3, [256] * 3, experts)
    demand = Demand(rate, curve(slope), prompt_points(LAW))
    replicas = np.full(3, float(n))
    found, repeated = settle(candidates, demand, replicas).token_s, plain_iteration(candidates, demand, replicas)
    settled = np.isfinite(repeated)
    assert (np.isfinite(found) == settled).all()
    assert found[settled] == pytest.approx(repeated[settled], rel=1e-5)


@settings(max_examples=60, deadline=None)
@given(
    rate=st.floats(0.1, 150), slope=st.floats(0.0, 3.0), n=st.integers(1, 12), blocks=st.integers(300, 20_000),
    seqs=st.integers(2, 300), tpot=st.sampled_from([np.inf, 0.03, 0.012]), ttft=st.sampled_from([np.inf, 3.0, 0.4]),
    overflow=st.floats(0.001, 0.1), check=st.sampled_from(list(PoolCheck)),
)  # fmt: skip
def test_yes_or_no_is_what_the_shares_say(rate, slope, n, blocks, seqs, tpot, ttft, overflow, check):
    candidates = candidates_of([blocks, blocks * 2, blocks], [seqs, seqs, seqs * 3], 0.0, 1.2)
    demand = Demand(rate, curve(slope), prompt_points(LAW))
    limits = Limits(overflow, 0.85, tpot, ttft, 0.95)
    shares = np.max(
        np.stack(list(used_shares(candidates, demand, np.full(3, float(n)), limits, check).values())), axis=0
    )
    first = np.zeros(3, dtype=np.int64)
    (held,) = screen_of(candidates, demand, limits).holds(np.arange(3), first, np.full(3, n), (check,))
    clear = np.abs(shares - 1.0) > 1e-6
    assert (held[clear] == (shares <= 1.0)[clear]).all()


def test_candidates_with_one_steady_state_differ_by_pool_and_cap_alone():
    """The same replica asked three times: a pool that is too small and a cap that is too low are told apart."""
    candidates = candidates_of([20_000], [256], 0.0)
    demand, limits = Demand(2.0, curve(0.0), prompt_points(LAW)), Limits(0.01, 0.85)
    one = screen_of(candidates, demand, limits)
    shared = type(one)(
        **{**one.__dict__, "state": np.zeros(3, np.int64), "pool_tokens": np.array([3e5, 10.0, 3e5]),
           "max_num_seqs": np.array([256.0, 256.0, 1.0])}
    )  # fmt: skip
    (held,) = shared.holds(np.arange(3), np.zeros(3, np.int64), np.ones(3, np.int64), (PoolCheck.BOUND,))
    assert held.tolist() == [True, False, False]


def test_stacked_curves_are_each_its_own():
    curves = [curve(2.0), dispersion_of(burst_of(7.0)), Dispersion(np.log([2.0, 90.0]), np.array([3.0, 40.0]))]
    scales = np.geomspace(0.01, 1e5, 101)
    stacked = stack_dispersions(curves, np.repeat([2, 0, 1], 101))
    each = np.concatenate([curves[number].at(scales) for number in (2, 0, 1)])
    assert stacked.at(np.tile(scales, 3)) == pytest.approx(each, rel=1e-12)
    assert stacked.take(np.arange(101, 202)).at(scales) == pytest.approx(curves[0].at(scales), rel=1e-12)
    assert stacked.scale_idc[2] == pytest.approx(curves[2].at(curves[2].scales_s))


def test_stacked_points_keep_every_law():
    laws = [prompt_points(LAW), prompt_points(law_of(np.array([7, 9]), np.array([1, 1])))]
    both = stack_points(laws)
    assert both.weight.sum(axis=1) == pytest.approx([1.0, 1.0])
    for number, law in enumerate(laws):
        assert both.powers[:, number] == pytest.approx(law.powers)


@settings(max_examples=25, deadline=None)
@given(rate=st.floats(0.05, 20), idc=st.floats(1, 40), overflow=st.floats(0.001, 0.2))
def test_the_exact_quantile_lies_between_the_bounds(rate, idc, overflow):
    sizing = plain_sizing()
    marks = marks_of(LAW, sizing)
    moments = moments_of(marks, LAW)
    stay = Residence(*(np.asarray(value) for value in (0.02, 3e-5, 0.0, 0.02)))
    arguments = np.asarray(rate), np.asarray(idc), moments, stay, overflow
    exact = live_tokens(rate, idc, marks, moments, stay, smallest_overflow=0.001).quantile(overflow)
    assert quantile_lower_bound(*arguments) <= exact <= quantile_upper_bound(*arguments)


@given(least=st.lists(st.integers(1, 10**6), min_size=1, max_size=8), data=st.data())
def test_search_finds_the_least_between_what_is_known(least, data):
    answer = np.array(least)
    low = np.array([data.draw(st.integers(0, n - 1)) for n in least])
    asked: list[int] = []

    def holds(place: np.ndarray, n: np.ndarray) -> np.ndarray:
        asked.append(len(place))
        return n >= answer[place]

    assert (least_holding(holds, low) == answer).all()
    assert len(asked) <= 60
    high = answer + np.array([data.draw(st.integers(0, 1000)) for _ in least])
    assert (least_holding(holds, low, high) == answer).all()


def test_search_leaves_what_became_needless():
    """The second place is needless from 5 on; the first is found."""
    found = least_holding(
        lambda place, n: n >= np.array([9, 9])[place], np.zeros(2, np.int64),
        needless=lambda low: (low >= 5) & np.array([False, True]),
    )  # fmt: skip
    assert found.tolist() == [9, 0]


def test_work_alone_is_a_lower_bound_that_the_search_starts_from():
    """200/s of some 0.4 s of replica time each are some 100 replicas."""
    candidates, demand = candidates_of([20_000] * 2, [256] * 2, 0.0), Demand(200.0, curve(0.5), prompt_points(LAW))
    limits = Limits(0.01, 0.85)
    start, least = screen_of(candidates, demand, limits).least_by_work(), least_replicas(candidates, demand, limits)
    assert (start > 1).all()
    assert (start <= least).all()
    assert not feasible(candidates, demand, start - 1.0, limits).any()


def test_only_what_is_surely_outdone_is_left_out_at_the_peak():
    """A slower replica with a larger pool stays while the faster one's own need is unsure, and goes when it is sure.

    At any rate the faster one's bound is lower; it may turn out to need as many as `PoolCheck.SURE` says.
    """
    limits, kept, dropped = Limits(0.01, 0.85), 0, 0
    for rate in np.geomspace(1.0, 40.0, 25):
        candidates = candidates_of([2_000, 5_000, 1_000], [256] * 3, 0.0)
        demand = Demand(float(rate), curve(0.1), prompt_points(LAW))
        bound, sure = (least_replicas(candidates, demand, limits, check) for check in (PoolCheck.BOUND, PoolCheck.SURE))
        everyone, same = np.arange(3), np.zeros(3, dtype=np.int64)
        found = peak_replicas(screen_of(candidates, demand, limits), everyone, same, same)
        assert set(np.nonzero(found == 0)[0]) <= set(np.nonzero(bound > sure.min())[0])
        assert (found[found > 0] == bound[found > 0]).all()
        kept += int(((bound > bound.min()) & (bound <= sure.min())).sum())
        dropped += int((found == 0).sum())
    assert kept > 0
    assert dropped > 0


def test_a_candidate_that_refuses_less_is_not_outdone_by_one_that_refuses_more():
    """The second candidate is far better; it outdoes the first one only if it refuses no more."""
    candidates = candidates_of([30_000, 400], [256] * 2, 0.0)
    screen = screen_of(candidates, Demand(20.0, curve(0.0), prompt_points(LAW)), Limits(0.01, 0.85))
    order, same = np.array([1, 0]), np.zeros(2, dtype=np.int64)
    assert (peak_replicas(screen, order, same, same) == 0).tolist() == [True, False]
    assert (peak_replicas(screen, order, same, np.array([0, 1])) > 0).all()
