"""``planner ingest`` with metrics and usage reports: what is printed, and what is written."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from planner.cli import main
from planner.traffic.canonical import read

from .engine import answer
from .test_engines import STEPS, values, vllm


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["planner", "ingest", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    return int(caught.value.code or 0)


@pytest.fixture
def metrics(tmp_path: Path) -> Path:
    labels = {"model_name": "llama", "engine": "0"}
    series = [
        *vllm(),
        values("vllm:kv_cache_usage_perc", [0.25] * STEPS, **labels),
        values("vllm:cache_config_info", [1.0] * STEPS, engine="0", num_gpu_blocks="1000", block_size="16"),
    ]
    path = tmp_path / "vllm.json"
    path.write_text(json.dumps(answer(series), indent=2))
    return path


def test_metrics_are_told_from_logs_and_reported(
    metrics: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, str(metrics), "-o", str(tmp_path / "out")) == 0
    printed = " ".join(capsys.readouterr().out.split())
    for words in (
        "720 rows read, 720 kept",
        "marginals only: which prompts have which outputs is not known",
        "must be stated if they matter (option idc)",
        "measured live tokens (vllm_kv_cache_usage_perc, 1 replica): mean 4,000",
        "mean of the squared prompts is a guess",
        "the largest is one too, and may be",
    ):
        assert words in printed
    assert read(tmp_path / "out").manifest.kind == "marginals"


def test_two_runs_write_the_same_bytes(metrics: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        assert run(monkeypatch, str(metrics), "-o", str(tmp_path / name), "--format", "prometheus") == 0
    first, second = ({p.name: p.read_bytes() for p in (tmp_path / name).iterdir()} for name in ("a", "b"))
    assert first == second


def test_sums_are_reported_without_lengths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "daily.csv"
    path.write_text(
        "date,model,prompt_tokens,completion_tokens,successful_requests,failed_requests\n2026-09-03,llama,5000,600,10,2\n"
    )
    assert run(monkeypatch, str(path), "-o", str(tmp_path / "out"), "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["kind"] == "sums"
    assert report["models"]["llama"] == {
        "requests": 10,
        "offered_rate_per_s": pytest.approx(12 / 86_400),
        "mean_prompt_tokens": 500.0,
        "mean_output_tokens": 60.0,
    }
    assert run(monkeypatch, str(path), "-o", str(tmp_path / "out")) == 0
    assert "nothing can be planned from it alone" in " ".join(capsys.readouterr().out.split())


def test_an_unknown_format_lists_all(
    metrics: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, str(metrics), "-o", str(tmp_path / "out"), "--format", "prometeus") == 2
    printed = capsys.readouterr().err
    for name in ("prometheus", "metrics-text", "grafana-csv", "openai-usage", "azure"):
        assert name in printed
    assert not (tmp_path / "out").exists()
