"""Alert rules of Prometheus with the plan's own figures as thresholds: one group for each pool.

Format: prometheus.io, "Alerting rules" and "Recording rules". Every alert says which figure of the plan it rests on
(`figure`), the planned value, and what to do.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from planner import units
from planner.observe.calendar import HOUR_RECORD, Calendar, rates_by_period, replicas_by_period
from planner.observe.expected import (
    Expected,
    allowed_preemptions_per_s,
    quantile_requests,
    quantile_usage,
    target_s,
)
from planner.observe.metrics import Figure
from planner.observe.promql import RATE, Queries, number
from planner.observe.verdicts import WAITING
from planner.plan import Pool

REPLICAS_RECORD, RATE_RECORD = "planner:planned_replicas", "planner:planned_requests_per_s"
SOON, LATER = "5m", "15m"
FULLEST = 0.99
"""A usage beyond this counts as full: a threshold above it would never be passed."""
WARNING, CRITICAL = "warning", "critical"


@dataclass(frozen=True)
class Rule:
    """One rule: an alert, or a recorded series where it has no waiting time."""

    name: str
    expr: str
    wait: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Group:
    """Rules that are evaluated together, in order."""

    name: str
    rules: tuple[Rule, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class PoolRules:
    """The rules of one pool."""

    pool: Pool
    plan: Expected
    """Of its busiest period."""
    queries: Queries
    calendar: Calendar
    run_id: str
    live_ratio: float
    """Load of a replica in the period that loads it most (`planner.observe.expected.most_live_ratio`)."""

    def group(self) -> Group:
        """Every rule that the pool's release exports the metrics for; what it does not export is noted."""
        rules = [*self._records(), *self._alerts()]
        have = {rule.name for rule in rules}
        absent = [name for name in ALERTS if name not in have]
        engine = f"{self.pool.engine} {self.pool.engine_version}"
        notes = tuple(f"{name}: {engine} exports no such metric" for name in absent)
        return Group(f"planner {self.pool.name}", tuple(rules), notes)

    @property
    def _own(self) -> dict[str, str]:
        return {"pool": self.pool.name, "model": self.pool.model}

    def _records(self) -> Iterator[Rule]:
        """What the plan has at this hour."""
        labels = {**self._own, "plan": self.run_id}
        yield Rule(REPLICAS_RECORD, self.calendar.expression(replicas_by_period(self.pool), self.run_id), labels=labels)
        yield Rule(RATE_RECORD, self.calendar.expression(rates_by_period(self.pool), self.run_id), labels=labels)

    def _alerts(self) -> Iterator[Rule]:
        yield from self._cache()
        yield from self._requests()
        yield from self._latency()
        yield from self._demand()
        yield from self._replicas()

    def _alert(
        self, name: str, expr: str, wait: str, severity: str, *, says: str, figure: str, planned: str, action: str
    ) -> Rule:
        notes = {
            "summary": literal(f"{self.pool.name}: {says}"),
            "description": f"Observed {{{{ $value | humanize }}}}; the plan has {literal(planned)}.",
            "figure": literal(figure),
            "planned": literal(planned),
            "action": action,
            "run_id": self.run_id,
        }
        labels = {**{key: literal(text) for key, text in self._own.items()}, "severity": severity}
        return Rule(name, expr, wait, labels, notes)

    def _cache(self) -> Iterator[Rule]:
        load = self.pool.load
        share = min(quantile_usage(self.pool, self.live_ratio), FULLEST)
        if self.queries.exported(Figure.KV_USAGE):
            yield self._alert(
                "PlannerKvCacheAbovePlan",
                f"{self.queries.per_replica(Figure.KV_USAGE)} > {number(share)}",
                LATER,
                WARNING,
                says="more of the KV cache is live than the plan's quantile",
                figure=f"live tokens exceeded with probability {load.overflow_probability:g}, over the token pool",
                planned=f"{share:.1%} of the cache of a replica",
                action="Run planner watch: it says what is off; add a replica where the cache is nearly full",
            )
        if self.queries.exported(Figure.PREEMPTIONS):
            allowed = allowed_preemptions_per_s(self.pool)
            yield self._alert(
                "PlannerPreemptionsAbovePlan",
                f"{self.queries.per_s(Figure.PREEMPTIONS)} > {number(allowed)}",
                SOON,
                WARNING,
                says="more requests are preempted than the overflow allows",
                figure="overflow probability times planning rate: a guess at the upper end, one preemption for each "
                "request that is accepted while live tokens exceed the cache",
                planned=f"at most {allowed:.4g} preemptions/s",
                action="Add a replica, or lower max_num_seqs; check the KV cache size in the start-up log",
            )

    def _requests(self) -> Iterator[Rule]:
        most = quantile_requests(self.pool, self.live_ratio)
        if self.queries.exported(Figure.RUNNING):
            yield self._alert(
                "PlannerRunningAbovePlan",
                f"{self.queries.per_replica(Figure.RUNNING)} > {number(most)}",
                LATER,
                WARNING,
                says="more requests run on a replica than the plan's quantile",
                figure=f"live requests exceeded with probability {self.pool.load.overflow_probability:g}",
                planned=f"{most:,.0f} requests a replica",
                action="Run planner watch: either more requests come, or each stays longer than planned",
            )
            yield self._alert(
                "PlannerMetricsMissing",
                f"{self.queries.absent()} and on() {self._planned(REPLICAS_RECORD)} > 0",
                SOON,
                CRITICAL,
                says="no replica shows any metric",
                figure="replicas of the period",
                planned="replicas in this hour",
                action="Check the scrape configuration, and its label for the pool",
            )
        if self.queries.exported(Figure.WAITING):
            yield self._alert(
                "PlannerRequestsWaiting",
                f"{self.queries.per_replica(Figure.WAITING)} > {number(WAITING)}",
                SOON,
                WARNING,
                says="requests wait for a place in the batch",
                figure="the plan holds every request as it comes",
                planned=f"at most {WAITING:g} waiting at a replica",
                action="Add a replica; check max_num_seqs and the KV cache against the plan",
            )

    def _latency(self) -> Iterator[Rule]:
        if self.queries.exported(Figure.TTFT):
            ttft = self.queries.quantile(Figure.TTFT, self.plan.ttft_percentile)
            yield self._slow("Ttft", ttft, "ttft", self.plan.ttft_s)
        gap = self.queries.tpot_figure()
        if self.queries.exported(gap):
            tpot = self.queries.mean(gap)
            yield self._slow("Tpot", tpot, "tpot", self.plan.tpot_s)
            few = f"{self.queries.per_replica(Figure.RUNNING)} <= {number(self.plan.live_requests)}"
            yield self._alert(
                "PlannerDecodeBelowPlan",
                f"{tpot} > {number(self.plan.tpot_s)} and on() {few}",
                LATER,
                WARNING,
                says="tokens come slower than planned although no more requests run than planned",
                figure="time per output token that the plan was made with, at its mean live requests",
                planned=f"{units.s_to_ms(self.plan.tpot_s):.4g} ms at {self.plan.live_requests:.4g} requests a replica",
                action="Measure the replica (planner speed import) and plan again; check clocks and engine flags",
            )

    def _slow(self, word: str, expr: str, margin: str, planned_s: float) -> Rule:
        target = target_s(self.pool, margin)
        limit = planned_s if target is None else target
        what = "the mean time per output token" if margin == "tpot" else f"TTFT P{100 * self.plan.ttft_percentile:g}"
        return self._alert(
            f"Planner{word}AboveTarget",
            f"{expr} > {number(limit)}",
            SOON,
            WARNING if target is None else CRITICAL,
            says=f"{what} is above {'the plan' if target is None else 'its target'}",
            figure=f"{word.upper()} {'that the plan was made with' if target is None else 'target of the request'}",
            planned=f"{units.s_to_ms(planned_s):,.4g} ms, limit {units.s_to_ms(limit):,.4g} ms",
            action="Run planner watch; if demand is as planned, measure the speed and plan again",
        )

    def _demand(self) -> Iterator[Rule]:
        if self.queries.exported(Figure.PROMPT_TOKENS, Figure.OUTPUT_TOKENS):
            tokens = self.plan.prompt_tokens + self.plan.output_tokens
            most = self.plan.planning_rate_per_s * tokens
            yield self._alert(
                "PlannerDemandAbovePlan",
                f"{self.queries.tokens_per_s()} > on() {number(tokens)} * {self._planned(RATE_RECORD)}",
                LATER,
                WARNING,
                says="more tokens come than the plan holds in this hour",
                figure="planning rate of the period times mean tokens of a request",
                planned=f"at most {most:,.6g} tokens/s in the busiest period",
                action="Add replicas in proportion now; take the new demand into the next plan (planner actuals)",
            )

    def _replicas(self) -> Iterator[Rule]:
        counts = replicas_by_period(self.pool)
        low, high = min(counts), max(counts)
        yield self._alert(
            "PlannerReplicasMissing",
            f"{self.queries.up()} < on() {self._planned(REPLICAS_RECORD)}",
            SOON,
            CRITICAL,
            says="fewer replicas are up than the plan has in this hour",
            figure="replicas of the period",
            planned=f"{low:.0f} replicas"
            if low == high
            else f"{low:.0f} to {high:.0f} replicas, by the hour of the week",
            action="Start the missing replicas; check quota and health of their instances",
        )

    def _planned(self, record: str) -> str:
        labels = {"plan": self.run_id, "pool": self.pool.name}
        return record + "{" + ",".join(f"{k}={json.dumps(v, ensure_ascii=False)}" for k, v in labels.items()) + "}"


