"""Pictures of the page for the README; a developer's command that needs Chromium.

``python -m planner.report.page.picture reports/example -o reports/example``
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from planner.errors import PlannerError
from planner.report.page.document import write_page
from planner.report.page.read import report_at
from planner.report.recalc import run_tool

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WIDTH_PX = 1400
PARTS = {
    "page": (1560, ""),
    "card": (1300, ".top, footer, main > :not(#models), #models > :not(#m1), #m1 > .pool ~ .pool { display: none; }"),
}
"""Names of the pictures, their heights, and the style that leaves out what each does not show."""


def browser() -> str | None:
    """The Chromium or Chrome that is installed here."""
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


def render_pictures(plan: Path, out_dir: Path, *, timeout_s: float = 120.0) -> tuple[Path, ...]:
    """Draw the head of the page as ``page.png`` and the dearest model's card as ``card.png`` in ``out_dir``.

    Raises
    ------
    PlannerError
        If there is no plan, or Chromium is missing, fails, or writes nothing.
    """
    program = browser()
    if program is None:
        raise PlannerError("Chromium is not installed (package chromium)")
    out_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="page-") as folder:
        page = Path(folder) / "page.html"
        write_page(report_at(plan), page)
        whole = page.read_text(encoding="utf-8")
        pictures = []
        for name, (height_px, style) in PARTS.items():
            page.write_text(whole.replace("</head>", f"<style>{style}</style></head>", 1), encoding="utf-8")
            pictures.append(_draw(program, page.as_uri(), height_px, out_dir / f"{name}.png", timeout_s))
        return tuple(pictures)


def _draw(program: str, address: str, height_px: int, target: Path, timeout_s: float) -> Path:
    target.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="chromium-") as profile:
        command = [
            program, "--headless", f"--user-data-dir={profile}", "--disable-gpu", "--hide-scrollbars",
            "--force-color-profile=srgb", f"--window-size={WIDTH_PX},{height_px}", f"--screenshot={target}", address,
        ]  # fmt: skip
        if os.geteuid() == 0:
            command.insert(1, "--no-sandbox")  # Chromium has no sandbox for root
        said = run_tool(command, timeout_s)
    if not target.is_file():
        raise PlannerError(f"Chromium wrote no {target.name}: {said or 'no message'}")
    return target


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the developer's command."""
    parser = argparse.ArgumentParser(prog="python -m planner.report.page.picture", description=__doc__)
    parser.add_argument("plan", type=Path, help="a plan.json, a study.json, or the folder that holds one")
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder of the pictures")
    options = parser.parse_args(arguments)
    try:
        for picture in render_pictures(options.plan, options.out):
            print(picture)
    except PlannerError as error:
        print(f"planner: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
