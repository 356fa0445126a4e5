"""The bridge: a case solved by hand, currencies, and that it closes whatever the plans are."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.compare.bridge import MEANINGS, Bridge, bridge, cents
from planner.compare.spending import spending_of
from planner.plan import FleetPlan, Reporting
from planner.report.commitments import held_lots
from tests.compare.two_quarters import lot, quarter
from tests.report.sample_study import sample_study

CENT_MILLIONTH = 1e-8
"""USD: a millionth of a cent."""


def _last() -> FleetPlan:
    """800 + 400 GPU-h of A in use at 2 USD; a contract of 100 h that runs 50: 800 of 1,600 USD are unused."""
    return quarter(
        1000.0,
        [
            lot("a", "A", "on-demand", running_h=100.0, price=16.0),
            lot("c", "A", "existing commitment", running_h=50.0, held_h=100.0, sunk=1600.0),
        ],
    )


def _now() -> FleetPlan:
    """A: 720 GPU-h at 2.2 + 480 at 2, the contract runs 60 of 100 h; B is new: 240 GPU-h at 5."""
    return quarter(
        1500.0,
        [
            lot("a", "A", "on-demand", running_h=90.0, price=17.6),
            lot("b", "B", "on-demand", each=4, running_h=60.0, price=20.0),
            lot("c", "A", "existing commitment", running_h=60.0, held_h=100.0, sunk=1600.0),
        ],
    )


def _in(currency: str, per_usd: float, plan: FleetPlan) -> FleetPlan:
    rate = Reporting(currency=currency, per_usd=per_usd, source="ECB", source_date=dt.date(2026, 11, 27), owner="CFO")
    return plan.model_copy(update={"reporting": rate})


def _amounts(found: Bridge) -> dict[str, float]:
    return {step.name: step.amount for step in found.steps}


def test_two_gpu_types_of_which_one_is_new():
    """H0 = 1200, p0 = 2, U0 = 800; N = 1500 x 1200 / 1000 = 1800; H1 = 1440; M = 1200 x 2 + 240 x 5 = 3600."""
    found = bridge(_last(), _now())
    assert found.currency == "USD"
    assert (found.last.amount, found.now.amount) == (3200, 4384)
    assert _amounts(found) == pytest.approx(
        {
            "Volume": (1800 - 1200) * 2,
            "Efficiency": (1440 - 1800) * 2,
            "Mix": 3600 - 1440 * 2,
            "FX": 0,
            "Price": 3744 - 3600,
            "Commitments": 640 - 800,
        },
        abs=CENT_MILLIONTH,
    )
    rates = {row.gpu: row for row in found.gpus}
    assert rates["A"].last_usd_per_h == 2
    assert rates["A"].now_usd_per_h == pytest.approx(2.12)
    assert not rates["A"].is_new
    assert rates["B"].is_new
    assert (rates["B"].last_usd_per_h, rates["B"].compared_usd_per_h) == (0, 5)
    assert [step.meaning for step in found.steps] == list(MEANINGS.values())


def test_steps_are_in_the_reporting_currency_when_both_quarters_have_it():
    """0.9 EUR, now 0.95: FX = 0.05 x (M + U0) = 0.05 x 4400, later steps at 0.95."""
    found = bridge(_in("EUR", 0.9, _last()), _in("EUR", 0.95, _now()))
    assert found.currency == "EUR"
    assert (found.last.amount, found.now.amount) == pytest.approx((2880, 4164.8))
    assert _amounts(found) == pytest.approx(
        {"Volume": 1080, "Efficiency": -648, "Mix": 648, "FX": 220, "Price": 136.8, "Commitments": -152}
    )
    assert not found.notes


@pytest.mark.parametrize("which", ["last", "now", "both"])
def test_without_a_common_currency_the_bridge_is_in_usd_and_says_so(which: str):
    last = _in("EUR", 0.9, _last()) if which != "now" else _last()
    now = _in("GBP", 0.8, _now()) if which != "last" else _now()
    found = bridge(last, now)
    assert found.currency == "USD"
    assert _amounts(found)["FX"] == 0
    assert found.now.amount == 4384
    assert len(found.notes) == 1
    assert "the bridge is in USD" in found.notes[0]


def test_usd_as_the_reporting_currency_is_usd():
    found = bridge(_in("USD", 1.0, _last()), _now())
    assert (found.currency, found.last.per_usd, found.now.per_usd, found.notes) == ("USD", 1, 1, ())
    assert bridge(_in("USD", 1.0, _last()), _in("USD", 1.0, _now())).now.amount == 4384


def test_the_unused_part_is_that_of_what_is_held():
    """A new commitment reserved for all 2160 h of the horizon that runs 540 of them: 3/4 of 1 x 10 x 2160 USD."""
    plan = quarter(
        1.0, [lot("n", "A", "new commitment", running_h=540.0, held_h=2160.0, reserved=1, reserved_price=10.0)]
    )
    spent = spending_of(plan)
    assert spent.unused_usd == 16_200
    assert spent.in_use["A"].usd == 5_400
    assert spent.in_use["A"].hours == 8 * 540


def test_hardware_saves_its_electricity_while_it_does_not_run():
    """Capital 4 USD/h for 100 h held, electricity 1 USD/h for the 25 h that it runs."""
    plan = quarter(
        1.0,
        [lot("bought/x", "A", "bought", running_h=25.0, held_h=100.0, sunk=400.0, price=1.0)],
    )
    spent = spending_of(plan)
    assert (spent.unused_usd, spent.in_use_usd) == (300, 125)


def test_a_contract_that_is_held_in_no_hour_is_unused():
    spent = spending_of(quarter(1.0, [lot("c", "A", "existing commitment", held_h=0.0, sunk=70.0)]))
    assert (spent.unused_usd, spent.hours, spent.usd_per_h) == (70, 0, 0)


def test_the_same_plan_has_steps_of_nothing():
    found = bridge(_last(), _last())
    assert set(_amounts(found).values()) == {0.0}


def test_nothing_in_use_last_quarter():
    """Neither a rate nor tokens per GPU-hour then: all that runs now is Mix."""
    last = quarter(0.0, [lot("c", "A", "existing commitment", held_h=100.0, sunk=1600.0)])
    found = bridge(last, _now())
    assert _amounts(found) == pytest.approx(
        {"Volume": 0, "Efficiency": 0, "Mix": 3744, "FX": 0, "Price": 0, "Commitments": 640 - 1600}
    )


_MONEY = st.floats(0, 100, allow_nan=False)
_HOURS = st.just(0.0) | st.floats(0.01, 500)


_LOTS = st.lists(
    st.fixed_dictionaries(
        {
            "gpu": st.sampled_from(["A", "B", "C"]),
            "kind": st.sampled_from(["on-demand", "spot", "existing commitment", "new commitment", "bought", "owned"]),
            "each": st.sampled_from([1, 4, 8]),
            "running_h": _HOURS,
            "held_h": st.none() | st.just(0.0) | st.floats(1, 2160),
            "reserved": st.integers(0, 2),
            "reserved_price": _MONEY,
            "price": _MONEY,
            "sunk": st.floats(0, 20_000),
        }
    ),
    min_size=1,
    max_size=5,
)
_QUARTERS = st.tuples(st.just(0.0) | st.floats(1, 1e6), _LOTS, st.none() | st.floats(0.5, 2))


def _plan(mtok: float, lots: list[dict[str, Any]], per_usd: float | None) -> FleetPlan:
    plan = quarter(mtok, [lot(f"lot{n}", **figures) for n, figures in enumerate(lots)])
    return plan if per_usd is None else _in("EUR", per_usd, plan)


@settings(max_examples=150, deadline=None)
@given(_QUARTERS, _QUARTERS)
def test_it_closes_to_a_millionth_of_a_cent(before: tuple[Any, ...], after: tuple[Any, ...]):
    last, now = _plan(*before), _plan(*after)
    found = bridge(last, now)
    ends = found.now.amount - found.last.amount
    scale = max(1.0, found.now.amount, found.last.amount, *(abs(step.amount) for step in found.steps))
    # Doubles hold 16 digits: 1e-8 USD of amounts above 1e7 is below their last digit.
    assert sum(step.amount for step in found.steps) == pytest.approx(ends, abs=max(CENT_MILLIONTH, 1e-15 * scale))
    assert found.now.usd == pytest.approx(now.totals.usd, rel=1e-12)
    if found.currency == "USD":
        assert _amounts(found)["FX"] == 0
    printed = cents([step.amount for step in found.steps], found.last.amount)
    assert round(found.last.amount, 2) + sum(printed) == pytest.approx(round(found.now.amount, 2), abs=0.001)
    assert all(abs(a - b.amount) <= 0.011 for a, b in zip(printed, found.steps, strict=True))


def test_it_closes_on_every_scenario_of_the_study():
    study = sample_study()
    assert study.last
    for scenario in study.scenarios:
        found = bridge(study.last.plan, scenario.plan)
        total = found.last.amount + sum(step.amount for step in found.steps)
        assert total == pytest.approx(scenario.plan.totals.usd, abs=CENT_MILLIONTH)
        assert found.last.amount == pytest.approx(study.last.plan.totals.usd, abs=CENT_MILLIONTH)
        assert all(abs(step.amount) > 1000 for step in found.steps if step.name != "FX"), scenario.name


def test_held_lots_are_the_only_ones_with_unused_money():
    study = sample_study()
    for scenario in study.scenarios:
        held = {h.purchase.offer_id for h in held_lots(scenario.plan)}
        rented = [p for p in scenario.plan.purchases if p.offer_id not in held]
        plan = scenario.plan.model_copy(update={"purchases": tuple(rented)})
        assert rented
        assert spending_of(plan).unused_usd == 0
