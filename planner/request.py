"""What the user asks: a TOML file, read into a frozen `PlanRequest`; every problem is reported at once."""

from __future__ import annotations

import datetime as dt
import difflib
import tomllib
import zoneinfo
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from planner.catalog.offer import PriceKind, Term
from planner.errors import InputError, Problem
from planner.memory.types import KvDtype, WeightDtype
from planner.request_study import BASE, CurrencyRequest, LastQuarterRequest, ScenarioRequest, SensitivityRequest
from planner.strict import Name, Strict

MAX_HORIZON_DAYS = 1830


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
        if (self.end - self.start).days > MAX_HORIZON_DAYS:
            raise ValueError(f"the horizon must not be longer than {MAX_HORIZON_DAYS} days")
        return self

    @property
    def hours(self) -> float:
        """Hours of the horizon."""
        return (self.end - self.start).days * 24.0


class Policy(Strict):
    """Rules that hold for every model."""

    overflow_probability: float = Field(default=0.01, ge=1e-6, lt=1)
    """Largest probability that live tokens exceed a replica's pool."""
    load_cv: float = Field(default=0.0, ge=0, le=1)
    """How unsure the tokens that a request holds are, from the log to the horizon, as a coefficient of variation; live
    tokens and requests keep their limits with it."""
    tail_confidence: float = Field(default=0.95, ge=0.5, lt=1)
    """Confidence with which tail budgets are kept, given how few of a log's requests lie that far out."""
    max_work_share: float = Field(default=0.85, gt=0, lt=1)
    """Largest share of time that the prefill and decode work of the load may take of a replica."""
    speed_edge: Literal["upper", "middle"] = "upper"
    """Which edge of the speed band constraints see where a deployment is not measured: ``upper`` is the slow one."""
    measured_speed_edge: Literal["upper", "middle"] = "middle"
    """Which edge they see of a time that was measured on the very deployment, within reach of the measured loads."""
    max_price_age_days: int = Field(default=400, gt=0)
    """An offer priced longer ago than this on the day of planning is left out, and the plan says so; a contract or
    hardware of the request at such a price is an error."""
    max_engine_fact_age_days: int | None = Field(default=None, gt=0)
    """An engine fact read longer ago than this on the day of planning is an error; ``None``: any age will do."""
    spare_replicas: int = Field(default=0, ge=0, le=1000)
    """Replicas beyond the need, for each pool, unless the model says otherwise."""
    spot_reserve: float = Field(default=0.2, ge=0, lt=1)
    """Share of spot instances held beyond the need, because some are taken away at any time."""
    max_power_kw: float | None = Field(default=None, gt=0)
    """Largest electric power of the whole fleet, PUE included."""
    max_carbon_kg: float | None = Field(default=None, gt=0)
    """Largest emission of the horizon, kg CO2e."""
    max_liability_usd: float | None = Field(default=None, ge=0)
    """Largest sum that new commitments may still cost after the horizon."""


class Solver(Strict):
    """How the integer program is solved."""

    name: Literal["highs", "cbc"] = "highs"
    gap: float = Field(default=0.001, gt=0, lt=1)
    time_limit_s: float = Field(default=120.0, gt=0, le=1e9)
    threads: int = Field(default=1, ge=1, le=1024)
    seed: int = Field(default=0, ge=0, lt=2**31)


class TimeChoice(Strict):
    """The periods that replica counts follow; without it the whole horizon is one period at the planning rate."""

    zone: str = "UTC"
    """Whose hours make the week."""
    holidays: tuple[dt.date, ...] = ()
    week_periods: int = Field(default=4, ge=1, le=48)
    """Groups of hours of the week that are planned alike."""
    by_month: bool = True
    """Whether the months of the horizon are told apart, where growth makes them differ."""

    @field_validator("zone")
    @classmethod
    def _known_zone(cls, zone: str) -> str:
        if zone not in zoneinfo.available_timezones():
            raise ValueError("is no time zone of the IANA database, such as Europe/Berlin")
        return zone


