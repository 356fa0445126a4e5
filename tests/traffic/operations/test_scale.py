"""Scaling: exact sums, whole tokens, and bursts that follow one of two stated assumptions."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import InputError
from planner.traffic import law
from planner.traffic.canonical import Canonical
from planner.traffic.ingest import Order, ingest
from planner.traffic.operations.cell import cells_of
from planner.traffic.operations.multiples import exact, nearest, running
from planner.traffic.operations.scale import BurstRule, Factors, scale, to_rate, unsampled
from planner.traffic.source import to_traffic
from planner.traffic.types import Traffic
from tests.traffic.handmade import Request, canonical_of, window_row

requests = st.lists(
    st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 59), st.integers(1, 40_000), st.integers(0, 3000)),
    min_size=1, max_size=40,
)  # fmt: skip
factors = st.floats(0.05, 20)


@pytest.fixture(scope="module")
def code(examples: Path) -> Canonical:
    return ingest(Order((examples / "AzureLLMInferenceTrace_code.csv",), model="code"))


def traffic(canonical: Canonical, model: str = "code") -> Traffic:
    return to_traffic(canonical, model=model, name=model, where=Path(), sha256="")


@settings(max_examples=30, deadline=None)
@given(rows=requests)
def test_a_factor_of_one_changes_nothing(rows: list[Request]) -> None:
    canonical = canonical_of(rows)
    assert scale(canonical, dict.fromkeys(canonical.models(), Factors())) is canonical


@settings(max_examples=60, deadline=None)
@given(rows=requests, prompt=factors, output=factors, size=st.sampled_from([3, 1000]))
def test_scaled_lengths_are_those_of_scaled_requests(
    rows: list[Request], prompt: float, output: float, size: int
) -> None:
    scaled = scale(
        canonical_of(rows, tail_size=size),
        {"a": Factors(prompt=prompt, output=output)} if any(r[0] == "a" for r in rows) else {},
    )
    for model in scaled.models():
        p_factor, o_factor = (exact(prompt), exact(output)) if model == "a" else (Fraction(1), Fraction(1))
        true = [(nearest(p, p_factor), nearest(o, o_factor)) for m, _, p, o in rows if m == model]
        cells = [cell for cell in cells_of(scaled.lengths) if cell.model == model]
        assert sum(cell.n for cell in cells) == len(true)
        slack = len(true)  # a token for each request at most, where only its sum is known
        assert abs(sum(cell.sum_prompt for cell in cells) - sum(p for p, _ in true)) <= slack
        assert max(cell.max_prompt for cell in cells) == max(p for p, _ in true)
        assert max(cell.max_output for cell in cells) == max(o for _, o in true)
        assert max(cell.max_total for cell in cells) >= max(p + o for p, o in true)
        assert all(cell.prompt_lo <= cell.max_prompt < cell.prompt_hi for cell in cells)
        assert all(cell.output_lo <= cell.max_output < cell.output_hi for cell in cells)
        assert all(cell.sum_pp * cell.n >= cell.sum_prompt**2 for cell in cells)
        rows_of = scaled.tail.filter(pc.equal(scaled.tail["model"], model))
        held = sorted(
            total
            for p, o, n in zip(*(rows_of[c].to_pylist() for c in ("prompt", "output", "n")), strict=True)
            for total in [p + o] * n
        )
        totals = sorted(p + o for p, o in true)
        assert held == totals[len(totals) - len(held) :]  # what is there is the largest, without a gap


@settings(max_examples=60, deadline=None)
@given(values=st.lists(st.integers(0, 1000), min_size=1, max_size=50), factor=st.floats(0.001, 50))
def test_running_totals_are_rounded_once(values: list[int], factor: float) -> None:
    found = running(values, exact(factor))
    for place in range(len(values)):
        assert abs(sum(found[: place + 1]) - sum(values[: place + 1]) * exact(factor)) <= Fraction(1, 2)
    assert all(value >= 0 for value in found)


def test_factors_are_the_decimals_that_are_typed() -> None:
    assert exact(1.4) == Fraction(7, 5)
    assert [nearest(n, exact(1.15)) for n in (10, 100, 130)] == [12, 115, 150]  # 11.5 and 149.5 go up


def test_real_lengths_scale_to_the_means_asked_for(code: Canonical, code_rows: np.ndarray) -> None:
    scaled = traffic(scale(code, {"code": Factors(prompt=1.3, output=2)}))
    prompt, output = code_rows[:, 0], code_rows[:, 1]
    assert scaled.law.requests == len(code_rows)
    assert scaled.law.mean_prompt == pytest.approx(1.3 * prompt.mean(), rel=1e-4)
    assert scaled.law.mean_output == pytest.approx(2 * output.mean(), rel=1e-4)
    assert scaled.law.sum_po.sum() == pytest.approx(2.6 * (prompt * output).sum(), rel=1e-4)
    true = np.floor(1.3 * prompt + 0.5) + 2 * output
    assert law.length_at_tail(scaled, 0) == true.max()
    for limit in (3000, 6000, 9000, 9800, 10_000):
        share = (true > limit).mean()
        found = law.refused_shares(scaled, limit).requests
        assert found >= share - 1e-12
        if law.is_exact(scaled, limit):
            assert found == pytest.approx(share, abs=1e-12)
        assert law.truncate(scaled, limit).requests >= (true <= limit).sum()
    caps = {cap.side: cap.tokens for cap in scaled.caps}
    assert caps == {"prompt": round(1.3 * 7437)}


def test_rates_scale_and_the_evidence_stays(code: Canonical) -> None:
    scaled = scale(code, {"code": Factors(rate=0.37)})
    assert pc.sum(scaled.rates["n"]).as_py() == nearest(8819, exact(0.37))
    assert scaled.rates["n"].to_numpy().min() > 0
    before, after = (pc.sum(c.rates["sum_prompt"]).as_py() for c in (code, scaled))
    assert after == nearest(before, exact(0.37))
    assert scaled.lengths.equals(code.lengths)
    assert scaled.tail.equals(code.tail)
    assert scaled.manifest.history[-1] == "scale code: rate x 0.37, bursts keep"
    assert any("an assumption" in remark for remark in scaled.manifest.remarks)


def test_bursts_keep_or_amplify() -> None:
    batch = {"model": "a", "kind": "batch", "scale_s": 0.001, "windows": 5, "max_n": 2}
    alone = canonical_of([("a", 0, 5, 5)], burst=[window_row("a", 1.0, 3600, 2.0, 3.0, 9), batch])
    kept = scale(alone, {"a": Factors(rate=1.5)}).burst.to_pylist()
    assert (kept[0]["mean_n"], kept[0]["idc"], kept[0]["var_n"], kept[0]["max_n"]) == (3.0, 3.0, 9.0, 14)
    louder = scale(alone, {"a": Factors(rate=1.5)}, BurstRule.AMPLIFY).burst.to_pylist()
    assert (louder[0]["idc"], louder[0]["var_n"]) == (4.0, 12.0)
    assert kept[1]["max_n"] == louder[1]["max_n"] == 2
    thin = scale(alone, {"a": Factors(rate=2 / 3)}).burst.to_pylist()
    assert thin[0]["max_n"] == 9  # an upper bound


def test_a_sampled_log_becomes_whole() -> None:
    rows = [("a", minute, 10, 5) for minute in range(60)]
    sampled = canonical_of(rows, sampling_fraction=0.25, burst=[window_row("a", 1.0, 3600, 60 / 3600, 1.5, 2)])
    whole = unsampled(sampled)
    assert pc.sum(whole.rates["n"]).as_py() == 240
    assert whole.burst.to_pylist()[0]["idc"] == pytest.approx(3.0)  # 1 + 4 (1.5 - 1)
    assert whole.manifest.sampling_fraction == 1


def test_to_a_rate(code: Canonical) -> None:
    factor = to_rate(code, 10.0, ["code"])
    assert traffic(scale(code, {"code": Factors(rate=factor)})).offered_rate_per_s == pytest.approx(10, rel=1e-4)
    for rate in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(InputError, match="no rate"):
            to_rate(code, rate, ["code"])


def test_what_cannot_be_scaled_is_all_named() -> None:
    alone = canonical_of([("a", 0, 5_000_000, 5)])
    wrong = {"a": Factors(rate=-1, prompt=3, output=float("nan")), "z": Factors(rate=2)}
    with pytest.raises(InputError) as caught:
        scale(alone, wrong)
    for words in ("rate factor, field a: -1", "15,000,000 tokens", "output factor, field a: nan", "no model 'z'"):
        assert words in str(caught.value)
    with pytest.raises(InputError, match="leaves no arrival"):
        scale(alone, {"a": Factors(rate=0.01)})
