"""The README of a deployment: what each file is, what a person must confirm, and where every figure comes from."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from planner.deploy.autoscale import Week
from planner.deploy.helm import CPUS_PER_GPU, MEMORY, RELEASE, REPOSITORY, VALUES
from planner.deploy.helm import scaled_of as helm_target
from planner.deploy.llm_d import CHART, CHARTS
from planner.deploy.llm_d import scaled_of as llm_d_target
from planner.deploy.pods import POOL_NOTE, TOKEN_SECRET
from planner.deploy.replicas import Replica
from planner.deploy.targets import Target
from planner.deploy.words import comment
from planner.observe.tracks import POOL
from planner.plan import FleetPlan, Pool

TITLE = "# Deployment of plan "
"""How the README of a deployment begins: by it, a folder is known to be one that may be replaced."""
LONGEST, WARNING = 200, 1000
"""Characters of a text from a plan, and of a warning."""
LLM_D_GATEWAY = (
    "Since llm-d 0.7 the chart is kept for older set-ups; manifests of `--target kubernetes` carry the same labels. "
    "llm-d's gateway, InferencePools (by the label `llm-d.ai/model`) and scheduler are installed apart; its plugin "
    "context-length-aware, with filtering on, reads the label of prompt lengths. Between pools of the same lengths it "
    "decides by load, not by the plan's shares."
)
MONITORING = (
    f"Prometheus scrapes every pod and copies its annotation `{POOL_NOTE}` into the label `{POOL}`, which rules and "
    "dashboard ask for (relabelling from `__meta_kubernetes_pod_annotation_planner_pool`)."
)
GATEWAY_API = (
    "Gateway API and a Gateway named `inference-gateway`; before its routes match, the headers of its routes must "
    "be set: the model's by body-based routing, tenant and prompt length (`bands.json`) by a filter of yours. No "
    "standard route matches a prompt length."
)


def readme(plan: FleetPlan, target: Target, replicas: Sequence[Replica], files: Mapping[str, str], week: Week) -> str:
    """The text.

    Parameters
    ----------
    files
        What each file is, by path.
    """
    period = f"{plan.horizon_start.isoformat()} to {plan.horizon_end.isoformat()} (the last day is not part of it)"
    parts = [
        f"{TITLE}{plan.run_id}: {_text(plan.title)}\n",
        f"For `{target.value}`, by planner {_text(plan.planner_version)}; owner {_text(plan.owner)}; {period}. Every "
        "figure below without another source is that of the plan.\n",
        "## Files\n",
        _table(("File", "What it is"), [(f"`{path}`", what) for path, what in sorted(files.items())]),
        "## Start\n",
        _start(target, files),
        "## Confirm by hand\n",
        "".join(f"* {line}\n" for line in to_confirm(plan, target, replicas, week)),
        *_warnings(plan),
        "## Pools\n",
        _pools(replicas),
        "Replicas by period of the plan:\n",
        _periods(plan, replicas),
        *(_arguments(replica) for replica in replicas),
        "## Does it hold what was planned?\n",
        _loop(target, replicas),
    ]
    return "\n".join(parts)


def _start(target: Target, files: Mapping[str, str]) -> str:
    """The commands that start everything, once all is confirmed."""
    hours = [f"kubectl apply -f {path}" for path in sorted(files) if path.startswith("autoscaling/")][:1]
    if target is Target.KUBERNETES:
        lines = ["kubectl apply -f kubernetes -f gateway", *hours]
    elif target is Target.HELM:
        install = f"helm upgrade --install {RELEASE} vllm/vllm-stack -f {VALUES}"
        lines = [f"helm repo add vllm {REPOSITORY}", install, "kubectl apply -f gateway", *hours]
    elif target is Target.LLM_D:
        charts = [path for path in sorted(files) if path.endswith(".values.yaml")]
        names = {path: path.removesuffix(".values.yaml") for path in charts}
        repository = f"helm repo add {CHART.partition('/')[0]} {CHARTS}"
        lines = [repository, *(f"helm upgrade --install {names[path]} {CHART} -f {path}" for path in charts), *hours]
    else:
        lines = [f"./{path}" for path in sorted(files) if path.endswith(".sh")]
    return "```sh\n" + "\n".join(lines) + "\n```\n"


def to_confirm(plan: FleetPlan, target: Target, replicas: Sequence[Replica], week: Week) -> list[str]:
    """What the plan cannot know, one line each."""
    lines = [f"Replace {_text(text)}: until then its pods stay pending." for text in _guesses(target, replicas)]
    lines += _models(replicas)
    if not target.on_kubernetes:
        return lines
    labels = {r.label.key + "=" + r.label.value: r.label.source for r in replicas if r.label.source}
    tells = "`kubectl get nodes --show-labels` tells"
    lines += [f"Node label `{label}`: {_text(source)}. {tells}." for label, source in labels.items()]
    lines += _places(plan, replicas)
    lines += _cluster(target, replicas, week)
    return lines


def _guesses(target: Target, replicas: Sequence[Replica]) -> list[str]:
    return [text for replica in replicas for text in replica.guesses] if target.on_kubernetes else []


def _models(replicas: Sequence[Replica]) -> list[str]:
    loose = [replica.pool.name for replica in replicas if not replica.command.has("--revision")]
    if not loose:
        return []
    pools = ", ".join(_text(name) for name in loose)
    return [f"No revision of the weights is pinned for {pools}: `--checkpoint POOL=ID@REVISION` pins one."]


def _places(plan: FleetPlan, replicas: Sequence[Replica]) -> list[str]:
    """The nodes that must be there."""
    supplies = {supply.id: supply for supply in plan.supplies}
    lines = []
    for replica in replicas:
        for placement in replica.pool.placements:
            supply = supplies.get(placement.supply)
            spot = " on spot" if supply is not None and supply.spot else ""
            region = f" in {supply.region}" if supply is not None and supply.region else ""
            most = max(placement.replicas, default=0)
            name = _text(replica.pool.name)
            noun = "replica" if most == 1 else "replicas"
            lines.append(f"{name}: nodes of {_text(placement.supply)}{_text(region)}{spot} for up to {most} {noun}.")
    return lines


def _cluster(target: Target, replicas: Sequence[Replica], week: Week) -> list[str]:
    secret = "HF_TOKEN" if target is Target.LLM_D else "token"
    need = "must exist" if target in (Target.HELM, Target.LLM_D) else "is read where it exists"
    lines = [
        f"Secret `{TOKEN_SECRET}` with key `{secret}`, a token of the model hub, {need}.",
        "Weights are downloaded when a pod starts; mount a volume where that takes too long.",
        "Taints of GPU nodes need tolerations, which the plan does not know.",
    ]
    lines.append(MONITORING)
    lines.append(LLM_D_GATEWAY if target is Target.LLM_D else GATEWAY_API)
    if target is Target.HELM:
        lines.append(f"CPU and memory, which the chart asks for: {CPUS_PER_GPU} CPU a GPU and {MEMORY} are guesses.")
    if any(replica.nodes > 1 for replica in replicas):
        lines.append("LeaderWorkerSet is installed; the image of vLLM holds Ray (`ray --version`).")
        lines.append("The fast network between nodes (RDMA devices, host network) is for the cluster to add.")
    return lines + _hours(week)


def _hours(week: Week) -> list[str]:
    lines = [_text(week.note[:1].upper() + week.note[1:]) + "."] if week.note else []
    if not week.spans:
        return [*lines, "No ScaledObject is written: the busiest period's replicas run all the time."]
    lines.append(f"KEDA is installed; hours are those of {_text(week.zone)}.")
    if len(week.spans) > 1:
        days = ", ".join(span.first.isoformat() for span in week.spans)
        lines.append(f"The hours change in the horizon: apply each autoscaling file on its day ({days}, UTC).")
    if week.holidays:
        days = ", ".join(day.isoformat() for day in week.holidays)
        lines.append(f"On holidays ({days}) at least the replicas of the weekday run.")
    return lines


def _warnings(plan: FleetPlan) -> list[str]:
    """What the plan warns of, such as an engine's version that stands for another."""
    if not plan.warnings:
        return []
    return ["## Warnings of the plan\n", "".join(f"* {_text(text, WARNING)}\n" for text in plan.warnings)]


