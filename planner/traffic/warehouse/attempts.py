"""Attempts at one logical request: the Ibis counterpart of `planner.traffic.attempts`."""

from __future__ import annotations

from typing import Any

import ibis

from planner.traffic.rules import BITS, CODES, Adjustment, Rule
from planner.traffic.warehouse.verdicts import KEPT, OFFERED

RETRIED, REJECTED = CODES[Rule.REJECTED_RETRIED], CODES[Rule.REJECTED]


def with_attempts(small: Any) -> Any:
    """Mark further attempts; call it after the duplicates are told.

    A refused row whose logical request was served or came again was no demand of its own; a kept row that is not the
    first of its logical request gets a remark. Only the rows of requests of several attempts are put in order.
    """
    seen = small.filter(small.logical_id.notnull() & small.verdict.isin(OFFERED))
    counts = seen.group_by("logical_id").aggregate(n=lambda rows: rows.count())
    several = counts.filter(counts.n > 1).select("logical_id")
    others = small.filter(small.logical_id.isnull() | small.verdict.notin(OFFERED))
    single = others.union(seen.anti_join(several, "logical_id"))
    again = seen.semi_join(several, "logical_id")
    is_kept = ibis.ifelse(again.verdict == KEPT, 1, 0)
    logical = ibis.window(group_by=again.logical_id)
    again = again.mutate(
        place=ibis.row_number().over(_order(again)),
        attempts=again.verdict.count().over(logical),
        met=is_kept.max().over(logical),
        served=is_kept.sum().over(_order(again, preceding=None, following=0)),
    )
    came_again = (again.place + 1 < again.attempts) | (again.met == 1)
    retried = (again.verdict == REJECTED) & came_again
    retry = (again.verdict == KEPT) & (again.served > 1)
    told = again.mutate(
        verdict=ibis.ifelse(retried, RETRIED, again.verdict),
        adjusted=again.adjusted + ibis.ifelse(retry, BITS[Adjustment.RETRY], 0),
    )
    return single.union(told.drop("place", "attempts", "met", "served"))


def _order(rows: Any, **bounds: Any) -> Any:
    keys = [rows.ts_us, rows.verdict, rows.model]
    lengths = [rows.prompt.fill_null(-1), rows.output.fill_null(-1), rows.cached, rows.request_id.fill_null("")]
    return ibis.window(group_by=rows.logical_id, order_by=[*keys, *lengths], **bounds)
