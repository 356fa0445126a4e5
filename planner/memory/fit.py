"""Refit the overheads that no source states, from the catalogue's table of start-up logs.

Four figures are fitted: memory outside PyTorch of one rank, what NCCL adds by tensor-parallel degree, the workspace of
fused all-reduces, and the size of a CUDA graph as the estimate measures it. Each is a median, so that the refit needs
no solver and repeats. What PyTorch holds is counted from the engine's code (`planner.memory.overheads`).
"""

from __future__ import annotations

import datetime as dt
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from planner import units
from planner.catalog.csv_table import read_table
from planner.catalog.engine import EngineFacts, find_engine
from planner.catalog.engine_rules.vllm import TpFigure
from planner.catalog.load import Catalog
from planner.catalog.versions import version_key
from planner.errors import InputError, Problem, Problems
from planner.memory import overheads
from planner.memory.overheads import ProfilingRun
from planner.memory.size import size
from planner.memory.types import Deployment, KvDtype, Sizing, WeightDtype

TABLE = "engines/startup_logs.csv"
LIBRARIES, NCCL, FUSED, GRAPH = "libraries_gib", "nccl_gib", "fused_allreduce_gib", "graph_mib_per_layer"
DECIMALS = 2
"""Logs print GiB with two decimals; the coefficients are no finer."""


class StartLog(BaseModel):
    """One row of the table: what was started, and the terms that its log states, GiB per GPU."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    id: str = Field(min_length=1)
    engine: str
    version: str
    model: str
    """As the log names it."""
    hf_id: str
    """The catalogue's model of the same sizes."""
    gpu: str
    tp: int = Field(ge=1)
    pp: int = Field(default=1, ge=1)
    weights: WeightDtype
    kv_cache: KvDtype
    utilization: float | None = Field(default=None, gt=0, le=1)
    max_model_len: int | None = Field(default=None, gt=0)
    max_num_seqs: int | None = Field(default=None, gt=0)
    max_num_batched_tokens: int | None = Field(default=None, gt=0)
    enforce_eager: bool = False
    gpu_memory_gib: float | None = Field(default=None, gt=0)
    weights_gib: float | None = Field(default=None, gt=0)
    activation_gib: float | None = Field(default=None, gt=0)
    non_torch_gib: float | None = Field(default=None, ge=0)
    graph_estimate_gib: float | None = Field(default=None, ge=0)
    available_gib: float | None = Field(default=None, gt=0)
    fit: bool
    """Whether its terms are fitted on; one whose setting is inferred, or whose memory is shared, is only predicted."""
    source_url: str = Field(min_length=1)
    as_of: dt.date
    notes: str = ""

    @property
    def deployment(self) -> Deployment:
        """How it was started."""
        return Deployment(
            self.tp,
            self.weights,
            self.kv_cache,
            max_model_len=self.max_model_len,
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.max_num_batched_tokens,
            gpu_memory_utilization=self.utilization,
            pp=self.pp,
            enforce_eager=self.enforce_eager,
        )


@dataclass(frozen=True)
class Start:
    """A log with the catalogue's model and GPU, and the facts that hold for its version."""

    log: StartLog
    catalog: Catalog
    facts: EngineFacts

    @cached_property
    def sizing(self) -> Sizing:
        """Everything predicted; logged terms are not looked at."""
        log, catalog = self.log, self.catalog
        return size(catalog.model_shape(log.hf_id), catalog.gpu(log.gpu), self.facts, log.deployment)

    @cached_property
    def run(self) -> ProfilingRun:
        """Its profiling run."""
        log, catalog, sizing = self.log, self.catalog, self.sizing
        return ProfilingRun(
            catalog.model_shape(log.hf_id),
            catalog.gpu(log.gpu),
            self.facts,
            log.deployment,
            sizing.max_num_seqs,
            sizing.max_num_batched_tokens,
            sizing.max_model_len,
        )

    def term(self, name: str) -> float:
        """A predicted term by the first word of its name, GiB; 0 where there is none."""
        return sum(term.gib for term in self.sizing.terms if term.name.startswith(name))

    def since(self, fact: str) -> str:
        """The version from which this start's value of a fact holds."""
        return self.facts.sources[fact].since


