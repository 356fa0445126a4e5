"""A hand-made plan: 5 models, 6 pools, 2 periods, 7 lots on 5 supplies, limits, and text that nobody should trust.

Hours 720 + 1440. Instances of 8 H100 in the busy hours: chat/1 3 x 4 + chat/2 1 x 4 + code 3 x 1 = 19 GPUs, 3 instances
(1 committed, 2 on demand); in the other hours 1 x 4 + 1 x 4 + 2 x 1 = 10 GPUs, 2 instances.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from planner.assemble.money import pool_costs, pool_gpu_hours, supply_usd, totals_of
from planner.plan import (
    Assumption,
    FleetPlan,
    InputFile,
    Margin,
    Measure,
    MemoryTerm,
    PlanModel,
    PlanPeriod,
    PlanSupply,
    PlanTotals,
    Pool,
    PoolLoad,
    PoolMemory,
    PoolPeriod,
    PoolPlacement,
    PoolSpeed,
    Purchase,
    QuotaUse,
    Rejected,
    Route,
    RunnerUp,
    Solve,
    SolveStatus,
)

HOURS = 2160.0
PERIODS = (PlanPeriod(name="busy hours", hours=720.0), PlanPeriod(name="other hours", hours=1440.0))
MEAN = (1.5, 0.75)
"""Mean rate of each period over that of the horizon: 1.5 x 720 + 0.75 x 1440 = 2160."""
QUIET = 0.4
"""Planning rate of the other hours over that of the busy ones."""
GROWTH, PEAK = 1.25, 1.28
"""Their product is the planning rate over the stated one, 1.6."""
TAIL_BUDGET = 0.001


@dataclass(frozen=True)
class Quarter:
    """The horizon and what is scaled in it; the defaults are those of `sample_plan`."""

    start: dt.date = dt.date(2027, 1, 1)
    end: dt.date = dt.date(2027, 4, 1)
    periods: tuple[PlanPeriod, ...] = PERIODS
    mean: tuple[float, ...] = MEAN
    planning: tuple[float, ...] = (1.0, QUIET)
    """Planning rate of each period over that of the busiest."""
    factor: float = 1.0
    """Arrivals over those of the specifications."""
    as_of: dt.date = dt.date(2026, 7, 20)
    """Day of the prices."""

    @property
    def hours(self) -> float:
        """Of the horizon."""
        return sum(period.hours for period in self.periods)

    @property
    def growth(self) -> float:
        """Growth of every model's arrivals."""
        return GROWTH * self.factor


QUARTER = Quarter()
HOSTILE_NOTE = '=HYPERLINK("http://evil.example","click") \x07\x1b[31m'
HOSTILE_ASSUMPTION = "@SUM(1+1)*cmd|'/C calc'!A0"
HOSTILE_SOURCE = "+1-555\x00 call me"
VERY_LONG = "=" + "long note " * 4000

_AWS = "https://github.com/aws/karpenter-provider-aws/blob/main/pkg/providers/pricing"


@dataclass(frozen=True)
class Spec:
    """A pool in few figures; rates are before `Quarter.factor`."""

    name: str
    model: str
    weights: str
    supply: str
    gpu: str
    tp: int
    weight_dtype: str
    kv_dtype: str
    max_model_len: int
    needed: tuple[int, ...]
    spare: int
    rate: float
    """Planning rate of the busy hours, before refusals."""
    pool_tokens: int
    quantile: float
    tpot: float
    tpot_target: float | None
    ttft: float
    ttft_target: float | None
    work: float
    mean_in: float
    mean_out: float
    refused: float
    binds: str
    low: int = 0
    high: int | None = None
    share: float = 1.0
    elsewhere: tuple[str, tuple[int, ...]] | None = None
    """Another supply, and how many of its replicas stand there by period."""


