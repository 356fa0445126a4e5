"""Bridge: from last quarter's cost to this quarter's, in six steps of a fixed order, all of them live formulas.

Definitions are those of `planner.compare.bridge`; the sheet repeats them in words beside each step and term.
"""

from __future__ import annotations

from planner.compare.bridge import COMMITMENTS, EFFICIENCY, FX, MEANINGS, MIX, PRICE, USD, VOLUME, exchange, gpu_types
from planner.plan import FleetPlan
from planner.report.check import Check, none, same_usd
from planner.report.sheets import last_quarter
from planner.report.sheets.input_ids import FX as FX_RATE
from planner.report.sheets.input_ids import HOURS
from planner.report.sheets.waterfall import ALT, CHART_COLUMNS, CHART_ROWS, add_waterfall
from planner.report.style import COUNT, MTOK, NAVY, USD_CENTS, USD_RATE, Kind
from planner.report.style import USD as USD_WHOLE
from planner.report.table import FIRST_TABLE_ROW, Column, Formula, Sheet, Table, Value, stack
from planner.report.view import View
from planner.study import LastQuarter

NONE = "There is no plan of last quarter: name its plan.json in table last_quarter of the request"
_TOKENS, _GPU_HOURS, _IN_USE, _RATE, _UNUSED, _COST, _NEEDED, _AT_LAST, _PER_USD, _HORIZON = range(10)
"""Rows of tblTerms."""
_LAST_ROW = 1 + len(MEANINGS)
"""Row of tblBridge that holds this quarter's cost."""


def build(view: View) -> Sheet:
    """The Bridge sheet."""
    last = view.study.last
    title, holds = "Bridge: from last quarter's cost to this quarter's", "Why the cost is another than last quarter's"
    if last is None:
        purpose = "Last quarter's cost + volume + efficiency + mix + FX + price + commitments = this quarter's cost."
        return Sheet("Bridge", title, purpose, holds, NAVY, (_no_last(),), wide=True)
    currency, _, notes = exchange(last.plan, view.plan)
    purpose = (
        f"Nominal {currency}, tax excluded. The order of the steps is fixed; rates are effective ones, of GPU-hours on "
        "instances that run; contracts that do not run are a step of their own."
    )
    return Sheet(
        "Bridge",
        title,
        " ".join((purpose, *(f"{note}." for note in notes))),
        holds,
        NAVY,
        stack(
            [
                lambda top: _steps(view, last, top),
                lambda top: _terms(view, last, top),
                lambda top: _gpus(view, last, top),
                lambda top: _lots(view.plan, top),
                lambda top: last_quarter.last_table(last, view.plan, top),
            ]
        ),
        wide=True,
        extra_columns=CHART_COLUMNS,
        least_rows=FIRST_TABLE_ROW + CHART_ROWS,
        finish=lambda sheet, book: add_waterfall(sheet, book.tables["tblBridge"]),
        charts=ALT,
    )


def checks(view: View) -> tuple[Check, ...]:
    """What must hold between the quarters; nothing without last quarter's plan."""
    last = view.study.last
    if last is None:
        return ()
    currency = exchange(last.plan, view.plan)[0]
    steps = f"=SUM(tblBridge[{currency}])-tblBridge[{currency}]@{_LAST_ROW}"
    return (
        same_usd(
            "Bridge closes: last quarter's cost and all steps are this quarter's",
            Formula(steps), Formula(f"=tblBridge[{currency}]@{_LAST_ROW}"), "Bridge, Cost",
        ),
        same_usd(
            "Last quarter's hours at their rates, and unused, are its issued cost",
            Formula(f"={_then(_COST)}"), Formula("=tblLast[As issued]@0"), "Bridge",
        ),
        none("Last quarter's figures that differ from the issued file", f"=SUM(tblLast[{last_quarter.CHANGED}])",
             "Bridge"),
    )  # fmt: skip


def _then(row: int) -> str:
    return f"tblTerms[Last quarter]@{row}"


