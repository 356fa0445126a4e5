"""Load tables: the cheapest fleet against CBC, against every cheaper fleet, and against the laws it must obey."""

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from planner.errors import InfeasibleError, InputError
from planner.optimise.load_table.cuts import Pricing
from planner.optimise.load_table.fleet import master_program, needed_types, overload, solve_load_table
from planner.optimise.load_table.table import LoadTable, load_table, read_load_table
from planner.optimise.types import SolverSettings
from planner.plan import SolveStatus

DATA = Path(__file__).parents[1] / "data" / "melange"
RESULTS = json.loads((DATA / "results.json").read_text())
HIGHS = SolverSettings("highs", 1e-4, 60.0, 1, 0)


def table(usd, load, available=None):
    """A table with these loads (types x buckets)."""
    load = np.array(load, dtype=float)
    return LoadTable(
        gpus=tuple(f"g{i}" for i in range(len(usd))),
        usd_per_h=np.array(usd, dtype=float),
        load=load,
        available=tuple(available or [None] * len(usd)),
        buckets=tuple((1, j + 1) for j in range(load.shape[1])),
        rate_per_s=1.0,
    )


def carries(load, counts) -> bool:
    """Whether the counts carry the loads, by a linear program over every share."""
    types, buckets = load.shape
    serve = np.isfinite(load)
    index = np.argwhere(serve)
    upper = np.zeros((types, len(index)))
    equal = np.zeros((buckets, len(index)))
    for k, (g, b) in enumerate(index):
        upper[g, k] = load[g, b]
        equal[b, k] = 1
    found = linprog(np.zeros(len(index)), upper, counts, equal, np.ones(buckets), (0, None), method="highs")
    return found.status == 0


def cheapest_by_counting(t: LoadTable, most: int) -> float:
    """Cost of the cheapest of all fleets of up to ``most`` instances a type."""
    limits = [range(most + 1) if n is None else range(min(most, n) + 1) for n in t.available]
    fleets = sorted(itertools.product(*limits), key=lambda y: float(np.dot(y, t.usd_per_h)))
    return next(float(np.dot(y, t.usd_per_h)) for y in fleets if carries(t.load, np.array(y, dtype=float)))


@pytest.mark.parametrize("result", RESULTS, ids=[r["name"] for r in RESULTS])
def test_never_dearer_than_cbc_and_proven(result):
    t = read_load_table(DATA / f"{result['name']}.json")
    fleet = solve_load_table(t, HIGHS)
    assert result["lp_bound"] <= fleet.usd_per_h <= result["cost"] + 1e-9
    assert (fleet.status, fleet.gap <= 1e-4) == (SolveStatus.OPTIMAL, True)
    assert fleet.usd_per_h == pytest.approx(float(np.dot(fleet.counts, t.usd_per_h)), rel=1e-12)
    assert overload(t, fleet) <= 1e-9
    if not result["timed_out"] and result["slice_factor"] >= 16:
        # CBC proved its cost for slices; sharing freely can only be cheaper, and here whole counts leave no step.
        assert fleet.usd_per_h == pytest.approx(result["cost"], abs=1e-9)


def test_two_buckets_by_hand():
    """Bucket 1 keeps 0.5 of a or 2 of b busy, bucket 2 0.9 of a or 0.4 of b; a costs 5, b 2.

    One a cannot take both (1.4 > 1). a + b, 7: bucket 1 on a, bucket 2 on b. b alone: 2 + 0.4 = 2.4, so three, 6.
    Two b, 4: 2.4 > 2. So three b.
    """
    fleet = solve_load_table(table([5, 2], [[0.5, 0.9], [2.0, 0.4]]), HIGHS)
    assert (fleet.counts, fleet.usd_per_h, fleet.gap) == ((0, 3), 6.0, 0.0)


def test_a_bucket_is_shared_when_that_is_cheaper():
    """One bucket keeps 1.5 of a (USD 3) or 3 of b (USD 2) busy: a + b carry 1/1.5 + 1/3 = 1 of it, at 5; aa cost 6."""
    fleet = solve_load_table(table([3, 2], [[1.5], [3.0]]), HIGHS)
    assert (fleet.counts, fleet.usd_per_h) == ((1, 1), 5.0)
    assert fleet.shares[:, 0] == pytest.approx([2 / 3, 1 / 3], abs=1e-8)


def test_a_full_instance_is_not_an_overload():
    """Loads of 0.1 + 0.2 + 0.7 fill one instance to the last bit, whatever floating point makes of the sum."""
    assert solve_load_table(table([1], [[0.1, 0.2, 0.7]]), HIGHS).counts == (1,)


@pytest.mark.parametrize("seed", range(8))
def test_brute_force_over_every_fleet(seed):
    rng = np.random.default_rng(seed)
    load = rng.uniform(0.05, 1.5, (3, 4))
    load[rng.random(load.shape) < 0.2] = np.inf
    load[0] = np.where(np.isfinite(load[0]), load[0], 1.0)
    usd = np.round(rng.uniform(1, 4, 3), 2)
    t = table(usd, load, [None, None, 1] if seed % 2 else None)
    fleet = solve_load_table(t, HIGHS)
    assert fleet.usd_per_h == pytest.approx(cheapest_by_counting(t, 6), abs=1e-9)
    assert fleet.counts[2] <= 1 or not seed % 2
    assert carries(t.load, np.array(fleet.counts) + 1e-7)


