from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import InputError
from planner.traffic import law
from planner.traffic.source import load_traffic
from planner.traffic.types import Traffic


@pytest.fixture(scope="module")
def code(examples: Path) -> Traffic:
    return load_traffic(examples / "AzureLLMInferenceTrace_code.csv", name="code")


def test_shares_are_exact_within_the_tail_and_never_too_low_below(code: Traffic, code_rows: np.ndarray) -> None:
    totals = code_rows.sum(axis=1)
    for limit in (500, 2000, 4000, 6000, 7000, 7437, 7500, 7840, 7841, 100_000):
        requests, tokens = law.refused_shares(code, limit)
        true = (totals > limit).mean()
        true_tokens = totals[totals > limit].sum() / totals.sum()
        if law.is_exact(code, limit):
            assert (requests, tokens) == (pytest.approx(true, abs=1e-12), pytest.approx(true_tokens, abs=1e-12))
        else:
            assert true <= requests <= true + 0.12
            assert true_tokens <= tokens
    assert law.is_exact(code, 7000)
    assert not law.is_exact(code, 4000)


def test_length_at_tail_is_the_least_limit_within_the_budget(code: Traffic, code_rows: np.ndarray) -> None:
    totals = np.sort(code_rows.sum(axis=1))[::-1]
    for share in (0.0, 0.0001, 0.001, 0.01, 0.05, 0.1):
        limit = law.length_at_tail(code, share)
        assert limit == totals[int(share * len(totals))]
        assert (totals > limit).mean() <= share < (totals > limit - 1).mean()


def test_length_beyond_the_tail_table_is_never_too_short(code: Traffic, code_rows: np.ndarray) -> None:
    totals = code_rows.sum(axis=1)
    for share in (0.2, 0.5, 0.9):
        limit = law.length_at_tail(code, share)
        assert (totals > limit).mean() <= share
        assert limit <= np.quantile(totals, 1 - share) * 1.2


@settings(max_examples=40, deadline=None)
@given(limit=st.integers(6700, 8000))
def test_truncation_is_exact_within_the_tail(limit: int, code: Traffic, code_rows: np.ndarray) -> None:
    assert law.is_exact(code, limit)
    served = code_rows[code_rows.sum(axis=1) <= limit]
    left = law.truncate(code, limit)
    prompt, output = served[:, 0], served[:, 1]
    assert left.requests == len(served)
    assert left.sum_prompt.sum() == prompt.sum()
    assert left.sum_output.sum() == output.sum()
    assert left.sum_po.sum() == (prompt * output).sum()
    assert left.sum_pp.sum() == (prompt**2).sum()
    assert left.sum_oo.sum() == (output**2).sum()
    assert left.max_total.max() <= limit
    assert left.max_total.max() >= served.sum(axis=1).max()


def test_truncation_below_the_tail_never_loses_load(code: Traffic, code_rows: np.ndarray) -> None:
    for limit in (200, 1000, 3000, 5000):
        served = code_rows[code_rows.sum(axis=1) <= limit]
        left = law.truncate(code, limit)
        assert left.requests >= len(served)
        assert left.sum_prompt.sum() >= served[:, 0].sum()
        assert left.max_total.max() <= limit


def test_truncation_that_refuses_nothing_changes_nothing(code: Traffic) -> None:
    left = law.truncate(code, 1_000_000)
    np.testing.assert_array_equal(left.n, code.law.n)
    np.testing.assert_array_equal(left.max_total, code.law.max_total)


def test_truncation_that_refuses_everything_is_an_error(code: Traffic) -> None:
    with pytest.raises(InputError, match="refuses every request"):
        law.truncate(code, 3)


def test_sampling_warning(code: Traffic) -> None:
    assert law.sampling_warning(code, 0.01) is None
    assert "10,000" in str(law.sampling_warning(code, 0.001))
    assert "no bound" in str(law.sampling_warning(code, 0.0))
