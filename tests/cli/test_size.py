from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from planner.catalog.load import load_catalog
from planner.cli import main

BOOK = ["--utilization", "0.92", "--weights-gib", "14.96", "--overhead-gib", "6.0"]
LLAMA_8B = ["meta-llama/Meta-Llama-3.1-8B", "--gpu", "H100-SXM"]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["planner", "size", *arguments])
        monkeypatch.setenv("COLUMNS", "160")
        try:
            main()
            code = 0
        except SystemExit as stopped:
            code = int(stopped.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return run


def test_the_published_worked_example_is_exact(run: Any) -> None:
    code, out, _ = run(*LLAMA_8B, *BOOK, "--max-model-len", "8192", "--json")
    data = json.loads(out)
    assert code == 0
    assert (data["num_blocks"], data["pool_tokens"], data["logged_tokens"]) == (26_785, 428_560, 428_560)
    assert f"{data['max_concurrency']:.2f}" == "52.31"
    assert data["bytes_per_token"] == 131_072
    assert data["family"] == "GQA"
    assert data["starts"] is True
    assert data["refusals"] == []
    assert "nvidia-smi total" in data["gpu_memory"]["source"]


def test_every_term_is_printed_with_origin_and_source(run: Any) -> None:
    code, out, _ = run(*LLAMA_8B, "--max-model-len", "8192")
    assert code == 0
    for text in ("weights", "activation peak", "CUDA graphs", "computed", "guess", "8,030,261,248 parameters", "GQA"):
        assert text in out
    assert "vllm serve meta-llama/Meta-Llama-3.1-8B --tensor-parallel-size 1 --max-model-len 8192" in out


def test_a_refusal_prints_everything_and_exits_3(run: Any) -> None:
    """Fixes in the order of what they cost: length, cache, weights, GPUs."""
    arguments = [
        "meta-llama/Meta-Llama-3.1-8B", "--gpu", "RTX4090", "--utilization", "0.9",
        "--gpu-memory-gib", "23.5", "--weights-gib", "14.96", "--overhead-gib", "3.36",
    ]  # fmt: skip
    code, out, _ = run(*arguments, "--json")
    data = json.loads(out)
    assert code == 3
    assert data["starts"] is False
    assert "16.00 GiB KV cache is needed" in data["refusals"][0]["message"]
    changes = [fix["change"] for fix in data["fixes"]]
    assert [change.split()[0] for change in changes] == ["cap", "fp8", "fp8", "int4", "2"]
    assert data["fixes"][0]["max_model_len"] == pytest.approx(23_184, rel=0.01)
    assert "--kv-cache-dtype fp8" in data["fixes"][1]["launch_command"]
    assert "--quantization fp8" in data["fixes"][2]["launch_command"]
    code, out, _ = run(*arguments)
    assert code == 3
    assert "Does not start" in out
    assert "cap max_model_len" in out
    assert "available for KV" in out


def test_all_reasons_are_listed(run: Any) -> None:
    arguments = ("Qwen/Qwen2.5-7B-Instruct", "--gpu", "H100-SXM", "--tp", "8", "--max-model-len", "999999", "--json")
    code, out, _ = run(*arguments)
    assert code == 3
    rules = [refusal["rule"] for refusal in json.loads(out)["refusals"]]
    assert rules == ["attention heads % tp", "model's longest context"]


def test_gigabytes_are_not_gibibytes(run: Any) -> None:
    """80 GB x 0.92 − 16.06 − 3.0 GB leave 416,103 tokens."""
    arguments = (*LLAMA_8B, "--utilization", "0.92", "--gpu-memory-gb", "80", "--overhead-gb", "3", "--json")
    code, out, _ = run(*arguments, "--max-model-len", "8192")
    assert code == 0
    assert json.loads(out)["available_tokens"] == 416_103


def test_a_term_cannot_be_typed_in_both_units(run: Any) -> None:
    code, _, err = run(*LLAMA_8B, "--weights-gb", "16", "--weights-gib", "15")
    assert code == 2
    assert "--weights-gib" in err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["meta-llama/Meta-Llama-3.1-8B", "--gpu", "H100-SMX"], "H100-SXM"),
        (["meta-llama/Meta-Llama-31-8B", "--gpu", "H100-SXM"], "meta-llama/Meta-Llama-3.1-8B"),
        ([*LLAMA_8B, "--engine-version", "0.1.0"], "0.11.0"),
        ([*LLAMA_8B, "--utilization", "1.5"], "utilization"),
        (["nvidia/Qwen3-235B-A22B-NVFP4", "--gpu", "H100-SXM"], "NVFP4"),
        (["BAAI/bge-large-en-v1.5", "--gpu", "H100-SXM"], "encoder"),
    ],
)
def test_bad_input_exits_2_and_says_what_to_do(run: Any, arguments: list[str], text: str) -> None:
    code, _, err = run(*arguments)
    assert code == 2
    assert text in err
    assert "Traceback" not in err


def test_a_config_file_may_be_given(run: Any, tmp_path: Path) -> None:
    source = load_catalog()
    file = source.root / "models" / source.model_sources["Qwen/Qwen3-1.7B"].file
    (tmp_path / "config.json").write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
    code, out, _ = run(str(tmp_path / "config.json"), "--gpu", "L4", "--max-model-len", "4096", "--json")
    assert code == 0
    data = json.loads(out)
    assert data["bytes_per_token"] == 28 * 8 * 128 * 2 * 2
    assert data["launch_command"].startswith(f"vllm serve {tmp_path} ")


def test_sglang_command_and_pool(run: Any) -> None:
    code, out, _ = run(*LLAMA_8B, *BOOK, "--engine", "sglang", "--kv", "fp8", "--max-model-len", "8192", "--json")
    data = json.loads(out)
    assert code == 0
    assert data["pool_tokens"] == 857_139
    command = data["launch_command"]
    assert command.startswith("python -m sglang.launch_server --model-path meta-llama/Meta-Llama-3.1-8B --tp-size 1")
    assert "--mem-fraction-static 0.92" in command
    assert "--kv-cache-dtype fp8_e4m3" in command


def test_weights_that_cannot_be_typed_come_from_the_checkpoint(run: Any) -> None:
    """An fp8 checkpoint with an fp8 cache declared: the engine's auto is followed by version."""
    arguments = ("nvidia/Llama-3.1-70B-Instruct-FP8", "--gpu", "H200-SXM", "--max-model-len", "8192", "--json")
    newer = json.loads(run(*arguments, "--engine-version", "0.19.0")[1])
    older = json.loads(run(*arguments, "--engine-version", "0.11.0")[1])
    assert (newer["weights"], newer["kv"], older["kv"]) == ("fp8", "fp8", "bf16")
    assert "--quantization" not in newer["launch_command"]
    explicit = json.loads(run(*arguments, "--kv", "bf16")[1])
    assert "--kv-cache-dtype bfloat16" in explicit["launch_command"]


def test_a_format_the_checkpoint_does_not_have_is_a_placeholder(run: Any) -> None:
    data = json.loads(run(*LLAMA_8B, "--weights", "int4-awq", "--max-model-len", "8192", "--json")[1])
    assert "'<int4-awq checkpoint of meta-llama/Meta-Llama-3.1-8B>'" in data["launch_command"]
