from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from planner.catalog.load import load_catalog
from planner.cli import app
from planner.cli.catalog import show_entry
from planner.errors import InputError

BOOK = ["--utilization", "0.92", "--weights-gib", "14.96", "--overhead-gib", "6.0"]
LLAMA_8B = ["meta-llama/Meta-Llama-3.1-8B", "--gpu", "H100-SXM"]


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
    for text in ("weights", "activation peak", "CUDA graphs", "computed", "fitted", "8,030,261,248 parameters", "GQA"):
        assert text in out
    assert "vllm serve meta-llama/Meta-Llama-3.1-8B --tensor-parallel-size 1 --max-model-len 8192" in out


def test_a_refusal_prints_everything_and_exits_3(run: Any) -> None:
    """Fixes in the order of what they cost: length, cache, weights, GPUs, and the share of memory last."""
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
    assert [change.split()[0] for change in changes] == [
        "cap", "fp8", "fp8", "int4", "2", "gpu_memory_utilization"
    ]  # fmt: skip
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
    weights = ("--weights-gb", "16.060522496")
    arguments = (*LLAMA_8B, "--utilization", "0.92", "--gpu-memory-gb", "80", "--overhead-gb", "3", *weights)
    code, out, _ = run(*arguments, "--max-model-len", "8192", "--json")
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
        ([*LLAMA_8B, "--engine-version", "0.1.0"], "or newer"),
        ([*LLAMA_8B, "--utilization", "1.5"], "utilization"),
        (["RWKV/rwkv-5-world-3b", "--gpu", "H100-SXM"], "RWKV"),
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


def test_every_problem_is_reported_at_once_with_the_option_that_was_typed(run: Any) -> None:
    typed = ["many.json", "--gpu", "NOPE", "--engine-version", "abc", "--utilization", "7", "--max-num-seqs", "0"]
    typed += ["--weights-gb", "1e308", "--gpu-memory-mib", "nan", "--overhead-gb", "1", "--overhead-gib", "1"]
    code, out, err = run(*typed)
    assert (code, out) == (2, "")
    lines = err.splitlines()
    assert lines[0] == "planner: input cannot be used (8 problems)"
    places = ["--overhead-gb", "--max-num-seqs", "--utilization", "--gpu-memory-mib", "--weights-gb"]
    places += ["--gpu NOPE", "--engine-version", "model 'many.json'"]
    assert [line.split(":")[0] for line in lines[1:]] == places
    assert "1e+308" in err


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--gpu-memory-gib", "1e308"),
        ("--gpu-memory-gb", "inf"),
        ("--weights-gib", "1e308"),
        ("--overhead-gib", "nan"),
        ("--max-num-batched-tokens", "9" * 300),
        ("--max-model-len", str(2**31)),
        ("--tp", "-3"),
    ],
    ids=lambda value: value[:24],
)
def test_numbers_out_of_range_name_their_option(run: Any, option: str, value: str) -> None:
    code, _, err = run(*LLAMA_8B, option, value)
    assert code == 2
    assert err.splitlines()[1].startswith(f"{option}: must be ")


@pytest.mark.parametrize(("engine", "version", "used"), [("vllm", "99.0", "0.33.0"), ("sglang", "0.33.0", "0.5.23")])
def test_a_version_that_is_not_listed_is_told(run: Any, engine: str, version: str, used: str) -> None:
    arguments = (*LLAMA_8B, "--engine", engine, "--engine-version", version)
    text = f"engine facts of {engine} {used} are used for {version}"
    assert f"Note: {text}" in run(*arguments)[1]
    data = json.loads(run(*arguments, "--json")[1])
    assert data["notes"][0].startswith(text)
    assert (data["engine_version"], data["engine_version_asked"]) == (used, version)


def test_a_listed_version_is_not_noted(run: Any) -> None:
    assert "engine facts" not in run(*LLAMA_8B, "--engine-version", "v0.33")[1]


