"""The week of every pool as a heat strip: a run of hours with one replica count is one piece."""

from __future__ import annotations

import itertools
import re

from markupsafe import Markup

from planner.plan import FleetPlan, Pool, ScheduleHours
from planner.report import facts
from planner.report.page.bars import meter
from planner.report.page.markup import Col, folded, join, section, short, table
from planner.report.page.numbers import count

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
WEEK_HOURS = 24 * len(DAYS)
ALL_HOURS = "all hours"
_PART = re.compile(r"([A-Za-z,-]+) (\d\d-\d\d(?:\+\d\d-\d\d)*)")
LEAST_INK = 0.3
"""Of the hours with the pool's fewest replicas; those with the most have 1."""

Week = tuple[int | None, ...]
"""Replicas in each hour from Monday 00:00; ``None`` where the timetable does not say."""


def week(plan: FleetPlan) -> Markup:
    """Replicas through the week, or by period where the plan has no timetable; nothing where one period is all."""
    if plan.schedule:
        return section("week", "Week", _strips(plan), _timetable(plan), lead=_lead(plan))
    if len(plan.periods) > 1:
        return section("week", "Periods", _by_period(plan), lead="Replicas of each pool; the plan has no timetable.")
    return Markup()


def _lead(plan: FleetPlan) -> str:
    more = " Holidays stand in the table." if any("holidays" in row.when for row in plan.schedule) else ""
    return f"Replicas that run in each hour of the week; pale: the pool's fewest, dark: its most.{more}"


def hours_of(when: str) -> frozenset[int]:
    """Hours of the week that a text such as ``Mon-Fri 08-18; Sat,Sun 10-14+16-18`` names; 0 is Monday 00:00.

    Raises
    ------
    ValueError
        If the text is of another form.
    """
    if when == ALL_HOURS:
        return frozenset(range(WEEK_HOURS))
    found: set[int] = set()
    for part in when.split("; "):
        match = _PART.fullmatch(part)
        if match is None:
            raise ValueError(f"{part!r:.60} names no hours")
        for day, span in itertools.product(_days(match[1]), match[2].split("+")):
            first, end = (int(hour) for hour in span.split("-"))
            found.update(range(24 * day + first, 24 * day + end))
    return frozenset(found)


def _days(names: str) -> list[int]:
    """Days of the week by number; holidays are none of them."""
    days: list[int] = []
    for name in names.split(","):
        first, _, last = name.partition("-")
        if name != "holidays":
            days += range(DAYS.index(first), DAYS.index(last or first) + 1)
    return days


def _weeks(rows: list[ScheduleHours]) -> dict[str, Week]:
    """The week of one pool, by the months that are told apart."""
    weeks: dict[str, Week] = {}
    for months, group in itertools.groupby(sorted(rows, key=lambda row: row.months), key=lambda row: row.months):
        hours: list[int | None] = [None] * WEEK_HOURS
        for row in group:
            for hour in hours_of(row.when):
                hours[hour] = row.replicas
        weeks[months] = tuple(hours)
    return weeks


def _strips(plan: FleetPlan) -> Markup:
    of_pool: dict[str, list[ScheduleHours]] = {}
    for row in plan.schedule:
        of_pool.setdefault(row.pool, []).append(row)
    rows = [
        line
        for i in facts.pools_by_cost(plan)
        for line in _pool_lines(plan.pools[i], of_pool.get(plan.pools[i].name, []))
    ]
    labels = join(Markup("<span>{}</span>").format(day) for day in DAYS)
    return Markup(
        '<div class="box"><table class="week"><caption>Heat strips, Monday 00:00 to Sunday 24:00</caption>\n<thead><tr>'
        '<th scope="col">Pool</th><th scope="col"><span class="days">{}</span></th>'
        '<th scope="col" class="n">Replicas</th></tr></thead>\n<tbody>{}</tbody></table></div>'
    ).format(labels, join(rows, "\n"))


def _pool_lines(pool: Pool, rows: list[ScheduleHours]) -> list[Markup]:
    try:
        weeks = _weeks(rows)
    except ValueError as error:
        return [_line(pool.name, Markup("<span>not drawn: {}</span>").format(error), facts.replicas_in_words(pool))]
    if not weeks:
        return [_line(pool.name, Markup("<span>no timetable</span>"), facts.replicas_in_words(pool))]
    counts = {n for hours in weeks.values() for n in hours if n is not None}
    ends = (min(counts, default=0), max(counts, default=0))
    return [
        _line(f"{pool.name} {months}".strip(), _strip(hours, ends), facts.replicas_in_words(pool))
        for months, hours in weeks.items()
    ]


def _line(name: str, strip: Markup, replicas: str) -> Markup:
    return Markup('<tr><th scope="row">{}</th><td>{}</td><td class="n">{}</td></tr>').format(
        short(name, 40), strip, replicas
    )


def _strip(hours: Week, ends: tuple[int, int]) -> Markup:
    runs = [(n, len(list(group))) for n, group in itertools.groupby(hours)]
    pieces = join(Markup('<i style="flex:{};opacity:{:.3g}"></i>').format(length, _ink(n, ends)) for n, length in runs)
    total: dict[int | None, int] = {}
    for n, length in runs:
        total[n] = total.get(n, 0) + length
    words = ", ".join(f"{count(n)} in {h} h" for n, h in sorted((n, h) for n, h in total.items() if n is not None))
    return Markup('<span class="strip" role="img" aria-label="Replicas: {}">{}</span>').format(words, pieces)


def _ink(replicas: int | None, ends: tuple[int, int]) -> float:
    """Opacity of a piece: rising from the fewest to the most replicas; 0 where the timetable says nothing."""
    fewest, most = ends
    if replicas is None:
        return 0.0
    return LEAST_INK + (1 - LEAST_INK) * ((replicas - fewest) / (most - fewest) if most > fewest else 1.0)


def _timetable(plan: FleetPlan) -> Markup:
    columns = (Col("Pool"), Col("Months or days"), Col("Hours", "w"), Col("Replicas", "n"), Col("Hours a week", "n"))
    rows = [
        (short(r.pool, 40), short(r.months) or "all", short(r.when, 400), count(r.replicas), f"{r.hours_a_week:.1f}")
        for r in plan.schedule
    ]
    return folded("Timetable", table("Timetable", columns, rows))


def _by_period(plan: FleetPlan) -> Markup:
    columns = (Col("Pool"), *(Col(f"{short(p.name, 40)}, {count(p.hours)} h", "meter") for p in plan.periods))
    rows: list[tuple[str, ...]] = []
    for i in facts.pools_by_cost(plan):
        counts = {period.period: period.replicas for period in plan.pools[i].periods}
        most = max(counts.values(), default=0)
        rows.append((short(plan.pools[i].name, 40), *(_period_cell(counts.get(p.name), most) for p in plan.periods)))
    return table("Replicas by period", columns, rows)


def _period_cell(replicas: int | None, most: int) -> Markup:
    if replicas is None:
        return Markup("not known")
    share = replicas / most if most else 0.0
    return Markup('{}<span class="figure">{}</span>').format(meter(share), count(replicas))
