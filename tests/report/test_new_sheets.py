"""Catalogue, Commitments and Showback against the plan's own figures."""

from __future__ import annotations

import datetime as dt

import pytest

from planner.plan import FleetPlan, Reporting
from planner.report import unit_prices
from planner.report.commitments import billed_usd, held_lots, upfront_usd
from planner.report.sheets.catalogue import NO_LAST, NOT_BOUGHT
from planner.report.sheets.commitments import NOTHING, UNKNOWN_END
from planner.report.sheets.cost import NO_POOL
from planner.report.sheets.showback import NOBODY
from planner.study import LastQuarter, Study
from tests.report import sample
from tests.report.sample import H100, H100_1Y, HOURS, IDLE, L40S_HELD, QUARTER, REJECTED, SUPPLIES, WARNINGS, plan_of
from tests.report.sample_contracts import BLOCK, BOUGHT, OWNED, OWNING, contract_plan
from tests.report.sample_study import sample_last
from tests.report.sheet_reader import Read


@pytest.fixture(scope="module")
def contracts(tmp_path_factory: pytest.TempPathFactory) -> tuple[FleetPlan, Read]:
    """The plan with every kind of lot, and last quarter's beside it."""
    plan = contract_plan()
    last = LastQuarter(path="last/plan.json", sha256="e" * 64, plan=sample_last())
    return plan, Read(Study(plan=plan, last=last), tmp_path_factory.mktemp("contracts") / "plan.xlsx")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Read:
    """On-demand instances only: nothing is committed, owned or known of last quarter."""
    lots = tuple(p for p in sample.sample_plan().purchases if p.kind == "on-demand")
    specs = tuple(s for s in sample.SPECS if s.supply in {p.supply for p in lots} and s.model in {"agents", "code"})
    plan = plan_of(
        specs, lots, SUPPLIES, QUARTER, run_id="0" * 12, title="-2+3", warnings=WARNINGS, rejected=REJECTED,
        created_at=dt.datetime(2026, 11, 29, 16, 40, 7, tzinfo=dt.UTC),
    )  # fmt: skip
    return Read(plan, tmp_path_factory.mktemp("bare") / "plan.xlsx")


def test_all_checks_hold_with_every_kind_of_lot_and_with_none(contracts, bare: Read):
    assert contracts[1].headline().startswith("ALL ")
    assert bare.headline().startswith("ALL ")


def test_commitments_show_hours_held_used_and_unused(contracts):
    """Horizon 720 + 1440 h. Bought: 2 x 2160 held, 2 x 720 + 1440 run. Ending contract: 2 x 1080, none planned with."""
    _, read = contracts
    found = {
        lot: tuple(read.row("tblCommit", "CommitmentDiscountId", lot, h)
                   for h in ("Quantity", "HoursInQuarter", "UsedHours", "UnusedHours"))
        for lot in (H100_1Y, BLOCK, L40S_HELD, BOUGHT, OWNED, IDLE)
    }  # fmt: skip
    assert found == {
        H100_1Y: (1, 2160, 2160, 0),
        BLOCK: (2, 4320, 4320, 0),
        L40S_HELD: (2, 2160, 0, 2160),
        BOUGHT: (2, 4320, 2880, 1440),
        OWNED: (4, 8640, 3 * 720 + 2 * 1440, 8640 - 3 * 720 - 2 * 1440),
        IDLE: (2, 4320, 0, 4320),
    }
    assert H100 not in read.column("tblCommit", "CommitmentDiscountId")


def test_list_contracted_effective_and_billed_costs_are_distinct(contracts):
    """The 1-year commitment: 8 GPUs for 2160 h at 6.88 list and 3.75 effective."""
    _, read = contracts

    def of(lot: str, header: str) -> float:
        return read.row("tblCommit", "CommitmentDiscountId", lot, header)

    assert of(H100_1Y, "ListCost") == pytest.approx(55.04 * HOURS)
    assert of(H100_1Y, "ContractedCost") == pytest.approx(55.04 * HOURS)
    assert of(H100_1Y, "EffectiveCost") == of(H100_1Y, "BilledCost") == pytest.approx(30.0 * HOURS)
    assert of(H100_1Y, "DueAfter") == 198_000
    assert of(H100_1Y, "HourlyRate") == pytest.approx(30.0)
    block = 28.0 * 2 * HOURS
    assert of(BLOCK, "Upfront") == of(BLOCK, "BilledCost") == pytest.approx(block + 1_344)
    assert of(BLOCK, "EffectiveCost") == pytest.approx(block)
    assert of(L40S_HELD, "UnusedCost") == pytest.approx(8_496)
    assert of(L40S_HELD, "HourlyRate") == pytest.approx(8_496 / 2160)
    assert of(OWNED, "UnusedCost") == 0, "it costs nothing while it stands still"
    assert of(BOUGHT, "UnusedCost") == pytest.approx(4.2 * 1440)


