"""The record of a replay: what it keeps, JSON there and back, and which plan it belongs to."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from planner.cli import replay_files
from planner.cli.plan_files import FILES, write_outputs
from planner.errors import InputError
from planner.plan import plan_to_json
from planner.replay.record import NONE_SERVED, NOTHING_SEEN, ONE_REPEAT, Figure, ReplayRecord, figure
from planner.study import Study, read_study, study_to_json
from tests.report.sample import sample_plan
from tests.report.sample_replay import CASES, HOSTILE_FILE, sample_record
from tests.report.sample_study import sample_study


def test_the_record_is_what_was_replayed():
    plan = sample_plan()
    record = sample_record(plan)
    assert (record.run_id, record.part, record.slower, record.repeats) == (plan.run_id, "0.5:1", 1.1, 2)
    assert record.lost == ((plan.pools[0].name, 1),)
    models = list(dict.fromkeys(pool.model for pool in plan.pools))
    assert [one.model for one in record.sources] == sorted(models[:-1])
    assert {one.file for one in record.sources} == {HOSTILE_FILE}
    assert record.not_replayed == (models[-1],)
    assert not record.passed
    refuted = {f"case {n}" for n, (_, stands) in enumerate(CASES) if not stands}
    assert {name for _, name in record.refuted} == refuted
    seen = record.pools[0].seen
    assert seen is not None
    assert (seen.requests, seen.served_tokens, seen.most_waiting) == (3_700, 9_200_000, 9)
    assert seen.busy_share == pytest.approx(0.73)


def test_what_is_no_number_has_a_word_and_survives_json():
    record = sample_record(sample_plan())
    text = record.model_dump_json()
    json.loads(text, parse_constant=pytest.fail)
    again = ReplayRecord.model_validate_json(text)
    assert again == record
    by_name = {one.constraint: one for pool in again.pools for one in pool.promises}
    assert by_name["case 5"].observed == Figure(word=NONE_SERVED)
    assert by_name["case 5"].observed.number == math.inf
    assert by_name["case 6"].observed.word == by_name["case 6"].low.word == NOTHING_SEEN
    assert by_name["case 3"].high.word == ONE_REPEAT
    assert '"value":null,"word":"none served"' in text


@given(st.floats(allow_infinity=True, allow_nan=True).filter(lambda value: value != -math.inf))
def test_a_figure_is_its_number(value: float):
    found = Figure.model_validate_json(figure(value).model_dump_json()).number
    assert found == value or (math.isnan(found) and math.isnan(value))


@pytest.mark.parametrize("wrong", [{}, {"value": 1.0, "word": "one"}, {"value": math.inf}, {"value": math.nan}])
def test_a_figure_is_a_number_or_a_word(wrong):
    with pytest.raises(ValidationError):
        Figure(**wrong)


def test_study_there_and_back_and_an_old_one_reads(tmp_path):
    study, path = sample_study(), tmp_path / "study.json"
    assert study.replay is not None
    path.write_text(study_to_json(study))
    assert read_study(path) == study
    old = json.loads(study_to_json(study))
    del old["replay"]
    path.write_text(json.dumps(old))
    assert read_study(path) == study.model_copy(update={"replay": None})


def test_a_record_of_another_plan_is_refused(tmp_path):
    plan = sample_plan()
    other = sample_record(plan).model_copy(update={"run_id": "0" * 12})
    with pytest.raises(ValidationError, match="the replay is of plan 000000000000"):
        Study(plan=plan, replay=other)
    with pytest.raises(InputError, match="the replay is of plan 000000000000"):
        replay_files.write_replay(Study(plan=plan), other, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_study_beside_the_plan_is_kept_and_all_files_are_written(tmp_path):
    whole = sample_study().model_copy(update={"others": (), "regret": None, "sensitivities": ()})
    study = whole.model_copy(update={"replay": None})
    source, target = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    write_outputs(study, source, ("json",))
    for named in (source, source / "plan.json"):
        found = replay_files.kept_in(target, named, study.plan, part="0:1", edge="", slower=1.0)
        assert found is not None
        assert found.study == study
    target.mkdir()
    written = replay_files.write_replay(study, sample_record(study.plan), target)
    assert sorted(path.name for path in target.iterdir()) == sorted(FILES)
    assert sorted(path.name for path in written) == sorted(FILES)
    assert read_study(target / "study.json") == whole
    assert (target / "plan.json").read_bytes() == (source / "plan.json").read_bytes()
    assert replay_files.kept_in(None, source, study.plan, part="0:1", edge="", slower=1.0) is None


def test_a_folder_that_was_made_goes_again_if_the_replay_fails(tmp_path):
    kept = replay_files.Kept(Study(plan=sample_plan()), tmp_path / "a" / "b", "0:1", "", 1.0)

    def fails() -> None:
        with kept.ready():
            assert kept.folder.is_dir()
            raise InputError([])

    with pytest.raises(InputError):
        fails()
    assert list(tmp_path.iterdir()) == []


def test_a_plan_alone_and_a_study_of_another_plan(tmp_path):
    plan = sample_plan()
    (tmp_path / "plan.json").write_text(plan_to_json(plan))
    assert replay_files.study_of_plan(tmp_path, plan) == Study(plan=plan)
    other = plan.model_copy(update={"run_id": "0" * 12})
    (tmp_path / "study.json").write_text(study_to_json(Study(plan=other)))
    with pytest.raises(InputError, match=r"is of plan 000000000000, which is not the plan\.json beside it"):
        replay_files.study_of_plan(tmp_path, plan)


def test_nothing_appears_where_a_file_cannot_be_made(tmp_path, monkeypatch):
    plan = sample_plan()
    (tmp_path / "plan.xlsx").write_text("old")

    def fails(*_arguments: object) -> None:
        raise InputError([])

    monkeypatch.setattr("planner.report.page.write_page", fails)
    with pytest.raises(InputError):
        replay_files.write_replay(Study(plan=plan), sample_record(plan), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["plan.xlsx"]
    assert (tmp_path / "plan.xlsx").read_text() == "old"