def test_cbc_finds_the_same_cost():
    t = read_load_table(DATA / "b25_sf4_g4_r400.json")
    cbc = solve_load_table(t, replace(HIGHS, name="cbc"))
    assert cbc.usd_per_h == solve_load_table(t, HIGHS).usd_per_h
    assert (cbc.solver, cbc.status) == ("CBC", SolveStatus.OPTIMAL)


loads = st.lists(st.lists(st.floats(0.01, 3), min_size=4, max_size=4), min_size=3, max_size=3)
prices = st.lists(st.floats(0.5, 9).map(lambda x: round(x, 2)), min_size=3, max_size=3)


@given(loads, prices, st.integers(0, 2), st.floats(0.3, 1.0))
@settings(max_examples=12, deadline=None)
def test_a_cheaper_type_never_raises_the_cost_and_more_load_never_lowers_it(load, usd, which, factor):
    # Costs are least up to a hundredth of the gap.
    base = solve_load_table(table(usd, load), HIGHS).usd_per_h
    lower = [u * factor if g == which else u for g, u in enumerate(usd)]
    assert solve_load_table(table(lower, load), HIGHS).usd_per_h <= base * (1 + 2e-6)
    assert solve_load_table(table(usd, np.array(load) * factor), HIGHS).usd_per_h <= base * (1 + 2e-6)


@given(loads, prices)
@settings(max_examples=12, deadline=None)
def test_cuts_hold_for_the_whole_table_and_order_does_not_matter(load, usd):
    t = table(usd, load)
    fleet = solve_load_table(t, HIGHS)
    many = np.ceil(t.load.sum(axis=1))
    for cut in fleet.cuts:
        whole = np.minimum.reduce([w * row for w, row in zip(cut.weights, t.load[list(fleet.kept)], strict=True)]).sum()
        assert cut.value == pytest.approx(whole, rel=1e-12)
        for g in range(3):  # fleets of one type that surely carry the table
            assert cut.value <= (cut.weights * np.where(np.array(fleet.kept) == g, many[g], 0)).sum() * (1 + 1e-9) or (
                g not in fleet.kept
            )
    turned = solve_load_table(table(usd[::-1], load[::-1]), HIGHS)
    assert turned.usd_per_h == pytest.approx(fleet.usd_per_h, rel=2e-6)


def test_weights_give_the_value_by_hand():
    """Weights 2 and 1 on loads (1, 3) and (4, 1): min(2, 4) + min(6, 1) = 3, by types 0 and 1, loads 1 and 1."""
    found = Pricing(table([1, 1], [[1, 3], [4, 1]]))(np.array([2.0, 1.0]))
    assert (found.value, found.loads.tolist(), found.gpu.tolist()) == (3.0, [1.0, 1.0], [0, 1])


def test_a_dominated_type_is_left_out_only_if_the_other_has_no_limit():
    load = [[1.0, 1.0], [0.6, 0.5]]  # two of g0 (2 USD) carry what one of g1 (2.5 USD) carries: 1 <= 2 x 0.5
    assert needed_types(table([1, 2.5], load)) == (0,)
    assert needed_types(table([1, 2.5], load, [1, None])) == (0, 1)
    assert needed_types(table([1, 2.5], [[1.0, 1.01], [0.6, 0.5]])) == (0, 1)  # 1.01 > 2 x 0.5
    assert needed_types(table([1, 1], [[1.0], [1.0]])) in {(0,), (1,)}  # alike: one of them stays


def test_no_more_is_taken_than_can_be_had():
    """3 of g0 (USD 1) would do, 2 can be had: they carry 2/3, and the one g1 (10) that is needed carries it all."""
    fleet = solve_load_table(table([1, 10], [[3.0], [1.0]], [2, None]), HIGHS)
    assert (fleet.counts, fleet.usd_per_h) == ((0, 1), 10.0)


def test_what_is_short_is_said():
    """10 GPUs of load, 4 can be had: 40 % of the rate."""
    with pytest.raises(InfeasibleError, match=r"at most 40\.00 % of the 1 requests/s") as caught:
        solve_load_table(table([1], [[5.0, 5.0]], [4]), HIGHS)
    assert caught.value.shortages == ("g0: 4 can be had, the cheapest fleet without limits takes 10",)


def test_a_bucket_that_no_type_serves_is_named():
    with pytest.raises(InfeasibleError, match=r"bucket \(1, 2\)"):
        solve_load_table(table([1, 1], [[1, np.inf], [1, np.inf]]), HIGHS)
    with pytest.raises(InfeasibleError, match=r"bucket \(1, 2\)"):  # the one that serves it cannot be had
        solve_load_table(table([1, 1], [[1, 1], [1, np.inf]], [0, None]), HIGHS)


