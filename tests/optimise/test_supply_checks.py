"""What is wrong with the request's tables of supply is said all at once."""

from __future__ import annotations

import pytest

from planner.errors import InputError
from planner.optimise.supply.checks import check_supply
from tests.optimise.supply_world import BUYING, H100, OWNED, SITE, catalog, model, request


def problems(**tables) -> list[str]:
    try:
        check_supply(request(**tables), catalog(), "q.toml")
    except InputError as error:
        return [str(problem) for problem in error.problems]
    return []


HELD = {"offer": H100, "instances": 1, "until": "2028-01-01"}


def test_a_sound_request_passes():
    assert problems() == []
    own = {"owned": [OWNED], "buying": [BUYING], "site": [SITE], "commitment": [HELD]}
    links = [{"gpu": "H100-SXM"}, {"offer": "owned/rack"}, {"provider": "bought"}]
    linked = [row | {"network_gb_s": 100, "source": "provider"} for row in links]
    assert problems(**own, multi_node=linked, model=[model(regions=["us-east-1"])]) == []


def test_everything_wrong_is_said_at_once():
    found = problems(
        owned=[OWNED | {"gpu": "H100"}, OWNED | {"until": "2026-12-31"}],
        buying=[BUYING | {"gpu": "H300-SXM"}],
        site=[SITE | {"region": "north"}, SITE | {"region": "north"}],
        commitment=[HELD | {"offer": "aws/p5.48xlarge/us-east-1/commit_1y"}, HELD | {"until": "2027-01-01"}],
        multi_node=[{"provider": "awss", "network_gb_s": 100, "source": "s"}],
        model=[model(regions=["us-east-1", "us-oest-1"])],
    )
    assert len(found) == 10
    for text in (
        "site, field region: 'north' is given more than once",
        "owned, field name: 'rack' is given more than once",
        "owned 'rack', field gpu: 'H100' is no known GPU. Did you mean",
        "owned 'rack', field until: 2026-12-31 is not after the start of the horizon, 2027-01-01",
        "buying 'new rack', field gpu: 'H300-SXM' is no known GPU. Did you mean H200-SXM or H100-SXM",
        "buying 'new rack', field region: no price of electricity is stated for its region",
        "commitment number 1, field offer: 'aws/p5.48xlarge/us-east-1/commit_1y' is no known offer. Did you mean",
        "commitment number 2, field until: 2027-01-01 is not after the start",
        "multi_node number 1, field provider: 'awss' is no known provider. Did you mean aws",
        "model 'chat', field regions: 'us-oest-1' is no known region. Did you mean us-",
    ):
        assert sum(text in line for line in found) == 1, text
    assert all(line.startswith("q.toml, ") for line in found)


def test_electricity_may_be_free_but_not_forgotten():
    site = {"region": "", "source": "contract"}
    assert len(problems(buying=[BUYING], site=[site])) == 1
    assert problems(buying=[BUYING], site=[site | {"usd_per_kwh": 0}]) == []
    assert len(problems(buying=[BUYING | {"region": "a"}], site=[SITE | {"region": "b"}])) == 1


@pytest.mark.parametrize(
    ("policy", "site", "count"),
    [
        ({}, {}, 0),
        ({"max_power_kw": 1}, {}, 0),
        ({"max_carbon_kg": 1}, {}, 0),
        ({"max_carbon_kg": 1}, {"carbon_kg_per_kwh": None}, 3),
        ({"max_power_kw": 1}, {"carbon_kg_per_kwh": None}, 0),
        ({"max_power_kw": 1}, {"region": "elsewhere"}, 4),  # and no price of electricity for what is bought
    ],
)
def test_a_cap_needs_figures_of_everything_that_cannot_be_left_out(policy, site, count):
    own = OWNED | {"power_kw": 10}
    assert len(problems(owned=[own], buying=[BUYING], commitment=[HELD], site=[SITE | site], policy=policy)) == count


def test_a_cap_needs_the_power_of_owned_hardware():
    assert "field power_kw: a cap on power or carbon needs it" in problems(
        owned=[OWNED], site=[SITE], policy={"max_power_kw": 1}
    )[0]  # fmt: skip


def test_spot_and_parts_of_a_gpu_cannot_be_committed():
    part = next(o.id for o in catalog().offers if not float(o.gpus_per_instance).is_integer())
    spot = next(o.id for o in catalog().offers if o.term.value == "spot" and o.gpus_per_instance == 8)
    found = problems(commitment=[HELD | {"offer": part}, HELD | {"offer": spot}])
    assert len(found) == 2
    assert "a part of a GPU" in found[0]
    assert "spot instances cannot be committed" in found[1]


def test_commitments_that_break_a_quota_are_named():
    """2 x 8 GPUs at AWS and 1 x 8 more: 24 of them are over a quota of 16 for H100 there."""
    rows = [HELD | {"instances": 2}, HELD | {"until": "2027-03-01"}]
    quota = {"name": "aws", "provider": "aws", "gpu": "H100-SXM", "max_gpus": 16}
    (found,) = problems(commitment=rows, quota=[quota])
    assert "quota 'aws', field max_gpus: existing commitments already hold 24 GPUs, more than 16" in found
    assert problems(commitment=rows, quota=[quota | {"max_gpus": 24}]) == []
    assert problems(commitment=rows, quota=[quota | {"provider": "gcp"}]) == []