class Routing(Strict):
    """How many pools a model may have and where prompts may be cut."""

    max_pools: int = Field(default=1, ge=1, le=16)
    """Most pools a model, unless the model says otherwise."""
    bands: int = Field(default=6, ge=1, le=32)
    """Bands of prompt lengths that pools are made of, where `cuts` is empty and more than one pool is allowed."""
    cuts: tuple[int, ...] = ()
    """Prompt lengths (tokens) at which a router may cut."""


class Owned(Strict):
    """Hardware that is there already: only what running it costs is decided."""

    name: Name
    gpu: str
    gpus_per_instance: int = Field(ge=1, le=1024)
    instances: int = Field(ge=0, le=10**7)
    region: str = ""
    until: dt.date | None = None
    """First day on which it is gone."""
    usd_per_instance_h: float | None = Field(default=None, ge=0)
    """What an hour of running one instance costs; else it follows from power, or is 0 and said to be."""
    power_kw: float | None = Field(default=None, gt=0)
    """Of a running instance, before PUE."""
    source: str = Field(min_length=1)
    source_date: dt.date | None = None


class Buying(Strict):
    """Hardware that may be bought: every figure is its buyer's."""

    name: Name
    gpu: str
    gpus_per_instance: int = Field(ge=1, le=1024)
    max_instances: int = Field(ge=0, le=10**7)
    region: str = ""
    capex_usd: float = Field(gt=0)
    """Price of one instance, installed."""
    life_years: float = Field(gt=0, le=20)
    residual_share: float = Field(default=0.0, ge=0, lt=1)
    """What is left of the price at the end of its life."""
    cost_of_capital: float = Field(default=0.0, ge=0, le=1)
    """A year; 0.08 is 8 %."""
    power_kw: float = Field(gt=0)
    """Of a running instance, before PUE."""
    colocation_usd_per_month: float = Field(default=0.0, ge=0)
    maintenance_share_per_year: float = Field(default=0.0, ge=0, le=1)
    """Of the price."""
    source: str = Field(min_length=1)
    source_date: dt.date | None = None


class Site(Strict):
    """Electricity of a region: for owned and bought hardware, and for carbon."""

    region: str
    pue: float = Field(default=1.0, ge=1, le=4)
    usd_per_kwh: float = Field(default=0.0, ge=0)
    carbon_kg_per_kwh: float | None = Field(default=None, ge=0)
    source: str = Field(min_length=1)
    source_date: dt.date | None = None


class ExistingCommitment(Strict):
    """Instances that are paid until a day, whatever is planned."""

    offer: str
    """Id of the catalogue's offer."""
    instances: int = Field(ge=1, le=10**7)
    until: dt.date
    """First day that is not paid any more."""
    usd_per_instance_h: float | None = Field(default=None, ge=0)
    """The contract's price; ``None``: the catalogue's."""


class MultiNode(Strict):
    """Offers whose instances are linked well enough for one replica to span several."""

    provider: str = ""
    gpu: str = ""
    offer: str = ""
    network_gb_s: float = Field(gt=0)
    """Bidirectional bandwidth between instances a GPU, GB/s."""
    source: str = Field(min_length=1)


class MovementLimit(Strict):
    """How far this plan may move away from last quarter's."""

    last_plan: str
    """plan.json of last quarter, relative to the request."""
    max_moved_gpus: int = Field(ge=0, le=10**9)


class Engine(Strict):
    """Which engine serves the models."""

    name: Literal["vllm", "sglang"] = "vllm"
    version: str
    gpu_memory_utilization: float | None = Field(default=None, gt=0, le=1)
    """``None``: the engine's default for that version."""
    calibration: str = ""
    """File of terms measured at start-up, relative to the request; they come before predictions."""


