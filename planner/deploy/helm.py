"""Values for the Helm chart of the vLLM production stack (vllm-stack, https://github.com/vllm-project/production-stack).

Read in ``helm/values.schema.json`` at 01eaf92cb895 and in its templates on 2026-12-01. What the chart does on its own:

* it always passes ``--enable-prefix-caching`` or ``--no-enable-prefix-caching``, so the plan must know which;
* it updates with a surge of 100 % unless told otherwise, for which a plan has no GPUs;
* its own router knows models but neither prompt lengths nor tenants, so it stays off and the HTTPRoutes of this folder
  point at the engines' Services;
* its schema takes no list of KEDA triggers, so the ScaledObjects stand beside it.
"""

from __future__ import annotations

from collections.abc import Sequence

from planner.catalog.versions import version_key
from planner.deploy.commands import PORT
from planner.deploy.pods import (
    PERIOD_S,
    POOL_NOTE,
    SHARED_MEMORY,
    STARTS_WITHIN,
    TOKEN_KEY,
    TOKEN_SECRET,
    Json,
    variables,
)
from planner.deploy.replicas import Replica
from planner.deploy.words import container_arguments, escaped
from planner.errors import Problem

RELEASE = "fleet"
"""Name to install the chart under: names of its Services and Deployments begin with it."""
VALUES = "values.yaml"
REPOSITORY = "https://vllm-project.github.io/production-stack"
CPUS_PER_GPU, MEMORY = 1, "8Gi"
"""The chart asks for requests of CPU and host memory, of which a plan knows nothing: small guesses."""
CACHING_BY_DEFAULT = "0.9.0"
"""From here on vLLM caches prefixes of models without recurrent states unless it is told not to."""
OWN = frozenset({
    "--tensor-parallel-size", "--max-model-len", "--max-num-seqs", "--gpu-memory-utilization", "--host", "--port",
    "--enable-prefix-caching", "--no-enable-prefix-caching",
})  # fmt: skip
"""Flags that the chart writes from fields of its own."""


def problems_of(replica: Replica) -> list[Problem]:
    """Why the chart cannot run a pool."""
    where, found = f"pool {replica.pool.name}", []
    if replica.nodes > 1:
        what = f"a replica spans {replica.nodes} nodes, for which the chart needs a Ray operator"
        found.append(Problem(where, what, "Use --target kubernetes"))
    if caching_of(replica) is None:
        what = "the chart must be told whether prefixes are cached, and the plan leaves it to the engine"
        found.append(Problem(where, what, "Use --target kubernetes, where the engine decides"))
    return found


def caching_of(replica: Replica) -> bool | None:
    """Whether prefixes are cached; ``None`` where the engine decides by the model."""
    if replica.command.has("--no-enable-prefix-caching"):
        return False
    if replica.command.has("--enable-prefix-caching"):
        return True
    if replica.pool.memory.state_bytes_per_request:
        return None
    return version_key(replica.pool.engine_version) >= version_key(CACHING_BY_DEFAULT)


def values_of(replicas: Sequence[Replica]) -> Json:
    """The values of all pools: one release serves the whole plan."""
    health: Json = {"httpGet": {"path": "/health", "port": PORT}, "periodSeconds": PERIOD_S, "initialDelaySeconds": 0}
    return {
        "servingEngineSpec": {
            "enableEngine": True,
            "containerPort": PORT,
            "servicePort": PORT,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            "startupProbe": {**health, "failureThreshold": STARTS_WITHIN},
            "livenessProbe": {**health, "failureThreshold": 6},
            "modelSpec": [_model(replica) for replica in replicas],
        },
        "routerSpec": {"enableRouter": False},
    }


def _model(replica: Replica) -> Json:
    pool = replica.pool
    repository, _, tag = replica.image.rpartition(":")
    others = tuple(a for a in replica.command.arguments if a.flag not in OWN)
    return {
        "name": replica.name,
        "repository": repository,
        "tag": tag,
        "modelURL": escaped(replica.command.model),
        "replicaCount": pool.replicas,
        "requestCPU": CPUS_PER_GPU * replica.gpus,
        "requestMemory": MEMORY,
        "requestGPU": replica.gpus,
        "requestGPUType": replica.resource,
        "shmSize": SHARED_MEMORY,
        "podAnnotations": {POOL_NOTE: replica.pool.name},
        "env": variables(replica),
        "hf_token": {"secretName": TOKEN_SECRET, "secretKey": TOKEN_KEY},
        "nodeSelectorTerms": [
            {"matchExpressions": [{"key": replica.label.key, "operator": "In", "values": [replica.label.value]}]}
        ],
        "vllmConfig": {
            "enablePrefixCaching": bool(caching_of(replica)),
            "maxModelLen": pool.max_model_len,
            "tensorParallelSize": pool.tp,
            "maxNumSeqs": pool.max_num_seqs,
            "gpuMemoryUtilization": f"{pool.gpu_memory_utilization:g}",
            "extraArgs": container_arguments(others),
        },
    }


def service_of(replica: Replica) -> str:
    """Name of the Service that the chart makes."""
    return f"{RELEASE}-{replica.name}-engine-service"


def scaled_of(replica: Replica) -> dict[str, str]:
    """What a ScaledObject of the pool scales."""
    return {"apiVersion": "apps/v1", "kind": "Deployment", "name": f"{RELEASE}-{replica.name}-deployment-vllm"}
