"""The answer: a `FleetPlan`, with every figure recomputed from the decisions without the solver.

Written and read as JSON; the workbook, the HTML page, launch commands and the replay all start from it.
"""

from __future__ import annotations

import datetime as dt
import json
from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from planner.errors import InputError, Problem

SCHEMA_VERSION = 3
READABLE = (2, 3)
"""Versions that can be read: version 3 added `FleetPlan.reporting` and `FleetPlan.oldest`, which may be missing."""


MOST_REPLICAS = 10**7
"""Of one pool that a plan is read with: a larger number is a slip, and would be replayed for ever."""


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
    """Index of dispersion of one replica's arrivals over the time that swings of its live tokens live."""
    live_dispersion: float | None = None
    """Variance over mean of one replica's live requests, who leave later when there are many; not in older plans."""
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
    prefill_work_share: float = 0.0
    """The part of ``work_share`` that prompts take."""


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
    """The best plan without the chosen GPU type of a model, and what it would cost more."""

    description: str
    extra_usd: float
    flip_usd_per_gpu_h: float | None = None
    """Price of the chosen GPU type, over all that this model runs on it, at which the runner-up is as cheap; ``None``
    where prices cannot say it (owned hardware, or another configuration of the same type)."""


class Rejected(Frozen):
    """A class of configurations that cannot be used: the rule, how many, and the nearest miss."""

    model: str
    reason: str
    configurations: int
    example: str


class PlanPeriod(Frozen):
    """Hours of the horizon that are planned alike."""

    name: str
    hours: float
    when: str = ""
    """Which hours, such as ``Mon-Fri 08-18; Sat 10-14``; empty where every hour is."""


class ScheduleHours(Frozen):
    """Hours of the week in which a pool keeps the same number of replicas."""

    pool: str
    months: str
    """Months or days that are told apart; empty: the whole horizon."""
    when: str
    replicas: int
    hours_a_week: float


class PoolPeriod(Frozen):
    """One pool in one period."""

    period: str
    planning_rate_per_s: float
    """Accepted arrivals that it must hold."""
    mean_rate_per_s: float
    """What arrives, before any refusal."""
    replicas_needed: int
    replicas_asked: int
    """The need with spares, least count and step."""
    replicas: int = Field(ge=0, le=MOST_REPLICAS)
    """That run: those asked for, and as many more as surviving the loss of a region takes."""


class PoolPlacement(Frozen):
    """Where replicas of a pool stand."""

    supply: str
    replicas: tuple[int, ...]
    """By period."""


class Route(Frozen):
    """One row of the routing table: what a gateway sees, and the pool that serves it."""

    model: str
    tenant: str
    """Empty: every tenant."""
    prompt_lo_tokens: int
    prompt_hi_tokens: int | None
    """Half-open [lo, hi); ``None``: no upper end."""
    pool: str
    share: float = 1.0
    """Share of these requests that goes to the pool; below 1 where several pools take turns."""


class PlanModel(Frozen):
    """Rules that hold for all pools of one model."""

    name: str
    max_pools: int = 1
    tenants: tuple[str, ...] = ()
    """Those that the router tells apart; empty: it tells none apart."""
    regions: tuple[str, ...] = ()
    """Where its replicas may stand; empty: anywhere."""
    interruptible: bool = False
    """Whether they may stand on spot instances."""
    survives_region_loss: bool = False
    """Whether enough replicas must be left when any one region is lost."""


class PlanSupply(Frozen):
    """Instances that are alike for a replica; lots of one supply differ only in contract."""

    id: str
    gpu: str
    gpus_per_instance: int
    region: str = ""
    spot: bool = False
    usable_share: float = 1.0
    """Share of running instances that is counted on: below 1 on spot."""
    nvlink_domain: int = 0
    """GPUs that one fast domain links; 0: the whole instance."""
    multi_node: bool = False
    """Whether a replica may take several whole instances."""