class SpeedChoice(Strict):
    """Where speeds come from."""

    measured: tuple[str, ...] = ()
    """Files of measured points (``planner speed import`` writes them), relative to the request."""
    providers: tuple[Literal["measured", "aiconfigurator", "roofline"], ...] = ("measured", "roofline")
    """Those that may answer, first choice first; where aiconfigurator has no answer, the source says why."""

    @model_validator(mode="after")
    def _usable(self) -> SpeedChoice:
        if len(set(self.providers)) < len(self.providers):
            raise ValueError("providers must be named once each")
        if not set(self.providers) - {"measured"}:
            raise ValueError("providers must name a model (aiconfigurator, roofline): measurements correct one")
        if "measured" in self.providers[1:]:
            raise ValueError("measured must come first among the providers: it corrects the model that follows")
        if self.measured and "measured" not in self.providers:
            raise ValueError("files of measured points are given, and measured is not among the providers")
        if len(set(self.measured)) < len(self.measured):
            raise ValueError("each file of measured points must be named once")
        return self


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

    name: Name
    provider: str = ""
    region: str = ""
    gpu: str = ""
    offer: str = ""
    max_gpus: int = Field(ge=0, le=10**9)


class Expected(Strict):
    """A figure with the range that its owner stands by."""

    low: float
    expected: float
    high: float

    @model_validator(mode="after")
    def _in_order(self) -> Expected:
        if not self.low <= self.expected <= self.high:
            raise ValueError("must hold low <= expected <= high")
        return self


class GrowthStep(Strict):
    """A launch, a migration, a client that comes or leaves: from a day on, the rate is another one."""

    on: dt.date
    factor: float | Expected
    """Rate from that day on over the rate before."""
    why: str


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
    rate_per_s: float | None = Field(default=None, gt=0, le=1e6)
    """Mean arrivals per second over the horizon: the volume that is served and paid for. Without it, the log's own."""
    rate_from_actuals: bool = False
    """Take the mean rate from the actuals of ``[last_quarter]``: what came there over the hours of its logs."""
    peak_factor: float = Field(default=1.0, ge=1, le=100)
    """Planning rate over mean rate: the busy hours that the fleet must hold."""
    peak_quantile: float | None = Field(default=None, ge=0, le=1)
    """Instead of `peak_factor`: the busiest hour of the week as the log shows it, at this quantile over its weeks."""
    zone: str = "UTC"
    """Whose hours make the week, for `peak_quantile`."""
    holidays: tuple[dt.date, ...] = ()
    """Days of the log that are a class of their own, for `peak_quantile`."""
    week: str = ""
    """Where the hours of the week come from, for plans by period: ``log`` is this log itself, else a path as in `path`
    (same format and options, but for windows) or a CSV of hours; empty: every hour is held at the planning rate."""
    growth: float = Field(default=1.0, gt=0, le=100)
    """Factor on both rates for growth until the horizon."""
    growth_per_quarter: float | Expected = 0.0
    """Steady growth from the day of the rate on, compounded; 0.1 is 10 % a quarter."""
    steps: tuple[GrowthStep, ...] = ()
    """Dated changes, on top of steady growth."""
    options: dict[str, str | int | float] = Field(default_factory=dict)
    """Options of the reader, such as a column mapping or the seed of a generated sample."""
    source: str = ""
    """Who states the rate, for the Inputs sheet."""
    source_date: dt.date | None = None

    @model_validator(mode="after")
    def _one_peak(self) -> TrafficSource:
        if self.rate_from_actuals and self.rate_per_s is not None:
            raise ValueError("rate_per_s and rate_from_actuals both say what the rate is: keep one")
        if self.peak_quantile is not None and self.peak_factor != 1.0:
            raise ValueError("peak_factor and peak_quantile both say what the peak is: keep one")
        per_quarter = self.growth_per_quarter
        if (per_quarter.low if isinstance(per_quarter, Expected) else per_quarter) <= -1:
            raise ValueError("growth_per_quarter must be above -1: 0.1 is 10 % a quarter")
        return self


