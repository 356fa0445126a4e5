"""Summary: the plan on one page: money, tokens, unit cost, what binds, two charts."""

from __future__ import annotations

import math

from openpyxl.chart import BarChart, Reference
from openpyxl.chart.axis import ChartLines
from openpyxl.chart.data_source import AxDataSource, StrRef
from openpyxl.chart.label import DataLabelList
from openpyxl.chart.layout import Layout, ManualLayout
from openpyxl.chart.shapes import GraphicalProperties
from openpyxl.chart.text import RichText, Text
from openpyxl.chart.title import Title
from openpyxl.drawing.line import LineProperties
from openpyxl.drawing.text import CharacterProperties, Paragraph, ParagraphProperties, RegularTextRun
from openpyxl.utils import column_index_from_string, get_column_letter
from openpyxl.utils.cell import coordinate_to_tuple
from openpyxl.workbook.defined_name import DefinedName
from openpyxl.worksheet.datavalidation import DataValidation
from openpyxl.worksheet.worksheet import Worksheet

from planner.plan import FleetPlan, Pool
from planner.report import facts, style
from planner.report.scenarios import IN_SCENARIO
from planner.report.sheets.measure import BY_RESERVATION, BY_USE, COST, GPUS, SCENARIO, SCENARIO_NUMBER
from planner.report.sheets.measures import measures
from planner.report.style import MTOK, NAVY, SHARE, USD, USD_RATE, Kind
from planner.report.table import FIRST_TABLE_ROW, Book, Column, Formula, Sheet, Table, stack
from planner.report.view import View
from planner.study import Actuals, ModelActual

_KEY_MEASURES = (COST, BY_RESERVATION, BY_USE)
PLOT_AREA = (0.24, 0.14, 0.62, 0.62)
"""Left, top, width and height of the bars, share of the chart: names and figures stand in the rest."""
CHART_CM = (8, 16)
"""Least height, and width, of a chart."""
_BARS_PER_CM = 2
_CHART_COLUMN = 7
CHART_COLUMNS = 10
"""Columns that a chart covers, of `CHART_COLUMN_WIDTH` each."""
CHART_COLUMN_WIDTH = 8.5
_ROWS_PER_CM = 2.2
CHART_ROWS = 16
"""Rows from one chart to the next."""
CHART_ALT = {
    "Cost by GPU type": "Bar chart: cost of the horizon in USD for each GPU type bought; the figures stand on the Cost "
    "sheet, block Cost by GPU type.",
    "Cost by model": "Bar chart: cost of the horizon in USD for each model, idle GPUs included; the figures stand on "
    "the Cost sheet, block Cost by model.",
}


def _measure_table(view: View) -> Table:
    rows = measures(view)
    columns = (
        Column("Measure", 38, tuple(row.text for row in rows)),
        Column("Value", 14, tuple(row.value for row in rows), tuple(row.kind for row in rows),
               tuple(row.number for row in rows)),
        Column("Unit", 13, tuple(row.unit for row in rows)),
        Column("Sheet", 12, tuple(row.sheet for row in rows)),
        Column("Meaning", 58, tuple(row.meaning for row in rows)),
    )  # fmt: skip
    return Table("tblSummary", "Summary", FIRST_TABLE_ROW, columns, len(rows))


def _binding_table(plan: FleetPlan, top: int) -> Table:
    """Pools, dearest model first; each row finds its pool on the Plan sheet."""
    pools = [plan.pools[i] for i in facts.pools_by_cost(plan)]

    def planned(header: str) -> Formula:
        return Formula(f"=SUMIFS(tblPlan[{header}],tblPlan[Pool],[Pool])")

    share = Formula("=IF(tblPlan[Cost, USD]#total>0,[Cost, USD]/tblPlan[Cost, USD]#total,0)")
    columns = (
        Column("Pool", 38, tuple(pool.name for pool in pools)),
        Column("Cost, USD", 14, planned("Cost, USD"), Kind.LINK, USD),
        Column("USD per 1M tokens", 13, planned("USD per 1M served tokens"), Kind.LINK, USD_RATE),
        Column("Share of cost", 12, share, Kind.LINK, SHARE),
        Column("Binding constraint, and why", 58, tuple(_reason(p) for p in pools), Kind.RESULT),
    )
    heading = "What binds, by pool, dearest model first"
    return Table("tblBinding", "Summary", top, columns, len(pools), heading, ranked=True)


