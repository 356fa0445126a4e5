"""What a distribution of each kind gives to plan from: observed lengths, one of two couplings, or nothing."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from planner.errors import InputError, Problem
from planner.traffic.canonical import Canonical
from planner.traffic.histograms.rates import INTERVALS_A_WINDOW
from planner.traffic.schema import ALL, Coupling, Kind

MEANINGS = {
    Coupling.COMONOTONE: "long prompts are taken to have long outputs, the largest load",
    Coupling.COUNTERMONOTONE: "long prompts are taken to have short outputs, the smallest load",
}
SCALE_FIRST = (
    "Scale a distribution that has lengths to it, planner traffic scale BASE --to DIR, and plan from the result"
)


def coupling_of(given: object) -> Coupling | None:
    """The coupling that a user names; none where none is named.

    Raises
    ------
    InputError
        If it is not one of those of marginals.
    """
    if given is None:
        return None
    if str(given) not in {coupling.value for coupling in MEANINGS}:
        fix = f"Use one of: {', '.join(coupling.value for coupling in MEANINGS)}"
        raise InputError(Problem("traffic.options", f"{given!r} is no coupling", fix, field="coupling"))
    return Coupling(str(given))


def lengths_to_plan(canonical: Canonical, where: Path, coupling: Coupling | None = None) -> pa.Table:
    """The rows of ``lengths`` for the whole window.

    Of marginals, those of one coupling: comonotone, the largest load, unless another is named.

    Raises
    ------
    InputError
        If the distribution holds sums only, or a coupling is named for one whose lengths were observed together.
    """
    kind = canonical.manifest.kind
    if kind is Kind.SUMS:
        raise InputError(Problem(str(where), "holds sums only: no lengths, no bursts", SCALE_FIRST))
    cells = canonical.lengths.filter(pc.equal(canonical.lengths["period"], ALL))
    if kind is not Kind.MARGINALS:
        if coupling is not None:
            what = "this option is for histograms; here prompts and outputs were observed together"
            raise InputError(Problem(str(where), what, "Leave it out", field="coupling"))
        return cells
    chosen = coupling or Coupling.COMONOTONE
    return cells.filter(pc.equal(cells["coupling"], chosen.value))


def coupling_note(canonical: Canonical, coupling: Coupling | None = None) -> str:
    """What a plan must say about lengths that are marginals only; empty where they are not."""
    if canonical.manifest.kind is not Kind.MARGINALS:
        return ""
    chosen = coupling or Coupling.COMONOTONE
    finest_s = INTERVALS_A_WINDOW * canonical.manifest.ts_resolution_ms / 1000
    return (
        f"marginals only: {MEANINGS[chosen]} ({chosen.value}); bursts below {finest_s:,.4g} s are not known, and the "
        "finest that was measured stands for them unless idc is stated"
    )
