"""Fonts, fills and number formats of the workbook: one meaning, one look."""

from __future__ import annotations

from enum import StrEnum

from openpyxl.styles import Alignment, Border, Font, PatternFill, Protection, Side

FONT = "Arial"
"""Has a metric twin on every system (Liberation Sans), so widths hold everywhere."""
NAVY, AMBER, GREEN, GREY, RED = "1F3864", "FFC000", "548235", "7F7F7F", "C00000"

USD = '#,##0;[Red](#,##0);"-"'
USD_RATE = "#,##0.0000"
USD_CENTS = "#,##0.00"
SHARE = "0.0%"
SHARE_FINE = "0.0##%"
COUNT = "#,##0"
ORDINAL = "#,##0;-#,##0;"
"""A row number: 0, the number of a row that only other scenarios have, is not shown."""
MTOK = "#,##0.0"
MS = "#,##0.0"
DATE = "yyyy-mm-dd"
GENERAL = "General"


class Kind(StrEnum):
    """What a cell is, and so how it looks."""

    TEXT = "text"
    INPUT = "input"
    """Blue on yellow, unlocked: may be edited, and a check says so."""
    CONSTANT = "constant"
    """Grey, locked: a tolerance of the checks or a conversion of units."""
    RESULT = "result"
    """Green fill: decided or measured by the optimiser, pasted."""
    FORMULA = "formula"
    """Black: calculated in this sheet."""
    LINK = "link"
    """Green text: a formula that reads another sheet."""


MEANING = {
    Kind.INPUT: "Input: may be edited; any edit fails the checks until solved again",
    Kind.CONSTANT: "Constant: locked; a tolerance of the checks or a conversion of units",
    Kind.RESULT: "Optimiser result: pasted from the plan, not calculated here",
    Kind.FORMULA: "Formula on this sheet",
    Kind.LINK: "Formula that reads another sheet",
}

FONTS = {
    Kind.TEXT: Font(name=FONT, size=9),
    Kind.INPUT: Font(name=FONT, size=9, color="0000FF"),
    Kind.CONSTANT: Font(name=FONT, size=9, color="595959"),
    Kind.RESULT: Font(name=FONT, size=9),
    Kind.FORMULA: Font(name=FONT, size=9),
    Kind.LINK: Font(name=FONT, size=9, color="006100"),
}
FILLS = {
    Kind.INPUT: PatternFill("solid", start_color="FFF9D6"),
    Kind.RESULT: PatternFill("solid", start_color="E2EFDA"),
}
TITLE = Font(name=FONT, size=16, bold=True, color=NAVY)
HEADING = Font(name=FONT, size=12, bold=True, color=NAVY)
PURPOSE = Font(name=FONT, size=9, italic=True, color="404040")
HEADER = Font(name=FONT, size=9, bold=True, color="FFFFFF")
HEADER_FILL = PatternFill("solid", start_color=NAVY)
BOLD = Font(name=FONT, size=9, bold=True)
BIG = Font(name=FONT, size=12, bold=True)
HYPERLINK = Font(name=FONT, size=9, color="0563C1", underline="single")
PASS_FONT = Font(bold=True, color="006100")
FAIL_FONT = Font(bold=True, color="9C0006")
PASS_FILL = PatternFill("solid", start_color="C6EFCE", end_color="C6EFCE")
FAIL_FILL = PatternFill("solid", start_color="FFC7CE", end_color="FFC7CE")

_HAIR = Side(style="thin", color="D0D0D0")
_LINE = Side(style="medium", color=NAVY)
CELL_BORDER = Border(bottom=_HAIR)
TOTAL_BORDER = Border(top=_LINE)

HEADER_TEXT_ALIGN = Alignment(horizontal="left", vertical="center", wrap_text=True, indent=1)
HEADER_NUMBER_ALIGN = Alignment(horizontal="right", vertical="center", wrap_text=True)
FLAG_ALIGN = Alignment(horizontal="center", vertical="center", wrap_text=True)
TEXT_ALIGN = Alignment(horizontal="left", vertical="center", wrap_text=True, indent=1)
HEADLINE_ALIGN = Alignment(horizontal="left", vertical="center", indent=1)
NUMBER_ALIGN = Alignment(horizontal="right", vertical="center")
UNLOCKED = Protection(locked=False)