def test_a_refused_deployment_prints_the_command_of_the_first_fix_only(run: Any) -> None:
    arguments = (*LLAMA_8B, "--max-model-len", "999999")
    code, out, _ = run(*arguments)
    assert code == 3
    assert "Does not start as asked" in out
    assert "at most 131072" in out
    assert "at most 4" not in out
    lines = out.rstrip().splitlines()
    assert lines[-2] == "Starts with cap max_model_len at 131,072:"
    assert "--max-model-len 131072 " in lines[-1]
    assert out.count("vllm serve") == 1
    data = json.loads(run(*arguments, "--json")[1])
    assert data["launch_command"] is None
    assert data["fixes"][0]["launch_command"] == lines[-1]


def test_without_a_fix_there_is_no_command(run: Any) -> None:
    code, out, _ = run("deepseek-ai/DeepSeek-V3", "--gpu", "T4", "--weights", "fp8")
    assert code == 3
    assert "vllm serve" not in out
    assert "larger GPU" in out


def test_gpu_memory_as_nvidia_smi_prints_it(run: Any) -> None:
    """81,559 MiB are exact where 79.65 GiB are rounded by a block."""
    arguments = (*LLAMA_8B, *BOOK, "--max-model-len", "8192", "--json")
    assert json.loads(run(*arguments, "--gpu-memory-mib", "81559")[1])["num_blocks"] == 26_785
    assert json.loads(run(*arguments, "--gpu-memory-gib", "79.65")[1])["num_blocks"] == 26_786


def test_tokens_before_and_after_rounding_to_blocks_are_both_shown(run: Any) -> None:
    weights = ("--weights-gb", "16.060522496")
    arguments = (*LLAMA_8B, "--utilization", "0.92", "--gpu-memory-gb", "80", "--overhead-gb", "3", *weights)
    data = json.loads(run(*arguments, "--max-model-len", "8192", "--json")[1])
    assert (data["available_tokens"], data["pool_tokens"]) == (416_103, 416_096)
    out = run(*arguments, "--max-model-len", "8192")[1]
    assert re.search(r"tokens of the available memory\s+.\s+416,103", out)
    assert re.search(r"pool, tokens in whole blocks\s+.\s+416,096", out)
    halved = json.loads(run(*arguments, "--kv", "fp8", "--max-model-len", "8192", "--json")[1])
    assert halved["available_tokens"] == 832_206


def test_an_alias_is_served_under_its_own_id(run: Any) -> None:
    arguments = ("meta-llama/Llama-3.3-70B-Instruct", "--gpu", "H200-SXM", "--tp", "2", "--max-model-len", "8192")
    code, out, _ = run(*arguments)
    assert code == 0
    assert "read as meta-llama/Llama-3.1-70B-Instruct" in out
    assert "vllm serve meta-llama/Llama-3.3-70B-Instruct " in out


BAD_FILES = {
    "infinity": '{"model_type": "llama", "hidden_size": Infinity}',
    "layers": '{"model_type": "llama", "num_hidden_layers": 1' + "0" * 30 + "}",
    "rope": '{"model_type": "llama", "rope_scaling": "x"}',
    "positions": '{"model_type": "llama", "max_position_embeddings": "x"}',
    "nested": "[" * 100_000,
    "type alone": '{"model_type": "qwen2"}',
}


@pytest.mark.parametrize("content", BAD_FILES.values(), ids=BAD_FILES)
@pytest.mark.parametrize("command", ["size", "show"])
def test_a_bad_config_file_is_bad_input(run: Any, tmp_path: Path, content: str, command: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(content, encoding="utf-8")
    if command == "size":
        code, _, err = run(str(path), "--gpu", "H100-SXM")
        assert code == 2
        assert str(path) in err
    else:
        with pytest.raises(InputError, match=r"bad\.json"):
            show_entry(str(path))


def test_option_names_are_whole_in_the_help_of_a_narrow_terminal() -> None:
    result = CliRunner().invoke(app, ["size", "--help"], env={"COLUMNS": "80", "TERM": "dumb"})
    assert result.exit_code == 0
    assert {"--max-num-batched-tokens", "--gpu-memory-mib", "--engine-version"} <= set(result.output.split())
    assert "…" not in result.output
