"""Manifests: against Kubernetes' own schema and those of its extensions, and against the plan."""

from __future__ import annotations

from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from planner.deploy.targets import Target
from planner.deploy.write import deployment_files
from planner.deploy.yaml_text import yaml_text
from planner.errors import InputError
from planner.plan import FleetPlan
from tests.deploy.plans import CATALOG, across_nodes, example, files_of, on, plan_of, pool_of, schema, sizing_of
from tests.deploy.test_commands import HOSTILE, expanded

KUBERNETES = "1.34"
SCHEMAS = {kind: schema(kind.lower()) for kind in ("HTTPRoute", "LeaderWorkerSet")}
SCHEMAS["ScaledObject"] = schema("keda-scaledobject")


def objects(plan: FleetPlan, target: Target = Target.KUBERNETES) -> list[dict[str, Any]]:
    """Every object of a deployment."""
    files = files_of(plan, target)
    texts = [text for name, text in files.items() if name.startswith(("kubernetes/", "gateway/", "autoscaling/"))]
    return [found for text in texts for found in yaml.safe_load_all(text)]


def of_kind(plan: FleetPlan, kind: str) -> dict[str, dict[str, Any]]:
    """Objects of one kind by name."""
    return {found["metadata"]["name"]: found for found in objects(plan) if found["kind"] == kind}


def check(found: dict[str, Any]) -> None:
    """Raise where an object is not what its kind allows."""
    if found["kind"] not in SCHEMAS:
        kubernetes_validate.validate(found, KUBERNETES, strict=True)
        return
    jsonschema.validate(found, SCHEMAS[found["kind"]])
    if found["kind"] == "LeaderWorkerSet":
        template = found["spec"]["leaderWorkerTemplate"]
        for pod in (template["leaderTemplate"], template["workerTemplate"]):
            named = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "x"}, "template": pod}
            kubernetes_validate.validate(named, KUBERNETES, strict=True)


def container(found: dict[str, Any]) -> dict[str, Any]:
    pod = found["spec"]["template"]["spec"]
    assert len(pod["containers"]) == 1
    return dict(pod["containers"][0])


@pytest.mark.parametrize(
    "plan", [example(), across_nodes("vllm"), across_nodes("sglang")], ids=["example", "ray", "ranks"]
)
def test_objects_are_what_their_schemas_allow(plan: FleetPlan) -> None:
    made = objects(plan)
    for found in made:
        check(found)
    names = [(found["kind"], found["metadata"]["name"]) for found in made]
    assert len(set(names)) == len(names)


def test_the_schemas_refuse_what_is_wrong() -> None:
    [deployment, *_] = objects(example())
    with pytest.raises(kubernetes_validate.ValidationError):
        check(deployment | {"spec": deployment["spec"] | {"replica": 3}})
    for kind in ("HTTPRoute", "ScaledObject"):
        found = next(iter(of_kind(example(), kind).values()))
        with pytest.raises(jsonschema.ValidationError):
            check(found | {"spec": found["spec"] | {"surprise": 1}})


def test_each_pool_has_a_deployment_and_a_service_that_selects_it() -> None:
    plan = example()
    deployments, services = of_kind(plan, "Deployment"), of_kind(plan, "Service")
    assert len(deployments) == len(services) == len(plan.pools)
    for pool in plan.pools:
        found = next(d for d in deployments.values() if d["metadata"]["annotations"]["planner/pool"] == pool.name)
        service = services[found["metadata"]["name"]]
        assert service["spec"]["selector"].items() <= found["spec"]["template"]["metadata"]["labels"].items()
        assert (
            found["spec"]["selector"]["matchLabels"].items() <= found["spec"]["template"]["metadata"]["labels"].items()
        )
        assert found["spec"]["replicas"] == pool.replicas
        [(resource, count)] = container(found)["resources"]["limits"].items()
        assert (resource, int(count)) == ("amd.com/gpu" if pool.gpu == "MI300X" else "nvidia.com/gpu", pool.tp)
        assert found["metadata"]["annotations"]["planner/run-id"] == plan.run_id


