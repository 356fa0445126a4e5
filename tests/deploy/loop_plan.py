"""The plan of the loop's example: pools that can have written two public start-up logs of tests/data/logs.

Configuration and memory are those of the logs' own starts as `planner size` sizes them; the load is made up, and stated
here. ``python -m tests.deploy.loop_plan`` writes the file anew.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from planner.memory.types import Sizing
from planner.plan import FleetPlan, Pool, plan_to_json
from tests.deploy.plans import example, on, plan_of, pool_of, sizing_of

FILE = Path(__file__).parents[1] / "data" / "deploy" / "loop" / "plan.json"
GPU = "A100-80GB-SXM"
LLAMA, QWEN = "meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen2-7B-Instruct"


def loop_plan() -> FleetPlan:
    """Two pools: chat on one A100 (vLLM 0.31.0), search on two (facts of vLLM 0.9.0, which hold for 0.10.1)."""
    chat = sizing_of(LLAMA, GPU, version="0.31.0", max_model_len=131_072)
    search = sizing_of(
        QWEN, GPU, version="0.10.1", tp=2, max_model_len=16_384, max_num_batched_tokens=2048, gpu_memory_utilization=0.5
    )
    supply, placements = on("A100-80GB-SXM x8", 8, GPU)
    pools = tuple(
        _pool(name, sizing, tokens).model_copy(update={"placements": placements})
        for name, sizing, tokens in (("chat", chat, 400_000.0), ("search", search, 1_100_000.0))
    )
    plan = plan_of(*pools, supplies=(supply,), run_id="100b5ee1095a", title="Two pools whose start-up logs are public")
    return plan.model_copy(
        update={
            "owner": "nobody: an example",
            "created_at": dt.datetime(2026, 12, 1, tzinfo=dt.UTC),
            "inputs": (),
            "warnings": ("Loads and prices are made up: only configuration and memory are real.",),
        }
    )


def _pool(name: str, sizing: Sizing, quantile_tokens: float) -> Pool:
    """A pool with two replicas all the time, and a load that fills most of it."""
    base = example().pools[0]
    periods = tuple(period.model_copy(update={"replicas": 2}) for period in base.periods)
    load = base.load.model_copy(update={"quantile_live_tokens": quantile_tokens})
    counts = {"replicas": 2, "replicas_needed": 2, "replicas_spare": 0, "gpus": 2 * sizing.deployment.tp}
    return pool_of(name, sizing, periods=periods, load=load, why="made up for the loop's example", **counts)


if __name__ == "__main__":
    FILE.parent.mkdir(parents=True, exist_ok=True)
    FILE.write_text(plan_to_json(loop_plan()), encoding="utf-8")
