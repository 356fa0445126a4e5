"""The HTML page of a quarter, beside the workbook."""

from planner.report.page.document import render_page, write_page

__all__ = ["render_page", "write_page"]
