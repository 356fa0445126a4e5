"""Words for the kinds of prices that a plan pays."""

from __future__ import annotations

from planner.optimise.types import LotKind
from planner.report import facts
from planner.report.unit_prices import CONTRACTED, ON_DEMAND, list_basis
from tests.report.sample import sample_plan


def with_kind(plan, kind: str):
    return plan.model_copy(
        update={"purchases": tuple(p.model_copy(update={"price_kind": kind}) for p in plan.purchases)}
    )


def test_a_contracted_price_is_not_called_list():
    plan = sample_plan()
    assert facts.price_terms(with_kind(plan, "list")) == "list prices, before any discount"
    contracted = with_kind(plan, "contracted")
    assert facts.price_terms(contracted) == "contracted prices, contracted ones after their discount"
    bought = next(p for p in contracted.purchases if p.kind == LotKind.ON_DEMAND.value).model_copy(
        update={"list_price": None}
    )
    assert list_basis(bought) == CONTRACTED
    assert list_basis(bought.model_copy(update={"price_kind": "list"})) == ON_DEMAND
