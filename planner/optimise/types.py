"""What the optimiser works on: periods, slices, configurations, supplies, columns, and what it returns."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from planner import units
from planner.catalog.engine import EngineFacts
from planner.catalog.gpu import Gpu
from planner.catalog.model_shape import ModelShape
from planner.catalog.offer import Offer
from planner.memory.calibration import NOT_CALIBRATED, Calibration
from planner.memory.types import Sizing
from planner.plan import SolveStatus
from planner.queueing.footprint import Marks, Moments
from planner.queueing.load import Demand, Limits
from planner.request import ModelRequest, Quota, Scaling, Targets
from planner.speed.chain import SpeedSources
from planner.speed.types import SpeedModel
from planner.traffic.demand import DemandRates
from planner.traffic.types import FloatArray, LengthLaw, Traffic


@dataclass(frozen=True)
class Period:
    """Hours of the horizon that are planned alike: one group of hours of the week in one month, or all of them."""

    name: str
    hours: float
    """Hours of the horizon that it stands for."""
    first_day: dt.date | None = None
    """First day that it has hours on; ``None``: the first of the horizon."""
    last_day: dt.date | None = None
    """Last day that it has hours on, inclusive; ``None``: the last of the horizon.

    The horizon's builder fills both in for a period of one month: supply takes what can be had in a period as the
    least over these days, so that hardware that leaves in May is there in April.
    """


@dataclass(frozen=True)
class Slice:
    """Requests of one model that one pool may serve: a stretch of prompt lengths, of one tenant or of all.

    A model's slices are the arcs of its routing graph: a path from node 0 to the graph's end serves every request
    once. Only what a router sees before it routes tells slices apart.
    """

    key: str
    model: str
    start: int
    """Node of the model's routing graph where the slice begins."""
    end: int
    tenants: tuple[str, ...]
    """Whose requests; empty: everybody's."""
    prompt_lo_tokens: int
    prompt_hi_tokens: int | None
    """Half-open stretch [lo, hi) of prompt lengths; ``None`` means no upper end."""
    traffic: Traffic
    """Lengths, tail and bursts of these requests alone."""
    planning_rate_per_s: FloatArray
    """What the pool must hold in each period, shape (periods,), before any refusal."""
    mean_rate_per_s: FloatArray
    """What arrives in each period, shape (periods,)."""
    targets: Targets
    tail_budget: float
    scaling: Scaling

    def offered_requests(self, periods: tuple[Period, ...]) -> float:
        """Requests that arrive in the horizon."""
        seconds = [units.hours_to_s(period.hours) for period in periods]
        return float(sum(rate * s for rate, s in zip(self.mean_rate_per_s, seconds, strict=True)))

    def offered_tokens(self, periods: tuple[Period, ...]) -> float:
        """Input and output tokens that arrive in the horizon, before any refusal."""
        law = self.traffic.law
        return self.offered_requests(periods) * (law.mean_prompt + law.mean_output)


@dataclass(frozen=True)
class Workload:
    """One model's demand over the horizon."""

    request: ModelRequest
    shape: ModelShape
    traffic: Traffic
    rates: DemandRates
    slices: tuple[Slice, ...]
    """Arcs of the model's routing graph, from node 0 to `end_node`."""
    end_node: int

    @property
    def name(self) -> str:
        """The request's name of the model."""
        return self.request.name

    @property
    def whole(self) -> Slice:
        """The slice of all its requests."""
        return next(s for s in self.slices if s.start == 0 and s.end == self.end_node and not s.tenants)


@dataclass(frozen=True)
class Serving:
    """What every replica is served with: the engine's facts, speeds, the share of memory, measured terms."""

    facts: EngineFacts
    speed: SpeedSources
    utilization: float | None = None
    """``gpu_memory_utilization`` that is asked for; ``None``: the engine's default."""
    calibration: Calibration = NOT_CALIBRATED


@dataclass(frozen=True)
class LengthChoice:
    """A value of max_model_len, with what it refuses and the law of what it serves."""

    max_model_len: int
    refused_request_share: float
    refused_token_share: float
    law: LengthLaw


