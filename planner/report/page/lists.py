"""Tables behind the plan: routing, purchases, limits, rejected configurations, assumptions, files."""

from __future__ import annotations

from markupsafe import Markup

from planner.plan import FleetPlan, Purchase, QuotaUse
from planner.report import facts
from planner.report.page.bars import meter
from planner.report.page.markup import Col, badge, folded, prose, section, short, table
from planner.report.page.numbers import count, decimal, rate, share, usd


def routing(plan: FleetPlan) -> Markup:
    """Which pool serves a request."""
    if not plan.routes:
        return Markup()
    columns = (Col("Model"), Col("Tenant"), Col("Prompt tokens", "n"), Col("Share", "n"), Col("Pool"))
    rows = [
        (
            short(r.model, 40), short(r.tenant, 40) or "all", facts.band(r.prompt_lo_tokens, r.prompt_hi_tokens),
            share(r.share), short(r.pool, 40),
        )
        for r in plan.routes
    ]  # fmt: skip
    return section("routing", "Routing", table("Which pool serves a request", columns, rows))


def purchases(plan: FleetPlan) -> Markup:
    """What is bought, on which contract, and what it costs."""
    columns = (
        Col("Lot", "w"), Col("Instances x GPUs", "n"), Col("GPUs used", "n"), Col("Instance-hours", "n"),
        Col("USD per instance-hour", "n"), Col("Cost, USD", "n"), Col("After the horizon, USD", "n"),
        Col("Source and notes", "w"),
    )  # fmt: skip
    rows = [
        (
            _lot(p), f"{count(p.instances)} x {count(p.gpus_per_instance)}",
            count(p.gpus_used), count(p.instance_hours), _price(p), usd(p.usd),
            usd(p.liability_after_usd),
            Markup("{} {}").format(prose(p.source_url), prose(p.notes)),
        )
        for p in plan.purchases
    ]  # fmt: skip
    totals = plan.totals
    foot = ("Total", "", "", "", "", usd(totals.usd), usd(totals.liability_after_usd), "")
    made = table("Instances at their largest number; prices without tax", columns, rows, foot=foot)
    return section("purchases", "Purchases", made)


def _lot(purchase: Purchase) -> Markup:
    return Markup('{}<br><span class="quiet">{}</span>').format(short(purchase.offer_id), short(purchase.kind, 40))


def _price(purchase: Purchase) -> Markup:
    """Of a running instance: what reserving and using it costs; a sunk contract has no price left to pay."""
    hourly = purchase.reserved_usd_per_h + purchase.used_usd_per_h
    figure = rate(hourly) if hourly or not purchase.sunk_usd else "paid in any case"
    return Markup('{}<br><span class="quiet">{}, {}</span>').format(
        figure, short(purchase.price_kind, 20), purchase.price_as_of
    )


def limits(plan: FleetPlan) -> Markup:
    """Quotas, stock and budgets, and what one more unit is worth."""
    if not plan.quotas:
        return Markup()
    columns = (Col("Name"), Col("Taken", "plot"), Col("Used", "n"), Col("Limit", "n"), Col("Unit"),
               Col("One more is worth, USD", "n"))  # fmt: skip
    return section("limits", "Limits", table("Quotas, stock and budgets", columns, [_limit(q) for q in plan.quotas]))


def _limit(quota: QuotaUse) -> tuple[str, ...]:
    taken = quota.used / quota.limit if quota.limit else 1.0
    full = quota.used >= quota.limit
    name = Markup("{} {}").format(short(quota.name), badge("full", "warn") if full else Markup())
    worth = "not looked for" if quota.worth_usd is None else usd(quota.worth_usd)
    bar = Markup('{}<span class="figure">{}</span>').format(meter(taken, "c" if full else "d"), share(taken))
    return name, bar, decimal(quota.used), decimal(quota.limit), short(quota.unit, 40), worth


def rejected(plan: FleetPlan) -> Markup:
    """Classes of configurations that cannot be used, folded."""
    if not plan.rejected:
        return Markup()
    columns = (Col("Model"), Col("Rule", "w"), Col("Configurations", "n"), Col("Nearest miss", "w"))
    rows = [(short(r.model, 40), prose(r.reason), count(r.configurations), prose(r.example)) for r in plan.rejected]
    total = sum(r.configurations for r in plan.rejected)
    summary = f"{count(total)} configurations in {len(rows)} classes"
    return section("rejected", "Rejected", folded(summary, table("Rejected configurations", columns, rows)))


def assumptions(plan: FleetPlan) -> Markup:
    """Every input with unit, source, day and owner, folded."""
    columns = (
        Col("Id"), Col("Assumption", "w"), Col("Value", "n"), Col("Unit"), Col("Source", "w"), Col("Day"),
        Col("Owner"), Col("Note", "w"),
    )  # fmt: skip
    rows = [
        (
            short(a.id), prose(a.assumption), _value(a.value), short(a.unit, 40), prose(a.source),
            str(a.source_date) if a.source_date else badge("no day", "warn"), short(a.owner, 40), prose(a.note),
        )
        for a in plan.assumptions
    ]  # fmt: skip
    undated = sum(a.source_date is None for a in plan.assumptions)
    summary = f"{len(rows)} assumptions" + (f", {undated} without a day" if undated else "")
    return section("assumptions", "Assumptions", folded(summary, table("Assumptions", columns, rows)))


def _value(value: float | str) -> str:
    return short(value, 60) if isinstance(value, str) else f"{value:,.10g}"


def files(plan: FleetPlan) -> Markup:
    """Everything that was read, with its digest, folded."""
    columns = (Col("Role"), Col("File"), Col("sha256", "w"))
    rows = [(short(f.role), short(f.path, 120), Markup("<code>{}</code>").format(short(f.sha256))) for f in plan.inputs]
    summary = f"{len(rows)} files"
    digest = Markup('<p class="quiet">sha256 over all of them: <code>{}</code></p>').format(facts.inputs_sha256(plan))
    return section("files", "Files", folded(summary, digest, table("Files read", columns, rows)))
