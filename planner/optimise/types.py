"""What the optimiser works on: workloads, configurations, columns, and what it returns."""

from __future__ import annotations

from dataclasses import dataclass

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
from planner.request import ModelRequest, Quota
from planner.speed.chain import SpeedSources
from planner.speed.types import SpeedModel
from planner.traffic.demand import DemandRates
from planner.traffic.types import LengthLaw, Traffic


@dataclass(frozen=True)
class Workload:
    """One model's demand over the horizon."""

    request: ModelRequest
    shape: ModelShape
    traffic: Traffic
    rates: DemandRates
    horizon_hours: float

    @property
    def planning_rate_per_s(self) -> float:
        """What the fleet must hold."""
        return self.rates.planning_rate_per_s

    @property
    def mean_rate_per_s(self) -> float:
        """What is served and paid for."""
        return self.rates.mean_rate_per_s

    @property
    def name(self) -> str:
        """The request's name of the model."""
        return self.request.name

    @property
    def offered_requests(self) -> float:
        """Requests that arrive in the horizon."""
        return self.mean_rate_per_s * units.hours_to_s(self.horizon_hours)

    @property
    def offered_tokens(self) -> float:
        """Input and output tokens that arrive in the horizon, before any refusal."""
        law = self.traffic.law
        return self.offered_requests * (law.mean_prompt + law.mean_output)


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


@dataclass(frozen=True)
class Need:
    """Replicas that a configuration needs for its model's whole demand."""

    config: Config
    demand: Demand
    limits: Limits
    replicas: int
    exact: bool
    """True when the exact live-token quantile was checked, False for the screen's lower bound."""


@dataclass(frozen=True)
class Column:
    """A choice of the integer program: serve bands [first, last) of a model with one configuration on one offer."""

    key: str
    model: str
    first_band: int
    last_band: int
    offer: Offer
    need: Need
    spare: int
    served_tokens: float

    @property
    def replicas(self) -> int:
        """Replicas including spares."""
        return self.need.replicas + self.spare

    @property
    def gpus(self) -> int:
        """GPUs that the replicas occupy."""
        return self.replicas * self.need.config.tp


@dataclass(frozen=True)
class ProgramData:
    """Everything the integer program reads; columns and offers sorted, so that order of input does not matter."""

    models: tuple[str, ...]
    bands: int
    offers: tuple[Offer, ...]
    columns: tuple[Column, ...]
    quotas: tuple[Quota, ...]
    budget_usd: float | None
    horizon_hours: float

    @property
    def most_served_tokens(self) -> dict[tuple[str, int, int], float]:
        """Most tokens that any column serves, by model and interval of bands."""
        most: dict[tuple[str, int, int], float] = {}
        for column in self.columns:
            key = (column.model, column.first_band, column.last_band)
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
    instances: dict[str, int]
    """Instances by offer id, only offers that are used."""
    status: SolveStatus
    usd: float
    served_tokens: float
    usd_per_token_bound: float
    ratio_iterations: int
    solver: str
    solver_version: str

    @property
    def usd_per_token(self) -> float:
        """The ratio that was minimised."""
        return self.usd / self.served_tokens

    @property
    def gap(self) -> float:
        """(ratio − bound) / ratio, at least 0."""
        return max(0.0, 1.0 - self.usd_per_token_bound / self.usd_per_token)
