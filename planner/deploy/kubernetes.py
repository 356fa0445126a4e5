"""Plain Kubernetes: a Deployment and a Service for each pool, a LeaderWorkerSet where a replica spans nodes."""

from __future__ import annotations

from collections.abc import Sequence

from planner.deploy.commands import PORT
from planner.deploy.llm_d import scheduler_labels
from planner.deploy.lws import LEADER, leader_worker_set
from planner.deploy.pods import Json, labels, notes_of, pod_spec
from planner.deploy.replicas import Replica
from planner.deploy.words import container_words
from planner.plan import Route

STARTS_WITHIN_S = 4000
"""Longer than the startup probe waits."""
IN_PLACE = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
"""The plan has no GPUs for a second copy: an update stops a replica before it starts the next."""


def objects_of(replica: Replica, run_id: str, routes: Sequence[Route] = ()) -> list[Json]:
    """The objects of one pool."""
    if replica.nodes > 1:
        return [leader_worker_set(replica, run_id, routes), service(replica, run_id)]
    return [deployment(replica, run_id, routes), service(replica, run_id)]


def deployment(replica: Replica, run_id: str, routes: Sequence[Route] = ()) -> Json:
    """Replicas of the busiest period; a ScaledObject changes them by the hour."""
    own = labels(replica)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": replica.name, "labels": own, "annotations": notes_of(replica, run_id)},
        "spec": {
            "replicas": replica.pool.replicas,
            "progressDeadlineSeconds": STARTS_WITHIN_S,
            "strategy": IN_PLACE,
            "selector": {"matchLabels": own},
            "template": {
                "metadata": {
                    "labels": own | scheduler_labels(replica, routes),
                    "annotations": notes_of(replica, run_id),
                },
                "spec": pod_spec(replica, container_words(replica.command)),
            },
        },
    }


def service(replica: Replica, run_id: str) -> Json:
    """The pool's address; of a group of nodes, only its leader answers."""
    selector = labels(replica) | (LEADER if replica.nodes > 1 else {})
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": replica.name, "labels": labels(replica), "annotations": notes_of(replica, run_id)},
        "spec": {"selector": selector, "ports": [{"name": "http", "port": PORT, "targetPort": "http"}]},
    }
