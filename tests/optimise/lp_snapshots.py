"""LP text of every family's tiny instance: ``python -m tests.optimise.lp_snapshots`` writes it anew."""

from __future__ import annotations

from pathlib import Path

from planner.optimise.program import build, lp_text
from tests.optimise.families import CASES

FOLDER = Path(__file__).parent / "lp"


def snapshot(name: str) -> str:
    case = CASES[name]()
    return lp_text(build(case.data, case.theta), case.data)


def path(name: str) -> Path:
    return FOLDER / f"{name.removeprefix('add_')}.lp"


if __name__ == "__main__":
    for found in FOLDER.glob("*.lp"):
        found.unlink()
    for case_name in CASES:
        path(case_name).write_text(snapshot(case_name), encoding="utf-8")
