"""`planner explain` on the sample plan: what it says, what it refuses, and text that looks like markup."""

import json

import pytest

from planner.cli.explain import runner_up_line
from planner.plan import RunnerUp, plan_to_json
from tests.report.sample import sample_plan


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "plan.json").write_text(plan_to_json(sample_plan()), encoding="utf-8")
    return tmp_path


def test_the_fleet_and_every_pool_with_its_limits(planner, folder):
    plan = sample_plan()
    code, out, err = planner("explain", str(folder))
    assert (code, err) == (0, "")
    for pool in plan.pools:
        assert pool.name in out
        assert f"binding: {pool.binding_constraint}" in out
    assert f"{plan.solve.objective:,.0f} USD" in out
    for row in plan.quotas:
        assert row.name in out
        assert (f"{row.worth_usd:,.0f}" if row.worth_usd is not None else "not looked for") in out


def test_one_model_of_a_file(planner, folder):
    code, out, _ = planner("explain", str(folder / "plan.json"), "code")
    others = [pool.name for pool in sample_plan().pools if pool.model != "code"]
    assert code == 0
    assert "code" in out
    assert not any(f"{name}:" in out for name in others)


def test_json_holds_the_same(planner, folder):
    """Also where a margin is infinite: JSON has no such number."""
    plan = sample_plan()
    broken = plan.pools[0].margins[0].model_copy(update={"planned": float("inf")})
    first = plan.pools[0].model_copy(update={"margins": (broken, *plan.pools[0].margins[1:])})
    plan = plan.model_copy(update={"pools": (first, *plan.pools[1:])})
    (folder / "plan.json").write_text(plan_to_json(plan), encoding="utf-8")
    data = json.loads(planner("explain", str(folder), "--json")[1])
    assert sorted(data["models"]) == sorted({pool.model for pool in plan.pools})
    assert data["gap"] == plan.solve.gap
    for name, model in data["models"].items():
        mine = [pool for pool in plan.pools if pool.model == name]
        assert [pool["binding_constraint"] for pool in model["pools"]] == [pool.binding_constraint for pool in mine]
        json.dumps(model, allow_nan=False)
        assert [len(pool["margins"]) for pool in model["pools"]] == [len(pool.margins) for pool in mine]


def test_the_runner_up_in_words():
    line = runner_up_line(RunnerUp(description="4 x L4 tp2 bf16/bf16", extra_usd=1234.5), ["H100-SXM"])
    assert line == "runner-up: 4 x L4 tp2 bf16/bf16, +1,234 USD over the horizon"
    runner = RunnerUp(description="4 x L4 tp2 bf16/bf16", extra_usd=1234.5, flip_usd_per_gpu_h=2.345)
    wins = "; it wins when H100-SXM costs more than 2.35 USD per GPU-hour"
    assert runner_up_line(runner, ["H100-SXM"]) == line + wins


def test_markup_and_line_ends_in_names_are_text(planner, tmp_path):
    plan = sample_plan()
    pools = [pool.model_copy(update={"name": "[/bold] a\nb", "why": "[red]because[/nothing]"}) for pool in plan.pools]
    quotas = [row.model_copy(update={"name": "[/q]\x1b[31m"}) for row in plan.quotas]
    hostile = plan.model_copy(update={"pools": tuple(pools), "quotas": tuple(quotas), "title": "[/t]"})
    (tmp_path / "plan.json").write_text(plan_to_json(hostile), encoding="utf-8")
    code, out, err = planner("explain", str(tmp_path))
    assert (code, err) == (0, "")
    assert "[/bold] a b: [red]because[/nothing]" in out
    assert "[/q]" in out
    assert "\x1b[31m" not in out


def test_a_model_that_is_not_there(planner, folder):
    code, _, err = planner("explain", str(folder), "nobody")
    assert code == 2
    assert "'nobody' is not in the plan. It has " in err
    assert "code" in err


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "no such file"),
        (b"", "is no plan"),
        (b"[]", "is no plan"),
        (b"\xff\xfe\x00binary", "is no UTF-8 text"),
        (b'{"schema_version": 1}', "is a plan of schema version 1; this planner reads version 3"),
        (b'{"schema_version": 2}', "and "),
        (b"[" * 100_000, "is no plan"),
    ],
)
def test_what_is_no_plan(planner, tmp_path, content, words):
    if content is not None:
        (tmp_path / "plan.json").write_bytes(content)
    code, out, err = planner("explain", str(tmp_path))
    assert (code, out) == (2, "")
    assert words in err
    assert "internal error" not in err
    assert len(err.splitlines()) < 10
