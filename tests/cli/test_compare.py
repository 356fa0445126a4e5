"""`planner compare`: what it prints, as words and as JSON, and what it refuses."""

import json

import pytest

from planner.compare.bridge import MEANINGS, bridge
from planner.compare.changes import changes
from planner.plan import plan_to_json
from tests.report.sample import sample_plan
from tests.report.sample_study import sample_last


@pytest.fixture
def folders(tmp_path):
    for name, plan in (("old", sample_last()), ("new", sample_plan())):
        (tmp_path / name).mkdir()
        (tmp_path / name / "plan.json").write_text(plan_to_json(plan), encoding="utf-8")
    return tmp_path / "old", tmp_path / "new"


def test_the_bridge_and_the_changes_are_printed(planner, folders):
    old, new = folders
    code, out, err = planner("compare", str(old), str(new / "plan.json"))
    assert (code, err) == (0, "")
    found = bridge(sample_last(), sample_plan())
    for step in found.steps:
        assert f"{step.amount:+,.2f}" in out
    for text in ("287,201.92", "369,923.50", "2,208", "2,160", *MEANINGS, "vision is new"):
        assert text in out
    assert "code went from 4 x H100-SXM to 3 x H100-SXM" in out
    assert "-93,590" in out


def test_json_holds_the_same_and_closes(planner, folders):
    code, out, _ = planner("compare", *map(str, folders), "--json")
    data = json.loads(out)
    assert code == 0
    steps = data["bridge"]["steps"]
    assert [step["name"] for step in steps] == list(MEANINGS)
    total = data["bridge"]["last"]["amount"] + sum(step["amount"] for step in steps)
    assert total == pytest.approx(data["bridge"]["now"]["amount"], abs=1e-6)
    found = changes(sample_last(), sample_plan())
    assert [(row["kind"], row["text"], row["usd"]) for row in data["changes"]] == [
        (change.kind.value, change.text, change.usd) for change in found
    ]
    assert sum(row["usd"] or 0 for row in data["changes"]) == pytest.approx(
        data["bridge"]["now"]["usd"] - data["bridge"]["last"]["usd"]
    )


def test_a_plan_and_itself(planner, folders):
    code, out, _ = planner("compare", str(folders[1]), str(folders[1]))
    assert code == 0
    assert "Nothing" in out
    assert out.count("+0.00") == len(MEANINGS)


def test_what_is_wrong_with_both_is_said_at_once(planner, tmp_path):
    (tmp_path / "plan.json").write_text("[]", encoding="utf-8")
    code, out, err = planner("compare", str(tmp_path), str(tmp_path / "nowhere"))
    assert (code, out) == (2, "")
    assert "is no plan" in err
    assert "no such file" in err
    assert "Traceback" not in err


def test_names_that_look_like_markup_are_text(planner, folders):
    plan = sample_plan()
    pools = [pool.model_copy(update={"model": f"[/bold] {pool.model}\x1b[31m"}) for pool in plan.pools]
    (folders[1] / "plan.json").write_text(
        plan_to_json(plan.model_copy(update={"pools": tuple(pools)})), encoding="utf-8"
    )
    code, out, err = planner("compare", *map(str, folders))
    assert (code, err) == (0, "")
    assert "[/bold] vision" in out
    assert "\x1b[31m" not in out