@dataclass(frozen=True)
class Config:
    """One way to run a replica of a model on a GPU type, with its pool and its speed."""

    model: str
    gpu: Gpu
    sizing: Sizing
    speed: SpeedModel
    length: LengthChoice
    marks: Marks
    moments: Moments
    pool_token_equivalents: float
    tpot_edge: str = "upper"
    """Edge of the TPOT band that the constraints see."""
    ttft_edge: str = "upper"
    score_drop: float | None = None
    """Measured drop of the quality score of these dtypes; ``None``: the owner states none."""

    @property
    def tp(self) -> int:
        """Tensor-parallel degree: GPUs of one replica."""
        return self.sizing.deployment.tp

    @property
    def label(self) -> str:
        """Configuration in a few words, without the replica count."""
        d = self.sizing.deployment
        return (
            f"{self.gpu.id} tp{d.tp} {d.weight_dtype}/{d.kv_dtype} kv, max_model_len {self.sizing.max_model_len}, "
            f"max_num_seqs {self.sizing.max_num_seqs}"
        )

    @property
    def short_label(self) -> str:
        """GPU type, tp and dtypes, for a sentence."""
        gpu, tp, weights, kv = self.family
        return f"{gpu} tp{tp} {weights}/{kv}"

    @property
    def family(self) -> tuple[str, int, str, str]:
        """What a reader calls "another configuration": GPU type, tp and the two dtypes."""
        d = self.sizing.deployment
        return (self.gpu.id, d.tp, d.weight_dtype.value, d.kv_dtype.value)


@dataclass(frozen=True)
class Rejection:
    """Why a configuration cannot be used."""

    model: str
    gpu: str
    tp: int
    reason: str
    """The rule, short: rejections are counted by it."""
    detail: str
    excess: float
    """How far beyond the limit (ratio); the smallest one is the nearest miss."""
    alone: bool = True
    """Whether no other limit is missed."""


@dataclass(frozen=True)
class Need:
    """Replicas that a configuration needs for a slice, period by period, before spares and scaling rules."""

    slice: Slice
    config: Config
    demand: Demand
    """At the busiest period's accepted planning rate; `at` gives the other periods."""
    limits: Limits
    rate_per_s: tuple[float, ...]
    """Accepted planning rate of each period."""
    replicas: tuple[int, ...]
    exact: bool
    """True when the exact live-token quantile was checked in every period, False for the screen's lower bounds."""

    @property
    def busiest(self) -> int:
        """The period with the highest rate."""
        return max(range(len(self.rate_per_s)), key=lambda t: self.rate_per_s[t])


@dataclass(frozen=True, order=True)
class Placement:
    """Replicas that are alike for a supplier: GPU type, GPUs each, and where they may stand."""

    gpu: str
    gpus_per_replica: int
    interruptible: bool = False
    """Whether they may stand on spot instances."""
    regions: tuple[str, ...] = ()
    """Regions that they may stand in; empty: all."""
    spread: str = ""
    """Key of the slice whose replicas must survive the loss of any one region; empty: no such rule."""


@dataclass(frozen=True)
class Part:
    """Replicas of one configuration that a column runs."""

    placement: Placement
    need: Need
    running: tuple[int, ...]
    """Replicas that are kept running in each period: the need with spares, least count and step."""
    load_share: float = 1.0
    """Share of the slice's requests that this part serves; below 1 where a slice is split over GPU types."""


@dataclass(frozen=True)
class Column:
    """A choice of the integer program: serve one slice of a model with one part, or with parts of several GPU types."""

    key: str
    model: str
    start: int
    end: int
    parts: tuple[Part, ...]
    served_tokens: float
    """In the horizon."""

    @property
    def exact(self) -> bool:
        """Whether the needs of all its parts are exact."""
        return all(part.need.exact for part in self.parts)


@dataclass(frozen=True)
class Supply:
    """Instances that are alike for a replica: GPU type, size, region, and whether they may be taken away."""

    id: str
    gpu: str
    gpus_per_instance: int
    region: str = ""
    """Told apart only where the request has a rule by region; the first of those that no rule tells apart, or empty."""
    spot: bool = False
    usable_share: float = 1.0
    """Share of the instances that counts: 1 less the interruption reserve on spot."""
    nvlink_domain: int = 0
    """GPUs that one fast domain links: a replica never straddles two; 0 means the whole instance."""
    multi_node: bool = False
    """Whether a replica may take several whole instances."""


class LotKind(StrEnum):
    """How a lot's instances are had and paid."""

    ON_DEMAND = "on-demand"
    SPOT = "spot"
    NEW_COMMITMENT = "new commitment"
    EXISTING_COMMITMENT = "existing commitment"
    """Held until its end: all of `Lot.available` counts towards quotas, running or not."""
    OWNED = "owned"
    BOUGHT = "bought"


