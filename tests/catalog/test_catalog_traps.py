"""Bad catalogue files: each trap is reported with file, row and field, and all at once."""

from __future__ import annotations

import datetime as dt
import shutil
from pathlib import Path

import pytest

from planner.catalog.check import check_catalog
from planner.catalog.load import default_root, load_catalog
from planner.errors import InputError, Problem

HEADER = (
    "provider,instance_type,region,gpu,gpu_count,vcpus,memory_gib,usd_per_h_on_demand,usd_per_h_spot,"
    "usd_per_h_1y,usd_per_h_3y,price_kind,as_of,source_url,notes"
)
GOOD = "acme,box-8,moon-1,H100-SXM,8,,,16,,,,list,2026-11-01,https://acme.example/prices,"


@pytest.fixture
def root(tmp_path) -> Path:
    """A catalogue with the real GPUs, one model and one offer."""
    source = default_root()
    for name in ("gpus.csv", "providers.csv"):
        shutil.copyfile(source / name, tmp_path / name)
    models = tmp_path / "models"
    models.mkdir()
    model = "meta-llama--Llama-3.1-8B-Instruct.json"
    shutil.copyfile(source / "models" / model, models / model)
    shutil.copyfile(source / "models" / "class_defaults.json", models / "class_defaults.json")
    index = "file,hf_id,source,commit,as_of,notes\n"
    row = f"{model},meta-llama/Llama-3.1-8B-Instruct,https://example.org,,2026-11-01,\n"
    (models / "sources.csv").write_text(index + row, encoding="utf-8")
    shutil.copytree(source / "engines", tmp_path / "engines")
    (tmp_path / "offers").mkdir()
    write_offers(tmp_path, GOOD)
    return tmp_path


def write_offers(root: Path, *rows: str, header: str = HEADER) -> None:
    (root / "offers" / "acme.csv").write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")


def problems_of(root: Path) -> tuple[Problem, ...]:
    with pytest.raises(InputError) as caught:
        load_catalog(root)
    return caught.value.problems


def test_the_small_catalogue_is_sound(root):
    catalog = load_catalog(root)
    assert [offer.id for offer in catalog.offers] == ["acme/box-8/moon-1/on_demand"]
    assert check_catalog(dt.date(2026, 11, 29), root).models_read == ("meta-llama/Llama-3.1-8B-Instruct",)


@pytest.mark.parametrize(
    ("old", "new", "field", "text"),
    [
        (",16,", ",0,", "usd_per_h_on_demand", "greater than 0"),
        (",16,", ",-3,", "usd_per_h_on_demand", "greater than 0"),
        (",16,", ",NaN,", "usd_per_h_on_demand", "finite"),
        (",16,", ",inf,", "usd_per_h_on_demand", "finite"),
        (",16,", ",sixteen,", "usd_per_h_on_demand", "sixteen"),
        (",16,", ",,", "usd_per_h_on_demand", "no price"),
        ("H100-SXM", "H100", "gpu", "unknown GPU 'H100'"),
        ("H100-SXM,8", "H100-SXM,0", "gpu_count", "greater than 0"),
        ("H100-SXM,8", "H100-SXM,1.5", "gpu_count", "1.5 GPUs"),
        ("2026-11-01", "2026-13-01", "as_of", "2026-13-01"),
        ("2026-11-01", "", "as_of", "Field required"),
        ("https://acme.example/prices", "", "source_url", "Field required"),
        ("acme,box", "amce,box", "provider", "'amce' in the file of 'acme'"),
        (",list,", ",rumour,", "price_kind", "rumour"),
    ],
)
def test_one_bad_cell(root, old, new, field, text):
    assert old in GOOD
    write_offers(root, GOOD.replace(old, new, 1))
    (problem,) = problems_of(root)
    assert (problem.row, problem.field) == ("2", field)
    assert problem.where.endswith("acme.csv")
    assert text in str(problem)


def test_a_generic_name_is_answered_with_the_form_factors(root):
    write_offers(root, GOOD.replace("H100-SXM", "H100"))
    (problem,) = problems_of(root)
    assert {"H100-SXM", "H100-PCIe", "H100-NVL"} <= set(
        problem.fix.replace(".", ",").replace(" ", "").split(":")[1].split(",")
    )


def test_a_duplicate_is_named(root):
    write_offers(root, GOOD, GOOD.replace(",16,", ",17,"))
    (problem,) = problems_of(root)
    assert problem.row == "3"
    assert "duplicate offer acme/box-8/moon-1/on_demand" in problem.message


