"""`planner plan` at the keyboard: the example quarter, and every kind of bad input."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import pytest

from planner.cli import main
from planner.cli.plan import FILES, default_folder

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "catalogs" / "example"
NOW = "2026-11-30T12:00:00Z"

SMALL = """
[quarter]
title = "t"
start = 2027-01-01
end = 2027-04-01
owner = "o"

[engine]
name = "vllm"
version = "0.19.0"

[offers]
providers = ["verda"]
gpus = ["H100-SXM", "L40S"]

[[model]]
name = "chat"
weights = "meta-llama/Llama-3.1-8B-Instruct"
weight_dtypes = ["bf16"]
kv_dtypes = ["bf16"]
tail_budget = 0.01
[model.traffic]
path = "log.csv"
format = "azure"
rate_per_s = 5
"""


@dataclass(frozen=True)
class Ended:
    returncode: int
    stdout: str
    stderr: str


def run(*arguments: str, cwd: Path, env: dict[str, str] | None = None) -> Ended:
    """The command in this process: a start of its own takes seconds. What is not caught ends the test."""
    out, err = io.StringIO(), io.StringIO()
    with (
        patch.object(sys, "argv", ["planner", *arguments]),
        patch.dict(os.environ, {"COLUMNS": "80", **(env or {})}),
        contextlib.chdir(cwd),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
            code = 0
        except SystemExit as stopped:
            code = int(stopped.code or 0)
    return Ended(code, out.getvalue(), err.getvalue())


def run_by_itself(*arguments: str, cwd: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, with another seed of hashes."""
    return subprocess.run(
        [sys.executable, "-m", "planner", *arguments], cwd=cwd, capture_output=True, text=True, timeout=300,
        env={**os.environ, **(env or {})}, check=False,
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(EXAMPLE / "traffic" / "AzureLLMInferenceTrace_conv.csv", tmp_path / "log.csv")
    (tmp_path / "quarter.toml").write_text(SMALL)
    return tmp_path


def plan(folder: Path, text: str | None = None) -> Ended:
    if text is not None:
        (folder / "quarter.toml").write_text(text)
    return run("plan", "quarter.toml", "-o", "out", "--now", NOW, cwd=folder)


def written(folder: Path) -> list[str]:
    out = folder / "out"
    return sorted(p.name for p in out.iterdir()) if out.exists() else []


def assert_refused(folder: Path, result: Ended, code: int, *words: str) -> None:
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr + result.stdout
    for word in words:
        assert word in result.stderr, result.stderr
    assert written(folder) == []


def test_a_good_request_writes_all_files_and_names_what_binds(folder):
    result = plan(folder)
    assert result.returncode == 0, result.stderr
    assert written(folder) == sorted(FILES)
    assert sorted(FILES) == [
        "focus.csv", "plan.html", "plan.json", "plan.xlsx", "routing.csv", "routing.json", "schedule.csv", "study.json",
    ]  # fmt: skip
    solve = json.loads((folder / "out" / "plan.json").read_text())["solve"]
    assert solve["status"] == "optimal"
    assert 0 <= solve["gap"] <= 0.01
    assert solve["bound"] <= solve["objective"]
    assert "binding" in result.stdout
    assert "Traceback" not in result.stderr


def test_same_inputs_same_bytes(folder):
    by_itself = run_by_itself("plan", "quarter.toml", "-o", "out", "--now", NOW, cwd=folder)
    assert "Traceback" not in by_itself.stderr
    first = [by_itself.returncode, *[(folder / "out" / n).read_bytes() for n in FILES]]
    shutil.rmtree(folder / "out")
    second = [plan(folder).returncode, *[(folder / "out" / n).read_bytes() for n in FILES]]
    assert first == second


def test_typos_are_listed_together(folder):
    text = SMALL.replace("rate_per_s", "rate_per_sec").replace("title", "titel").replace('"vllm"', '"vlm"')
    result = plan(folder, text)
    assert_refused(folder, result, 2, "rate_per_sec", "Did you mean 'rate_per_s'", "titel", "Did you mean 'title'")
    assert "engine.name" in result.stderr


def test_unknown_names_are_listed_together(folder):
    text = SMALL.replace("Llama-3.1-8B-Instruct", "Llama-3.1-8B-Instrukt").replace('"L40S"', '"L40X"')
    assert_refused(folder, plan(folder, text), 2, "Llama-3.1-8B-Instruct")
    assert_refused(folder, plan(folder, SMALL.replace('"L40S"', '"L40X"')), 2, "L40X", "L40S")


def test_unknown_gpu_of_a_model_and_tp_that_does_not_divide(folder):
    text = SMALL.replace("tail_budget = 0.01", 'tail_budget = 0.01\ntp_degrees = [3]\ngpus = ["H100-SMX"]')
    assert_refused(folder, plan(folder, text), 2, "H100-SMX", "H100-SXM", "tp 3 does not divide the 32 attention heads")


def test_degrees_that_do_not_divide_each_other(folder):
    """3 + 5 on 8-GPU nodes cannot be packed by counting GPUs, so such a set is refused."""
    other = (
        SMALL[SMALL.index("[[model]]") :]
        .replace('"chat"', '"code"')
        .replace("Llama-3.1-8B-Instruct", "Llama-3.2-3B-Instruct")
    )
    mixed = SMALL.replace("tail_budget = 0.01", "tail_budget = 0.01\ntp_degrees = [2]") + other.replace(
        "tail_budget = 0.01", "tail_budget = 0.01\ntp_degrees = [3]"
    )
    assert_refused(folder, plan(folder, mixed), 2, "2 and 3 do not divide each other")


@pytest.mark.parametrize("value", ["-1", "0", "nan", "inf", '"five"'])
def test_impossible_rates(folder, value):
    assert_refused(folder, plan(folder, SMALL.replace("rate_per_s = 5", f"rate_per_s = {value}")), 2, "rate_per_s")


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ("", "log.csv"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", "log.csv"),
        (
            "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.97,NaN,10\n2023-11-16 18:17:04.0,-5,8\n",
            "log.csv",
        ),
        ("a,b\n1,2\n", "log.csv"),
    ],
)
def test_logs_without_a_usable_row(folder, content, word):
    (folder / "log.csv").write_text(content)
    assert_refused(folder, plan(folder), 2, word)


