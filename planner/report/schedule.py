"""The week of every pool, for autoscalers: a row for each stretch of hours with one replica count."""

from __future__ import annotations

import csv
import io

from planner.plan import FleetPlan

COLUMNS = ("pool", "months", "hours", "replicas", "hours_a_week", "min_replicas", "max_replicas")


def schedule_csv(plan: FleetPlan) -> str:
    """The timetable as CSV; bounds are those of a horizontal autoscaler (HPA or KEDA, minReplicas and maxReplicas).

    A pool without a timetable runs the same count in every hour.
    """
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    for pool in plan.pools:
        counts = [period.replicas for period in pool.periods] or [pool.replicas]
        rows = [row for row in plan.schedule if row.pool == pool.name]
        listed = [(row.months, row.when, row.replicas, f"{row.hours_a_week:.6g}") for row in rows]
        for months, when, replicas, hours in listed or [("", "all hours", max(counts), "168")]:
            writer.writerow([pool.name, months, when, replicas, hours, min(counts), max(counts)])
    return stream.getvalue()
