"""Point 25: names and texts from outside are text, whatever they are, and never name a sheet, a table or a cell."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path

import formualizer
import pytest
from openpyxl import Workbook, load_workbook
from openpyxl.utils import range_boundaries

from planner.plan import FleetPlan
from planner.report.recalc import recalculate_with_libreoffice
from planner.report.workbook import write_workbook
from planner.study import Scenario, Study
from tests.report.acceptance.reading import Calculated, cells, formulas, name_of, parts, selector, xml
from tests.report.acceptance.test_package import same
from tests.report.sample import VERY_LONG, sample_plan
from tests.report.sample_study import sample_study

STARTS = ("=1+1", "+1", "-1", "@SUM(1)", "\t=1", "\r=1", "=cmd|'/C calc'!A0", '=HYPERLINK("http://evil.example")')
MODELS = (
    "Q1", "A1", "R1C1", "[x]", "x'y", "a/b:c*?\\", "m" * 300, "模型", "\U0001f600 model", "=1+1", "+1", "-2", "@x",
    'say "hi"', "<b>&amp;</b>", "  blanks  ", "tblPlan", "a\\b", "TRUE", "1e5", "*", "a?c", "~x", ">5", "<=3",
)  # fmt: skip
"""Names of models: cells, table names, wildcards and criteria of SUMIFS, markup, blanks, other scripts."""
CONTROL = "".join(chr(n) for n in range(32)) + "\ufffe\uffff\ud800"


def _replaced(report: Study, names: dict[str, str]) -> Study:
    """The study with other names wherever they stand as a whole text or in an id."""
    text = report.model_dump_json()

    def swap(node: object, path: tuple[str, ...] = ()) -> object:
        if isinstance(node, dict):
            return {key: swap(value, (*path, key)) for key, value in node.items()}
        if isinstance(node, list):
            return [swap(value, path) for value in node]
        if not isinstance(node, str):
            return node
        if path and path[-1] == "id" and "assumptions" in path:
            kind, _, model = node.partition("_")
            return f"{kind}_{names[model]}" if model in names else node
        pool = re.fullmatch(r"(\w+)(/\d)?", node)
        if pool and pool.group(1) in names and path[-1:] != ("driver",):
            return names[pool.group(1)] + (pool.group(2) or "")
        return node

    return Study.model_validate_json(json.dumps(swap(json.loads(text))))


def named(models: tuple[str, ...]) -> Study:
    """The sample study with five other names of models."""
    return _replaced(sample_study(), dict(zip(("chat", "code", "agents", "search", "vision"), models, strict=True)))


def _chunks() -> list[tuple[str, ...]]:
    return [MODELS[i : i + 5] for i in range(0, len(MODELS), 5)]


def _only_templates(book: Workbook, texts: tuple[str, ...]) -> None:
    for cell in formulas(book):
        bare = re.sub(r'"[^"]*"', "", cell.value)
        for text in texts:
            if len(text) > 3:
                assert text not in bare, (name_of(cell), cell.value)
    for cell in cells(book):
        if isinstance(cell.value, str) and cell.data_type != "f" and cell.value[:1] in set("=+-@"):
            assert cell.data_type == "s"
            assert cell.quotePrefix, name_of(cell)


@pytest.mark.parametrize("models", _chunks(), ids=lambda names: names[0][:8])
def test_point_25_models_of_any_name_give_a_valid_workbook_that_holds(models: tuple[str, ...], tmp_path: Path):
    report = named(models)
    path = tmp_path / "plan.xlsx"
    write_workbook(report, path)
    for data in parts(path).values():
        xml(data)
    book, values = load_workbook(path), load_workbook(path, data_only=True)
    assert values["Checks"]["A3"].value == 1, _failing(values)
    _only_templates(book, models)
    plain = load_workbook(_plain(tmp_path))
    assert book.sheetnames == plain.sheetnames
    assert [t for s in book for t in s.tables] == [t for s in plain for t in s.tables]
    assert formualizer.recalculate_xlsx_bytes(path.read_bytes())["cache_cells_changed"] == 0
    found = selector(book)
    assert found
    calculated = Calculated(path)
    for scenario in report.scenarios:
        calculated.set(found[0], scenario.name)
        assert calculated.at("Checks", "A3") == 1, (scenario.name, calculated.at("Checks", "B3"))


def _plain(folder: Path) -> Path:
    path = folder / "plain.xlsx"
    write_workbook(sample_study(), path)
    return path


def _failing(values: Workbook) -> list[object]:
    return [row[1].value for row in values["Checks"].iter_rows(min_row=5) if "FAIL" in [cell.value for cell in row]]


@pytest.mark.libreoffice
@pytest.mark.parametrize("models", _chunks()[:3], ids=lambda names: names[0][:8])
def test_point_25_libreoffice_reads_such_names_alike(models: tuple[str, ...], tmp_path: Path):
    path = tmp_path / "plan.xlsx"
    write_workbook(named(models), path)
    values, again = (
        load_workbook(path, data_only=True),
        load_workbook(recalculate_with_libreoffice(path, tmp_path / "out"), data_only=True),
    )
    for cell in cells(values):
        found = again[cell.parent.title][cell.coordinate].value
        if isinstance(cell.value, str):
            assert re.sub(r"\s+", " ", cell.value).strip() == re.sub(r"\s+", " ", str(found)).strip(), name_of(cell)
        else:
            assert same(cell.value, found), (name_of(cell), cell.value, found)


def _with_text(plan: FleetPlan, text: str) -> FleetPlan:
    """A plan with one text in every place that a request, a catalogue or a log can fill."""
    pool = plan.pools[0].model_copy(update={"why": text, "launch_command": text, "cost_centre": text})
    purchase = plan.purchases[1].model_copy(update={"notes": text, "source_url": text})
    assumption = plan.assumptions[-1].model_copy(
        update={"assumption": text, "unit": text, "source": text, "owner": text, "note": text}
    )
    rejected = plan.rejected[0].model_copy(update={"reason": text, "example": text})
    file = plan.inputs[1].model_copy(update={"path": text})
    return plan.model_copy(
        update={
            "title": text, "owner": text, "warnings": (text,), "rejected": (rejected, *plan.rejected[1:]),
            "pools": (pool, *plan.pools[1:]), "purchases": (plan.purchases[0], purchase, *plan.purchases[2:]),
            "assumptions": (*plan.assumptions[:-1], assumption), "inputs": (plan.inputs[0], file),
        }
    )  # fmt: skip


@pytest.mark.parametrize("text", [*STARTS, CONTROL + "=1", VERY_LONG, "e\u0301" * 20_000, "\U0001f600" * 20_000])
def test_point_25_hostile_text_stays_text_and_every_check_holds(text: str, tmp_path: Path):
    study = sample_study()
    report = study.model_copy(update={"plan": _with_text(sample_plan(), text)})
    path = tmp_path / "plan.xlsx"
    write_workbook(report, path)
    book, values = load_workbook(path), load_workbook(path, data_only=True)
    assert values["Checks"]["A3"].value == 1, _failing(values)
    for cell in formulas(book):
        assert "HYPERLINK" not in cell.value
        assert "cmd" not in cell.value
    for cell in cells(book):
        if isinstance(cell.value, str) and cell.data_type != "f":
            assert len(cell.value.encode("utf-16-le")) // 2 <= 32_767, name_of(cell)
    shown = [str(cell.value) for cell in cells(book) if cell.data_type == "s"]
    visible = re.sub("[\x00-\x1f\ud800-\udfff\ufffe\uffff]", "", text)[:60]
    assert any(visible in re.sub(r"[\n\t]", "", line) for line in shown), visible
    for data in parts(path).values():
        xml(data)


@pytest.mark.parametrize("name", ["=1+1", "Q1", "Base, High", 'a "b"', "x" * 24, "高", "<&>", "Low'", "0", "1"])
def test_point_25_scenarios_of_any_name_can_be_selected(name: str, tmp_path: Path):
    """The list of a validation may hold neither commas nor quotes in the text of its formula."""
    study = sample_study()
    other = study.others[0].model_copy(update={"name": name})
    regret = None
    report = study.model_copy(update={"others": (other,), "regret": regret, "unsolved": ()})
    path = tmp_path / "plan.xlsx"
    write_workbook(report, path)
    book = load_workbook(path)
    found = selector(book)
    assert found
    formula = found[1].removeprefix("=")
    assert not formula.startswith('"'), "names stand in cells, so that any name can be offered"
    area = formula.rsplit("!", maxsplit=1)[-1].replace("$", "")
    range_boundaries(area)
    calculated = Calculated(path)
    calculated.set(found[0], name)
    assert calculated.at("Checks", "A3") == 1
    table_of_plan = [calculated.at("Cover", f"B{row}") for row in range(5, 30)]
    assert study.others[0].plan.run_id in table_of_plan


@pytest.mark.parametrize("texts", [("=x", "@y"), ("\x07bell", "e" * 40_000)])
def test_point_25_hostile_futures_and_drivers(texts: tuple[str, str], tmp_path: Path):
    study = sample_study()
    one, other = texts
    unsolved = study.unsolved[0].model_copy(update={"name": one[:24], "words": other, "why": one})
    drivers = tuple(
        row.model_copy(update={"name": f"{one}{n}", "words": other, "owner": one, "source": other})
        for n, row in enumerate(study.sensitivities)
    )
    words: tuple[Scenario, ...] = tuple(s.model_copy(update={"words": other, "source": one}) for s in study.others)
    report = study.model_copy(update={"unsolved": (unsolved,), "sensitivities": drivers, "others": words})
    write_workbook(report, tmp_path / "plan.xlsx")
    values = load_workbook(tmp_path / "plan.xlsx", data_only=True)
    assert values["Checks"]["A3"].value == 1
    assert zipfile.ZipFile(tmp_path / "plan.xlsx").testzip() is None
    _only_templates(load_workbook(tmp_path / "plan.xlsx"), texts)
