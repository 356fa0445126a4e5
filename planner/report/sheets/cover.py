"""Cover: which plan this is, whether it holds, how to read it, and who signs it."""

from __future__ import annotations

from dataclasses import dataclass

from openpyxl.styles import Border, Side
from openpyxl.worksheet.hyperlink import Hyperlink
from openpyxl.worksheet.worksheet import Worksheet

from planner.plan import FleetPlan
from planner.report import facts, style
from planner.report.scenarios import several
from planner.report.sheets import input_ids, replay, runs
from planner.report.sheets.measure import COST, SCENARIO
from planner.report.style import COUNT, DATE, GENERAL, MTOK, NAVY, SHARE_FINE, USD, USD_CENTS, USD_RATE, Kind
from planner.report.table import FIRST_TABLE_ROW, Book, Column, Formula, Sheet, Table, Value
from planner.report.view import View

OBJECTIVE = "solve/objective_usd"
BOUND = "solve/bound_usd"
GAP = "solve/gap"
STATUS = "solve/status"
BY_USE = "solve/usd_per_mtok_by_use"
INPUT_UNIT = "solve/usd_per_mtok_input"
OUTPUT_UNIT = "solve/usd_per_mtok_output"
GPU_HOURS = "solve/gpu_hours"
AFTER = "solve/liability_after_usd"
GPUS_BOUGHT = "solve/gpus_bought"
GPUS_USED = "solve/gpus_used"
SERVED = "solve/served_mtok"
OLDEST = "run/oldest_price"
AGE = "run/oldest_price_age_days"
OLDEST_FACT = "run/oldest_engine_fact"
FACT_AGE = "run/oldest_engine_fact_age_days"

_DIGEST = "over the lines role TAB file TAB sha256 of sheet Files"
_COLUMNS = "EFG"
_RIGHT = {"D": 2, "E": 14, "F": 30, "G": 27}
"""Columns right of the record, and their widths."""
_SIGNERS = ("Prepared by", "Reviewed by", "Approved by")


@dataclass(frozen=True)
class Fact:
    """One line of the record of the run."""

    id: str
    text: str
    value: Value
    note: str = ""
    kind: Kind = Kind.RESULT
    number: str = GENERAL


def run_facts(view: View) -> tuple[Fact, ...]:
    """The record of the run."""
    plan, text = view.plan, Kind.TEXT
    return (
        Fact("run/status", "Status", "DRAFT", "final once signed", text),
        Fact("run/title", "Plan", plan.title, "", text),
        *_scenario(view),
        Fact("run/horizon", "Horizon", f"{plan.horizon_start} to {plan.horizon_end}", "the end day is not part of it",
             text),
        Fact("run/owner", "Owner", plan.owner, "", text),
        Fact("run/version", "Version", f"planner {plan.planner_version}", "the program that made the plan", text),
        Fact("run/id", "Run", plan.run_id, "digest over inputs and settings", text),
        Fact("run/at", "Generated", f"{facts.created_utc(plan):%Y-%m-%d %H:%M} UTC", "", text),
        Fact("run/digest", "Inputs, sha256", facts.inputs_sha256(plan), _DIGEST, text),
        *_currency(plan),
        *_prices(plan),
        *_engine_fact(plan),
        *_solve_facts(view),
        _replayed(view),
    )  # fmt: skip


def _scenario(view: View) -> tuple[Fact, ...]:
    """The scenario that is shown; nothing where there is one only."""
    if not several(view.study):
        return ()
    shown = Formula("=<1>", (SCENARIO,))
    return (Fact("run/scenario", "Scenario shown", shown, "selected on sheet Summary", Kind.LINK),)


def _currency(plan: FleetPlan) -> tuple[Fact, ...]:
    """The currency, and the cost in the one in which the plan is reported."""
    basis = Fact("run/currency", "Currency", plan.currency, "nominal, no inflation applied; tax excluded", Kind.TEXT)
    if plan.reporting is None:
        return (basis,)
    currency = plan.reporting.currency
    note = "at the dated rate on sheet Inputs; tax excluded"
    return (
        basis,
        Fact("run/rate", f"{currency} for one USD", Formula("=<1>", (input_ids.FX,)), plan.reporting.source, Kind.LINK,
             USD_RATE),
        Fact("run/reported", f"Cost, {currency}", Formula("=<1>*<2>", (COST, input_ids.FX)), note, Kind.LINK, USD),
    )  # fmt: skip