@dataclass(frozen=True)
class Coefficient:
    """One fitted figure: a fact's value from a version on, for ``tp`` and more ranks where it depends on them."""

    fact: str
    since: str
    tp: int | None
    value: float
    residuals: tuple[float, ...]
    """Fitted minus logged, GiB (MiB per layer for graphs), a figure per log."""
    logs: tuple[str, ...]

    @property
    def median_residual(self) -> float:
        """Median of the residuals' sizes."""
        return statistics.median(abs(residual) for residual in self.residuals)

    @property
    def worst_residual(self) -> float:
        """Largest residual's size."""
        return max(abs(residual) for residual in self.residuals)


@dataclass(frozen=True)
class Prediction:
    """Available KV memory of a log, predicted and logged, GiB per GPU."""

    log: StartLog
    predicted_gib: float
    logged_gib: float

    @property
    def error(self) -> float:
        """Predicted over logged, less 1."""
        return self.predicted_gib / self.logged_gib - 1


def read_logs(root: Path) -> tuple[StartLog, ...]:
    """The table of start-up logs below a catalogue folder.

    Raises
    ------
    InputError
        Listing every problem of the table.
    """
    problems = Problems()
    path = root / TABLE
    logs: dict[str, StartLog] = {}
    for number, row in read_table(path, StartLog, problems):
        if row.id in logs:
            problems.add(str(path), f"second row for {row.id}", "Keep one of them", row=str(number), field="id")
        logs[row.id] = row
    problems.raise_if_any()
    if not logs:
        raise InputError(Problem(str(path), "holds no start-up log"))
    return tuple(logs.values())


def starts(logs: Iterable[StartLog], catalog: Catalog) -> tuple[Start, ...]:
    """The logs with the facts of their versions."""
    return tuple(Start(log, catalog, find_engine(catalog.engines, log.engine, log.version)) for log in logs)


def fit(started: Sequence[Start]) -> tuple[Coefficient, ...]:
    """Every coefficient that the logs bear on: each is fitted with those before it."""
    used = [start for start in started if start.log.fit]
    outside = [start for start in used if start.log.non_torch_gib is not None]
    libraries = _by_group(
        LIBRARIES, [s for s in outside if s.log.tp == 1], lambda s: (s.since(LIBRARIES), None), logged_outside
    )
    alone = {c.since: c.value for c in libraries}
    joined = [s for s in outside if s.log.tp > 1 and s.run.gpu.interconnect != "pcie" and s.since(LIBRARIES) in alone]
    nccl = _by_group(
        NCCL,
        [s for s in joined if not overheads.reduces_fused(s.run)],
        lambda s: (s.since(NCCL), s.log.tp),
        lambda s: logged_outside(s) - alone[s.since(LIBRARIES)],
    )
    linked = [TpFigure(min_tp=1, gib=0.0), *(TpFigure(min_tp=c.tp or 1, gib=c.value) for c in nccl)]
    fused = _by_group(
        FUSED,
        [s for s in joined if overheads.reduces_fused(s.run)],
        lambda s: (s.since(FUSED), s.log.tp),
        lambda s: logged_outside(s) - alone[s.since(LIBRARIES)] - overheads.at_tp(linked, s.log.tp),
    )
    graphs = [s for s in used if states_estimate(s) and overheads.graph_term(s.run) is not None]
    return (*libraries, *nccl, *fused, *_by_group(GRAPH, graphs, lambda s: (s.since(GRAPH), None), graph_mib_per_layer))


