from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import InputError
from planner.traffic import law as laws
from planner.traffic.prompt_bands import (
    bands_between,
    check_cut,
    cuts_of,
    is_admissible,
    occupied_cuts,
    restrict_prompts,
)
from planner.traffic.source import load_traffic
from planner.traffic.types import Burst, Cap, LengthLaw, Tail, Traffic
from tests.queueing.laws import burst_of, law_of_requests

EXAMPLES = Path(__file__).parents[2] / "catalogs" / "example" / "traffic"
SUMS = ("n", "sum_prompt", "sum_output", "sum_cached", "sum_pp", "sum_po", "sum_oo")


def law_with(low: list[int], high: list[int], n: list[int], output: list[int]) -> LengthLaw:
    """Cells of ``n`` requests each, with the longest prompt of the cell and one output."""
    count, p, o = (np.array(values, dtype=np.int64) for values in (n, high, output))
    w = count.astype(float)
    sums = (w * p, w * o, 0.0 * w, w * p * p, w * p * o, w * o * o)
    return LengthLaw(count, *sums, p, o, p + o, np.array(low, dtype=np.int64), np.zeros(p.size, dtype=np.int64))


def traffic_of(law: LengthLaw, tail: Tail | None = None, burst: Burst | None = None) -> Traffic:
    none = np.zeros(0, dtype=np.int64)
    minutes = np.array([3, 0, 5, 2], dtype=np.int64)
    return Traffic("m", law, tail or Tail(none, none, none), burst or burst_of(3.0), minutes, 240.0, "test", "0" * 64)


def sampled(prompt: np.ndarray, output: np.ndarray, tail_size: int) -> Traffic:
    """As a log is summed up, with the largest totals and every tie of the last of them."""
    total = prompt + output
    least = np.sort(total)[::-1][min(tail_size, total.size) - 1]
    rows, n = np.unique(np.stack([-total, prompt, output])[:, total >= least], axis=1, return_counts=True)
    return traffic_of(law_of_requests(prompt, output), Tail(rows[1], rows[2], n))


def work_share(law: LengthLaw, inside: np.ndarray) -> float:
    """Half the share of the tokens and half that of the KV token-steps."""
    tokens, steps = law.sum_prompt + law.sum_output, law.sum_po + law.sum_oo / 2
    return float(tokens[inside].sum() / tokens.sum() + steps[inside].sum() / steps.sum()) / 2


def test_bands_have_equal_work_and_not_equal_requests() -> None:
    """Four cells of prompts 10, 20, 40, 80 with 8, 4, 2, 1 requests and outputs of 10.

    Tokens per cell: 8 x 20, 4 x 30, 2 x 50, 1 x 90 = 160, 120, 100, 90; total 470.
    KV token-steps P O + O^2/2: 8 x 150, 4 x 250, 2 x 450, 1 x 850 = 1200, 1000, 900, 850; total 3950.
    Work below the edges 20, 40, 80: (160/470 + 1200/3950) / 2 = 0.322; (280/470 + 2200/3950) / 2 = 0.576;
    (380/470 + 3100/3950) / 2 = 0.797. Nearest to 1/2 is 0.576: the edge 40, after 12 of 15 requests.
    In three bands: nearest to 1/3 is 0.322, then (0.322 + 1) / 2 = 0.661, nearest of 0.576 and 0.797 is 0.576.
    """
    law = law_with([10, 20, 40, 80], [10, 20, 40, 80], [8, 4, 2, 1], [10] * 4)
    assert cuts_of(law, 1) == ()
    assert cuts_of(law, 2) == (40,)
    assert cuts_of(law, 3) == (20, 40)
    assert cuts_of(law, 4) == (20, 40, 80)
    assert cuts_of(law, 9) == (20, 40, 80)
    assert cuts_of(law, 3, within=np.array([0, 20, 80])) == (20, 80)
    with pytest.raises(ValueError, match="at least 1"):
        cuts_of(law, 0)


def test_work_counts_what_outputs_hold() -> None:
    """Prompts 10, 50, 100 with outputs 200, 20, 50: tokens 210, 70, 150; P O + O^2/2 = 22000, 1200, 6250.

    Work below 50 is (0.488 + 0.747) / 2 = 0.618, below 100 (0.651 + 0.788) / 2 = 0.719: the first is nearer to a half.
    """
    law = law_with([10, 50, 100], [10, 50, 100], [1, 1, 1], [200, 20, 50])
    assert cuts_of(law, 2) == (50,)