@dataclass(frozen=True)
class Lot:
    """Instances of one supply on one contract: what the program buys.

    Cost of x[t] running instances, X >= x[t] reserved:  reserved_usd_per_h * horizon * X  +  sum of
    used_usd_per_h * hours[t] * x[t]  +  sunk_usd.
    """

    id: str
    supply: str
    kind: LotKind
    offer: Offer
    """The catalogue's offer, or one made of the request's own figures for what is owned or bought."""
    gpus_per_instance: int
    reserved_usd_per_h: float = 0.0
    """Paid every hour of the horizon for every instance that is taken, whether it runs or not."""
    used_usd_per_h: float = 0.0
    """Paid only in the hours in which it runs."""
    sunk_usd: float = 0.0
    """Paid in the horizon whatever the plan decides."""
    liability_after_usd: float = 0.0
    """What one reserved instance still costs after the horizon, until its term ends."""
    available: tuple[int, ...] | None = None
    """Instances that can be had in each period; ``None``: no limit but quotas."""
    power_kw: float = 0.0
    """Electric power of a running instance, PUE included; 0 where unknown."""
    carbon_kg_per_h: float = 0.0
    """Of a running instance."""


@dataclass(frozen=True)
class Caps:
    """Optional limits on the whole fleet; ``None``: no such row."""

    budget_usd: float | None = None
    """Largest cost of the horizon, sunk cost included."""
    power_kw: float | None = None
    """Largest electric power in any period."""
    carbon_kg: float | None = None
    """Largest emission in the horizon."""
    liability_usd: float | None = None
    """Largest sum of what reserved instances still cost after the horizon (family ``add_liability_cap``)."""


@dataclass(frozen=True)
class Movement:
    """How far the fleet may move away from last quarter's.

    GPUs of a model on a GPU type are counted at their largest over the periods; what exceeds last quarter's is moved.
    """

    last_gpus: Mapping[tuple[str, str], int]
    """(model, GPU type) to GPUs of last quarter's plan."""
    max_moved_gpus: int


@dataclass(frozen=True)
class ProgramData:
    """Everything the integer program reads; all of it sorted, so that order of input does not matter."""

    models: tuple[str, ...]
    end_node: Mapping[str, int]
    """End of each model's routing graph; all begin at node 0."""
    max_pools: Mapping[str, int]
    """Most columns that may serve a model."""
    periods: tuple[Period, ...]
    supplies: tuple[Supply, ...]
    lots: tuple[Lot, ...]
    columns: tuple[Column, ...]
    quotas: tuple[Quota, ...] = ()
    caps: Caps = Caps()
    movement: Movement | None = None

    @property
    def hours(self) -> float:
        """Hours of the horizon."""
        return sum(period.hours for period in self.periods)

    @cached_property
    def most_served_tokens(self) -> dict[tuple[str, int, int], float]:
        """Most tokens that any column serves, by model and arc."""
        most: dict[tuple[str, int, int], float] = {}
        for column in self.columns:
            key = (column.model, column.start, column.end)
            most[key] = max(most.get(key, 0.0), column.served_tokens)
        return most


@dataclass(frozen=True)
class SolverSettings:
    """How a program is solved; all of it is an argument."""

    name: str
    gap: float
    time_limit_s: float
    threads: int
    seed: int


@dataclass(frozen=True)
class Certificate:
    """What one solve of a linear program proved."""

    status: SolveStatus
    objective: float
    bound: float
    solver: str
    solver_version: str


@dataclass(frozen=True)
class Decision:
    """What the integer program chose, with the proof."""

    columns: tuple[Column, ...]
    running: Mapping[str, tuple[int, ...]]
    """Instances that run, by lot id and period; only lots that are used."""
    reserved: Mapping[str, int]
    """Instances that are paid every hour, by lot id; only lots with a price for it."""
    placed: Mapping[tuple[Placement, str], tuple[int, ...]]
    """Replicas by placement, supply id and period."""
    status: SolveStatus
    usd: float
    """Cost of the horizon, sunk cost included."""
    served_tokens: float
    usd_per_token_bound: float
    ratio_iterations: int
    solver: str
    solver_version: str
    notes: tuple[str, ...] = field(default=())
    """What the solve left open, in words, such as a time limit reached."""

    @property
    def usd_per_token(self) -> float:
        """The ratio that was minimised."""
        return self.usd / self.served_tokens

    @property
    def gap(self) -> float:
        """(ratio − bound) / ratio, at least 0; 0 where nothing is paid."""
        if self.usd_per_token <= 0:
            return 0.0
        return max(0.0, 1.0 - self.usd_per_token_bound / self.usd_per_token)
