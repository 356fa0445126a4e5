"""`planner plan` with other futures: files by format, what is printed, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from planner.cli import plan_files
from planner.cli.plan_files import FILES, formats_of
from planner.errors import InputError, PlannerError
from planner.plan import plan_to_json
from planner.study import read_study
from tests.futures.world import NOW, QUOTA, request

TABLES = (
    QUOTA.format(gpus=60)
    + """
[[scenario]]
name = "[b]Low"
growth = 0.5
[[scenario]]
name = "None"
quotas = 0
[[sensitivity]]
driver = "price"
name = "Prices"
low = 0.5
high = 2
"""
)


@pytest.fixture
def path(tmp_path) -> Path:
    return request(tmp_path, TABLES, targets="{ tpot_ms = 40 }")


@pytest.fixture
def plan(planner, path, tmp_path):
    def plan(*options: str) -> tuple[int, str, str]:
        return planner("plan", str(path), "-o", str(tmp_path / "out"), "--now", NOW.isoformat(), *options)

    return plan


def files(folder: Path) -> list[str]:
    return sorted(file.name for file in (folder / "out").iterdir())


def test_json_alone_and_what_is_printed(plan, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "plan.xlsx").write_text("another one's")
    code, out, err = plan("--format", "json")
    assert (code, err) == (0, "")  # silent in pipes
    assert files(tmp_path) == ["plan.json", "plan.xlsx", "routing.json", "study.json"]
    assert (tmp_path / "out" / "plan.xlsx").read_text() == "another one's"
    study = read_study(tmp_path / "out" / "study.json")
    assert (tmp_path / "out" / "plan.json").read_text() == plan_to_json(study.plan)
    base = study.plan.totals.usd
    lines = [" ".join(line.split()) for line in out.splitlines()]
    low = study.others[0].plan.totals
    assert f"Base the request as it stands {study.plan.totals.gpus} {base:,.0f}" in lines
    assert f"[b]Low arrivals x 0.5 {low.gpus} {low.usd:,.0f} {low.usd - base:+,.0f}" in lines
    assert "None quotas x 0 none none" in lines
    assert any(line.startswith("scenario None has no plan: No fleet satisfies the request") for line in lines)
    half, double = f"{base * 0.5:,.0f}", f"{base * 2:,.0f}"
    assert f"Prices prices x 0.5 x 2 {half} {double} {base * 1.5:,.0f}" in lines
    assert sum("least regret: take this one" in line for line in lines) == 1
    assert lines[-1].startswith("written: ")
    assert "plan.xlsx" not in lines[-1]


def test_base_only(plan, tmp_path):
    code, out, _ = plan("--format", "json", "--base-only", "--json")
    assert code == 0
    study = read_study(tmp_path / "out" / "study.json")
    assert (study.others, study.sensitivities, study.regret) == ((), (), None)
    assert json.loads(out) == json.loads((tmp_path / "out" / "plan.json").read_text())


def test_processes_change_nothing(plan, tmp_path):
    plan("--format", "json,csv")
    first = [(tmp_path / "out" / name).read_bytes() for name in files(tmp_path)]
    plan("--format", "csv, JSON", "--processes", "2")
    assert [(tmp_path / "out" / name).read_bytes() for name in files(tmp_path)] == first
    assert files(tmp_path) == ["focus.csv", "plan.json", "routing.csv", "routing.json", "schedule.csv", "study.json"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--format", "pdf,json,doc"), ("'pdf' is no format. Known: xlsx, html, json, csv", "'doc' is no format")),
        (("--format", ","), ("no format is named. Known: xlsx, html, json, csv",)),
        (("--processes", "0"), ("--processes",)),
    ],
)
def test_what_is_refused_before_any_work(plan, tmp_path, options, words):
    code, out, err = plan(*options)
    assert (code, out) == (2, "")
    for word in words:
        assert word in err
    assert not (tmp_path / "out").exists()


def test_a_future_that_cannot_be_meant_is_refused(plan, path, tmp_path):
    path.write_text(path.read_text().replace("growth = 0.5", 'growth = 0.5\nmodels = ["chta"]'))
    code, _, err = plan("--format", "json")
    assert code == 2
    assert "scenario '[b]Low', field models: 'chta' is not a model of the request" in err
    assert not (tmp_path / "out").exists()


def test_all_files_appear_together_or_none(plan, tmp_path, monkeypatch):
    def fails(*_: object) -> None:
        raise PlannerError("the page cannot be drawn")

    monkeypatch.setitem(plan_files.FORMATS, "html", {"plan.html": fails})
    code, _, err = plan("--base-only")
    assert code == 1
    assert "the page cannot be drawn" in err
    assert files(tmp_path) == []


def test_formats_in_their_order():
    assert formats_of("csv, XLSX,csv") == ("xlsx", "csv")
    with pytest.raises(InputError, match="no format is named"):
        formats_of(" ")
    assert len(FILES) == len(set(FILES))


def test_last_quarter_is_a_line(plan, path, tmp_path):
    plan("--format", "json", "--base-only")
    study = read_study(tmp_path / "out" / "study.json")
    (tmp_path / "last.json").write_text(
        plan_to_json(study.plan.model_copy(update={"horizon_end": study.plan.horizon_start}))
    )
    text = path.read_text()
    path.write_text(text.replace("[offers]", '[last_quarter]\nplan = "last.json"\n\n[offers]', 1))
    _, out, _ = plan("--format", "json", "--base-only")
    usd = f"{study.plan.totals.usd:,.0f} USD"
    assert f"last quarter (small): {usd}; now {usd}, +0 USD (+0.0%)" in " ".join(out.split())
