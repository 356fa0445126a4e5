"""`planner check-log`: predicted against logged, the term that is off, exit codes, and calibration."""

from __future__ import annotations

import gzip
import json
import os
import re
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from planner.memory.calibration import read_calibration
from planner.memory.starts.startup_log import read_log
from planner.plan import plan_to_json
from tests.report.sample import sample_plan

LOGS = Path(__file__).parents[1] / "data" / "logs"
LLAMA = str(LOGS / "vllm-0.31.0-llama-3.1-8b.log")
WITHOUT_GPU = str(LOGS / "vllm-0.10.1.1-qwen2-7b-tp2-wrapped.log")
LLAMA_8B = ["--model", "meta-llama/Llama-3.1-8B-Instruct", "--engine-version", "0.31.0"]


@pytest.fixture
def run(planner: Any) -> Any:
    """`planner check-log`."""
    return partial(planner, "check-log")


def doctored(tmp_path: Path, *changes: tuple[str, str]) -> str:
    """The log of Llama-3.1-8B with figures changed."""
    text = Path(LLAMA).read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / "serve.log"
    path.write_text(text, encoding="utf-8")
    return str(path)


def exact(run: Any, tmp_path: Path) -> str:
    """The log that the prediction itself would print."""
    data = json.loads(run(LLAMA, *LLAMA_8B, "--json")[1])
    figures = {line["name"]: line["predicted"] for line in data["comparisons"]}
    return doctored(
        tmp_path,
        ("Model loading took 15.0 GiB", f"Model loading took {figures['weights']:.2f} GiB"),
        ("15.26 GiB for consumed", f"{figures['weights and memory outside PyTorch']:.2f} GiB for consumed"),
        ("1.44 GiB for peak", f"{figures['activation peak, with CUDA graphs']:.2f} GiB for peak"),
        ("56.21 GiB", f"{figures['available for KV']:.2f} GiB"),
        ("460,496", f"{figures['GPU KV cache size']:,.0f}"),
    )


def test_a_log_that_was_predicted_exits_0(run: Any, tmp_path: Path) -> None:
    code, out, err = run(exact(run, tmp_path), *LLAMA_8B)
    assert (code, err) == (0, "")
    assert "Everything is within a tenth." in out
    for name in ("GPU memory", "budget", "weights", "activation peak", "available for KV", "GPU KV cache size"):
        assert name in out


@pytest.mark.parametrize(
    ("old", "new", "off"),
    [
        ("Model loading took", r"Model loading took 20.0 GiB memory and 5 #", "weights"),
        ("GiB for peak activation", "9.5 GiB for peak activation", "activation peak, with CUDA graphs"),
        ("GiB for consumed memory", "21.0 GiB for consumed memory", "weights and memory outside PyTorch"),
        ("tokens, Maximum", "999,999 tokens, Maximum", "cache of a token"),
    ],
)
def test_the_term_that_is_off_is_named_and_exits_3(run: Any, tmp_path: Path, old: str, new: str, off: str) -> None:
    path = Path(exact(run, tmp_path))
    text = re.sub(rf"[\d.,]+ (?={re.escape(old)})", "", path.read_text(encoding="utf-8"))
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    code, out, _ = run(str(path), *LLAMA_8B, "--json")
    assert code == 3
    assert json.loads(out)["off"] == [off]


def test_every_worker_is_shown_and_the_tightest_compared(run: Any) -> None:
    code, out, _ = run(str(LOGS / "vllm-0.26.0-glm-5.2-nvfp4-tp4.log"), "--model", "nvidia/GLM-5.2-NVFP4", "--json")
    data = json.loads(out)
    assert set(data["workers"]) == {"TP0", "TP1", "TP2", "TP3"}
    assert (data["gpu"], data["tp"], data["kv"]) == ("GB200", 4, "fp8")
    compared = {line["name"]: line["logged"] for line in data["comparisons"]}
    assert compared["weights"] == 106.69
    assert compared["available for KV"] == 50.62
    assert code == (3 if data["off"] else 0)


