"""A hand-made plan: 5 models, 4 offers, shared instances, quotas, a budget and text that nobody should trust."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from planner.plan import (
    Assumption,
    FleetPlan,
    InputFile,
    Margin,
    Measure,
    MemoryTerm,
    PlanTotals,
    Pool,
    PoolLoad,
    PoolMemory,
    PoolSpeed,
    Purchase,
    QuotaUse,
    RunnerUp,
    Solve,
    SolveStatus,
)

HOURS = 2160.0
GROWTH, PEAK = 1.25, 1.28
"""Their product is the planning rate over the stated one, 1.6."""
TAIL_BUDGET = 0.001
HOSTILE_NOTE = '=HYPERLINK("http://evil.example","click") \x07\x1b[31m'
HOSTILE_ASSUMPTION = "@SUM(1+1)*cmd|'/C calc'!A0"
HOSTILE_SOURCE = "+1-555\x00 call me"
VERY_LONG = "=" + "long note " * 4000

_AWS = "https://github.com/aws/karpenter-provider-aws/blob/main/pkg/providers/pricing"


@dataclass(frozen=True)
class _Spec:
    name: str
    weights: str
    offer: str
    gpu: str
    tp: int
    weight_dtype: str
    kv_dtype: str
    max_model_len: int
    needed: int
    spare: int
    rate: float
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


H100 = "aws/p5.48xlarge/us-east-1/on_demand"
H200 = "nebius/gpu-h200-sxm/eu-north1/on_demand"
L40S = "aws/g6e.12xlarge/us-east-1/on_demand"
A100 = "runpod/A100-80GB/on_demand"
OFFERS = (H100, H200, L40S, A100)

_SPECS = (
    _Spec("chat", "meta-llama/Llama-3.3-70B-Instruct", H100, "H100-SXM", 4, "fp8", "fp8", 16_384, 3, 0, 9.2,
          1_390_000, 1_352_410.0, 38.1, 50.0, 640.0, 1500.0, 0.71, 1420.0, 310.0, 0.0004, "token pool"),
    _Spec("code", "Qwen/Qwen3-32B", H100, "H100-SXM", 1, "fp8", "bf16", 32_768, 2, 1, 2.1,
          158_000, 120_344.0, 31.9, 40.0, 980.0, 1000.0, 0.64, 2047.0, 27.0, 0.0, "TTFT target"),
    _Spec("agents", "deepseek-ai/DeepSeek-V3", H200, "H200-SXM", 8, "fp8", "bf16", 65_536, 2, 0, 1.4,
          512_000, 480_020.0, 44.0, None, 2210.0, None, 0.58, 7800.0, 640.0, 0.0009, "tail length"),
    _Spec("search", "meta-llama/Llama-3.1-8B-Instruct", L40S, "L40S", 1, "fp8", "fp8", 8_192, 5, 1, 31.0,
          402_000, 233_870.5, 29.5, 30.0, 310.0, 800.0, 0.82, 910.0, 120.0, 0.0001, "TPOT target"),
    _Spec("vision", "google/gemma-3-27b-it", A100, "A100-SXM-80GB", 1, "int4-awq", "bf16", 16_384, 2, 0, 0.9,
          301_000, 99_210.0, 27.3, 60.0, 720.0, 2000.0, 0.84, 1800.0, 260.0, 0.0, "work share"),
)  # fmt: skip

_TERMS = (
    MemoryTerm(name="weights", gib=17.2, origin="computed", source="parameter counts"),
    MemoryTerm(name="activations", gib=2.1, origin="fitted", source="start-up logs"),
)


def _band(value: float, source: str) -> Measure:
    return Measure(value=value / 1.1, low=value / 1.25, high=value, used=value, source=source)


def _margins(s: _Spec) -> tuple[Margin, ...]:
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


def _pool(s: _Spec) -> Pool:
    replicas = s.needed + s.spare
    runner_up = RunnerUp(description=f"{replicas + 1} x {s.gpu} tp{s.tp} bf16/bf16", extra_usd=18_250.0)
    stated = s.rate / (GROWTH * PEAK)
    offered = stated * GROWTH * HOURS * 3600
    refused_in, refused_out = s.refused * 6, s.refused * 2
    served_in = offered * s.mean_in * (1 - refused_in) / 1e6
    served_out = offered * s.mean_out * (1 - refused_out) / 1e6
    refused_tokens = 1 - (served_in + served_out) * 1e6 / (offered * (s.mean_in + s.mean_out))
    return Pool(
        name=s.name, model=s.name, weights=s.weights, cost_centre=f"CC-{1000 + len(s.name)}", prompt_lo_tokens=0,
        prompt_hi_tokens=None, offer_id=s.offer, gpu=s.gpu, engine="vllm", engine_version="0.11.0", tp=s.tp,
        weight_dtype=s.weight_dtype, kv_dtype=s.kv_dtype, max_model_len=s.max_model_len, max_num_seqs=256,
        max_num_batched_tokens=8192, gpu_memory_utilization=0.9, replicas_needed=s.needed, replicas_spare=s.spare,
        replicas=replicas, gpus=replicas * s.tp,
        memory=PoolMemory(
            gpu_memory_gib=79.2, budget_gib=71.3, terms=_TERMS, available_kv_gib=52.0, bytes_per_token=40960.0,
            block_size_tokens=16, num_blocks=s.pool_tokens // 16, pool_tokens=s.pool_tokens,
            logged_tokens=s.pool_tokens, max_concurrency=s.pool_tokens / s.max_model_len,
        ),
        load=PoolLoad(
            planning_rate_per_s=s.rate * (1 - s.refused), rate_per_replica_per_s=s.rate * (1 - s.refused) / s.needed,
            dispersion=1.7,
            mean_live_requests=s.quantile / 3000, quantile_live_requests=s.quantile / 2400,
            mean_live_tokens=s.quantile * 0.7, quantile_live_tokens=s.quantile,
            mean_formula_tokens=s.quantile * 0.6, overflow_probability=0.01, expected_overflow=0.0071,
            work_share=s.work,
        ),
        speed=PoolSpeed(
            tpot_ms=_band(s.tpot, "roofline"), ttft_ms=_band(s.ttft, "roofline"), ttft_percentile=0.95,
            decode_tokens_per_s=1000 / s.tpot,
        ),
        margins=_margins(s), binding_constraint=s.binds, stated_rate_per_s=stated, growth=GROWTH, peak_factor=PEAK,
        mean_prompt_tokens=s.mean_in, mean_output_tokens=s.mean_out, offered_requests=offered,
        refused_request_share=s.refused, refused_token_share=refused_tokens, refused_input_share=refused_in,
        refused_output_share=refused_out, tail_budget=TAIL_BUDGET, served_input_mtok=served_in,
        served_output_mtok=served_out, capacity_mtok=(served_in + served_out) * 1.9,
        launch_command=f"vllm serve {s.weights}", runner_up=runner_up,
        why=f"{replicas} replicas of {s.gpu} tp{s.tp} is the cheapest that holds every limit; one fewer breaks: "
        f"{s.binds}; next best: {runner_up.description}",
    )  # fmt: skip


def _purchase(
    offer: str, provider: str, kind: str, region: str, gpu: str, each: int, n: int, used: int, price: float, notes: str
) -> Purchase:
    return Purchase(
        offer_id=offer, provider=provider, instance_type=kind, region=region, gpu=gpu, term="on_demand",
        gpus_per_instance=each, instances=n, gpus_bought=n * each, gpus_used=used, usd_per_instance_h=price,
        hours=HOURS, usd=n * price * HOURS, price_as_of=dt.date(2026, 7, 20), price_kind="list",
        source_url=f"{_AWS}#{gpu}", notes=notes,
    )  # fmt: skip


def _purchases() -> tuple[Purchase, ...]:
    return (
        _purchase(H100, "aws", "p5.48xlarge", "us-east-1", "H100-SXM", 8, 2, 15, 55.04, HOSTILE_NOTE),
        _purchase(H200, "nebius", "gpu-h200-sxm", "eu-north1", "H200-SXM", 8, 2, 16, 28.0, "-2+3"),
        _purchase(L40S, "aws", "g6e.12xlarge", "us-east-1", "L40S", 4, 2, 6, 10.49264, VERY_LONG),
        _purchase(A100, "runpod", "A100-80GB", "", "A100-SXM-80GB", 1, 2, 2, 1.39, ""),
    )


def _assumptions() -> tuple[Assumption, ...]:
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

    pools = [
        line
        for s in _SPECS
        for line in (
            row(f"rate_{s.name}", f"{s.name}: mean arrivals", s.rate / (GROWTH * PEAK), "requests/s", "product team"),
            row(f"peak_{s.name}", f"{s.name}: planning over mean rate", PEAK, "ratio", "product team"),
            row(f"lengths_{s.name}", f"{s.name}: length law", "9,000 requests", "", "azure-llm-trace"),
            row(f"tail_{s.name}", f"{s.name}: tail budget", TAIL_BUDGET, "share of requests", "request"),
        )
    ]
    return (
        row("horizon_hours", "Hours in the horizon", HOURS, "h", "request"),
        row("overflow", "Live tokens may exceed the pool with this probability", 0.01, "share", "SRE"),
        row("work", "Largest share of time that the work may take", 0.85, "share", "SRE policy 12", day=None),
        row("max_price_age_days", "Oldest price that may be planned with", 400, "days", "FinOps"),
        row("growth_chat", "chat: growth until the horizon", GROWTH, "ratio", HOSTILE_SOURCE, "=1+1"),
        row("speed/edge", HOSTILE_ASSUMPTION, "upper", "edge of the band", "SRE"),
        *pools,
        *(row(f"growth_{s.name}", f"{s.name}: growth", GROWTH, "ratio", "product team") for s in _SPECS[1:]),
    )


def _totals(pools: tuple[Pool, ...], purchases: tuple[Purchase, ...]) -> PlanTotals:
    usd = sum(p.usd for p in purchases)
    served_in, served_out = sum(p.served_input_mtok for p in pools), sum(p.served_output_mtok for p in pools)
    rate = {p.offer_id: p.usd / p.gpus_bought for p in purchases}
    used = sum(pool.gpus * rate[pool.offer_id] * pool.served_mtok / pool.capacity_mtok for pool in pools)
    return PlanTotals(
        usd=usd, gpus=sum(p.gpus_bought for p in purchases), gpu_hours=sum(p.gpus_bought * p.hours for p in purchases),
        served_input_mtok=served_in, served_output_mtok=served_out,
        usd_per_mtok_by_reservation=usd / (served_in + served_out), usd_per_mtok_by_use=used / (served_in + served_out),
    )  # fmt: skip


def sample_plan() -> FleetPlan:
    """The plan; its totals are recomputed from its own pools and purchases."""
    pools, purchases = tuple(_pool(spec) for spec in _SPECS), _purchases()
    totals = _totals(pools, purchases)
    bound = totals.usd * 0.9996
    return FleetPlan(
        planner_version="0.1.0", run_id="3fa9c1d20b7e", title="R&D fleet, FY27 Q1", owner="Ana Gómez",
        created_at=dt.datetime(2026, 11, 29, 16, 40, 7, tzinfo=dt.UTC), horizon_start=dt.date(2027, 1, 1),
        horizon_end=dt.date(2027, 4, 1), horizon_hours=HOURS, currency="USD",
        solve=Solve(
            status=SolveStatus.OPTIMAL, objective=totals.usd, bound=bound, gap=(totals.usd - bound) / totals.usd,
            gap_target=0.001, usd_per_mtok=totals.usd_per_mtok_by_reservation,
            usd_per_mtok_bound=totals.usd_per_mtok_by_reservation * 0.9996, ratio_iterations=2, solver="HiGHS",
            solver_version="1.11.0", threads=1, seed=0,
        ),
        totals=totals, pools=pools, purchases=purchases,
        quotas=(
            QuotaUse(name="H100 in us-east-1", offers=(H100,), used=16, limit=24, unit="GPU"),
            QuotaUse(name="nebius stock", offers=(H200,), used=16, limit=16, unit="GPU"),
            QuotaUse(name="Quarter budget", offers=OFFERS, used=totals.usd, limit=500_000.0, unit="USD"),
        ),
        assumptions=_assumptions(),
        inputs=(
            InputFile(role="request", path="catalogs/example/quarter.toml", sha256="a" * 64),
            InputFile(role="traffic of chat", path="catalogs/example/traffic/chat", sha256="b" * 64),
        ),
        warnings=(
            "Visible memory of A100-SXM-80GB is a guess: nameplate GB read as 10**9 bytes.",
            "=cmd|'/C calc'!A0 stands in the notes of an offer: shown as text.",
            "The log of vision covers 9 hours: its dispersion is a guess beyond 1 hour.",
        ),
    )  # fmt: skip
