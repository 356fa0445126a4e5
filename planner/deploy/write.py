"""All files of a deployment, as texts by path: from a plan and the catalogue, nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from planner import observe
from planner.catalog.load import Catalog
from planner.deploy import helm, llm_d
from planner.deploy.autoscale import Week, changes, scaled_object, scaling_of, week_of
from planner.deploy.commands import Checkpoint
from planner.deploy.gateway import bands_json, http_routes, routes_of
from planner.deploy.kubernetes import objects_of
from planner.deploy.readme import readme
from planner.deploy.replicas import Replica, replicas_of
from planner.deploy.targets import Target
from planner.deploy.words import shell_script
from planner.deploy.yaml_text import yaml_text
from planner.errors import InputError, Problem
from planner.plan import FleetPlan
from planner.report.routing import routing_json

README = "README.md"
OBSERVED = {
    observe.ALERTS_FILE: "Alert rules for Prometheus: where the fleet leaves what was planned.",
    observe.DASHBOARD_FILE: "A Grafana dashboard: load, latency and replicas against the plan.",
}


class Files:
    """Texts by path, each with a word on what it is."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.what: dict[str, str] = {}

    def add(self, path: str, text: str, what: str) -> None:
        """Add a file."""
        self.texts[path], self.what[path] = text, what


def deployment_files(
    plan: FleetPlan, catalog: Catalog, target: Target, checkpoints: Mapping[str, Checkpoint] | None = None
) -> dict[str, str]:
    """The files of a deployment by relative path.

    Parameters
    ----------
    checkpoints
        By name of the pool: weights to load, where the plan leaves them open or a revision is to be pinned.

    Raises
    ------
    InputError
        Listing every pool that the target cannot run, and every argument that an engine's version does not have.
    """
    _check_engines(plan, target)
    replicas = replicas_of(plan, catalog, checkpoints or {})
    week, files = week_of(plan), Files()
    WRITERS[target](plan, replicas, week, files)
    files.add(
        "routing.json", routing_json(routes_of(plan)), "The routing table: which prompts of whom go to which pool."
    )
    for path, text in observe.files(plan).items():
        files.add(path, text, OBSERVED[path])
    files.what[README] = "This text."
    return {README: readme(plan, target, replicas, files.what, week), **files.texts}


def _check_engines(plan: FleetPlan, target: Target) -> None:
    """Raise where a pool runs an engine that the target does not start."""
    fix = "Use --target kubernetes, which runs both engines"
    raise_all(
        Problem(f"pool {pool.name}", f"runs {pool.engine}, and --target {target.value} starts {target.engines[0]}", fix)
        for pool in plan.pools
        if pool.engine not in target.engines
    )


def raise_all(problems: Iterable[Problem]) -> None:
    """Raise one error with all problems, if there is any."""
    found = list(problems)
    if found:
        raise InputError(found)


def _commands(plan: FleetPlan, replicas: Sequence[Replica], week: Week, files: Files) -> None:
    for replica in replicas:
        files.add(f"{replica.name}.sh", shell_script(replica.command, _heading(plan, replica)), _script_words(replica))


def _script_words(replica: Replica) -> str:
    where = f"on each of its {replica.nodes} nodes" if replica.nodes > 1 and replica.pool.engine == "sglang" else "on"
    if where == "on":
        where = "on the head of a Ray cluster over its nodes" if replica.nodes > 1 else f"on {replica.gpus} GPUs"
    return f"Starts a replica of {replica.pool.name} {where}."


def _heading(plan: FleetPlan, replica: Replica) -> list[str]:
    pool = replica.pool
    lines = [
        f"Pool {pool.name} of plan {plan.run_id}: {pool.replicas} replicas in the busiest period, each on "
        f"{replica.gpus * replica.nodes} x {pool.gpu}; {pool.engine} {pool.engine_version}.",
        f"Image: {replica.image}",
    ]
    if replica.nodes > 1 and pool.engine == "vllm":
        lines.append(f"Start Ray on {replica.nodes} nodes first, and this on its head only.")
    return lines


def _kubernetes(plan: FleetPlan, replicas: Sequence[Replica], week: Week, files: Files) -> None:
    for replica in replicas:
        heading = [*_heading(plan, replica), "Figures of each argument: README.md"]
        kinds = objects_of(replica, plan.run_id, routes_of(plan))
        what = f"{kinds[0]['kind']} and Service of {replica.pool.name}."
        files.add(f"kubernetes/{replica.name}.yaml", yaml_text(kinds, heading), what)
    _autoscaling(plan, replicas, week, files)
    _gateway(plan, replicas, files)


def _helm(plan: FleetPlan, replicas: Sequence[Replica], week: Week, files: Files) -> None:
    raise_all(problem for replica in replicas for problem in helm.problems_of(replica))
    heading = [f"Plan {plan.run_id}, for the chart vllm-stack 0.1.9 of the vLLM production stack"]
    files.add(helm.VALUES, yaml_text([helm.values_of(replicas)], heading), "Values of the chart.")
    _autoscaling(plan, replicas, week, files, helm.scaled_of)
    _gateway(plan, replicas, files, helm.service_of)


def _llm_d(plan: FleetPlan, replicas: Sequence[Replica], week: Week, files: Files) -> None:
    table = routes_of(plan)
    raise_all(problem for replica in replicas for problem in llm_d.problems_of(replica, table))
    for replica in replicas:
        path = f"{replica.name}.values.yaml"
        text = yaml_text([llm_d.values_of(replica, table)], _heading(plan, replica))
        files.add(path, text, f"Values of the chart {llm_d.CHART} for {replica.pool.name}.")
    _autoscaling(plan, replicas, week, files, llm_d.scaled_of)


def _autoscaling(
    plan: FleetPlan,
    replicas: Sequence[Replica],
    week: Week,
    files: Files,
    target: Callable[[Replica], Mapping[str, str]] | None = None,
) -> None:
    """ScaledObjects of the pools whose replicas change, one file for each span of the horizon."""
    moving = [replica for replica in replicas if changes(replica)]
    for span in week.spans if moving else ():
        objects = []
        for replica in moving:
            counts = [period.replicas for period in replica.pool.periods]
            scaling = scaling_of(counts, span, week.holidays)
            objects.append(scaled_object(replica, scaling, week.zone, plan.run_id, target and target(replica)))
        name = f"autoscaling/{span.first.isoformat()}.yaml"
        heading = [f"Replicas by hour of plan {plan.run_id}, from {span.first.isoformat()}; hours of {week.zone}"]
        files.add(name, yaml_text(objects, heading), f"KEDA ScaledObjects, from {span.first.isoformat()} on.")


def _gateway(
    plan: FleetPlan,
    replicas: Sequence[Replica],
    files: Files,
    service: Callable[[Replica], str] = lambda replica: replica.name,
) -> None:
    objects = http_routes(plan, replicas, service)
    routes = yaml_text(objects, [f"Routes of plan {plan.run_id}"])
    files.add("gateway/routes.yaml", routes, "HTTPRoutes of the Gateway API.")
    files.add("bands.json", bands_json(plan), "Header values of prompt lengths, for what counts the tokens.")


WRITERS: Mapping[Target, Callable[[FleetPlan, Sequence[Replica], Week, Files], None]] = {
    Target.VLLM: _commands,
    Target.SGLANG: _commands,
    Target.KUBERNETES: _kubernetes,
    Target.HELM: _helm,
    Target.LLM_D: _llm_d,
}
