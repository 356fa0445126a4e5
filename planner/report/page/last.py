"""Last quarter: the bridge from its cost to this one, and what was planned against what happened."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from markupsafe import Markup

from planner.report.page.bars import track
from planner.report.page.markup import Col, folded, join, prose, remark, section, short, table
from planner.report.page.numbers import count, decimal, rate, share, usd, usd_change
from planner.study import Actuals, LastQuarter, ModelActual, Study


def last_quarter(study: Study) -> Markup:
    """The section, where the study has a last quarter."""
    if study.last is None:
        return Markup()
    last = study.last
    lead = f"Against {short(last.plan.title)}, run {short(last.plan.run_id)}: {short(last.path)}"
    parts = [_bridge(last, study)]
    if last.actuals is not None:
        parts.append(_actuals(last.actuals))
    return section("last", "Last quarter", *parts, lead=lead)


def _bridge(last: LastQuarter, study: Study) -> Markup:
    from planner.compare.bridge import bridge  # noqa: PLC0415  # only a study with a last quarter needs it

    found = bridge(last.plan, study.plan)
    steps = [(step.name, step.amount, step.meaning) for step in found.steps]
    made = waterfall(found.last.amount, found.now.amount, steps, short(found.currency, 12))
    return join([made, *map(remark, found.notes)], "\n")


def waterfall(before: float, after: float, steps: Sequence[tuple[str, float, str]], currency: str) -> Markup:
    """Cost before, every step from the running total on, cost after.

    Parameters
    ----------
    steps
        Name, amount and meaning; ``before`` and the amounts add up to ``after``.
    """
    levels = [*itertools.accumulate((amount for _, amount, _ in steps), initial=before)]
    top = max(*levels, after, 0.0) or 1.0
    rows: list[tuple[str, ...]] = [("Last quarter", track([(0, before / top, "d")]), usd(before), "")]
    for (name, amount, meaning), (start, end) in zip(steps, itertools.pairwise(levels), strict=True):
        bar = track([(start / top, end / top, "c" if amount > 0 else "g")] if amount else [])
        rows.append((short(name), bar, usd_change(amount), prose(meaning)))
    rows.append(("This quarter", track([(0, after / top, "d")]), usd(after), ""))
    columns = (Col("Step"), Col("From last to this", "plot"), Col(currency, "n"), Col("Meaning", "w"))
    return table("Bridge from last quarter's cost to this one's", columns, rows)


def _actuals(actuals: Actuals) -> Markup:
    columns = (
        Col("Model"), Col("Hours", "n"), Col("Requests", "n"), Col("Input, M", "n"), Col("Output, M", "n"),
        Col("Peak, 1/s", "n"), Col("Refused", "n"), Col("Overflow", "n"), Col("USD per M tokens", "n"),
    )  # fmt: skip
    caption = (
        f"Planned against actual, {actuals.start:%Y-%m-%d %H:%M} to {actuals.end:%Y-%m-%d %H:%M} (end exclusive); "
        "what happened stands under what was planned"
    )
    notes = [*actuals.notes, *(f"{one.model}: {one.note}" for one in actuals.models if one.note)]
    parts = [table(caption, columns, [_actual_row(one) for one in actuals.models])]
    if notes:
        parts.append(Markup("<ul>{}</ul>").format(join(Markup("<li>{}</li>").format(prose(note)) for note in notes)))
    files = [(short(path), Markup("<code>{}</code>").format(short(digest))) for path, digest in actuals.files]
    parts.append(folded("Logs that were read", table("Logs", (Col("File"), Col("sha256", "w")), files)))
    return join(parts, "\n")


def _actual_row(one: ModelActual) -> tuple[str, ...]:
    unknown = "not known"
    return (
        short(one.model),
        count(one.hours),
        _both(count(one.planned_requests), count(one.actual_requests)),
        _both(decimal(one.planned_input_mtok), decimal(one.actual_input_mtok)),
        _both(decimal(one.planned_output_mtok), decimal(one.actual_output_mtok)),
        _both(decimal(one.planned_peak_per_s), decimal(one.actual_peak_per_s)),
        _both(share(one.planned_refused_share), share(one.actual_refused_share)),
        _both(f"{share(one.allowed_overflow)} allowed",
              unknown if one.actual_overflow is None else share(one.actual_overflow)),
        _both(rate(one.planned_usd_per_mtok), rate(one.actual_usd_per_mtok)),
    )  # fmt: skip


def _both(planned: str, actual: str) -> Markup:
    return Markup('<span class="quiet">{}</span><br>{}').format(planned, actual)