def _prices(plan: FleetPlan) -> tuple[Fact, ...]:
    """What kind of prices, and how old."""
    return (
        Fact(
            "run/prices",
            "Prices",
            facts.price_terms(plan),
            "of the term bought; other kinds of price only where the request names them",
            Kind.TEXT,
        ),
        Fact(
            OLDEST,
            "Oldest price paid",
            Formula("=MIN(tblCost[Price as of])"),
            "day of the source; all dates stand on sheet Inputs",
            Kind.LINK,
            DATE,
        ),
        Fact(
            AGE,
            "Its age when planned, days",
            Formula("=<1>-<2>", (input_ids.CREATED, OLDEST)),
            "checked against the limit on sheet Inputs",
            Kind.LINK,
            COUNT,
        ),
    )


def _engine_fact(plan: FleetPlan) -> tuple[Fact, ...]:
    """The oldest engine fact and its age; nothing where the plan does not say."""
    fact = facts.oldest_engine_fact(plan)
    if fact is None:
        return ()
    age = Formula("=<1>-<2>", (input_ids.CREATED, OLDEST_FACT))
    return (
        Fact(OLDEST_FACT, "Oldest engine fact", fact.as_of, f"{fact.what}: {fact.source}", Kind.RESULT, DATE),
        Fact(FACT_AGE, "Its age when planned, days", age, "of the facts that hold for the release", Kind.LINK, COUNT),
    )


def _solve_facts(view: View) -> tuple[Fact, ...]:
    """What the solver proved, and the plan's own figures, which the checks compare with."""
    plan, solve = view.plan, view.plan.solve
    bought, used = sum(p.gpus_bought for p in plan.purchases), sum(pool.gpus for pool in plan.pools)
    gap = Formula("=IF(<1>>0,(<1>-<2>)/<1>,0)", (OBJECTIVE, BOUND))
    return (
        Fact(
            "solve/by",
            "Solver",
            f"{solve.solver} {solve.solver_version}",
            f"threads {solve.threads}, seed {solve.seed}",
        ),
        Fact(STATUS, "Solver status", str(solve.status), "optimal: proven within the gap target"),
        Fact(OBJECTIVE, "Objective, USD (solver)", runs.of_shown(view, "Objective, USD"),
             "solver result: cost of the horizon", Kind.LINK, USD_CENTS),
        Fact(BOUND, "Proven bound, USD (solver)", runs.of_shown(view, "Bound, USD"), f"solver result: {facts.CLAIM}",
             Kind.LINK, USD_CENTS),
        Fact(GAP, "Gap to the bound", gap, "(objective - bound) / objective", Kind.FORMULA, SHARE_FINE),
        Fact(GPUS_BOUGHT, "GPUs bought", bought, "solver result", number=COUNT),
        Fact(GPUS_USED, "GPUs used by pools", used, "solver result", number=COUNT),
        Fact(SERVED, "Served, M tokens", _served(plan), "solver result, input and output", number=MTOK),
        Fact(GPU_HOURS, "GPU-hours paid", plan.totals.gpu_hours, "solver result", number=COUNT),
        Fact(BY_USE, "USD per 1M by use", plan.totals.usd_per_mtok_by_use, "solver result", number=USD_RATE),
        Fact(INPUT_UNIT, "USD per 1M input", plan.totals.usd_per_mtok_input, "solver result", number=USD_RATE),
        Fact(OUTPUT_UNIT, "USD per 1M output", plan.totals.usd_per_mtok_output, "solver result", number=USD_RATE),
        Fact(
            AFTER,
            "USD after the horizon",
            plan.totals.liability_after_usd,
            "solver result: what new contracts still cost then",
            number=USD_CENTS,
        ),
    )  # fmt: skip


def _replayed(view: View) -> Fact:
    """Whether the plan was replayed, and what came out."""
    if view.study.replay is None:
        return Fact("run/replay", "Replay", replay.cover_value(view), "of real requests: planner replay", Kind.TEXT)
    return Fact("run/replay", "Replay", replay.cover_value(view), "of real requests; see sheet Replay", Kind.LINK)


