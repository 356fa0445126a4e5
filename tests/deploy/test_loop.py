"""The loop: a plan's pool is deployed, starts, and its start-up log is held against the plan.

Both logs are public captures (tests/data/logs/README.md): Llama-3.1-8B on an A100 with vLLM 0.31.0, and Qwen2-7B on two
with vLLM 0.10.1.1 (row L006 of catalogs/engines/startup_logs.csv).
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from planner.deploy.loop import found_pool, started_as
from planner.deploy.targets import Target
from planner.deploy.write import deployment_files
from planner.memory.starts.log_start import Overrides
from planner.memory.starts.startup_log import StartupLog, read_log
from planner.plan import Pool, read_plan
from tests.deploy.loop_plan import FILE, LLAMA, loop_plan
from tests.deploy.plans import CATALOG, ROOT

LOGS = ROOT / "tests" / "data" / "logs"
LLAMA_LOG, QWEN_LOG = LOGS / "vllm-0.31.0-llama-3.1-8b.log", LOGS / "vllm-0.10.1.1-qwen2-7b-tp2-wrapped.log"
PLAN = read_plan(FILE)
CHAT, SEARCH = PLAN.pools


def test_the_stored_plan_is_the_one_that_is_sized_today() -> None:
    assert loop_plan() == PLAN, "write it anew: python -m tests.deploy.loop_plan"


def test_the_pool_that_was_found_is_the_one_that_was_planned() -> None:
    """460,496 logged over 462,880 planned: -0.515 %; of 462,880 tokens fit as many as were logged."""
    found = found_pool(read_log(LLAMA_LOG), CHAT)
    assert found is not None
    assert (found.unit, found.planned, found.found) == ("tokens", 462_880, 460_496)
    assert found.gap == pytest.approx(-0.00515, abs=1e-5)
    assert found.tokens == pytest.approx(460_496)
    assert found.holds
    assert "460,496 tokens found, 462,880 planned (-0.5%). It holds the planned load: 400,000" in str(found)


def test_the_command_starts_what_the_log_shows() -> None:
    """The log's own arguments (line "non-default args") are those of the command that the plan's pool gets."""
    files = deployment_files(PLAN, CATALOG, Target.VLLM)
    log = read_log(QWEN_LOG)
    for flag, name in (
        ("--tensor-parallel-size", "tensor_parallel_size"),
        ("--max-model-len", "max_model_len"),
        ("--gpu-memory-utilization", "gpu_memory_utilization"),
    ):
        assert re.search(rf"{flag} {re.escape(log.setting(name))}\s", files["search.sh"]), flag
    assert "--max-num-batched-tokens 2048 " in files["search.sh"]


def changed(tmp_path: Path, *changes: tuple[str, str]) -> StartupLog:
    text = LLAMA_LOG.read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / "serve.log"
    path.write_text(text, encoding="utf-8")
    return read_log(path)


@pytest.mark.parametrize(
    ("needed", "tokens", "holds"),
    [
        (400_000.0, "460,496", True),
        (460_495.9, "460,496", True),
        (460_497.0, "460,496", False),  # one token more than fits
        (100.0, "416,592", True),  # 90 % of the planned tokens
        (100.0, "416,591", False),  # a tenth too small, however little is needed
        (100.0, "900,000", True),  # more than planned
    ],
)
def test_a_pool_holds_what_was_planned_or_not(needed: float, tokens: str, holds: bool, tmp_path: Path) -> None:
    pool = CHAT.model_copy(update={"load": CHAT.load.model_copy(update={"quantile_live_tokens": needed})})
    found = found_pool(changed(tmp_path, ("460,496", tokens)), pool)
    assert found is not None
    assert found.holds is holds
    assert ("does NOT hold" in str(found)) is not holds


def test_without_tokens_the_memory_that_was_left_tells(tmp_path: Path) -> None:
    log = changed(tmp_path, ("GPU KV cache size: 460,496 tokens, Maximum", "Maximum"))
    found = found_pool(log, CHAT)
    assert found is not None
    assert (found.unit, found.found) == ("GiB", 56.21)
    assert found.tokens == pytest.approx(CHAT.memory.pool_tokens * 56.21 / CHAT.memory.available_kv_gib)


@pytest.mark.parametrize(
    ("path", "pool", "started"),
    [
        (LLAMA_LOG, CHAT, Overrides(LLAMA, "", "0.31.0", 1)),  # names no model and no version; shows the card's memory
        (QWEN_LOG, SEARCH, Overrides("Qwen/Qwen2-7B-Instruct", "A100-80GB-SXM", "0.10.1.1", None)),  # shows no card
        (QWEN_LOG, CHAT, Overrides("Qwen2-7B-Instruct", "A100-80GB-SXM", "0.10.1.1", None)),  # of another pool
    ],
)
def test_what_a_log_leaves_open_is_the_pools(path: Path, pool: Pool, started: Overrides) -> None:
    assert started_as(Overrides(), read_log(path), pool) == started


def test_what_the_user_types_goes_first() -> None:
    typed = Overrides("a/model", "H100-SXM", "0.33.0", 4)
    assert started_as(typed, read_log(LLAMA_LOG), CHAT) == typed
