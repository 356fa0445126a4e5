"""Flags by engine version, and that no launch command holds one that its engine does not have."""

from __future__ import annotations

import csv
import itertools
import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.catalog.csv_table import read_rows
from planner.catalog.versions import version_key
from planner.deploy.flags import FlagRow, ReadVersion, flags_of, load_flags
from planner.errors import InputError
from planner.memory.types import KvDtype, SglangFlags, VllmFlags, WeightDtype
from planner.report.launch import launch_command
from tests.deploy.plans import CATALOG, ROOT, sizing_of

LISTS = load_flags(CATALOG.root)
FOLDER = CATALOG.root / "engines" / "flags"
READ = read_rows(FOLDER / "read.csv", ReadVersion)
FACTS = [(facts.name, facts.version) for facts in CATALOG.engines]


@pytest.mark.parametrize(
    ("engine", "version", "flag", "takes"),
    [
        ("vllm", "0.6.3", "--enable-prefix-caching", "nothing"),
        ("vllm", "0.6.3", "--no-enable-prefix-caching", None),
        ("vllm", "0.33.0", "--no-enable-prefix-caching", "nothing"),
        ("vllm", "0.17.0", "--swap-space", "value"),
        ("vllm", "0.18.0", "--swap-space", None),
        ("vllm", "0.16.0", "--language-model-only", None),
        ("vllm", "0.17.0", "--language-model-only", "nothing or no-"),
        ("vllm", "0.12.0", "--attention-backend", None),
        ("vllm", "0.33.0", "--kv-cache-memory-bytes", "value"),
        ("vllm", "0.33.0", "--tp-size", None),
        ("sglang", "0.5.23", "--tp-size", "value"),
        ("sglang", "0.5.23", "--tensor-parallel-size", "value"),
        ("sglang", "0.5.19", "--cuda-graph-max-bs", "value"),
        ("sglang", "0.5.20", "--cuda-graph-max-bs", None),
        ("sglang", "0.5.23", "--cuda-graph-max-bs-decode", "value"),
        ("sglang", "0.5.21", "--attn-dp-size", None),
        ("sglang", "0.5.23", "--disable-radix-cache", "nothing"),
        ("sglang", "0.5.23", "--max-model-len", None),
    ],
)
def test_what_a_flag_takes(engine: str, version: str, flag: str, takes: str | None) -> None:
    assert LISTS[engine].takes(flag, version) == takes


def test_a_version_between_two_has_what_both_have() -> None:
    """0.9.0 and 0.11.0 were read, 0.10.2 was not: a flag that came or went between them is not taken for granted."""
    vllm = LISTS["vllm"]
    assert vllm.takes("--max-num-seqs", "0.10.2") == "value"
    assert vllm.takes("--decode-context-parallel-size", "0.11.0") == "value"
    assert vllm.takes("--decode-context-parallel-size", "0.10.2") is None
    assert vllm.takes("--max-num-seqs", "0.34.0") == "value"


@pytest.mark.parametrize("row", READ, ids=lambda row: f"{row.engine} {row.version}")
def test_the_rows_hold_as_many_flags_as_each_version_was_read_to_have(row: ReadVersion) -> None:
    flags = LISTS[row.engine]
    assert sum(flags.takes(name, row.version) is not None for name in flags.rows) == row.flags


def test_stretches_of_a_flag_do_not_overlap() -> None:
    for flags in LISTS.values():
        for rows in flags.rows.values():
            for before, after in itertools.pairwise(rows):
                assert before.last
                assert version_key(before.first) <= version_key(before.last) < version_key(after.first)


def test_versions_that_were_read_came_out_when_the_catalogue_says() -> None:
    with (CATALOG.root / "engines" / "releases.csv").open(encoding="utf-8") as file:
        released = {(row["engine"], row["version"]): row["released"] for row in csv.DictReader(file)}
    assert all(released[row.engine, row.version] == row.released.isoformat() for row in READ)


def test_every_version_with_facts_has_flags() -> None:
    assert all(LISTS[engine].knows(version) for engine, version in FACTS)


