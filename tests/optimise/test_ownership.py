"""Owning cost against hand-solved numbers and a textbook's example."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import units
from planner.optimise.supply.ownership import capital_recovery_usd_per_year, owning_cost
from planner.request import Buying, Site
from tests.optimise.supply_world import BUYING, SITE

PRICES = st.floats(1.0, 1e7)
LIVES = st.floats(0.25, 20.0)
RATES = st.one_of(st.just(0.0), st.floats(1e-12, 1.0))
SHARES = st.floats(0.0, 0.99)


def test_a_textbook_example_of_capital_recovery():
    """P = 50,000, S = 5,000, n = 5, i = 10 %: 45,000 x 0.26380 + 500 = 12,371 (https://sciemce.com/qa/qZBnCelr8xeP)."""
    assert capital_recovery_usd_per_year(50_000, 5_000, 5, 0.10) == pytest.approx(12_371, abs=0.5)
    # The sinking-fund form, 50,000 (A/P) - 5,000 (A/F), is the same amount: (A/F) = (A/P) - i.
    recovery = 0.1 * 1.1**5 / (1.1**5 - 1)
    assert capital_recovery_usd_per_year(50_000, 5_000, 5, 0.10) == pytest.approx(
        50_000 * recovery - 5_000 * (recovery - 0.1), rel=1e-12
    )


def test_without_interest_it_is_straight_line_and_the_limit_is_smooth():
    """(50,000 - 5,000) / 5 = 9,000."""
    assert capital_recovery_usd_per_year(50_000, 5_000, 5, 0.0) == 9_000
    assert capital_recovery_usd_per_year(50_000, 5_000, 5, 1e-10) == pytest.approx(9_000, rel=1e-8)


def test_one_year_pays_the_price_back_with_interest():
    """n = 1: 110 % of the price less what is left: 1.1 x 50,000 - 5,000 = 50,000."""
    assert capital_recovery_usd_per_year(50_000, 5_000, 1, 0.10) == pytest.approx(50_000, rel=1e-12)


def test_every_part_of_an_hour():
    """By hand, at 8,760 h a year and 730 h a month.

    Capital 12,370.89 / 8,760 = 1.41220; maintenance 4.38 % x 50,000 / 8,760 = 0.25; room 730/730 = 1;
    electricity 10 kW x 1.5 x 0.2 = 3.
    """
    cost = owning_cost(Buying.model_validate(BUYING), Site.model_validate(SITE))
    assert cost.capital_usd_per_h == pytest.approx(1.41220, abs=1e-5)
    assert cost.maintenance_usd_per_h == pytest.approx(0.25, rel=1e-12)
    assert cost.colocation_usd_per_h == pytest.approx(1.0, rel=1e-12)
    assert cost.energy_usd_per_h == pytest.approx(3.0, rel=1e-12)
    assert cost.reserved_usd_per_h == pytest.approx(2.66220, abs=1e-5)


def test_a_year_and_a_month_of_contract_hours():
    assert (units.years_to_hours(3), units.days_to_hours(91), units.per_month_to_per_h(730)) == (26_280, 2_184, 1.0)


@given(PRICES, SHARES, LIVES, RATES, st.floats(0.01, 5.0))
def test_a_longer_life_never_costs_more(price, residual, life, rate, longer):
    short = capital_recovery_usd_per_year(price, price * residual, life, rate)
    assert capital_recovery_usd_per_year(price, price * residual, life + longer, rate) <= short * (1 + 1e-12)


@given(PRICES, PRICES, SHARES, LIVES, RATES)
def test_a_lower_price_never_costs_more(one, two, residual, life, rate):
    low, high = sorted((one, two))
    cheap = capital_recovery_usd_per_year(low, low * residual, life, rate)
    assert cheap <= capital_recovery_usd_per_year(high, high * residual, life, rate) * (1 + 1e-12)


@given(PRICES, SHARES, LIVES, st.floats(1e-6, 1.0))
def test_yearly_amounts_and_what_is_left_are_worth_the_price(price, residual, life, rate):
    """Present worth: CR x (1 - v) / i + S x v = P with v = (1 + i)^-n."""
    yearly, worth = capital_recovery_usd_per_year(price, price * residual, life, rate), (1 + rate) ** -life
    assert yearly * (1 - worth) / rate + price * residual * worth == pytest.approx(price, rel=1e-6)