def test_a_hybrid_pool_is_predicted_from_its_log(run: Any) -> None:
    code, out, _ = run(str(LOGS / "vllm-0.11.0rc2-gemma-3-27b-docker.log"), "--gpu", "MI300X", "--json")
    compared = {line["name"]: line for line in json.loads(out)["comparisons"]}
    assert compared["GPU KV cache size"]["logged"] == 205_696
    assert abs(compared["GPU KV cache size"]["gap"]) < 0.1
    assert code == 0


def test_without_a_gpu_weights_and_what_the_logged_memory_holds_are_compared(run: Any) -> None:
    code, out, _ = run(WITHOUT_GPU, "--json")
    data = json.loads(out)
    gaps = {line["name"]: line["gap"] for line in data["comparisons"]}
    assert list(gaps) == ["weights", "cache of a token", "blocks", "GPU KV cache size", "maximum concurrency"]
    assert max(abs(gap) for gap in gaps.values()) < 0.01
    assert (code, data["gpu"]) == (0, None)
    assert "unknown GPU" in run(WITHOUT_GPU)[1]


def test_a_plan_tells_what_the_log_leaves_open(run: Any, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    made = sample_plan()
    pool = made.pools[0].model_copy(update={"weights": "Qwen/Qwen2-7B-Instruct", "gpu": "A100-80GB-SXM"})
    plan.write_text(plan_to_json(made.model_copy(update={"pools": (pool,)})), encoding="utf-8")
    _, out, _ = run(WITHOUT_GPU, "--plan", str(plan), "--json")
    data = json.loads(out)
    assert data["gpu"] == "A100-80GB-SXM"
    assert "available for KV" in [line["name"] for line in data["comparisons"]]


def test_sglang_is_compared_too(run: Any) -> None:
    _, out, _ = run(
        str(LOGS / "sglang-2025-02-r1-distill-qwen-7b.log"), "--gpu", "RTX3090", "--model", "Qwen/Qwen2.5-7B", "--json"
    )
    data = json.loads(out)
    compared = {line["name"]: line["logged"] for line in data["comparisons"]}
    assert compared == {
        "weights": pytest.approx(14.39),
        "available for KV": 5.64,
        "cache of a token": pytest.approx(5.64 * 2**20 / 105_531),
        "GPU KV cache size": 105_531,
    }
    assert data["utilization"] == 0.88


def test_a_refusal_that_was_not_predicted_is_off(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "serve.log"
    path.write_text(
        "INFO [api_server.py:1] vLLM API server version 0.31.0\n"
        "INFO [worker.py:1] Free memory on device (78.84/79.25 GiB) on startup.\n"
        "ERROR [core.py:1] ValueError: No available memory for the cache blocks.\n",
        encoding="utf-8",
    )
    code, out, _ = run(str(path), *LLAMA_8B)
    assert code == 3
    assert "which was not predicted" in out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([LLAMA], "--model"),
        ([WITHOUT_GPU, "--calibrate", "measured.toml"], "--gpu"),
        ([LLAMA, "--model", "no/such"], "not in the catalogue"),
        (["/no/such/file.log"], "cannot be read"),
        ([LLAMA, *LLAMA_8B, "--plan", LLAMA], "is no plan"),
        ([LLAMA, *LLAMA_8B, "--gpu", "no-such"], "not in the catalogue"),
    ],
)
def test_what_is_missing_is_said_and_exits_2(run: Any, arguments: list[str], text: str) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert text in err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("vLLM API server version 0.31.0\nModel loading took -3.0 GiB\n", "measures what cannot be"),
        ("vLLM API server version 0.31.0\n", "nothing to calibrate with"),
    ],
)
def test_a_log_without_usable_figures_calibrates_nothing(run: Any, tmp_path: Path, text: str, said: str) -> None:
    log, file = tmp_path / "serve.log", tmp_path / "measured.toml"
    log.write_text(text, encoding="utf-8")
    code, _, err = run(str(log), *LLAMA_8B, "--gpu", "H100-SXM", "--calibrate", str(file))
    assert code == 2
    assert said in err
    assert not file.exists()