H100 = "aws/p5.48xlarge/us-east-1/on_demand"
H100_1Y = "aws/p5.48xlarge/us-east-1/commit_1y"
H200 = "nebius/gpu-h200-sxm/eu-north1/on_demand"
L40S = "aws/g6e.12xlarge/us-east-1/on_demand"
L40S_HELD = "held/aws/g6e.12xlarge/us-east-1/commit_1y/2027-03-01"
A100 = "runpod/A100-80GB/spot"
IDLE = "held/lambda/gpu_1x_a10/commit_1y/2027-04-01"
REGIONS = ("us-east-1", "us-west-2", "us-central1", "eu-north1")
OFFERS = (H100_1Y, H100, H200, L40S_HELD, L40S, A100, IDLE)
LLAMA_70B = "meta-llama/Llama-3.3-70B-Instruct"
X8, X8N, X4, X1, X10 = "H100-SXM x8", "H200-SXM x8", "L40S x4", "A100-SXM-80GB x1 spot", "A10 x1"

SPECS = (
    Spec("chat/1", "chat", LLAMA_70B, X8, "H100-SXM", 4, "fp8", "fp8", 4_096, (3, 1), 0, 6.9,
          1_390_000, 1_352_410.0, 38.1, 50.0, 640.0, 1500.0, 0.71, 1020.0, 290.0, 0.0004, "token pool", 0, 4096, 0.75),
    Spec("chat/2", "chat", LLAMA_70B, X8, "H100-SXM", 4, "fp8", "fp8", 16_384, (1, 1), 0, 2.3,
          1_390_000, 988_100.0, 41.0, 50.0, 980.0, 1500.0, 0.55, 5200.0, 410.0, 0.0004, "TTFT target",
          4096, None, 0.25),
    Spec("code", "code", "Qwen/Qwen3-32B", X8, "H100-SXM", 1, "fp8", "bf16", 32_768, (2, 1), 1, 2.1,
          158_000, 120_344.0, 31.9, 40.0, 980.0, 1000.0, 0.64, 2047.0, 27.0, 0.0, "TTFT target"),
    Spec("agents", "agents", "deepseek-ai/DeepSeek-V3", X8N, "H200-SXM", 8, "fp8", "bf16", 65_536, (2, 2), 0, 1.4,
          512_000, 480_020.0, 44.0, None, 2210.0, None, 0.58, 7800.0, 640.0, 0.0009, "tail length"),
    Spec("search", "search", "meta-llama/Llama-3.1-8B-Instruct", X4, "L40S", 1, "fp8", "fp8", 8_192, (5, 2), 1, 31.0,
          402_000, 233_870.5, 29.5, 30.0, 310.0, 800.0, 0.82, 910.0, 120.0, 0.0001, "TPOT target"),
    Spec("vision", "vision", "google/gemma-3-27b-it", X1, "A100-SXM-80GB", 1, "int4-awq", "bf16", 16_384, (2, 1), 0,
          0.9, 301_000, 99_210.0, 27.3, 60.0, 720.0, 2000.0, 0.84, 1800.0, 260.0, 0.0, "work share"),
)  # fmt: skip

_TERMS = (
    MemoryTerm(name="weights", gib=17.2, origin="computed", source="parameter counts"),
    MemoryTerm(name="activations", gib=2.1, origin="fitted", source="start-up logs"),
)


def _band(value: float, source: str) -> Measure:
    return Measure(value=value / 1.1, low=value / 1.25, high=value, used=value, source=source)


def _margins(s: Spec) -> tuple[Margin, ...]:
    rows = [
        ("token pool", s.quantile, float(s.pool_tokens), "tokens"),
        ("concurrent sequences", s.quantile / 6000, 256.0, "requests"),
        ("work share", s.work, 0.85, "share"),
        ("tail budget", s.refused, TAIL_BUDGET, "share of requests"),
        ("longest request", float(s.max_model_len), float(s.pool_tokens), "tokens"),
    ]
    if s.tpot_target:
        rows.append(("TPOT target", s.tpot, s.tpot_target, "ms"))
    if s.ttft_target:
        rows.append(("TTFT target", s.ttft, s.ttft_target, "ms"))
    return tuple(
        Margin(constraint=c, planned=p, limit=m, unit=u, used_share=p / m, satisfied=p <= m) for c, p, m, u in rows
    )


