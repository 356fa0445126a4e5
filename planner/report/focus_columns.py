"""Columns of a charge by the names of FOCUS 1.2, the FinOps Open Cost and Usage Specification.

Names, allowed values and rules: https://github.com/FinOps-Open-Cost-and-Usage-Spec/FOCUS_Spec, specification/columns,
read 2026-11-30. The plan knows no billing account, invoice or resource, so those columns are absent; what the
specification has no column for takes the prefix ``x_``.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Mapping

from planner.plan import FleetPlan
from planner.report.charges import Charge, Part
from planner.report.commitments import COMMITMENTS, HARDWARE, Held
from planner.report.unit_prices import pricing_category

Text = str | int | dt.date
UNIT = "GPU-Hours"
RENTED_SERVICE = "GPU instances"
OWN_SERVICE = "Own GPU servers"
NO_WORKLOAD = {
    Part.IDLE: "(idle)",
    Part.UNUSED: "(unused)",
    Part.UNCOUNTED: "(ended)",
    Part.PURCHASE: "(purchase)",
}

TEXTS_BEFORE: Mapping[str, Callable[[Charge, FleetPlan, str, Held | None], Text]] = {
    "x_Lot": lambda c, _p, _s, _h: c.purchase.offer_id,
    "BillingPeriodStart": lambda _c, p, _s, _h: p.horizon_start,
    "BillingPeriodEnd": lambda _c, p, _s, _h: p.horizon_end,
    "ChargePeriodStart": lambda _c, p, _s, _h: p.horizon_start,
    "ChargePeriodEnd": lambda _c, p, _s, _h: p.horizon_end,
    "x_PlanPeriod": lambda c, _p, _s, _h: c.period,
    "ChargeCategory": lambda c, _p, _s, _h: "Purchase" if c.part is Part.PURCHASE else "Usage",
    "ChargeClass": lambda _c, _p, _s, _h: "",
    "ChargeFrequency": lambda c, _p, _s, h: _frequency(c, h),
    "ProviderName": lambda c, _p, _s, _h: c.purchase.provider,
    "RegionId": lambda c, _p, _s, _h: c.purchase.region,
    "ServiceCategory": lambda _c, _p, _s, _h: "Compute",
    "ServiceName": lambda c, _p, _s, _h: OWN_SERVICE if c.purchase.kind in HARDWARE else RENTED_SERVICE,
    "SkuId": lambda c, _p, _s, _h: c.purchase.instance_type,
    "PricingCategory": lambda c, _p, _s, _h: _pricing(c),
    "PricingUnit": lambda _c, _p, _s, _h: UNIT,
    "BillingCurrency": lambda _c, p, _s, _h: p.currency,
}
"""Before the quantities: how a column's text follows from a charge, its plan, its scenario and its contract."""

QUANTITIES = ("PricingQuantity", "ListCost", "ContractedCost", "BilledCost", "EffectiveCost", "x_ShowbackCost")

TEXTS_AFTER: Mapping[str, Callable[[Charge, FleetPlan, str, Held | None], Text]] = {
    "CommitmentDiscountCategory": lambda _c, _p, _s, h: "Usage" if h is not None and h.is_commitment else "",
    "CommitmentDiscountId": lambda c, _p, _s, h: c.purchase.offer_id if h is not None and h.is_commitment else "",
    "CommitmentDiscountStatus": lambda c, _p, _s, h: _status(c, h),
    "CommitmentDiscountType": lambda _c, _p, _s, h: h.type if h is not None and h.is_commitment else "",
    "Tags": lambda c, _p, _s, _h: _tags(c),
    "x_Scenario": lambda _c, _p, s, _h: s,
    "x_Workload": lambda c, _p, _s, _h: NO_WORKLOAD[c.part] if c.pool is None else c.pool.model,
    "x_Pool": lambda c, _p, _s, _h: NO_WORKLOAD[c.part] if c.pool is None else c.pool.name,
    "x_Gpu": lambda c, _p, _s, _h: c.purchase.gpu,
    "x_Tp": lambda c, _p, _s, _h: "" if c.pool is None else c.pool.tp,
    "x_WeightsDtype": lambda c, _p, _s, _h: "" if c.pool is None else c.pool.weight_dtype,
    "x_KvDtype": lambda c, _p, _s, _h: "" if c.pool is None else c.pool.kv_dtype,
    "x_MaxModelLen": lambda c, _p, _s, _h: "" if c.pool is None else c.pool.max_model_len,
}
"""After the quantities."""


def _frequency(charge: Charge, held: Held | None) -> str:
    """A purchase happens once where it is paid at the start, else it recurs."""
    if charge.part is not Part.PURCHASE:
        return "Usage-Based"
    once = held is not None and (held.paid_at_start or not held.is_commitment)
    return "One-Time" if once else "Recurring"


def _pricing(charge: Charge) -> str:
    """The purchase of a commitment is at an agreed rate; only what it covers is Committed."""
    if charge.part is Part.PURCHASE and charge.purchase.kind in COMMITMENTS:
        return "Standard"
    return pricing_category(charge.purchase)


def _status(charge: Charge, held: Held | None) -> str:
    """Used or Unused for what a commitment covers; none for its purchase."""
    if held is None or not held.is_commitment or charge.part is Part.PURCHASE:
        return ""
    return "Unused" if charge.part in {Part.UNUSED, Part.UNCOUNTED} else "Used"


def _tags(charge: Charge) -> str:
    """Key-value pairs as JSON, the format that FOCUS asks for."""
    if charge.pool is None:
        return "{}"
    return json.dumps({"cost_centre": charge.pool.cost_centre, "model": charge.pool.model}, ensure_ascii=False)