def test_billed_and_upfront_are_those_of_the_plain_functions(contracts):
    plan, read = contracts
    for held in held_lots(plan):
        lot = held.purchase.offer_id
        assert read.row("tblCommit", "CommitmentDiscountId", lot, "BilledCost") == pytest.approx(billed_usd(held)), lot
        assert read.row("tblCommit", "CommitmentDiscountId", lot, "Upfront") == pytest.approx(upfront_usd(held)), lot


def test_capex_depreciation_and_operation_are_apart(contracts):
    """120,000 USD less 10 % over 5 years of 8,760 h is 2.4658 USD an hour; capital is 3.1, so 0.6342 is return."""
    plan, read = contracts
    hourly = 120_000 * 0.9 / (5 * 8760)

    def of(header: str) -> float:
        return read.row("tblHardware", "Lot", BOUGHT, header)

    assert of("Capex cash, USD") == 240_000
    assert of("Depreciation, USD") == pytest.approx(hourly * 2 * HOURS)
    assert of("Return on capital, USD") == pytest.approx((OWNING.capital_usd_per_h - hourly) * 2 * HOURS)
    assert of("Maintenance, USD") == pytest.approx(0.5 * 2 * HOURS)
    assert of("Hosting, USD") == pytest.approx(0.6 * 2 * HOURS)
    assert of("Power, USD") == pytest.approx(0.4 * 2880)
    bought = next(p for p in plan.purchases if p.offer_id == BOUGHT)
    assert of("Cost, USD") == pytest.approx(bought.usd)
    assert read.row("tblHardware", "Lot", OWNED, "Power, USD") == pytest.approx(0.5 * 5040)
    assert read.row("tblHardware", "Lot", OWNED, "Capex cash, USD") == 0


def test_coverage_waste_and_expiry(contracts):
    _, read = contracts

    def value(name: str) -> object:
        return read.row("tblCoverage", "Measure", name, "Value")

    committed = 8 * 2160 + 8 * 4320 + 4 * 2880 + 1 * 5040
    assert value("Coverage") == pytest.approx(committed / (committed + 8 * (2 * 720 + 1440)))
    assert value("Unused cost") == pytest.approx(8_496 + 4.2 * 1440 + 2_592)
    assert value("Due after the horizon") == pytest.approx(198_000 + 1_344 + 100_000)
    assert value("Capex cash") == 240_000
    assert value("Next end") == dt.datetime(2027, 2, 15)
    assert read.row("tblCommit", "CommitmentDiscountId", OWNED, "EndDate") == UNKNOWN_END


def test_catalogue_prices_follow_from_the_plan(contracts):
    plan, read = contracts
    for p in plan.purchases:
        lot = p.offer_id
        assert read.row("tblGpu", "Lot", lot, "ListUnitPrice") == pytest.approx(unit_prices.list_usd_per_gpu_h(p, plan))
        effective = unit_prices.effective_usd_per_gpu_h(p, plan)
        assert read.row("tblGpu", "Lot", lot, "EffectiveUnitPrice") == pytest.approx(effective), lot
    assert read.row("tblGpu", "Lot", H100_1Y, "ListUnitPrice") == pytest.approx(6.88)
    assert read.row("tblGpu", "Lot", H100_1Y, "EffectiveUnitPrice") == pytest.approx(3.75)
    assert read.row("tblGpu", "Lot", BOUGHT, "CapexPerGpu") == 30_000
    assert read.row("tblGpu", "Lot", BOUGHT, "DeprPerHour") == pytest.approx(108_000 / 43_800 / 4)
    assert read.row("tblGpu", "Lot", BOUGHT, "PowerPerHour") == pytest.approx(0.1)
    assert read.row("tblGpu", "Lot", BOUGHT, "OtherPerHour") == pytest.approx((4.2 - 108_000 / 43_800) / 4)
    assert [read.row("tblGpu", "Lot", H100_1Y, h) for h in ("MemoryGB", "TdpW")] == [80, 700]
    assert read.row("tblGpu", "Lot", IDLE, "TdpW") == "unknown"
    categories = dict(zip(read.column("tblGpu", "Lot"), read.column("tblGpu", "PricingCategory"), strict=True))
    assert categories == {
        H100_1Y: "Committed", H100: "Standard", BLOCK: "Committed", L40S_HELD: "Committed", BOUGHT: "Other",
        OWNED: "Other", IDLE: "Committed",
    }  # fmt: skip