def _by_group(
    fact: str,
    used: Iterable[Start],
    group: Callable[[Start], tuple[str, int | None]],
    figure: Callable[[Start], float],
) -> list[Coefficient]:
    """A coefficient for each version and degree: the median of the logs' figures."""
    groups: dict[tuple[str, int | None], list[tuple[str, float]]] = {}
    for start in used:
        groups.setdefault(group(start), []).append((start.log.id, figure(start)))
    found = []
    for (since, tp), figures in sorted(groups.items(), key=lambda item: (version_key(item[0][0]), item[0][1] or 0)):
        value = round(statistics.median(logged for _, logged in figures), DECIMALS)
        residuals = tuple(value - logged for _, logged in figures)
        found.append(Coefficient(fact, since, tp, value, residuals, tuple(log for log, _ in figures)))
    return found


def logged_outside(start: Start) -> float:
    """Logged memory outside PyTorch, GiB: less the runner's own tensors, where consumed memory is logged."""
    run, logged = start.run, start.log.non_torch_gib
    assert logged is not None
    if not run.rules.buffers_counted:
        return logged
    buffers = overheads.buffers_term(run)
    experts = overheads.expert_workspace_bytes(run) if overheads.experts_kept(run) else 0.0
    return logged - (buffers.gib if buffers else 0.0) - units.bytes_to_gib(experts)


def states_estimate(start: Start) -> bool:
    """Whether the log states the graph estimate, by itself or within an activation peak that includes it."""
    log = start.log
    return log.graph_estimate_gib is not None or (log.activation_gib is not None and start.facts.vllm.buffers_counted)


def graph_mib_per_layer(start: Start) -> float:
    """MiB of one CUDA graph per layer.

    Versions that count consumed memory print the estimate within the activation peak: what exceeds the predicted
    tensors that are freed again is the estimate.
    """
    log, run = start.log, start.run
    estimate = log.graph_estimate_gib
    if estimate is None:
        freed = max(overheads.sampler_bytes(run), overheads.forward_bytes(run), overheads.encoder_bytes(run))
        freed -= overheads.expert_workspace_bytes(run) if overheads.experts_kept(run) else 0.0
        estimate = (log.activation_gib or 0.0) - units.bytes_to_gib(freed)
    graphs = overheads.graphs_captured(run.rules.graph_sizes, run.gpu, run.max_num_seqs, run.batched_tokens)
    return units.gib_to_mib(estimate) / (graphs * run.shape.num_layers)


def catalogue_value(engines: Sequence[EngineFacts], coefficient: Coefficient) -> float | None:
    """The catalogue's value of a coefficient; ``None`` where no version has the fact from that version on."""
    for facts in engines:
        if facts.name == "vllm" and facts.sources[coefficient.fact].since == coefficient.since:
            value = getattr(facts.vllm, coefficient.fact)
            return float(value if coefficient.tp is None else overheads.at_tp(value, coefficient.tp))
    return None


def stale(engines: Sequence[EngineFacts], coefficients: Iterable[Coefficient]) -> tuple[Coefficient, ...]:
    """Coefficients whose catalogue value differs from the refit beyond rounding."""
    half = 0.5 * 10**-DECIMALS
    found = []
    for coefficient in coefficients:
        value = catalogue_value(engines, coefficient)
        if value is None or abs(value - coefficient.value) > half:
            found.append(coefficient)
    return tuple(found)


def with_coefficients(facts: EngineFacts, coefficients: Iterable[Coefficient]) -> EngineFacts:
    """The facts of a version with refitted values in place of the catalogue's."""
    changed: dict[str, Any] = {}
    for coefficient in coefficients:
        if facts.sources[coefficient.fact].since != coefficient.since:
            continue
        if coefficient.tp is None:
            changed[coefficient.fact] = coefficient.value
            continue
        figures = changed.get(coefficient.fact, getattr(facts.vllm, coefficient.fact))
        others = (figure for figure in figures if figure.min_tp != coefficient.tp)
        changed[coefficient.fact] = (*others, TpFigure(min_tp=coefficient.tp, gib=max(0.0, coefficient.value)))
    return facts.model_copy(update={"rules": facts.vllm.model_copy(update=changed)})


