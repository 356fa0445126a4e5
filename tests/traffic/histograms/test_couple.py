"""Two marginals, two couplings: both keep every sum, and what was observed lies between them."""

from __future__ import annotations

import numpy as np
import pytest

from planner.traffic.histograms.couple import coupled, largest_total
from planner.traffic.histograms.place import Bucketed, Marginal, feasible_support, place
from planner.traffic.schema import LENGTHS, Coupling

from .test_place import LIMIT, SGLANG, VLLM, bucketed

BOTH = Coupling.COMONOTONE, Coupling.COUNTERMONOTONE


def marginal(lengths: np.ndarray, bounds: tuple[float, ...]) -> Marginal:
    given = bucketed(lengths, bounds)
    return place(feasible_support("x", given, LIMIT), given.tokens)


def exactly(*lengths: int) -> Marginal:
    """Buckets so narrow that the law is the lengths themselves."""
    bounds = tuple(float(b) for x in sorted(set(lengths)) for b in (x - 1, x) if b > 0)
    n = np.histogram(lengths, bins=[-0.5, *(np.array(sorted(set(bounds))) + 0.5), np.inf])[0]
    given = Bucketed(tuple(sorted(set(bounds))), n, sum(lengths))
    return place(feasible_support("x", given, LIMIT), given.tokens)


def test_three_requests_by_hand() -> None:
    prompts, outputs = exactly(100, 200, 3000), exactly(10, 20, 40)
    rows = {c: coupled("m", prompts, outputs, c, cached_share=0.25, limit=3020).to_pylist() for c in BOTH}
    assert [(r["sum_prompt"], r["sum_output"]) for r in rows[Coupling.COMONOTONE]] == [(100, 10), (200, 20), (3000, 40)]
    assert [(r["sum_prompt"], r["sum_output"]) for r in rows[Coupling.COUNTERMONOTONE]] == [
        (100, 40),
        (200, 20),
        (3000, 10),
    ]
    longest = rows[Coupling.COMONOTONE][-1]
    assert (longest["n"], longest["sum_cached"], longest["sum_po"], longest["sum_pp"]) == (1, 750, 120_000, 9e6)
    assert (longest["max_prompt"], longest["max_total"]) == (3000, 3020)


@pytest.mark.parametrize("bounds", [VLLM, SGLANG], ids=["vllm", "sglang"])
@pytest.mark.parametrize("name", ["code_rows", "conv_rows"])
def test_sums_are_exact_and_the_observed_product_lies_between(
    name: str, bounds: tuple[float, ...], request: pytest.FixtureRequest
) -> None:
    rows = request.getfixturevalue(name)
    laws = [marginal(rows[:, side], bounds) for side in (0, 1)]
    products = []
    for coupling in BOTH:
        table = coupled("m", *laws, coupling, cached_share=0.0, limit=LIMIT)
        assert table.schema == LENGTHS
        cells = {f: np.array(table[f].to_pylist()) for f in LENGTHS.names if f != "model"}
        assert cells["n"].sum() == len(rows)
        for side, place_ in (("prompt", 0), ("output", 1)):
            sums, n = cells[f"sum_{side}"], cells["n"]
            assert sums.sum() == rows[:, place_].sum()
            assert (sums >= n * cells[f"{side}_lo"]).all()
            assert (sums <= n * cells[f"max_{side}"]).all()
            assert (cells[f"max_{side}"] < cells[f"{side}_hi"]).all()
        assert (cells["sum_pp"] >= cells["sum_prompt"] ** 2 / cells["n"] - 1e-3).all()
        products.append(cells["sum_po"].sum())
    observed = int((rows[:, 0] * rows[:, 1]).sum())
    assert products[1] < observed < products[0]


def test_laws_of_different_numbers_cannot_be_paired() -> None:
    with pytest.raises(ValueError, match="3 prompts and 2 outputs"):
        coupled("m", exactly(1, 2, 3), exactly(1, 2), Coupling.COMONOTONE, cached_share=0, limit=None)


@pytest.mark.parametrize(
    ("prompt", "output", "limit", "expected"),
    [(100, 50, None, (100, 50)), (100, 50, 120, (100, 20)), (100, 50, 100, (99, 1))],
)
def test_largest_total_is_cut_at_the_context(
    prompt: int, output: int, limit: int | None, expected: tuple[int, int]
) -> None:
    row = largest_total("m", prompt, output, limit)
    assert (row["prompt"], row["output"], row["n"]) == (*expected, 1)