def _now(row: int) -> str:
    return f"tblTerms[This quarter]@{row}"


def _no_last() -> Table:
    columns = _step_columns(USD, ("(none)",), (0,), ((0, 0, 0),), (NONE,))
    return Table("tblBridge", "Bridge", FIRST_TABLE_ROW, columns, 1)


def _step_columns(
    currency: str, names: tuple[str, ...], amounts: tuple[Value, ...], bars: tuple[tuple[Value, ...], ...],
    meanings: tuple[str, ...],
) -> tuple[Column, ...]:  # fmt: skip
    base, up, down = zip(*bars, strict=True)
    return (
        Column("Step", 32, names),
        Column(currency, 17, amounts, Kind.FORMULA, USD_WHOLE),
        Column("Base", 15, base, Kind.FORMULA, USD_WHOLE),
        Column("Up", 15, up, Kind.FORMULA, USD_WHOLE),
        Column("Down", 15, down, Kind.FORMULA, USD_WHOLE),
        Column("Meaning", 54, meanings, left=True),
        Column("Label", 22, Formula(f'=[Step]&" "&TEXT([{currency}],"#,##0")'), Kind.FORMULA, left=True),
    )


def _steps(view: View, last: LastQuarter, top: int) -> Table:
    """Last quarter, the six steps, this quarter; base, up and down are the bars of the waterfall, cut at 0."""
    currency = exchange(last.plan, view.plan)[0]
    e0, e1 = _then(_PER_USD), _now(_PER_USD)
    amounts = (
        Formula(f"={last_quarter.single(last_quarter.COST)}*{e0}"),
        *(Formula(_STEPS[name]) for name in MEANINGS),
        Formula(f"=tblCost[Cost, USD]#total*{e1}"),
    )
    whole = (0, Formula(f"=MAX(0,[{currency}])"), 0)
    bars = (whole, *(_bar(currency, i) for i in range(1, _LAST_ROW)), whole)
    then, now = last.plan, view.plan
    meanings = (
        f"Cost of plan {then.run_id}, {then.horizon_start} to {then.horizon_end}, {then.horizon_hours:,.0f} h",
        *MEANINGS.values(),
        f"Cost of plan {now.run_id}, {now.horizon_start} to {now.horizon_end}, {now.horizon_hours:,.0f} h",
    )
    columns = _step_columns(currency, ("Last quarter", *MEANINGS, "This quarter"), amounts, bars, meanings)
    return Table("tblBridge", "Bridge", top, columns, 1 + _LAST_ROW)


_STEPS = {
    VOLUME: f"={_then(_PER_USD)}*({_now(_NEEDED)}-{_then(_GPU_HOURS)})*{_then(_RATE)}",
    EFFICIENCY: f"={_then(_PER_USD)}*({_now(_GPU_HOURS)}-{_now(_NEEDED)})*{_then(_RATE)}",
    MIX: f"={_then(_PER_USD)}*({_now(_AT_LAST)}-{_now(_GPU_HOURS)}*{_then(_RATE)})",
    FX: f"=({_now(_PER_USD)}-{_then(_PER_USD)})*({_now(_AT_LAST)}+{_then(_UNUSED)})",
    PRICE: f"={_now(_PER_USD)}*({_now(_IN_USE)}-{_now(_AT_LAST)})",
    COMMITMENTS: f"={_now(_PER_USD)}*({_now(_UNUSED)}-{_then(_UNUSED)})",
}


def _bar(currency: str, i: int) -> tuple[Value, ...]:
    """Base, up and down of step ``i``: from the level before it to the level after it, never below 0."""
    before, after = (f"SUM(tblBridge[{currency}]@0:tblBridge[{currency}]@{n})" for n in (i - 1, i))
    return (
        Formula(f"=MAX(0,MIN({before},{after}))"),
        Formula(f"=MAX(0,MAX(0,{after})-MAX(0,{before}))"),
        Formula(f"=MAX(0,MAX(0,{before})-MAX(0,{after}))"),
    )


