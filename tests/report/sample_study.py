"""A hand-made study: the plan of `sample`, two other futures, last quarter's plan and what came of it.

- ``Base`` is `sample_plan`.
- ``High``, arrivals x 1.3: a pool more of chat, chat/1 on another GPU type, agents on GPUs that are rented and bought,
  search on two supplies, another max_model_len, another number of warnings.
- ``Low``, arrivals x 0.8: a pool less of chat, fewer lots, a held contract on which nothing runs, and one period only.
- ``Storm`` has no plan.

The plan of ``Base`` was replayed (`sample_replay`).

Last quarter had 2,208 hours, dearer H100, a model that is gone, no vision, and a contract that ended with it.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

from planner.plan import Contract, FleetPlan, ListPrice, Owning, PlanPeriod, PlanSupply, Pool, Purchase, Rejected
from planner.study import (
    Actuals,
    LastQuarter,
    ModelActual,
    Regret,
    RegretCell,
    Scenario,
    Sensitivity,
    Side,
    Study,
    Unsolved,
)
from tests.report import sample
from tests.report.sample import (
    A100,
    H100,
    H100_1Y,
    H200,
    IDLE,
    L40S_HELD,
    QUARTER,
    SPECS,
    SUPPLIES,
    X1,
    X4,
    X8,
    X8N,
    X10,
    Quarter,
    Spec,
    plan_of,
    purchase,
)
from tests.report.sample_replay import sample_record

B200 = "nebius/gpu-b200-sxm/us-central1/on_demand"
L40S_WEST = "aws/g6e.12xlarge/us-west-2/on_demand"
A100_HELD = "held/coreweave/a100-80gb-8x/us-east-1/commit_1y/2026-12-31"
B200_OWN = "bought/b200 of our own"
XB, X4W, X8A = "B200-SXM x8", "L40S x4 us-west-2", "A100-SXM-80GB x8"
HIGH = replace(QUARTER, factor=1.3)
LOW = Quarter(periods=(PlanPeriod(name="all hours", hours=sample.HOURS),), mean=(1.0,), planning=(1.0,), factor=0.8)
LAST = Quarter(
    start=dt.date(2026, 10, 1), end=dt.date(2027, 1, 1), as_of=dt.date(2026, 6, 3), factor=0.7,
    periods=(PlanPeriod(name="busy hours", hours=736.0), PlanPeriod(name="other hours", hours=1472.0)),
)  # fmt: skip
HOSTILE_NAME = "=1+1 & <Low>"
HOSTILE_DRIVER = '@SUM(A1)\x07 "targets"'
HOSTILE_WORDS = "-2+3 TTFT and TPOT targets x 0.8 / x 1.25"
HOSTILE_WHY = "+no plan: H200-SXM is short of 8 GPUs\x00 in busy hours"

_BY_NAME = {spec.name: spec for spec in SPECS}


def _as(which: str, /, **changes: object) -> Spec:
    return replace(_BY_NAME[which], **changes)


def _high_specs() -> tuple[Spec, ...]:
    """Busy hours: H100 2 x 4 + 1 x 4 + 4 x 1 = 16 GPUs; H200 4 x 2 = 8; B200 2 x 8; L40S 8, of which 4 in the west."""
    return (
        _as("chat/1", supply=X8N, gpu="H200-SXM", tp=2, needed=(4, 2)),
        _as("chat/2", high=16_384, max_model_len=20_480, needed=(2, 1), rate=1.84, share=0.2),
        _as("chat/2", name="chat/3", low=16_384, max_model_len=65_536, rate=0.46, share=0.05, mean_in=21_000.0),
        _as("code", max_model_len=16_384, needed=(3, 1), refused=0.0002),
        _as("agents", supply=XB, gpu="B200-SXM", needed=(2, 1), binds="work share"),
        _as("search", needed=(7, 3), elsewhere=(X4W, (4, 0))),
        _as("vision", needed=(2, 2), max_model_len=8_192, refused=0.0003),
    )


def _high_purchases() -> tuple[Purchase, ...]:
    """With dates, list prices and the cost of owning, where the base plan knows none."""
    end = dt.date(2028, 1, 1)
    details: dict[str, dict[str, object]] = {
        H100_1Y: {
            "list_price": ListPrice(usd_per_h=55.04, as_of=HIGH.as_of, source_url="https://aws.example/p5"),
            "contract": Contract(instances=1, hours=HIGH.hours, start=HIGH.start, end=end),
            "memory_gb": 80.0, "tdp_w": 700.0,
        },
        B200_OWN: {
            "contract": Contract(instances=1, hours=HIGH.hours, start=HIGH.start, end=dt.date(2032, 1, 1)),
            "owning": Owning(
                capex_usd=460_000.0, life_years=5.0, residual_share=0.1, capital_usd_per_h=18.0,
                maintenance_usd_per_h=2.0, hosting_usd_per_h=3.0, energy_usd_per_h=1.4,
            ),
        },
        L40S_HELD: {"contract": Contract(instances=1, hours=HIGH.hours, end=dt.date(2027, 4, 1))},
        IDLE: {"contract": Contract(instances=2, hours=HIGH.hours, end=dt.date(2027, 4, 1))},
    }  # fmt: skip
    return tuple(lot.model_copy(update=details.get(lot.offer_id, {})) for lot in _high_lots())


def _high_lots() -> tuple[Purchase, ...]:
    return (
        purchase(H100_1Y, "new commitment", X8, 8, (1, 1), 8, reserved=1, reserved_price=30.0, liability=198_000.0,
                 kw=10.0, notes=sample.HOSTILE_NOTE, quarter=HIGH),
        purchase(H100, "on-demand", X8, 8, (1, 1), 8, price=55.04, kw=10.0, quarter=HIGH),
        purchase(H200, "on-demand", X8N, 8, (1, 1), 8, price=28.0, kw=11.0, notes="-2+3", quarter=HIGH),
        purchase(B200, "on-demand", XB, 8, (1, 0), 8, price=44.0, kw=14.0, notes="=B200", quarter=HIGH),
        purchase(B200_OWN, "bought", XB, 8, (1, 1), 8, reserved=1, reserved_price=23.0, price=1.4, kw=14.0,
                 liability=749_520.0, quarter=HIGH),
        purchase(L40S_HELD, "existing commitment", X4, 4, (1, 1), 4, paid=(1, 1), sunk=8_496.0, available=(1, 1),
                 quarter=HIGH),
        purchase(L40S_WEST, "on-demand", X4W, 4, (1, 0), 4, price=10.49264, quarter=HIGH),
        purchase(A100, "spot", X1, 1, (3, 3), 2, price=1.39, quarter=HIGH),
        purchase(IDLE, "existing commitment", X10, 1, (0, 0), 0, paid=(2, 2), sunk=2_592.0, available=(2, 2),
                 quarter=HIGH),
    )  # fmt: skip


def high_plan() -> FleetPlan:
    """The plan of ``High``."""
    supplies = (
        *SUPPLIES,
        PlanSupply(id=XB, gpu="B200-SXM", gpus_per_instance=8, region="us-central1"),
        PlanSupply(id=X4W, gpu="L40S", gpus_per_instance=4, region="us-west-2"),
    )
    rejected = (*sample.REJECTED, Rejected(model="chat", reason="pool of 0 tokens", configurations=2, example="=A10"))
    warnings = (*sample.WARNINGS, "The B200 curve stands on one measured point.", "@High: prices of 2026-07-20.")
    return plan_of(
        _high_specs(), _high_purchases(), supplies, HIGH, run_id="81b0c7d9e2f4", title="R&D fleet, FY27 Q1",
        created_at=dt.datetime(2026, 11, 29, 16, 40, 7, tzinfo=dt.UTC), warnings=warnings, rejected=rejected,
    )  # fmt: skip


def _low_specs() -> tuple[Spec, ...]:
    """H100: 2 x 4 + 3 x 1 + 4 x 1 + 1 x 1 = 16 GPUs; H200: 8."""
    return (
        _as("chat/2", name="chat", low=0, needed=(2,), rate=9.2, share=1.0, mean_in=2_065.0, binds="token pool"),
        _as("code", needed=(2,)),
        _as("agents", needed=(1,)),
        _as("search", supply=X8, gpu="H100-SXM", needed=(3,)),
        _as("vision", supply=X8, gpu="H100-SXM", needed=(1,), weight_dtype="fp8"),
    )


def _low_purchases() -> tuple[Purchase, ...]:
    return (
        purchase(H100_1Y, "new commitment", X8, 8, (1,), 8, reserved=1, reserved_price=30.0, liability=198_000.0,
                 kw=10.0, notes=sample.HOSTILE_NOTE, quarter=LOW),
        purchase(H100, "on-demand", X8, 8, (1,), 8, price=55.04, kw=10.0, quarter=LOW),
        purchase(H200, "on-demand", X8N, 8, (1,), 8, price=28.0, kw=11.0, notes="-2+3", quarter=LOW),
        purchase(L40S_HELD, "existing commitment", X4, 4, (0,), 0, paid=(1,), sunk=8_496.0, available=(1,),
                 quarter=LOW),
        purchase(IDLE, "existing commitment", X10, 1, (0,), 0, paid=(2,), sunk=2_592.0, available=(2,), quarter=LOW),
    )  # fmt: skip


def low_plan() -> FleetPlan:
    """The plan of ``Low``."""
    return plan_of(
        _low_specs(), _low_purchases(), tuple(s for s in SUPPLIES if s.id != X1), LOW, run_id="c40d5e6f7a81",
        title="R&D fleet, FY27 Q1", created_at=dt.datetime(2026, 11, 29, 16, 40, 7, tzinfo=dt.UTC),
        warnings=sample.WARNINGS[:1], rejected=sample.REJECTED[:1],
    )  # fmt: skip


def _last_specs() -> tuple[Spec, ...]:
    """Busy hours: A100 3 x 8 GPUs of chat; H100 4 x 1 of code; H200 1 x 8; L40S 4; A10 2 of a model that is gone."""
    return (
        _as("chat/1", name="chat", high=None, supply=X8A, gpu="A100-SXM-80GB", tp=8, weight_dtype="int8",
            kv_dtype="bf16", max_model_len=16_384, needed=(3, 1), rate=9.2, share=1.0, mean_in=1_890.0, mean_out=312.0),
        _as("code", needed=(3, 1), kv_dtype="fp8", mean_in=1_985.0),
        _as("agents", needed=(1, 1), mean_in=7_200.0),
        _as("search", needed=(3, 2), mean_in=880.0),
        _as("vision", name="legacy", model="legacy", weights="meta-llama/Llama-2-13b-chat-hf", supply=X10, gpu="A10",
            needed=(2, 1), rate=0.6, refused=0.0),
    )  # fmt: skip


def _last_purchases() -> tuple[Purchase, ...]:
    return (
        purchase(A100_HELD, "existing commitment", X8A, 8, (2, 1), 16, paid=(2, 2), sunk=61_824.0, available=(2, 2),
                 kw=6.5, quarter=LAST),
        purchase("coreweave/a100-80gb-8x/us-east-1/on_demand", "on-demand", X8A, 8, (1, 0), 8, price=21.6, kw=6.5,
                 quarter=LAST),
        purchase(H100, "on-demand", X8, 8, (1, 1), 4, price=60.54, kw=10.0, quarter=LAST),
        purchase(H200, "on-demand", X8N, 8, (1, 1), 8, price=29.2, kw=11.0, quarter=LAST),
        purchase(L40S_HELD, "existing commitment", X4, 4, (1, 1), 4, paid=(1, 1), sunk=8_684.8, available=(1, 1),
                 quarter=LAST),
        purchase(IDLE, "existing commitment", X10, 1, (2, 1), 2, paid=(2, 2), sunk=2_649.6, available=(2, 2),
                 quarter=LAST),
    )  # fmt: skip


def sample_last() -> FleetPlan:
    """The plan that was issued last quarter."""
    supplies = (
        *(s for s in SUPPLIES if s.id != X1),
        PlanSupply(id=X8A, gpu="A100-SXM-80GB", gpus_per_instance=8, region="us-east-1"),
    )
    return plan_of(
        _last_specs(), _last_purchases(), supplies, LAST, run_id="90aa17c3b5d2", title="R&D fleet, FY26 Q4",
        created_at=dt.datetime(2026, 8, 30, 9, 12, 0, tzinfo=dt.UTC), warnings=sample.WARNINGS[1:2], rejected=(),
    )  # fmt: skip


LOG_HOURS = 1_680.0
"""Ten weeks of the last quarter."""
_GREW = {"chat": 1.12, "code": 0.93, "agents": 1.31, "search": 1.0, "legacy": 0.2}
"""Arrivals over planned ones."""


def _actual(pool: Pool) -> ModelActual:
    part, grew = LOG_HOURS / LAST.hours, _GREW[pool.model]
    served, peak = pool.served_mtok * part, pool.load.planning_rate_per_s
    return ModelActual(
        model=pool.model, hours=LOG_HOURS, planned_requests=pool.offered_requests * part,
        actual_requests=pool.offered_requests * part * grew, planned_input_mtok=pool.served_input_mtok * part,
        actual_input_mtok=pool.served_input_mtok * part * grew, planned_output_mtok=pool.served_output_mtok * part,
        actual_output_mtok=pool.served_output_mtok * part * grew, planned_peak_per_s=peak,
        actual_peak_per_s=peak * grew * 1.05, planned_refused_share=pool.refused_request_share,
        actual_refused_share=pool.refused_request_share * 1.5, allowed_overflow=pool.load.overflow_probability,
        actual_overflow=None if pool.model == "legacy" else 0.008 * grew, planned_usd=pool.usd * part,
        planned_usd_per_mtok=pool.usd * part / served, actual_usd_per_mtok=pool.usd * part / (served * grew),
        note="=1+1: hardly used any more" if pool.model == "legacy" else "",
    )  # fmt: skip


def sample_actuals() -> Actuals:
    """What came of the plan of last quarter; one pool a model there."""
    last = sample_last()
    return Actuals(
        run_id=last.run_id, title=last.title, start=dt.datetime(2026, 10, 1, tzinfo=dt.UTC),
        end=dt.datetime(2026, 12, 10, tzinfo=dt.UTC), models=tuple(_actual(pool) for pool in last.pools),
        files=(("catalogs/example/traffic/chat-q4", "c" * 64), ("=cmd|'/C calc'!A0", "d" * 64)),
        notes=("The log of legacy has no output lengths for 2 days.", "@SUM(1+1) \x07stands in a tenant's name."),
    )  # fmt: skip


def _sensitivities(base: FleetPlan) -> tuple[Sensitivity, ...]:
    """Largest swing first."""
    usd, mtok = base.totals.usd, base.totals.served_input_mtok + base.totals.served_output_mtok
    october = dt.date(2026, 10, 1)

    def side(factor: float, ratio: float | None, tokens: float = 1.0, note: str = "") -> Side:
        if ratio is None:
            return Side(factor=factor, note=note)
        cost = usd * ratio
        return Side(factor=factor, usd=cost, usd_per_mtok=cost / (mtok * tokens), gap=0.0006)

    def row(
        driver: str, name: str, words: str, low: Side, high: Side, day: dt.date | None = october, owner: str = "FinOps"
    ) -> Sensitivity:
        return Sensitivity(
            driver=driver, name=name, words=words, owner=owner, source="request", source_date=day, low=low, high=high
        )

    return (
        row("growth", HOSTILE_NAME, "arrivals of all models x 0.75 / x 1.25",
            side(0.75, 0.81, 0.75), side(1.25, 1.27, 1.25), owner="Product"),
        row("targets", HOSTILE_DRIVER, HOSTILE_WORDS,
            side(0.8, None, note=HOSTILE_WHY), side(1.25, 0.92), day=None),
        row("price", "Prices of aws", "prices of aws x 0.95 / x 1.05", side(0.95, 0.971), side(1.05, 1.026)),
        row("quotas", "GPUs that can be had", "GPUs of every quota x 0.5 / x 2",
            side(0.5, 1.018), side(2.0, 1.0), owner="Procurement"),
        row("tail", "Tail budgets", "tail budgets x 0.5 / x 2", side(0.5, 1.004), side(2.0, 0.9995), owner="SRE"),
    )  # fmt: skip


def _regret(plans: dict[str, FleetPlan]) -> Regret:
    """The fleet of Low cannot serve High; those of Base and High serve all."""
    usd = {name: plan.totals.usd for name, plan in plans.items()}
    fixed = {
        ("Base", "Base"): usd["Base"], ("Base", "High"): usd["High"] + 31_000.0, ("Base", "Low"): usd["Low"] + 9_400.0,
        ("High", "Base"): usd["Base"] + 22_300.0, ("High", "High"): usd["High"], ("High", "Low"): usd["Low"] + 40_250.0,
        ("Low", "Base"): usd["Base"] + 47_800.0, ("Low", "High"): None, ("Low", "Low"): usd["Low"],
    }  # fmt: skip
    cells = tuple(
        RegretCell(
            fleet=fleet, future=future, usd=cost, regret_usd=None if cost is None else cost - usd[future],
            note="=agents: the pool on H200-SXM holds 65,536 tokens" if cost is None else "",
        )
        for (fleet, future), cost in fixed.items()
    )  # fmt: skip
    return Regret(cells=cells, choice="Base", largest_usd=31_000.0)


def sample_study() -> Study:
    """The study."""
    base, high, low = sample.sample_plan(), high_plan(), low_plan()
    october = dt.date(2026, 10, 1)
    return Study(
        plan=base,
        others=(
            Scenario(name="High", words="arrivals x 1.3", source="=product board", source_date=october, plan=high),
            Scenario(name="Low", words="arrivals x 0.8", plan=low),
        ),
        unsolved=(Unsolved(name="Storm", words="@arrivals x 3, quotas x 0.5", why=HOSTILE_WHY),),
        sensitivities=_sensitivities(base),
        regret=_regret({"Base": base, "High": high, "Low": low}),
        last=LastQuarter(
            path="reports/fy26-q4/plan.json", sha256="e" * 64, plan=sample_last(), actuals=sample_actuals()
        ),
        replay=sample_record(base),
    )