def predictions(started: Iterable[Start]) -> tuple[Prediction, ...]:
    """Available KV memory of every log that states it and its utilisation."""
    return tuple(
        Prediction(start.log, start.sizing.available_kv_gib, start.log.available_gib)
        for start in started
        if start.log.available_gib is not None and start.log.utilization is not None
    )


def leave_one_source_out(started: Sequence[Start]) -> tuple[Prediction, ...]:
    """The same, each source's logs predicted with coefficients fitted without that source.

    A coefficient that no other source bears on keeps the catalogue's value of the next older version.
    """
    found: list[Prediction] = []
    for source in sorted({start.log.source_url for start in started}):
        inside = [start for start in started if start.log.source_url == source]
        whole = fit(started)
        rest = fit([start for start in started if start.log.source_url != source])
        coefficients = (*_carried(whole, rest), *rest)
        found += predictions(replace(start, facts=with_coefficients(start.facts, coefficients)) for start in inside)
    return tuple(found)


def _carried(whole: Iterable[Coefficient], rest: Sequence[Coefficient]) -> list[Coefficient]:
    """Coefficients that only the source left out bears on: the last of the same fact and degree before them, else 0."""
    kept = {(c.fact, c.since, c.tp) for c in rest}
    carried = []
    for lost in whole:
        if (lost.fact, lost.since, lost.tp) in kept:
            continue
        older = [c for c in rest if c.fact == lost.fact and c.tp == lost.tp]
        older = [c for c in older if version_key(c.since) < version_key(lost.since)]
        carried.append(replace(lost, value=older[-1].value if older else 0.0))
    return carried


UNITS = {GRAPH: "MiB per layer"}
MEANING = {
    LIBRARIES: "memory outside PyTorch of one rank",
    NCCL: "memory outside PyTorch of several ranks less that of one",
    FUSED: "memory outside PyTorch of fused ranks less libraries and NCCL",
    GRAPH: "graph estimate over graphs and layers",
}


def source_text(coefficients: Sequence[Coefficient]) -> str:
    """Count of logs and residuals of one fact, for its ``source``."""
    parts = []
    for c in coefficients:
        degree = "" if c.tp is None else f"TP{c.tp} "
        count = f"{len(c.logs)} start-up log" + ("s" if len(c.logs) > 1 else "")
        spread = f"residual {c.median_residual:.2f} median, {c.worst_residual:.2f} worst"
        parts.append(f"{degree}{count}, {spread}")
    fact = coefficients[0].fact
    return f"{MEANING[fact]}, {UNITS.get(fact, 'GiB')}: {'; '.join(parts)}"


def fragment(coefficients: Sequence[Coefficient], as_of: dt.date) -> str:
    """The fitted facts as entries of ``vllm.toml``, dated to the newest log."""
    facts: dict[tuple[str, str], list[Coefficient]] = {}
    for coefficient in coefficients:
        facts.setdefault((coefficient.fact, coefficient.since), []).append(coefficient)
    return "\n".join(_entry(fact, since, found, as_of) for (fact, since), found in facts.items())


def _entry(fact: str, since: str, found: Sequence[Coefficient], as_of: dt.date) -> str:
    value = f"{found[0].value:g}"
    if found[0].tp is not None:
        figures = ", ".join(f"{{ min_tp = {c.tp}, gib = {c.value:g} }}" for c in found)
        value = f"[{{ min_tp = 1, gib = 0 }}, {figures}]"
    lines = (
        "[[fact]]",
        f'name = "{fact}"',
        f'since = "{since}"',
        f"value = {value}",
        f'source = "{source_text(found)}"',
        f"as_of = {as_of.isoformat()}",
        'origin = "fitted"',
    )
    return "\n".join(lines) + "\n"
