"""Rows that are not the first word on their request: the Ibis counterpart of `planner.traffic.tables.duplicates`.

One window each, over the rows of one id: every row is read once, and its order in the table is no input.
"""

from __future__ import annotations

from typing import Any

import ibis

from planner.traffic.rules import BITS, CODES, TREATMENTS, Adjustment, Rule
from planner.traffic.tables.rows import KEPT

APART = ("counts", "apart")
NO_RANK = -(2**62)
NO_TOKENS = -1
OFFERED = [KEPT, *(CODES[rule] for rule in Rule if TREATMENTS[rule].offered)]
"""Verdicts of the rows that count as arrivals."""
RETRIED, REJECTED = CODES[Rule.REJECTED_RETRIED], CODES[Rule.REJECTED]


def without_duplicates(rows: Any) -> Any:
    """Of the arrivals of one request id, all but one get the verdict of a duplicate.

    The highest rank wins, then a kept row over a failed one, then the first arrival, then by model, length and class.
    """
    names = rows.columns
    rows = _grouped(rows, "request_id")
    order = [
        ibis.desc(rows["rank"].fill_null(NO_RANK)),
        rows.verdict,
        rows.ts_us,
        rows.model,
        ibis.desc(rows.prompt.fill_null(NO_TOKENS)),
        ibis.desc(rows.output.fill_null(NO_TOKENS)),
        ibis.desc(rows.cached),
        rows.traffic_class,
        rows.adjusted,
    ]
    rows = rows.mutate(place=ibis.row_number().over(ibis.window(group_by=["request_id", *APART], order_by=order)))
    again = rows.counts & (rows.place > 0)
    return rows.mutate(
        verdict=ibis.ifelse(again, CODES[Rule.DUPLICATE], rows.verdict),
        prompt=ibis.ifelse(again, ibis.null("int64"), rows.prompt),
        output=ibis.ifelse(again, ibis.null("int64"), rows.output),
        cached=ibis.ifelse(again, 0, rows.cached),
        adjusted=ibis.ifelse(again, 0, rows.adjusted),
    ).select(*names)


def with_attempts(rows: Any) -> Any:
    """Tell the attempts at one logical request apart, as `planner.traffic.attempts` does; duplicates are told before.

    A refused row whose request was served or came again was no demand of its own; a kept row that is not the first of
    its request gets a remark.
    """
    names = rows.columns
    rows = _grouped(rows, "logical_id")
    order = [
        rows.ts_us,
        rows.verdict,
        rows.model,
        rows.prompt.fill_null(NO_TOKENS),
        rows.output.fill_null(NO_TOKENS),
        rows.cached,
        rows.request_id.fill_null(""),
    ]
    one = ibis.window(group_by=["logical_id", *APART])
    earlier = ibis.window(group_by=["logical_id", *APART], order_by=order, preceding=None, following=0)
    is_kept = ibis.ifelse(rows.verdict == KEPT, 1, 0)
    rows = rows.mutate(
        place=rows.verdict.count().over(earlier),
        attempts=rows.verdict.count().over(one),
        met=is_kept.max().over(one),
        served=is_kept.sum().over(earlier),
    )
    came_again = (rows.place < rows.attempts) | (rows.met == 1)
    retried = rows.counts & (rows.verdict == REJECTED) & came_again
    further = rows.counts & (rows.verdict == KEPT) & (rows.served > 1)
    return rows.mutate(
        verdict=ibis.ifelse(retried, RETRIED, rows.verdict),
        adjusted=rows.adjusted + ibis.ifelse(further, BITS[Adjustment.RETRY], 0),
    ).select(*names)


def _grouped(rows: Any, name: str) -> Any:
    """With ``counts``, whether the rule looks at the row, and ``apart``, so that the others are no group of one size.

    All rows without an id as one group of a window would be sorted by a single machine of a cluster.
    """
    counts = rows[name].notnull() & rows.verdict.isin(OFFERED)
    return rows.mutate(counts=counts, apart=ibis.ifelse(counts, 0, rows.ts_us))
