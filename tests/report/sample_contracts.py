"""The hand-made plan with every kind of lot: contracts with dates, a capacity block, owned and bought hardware.

On supply X8N a capacity block of 2 instances, paid at the start for one day more than the horizon. On X4 two bought
boxes, of which one stands still in the other hours, and a contract that ends within the first period. On X1 four owned
machines. On X10 a contract on which nothing runs.
"""

from __future__ import annotations

import datetime as dt

from planner.plan import Contract, FleetPlan, ListPrice, Owning, PlanSupply, Purchase
from tests.report.sample import (
    H100,
    H100_1Y,
    HOURS,
    IDLE,
    L40S_HELD,
    QUARTER,
    REJECTED,
    SPECS,
    SUPPLIES,
    WARNINGS,
    X1,
    X4,
    X8,
    X8N,
    X10,
    plan_of,
    purchase,
)

BLOCK = "aws/p5e.48xlarge/eu-north1/capacity_block"
BOUGHT, OWNED = "bought/l40s-box", "owned/a100-box"
OWNING = Owning(
    capex_usd=120_000.0, life_years=5.0, residual_share=0.1, capital_usd_per_h=3.1, maintenance_usd_per_h=0.5,
    hosting_usd_per_h=0.6, energy_usd_per_h=0.4,
)  # fmt: skip
START, END = dt.date(2027, 1, 1), dt.date(2027, 4, 1)


def _about(lot: Purchase, *, term: str = "", **facts: object) -> Purchase:
    return lot.model_copy(update={**facts, "term": term or lot.term})


def contract_purchases() -> tuple[Purchase, ...]:
    """The lots."""
    listed = ListPrice(usd_per_h=55.04, as_of=dt.date(2026, 7, 19), source_url="=list")
    year = Contract(instances=1, hours=HOURS, start=START, end=dt.date(2028, 1, 1))
    block = Contract(instances=2, hours=HOURS, start=START, end=dt.date(2027, 4, 2), paid_at_start=True)
    bought = Contract(instances=2, hours=HOURS, start=START, end=dt.date(2031, 12, 31))
    return (
        _about(
            purchase(H100_1Y, "new commitment", X8, 8, (1, 1), 8, reserved=1, reserved_price=30.0,
                     liability=198_000.0, kw=10.0),
            contract=year, list_price=listed, memory_gb=80.0, tdp_w=700.0,
        ),
        _about(purchase(H100, "on-demand", X8, 8, (2, 1), 11, price=55.04, kw=10.0), list_price=listed, memory_gb=80.0),
        _about(
            purchase(BLOCK, "new commitment", X8N, 8, (2, 2), 16, reserved=2, reserved_price=28.0, liability=1_344.0,
                     available=(256, 256)),
            contract=block,
        ),
        _about(
            purchase(L40S_HELD, "existing commitment", X4, 4, (0, 0), 0, paid=(0, 0), sunk=8_496.0, available=(0, 0)),
            contract=Contract(instances=2, hours=1080.0, end=dt.date(2027, 2, 15)),
        ),
        _about(
            purchase(BOUGHT, "bought", X4, 4, (2, 1), 6, reserved=2, reserved_price=4.2, price=0.4,
                     liability=100_000.0, available=(9, 9)),
            term="bought", contract=bought, owning=OWNING,
        ),
        _about(
            purchase(OWNED, "owned", X1, 1, (3, 2), 2, price=0.5, available=(4, 4)),
            term="owned", contract=Contract(instances=4, hours=HOURS),
        ),
        _about(
            purchase(IDLE, "existing commitment", X10, 1, (0, 0), 0, paid=(2, 2), sunk=2_592.0, available=(2, 2)),
            contract=Contract(instances=2, hours=HOURS, end=END),
        ),
    )  # fmt: skip


def contract_plan() -> FleetPlan:
    """The plan."""
    own = PlanSupply(id=X1, gpu="A100-SXM-80GB", gpus_per_instance=1)
    return plan_of(
        SPECS, contract_purchases(), tuple(own if s.id == X1 else s for s in SUPPLIES), QUARTER, run_id="c0" * 6,
        title="Contracts", created_at=dt.datetime(2026, 11, 29, 16, 40, 7, tzinfo=dt.UTC), warnings=WARNINGS,
        rejected=REJECTED,
    )  # fmt: skip
