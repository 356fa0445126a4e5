"""Other futures: scenarios, sensitivities, regret. Every figure is a plan of its own."""

from __future__ import annotations

from markupsafe import Markup

from planner.report.page.bars import track
from planner.report.page.markup import SENTENCE_CHARACTERS, Col, badge, join, prose, remark, section, short, table
from planner.report.page.numbers import count, rate, share, usd, usd_change
from planner.study import Regret, RegretCell, Sensitivity, Side, Study

NOT_SOLVED = "no plan"


def futures(study: Study) -> Markup:
    """Scenarios, the tornado and the regret table, as far as the study has them."""
    parts = [part for part in (_scenarios(study), _tornado(study), _regret(study.regret)) if part]
    if not parts:
        return Markup()
    return section("futures", "Other futures", *parts, lead="Each row is planned anew, not scaled.")


def _scenarios(study: Study) -> Markup:
    if not study.others and not study.unsolved:
        return Markup()
    base = study.plan.totals.usd
    columns = (
        Col("Scenario"), Col("What differs", "w"), Col("Cost, USD", "n"), Col("Over base, USD", "n"), Col("GPUs", "n"),
        Col("USD per M tokens", "n"), Col("Gap", "n"),
    )  # fmt: skip
    rows = [
        (
            short(one.name), _differs(one.words, one.source, one.source_date), usd(one.plan.totals.usd),
            usd_change(one.plan.totals.usd - base) if number else "", count(one.plan.totals.gpus),
            rate(one.plan.totals.usd_per_mtok_by_reservation), share(one.plan.solve.gap),
        )
        for number, one in enumerate(study.scenarios)
    ]  # fmt: skip
    lost = [
        (short(one.name), Markup("{} {}: {}").format(prose(one.words), badge(NOT_SOLVED, "bad"), prose(one.why)),
         "", "", "", "", "")
        for one in study.unsolved
    ]  # fmt: skip
    return table("Scenarios", columns, [*rows, *lost])


def _differs(words: str, source: str, day: object) -> Markup:
    if not words:
        return Markup('<span class="quiet">the request as it stands</span>')
    whence = ", ".join(part for part in (source, str(day) if day else "") if part)
    note = Markup(' <span class="quiet">({})</span>').format(short(whence, SENTENCE_CHARACTERS)) if whence else Markup()
    return Markup("{}{}").format(prose(words), note)


def _tornado(study: Study) -> Markup:
    if not study.sensitivities:
        return Markup()
    base = study.plan.totals.usd
    ends = [side.usd for one in study.sensitivities for side in (one.low, one.high) if side.usd is not None]
    low, high = min([base, *ends]), max([base, *ends])
    columns = (
        Col("Driver", "w"), Col("Cost at low (blue) and high (orange); the mark is base", "plot"),
        Col("At low, USD", "n"), Col("At high, USD", "n"), Col("Swing, USD", "n"), Col("Source", "w"),
    )  # fmt: skip
    rows = [
        (
            _driver(one),
            _tornado_bar(one, base, low, high), _side(one.low, base), _side(one.high, base),
            usd(one.swing_usd(base)), _owned(one),
        )
        for one in study.sensitivities
    ]  # fmt: skip
    caption = f"Sensitivities, largest swing first; base {usd(base)} USD, axis from {usd(low)} to {usd(high)} USD"
    return table(caption, columns, rows)


def _driver(one: Sensitivity) -> Markup:
    words = short(one.words, SENTENCE_CHARACTERS)
    return Markup('{}<br><span class="quiet">{}</span>').format(short(one.name), words)


def _tornado_bar(one: Sensitivity, base: float, low: float, high: float) -> Markup:
    span = (high - low) or 1.0
    at = (base - low) / span
    sides = [(side, kind) for side, kind in ((one.low, "a"), (one.high, "c")) if side.usd is not None]
    return track([(at, ((side.usd or 0.0) - low) / span, kind) for side, kind in sides], [(at, "")])


def _side(side: Side, base: float) -> Markup:
    factor = f"x {side.factor:g}"
    if side.usd is None:
        return Markup('{} <span class="quiet">{}</span><span class="wrap">{}</span>').format(
            badge(NOT_SOLVED, "bad"), factor, short(side.note, SENTENCE_CHARACTERS)
        )
    return Markup('{}<br><span class="quiet">{}, {}</span>').format(usd(side.usd), factor, usd_change(side.usd - base))


def _owned(one: Sensitivity) -> str:
    day = str(one.source_date) if one.source_date else ""
    return prose(", ".join(part for part in (one.owner, one.source, day) if part))


def _regret(regret: Regret | None) -> Markup:
    if regret is None:
        return Markup()
    fleets = tuple(dict.fromkeys(cell.fleet for cell in regret.cells))
    coming = tuple(dict.fromkeys(cell.future for cell in regret.cells))
    cells = {(cell.fleet, cell.future): cell for cell in regret.cells}
    columns = (Col("Fleet of"), *(Col(f"if {short(future, 24)} comes", "n") for future in coming))
    rows = [
        (_fleet(fleet, regret.choice), *(_regret_cell(cells.get((fleet, future))) for future in coming))
        for fleet in fleets
    ]
    caption = "Regret: what each fleet costs in each future, USD, and how much more than the best fleet of that future"
    notes = [f"Fleet of {cell.fleet} if {cell.future} comes: {cell.note}" for cell in regret.cells if cell.note]
    words = Markup('<p class="claim">The fleet of {} has the least largest regret: {} USD.</p>').format(
        short(regret.choice), usd(regret.largest_usd)
    )
    return join([table(caption, columns, rows), words, *(remark(n) for n in notes)], "\n")


def _fleet(name: str, choice: str) -> Markup:
    mark = badge("least largest regret", "good") if name == choice else Markup()
    return Markup("{} {}").format(short(name), mark)


def _regret_cell(cell: RegretCell | None) -> Markup:
    if cell is None or cell.usd is None:
        return badge("cannot serve", "bad")
    more = "" if cell.regret_usd is None else usd_change(cell.regret_usd)
    return Markup('{}<br><span class="quiet">{}</span>').format(usd(cell.usd), more)
