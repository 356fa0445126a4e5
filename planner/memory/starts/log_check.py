"""A start-up log against a prediction, term by term: which term is off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from planner.errors import InputError, Problem
from planner.memory.starts.startup_log import StartupLog
from planner.memory.types import Sizing
from planner.plan import Pool

LARGEST_GAP = 0.10
"""Share of the logged figure from which a prediction is off."""
SMALLEST_GIB = 0.05
"""Difference below which no term is off: five times what a log rounds to."""
WEIGHTS, ACTIVATION, OUTSIDE, GRAPHS = "weights", "activation", "memory outside", "cuda graph"
"""How names of the subtraction's terms begin, in small letters."""
LOADED = (WEIGHTS, "draft weights", "lora adapters")
"""What vLLM logs as the weights: they are counted after adapters and draft are loaded."""


@dataclass(frozen=True)
class Predicted:
    """What was predicted: a sizing, or a pool of a plan.

    Attributes
    ----------
    terms
        Name and GiB of each line of the subtraction.
    figures
        ``blocks``, ``kv_tokens``, ``max_concurrency``, ``max_running_requests``, ``states``.
    reasons
        Why a start would be refused.
    """

    gpu_memory_gib: float
    budget_gib: float
    terms: tuple[tuple[str, float], ...]
    available_kv_gib: float
    figures: Mapping[str, float]
    reasons: tuple[str, ...] = ()

    def term(self, *beginnings: str) -> float:
        """GiB of the terms whose names begin so."""
        return sum(gib for name, gib in self.terms if name.lower().startswith(beginnings))

    @property
    def consumed(self) -> float:
        """GiB of everything that stays allocated after profiling: all but activation and graphs."""
        return sum(gib for _, gib in self.terms) - self.term(ACTIVATION, GRAPHS)

    @property
    def all_else(self) -> float:
        """GiB of the budget that is neither what vLLM logs as weights nor cache."""
        return self.budget_gib - self.term(*LOADED) - self.available_kv_gib


@dataclass(frozen=True)
class Comparison:
    """One predicted figure beside the logged one."""

    name: str
    predicted: float
    logged: float
    unit: str = "GiB"

    @property
    def gap(self) -> float:
        """Difference as a share of the logged figure."""
        return (self.predicted - self.logged) / abs(self.logged) if self.logged else float(self.predicted != 0)

    @property
    def is_off(self) -> bool:
        """Whether the gap is larger than a tenth, and than what logs round to."""
        far = self.unit != "GiB" or abs(self.predicted - self.logged) >= SMALLEST_GIB
        return abs(self.gap) > LARGEST_GAP and far


def predicted_in(pool: Pool) -> Predicted:
    """A pool of a plan as what a log is compared with."""
    memory = pool.memory
    return Predicted(
        gpu_memory_gib=memory.gpu_memory_gib,
        budget_gib=memory.budget_gib,
        terms=tuple((term.name, term.gib) for term in memory.terms),
        available_kv_gib=memory.available_kv_gib,
        figures={
            "blocks": float(memory.num_blocks),
            "kv_tokens": float(memory.logged_tokens),
            "max_concurrency": memory.max_concurrency,
        },
    )


def started_otherwise(pool: Pool, sizing: Sizing) -> tuple[str, ...]:
    """Settings in which a log's start differs from the pool that was planned."""
    planned = {
        "model": pool.weights,
        "GPU": pool.gpu,
        "engine": pool.engine,
        "tp": pool.tp,
        "weights": pool.weight_dtype,
        "KV cache": pool.kv_dtype,
        "max_model_len": pool.max_model_len,
        "max_num_seqs": pool.max_num_seqs,
        "max_num_batched_tokens": pool.max_num_batched_tokens,
        "utilization": pool.gpu_memory_utilization,
    }
    started = {
        "model": sizing.model_id,
        "GPU": sizing.gpu_id,
        "engine": sizing.engine,
        "tp": sizing.deployment.tp,
        "weights": str(sizing.deployment.weight_dtype),
        "KV cache": str(sizing.deployment.kv_dtype),
        "max_model_len": sizing.max_model_len,
        "max_num_seqs": sizing.max_num_seqs,
        "max_num_batched_tokens": sizing.max_num_batched_tokens,
        "utilization": sizing.utilization,
    }
    return tuple(
        f"{name} {started[name]} instead of {value}" for name, value in planned.items() if started[name] != value
    )


def planned_pool(pools: Sequence[Pool], sizing: Sizing) -> Pool:
    """The pool of a plan that a log's start belongs to: of its model, the one with the same GPU and tp if there is one.

    Raises
    ------
    InputError
        If no pool serves the model.
    """
    of_model = [pool for pool in pools if pool.weights.casefold() == sizing.model_id.casefold()]
    if not of_model:
        known = ", ".join(sorted({pool.weights for pool in pools}))
        raise InputError(Problem("--plan", f"plans no pool of {sizing.model_id}", f"It plans {known}"))
    return min(of_model, key=lambda pool: (pool.gpu != sizing.gpu_id, pool.tp != sizing.deployment.tp))


