"""Regret on the Sensitivity sheet: what every fleet costs in every future, and the fleet that is least regretted.

Fleets go down, futures across; a fleet's own future stands in the column of its own number. Where no fleet serves all
futures, only those that serve most are compared.
"""

from __future__ import annotations

from collections.abc import Sequence

from planner.report.style import COUNT, USD, Kind
from planner.report.table import Column, Formula, Table, Value
from planner.study import RegretCell, Study

ONE_FUTURE = "(one future only)"
CANNOT = "cannot serve"


def costs_table(study: Study, top: int) -> Table:
    """Cost of each fleet in each future, USD: re-solves."""
    fleets, futures, cells = _fleets(study), _futures(study), _cells(study)
    across = tuple(
        Column(name, 12, tuple(_usd(cells.get((fleet, future))) for fleet in fleets), Kind.RESULT, USD)
        for name, future in zip(_headers(futures), futures, strict=True)
    )
    columns = (
        Column("Fleet", 26, tuple(fleets)),
        *across,
        Column("Dearest served", 12, Formula(f"=MAX({_across(futures)})"), Kind.FORMULA, USD),
    )
    heading = "Cost of each fleet (down) in each future (across), USD, re-solve; counts of replicas follow the load"
    return Table("tblRegretCost", "Sensitivity", top, columns, len(fleets), heading, workings=True)


def regret_table(study: Study, top: int) -> Table:
    """Regret: a fleet's cost over that of the cheapest fleet of the same future."""
    fleets, futures = _fleets(study), _futures(study)

    def over_best(name: str) -> Formula:
        own = f"tblRegretCost[{name}]@"
        return Formula(f'=IF(ISNUMBER({own}),{own}-MIN(tblRegretCost[{name}]),"{CANNOT}")')

    across = tuple(Column(name, 12, over_best(name), Kind.FORMULA, USD) for name in _headers(futures))
    row, most = _across(futures), "MAX(tblRegret[FuturesServed])"
    columns = (
        Column("Fleet", 26, tuple(fleets)),
        *across,
        Column("FuturesServed", 12, Formula(f"=COUNT({row})"), Kind.FORMULA, COUNT),
        Column("LargestRegret", 12, Formula(f'=IF([FuturesServed]={most},MAX({row}),"{CANNOT}")'), Kind.FORMULA, USD),
        Column("OwnFuture", 12, Formula(f"=INDEX({row},[No])"), Kind.FORMULA, USD),
        Column("No", 12, tuple(range(1, len(fleets) + 1)), Kind.CONSTANT, COUNT),
        Column("Chosen", 12, Formula("=([LargestRegret]=MIN(tblRegret[LargestRegret]))*1"), Kind.FORMULA, COUNT),
        Column("Note", 18, tuple(_notes(study, fleet) for fleet in fleets)),
    )  # fmt: skip
    heading = "Regret, USD: cost over the cheapest fleet of the same future"
    return Table("tblRegret", "Sensitivity", top, columns, len(fleets), heading, workings=True)


def choice_table(study: Study, top: int) -> Table:
    """The fleet whose largest regret is least, beside what the study found."""
    least, regret = "MIN(tblRegret[LargestRegret])", study.regret
    columns = (
        Column("Fleet chosen", 26, Formula(f"=INDEX(tblRegret[Fleet],MATCH({least},tblRegret[LargestRegret],0))"),
               Kind.FORMULA, left=True),
        Column("LargestRegret", 12, Formula(f"={least}"), Kind.FORMULA, USD),
        Column("ChosenAsSolved", 12, (ONE_FUTURE if regret is None else regret.choice,), Kind.RESULT),
        Column("LargestAsSolved", 12, (0.0 if regret is None else regret.largest_usd,), Kind.RESULT, USD),
    )  # fmt: skip
    heading = "The fleet whose largest regret is least"
    return Table("tblChoice", "Sensitivity", top, columns, 1, heading, workings=True)


def _cells(study: Study) -> dict[tuple[str, str], RegretCell]:
    return {} if study.regret is None else {(cell.fleet, cell.future): cell for cell in study.regret.cells}


def _notes(study: Study, fleet: str) -> str:
    """Why a fleet cannot serve a future."""
    cells = study.regret.cells if study.regret is not None else ()
    return "; ".join(f"{cell.future}: {cell.note}" for cell in cells if cell.fleet == fleet and cell.note)


def _fleets(study: Study) -> list[str]:
    return list(dict.fromkeys(fleet for fleet, _ in _cells(study))) or [ONE_FUTURE]


def _futures(study: Study) -> list[str]:
    """Futures, those of the fleets first and in their order, so that a fleet's own has its own number."""
    fleets = _fleets(study)
    return list(dict.fromkeys([*fleets, *(future for _, future in _cells(study))]))


def _headers(futures: Sequence[str]) -> list[str]:
    """Unique column headers; brackets would read as a column's name within a formula template."""
    return [f"{n} {name.translate(str.maketrans('[]', '()'))}" for n, name in enumerate(futures, start=1)]


def _across(futures: Sequence[str]) -> str:
    headers = _headers(futures)
    return f"[{headers[0]}]:[{headers[-1]}]"


def _usd(cell: RegretCell | None) -> Value:
    if cell is None:
        return 0
    return CANNOT if cell.usd is None else cell.usd
