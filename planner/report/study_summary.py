"""What a study adds to the printed summary: other futures, drivers, regret, and the step from last quarter."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table
from rich.text import Text

from planner.report.printed import NAME_CHARACTERS, clean, printed_table
from planner.report.text import one_line
from planner.request_study import BASE
from planner.study import Side, Study

_WORDS_CHARACTERS = 120
_NOTE_CHARACTERS = 400
_NONE = "none"


def study_tables(study: Study) -> tuple[Table, ...]:
    """Tables of what the study holds beside the plan."""
    return (
        *([_scenarios(study)] if study.others or study.unsolved else []),
        *([_drivers(study)] if study.sensitivities else []),
        *([_regret(study)] if study.regret else []),
    )


def study_notes(study: Study) -> Iterator[Text]:
    """Futures without a plan, ends of drivers without one, and the step from last quarter, a line each."""
    for future in study.unsolved:
        yield _note(f"scenario {future.name} has no plan: {future.why}")
    for driver in study.sensitivities:
        for end in (driver.low, driver.high):
            if end.usd is None:
                yield _note(f"{driver.name} x {end.factor:g} has no plan: {end.note}")
    if study.regret is not None:
        for cell in study.regret.cells:
            if cell.note:
                yield _note(f"fleet {cell.fleet} if {cell.future} comes: {cell.note}")
    if study.last is not None:
        was, now = study.last.plan.totals.usd, study.plan.totals.usd
        share = f" ({(now - was) / was:+.1%})" if was > 0 else ""
        title = one_line(study.last.plan.title, NAME_CHARACTERS)
        yield Text(f"last quarter ({title}): {was:,.0f} USD; now {now:,.0f} USD, {now - was:+,.0f} USD{share}")


def _note(text: str) -> Text:
    return Text(one_line(text, _NOTE_CHARACTERS))


def _scenarios(study: Study) -> Table:
    table = printed_table(
        "Other futures, each planned anew", "scenario", "what differs", "GPUs", "cost USD", "against Base", left=2
    )
    base = study.plan.totals.usd
    for each in study.scenarios:
        totals = each.plan.totals
        more = "" if each.name == BASE else f"{totals.usd - base:+,.0f}"
        words = clean(each.words or "the request as it stands", _WORDS_CHARACTERS)
        table.add_row(clean(each.name), words, f"{totals.gpus:,}", f"{totals.usd:,.0f}", more)
    for future in study.unsolved:
        table.add_row(clean(future.name), clean(future.words, _WORDS_CHARACTERS), _NONE, _NONE, "")
    return table


def _drivers(study: Study) -> Table:
    headers = ("low", "high", "cost at low USD", "at high USD", "swing USD")
    table = printed_table("What moves the cost, by re-solves", "driver", "what is multiplied", *headers, left=2)
    for driver in study.sensitivities:
        table.add_row(
            clean(driver.name),
            clean(driver.words, _WORDS_CHARACTERS),
            f"x {driver.low.factor:g}",
            f"x {driver.high.factor:g}",
            _usd(driver.low),
            _usd(driver.high),
            f"{driver.swing_usd(study.plan.totals.usd):,.0f}",
        )
    return table


def _usd(side: Side) -> str:
    return _NONE if side.usd is None else f"{side.usd:,.0f}"


def _regret(study: Study) -> Table:
    """The largest regret of each fleet and where it comes from; least first is marked."""
    regret = study.regret
    assert regret is not None
    table = printed_table(
        "Which fleet is regretted least (its pools and commitments in every future)",
        "fleet of", "largest regret", "USD", left=2,
    )  # fmt: skip
    for name in dict.fromkeys(cell.fleet for cell in regret.cells):
        mine = [cell for cell in regret.cells if cell.fleet == name]
        failed = [cell.future for cell in mine if cell.usd is None]
        worst = max(mine, key=lambda cell: cell.regret_usd or 0.0)
        where = f"if {worst.future} comes" if worst.regret_usd else "none"
        if failed:
            where = f"cannot serve {', '.join(failed)}; else {where}"
        chosen = "; least regret: take this one" if name == regret.choice else ""
        table.add_row(clean(name), clean(where + chosen, _WORDS_CHARACTERS), f"{worst.regret_usd or 0.0:,.0f}")
    return table