def _periods(s: Spec, quarter: Quarter, offered_per_s: float) -> tuple[PoolPeriod, ...]:
    return tuple(
        PoolPeriod(
            period=period.name,
            planning_rate_per_s=s.rate * quarter.factor * (1 - s.refused) * quarter.planning[t],
            mean_rate_per_s=offered_per_s * quarter.mean[t], replicas_needed=s.needed[t],
            replicas_asked=s.needed[t] + s.spare, replicas=s.needed[t] + s.spare,
        )
        for t, period in enumerate(quarter.periods)
    )  # fmt: skip


def _offers(s: Spec, purchases: Sequence[Purchase]) -> tuple[str, ...]:
    """Lots of the supplies that the pool stands on, those with most GPUs in use first."""
    found = [p for p in purchases if p.supply in (s.supply, s.elsewhere[0] if s.elsewhere else "")]
    return tuple(p.offer_id for p in sorted(found, key=lambda p: -p.gpus_used))


def _placements(s: Spec) -> tuple[PoolPlacement, ...]:
    running = tuple(n + s.spare for n in s.needed)
    if s.elsewhere is None:
        return (PoolPlacement(supply=s.supply, replicas=running),)
    supply, there = s.elsewhere
    here = tuple(n - m for n, m in zip(running, there, strict=True))
    return (PoolPlacement(supply=s.supply, replicas=here), PoolPlacement(supply=supply, replicas=there))


def _pool(s: Spec, quarter: Quarter, purchases: Sequence[Purchase]) -> Pool:
    replicas = s.needed[0] + s.spare
    runner_up = RunnerUp(description=f"{replicas + 1} x {s.gpu} tp{s.tp} bf16/bf16", extra_usd=18_250.0)
    stated = s.rate / (s.share * GROWTH * PEAK)
    offered_per_s = stated * quarter.growth * s.share
    offered = offered_per_s * quarter.hours * 3600
    refused_in, refused_out = s.refused * 6, s.refused * 2
    served_in = offered * s.mean_in * (1 - refused_in) / 1e6
    served_out = offered * s.mean_out * (1 - refused_out) / 1e6
    refused_tokens = 1 - (served_in + served_out) * 1e6 / (offered * (s.mean_in + s.mean_out))
    return Pool(
        name=s.name, model=s.model, weights=s.weights, cost_centre=f"CC-{1000 + len(s.model)}",
        prompt_lo_tokens=s.low, prompt_hi_tokens=s.high, request_share=s.share, offers=_offers(s, purchases), gpu=s.gpu,
        engine="vllm", engine_version="0.11.0", tp=s.tp,
        weight_dtype=s.weight_dtype, kv_dtype=s.kv_dtype, max_model_len=s.max_model_len, max_num_seqs=256,
        max_num_batched_tokens=8192, gpu_memory_utilization=0.9, replicas_needed=s.needed[0], replicas_spare=s.spare,
        replicas=replicas, gpus=replicas * s.tp, periods=_periods(s, quarter, offered_per_s),
        placements=_placements(s), usd=0.0,
        memory=PoolMemory(
            gpu_memory_gib=79.2, budget_gib=71.3, terms=_TERMS, available_kv_gib=52.0, bytes_per_token=40960.0,
            block_size_tokens=16, num_blocks=s.pool_tokens // 16, pool_tokens=s.pool_tokens,
            logged_tokens=s.pool_tokens, max_concurrency=s.pool_tokens / s.max_model_len,
        ),
        load=PoolLoad(
            planning_rate_per_s=s.rate * quarter.factor * (1 - s.refused),
            rate_per_replica_per_s=s.rate * quarter.factor * (1 - s.refused) / s.needed[0],
            dispersion=1.7,
            live_dispersion=2.9,
            mean_live_requests=s.quantile / 3000, quantile_live_requests=s.quantile / 2400,
            mean_live_tokens=s.quantile * 0.7, quantile_live_tokens=s.quantile,
            mean_formula_tokens=s.quantile * 0.6, overflow_probability=0.01, expected_overflow=0.0071,
            work_share=s.work, prefill_work_share=s.work * 0.4,
        ),
        speed=PoolSpeed(
            tpot_ms=_band(s.tpot, "roofline"), ttft_ms=_band(s.ttft, "roofline"), ttft_percentile=0.95,
            decode_tokens_per_s=1000 / s.tpot,
        ),
        margins=_margins(s), binding_constraint=s.binds, stated_rate_per_s=stated, growth=quarter.growth,
        peak_factor=PEAK, mean_prompt_tokens=s.mean_in, mean_output_tokens=s.mean_out, offered_requests=offered,
        refused_request_share=s.refused, refused_token_share=refused_tokens, refused_input_share=refused_in,
        refused_output_share=refused_out, tail_budget=TAIL_BUDGET, served_input_mtok=served_in,
        served_output_mtok=served_out, capacity_mtok=(served_in + served_out) * 1.9,
        launch_command=f"vllm serve {s.weights}", runner_up=runner_up,
        why=f"{replicas} replicas of {s.gpu} tp{s.tp} is the cheapest that holds every limit; one fewer breaks: "
        f"{s.binds}; next best: {runner_up.description}",
    )  # fmt: skip