def test_a_prompt_at_the_cut_is_in_the_longer_band() -> None:
    traffic = sampled(np.array([16, 32, 64]), np.array([5, 6, 7]), 3)
    assert restrict_prompts(traffic, 32, 64).tail.prompt.tolist() == [32]
    assert restrict_prompts(traffic, 32, None).law.requests == 2


def test_one_cell_with_most_of_the_work_does_not_use_up_the_cuts() -> None:
    law = law_with([0, 8, 16, 32], [7, 15, 31, 63], [1000, 4, 2, 1], [10] * 4)
    assert cuts_of(law, 3) == (8, 16)


def test_no_cut_goes_through_a_cell() -> None:
    overlapping = law_with([0, 5, 30], [9, 19, 40], [5, 5, 5], [10] * 3)
    assert cuts_of(overlapping, 9) == (30,)
    assert cuts_of(law_with([0, 5], [9, 19], [5, 5], [1, 1]), 2) == ()
    other = law_with([25], [35], [1], [1])
    assert cuts_of(overlapping, 9, also=[other]) == ()
    assert is_admissible(overlapping, 20)
    assert not is_admissible(overlapping, 19)
    problem = check_cut(overlapping, 8, "here")
    assert problem is not None
    assert "Cut at 30" in str(problem)
    assert "Cut at 30 or 41" in str(check_cut(overlapping, 35, "here"))
    assert check_cut(overlapping, 25, "here") is None


def test_a_cut_inside_a_cell_is_refused() -> None:
    with pytest.raises(InputError, match=r"fewer than 35 tokens .* Cut at 30 or 41"):
        restrict_prompts(traffic_of(law_with([0, 30], [9, 40], [5, 5], [10, 10])), 35, None)


def test_empty_bands_go_to_the_longer_neighbour() -> None:
    law = law_with([10, 40], [19, 49], [1, 1], [1, 1])
    assert occupied_cuts(law, (5, 20, 30, 40, 60)) == (20,)
    assert occupied_cuts(law, (30, 20, 30)) == (20,)
    assert occupied_cuts(law, (60,)) == ()
    assert occupied_cuts(law, (5,)) == ()
    assert bands_between((20, 40)) == ((0, 20), (20, 40), (40, None))
    assert bands_between(()) == ((0, None),)


def test_a_band_without_requests_and_a_stretch_that_is_none_are_errors() -> None:
    traffic = traffic_of(law_with([10, 40], [19, 49], [1, 1], [1, 1]))
    for lo, hi in ((20, 40), (50, None)):
        with pytest.raises(ValueError, match="no request"):
            restrict_prompts(traffic, lo, hi)
    for lo, hi in ((20, 20), (-1, 5)):
        with pytest.raises(ValueError, match="no stretch"):
            restrict_prompts(traffic, lo, hi)


