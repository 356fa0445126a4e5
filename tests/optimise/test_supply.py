"""Supplies: what is alike for a replica, how replicas fill instances, and what a signer is told."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.catalog.offer import Term
from planner.errors import InputError
from planner.optimise.supply.supplies import (
    Supplied,
    can_stand,
    instances_per_replica,
    network_gb_s,
    room,
    supplies_of,
    supply_of,
)
from planner.optimise.types import Placement, Supply
from planner.request import PlanRequest
from tests.optimise.supply_world import BUYING, H100, MONTHS, OWNED, SITE, WHOLE, catalog, model, offer, request


def supplied(asked: PlanRequest, *offers) -> Supplied:
    return supplies_of(asked, offers, MONTHS, catalog(), "q.toml")


def one(asked: PlanRequest, sold) -> Supply:
    return supply_of(sold, asked, catalog().gpus)


def test_offers_of_all_providers_and_regions_are_one_supply():
    found = supplied(request(), offer(50.0), offer(40.0, provider="x", region="y"), offer(20.0, term=Term.COMMIT_1Y))
    assert [s.id for s in found.supplies] == ["H100-SXM x8"]
    assert {lot.supply for lot in found.lots} == {"H100-SXM x8"}


def test_sizes_gpus_and_spot_are_told_apart():
    asked = request(model=[model(interruptible=True)])
    rows = [offer(50.0), offer(7.0, size=1), offer(5.0, gpu="A100-80GB-SXM"), offer(20.0, term=Term.SPOT)]
    found = supplied(asked, *rows)
    assert [s.id for s in found.supplies] == ["A100-80GB-SXM x8", "H100-SXM x1", "H100-SXM x8", "H100-SXM x8 spot"]
    spot = found.supplies[-1]
    assert (spot.spot, spot.usable_share) == (True, 0.8)
    assert (found.supplies[2].spot, found.supplies[2].usable_share) == (False, 1.0)


REGIONS = [offer(50.0, region="us-east-1"), offer(40.0, region="us-west-2"), offer(30.0, region="")]


def regions(*models) -> list[tuple[str, str]]:
    found = supplied(request(model=list(models)), *REGIONS, offer(60.0, region="eu-west-1"))
    return [(s.id.removeprefix("H100-SXM x8").strip(), s.region) for s in found.supplies]


def test_without_a_rule_regions_are_not_told_apart():
    assert regions(model(), model("other")) == [("", "")]


def test_regions_that_the_same_models_list_are_alike():
    assert regions(model(), model("b", regions=["us-east-1"])) == [("elsewhere", ""), ("in us-east-1", "us-east-1")]
    both = ["us-west-2", "us-east-1"]
    assert regions(model("a", regions=both), model("b", regions=both)) == [
        ("elsewhere", ""),
        ("in us-east-1 or us-west-2", "us-east-1"),
    ]
    assert regions(model("a", regions=both), model("b", regions=["us-west-2"])) == [
        ("elsewhere", ""),
        ("in us-east-1", "us-east-1"),
        ("in us-west-2", "us-west-2"),
    ]


def test_every_region_stands_alone_where_its_loss_must_be_survived():
    each = [("in us-east-1", "us-east-1"), ("in us-west-2", "us-west-2")]
    everywhere = [("elsewhere", ""), ("in eu-west-1", "eu-west-1"), *each]
    assert regions(model(), model("b", survives_region_loss=True)) == everywhere
    two = ["us-east-1", "us-west-2"]
    assert regions(model("b", survives_region_loss=True, regions=two)) == [("elsewhere", ""), *each]


LISTS = st.lists(st.sets(st.sampled_from("abcd")), min_size=1, max_size=3)


@given(LISTS, st.lists(st.booleans(), min_size=3, max_size=3), st.sampled_from(["", *"abcde"]))
def test_a_placement_may_use_the_supply_of_a_region_where_its_list_has_it(lists, spread, region):
    models = [model(f"m{i}", regions=sorted(names), survives_region_loss=spread[i]) for i, names in enumerate(lists)]
    found = one(request(model=models), offer(50.0, region=region))
    for i, names in enumerate(lists):
        placement = Placement("H100-SXM", 1, regions=tuple(sorted(names)))
        assert can_stand(placement, found) == (not names or region in names)
        if spread[i] and (not names or region in names):
            assert found.region == region


def test_lots_without_a_region_are_said():
    for rule in ({"regions": ["us-east-1"]}, {"survives_region_loss": True}):
        found = supplied(request(model=[model(), model("other", **rule)]), *REGIONS)
        assert any("name no region" in text for text in found.caveats)


def test_owned_bought_and_committed_machines_fill_the_supply_of_their_like():
    asked = request(
        owned=[OWNED], buying=[BUYING], site=[SITE],
        commitment=[{"offer": H100, "instances": 1, "until": "2028-01-01"}],
    )  # fmt: skip
    found = supplied(asked, offer(50.0))
    assert len(found.lots) == 4
    assert [s.id for s in found.supplies] == ["H100-SXM x8"]
    assert [lot.id for lot in found.lots] == sorted(lot.id for lot in found.lots)


def test_order_of_input_does_not_matter():
    asked = request(model=[model(interruptible=True, regions=["r"])])
    rows = [offer(50.0), offer(7.0, size=1), offer(20.0, term=Term.SPOT), offer(20.0, term=Term.COMMIT_3Y)]
    assert all(supplied(asked, *order) == supplied(asked, *rows) for order in itertools.permutations(rows))


def test_fewer_lots_leave_only_the_supplies_that_they_fill():
    found = supplied(request(), offer(50.0), offer(7.0, size=1))
    kept = found.on([lot for lot in found.lots if lot.gpus_per_instance == 1])
    assert ([s.id for s in kept.supplies], len(kept.lots)) == (["H100-SXM x1"], 1)
    assert kept.caveats == found.caveats


def test_spot_is_left_out_where_no_model_may_be_interrupted_and_asked_for_where_one_may():
    found = supplied(request(), offer(50.0), offer(20.0, term=Term.SPOT))
    assert [lot.offer.term for lot in found.lots] == [Term.ON_DEMAND]
    assert any("no model is interruptible" in text for text in found.caveats)
    none = supplied(request(model=[model(interruptible=True)]), offer(50.0))
    assert any("no spot offer can be used" in text for text in none.caveats)
    both = supplied(request(model=[model(interruptible=True)]), offer(50.0), offer(20.0, term=Term.SPOT))
    assert any("spot prices move" in text and "20%" in text for text in both.caveats)


def test_nothing_to_stand_on_is_bad_input():
    with pytest.raises(InputError, match=r"q\.toml, field offers: no instances can be had\. no model is interrupt"):
        supplied(request(), offer(20.0, term=Term.SPOT))


def test_a_commitment_that_ends_inside_a_period_is_said():
    held = {"offer": H100, "instances": 2, "until": "2027-02-16", "usd_per_instance_h": 40}
    found = supplied(request(commitment=[held]))
    assert any("ends on 2027-02-16, inside February" in text for text in found.caveats)
    clean = supplied(request(commitment=[held | {"until": "2027-02-01"}]))
    assert not any("inside" in text for text in clean.caveats)
    whole = supplies_of(request(commitment=[held | {"until": "2027-02-01"}]), [], WHOLE, catalog(), "q.toml")
    assert any("inside all" in text for text in whole.caveats)


# --- fast domains -------------------------------------------------------------------------------------------------


def test_domains_of_real_instances():
    asked, gcp = request(), catalog().offer("gcp/a2-megagpu-16g/us-central1/on_demand")
    assert (gcp.gpus_per_instance, one(asked, gcp).nvlink_domain) == (16, 8)
    pcie = catalog().offer("azure/Standard_NC96ads_A100_v4/eastus/on_demand")
    assert (pcie.gpus_per_instance, one(asked, pcie).nvlink_domain) == (4, 0), "PCIe spans the machine"
    assert one(asked, offer(50.0)).nvlink_domain == 0
    assert one(asked, offer(9.0, gpu="H200-NVL")).nvlink_domain == 4, "bridges join 4 of 8 cards"
    assert one(asked, offer(9.0, gpu="GB200", size=4)).nvlink_domain == 0


def supply(size: int = 8, domain: int = 0, **changes) -> Supply:
    return Supply("s", "H100-SXM", size, nvlink_domain=domain, **changes)


@pytest.mark.parametrize(
    ("size", "domain", "degree", "usable"),
    [
        (8, 0, 1, 8),
        (8, 0, 3, 6),  # two replicas of 3
        (8, 0, 8, 8),
        (8, 0, 16, 0),
        (8, 4, 4, 8),
        (8, 4, 3, 6),  # one of 3 in each domain of 4
        (8, 4, 8, 0),  # would straddle both
        (6, 4, 2, 6),  # two in the 4, one in the 2 left over
        (6, 4, 4, 4),
        (16, 8, 8, 16),
        (4, 8, 4, 4),  # a domain larger than the instance
    ],
)
def test_room_of_an_instance(size, domain, degree, usable):
    assert room(supply(size, domain), degree) == usable


@given(st.integers(1, 32), st.integers(0, 32), st.integers(1, 40), st.booleans())
def test_room_is_what_replicas_of_one_size_fill(size, domain, degree, linked):
    """Counted replica by replica, domain by domain."""
    s = supply(size, domain, multi_node=linked)
    left, filled = size, 0
    while left:
        here = min(domain or size, left)
        filled += here // degree
        left -= here
    if degree > size:
        assert room(s, degree) == (size if linked and degree % size == 0 else 0)
    else:
        assert room(s, degree) == filled * degree


def test_a_replica_over_several_instances_takes_whole_ones_that_are_linked():
    sixteen = Placement("H100-SXM", 16)
    assert not can_stand(sixteen, supply())
    linked = supply(multi_node=True)
    assert can_stand(sixteen, linked)
    assert (room(linked, 16), instances_per_replica(sixteen, linked)) == (8, 2)
    assert not can_stand(Placement("H100-SXM", 12), linked)
    assert instances_per_replica(Placement("H100-SXM", 2), linked) == 1


def test_what_may_stand_where():
    two = Placement("H100-SXM", 2)
    assert can_stand(two, supply())
    assert not can_stand(Placement("H200-SXM", 2), supply())
    assert not can_stand(two, supply(spot=True))
    assert can_stand(Placement("H100-SXM", 2, interruptible=True), supply(spot=True))
    assert can_stand(Placement("H100-SXM", 2, interruptible=True), supply())
    here = Placement("H100-SXM", 2, regions=("a", "b"))
    assert can_stand(here, supply(region="b"))
    assert not can_stand(here, supply(region="c"))
    assert not can_stand(here, supply()), "an unnamed region is none of them"


# --- links between instances --------------------------------------------------------------------------------------


def test_linked_instances_of_two_places_never_share_a_replica():
    rows = [{"gpu": "H100-SXM", "network_gb_s": 100, "source": "provider"}]
    found = supplied(request(multi_node=rows), offer(50.0), offer(45.0, provider="x"), offer(60.0, region="y"))
    assert [s.id for s in found.supplies] == [
        "H100-SXM x8 linked at p/8x-H100-SXM/r",
        "H100-SXM x8 linked at p/8x-H100-SXM/y",
        "H100-SXM x8 linked at x/8x-H100-SXM/r",
    ]
    assert all(s.multi_node for s in found.supplies)


def test_the_slowest_link_of_a_gpu_type_is_planned_with():
    rows = [
        {"provider": "p", "network_gb_s": 100, "source": "a"},
        {"offer": "x/8x-H100-SXM/r/on_demand", "network_gb_s": 50, "source": "b"},
    ]
    asked = request(multi_node=rows)
    found = supplied(
        asked, offer(50.0), offer(45.0, provider="x"), offer(9.0, gpu="H200-SXM"), offer(8.0, provider="z")
    )
    for lots in (found.lots, found.lots[::-1]):
        assert network_gb_s(asked, lots) == {"H100-SXM": 50.0, "H200-SXM": 100.0}
    assert [s.multi_node for s in found.supplies] == [False, True, True, True]
    assert network_gb_s(request(), found.lots) == {}


# --- power and carbon ---------------------------------------------------------------------------------------------


def test_a_cap_asks_for_a_guess_and_says_so():
    """8 x 700 W x 2.04 = 11.424 kW; x PUE 1.5 = 17.136 kW; x 0.3 = 5.1408 kg/h."""
    asked = request(policy={"max_power_kw": 100}, site=[SITE])
    found = supplied(asked, offer(50.0))
    assert found.lots[0].power_kw == pytest.approx(17.136)
    assert found.lots[0].carbon_kg_per_h == pytest.approx(5.1408)
    assert any("is a guess: 2.04 x the TDP" in text and "H100-SXM 700 W" in text for text in found.caveats)


def test_what_has_no_figure_under_a_cap_is_left_out_and_named():
    site = SITE | {"region": "r"}
    rows = [offer(50.0), offer(40.0, region="y"), offer(30.0, gpu="GH200-96GB", size=1)]
    found = supplied(request(policy={"max_power_kw": 100}, site=[site]), *rows)
    assert [lot.id for lot in found.lots] == ["p/8x-H100-SXM/r/on_demand"]
    assert any("2 offers left out: a cap" in text and "GH200" in text for text in found.caveats)
    del site["carbon_kg_per_kwh"]
    assert len(supplied(request(policy={"max_power_kw": 100}, site=[site]), *rows).lots) == 1
    with pytest.raises(InputError, match="no instances can be had"):
        supplied(request(policy={"max_carbon_kg": 100}, site=[site]), *rows)


def test_no_guess_without_a_cap():
    found = supplied(request(site=[SITE]), offer(50.0))
    assert (found.lots[0].power_kw, found.lots[0].carbon_kg_per_h, found.caveats) == (0.0, 0.0, ())