def test_a_misspelt_column_is_recognised(root):
    write_offers(root, GOOD, header=HEADER.replace("usd_per_h_spot", "usd_per_h_sopt"))
    (problem,) = problems_of(root)
    assert (problem.row, problem.field) == ("1", "usd_per_h_sopt")
    assert "usd_per_h_spot" in problem.fix


def test_a_missing_column_and_a_doubled_one_are_named(root):
    write_offers(root, GOOD, header=HEADER.replace("source_url", "notes"))
    found = {(problem.field, problem.message) for problem in problems_of(root)}
    assert ("source_url", "column is missing") in found
    assert ("notes", "column occurs twice") in found


def test_a_row_of_the_wrong_length_is_named(root):
    write_offers(root, GOOD + ",extra")
    (problem,) = problems_of(root)
    assert "16 cells where the header has 15" in problem.message


def test_all_problems_come_at_once(root):
    write_offers(root, GOOD.replace(",16,", ",0,"), GOOD.replace("H100-SXM", "H900"), GOOD.replace("2026-11-01", "?"))
    gpus = root / "gpus.csv"
    gpus.write_text(gpus.read_text(encoding="utf-8").replace(",3350,", ",NaN,", 1), encoding="utf-8")
    found = {(Path(problem.where).name, problem.row, problem.field) for problem in problems_of(root)}
    assert {
        ("gpus.csv", "17", "memory_bandwidth_gb_s"),
        ("acme.csv", "2", "usd_per_h_on_demand"),
        ("acme.csv", "3", "gpu"),
        ("acme.csv", "4", "as_of"),
    } <= found


def test_a_gpu_that_marks_an_unknown_column_as_unverified(root):
    gpus = root / "gpus.csv"
    text = gpus.read_text(encoding="utf-8")
    assert text.count("fp8_tflops;int8_tops\n") >= 1
    gpus.write_text(text.replace("fp8_tflops;int8_tops\n", "fp8_tflops;int9_tops\n", 1), encoding="utf-8")
    (problem,) = problems_of(root)
    assert problem.field == "unverified"
    assert "int9_tops" in problem.message


def test_model_files_and_index_must_agree(root):
    (root / "models" / "stray--Model.json").write_text("{}", encoding="utf-8")
    (root / "models" / "meta-llama--Llama-3.1-8B-Instruct.json").unlink()
    messages = {Path(problem.where).name: problem.message for problem in problems_of(root)}
    assert messages["stray--Model.json"] == "file without a row in sources.csv"
    assert "is not there" in messages["sources.csv"]


def test_a_seller_of_gpus_needs_a_limit(root):
    path = root / "providers.csv"
    path.write_text(
        "provider,gpu,sold_as,max_gpus_per_instance,source_url,as_of,note\nacme,,gpu,,https://acme.example,2026-11-01,\n",
        encoding="utf-8",
    )
    (problem,) = problems_of(root)
    assert problem.field == "max_gpus_per_instance"


def test_a_missing_table_is_a_problem_not_a_crash(root):
    (root / "gpus.csv").unlink()
    assert any(Path(problem.where).name == "gpus.csv" for problem in problems_of(root))


def test_check_refuses_dates_after_its_day(root):
    write_offers(root, GOOD, GOOD.replace("box-8", "next-8").replace("2026-11-01", "2026-12-01"))
    check_catalog(dt.date(2026, 12, 1), root)
    with pytest.raises(InputError) as caught:
        check_catalog(dt.date(2026, 11, 30), root)
    (problem,) = caught.value.problems
    assert problem.where.endswith("acme.csv")
    assert "dated after 2026-11-30: acme/next-8/moon-1/on_demand (2026-12-01)" in problem.message


def test_check_counts_what_it_does_not_name(root):
    with pytest.raises(InputError, match=r"gpus\.csv, field as_of: dated after 2026-11-28: .* and \d+ more"):
        check_catalog(dt.date(2026, 11, 28), root)


def test_check_counts_stale_prices(root):
    write_offers(root, GOOD, GOOD.replace("box-8", "old-8").replace("2026-11-01", "2025-10-01"))
    report = check_catalog(dt.date(2026, 11, 29), root)
    assert report.stale_offers == ("acme/old-8/moon-1/on_demand",)


def test_check_of_the_committed_catalogue():
    report = check_catalog(dt.date(2026, 11, 29))
    assert report.gpus >= 25
    assert len(report.models_read) >= 60
    assert len(report.offered_gpus) >= 12
    assert len(report.offers_per_provider) >= 5
    assert report.engines >= 2
    assert all(report.models_refused.values())
    assert sum(report.offers_per_provider.values()) == report.offers == sum(report.offers_per_kind.values())
