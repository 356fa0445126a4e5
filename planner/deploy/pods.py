"""The pod that runs an engine: GPUs, node, image, shared memory, probes."""

from __future__ import annotations

from typing import Any

from planner.deploy.commands import PORT
from planner.deploy.replicas import Replica
from planner.deploy.words import escaped

CONTAINER = "engine"
PERIOD_S, STARTS_WITHIN = 10, 360
"""A probe every ten seconds; an engine that does not answer within an hour of probes is started again."""
SHARED_MEMORY = "20Gi"
"""Of a pod, for the processes of tensor parallelism: the default of the vLLM production stack's chart
(helm/values.yaml, shmSize). It is a limit, not a reservation."""
TOKEN_SECRET, TOKEN_KEY = "hf-token", "token"
POOL_NOTE = "planner/pool"
"""Annotation of every pod that names its pool as the plan does."""
POOL_LABEL = "app.kubernetes.io/name"
Json = dict[str, Any]


def labels(replica: Replica) -> dict[str, str]:
    """Labels of everything that belongs to a pool."""
    return {POOL_LABEL: replica.name, "app.kubernetes.io/component": replica.model}


def notes_of(replica: Replica, run_id: str) -> dict[str, str]:
    """What the names stand for, and the plan that they come from."""
    return {"planner/run-id": run_id, POOL_NOTE: replica.pool.name, "planner/model": replica.pool.model}


def pod_spec(replica: Replica, words: list[str], *, serves: bool = True) -> Json:
    """A pod's specification; only a pod that ``serves`` has a port and probes."""
    container: Json = {"name": CONTAINER, "image": replica.image, "command": words}
    container["env"] = environment(replica)
    if serves:
        container["ports"] = [{"name": "http", "containerPort": PORT}]
        container |= probes()
    container["resources"] = {"limits": {replica.resource: str(replica.gpus)}}
    container["volumeMounts"] = [{"name": "shm", "mountPath": "/dev/shm"}]
    return {
        "nodeSelector": {replica.label.key: replica.label.value},
        "containers": [container],
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": SHARED_MEMORY}}],
    }


def variables(replica: Replica) -> list[Json]:
    """Variables of the plan; the kubelet expands ``$(NAME)`` in their values too."""
    return [{"name": name, "value": escaped(value)} for name, value in replica.command.environment.items()]


def environment(replica: Replica) -> list[Json]:
    """Variables of the plan, and the hub's token where there is one."""
    secret = {"secretKeyRef": {"name": TOKEN_SECRET, "key": TOKEN_KEY, "optional": True}}
    given: list[Json] = variables(replica)
    return [*given, {"name": "HF_TOKEN", "valueFrom": secret}]


def probes(port: str | int = "http") -> Json:
    """Probes of ``/health``, which vLLM and SGLang both answer once the model is loaded."""
    health: Json = {"httpGet": {"path": "/health", "port": port}, "periodSeconds": PERIOD_S}
    return {
        "startupProbe": {**health, "failureThreshold": STARTS_WITHIN},
        "readinessProbe": {**health, "failureThreshold": 3},
        "livenessProbe": {**health, "failureThreshold": 6},
    }
