"""Values of charts: what their schemas allow, and the command that the chart makes of them is the plan's."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
import yaml

from planner.deploy.commands import Command
from planner.deploy.replicas import replicas_of
from planner.deploy.targets import Target
from planner.deploy.write import deployment_files
from planner.errors import InputError
from planner.plan import FleetPlan
from tests.deploy.plans import CATALOG, across_nodes, example, files_of, on, plan_of, pool_of, schema, sizing_of
from tests.deploy.test_commands import words_of
from tests.deploy.test_gateway import shared_plan


def values_of(plan: FleetPlan, target: Target) -> dict[str, Any]:
    """Values by path."""
    files = files_of(plan, target)
    return {name: yaml.safe_load(text) for name, text in files.items() if name.endswith("values.yaml")}


def pairs(words: list[str]) -> list[tuple[str, ...]]:
    """Flags with their values, in any order."""
    found: list[tuple[str, ...]] = []
    for word in words:
        if word.startswith("--"):
            found.append((word.replace("_", "-"),))
        elif found:
            found[-1] = (*found[-1], word)
    return sorted(found)


def chart_words(spec: dict[str, Any], port: int) -> list[str]:
    """The command that helm/templates/deployment-vllm-multi.yaml makes (at 010004eea56f)."""
    config = spec["vllmConfig"]
    words = ["vllm", "serve", spec["modelURL"], "--host", "0.0.0.0", "--port", str(port)]
    words.append("--enable-prefix-caching" if config.get("enablePrefixCaching") else "--no-enable-prefix-caching")
    fields = (
        ("maxModelLen", "--max-model-len"), ("dtype", "--dtype"), ("tensorParallelSize", "--tensor-parallel-size"),
        ("maxNumSeqs", "--max-num-seqs"), ("gpuMemoryUtilization", "--gpu_memory_utilization"),
    )  # fmt: skip
    for key, flag in fields:
        words += [flag, str(config[key])] if key in config else []
    return words + config.get("extraArgs", [])


def planned(plan: FleetPlan) -> dict[str, Command]:
    return {replica.name: replica.command for replica in replicas_of(plan, CATALOG, {})}


def test_values_of_the_production_stack_are_what_its_schema_allows() -> None:
    [values] = values_of(example(), Target.HELM).values()
    jsonschema.validate(values, schema("vllm-stack-values"))
    values["servingEngineSpec"]["modelSpec"][0]["vllmConfig"]["maxModelLength"] = 1
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(values, schema("vllm-stack-values"))


def test_the_production_stack_starts_the_command_of_the_plan() -> None:
    [values] = values_of(example(), Target.HELM).values()
    engine, commands = values["servingEngineSpec"], planned(example())
    assert len(engine["modelSpec"]) == len(commands)
    for spec in engine["modelSpec"]:
        made = chart_words(spec, engine["containerPort"])
        wanted = words_of(commands[spec["name"]])
        assert made[:3] == wanted[:3]
        assert pairs(made) == sorted([*pairs(wanted), ("--enable-prefix-caching",)])


def test_prefix_caching_is_what_the_plan_says() -> None:
    supply, placements = on("H100-SXM x1", 1, "H100-SXM")
    off = pool_of("chat", sizing_of("Qwen/Qwen3-0.6B", "H100-SXM", prefix_caching=False), placements=placements)
    [values] = values_of(plan_of(off, supplies=(supply,)), Target.HELM).values()
    [spec] = values["servingEngineSpec"]["modelSpec"]
    assert spec["vllmConfig"]["enablePrefixCaching"] is False
    assert "--no-enable-prefix-caching" not in spec["vllmConfig"]["extraArgs"]
    hybrid = pool_of("chat", sizing_of("Qwen/Qwen3.5-27B", "H100-SXM"), placements=placements)
    assert hybrid.memory.state_bytes_per_request > 0
    with pytest.raises(InputError, match="the plan leaves it to the engine"):
        deployment_files(plan_of(hybrid, supplies=(supply,)), CATALOG, Target.HELM)


def test_names_of_the_chart_fit_into_a_host_name() -> None:
    """The chart's longest: release, model and chart, as host name of the pod."""
    [values] = values_of(example(), Target.HELM).values()
    for spec in values["servingEngineSpec"]["modelSpec"]:
        assert len(f"fleet-{spec['name']}-deployment-vllm") <= 63
    files = files_of(example(), Target.HELM)
    scaled = {
        found["spec"]["scaleTargetRef"]["name"] for found in yaml.safe_load_all(files["autoscaling/2027-01-01.yaml"])
    }
    assert "fleet-assistant-2-deployment-vllm" in scaled
    assert "fleet-assistant-2-engine-service" in files["gateway/routes.yaml"]


def test_values_of_llm_d_are_what_its_schema_allows_and_start_the_command_of_the_plan() -> None:
    by_name, commands = values_of(example(), Target.LLM_D), planned(example())
    assert len(by_name) == len(commands)
    for path, values in by_name.items():
        jsonschema.validate(values, schema("llm-d-modelservice-values"))
        [container] = values["decode"]["containers"]
        name = path.removesuffix(".values.yaml")
        assert [*container["command"], *container["args"]] == words_of(commands[name])
        assert values["prefill"]["create"] is False
        [(resource, count)] = container["resources"]["limits"].items()
        assert values["accelerator"]["type"] == resource.partition(".")[0]
        assert int(count) == values["decode"]["parallelism"]["tensor"]


def test_llm_d_gets_the_lengths_of_each_pool_as_a_label() -> None:
    by_name = values_of(example(), Target.LLM_D)
    label = "llm-d.ai/context-length-range"
    assert by_name["assistant-1.values.yaml"]["modelArtifacts"]["labels"][label] == "0-331"
    assert by_name["assistant-2.values.yaml"]["modelArtifacts"]["labels"][label].startswith("332-")


@pytest.mark.parametrize(
    ("plan", "target", "message"),
    [
        (across_nodes("sglang"), Target.VLLM, "pool reasoning: runs sglang, and --target vllm starts vllm"),
        (across_nodes("sglang"), Target.HELM, "runs sglang, and --target helm starts vllm"),
        (across_nodes("vllm"), Target.SGLANG, "runs vllm, and --target sglang starts sglang"),
        (across_nodes("vllm"), Target.HELM, "spans 2 nodes, for which the chart needs a Ray operator"),
        (across_nodes("vllm"), Target.LLM_D, "spans 2 nodes, which the chart runs for data parallelism only"),
        (shared_plan(), Target.LLM_D, "told apart by tenant, which llm-d's scheduler does not do"),
    ],
)
def test_what_a_target_cannot_serve_is_refused(plan: FleetPlan, target: Target, message: str) -> None:
    with pytest.raises(InputError, match=message):
        files_of(plan, target)


def test_a_name_that_the_chart_would_render_is_refused() -> None:
    pool = example().pools[0].model_copy(update={"model": "{{ .Values }}", "launch_command": "vllm serve m"})
    with pytest.raises(InputError, match="which the chart would render"):
        deployment_files(plan_of(pool), CATALOG, Target.LLM_D)
