"""From objects of a file to runs and rejections, the same for every tool."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from planner.speed.load_tests.fields import Fields
from planner.speed.load_tests.types import Findings, Parse, Rejected, Run
from planner.speed.points import LoadKind


def collect(objects: Iterable[tuple[str, Mapping[str, object]]], parse: Parse) -> Findings:
    """The runs of these objects; one whose figures cannot be believed is rejected with everything that is wrong."""
    runs: list[Run] = []
    rejected: list[Rejected] = []
    for place, data in objects:
        run = parse(data, place)
        if run.unusable:
            rejected.append(Rejected(place, run.unusable))
        else:
            runs.append(run)
    return Findings(tuple(runs), tuple(rejected))


def merged(findings: Iterable[Findings]) -> Findings:
    """Several findings as one."""
    every = tuple(findings)
    skipped: Counter[str] = Counter()
    for one in every:
        skipped.update(one.skipped)
    return Findings(
        tuple(run for one in every for run in one.runs),
        tuple(rejected for one in every for rejected in one.rejected),
        dict(skipped),
    )


def unusable(fields: Fields, *others: str) -> str:
    """Why a run cannot be used: what its own words say, then the fields that are wrong; empty if nothing is."""
    return "; ".join([*(other for other in others if other), *fields.wrong])


def kind_of(asked_per_s: float | None, cap: float | None) -> LoadKind:
    """How requests were sent: at a rate, by so many clients, or all at once."""
    if asked_per_s is not None:
        return LoadKind.OPEN_LOOP
    return LoadKind.MAX_LOAD if cap is None else LoadKind.CLOSED_LOOP


def share(part: float | None, whole: float | None) -> float | None:
    """A quotient, where both are known and the whole is not nothing."""
    return None if part is None or not whole else part / whole