def test_missing_files(folder):
    (folder / "log.csv").unlink()
    assert_refused(folder, plan(folder), 2, "log.csv")
    assert_refused(folder, run("plan", "nothing.toml", "-o", "out", cwd=folder), 2, "nothing.toml")
    assert_refused(folder, plan(folder, "not = [valid"), 2, "TOML")


def test_zero_quota_is_infeasible_and_says_what_is_short(folder):
    text = SMALL + '\n[[quota]]\nname = "none of it"\nprovider = "verda"\nmax_gpus = 0\n'
    assert_refused(folder, plan(folder, text), 3, "none of it", "short by 1 GPU")


def test_unreachable_target_names_the_nearest_miss(folder):
    text = SMALL.replace("tail_budget = 0.01", "tail_budget = 0.01\ntargets = { tpot_ms = 0.5 }")
    assert_refused(folder, plan(folder, text), 3, "chat", "TPOT target", "nearest miss")


def test_budget_too_small_says_by_how_much(folder):
    text = SMALL.replace("[quarter]", "budget_usd = 10.0\n[quarter]", 1)
    assert_refused(folder, plan(folder, text), 3, "budget", "short by")


def test_a_price_of_zero_in_the_catalogue(folder):
    copy = folder / "catalogs"
    shutil.copytree(ROOT / "catalogs", copy, ignore=shutil.ignore_patterns("example"))
    prices = copy / "offers" / "verda.csv"
    lines = prices.read_text().splitlines()
    columns = lines[0].split(",")
    cells = lines[1].split(",")
    cells[columns.index("usd_per_h_on_demand")] = "0"
    prices.write_text("\n".join([lines[0], ",".join(cells), *lines[2:]]) + "\n")
    result = run("plan", "quarter.toml", "-o", "out", cwd=folder, env={"PLANNER_CATALOGS": str(copy)})
    assert_refused(folder, result, 2, "verda.csv", "usd_per_h_on_demand")


def test_output_folder_that_cannot_be_made(folder):
    (folder / "file").write_text("x")
    result = run("plan", "quarter.toml", "-o", "file/out", "--now", NOW, cwd=folder)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr


def test_bad_time_stamp(folder):
    result = run("plan", "quarter.toml", "-o", "out", "--now", "yesterday", cwd=folder)
    assert_refused(folder, result, 2, "--now")


def test_targets_that_are_folders_are_found_before_any_work(folder):
    (folder / "out" / "plan.json").mkdir(parents=True)
    result = plan(folder)
    assert result.returncode == 2
    assert "plan.json: is a folder" in result.stderr
    assert written(folder) == ["plan.json"]


def test_an_infeasible_request_leaves_no_empty_folder(folder):
    plan(folder, SMALL.replace("tail_budget = 0.01", "tail_budget = 0.01\ntargets = { tpot_ms = 0.5 }"))
    assert not (folder / "out").exists()


def test_default_folders_do_not_collide():
    assert default_folder(Path("a/quarter.toml")) == Path("reports/a")
    assert default_folder(Path("a/other.toml")) == Path("reports/a-other")


def test_json_goes_to_standard_output(folder):
    result = run("plan", "quarter.toml", "-o", "out", "--now", NOW, "--json", cwd=folder)
    assert json.loads(result.stdout) == json.loads((folder / "out" / "plan.json").read_text())


def test_a_horizon_that_is_over(folder):
    result = run("plan", "quarter.toml", "-o", "out", "--now", "2028-01-01T00:00:00Z", cwd=folder)
    assert_refused(folder, result, 2, "the horizon is already over")


def test_prices_later_than_the_plan_are_not_used(folder):
    result = run("plan", "quarter.toml", "-o", "out", "--now", "2019-01-01T00:00:00Z", cwd=folder)
    assert_refused(folder, result, 2, "no offer can be used")


def test_a_full_disk_ends_in_one_line(folder):
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            [sys.executable, "-m", "planner", "catalog", "list", "gpus"],
            cwd=folder,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert result.returncode == 1
    assert "Traceback" not in result.stderr


def test_ascii_terminals_get_an_answer(folder):
    env = {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    result = run_by_itself("size", "Qwen/Qwen3-32B", "--gpu", "H200-SXM", cwd=folder, env=env)
    assert result.returncode == 0, result.stderr
