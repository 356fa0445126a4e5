"""gpuhunt, SkyPilot, private lists and bills: every trap of these formats."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from planner.catalog.csv_table import read_rows
from planner.catalog.imports.focus import read_focus
from planner.catalog.imports.gpuhunt import read_gpuhunt, version_day
from planner.catalog.imports.instances import InstanceFact
from planner.catalog.imports.private_csv import Rate, read_private
from planner.catalog.imports.shared import Imported, SourceFile, key_of, number, price_of, usable_price
from planner.catalog.imports.skypilot import read_skypilot
from planner.catalog.load import load_catalog
from planner.catalog.lookup.lookup_gpus import GpuAlias
from planner.catalog.offer import PriceKind, Purchasable, Term
from planner.errors import InputError

DATA = Path(__file__).parents[2] / "data" / "imports"
CATALOG = load_catalog()
DAY = dt.date(2026, 11, 30)
GPUHUNT = ("aws", "azure", "gcp", "lambdalabs", "nebius")
SKYPILOT = ("aws", "gcp", "lambda", "mithril", "nebius", "runpod")


def source(path: Path) -> SourceFile:
    return SourceFile(path.name, str(path), path.read_text(encoding="utf-8-sig"))


def hunt(name: str) -> Imported:
    (read,) = read_gpuhunt([source(DATA / "gpuhunt" / f"{name}.csv")], CATALOG, DAY)
    return read


def hunted(*lines: str, name: str = "aws.csv") -> Imported:
    header = "spot,gpu_memory,gpu_name,gpu_count,price,location,instance_name\n"
    (read,) = read_gpuhunt([SourceFile(name, name, header + "\n".join(lines))], CATALOG, DAY)
    return read


def sky(cloud: str) -> Imported:
    (read,) = read_skypilot([source(DATA / "skypilot" / cloud / "vms.csv")], CATALOG, DAY, cloud)
    return read


def prices(read: Imported) -> dict[tuple[str, str, Term], float]:
    return {key_of(row)[:3]: price_of(row) for row in read.prices}


def gpus(read: Imported) -> dict[str, tuple[str, float]]:
    return {row.instance_type: (row.gpu, row.gpu_count) for row in read.prices}


def test_the_tables_of_names_and_facts_name_known_gpus():
    aliases = read_rows(CATALOG.root / "gpu_aliases.csv", GpuAlias)
    facts = read_rows(CATALOG.root / "instances.csv", InstanceFact)
    assert {row.gpu_id for row in aliases} <= set(CATALOG.gpus)
    assert {row.gpu for row in facts if row.gpu} <= set(CATALOG.gpus)
    assert len({(r.alias, r.used_by, r.provider, r.instance, r.memory_gb) for r in aliases}) == len(aliases)


@pytest.mark.parametrize("name", GPUHUNT)
def test_each_gpuhunt_file_gives_prices(name):
    read = hunt(name)
    assert read.prices
    assert all(row.gpu in CATALOG.gpus for row in read.prices)


@pytest.mark.parametrize("cloud", SKYPILOT)
def test_each_skypilot_file_gives_prices(cloud):
    assert sky(cloud).prices


def test_spot_is_a_row_of_gpuhunt_and_a_column_of_skypilot():
    assert prices(hunt("aws"))["p5.48xlarge", "us-east-1", Term.SPOT] == 31.2
    assert prices(sky("aws"))["p5.48xlarge", "us-east-1", Term.SPOT] == 33.0, "the dearer of two zones"
    assert prices(sky("aws"))["p5.48xlarge", "us-east-1", Term.ON_DEMAND] == 55.04


def test_gcp_zones_become_regions_and_the_dearest_zone_counts():
    found = prices(hunt("gcp"))
    assert found["a3-highgpu-8g", "us-central1", Term.ON_DEMAND] == 88.49
    assert found["a3-highgpu-8g", "us-central1", Term.SPOT] == 50.6
    (spot,) = [r for r in hunt("gcp").prices if key_of(r)[2] is Term.SPOT]
    assert "dearest of 2 zones, the cheapest is 48.1" in spot.notes


def test_skypilots_gcp_machine_and_gpus_are_added():
    found = prices(sky("gcp"))
    joined = found["a3-highgpu-8g", "us-central1", Term.ON_DEMAND]
    assert joined == pytest.approx(9.46006 + 78.4)
    assert joined / 9.46006 > 9, "what a naive import would say"
    assert found["a3-highgpu-8g", "us-central1", Term.SPOT] == pytest.approx(2.88933 + 47.7)
    assert found["a2-highgpu-1g", "us-central1", Term.ON_DEMAND] == pytest.approx(0.73948 + 2.933908)
    assert not [key for key in found if key[0] == "a2-ultragpu-1g"], "its GPUs have no price"


def test_price_zero_is_no_price_and_not_gone():
    read = sky("gcp")
    assert not [key for key in prices(read) if key[0] == "a4-highgpu-8g"]
    assert ("a4-highgpu-8g", "us-central1", Term.ON_DEMAND, False) in read.kept
    assert any(one.what == "a4-highgpu-8g" and "price 0" in one.why for one in read.skipped)


def test_memory_tells_a100_apart_and_instance_types_the_form():
    found = gpus(hunt("aws"))
    assert found["p4d.24xlarge"] == ("A100-40GB-SXM", 8)
    assert found["p4de.24xlarge"] == ("A100-80GB-SXM", 8)
    azure = gpus(hunt("azure"))
    assert azure["Standard_NC40ads_H100_v5"] == ("H100-NVL", 1)
    assert azure["Standard_NC80adis_H100_v5"] == ("H100-NVL", 2), "called H100 in the file"
    assert azure["Standard_ND96isr_H100_v5"] == ("H100-SXM", 8)
    assert azure["Standard_NC24ads_A100_v4"] == ("A100-80GB-PCIe", 1)
    assert gpus(hunt("gcp"))["a2-ultragpu-1g"] == ("A100-80GB-SXM", 1)


def test_an_unspecified_form_is_left_out_by_name_once():
    read = hunted("False,80,H100,8,30,r1,big", "False,80,H100,1,4,r1,small", name="newcloud.csv")
    assert not read.prices
    (one,) = read.skipped
    assert (one.what, one.rows) == ("H100", 2)
    assert "H100-NVL, H100-PCIe, H100-SXM" in one.why
    (other,) = [one for one in hunt("lambdalabs").skipped if one.what == "A100"]
    assert "form or memory not stated" in other.why


def test_unknown_gpus_are_listed_once_each():
    assert [one.what for one in hunt("aws").skipped] == ["Gaudi"]
    assert {one.what for one in sky("runpod").skipped} == {"RTX4000-Ada"}


def test_l40_is_not_l40s():
    read = hunted("False,48,L40,1,1,r1,x")
    assert gpus(read)["x"] == ("L40", 1)


def test_parts_of_a_gpu_stay_parts():
    assert gpus(hunt("azure"))["Standard_NV6ads_A10_v5"] == ("A10", 0.166667)
    assert gpus(hunt("gcp"))["g4-standard-6"] == ("RTXPRO6000-Server", 0.125)
    assert gpus(hunt("aws"))["g6f.large"] == ("L4", 0.125)


def test_what_is_not_sold_on_demand_says_so():
    by_type = {row.instance_type: row for row in hunt("gcp").prices}
    assert by_type["a3-highgpu-1g"].purchasable is Purchasable.SPOT
    (block,) = [row for row in hunt("aws").prices if row.instance_type == "p5e.48xlarge"]
    assert key_of(block)[2] is Term.CAPACITY_BLOCK
    p5 = next(row for row in hunt("aws").prices if row.instance_type == "p5.48xlarge")
    assert (p5.min_billing_s, p5.quota_family) == (60, "L-417A185B (P instances)")


def test_gpu_info_and_wrong_memory_are_not_believed():
    assert gpus(sky("nebius"))["gpu-h100-sxm_8gpu-128vcpu-1600gb"] == ("H100-SXM", 8), "GpuInfo says 200 GiB"
    assert "gpu-h200-sxm_1gpu-16vcpu-200gb" in gpus(sky("nebius")), "GpuInfo holds JSON null"
    read = hunted("False,288,MI325X,8,20,r1,m")
    assert gpus(read)["m"] == ("MI325X", 8)
    assert read.notes == ("MI325X: the file states 288 GB, gpus.csv 256 GB, which holds",)


def test_runpod_and_lambda_names():
    assert gpus(sky("runpod"))["1x_A100-80GB_SECURE"] == ("A100-80GB-PCIe", 1)
    found = gpus(sky("lambda"))
    assert found["gpu_4x_a6000"] == ("RTXA6000", 4)
    assert found["gpu_8x_v100"] == ("V100-16GB", 8)
    assert any("every type is listed in all 3 regions" in note for note in sky("lambda").notes)


def test_two_prices_for_one_place_are_neither():
    read = hunted("False,24,L4,1,1,r1,x", "False,24,L4,1,2,r1,x", "False,24,L4,1,1,r1,y", "False,24,L4,1,1.0,r1,y")
    assert list(gpus(read)) == ["y"]
    assert ("x", "r1", Term.ON_DEMAND, False) in read.kept
    assert "1 and 2 USD/h for the same place" in read.skipped[0].why


@pytest.mark.parametrize("price", ["0", "-1", "nan", "inf", "1_0", "abc", ""])
def test_what_is_no_price_is_left_out(price):
    read = hunted(f"False,24,L4,1,{price},r1,x")
    assert not read.prices
    assert len(read.skipped) == 1


def test_numbers_in_words():
    assert number("8") == number("8.0") == 8
    assert usable_price("") is None
    with pytest.raises(ValueError, match="not finite"):
        number("1e999")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("a,b\n1,2\n", "column is missing"),
        ("instance_name,location,price,gpu_count,gpu_name,gpu_memory,spot\n", "holds no row"),
        ("instance_name,location,price,gpu_count,gpu_name,gpu_memory,spot\np5,r,1\n", "3 cells where the header has 7"),
        ("instance_name,location,price,gpu_count,gpu_name,gpu_memory,spot,spot\nx,r,1,1,L4,24,True,True", "twice"),
        ("instance_name,location,price,gpu_count,gpu_name,gpu_memory,spot\n" + "x" * 200_000, "no CSV"),
    ],
)
def test_a_broken_file_is_a_problem(text, said):
    with pytest.raises(InputError, match=said):
        read_gpuhunt([SourceFile("aws.csv", "aws.csv", text)], CATALOG, DAY)


def test_the_version_folder_dates_the_prices():
    assert version_day("https://x.example/v3/aws/20261120-3/catalog.zip!aws.csv") == dt.date(2026, 11, 20)
    assert version_day("v3/aws/20261399-3/x") is None


def test_a_cloud_that_bills_in_euro_is_refused():
    with pytest.raises(InputError, match="bills in EUR"):
        read_skypilot([], CATALOG, DAY, "scaleway")


# --- private lists ---


def test_discounts_and_a_currency():
    read = read_private(source(DATA / "private.csv"), CATALOG, DAY, [Rate("EUR", 1.08, dt.date(2026, 11, 28))])
    aws, nebius = read
    assert prices(aws)["p5.48xlarge", "us-east-1", Term.ON_DEMAND] == pytest.approx(0.88 * 55.04)
    assert prices(aws)["p5.48xlarge", "us-east-1", Term.COMMIT_3Y] == pytest.approx(0.95 * 20.695054)
    (row,) = nebius.prices
    assert price_of(row) == pytest.approx(27.0)
    assert (row.currency, row.price_kind) == ("EUR", PriceKind.CONTRACTED)
    assert "25 EUR at 1.08 USD of 2026-11-28" in row.notes


def test_a_discount_on_all_that_a_provider_lists():
    text = "provider,instance_type,discount_on_demand,source_url\nnebius,*,0.1,contract\n"
    (read,) = read_private(SourceFile("p.csv", "p.csv", text), CATALOG, DAY)
    listed = {o.instance_type: o.usd_per_h for o in CATALOG.offers if o.provider == "nebius"}
    assert {row.instance_type: price_of(row) for row in read.prices} == pytest.approx(
        {name: 0.9 * price for name, price in listed.items()}
    )


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ("aws,p5.48xlarge,us-east-1,,-5,,,s", "per_h_on_demand"),
        ("aws,p5.48xlarge,us-east-1,,abc,,,s", "per_h_on_demand"),
        ("aws,p5.48xlarge,us-east-1,,50,,EUR,s", "currency"),
        ("aws,p5.48xlarge,us-east-1,,,1.2,,s", "discount_on_demand"),
        ("aws,p5.48xlarge,nowhere,,,0.2,,s", "discount_on_demand"),
        ("aws,p5.48xlarge,us-east-1,H1000,50,,,s", "gpu"),
        ("aws,p5.48xlarge,us-east-1,,50,,,", "source_url"),
        ("aws,new.type,us-east-1,,50,,,s", "gpu"),
        ("aws,p5.48xlarge,us-east-1,,,,,s", "per_h_on_demand"),
    ],
)
def test_a_wrong_cell_is_named_by_row_and_field(row, field):
    header = "provider,instance_type,region,gpu,per_h_on_demand,discount_on_demand,currency,source_url\n"
    with pytest.raises(InputError) as caught:
        read_private(SourceFile("p.csv", "p.csv", header + row + "\n"), CATALOG, DAY)
    assert (caught.value.problems[0].row, caught.value.problems[0].field) == ("2", field)


# --- bills ---


def test_effective_rates_of_a_bill():
    bill = read_focus(source(DATA / "focus.csv"), CATALOG)
    by_use = {(r.instance_type, r.commitment): r for r in bill.rates}
    plain, committed = by_use["p5.48xlarge", ""], by_use["p5.48xlarge", "Savings Plan"]
    assert plain.hours == pytest.approx(200), "100 hours and 360,000 seconds"
    rates = [plain.rate(cost) for cost in ("ListCost", "ContractedCost", "EffectiveCost")]
    assert rates == pytest.approx([55.04, 49.536, 49.536])
    assert committed.rate("EffectiveCost") == pytest.approx(20.695054), "hours that were not used are left out"
    assert committed.term is Term.COMMIT_3Y
    assert by_use["g6.xlarge", ""].hours == 10, "named by the charge's description"
    (read,) = bill.imported
    assert prices(read)["p5.48xlarge", "us-east-1", Term.COMMIT_3Y] == pytest.approx(20.695054)
    assert {one.why for one in read.skipped} >= {"no use", "correction of an earlier bill"}


def test_a_bill_in_another_currency_needs_a_rate():
    file = source(DATA / "focus.csv")
    euro = SourceFile(file.name, file.where, file.text.replace(",USD,", ",EUR,"))
    with pytest.raises(InputError, match="no rate of EUR"):
        read_focus(euro, CATALOG)
    bill = read_focus(euro, CATALOG, [Rate("EUR", 2.0, DAY)])
    assert max(r.rate("ListCost") for r in bill.rates) == pytest.approx(2 * 55.04)