class Pool(Frozen):
    """Identical replicas that serve one slice of a model's requests.

    Counts, load, speed and margins are those of its busiest period; `periods` has the others.
    """

    name: str
    model: str
    """The request's name of the model."""
    weights: str
    """Catalogue id of the weights."""
    cost_centre: str
    prompt_lo_tokens: int
    prompt_hi_tokens: int | None
    """Half-open band [lo, hi) of prompt lengths; ``None`` means no upper end."""
    tenants: tuple[str, ...] = ()
    """Whose requests; empty: everybody's."""
    load_share: float = 1.0
    """Share of those requests; below 1 where a slice is split over GPU types."""
    request_share: float = 1.0
    """Share of all the model's requests."""
    offers: tuple[str, ...]
    """Lots that its replicas stand on, the largest first."""
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
    replicas: int = Field(ge=0, le=MOST_REPLICAS)
    gpus: int
    periods: tuple[PoolPeriod, ...] = ()
    placements: tuple[PoolPlacement, ...] = ()
    usd: float = Field(ge=0, allow_inf_nan=False)
    """Its part of the fleet's cost: that of each supply, by GPU-hours of running replicas."""
    score_drop: float | None = None
    """Measured drop of the quality score of its dtypes, where the owner states one."""
    memory: PoolMemory
    load: PoolLoad
    speed: PoolSpeed
    margins: tuple[Margin, ...]
    binding_constraint: str
    """The constraint that one replica fewer would break first."""
    stated_rate_per_s: float
    """Mean arrivals of the whole model as the request states them or the log shows them, before growth."""
    growth: float
    peak_factor: float
    """Planning rate of the busiest period over the mean rate of the horizon."""
    rate_measured: bool = False
    """Whether the mean rate is the log's own."""
    peak_measured: bool = False
    """Whether the peak is that of the log's week."""
    mean_prompt_tokens: float
    """Mean over all requests that arrive, before any refusal."""
    mean_output_tokens: float
    offered_requests: float
    """Requests that arrive in the horizon: stated rate x growth x share of the model's requests x time."""
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


class ListPrice(Frozen):
    """What the provider prints for the same instance on demand, without any commitment."""

    usd_per_h: float
    """Of one instance."""
    as_of: dt.date
    source_url: str


class Contract(Frozen):
    """How long a lot's instances are held, and how they are paid."""

    instances: int
    """That are held: reserved ones, those of a contract that stands, those that are owned."""
    hours: float
    """Of the horizon in which each is held."""
    start: dt.date | None = None
    """``None``: before the horizon, on a day that the request does not state."""
    end: dt.date | None = None
    """First day on which it is not held any more; ``None``: not stated."""
    paid_at_start: bool = False
    """Whether the whole term is paid on its first day."""


class Owning(Frozen):
    """What one bought instance costs: the parts of its hourly price."""

    capex_usd: float
    """Paid for it, installed."""
    life_years: float
    residual_share: float
    """Of the price that is left at the end of its life."""
    capital_usd_per_h: float
    """Depreciation and the return on what is not yet depreciated, in every hour of its life."""
    maintenance_usd_per_h: float
    hosting_usd_per_h: float
    energy_usd_per_h: float
    """Only in the hours in which it runs."""


class Purchase(Frozen):
    """Instances of one lot: an offer on one contract, or hardware that is owned or bought.

    usd = reserved_usd_per_h x reserved_instances x hours + used_usd_per_h x instance_hours + sunk_usd.
    """

    offer_id: str
    kind: str
    """How it is had: on-demand, spot, new commitment, existing commitment, owned, bought."""
    supply: str
    provider: str
    instance_type: str
    region: str
    gpu: str
    term: str
    gpus_per_instance: int
    instances: int = Field(ge=0)
    """Largest number that is paid in a period."""
    instances_by_period: tuple[int, ...]
    """That run."""
    available_by_period: tuple[int, ...] | None = None
    """That can be had; ``None``: as many as quotas allow."""
    paid_by_period: tuple[int, ...]
    """That are paid, running or not: the reserved ones, or those of a contract that stands; else those that run."""
    reserved_instances: int
    """Paid every hour of the horizon."""
    instance_hours: float
    """Of running instances over the horizon."""
    gpus_bought: int
    gpus_used: int
    """By replicas, in the period with the most."""
    reserved_usd_per_h: float
    used_usd_per_h: float
    sunk_usd: float
    hours: float
    """Of the horizon."""
    usd: float = Field(allow_inf_nan=False)
    liability_after_usd: float = 0.0
    """What a new commitment still costs after the horizon."""
    power_kw_per_instance: float = 0.0
    """Of a running one, PUE included; 0 where unknown."""
    power_kw: float = 0.0
    """Largest over the periods."""
    carbon_kg_per_instance_h: float = 0.0
    carbon_kg: float = 0.0
    price_as_of: dt.date
    price_kind: str
    """``list``, or what else the price is (marketplace, gpu_only, estimate)."""
    source_url: str
    notes: str = ""
    memory_gb: float | None = None
    """Nameplate of one GPU; ``None``: not known to the plan, as for the next four."""
    tdp_w: float | None = None
    """Of one GPU."""
    list_price: ListPrice | None = None
    contract: Contract | None = None
    owning: Owning | None = None


