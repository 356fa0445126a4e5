"""What the user asks: a TOML file, read into a frozen `PlanRequest`; every problem is reported at once."""

from __future__ import annotations

import datetime as dt
import difflib
import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from planner.catalog.offer import PriceKind, Term
from planner.errors import InputError, Problem
from planner.memory.types import KvDtype, WeightDtype


class Strict(BaseModel):
    """Immutable, and a key that is not known is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Quarter(Strict):
    """The horizon and who answers for the plan."""

    title: str
    start: dt.date
    end: dt.date
    """Exclusive."""
    owner: str
    stated_on: dt.date | None = None
    """When the figures of this request were stated; shown beside every one that has no date of its own."""
    currency: Literal["USD"] = "USD"

    @model_validator(mode="after")
    def _end_after_start(self) -> Quarter:
        if self.end <= self.start:
            raise ValueError("end must be later than start (end is exclusive)")
        return self

    @property
    def hours(self) -> float:
        """Hours of the horizon."""
        return (self.end - self.start).days * 24.0


class Policy(Strict):
    """Rules that hold for every model."""

    overflow_probability: float = Field(default=0.01, gt=0, lt=1)
    """Largest probability that live tokens exceed a replica's pool."""
    max_work_share: float = Field(default=0.85, gt=0, lt=1)
    """Largest share of time that the prefill and decode work of the load may take of a replica."""
    speed_edge: Literal["upper", "middle"] = "upper"
    """Which edge of the speed band the constraints see: ``upper`` is the slow one."""
    max_price_age_days: int = Field(default=400, gt=0)
    """An offer priced longer ago than this on the day of planning is left out, and the plan says so."""
    spare_replicas: int = Field(default=0, ge=0)
    """Replicas beyond the need, for each pool, unless the model says otherwise."""


class Solver(Strict):
    """How the integer program is solved."""

    name: Literal["highs", "cbc"] = "highs"
    gap: float = Field(default=0.001, gt=0, lt=1)
    time_limit_s: float = Field(default=120.0, gt=0)
    threads: int = Field(default=1, ge=1)
    seed: int = Field(default=0, ge=0)


class Engine(Strict):
    """Which engine serves the models."""

    name: Literal["vllm", "sglang"] = "vllm"
    version: str
    gpu_memory_utilization: float | None = Field(default=None, gt=0, le=1)
    """``None``: the engine's default for that version."""


class OfferChoice(Strict):
    """Which offers the plan may use; an empty list means no restriction."""

    providers: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    terms: tuple[Term, ...] = (Term.ON_DEMAND,)
    price_kinds: tuple[PriceKind, ...] = (PriceKind.LIST,)
    """Marketplace floors, prices without CPU and memory, and estimates are used only when named."""
    exclude: tuple[str, ...] = ()
    """Offer ids that must not be used."""


class Quota(Strict):
    """At most ``max_gpus`` GPUs over the offers that match; an empty field matches everything."""

    name: str
    provider: str = ""
    region: str = ""
    gpu: str = ""
    offer: str = ""
    max_gpus: int = Field(ge=0)


class TrafficSource(Strict):
    """Where the length law and the bursts of a model come from, and the rate it is scaled to.

    Scaling keeps the length law and the index of dispersion at every scale, as if independent copies of the
    observed clients were added.
    """

    path: str
    """A log file, a folder of log files, or a canonical folder (with manifest.json), relative to the request."""
    format: str = "auto"
    model: str = ""
    """Model name inside the log, when it holds several."""
    rate_per_s: float = Field(gt=0)
    """Mean arrivals per second over the horizon: the volume that is served and paid for."""
    peak_factor: float = Field(default=1.0, ge=1)
    """Planning rate over mean rate: the busy hours that the fleet must hold."""
    growth: float = Field(default=1.0, gt=0)
    """Factor on both rates for growth until the horizon."""
    options: dict[str, str | int | float] = Field(default_factory=dict)
    """Options of the reader, such as a column mapping or the seed of a generated sample."""
    source: str = ""
    """Who states the rate, for the Inputs sheet."""
    source_date: dt.date | None = None


class Targets(Strict):
    """Latency targets of a model."""

    tpot_ms: float | None = Field(default=None, gt=0)
    """Largest mean time per output token at the planned load."""
    ttft_ms: float | None = Field(default=None, gt=0)
    ttft_percentile: float = Field(default=0.95, gt=0, lt=1)