def predicted_by(sizing: Sizing) -> Predicted:
    """A sizing as what a log is compared with."""
    figures = {
        "blocks": float(sizing.num_blocks),
        "kv_tokens": float(sizing.logged_tokens),
        "max_concurrency": sizing.max_concurrency,
        "max_running_requests": float(sizing.max_num_seqs),
    }
    return Predicted(
        gpu_memory_gib=sizing.gpu_memory.gib,
        budget_gib=sizing.budget.gib,
        terms=tuple((term.name, term.gib) for term in sizing.terms),
        available_kv_gib=sizing.available_kv_gib,
        figures=figures,
        reasons=tuple(f"{refusal.rule}: {refusal.message}" for refusal in sizing.refusals),
    )


def compare(log: StartupLog, predicted: Predicted, gpu_known: bool = True) -> tuple[Comparison, ...]:
    """Every figure that the log states beside its prediction, memory in the order of the subtraction.

    Of an unknown GPU only the weights and what a pool of the logged memory holds.
    """
    lines = _sglang_terms(log, predicted) if log.engine == "sglang" else _vllm_terms(log, predicted)
    available = log.figure("available")
    if not gpu_known:
        lines = [line for line in lines if line.name == WEIGHTS]
    elif available is not None:
        lines.append(Comparison("available for KV", predicted.available_kv_gib, available))
    if available is not None:
        lines += _bytes_per_token(log, predicted, available)
    for name, label, unit in FIGURES if gpu_known or available is not None else ():
        logged, figure = log.figures.get(name), predicted.figures.get(name)
        if logged is not None and figure is not None:
            lines.append(Comparison(label, figure, logged, unit))
    return tuple(lines)


PER_TOKEN = "cache of a token"


def _bytes_per_token(log: StartupLog, predicted: Predicted, available: float) -> list[Comparison]:
    """KiB of a token: the memory available over the tokens in it."""
    logged, figure = log.figures.get("kv_tokens"), predicted.figures.get("kv_tokens")
    if not logged or not figure or predicted.available_kv_gib <= 0:
        return []
    kib = 2.0**20
    return [Comparison(PER_TOKEN, kib * predicted.available_kv_gib / figure, kib * available / logged, "KiB")]


FIGURES = (
    ("blocks", "blocks", "blocks"),
    ("kv_tokens", "GPU KV cache size", "tokens"),
    ("max_concurrency", "maximum concurrency", "x"),
)


def _vllm_terms(log: StartupLog, predicted: Predicted) -> list[Comparison]:
    """The lines of vLLM.

    Releases from 0.27 on log weights and memory outside PyTorch as one, and CUDA graphs within the activation peak.
    Where only weights and cache are logged, the rest of the budget is one line.
    """
    lines = []
    total, budget = log.figure("total"), log.figure("budget")
    if total is not None:
        lines.append(Comparison("GPU memory", predicted.gpu_memory_gib, total))
    if budget is not None:
        lines.append(Comparison("budget", predicted.budget_gib, budget))
    weights, consumed = log.figure("weights"), log.figure("consumed")
    if weights is not None:
        lines.append(Comparison("weights", predicted.term(*LOADED), weights))
    if consumed is not None:
        lines.append(Comparison("weights and memory outside PyTorch", predicted.consumed, consumed))
    activation, outside = log.figure("activation"), log.figure("non_torch")
    if activation is not None:
        graphs_inside = consumed is not None
        name = "activation peak, with CUDA graphs" if graphs_inside else "activation peak"
        beginnings = (ACTIVATION, GRAPHS) if graphs_inside else (ACTIVATION,)
        lines.append(Comparison(name, predicted.term(*beginnings), activation))
    if outside is not None:
        lines.append(Comparison("memory outside PyTorch", predicted.term(OUTSIDE), outside))
    estimate = log.figure("graphs_estimate")
    if estimate is not None and consumed is None and predicted.term(GRAPHS):
        lines.append(Comparison("CUDA graphs (estimate)", predicted.term(GRAPHS), estimate))
    available = log.figure("available")
    if activation is None and weights is not None and available is not None:
        rest = (budget if budget is not None else predicted.budget_gib) - weights - available
        lines.append(Comparison("all else", predicted.all_else, rest))
    return lines


def _sglang_terms(log: StartupLog, predicted: Predicted) -> list[Comparison]:
    weights = log.figure("weights")
    before, after = log.figure("free_before"), log.figure("free_after")
    if weights is None and before is not None and after is not None:
        weights = before - after
    return [] if weights is None else [Comparison("weights", predicted.term(WEIGHTS), weights)]


def culprits(lines: tuple[Comparison, ...]) -> tuple[Comparison, ...]:
    """Terms that are off, the largest difference first, then the cache of a token; other figures only without those."""
    off = [line for line in lines if line.is_off]
    terms = [line for line in off if line.unit == "GiB" and line.name != "available for KV"]
    per_token = [line for line in off if line.name == PER_TOKEN]
    return tuple((*sorted(terms, key=lambda line: -abs(line.predicted - line.logged)), *per_token) or off)
