"""A pool as what Kubernetes runs: how many pods a replica takes, on which nodes, of which image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from planner.catalog.load import Catalog
from planner.catalog.lookup.lookup_engines import EngineVersions
from planner.deploy.commands import AS_PLANNED, Checkpoint, Command, command_of
from planner.deploy.flags import FlagList, flags_of, load_flags
from planner.deploy.gpu_labels import PLACEHOLDER, RESOURCES, LabelRow, NodeLabel, label_of, load_labels
from planner.deploy.names import names_of
from planner.errors import InputError, Problem, Problems
from planner.plan import FleetPlan, Pool

IMAGES = {
    ("vllm", "NVIDIA"): "vllm/vllm-openai:v{version}",
    ("vllm", "AMD"): "vllm/vllm-openai-rocm:v{version}",
    ("sglang", "NVIDIA"): "lmsysorg/sglang:v{version}",
}
"""Images of the engines' releases: https://docs.vllm.ai/en/stable/deployment/docker/ for vLLM; vllm-openai-rocm as
public deployments of 0.17 to 0.31 use it; https://docs.sglang.io/get_started/install.html for SGLang. Read 2026-12-01.
SGLang's image for AMD has ROCm and the GPU generation in its tag, which a plan does not know."""


@dataclass(frozen=True)
class Replica:
    """One replica of a pool.

    Attributes
    ----------
    name
        Of the pool, for Kubernetes.
    model
        Name of its model, for Kubernetes.
    nodes
        Pods that a replica takes, one on each node.
    gpus
        GPUs of each pod.
    resource
        What the device plugin calls them.
    """

    pool: Pool
    name: str
    model: str
    command: Command
    nodes: int
    gpus: int
    resource: str
    label: NodeLabel
    image: str
    released: bool = True
    """Whether the catalogue knows the engine's version as a release, of which there is an image."""

    @property
    def guesses(self) -> list[str]:
        """What must be replaced before it can start, in words."""
        found = []
        if not self.label.source:
            found.append(f"{self.pool.name}: node label {self.label.key} of {self.pool.gpu} (now {self.label.value})")
        if PLACEHOLDER in self.image:
            found.append(f"{self.pool.name}: image (now {self.image})")
        if not self.released:
            version = f"{self.pool.engine} {self.pool.engine_version}"
            found.append(f"{self.pool.name}: image (now {self.image}): no release {version} is known")
        return found


class _Sources(NamedTuple):
    """What a pool is looked up in."""

    catalog: Catalog
    flags: Mapping[str, FlagList]
    labels: Mapping[str, LabelRow]
    released: frozenset[tuple[str, str]]
    """Engines with their releases."""
    names: Mapping[str, str]
    models: Mapping[str, str]
    checkpoints: Mapping[str, Checkpoint]


def replicas_of(plan: FleetPlan, catalog: Catalog, checkpoints: Mapping[str, Checkpoint]) -> tuple[Replica, ...]:
    """Every pool of a plan, in its order.

    Parameters
    ----------
    checkpoints
        By name of the pool: the weights to load where it is not what the plan says.

    Raises
    ------
    InputError
        Listing the problems of all pools, and checkpoints of pools that the plan does not have.
    """
    problems = Problems()
    sources = _Sources(
        catalog,
        load_flags(catalog.root),
        load_labels(catalog.root),
        frozenset((row.engine, row.version) for row in EngineVersions(catalog).releases),
        names_of(pool.name for pool in plan.pools),
        names_of(pool.model for pool in plan.pools),
        checkpoints,
    )
    for name in sorted(set(checkpoints) - set(sources.names)):
        problems.add("--checkpoint", f"the plan has no pool '{name}'", f"It has {', '.join(sources.names)}")
    found = []
    for pool in plan.pools:
        replica = problems.attempt(partial(_replica, pool, plan, sources))
        if replica is not None:
            found.append(replica)
    problems.raise_if_any()
    return tuple(found)


def _replica(pool: Pool, plan: FleetPlan, sources: _Sources) -> Replica:
    gpu = sources.catalog.gpu(pool.gpu)
    flags = flags_of(sources.flags, pool.engine, f"pool {pool.name}")
    command = command_of(pool, flags, sources.checkpoints.get(pool.name))
    nodes, gpus = _shape(pool, plan, command)
    spans = command.has("--distributed-executor-backend") or command.has("--nnodes")
    if spans != (nodes > 1):
        what = f"a replica takes {nodes} nodes, and the launch command starts it on {'several' if spans else 'one'}"
        raise InputError(Problem(f"pool {pool.name}", what, AS_PLANNED, field="launch_command"))
    return Replica(
        pool=pool,
        name=sources.names[pool.name],
        model=sources.models[pool.model],
        command=command,
        nodes=nodes,
        gpus=gpus,
        resource=RESOURCES.get(gpu.vendor, RESOURCES["NVIDIA"]),
        label=label_of(gpu, sources.labels),
        image=_image(pool, gpu.vendor),
        released=(pool.engine, pool.engine_version) in sources.released,
    )


def _image(pool: Pool, vendor: str) -> str:
    version = pool.engine_version.removeprefix("v")
    return IMAGES.get((pool.engine, vendor), f"{PLACEHOLDER}-{pool.engine}:v{version}").format(version=version)


def _shape(pool: Pool, plan: FleetPlan, command: Command) -> tuple[int, int]:
    """Nodes of a replica, and GPUs on each: gpus = tp x pp over the nodes.

    Raises
    ------
    InputError
        If the GPUs do not come out even.
    """
    stages = command.value("--pipeline-parallel-size", "--pp-size") or "1"
    gpus = pool.tp * (int(stages) if stages.isascii() and stages.isdigit() else 1)
    on = {placement.supply for placement in pool.placements}
    sizes = [supply.gpus_per_instance for supply in plan.supplies if supply.id in on]
    nodes = max((-(-gpus // size) for size in sizes), default=1)
    if gpus % nodes:
        what = f"{gpus} GPUs of a replica do not spread evenly over {nodes} nodes"
        raise InputError(Problem(f"pool {pool.name}", what, "Start this pool by hand"))
    return nodes, gpus // nodes