def purchase(
    offer: str, kind: str, supply: str, each: int, runs: tuple[int, ...], used: int, *, reserved: int = 0,
    paid: tuple[int, ...] | None = None, reserved_price: float = 0.0, price: float = 0.0, sunk: float = 0.0,
    liability: float = 0.0, kw: float = 0.0, available: tuple[int, ...] | None = None, notes: str = "",
    quarter: Quarter = QUARTER,
) -> Purchase:  # fmt: skip
    """A lot; ``runs`` and ``paid`` are instances by period."""
    provider, instance = offer.removeprefix("held/").split("/")[:2]
    region = next((part for part in offer.split("/") if part in REGIONS), "")
    instance_hours = sum(n * period.hours for n, period in zip(runs, quarter.periods, strict=True))
    paid = paid or tuple(max(n, reserved) for n in runs)
    usd = reserved * reserved_price * quarter.hours + price * instance_hours + sunk
    return Purchase(
        offer_id=offer, kind=kind, supply=supply, provider=provider, instance_type=instance, region=region,
        gpu=supply.split(" x", maxsplit=1)[0], term="commit_1y" if "commit" in offer else offer.rsplit("/", 1)[1],
        gpus_per_instance=each, instances=max(paid), instances_by_period=runs, available_by_period=available,
        paid_by_period=paid, reserved_instances=reserved, instance_hours=instance_hours,
        gpus_bought=max(paid) * each, gpus_used=used, reserved_usd_per_h=reserved_price, used_usd_per_h=price,
        sunk_usd=sunk, hours=quarter.hours, usd=usd,
        liability_after_usd=liability, power_kw_per_instance=kw, power_kw=kw * max(runs),
        carbon_kg_per_instance_h=kw * 0.4, carbon_kg=kw * 0.4 * instance_hours, price_as_of=quarter.as_of,
        price_kind="list", source_url=f"{_AWS}#{offer}", notes=notes,
    )  # fmt: skip


def _purchases() -> tuple[Purchase, ...]:
    """1-year commitment: 1 x 30 x 2160 USD now, 1 x 30 x (8760 - 2160) = 198,000 USD afterwards."""
    return (
        purchase(H100_1Y, "new commitment", X8, 8, (1, 1), 8, reserved=1, reserved_price=30.0, liability=198_000.0,
                  kw=10.0, notes=HOSTILE_NOTE),
        purchase(H100, "on-demand", X8, 8, (2, 1), 11, price=55.04, kw=10.0),
        purchase(H200, "on-demand", X8N, 8, (2, 2), 16, price=28.0, kw=11.0, notes="-2+3"),
        purchase(L40S_HELD, "existing commitment", X4, 4, (1, 1), 4, paid=(1, 1), sunk=8_496.0, available=(1, 1)),
        purchase(L40S, "on-demand", X4, 4, (1, 0), 2, price=10.49264, notes=VERY_LONG),
        purchase(A100, "spot", X1, 1, (3, 2), 2, price=1.39),
        purchase(IDLE, "existing commitment", X10, 1, (0, 0), 0, paid=(2, 2), sunk=2_592.0, available=(2, 2)),
    )  # fmt: skip


