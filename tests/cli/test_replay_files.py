"""`planner replay -o` at the keyboard: the plan's files once more, with the replay in them."""

from __future__ import annotations

import shutil
from pathlib import Path

from openpyxl import load_workbook

from planner.cli.plan_files import FILES
from planner.plan import read_plan
from planner.study import read_study

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "reports" / "example"
LOG = ROOT / "catalogs" / "example" / "traffic" / "AzureLLMInferenceTrace_conv.csv"
ASKED = ("--traffic", f"{LOG}=chat-large", "--hours", "0.02", "--repeat", "2", "--part", "0.5:1")


def test_the_files_of_a_replayed_plan(planner, tmp_path):
    shutil.copy(EXAMPLE / "plan.json", tmp_path / "plan.json")
    code, out, err = planner("replay", str(tmp_path), *ASKED, "-o", str(tmp_path / "new"))
    assert err == ""
    assert code in (0, 1)
    assert f"written: {tmp_path / 'new' / 'plan.xlsx'}" in out
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == sorted(FILES)
    record = read_study(tmp_path / "new" / "study.json").replay
    assert record is not None
    assert record.passed == (code == 0)
    assert [(one.model, one.file) for one in record.sources] == [("chat-large", LOG.name)]
    assert (record.part, record.repeats, record.hours, record.confidence) == ("0.5:1", 2, 0.02, 0.95)
    assert "Replay" in load_workbook(tmp_path / "new" / "plan.xlsx").sheetnames
    assert 'id="replay"' in (tmp_path / "new" / "plan.html").read_text()
    assert read_plan(tmp_path / "new" / "plan.json") == read_plan(EXAMPLE / "plan.json")


def test_a_folder_that_cannot_be_written_is_told_before_any_work(planner, tmp_path):
    (tmp_path / "taken").write_text("")
    code, out, err = planner("replay", str(EXAMPLE), *ASKED, "-o", str(tmp_path / "taken"))
    assert (code, out) == (2, "")
    assert "cannot be written" in err
    code, _, err = planner("replay", str(EXAMPLE), *ASKED, "--seed", "-1", "-o", str(tmp_path / "new"))
    assert (code, (tmp_path / "new").exists()) == (2, False)
