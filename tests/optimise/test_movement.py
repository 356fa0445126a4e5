"""Last quarter's plan as a limit on movement."""

from __future__ import annotations

import json

import pytest

from planner.errors import InputError
from planner.optimise.supply.movement import movement_of
from tests.optimise.supply_world import request

ASKED = {"last_plan": "last.json", "max_moved_gpus": 12}


def pool(model: str, gpu: str, tp: int, replicas: list[int]) -> dict:
    return {
        "model": model, "gpu": gpu, "tp": tp, "gpus": tp * max(replicas),
        "periods": [{"period": f"t{t}", "replicas": n} for t, n in enumerate(replicas)],
    }  # fmt: skip


def read(tmp_path, plan) -> dict:
    text = plan if isinstance(plan, str) else json.dumps(plan)
    (tmp_path / "last.json").write_text(text, encoding="utf-8")
    found = movement_of(request(movement=ASKED), tmp_path)
    assert found is not None
    assert found.max_moved_gpus == 12
    return dict(found.last_gpus)


def test_no_limit_asked_for():
    assert movement_of(request(), None) is None


def test_gpus_of_a_model_on_a_type_at_their_largest_over_the_periods(tmp_path):
    """chat on H100: 2 x [4, 1] + 1 x [0, 9] = [8, 11], so 11; on L40S [3, 3]. Its pools' peaks alone would say 17."""
    plan = {
        "schema_version": 2, "title": "whatever else is there", "periods": [{"name": "t0"}, {"name": "t1"}],
        "pools": [
            pool("chat", "H100-SXM", 2, [4, 1]), pool("chat", "H100-SXM", 1, [0, 9]), pool("chat", "L40S", 1, [3, 3]),
            pool("code", "H100-SXM", 8, [1, 1]),
        ],
    }  # fmt: skip
    assert read(tmp_path, plan) == {("chat", "H100-SXM"): 11, ("chat", "L40S"): 3, ("code", "H100-SXM"): 8}


@pytest.mark.parametrize("version", [2, 3])
def test_plans_of_today_are_read_as_those_of_yesterday(tmp_path, version):
    plan = {"schema_version": version, "periods": [{}], "pools": [pool("chat", "L40S", 1, [4])]}
    assert read(tmp_path, plan) == {("chat", "L40S"): 4}


def test_a_plan_of_schema_1_ran_the_same_all_the_time(tmp_path):
    plan = {"schema_version": 1, "pools": [{"model": "chat", "gpu": "H100-SXM", "tp": 2, "gpus": 6, "offer_id": "o"}]}
    assert read(tmp_path, plan) == {("chat", "H100-SXM"): 6}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "last.json"),
        ('{"schema_version": 2, "pools": []}', "field pools"),
        ('{"schema_version": 7, "pools": [{"model": "a", "gpu": "b", "tp": 1, "gpus": 1}]}', "schema 7"),
        ("[]", "last.json"),
        ("\x00\x01", "last.json"),
    ],
)
def test_what_is_no_plan_is_bad_input(tmp_path, text, said):
    with pytest.raises(InputError, match=said):
        read(tmp_path, text)


def test_every_missing_part_is_named(tmp_path):
    with pytest.raises(InputError) as caught:
        read(tmp_path, {"schema_version": 2, "pools": [{"model": "a", "gpu": "", "tp": 0}]})
    assert [p.field for p in caught.value.problems] == ["pools.0.gpu", "pools.0.tp", "pools.0.gpus"]


def test_a_pool_must_have_the_plans_periods(tmp_path):
    plan = {"schema_version": 2, "periods": [{}, {}], "pools": [pool("chat", "L40S", 1, [1])]}
    with pytest.raises(InputError, match="1 periods, the plan 2"):
        read(tmp_path, plan)


def test_no_file(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        movement_of(request(movement=ASKED), tmp_path)
    (tmp_path / "last.json").mkdir()
    with pytest.raises(InputError, match="cannot be read"):
        movement_of(request(movement=ASKED), tmp_path)
