"""Values for llm-d's chart llm-d-modelservice, one file for each pool.

Read in ``charts/llm-d-modelservice`` of https://github.com/llm-d-incubation/llm-d-modelservice at 024c0f2d0237 (v0.4.0)
on 2026-12-01. Since llm-d 0.7 its guides compose Kustomize layers and keep the chart for what was built with it
(https://llm-d.ai/docs/0.7/proposals/modelservice); the pods of plain manifests carry the same labels, so that an
InferencePool of a newer llm-d finds them too.

Pools serve prompts and outputs together, so prefill has no pods and the routing sidecar is off. Prompt lengths need no
header here: llm-d's scheduler (llm-d-router, plugin context-length-aware) filters by the label
``llm-d.ai/context-length-range``.

The command is the chart's ``custom`` one, whose words it writes as they are: it renders other fields as templates.
"""

from __future__ import annotations

from collections.abc import Sequence

from planner.deploy.commands import PORT
from planner.deploy.pods import CONTAINER, POOL_NOTE, SHARED_MEMORY, TOKEN_SECRET, Json, probes, variables
from planner.deploy.replicas import Replica
from planner.deploy.words import container_arguments, escaped
from planner.errors import Problem
from planner.plan import Route
from planner.traffic.buckets import MAX_TOKENS

CHART, CHARTS = "llm-d-modelservice/llm-d-modelservice", "https://llm-d-incubation.github.io/llm-d-modelservice/"
RANGE_LABEL = "llm-d.ai/context-length-range"


def problems_of(replica: Replica, routes: Sequence[Route]) -> list[Problem]:
    """Why the chart cannot run a pool."""
    where, found = f"pool {replica.pool.name}", []
    if replica.nodes > 1:
        what = f"a replica spans {replica.nodes} nodes, which the chart runs for data parallelism only"
        found.append(Problem(where, what, "Use --target kubernetes"))
    if any(row.tenant for row in routes if row.pool == replica.pool.name):
        what = "its requests are told apart by tenant, which llm-d's scheduler does not do"
        found.append(Problem(where, what, "Use --target kubernetes, whose routes match a header"))
    texts = (replica.command.model, replica.pool.model, *replica.command.environment.values())
    if any("{{" in text for text in texts):
        found.append(Problem(where, "a name holds {{, which the chart would render", "Rename it, and plan again"))
    return found


def values_of(replica: Replica, routes: Sequence[Route]) -> Json:
    """The values of one pool."""
    vendor = replica.resource.partition(".")[0]
    return {
        "fullnameOverride": replica.name,
        "multinode": False,
        "modelArtifacts": {
            "name": replica.pool.model,
            "uri": f"hf://{replica.command.model}",
            "size": "0",
            "authSecretName": TOKEN_SECRET,
            "labels": scheduler_labels(replica, routes),
        },
        "accelerator": {"type": vendor, "dra": False},
        "routing": {"servicePort": PORT, "proxy": {"enabled": False}},
        "decode": _decode(replica),
        "prefill": {"create": False, "replicas": 0},
    }


def scaled_of(replica: Replica) -> dict[str, str]:
    """What a ScaledObject of the pool scales."""
    return {"apiVersion": "apps/v1", "kind": "Deployment", "name": f"{replica.name}-decode"}


def scheduler_labels(replica: Replica, routes: Sequence[Route]) -> dict[str, str]:
    """Labels of pods that llm-d's InferencePools and scheduler look for."""
    return {
        "llm-d.ai/inferenceServing": "true",
        "llm-d.ai/model": replica.model,
        RANGE_LABEL: context_range([row for row in routes if row.pool == replica.pool.name]),
    }


def context_range(rows: Sequence[Route]) -> str:
    """Prompt lengths of a pool, both ends included; without an upper end, up to the longest that a log may hold."""
    low = min((row.prompt_lo_tokens for row in rows), default=0)
    ends = [MAX_TOKENS if row.prompt_hi_tokens is None else row.prompt_hi_tokens - 1 for row in rows]
    return f"{low}-{max(ends, default=MAX_TOKENS)}"


def _decode(replica: Replica) -> Json:
    command = replica.command
    return {
        "create": True,
        "replicas": replica.pool.replicas,
        "podAnnotations": {POOL_NOTE: replica.pool.name},
        "nodeSelector": {replica.label.key: replica.label.value},
        "parallelism": {"tensor": replica.gpus, "data": 1, "dataLocal": 1, "workers": 1},
        "containers": [
            {
                "name": CONTAINER,
                "image": replica.image,
                "modelCommand": "custom",
                "command": [escaped(word) for word in command.program],
                "args": [escaped(command.model), *container_arguments(command.arguments)],
                "env": variables(replica),
                "ports": [{"name": "metrics", "containerPort": PORT, "protocol": "TCP"}],
                "resources": {"limits": {replica.resource: str(replica.gpus)}, "requests": {}},
                "mountModelVolume": False,
                "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
                **probes(PORT),
            }
        ],
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": SHARED_MEMORY}}],
    }
