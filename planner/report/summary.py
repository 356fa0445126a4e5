"""The plan printed for a platform engineer: what to run, where, what it costs, and what binds."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from planner.plan import FleetPlan, Measure, Pool
from planner.report import facts
from planner.report.printed import NAME_CHARACTERS, clean, printed_table
from planner.report.study_summary import study_notes, study_tables
from planner.report.text import one_line
from planner.study import Study

_OFFER_CHARACTERS = 39
_DESCRIPTION_CHARACTERS = 120
_TEXT_CHARACTERS = 400


def render_summary(report: Study | FleetPlan, console: Console) -> None:
    """Print the headline, a row for each pool, the purchases, other futures, the limits and the warnings.

    Parameters
    ----------
    report
        The study, or a plan alone.
    console
        Where to print; 80 columns are enough, colour is not needed. Texts wrap between words, names are cut.
    """
    study = report if isinstance(report, Study) else Study(plan=report)
    plan = study.plan
    console.print(f"[bold]{clean(plan.title, 50)}[/bold], {plan.horizon_start} to {plan.horizon_end} (end exclusive)")
    console.print(_headline(plan))
    for table in (
        _deployment_table(plan),
        *([_routing_table(plan)] if len(plan.pools) > len(facts.models(plan)) else []),
        _load_table(plan),
        _time_table(plan),
        _runner_up_table(plan),
        _purchase_table(plan),
        *study_tables(study),
    ):
        console.print()
        console.print(Text(str(table.title), style="bold"))
        table.title = None
        console.print(table)
    console.print()
    for note in (*study_notes(study), *_limits(plan), *_warnings(plan)):
        console.print(note)


def _headline(plan: FleetPlan) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column()
    for label, text in _headlines(plan):
        grid.add_row(f"  {label}", text)
    return grid


def _headlines(plan: FleetPlan) -> Iterator[tuple[str, str]]:
    totals, solve = plan.totals, plan.solve
    bought, used = sum(p.gpus_bought for p in plan.purchases), sum(pool.gpus for pool in plan.pools)
    day, age = facts.oldest_price(plan)
    yield "cost", f"[bold]{totals.usd:,.0f} USD[/bold] for {bought} GPUs, {used} of them used by pools"
    yield (
        "per 1M",
        f"{totals.usd_per_mtok_by_reservation:.4f} USD by reservation (all that is paid), "
        f"{totals.usd_per_mtok_by_use:.4f} USD by use (share of capacity); "
        f"{totals.usd_per_mtok_input:.4f} USD of input, {totals.usd_per_mtok_output:.4f} USD of output",
    )
    yield "served", f"{totals.served_input_mtok:,.0f} M input and {totals.served_output_mtok:,.0f} M output tokens"
    if totals.sunk_usd > 0 or totals.liability_after_usd > 0:
        yield (
            "bound",
            f"{totals.sunk_usd:,.0f} USD of the cost is paid in any case; "
            f"{totals.liability_after_usd:,.0f} USD more is due after the horizon",
        )
    yield (
        "solver",
        f"{solve.status}: {facts.CLAIM} than {solve.bound:,.0f} USD "
        f"(gap {solve.gap:.3%}, target {solve.gap_target:.3%})",
    )
    yield (
        "prices",
        f"{facts.price_kinds(plan)} prices, tax excluded; the oldest is of {day}, {age} days before planning",
    )
    fact = facts.oldest_engine_fact(plan)
    if fact is not None:
        yield (
            "engine",
            f"the oldest fact is of {fact.as_of}, {fact.age_days} days before planning ({clean(fact.what, 60)})",
        )


def _deployment_table(plan: FleetPlan) -> Table:
    table = printed_table(
        "What to run (weight dtype / KV dtype; a supply's cost shared out by GPU-hours)",
        "pool",
        "replicas",
        "max_model_len",
        "cost USD",
        left=2,
    )
    for pool in plan.pools:
        count = facts.replicas_in_words(pool)
        chosen = f"{count} x {pool.gpu} tp{pool.tp} {pool.weight_dtype}/{pool.kv_dtype} at {facts.places(plan, pool)}"
        table.add_row(
            clean(pool.name),
            clean(chosen, _DESCRIPTION_CHARACTERS),
            f"{pool.max_model_len:,}",
            f"{pool.usd:,.0f}",
        )
    return table


def _routing_table(plan: FleetPlan) -> Table:
    table = printed_table("Which pool serves a request", "model", "tenant", "prompt tokens", "share", "pool", left=3)
    for route in plan.routes:
        table.add_row(
            clean(route.model),
            clean(route.tenant or "all"),
            facts.band(route.prompt_lo_tokens, route.prompt_hi_tokens),
            f"{route.share:.0%}",
            clean(route.pool),
        )
    return table


def _load_table(plan: FleetPlan) -> Table:
    headers = ("live tokens / pool", "work share", "requests refused")
    table = printed_table("Does it fit: planned / allowed", "pool", *headers, left=1)
    for pool in plan.pools:
        table.add_row(
            clean(pool.name),
            f"{pool.load.quantile_live_tokens:,.0f} / {facts.token_pool(pool):,.0f}",
            _share(pool),
            f"{pool.refused_request_share:.3%} / {pool.tail_budget:.3%}",
        )
    return table


def _share(pool: Pool) -> str:
    limit = facts.margin(pool, "work share")
    return f"{pool.load.work_share:.0%} / {limit.limit:.0%}" if limit else f"{pool.load.work_share:.0%} / none"


def _time_table(plan: FleetPlan) -> Table:
    table = printed_table(
        "How fast, at the edge of the error band that the limits saw; and what binds",
        "pool",
        "binding constraint",
        "speed from",
        "TPOT ms",
        "TTFT ms",
        left=3,
    )
    for pool in plan.pools:
        table.add_row(
            clean(pool.name),
            f"[bold]{clean(pool.binding_constraint, _DESCRIPTION_CHARACTERS)}[/bold]",
            clean(facts.speed_basis(pool)),
            _against(pool, "tpot", pool.speed.tpot_ms),
            _against(pool, "ttft", pool.speed.ttft_ms),
        )
    return table


def _against(pool: Pool, word: str, planned: Measure) -> str:
    target = facts.margin(pool, word)
    return f"{planned.used:,.1f} / {target.limit:,.0f}" if target else f"{planned.used:,.1f} / none"


def _runner_up_table(plan: FleetPlan) -> Table:
    table = printed_table("Next best, by a re-solve", "model", "configuration", "extra USD", left=2)
    for model in facts.models(plan):
        pool = next(p for p in plan.pools if p.model == model)
        extra = f"{pool.runner_up.extra_usd:+,.0f}" if pool.runner_up else ""
        table.add_row(clean(model), clean(facts.runner_up(pool), _DESCRIPTION_CHARACTERS), extra)
    return table


def _purchase_table(plan: FleetPlan) -> Table:
    headers = ("GPUs", "hours", "cost USD")
    table = printed_table(
        "What to buy (most instances x GPUs of one; instance-hours in use)", "lot", "how", *headers, left=2
    )
    for p in plan.purchases:
        table.add_row(
            clean(p.offer_id, _OFFER_CHARACTERS),
            clean(p.kind),
            f"{p.instances} x {p.gpus_per_instance}",
            f"{p.instance_hours:,.0f}",
            f"{p.usd:,.0f}",
        )
    return table


def _limits(plan: FleetPlan) -> Iterator[Text]:
    for quota in plan.quotas:
        name = one_line(quota.name, NAME_CHARACTERS)
        worth = f"; one more is worth {quota.worth_usd:,.0f} USD" if quota.worth_usd else ""
        yield Text(f"limit {name}: {quota.used:,.0f} of {quota.limit:,.0f} {one_line(quota.unit, 24)}{worth}")


def _warnings(plan: FleetPlan) -> Iterator[Text]:
    for warning in plan.warnings:
        yield Text(f"warning: {one_line(warning, _TEXT_CHARACTERS)}", style="yellow")
    undated = sum(assumption.source_date is None for assumption in plan.assumptions)
    if undated:
        yield Text(f"warning: assumptions without a source date: {undated}", style="yellow")
