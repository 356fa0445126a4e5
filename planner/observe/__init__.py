"""A running fleet against its plan: alert rules, a dashboard, and `planner watch`."""

from __future__ import annotations

from planner.observe.alerts import Group, PoolRules, clock_group, heading_of, rules_text
from planner.observe.calendar import Calendar, calendar_of
from planner.observe.dashboard import dashboard_text
from planner.observe.expected import expected_of, most_live_ratio
from planner.observe.metrics import MetricName, metric_names
from planner.observe.promql import Queries
from planner.observe.tracks import POOL
from planner.plan import FleetPlan, Pool

ALERTS_FILE, DASHBOARD_FILE = "prometheus/alerts.yaml", "grafana/dashboard.json"


def files(plan: FleetPlan, pool_label: str = POOL) -> dict[str, str]:
    """The files that watch a plan: relative path and text; the same plan gives the same bytes.

    Parameters
    ----------
    pool_label
        Label of the series that names the pool: the scrape configuration must set it on every target.
    """
    names = metric_names()
    queries = [Queries(pool, names, pool_label) for pool in plan.pools]
    groups = alert_groups(plan, names, pool_label)
    return {
        ALERTS_FILE: rules_text(groups, heading_of(plan.run_id, pool_label)),
        DASHBOARD_FILE: dashboard_text(plan, queries),
    }


def alert_groups(plan: FleetPlan, names: tuple[MetricName, ...], pool_label: str = POOL) -> tuple[Group, ...]:
    """The clock, then a group of rules for each pool."""
    calendar = calendar_of(plan)
    pools = (_rules(plan, pool, calendar, Queries(pool, names, pool_label)).group() for pool in plan.pools)
    return (clock_group(calendar, plan.run_id), *pools)


def _rules(plan: FleetPlan, pool: Pool, calendar: Calendar, queries: Queries) -> PoolRules:
    most = most_live_ratio(plan, pool)
    return PoolRules(pool, expected_of(plan, pool, None), queries, calendar, plan.run_id, most)
