"""The tornado: bars of cost against the base, one for each end of a driver, the largest swing on top."""

from __future__ import annotations

import math

from openpyxl.chart import BarChart, Reference
from openpyxl.chart.axis import ChartLines
from openpyxl.chart.data_source import AxDataSource, StrRef
from openpyxl.chart.layout import Layout, ManualLayout
from openpyxl.chart.series import SeriesLabel
from openpyxl.chart.shapes import GraphicalProperties
from openpyxl.drawing.line import LineProperties
from openpyxl.utils import column_index_from_string
from openpyxl.worksheet.worksheet import Worksheet

from planner.report.sheets.summary import words
from planner.report.style import NAVY
from planner.report.table import Table

TITLE = "Cost against the base, by driver"
TORNADO_ALT = {
    TITLE: "Tornado: two bars for each driver, cost of the horizon in USD against the base, dark at its low value and "
    "light at its high value, the largest swing on top; the figures stand in the table above, DeltaLow and DeltaHigh."
}
_SERIES = (("DeltaLow", "driver at its low value", NAVY), ("DeltaHigh", "driver at its high value", "C9CED6"))
"""Dark and light with a dark edge: told apart in grey."""
_WIDTH_CM = 26
_LEAST_CM = 7.0
_CM_PER_DRIVER = 1.1
_CM_PER_ROW = 0.5
_PLOT_AREA = (0.22, 0.14, 0.68, 0.6)
"""Left, top, width and height, share of the chart."""


def chart_rows(drivers: int) -> int:
    """Rows that the chart covers."""
    return math.ceil(_height_cm(drivers) / _CM_PER_ROW)


def _height_cm(drivers: int) -> float:
    return max(_LEAST_CM, 4 + _CM_PER_DRIVER * drivers)


def add_tornado(sheet: Worksheet, table: Table, row: int) -> None:
    """Add the chart of ``table`` at a row of its own sheet."""
    chart = BarChart()
    chart.type, chart.gapWidth, chart.overlap = "bar", 50, 100
    chart.title = words(TITLE, 1200)
    chart.height, chart.width = _height_cm(table.rows), _WIDTH_CM
    x, y, width, height = _PLOT_AREA
    chart.layout = Layout(
        manualLayout=ManualLayout(layoutTarget="inner", xMode="edge", yMode="edge", x=x, y=y, w=width, h=height)
    )
    names = f"'{table.sheet}'!{table.place('Driver', '', 0)}"
    for n, (header, name, colour) in enumerate(_SERIES):
        column = column_index_from_string(table.letter(header))
        chart.add_data(Reference(sheet, min_col=column, min_row=table.first, max_row=table.last))
        series = chart.series[n]
        series.tx = SeriesLabel(v=name)
        series.cat = AxDataSource(strRef=StrRef(names))
        series.invertIfNegative = False
        series.graphicalProperties = GraphicalProperties(solidFill=colour, ln=LineProperties(solidFill=NAVY))
    chart.x_axis.title, chart.y_axis.title = words("Driver", 900), words("USD against the base", 900)
    chart.y_axis.majorGridlines = ChartLines(spPr=GraphicalProperties(ln=LineProperties(solidFill="D9D9D9")))
    chart.x_axis.delete = chart.y_axis.delete = False
    chart.x_axis.scaling.orientation, chart.x_axis.tickLblPos = "maxMin", "low"
    chart.y_axis.number_format, chart.y_axis.crosses = "#,##0", "max"
    if chart.legend is not None:
        chart.legend.position = "b"
    sheet.add_chart(chart, f"A{row}")
