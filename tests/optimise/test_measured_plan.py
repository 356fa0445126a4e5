"""Measured speeds in a whole plan: they replace the model's, and the plan says which edge its limits saw."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from pathlib import Path

import pytest

from planner.errors import InputError
from planner.pipeline import plan_quarter
from planner.plan import FleetPlan, Pool, plan_to_json
from planner.report import facts
from planner.speed.load_tests.points_file import COLUMNS
from tests.optimise.test_calibrated_plan import REQUEST as CALIBRATED
from tests.optimise.test_calibrated_plan import TRAFFIC
from tests.optimise.world import catalog

CREATED_AT = dt.datetime(2026, 11, 29, 12, tzinfo=dt.UTC)
REQUEST = CALIBRATED.replace("[offers]", "{speed}\n[offers]").replace("rate_per_s = 5", "rate_per_s = 40").replace(
    "[model.traffic]", "[model.targets]\ntpot_ms = 20\n[model.traffic]"
)  # fmt: skip
NAMED = '[speed]\nmeasured = ["load.csv"]\n'
POINT = {
    "id": "a", "engine": "vllm", "version": "0.19.0", "model": "meta-llama/Llama-3.1-8B-Instruct", "gpu": "H100-SXM",
    "tp": "1", "weight_dtype": "bf16", "kv_dtype": "bf16", "load": "closed loop", "input_tokens": "1200",
    "output_tokens": "250", "concurrency": "160", "tpot_p50_ms": "20", "ttft_p50_ms": "250", "source": "run 1",
}  # fmt: skip


def plan_with(folder: Path, *points: dict[str, str], speed: str = NAMED) -> FleetPlan:
    rows = [
        ",".join((POINT | {"id": str(i)} | point).get(name, "") for name in COLUMNS) for i, point in enumerate(points)
    ]
    (folder / "load.csv").write_text("\n".join([",".join(COLUMNS), *rows]) + "\n")
    request = folder / "quarter.toml"
    request.write_text(REQUEST.format(calibration="", traffic=TRAFFIC, dtype="bf16", speed=speed if points else ""))
    return plan_quarter(request, catalog(), created_at=CREATED_AT)


def only(plan: FleetPlan) -> Pool:
    (pool,) = plan.pools
    return pool


@pytest.fixture(scope="module")
def modelled(tmp_path_factory: pytest.TempPathFactory) -> FleetPlan:
    return plan_with(tmp_path_factory.mktemp("modelled"))


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> FleetPlan:
    return plan_with(tmp_path_factory.mktemp("measured"), {"tpot_p50_ms": "70"})


def test_without_measurements_the_slow_edge_of_the_roofline_is_used(modelled: FleetPlan) -> None:
    speed = only(modelled).speed
    assert speed.provider == "roofline"
    for measure in (speed.tpot_ms, speed.ttft_ms):
        assert measure.edge == "upper"
        assert measure.used == pytest.approx(measure.high)
    assert facts.speed_basis(only(modelled)) == "roofline, upper"


def test_one_measured_point_changes_the_plan_and_the_plan_says_so(modelled: FleetPlan, measured: FleetPlan) -> None:
    before, after = only(modelled), only(measured)
    assert after.replicas > before.replicas
    assert after.speed.provider == "measured point"
    for measure in (after.speed.tpot_ms, after.speed.ttft_ms):
        assert measure.edge == "middle"
        assert measure.used == pytest.approx(measure.value)
        assert measure.low < measure.value < measure.high
        assert measure.source.startswith("1 measured point at 160 sequences, vllm 0.19.0 (run 1); corrects roofline")
    written = json.loads(plan_to_json(measured))["pools"][0]["speed"]
    assert (written["provider"], written["tpot_ms"]["edge"]) == ("measured point", "middle")
    assert facts.speed_basis(after) == "measured point, middle"


def test_the_file_is_an_input_with_its_digest(tmp_path: Path, modelled: FleetPlan, measured: FleetPlan) -> None:
    assert not [f for f in modelled.inputs if f.role == "measured speed"]
    again = plan_with(tmp_path, {"tpot_p50_ms": "70"})
    (entry,) = [f for f in again.inputs if f.role == "measured speed"]
    assert entry.path == "load.csv"
    assert entry.sha256 == hashlib.sha256((tmp_path / "load.csv").read_bytes()).hexdigest()
    assert again.run_id == measured.run_id != modelled.run_id
    assert [a.value for a in again.assumptions if a.id == "speed_measured"] == ["load.csv"]


def test_slower_measurements_never_give_fewer_replicas(tmp_path: Path) -> None:
    counts = [only(plan_with(tmp_path, {"tpot_p50_ms": f"{tpot:g}"})).replicas_needed for tpot in (12, 22, 40)]
    assert counts == sorted(counts)
    assert counts[-1] > counts[0]


def test_a_point_of_few_sequences_does_not_carry_to_the_cap(tmp_path: Path) -> None:
    """The cap is 256 sequences; 32 measured ones reach 64. The band is at least the model's, its slow edge is used."""
    plan = plan_with(tmp_path, {"concurrency": "32", "tpot_p50_ms": "12"})
    speed = only(plan).speed
    assert (speed.provider, speed.tpot_ms.edge, speed.ttft_ms.edge) == ("measured point", "upper", "upper")
    assert "beyond 2 x the measured load" in speed.tpot_ms.source
    assert [w for w in plan.warnings if "beyond twice the measured load (64 sequences" in w]


