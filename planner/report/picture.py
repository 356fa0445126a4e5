"""Pictures of a workbook's pages for the README; a developer's command that needs LibreOffice and poppler.

``python -m planner.report.picture reports/example/plan.xlsx -o reports/example``
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from openpyxl import load_workbook

from planner.errors import PlannerError
from planner.report.page.picture import render_pictures as page_pictures
from planner.report.recalc import convert_with_libreoffice, run_tool

DEFAULT_SHEETS = ("Summary", "Plan", "Bridge")
DEFAULT_DPI = 150


def render_pictures(
    xlsx: Path,
    out_dir: Path,
    sheets: Sequence[str] = DEFAULT_SHEETS,
    *,
    dpi: int = DEFAULT_DPI,
    timeout_s: float = 180.0,
) -> tuple[Path, ...]:
    """Draw the first printed page of each of ``sheets`` as ``<sheet>.png`` in ``out_dir``.

    Raises
    ------
    PlannerError
        If LibreOffice or pdftoppm is missing or fails, or if a sheet is not in the workbook.
    """
    if shutil.which("pdftoppm") is None:
        raise PlannerError("pdftoppm is not installed (package poppler-utils)")
    names = _sheet_names(xlsx)
    missing = [sheet for sheet in sheets if sheet not in names]
    if missing:
        raise PlannerError(f"{xlsx} has no sheet {', '.join(missing)}; it has {', '.join(names)}")
    out_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        pdf = convert_with_libreoffice(xlsx, Path(folder), "pdf", timeout_s)
        pages = run_tool(["pdftotext", "-layout", str(pdf), "-"], timeout_s).split("\f")
        return tuple(_draw(pdf, _page_of(sheet, pages), out_dir / sheet.lower(), dpi) for sheet in sheets)


def _sheet_names(xlsx: Path) -> list[str]:
    try:
        return load_workbook(xlsx, read_only=True).sheetnames
    except (OSError, zipfile.BadZipFile, KeyError) as error:
        raise PlannerError(f"{xlsx} cannot be read as a workbook: {error}") from None


def _page_of(sheet: str, pages: Sequence[str]) -> int:
    """Number of the first page (from 1) whose footer names the sheet."""
    footer = re.compile(rf"\b{re.escape(sheet)}\s+Page \d+ of \d+")
    for number, text in enumerate(pages, start=1):
        if footer.search(text):
            return number
    raise PlannerError(f"no printed page has the footer of sheet {sheet}")


def _draw(pdf: Path, page: int, stem: Path, dpi: int) -> Path:
    """One page as PNG, cut to its content; the footer goes with the blank part above it."""
    common = ["pdftoppm", "-r", str(dpi), "-f", str(page), "-l", str(page), "-singlefile"]
    with tempfile.TemporaryDirectory() as folder:
        grey = Path(folder) / "page"
        run_tool([*common, "-gray", str(pdf), str(grey)], 60.0)
        x, y, width, height = _content_box(grey.with_suffix(".pgm").read_bytes(), margin=dpi // 5)
    box = ["-x", str(x), "-y", str(y), "-W", str(width), "-H", str(height)]
    run_tool([*common, "-png", *box, str(pdf), str(stem)], 60.0)
    return stem.with_suffix(".png")


def _content_box(pgm: bytes, margin: int) -> tuple[int, int, int, int]:
    """Left, top, width and height of the content above the footer, pixels (P5 greymap)."""
    _, size, _, pixels = pgm.split(b"\n", 3)
    width, height = (int(number) for number in size.split())
    ink = np.frombuffer(pixels, dtype=np.uint8).reshape(height, width) < 250
    rows = np.flatnonzero(ink.any(axis=1))
    gaps = np.flatnonzero(np.diff(rows) > margin)
    top, bottom = int(rows[0]), int(rows[gaps[-1]] if gaps.size else rows[-1])
    columns = np.flatnonzero(ink[top : bottom + 1].any(axis=0))
    x, y = max(0, int(columns[0]) - margin), max(0, top - margin)
    return x, y, min(width, int(columns[-1]) + margin) - x, min(height, bottom + margin) - y


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the developer's command."""
    parser = argparse.ArgumentParser(prog="python -m planner.report.picture", description=__doc__)
    parser.add_argument("xlsx", type=Path, help="the workbook, or the folder of a plan: then the page is drawn too")
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder of the pictures")
    parser.add_argument("--sheet", action="append", help=f"sheet to draw, repeatable (default: {DEFAULT_SHEETS})")
    parser.add_argument("--dpi", type=int, default=DEFAULT_DPI)
    options = parser.parse_args(arguments)
    try:
        whole = options.xlsx.is_dir()
        book = options.xlsx / "plan.xlsx" if whole else options.xlsx
        pictures = render_pictures(book, options.out, options.sheet or DEFAULT_SHEETS, dpi=options.dpi)
        for picture in (*pictures, *(page_pictures(options.xlsx, options.out) if whole else ())):
            print(picture)
    except PlannerError as error:
        print(f"planner: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
