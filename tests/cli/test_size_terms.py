"""Optional terms of `planner size`: adapters, drafts, host memory, shared prefixes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

CONFIGS = Path(__file__).parents[2] / "catalogs" / "models"
LLAMA_8B = ["meta-llama/Meta-Llama-3.1-8B", "--gpu", "H100-SXM", "--max-model-len", "8192"]
DRAFT = ["--speculative", "draft:3", "--draft-model", "meta-llama/Llama-3.2-1B-Instruct"]


def test_options_are_terms_and_flags(run: Any) -> None:
    code, out, _ = run(*LLAMA_8B, "--lora", "4:16", *DRAFT, "--cpu-offload-gib", "2", "--json")
    data = json.loads(out)
    assert code == 0
    assert [term["name"] for term in data["terms"][:3]] == ["weights", "LoRA adapters", "draft weights"]
    assert "less 2.00 GiB in host memory" in data["terms"][0]["source"]
    for flag in (
        "--enable-lora",
        "--max-loras 4",
        "--max-lora-rank 16",
        "--cpu-offload-gb 2",
        "meta-llama/Llama-3.2-1B",
    ):
        assert flag in data["launch_command"]


def test_figures_stand_beside_the_pool(run: Any) -> None:
    plain = json.loads(run(*LLAMA_8B, "--json")[1])
    data = json.loads(run(*LLAMA_8B, "--prefix-hit-share", "0.4", "--kv-offload-gib", "20", "--json")[1])
    assert data["pool_tokens"] == plain["pool_tokens"]
    assert plain["beside_the_pool"] == []
    assert [figure["name"] for figure in data["beside_the_pool"]] == ["effective pool", "second tier in host memory"]
    assert data["beside_the_pool"][0]["tokens"] == int(plain["pool_tokens"] / 0.6)
    assert "effective pool:" in run(*LLAMA_8B, "--prefix-hit-share", "0.4")[1]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--speculative", "medusa:3"], "Choose one of mtp, eagle, draft"),
        (["--speculative", "draft:3"], "draft needs --draft-model"),
        (["--speculative", "mtp:1", "--draft-model", "Qwen/Qwen3-0.6B"], "mtp takes no --draft-model"),
        (["--draft-model", "Qwen/Qwen3-0.6B"], "needs --speculative draft:N"),
        (["--speculative", "draft:3", "--draft-model", "Qwen/Qwen3-0.6"], "Qwen/Qwen3-0.6B"),
        (["--prefix-hit-share", "1"], "--prefix-hit-share: must be from 0 to below 1"),
        (["--cpu-offload-gib", "-1"], "--cpu-offload-gib: must be from 0"),
        (["--host-memory-gib", "0"], "--host-memory-gib: must be above 0"),
        (["--lora", "4"], "--lora"),
    ],
)
def test_wrong_options_exit_2_and_say_what_to_do(run: Any, arguments: list[str], text: str) -> None:
    code, _, err = run(*LLAMA_8B, *arguments)
    assert code == 2
    assert text in err


def test_every_reason_is_printed(run: Any) -> None:
    """Heads, context ranks and the cache's format, each with the engine's words, and a fix of each."""
    code, out, _ = run("Qwen/Qwen2.5-7B-Instruct", "--gpu", "T4", "--tp", "8", "--dcp", "3", "--kv", "fp8", "--json")
    refusals = json.loads(out)["refusals"]
    assert code == 3
    rules = {refusal["rule"] for refusal in refusals}
    assert {"attention heads % tp", "decode context parallelism", "fp8 KV support"} <= rules
    assert all(refusal["message"] and refusal["fix"] for refusal in refusals)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--page-size", "16", "--dp-attention", "2"],
            ["--page-size: is an option of sglang", "--dp-attention: is an"],
        ),
        (["--engine", "sglang", "--block-size", "16"], ["--block-size: is an option of vllm, not of sglang"]),
        (["--dtype", "float8"], ["--dtype: 'float8' is no precision"]),
    ],
)
def test_options_that_the_engine_does_not_have_are_refused(run: Any, arguments: list[str], said: list[str]) -> None:
    code, out, err = run(*LLAMA_8B, *arguments)
    assert (code, out) == (2, "")
    for text in said:
        assert text in err


@pytest.mark.parametrize(("kv", "found"), [([], "fp8"), (["--kv", "auto"], "fp8"), (["--kv", "bf16"], "bf16")])
def test_sglangs_auto_takes_the_declared_cache(run: Any, kv: list[str], found: str) -> None:
    """Llama-3.1-70B at tp 4: 80 layers x 2 x 2 heads x 128 elements of 1 or 2 bytes."""
    typed = ["nvidia/Llama-3.1-70B-Instruct-FP8", "--gpu", "H100-SXM", "--tp", "4", "--engine", "sglang", "--json"]
    code, out, _ = run(*typed, *kv)
    data = json.loads(out)
    assert code == 0
    assert (data["kv"], data["bytes_per_token"]) == (found, 80 * 2 * 2 * 128 * (1 if found == "fp8" else 2))


def test_a_tower_without_its_width_is_no_crash(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    config = json.loads((CONFIGS / "Qwen--Qwen3-VL-32B-Instruct.json").read_text(encoding="utf-8"))
    config["vision_config"]["hidden_size"] = None
    path.write_text(json.dumps(config), encoding="utf-8")
    code, _, err = run(str(path), "--gpu", "H200-SXM")
    assert code != 1
    assert "internal error" not in err
