"""Plans made of lots and one served total, for the bridge: the rest is that of the hand-made plan."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from planner.plan import Contract, FleetPlan, Purchase
from tests.report.sample import sample_plan


@cache
def _sample() -> FleetPlan:
    return sample_plan()


def lot(
    name: str, gpu: str, kind: str, *, each: int = 8, running_h: float = 0.0, held_h: float | None = None,
    reserved: int = 0, reserved_price: float = 0.0, price: float = 0.0, sunk: float = 0.0,
) -> Purchase:  # fmt: skip
    """A lot with instance-hours in use, and instance-hours held where there is a contract."""
    base = _sample().purchases[0]
    usd = reserved * reserved_price * base.hours + price * running_h + sunk
    contract = None if held_h is None else Contract(instances=1, hours=held_h)
    return base.model_copy(
        update={
            "offer_id": name, "supply": name, "gpu": gpu, "kind": kind, "gpus_per_instance": each,
            "instance_hours": running_h, "reserved_instances": reserved, "reserved_usd_per_h": reserved_price,
            "used_usd_per_h": price, "sunk_usd": sunk, "usd": usd, "contract": contract,
        }
    )  # fmt: skip


def quarter(mtok: float, lots: Sequence[Purchase], **changes: object) -> FleetPlan:
    """A plan that serves ``mtok`` on these lots."""
    plan = _sample()
    pool = plan.pools[0].model_copy(update={"served_input_mtok": mtok, "served_output_mtok": 0.0})
    usd = sum(one.usd for one in lots)
    totals = plan.totals.model_copy(update={"usd": usd})
    return plan.model_copy(update={"pools": (pool,), "purchases": tuple(lots), "totals": totals, **changes})