def test_everything_else_of_a_band() -> None:
    """6 of 8 requests: minutes 3, 0, 5, 2 have running totals 3, 3, 8, 10, of which 3/4 are 2.25, 2.25, 6, 7.5."""
    law = law_with([10, 40], [19, 49], [6, 2], [100, 7])
    caps = (Cap("prompt", 49, 2, 0.25), Cap("output", 100, 3, 0.375))
    traffic = replace(traffic_of(law), caps=caps, notes=("filtered",))
    short, long = restrict_prompts(traffic, 0, 40), restrict_prompts(traffic, 40, None)
    assert short.minute_counts.tolist() == [2, 0, 4, 2]
    assert long.minute_counts.tolist() == [1, 0, 1, 0]
    assert short.caps == (Cap("output", 100, 3, 0.5),)
    assert long.caps == (Cap("prompt", 49, 2, 1.0),)
    assert short.notes == ("filtered",)
    assert restrict_prompts(traffic, 0, None) is traffic
    assert restrict_prompts(traffic, 3, 50) is traffic


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_bands_add_up_to_the_whole(data: st.DataObject) -> None:
    """Sums, tails and refused requests, for any cuts between any requests."""
    lengths = st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 300)), min_size=1, max_size=60)
    prompt, output = np.array(data.draw(lengths), dtype=np.int64).T
    traffic = sampled(prompt, output, data.draw(st.integers(1, 60)))
    wanted = data.draw(st.lists(st.integers(1, 6000), max_size=6))
    cuts = occupied_cuts(traffic.law, [cut for cut in wanted if is_admissible(traffic.law, cut)])
    bands = bands_between(cuts)
    parts = [restrict_prompts(traffic, lo, hi) for lo, hi in bands]
    for name in SUMS:
        assert sum(getattr(part.law, name).sum() for part in parts) == getattr(traffic.law, name).sum()
    rows = [
        (p, o, n) for part in parts for p, o, n in zip(part.tail.prompt, part.tail.output, part.tail.n, strict=True)
    ]
    assert sorted(rows) == sorted(zip(traffic.tail.prompt, traffic.tail.output, traffic.tail.n, strict=True))
    for (lo, hi), part in zip(bands, parts, strict=True):
        inside = (prompt >= lo) & (prompt < (np.inf if hi is None else hi))
        assert part.law.requests == inside.sum()
        assert part.law.sum_po.sum() == (prompt * output)[inside].sum()
        limit = int(np.median(prompt[inside] + output[inside]))
        if laws.is_exact(part, limit):
            refused = laws.refused_shares(part, limit).requests
            assert refused == pytest.approx(((prompt + output)[inside] > limit).mean())


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_cuts_are_admissible_few_and_ascending(data: st.DataObject) -> None:
    lengths = st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 300)), min_size=1, max_size=60)
    prompt, output = np.array(data.draw(lengths), dtype=np.int64).T
    law, count = law_of_requests(prompt, output), data.draw(st.integers(1, 10))
    cuts = cuts_of(law, count)
    assert len(cuts) == min(count, np.unique(laws.corners(law)[0]).size) - 1
    assert list(cuts) == sorted(set(cuts))
    assert all(is_admissible(law, cut) for cut in cuts)
    assert occupied_cuts(law, cuts) == cuts
    order = np.random.default_rng(0).permutation(law.n.size)
    columns = {name: value if value is None else value[order] for name, value in vars(law).items()}
    assert cuts_of(LengthLaw(**columns), count) == cuts


@pytest.mark.parametrize(
    ("file", "rows"),
    [
        ("AzureLLMInferenceTrace_code.csv", "code_rows"),
        ("AzureLLMInferenceTrace_conv.csv", "conv_rows"),
        ("mooncake_conversation_head2500.jsonl", "mooncake_rows"),
    ],
)
def test_bands_of_real_logs(file: str, rows: str, examples: Path, request: pytest.FixtureRequest) -> None:
    """Every band against the rows themselves; the tail of the union is that of the whole."""
    traffic = load_traffic(examples / file, name="m")
    prompt, output = request.getfixturevalue(rows).T
    bands = bands_between(cuts_of(traffic.law, 6))
    assert len(bands) == 6
    parts = [restrict_prompts(traffic, lo, hi) for lo, hi in bands]
    for (lo, hi), part in zip(bands, parts, strict=True):
        inside = (prompt >= lo) & (prompt < (np.inf if hi is None else hi))
        assert part.law.requests == inside.sum()
        assert part.law.sum_prompt.sum() == prompt[inside].sum()
        assert part.law.sum_oo.sum() == (output[inside].astype(float) ** 2).sum()
        assert part.law.max_total.max() == (prompt + output)[inside].max()
        assert laws.length_at_tail(part, 0.0) == (prompt + output)[inside].max()
    for share in (0.0, 0.001, 0.01):
        limit = laws.length_at_tail(traffic, share)
        refused = sum(laws.refused_shares(part, limit).requests * part.law.requests for part in parts)
        assert refused == pytest.approx((prompt + output > limit).sum())
    low = laws.corners(traffic.law)[0]
    heaviest = max(work_share(traffic.law, low == cell) for cell in np.unique(low))
    shares = [work_share(traffic.law, (low >= lo) & (low < (np.inf if hi is None else hi))) for lo, hi in bands]
    assert sum(shares) == pytest.approx(1.0)
    assert max(shares) < 1 / 6 + heaviest
    assert min(shares) > 0.5 / 6