class TenantTraffic(Strict):
    """The log of one tenant: a part of the model's own log."""

    path: str
    format: str = "auto"
    model: str = ""
    options: dict[str, str | int | float] = Field(default_factory=dict)
    share: float | None = Field(default=None, gt=0, lt=1)
    """Share of the model's requests; ``None``: its requests over those of all tenants' logs."""


class Targets(Strict):
    """Latency targets of a model."""

    tpot_ms: float | None = Field(default=None, gt=0)
    """Largest mean time per output token at the planned load."""
    ttft_ms: float | None = Field(default=None, gt=0)
    ttft_percentile: float = Field(default=0.95, gt=0, lt=1)


class Scaling(Strict):
    """How replicas of a pool may follow the load through the periods."""

    fixed: bool = False
    """The same number in every period."""
    min_replicas: int = Field(default=1, ge=1, le=10**6)
    """Never fewer are kept running, in any pool."""
    step: int = Field(default=1, ge=1, le=10**4)
    """Replicas are added and removed so many at a time."""
    warm_up_min: float = Field(default=0.0, ge=0, le=24 * 60)
    """Minutes from the decision to add a replica until it serves: the load that will have come by then is held now."""


class ApprovedDtypes(Strict):
    """A pair of formats that the owner of a model has measured."""

    weight_dtype: WeightDtype
    kv_dtype: KvDtype
    score_drop: float = Field(ge=0, le=1)
    """Drop of the quality score against the reference, as a share: 0.01 is 1 %."""
    source: str = Field(min_length=1)
    source_date: dt.date | None = None


class TenantRequest(Strict):
    """A part of a model's traffic that a router can tell by its key, client or class."""

    name: Name
    traffic: TenantTraffic
    targets: Targets | None = None
    """Its own latency targets; ``None``: the model's."""
    tail_budget: float | None = Field(default=None, ge=0, lt=1)


