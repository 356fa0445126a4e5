"""Offers that a plan may use, and lots that another one replaces in every plan."""

from __future__ import annotations

import datetime as dt
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.catalog.offer import Term
from planner.errors import InputError
from planner.optimise.supply.offers import allowed_offers, undominated
from planner.optimise.supply.supplies import supplies_of
from planner.optimise.types import Caps, Lot, LotKind
from planner.request import Quota
from tests.optimise.supply_world import BUYING, H100, HOURS, MONTHS, OWNED, SITE, catalog, model, offer, request

TODAY = dt.date(2026, 11, 30)
NO_CAPS = Caps()


def allowed(asked, offers=None):
    return allowed_offers(catalog().offers if offers is None else offers, asked, TODAY, "q.toml")


# --- what may be used ---------------------------------------------------------------------------------------------


def test_terms_are_chosen_by_name():
    aws = [o for o in catalog().offers if o.provider == "aws" and float(o.gpus_per_instance).is_integer()]
    kinds = ["list", "estimate"]
    for terms in (["on_demand"], ["commit_3y"], ["on_demand", "commit_3y"], ["capacity_block"]):
        choice = {"providers": ["aws"], "terms": terms, "price_kinds": kinds}
        asked = request(offers=choice, policy={"max_price_age_days": 4000})
        expected = sorted(o.id for o in aws if o.term.value in terms)
        assert [o.id for o in allowed(asked).usable] == expected
        assert expected


def test_stale_offers_are_apart():
    rows = [offer(1.0, provider="new"), offer(1.0, provider="old"), offer(1.0, provider="later")]
    days = {"old": dt.date(2025, 1, 1), "new": TODAY, "later": dt.date(2027, 1, 1)}
    dated = [row.model_copy(update={"as_of": days[row.provider]}) for row in rows]
    found = allowed(request(), dated)
    assert [o.provider for o in found.usable] == ["new"]
    assert [o.provider for o in found.stale] == ["later", "old"]


def test_nothing_rented_is_fine_where_hardware_is_there():
    own = {"owned": [OWNED]}, {"buying": [BUYING], "site": [SITE]}
    held = {"commitment": [{"offer": H100, "instances": 1, "until": "2028-01-01"}]}
    for tables in (*own, held):
        assert allowed(request(offers={"terms": []}, **tables)).usable == ()
    with pytest.raises(InputError, match="no offer can be used: none matches"):
        allowed(request(offers={"terms": []}))


def test_every_unknown_name_is_reported_with_the_closest():
    asked = request(
        offers={"providers": ["awss"], "terms": ["on_demand"]},
        quota=[{"name": "q", "gpu": "H100", "max_gpus": 1}, {"name": "r", "provider": "owned", "max_gpus": 1}],
    )
    with pytest.raises(InputError) as caught:
        allowed(asked)
    said = str(caught.value)
    assert len(caught.value.problems) == 3
    assert "Did you mean aws" in said
    assert "quota 'q': 'H100' matches no offer" in said
    assert "quota 'r': 'owned' matches no offer" in said, "there is no owned hardware"


def test_quotas_may_name_the_requests_own_hardware():
    quotas = [
        {"name": "a", "provider": "owned", "max_gpus": 8}, {"name": "b", "offer": "owned/rack", "max_gpus": 8},
        {"name": "c", "region": "cellar", "max_gpus": 8}, {"name": "d", "provider": "bought", "max_gpus": 8},
        {"name": "e", "offer": "bought/new rack", "max_gpus": 8},
    ]  # fmt: skip
    asked = request(owned=[OWNED | {"region": "cellar"}], buying=[BUYING], site=[SITE], quota=quotas)
    assert allowed(asked).usable


# --- what another one replaces ------------------------------------------------------------------------------------


def lots(*offers, **tables) -> list[Lot]:
    asked = request(model=[model(interruptible=True)], **tables)
    return list(supplies_of(asked, offers, MONTHS, catalog(), "q.toml").lots)


def kept(found, quotas=(), caps=NO_CAPS) -> list[str]:
    return [lot.id for lot in undominated(found, quotas, caps)]


def test_the_cheapest_of_a_kind_stays():
    assert kept(lots(offer(50.0), offer(40.0, provider="x"), offer(60.0, provider="y"))) == [
        "x/8x-H100-SXM/r/on_demand"
    ]
    assert len(kept(lots(offer(50.0), offer(3.0, size=1), offer(70.0, gpu="H200-SXM")))) == 3, "other supplies"


def test_a_cheaper_commitment_does_not_replace_on_demand():
    """It is paid at night too: at 20 % use 50 USD by the hour is 10, and 20 USD reserved is 20."""
    assert len(kept(lots(offer(50.0), offer(20.0, term=Term.COMMIT_1Y)))) == 2