class ModelRequest(Strict):
    """One model to serve."""

    name: str = Field(min_length=1)
    weights: str
    """Catalogue id, or a path to a config.json relative to the request."""
    cost_centre: str = ""
    owner: str = ""
    traffic: TrafficSource
    weight_dtypes: tuple[WeightDtype, ...] = Field(min_length=1)
    """Formats that the owner has approved."""
    kv_dtypes: tuple[KvDtype, ...] = Field(min_length=1)
    tail_budget: float = Field(default=0.001, ge=0, lt=1)
    """Largest share of requests that may be refused because they are longer than max_model_len."""
    targets: Targets = Targets()
    tp_degrees: tuple[int, ...] | None = None
    """Tensor-parallel degrees to try; by default those of 1, 2, 4, 8 that divide the attention heads."""
    max_num_seqs: tuple[int, ...] = (64, 256, 1024)
    """Operating points to try: caps on concurrent sequences."""
    spare_replicas: int | None = Field(default=None, ge=0)
    gpus: tuple[str, ...] = ()
    """GPU types allowed for this model; empty means all."""

    @field_validator("tp_degrees", "max_num_seqs")
    @classmethod
    def _positive(cls, values: tuple[int, ...] | None) -> tuple[int, ...] | None:
        if values is None:
            return None
        if not values or any(value < 1 for value in values):
            raise ValueError("must hold at least one whole number, each at least 1")
        return values


class PlanRequest(Strict):
    """The whole request, as in ``catalogs/example/quarter.toml``."""

    quarter: Quarter
    policy: Policy = Policy()
    solver: Solver = Solver()
    engine: Engine
    offers: OfferChoice = OfferChoice()
    quota: tuple[Quota, ...] = ()
    budget_usd: float | None = Field(default=None, gt=0)
    """Largest cost of the horizon."""
    model: tuple[ModelRequest, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _unique_names(self) -> PlanRequest:
        for what, names in (
            ("model", [m.name for m in self.model]),
            ("quota", [q.name for q in self.quota]),
        ):
            doubles = sorted({name for name in names if names.count(name) > 1})
            if doubles:
                raise ValueError(f"{what} names must be unique; repeated: {', '.join(doubles)}")
        return self


def read_request(path: Path) -> PlanRequest:
    """Read and validate a request file.

    Raises
    ------
    InputError
        If the file cannot be read or any key is unknown, missing or out of range; lists every problem.
    """
    try:
        text = path.read_text(encoding="utf-8")
        raw = tomllib.loads(text)
    except FileNotFoundError:
        raise InputError(Problem(str(path), "no such file", "Give the path of a request file (TOML)")) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(Problem(str(path), f"cannot be read: {error}")) from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(Problem(str(path), f"is not valid TOML: {error}")) from None
    try:
        return PlanRequest.model_validate(raw)
    except ValidationError as error:
        raise InputError([_problem(path, raw, item) for item in error.errors()]) from None


def _problem(path: Path, raw: dict[str, Any], item: Any) -> Problem:
    """One pydantic error in the user's words, with a suggestion for a mistyped key."""
    location = [str(part) for part in item["loc"]]
    name = ".".join(location)
    if item["type"] == "extra_forbidden":
        close = difflib.get_close_matches(location[-1], _known_keys(item["loc"]), n=1)
        fix = f"Did you mean '{close[0]}'?" if close else "Remove it"
        return Problem(str(path), "is not a known key", fix, field=name)
    if item["type"] == "missing":
        return Problem(str(path), "is missing", "Add it", field=name)
    message = str(item["msg"]).removeprefix("Value error, ")
    return Problem(str(path), f"{message[0].lower()}{message[1:]} (got {item['input']!r:.80})", field=name)


def _known_keys(location: tuple[str | int, ...]) -> list[str]:
    """Field names at the place of an error, by walking the request's types."""
    fields: type[BaseModel] = PlanRequest
    for part in location[:-1]:
        if isinstance(part, int):
            continue
        info = fields.model_fields.get(part)
        inner = info.annotation if info else None
        arguments = [inner, *getattr(inner, "__args__", ())]
        nested = [a for a in arguments if isinstance(a, type) and issubclass(a, BaseModel)]
        if not nested:
            return []
        fields = nested[0]
    return list(fields.model_fields)
