"""Figures of last quarter's plan as it was issued, which the bridge and the change log compare with.

They are locked: nobody edits what was issued. A second column holds them once more, and a check compares both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from planner.compare.bridge import exchange
from planner.compare.changes import model_usd, unserved_usd
from planner.compare.spending import spending_of
from planner.plan import FleetPlan
from planner.report.sheets.cost import NO_POOL
from planner.report.style import COUNT, MTOK, USD_CENTS, USD_RATE, Kind
from planner.report.table import Column, Formula, Table
from planner.study import LastQuarter

COST, TOKENS, HORIZON, UNUSED, RATE = (
    "Cost, USD", "M tokens served", "Hours of the horizon", "Unused commitments, USD", "Currency per USD",
)  # fmt: skip
GPU_HOURS, GPU_RATE, MODEL = "GPU-hours in use", "USD per GPU-hour in use", "Cost of a model, USD"
SINGLE = (COST, TOKENS, HORIZON, UNUSED, RATE)
"""Figures that stand once, in the first rows."""
_UNITS = {
    COST: "USD", TOKENS: "M tokens", HORIZON: "h", UNUSED: "USD", RATE: "per USD", GPU_HOURS: "GPU-h",
    GPU_RATE: "USD/GPU-h", MODEL: "USD",
}  # fmt: skip
CHANGED = "Changed (1/0)"


@dataclass(frozen=True)
class _Row:
    figure: str
    of: str
    value: float
    number: str


def single(figure: str) -> str:
    """The cell of a figure that stands once, for a formula's template."""
    return f"tblLast[Value]@{SINGLE.index(figure)}"


def of_gpu(figure: str, name: str) -> str:
    """The figure of the GPU type that the column ``name`` holds, for a formula's template."""
    return f'SUMIFS(tblLast[Value],tblLast[Figure],"{figure}",tblLast[Of],[{name}])'


def of_model(name: str) -> str:
    """The cost of the model that the column ``name`` holds, for a formula's template."""
    return f"SUMIFS(tblLast[Value],tblLast[Model],[{name}])"


def last_table(last: LastQuarter, now: FleetPlan, top: int) -> Table:
    """The figures, with the file that they were read from."""
    rows = tuple(_rows(last.plan, now))
    values, numbers = tuple(row.value for row in rows), tuple(row.number for row in rows)
    source = f"issued last quarter: {last.path}, run {last.plan.run_id}, sha256 {last.sha256}"
    columns = (
        Column("Figure", 24, tuple(row.figure for row in rows)),
        Column("Of", 17, tuple(row.of for row in rows)),
        Column("Value", 15, values, Kind.RESULT, numbers),
        Column("As issued", 15, values, Kind.RESULT, numbers),
        Column(CHANGED, 15, Formula("=IF(EXACT([Value],[As issued]),0,1)"), Kind.FORMULA),
        Column("Source", 54, (source,) * len(rows)),
        Column("Unit", 22, tuple(_UNITS[row.figure] for row in rows)),
        Column("Model", 14, tuple(row.of if row.figure == MODEL else "" for row in rows)),
    )
    return Table("tblLast", "Bridge", top, columns, len(rows), "Last quarter, as issued (locked)", workings=True)


def _rows(last: FleetPlan, now: FleetPlan) -> Iterator[_Row]:
    spent = spending_of(last)
    currency, rates, _ = exchange(last, now)
    yield _Row(COST, "all", last.totals.usd, USD_CENTS)
    yield _Row(TOKENS, "all", float(spent.mtok), MTOK)
    yield _Row(HORIZON, "all", last.horizon_hours, COUNT)
    yield _Row(UNUSED, "all", float(spent.unused_usd), USD_CENTS)
    yield _Row(RATE, currency, rates[0], USD_RATE)
    for gpu, use in spent.in_use.items():
        yield _Row(GPU_HOURS, gpu, float(use.hours), COUNT)
        yield _Row(GPU_RATE, gpu, float(use.usd_per_h), USD_RATE)
    for model, usd in model_usd(last).items():
        yield _Row(MODEL, model, usd, USD_CENTS)
    yield _Row(MODEL, NO_POOL, unserved_usd(last), USD_CENTS)