ALERTS = (
    "PlannerKvCacheAbovePlan",
    "PlannerPreemptionsAbovePlan",
    "PlannerRunningAbovePlan",
    "PlannerMetricsMissing",
    "PlannerRequestsWaiting",
    "PlannerTtftAboveTarget",
    "PlannerTpotAboveTarget",
    "PlannerDecodeBelowPlan",
    "PlannerDemandAbovePlan",
    "PlannerReplicasMissing",
)
"""Every alert that a pool may have."""


def clock_group(calendar: Calendar, run_id: str) -> Group:
    """The hour of the plan's week, that the pools' rules refer to."""
    rule = Rule(HOUR_RECORD, calendar.hour_expression(), labels={"plan": run_id})
    return Group(f"planner clock {run_id}", (rule,), (calendar.note,) if calendar.note else ())


def literal(text: str) -> str:
    """Text that Prometheus' templates leave as it is."""
    return text.replace("{{", '{{ "{{" }}')


def rules_text(groups: Sequence[Group], heading: Sequence[str]) -> str:
    """The rules as YAML; same groups, same bytes."""
    lines = [f"# {_plain(line)}" for line in heading]
    lines.append("groups:")
    for group in groups:
        lines += [f"  # {_plain(note)}" for note in group.notes]
        lines += [f"  - name: {_scalar(group.name)}", "    rules:"]
        for rule in group.rules:
            lines += _rule_lines(rule)
    return "\n".join(lines) + "\n"