def _served(plan: FleetPlan) -> float:
    return plan.totals.served_input_mtok + plan.totals.served_output_mtok


def _run_table(view: View) -> Table:
    rows = run_facts(view)
    columns = (
        Column("Item", 29, tuple(fact.text for fact in rows)),
        Column(
            "Value",
            36,
            tuple(fact.value for fact in rows),
            tuple(fact.kind for fact in rows),
            tuple(fact.number for fact in rows),
        ),
        Column("Note", 42, tuple(fact.note for fact in rows)),
    )
    return Table("tblRun", "Cover", FIRST_TABLE_ROW, columns, len(rows))


def addresses(view: View) -> dict[str, str]:
    """Addresses of the record's values."""
    table = _run_table(view)
    return {fact.id: table.address("Value", i) for i, fact in enumerate(run_facts(view))}


def build(view: View) -> Sheet:
    """The Cover sheet: the record on the left; sign-off, colours and index on the right."""
    plan, run = view.plan, _run_table(view)
    colours = FIRST_TABLE_ROW + len(_SIGNERS) + 2
    index = colours + len(style.MEANING) + 2

    def finish(sheet: Worksheet, book: Book) -> None:
        sheet["B3"] = "=Summary!$B$3"
        sheet["B3"].font, sheet["B3"].alignment = style.BIG, style.HEADLINE_ALIGN
        for letter, width in _RIGHT.items():
            sheet.column_dimensions[letter].width = width
        _sign_off(sheet, FIRST_TABLE_ROW)
        _colours(sheet, colours)
        _index(sheet, index, book)

    return Sheet(
        "Cover",
        f"Fleet plan: {plan.title}",
        "Which GPUs to rent for self-hosted language models, what they cost, and why. All money in USD.",
        "Which plan this is, whether it holds, who signs it",
        NAVY,
        (run,),
        extra_columns=len(_RIGHT),
        finish=finish,
    )


def _header(sheet: Worksheet, row: int, texts: tuple[str, str, str]) -> None:
    for column, text in zip(_COLUMNS, texts, strict=True):
        cell = sheet[f"{column}{row}"]
        cell.value = text or None
        cell.font, cell.fill, cell.alignment = style.HEADER, style.HEADER_FILL, style.HEADER_TEXT_ALIGN


def _text(sheet: Worksheet, place: str, text: str) -> None:
    """Text that may run over the empty cell to its right."""
    cell = sheet[place]
    cell.value, cell.font, cell.alignment = text, style.FONTS[Kind.TEXT], style.HEADLINE_ALIGN


def _sign_off(sheet: Worksheet, top: int) -> None:
    _header(sheet, top, ("Sign-off", "Name", "Date and signature"))
    line = Border(bottom=Side(style="thin", color="404040"))
    for row, role in enumerate(_SIGNERS, start=top + 1):
        _text(sheet, f"{_COLUMNS[0]}{row}", role)
        for column in _COLUMNS[1:]:
            cell = sheet[f"{column}{row}"]
            cell.border, cell.fill, cell.font = line, style.FILLS[Kind.INPUT], style.FONTS[Kind.INPUT]
            cell.protection = style.UNLOCKED


def _colours(sheet: Worksheet, top: int) -> None:
    _header(sheet, top, ("Looks like", "Meaning", ""))
    for row, (kind, meaning) in enumerate(style.MEANING.items(), start=top + 1):
        cell = sheet[f"{_COLUMNS[0]}{row}"]
        cell.value, cell.font, cell.alignment = "1,234", style.FONTS[kind], style.NUMBER_ALIGN
        if kind in style.FILLS:
            cell.fill = style.FILLS[kind]
        _text(sheet, f"{_COLUMNS[1]}{row}", meaning)


def _index(sheet: Worksheet, top: int, book: Book) -> None:
    _header(sheet, top, ("Sheet", "Holds", ""))
    for row, item in enumerate(book.sheets, start=top + 1):
        link = sheet[f"{_COLUMNS[0]}{row}"]
        link.value = item.name
        link.hyperlink = Hyperlink(ref=link.coordinate, location=f"'{item.name}'!A1", display=item.name)
        link.font, link.alignment = style.HYPERLINK, style.TEXT_ALIGN
        _text(sheet, f"{_COLUMNS[1]}{row}", item.holds)
