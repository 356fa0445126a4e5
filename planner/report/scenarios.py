"""How the workbook names and numbers the scenarios of a study."""

from __future__ import annotations

from planner.study import Study

IN_SCENARIO = "in_scenario"
"""Defined name of the cell with the number (from 1) of the scenario that the workbook shows."""


def several(study: Study) -> bool:
    """Whether there is anything to select."""
    return len(study.scenarios) > 1


def names(study: Study) -> tuple[str, ...]:
    """Names of the solved scenarios, told apart without regard to case, as spreadsheets look them up.

    Wildcards of a look-up stand as other signs.
    """
    found: list[str] = []
    for scenario in study.scenarios:
        name = scenario.name.translate(str.maketrans("*?~", "x.-"))
        taken = {other.casefold() for other in found}
        numbered = (f"{name} ({n})" for n in range(2, len(found) + 3))
        found.append(next(text for text in (name, *numbered) if text.casefold() not in taken))
    return tuple(found)


def headers(study: Study, what: str) -> tuple[str, ...]:
    """A column header for each scenario; without brackets, which would read as a column's name in a template."""
    return tuple(f"{what}, {name}".translate(str.maketrans("[]", "()")) for name in names(study))
