"""Terms measured at start-up: written from a log, and used instead of predictions where they hold.

A measured term holds where everything that it depends on is the same (`DEPENDS_ON`): weights are a matter of model,
format and parallelism, memory outside PyTorch of engine version, GPU and parallelism, the activation peak of all that
the profiling run is.
"""

from __future__ import annotations

import datetime as dt
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from planner import units
from planner.catalog.engine import EngineFacts
from planner.catalog.gpu import Gpu
from planner.catalog.model_shape import ModelShape
from planner.errors import InputError, Problem
from planner.memory.size import size
from planner.memory.starts.startup_log import StartupLog
from planner.memory.types import Deployment, GivenTerms, Sizing, Term
from planner.memory.vllm.replica import Replica
from planner.origin import Origin


class MeasuredStart(BaseModel):
    """One ``[[start]]`` of a calibration file: how an engine was started and what it measured, GiB per GPU."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=(), allow_inf_nan=False)

    engine: str
    version: str
    """As logged."""
    facts_version: str
    """The catalogue's version whose rules hold for it."""
    model: str
    gpu: str
    tp: int = Field(ge=1)
    pp: int = Field(default=1, ge=1)
    weight_dtype: str
    max_num_seqs: int = Field(ge=1)
    max_num_batched_tokens: int = Field(ge=1)
    source: str
    """Name of the log."""
    as_of: dt.date
    """Day on which the log was read."""
    gpu_memory_gib: float | None = Field(default=None, gt=0)
    weights_gib: float | None = Field(default=None, ge=0)
    activation_gib: float | None = Field(default=None, ge=0)
    non_torch_gib: float | None = None
    """Everything that stays allocated beside the weights; negative in a log of a shared GPU."""
    graphs_gib: float | None = Field(default=None, ge=0)
    """What is deducted for CUDA graphs, not what they took."""
    overhead_gib: float | None = None
    """All that is neither weights nor cache, where the log does not part it."""
    free_before_gib: float | None = Field(default=None, gt=0)

    @property
    def identity(self) -> tuple[object, ...]:
        """What a later measurement of the same start replaces."""
        return tuple(getattr(self, name) for name in IDENTITY)


IDENTITY = (
    "engine",
    "facts_version",
    "model",
    "gpu",
    "tp",
    "pp",
    "weight_dtype",
    "max_num_seqs",
    "max_num_batched_tokens",
)
_RUN = ("engine", "facts_version", "model", "gpu", "tp", "max_num_seqs", "max_num_batched_tokens")
DEPENDS_ON: Mapping[str, tuple[str, ...]] = {
    "gpu_memory_gib": ("gpu",),
    "weights_gib": ("engine", "model", "tp", "pp", "weight_dtype"),
    "activation_gib": _RUN,
    "non_torch_gib": ("engine", "facts_version", "gpu", "tp"),
    "graphs_gib": _RUN[:-1],
    "overhead_gib": (*_RUN, "pp", "weight_dtype"),
    "free_before_gib": ("engine", "gpu", "tp"),
}
"""What each term depends on: it holds where all of it is the same."""


@dataclass(frozen=True)
class Calibration:
    """The starts of a calibration file, oldest first."""

    starts: tuple[MeasuredStart, ...] = ()

    def term(self, name: str, sizing: Sizing) -> Term | None:
        """The newest measurement of a term that holds for a sizing."""
        key = _key(sizing)
        for start in reversed(self.starts):
            gib = getattr(start, name)
            if gib is not None and all(getattr(start, part) == key[part] for part in DEPENDS_ON[name]):
                return Term(name, gib, Origin.MEASURED, f"measured: {start.source}, read {start.as_of}")
        return None

    def with_start(self, start: MeasuredStart) -> Calibration:
        """These starts and one more, which replaces an older measurement of the same."""
        kept = tuple(known for known in self.starts if known.identity != start.identity)
        return Calibration((*kept, start))


NOT_CALIBRATED = Calibration()