class QuotaUse(Frozen):
    """A quota, stock or budget row and what the plan takes of it."""

    name: str
    offers: tuple[str, ...]
    """Bought lots that it limits (all of them for a budget)."""
    used: float
    limit: float
    unit: str
    worth_usd: float | None = None
    """What one more unit would save in the horizon; ``None``: not looked for."""


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


class Reporting(Frozen):
    """The currency in which the plan is reported, beside USD; amounts in USD times one rate."""

    currency: str
    per_usd: float
    """Units of it for one USD."""
    source: str
    source_date: dt.date
    owner: str


class AgeKind(StrEnum):
    """What an age is of."""

    PRICE = "price"
    ENGINE_FACT = "engine fact"


class Age(Frozen):
    """The oldest thing of a kind that the plan stands on."""

    kind: AgeKind
    what: str
    """The lot that is paid, or release and name of the fact."""
    as_of: dt.date
    """Day on which its source was read, or stated it."""
    age_days: int
    """On the day of planning."""
    source: str


class PlanTotals(Frozen):
    """The fleet in five numbers, recomputed from pools and purchases."""

    usd: float
    gpus: int
    """Of all purchases, each at its largest."""
    gpu_hours: float
    """Paid, running or not."""
    served_input_mtok: float
    served_output_mtok: float
    usd_per_mtok_by_reservation: float
    """All that is paid, per million served tokens."""
    usd_per_mtok_by_use: float
    """What is paid for the capacity that served tokens use, per million of them: each pool's GPUs times
    served over capacity."""
    usd_per_mtok_input: float
    usd_per_mtok_output: float
    """All that is paid, split by the replica time that prompts and outputs take, per million of each."""
    sunk_usd: float = 0.0
    liability_after_usd: float = 0.0


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
    horizon_hours: float = Field(gt=0, allow_inf_nan=False)
    currency: str
    reporting: Reporting | None = None
    """``None``: USD."""
    solve: Solve
    totals: PlanTotals
    periods: tuple[PlanPeriod, ...] = Field(min_length=1)
    pools: tuple[Pool, ...] = Field(min_length=1)
    routes: tuple[Route, ...] = ()
    schedule: tuple[ScheduleHours, ...] = ()
    """The week of every pool, where replicas follow it."""
    models: tuple[PlanModel, ...] = ()
    supplies: tuple[PlanSupply, ...] = ()
    purchases: tuple[Purchase, ...] = Field(min_length=1)
    quotas: tuple[QuotaUse, ...]
    rejected: tuple[Rejected, ...] = ()
    assumptions: tuple[Assumption, ...]
    inputs: tuple[InputFile, ...]
    oldest: tuple[Age, ...] = ()
    """The oldest price and the oldest engine fact; none in plans of before they were noted."""
    warnings: tuple[str, ...]
    """Guesses, stale prices, short samples: everything a signer must know."""


def plan_to_json(plan: FleetPlan) -> str:
    """The plan as JSON text, stable in order and digits."""
    return plan.model_dump_json(indent=2) + "\n"


def read_plan(path: Path) -> FleetPlan:
    """Read a plan written by `plan_to_json`.

    Raises
    ------
    InputError
        If the file is a plan of another schema version.
    """
    text = path.read_text(encoding="utf-8")
    _check_schema(path, text)
    return FleetPlan.model_validate_json(text)


def _check_schema(path: Path, text: str) -> None:
    """Refuse a plan of another version; what is no plan at all is left to the validation."""
    try:
        written = json.loads(text)
    except (ValueError, RecursionError):
        return
    version = written.get("schema_version") if isinstance(written, dict) else None
    if isinstance(version, int) and version not in READABLE:
        found = f"is a plan of schema version {version}; this planner reads version {SCHEMA_VERSION}"
        fix = "Plan again with this version, or read it with the version that wrote it"
        raise InputError(Problem(str(path), found, fix, field="schema_version"))