def settings_of(engine: str, version: str) -> list[dict[str, object]]:
    """Deployments that together ask for every flag that the version has, from plain to all at once."""
    found: list[dict[str, object]] = [{}, {"tp": 4, "max_model_len": 8192, "weight_dtype": WeightDtype.FP8}]
    since = version_key(version)
    if engine == "sglang":
        flags = SglangFlags(page_size_tokens=64, cuda_graph_max_batch=32, max_total_tokens=90_000)
        return [*found, {"tp": 8, "pp": 2, "attention_dp": 4, "kv_dtype": KvDtype.FP8, "sglang": flags}]
    found.append({"tp": 4, "pp": 2, "kv_dtype": KvDtype.FP8, "enforce_eager": True})
    if since >= version_key("0.9.0"):
        found.append({"tp": 4, "expert_parallel": True, "prefix_caching": False})
    if since >= version_key("0.11.0"):
        flags = VllmFlags(block_size_tokens=32, swap_space_gib=2.0, language_model_only=True, async_scheduling=False)
        found.append({"tp": 4, "dcp": 2, "prefix_caching": True, "vllm": flags})
        found.append({"vllm": VllmFlags(hybrid_kv_cache_manager=False, cpu_offload_gib=4.0, attention_backend="X")})
    if since >= version_key("0.15.0"):
        found.append({"vllm": VllmFlags(kv_offload_gib=8.0, mamba_ssm_cache_dtype="float32")})
    return found


@pytest.mark.parametrize(("engine", "version"), FACTS)
def test_a_launch_command_holds_no_flag_that_its_version_lacks(engine: str, version: str) -> None:
    for chosen in settings_of(engine, version):
        sizing = sizing_of("Qwen/Qwen3-32B", "H100-SXM", engine, version, **chosen)
        for nodes in (1, 2):
            words = shlex.split(launch_command(sizing, nodes))
            used = [
                (word, not following.startswith("--"))
                for word, following in itertools.pairwise([*words, "--"])
                if word.startswith("--")
            ]
            assert not LISTS[engine].check(used, version, "pool"), (chosen, nodes)


def test_a_problem_names_flag_version_and_what_takes_its_place() -> None:
    [problem] = LISTS["sglang"].check([("--cuda-graph-max-bs", True)], "0.5.23", "pool chat")
    assert str(problem) == (
        "pool chat, field --cuda-graph-max-bs: sglang 0.5.23 has no flag --cuda-graph-max-bs. "
        "Versions that have it: 0.4.0 to 0.5.19; newer ones have --cuda-graph-max-bs-decode"
    )
    [nothing] = LISTS["vllm"].check([("--enforce-eager", True)], "0.33.0", "pool chat")
    assert "takes no value" in str(nothing)
    [old] = LISTS["vllm"].check([("--model", True)], "0.5.0", "pool chat")
    assert "older than every version" in str(old)
    with pytest.raises(InputError, match="engine 'trt' are not in the catalogue"):
        flags_of(LISTS, "trt", "pool chat")


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(LISTS["vllm"].rows)), st.integers(9, 33), st.integers(0, 3))
def test_what_an_unread_version_has_its_neighbours_have(flag: str, minor: int, patch: int) -> None:
    vllm, version = LISTS["vllm"], f"0.{minor}.{patch}"
    older = [read for read in vllm.versions if version_key(read) <= version_key(version)]
    newer = [read for read in vllm.versions if version_key(read) >= version_key(version)]
    if vllm.takes(flag, version) is not None:
        assert vllm.takes(flag, older[-1]) == vllm.takes(flag, version)
        assert not newer or vllm.takes(flag, newer[0]) == vllm.takes(flag, version)


def test_rows_are_sorted_and_named() -> None:
    for engine in LISTS:
        rows = read_rows(FOLDER / f"{engine}.csv", FlagRow)
        assert [row.flag for row in rows] == sorted(row.flag for row in rows)
    assert (ROOT / "catalogs" / "engines" / "flags").is_dir()
