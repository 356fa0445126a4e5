"""Splitting: totals are kept exactly, and merging the parts gives the whole back."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import InputError
from planner.traffic import law
from planner.traffic.burstiness import idc_at
from planner.traffic.canonical import Canonical
from planner.traffic.ingest import Order, ingest
from planner.traffic.operations.cell import cells_of
from planner.traffic.operations.merge import merge
from planner.traffic.operations.small_cells import merge_small
from planner.traffic.operations.split import Period, between, by_length, by_period, by_share
from planner.traffic.operations.split.length import part_names
from planner.traffic.schema import Kind
from planner.traffic.source import to_traffic
from planner.traffic.types import Traffic
from tests.traffic.handmade import MINUTE_US, START_US, Request, canonical_of, window_row

requests = st.lists(
    st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 59), st.integers(1, 40_000), st.integers(0, 3000)),
    min_size=1, max_size=40,
)  # fmt: skip
SUMS = ("n", "sum_prompt", "sum_output", "sum_cached", "sum_pp", "sum_po", "sum_oo")
DAY = 24 * 60


@pytest.fixture(scope="module")
def code(examples: Path) -> Canonical:
    return ingest(Order((examples / "AzureLLMInferenceTrace_code.csv",), model="code"))


def traffic(canonical: Canonical, model: str) -> Traffic:
    return to_traffic(canonical, model=model, name=model, where=Path(), sha256="")


def sums(canonical: Canonical, prefix: str) -> list[int]:
    cells = [c for c in cells_of(canonical.lengths) if c.model.startswith(prefix) and c.period == "all"]
    return [sum(getattr(cell, name) for cell in cells) for name in SUMS]


@settings(max_examples=80, deadline=None)
@given(rows=requests, limits=st.sets(st.integers(1, 50_000), min_size=1, max_size=3), size=st.sampled_from([3, 1000]))
def test_lengths_keep_their_totals_and_sides(rows: list[Request], limits: set[int], size: int) -> None:
    whole = canonical_of(rows, tail_size=size)
    edges = sorted(limits)
    parts = by_length(whole, edges)
    for model in whole.models():
        assert sums(parts, f"{model}/") == sums(whole, model)
    for cell in cells_of(parts.lengths):
        assert cell.n > 0
        assert cell.prompt_lo <= cell.max_prompt < cell.prompt_hi
        assert cell.n * cell.prompt_lo <= cell.sum_prompt <= cell.n * cell.max_prompt
        assert cell.n * cell.output_lo <= cell.sum_output <= cell.n * cell.max_output
        assert all(not cell.prompt_lo < limit <= cell.max_prompt for limit in edges)
    back = merge([parts], {model: model.split("/")[0] for model in parts.models()})
    assert back.rates.equals(whole.rates)
    assert back.manifest.models == whole.manifest.models
    if size == 1000:  # every request is known one by one: the split is exact, and so is the way back
        assert back.tail.equals(whole.tail)
        for model in whole.models():
            prompts = [p for m, _, p, _ in rows if m == model]
            true = np.histogram(prompts, [0, *edges, np.inf])[0].tolist()
            names = [f"{model}/{name}" for name in part_names(edges)]
            assert [parts.manifest.models.get(name, 0) for name in names] == true


def test_limits_at_cell_edges_give_the_very_cells_back() -> None:
    rows = [("a", k % 60, 37 * k % 9000 + 1, k % 70) for k in range(300)]
    whole = canonical_of(rows, tail_size=10)
    parts = by_length(whole, [1024, 4096])
    assert parts.models() == ("a/long", "a/medium", "a/short")
    true = np.histogram([p for _, _, p, _ in rows], [0, 1024, 4096, 10_000])[0]
    assert [parts.manifest.models[f"a/{name}"] for name in ("short", "medium", "long")] == true.tolist()
    back = merge([parts], dict.fromkeys(parts.models(), "a"))
    assert back.lengths.equals(whole.lengths)
    assert not any("cut in proportion" in remark for remark in parts.manifest.remarks)


def test_a_real_log_by_length(code: Canonical, code_rows: np.ndarray) -> None:
    parts = by_length(code, [4000])  # inside a cell
    true = code_rows[code_rows[:, 0] < 4000]
    short, long = (traffic(parts, f"code/{name}") for name in ("short", "long"))
    assert short.law.requests + long.law.requests == len(code_rows)
    assert short.law.requests == pytest.approx(len(true), rel=0.01)
    assert short.law.sum_prompt.sum() == pytest.approx(true[:, 0].sum(), rel=0.02)
    assert short.law.max_prompt.max() == 3999
    assert law.length_at_tail(long, 0) == 7841
    assert {cap.side for cap in long.caps} == {"prompt"}
    assert short.caps == ()
    assert law.truncate(short, 100_000).requests == short.law.requests
    assert law.is_exact(short, 7841)
    assert short.offered_rate_per_s + long.offered_rate_per_s == pytest.approx(traffic(code, "code").offered_rate_per_s)
    share = short.law.requests / len(code_rows)
    whole = traffic(code, "code")
    for scale in (1, 15, 60):
        assert idc_at(short.burst, scale) == pytest.approx(1 + share * (idc_at(whole.burst, scale) - 1))
    assert any("cut in proportion" in remark for remark in parts.manifest.remarks)


def test_small_cells_are_cut_too(code: Canonical) -> None:
    small = merge_small(code, 50)
    parts = by_length(small, [100, 3000])
    assert sums(parts, "code/") == sums(small, "code")
    assert parts.lengths["n"].to_numpy().min() > 0


def test_only_the_models_asked_for_are_cut() -> None:
    rows = [("a", 0, 10, 1), ("a", 1, 100, 1), ("b", 2, 100, 1)]
    parts = by_length(canonical_of(rows), [50], ["a"])
    assert parts.models() == ("a/long", "a/short", "b")
    assert parts.manifest.history == ["split by prompt length at 50: a"]


def test_shares_add_up_and_thin_the_bursts() -> None:
    rows = [("a", minute, 100, 10) for minute in range(60) for _ in range(minute % 5)] + [("b", 0, 5, 5)]
    whole = canonical_of(rows, burst=[window_row("a", 60.0, 60, 2.0, 4.0, 4)])
    parts = by_share(whole, {"x": 0.7, "y": 0.3}, "a")
    assert parts.models() == ("a/x", "a/y", "b")
    idc = {row["model"]: row["idc"] for row in parts.burst.to_pylist()}
    assert idc == {"a/x": pytest.approx(3.1), "a/y": pytest.approx(1.9)}
    n = {m: pc.sum(parts.rates.filter(pc.equal(parts.rates["model"], m))["n"]).as_py() for m in ("a/x", "a/y")}
    assert n == {"a/x": 84, "a/y": 36}
    assert parts.manifest.models == {"a/x": 120, "a/y": 120, "b": 1}
    back = merge([parts], {"a/x": "a", "a/y": "a"})
    assert back.rates.equals(whole.rates)
    assert any("must not be added" in remark for remark in parts.manifest.remarks)


def test_a_stretch_of_time_has_its_own_rates_and_bursts() -> None:
    rng = np.random.default_rng(1)
    counts = np.concatenate([rng.poisson(2, 60), rng.poisson(20, 60)])
    rows = [("a", minute, 100, 10) for minute, n in enumerate(counts) for _ in range(n)]
    burst = [window_row("a", 1.0, 7200, len(rows) / 7200, 1.7, 9), window_row("a", 60.0, 120, len(rows) / 120, 6.0, 30)]
    whole = canonical_of(rows, minutes=120, burst=burst)
    late = between(whole, START_US + 60 * MINUTE_US, None)
    assert late.manifest.window_start == "2026-01-05T01:00:00Z"
    assert pc.sum(late.rates["n"]).as_py() == counts[60:].sum()
    found = {row["scale_s"]: row for row in late.burst.to_pylist()}
    assert found[60.0]["var_n"] == pytest.approx(counts[60:].var(ddof=1))
    assert (found[60.0]["windows"], found[60.0]["max_n"]) == (60, counts[60:].max())
    assert (found[1.0]["windows"], found[1.0]["idc"]) == (3600, 1.7)
    assert found[1.0]["mean_n"] == pytest.approx(counts[60:].sum() / 3600)
    assert late.lengths.equals(whole.lengths)
    assert any("those of the whole log" in remark for remark in late.manifest.remarks)
    early = between(whole, None, START_US + 60 * MINUTE_US)
    assert merge([early, late]).rates.equals(whole.rates)
    assert between(whole, None, None) is whole


def test_days_and_weeks() -> None:
    rows = [("a", day * DAY + 5, 10 + day, 1) for day in (0, 1, 6, 8)] + [("b", 30, 7, 7)]
    whole = canonical_of(rows, minutes=9 * DAY)
    days = by_period(whole, Period.DAY)
    assert list(days) == ["2026-01-05", "2026-01-06", "2026-01-11", "2026-01-13"]
    assert days["2026-01-05"].models() == ("a", "b")
    assert days["2026-01-06"].models() == ("a",)
    assert any("left out: b" in remark for remark in days["2026-01-06"].manifest.remarks)
    weeks = by_period(whole, Period.WEEK)
    assert list(weeks) == ["2026-01-05", "2026-01-12"]
    assert weeks["2026-01-12"].manifest.window_start == "2026-01-12T00:00:00Z"
    assert weeks["2026-01-12"].manifest.window_end == "2026-01-14T00:00:00Z"
    assert merge(list(weeks.values())).rates.equals(whole.rates)


def us(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1e6)


def test_bad_wishes_are_named() -> None:
    whole = canonical_of([("a", 0, 5, 5), ("a/short", 0, 5, 5)])
    with pytest.raises(InputError, match="are no limits") as caught:
        by_length(whole, [5, 5], ["a"])
    with pytest.raises(InputError, match="make a/short a second time"):
        by_length(whole, [5], ["a"])
    with pytest.raises(InputError, match="no model 'z'"):
        by_length(whole, [5], ["z"])
    with pytest.raises(InputError, match="no joint lengths"):
        by_length(canonical_of([("a", 0, 5, 5)], kind=Kind.MARGINALS), [5])
    for shares, words in (({"x": 0.7, "y": 0.2}, "add up to 0.9"), ({"x": 1.5, "y": -0.5}, "between 0 and 1")):
        with pytest.raises(InputError, match=words):
            by_share(whole, shares, "a")
    with pytest.raises(InputError, match="several models"):
        by_share(whole, {"x": 0.5, "y": 0.5})
    with pytest.raises(InputError, match="no whole minute"):
        between(whole, START_US + 1, None)
    with pytest.raises(InputError, match="leave no time"):
        between(whole, us("2027-01-01"), None)
    with pytest.raises(InputError, match="no arrival between"):
        between(whole, START_US + 10 * MINUTE_US, None)
    with pytest.raises(InputError, match="no calendar"):
        by_period(canonical_of([("a", 0, 5, 5)], time_base="start of the log"), Period.DAY)
    assert caught.value.exit_code == 2
