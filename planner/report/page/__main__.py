"""Write the HTML page of a plan or a study: ``python -m planner.report.page reports/example -o page.html``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from planner.errors import PlannerError
from planner.report.page.document import write_page
from planner.report.page.read import report_at


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m planner.report.page", description=__doc__)
    parser.add_argument("plan", type=Path, help="a plan.json, a study.json, or the folder that holds one")
    parser.add_argument("-o", "--out", type=Path, required=True, help="the page")
    options = parser.parse_args(arguments)
    try:
        write_page(report_at(options.plan), options.out)
    except PlannerError as error:
        print(f"planner: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
