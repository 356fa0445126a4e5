"""The answer: a `FleetPlan`, with every figure recomputed from the decisions without the solver.

Written and read as JSON; the workbook, the HTML page, launch commands and the replay all start from it.
"""

from __future__ import annotations

import datetime as dt
from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

SCHEMA_VERSION = 1


class Frozen(BaseModel):
    """Immutable, and strict about keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class SolveStatus(StrEnum):
    """What is known about a solution."""

    OPTIMAL = "optimal"
    """Proven within the requested gap."""
    FEASIBLE = "feasible"
    """A plan with a larger gap, as after a time limit."""
    INFEASIBLE = "infeasible"
    UNBOUNDED = "unbounded"
    ERROR = "error"


class Solve(Frozen):
    """What the solver proved."""

    status: SolveStatus
    objective: float
    """Cost of the plan in the horizon, USD: cost per served token times served tokens."""
    bound: float
    """Proven lower bound on ``objective`` for the tokens that this plan serves, USD."""
    gap: float
    """(objective − bound) / objective."""
    gap_target: float
    usd_per_mtok: float
    """The ratio that is minimised: USD per million served tokens."""
    usd_per_mtok_bound: float
    ratio_iterations: int
    """Solves of the linear program that the ratio took (Dinkelbach)."""
    solver: str
    solver_version: str
    threads: int
    seed: int


class InputFile(Frozen):
    """A file that the plan was made from."""

    role: str
    path: str
    sha256: str


class MemoryTerm(Frozen):
    """One line of the subtraction of a pool, GiB per GPU."""

    name: str
    gib: float
    origin: str
    source: str


class PoolMemory(Frozen):
    """What the engine leaves for the KV cache on each GPU of a replica."""

    gpu_memory_gib: float
    budget_gib: float
    terms: tuple[MemoryTerm, ...]
    available_kv_gib: float
    bytes_per_token: float
    state_bytes_per_request: float = 0.0
    """Recurrent states that a request holds however short it is."""
    block_size_tokens: int
    num_blocks: int
    pool_tokens: int
    logged_tokens: int
    """The figure that the engine will log, to compare with the start-up log."""
    max_concurrency: float


class PoolLoad(Frozen):
    """The load of one replica at the planning rate (Little's law at the decode rate of that very concurrency)."""

    planning_rate_per_s: float
    """Arrivals that the whole pool accepts at the planning rate."""
    rate_per_replica_per_s: float
    dispersion: float
    """Index of dispersion of one replica's arrivals at the scale of a request's life."""
    mean_live_requests: float
    quantile_live_requests: float
    mean_live_tokens: float
    quantile_live_tokens: float
    """Exceeded with probability at most ``overflow_probability``."""
    mean_formula_tokens: float
    """Live requests times what a request of mean lengths holds halfway through its output, as a cross-check only; in
    the same equivalents as the two above: windows, blocks and states of a hybrid included."""
    overflow_probability: float
    expected_overflow: float
    """P(live tokens > pool) under the stated load."""
    work_share: float
    """Share of time that the load's own prefill and decode work takes; at 1 the replica saturates."""


class Measure(Frozen):
    """A predicted figure with its 80 % band; ``used`` is the edge that the constraints saw."""

    value: float
    low: float
    high: float
    used: float
    edge: str = "upper"
    """Name of that edge: ``upper`` is the slow one, ``middle`` is the prediction itself."""
    source: str


class PoolSpeed(Frozen):
    """How fast a replica is at the planned load."""

    tpot_ms: Measure
    ttft_ms: Measure
    ttft_percentile: float
    decode_tokens_per_s: float
    """One stream's decode rate at the planned concurrency, at the edge used."""
    provider: str = "roofline"
    """Where the step times come from: measured curve, measured point, aiconfigurator, roofline."""


class Margin(Frozen):
    """One constraint of a pool: what was planned against its limit, and how much is left."""

    constraint: str
    """Family name, such as ``token pool``."""
    planned: float
    limit: float
    unit: str
    used_share: float
    """planned / limit (or limit / planned where more is better)."""
    satisfied: bool


class RunnerUp(Frozen):
    """The next best configuration of a model and what it would cost more."""

    description: str
    extra_usd: float


class Pool(Frozen):
    """Identical replicas that serve one model's requests of one prompt-length band."""

    name: str
    model: str
    """The request's name of the model."""
    weights: str
    """Catalogue id of the weights."""
    cost_centre: str
    prompt_lo_tokens: int
    prompt_hi_tokens: int | None
    """Half-open band [lo, hi) of prompt lengths; ``None`` means no upper end."""
    offer_id: str
    gpu: str
    engine: str
    engine_version: str
    tp: int
    weight_dtype: str
    kv_dtype: str
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    gpu_memory_utilization: float
    replicas_needed: int
    """Least replicas for the load, before spares."""
    replicas_spare: int
    replicas: int
    gpus: int
    memory: PoolMemory
    load: PoolLoad
    speed: PoolSpeed
    margins: tuple[Margin, ...]
    binding_constraint: str
    """The constraint that one replica fewer would break first."""
    stated_rate_per_s: float
    """Mean arrivals as the request states them or the log shows them, before growth."""
    growth: float
    peak_factor: float
    rate_measured: bool = False
    """Whether the mean rate is the log's own."""
    peak_measured: bool = False
    """Whether the peak is that of the log's week."""
    mean_prompt_tokens: float
    """Mean over all requests that arrive, before any refusal."""
    mean_output_tokens: float
    offered_requests: float
    """Requests that arrive in the horizon: stated rate x growth x time."""
    refused_request_share: float
    refused_token_share: float
    refused_input_share: float
    refused_output_share: float
    tail_budget: float
    served_input_mtok: float
    served_output_mtok: float
    capacity_mtok: float
    """Tokens that the pool could serve in the horizon at the highest steady rate that holds every constraint."""
    launch_command: str
    runner_up: RunnerUp | None
    why: str
    """One sentence for a reader: what was chosen and what binds."""

    @property
    def served_mtok(self) -> float:
        """Million tokens served, input and output."""
        return self.served_input_mtok + self.served_output_mtok


class Purchase(Frozen):
    """Instances of one offer."""

    offer_id: str
    provider: str
    instance_type: str
    region: str
    gpu: str
    term: str
    gpus_per_instance: int
    instances: int
    gpus_bought: int
    gpus_used: int
    usd_per_instance_h: float
    hours: float
    usd: float
    price_as_of: dt.date
    price_kind: str
    """``list``, or what else the price is (marketplace, gpu_only, estimate)."""
    source_url: str
    notes: str = ""


class QuotaUse(Frozen):
    """A quota, stock or budget row and what the plan takes of it."""

    name: str
    offers: tuple[str, ...]
    """Bought offers that it limits (all of them for a budget)."""
    used: float
    limit: float
    unit: str


class Assumption(Frozen):
    """An input that somebody must own: shown on the Inputs sheet with source and date."""

    id: str
    assumption: str
    value: float | str
    unit: str
    source: str
    source_date: dt.date | None
    owner: str
    note: str = ""


class PlanTotals(Frozen):
    """The fleet in five numbers, recomputed from pools and purchases."""

    usd: float
    gpus: int
    gpu_hours: float
    served_input_mtok: float
    served_output_mtok: float
    usd_per_mtok_by_reservation: float
    """All that is paid, per million served tokens."""
    usd_per_mtok_by_use: float
    """What is paid for the capacity that served tokens use, per million of them: each pool's GPUs times
    served over capacity."""


class FleetPlan(Frozen):
    """A complete plan for one horizon."""

    schema_version: int = SCHEMA_VERSION
    planner_version: str
    run_id: str
    """First 12 hex digits of the digest over inputs and settings."""
    title: str
    owner: str
    created_at: dt.datetime
    horizon_start: dt.date
    horizon_end: dt.date
    """Exclusive."""
    horizon_hours: float
    currency: str
    solve: Solve
    totals: PlanTotals
    pools: tuple[Pool, ...] = Field(min_length=1)
    purchases: tuple[Purchase, ...] = Field(min_length=1)
    quotas: tuple[QuotaUse, ...]
    assumptions: tuple[Assumption, ...]
    inputs: tuple[InputFile, ...]
    warnings: tuple[str, ...]
    """Guesses, stale prices, short samples: everything a signer must know."""


def plan_to_json(plan: FleetPlan) -> str:
    """The plan as JSON text, stable in order and digits."""
    return plan.model_dump_json(indent=2) + "\n"


def read_plan(path: Path) -> FleetPlan:
    """Read a plan written by `plan_to_json`."""
    return FleetPlan.model_validate_json(path.read_text(encoding="utf-8"))
