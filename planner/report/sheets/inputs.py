"""Inputs: every figure that somebody can change or must own, with its source; beside it the value as solved.

Yellow values may be edited. Refused shares are decided by the optimiser and locked; so are the constants below the
table (tolerances of the checks, conversions of units): no edit may disarm a check.
"""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from dataclasses import dataclass, replace

from planner import units
from planner.errors import InputError, Problem
from planner.plan import Assumption, FleetPlan
from planner.report import facts
from planner.report.scenarios import IN_SCENARIO, headers, several
from planner.report.sheets.input_ids import (
    CREATED,
    EXACT,
    HOURS,
    HOURS_PER_YEAR,
    PRICE_AGE,
    SECONDS_PER_HOUR,
    TOKENS_PER_MTOK,
    TOLERANCE,
    TOLERANCE_USD,
    demand_id,
    tail_id,
    work_id,
)
from planner.report.sheets.input_rows import PRICE_GROUP, InputRow, agree, made_rows
from planner.report.style import AMBER, COUNT, DATE, GENERAL, SHARE_FINE, USD_CENTS, Kind
from planner.report.table import FIRST_TABLE_ROW, Column, Formula, Sheet, Table, Value
from planner.report.view import View
from planner.study import Study

_DIGITS = ((100, "#,##0.0"), (10, "#,##0.00"), (0, "#,##0.00##"))
"""Formats of fractions from a size upwards."""
VALUE, LIVE, AS_SOLVED = "Value", "Live", "As solved"
_URL = re.compile(r"https?://\S+$")
UNDATED = "undated"
"""Stands in place of a source date that the plan does not know."""

CONSTANTS: tuple[tuple[str, str, str, float, str], ...] = (
    (TOLERANCE_USD, "Tolerance of checks on money: one cent", "USD", 0.01, "0.00"),
    (TOLERANCE, "Tolerance of other sums and shares: rounding of binary numbers", "as checked", 1e-6, "0.000000"),
    (EXACT, "Tolerance of counts: none", "as checked", 0, "0"),
    (SECONDS_PER_HOUR, "Seconds in an hour", "s/h", units.SECONDS_PER_HOUR, COUNT),
    (TOKENS_PER_MTOK, "Tokens in a million", "tokens/M", units.TOKENS_PER_MTOK, COUNT),
    (HOURS_PER_YEAR, "Hours in a year", "h/year", units.years_to_hours(1), COUNT),
)
"""Id, text, unit, value and number format."""


def input_rows(plan: FleetPlan) -> tuple[InputRow, ...]:
    """All inputs: what the formulas read first, then the assumptions of the plan.

    Raises
    ------
    InputError
        If two rows have the same id (an offer bought twice, an assumption named like a row of this sheet).
    """
    rows = _with_assumptions(plan, made_rows(plan))
    doubles = [name for name, count in Counter(row.id for row in rows).items() if count > 1]
    if doubles:
        raise InputError([Problem("plan", "two inputs have the same id", "Rename one", field=name) for name in doubles])
    return rows


@dataclass(frozen=True)
class Shared:
    """A row of the sheet: an input, in each scenario that has it."""

    rows: tuple[InputRow | None, ...]

    @property
    def shown(self) -> InputRow:
        """The row of the first scenario that has it: its id, words, source and owner."""
        return next(row for row in self.rows if row is not None)


def shared_rows(study: Study) -> tuple[Shared, ...]:
    """Inputs of all scenarios, each once: the first scenario's, then those that only others have, in its group."""
    found = [{row.id: row for row in input_rows(scenario.plan)} for scenario in study.scenarios]
    ids = dict.fromkeys(name for rows in found for name in rows)
    made = [Shared(tuple(rows.get(name) for rows in found)) for name in ids]
    groups = {group: n for n, group in enumerate(dict.fromkeys(item.shown.group for item in made))}
    return tuple(sorted(made, key=lambda item: groups[item.shown.group])) if several(study) else tuple(made)