def _key(sizing: Sizing) -> dict[str, object]:
    return {
        "engine": sizing.engine,
        "facts_version": sizing.engine_version,
        "model": sizing.model_id,
        "gpu": sizing.gpu_id,
        "tp": sizing.deployment.tp,
        "pp": sizing.deployment.pp,
        "weight_dtype": str(sizing.deployment.weight_dtype),
        "max_num_seqs": sizing.max_num_seqs,
        "max_num_batched_tokens": sizing.max_num_batched_tokens,
    }


def measured_start(log: StartupLog, sizing: Sizing, source: str, as_of: dt.date) -> MeasuredStart:
    """What a log measured of the start that ``sizing`` predicts.

    Releases from vLLM 0.27 on log weights and memory outside PyTorch as one, and CUDA graphs within the activation
    peak: the former are parted by the loading line, the latter stay in the peak. Where the log parts nothing, all that
    is neither weights nor cache is one term.
    """
    terms = _sglang_terms(log) if log.engine == "sglang" else _vllm_terms(log, sizing)
    found = {name: round(gib, 4) for name, gib in terms.items() if gib is not None}
    return MeasuredStart.model_validate(
        {**_key(sizing), "version": log.version or sizing.engine_version, "source": source, "as_of": as_of, **found}
    )


def _sglang_terms(log: StartupLog) -> dict[str, float | None]:
    before, after, weights = log.figure("free_before"), log.figure("free_after"), log.figure("weights")
    if weights is None and before is not None and after is not None:
        weights = before - after
    return {"weights_gib": weights, "free_before_gib": before}


def _vllm_terms(log: StartupLog, sizing: Sizing) -> dict[str, float | None]:
    weights, available = log.figure("weights"), log.figure("available")
    activation, outside, consumed = log.figure("activation"), log.figure("non_torch"), log.figure("consumed")
    total = log.figure("total")
    budget = log.figure("budget")
    if budget is None:
        budget = sizing.utilization * (total if total is not None else sizing.gpu_memory.gib)
    graphs = overhead = None
    if consumed is not None:
        outside, graphs = (consumed - weights if weights is not None else None), 0.0
    elif None not in (weights, activation, outside, available):
        graphs = max(0.0, budget - weights - activation - outside - available)  # type: ignore[operator]
        graphs = graphs if graphs > ROUNDING_GIB else 0.0
    elif weights is not None and available is not None:
        overhead = budget - weights - available
    return {
        "gpu_memory_gib": total,
        "weights_gib": weights,
        "activation_gib": activation,
        "non_torch_gib": outside,
        "graphs_gib": graphs,
        "overhead_gib": overhead,
    }


ROUNDING_GIB = 0.03
"""What the rounding of five logged figures can leave."""


def calibrated_size(
    shape: ModelShape,
    gpu: Gpu,
    facts: EngineFacts,
    deployment: Deployment,
    given: GivenTerms | None = None,
    calibration: Calibration | None = None,
    replica: Replica | None = None,
) -> Sizing:
    """`size`, with measured terms instead of predicted ones wherever they hold; typed terms come before both.

    ``replica`` is what another deployment has found out that differs in its caps alone (see `size`).
    """
    given = given or GivenTerms()
    plain = size(shape, gpu, facts, deployment, given, replica)
    if calibration is None or not calibration.starts or given.available_gib is not None:
        return plain
    if facts.name == "sglang":
        return _sglang_calibrated(shape, gpu, facts, deployment, given, calibration, plain)
    terms = _measured_terms(plain, given, calibration)
    memory = None if given.gpu_memory_gib is not None else calibration.term("gpu_memory_gib", plain)
    if memory is None and terms == plain.terms:
        return plain
    memory = replace(memory, name=plain.gpu_memory.name) if memory is not None else plain.gpu_memory
    budget = replace(plain.budget, gib=memory.gib * plain.utilization)
    left = math.ceil(units.gib_to_bytes(budget.gib)) - sum(units.gib_to_bytes(term.gib) for term in terms)
    available = units.bytes_to_gib(left)
    sizing = size(shape, gpu, facts, deployment, replace(given, available_gib=available))
    return replace(sizing, gpu_memory=memory, budget=budget, terms=terms, available_kv_gib=available)


