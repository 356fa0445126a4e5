"""Attempts at one logical request: what was refused and tried again, and what was tried more than once.

Each attempt that reached a GPU loads one, so each counts. A refused one (429, 503) loaded none: it is no demand of its
own when the same logical request was served or came again, and unmet demand when it was the last try. Operations or
attempts are two ways to count (open-telemetry/semantic-conventions-genai issue 476); logs of routers hold attempts
(BerriAI/litellm issue 39455). Without an id that attempts share, refused rows stay unmet demand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.traffic.rules import CODES, Rule

KEPT = -1
REJECTED = CODES[Rule.REJECTED]
Column = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Further:
    """Places of rows that are not the first word on their logical request."""

    retried: Column
    """Refused rows whose request was served, or tried again later."""
    further: Column
    """Kept rows after the first kept one."""


def further_attempts(logical: Column, ts_us: Column, verdict: Column, ties: Sequence[Column] = ()) -> Further:
    """Tell the attempts at each logical request apart; the order of the rows is no input.

    Parameters
    ----------
    logical
        What the attempts at one request share; give only rows that have it and count as arrivals.
    ts_us
        Arrival in microseconds.
    verdict
        `KEPT`, or the code of the rule that dropped the row.
    ties
        Further columns that put rows of one request, stamp and verdict in order, the most important first.
    """
    order = np.lexsort((*reversed(ties), verdict, ts_us, logical))
    request, kept = logical[order], verdict[order] == KEPT
    starts = np.flatnonzero(np.r_[True, request[1:] != request[:-1]]) if request.size else np.empty(0, np.int64)
    sizes = np.diff(np.r_[starts, request.size])
    before = np.cumsum(kept) - kept  # kept rows before each row, over all requests
    first_of_request = np.repeat(before[starts], sizes)
    met = np.repeat(np.add.reduceat(kept.astype(np.int64), starts) > 0, sizes) if request.size else kept
    last = np.zeros(request.size, dtype=np.bool_)
    last[starts + sizes - 1] = True
    refused = verdict[order] == REJECTED
    return Further(
        retried=np.sort(order[refused & (~last | met)]), further=np.sort(order[kept & (before > first_of_request)])
    )
