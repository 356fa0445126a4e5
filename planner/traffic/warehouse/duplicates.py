"""Rows of one request id are one request: which of them stays depends on no order of rows."""

from __future__ import annotations

from typing import Any

import ibis

from planner.traffic.rules import CODES, Rule
from planner.traffic.warehouse.verdicts import OFFERED

NO_RANK = -(2**62)


def without_duplicates(small: Any) -> Any:
    """Of the arrivals of one request id, all but one get the verdict of a duplicate.

    The highest rank wins, then a kept row over a failed one, then the first arrival, as in
    `planner.traffic.tables.duplicates`. Only the rows of ids that come more than once are put in order.
    """
    seen = small.filter(small.request_id.notnull() & small.verdict.isin(OFFERED))
    counts = seen.group_by("request_id").aggregate(n=lambda rows: rows.count())
    doubled = counts.filter(counts.n > 1).select("request_id")
    others = small.filter(small.request_id.isnull() | small.verdict.notin(OFFERED))
    unique = others.union(seen.anti_join(doubled, "request_id"))
    again = seen.semi_join(doubled, "request_id")
    again = again.mutate(place=ibis.row_number().over(_order(again)))
    first = again.place == 0
    told = again.mutate(
        verdict=ibis.ifelse(first, again.verdict, CODES[Rule.DUPLICATE]),
        prompt=ibis.ifelse(first, again.prompt, ibis.null("int64")),
        output=ibis.ifelse(first, again.output, ibis.null("int64")),
        cached=ibis.ifelse(first, again.cached, 0),
        adjusted=ibis.ifelse(first, again.adjusted, 0),
    )
    return unique.union(told.drop("place"))


def _order(rows: Any) -> Any:
    return ibis.window(
        group_by=rows.request_id,
        order_by=[
            ibis.desc(rows["rank"].fill_null(NO_RANK)),
            rows.verdict,
            rows.ts_us,
            rows.model,
            ibis.desc(rows.prompt.fill_null(-1)),
            ibis.desc(rows.output.fill_null(-1)),
            ibis.desc(rows.cached),
            rows.traffic_class,
            rows.adjusted,
        ],
    )
