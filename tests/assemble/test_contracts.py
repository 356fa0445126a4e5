"""What a plan says about its purchases besides what was decided: contract, list price, GPU, cost of owning."""

from __future__ import annotations

import datetime as dt

import pytest

from planner.assemble.contracts import described
from planner.plan import Contract, Purchase, read_plan
from planner.units import years_to_hours
from tests.optimise.supply_world import BUYING, HOURS, OWNED, SITE, catalog, request
from tests.report.sample import X8, purchase, sample_plan

YEARS_3 = "aws/p5.4xlarge/us-east-1/commit_3y"
SPOT = "gcp/a3-highgpu-8g/us-east1/spot"
START, END = dt.date(2027, 1, 1), dt.date(2027, 4, 1)


def _lot(lot: str, kind: str, reserved: int = 0, term: str = "", **changes: object) -> Purchase:
    made = purchase(lot, kind, X8, 8, (1, 1), 8, reserved=reserved, price=1.0)
    provider, instance, *rest = lot.removeprefix("held/").split("/")
    place = {"provider": provider, "instance_type": instance, "region": rest[0] if rest else ""}
    return made.model_copy(update={"term": term or lot.rsplit("/", maxsplit=1)[-1], **place, **changes})


def _only(lot: Purchase, **tables: object) -> Purchase:
    return described([lot], request(**tables), catalog())[0]


def test_a_new_commitment_runs_from_the_first_day_for_its_term():
    lot = _only(_lot(YEARS_3, "new commitment", 2))
    assert lot.contract == Contract(instances=2, hours=HOURS, start=START, end=dt.date(2029, 12, 31))
    assert (lot.contract.end - START).days * 24 == years_to_hours(3)
    listed = next(o for o in catalog().offers if o.id == "aws/p5.4xlarge/us-east-1/on_demand")
    assert lot.list_price is not None
    assert (lot.list_price.usd_per_h, lot.list_price.as_of) == (listed.usd_per_h, listed.as_of)
    assert lot.list_price.usd_per_h > 2.586872, "on demand is dearer than three years"
    assert (lot.memory_gb, lot.tdp_w) == (80, 700)


def test_a_capacity_block_is_paid_at_the_start_for_whole_weeks():
    """90 days are 12.86 weeks: 13 weeks, 91 days."""
    lot = _only(_lot("aws/p5.48xlarge/us-east-1/capacity_block", "new commitment", 1))
    assert lot.contract == Contract(instances=1, hours=HOURS, start=START, end=dt.date(2027, 4, 2), paid_at_start=True)


@pytest.mark.parametrize(("until", "hours"), [("2027-02-10", 40 * 24.0), ("2027-09-01", HOURS), ("2026-12-01", 0.0)])
def test_a_contract_that_stands_is_paid_until_its_end(until: str, hours: float):
    offer = "aws/p5.48xlarge/us-east-1/on_demand"
    row = {"offer": offer, "instances": 3, "until": until}
    lot = _only(_lot(f"held/{offer}/{until}", "existing commitment"), commitment=[row])
    assert lot.contract == Contract(instances=3, hours=hours, end=dt.date.fromisoformat(until))


def test_bought_hardware_has_the_parts_of_its_price():
    """0.1 of 50,000 USD is left; hosting is 730 USD a month, so 1 an hour; 10 kW x 1.5 x 0.2 USD is 3 an hour."""
    lot = _only(_lot("bought/new rack", "bought", 2, "bought"), buying=[BUYING], site=[SITE])
    own = lot.owning
    assert own is not None
    assert (own.capex_usd, own.life_years, own.residual_share) == (50_000, 5, 0.1)
    assert own.hosting_usd_per_h == pytest.approx(1.0)
    assert own.maintenance_usd_per_h == pytest.approx(50_000 * 0.0438 / 8760)
    assert own.energy_usd_per_h == pytest.approx(3.0)
    straight = 50_000 * 0.9 / 5 / 8760
    assert own.capital_usd_per_h > straight, "with a return on what is not yet depreciated"
    assert lot.contract == Contract(instances=2, hours=HOURS, start=START, end=START + dt.timedelta(days=5 * 365))
    assert lot.list_price is None


def test_owned_hardware_is_held_and_on_demand_is_not():
    lot = _only(_lot("owned/rack", "owned", term="owned"), owned=[OWNED])
    assert lot.contract == Contract(instances=3, hours=HOURS)
    assert _only(_lot("aws/p5.48xlarge/us-east-1/on_demand", "on-demand")).contract is None


def test_without_a_catalogue_nothing_is_said_about_list_prices_and_gpus():
    lot = described([_lot(SPOT, "spot")], request(), None)[0]
    assert (lot.list_price, lot.memory_gb, lot.tdp_w) == (None, None, None)


def test_what_is_added_survives_the_file_and_older_files_do_without(tmp_path):
    plan = sample_plan()
    lot = _only(_lot(YEARS_3, "new commitment", 2))
    more = plan.model_copy(update={"purchases": (lot, *plan.purchases[1:])})
    path = tmp_path / "plan.json"
    path.write_text(more.model_dump_json(), encoding="utf-8")
    assert read_plan(path).purchases[0] == lot
    bare = plan.model_dump(mode="json")
    for row in bare["purchases"]:
        for name in ("memory_gb", "tdp_w", "list_price", "contract", "owning"):
            del row[name]
    assert type(plan).model_validate(bare) == plan
