"""Plans to deploy: the example's, and pools that are sized here."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from planner.assemble.replica import memory_of
from planner.catalog.load import load_catalog
from planner.deploy.targets import Target
from planner.deploy.write import deployment_files
from planner.memory.size import size
from planner.memory.types import Deployment, KvDtype, Sizing, WeightDtype
from planner.plan import FleetPlan, PlanSupply, Pool, PoolPlacement, Route, read_plan
from planner.report.launch import launch_command

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "tests" / "data" / "fleet" / "plan.json"
SCHEMAS = ROOT / "tests" / "data" / "deploy" / "schemas"
CATALOG = load_catalog()


@cache
def example() -> FleetPlan:
    """The plan of the example: nine pools of vLLM, four periods, one pool on MI300X."""
    return read_plan(EXAMPLE)


@cache
def example_files(target: Target) -> dict[str, str]:
    """The example's deployment."""
    return deployment_files(example(), CATALOG, target)


def files_of(plan: FleetPlan, target: Target) -> dict[str, str]:
    """A plan's deployment; that of the example is made once."""
    return example_files(target) if plan is example() else deployment_files(plan, CATALOG, target)


def sizing_of(model: str, gpu: str, engine: str = "vllm", version: str = "", **settings: Any) -> Sizing:
    deployment = Deployment(**({"tp": 1, "weight_dtype": WeightDtype.BF16, "kv_dtype": KvDtype.BF16} | settings))
    return size(CATALOG.model_shape(model), CATALOG.gpu(gpu), CATALOG.engine(engine, version), deployment)


def pool_of(name: str, sizing: Sizing, nodes: int = 1, **changes: Any) -> Pool:
    """A pool of the example, with the configuration and memory of a sizing."""
    deployment = sizing.deployment
    fields: dict[str, Any] = {
        "name": name,
        "model": name.partition("/")[0],
        "weights": sizing.model_id,
        "gpu": sizing.gpu_id,
        "engine": sizing.engine,
        "engine_version": sizing.engine_version,
        "tp": deployment.tp,
        "weight_dtype": deployment.weight_dtype.value,
        "kv_dtype": deployment.kv_dtype.value,
        "max_model_len": sizing.max_model_len,
        "max_num_seqs": sizing.max_num_seqs,
        "max_num_batched_tokens": sizing.max_num_batched_tokens,
        "gpu_memory_utilization": sizing.utilization,
        "memory": memory_of(sizing),
        "launch_command": launch_command(sizing, nodes),
    }
    return example().pools[0].model_copy(update=fields | changes)


def plan_of(*pools: Pool, **changes: Any) -> FleetPlan:
    """The example with other pools; each has the whole of its model's requests unless routes are given."""
    routes = tuple(
        Route(model=pool.model, tenant="", prompt_lo_tokens=0, prompt_hi_tokens=None, pool=pool.name) for pool in pools
    )
    return example().model_copy(update={"pools": pools, "routes": routes} | changes)


def on(supply: str, gpus: int, gpu: str, replicas: int = 2) -> tuple[PlanSupply, tuple[PoolPlacement, ...]]:
    """A supply, and replicas of a pool on it in every period of the example."""
    counts = (replicas,) * len(example().periods)
    return PlanSupply(id=supply, gpu=gpu, gpus_per_instance=gpus), (PoolPlacement(supply=supply, replicas=counts),)


def across_nodes(engine: str) -> FleetPlan:
    """A pool whose replicas take two nodes of eight GPUs."""
    supply, placements = on("H100-SXM x8", 8, "H100-SXM")
    sizing = sizing_of("deepseek-ai/DeepSeek-R1", "H100-SXM", engine, tp=16, weight_dtype=WeightDtype.FP8)
    return plan_of(pool_of("reasoning", sizing, 2, placements=placements), supplies=(supply,))


def schema(name: str) -> Any:
    """A vendored schema."""
    return json.loads((SCHEMAS / f"{name}.json").read_text(encoding="utf-8"))
