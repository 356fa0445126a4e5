"""Published points through the product: some of a deployment's points are given, the others are predicted.

Measured, three draws of the given points; 93 deployments (engine, version, model, GPU, tp, ep, formats) of 4 points or
more, each load once; error in % as median / 90th percentile, and share inside the 80 % band. The roofline has seen the
deployments; against one that has not, see the head of ``catalogs/speed/measured.toml``.

    given    TPOT            in band    TTFT            in band
    0        7.1 / 25.5      84         23.6 / 70.6     84
    1        5.9 / 18.7      88         19.2 / 68.6     84
    2        5.1 / 18.0      84         17.3 / 64.8     83
    3        4.4 / 16.0      83         17.2 / 62.3     82
    5        3.9 / 14.7      82         16.4 / 66.2     81
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from planner.catalog.load import Catalog
from planner.catalog.lookup.lookup import Lookup
from planner.cli.speed_fit import POINTS_FILES, all_points
from planner.speed.cases.answers import Answer, answer_all
from planner.speed.cases.deployments import Deployments
from planner.speed.cases.rows import Case, Reader
from planner.speed.chain import SpeedSources, load_sources
from planner.speed.measured import MeasuredSet
from planner.speed.points import Figures, LoadKind, Point, Served

FEWEST = 4
Named = dict[Served, list[Point]]


@pytest.fixture(scope="module")
def reader(catalog: Catalog) -> Reader:
    return Reader(Lookup(catalog))


@pytest.fixture(scope="module")
def sources(catalog: Catalog) -> SpeedSources:
    return load_sources(catalog.root)


@pytest.fixture(scope="module")
def known(catalog: Catalog, reader: Reader, sources: SpeedSources) -> Named:
    """Closed loops of deployments that were measured often, each load once."""
    collected = all_points([catalog.root / POINTS_FILES[0]], Deployments(reader, sources))
    found: Named = {}
    for each in collected.points:
        if each.point.load.kind is LoadKind.CLOSED_LOOP:
            found.setdefault(each.point.served, []).append(each.point)
    return {served: points for served, points in found.items() if len(points) >= FEWEST}


def predicted(
    known: Named, reader: Reader, sources: SpeedSources, given: int, seed: int
) -> list[tuple[Figures, Answer]]:
    """What was measured, and what is answered once other points of the deployment are given."""
    rng = np.random.default_rng(seed)
    measured, rest = [], []
    for points in known.values():
        order = rng.permutation(len(points))
        measured += [points[i] for i in order[:given]]
        rest += [points[i] for i in order[given:]]
    cases = [Case(point.id, replace(point, measured=Figures())) for point in rest]
    answers = answer_all(cases, Deployments(reader, replace(sources, measured=MeasuredSet(tuple(measured)))))
    return [(point.measured, answer) for point, answer in zip(rest, answers, strict=True)]


def errors(found: list[tuple[Figures, Answer]], name: str) -> tuple[float, float, float]:
    """Median and 90th percentile of the error, %, and the share inside the band."""
    pairs = [(getattr(answer, name), getattr(figures, name)) for figures, answer in found]
    known = [(banded, value) for banded, value in pairs if banded is not None and value is not None]
    off = 100 * np.array([abs(banded.value / value - 1) for banded, value in known])
    inside = [banded.low <= value <= banded.high for banded, value in known]
    return float(np.median(off)), float(np.quantile(off, 0.9)), float(np.mean(inside))


def test_one_measured_point_carries_to_the_other_loads(known: Named, reader: Reader, sources: SpeedSources) -> None:
    assert len(known) > 80
    found = predicted(known, reader, sources, 1, 0)
    median, p90, inside = errors(found, "tpot_ms")
    assert median <= 7
    assert p90 <= 22
    assert 0.75 <= inside <= 0.91
    median, _, inside = errors(found, "ttft_ms")
    assert median <= 22
    assert 0.75 <= inside <= 0.88
