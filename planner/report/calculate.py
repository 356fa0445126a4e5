"""Formula results: filled by formualizer, so that previewers, pandas and phones show numbers."""

from __future__ import annotations

import datetime as dt

from planner.errors import PlannerError


def fill_results(package: bytes, now: dt.datetime) -> bytes:
    """The same workbook with the result of every formula beside it.

    Parameters
    ----------
    package
        An xlsx file.
    now
        The fixed clock of the calculation, aware.

    Raises
    ------
    PlannerError
        If formualizer is missing or fails, or if a formula gives an error value.
    """
    try:
        import formualizer  # noqa: PLC0415 - a missing package must end in a message, not at import
    except ImportError as error:
        raise PlannerError(f"the workbook needs formualizer to calculate its formulas: {error}") from None
    try:
        result = formualizer.recalculate_xlsx_bytes(package, deterministic_timestamp_utc=now, error_location_limit=20)
    except Exception as error:
        raise PlannerError(f"formualizer could not calculate the workbook: {error}") from error
    summary = result["summary"]
    if summary["total_errors"] or summary["unknown_functions"]:
        places = [place for kind in summary["error_summary"].values() for place in kind["locations"]]
        unknown = ", ".join(str(name) for name in summary["unknown_functions"])
        raise PlannerError(
            f"the workbook has {summary['total_errors']} error values: {', '.join(places)} {unknown}".rstrip()
        )
    return bytes(result["bytes"])