def _terms(view: View, last: LastQuarter, top: int) -> Table:
    """The letters of the definitions, for both quarters."""
    currency = exchange(last.plan, view.plan)[0]
    e1 = 1 if currency == USD else Formula("=<1>", (FX_RATE,))
    needed = f"IF({_then(_TOKENS)}>0,{_now(_TOKENS)}*{_then(_GPU_HOURS)}/{_then(_TOKENS)},{_then(_GPU_HOURS)})"
    hours, rate, at_last = "tblTypes[Hours, {}]", "tblTypes[USD/h, last]", "tblTypes[At last rates]"
    rows: tuple[tuple[str, str, Value, Value, str, str], ...] = (
        ("M tokens served", "Q", _last(last_quarter.TOKENS), _f("tblPlan[Served, M tokens]#total"), MTOK,
         "Input and output tokens of all pools"),
        ("GPU-hours in use", "H", _f(f"SUM({hours.format('last')})"), _f(f"SUM({hours.format('this')})"), COUNT,
         "Of instances that run"),
        ("Cost in use, USD", "", _f(f"SUMPRODUCT({hours.format('last')},{rate})"),
         _f("SUM(tblTypes[In use, this quarter])"), USD_CENTS, "Sum of h x p by GPU type"),
        ("USD per GPU-hour in use", "p", _f(f"IF({_then(_GPU_HOURS)}>0,{_then(_IN_USE)}/{_then(_GPU_HOURS)},0)"),
         _f(f"IF({_now(_GPU_HOURS)}>0,{_now(_IN_USE)}/{_now(_GPU_HOURS)},0)"), USD_RATE, "Cost in use / H"),
        ("Unused commitments, USD", "U", _last(last_quarter.UNUSED), _f("SUM(tblUnused[Unused, USD])"), USD_CENTS,
         "Fixed cost of contracts and hardware in hours in which they do not run, as on sheet Commitments"),
        ("Cost, USD", "", _f(f"{_then(_IN_USE)}+{_then(_UNUSED)}"), _f(f"{_now(_IN_USE)}+{_now(_UNUSED)}"), USD_CENTS,
         "In use + unused"),
        ("GPU-hours needed", "N", _f(_then(_GPU_HOURS)), _f(needed), COUNT,
         "Q1 x H0 / Q0: for this quarter's tokens at last quarter's tokens per GPU-hour"),
        ("At last rates, USD", "M", _f(_then(_IN_USE)), _f(f"SUM({at_last})"), USD_CENTS, "Sum of h1 x p0 by GPU type"),
        ("Currency per USD", "e", _last(last_quarter.RATE), e1, USD_RATE, _exchange_words(view.plan, currency)),
        ("Hours of the horizon", "", _last(last_quarter.HORIZON), Formula("=<1>", (HOURS,)), COUNT,
         "Shown only: volume goes by tokens"),
    )  # fmt: skip
    texts, symbols, then, now, numbers, meanings = zip(*rows, strict=True)
    kinds = tuple(Kind.FORMULA if isinstance(value, Formula) else Kind.RESULT for value in now)
    columns = (
        Column("Term", 24, texts),
        Column("Last quarter", 17, then, Kind.FORMULA, numbers),
        Column("This quarter", 15, now, kinds, numbers),
        Column("Symbol", 15, symbols),
        Column("Unit", 15, tuple(_UNITS[row] for row in range(len(rows)))),
        Column("Meaning", 54, meanings),
    )
    return Table("tblTerms", "Bridge", top, columns, len(rows), "Terms of the steps", workings=True)


_UNITS = ("M tokens", "GPU-h", "USD", "USD/GPU-h", "USD", "USD", "GPU-h", "USD", "per USD", "h")


def _f(template: str) -> Formula:
    return Formula(f"={template}")


def _last(figure: str) -> Formula:
    return _f(last_quarter.single(figure))