SUPPLIES = (
    PlanSupply(id=X8, gpu="H100-SXM", gpus_per_instance=8, region="us-east-1"),
    PlanSupply(id=X8N, gpu="H200-SXM", gpus_per_instance=8, region="eu-north1"),
    PlanSupply(id=X4, gpu="L40S", gpus_per_instance=4, region="us-east-1"),
    PlanSupply(id=X1, gpu="A100-SXM-80GB", gpus_per_instance=1, spot=True, usable_share=0.8),
    PlanSupply(id=X10, gpu="A10", gpus_per_instance=1),
)


def _routes(specs: Sequence[Spec]) -> tuple[Route, ...]:
    return tuple(
        Route(model=s.model, tenant="", prompt_lo_tokens=s.low, prompt_hi_tokens=s.high, pool=s.name) for s in specs
    )


def _models(specs: Sequence[Spec]) -> tuple[PlanModel, ...]:
    pools = sum(s.model == "chat" for s in specs)
    rules = {
        "chat": {"max_pools": max(2, pools)},
        "agents": {"tenants": ("batch", "live")},
        "vision": {"interruptible": True},
    }
    names = dict.fromkeys(s.model for s in specs)
    return tuple(PlanModel(name=name, **rules.get(name, {})) for name in names)


def _with_costs(pools: tuple[Pool, ...], purchases: Sequence[Purchase], quarter: Quarter) -> tuple[Pool, ...]:
    costs = pool_costs([pool_gpu_hours(pool, quarter.periods) for pool in pools], supply_usd(purchases))
    return tuple(pool.model_copy(update={"usd": usd}) for pool, usd in zip(pools, costs, strict=True))


def _assumptions(specs: Sequence[Spec], quarter: Quarter) -> tuple[Assumption, ...]:
    october = dt.date(2026, 10, 1)

    def row(
        name: str,
        text: str,
        value: float | str,
        unit: str,
        source: str,
        note: str = "",
        day: dt.date | None = october,
    ) -> Assumption:
        return Assumption(
            id=name,
            assumption=text,
            value=value,
            unit=unit,
            source=source,
            source_date=day,
            owner="Platform",
            note=note,
        )

    rates = {s.model: s.rate / s.share for s in specs}
    pools = [
        line
        for name, rate in rates.items()
        for line in (
            row(f"rate_{name}", f"{name}: mean arrivals", rate / (GROWTH * PEAK), "requests/s", "product team"),
            row(f"peak_{name}", f"{name}: planning over mean rate", PEAK, "ratio", "product team"),
            row(f"lengths_{name}", f"{name}: length law", "9,000 requests", "", "azure-llm-trace"),
            row(f"tail_{name}", f"{name}: tail budget", TAIL_BUDGET, "share of requests", "request"),
        )
    ]
    return (
        row("horizon_hours", "Hours in the horizon", quarter.hours, "h", "request"),
        row("overflow", "Live tokens may exceed the pool with this probability", 0.01, "share", "SRE"),
        row("work", "Largest share of time that the work may take", 0.85, "share", "SRE policy 12", day=None),
        row("max_price_age_days", "Oldest price that may be planned with", 400, "days", "FinOps"),
        row("growth_chat", "chat: growth until the horizon", quarter.growth, "ratio", HOSTILE_SOURCE, "=1+1"),
        row("speed/edge", HOSTILE_ASSUMPTION, "upper", "edge of the band", "SRE"),
        *pools,
        *(row(f"growth_{n}", f"{n}: growth", quarter.growth, "ratio", "product team") for n in rates if n != "chat"),
    )


def _power_kw(purchases: Sequence[Purchase]) -> float:
    periods = range(len(purchases[0].instances_by_period))
    return max(sum(p.power_kw_per_instance * p.instances_by_period[t] for p in purchases) for t in periods)


