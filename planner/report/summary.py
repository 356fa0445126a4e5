"""The plan printed for a platform engineer: what to run, where, what it costs, and what binds."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from planner.plan import FleetPlan, Measure, Pool
from planner.report import facts
from planner.report.text import one_line

_NAME_CHARACTERS = 28
_DESCRIPTION_CHARACTERS = 120
_TEXT_CHARACTERS = 400


def render_summary(plan: FleetPlan, console: Console) -> None:
    """Print the headline, a row for each pool, the purchases, the limits and the warnings.

    Parameters
    ----------
    plan
        The plan.
    console
        Where to print; 100 columns are enough, colour is not needed.
    """
    for line in _headline(plan):
        console.print(line, soft_wrap=True)
    for table in (_deployment_table(plan), _load_table(plan), _reasons(plan), _purchase_table(plan)):
        console.print()
        console.print(Text(str(table.title), style="bold"))
        table.title = None
        console.print(table)
    console.print()
    for note in (*_limits(plan), *_warnings(plan)):
        console.print(note)


def _clean(text: str, limit: int = _NAME_CHARACTERS) -> str:
    """Text from outside on one line, with no control characters and no markup."""
    return escape(one_line(text, limit))


def _headline(plan: FleetPlan) -> Iterator[str]:
    totals, solve = plan.totals, plan.solve
    bought, used = sum(p.gpus_bought for p in plan.purchases), sum(pool.gpus for pool in plan.pools)
    yield f"[bold]{_clean(plan.title, 60)}[/bold], {plan.horizon_start} to {plan.horizon_end} (end exclusive)"
    yield f"  cost      [bold]{totals.usd:,.0f} USD[/bold] for {bought} GPUs, {used} of them used by pools"
    yield (
        f"  per 1M    {totals.usd_per_mtok_by_reservation:.4f} USD by reservation (all that is paid), "
        f"{totals.usd_per_mtok_by_use:.4f} USD by use (busy share only)"
    )
    yield f"  served    {totals.served_input_mtok:,.1f} M input and {totals.served_output_mtok:,.1f} M output tokens"
    yield (
        f"  solver    {solve.status}: no fleet for these tokens costs less than {solve.bound:,.0f} USD "
        f"(gap {solve.gap:.3%}, target {solve.gap_target:.3%})"
    )


def _table(title: str, *headers: str, left: int) -> Table:
    """A table whose first ``left`` columns are text and whose others are numbers."""
    table = Table(title=title, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for n, header in enumerate(headers):
        table.add_column(header, justify="left" if n < left else "right", overflow="fold")
    return table


def _deployment_table(plan: FleetPlan) -> Table:
    table = _table(
        "What to run (replicas, weight dtype / KV dtype; idle GPUs of an offer shared out by use)",
        "pool",
        "replicas",
        "where",
        "max_model_len",
        "cost USD",
        left=3,
    )
    for pool in plan.pools:
        bought = facts.purchase_of(plan, pool)
        place = f"{bought.provider} {bought.region}".strip()
        chosen = f"{pool.replicas} x {pool.gpu} tp{pool.tp} {pool.weight_dtype}/{pool.kv_dtype}"
        table.add_row(
            _clean(pool.name),
            escape(chosen),
            _clean(place),
            f"{pool.max_model_len:,}",
            f"{facts.pool_usd(plan, pool):,.0f}",
        )
    return table


def _load_table(plan: FleetPlan) -> Table:
    headers = ("live tokens / pool", "TPOT ms", "TTFT ms", "refused", "busy at peak")
    table = _table(
        "Does it fit: planned / allowed, at the edge of the error band that the constraints saw",
        "pool",
        *headers,
        left=1,
    )
    for pool in plan.pools:
        table.add_row(
            _clean(pool.name),
            f"{pool.load.quantile_live_tokens:,.0f} / {facts.token_pool(pool):,.0f}",
            _against(pool, "tpot", pool.speed.tpot_ms),
            _against(pool, "ttft", pool.speed.ttft_ms),
            f"{pool.refused_request_share:.3%} / {pool.tail_budget:.3%}",
            f"{pool.load.busy_share:.0%}",
        )
    return table


def _against(pool: Pool, word: str, planned: Measure) -> str:
    target = facts.margin(pool, word)
    return f"{planned.used:,.1f} / {target.limit:,.0f}" if target else f"{planned.used:,.1f} / none"


def _reasons(plan: FleetPlan) -> Table:
    table = _table("What binds", "pool", "binding constraint", "next best", "extra USD", left=3)
    for pool in plan.pools:
        other = pool.runner_up
        table.add_row(
            _clean(pool.name),
            f"[bold]{_clean(pool.binding_constraint)}[/bold]",
            _clean(other.description, _DESCRIPTION_CHARACTERS) if other else "none found",
            f"{other.extra_usd:+,.0f}" if other else "",
        )
    return table


def _purchase_table(plan: FleetPlan) -> Table:
    table = _table("What to buy", "offer", "instances", "GPUs", "idle", "USD/h each", "cost USD", left=1)
    for p in plan.purchases:
        table.add_row(
            _clean(p.offer_id, 60),
            f"{p.instances}",
            f"{p.gpus_bought}",
            f"{p.gpus_bought - p.gpus_used}",
            f"{p.usd_per_instance_h:,.4f}",
            f"{p.usd:,.0f}",
        )
    return table


def _limits(plan: FleetPlan) -> Iterator[Text]:
    for quota in plan.quotas:
        name = one_line(quota.name, _NAME_CHARACTERS)
        yield Text(f"limit {name}: {quota.used:,.0f} of {quota.limit:,.0f} {one_line(quota.unit, 12)}")


def _warnings(plan: FleetPlan) -> Iterator[Text]:
    for warning in plan.warnings:
        yield Text(f"warning: {one_line(warning, _TEXT_CHARACTERS)}", style="yellow")
