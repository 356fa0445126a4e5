"""The waterfall of sheet Bridge, readable in grey: solid totals, rises striped aslant, falls striped across."""

from __future__ import annotations

from typing import Literal

from openpyxl.chart import BarChart, Reference
from openpyxl.chart.axis import ChartLines
from openpyxl.chart.data_source import AxDataSource, StrRef
from openpyxl.chart.legend import LegendEntry
from openpyxl.chart.marker import DataPoint
from openpyxl.chart.series import Series
from openpyxl.chart.shapes import GraphicalProperties
from openpyxl.drawing.colors import ColorChoice
from openpyxl.drawing.fill import PatternFillProperties
from openpyxl.drawing.line import LineProperties
from openpyxl.utils import column_index_from_string, get_column_letter
from openpyxl.worksheet.worksheet import Worksheet

from planner.report.style import NAVY
from planner.report.table import FIRST_TABLE_ROW, Table

TITLE = "Cost bridge"
ALT = {
    TITLE: "Waterfall chart: last quarter's cost, then what volume, efficiency, mix, FX, price and commitments add "
    "(stripes aslant) or take away (stripes across), and this quarter's cost; the figures stand in the table."
}
CHART_COLUMNS = 6
"""Columns to the right of the sheet's tables that the chart covers."""
CHART_ROWS = 22
"""Rows that it reaches down to."""
_FIRST_COLUMN = 8
"""Right of the table of steps; wider tables stand below the chart."""
_BEYOND_TABLES = 10
_COLUMN_WIDTH = 8.5
_CM = (11, 15)
"""Height and width."""


def add_waterfall(sheet: Worksheet, table: Table) -> None:
    """Add the chart to the right of the table of steps."""
    for n in range(CHART_COLUMNS):
        sheet.column_dimensions[get_column_letter(_BEYOND_TABLES + n)].width = _COLUMN_WIDTH
    sheet.add_chart(_chart(sheet, table), f"{get_column_letter(_FIRST_COLUMN)}{FIRST_TABLE_ROW}")


def _chart(sheet: Worksheet, table: Table) -> BarChart:
    chart = BarChart()
    chart.type, chart.grouping, chart.overlap, chart.gapWidth = "col", "stacked", 100, 40
    chart.title, (chart.height, chart.width) = TITLE, _CM
    for header in ("Base", "Up", "Down"):
        column = column_index_from_string(table.letter(header))
        chart.add_data(Reference(sheet, min_col=column, min_row=table.top, max_row=table.last), titles_from_data=True)
    letter = table.letter("Label")
    steps = f"'{table.sheet}'!${letter}${table.first}:${letter}${table.last}"
    base, up, down = chart.series
    for series in chart.series:
        series.cat = AxDataSource(strRef=StrRef(steps))
    base.graphicalProperties = GraphicalProperties(noFill=True)
    _drawn(up, "wdUpDiag")
    _drawn(down, "narHorz")
    up.dPt = [_total(i) for i in (0, table.rows - 1)]
    if chart.legend is not None:
        chart.legend.position = "b"
        chart.legend.legendEntry = [LegendEntry(idx=0, delete=True)]
    chart.y_axis.majorGridlines = ChartLines(spPr=GraphicalProperties(ln=LineProperties(solidFill="D9D9D9")))
    chart.y_axis.number_format = "#,##0,"
    chart.x_axis.title, chart.y_axis.title = "Step", f"{table.columns[1].header} thousand for the horizon"
    chart.x_axis.delete = chart.y_axis.delete = False
    return chart


def _drawn(series: Series, pattern: Literal["wdUpDiag", "narHorz"]) -> None:
    """A pattern with an outline: no meaning by colour alone; the figures stand in the labels of the axis."""
    fill = PatternFillProperties(
        prst=pattern, fgClr=_colour(NAVY), bgClr=_colour("FFFFFF")
    )  # fmt: skip
    series.graphicalProperties = GraphicalProperties(pattFill=fill, ln=LineProperties(solidFill=NAVY))


def _colour(code: str) -> ColorChoice:
    return ColorChoice(srgbClr=code)  # type: ignore[arg-type]


def _total(i: int) -> DataPoint:
    point = DataPoint(idx=i)
    point.graphicalProperties = GraphicalProperties(solidFill=NAVY)
    return point
