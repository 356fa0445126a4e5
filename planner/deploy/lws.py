"""LeaderWorkerSet: a replica on several nodes, one pod on each.

https://lws.sigs.k8s.io, API leaderworkerset.x-k8s.io/v1. Its variables are in every container: ``LWS_GROUP_SIZE``,
``LWS_LEADER_ADDRESS``, ``LWS_WORKER_INDEX``.

vLLM runs on the leader alone, over a Ray cluster that the workers join; SGLang runs on every node with its rank.
"""

from __future__ import annotations

from collections.abc import Sequence

from planner.deploy.llm_d import scheduler_labels
from planner.deploy.pods import Json, labels, notes_of, pod_spec
from planner.deploy.replicas import Replica
from planner.deploy.words import container_words, escaped
from planner.plan import Route

LEADER = {"planner/role": "leader"}
RAY_PORT = 6379
HEAD_SCRIPT = f'ray start --head --port={RAY_PORT} && exec "$@"'
JOIN_SCRIPT = f'until ray start --address="$LWS_LEADER_ADDRESS:{RAY_PORT}" --block; do sleep 5; done'


def leader_worker_set(replica: Replica, run_id: str, routes: Sequence[Route] = ()) -> Json:
    """Groups of pods, one group a replica."""
    own, notes = labels(replica), notes_of(replica, run_id)
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": replica.name, "labels": own, "annotations": notes},
        "spec": {
            "replicas": replica.pool.replicas,
            "rolloutStrategy": {
                "type": "RollingUpdate",
                "rollingUpdateConfiguration": {"maxSurge": 0, "maxUnavailable": 1},
            },
            "leaderWorkerTemplate": {
                "size": replica.nodes,
                "restartPolicy": "RecreateGroupOnPodRestart",
                "leaderTemplate": {
                    "metadata": {"labels": own | LEADER | scheduler_labels(replica, routes), "annotations": notes},
                    "spec": pod_spec(replica, _leader_words(replica)),
                },
                "workerTemplate": {
                    "metadata": {"labels": own, "annotations": notes},
                    "spec": pod_spec(replica, _worker_words(replica), serves=False),
                },
            },
        },
    }


def _leader_words(replica: Replica) -> list[str]:
    words = container_words(replica.command)
    # The words are parameters of the script, never part of its text.
    return ["sh", "-c", escaped(HEAD_SCRIPT), "head", *words] if replica.pool.engine == "vllm" else words


def _worker_words(replica: Replica) -> list[str]:
    if replica.pool.engine == "vllm":
        return ["sh", "-c", escaped(JOIN_SCRIPT)]
    return container_words(replica.command)
