"""Rows of sheet Inputs about contracts: list prices beside the contract's own, and what bought hardware costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from planner.optimise.types import LotKind
from planner.plan import Purchase
from planner.report.sheets.input_ids import (
    capex_id,
    capital_id,
    hosting_id,
    life_id,
    list_id,
    maintenance_id,
    residual_id,
)

if TYPE_CHECKING:
    from planner.report.sheets.input_rows import InputRow

LIST_GROUP = "List price"
"""Not a price that is paid: its age fails no check."""
_BELOW_LIST = frozenset({LotKind.SPOT.value, LotKind.NEW_COMMITMENT.value, LotKind.EXISTING_COMMITMENT.value})


class MakeRow(Protocol):
    """Makes a row with the source and date of a purchase."""

    def __call__(self, key: str, group: str, text: str, unit: str, value: float) -> InputRow:
        """The row."""


def has_list(purchase: Purchase) -> bool:
    """Whether a lot's own price is another than its provider's list price, and that one is known."""
    return purchase.list_price is not None and purchase.kind in _BELOW_LIST


def contract_rows(purchase: Purchase, row: MakeRow) -> Iterator[InputRow]:
    """The list price of what is rented below it, and the parts of the cost of what is bought."""
    what, listed, own = f"{purchase.instance_type}, {purchase.provider}", purchase.list_price, purchase.owning
    if has_list(purchase) and listed is not None:
        made = row(list_id(purchase), LIST_GROUP, f"List price on demand: {what}", "USD/instance-h", listed.usd_per_h)
        yield replace(made, source=listed.source_url, date=listed.as_of)
    if own is None:
        return
    for key, text, unit, value in (
        (capex_id(purchase), "Price, installed", "USD/instance", own.capex_usd),
        (life_id(purchase), "Useful life", "years", own.life_years),
        (residual_id(purchase), "Left of the price at the end of its life", "share", own.residual_share),
        (capital_id(purchase), "Depreciation and return on capital", "USD/instance-h", own.capital_usd_per_h),
        (maintenance_id(purchase), "Maintenance", "USD/instance-h", own.maintenance_usd_per_h),
        (hosting_id(purchase), "Hosting", "USD/instance-h", own.hosting_usd_per_h),
    ):
        yield row(key, "Hardware", f"{text}: {what}", unit, value)