def test_an_update_takes_no_gpu_more_than_the_plan_has() -> None:
    for found in of_kind(example(), "Deployment").values():
        assert found["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}


def test_images_and_labels_are_those_of_engine_version_and_gpu() -> None:
    found = of_kind(example(), "Deployment")
    assert container(found["assistant-2"])["image"] == "vllm/vllm-openai:v0.33.0"
    assert container(found["reasoning-2"])["image"] == "vllm/vllm-openai-rocm:v0.33.0"
    selectors = {name: own["spec"]["template"]["spec"]["nodeSelector"] for name, own in found.items()}
    assert selectors["assistant-2"] == {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    assert selectors["reasoning-2"] == {"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"}


def test_a_gpu_whose_label_is_not_known_gets_one_that_matches_no_node() -> None:
    supply, placements = on("L4 x1", 1, "L4")
    plan = plan_of(pool_of("chat", sizing_of("Qwen/Qwen3-0.6B", "L4"), placements=placements), supplies=(supply,))
    [found] = of_kind(plan, "Deployment").values()
    assert found["spec"]["template"]["spec"]["nodeSelector"] == {"nvidia.com/gpu.product": "CONFIRM-L4"}
    readme = files_of(plan, Target.KUBERNETES)["README.md"]
    assert "* Replace chat: node label nvidia.com/gpu.product of L4 (now CONFIRM-L4)" in readme


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_replica_on_two_nodes_is_a_group_of_two_pods(engine: str) -> None:
    plan = across_nodes(engine)
    [found] = of_kind(plan, "LeaderWorkerSet").values()
    template = found["spec"]["leaderWorkerTemplate"]
    assert template["size"] == 2
    pods = [template[role]["spec"]["containers"][0] for role in ("leaderTemplate", "workerTemplate")]
    assert [pod["resources"]["limits"] for pod in pods] == [{"nvidia.com/gpu": "8"}] * 2
    assert ["startupProbe" in pod for pod in pods] == [True, False]
    [service] = of_kind(plan, "Service").values()
    assert service["spec"]["selector"].items() <= template["leaderTemplate"]["metadata"]["labels"].items()
    assert not service["spec"]["selector"].items() <= template["workerTemplate"]["metadata"]["labels"].items()
    leader, worker = ([expanded(word, {"LWS_WORKER_INDEX": "1"}) for word in pod["command"]] for pod in pods)
    if engine == "vllm":
        assert leader[:4] == ["sh", "-c", 'ray start --head --port=6379 && exec "$@"', "head"]
        assert leader[4:6] == ["vllm", "serve"]
        assert "$LWS_LEADER_ADDRESS:6379" in worker[2]
    else:
        assert leader == worker
        assert leader[leader.index("--node-rank") + 1] == "1"


def test_sglang_on_amd_and_a_version_that_never_came_out_have_no_known_image() -> None:
    supply, placements = on("MI300X x1", 1, "MI300X")
    sizing = sizing_of("Qwen/Qwen3-32B", "MI300X", "sglang", "0.5.23")
    pool = pool_of("chat", sizing, placements=placements)
    readme = files_of(plan_of(pool, supplies=(supply,)), Target.KUBERNETES)["README.md"]
    assert "* Replace chat: image (now CONFIRM-sglang:v0.5.23): until then its pods stay pending." in readme
    never = example().pools[0].model_copy(update={"engine_version": "0.32.9", "launch_command": "vllm serve m"})
    readme = files_of(plan_of(never), Target.KUBERNETES)["README.md"]
    assert "image (now vllm/vllm-openai:v0.32.9): no release vllm 0.32.9 is known" in readme


def test_nodes_and_launch_command_must_agree() -> None:
    plan = across_nodes("vllm")
    one_node = plan.model_copy(update={"supplies": (plan.supplies[0].model_copy(update={"gpus_per_instance": 16}),)})
    with pytest.raises(InputError, match="takes 1 nodes, and the launch command starts it on several"):
        deployment_files(one_node, CATALOG, Target.KUBERNETES)
    odd = plan.model_copy(update={"supplies": (plan.supplies[0].model_copy(update={"gpus_per_instance": 6}),)})
    with pytest.raises(InputError, match="16 GPUs of a replica do not spread evenly over 3 nodes"):
        deployment_files(odd, CATALOG, Target.KUBERNETES)


@pytest.mark.parametrize("hostile", [text for text in HOSTILE if text.isprintable()])
def test_hostile_names_stay_values(hostile: str) -> None:
    pool = example().pools[0].model_copy(update={"name": hostile, "model": hostile, "launch_command": "vllm serve m"})
    plan = plan_of(pool)
    made = objects(plan)
    for found in made:
        check(found)
    plain = objects(plan_of(pool.model_copy(update={"name": "a", "model": "a"})))
    assert [(found["kind"], sorted(found)) for found in made] == [(found["kind"], sorted(found)) for found in plain]
    words = [expanded(word, {"POD_IP": "1.2.3.4"}) for word in container(made[0])["command"]]
    assert hostile in words or f"--served-model-name={hostile}" in words
    assert made[0]["metadata"]["annotations"]["planner/model"] == hostile


def test_a_comment_cannot_end_its_line() -> None:
    text = yaml_text([{"a": "b"}], ["x\nkind: Secret", "y\u2028z\r---"])
    assert list(yaml.safe_load_all(text)) == [{"a": "b"}]


def test_equal_plans_give_equal_bytes() -> None:
    for target in (Target.KUBERNETES, Target.VLLM, Target.HELM, Target.LLM_D):
        assert deployment_files(example(), CATALOG, target) == files_of(example(), target)
