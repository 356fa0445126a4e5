from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from planner.traffic.canonical import write
from planner.traffic.ingest import Order, ingest

Run = Callable[..., tuple[int, str, str]]
LOG = Path(__file__).parents[2] / "catalogs" / "example" / "traffic" / "AzureLLMInferenceTrace_code.csv"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("traffic") / "code"
    write(ingest(Order((LOG,))), path)
    return path


def test_a_trace_is_written_and_described(folder: Path, tmp_path: Path, planner: Run) -> None:
    output = tmp_path / "trace.jsonl"
    asked = ("traffic", "export", str(folder), "-o", str(output), "--requests", "300", "--seed", "5")
    code, out, _ = planner(*asked, "--json")
    assert code == 0
    report = json.loads(out)
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert (len(rows), report["requests"], report["format"]) == (300, 300, "mooncake")
    assert report["mean_prompt_tokens"] == pytest.approx(sum(row["input_length"] for row in rows) / 300)
    assert max(row["timestamp"] for row in rows) < report["stretch_minutes"] * 60_000
    assert [path.name for path in tmp_path.iterdir()] == ["trace.jsonl"]
    code, out, _ = planner(*asked)
    assert (code, f"Written to {output}" in out.replace("\n", "")) == (0, True)


def test_nothing_is_written_when_it_fails(folder: Path, tmp_path: Path, planner: Run) -> None:
    output = tmp_path / "trace.jsonl"
    for arguments, message in (
        ((folder, "-o", output, "--requests", 10**6), "fewer than 1,000,000"),
        ((folder, "-o", tmp_path), "is a folder"),
        ((folder, "-o", tmp_path / "no" / "trace.jsonl"), "cannot be written"),
        ((tmp_path / "nothing", "-o", output), "no such folder"),
        ((folder, "-o", output, "--model", "nope"), "'nope' is not in the distribution"),
    ):
        code, _, err = planner("traffic", "export", *map(str, arguments))
        assert (code, message in err.replace("\n", " ")) == (2, True), err
    assert list(tmp_path.iterdir()) == []