def _rule_lines(rule: Rule) -> Iterator[str]:
    yield f"      - {'alert' if rule.wait else 'record'}: {_scalar(rule.name)}"
    yield f"        expr: {_scalar(rule.expr)}"
    if rule.wait:
        yield f"        for: {rule.wait}"
    for head, entries in (("labels", rule.labels), ("annotations", rule.annotations)):
        if entries:
            yield f"        {head}:"
            yield from (f"          {key}: {_scalar(text)}" for key, text in entries.items())


def _scalar(text: str) -> str:
    """A YAML scalar: single quotes, or JSON's where a character needs an escape."""
    return "'" + text.replace("'", "''") + "'" if text.isprintable() else json.dumps(text)


def _plain(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)


def heading_of(run_id: str, pool_label: str) -> tuple[str, ...]:
    """What whoever deploys the rules must know."""
    return (
        f"Alerts of plan {run_id}, written by planner. Thresholds are figures of the plan: plan again, do not edit.",
        f"Every target needs the label {pool_label} with its pool's name, also on the series up. In Kubernetes, with",
        "the annotation planner/pool on the pods:",
        "  relabel_configs:",
        "    - source_labels: [__meta_kubernetes_pod_annotation_planner_pool]",
        f"      target_label: {pool_label}",
        f"Rates are taken over {RATE}. planner watch says which assumption is off.",
    )
