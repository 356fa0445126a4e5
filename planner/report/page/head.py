"""The head of the page: what is planned, what it costs, what is proven, and what a signer must know."""

from __future__ import annotations

from markupsafe import Markup

from planner.plan import Age, FleetPlan, SolveStatus
from planner.report import facts
from planner.report.page.markup import badge, folded, join, pairs, prose, section, short
from planner.report.page.numbers import count, rate, share, usd

WARNINGS_SHOWN = 6
TITLE_CHARACTERS = 120


def masthead(plan: FleetPlan) -> Markup:
    """Title, horizon, owner, run and stamp."""
    stamp = facts.created_utc(plan)
    items = (
        ("Horizon", f"{plan.horizon_start} to {plan.horizon_end} (end exclusive), {count(plan.horizon_hours)} h"),
        ("Owner", short(plan.owner)),
        ("Run", Markup("<code>{}</code>").format(short(plan.run_id))),
        ("Planned", f"{stamp:%Y-%m-%d %H:%M} UTC, planner {short(plan.planner_version)}"),
    )
    return Markup('<header class="masthead">\n<p class="over">Fleet plan {}</p>\n<h1>{}</h1>\n{}\n</header>\n').format(
        _status_badge(plan), short(plan.title, TITLE_CHARACTERS), pairs(items, "meta")
    )


def _status_badge(plan: FleetPlan) -> Markup:
    kind = "good" if plan.solve.status is SolveStatus.OPTIMAL else "warn"
    return badge(plan.solve.status.value, kind)


def overview(plan: FleetPlan) -> Markup:
    """The fleet in eight numbers, and what the solver proved."""
    return section("overview", "Overview", _tiles(plan), _proof(plan), _call(plan))


def _tiles(plan: FleetPlan) -> Markup:
    totals = plan.totals
    served = totals.served_input_mtok + totals.served_output_mtok
    cost_note = _in_reporting(plan) or f"{short(facts.price_kinds(plan))} prices, tax excluded"
    if totals.sunk_usd:
        cost_note += f"; {usd(totals.sunk_usd)} USD of it is paid in any case"
    if totals.liability_after_usd:
        cost_note += f"; {usd(totals.liability_after_usd)} USD more is due after the horizon"
    tiles = (
        ("Cost of the horizon", f"{usd(totals.usd)} USD", cost_note),
        ("GPUs", count(totals.gpus), f"{count(totals.gpu_hours)} GPU-hours paid"),
        ("Served tokens", f"{count(served)} M", f"{count(totals.served_input_mtok)} M in, "
         f"{count(totals.served_output_mtok)} M out"),
        ("Gap", share(plan.solve.gap), f"target {share(plan.solve.gap_target)}"),
        ("USD per M tokens", rate(totals.usd_per_mtok_by_reservation), "all that is paid, over all served"),
        ("By use", rate(totals.usd_per_mtok_by_use), "paid for the capacity that is used"),
        ("Input", rate(totals.usd_per_mtok_input), "all paid, by the time prompts take"),
        ("Output", rate(totals.usd_per_mtok_output), "all paid, by the time outputs take"),
    )  # fmt: skip
    items = (
        (label, Markup('<span class="value">{}</span><span class="note">{}</span>').format(value, note))
        for label, value, note in tiles
    )
    return pairs(items, "tiles")


def _in_reporting(plan: FleetPlan) -> str:
    money = plan.reporting
    if money is None:
        return ""
    amount = plan.totals.usd * money.per_usd
    source = f"{short(money.source)}, {money.source_date}"
    return f"{count(amount)} {short(money.currency)} at {money.per_usd:.6g} per USD ({source})"


def _proof(plan: FleetPlan) -> Markup:
    solve = plan.solve
    price, fact = facts.ages(plan)[0], facts.oldest_engine_fact(plan)
    engine = "" if fact is None else f" The oldest engine fact is of {_age(fact)}."
    return Markup(
        '<p class="claim"><strong>{}.</strong> {} than {} USD: gap {}, target {}. {} {}. '
        "Prices are {}, tax excluded; the oldest is of {}.{}</p>"
    ).format(
        solve.status.value.capitalize(), facts.CLAIM[0].upper() + facts.CLAIM[1:], usd(solve.bound), share(solve.gap),
        share(solve.gap_target), short(solve.solver), short(solve.solver_version), short(facts.price_kinds(plan)),
        _age(price), engine,
    )  # fmt: skip


def _age(age: Age) -> str:
    """Date, age, what it is of, and its source."""
    return f"{age.as_of}, {age.age_days} days before planning ({short(age.what, 80)}; {short(age.source, 160)})"


def _call(plan: FleetPlan) -> Markup:
    number = len(plan.warnings)
    broken = sum(facts.broken(pool) for pool in plan.pools)
    more = f" Exceeded limits: {broken}." if broken else ""
    if not number:
        return Markup('<p class="call {}">No warnings.{}</p>').format("" if broken else "quiet", more)
    words = "1 warning" if number == 1 else f"{number} warnings"
    return Markup('<p class="call"><a href="#warnings">{}</a> to read before signing.{}</p>').format(words, more)


def warnings(plan: FleetPlan) -> Markup:
    """Guesses, stale prices, short samples."""
    if not plan.warnings:
        return Markup()
    lines = [Markup("<li>{}</li>").format(prose(warning)) for warning in plan.warnings]
    first, rest = lines[:WARNINGS_SHOWN], lines[WARNINGS_SHOWN:]
    more = folded(f"{len(rest)} more", _list(rest)) if rest else Markup()
    return section("warnings", f"Warnings ({len(lines)})", _list(first), more)


def _list(lines: list[Markup]) -> Markup:
    return Markup('<ul class="warnings">{}</ul>').format(join(lines, "\n"))
