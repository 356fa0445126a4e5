"""The exact law: closed forms, a finer lattice, and one answer however it is asked."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import gammaincinv
from scipy.stats import nbinom, poisson

from planner.queueing.footprint import marks_of, moments_of
from planner.queueing.lattice import ages_of, density_of, exponent_of, span_at_least
from planner.queueing.live_tokens import LiveLoad, batch_mean, live_tokens, live_tokens_batch
from planner.queueing.residence import Residence, footprint_integral
from planner.traffic.source import load_traffic
from tests.queueing.laws import law_of, plain_sizing

TRACES = Path(__file__).parents[2] / "catalogs" / "example" / "traffic"


def stay_of(prefill_s: float, token_s: float) -> Residence:
    return Residence(*(np.asarray(v) for v in (prefill_s, 0.0, 0.0, token_s)))


HELD_ONLY = stay_of(5.0, 1e-9)


def constant():
    law = law_of(np.array([1000]), np.array([0]))
    marks = marks_of(law, plain_sizing(block=1))
    return marks, moments_of(marks, law)


@pytest.fixture(scope="module")
def real():
    found = {}
    for name in ("AzureLLMInferenceTrace_code.csv", "AzureLLMInferenceTrace_conv.csv",
                 "mooncake_conversation_head2500.jsonl"):  # fmt: skip
        law = load_traffic(TRACES / name, name=name).law
        marks = marks_of(law, plain_sizing())
        found[name] = marks, moments_of(marks, law)
    return found


@pytest.mark.parametrize("rate", [0.02, 0.5, 4.0, 60.0])
def test_constant_footprints_are_poisson(rate):
    """M/D/infinity: 1,000 tokens times a Poisson number, at every pool and quantile."""
    law = live_tokens(rate, 1.0, *constant(), HELD_ONLY)
    for overflow in (0.1, 0.01, 0.001):
        assert law.quantile(overflow) == pytest.approx(
            1000 * poisson.isf(overflow, 5 * rate), rel=2e-3, abs=law.step_tokens
        )
    for count in range(int(3 * rate) + 2):
        tail = poisson.sf(count, 5 * rate)
        if tail > 0.002:
            assert law.overflow(1000 * (count + 0.5)) == pytest.approx(tail, abs=2e-4)


def test_a_gamma_rate_makes_the_count_negative_binomial():
    """A Poisson number with a gamma mean, in closed form; its tail is far above the Poisson one."""
    mean, cv2 = 20.0, 0.09
    law = live_tokens(4.0, 1.0, *constant(), HELD_ONLY, rate_cv2=cv2)
    size = 1 / cv2
    for overflow in (0.05, 0.01, 0.001):
        exact = nbinom.isf(overflow, size, size / (size + mean))
        assert law.quantile(overflow) == pytest.approx(1000 * exact, rel=3e-3)
    assert law.quantile(0.001) > 1.4 * live_tokens(4.0, 1.0, *constant(), HELD_ONLY).quantile(0.001)


def test_a_rate_of_almost_no_doubt_is_certain():
    sure = live_tokens(4.0, 3.0, *constant(), HELD_ONLY).quantile(0.01)
    assert live_tokens(4.0, 3.0, *constant(), HELD_ONLY, rate_cv2=1e-7).quantile(0.01) == pytest.approx(sure, rel=1e-3)


def test_much_uncertainty_of_many_requests_is_the_uncertainty():
    """With thousands live, only the doubt about the rate is left: a gamma of its mean."""
    law = live_tokens(4000.0, 1.0, *constant(), HELD_ONLY, rate_cv2=0.04)
    gamma = gammaincinv(25.0, 0.99) / 25.0 * 4000 * 5 * 1000
    assert law.quantile(0.01) == pytest.approx(gamma, rel=5e-3)


def fine_quantiles(marks, moments, stay, rate, idc, cv2, span, points):
    ages = ages_of(marks, stay, float(footprint_integral(moments, stay, 1)), span, points=points, cells=128)
    density = density_of(exponent_of(ages, float(batch_mean(idc))), rate, cv2, points)
    return [np.searchsorted(np.cumsum(density), 1 - overflow) * span / points for overflow in (0.01, 0.001)]


@pytest.mark.parametrize(("rate", "idc", "cv2"), [(0.3, 1.0, 0.0), (3.0, 8.0, 0.02), (30.0, 2.0, 0.0)])
@pytest.mark.parametrize("decode_rate", [20.0, 100.0])
def test_close_to_a_finer_lattice(real, decode_rate, rate, idc, cv2):
    """Within 0.2 % of 2^15 points and twice the ages, for a Poisson, a bursty and an uncertain load."""
    for marks, moments in real.values():
        stay = stay_of(0.2, 1 / decode_rate)
        fast = live_tokens(rate, idc, marks, moments, stay, rate_cv2=cv2)
        span = fast.step_tokens * len(fast.cumulative)
        fine = fine_quantiles(marks, moments, stay, rate, idc, cv2, span, 2**15)
        assert [fast.quantile(0.01), fast.quantile(0.001)] == pytest.approx(fine, rel=2e-3)


def test_close_to_a_lattice_of_a_quarter_million_points(real):
    marks, moments = real["AzureLLMInferenceTrace_conv.csv"]
    stay = stay_of(0.2, 0.025)
    fast = live_tokens(5.5, 3.0, marks, moments, stay, rate_cv2=0.01)
    span = fast.step_tokens * len(fast.cumulative)
    fine = fine_quantiles(marks, moments, stay, 5.5, 3.0, 0.01, span, 2**18)
    assert [fast.quantile(0.01), fast.quantile(0.001)] == pytest.approx(fine, rel=2e-3)


def test_a_batch_of_loads_gives_each_the_law_that_it_has_alone(real):
    loads = [
        LiveLoad(rate, idc, marks, moments, stay_of(0.2, 1 / v), cv2)
        for marks, moments in real.values()
        for rate, idc, v, cv2 in ((0.1, 1.0, 40, 0.0), (7.0, 1.0, 40, 0.0), (3.0, 9.0, 40, 0.01), (3.0, 9.0, 80, 0.0))
    ]
    together = live_tokens_batch(loads[::-1], 0.01)[::-1]
    for load, law in zip(loads, together, strict=True):
        alone = live_tokens(
            load.rate_per_s, load.idc, load.marks, load.moments, load.stay, rate_cv2=load.rate_cv2,
            smallest_overflow=0.01,
        )  # fmt: skip
        assert law.step_tokens == alone.step_tokens
        np.testing.assert_array_equal(law.cumulative, alone.cumulative)


def test_a_hundred_loads_in_two_cpu_seconds(real):
    """A tenth of the thousand combinations that must take 20 s."""
    loads = [
        LiveLoad(rate, 3.0, marks, moments, stay_of(0.2, 1 / v))
        for marks, moments in real.values()
        for v in (30, 60)
        for rate in np.geomspace(0.5, 20, 17)
    ]
    start = time.process_time()
    live_tokens_batch(loads)
    assert time.process_time() - start < 4.0, "twice the bar: the machine that runs this is shared"


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 60_000), st.integers(1, 3000)), min_size=1, max_size=10),
    rate=st.floats(0.05, 30),
    idc=st.floats(1, 60),
    cv2=st.floats(0, 0.3),
)
def test_quantile_grows_with_rate_burst_and_doubt(lengths, rate, idc, cv2):
    law = law_of(*(np.array(side) for side in zip(*lengths, strict=True)))
    marks = marks_of(law, plain_sizing(block=16))
    moments, stay = moments_of(marks, law), stay_of(0.2, 0.02)

    def quantile(rate: float, idc: float, cv2: float, overflow: float = 0.01) -> float:
        found = live_tokens(rate, idc, marks, moments, stay, rate_cv2=cv2)
        return found.quantile(overflow) + 2 * found.step_tokens

    base = live_tokens(rate, idc, marks, moments, stay, rate_cv2=cv2).quantile(0.01)
    assert base <= quantile(rate * 1.3, idc, cv2)
    assert base <= quantile(rate, idc, cv2, overflow=0.003)
    if base > 3 * float(footprint_integral(moments, stay, 1)) * rate:
        return  # a sum that is mostly 0: more doubt or larger batches make it 0 more often
    assert base <= quantile(rate, idc * 1.5, cv2) * 1.005
    assert base <= quantile(rate, idc, cv2 + 0.1) * 1.005


def test_random_routing_needs_less_than_a_share_more(real):
    """Need of one of n replicas falls as n grows, but by less than n: pooling is lost."""
    marks, moments = real["AzureLLMInferenceTrace_conv.csv"]
    stay = stay_of(0.2, 0.025)
    needs = [live_tokens(5.5 / n, 1 + 3.0 / n, marks, moments, stay).quantile(0.01) for n in (1, 2, 4, 8)]
    for one, two in itertools.pairwise(needs):
        assert two < one < 2 * two


def test_a_pool_beyond_the_lattice_gets_its_bound():
    law = live_tokens(4.0, 1.0, *constant(), HELD_ONLY)
    assert 0 <= law.overflow(1e12) <= 1e-3
    with pytest.raises(ValueError, match="overflows larger"):
        law.quantile(1e-9)
    assert live_tokens(4.0, 1.0, *constant(), HELD_ONLY, smallest_overflow=1e-6).quantile(1e-6) == pytest.approx(
        1000 * poisson.isf(1e-6, 20.0), rel=2e-3
    )


def test_spans_do_not_depend_on_companions():
    assert span_at_least(1000.0) == span_at_least(1020.0) == 1024.0
    assert span_at_least(1025.0) == pytest.approx(1024 * 2**0.5)


def test_next_to_nothing_live():
    """A request every ten minutes that stays a quarter of a second: nothing is live in 99.9 % of the time."""
    law = law_of(np.array([9, 40]), np.array([1, 2]))
    marks = marks_of(law, plain_sizing())
    found = live_tokens(1 / 600, 2.0, marks, moments_of(marks, law), stay_of(0.2, 0.025), rate_cv2=0.2)
    assert found.quantile(0.001) == 0.0
    assert found.overflow(0.0) == pytest.approx(0.2375 / 600 / 1.5, rel=0.2)