def test_on_demand_replaces_a_commitment_that_is_no_cheaper():
    assert kept(lots(offer(20.0, provider="x"), offer(20.0, term=Term.COMMIT_1Y))) == ["x/8x-H100-SXM/r/on_demand"]
    assert len(kept(lots(offer(20.01, provider="x"), offer(20.0, term=Term.COMMIT_1Y)))) == 2


def test_spot_replaces_only_spot():
    spot, dear = offer(20.0, term=Term.SPOT), offer(30.0, term=Term.SPOT, provider="x")
    assert kept(lots(offer(50.0), spot, dear)) == ["p/8x-H100-SXM/r/on_demand", "p/8x-H100-SXM/r/spot"]


def test_a_cheaper_offer_under_a_quota_leaves_the_other_in():
    cheap, dear = offer(40.0, provider="x"), offer(50.0)
    assert len(kept(lots(cheap, dear), [Quota(name="q", provider="x", max_gpus=8)])) == 2
    assert len(kept(lots(cheap, dear), [Quota(name="q", provider="p", max_gpus=8)])) == 1
    assert len(kept(lots(cheap, dear), [Quota(name="q", gpu="H100-SXM", max_gpus=8)])) == 1


def test_what_is_limited_replaces_nothing():
    """A capacity block at 10 USD is sold 256 times at most; a commitment at 20 USD without end."""
    block, year = offer(10.0, term=Term.CAPACITY_BLOCK), offer(20.0, term=Term.COMMIT_1Y)
    assert len(kept(lots(block, year))) == 2


def test_own_hardware_and_contracts_always_stay():
    held = {"offer": H100, "instances": 1, "until": "2028-01-01", "usd_per_instance_h": 40}
    found = lots(offer(0.01), owned=[OWNED], buying=[BUYING], site=[SITE], commitment=[held])
    assert kept(found) == [lot.id for lot in found]
    assert len(found) == 4


def test_under_a_cap_a_cheaper_lot_must_be_as_clean():
    """Both take 8 x 700 x 2.04 W; the cheap one at PUE 2, the dear one at PUE 1, on the same grid."""
    sites = [SITE | {"region": "dirty", "pue": 2.0}, SITE | {"region": "clean", "pue": 1.0}]
    found = lots(
        offer(40.0, region="dirty"), offer(50.0, region="clean"), site=sites,
        policy={"max_power_kw": 100, "max_carbon_kg": 1e6},
    )  # fmt: skip
    assert len(kept(found)) == 1
    assert len(kept(found, caps=Caps(power_kw=100))) == 2
    assert len(kept(found, caps=Caps(carbon_kg=1e6))) == 2


def cost(lot: Lot, share_used: float) -> float:
    """USD of one reserved instance that runs for a share of the horizon."""
    return HOURS * (lot.reserved_usd_per_h + share_used * lot.used_usd_per_h)


def random_lot(index: int, kind: LotKind, reserved: float, used: float, provider: str, power: float) -> Lot:
    sold = offer(1.0, provider=provider).model_copy(update={"id": f"{provider}/{index}"})
    limited = kind is LotKind.BOUGHT
    return Lot(
        f"lot {index}", "s", kind, sold, 8, reserved_usd_per_h=reserved, used_usd_per_h=used, power_kw=power,
        available=(1,) if limited else None,
    )  # fmt: skip


PRICE = st.sampled_from([0.0, 1.0, 2.0, 3.0])
LOTS = st.lists(
    st.tuples(st.sampled_from([LotKind.ON_DEMAND, LotKind.NEW_COMMITMENT, LotKind.BOUGHT]), PRICE, PRICE,
              st.sampled_from("ab"), st.sampled_from([1.0, 2.0])),
    min_size=1, max_size=6,
)  # fmt: skip
USES = (0.0, 0.3, 1.0)


@given(LOTS, st.booleans(), st.booleans())
def test_what_is_left_out_is_replaced_at_every_use_and_what_stays_is_not(rows, with_quota, with_cap):
    found = [random_lot(i, *row) for i, row in enumerate(rows)]
    quotas = [Quota(name="q", provider="a", max_gpus=8)] if with_quota else []
    caps = Caps(power_kw=9.0) if with_cap else NO_CAPS
    stays = undominated(found, quotas, caps)

    def replaces(a: Lot, b: Lot) -> bool:
        free = not with_quota or a.offer.provider != "a" or b.offer.provider == "a"
        clean = not with_cap or a.power_kw <= b.power_kw
        return a.available is None and free and clean and all(cost(a, u) <= cost(b, u) for u in USES)

    for lot in found:
        if lot not in stays:
            assert lot.kind is not LotKind.BOUGHT
            assert any(replaces(other, lot) for other in stays)
    for a, b in itertools.permutations(stays, 2):
        assert b.kind is LotKind.BOUGHT or not replaces(a, b)
    assert undominated(found[::-1], quotas, caps) == stays
