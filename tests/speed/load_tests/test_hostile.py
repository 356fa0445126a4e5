"""Files in any state: no traceback, no point from figures that are none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from planner.errors import InputError
from planner.speed.load_tests.checks import Rejected, judged
from planner.speed.load_tests.formats import FORMATS, format_of, named
from planner.speed.load_tests.types import Format

FILES = {
    "vllm-bench": "vllm_bench.json",
    "guidellm": "guidellm.json",
    "inference-perf": "inference_perf/stage_0_lifecycle_metrics.json",
    "aiperf": "aiperf_loadgen.json",
    "genai-perf": "genai_perf.json",
    "vllm-sweep": "vllm_sweep/20260110_101500/SERVE--tensor_parallel_size=1-BENCH--max_concurrency=16/run=0.json",
}
MESSES: dict[str, Any] = {
    "text": "n/a",
    "negative": -1.0,
    "nan": float("nan"),
    "infinite": float("inf"),
    "list": [1, 2],
    "object": {"a": 1},
    "true": True,
    "huge": 10**400,
}


def spoilt(document: Any, mess: Any) -> Any:
    """Every figure of a document replaced."""
    if isinstance(document, dict):
        return {key: spoilt(value, mess) for key, value in document.items()}
    if isinstance(document, list):
        return [spoilt(value, mess) for value in document]
    return mess if isinstance(document, int | float) and not isinstance(document, bool) else document


def tool(name: str) -> Format:
    found = named(name)
    assert found is not None
    return found


@pytest.mark.parametrize("mess", MESSES)
@pytest.mark.parametrize("name", FILES)
def test_spoilt_figures_give_no_point(data: Path, tmp_path: Path, name: str, mess: str) -> None:
    file = tmp_path / "x.json"
    file.write_text(json.dumps(spoilt(json.loads((data / FILES[name]).read_text()), MESSES[mess])))
    found = tool(name).read(file)
    assert all(isinstance(judged(run), Rejected) for run in found.runs)
    assert found.runs or found.rejected or found.skipped
    if mess in ("nan", "negative", "infinite"):
        words = {"nan": "nan", "negative": "negative", "infinite": "inf"}[mess]
        assert all(words in one.reason for one in found.rejected)
        assert found.rejected or found.skipped


@pytest.mark.parametrize("name", FILES)
def test_members_of_the_wrong_kind(data: Path, tmp_path: Path, name: str) -> None:
    """Every member in turn is a text, a list, an object, or gone."""
    document = json.loads((data / FILES[name]).read_text())
    file = tmp_path / "x.json"
    for key in document:
        for value in ("text", [], {}, [1], {"avg": {}}, None, 0):
            file.write_text(json.dumps({**document, key: value}))
            for run in tool(name).read(file).runs:
                judged(run)
        file.write_text(json.dumps({other: value for other, value in document.items() if other != key}))
        for run in tool(name).read(file).runs:
            judged(run)


@pytest.mark.parametrize("name", [*FILES, "sglang"])
def test_cut_off_at_any_place(data: Path, tmp_path: Path, name: str) -> None:
    text = (data / FILES.get(name, "sglang.jsonl")).read_text().strip()
    file = tmp_path / "x.json"
    for at in range(1, len(text) - 1, max(1, len(text) // 40)):
        if text[:at].endswith("}\n"):
            continue
        file.write_text(text[:at])
        with pytest.raises(InputError) as caught:
            tool(name).read(file)
        assert "cut off" in str(caught.value) or "is no JSON" in str(caught.value)


@pytest.mark.parametrize("known", FORMATS, ids=[one.name for one in FORMATS])
@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b"null", b"3", b'"a"', b"[[1]]", b"[{}]", b"{}\n{}", b"[" * 100_000, b"\xff\xfe{"]
)
def test_any_format_survives_anything(tmp_path: Path, known: Format, content: bytes) -> None:
    file = tmp_path / "x.json"
    file.write_bytes(content)
    with pytest.raises(InputError):
        known.read(tmp_path / "none.json")
    try:
        found = known.read(file)
    except InputError:
        return
    assert all(isinstance(judged(run), Rejected) for run in found.runs)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"  \n ", "is empty"),
        (b"\x1f\x8b\x08\0\0\0", "is no text"),
        (b"<!DOCTYPE html><html><body>502 Bad Gateway", "is a web page"),
        (b"<html>", "is a web page"),
    ],
)
def test_what_is_no_result_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "x.json"
    file.write_bytes(content)
    with pytest.raises(InputError, match=message):
        format_of(file)


def test_many_lines_of_something_else_are_not_read_through(tmp_path: Path) -> None:
    file = tmp_path / "requests.jsonl"
    with file.open("w") as out:
        for number in range(200_000):
            out.write(f'{{"timestamp": {number}, "input_length": 7}}\n')
    assert format_of(file) is None


def test_details_of_every_request_are_passed_over(changed: Callable[..., Path], data: Path) -> None:
    """--save-detailed puts long lists between the load and the results."""
    plain = tool("vllm-bench").read(data / "vllm_bench.json").runs[0]
    file = changed("vllm_bench.json", ttfts=[0.1] * 100_000, errors=[""] * 100_000, generated_texts=["<html>"] * 9)
    assert format_of(file) is tool("vllm-bench")
    assert tool("vllm-bench").read(file).runs[0].digest == plain.digest


def test_none_completed_is_said(changed: Callable[..., Path]) -> None:
    zeros = dict.fromkeys(("completed", "total_input_tokens", "total_output_tokens", "request_throughput"), 0)
    run = tool("vllm-bench").read(changed("vllm_bench.json", **zeros, failed=160, mean_ttft_ms=0.0)).runs[0]
    verdict = judged(run)
    assert isinstance(verdict, Rejected)
    assert verdict.reason == "no request completed"


def test_falling_percentiles_are_refused(changed: Callable[..., Path]) -> None:
    found = tool("vllm-bench").read(changed("vllm_bench.json", p99_tpot_ms=1.0))
    assert "is above a higher percentile" in found.rejected[0].reason


def test_every_wrong_field_is_named(changed: Callable[..., Path]) -> None:
    file = changed("vllm_bench.json", mean_ttft_ms="fast", p99_tpot_ms=-3, output_throughput=float("nan"))
    (rejected,) = tool("vllm-bench").read(file).rejected
    expected = {"output_throughput is nan", "mean_ttft_ms is 'fast', not a number", "p99_tpot_ms is negative: -3"}
    assert set(rejected.reason.split("; ")) == expected