def input_addresses(view: View) -> dict[str, str]:
    """Address of the live value of each input, and of each constant."""
    study = view.study
    rows = shared_rows(study)
    table = _table(study, rows)
    constants = _constants(table.bottom + 3)
    live = LIVE if several(study) else VALUE
    return {
        **{row.shown.id: table.address(live, i) for i, row in enumerate(rows)},
        **{row[0]: constants.address(VALUE, i) for i, row in enumerate(CONSTANTS)},
    }


def undated(view: View) -> int:
    """Inputs whose source has no date."""
    return sum(row.shown.date is None for row in shared_rows(view.study))


def _stated_as(plan: FleetPlan) -> dict[str, str]:
    """Id in the plan's assumptions of what backs a row of this sheet: its source, date, owner and note."""
    backed = {HOURS: "horizon_hours", PRICE_AGE: "max_price_age_days"}
    for pool in plan.pools:
        work = facts.margin(pool, "work share")
        if work:
            backed[work_id(work.limit)] = "work"
        backed |= {demand_id(pool.model, item): f"{item}_{pool.model}" for item in ("rate", "growth")}
        backed[demand_id(pool.name, "peak")] = f"peak_{pool.model}"
        backed[tail_id(pool)] = f"tail_{pool.model}"
    return backed


def _with_assumptions(plan: FleetPlan, rows: tuple[InputRow, ...]) -> tuple[InputRow, ...]:
    """The rows, then the plan's assumptions that no row shows already."""
    stated = {assumption.id: assumption for assumption in plan.assumptions}
    values = {row.id: row.value for row in rows}
    names = {
        row: name
        for row, name in _stated_as(plan).items()
        if name in stated and row in values and agree(values[row], stated[name].value)
    }
    lengths = {
        demand_id(pool.name, item): stated.get(f"lengths_{pool.model}")
        for pool in plan.pools
        for item in ("mean_prompt", "mean_output")
    }
    merged = [_measured(_backed(row, stated.get(names.get(row.id, ""))), lengths.get(row.id)) for row in rows]
    shown = {names[row.id] for row in rows if row.id in names}
    rest = [
        InputRow(a.id, "Assumption", a.assumption, a.unit, a.value, a.source, a.source_date, a.owner, a.note)
        for a in plan.assumptions
        if a.id not in shown
    ]
    return (*merged, *rest)


def _backed(row: InputRow, stated: Assumption | None) -> InputRow:
    if stated is None:
        return row
    note = stated.note or row.note
    return replace(row, source=stated.source, date=stated.source_date, owner=stated.owner, note=note)


def _measured(row: InputRow, lengths: Assumption | None) -> InputRow:
    """A mean length, with the date and owner of the assumption on the length law."""
    return row if lengths is None else replace(row, date=lengths.source_date, owner=lengths.owner)


def number_format(row: InputRow) -> str:
    """How the value of an input is shown: no more digits than its size makes worth reading."""
    if isinstance(row.value, dt.date):
        return DATE
    if isinstance(row.value, str):
        return GENERAL
    if row.unit.startswith("share"):
        return SHARE_FINE
    if row.unit.startswith("USD"):
        return USD_CENTS if round(row.value, 2) == row.value else "#,##0.0000"
    if row.value == int(row.value):
        return COUNT
    return next(number for least, number in _DIGITS if abs(row.value) >= least)