def test_a_time_limit_leaves_an_honest_gap():
    t = read_load_table(DATA / "b400_sf1_g16_r400.json")
    ticks = itertools.count()
    fleet = solve_load_table(t, HIGHS, clock=lambda: 40.0 * next(ticks))  # over the limit after the first program
    assert (fleet.status, overload(t, fleet) <= 1e-9) == (SolveStatus.FEASIBLE, True)
    assert fleet.bound_usd_per_h <= 202.09 <= fleet.usd_per_h  # 202.09: the cheapest, see the first test
    assert 1e-4 < fleet.gap < 0.02


def test_an_overload_is_seen():
    t = table([3, 2], [[1.5], [3.0]])
    fleet = solve_load_table(t, HIGHS)
    assert overload(t, replace(fleet, counts=(1, 0))) == pytest.approx(1.0)  # 1/3 x 3 on none
    assert overload(t, replace(fleet, shares=fleet.shares * 0.9)) == float("inf")


def test_the_program_has_one_row_a_cut():
    t = table([5, 2], [[0.5, 0.9], [2.0, 0.4]])
    fleet = solve_load_table(t, HIGHS)
    master = master_program(t, fleet.cuts, fleet.kept)
    assert (len(master.y), master.problem.numConstraints()) == (2, len(fleet.cuts))


GOOD = {
    "gpu_info": {"b": {"cost": 2, "tputs": [[4, None], [2, 1]]}, "a": {"cost": 1.5, "tputs": [[1, 2], [0, 4]]}},
    "workload_distribution": [[0.5, 0.25], [0, 0.25]],
    "total_request_rate": 8,
}


def test_the_form_is_read():
    """8 requests/s: 4, 2, 0 and 2 a bucket; the empty one is left out. Types in the order of their names."""
    t = load_table(GOOD, "x")
    assert (t.gpus, t.buckets, t.slice_factor) == (("a", "b"), ((1, 1), (1, 2), (2, 2)), None)
    assert t.load.tolist() == [[4.0, 1.0, 0.5], [1.0, float("inf"), 2.0]]


BAD = [
    ({"total_request_rate": -1}, "total_request_rate: is -1"),
    ({"total_request_rate": True}, "total_request_rate: is True"),
    ({"total_request_rate": 1e12}, "needs more than 1,000,000 instances"),
    ({"workload_distribution": [[0.5, 0.25], [0, 0.2]]}, "adds up to 0.95"),
    ({"workload_distribution": [[0.5, 0.25], [0]]}, "rows of different lengths"),
    ({"workload_distribution": [[1.5, -0.5], [0, 0]]}, "negative or not finite, the first at (1, 2)"),
    ({"workload_distribution": [["0.5", 0.5], [0, 0]]}, "holds '0.5', no number, at (1, 1)"),
    ({"workload_distribution": 3}, "is no list of lists"),
    ({"workload_distribution": [[1.0]]}, "has 2 x 2 buckets, workload_distribution 1 x 1"),
    ({"gpu_info": {}}, "names no GPU types"),
    ({"gpu_info": {"a": 3}}, "is no object"),
    ({"gpu_info": {"a": {"cost": 0, "tputs": [[1, 1], [1, 1]]}}}, "cost: is 0"),
    ({"gpu_info": {"a": {"cost": 1}}}, "tputs: is missing"),
    ({"gpu_info": {"a": {"cost": 1, "tputs": [[1, 1], [1, 1]], "stock": 3}}}, "stock: is not a known key"),
    ({"gpu_info": {"a": {"cost": 1, "tputs": [[1, 1], [1, 1]], "available": 1.5}}}, "available: is 1.5"),
    ({"gpu_info": {"a": {"cost": 1, "tputs": [[1e-9, 1], [1, 1]]}}}, "bucket (1, 1) alone keeps 4e+09"),
    ({"slice_factor": 0}, "slice_factor: is 0"),
    ({"gpu_info": {"a": {"cost": 1, "tputs": [[10**400, 1], [1, 1]]}}}, "not finite"),
]


@pytest.mark.parametrize(("change", "message"), BAD, ids=[m for _, m in BAD])
def test_what_is_wrong_is_said(change, message):
    with pytest.raises(InputError) as caught:
        load_table(GOOD | change, "x")
    assert message in str(caught.value)


def test_every_problem_at_once():
    with pytest.raises(InputError) as caught:
        load_table({"gpu_info": {"a": {"cost": -1, "tputs": [[-1]]}}, "workload_distribution": [[0.5]]}, "x")
    assert len(caught.value.problems) == 4  # rate, sum, cost, tputs


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is no JSON"),
        ("[]", "holds a list"),
        ('{"total_request_rate": NaN}', "total_request_rate: is 'NaN'"),
        ('{"gpu_info": {"a": {}, "a": {}}}', "'a' is there twice"),
        ("[" * 100_000, "is no JSON"),
    ],
)
def test_files_that_cannot_be_read(tmp_path, text, message):
    path = tmp_path / "t.json"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_load_table(path)
    assert message in str(caught.value)
    with pytest.raises(InputError, match="cannot be read"):
        read_load_table(tmp_path / "none.json")
