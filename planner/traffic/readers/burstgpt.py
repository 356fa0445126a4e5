"""BurstGPT traces, versions 1 and 2: ``Timestamp, Model, Request tokens, Response tokens``, read by name.

Names and meanings: the README of HPMLL/BurstGPT (releases 1.1 and 2.0). Version 2 puts ``Session ID`` and ``Elapsed
time`` between the first columns. ``Timestamp`` is whole seconds from local midnight of the first day, so equal stamps
are no batches, and hours are local ones. A row with 0 ``Response tokens`` is a request that failed. ``Log Type`` tells
conversations from API calls; both load the server, and it is not read, nor is the session.
"""

from __future__ import annotations

from planner.traffic.engine import sql_name
from planner.traffic.readers.base import TableReader
from planner.traffic.readers.columns import Columns, TimeKind
from planner.traffic.readers.head import Head
from planner.traffic.readers.selected import TEXT, selected

NEEDED = ("Timestamp", "Model", "Request tokens", "Response tokens")
COLUMNS = Columns(
    timestamp="Timestamp", prompt="Request tokens", output="Response tokens", model="Model", error="fault"
)
ROLES = {name: sql_name(name) for name in NEEDED} | {
    "fault": "CASE WHEN TRY_CAST(\"Response tokens\" AS DOUBLE) = 0 THEN 'failed' END"
}


def _claimed(head: Head) -> bool:
    """The four columns with their capitals and blanks."""
    return set(NEEDED) <= set(head.columns)


BURSTGPT = TableReader(
    "burstgpt",
    "burstgpt-trace",
    _claimed,
    lambda _: COLUMNS,
    TimeKind.RELATIVE_S,
    relation=lambda head: selected(head, NEEDED, dict.fromkeys(NEEDED, TEXT), ROLES),
)