def _actuals_table(actuals: Actuals, top: int) -> Table:
    """Last quarter's plan against what came of it; money and causes stand on the page of the actuals."""
    rows = actuals.models
    columns = (
        Column("Model", 38, tuple(row.model for row in rows) or ("(no model)",)),
        Column("Planned, M tokens", 14, tuple(r.planned_input_mtok + r.planned_output_mtok for r in rows) or (0,),
               Kind.RESULT, MTOK),
        Column("Actual, M tokens", 13, tuple(r.actual_input_mtok + r.actual_output_mtok for r in rows) or (0,),
               Kind.RESULT, MTOK),
        Column("Actual over planned", 12,
               Formula("=IF([Planned, M tokens]>0,[Actual, M tokens]/[Planned, M tokens],0)"), Kind.FORMULA, SHARE),
        Column("What to know", 58, tuple(_known(row) for row in rows) or ("",)),
    )  # fmt: skip
    heading = f"Planned against actual, {actuals.start:%Y-%m-%d} to {actuals.end:%Y-%m-%d} (end exclusive)"
    return Table("tblActuals", "Summary", top, columns, max(1, len(rows)), heading, workings=True)


def _known(row: ModelActual) -> str:
    """Hours of the logs, refusals and overflow, and the note of the comparison."""
    overflow = "" if row.actual_overflow is None else f"; overflow {row.actual_overflow:.2%} of the time"
    refused = f"refused {row.actual_refused_share:.2%}, planned {row.planned_refused_share:.2%}"
    return "; ".join(text for text in (f"{row.hours:,.0f} h of logs; {refused}{overflow}", row.note) if text)


def _reason(pool: Pool) -> str:
    """Why, with the binding constraint in front unless the sentence names it."""
    why = facts.reason(pool)
    return why if pool.binding_constraint in why else f"{pool.binding_constraint}: {why}"


def addresses(view: View) -> dict[str, str]:
    """Addresses of the measures."""
    table = _measure_table(view)
    return {measure.id: table.address("Value", i) for i, measure in enumerate(measures(view))}


def build(view: View) -> Sheet:
    """The Summary sheet."""
    plan, models = view.plan, len(facts.models(view.plan))
    actuals = view.study.last.actuals if view.study.last else None
    tops = [lambda _: _measure_table(view), lambda top: _binding_table(plan, top)]
    if actuals is not None:
        tops.append(lambda top: _actuals_table(actuals, top))
    return Sheet(
        "Summary",
        f"Summary: {plan.title}",
        f"{plan.horizon_start} to {plan.horizon_end} (end exclusive), {plan.currency}, nominal, tax excluded. "
        "Tokens in millions.",
        "Cost, tokens, unit cost and what binds, on one page",
        NAVY,
        stack(tops),
        wide=True,
        extra_columns=1 + CHART_COLUMNS,
        least_rows=FIRST_TABLE_ROW + CHART_ROWS + math.ceil(_height_cm(models) * _ROWS_PER_CM),
        finish=lambda sheet, book: _finish(sheet, book, models),
        charts=CHART_ALT,
    )


def headline(sheet: Worksheet, book: Book) -> None:
    """One sentence with the money, beside the words of the checks."""
    words = '="USD "&TEXT(<1>,"#,##0")&" for "&TEXT(<2>,"#,##0")&" GPUs; USD "&TEXT(<3>,"0.0000")&" per 1M tokens"'
    cell = sheet["B3"]
    cell.value = book.resolve(Formula(words, (COST, GPUS, BY_RESERVATION)), sheet.title)
    cell.font, cell.alignment = style.BIG, style.HEADLINE_ALIGN


def _finish(sheet: Worksheet, book: Book, models: int) -> None:
    headline(sheet, book)
    for name in _KEY_MEASURES:
        row = coordinate_to_tuple(_place(book, name))[0]
        for column in ("A", "B"):
            sheet[f"{column}{row}"].font = style.BOLD
    if SCENARIO in book.named:
        _selector(sheet, book)
    sheet.column_dimensions["F"].width = 2
    for n in range(CHART_COLUMNS):
        sheet.column_dimensions[get_column_letter(_CHART_COLUMN + n)].width = CHART_COLUMN_WIDTH
    _charts(sheet, book, models)