class ModelRequest(Strict):
    """One model to serve."""

    name: Name
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
    spare_replicas: int | None = Field(default=None, ge=0, le=1000)
    gpus: tuple[str, ...] = ()
    """GPU types allowed for this model; empty means all."""
    max_pools: int | None = Field(default=None, ge=1, le=16)
    """Most pools; ``None``: `Routing.max_pools`."""
    tenant: tuple[TenantRequest, ...] = ()
    """Parts of the traffic that may have pools of their own; together they are the model's traffic."""
    quality: tuple[ApprovedDtypes, ...] = ()
    """Where it is given, only these pairs of formats may be used."""
    max_score_drop: float | None = Field(default=None, ge=0, le=1)
    """Largest drop of the quality score that its owner accepts."""
    scaling: Scaling = Scaling()
    interruptible: bool = False
    """Whether its replicas may stand on spot instances."""
    regions: tuple[str, ...] = ()
    """Regions that its replicas may stand in; empty means all."""
    survives_region_loss: bool = False
    """Replicas are spread so that any one region may be lost."""

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
    speed: SpeedChoice = SpeedChoice()
    offers: OfferChoice = OfferChoice()
    quota: tuple[Quota, ...] = ()
    budget_usd: float | None = Field(default=None, gt=0)
    """Largest cost of the horizon."""
    time: TimeChoice | None = None
    routing: Routing = Routing()
    owned: tuple[Owned, ...] = ()
    buying: tuple[Buying, ...] = ()
    site: tuple[Site, ...] = ()
    commitment: tuple[ExistingCommitment, ...] = ()
    multi_node: tuple[MultiNode, ...] = ()
    movement: MovementLimit | None = None
    currency: CurrencyRequest | None = None
    """Reported in USD where there is none."""
    last_quarter: LastQuarterRequest | None = None
    scenario: tuple[ScenarioRequest, ...] = Field(default=(), max_length=6)
    sensitivity: tuple[SensitivityRequest, ...] = Field(default=(), max_length=24)
    model: tuple[ModelRequest, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _unique_names(self) -> PlanRequest:
        for what, names in (
            ("model", [m.name for m in self.model]),
            ("scenario", [BASE, *(s.name for s in self.scenario)]),
            ("sensitivity", [s.name for s in self.sensitivity if s.name]),
            ("quota", [*(q.name for q in self.quota), *(["budget"] if self.budget_usd is not None else [])]),
        ):
            # Spreadsheets look names up whatever their case.
            folded = [name.casefold() for name in names]
            doubles = sorted({name for name in names if folded.count(name.casefold()) > 1})
            if doubles:
                raise ValueError(f"{what} names must be unique, upper and lower case alike: {', '.join(doubles)}")
        return self


def read_request(path: Path) -> PlanRequest:
    """Read and validate a request file.

    Raises
    ------
    InputError
        If the file cannot be read or any key is unknown, missing or out of range; lists every problem.
    """
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise InputError(Problem(str(path), "no such file", "Give the path of a request file (TOML)")) from None
    except (OSError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(Problem(str(path), f"cannot be read: {error}")) from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(Problem(str(path), f"is not valid TOML: {error}")) from None
    try:
        return PlanRequest.model_validate(raw)
    except ValidationError as error:
        found = [_problem(path, raw, item) for item in error.errors() if not _follows_from_another(item)]
        raise InputError(found) from None


def _follows_from_another(item: Any) -> bool:
    """Pydantic also calls a list too short when its entries were refused for other reasons."""
    return item["type"] == "too_short" and bool(item["input"])


def _problem(path: Path, raw: dict[str, Any], item: Any) -> Problem:
    """One pydantic error in the user's words, with a suggestion for a mistyped or misplaced key."""
    row, location = _named_entry(raw, item["loc"])
    field = ".".join(str(part) for part in location)
    if item["type"] == "extra_forbidden":
        return Problem(str(path), "is not a known key", _where_it_belongs(item["loc"]), row=row, field=field)
    if item["type"] == "missing":
        return Problem(str(path), "is missing", "Add it", row=row, field=field)
    if item["type"] == "tuple_type" and location in (["model"], ["quota"]):
        fix = f"Write [[{field}]] above each one"
        return Problem(str(path), "must be a list of tables", fix, row=row, field=field)
    message = str(item["msg"]).removeprefix("Value error, ").replace("Tuple", "A list").replace(" after validation", "")
    shown = "" if isinstance(item["input"], dict | list | tuple) else f" (got {item['input']!r:.80})"
    return Problem(str(path), f"{message[0].lower()}{message[1:]}{shown}", row=row, field=field)


def _named_entry(raw: dict[str, Any], location: tuple[str | int, ...]) -> tuple[str, list[str | int]]:
    """A place such as ``model.0.traffic.path`` as the entry's own name and the rest."""
    if len(location) < 2 or not isinstance(location[1], int):
        return "", list(location)
    kind, index = str(location[0]), location[1]
    name = raw[kind][index].get("name") if isinstance(raw[kind][index], dict) else None
    return f"{kind} '{name}'" if name else f"{kind} number {index + 1}", list(location[2:])


def _where_it_belongs(location: tuple[str | int, ...]) -> str:
    """The nearest spelling among the keys of this place, or the place that has this key."""
    name, places = str(location[-1]), _known_keys()
    here = ".".join(str(part) for part in location[:-1] if not isinstance(part, int))
    close = difflib.get_close_matches(name, places.get(here, ()), n=1)
    if close:
        return f"Did you mean '{close[0]}'?"
    elsewhere = [place for place, keys in places.items() if name in keys]
    if elsewhere:
        return f"It belongs {'in [' + elsewhere[0] + ']' if elsewhere[0] else 'at the top of the file'}"
    return "Remove it"


def _known_keys(model: type[BaseModel] | None = None, place: str = "") -> dict[str, tuple[str, ...]]:
    """Keys of every table of a request, by the table's place."""
    model = model or PlanRequest
    found = {place: tuple(model.model_fields)}
    for name, info in model.model_fields.items():
        for kind in (info.annotation, *getattr(info.annotation, "__args__", ())):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                found |= _known_keys(kind, f"{place}.{name}".lstrip("."))
    return found
