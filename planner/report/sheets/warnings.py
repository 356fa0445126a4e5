"""Warnings: what a signer must know before signing."""

from __future__ import annotations

from planner.report.sheets import inputs
from planner.report.style import NAVY, ORDINAL, Kind
from planner.report.table import FIRST_TABLE_ROW, Column, Formula, Sheet, Table, Value
from planner.report.view import View

NONE = "No warnings."


def build(view: View) -> Sheet:
    """The Warnings sheet."""
    plan, some_undated = view.plan, inputs.undated(view) > 0
    undated = Formula(
        f'="Inputs without a source date: "&COUNTIF(tblInputs[Source date],"{inputs.UNDATED}")'
        f'&"; sheet Inputs shows them as {inputs.UNDATED}"'
    )
    own: tuple[Value, ...] = (undated,) if some_undated else ()
    texts: tuple[Value, ...] = (*plan.warnings, *own) or (NONE,)
    counted = tuple(range(1, len(texts) + 1)) if texts != (NONE,) else (0,)
    kinds = tuple(Kind.LINK if isinstance(text, Formula) else Kind.RESULT for text in texts)
    columns = (
        Column("No", 8, counted, number=ORDINAL),
        Column("Warning", 130, texts, kinds, left=True),
    )
    return Sheet(
        "Warnings",
        "Warnings: what a signer must know",
        "Guesses, old prices, short samples: each was found while planning and is part of the plan.",
        "What a signer must know: guesses, old prices, short samples",
        NAVY,
        (Table("tblWarnings", "Warnings", FIRST_TABLE_ROW, columns, len(texts)),),
    )
