"""Data_FOCUS: the charges add up to the cost, bear the names of FOCUS 1.2, and are the same as CSV."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json

import pytest

from planner.plan import FleetPlan
from planner.report.charges import Part, charges_of
from planner.report.focus_csv import focus_csv, quantities
from tests.report.sample import H100, H100_1Y, IDLE, L40S_HELD
from tests.report.sample_contracts import BLOCK, BOUGHT, OWNED, contract_plan
from tests.report.sheet_reader import Read

FOCUS_1_2 = {
    *("BilledCost", "BillingCurrency", "BillingPeriodEnd", "BillingPeriodStart", "ChargeCategory", "ChargeClass"),
    *("ChargeFrequency", "ChargePeriodEnd", "ChargePeriodStart", "CommitmentDiscountCategory", "CommitmentDiscountId"),
    *("CommitmentDiscountStatus", "CommitmentDiscountType", "ContractedCost", "EffectiveCost", "ListCost"),
    *("PricingCategory", "PricingQuantity", "PricingUnit", "ProviderName", "RegionId", "ServiceCategory"),
    *("ServiceName", "SkuId", "Tags"),
}
"""Column ids as the specification spells them."""
QUANTITIES = ("PricingQuantity", "ListCost", "ContractedCost", "BilledCost", "EffectiveCost", "x_ShowbackCost")


@pytest.fixture(scope="module")
def contracts() -> FleetPlan:
    return contract_plan()


@pytest.fixture(scope="module")
def read(contracts: FleetPlan, tmp_path_factory: pytest.TempPathFactory) -> Read:
    return Read(contracts, tmp_path_factory.mktemp("focus") / "plan.xlsx")


def _rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_names_are_those_of_focus_and_all_others_have_the_prefix(read: Read, contracts: FleetPlan):
    headers = [column.header for column in read.book.tables["tblFocus"].columns]
    assert {header for header in headers if not header.startswith("x_")} == FOCUS_1_2
    assert headers == list(_rows(focus_csv(contracts))[0])
    named = {"x_Scenario", "x_Workload", "x_Tp", "x_WeightsDtype", "x_KvDtype", "x_MaxModelLen"}
    assert named <= set(headers)
    assert any(table.displayName == "tblFocus" for table in read.cells["Data_FOCUS"].tables.values())


def test_effective_costs_and_showback_are_the_whole_cost(read: Read, contracts: FleetPlan):
    usd = contracts.totals.usd
    assert read.total("tblFocus", "EffectiveCost") == pytest.approx(usd, abs=1e-6)
    assert read.total("tblFocus", "x_ShowbackCost") == pytest.approx(usd, abs=1e-6)
    assert read.headline().startswith("ALL ")


def test_every_lot_costs_what_it_costs_and_every_pool_is_charged_what_it_is(contracts: FleetPlan):
    charges = charges_of(contracts)
    for p in contracts.purchases:
        mine = sum(c.effective_usd for c in charges if c.purchase.offer_id == p.offer_id)
        assert mine == pytest.approx(p.usd), p.offer_id
    for pool in contracts.pools:
        assert sum(c.showback_usd for c in charges if c.pool == pool) == pytest.approx(pool.usd)
        hours = sum(n * pool.tp * period.hours for g in pool.placements
                    for n, period in zip(g.replicas, contracts.periods, strict=True))  # fmt: skip
        assert sum(c.gpu_hours for c in charges if c.pool == pool) == pytest.approx(hours)
    assert all(c.gpu_hours >= 0 for c in charges)


def test_the_sheet_has_the_values_of_the_charges(read: Read, contracts: FleetPlan):
    """Formulas against the plain functions, row by row."""
    wanted = [quantities(charge) for charge in charges_of(contracts)]
    found = list(zip(*(read.column("tblFocus", name) for name in QUANTITIES), strict=True))
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert one == pytest.approx(other, abs=1e-6)


def test_what_is_bought_in_advance_is_billed_once_and_costs_where_it_is_used(contracts: FleetPlan):
    """The block: 122,304 USD billed at once, 120,960 effective. The 1-year contract: 64,800 in both."""
    rows = _rows(focus_csv(contracts))
    bought = {row["x_Lot"]: row for row in rows if row["ChargeCategory"] == "Purchase"}
    assert set(bought) == {H100_1Y, BLOCK, L40S_HELD, BOUGHT, IDLE}
    assert all(float(row["EffectiveCost"]) == 0 for row in bought.values())
    assert float(bought[BLOCK]["BilledCost"]) == pytest.approx(122_304)
    assert float(bought[H100_1Y]["BilledCost"]) == pytest.approx(64_800)
    assert (bought[BLOCK]["ChargeFrequency"], bought[H100_1Y]["ChargeFrequency"]) == ("One-Time", "Recurring")
    assert {bought[lot]["PricingCategory"] for lot in (BLOCK, H100_1Y)} == {"Standard"}
    for row in rows:
        held = row["x_Lot"] in bought
        if row["ChargeCategory"] == "Usage":
            assert float(row["BilledCost"]) == (0 if held else float(row["EffectiveCost"]))
            assert row["ChargeFrequency"] == "Usage-Based"


def test_status_tells_used_from_unused_commitments(contracts: FleetPlan):
    rows = _rows(focus_csv(contracts))
    status = {(row["x_Lot"], row["x_Workload"]): row["CommitmentDiscountStatus"] for row in rows}
    assert status[H100_1Y, "chat"] == "Used"
    assert status[H100_1Y, "(idle)"] == "Used", "it runs; that no replica stands on it is the plan's own idleness"
    assert status[IDLE, "(unused)"] == "Unused"
    assert status[L40S_HELD, "(ended)"] == "Unused"
    assert status[H100_1Y, "(purchase)"] == ""
    assert status[H100, "chat"] == status[OWNED, "vision"] == ""
    identified = {row["x_Lot"] for row in rows if row["CommitmentDiscountId"]}
    assert identified == {H100_1Y, BLOCK, L40S_HELD, IDLE}
    ended = next(row for row in rows if row["x_Workload"] == "(ended)")
    assert float(ended["EffectiveCost"]) == pytest.approx(8_496)


def test_dates_are_exclusive_and_tags_are_json(contracts: FleetPlan, read: Read):
    row = _rows(focus_csv(contracts, "High"))[0]
    assert row["BillingPeriodStart"] == "2027-01-01T00:00:00Z"
    assert row["ChargePeriodEnd"] == "2027-04-01T00:00:00Z"
    assert read.column("tblFocus", "ChargePeriodEnd")[0] == dt.datetime(2027, 4, 1)
    assert json.loads(row["Tags"]) == {"cost_centre": "CC-1004", "model": "chat"}
    assert row["x_Scenario"] == "High"
    assert set(read.column("tblFocus", "x_Scenario")) == {"Base"}


def test_csv_text_cannot_become_a_formula(contracts: FleetPlan, tmp_path):
    """Names that begin with = + - @, control characters and 40,000 characters."""
    bad = "=HYPERLINK(1)\x07" + "x" * 40_000
    pool = contracts.pools[0].model_copy(update={"name": bad, "weight_dtype": "@SUM(1)", "kv_dtype": "+1"})
    lot = contracts.purchases[0].model_copy(update={"instance_type": "-2+3", "provider": "\x1b=cmd"})
    changed = contracts.model_copy(
        update={"pools": (pool, *contracts.pools[1:]), "purchases": (lot, *contracts.purchases[1:])}
    )
    row = _rows(focus_csv(changed))[0]
    assert row["x_Pool"].startswith("'=HYPERLINK(1)xxx")
    assert len(row["x_Pool"]) < 33_000
    assert (row["x_WeightsDtype"], row["x_KvDtype"]) == ("'@SUM(1)", "'+1")
    assert (row["SkuId"], row["ProviderName"]) == ("'-2+3", "'=cmd")
    assert float(row["EffectiveCost"]) > 0
    found = Read(changed, tmp_path / "plan.xlsx")
    place = found.book.tables["tblFocus"]
    for header in ("SkuId", "ProviderName", "x_WeightsDtype", "x_KvDtype"):
        cell = found.cells["Data_FOCUS"][f"{place.letter(header)}{place.first}"]
        assert (cell.data_type, cell.quotePrefix) == ("s", True), header


@pytest.mark.parametrize(
    ("edit", "text"),
    [
        (("tblCharges", "Used", 0, 0), "EffectiveCost of Data_FOCUS equals cost by purchase"),
        (("tblFocus", "EffectiveCost", 0, 1.0), "EffectiveCost of Data_FOCUS equals cost by purchase"),
        (("tblFocus", "x_ShowbackCost", 0, 1.0), "Showback of Data_FOCUS equals Showback"),
        (("tblCharges", "Purchase", -1, 0),
         "BilledCost of Data_FOCUS equals what is billed by the Commitments and Cost sheets"),
    ],
)  # fmt: skip
def test_each_check_can_fail(edit, text: str, read: Read):
    table, header, i, value = edit
    row = i if i >= 0 else read.book.tables[table].rows + i
    assert text in read.failed_after(table, header, row, value)


def test_parts_of_the_charges_name_what_they_are_for(contracts: FleetPlan):
    parts = {part: sum(c.part is part for c in charges_of(contracts)) for part in Part}
    assert parts[Part.UNCOUNTED] == 1
    assert parts[Part.PURCHASE] == 5
    assert parts[Part.UNUSED] == 1 + 2, "a bought box in the other hours, the idle contract in both"
    assert parts[Part.USED] > parts[Part.IDLE] > 0
