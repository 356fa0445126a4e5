"""Costs, liabilities and availability of every kind of lot, by hand."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.catalog.offer import Holding, PriceKind, Term
from planner.optimise.supply.lots import available, rented_lot
from planner.optimise.supply.supplies import supplies_of
from planner.optimise.supply.terms import liability_after_usd, term_hours
from planner.optimise.types import Lot, LotKind, Period
from tests.optimise.supply_world import (
    BUYING,
    H100,
    HOURS,
    MONTHS,
    OWNED,
    QUARTER,
    SITE,
    WHOLE,
    catalog,
    offer,
    request,
)

YEAR = 8760.0


def lots(asked, offers=(), periods=MONTHS) -> dict[str, Lot]:
    return {lot.id: lot for lot in supplies_of(asked, offers, periods, catalog(), "q.toml").lots}


def only(asked, offers=(), periods=MONTHS) -> Lot:
    found = lots(asked, offers, periods)
    assert len(found) == 1
    return next(iter(found.values()))


def prices(lot: Lot) -> tuple[float, float, float, float]:
    return lot.reserved_usd_per_h, lot.used_usd_per_h, lot.sunk_usd, lot.liability_after_usd


def test_on_demand_is_paid_in_the_hours_used():
    lot = only(request(), [offer(50.0)])
    assert (lot.kind, lot.available, prices(lot)) == (LotKind.ON_DEMAND, None, (0.0, 50.0, 0.0, 0.0))
    assert lot.power_kw == 0.0, "unknown: no provider states it, and no cap asks for it"


def test_a_commitment_is_paid_every_hour_and_leaves_the_rest_of_its_term():
    """1 year: 20 USD x (8,760 - 2,160) h = 132,000 USD after the horizon; 3 years: 20 x (26,280 - 2,160) = 482,400."""
    one = only(request(), [offer(20.0, term=Term.COMMIT_1Y)])
    three = only(request(), [offer(20.0, term=Term.COMMIT_3Y)])
    assert (one.kind, prices(one)) == (LotKind.NEW_COMMITMENT, (20.0, 0.0, 0.0, 132_000.0))
    assert prices(three) == (20.0, 0.0, 0.0, 482_400.0)


def test_a_commitment_shorter_than_the_horizon_is_renewed():
    """2027 and 2028 are 731 days: three terms of a year, 26,280 h, less 17,544 h leave 8,736 h."""
    long = request(quarter=QUARTER | {"end": "2029-01-01"})
    found = supplies_of(long, [offer(20.0, term=Term.COMMIT_1Y)], WHOLE, catalog(), "q.toml")
    assert found.lots[0].liability_after_usd == 20.0 * 8_736
    assert any("commit_1y ends before the horizon" in text for text in found.caveats)


def test_a_capacity_block_covers_the_horizon_in_whole_weeks():
    """90 days need 13 weeks, 91 days: one more day is paid, 40 USD x 24 h = 960 USD."""
    lot = only(request(), [offer(40.0, term=Term.CAPACITY_BLOCK)])
    assert (lot.kind, prices(lot)) == (LotKind.NEW_COMMITMENT, (40.0, 0.0, 0.0, 960.0))
    assert lot.available == (256, 256, 256)


@pytest.mark.parametrize(
    ("days", "paid"), [(1, 1), (14, 14), (15, 21), (90, 91), (91, 91), (182, 182), (183, None), (365, None)]
)
def test_lengths_of_capacity_blocks(days, paid):
    assert term_hours(Term.CAPACITY_BLOCK, days * 24.0) == (None if paid is None else paid * 24.0)


def test_a_horizon_longer_than_any_capacity_block_leaves_it_out_and_says_so():
    half = request(quarter=QUARTER | {"end": "2027-07-03"})
    found = supplies_of(half, [offer(40.0, term=Term.CAPACITY_BLOCK), offer(50.0)], WHOLE, catalog(), "q.toml")
    assert [lot.offer.term for lot in found.lots] == [Term.ON_DEMAND]
    assert any("no capacity block is as long as the horizon" in text for text in found.caveats)
    assert rented_lot(offer(40.0, term=Term.CAPACITY_BLOCK), "s", half, catalog().gpus, 1) is None


def test_an_existing_commitment_is_sunk_until_its_end():
    """2 instances at 40 USD until 16 February: 46 days x 24 h x 80 USD = 88,320 USD, there in January only."""
    held = {"offer": H100, "instances": 2, "until": "2027-02-16", "usd_per_instance_h": 40}
    asked = request(commitment=[held])
    found = lots(asked, [catalog().offer(H100)])
    assert set(found) == {H100, f"held/{H100}/2027-02-16"}, "the on-demand lot stays beside it"
    lot = found[f"held/{H100}/2027-02-16"]
    assert (lot.kind, lot.offer.id, lot.supply) == (LotKind.EXISTING_COMMITMENT, H100, found[H100].supply)
    assert prices(lot) == (0.0, 0.0, 88_320.0, 0.0)
    assert lot.available == (2, 0, 0)


def test_an_existing_commitment_beyond_the_horizon_costs_the_horizon_at_the_catalogues_price():
    """55.04 USD x 1 x 2,160 h = 118,886.4 USD."""
    asked = request(commitment=[{"offer": H100, "instances": 1, "until": "2028-06-01"}])
    found = supplies_of(asked, [], MONTHS, catalog(), "q.toml")
    assert found.lots[0].sunk_usd == pytest.approx(118_886.4)
    assert found.lots[0].available == (1, 1, 1)
    assert any("no price of the contract is stated" in text for text in found.caveats)


def test_two_alike_commitments_are_two_lots_whatever_their_order():
    rows = [{"offer": H100, "instances": n, "until": "2028-06-01", "usd_per_instance_h": 40} for n in (1, 2)]
    one, two = lots(request(commitment=rows)), lots(request(commitment=rows[::-1]))
    assert one == two
    assert {name: lot.available for name, lot in one.items()} == {
        f"held/{H100}/2028-06-01": (1, 1, 1),
        f"held/{H100}/2028-06-01/2": (2, 2, 2),
    }


def test_owned_hardware_costs_its_electricity():
    """10 kW x PUE 1.5 x 0.2 USD = 3 USD/h; 15 kW at the meter; 15 x 0.3 = 4.5 kg/h. Gone from 1 March on."""
    lot = only(request(owned=[OWNED | {"power_kw": 10, "until": "2027-03-01"}], site=[SITE]))
    assert (lot.kind, lot.id) == (LotKind.OWNED, "owned/rack")
    assert prices(lot) == pytest.approx((0.0, 3.0, 0.0, 0.0))
    assert (lot.power_kw, lot.carbon_kg_per_h) == pytest.approx((15.0, 4.5))
    assert lot.available == (3, 3, 0)
    assert (lot.offer.provider, lot.offer.term, lot.offer.price_kind) == ("owned", Holding.OWNED, PriceKind.STATED)
    assert (lot.offer.source_url, lot.offer.as_of) == ("asset register", dt.date(2026, 11, 29))


def test_a_stated_cost_of_owned_hardware_comes_before_its_power_and_neither_is_said():
    stated = OWNED | {"power_kw": 10, "usd_per_instance_h": 7}
    assert only(request(owned=[stated], site=[SITE])).used_usd_per_h == 7.0
    found = supplies_of(request(owned=[OWNED]), [], MONTHS, catalog(), "q.toml")
    assert (found.lots[0].used_usd_per_h, found.lots[0].offer.usd_per_h) == (0.0, 0.0)
    assert any("running it costs 0" in text for text in found.caveats)


def test_bought_hardware_costs_capital_every_hour_and_electricity_in_use():
    """2.66220 USD/h reserved and 3 USD/h used, as in test_ownership.

    After the horizon: 5 years x 8,760 h - 2,160 h = 41,640 h of capital at 12,370.89 / 8,760 USD: 58,804 USD.
    """
    lot = only(request(buying=[BUYING], site=[SITE]))
    assert (lot.kind, lot.id, lot.available) == (LotKind.BOUGHT, "bought/new rack", (4, 4, 4))
    assert (lot.reserved_usd_per_h, lot.used_usd_per_h) == pytest.approx((2.66220, 3.0), abs=1e-5)
    assert lot.liability_after_usd == pytest.approx(58_804, abs=1)
    assert lot.offer.usd_per_h == pytest.approx(5.66220, abs=1e-5)


def test_bought_hardware_must_be_there_and_may_have_to_be_replaced():
    short = BUYING | {"life_years": 0.1}
    found = supplies_of(request(buying=[short], site=[SITE]), [], MONTHS, catalog(), "q.toml")
    assert found.lots[0].liability_after_usd == 0.0
    assert any("installed and running from 2027-01-01" in text for text in found.caveats)
    assert any("its life ends before the horizon" in text for text in found.caveats)
    sound = supplies_of(request(buying=[BUYING], site=[SITE]), [], MONTHS, catalog(), "q.toml")
    assert not any("its life ends" in text for text in sound.caveats)


def test_a_site_of_the_region_comes_before_the_one_for_all_others():
    north = SITE | {"region": "north", "usd_per_kwh": 0.1}
    rows = [OWNED | {"power_kw": 10, "region": "north"}, OWNED | {"name": "b", "power_kw": 10, "region": "south"}]
    found = lots(request(owned=rows, site=[SITE, north]))
    assert found["owned/rack"].used_usd_per_h == pytest.approx(1.5)
    assert found["owned/b"].used_usd_per_h == pytest.approx(3.0)


def test_nothing_to_run_is_no_lot():
    rows = {"owned": [OWNED | {"instances": 0}], "buying": [BUYING | {"max_instances": 0}], "site": [SITE]}
    assert set(lots(request(**rows), [offer(50.0)])) == {"p/8x-H100-SXM/r/on_demand"}


@pytest.mark.parametrize(
    ("until", "there"),
    [
        (None, (3, 3, 3)),
        ("2027-01-02", (0, 0, 0)),
        ("2027-01-31", (0, 0, 0)),  # gone on the last day of January
        ("2027-02-01", (3, 0, 0)),
        ("2027-03-31", (3, 3, 0)),
        ("2027-04-01", (3, 3, 3)),
        ("2031-01-01", (3, 3, 3)),
    ],
)
def test_what_leaves_inside_a_period_is_not_there_in_it(until, there):
    day = None if until is None else dt.date.fromisoformat(until)
    quarter = request().quarter
    assert available(3, day, MONTHS, quarter) == there
    assert available(3, day, WHOLE, quarter) == (min(there),)


@given(st.integers(0, 120), st.integers(1, 60))
def test_a_later_end_never_takes_anything_away(days, later):
    start, quarter = dt.date(2027, 1, 1), request().quarter
    periods = (*MONTHS, Period("nights", 100.0, dt.date(2027, 1, 1), dt.date(2027, 3, 31)))
    early = available(5, start + dt.timedelta(days=days), periods, quarter)
    late = available(5, start + dt.timedelta(days=days + later), periods, quarter)
    assert all(a <= b for a, b in zip(early, late, strict=True))


@given(st.floats(0.01, 1e3), st.floats(1.0, 20 * YEAR))
def test_what_is_paid_in_the_horizon_and_after_is_the_whole_term(price, hours):
    for term in (Term.COMMIT_1Y, Term.COMMIT_3Y):
        paid = term_hours(term, hours)
        assert paid is not None
        assert paid >= hours
        after = liability_after_usd(price, paid, hours)
        assert price * hours + after == pytest.approx(price * paid)
        assert after < price * (YEAR if term is Term.COMMIT_1Y else 3 * YEAR)


def test_the_hours_of_the_world():
    assert sum(p.hours for p in MONTHS) == HOURS == request().quarter.hours