_NAMES = (("weights", "weights_gib"), ("activation", "activation_gib"), ("cuda graph", "graphs_gib"))
"""How a predicted term's name begins, and the measured term that replaces it; all others stay allocated."""


def _measured_terms(plain: Sizing, given: GivenTerms, calibration: Calibration) -> tuple[Term, ...]:
    """The subtraction's terms, measured where a measurement holds and none is typed."""
    weights = None if given.weights_gib is not None else calibration.term("weights_gib", plain)
    first = _named(weights, plain.terms[0])
    if given.overhead_gib is not None:
        return (first, *plain.terms[1:])
    overhead = calibration.term("overhead_gib", plain)
    if overhead is not None:
        return (first, replace(overhead, name="activation, memory outside PyTorch and CUDA graphs"))
    outside = calibration.term("non_torch_gib", plain)
    terms, placed = [first], False
    for term in plain.terms[1:]:
        known = next((name for beginning, name in _NAMES if term.name.lower().startswith(beginning)), "")
        if known or outside is None:
            terms.append(_named(calibration.term(known, plain) if known else None, term))
        elif not placed:
            terms.append(_named(outside, term))
            placed = True
    return tuple(terms)


def _named(measured: Term | None, term: Term) -> Term:
    return term if measured is None else replace(measured, name=term.name)


def _sglang_calibrated(
    shape: ModelShape,
    gpu: Gpu,
    facts: EngineFacts,
    deployment: Deployment,
    given: GivenTerms,
    calibration: Calibration,
    plain: Sizing,
) -> Sizing:
    """SGLang profiles nothing: the measured terms are weights and the free memory before them."""
    weights = None if given.weights_gib is not None else calibration.term("weights_gib", plain)
    before = None if given.free_before_weights_gib is not None else calibration.term("free_before_gib", plain)
    if weights is None and before is None:
        return plain
    known = replace(
        given,
        weights_gib=weights.gib if weights is not None else given.weights_gib,
        free_before_weights_gib=before.gib if before is not None else given.free_before_weights_gib,
    )
    sizing = size(shape, gpu, facts, deployment, known)
    return replace(sizing, terms=(_named(weights, sizing.terms[0]), *sizing.terms[1:]))


def read_calibration(path: Path) -> Calibration:
    """Read a calibration file.

    Raises
    ------
    InputError
        Listing everything in it that cannot be used.
    """
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(Problem(str(path), f"cannot be read: {error}")) from error
    problems = [Problem(str(path), "is no key of a calibration file", field=key) for key in raw if key != "start"]
    starts: list[MeasuredStart] = []
    entries = raw.get("start", [])
    for number, entry in enumerate(entries if isinstance(entries, list) else [entries], start=1):
        try:
            starts.append(MeasuredStart.model_validate(entry))
        except ValidationError as error:
            problems += [
                Problem(str(path), str(item["msg"]), row=f"start {number}", field=".".join(map(str, item["loc"])))
                for item in error.errors(include_url=False)
            ]
    if problems:
        raise InputError(problems)
    return Calibration(tuple(starts))


HEADING = (
    "# Terms measured at start-up, GiB per GPU; written by `planner check-log --calibrate`.\n"
    "# `planner size --calibration` and the request's key `calibration` use them before predictions.\n"
)


def calibration_text(calibration: Calibration) -> str:
    """The file's text."""
    return HEADING + "".join(f"\n[[start]]\n{_entry(start)}" for start in calibration.starts)


def _entry(start: MeasuredStart) -> str:
    values: dict[str, Any] = start.model_dump(exclude_none=True)
    return "".join(f"{name} = {_toml(value)}\n" for name, value in values.items())


def _toml(value: object) -> str:
    if isinstance(value, str):
        escaped = "".join(f"\\u{ord(c):04x}" if c in '"\\' or ord(c) < ord(" ") else c for c in value)
        return f'"{escaped}"'
    return value.isoformat() if isinstance(value, dt.date) else repr(value)