@pytest.mark.parametrize("packed", [False, True])
def test_a_log_is_read_from_a_pipe(run: Any, tmp_path: Path, packed: bool) -> None:
    pipe, content = tmp_path / "pipe", Path(LLAMA).read_bytes()
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(gzip.compress(content) if packed else content,))
    writer.start()
    code, out, _ = run(str(pipe), *LLAMA_8B)
    writer.join()
    assert code == 3
    assert "activation peak" in out


def test_endless_phrases_take_no_time(tmp_path: Path) -> None:
    """Looking ahead from each of many beginnings to the end of the line would take minutes."""
    path = tmp_path / "serve.log"
    beginnings = ("Load weight end. ", "KV Cache is allocated. ", "total_gpu_memory=1GiB ", "Capture graph end. ")
    path.write_text("".join(f"INFO GiB {20_000 * text}\n" for text in beginnings), encoding="utf-8")
    started = time.monotonic()
    read_log(path)
    assert time.monotonic() - started < 15


def test_measured_terms_are_written_and_used_first(run: Any, planner: Any, tmp_path: Path) -> None:
    """budget 0.92 x 79.25; less 15.0, 0.26 and 1.44 GiB are 56.21 GiB, which is what the log had."""
    file = tmp_path / "calibration.toml"
    run(LLAMA, *LLAMA_8B, "--calibrate", str(file))
    (start,) = read_calibration(file).starts
    assert (start.weights_gib, start.activation_gib, start.non_torch_gib) == (15.0, 1.44, 0.26)
    assert (start.source, start.gpu_memory_gib) == ("vllm-0.31.0-llama-3.1-8b.log", 79.25)
    size = [
        "meta-llama/Llama-3.1-8B-Instruct", "--gpu", start.gpu, "--engine-version", "0.31.0", "--json",
    ]  # fmt: skip
    _, out, _ = planner("size", *size, "--calibration", str(file))
    data = json.loads(out)
    assert data["available_kv_gib"] == pytest.approx(56.21, abs=0.01)
    assert data["logged_tokens"] == pytest.approx(460_496, rel=0.0005)
    assert {term["origin"] for term in data["terms"][:2]} == {"measured"}
    assert "vllm-0.31.0-llama-3.1-8b.log" in data["terms"][0]["source"]
    _, out, _ = planner("size", *size)
    assert {term["origin"] for term in json.loads(out)["terms"]}.isdisjoint({"measured"})


def test_a_second_log_of_the_same_start_replaces_the_first(run: Any, tmp_path: Path) -> None:
    file = tmp_path / "calibration.toml"
    run(LLAMA, *LLAMA_8B, "--calibrate", str(file))
    run(doctored(tmp_path, ("1.44 GiB", "1.50 GiB")), *LLAMA_8B, "--calibrate", str(file))
    (start,) = read_calibration(file).starts
    assert (start.activation_gib, start.source) == (1.5, "serve.log")
    run(str(LOGS / "vllm-0.11.0rc2-gemma-3-27b-docker.log"), "--gpu", "MI300X", "--calibrate", str(file))
    assert len(read_calibration(file).starts) == 2


def test_a_plan_is_compared_with_its_pool(run: Any, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    made = sample_plan()
    pool = made.pools[0].model_copy(update={"weights": "meta-llama/Llama-3.1-8B-Instruct", "tp": 2})
    plan.write_text(plan_to_json(made.model_copy(update={"pools": (pool,)})), encoding="utf-8")
    _, out, _ = run(LLAMA, *LLAMA_8B, "--plan", str(plan), "--json")
    data = json.loads(out)
    assert any(text.startswith("tp 1 instead of 2") for text in data["differs_from_plan"])
    predicted = {line["name"]: line["predicted"] for line in data["comparisons"]}
    assert predicted["available for KV"] == pool.memory.available_kv_gib
    assert predicted["GPU KV cache size"] == pool.memory.logged_tokens
    other = pool.model_copy(update={"weights": "Qwen/Qwen3-8B"})
    plan.write_text(plan_to_json(made.model_copy(update={"pools": (other,)})), encoding="utf-8")
    code, _, err = run(LLAMA, *LLAMA_8B, "--plan", str(plan))
    assert code == 2
    assert "plans no pool of meta-llama/Llama-3.1-8B-Instruct" in err