def _place(book: Book, name: str) -> str:
    """A measure's cell on this sheet."""
    return book.named[name].split("!")[1].replace("$", "")


def _selector(sheet: Worksheet, book: Book) -> None:
    """The cell that offers the solved scenarios, and the name of their number."""
    offered = book.tables["tblSolves"]
    rule = DataValidation("list", formula1=f"{offered.sheet}!{offered.place('Scenario', '', 0)}", showErrorMessage=True)
    rule.errorTitle, rule.error = "Scenario", "Only scenarios that were solved can be shown"
    rule.add(_place(book, SCENARIO))
    sheet.add_data_validation(rule)
    workbook = sheet.parent
    if workbook is not None:
        workbook.defined_names[IN_SCENARIO] = DefinedName(IN_SCENARIO, attr_text=book.named[SCENARIO_NUMBER])


def _charts(sheet: Worksheet, book: Book, models: int) -> None:
    """Two bar charts to the right of the tables."""
    gpu_types, by_model = book.tables["tblGpuTypes"], book.tables["tblModels"]
    charts = (
        _bar(sheet, gpu_types, "GPU", gpu_types.rows, "Cost by GPU type"),
        _bar(sheet, by_model, "Model", models, "Cost by model"),
    )
    for chart, row in zip(charts, (FIRST_TABLE_ROW, FIRST_TABLE_ROW + CHART_ROWS), strict=True):
        sheet.add_chart(chart, f"{get_column_letter(_CHART_COLUMN)}{row}")


def _height_cm(bars: int) -> int:
    return max(CHART_CM[0], bars // _BARS_PER_CM)


def words(text: str, size: int) -> Title:
    """A chart's or axis' title in hundredths of a point."""
    properties = CharacterProperties(sz=size, b=True)
    run = RegularTextRun(rPr=properties, t=text)
    paragraph = Paragraph(pPr=ParagraphProperties(defRPr=properties), r=[run])
    return Title(tx=Text(rich=RichText(p=[paragraph])), overlay=False)


def _bar(sheet: Worksheet, table: Table, label: str, rows: int, title: str) -> BarChart:
    """Horizontal bars, one a row of the table, largest names readable; axes shown, values printed on the bars."""
    workbook = sheet.parent
    if workbook is None:
        raise ValueError("a chart needs a workbook")
    source = workbook[table.sheet]
    values = column_index_from_string(table.letter("Cost, USD"))
    letter, last = table.letter(label), table.first + rows - 1
    chart = BarChart()
    chart.type = "bar"
    chart.title, chart.legend, chart.gapWidth = words(title, 1200), None, 60
    chart.height, chart.width = _height_cm(rows), CHART_CM[1]
    x, y, width, height = PLOT_AREA
    chart.layout = Layout(
        manualLayout=ManualLayout(layoutTarget="inner", xMode="edge", yMode="edge", x=x, y=y, w=width, h=height)
    )
    chart.add_data(Reference(source, min_col=values, min_row=table.first, max_row=last))
    chart.x_axis.title, chart.y_axis.title = words(label, 900), words("USD thousand for the horizon", 900)
    chart.y_axis.majorGridlines = ChartLines(spPr=GraphicalProperties(ln=LineProperties(solidFill="D9D9D9")))
    chart.x_axis.delete = chart.y_axis.delete = False
    chart.x_axis.scaling.orientation = "maxMin"
    chart.y_axis.number_format, chart.y_axis.crosses = "#,##0,", "max"
    series = chart.series[0]
    series.cat = AxDataSource(strRef=StrRef(f"'{table.sheet}'!${letter}${table.first}:${letter}${last}"))
    series.graphicalProperties = GraphicalProperties(solidFill=NAVY)
    series.dLbls = DataLabelList(
        showVal=True, showSerName=False, showCatName=False, showLegendKey=False, numFmt="#,##0"
    )
    return chart
