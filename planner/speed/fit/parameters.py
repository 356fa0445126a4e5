"""What is fitted: one list of coefficients, each with a prior, and the facts that a set of values makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from planner.speed.fact_files import Fact
from planner.speed.facts import EraFacts, GpuFit, SpeedFacts
from planner.speed.types import FloatArray

DIGITS = 4
"""Significant digits that are kept: far below what the points can tell apart, the same on every machine."""
BEND = 12
HIGHEST_EFFICIENCY = 0.95
"""Of a peak: what the best kernels reach of HBM bandwidth; a fit beyond it makes up for something else."""


OF_A_GPU = {"bandwidth_efficiency": (0.85, 0.08, HIGHEST_EFFICIENCY), "overhead_factor": (1.0, 0.15, np.inf)}
"""Fields of `GpuFit` that are fitted: prior, spread and upper bound."""
OF_AN_ERA = {
    "step_ms": (0.5, 0.7),
    "dense_layer_ms": (0.03, 0.5),
    "moe_layer_ms": (0.07, 0.5),
    "sequence_ms": (0.015, 0.5),
    "prefill_factor": (1.0, 0.2),
}
"""Fields of `EraFacts` that are fitted: prior and spread."""


@dataclass(frozen=True)
class Parameter:
    """A positive coefficient: log-normal around its prior.

    Attributes
    ----------
    place
        Where it stands in `SpeedFacts`: (field, key, subfield).
    spread
        Standard deviation of its logarithm.
    most
        Upper bound.
    """

    place: tuple[str, ...]
    prior: float
    spread: float
    most: float = np.inf

    @property
    def name(self) -> str:
        """Place as one word."""
        return ".".join(self.place)


def parameters(gpus: Sequence[str], eras: Sequence[str]) -> tuple[Parameter, ...]:
    """Every coefficient that is fitted for these families of GPUs and these engine eras.

    Priors: bandwidth and compute as published kernels reach them, overheads as profiles of engines show them; spreads
    say how far a coefficient may move when few points speak for it.
    """
    shared = (
        Parameter(("dense_compute", "bf16"), 0.6, 0.15, HIGHEST_EFFICIENCY),
        Parameter(("dense_compute", "fp8"), 0.5, 0.15, HIGHEST_EFFICIENCY),
        Parameter(("dense_compute", "fp4"), 0.35, 0.2, HIGHEST_EFFICIENCY),
        Parameter(("expert_compute", "bf16"), 0.2, 0.3, HIGHEST_EFFICIENCY),
        Parameter(("expert_compute", "fp8"), 0.2, 0.3, HIGHEST_EFFICIENCY),
        Parameter(("expert_compute", "fp4"), 0.15, 0.3, HIGHEST_EFFICIENCY),
        Parameter(("compute_tp_factor",), 1.1, 0.1),
        Parameter(("expert_read_efficiency",), 0.85, 0.12, 1.0),
        Parameter(("cache_read_efficiency",), 0.9, 0.12, 1.0),
        Parameter(("allreduce_latency_ms",), 0.008, 0.5),
        Parameter(("allreduce_transfer_factor",), 1.8, 0.4),
        Parameter(("sparse_layer_ms",), 0.08, 0.6),
        Parameter(("linear_layer_ms",), 0.03, 0.6),
    )
    by_gpu = tuple(
        Parameter(("gpu", gpu, field), prior, spread, most)
        for gpu in gpus
        for field, (prior, spread, most) in OF_A_GPU.items()
    )
    by_era = tuple(
        Parameter(("engine", era, field), prior, spread) for era in eras for field, (prior, spread) in OF_AN_ERA.items()
    )
    return shared + by_gpu + by_era


def values_of(fitted: Sequence[Parameter], theta: FloatArray) -> dict[str, float]:
    """Values at a point of the search: v / (1 + (v/b)^12)^(1/12).

    v = prior × exp(spread × θ) bends towards the bound b: a hard bound would leave no slope beyond it, and the search
    would fall back to the prior.
    """
    found = {}
    for parameter, x in zip(fitted, theta, strict=True):
        value = parameter.prior * float(np.exp(parameter.spread * x))
        found[parameter.name] = value / (1.0 + (value / parameter.most) ** BEND) ** (1.0 / BEND)
    return found


def facts_with(facts: SpeedFacts, values: Mapping[str, float]) -> SpeedFacts:
    """Facts with these coefficients; everything else (counts, sources, bands) as it was."""
    return facts.model_copy(
        update={
            **{
                field: _fact(getattr(facts, field), values[field])
                for field in values
                if field in SpeedFacts.model_fields
            },
            **{
                table: getattr(facts, table).model_copy(
                    update={
                        form: _fact(getattr(getattr(facts, table), form), values[f"{table}.{form}"])
                        for form in ("bf16", "fp8", "fp4")
                    }
                    | {"int8": _fact(getattr(facts, table).int8, values[f"{table}.fp8"])}
                )
                for table in ("dense_compute", "expert_compute")
            },
            "gpu": {name: _gpu(name, fit, values) for name, fit in facts.gpu.items()},
            "engine": tuple(_era(era, values) for era in facts.engine),
        }
    )


def rounded(value: float) -> float:
    """The value to the digits that are kept."""
    return float(f"{value:.{DIGITS}g}")


def era_name(era: EraFacts) -> str:
    """An era in one word: ``vllm`` or ``vllm<0.8``."""
    return era.engine + (f"<{era.before_version}" if era.before_version else "")


def _fact(fact: Fact, value: float) -> Fact:
    return fact.model_copy(update={"value": value})


def _gpu(name: str, fit: GpuFit, values: Mapping[str, float]) -> GpuFit:
    return fit.model_copy(update={f: values[k] for f in OF_A_GPU if (k := f"gpu.{name}.{f}") in values})


def _era(era: EraFacts, values: Mapping[str, float]) -> EraFacts:
    return era.model_copy(update={f: values[k] for f in OF_AN_ERA if (k := f"engine.{era_name(era)}.{f}") in values})
