"""What an import does to the catalogue: difference, history, files."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path

import pytest

from planner.catalog.csv_table import read_rows
from planner.catalog.imports.apply import changes, target_catalog, text_of, write_changes
from planner.catalog.imports.diff import Change
from planner.catalog.imports.gpuhunt import read_gpuhunt
from planner.catalog.imports.history import grouped
from planner.catalog.imports.private_csv import read_private
from planner.catalog.imports.shared import SourceFile, single_prices
from planner.catalog.imports.skypilot import read_skypilot
from planner.catalog.load import load_catalog
from planner.catalog.offer import Purchasable, Term
from planner.catalog.offers import OfferRow
from planner.errors import InputError
from planner.optimise.supply.offers import allowed_offers
from tests.optimise.supply_world import request

DATA = Path(__file__).parents[2] / "data" / "imports"
CATALOG = load_catalog()
HEADER = "instance_name,location,price,cpu,memory,gpu_count,gpu_name,gpu_memory,spot\n"
NEO = "neo/node/r1/on_demand/contracted"
DAY1, DAY2 = dt.date(2026, 11, 28), dt.date(2026, 11, 30)


def hunted(folder: Path, day: dt.date, *lines: str, provider: str = "newcloud", accept: bool = False):
    catalog = target_catalog(folder)
    text = HEADER + "\n".join(lines)
    read = read_gpuhunt([SourceFile(f"{provider}.csv", "f", text)], catalog, day)
    found = changes(read, catalog, accept=accept)
    write_changes(found, folder)
    return found[0].diff


L4, L40S, T4 = "l4,r1,{},8,32,1,L4,24,False", "l40s,r1,{},8,32,1,L40S,48,False", "t4,r1,{},8,32,1,T4,16,False"


@pytest.mark.parametrize("path", sorted((CATALOG.root / "offers").glob("*.csv")), ids=lambda p: p.stem)
def test_rows_survive_being_taken_apart_and_written(path, tmp_path):
    rows = read_rows(path, OfferRow)
    again = grouped(single for row in rows for single in single_prices(row))
    (tmp_path / path.name).write_text(text_of(again), encoding="utf-8")
    back = read_rows(tmp_path / path.name, OfferRow)
    key = sorted(single.model_dump_json() for row in rows for single in single_prices(row))
    assert key == sorted(single.model_dump_json() for row in back for single in single_prices(row))


def test_changed_and_gone_prices_keep_their_history(tmp_path):
    folder = tmp_path / "own"
    hunted(folder, DAY1, L4.format(1), L40S.format(2), T4.format(0.5))
    diff = hunted(folder, DAY2, L4.format(1.1), L40S.format(2))
    assert {(line.change, line.offer_id.split("/")[1]) for line in diff.lines} == {
        (Change.DEARER, "l4"), (Change.GONE, "t4"),
    }  # fmt: skip
    (dearer,) = [line for line in diff.lines if line.change is Change.DEARER]
    assert dearer.percent == pytest.approx(10)
    assert diff.unchanged == 1
    now, then = load_catalog(folder, on=DAY2), load_catalog(folder, on=dt.date(2026, 11, 29))
    price = {o.id: o.usd_per_h for o in now.offers if o.provider == "newcloud"}
    assert price == {"newcloud/l4/r1/on_demand": 1.1, "newcloud/l40s/r1/on_demand": 2}
    assert {o.usd_per_h for o in then.offers if o.provider == "newcloud"} == {1, 2, 0.5}
    assert now.offer("newcloud/t4/r1/on_demand").effective_to == DAY2, "a contract for it can still be named"
    assert load_catalog(folder).offers == now.offers


def test_a_second_import_of_the_same_file_changes_no_byte(tmp_path):
    folder = tmp_path / "own"
    lines = (L4.format(1), L40S.format(2), "l4,r1,0.4,8,32,1,L4,24,True")
    hunted(folder, DAY1, *lines)
    path = folder / "offers" / "newcloud.csv"
    before, stamp = path.read_bytes(), path.stat().st_mtime_ns
    diff = hunted(folder, DAY1, *lines)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == (before, stamp)
    assert (diff.unchanged, diff.lines) == (3, ())


def test_an_older_file_changes_nothing(tmp_path):
    folder = tmp_path / "own"
    hunted(folder, DAY2, L4.format(1), L40S.format(2))
    before = (folder / "offers" / "newcloud.csv").read_bytes()
    diff = hunted(folder, DAY1, L4.format(3))
    assert (diff.older, diff.lines) == (1, ())
    assert (folder / "offers" / "newcloud.csv").read_bytes() == before


def test_a_correction_on_the_same_day_leaves_no_empty_interval(tmp_path):
    folder = tmp_path / "own"
    hunted(folder, DAY1, L4.format(1))
    hunted(folder, DAY1, L4.format(1.2))
    (row,) = read_rows(folder / "offers" / "newcloud.csv", OfferRow)
    assert (row.usd_per_h_on_demand, row.effective_from, row.effective_to) == (1.2, DAY1, None)


def test_commitments_of_the_shipped_rows_outlive_an_import(tmp_path):
    folder = tmp_path / "own"
    text = (DATA / "gpuhunt" / "aws.csv").read_text()
    catalog = target_catalog(folder)
    found = changes(read_gpuhunt([SourceFile("aws.csv", "f", text)], catalog, DAY2), catalog, accept=True)
    write_changes(found, folder)
    after = load_catalog(folder)
    assert after.offer("aws/p5.48xlarge/us-east-1/commit_3y").usd_per_h == 20.695054
    assert after.offer("aws/p5.48xlarge/us-east-1/on_demand").as_of == DAY2
    assert "aws/g5.xlarge/us-east-1/on_demand" not in {o.id for o in after.offers}
    assert after.offer("aws/g5.xlarge/us-east-1/on_demand").effective_to == DAY2
    assert {o.id for o in after.offers if o.provider != "aws"} == {o.id for o in CATALOG.offers if o.provider != "aws"}


def test_a_minimum_bid_is_not_taken_for_a_price_unless_accepted(tmp_path):
    path = DATA / "skypilot" / "mithril" / "vms.csv"
    read = read_skypilot([SourceFile("vms.csv", "f", path.read_text())], CATALOG, DAY2, "mithril")
    (held,) = changes(read, CATALOG)
    assert {line.offer_id for line in held.diff.lines if line.suspicious} == {
        "mithril/h100-80gb.sxm.8x/us-central2-a/on_demand", "mithril/h100-80gb.sxm.8x/us-central2-a/spot",
    }  # fmt: skip
    assert not [row for row in held.rows if row.gpu == "H100-SXM"]
    (taken,) = changes(read, CATALOG, accept=True)
    assert [row for row in taken.rows if row.gpu == "H100-SXM"]


def test_a_file_that_may_be_cut_off_retires_nothing(tmp_path):
    folder = tmp_path / "own"
    hunted(folder, DAY1, L4.format(1), L40S.format(2), T4.format(0.5))
    diff = hunted(folder, DAY2, L4.format(1))
    assert "may be cut off" in diff.notes[-1]
    assert len([o for o in load_catalog(folder).offers if o.provider == "newcloud"]) == 3


def test_an_interrupted_import_leaves_each_file_whole(tmp_path, monkeypatch):
    folder = tmp_path / "own"
    files = [SourceFile(f"{name}.csv", "f", HEADER + L4.format(1)) for name in ("one", "two")]
    catalog = target_catalog(folder)
    found = changes(read_gpuhunt(files, catalog, DAY1), catalog)
    calls = []
    rename = os.replace

    def failing(new, path):
        calls.append(path)
        if len(calls) > 1:
            raise OSError(28, "No space left on device")
        rename(new, path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", failing)
        with pytest.raises(InputError, match=r"written before: one\.csv"):
            write_changes(found, folder)
    assert sorted(path.name for path in (folder / "offers").iterdir()) == ["one.csv"]
    assert write_changes(found, folder) == (folder / "offers" / "two.csv",)


def test_an_offer_sold_by_reservation_is_listed_and_not_rented(tmp_path):
    folder = tmp_path / "own"
    hunted(folder, DAY1, "a4-highgpu-8g,us-central1-b,60,224,3968,8,B200,180,False", provider="gcp")
    offer = load_catalog(folder).offer("gcp/a4-highgpu-8g/us-central1/on_demand")
    assert offer.term is Term.ON_DEMAND
    assert not offer.can_be_rented
    free = offer.model_copy(update={"id": "free", "purchasable": Purchasable.ON_DEMAND})
    usable = allowed_offers((offer, free), request(offers={"providers": ["gcp"]}), DAY2, "q.toml").usable
    assert [one.id for one in usable] == ["free"]


def test_an_announced_price_waits_for_its_day(tmp_path):
    folder = tmp_path / "own"
    header = "provider,instance_type,region,gpu,gpu_count,per_h_on_demand,source_url,effective_from\n"
    for line in ("neo,node,r1,L4,8,5,contract,", "neo,node,r1,L4,8,6,contract,2027-01-01"):
        catalog = target_catalog(folder)
        read = read_private(SourceFile("p.csv", "p.csv", header + line), catalog, DAY1)
        write_changes(changes(read, catalog), folder)
    prices = {day: load_catalog(folder, on=day).offer(NEO).usd_per_h for day in (DAY2, dt.date(2027, 1, 1))}
    assert list(prices.values()) == [5, 6]
