"""Small cells merged: every cell large enough, every sum the same, and no load lost downstream."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import InputError
from planner.traffic import law
from planner.traffic.canonical import Canonical
from planner.traffic.ingest import Order, ingest
from planner.traffic.operations.cell import Cell, cells_of
from planner.traffic.operations.merge import merge
from planner.traffic.operations.small_cells import merge_small, merged_cells
from planner.traffic.source import to_traffic
from tests.traffic.handmade import Request, canonical_of

requests = st.lists(
    st.tuples(st.sampled_from(["a", "b"]), st.just(0), st.integers(1, 3000), st.integers(0, 300)),
    min_size=1,
    max_size=80,
)
SUMS = ("n", "sum_prompt", "sum_output", "sum_cached", "sum_pp", "sum_po", "sum_oo")


@pytest.fixture(scope="module")
def code(examples: Path) -> Canonical:
    return ingest(Order((examples / "AzureLLMInferenceTrace_code.csv",), model="code"))


def sums(cells: list[Cell]) -> list[int]:
    return [sum(getattr(cell, name) for cell in cells) for name in SUMS]


@settings(max_examples=80, deadline=None)
@given(rows=requests, smallest=st.integers(1, 12))
def test_cells_are_large_enough_and_sums_stay(rows: list[Request], smallest: int) -> None:
    before = canonical_of(rows)
    after = merge_small(before, smallest)
    for model in before.models():
        old, new = ([c for c in cells_of(x.lengths) if c.model == model] for x in (before, after))
        assert sums(new) == sums(old)
        assert max(c.max_total for c in new) == max(c.max_total for c in old)
        if sum(cell.n for cell in old) >= smallest:
            assert min(cell.n for cell in new) >= smallest
        else:
            assert len(new) == 1
            assert any(remark.startswith(f"{model}: only") for remark in after.manifest.remarks)
        for one, other in ((a, b) for i, a in enumerate(new) for b in new[i + 1 :]):
            apart = one.prompt_hi <= other.prompt_lo or other.prompt_hi <= one.prompt_lo
            assert apart or one.output_hi <= other.output_lo or other.output_hi <= one.output_lo
        for cell in old:
            assert any(
                c.prompt_lo <= cell.prompt_lo and cell.prompt_hi <= c.prompt_hi
                and c.output_lo <= cell.output_lo and cell.output_hi <= c.output_hi for c in new
            )  # fmt: skip
    assert after.manifest.smallest_cell == smallest
    assert after.tail.equals(before.tail)


def test_large_cells_stay_as_they_are() -> None:
    rows = [("a", 0, p, o) for p, o in ((10, 10), (100, 10), (1000, 10), (10, 100)) for _ in range(5)]
    before = canonical_of(rows)
    assert merge_small(before, 5).lengths.equals(before.lengths)


def test_one_small_cell_joins_a_neighbour() -> None:
    rows = [("a", 0, 10, 10)] * 5 + [("a", 0, 11, 10)] * 2 + [("a", 0, 1000, 10)] * 9
    cells = cells_of(merge_small(canonical_of(rows), 5).lengths)
    assert [(c.prompt_lo, c.prompt_hi, c.n, c.sum_prompt, c.max_prompt) for c in cells] == [
        (10, 12, 7, 72, 11),
        (940, 1024, 9, 9000, 1000),
    ]


def test_the_order_of_cells_does_not_show() -> None:
    rows = [("a", 0, 7 * k % 501 + 1, 13 * k % 97) for k in range(60)]
    cells = cells_of(canonical_of(rows).lengths)
    key = lambda cell: cell.edges  # noqa: E731
    assert sorted(merged_cells(cells, 4), key=key) == sorted(merged_cells(cells[::-1], 4), key=key)


def test_questions_to_merged_cells_are_never_answered_too_low(code: Canonical, code_rows: np.ndarray) -> None:
    small = merge_small(code, 5)
    assert small.lengths["n"].to_numpy().min() == 5
    traffic = to_traffic(small, model="code", name="code", where=Path(), sha256="")
    totals = code_rows.sum(axis=1)
    for limit in (200, 1000, 3000, 5000, 7000, 7437, 7500, 7841, 10_000):
        served = code_rows[totals <= limit]
        left = law.truncate(traffic, limit)
        assert left.requests >= len(served)
        assert left.sum_prompt.sum() >= served[:, 0].sum()
        assert left.sum_po.sum() >= (served[:, 0] * served[:, 1]).sum()
        assert left.max_total.max() <= limit
        assert law.refused_shares(traffic, limit).requests >= (totals > limit).mean() - 1e-12
        if law.is_exact(traffic, limit):
            assert left.requests == len(served)
            assert left.sum_prompt.sum() == served[:, 0].sum()
            assert left.sum_pp.sum() == (served[:, 0] ** 2).sum()
    again = law.truncate(traffic, 7000)
    assert again.prompt_lo is not None
    assert (again.prompt_lo <= again.max_prompt).all()


def test_merged_cells_of_two_logs_lie_over_each_other_and_still_answer(code: Canonical, code_rows: np.ndarray) -> None:
    both = merge([code, merge_small(code, 20)], {})
    assert both.manifest.models == {"code": 2 * len(code_rows)}
    traffic = to_traffic(both, model="code", name="code", where=Path(), sha256="")
    totals = code_rows.sum(axis=1)
    for limit in (7437, 7500, 7600):
        assert law.is_exact(traffic, limit)
        left = law.truncate(traffic, limit)
        served = code_rows[totals <= limit]
        assert left.requests == 2 * len(served)
        for found, true in ((left.sum_prompt, served[:, 0]), (left.sum_pp, served[:, 0] ** 2)):
            assert 2 * true.sum() <= found.sum() <= 2.01 * true.sum()  # which cell a request is taken from is a guess
        assert (left.n > 0).all()


def test_a_smallest_cell_of_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="no number of requests"):
        merge_small(canonical_of([("a", 0, 5, 5)]), 0)
