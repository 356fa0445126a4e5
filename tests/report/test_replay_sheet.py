"""The Replay sheet of a hand-made record: figures, live verdicts, words for what is no number."""

from __future__ import annotations

import time

import formualizer
import pytest
from openpyxl import load_workbook

from planner.report.recalc import recalculate_with_libreoffice
from planner.report.replay_words import NOT_REPLAYED
from planner.report.sheets.replay import PROMISES, STANDS
from planner.report.workbook import write_workbook
from planner.study import Study
from tests.report.sample import sample_plan
from tests.report.sample_replay import CASES, HOSTILE_FILE, sample_record
from tests.report.sheet_reader import Read


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> Read:
    plan = sample_plan()
    return Read(Study(plan=plan, replay=sample_record(plan)), tmp_path_factory.mktemp("replay") / "plan.xlsx")


def _verdicts(column: list, limits: list) -> dict[str, object]:
    return {name: value for name, value in zip(limits, column, strict=True) if name.startswith("case ")}


def test_each_verdict_is_the_one_by_hand(replayed: Read):
    limits = replayed.column(PROMISES, "Limit")
    expected = {f"case {n}": int(stands) for n, (_, stands) in enumerate(CASES)}
    assert _verdicts(replayed.column(PROMISES, STANDS), limits) == expected
    assert _verdicts(replayed.column(PROMISES, "As replayed, 1/0"), limits) == expected
    words = {name: "stands" if value else "REFUTED" for name, value in expected.items()}
    assert _verdicts(replayed.column(PROMISES, "Verdict"), limits) == words


def test_figures_are_the_records_and_words_stand_for_what_is_no_number(replayed: Read):
    limits = replayed.column(PROMISES, "Limit")
    seen = _verdicts(replayed.column(PROMISES, "Observed"), limits)
    assert seen == {
        "case 0": 24.5, "case 1": 51, "case 2": 55, "case 3": 51, "case 4": 49, "case 5": "none served",
        "case 6": "nothing to measure", "case 7": 1,
    }  # fmt: skip
    low = _verdicts(replayed.column(PROMISES, "Interval from"), limits)
    assert low["case 3"] == "one repeat"
    assert low["case 7"] == 0, "a time is not below 0"
    assert replayed.column("tblReplaySeen", "Requests of a repeat")[0] == 3_700
    assert replayed.column("tblReplaySeen", "Served, M tokens")[0] == pytest.approx(9.2)
    assert replayed.column("tblReplaySeen", "Most waiting at once")[0] == 9
    assert replayed.column("tblReplayFewer", "Verdict") == ["REFUTED"]
    assert replayed.column("tblReplayMeans", "Observed") == ["none served"]
    assert replayed.column("tblReplayDrills", "Recovered after, s") == ["not within the replay", 300]
    assert replayed.column("tblReplayDrills", "Worst TTFT, ms") == ["none served", 900]


def test_cover_says_what_came_out_or_that_there_was_no_replay(replayed: Read, tmp_path):
    assert replayed.row("tblRun", "Item", "Replay", "Value") == "REFUTED"
    assert replayed.total(PROMISES, "Refuted, 1/0") == 3
    assert replayed.headline().startswith("ALL "), "a replay at a stress of one's own choice is no check of the plan"
    plain = Read(sample_plan(), tmp_path / "plan.xlsx")
    assert plain.row("tblRun", "Item", "Replay", "Value") == NOT_REPLAYED
    assert "Replay" not in plain.cells.sheetnames


@pytest.mark.parametrize(
    ("limit", "header", "value"),
    [("case 0", "Interval from", 60.0), ("case 3", "Observed", 49.0), ("case 2", "Allowed", 51.0)],
)
def test_the_verdict_follows_its_figures_and_the_check_tells(limit: str, header: str, value: float, replayed: Read):
    row = replayed.column(PROMISES, "Limit").index(limit)
    failed = replayed.failed_after(PROMISES, header, row, value)
    assert failed == {"Replayed limits whose verdict is not the replay's"}


def test_hostile_names_stay_text(replayed: Read):
    cells = [cell for row in replayed.cells["Replay"].iter_rows() for cell in row]
    named = [cell for cell in cells if isinstance(cell.value, str) and HOSTILE_FILE in cell.value]
    assert named
    assert all(cell.data_type == "s" and cell.quotePrefix for cell in named)


def test_libreoffice_and_formualizer_find_the_same(replayed: Read, tmp_path):
    again = load_workbook(recalculate_with_libreoffice(replayed.path, tmp_path), data_only=True)["Replay"]
    book = formualizer.load_workbook(str(replayed.path))
    book.evaluate_all()
    for row in replayed.values["Replay"].iter_rows():
        for cell in row:
            assert again[cell.coordinate].value == pytest.approx(cell.value), cell.coordinate
            if cell.value is not None:
                found = book.get_value("Replay", cell.row, cell.column)
                assert found == pytest.approx(cell.value), cell.coordinate
                assert not str(found).startswith("#")


def test_a_passed_replay_says_so(tmp_path):
    plan = sample_plan()
    found = Read(Study(plan=plan, replay=sample_record(plan, CASES[:2])), tmp_path / "plan.xlsx")
    assert found.row("tblRun", "Item", "Replay", "Value") == "passed: no limit is refuted"
    assert found.total(PROMISES, "Refuted, 1/0") == 0
    assert found.row("tblReplay", "Item", "Log of chat", "Value").startswith(HOSTILE_FILE)


def test_nothing_replayed_still_gives_a_workbook(tmp_path):
    plan = sample_plan()
    record = sample_record(plan, ()).model_copy(update={"pools": (), "fewer": (), "means": (), "drills": ()})
    found = Read(Study(plan=plan, replay=record), tmp_path / "plan.xlsx")
    assert found.column(PROMISES, "Limit") == ["no model was replayed"]


def test_the_sheet_costs_little_with_many_pools(tmp_path):
    """200 pools with three limits each, in the layout and cells of this sheet alone."""
    plan = sample_plan()
    record = sample_record(plan)
    many = tuple(record.pools[n % len(record.pools)].model_copy(update={"pool": f"pool {n}"}) for n in range(200))
    path, started = tmp_path / "plan.xlsx", time.process_time()
    write_workbook(Study(plan=plan, replay=record.model_copy(update={"pools": many})), path)
    with_replay, started = time.process_time() - started, time.process_time()
    write_workbook(plan, path)
    assert with_replay - (time.process_time() - started) < 5.0
