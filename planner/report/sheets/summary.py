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
from openpyxl.worksheet.worksheet import Worksheet

from planner.plan import FleetPlan, Pool
from planner.report import facts, style
from planner.report.sheets.measures import BY_RESERVATION, COST, GPUS, measures
from planner.report.style import NAVY, SHARE, USD, USD_RATE, Kind
from planner.report.table import FIRST_TABLE_ROW, Book, Column, Formula, Sheet, Table

_KEY_MEASURES = 3
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


def _measure_table(plan: FleetPlan) -> Table:
    rows = measures(plan)
    columns = (
        Column("Measure", 38, tuple(row.text for row in rows)),
        Column("Value", 14, tuple(row.value for row in rows), Kind.LINK, tuple(row.number for row in rows)),
        Column("Unit", 13, tuple(row.unit for row in rows)),
        Column("Sheet", 12, tuple(row.sheet for row in rows)),
        Column("Meaning", 58, tuple(row.meaning for row in rows)),
    )
    return Table("tblSummary", "Summary", FIRST_TABLE_ROW, columns, len(rows))


def _binding_table(plan: FleetPlan, top: int) -> Table:
    """Pools, dearest model first; each row reads its row of the Plan sheet."""
    order = facts.pools_by_cost(plan)
    pools = [plan.pools[i] for i in order]

    def planned(header: str) -> tuple[Formula, ...]:
        return tuple(Formula(f"=tblPlan[{header}]@{i}") for i in order)

    share = tuple(
        Formula(f"=IF(tblPlan[Cost, USD]#total>0,tblPlan[Cost, USD]@{i}/tblPlan[Cost, USD]#total,0)") for i in order
    )
    columns = (
        Column("Pool", 38, tuple(pool.name for pool in pools)),
        Column("Cost, USD", 14, planned("Cost, USD"), Kind.LINK, USD),
        Column("USD per 1M tokens", 13, planned("USD per 1M served tokens"), Kind.LINK, USD_RATE),
        Column("Share of cost", 12, share, Kind.LINK, SHARE),
        Column("Binding constraint, and why", 58, tuple(_reason(p) for p in pools), Kind.RESULT),
    )
    return Table("tblBinding", "Summary", top, columns, len(pools), "What binds, by pool, dearest model first")


def _reason(pool: Pool) -> str:
    """Why, with the binding constraint in front unless the sentence names it."""
    why = facts.reason(pool)
    return why if pool.binding_constraint in why else f"{pool.binding_constraint}: {why}"


def addresses(plan: FleetPlan) -> dict[str, str]:
    """Addresses of the measures."""
    table = _measure_table(plan)
    return {measure.id: table.address("Value", i) for i, measure in enumerate(measures(plan))}


def build(plan: FleetPlan) -> Sheet:
    """The Summary sheet."""
    table = _measure_table(plan)
    return Sheet(
        "Summary",
        f"Summary: {plan.title}",
        f"{plan.horizon_start} to {plan.horizon_end} (end exclusive), {plan.currency}, nominal, tax excluded. "
        "Tokens in millions.",
        "Cost, tokens, unit cost and what binds, on one page",
        NAVY,
        (table, _binding_table(plan, table.bottom + 3)),
        wide=True,
        extra_columns=1 + CHART_COLUMNS,
        least_rows=FIRST_TABLE_ROW + CHART_ROWS + math.ceil(_height_cm(len(facts.models(plan))) * _ROWS_PER_CM),
        finish=lambda sheet, book: _finish(sheet, book, len(facts.models(plan))),
    )


def headline(sheet: Worksheet, book: Book) -> None:
    """One sentence with the money, beside the words of the checks."""
    words = '="USD "&TEXT(<1>,"#,##0")&" for "&TEXT(<2>,"#,##0")&" GPUs; USD "&TEXT(<3>,"0.0000")&" per 1M tokens"'
    cell = sheet["B3"]
    cell.value = book.resolve(Formula(words, (COST, GPUS, BY_RESERVATION)), sheet.title)
    cell.font, cell.alignment = style.BIG, style.HEADLINE_ALIGN


def _finish(sheet: Worksheet, book: Book, models: int) -> None:
    headline(sheet, book)
    for i in range(_KEY_MEASURES):
        for column in ("A", "B"):
            cell = sheet[f"{column}{FIRST_TABLE_ROW + 1 + i}"]
            cell.font = style.BOLD
    sheet.column_dimensions["F"].width = 2
    for n in range(CHART_COLUMNS):
        sheet.column_dimensions[get_column_letter(_CHART_COLUMN + n)].width = CHART_COLUMN_WIDTH
    _charts(sheet, book, models)


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


def _words(text: str, size: int) -> Title:
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
    chart.title, chart.legend, chart.gapWidth = _words(title, 1200), None, 60
    chart.height, chart.width = _height_cm(rows), CHART_CM[1]
    x, y, width, height = PLOT_AREA
    chart.layout = Layout(
        manualLayout=ManualLayout(layoutTarget="inner", xMode="edge", yMode="edge", x=x, y=y, w=width, h=height)
    )
    chart.add_data(Reference(source, min_col=values, min_row=table.first, max_row=last))
    chart.x_axis.title, chart.y_axis.title = _words(label, 900), _words("USD thousand for the horizon", 900)
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
