"""How near predictions come to the measured figures of the same rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from planner.speed.cases.answers import Answer
from planner.speed.points import Figures, LoadKind, Point
from planner.speed.types import Banded

TPOT, TTFT, OUTPUT = "TPOT", "TTFT", "output tok/s"


@dataclass(frozen=True)
class Scored:
    """One row: what was predicted, and what the deployment's replicas measured together."""

    point: Point
    answer: Answer
    measured: Figures


@dataclass(frozen=True)
class Score:
    """Errors of one figure in one group.

    Attributes
    ----------
    median, p90
        Of |predicted / measured − 1|.
    bias
        Median of predicted / measured.
    covered
        Share of rows whose measured figure lies in the printed band; ``None`` for figures without one.
    """

    rows: int
    median: float
    p90: float
    bias: float
    covered: float | None


Group = Callable[[Scored], str]
GROUPS: Mapping[str, Group] = {
    "all": lambda row: "all",
    "load": lambda row: str(row.point.load.kind) + (", decode only" if row.point.served.decode_only else ""),
    "engine": lambda row: row.point.served.engine,
    "gpu": lambda row: row.point.served.gpu,
    "model": lambda row: row.point.served.model,
    "provider": lambda row: row.answer.provider,
}
"""What rows may be grouped by."""


def score(
    rows: Iterable[Scored], by: Sequence[str] = ("all", "engine", "gpu", "model")
) -> dict[tuple[str, str, str], Score]:
    """Scores by (grouping, group, figure); figures that no row of a group measured are left out.

    Output tokens a second are scored where they say more than TPOT and the load: not for arrivals at a rate that the
    replica serves, whose throughput is what was asked. A throughput of all tokens stands in where no other is stated.
    """
    gathered: dict[tuple[str, str, str], list[tuple[float, bool | None]]] = {}
    for row in rows:
        for figure, ratio, inside in _ratios(row):
            for name in by:
                gathered.setdefault((name, GROUPS[name](row), figure), []).append((ratio, inside))
    order = {figure: place for place, figure in enumerate((TPOT, TTFT, OUTPUT))}
    ordered = sorted(gathered, key=lambda key: (list(by).index(key[0]), key[1], order[key[2]]))
    return {key: _score(gathered[key]) for key in ordered}


def _ratios(row: Scored) -> Iterable[tuple[str, float, bool | None]]:
    """Predicted over measured for each figure that has both, and whether the band holds the measurement."""
    measured, answer = row.measured, row.answer
    for figure, predicted, seen in ((TPOT, answer.tpot_ms, measured.tpot_ms), (TTFT, answer.ttft_ms, measured.ttft_ms)):
        if predicted is not None and seen:
            yield figure, predicted.value / seen, _inside(predicted, seen)
    served_as_asked = row.point.load.kind is LoadKind.OPEN_LOOP and answer.ttft_ms is not None
    if served_as_asked:
        return
    if answer.output_tok_s is not None and measured.output_tok_s:
        yield OUTPUT, answer.output_tok_s / measured.output_tok_s, None
    elif answer.total_tok_s is not None and measured.total_tok_s:
        yield OUTPUT, answer.total_tok_s / measured.total_tok_s, None


def _inside(predicted: Banded, seen: float) -> bool:
    return predicted.low <= seen <= predicted.high


def _score(found: Sequence[tuple[float, bool | None]]) -> Score:
    ratios = np.array([ratio for ratio, _ in found])
    errors = np.abs(ratios - 1)
    inside = [held for _, held in found if held is not None]
    return Score(
        rows=len(found),
        median=float(np.median(errors)),
        p90=float(np.quantile(errors, 0.9)),
        bias=float(np.median(ratios)),
        covered=sum(inside) / len(inside) if inside else None,
    )
