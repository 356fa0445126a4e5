"""Ages of what the catalogue says: every dated entry with its place, and `planner catalog check --max-age`."""

from __future__ import annotations

import csv
import datetime as dt
import json
import shutil
import tomllib
from pathlib import Path

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from planner.catalog.load import default_root, load_catalog
from planner.catalog.staleness import Kind, dated_entries, older_than
from planner.cli.catalog import register
from planner.cli.catalog_check import age_in_days
from planner.errors import InputError
from tests.cli.test_plan import run as run_planner

NOW = dt.date(2026, 12, 1)
CATALOG = load_catalog(on=NOW)
ENTRIES = dated_entries(CATALOG, NOW)
APP = typer.Typer()
register(APP)
APP.callback()(lambda: None)
OFFERS = "provider,instance_type,region,gpu,gpu_count,usd_per_h_on_demand,as_of,source_url,effective_from,effective_to"


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """Offers of a user, laid over the shipped catalogue."""
    (tmp_path / "offers").mkdir()
    rows = (
        "acme,now-8,moon,H100-SXM,8,16,2026-06-01,https://acme.example,2026-06-01,",
        "acme,was-8,moon,H100-SXM,8,16,2020-01-01,https://acme.example,,2026-06-01",
        "acme,will-8,moon,H100-SXM,8,16,2026-06-01,https://acme.example,2027-06-01,",
    )
    (tmp_path / "offers" / "acme.csv").write_text("\n".join((OFFERS, *rows)) + "\n")
    return tmp_path


def check(*arguments: str, env: dict[str, str] | None = None) -> tuple[int, str]:
    result = CliRunner().invoke(APP, ["catalog", "check", *arguments], env=env)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def test_every_kind_has_entries_with_place_and_source():
    assert {entry.kind for entry in ENTRIES} >= {Kind.PRICE, Kind.GPU, Kind.ENGINE, Kind.MODEL, Kind.SPEED}
    assert all(entry.what and entry.source for entry in ENTRIES)
    places = [(entry.file, entry.row) for entry in ENTRIES]
    assert len(set(places)) == len(places)


@pytest.mark.parametrize("file", ["gpus.csv", "models/sources.csv", "engines/releases.csv", "offers/verda.csv"])
def test_rows_are_those_of_the_file(file):
    with (CATALOG.root / file).open(encoding="utf-8", newline="") as stream:
        rows = list(csv.reader(stream))
    at = rows[0].index("as_of")
    found = [entry for entry in ENTRIES if entry.file == file]
    assert len(found) == sum(1 for row in rows[1:] if row)
    assert all(str(entry.as_of) == rows[int(entry.row) - 1][at] for entry in found)


def test_facts_are_those_of_the_engine_files():
    for name in ("vllm", "sglang"):
        facts = tomllib.loads((CATALOG.root / "engines" / f"{name}.toml").read_text())["fact"]
        found = [entry for entry in ENTRIES if entry.file == f"engines/{name}.toml"]
        assert [entry.as_of for entry in found] == [fact["as_of"] for fact in facts]
        assert found[0].row == f"fact {facts[0]['name']} since {facts[0]['since']}"


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 800))
def test_old_entries_are_exactly_those_beyond_the_limit(days):
    old = older_than(CATALOG, NOW, days)
    assert {(e.file, e.row) for e in old} == {(e.file, e.row) for e in ENTRIES if (NOW - e.as_of).days > days}
    assert [entry.as_of for entry in old] == sorted(entry.as_of for entry in old)


def test_prices_that_do_not_hold_are_not_called_old(own):
    catalog = load_catalog(own, on=NOW)
    assert [entry.what for entry in dated_entries(catalog, NOW) if entry.file == "offers/acme.csv"] == ["now-8 moon"]
    then = dt.date(2026, 5, 1)
    assert [entry.what for entry in dated_entries(catalog, then) if entry.file == "offers/acme.csv"] == ["was-8 moon"]


def test_a_date_that_is_none_is_a_problem_with_its_place(tmp_path):
    root = tmp_path / "catalogue"
    shutil.copytree(default_root(), root, ignore=shutil.ignore_patterns("example", "points", "*.gz"))
    (root / "notes.csv").write_text("name,as_of\na,2026-01-01\nb,yesterday\n")
    (root / "speed" / "x.toml").write_text('as_of = "soon"\n')
    (root / "engines" / "y.csv").write_bytes(b"as_of\n\xff\n")
    with pytest.raises(InputError) as caught:
        dated_entries(load_catalog(root), NOW)
    places = {(Path(p.where).name, p.row, p.field) for p in caught.value.problems}
    assert places == {("notes.csv", "3", "as_of"), ("x.toml", "", "as_of"), ("y.csv", "", "")}


def test_nothing_old_ends_with_zero():
    code, text = check("--now", str(NOW), "--max-age", "9999d")
    assert code == 0
    assert text.splitlines()[-1] == f"nothing is older than 9999 days on {NOW}"


def test_what_is_old_is_listed_by_kind_and_ends_with_two(own):
    code, text = check("--now", str(NOW), "--max-age", "182d", env={"PLANNER_CATALOGS": str(own)})
    assert code == 2
    lines = text.splitlines()
    old = older_than(load_catalog(own, on=NOW), NOW, 182)
    assert f"older than 182 days on {NOW}: {len(old):,}" in lines
    assert f"  price: {len(old):,}, the oldest is of 2025-03-06" in lines
    assert sum(line.startswith("    2025-03-06 (635 days) offers/gcp.csv, row ") for line in lines) > 0
    assert lines[-1] == f"    and {len(old) - 20:,} more (--json lists all)"


def test_json_lists_all_with_their_ages(own):
    code, text = check("--as-of", str(NOW), "--max-age", "182", "--json", env={"PLANNER_CATALOGS": str(own)})
    data = json.loads(text)
    assert code == 2
    assert (data["as_of"], data["max_age_days"]) == (str(NOW), 182)
    (mine,) = [entry for entry in data["older"] if entry["file"] == "offers/acme.csv"]
    assert mine == {
        "kind": "price", "file": "offers/acme.csv", "row": "2", "what": "now-8 moon", "as_of": "2026-06-01",
        "source": "https://acme.example", "age_days": 183,
    }  # fmt: skip
    assert len(data["models_read"]) >= 275
    code, text = check("--as-of", str(NOW), "--json")
    assert code == 0
    assert (json.loads(text)["older"], json.loads(text)["max_age_days"]) == ([], None)


@pytest.mark.parametrize(("text", "days"), [("120d", 120), ("0", 0), (" 7d ", 7), ("36500", 36500)])
def test_ages_in_days(text, days):
    assert age_in_days(text) == days


@pytest.mark.parametrize("text", ["-1d", "1.5d", "12w", "d", "99999999999999d", "36501", "١٢d", "120 d"])
def test_ages_that_are_none(text):
    with pytest.raises(InputError, match="is no number of days"):
        age_in_days(text)


def test_bad_options_end_with_two_and_no_traceback(tmp_path):
    for option in ("--max-age=soon", "--now=yesterday"):
        ended = run_planner("catalog", "check", option, cwd=tmp_path)
        assert ended.returncode == 2
        assert "Traceback" not in ended.stderr