def test_another_version_is_used_at_the_slow_edge_and_warned_of(tmp_path: Path) -> None:
    plan = plan_with(tmp_path, {"version": "0.18.0"})
    speed = only(plan).speed
    assert (speed.provider, speed.tpot_ms.edge) == ("measured point", "upper")
    assert "vllm 0.18.0 (planned 0.19.0" in speed.tpot_ms.source
    assert [w for w in plan.warnings if "another engine version" in w]


def test_a_provider_that_is_asked_for_and_has_no_answer_is_named_in_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("planner.inputs.silicon_source", lambda root: lambda *_: "no data")
    plan = plan_with(tmp_path, {}, speed='[speed]\nproviders = ["measured", "aiconfigurator", "roofline"]\n')
    assert only(plan).speed.tpot_ms.source.endswith("no aiconfigurator: no data")


def test_points_that_hold_for_nothing_are_warned_of(tmp_path: Path) -> None:
    plan = plan_with(tmp_path, {"tp": "2"}, {"load": "static batch"})
    assert only(plan).speed.provider == "roofline"
    assert "chat: no measured point is of H100-SXM tp1 bf16/bf16; roofline is used" in plan.warnings
    assert [w for w in plan.warnings if w.startswith("1 measured points not used")]


@pytest.mark.parametrize(
    ("speed", "told"),
    [
        ('[speed]\nmeasured = ["none.csv"]\n', "none.csv"),
        ('[speed]\nproviders = ["measured"]\n', "name a model"),
        ('[speed]\nproviders = ["roofline", "measured"]\n', "measured must come first"),
        ('[speed]\nproviders = ["roofline", "roofline"]\n', "once each"),
        ('[speed]\nproviders = ["roofline"]\nmeasured = ["load.csv"]\n', "measured is not among the providers"),
        ('[speed]\nproviders = ["vidur"]\n', "providers"),
        ('[speed]\nmeasured = ["load.csv", "load.csv"]\n', "named once"),
        ('[speed]\nmeassured = ["load.csv"]\n', "Did you mean 'measured'"),
    ],
)
def test_a_wrong_speed_section_is_one_clear_error(tmp_path: Path, speed: str, told: str) -> None:
    with pytest.raises(InputError) as caught:
        plan_with(tmp_path, {}, speed=speed)
    assert told in str(caught.value)


def test_every_problem_of_the_files_is_listed(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        plan_with(tmp_path, {"gpu": "H100"}, {"gpu": "H900"})
    text = str(caught.value)
    assert "load.csv" in text
    assert "H900" in text
