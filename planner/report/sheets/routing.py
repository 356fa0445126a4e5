"""Routing: which pool serves a request, by what a gateway sees: model, tenant and prompt length."""

from __future__ import annotations

from planner.plan import FleetPlan, Route
from planner.report.sheets.input_ids import TOLERANCE
from planner.report.style import COUNT, GREEN, SHARE_FINE, Kind
from planner.report.table import FIRST_TABLE_ROW, Column, Formula, Sheet, Table

ALL, NO_END = "(all)", "no limit"
"""Stand for every tenant, and for a stretch of prompts without an upper end."""


def build(plan: FleetPlan) -> Sheet:
    """The Routing sheet."""
    return Sheet(
        "Routing",
        "Routing: which pool serves a request",
        "A request goes to the row of its model and tenant whose stretch holds its prompt length: from (included) to "
        "(excluded), in tokens. Joined: 1 where the shares that start at its first length are those that end there.",
        "Which pool serves a request, by tenant and prompt length",
        GREEN,
        (_table(plan.routes),),
    )


def _table(routes: tuple[Route, ...]) -> Table:
    def shares(edge: str, place: str) -> str:
        same = "tblRoutes[Model],[Model],tblRoutes[Tenant],[Tenant]"
        return f"SUMIFS(tblRoutes[Share],{same},tblRoutes[{edge}],{place})"

    columns = (
        Column("Model", 24, tuple(r.model for r in routes) or ("(no routes)",)),
        Column("Tenant", 18, tuple(r.tenant or ALL for r in routes) or ("",)),
        Column("From, tokens", 12, tuple(r.prompt_lo_tokens for r in routes) or (0,), Kind.RESULT, COUNT),
        Column(
            "To, tokens",
            12,
            tuple(NO_END if r.prompt_hi_tokens is None else r.prompt_hi_tokens for r in routes) or (NO_END,),
            Kind.RESULT,
            COUNT,
        ),
        Column("Share", 10, tuple(r.share for r in routes) or (1.0,), Kind.RESULT, SHARE_FINE),
        Column("Pool", 24, tuple(r.pool for r in routes) or ("",), Kind.RESULT),
        Column("Shares that start here", 12, Formula(f"={shares('From, tokens', '[From, tokens]')}"), Kind.FORMULA,
               SHARE_FINE),
        Column("Shares that end here", 12, Formula(f"={shares('To, tokens', '[From, tokens]')}"), Kind.FORMULA,
               SHARE_FINE),
        Column("Shares without end", 12, Formula(f'={shares("To, tokens", chr(34) + NO_END + chr(34))}'), Kind.FORMULA,
               SHARE_FINE),
        Column(
            "Joined (1/0)",
            10,
            Formula(
                "=([Share]*ABS([Shares that start here]-IF([From, tokens]=0,1,[Shares that end here]))<=<1>)*1",
                (TOLERANCE,),
            ),
            Kind.FORMULA,
        ),
        Column("Open end (1/0)", 10, Formula("=([Share]*ABS([Shares without end]-1)<=<1>)*1", (TOLERANCE,)),
               Kind.FORMULA),
    )  # fmt: skip
    return Table("tblRoutes", "Routing", FIRST_TABLE_ROW, columns, max(1, len(routes)))