def _exchange_words(plan: FleetPlan, currency: str) -> str:
    money = plan.reporting
    if money is None or money.currency != currency:
        return "The bridge is in USD"
    return f"{currency} for one USD: {money.source}, {money.source_date}"


def _gpus(view: View, last: LastQuarter, top: int) -> Table:
    """Hours and rates by GPU type, those of every scenario: the same rows whichever one is shown."""
    gpus = gpu_types(last.plan, *(scenario.plan for scenario in view.study.scenarios))
    compared = "IF([Hours, last]>0,[USD/h, last],[USD/h, this])"
    words = '=IF([Hours, last]>0,"last quarter\'s own rate","not in use last quarter: this quarter\'s rate")'

    def of_lots(header: str) -> Formula:
        return Formula(f"=SUMIFS(tblUnused[{header}],tblUnused[GPU],[GPU])")

    columns = (
        Column("GPU", 24, gpus),
        Column("Hours, last", 17, _f(last_quarter.of_gpu(last_quarter.GPU_HOURS, "GPU")), Kind.FORMULA, COUNT),
        Column("USD/h, last", 15, _f(last_quarter.of_gpu(last_quarter.GPU_RATE, "GPU")), Kind.FORMULA,
               USD_RATE),
        Column("Hours, this", 15, of_lots("GPU-hours in use"), Kind.FORMULA, COUNT),
        Column(
            "USD/h, this", 15,
            Formula("=IF([Hours, this]>0,[In use, this quarter]/[Hours, this],0)"), Kind.FORMULA,
            USD_RATE,
        ),
        Column("Last quarter's rate as compared", 54, Formula(words), Kind.FORMULA, left=True),
        Column("In use, this quarter", 14, of_lots("In use, USD"), Kind.FORMULA, USD_CENTS),
        Column("Compared rate", 14, _f(compared), Kind.FORMULA, USD_RATE),
        Column("At last rates", 14, Formula("=[Hours, this]*[Compared rate]"), Kind.FORMULA, USD_CENTS),
    )  # fmt: skip
    heading = "GPU-hours in use and their effective rate, by GPU type"
    return Table("tblTypes", "Bridge", top, columns, len(gpus), heading, workings=True)


def _lots(plan: FleetPlan, top: int) -> Table:
    """What is bought this quarter: what runs, what is held, and so what is unused."""
    bought = plan.purchases

    def of_lot(*headers: str) -> str:
        return "+".join(f"SUMIFS(tblCost[{header}],tblCost[Lot],[Lot])" for header in headers)

    held = "SUMIFS(tblCommit[HoursInQuarter],tblCommit[CommitmentDiscountId],[Lot])"
    columns = (
        Column("Lot", 32, tuple(p.offer_id for p in bought), Kind.RESULT, left=True),
        Column("GPU", 17, tuple(p.gpu for p in bought), Kind.RESULT, left=True),
        Column("Instance-hours in use", 15, _f(of_lot("Instance-hours in use")), Kind.LINK, COUNT),
        Column("Instance-hours held", 15, _f(held), Kind.LINK, COUNT),
        Column("Fixed cost, USD", 15, _f(of_lot("Reserved, USD", "In any case, USD")), Kind.LINK, USD_CENTS),
        Column("How it is had", 54, tuple(p.kind for p in bought), Kind.RESULT, left=True),
        Column(
            "Unused, USD", 14,
            Formula(
                "=[Fixed cost, USD]*IF([Instance-hours held]>0,1-[Instance-hours in use]/[Instance-hours held],1)"
            ), Kind.FORMULA, USD_CENTS,
        ),
        Column("In use, USD", 14, _f(f"{of_lot('Cost, USD')}-[Unused, USD]"), Kind.LINK, USD_CENTS),
        Column("GPU-hours in use", 14, _f(f"[Instance-hours in use]*{of_lot('GPUs per instance')}"), Kind.LINK, COUNT),
    )  # fmt: skip
    heading = "This quarter's lots: in use, and held without running"
    return Table("tblUnused", "Bridge", top, columns, len(bought), heading, workings=True)