def _pools(replicas: Sequence[Replica]) -> str:
    head = (
        "Pool",
        "Name here",
        "Model",
        "Prompt tokens",
        "GPUs of a replica",
        "Nodes",
        "Engine",
        "KV tokens of a replica",
    )
    rows = []
    for replica in replicas:
        pool = replica.pool
        gpus = f"{replica.gpus * replica.nodes} x {pool.gpu}"
        rows.append(
            (
                pool.name, replica.name, pool.model, _lengths(pool), gpus, str(replica.nodes),
                f"{pool.engine} {pool.engine_version}", f"{pool.memory.pool_tokens:,}",
            )
        )  # fmt: skip
    return _table(head, rows)


def _lengths(pool: Pool) -> str:
    if pool.prompt_hi_tokens is None:
        return f"{pool.prompt_lo_tokens:,} and more" if pool.prompt_lo_tokens else "all"
    return f"{pool.prompt_lo_tokens:,} to {pool.prompt_hi_tokens - 1:,}"


def _periods(plan: FleetPlan, replicas: Sequence[Replica]) -> str:
    head = ("Period", "Hours", *(replica.pool.name for replica in replicas))
    counts = [{period.period: period.replicas for period in replica.pool.periods} for replica in replicas]
    rows = []
    for period in plan.periods:
        mine = [own.get(period.name, replicas[i].pool.replicas) for i, own in enumerate(counts)]
        rows.append((period.name, period.when or f"{period.hours:g} h", *(str(count) for count in mine)))
    return _table(head, rows)


