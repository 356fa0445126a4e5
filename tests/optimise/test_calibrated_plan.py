"""A calibration file in a whole plan: what was measured replaces what is predicted, and the plan says so."""

from __future__ import annotations

import datetime as dt
import hashlib
from pathlib import Path

import pytest

from planner.cli import main
from planner.errors import InputError
from planner.pipeline import plan_quarter
from planner.plan import FleetPlan
from tests.optimise.world import catalog

CREATED_AT = dt.datetime(2026, 11, 29, 12, tzinfo=dt.UTC)
TRAFFIC = Path(__file__).parents[2] / "catalogs" / "example" / "traffic" / "AzureLLMInferenceTrace_conv.csv"

REQUEST = """
[quarter]
title = "t"
start = 2027-01-01
end = 2027-04-01
owner = "o"

[engine]
name = "vllm"
version = "0.19.0"
{calibration}

[offers]
providers = ["verda"]
gpus = ["H100-SXM"]

[[model]]
name = "chat"
weights = "meta-llama/Llama-3.1-8B-Instruct"
weight_dtypes = ["{dtype}"]
kv_dtypes = ["bf16"]
tp_degrees = [1]
max_num_seqs = [256]
[model.traffic]
path = "{traffic}"
format = "azure"
rate_per_s = 5
"""

MEASURED = """
[[start]]
engine = "vllm"
version = "0.19.0"
facts_version = "0.19.0"
model = "meta-llama/Llama-3.1-8B-Instruct"
gpu = "H100-SXM"
tp = 1
weight_dtype = "bf16"
max_num_seqs = 256
max_num_batched_tokens = 8192
source = "start.log"
as_of = 2026-11-20
weights_gib = 16.5
"""


def plan_with(folder: Path, calibration: str = "", dtype: str = "bf16") -> FleetPlan:
    named = ""
    if calibration:
        (folder / "measured.toml").write_text(calibration)
        named = 'calibration = "measured.toml"'
    request = folder / "quarter.toml"
    request.write_text(REQUEST.format(calibration=named, traffic=TRAFFIC, dtype=dtype))
    return plan_quarter(request, catalog(), created_at=CREATED_AT)


@pytest.fixture(scope="module")
def predicted(tmp_path_factory: pytest.TempPathFactory) -> FleetPlan:
    return plan_with(tmp_path_factory.mktemp("predicted"))


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> FleetPlan:
    return plan_with(tmp_path_factory.mktemp("measured"), MEASURED)


def test_a_measured_term_replaces_the_predicted_one_in_the_plan(predicted: FleetPlan, measured: FleetPlan) -> None:
    one, two = (next(t for t in p.pools[0].memory.terms if t.name == "weights") for p in (predicted, measured))
    assert (two.gib, two.origin) == (16.5, "measured")
    assert "start.log" in two.source
    assert one.origin != "measured"
    taken = two.gib - one.gib
    assert taken > 1.0
    before, after = (p.pools[0].memory for p in (predicted, measured))
    assert before.available_kv_gib - after.available_kv_gib == pytest.approx(taken, abs=1e-3)
    assert before.pool_tokens - after.pool_tokens == pytest.approx(taken * 2**30 / before.bytes_per_token, abs=16)


def test_the_calibration_file_is_an_input_with_its_digest(predicted: FleetPlan, measured: FleetPlan) -> None:
    assert not [f for f in predicted.inputs if f.role == "calibration"]
    (entry,) = [f for f in measured.inputs if f.role == "calibration"]
    assert entry.path == "measured.toml"
    assert entry.sha256 == hashlib.sha256(MEASURED.encode()).hexdigest()
    assert predicted.run_id != measured.run_id


def test_a_measurement_of_another_start_changes_nothing(tmp_path: Path, predicted: FleetPlan) -> None:
    other = plan_with(tmp_path, MEASURED.replace("tp = 1", "tp = 2"))
    assert predicted.pools[0].memory == other.pools[0].memory


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (MEASURED + "wrong = [", "measured.toml"),
        (MEASURED.replace("tp = 1", "tp = 0"), "tp"),
        (MEASURED.replace("weights_gib = 16.5", "weight_gib = 16.5"), "weight_gib"),
    ],
)
def test_a_broken_calibration_file_is_one_clear_error(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(InputError) as caught:
        plan_with(tmp_path, text)
    assert told in str(caught.value)
    assert all("measured.toml" in str(problem) for problem in caught.value.problems)


def test_a_missing_calibration_file_is_an_error(tmp_path: Path) -> None:
    request = tmp_path / "quarter.toml"
    request.write_text(REQUEST.format(calibration='calibration = "none.toml"', traffic=TRAFFIC, dtype="bf16"))
    with pytest.raises(InputError, match=r"none\.toml"):
        plan_quarter(request, catalog(), created_at=CREATED_AT)


def test_a_broken_calibration_file_ends_the_command_with_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "measured.toml").write_text(MEASURED + "wrong = [")
    request = tmp_path / "quarter.toml"
    request.write_text(REQUEST.format(calibration='calibration = "measured.toml"', traffic=TRAFFIC, dtype="bf16"))
    monkeypatch.setattr("sys.argv", ["planner", "plan", str(request), "-o", str(tmp_path / "out")])
    with pytest.raises(SystemExit) as ended:
        main()
    told = capsys.readouterr().err
    assert ended.value.code == 2
    assert told.count("measured.toml") == 1
    assert "Traceback" not in told
    assert not (tmp_path / "out").exists()


def test_mixed_is_refused_where_the_checkpoint_is_not_mixed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="stored in bf16"):
        plan_with(tmp_path, dtype="mixed")


def test_another_format_than_the_checkpoint_s_says_which_checkpoint_is_needed(
    tmp_path: Path, predicted: FleetPlan
) -> None:
    plan = plan_with(tmp_path, dtype="int4-awq")
    (line,) = [w for w in plan.warnings if "stored in bf16" in w]
    assert line.startswith("chat:")
    assert "int4-awq" in line
    assert not [w for w in predicted.warnings if "stored in" in w]
