"""plan.json as it is read back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from planner.errors import InputError
from planner.plan import SCHEMA_VERSION, plan_to_json, read_plan
from tests.report.sample import sample_plan


def test_a_plan_survives_writing_and_reading(tmp_path: Path):
    path = tmp_path / "plan.json"
    path.write_text(plan_to_json(sample_plan()), encoding="utf-8")
    assert read_plan(path) == sample_plan()


@pytest.mark.parametrize("version", [1, SCHEMA_VERSION + 1])
def test_a_plan_of_another_version_is_one_clear_error(tmp_path: Path, version: int):
    path = tmp_path / "plan.json"
    path.write_text(f'{{"schema_version": {version}, "pools": [{{"offer_id": "x"}}]}}', encoding="utf-8")
    with pytest.raises(InputError) as found:
        read_plan(path)
    assert len(found.value.problems) == 1
    assert str(found.value).startswith(f"{path}, field schema_version: is a plan of schema version {version}; this")
    assert found.value.exit_code == 2


@pytest.mark.parametrize("text", ["", "[1]", "{", '{"schema_version": "1"}', "[" * 100_000])
def test_what_is_no_plan_is_left_to_the_validation(tmp_path: Path, text: str):
    path = tmp_path / "plan.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValidationError):
        read_plan(path)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ((), {"horizon_hours": 0.0}),
        (("pools", 0), {"replicas": -3}),
        (("pools", 0), {"usd": "NaN"}),
        (("pools", 0, "periods", 0), {"replicas": 10**9}),
        (("purchases", 0), {"instances": -5}),
    ],
)
def test_impossible_figures_are_refused(tmp_path: Path, place: tuple[str | int, ...], value: dict[str, object]):
    raw = json.loads(plan_to_json(sample_plan()))
    node = raw
    for step in place:
        node = node[step]
    node.update(value)
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(raw), encoding="utf-8")
    with pytest.raises(ValidationError):
        read_plan(path)