def test_last_quarters_price_is_that_of_the_lot_else_of_its_gpu_type(contracts, bare: Read):
    """Last quarter: H100 on demand 60.54 for 8 GPUs; the 1-year lot is new, so its type's price stands there."""
    _, read = contracts
    assert read.row("tblGpu", "Lot", H100, "LastQtrUnitPrice") == pytest.approx(60.54 / 8)
    assert read.row("tblGpu", "Lot", H100_1Y, "LastQtrUnitPrice") == pytest.approx(60.54 / 8)
    assert read.row("tblGpu", "Lot", IDLE, "LastQtrUnitPrice") == pytest.approx(2_649.6 / (2 * 2208))
    assert set(bare.column("tblGpu", "LastQtrUnitPrice")) == {NO_LAST}
    last = sample_last()
    none_left = last.model_copy(update={"purchases": last.purchases[:1]})
    assert unit_prices.last_usd_per_gpu_h(contracts[0].purchases[0], none_left) is None
    assert NOT_BOUGHT


def test_the_rate_of_the_reporting_currency_is_that_of_the_inputs(contracts, tmp_path):
    plan, read = contracts
    assert set(read.column("tblGpu", "FxToReporting")) == {1}
    euro = Reporting(currency="EUR", per_usd=0.92, source="treasury", source_date=dt.date(2026, 11, 2), owner="T")
    found = Read(plan.model_copy(update={"reporting": euro}), tmp_path / "plan.xlsx")
    assert set(found.column("tblGpu", "FxToReporting")) == {0.92}
    place = found.book.tables["tblGpu"]
    assert found.cells["Catalogue"][f"{place.letter('FxToReporting')}{place.first}"].data_type == "f"


def test_showback_is_the_cost_of_the_pools_by_workload_and_centre(contracts):
    plan, read = contracts
    for model in {pool.model for pool in plan.pools}:
        pools = [pool for pool in plan.pools if pool.model == model]
        usd, mtok = sum(p.usd for p in pools), sum(p.served_mtok for p in pools)
        assert read.row("tblShowback", "Workload", model, "TotalCost") == pytest.approx(usd)
        assert read.row("tblShowback", "Workload", model, "CostPer1MTokens") == pytest.approx(usd / mtok)
        assert read.row("tblShowback", "Workload", model, "CostCentre") == pools[0].cost_centre
    assert read.row("tblShowback", "Workload", NO_POOL, "TotalCost") == pytest.approx(2_592)
    assert read.total("tblShowback", "TotalCost") == pytest.approx(plan.totals.usd)
    assert read.total("tblShowback", "Share") == pytest.approx(1)
    assert read.row("tblCentres", "CostCentre", "CC-1004", "TotalCost") == pytest.approx(
        sum(p.usd for p in plan.pools if p.cost_centre == "CC-1004")
    )
    assert read.row("tblCentres", "CostCentre", NOBODY, "SharedIdleCost") == pytest.approx(2_592)


def test_where_nothing_is_held_one_row_says_so(bare: Read):
    assert bare.column("tblCommit", "CommitmentDiscountId") == [NOTHING]
    assert bare.column("tblCommit", "EffectiveCost") == [0]
    assert bare.row("tblCoverage", "Measure", "Coverage", "Value") == 0
    assert bare.row("tblCoverage", "Measure", "Next end", "Value") == "none"
    assert bare.column("tblHardware", "Lot") == ["(no hardware owned or bought)"]


@pytest.mark.parametrize(
    ("edit", "text"),
    [
        (("tblCommit", "Quantity", 0, 3), "Commitments whose used and unused hours are not those committed"),
        (("tblCommitParts", "HoursEach", 3, 1), "Commitments whose used and unused hours are not those committed"),
        (("tblLots", "Instances running", 0, 30), "Hours that commitments run are not more than are held"),
        (("tblHardware", "Power an hour in use, USD", 0, 9.0), "Capital, operation and power of hardware are its cost"),
        (("tblHardware", "Instances bought", 0, 3), "Capital, operation and power of hardware are its cost"),
        (("tblShowback", "DirectCost", 0, 1.0), "Showback by workload equals cost by purchase"),
        (("tblCentres", "CentreNo", 0, 9), "Showback by cost centre equals cost by purchase"),
    ],
)
def test_each_new_check_can_fail(edit, text: str, contracts):
    assert text in contracts[1].failed_after(*edit)


def test_hostile_text_stays_text_in_the_new_sheets(contracts):
    """The source of a list price begins with =."""
    _, read = contracts
    inputs = read.cells["Inputs"]
    sources = [cell for row in inputs.iter_rows() for cell in row if cell.value == "=list"]
    assert sources
    assert all(cell.data_type == "s" and cell.quotePrefix for cell in sources)