def _arguments(replica: Replica) -> str:
    rows = [
        (f"`{a.flag}`", "" if a.value is None else f"{a.variable}{a.value}", a.why) for a in replica.command.arguments
    ]
    environment = [(f"`{name}`", value, "environment") for name, value in replica.command.environment.items()]
    program = " ".join(replica.command.program)
    head = f"### {_text(replica.pool.name)}: {program} {_text(replica.command.model)}\n"
    return head + "\n" + _table(("Argument", "Value", "Figure of the plan"), [*environment, *rows])


def _loop(target: Target, replicas: Sequence[Replica]) -> str:
    first = replicas[0]
    owner = {
        Target.KUBERNETES: f"{first.name}-0" if first.nodes > 1 else f"deployment/{first.name}",
        Target.HELM: f"deployment/{helm_target(first)['name']}",
        Target.LLM_D: f"deployment/{llm_d_target(first)['name']}",
    }.get(target)
    logs = f"kubectl logs {owner} > serve.log" if owner else f"./{first.name}.sh 2>&1 | tee serve.log"
    check = f"planner check-log serve.log --plan plan.json --pool {shlex.quote(comment(first.pool.name))}"
    return (
        "Each engine prints the KV pool that it found. Compare it with the plan, pool by pool; exit code 3 means that "
        f"the pool does not hold what was planned:\n\n```sh\n{logs}\n{check}\n```\n"
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(_text(cell) for cell in row) + " |" for row in (head, *rows)]
    lines.insert(1, "|" + " --- |" * len(head))
    return "\n".join(lines) + "\n"


def _text(text: str, longest: int = LONGEST) -> str:
    """A text that stays on its line and in its cell."""
    line = comment(text.replace("\n", " "))
    line = line if len(line) <= longest else line[: longest - 1] + "…"
    return line.replace("|", "\\|").replace("<", "&lt;")