def _table(study: Study, shared: tuple[Shared, ...]) -> Table:
    rows = tuple(row.shown for row in shared)
    numbers = tuple(number_format(row) for row in rows)
    columns = (
        Column("Id", 31, tuple(row.id for row in rows)),
        Column("Group", 11, tuple(row.group for row in rows)),
        Column("Assumption", 43, tuple(row.text for row in rows)),
        Column("Unit", 15, tuple(row.unit for row in rows)),
        *_value_columns(study, shared, numbers),
        *_source_columns(rows),
        Column("Source date", 12, tuple(row.date or UNDATED for row in rows), number=DATE),
        Column("Owner", 21, tuple(row.owner for row in rows)),
        Column(
            "Age, days",
            9,
            Formula(f'=IF(ISNUMBER([Source date]),<1>-[Source date],"{UNDATED}")', (CREATED,)),
            Kind.FORMULA,
            COUNT,
        ),
        Column(
            "Price too old (1/0)",
            10,
            Formula(f'=IF(AND([Group]="{PRICE_GROUP}",[Age, days]><1>),1,0)', (PRICE_AGE,)),
            Kind.FORMULA,
        ),
        Column("Note", 25, tuple(row.note for row in rows)),
    )
    return Table("tblInputs", "Inputs", FIRST_TABLE_ROW, columns, len(rows))


def _value_columns(study: Study, shared: tuple[Shared, ...], numbers: tuple[str, ...]) -> tuple[Column, ...]:
    """Values that may be edited, the live one, those as solved, and whether any differs."""
    many = several(study)
    values = headers(study, VALUE) if many else (VALUE,)
    solved = headers(study, AS_SOLVED) if many else (AS_SOLVED,)

    def of(n: int) -> tuple[Value, ...]:
        return tuple(None if (row := item.rows[n]) is None else row.value for item in shared)

    def kinds(n: int) -> tuple[Kind, ...]:
        return tuple(Kind.TEXT if (row := item.rows[n]) is None else row.kind for item in shared)

    live = Formula(f"=INDEX([{values[0]}]:[{values[-1]}],{IN_SCENARIO})")
    same = [f"EXACT([{value}],[{was}])" for value, was in zip(values, solved, strict=True)]
    counts = f"COUNT([{values[0]}]:[{values[-1]}])=COUNT([{solved[0]}]:[{solved[-1]}])"
    return (
        *(Column(header, 13, of(n), kinds(n), numbers) for n, header in enumerate(values)),
        *([Column(LIVE, 13, live, Kind.FORMULA, numbers)] if many else []),
        *(Column(header, 13, of(n), Kind.RESULT, numbers) for n, header in enumerate(solved)),
        Column("Changed (1/0)", 10, Formula(f"=IF(AND({','.join((*same, counts))}),0,1)"), Kind.FORMULA),
    )


def _source_columns(rows: tuple[InputRow, ...]) -> tuple[Column, ...]:
    """Where a value is from: in words, and the address where the source is one."""
    links = tuple(bool(_URL.match(row.source)) for row in rows)
    words = tuple(_site(row.source) if link else row.source for row, link in zip(rows, links, strict=True))
    urls = tuple(row.source if link else "" for row, link in zip(rows, links, strict=True))
    return Column("Source", 24, words), Column("Source url", 30, urls)


def _site(url: str) -> str:
    """The site that an address is of."""
    return url.split("://", 1)[1].split("/", 1)[0]


def _constants(top: int) -> Table:
    ids, texts, unit_names, values, numbers = zip(*CONSTANTS, strict=True)
    columns = (
        Column("Id", 31, ids),
        Column("Group", 11, tuple("Constant" for _ in ids)),
        Column("Constant", 43, texts),
        Column("Unit", 15, unit_names),
        Column(VALUE, 13, values, Kind.CONSTANT, numbers),
    )
    return Table("tblConstants", "Inputs", top, columns, len(ids), "Constants (locked)", workings=True)


def build(view: View) -> Sheet:
    """The Inputs sheet; it is the same in every scenario."""
    table = _table(view.study, shared_rows(view.study))
    return Sheet(
        "Inputs",
        "Inputs and assumptions",
        "Every figure that the plan rests on, with unit, source, date and owner. Edit only yellow cells; "
        "the plan itself is not solved again by an edit.",
        "Prices, demand, limits and assumptions with source and owner",
        AMBER,
        (table, _constants(table.bottom + 3)),
        wide=True,
        pages_wide=2 if several(view.study) else 1,
    )
