"""Figures of a distribution, against the rows themselves."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from planner.errors import InputError
from planner.traffic.canonical import Canonical
from planner.traffic.figures import as_plain, figures_of
from planner.traffic.ingest import Order, ingest
from planner.traffic.schema import LENGTHS, Kind
from tests.traffic.handmade import canonical_of, window_row


@pytest.fixture(scope="module")
def code(examples: Path) -> Canonical:
    return ingest(Order((examples / "AzureLLMInferenceTrace_code.csv",), model="code"))


def test_lengths_of_a_real_log(code: Canonical, code_rows: np.ndarray) -> None:
    (one,) = figures_of(code, Path("code"))
    sides = {"prompt": code_rows[:, 0], "output": code_rows[:, 1], "total": code_rows.sum(axis=1)}
    for side, true in sides.items():
        found = one.lengths[side]
        assert found.mean == pytest.approx(true.mean())
        assert found.most == true.max()
        for q, tokens in found.quantiles.items():
            exact = np.quantile(true, q, method="inverted_cdf")
            assert exact <= tokens <= 1.2 * exact + 1
    assert one.lengths["total"].quantiles[0.99] == np.sort(sides["total"])[-int(0.01 * len(code_rows)) - 1]
    assert [(cap.side, cap.tokens) for cap in one.caps] == [("prompt", 7437)]
    assert one.batches == {1: 8819}
    assert 3600.0 in one.idc_unknown
    assert any("10,000" in warning for warning in one.warnings)


def test_rates_are_of_the_whole_traffic() -> None:
    rows = [
        ("a", minute, 5, 5) for minute in range(180) for _ in range(6 if 30 <= minute < 90 else 3 if minute else 12)
    ]
    (one,) = figures_of(canonical_of(rows, minutes=180, sampling_fraction=0.5), Path("a"))
    assert one.arrivals_per_s == pytest.approx(2 * len(rows) / 180 / 60)
    assert one.peak_minute_per_s == pytest.approx(2 * 12 / 60)
    assert one.peak_hour_per_s == pytest.approx(2 * 6 / 60)  # minutes 30 to 90: no clock hour


def test_as_plain_is_json_and_complete() -> None:
    batch = {"model": "a", "kind": "batch", "scale_s": 0.5, "windows": 3, "max_n": 4}
    burst = [window_row("a", 1.0, 3600, 0.1, 2.5, 3), batch, batch | {"max_n": 2, "windows": 9}]
    (one,) = figures_of(canonical_of([("a", 0, 100, 10)], burst=burst), Path("a"))
    plain = json.loads(json.dumps(as_plain(one), allow_nan=False))
    assert plain["largest_batches"] == {"4": 3, "2": 9}
    assert (plain["stamp_s"], plain["idc"], plain["cached_share"]) == (0.5, {"1": 2.5}, 0.0)
    assert plain["lengths_tokens"]["total"] == {
        "mean": 110.0, "p50": 110, "p90": 110, "p95": 110, "p99": 110, "p99.9": 110, "max": 110,
    }  # fmt: skip


def test_sums_have_rates_only() -> None:
    rows = canonical_of([("a", 0, 100, 10)], kind=Kind.SUMS)
    sums = Canonical(rows.manifest, LENGTHS.empty_table(), rows.tail.slice(0, 0), rows.rates, rows.burst)
    (one,) = figures_of(sums, Path("a"))
    assert one.lengths == {}
    assert one.cached_share is None
    assert one.arrivals_per_s == pytest.approx(1 / 3600)
    assert one.warnings == ("sums only: no lengths, no bursts",)


def test_models_that_are_not_there() -> None:
    with pytest.raises(InputError, match="no model 'z'"):
        figures_of(canonical_of([("a", 0, 5, 5)]), Path("a"), ["z", "a"])
