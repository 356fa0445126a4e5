"""The plan's charges as CSV in FOCUS 1.2 names, for FinOps tools: the rows of sheet Data_FOCUS, as values."""

from __future__ import annotations

import csv
import datetime as dt
import io

from planner.plan import FleetPlan
from planner.report.charges import Charge, charges_of
from planner.report.commitments import held_lots
from planner.report.focus_columns import QUANTITIES, TEXTS_AFTER, TEXTS_BEFORE, Text
from planner.report.text import clean_text, looks_like_formula
from planner.request_study import BASE


def focus_csv(plan: FleetPlan, scenario: str = BASE) -> str:
    """The charges of a plan as CSV text: header, then one line for each charge, in the order of the sheet.

    Times are ISO 8601 in UTC, as FOCUS asks. Text that a spreadsheet would take for a formula gets an apostrophe in
    front, since CSV has no other way to say that it is text.
    """
    held = {h.purchase.offer_id: h for h in held_lots(plan)}
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*TEXTS_BEFORE, *QUANTITIES, *TEXTS_AFTER])
    for charge in charges_of(plan):
        contract = held.get(charge.purchase.offer_id)
        before, after = (
            [_text(text(charge, plan, scenario, contract)) for text in texts.values()]
            for texts in (TEXTS_BEFORE, TEXTS_AFTER)
        )
        writer.writerow([*before, *(f"{value:.6f}" for value in quantities(charge)), *after])
    return out.getvalue()


def quantities(charge: Charge) -> tuple[float, ...]:
    """Values of `QUANTITIES`; the planner takes no negotiated discount, so contracted is list."""
    return (
        charge.priced_gpu_hours,
        charge.list_usd,
        charge.list_usd,
        charge.billed_usd,
        charge.effective_usd,
        charge.showback_usd,
    )


def _text(value: Text) -> str:
    if isinstance(value, dt.date):
        return f"{value.isoformat()}T00:00:00Z"
    text = clean_text(str(value))
    return f"'{text}" if isinstance(value, str) and looks_like_formula(text) else text
