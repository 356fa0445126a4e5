"""Slices over two GPU types: which are made, what they cost, and that those left out could not have paid."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.optimise.needs.candidate_table import stacked
from planner.optimise.needs.columns import columns_of
from planner.optimise.needs.exact import exact_need
from planner.optimise.recount import recount
from planner.optimise.solve import fleet as fleet_module
from planner.optimise.solve import splits as splits_module
from planner.optimise.solve.fleet import NOT_SPLIT, Fleet
from planner.optimise.solve.list_price import ListPrice, limited_gpus
from planner.optimise.solve.ratio import solve_ratio
from planner.optimise.solve.splits import need_at_share, paying_splits, replicas_at_share
from planner.optimise.types import LotKind, Placement, ProgramData, Supply
from planner.plan import SolveStatus
from planner.queueing.load import PoolCheck
from planner.queueing.replicas import feasible, least_replicas
from planner.request import Quota
from tests.optimise.small_programs import TWO, column, data, lot, part
from tests.optimise.world import SETTINGS, candidates, offer, periods_of, workload
from tests.optimise.world import fleet as fleet_of

CHEAP, DEAR = "L40S", "A100-80GB-SXM"
HOURS = 2160.0


def quota(gpu: str, gpus: int) -> dict[str, object]:
    return Quota(name=gpu, gpu=gpu, max_gpus=gpus).model_dump()


def by_hand(counts: dict[str, dict[str, int]], prices: dict[str, float], pools: int = 2, **limits: int) -> Fleet:
    """Models with given numbers of one-GPU replicas by GPU type, taken as exact, at USD per GPU-hour."""
    works = [workload(name, rate=30.0, seed=1, tp_degrees=(1,)) for name in counts]
    offers = [offer(gpu, 1, usd) for gpu, usd in prices.items()]
    quotas = [quota({"cheap": CHEAP, "dear": DEAR}[which], most) for which, most in limits.items()]
    world = fleet_of(works, offers, quota=quotas, routing={"max_pools": pools})
    needs = {
        name: [
            replace(next(n for n in world.needs(name) if n.config.gpu.id == gpu), replicas=(count,), exact=True)
            for gpu, count in wanted.items()
        ]
        for name, wanted in counts.items()
    }
    return Fleet(works, needs, world._spares, world._data, lambda text: None)


@pytest.fixture
def bounds_are_exact(monkeypatch):
    """Lower bounds of shares taken as the truth, so that costs can be counted by hand."""
    monkeypatch.setattr(fleet_module, "exact_need", lambda need: replace(need, exact=True))


EIGHT = {"m": {CHEAP: 8, DEAR: 8}}
PRICES = {CHEAP: 1.0, DEAR: 2.0}


def test_replicas_at_a_share_by_hand():
    """7 of 8 do not hold all, so 7/8 * k do not hold k eighths: floor(7 k / 8) + 1 = k. One replica stays one."""
    assert [replicas_at_share((8,), k / 8)[0] for k in range(1, 8)] == [1, 2, 3, 4, 5, 6, 7]
    assert replicas_at_share((5, 1), 0.5) == (3, 1)  # 4 fail for all: 2 for half of them


@pytest.mark.parametrize("idc", [1.0, 9.0])
@pytest.mark.parametrize("gpu", ["L4", "H100-SXM"])
def test_need_at_a_share_lies_between_its_bounds(gpu, idc):
    """floor(p (n − 1)) + 1 <= n(p) <= ceil(p n), by the bound and by the exact need, in every period."""
    need = candidates(workload("m", rate=30.0, idc=idc, rates=(1.0, 0.4)), (gpu,)).needs[0]
    whole = exact_need(need)
    for share in (0.125, 0.375, 0.75):
        low, exact = need_at_share(need, share), exact_need(need_at_share(whole, share))
        for t, rate in enumerate(low.rate_per_s):
            screened = least_replicas(stacked([need.config]), replace(low.demand, rate_per_s=rate), need.limits)[0]
            assert low.replicas[t] <= screened <= np.ceil(share * need.replicas[t] - 1e-9)
            assert low.replicas[t] <= exact.replicas[t] <= np.ceil(share * whole.replicas[t] - 1e-9)


def test_a_share_of_a_need_is_thinned():
    """A quarter of 40/s at dispersion 9 is 10/s at 1 + 8/4 = 3; one replica less than the bound never holds."""
    need = candidates(workload("m", rate=40.0, idc=9.0, rates=(1.0, 0.4)), ("L4",)).needs[0]
    quarter = need_at_share(need, 0.25)
    assert quarter.rate_per_s == pytest.approx((10.0, 4.0))
    assert quarter.demand.dispersion.idc == pytest.approx(3.0)
    assert not quarter.exact
    for rate, n in zip(quarter.rate_per_s, quarter.replicas, strict=True):
        demand = replace(quarter.demand, rate_per_s=rate)
        assert n == 1 or not feasible(stacked([need.config]), demand, np.array([n - 1.0]), need.limits, PoolCheck.BOUND)


# ---------------------------------------------------------------------------------------------------------- list price


def test_list_price_by_hand():
    """4 A at 1 USD/h, then 6 at 3 USD/h under a quota, of 60 h and 40 h: 5 by day and 2 by night cost
    60 * (4 * 1 + 1 * 3) + 40 * 2 * 1 = 500; 10 by night alone 40 * (4 + 18) = 880; 11 cannot be had."""
    supply = Supply("s", "A", 2)
    lots = [
        lot("own", supply, 2.0, available=(2, 2), kind=LotKind.OWNED),
        lot("rent", supply, 2.0, reserved=4.0, provider="q"),
    ]
    d = data([column("m", part("A", 1, 1, 1))], [supply], lots, periods=TWO)
    d = replace(d, quotas=(Quota(name="few", provider="q", max_gpus=6),))
    asked = np.array([[5, 2], [0, 10], [0, 11]])
    assert ListPrice(d).least_usd(Placement("A", 1), asked).tolist() == [500.0, 880.0, np.inf]
    # Replicas of two GPUs: 2 * 2 = 4 at 1 USD/h.
    assert ListPrice(d).least_usd(Placement("A", 2), np.array([[2, 0]])).tolist() == [240.0]
    assert ListPrice(d).least_usd(Placement("B", 1), np.array([[1, 0]])).tolist() == [np.inf]


def test_limited_is_what_a_quota_covers_or_runs_out():
    a, b, c = (Supply(x, x, 1) for x in "ABC")
    lots = [lot("a", a, 1.0), lot("b", b, 1.0, available=(3,)), lot("c", c, 1.0)]
    d = data([column("m", part("A", 1, 1))], [a, b, c], lots, quotas=(Quota(name="q", gpu="C", max_gpus=1),))
    assert limited_gpus(d) == {"B", "C"}


# ------------------------------------------------------------------------------------------------------------- by hand


def test_a_shortage_by_hand(bounds_are_exact):
    """8 L40S at 1 USD/h would do, 4 may be had; A100 cost 2. Half and half: (4 * 1 + 4 * 2) * 2160 h = 25,920 USD
    instead of 8 * 2 * 2160 = 34,560 USD."""
    found = by_hand(EIGHT, PRICES, cheap=4).solve(SETTINGS)
    assert found.usd == pytest.approx(25_920.0)
    (chosen,) = found.columns
    assert {(p.placement.gpu, p.load_share, p.running) for p in chosen.parts} == {(CHEAP, 0.5, (4,)), (DEAR, 0.5, (4,))}
    assert found.status is SolveStatus.OPTIMAL
    assert found.notes == ()
    assert by_hand(EIGHT, PRICES, pools=1, cheap=4).solve(SETTINGS).usd == pytest.approx(34_560.0)


def test_two_models_share_what_is_short(bounds_are_exact):
    """6 cheap ones for two models of 8: every cheap one saves 1 USD/h. (6 * 1 + 10 * 2) * 2160 = 56,160 USD."""
    world = by_hand({"a": {CHEAP: 8, DEAR: 8}, "b": {CHEAP: 8, DEAR: 8}}, PRICES, cheap=6)
    found = world.solve(SETTINGS)
    assert found.usd == pytest.approx(56_160.0)
    assert recount(world.data(), found) == []


def test_only_together_is_it_feasible_by_hand(bounds_are_exact):
    """4 of each: neither type alone holds the model, both together do, for 12 * 2160 = 25,920 USD; 3 + 4 do not."""
    world = by_hand(EIGHT, PRICES, cheap=4, dear=4)
    assert solve_ratio(world.data(), SETTINGS) is None
    assert world.solve(SETTINGS).usd == pytest.approx(25_920.0)
    assert by_hand(EIGHT, PRICES, cheap=3, dear=4).solve(SETTINGS) is None


@pytest.mark.parametrize(("limit", "made"), [(8, 0), (7, 7), (4, 4), (0, 0)])
def test_splits_that_cannot_pay_are_not_made(bounds_are_exact, limit, made):
    """With 8 of them the cheapest fleet is that of list prices: no split. With 7, seven shares of 1 to 7 eighths are
    cheaper than 8 A100; with 4 those of up to 4 eighths, for more cannot be had."""
    world = by_hand(EIGHT, PRICES, cheap=limit)
    whole = solve_ratio(world.data(), SETTINGS)
    found = paying_splits(world.data(), world._workloads, world._spares, whole)
    assert (len(found.columns), found.left_out) == (made, 0)
    assert all(c.served_tokens == pytest.approx(whole.served_tokens) for c in found.columns)
    world.solve(SETTINGS)
    assert world.rounds == (1 if made == 0 else 3)


def test_without_limits_or_with_one_pool_nothing_is_split():
    free, single = by_hand(EIGHT, PRICES), by_hand(EIGHT, PRICES, pools=1, cheap=4)
    for world in (free, single):
        assert paying_splits(world.data(), world._workloads, world._spares, None).columns == ()


def test_splits_beyond_the_most_are_told(bounds_are_exact, monkeypatch):
    """4 shares could pay; 3 are made, the nearest to the list price first (half, 3/8, 2/8), and a note says so."""
    monkeypatch.setattr(splits_module, "MOST_SPLITS", 3)
    found = by_hand(EIGHT, PRICES, cheap=4).solve(SETTINGS)
    assert found.usd == pytest.approx(25_920.0)
    assert found.notes == ("1 ways to split a slice over two GPU types could pay and were not tried",)


def test_bands_and_splits_share_the_limit_on_pools():
    """Bands [0, 512) and [512, ∞): with two pools only the whole may be split, with three one of the bands too."""
    work = workload("m", rate=40.0, rates=(1.0, 0.4), cuts=(512,))
    supplies = (Supply("h", "H100-SXM", 1), Supply("l", "L4", 1))
    lots = (lot("h", supplies[0], 4.0, available=(999, 999)), lot("l", supplies[1], 1.0))
    whole = columns_of(work, candidates(work, ("H100-SXM", "L4")).needs, 1, periods_of(work), supplies)

    def made(pools: int):
        d = ProgramData(("m",), {"m": 2}, {"m": pools}, periods_of(work), supplies, lots, whole)
        return paying_splits(d, {"m": work}, {"m": 1}, None).columns

    assert {(c.start, c.end) for c in made(2)} == {(0, 2)}
    assert {(c.start, c.end) for c in made(3)} == {(0, 2), (0, 1), (1, 2)}
    assert len(made(3)) == len({c.key for c in made(3)}) == 3 * 7
    for split in made(3):
        assert [p.placement.gpu for p in split.parts] == ["H100-SXM", "L4"]
        assert sum(p.load_share for p in split.parts) == 1.0
        assert all(p.running == tuple(n + 1 for n in p.need.replicas) for p in split.parts)
        total = split.parts[0].need.slice.planning_rate_per_s
        assert np.sum([p.need.rate_per_s for p in split.parts], axis=0) == pytest.approx(total)


# ------------------------------------------------------------------------------------------------------------ property


@settings(max_examples=25, deadline=None)
@given(
    counts=st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), min_size=1, max_size=2),
    price=st.integers(1, 6), other=st.integers(1, 6), cheap=st.integers(0, 20), dear=st.integers(0, 30),
)  # fmt: skip
def test_no_split_that_was_left_out_would_pay(counts, price, other, cheap, dear):
    """With the splits that are priced to pay, the plan is as cheap as with all of them, and no dearer than without."""
    wanted = {f"m{i}": {CHEAP: a, DEAR: b} for i, (a, b) in enumerate(counts)}
    world = by_hand(wanted, {CHEAP: float(price), DEAR: float(other)}, cheap=cheap, dear=dear)
    whole = world.data()
    everything = paying_splits(whole, world._workloads, world._spares, None)
    best = solve_ratio(replace(whole, columns=(*whole.columns, *everything.columns)), SETTINGS)
    without = solve_ratio(whole, SETTINGS)
    paying = paying_splits(whole, world._workloads, world._spares, without)
    found = solve_ratio(replace(whole, columns=(*whole.columns, *paying.columns)), SETTINGS)
    assert len(paying.columns) <= len(everything.columns)
    if best is None:
        assert found is None
        return
    assert found.usd == pytest.approx(best.usd, rel=2 * SETTINGS.gap)
    if without is not None:
        assert found.usd <= without.usd * (1 + SETTINGS.gap)


# ---------------------------------------------------------------------------------------------------------- time limit


class FakeTime:
    """A clock that only exact sizing moves."""

    def __init__(self, monkeypatch, step_s: float, grows: int = 0) -> None:
        self.now = 0.0
        monkeypatch.setattr("time.monotonic", lambda: self.now)

        def slow(need):
            self.now += step_s
            return replace(need, replicas=tuple(n + grows for n in need.replicas), exact=True)

        monkeypatch.setattr(fleet_module, "exact_need", slow)


def test_a_plan_without_splits_outlives_the_time_limit(monkeypatch):
    """Whole slices are exact from the start; sizing the splits takes all the time: 8 * 2 * 2160 = 34,560 USD stands."""
    FakeTime(monkeypatch, step_s=100.0)
    found = by_hand(EIGHT, PRICES, cheap=4).solve(replace(SETTINGS, time_limit_s=60.0))
    assert found.usd == pytest.approx(34_560.0)
    assert found.status is SolveStatus.FEASIBLE
    assert found.notes == (NOT_SPLIT,)


def loose(world: Fleet) -> Fleet:
    needs = {name: [replace(n, exact=False) for n in world.needs(name)] for name in world._needs}
    return Fleet(list(world._workloads.values()), needs, world._spares, world._data, lambda text: None)


def test_what_is_exact_when_time_is_short_makes_the_plan(monkeypatch):
    """8 L40S by the bound turn out to be 9 after 50 of 60 s: 9 * 2160 = 19,440 USD, proven to be at most
    1 − 8 / 9 = 11 % above the best."""
    FakeTime(monkeypatch, step_s=50.0, grows=1)
    world = loose(by_hand(EIGHT, PRICES))
    found = world.solve(replace(SETTINGS, time_limit_s=60.0))
    assert found.usd == pytest.approx(19_440.0)
    assert found.gap == pytest.approx(1 / 9)
    assert found.status is SolveStatus.FEASIBLE
    assert "did not settle within 60 s (1 solves)" in found.notes[0]
    # With time enough the same plan is proven: 8 A100 would cost more.
    assert loose(by_hand(EIGHT, PRICES)).solve(replace(SETTINGS, time_limit_s=600.0)).status is SolveStatus.OPTIMAL


def test_ids_of_configurations_cannot_be_used_again():
    """The exact need that a key stands for holds the very object whose id the key has."""
    world = fleet_of([workload("a", rate=30.0, seed=1)], [offer(CHEAP, 1, 1.2)])
    world.solve(SETTINGS)
    known = world._known.exact
    assert known
    assert all(key[0] == id(need.config) for key, need in known.items())
