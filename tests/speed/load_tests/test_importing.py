"""Files and folders together: order, repeats, what is skipped, and problems said once."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from planner.catalog.lookup.lookup import Lookup
from planner.errors import InputError
from planner.memory.types import KvDtype, WeightDtype
from planner.speed.load_tests.formats import named
from planner.speed.load_tests.identity import Given
from planner.speed.load_tests.importing import OTHER, REPEATS, import_points
from planner.speed.load_tests.vllm_sweep import WARM_UP
from planner.speed.points import LoadKind


def problems(lookup: Lookup, given: Given, *paths: Path, tool: str = "auto") -> list[str]:
    with pytest.raises(InputError) as caught:
        import_points(paths, given, lookup, named(tool))
    return [str(problem) for problem in caught.value.problems]


def test_sweep_gives_each_run_once(lookup: Lookup, data: Path) -> None:
    """Two runs at each of two degrees; the summaries list them again, one warm-up and one failure are no runs."""
    given = Given(gpu="H100", weights=WeightDtype.BF16, kv=KvDtype.BF16)
    found = import_points([data / "vllm_sweep"], given, lookup)
    assert [record.served.tp for record in found.records] == [1, 1, 2, 2]
    assert [record.tpot.mean_ms for record in found.records] == [22.0, 22.1, 13.0, 13.1]
    assert found.skipped == {WARM_UP: 1, REPEATS: 8}
    assert ["the run failed" in one.reason for one in found.rejected] == [True]


def test_same_file_twice_is_reported(lookup: Lookup, given: Given, data: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.json"
    shutil.copy(data / "vllm_bench.json", copy)
    found = import_points([data / "vllm_bench.json", copy], given, lookup)
    assert len(found.records) == 1
    (repeated,) = found.rejected
    assert repeated.place == str(copy)
    assert repeated.reason == f"is the same run as {data / 'vllm_bench.json'}"


def test_files_of_several_tools_in_one_call(lookup: Lookup, given: Given, data: Path) -> None:
    names = ["guidellm.json", "aiperf_loadgen.json", "inference_perf", "vllm_bench.json"]
    found = import_points([data / name for name in names], given, lookup)
    assert [record.id.rpartition("-")[0] for record in found.records] == [
        *["guidellm"] * 4,
        "aiperf",
        *["inference-perf"] * 2,
        "vllm-bench",
    ]
    assert len({record.id for record in found.records}) == 8
    kinds = [LoadKind.CLOSED_LOOP] * 2 + [LoadKind.OPEN_LOOP, LoadKind.MAX_LOAD]
    assert [record.load.kind for record in found.records[:4]] == kinds
    assert found.records[3].load.concurrency is None
    assert found.records[2].load.rate_per_s == pytest.approx(12 / (0.08 + 255 * 0.018), rel=1e-4)
    assert found.records[5].cached_share == found.records[5].load.cached_share == 0.25


def test_speculative_runs_keep_their_acceptance(lookup: Lookup, data: Path) -> None:
    given = Given("Llama-3.1-8B-Instruct", "H100", version="0.5.23", tp=2, weights=WeightDtype.BF16, kv=KvDtype.BF16)
    found = import_points([data / "sglang.jsonl"], given, lookup)
    assert [record.acceptance for record in found.records] == [None, None, 2.6]
    assert [record.load.acceptance for record in found.records] == [1.0, 1.0, 2.6]
    without = import_points([data / "sglang.jsonl"], given, lookup, keep_speculative=False)
    assert len(without.records) == 2
    assert "--no-speculative" in without.rejected[0].reason


def test_every_file_that_cannot_be_read_is_named(lookup: Lookup, given: Given, data: Path, tmp_path: Path) -> None:
    (tmp_path / "page.json").write_text("<html>502")
    (tmp_path / "cut.json").write_text((data / "vllm_bench.json").read_text()[:900])
    (tmp_path / "other.json").write_text('{"a": 1}')
    names = ["page.json", "cut.json", "other.json", "none.json"]
    found = problems(lookup, given, data / "vllm_bench.json", *(tmp_path / name for name in names))
    assert [name in problem for name, problem in zip(names, found, strict=True)] == [True] * 4
    assert "is a web page" in found[0]
    assert "cut off" in found[1]
    assert "Name its tool with --format (vllm-bench, " in found[2]
    assert "cannot be read" in found[3]


def test_broken_file_of_a_folder_is_rejected(lookup: Lookup, given: Given, data: Path, tmp_path: Path) -> None:
    shutil.copy(data / "vllm_bench.json", tmp_path)
    (tmp_path / "cut.json").write_text((data / "vllm_bench.json").read_text()[:900])
    (tmp_path / "notes.txt").write_text("nothing")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\0")
    found = import_points([tmp_path], given, lookup)
    assert len(found.records) == 1
    assert [(Path(one.place).name, one.reason.split(":")[0]) for one in found.rejected] == [
        ("cut.json", "ends in the middle")
    ]
    assert found.skipped == {OTHER: 2}


def test_one_contradiction_of_many_runs_is_said_once(lookup: Lookup, given: Given, data: Path) -> None:
    found = problems(lookup, replace(given, version="9.9"), data / "vllm_append.jsonl")
    assert [problem.partition(": ")[0].rpartition("append.jsonl, ")[2] for problem in found] == [
        "line 1 (and 2 more), field version",
        "line 1 (and 2 more), field tp",
        "line 1 (and 2 more), field weights",
        "line 1 (and 2 more), field kv",
    ]


def test_named_tool_overrules_what_is_seen(lookup: Lookup, given: Given, data: Path) -> None:
    with pytest.raises(InputError, match="'wrk' is not known"):
        named("wrk")
    found = import_points([data / "vllm_bench.json"], given, lookup, named("sglang"))
    assert found.records[0].id.startswith("sglang-")


def test_notes_of_names_are_kept(lookup: Lookup, given: Given, data: Path) -> None:
    found = import_points([data / "vllm_bench.json"], replace(given, model="", gpu="RTX4090 class"), lookup)
    assert any("4090" in note for note in found.notes)


def test_same_input_gives_the_same_records(lookup: Lookup, given: Given, data: Path) -> None:
    paths = [data / "guidellm.json", data / "vllm_bench.json"]
    assert import_points(paths, given, lookup).records == import_points(paths, given, lookup).records


def test_place_and_tool_do_not_change_the_id(
    lookup: Lookup, given: Given, changed: Callable[..., Path], data: Path
) -> None:
    elsewhere = import_points([changed("vllm_bench.json")], given, lookup).records
    assert elsewhere[0].id == import_points([data / "vllm_bench.json"], given, lookup).records[0].id
    other = import_points([changed("vllm_bench.json", mean_tpot_ms=22.01)], given, lookup).records
    assert other[0].id != elsewhere[0].id