def _quotas(purchases: Sequence[Purchase], totals: PlanTotals) -> tuple[QuotaUse, ...]:
    bought, power = tuple(p.offer_id for p in purchases), _power_kw(purchases)

    def gpus(name: str, lots: tuple[str, ...], limit: int, worth: float) -> QuotaUse:
        counted = tuple(lot for lot in lots if lot in bought)
        used = sum(p.gpus_bought for p in purchases if p.offer_id in counted)
        return QuotaUse(name=name, offers=counted, used=used, limit=max(limit, used), unit="GPUs", worth_usd=worth)

    return (
        gpus("H100 in us-east-1", (H100_1Y, H100), 24, 210.5),
        gpus("nebius stock", (H200,), 16, 0.0),
        QuotaUse(name="budget", offers=bought, used=totals.usd, limit=max(500_000.0, totals.usd), unit="USD"),
        QuotaUse(name="power", offers=bought, used=power, limit=max(60.0, power), unit="kW"),
        QuotaUse(name="movement", offers=(), used=12.0, limit=16.0, unit="GPUs moved"),
    )


def plan_of(
    specs: Sequence[Spec], purchases: tuple[Purchase, ...], supplies: tuple[PlanSupply, ...], quarter: Quarter,
    *, run_id: str, title: str, created_at: dt.datetime, warnings: tuple[str, ...], rejected: tuple[Rejected, ...],
) -> FleetPlan:  # fmt: skip
    """A plan whose costs, quotas and totals are recomputed from its own pools and purchases."""
    pools = _with_costs(tuple(_pool(spec, quarter, purchases) for spec in specs), purchases, quarter)
    totals = totals_of(pools, purchases, quarter.periods)
    bound = totals.usd * 0.9996
    return FleetPlan(
        planner_version="0.1.0", run_id=run_id, title=title, owner="Ana Gómez", created_at=created_at,
        horizon_start=quarter.start, horizon_end=quarter.end, horizon_hours=quarter.hours, currency="USD",
        solve=Solve(
            status=SolveStatus.OPTIMAL, objective=totals.usd, bound=bound, gap=(totals.usd - bound) / totals.usd,
            gap_target=0.001, usd_per_mtok=totals.usd_per_mtok_by_reservation,
            usd_per_mtok_bound=totals.usd_per_mtok_by_reservation * 0.9996, ratio_iterations=2, solver="HiGHS",
            solver_version="1.11.0", threads=1, seed=0,
        ),
        totals=totals, periods=quarter.periods, pools=pools, routes=_routes(specs), models=_models(specs),
        supplies=supplies, purchases=purchases, quotas=_quotas(purchases, totals), rejected=rejected,
        assumptions=_assumptions(specs, quarter),
        inputs=(
            InputFile(role="request", path="catalogs/example/quarter.toml", sha256="a" * 64),
            InputFile(role="traffic of chat", path="catalogs/example/traffic/chat", sha256="b" * 64),
        ),
        warnings=warnings,
    )  # fmt: skip


REJECTED = (
    Rejected(model="chat", reason="weights do not fit", configurations=31, example="L40S tp1: 70 of 44 GiB"),
    Rejected(model="vision", reason="TPOT target", configurations=4, example="L4 tp1: 71.0 of 60.0 ms"),
)
WARNINGS = (
    "Visible memory of A100-SXM-80GB is a guess: nameplate GB read as 10**9 bytes.",
    "=cmd|'/C calc'!A0 stands in the notes of an offer: shown as text.",
    "The log of vision covers 9 hours: its dispersion is a guess beyond 1 hour.",
)


def sample_plan() -> FleetPlan:
    """The plan; its totals are recomputed from its own pools and purchases."""
    return plan_of(
        SPECS, _purchases(), SUPPLIES, QUARTER, run_id="3fa9c1d20b7e", title="R&D fleet, FY27 Q1",
        created_at=dt.datetime(2026, 11, 29, 16, 40, 7, tzinfo=dt.UTC), warnings=WARNINGS, rejected=REJECTED,
    )  # fmt: skip
