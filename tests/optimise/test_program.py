"""The program beyond single families: yards, packing, held quotas, what is short, degenerate inputs, names and text."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import highspy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.optimise.program import build, lost_tokens, lp_text, quota_covers, trimmed, write_lp
from planner.optimise.program.yards import widths_of, yards_of
from planner.optimise.recount import first_fit, recount
from planner.optimise.solve.ratio import solve_program
from planner.optimise.types import Caps, LotKind, Movement, Placement, Supply
from planner.plan import SolveStatus
from planner.request import Quota
from tests.optimise.small_programs import EXACT, ONE, TWO, column, data, decision, lot, offer, part, solve

SINGLE, NODE = Supply("single", "H", 1), Supply("node", "H", 8)


def short(d):
    """What an elastic program is short of, above rounding."""
    program = build(d, 0.0, elastic=True)
    assert solve_program(program, EXACT).status is SolveStatus.OPTIMAL
    excess = {name: variable.value() or 0.0 for name, variable in program.slack.items()}
    return {name: pytest.approx(value) for name, value in excess.items() if value > 1e-6}


# ---------------------------------------------------------------- where replicas stand


def test_two_models_share_a_node():
    """3 + 5 GPUs fill one node of 8: 20 USD x 100 h."""
    d = data([column("a", part("H", 1, 3)), column("b", part("H", 1, 5))], [NODE], [lot("n", NODE, 20.0)])
    assert solve(d).usd == pytest.approx(2000)


def test_small_replicas_fill_what_large_ones_leave():
    """Nodes of 6: two replicas of 4 leave 2 + 2, which four of 1 fill; a fifth needs another node."""
    six = Supply("six", "H", 6)
    for ones, nodes in ((4, 2), (5, 3)):
        d = data([column("a", part("H", 4, 2)), column("b", part("H", 1, ones))], [six], [lot("n", six, 1.0)])
        assert solve(d).running == {"n": (nodes,)}


def test_no_replica_straddles_fast_domains():
    """Instances of 12 GPUs in domains of 6: a domain holds one replica of 4, so three need two instances."""
    split, whole = Supply("split", "H", 12, nvlink_domain=6), Supply("whole", "H", 12)
    for supply, instances in ((split, 2), (whole, 1)):
        d = data([column("a", part("H", 4, 3))], [supply], [lot("n", supply, 1.0)])
        found = solve(d)
        assert found.running == {"n": (instances,)}
        assert recount(d, found) == []
    tight = data([column("a", part("H", 4, 3))], [split], [lot("n", split, 1.0)])
    one = decision(tight, tight.columns, {"n": (1,)}, placed={(Placement("H", 4), "split"): (3,)})
    assert recount(tight, one) == ["all: replicas do not fit 1 instances of split"]


def test_a_replica_of_several_instances_takes_them_whole():
    """One replica of 16 takes two nodes of 8; three of 1 need a third, though 16 + 3 < 24 leaves room for 5 more."""
    linked = replace(NODE, multi_node=True)
    for ones, nodes in ((0, 2), (3, 3), (8, 3), (9, 4)):
        columns = [column("a", part("H", 16, 1))] + ([column("b", part("H", 1, ones))] if ones else [])
        d = data(columns, [linked], [lot("n", linked, 1.0)])
        found = solve(d)
        assert found.running == {"n": (nodes,)}
        assert recount(d, found) == []
    unlinked = data([column("a", part("H", 16, 1))], [NODE], [lot("n", NODE, 1.0)])
    assert solve(unlinked) is None


def test_whole_instances_count_as_the_room_that_others_lose():
    """Nodes of 6: a replica of 12 takes two, one of 4 a third; of its room for 4 each node gives 4 GPUs, not 6."""
    linked = Supply("six", "H", 6, multi_node=True)
    d = data([column("a", part("H", 12, 1)), column("b", part("H", 4, 1))], [linked], [lot("n", linked, 1.0)])
    found = solve(d)
    assert found.running == {"n": (3,)}
    assert recount(d, found) == []


def test_interruption_reserve_of_spot():
    """Of spot 80 % counts: 8 replicas of 1 GPU need 8 / 6.4, two nodes; 12 fit two (12.8), 13 need three."""
    spot = Supply("spot", "H", 8, spot=True, usable_share=0.8)
    for replicas, nodes in ((6, 1), (8, 2), (12, 2), (13, 3)):
        d = data([column("a", part("H", 1, replicas, interruptible=True))], [spot], [lot("s", spot, 1.0)])
        found = solve(d)
        assert found.running == {"s": (nodes,)}
        assert recount(d, found) == []
    full = decision(d, d.columns, {"s": (2,)}, placed={(d.columns[0].parts[0].placement, "spot"): (13,)})
    assert recount(d, full) == ["all: replicas of 1 GPUs and more take 13 GPUs on spot, beyond 80% of 2 instances"]


def test_only_what_may_be_interrupted_stands_on_spot():
    spot = Supply("spot", "H", 1, spot=True)
    d = data([column("a", part("H", 1, 1))], [spot], [lot("s", spot, 1.0)])
    assert solve(d) is None
    there = decision(d, d.columns, {"s": (1,)}, placed={(Placement("H", 1), "spot"): (1,)})
    assert recount(d, there) == ["H x 1 cannot stand on spot"]


def test_regions_of_a_placement():
    """East is dearer, and the rule says east."""
    east, west = Supply("e", "H", 1, region="east"), Supply("w", "H", 1, region="west")
    d = data(
        [column("a", part("H", 1, 1, regions=("east",)))], [east, west], [lot("e", east, 2.0), lot("w", west, 1.0)]
    )
    assert solve(d).running == {"e": (1,)}


def test_instances_of_different_size_make_one_yard_without_replica_variables():
    """Where nothing but size tells supplies apart, no variable says where a replica stands, and the plan still does.

    Two replicas of 4 and three of 1: a node of 8 (10 USD) and three single GPUs (1.5 each), 14.5 x 100 h.
    """
    columns = [column("a", part("H", 4, 2)), column("b", part("H", 1, 3))]
    d = data(columns, [NODE, SINGLE], [lot("n", NODE, 10.0), lot("s", SINGLE, 1.5)])
    program = build(d, 0.0)
    assert [len(yard.supplies) for yard in program.groups.yards.yards] == [2]
    assert not program.replicas
    found = solve(d)
    assert found.usd == pytest.approx(1450)
    assert found.placed == {(Placement("H", 1), "single"): (3,), (Placement("H", 4), "node"): (2,)}
    assert recount(d, found) == []


def test_rows_that_follow_from_others_are_left_out():
    """On nodes of 8 the row of 1 GPU says all; beside single GPUs replicas of 2 need theirs, of 4 and 8 do not."""
    placements = [Placement("H", degree) for degree in (1, 2, 4, 8)]
    assert yards_of(placements, [NODE]).yards[0].rows == (1,)
    assert yards_of(placements, [NODE, SINGLE]).yards[0].rows == (1, 2)
    assert yards_of(placements, [Supply("six", "H", 6)]).yards[0].rows == (1, 4)


def test_degrees_that_do_not_divide_each_other_take_the_place_of_the_next_power_of_two():
    """Nodes of 8 with replicas of 3 and 4: each takes 4 places, so three of either kind need two nodes."""
    assert widths_of([1, 2, 4, 8], 8) == {1: 1, 2: 2, 4: 4, 8: 8}
    assert widths_of([3, 6], 8) == {3: 3, 6: 6}
    assert widths_of([3, 4, 6], 8) == {3: 4, 4: 4, 6: 8}
    assert widths_of([4, 6], 6) == {4: 4, 6: 6}
    d = data([column("a", part("H", 3, 1)), column("b", part("H", 4, 2))], [NODE], [lot("n", NODE, 1.0)])
    found = solve(d)
    assert found.running == {"n": (2,)}
    assert recount(d, found) == []


def test_a_whole_domain_is_counted_as_one():
    """Instances of 22 GPUs: three domains of 6 and one of 4. Four replicas of 6 need two, not one."""
    supply = Supply("s", "H", 22, nvlink_domain=6)
    d = data(
        [column("a", part("H", 6, 4, 4)), column("b", part("H", 4, 0, 1))],
        [supply],
        [lot("n", supply, 1.0)],
        periods=TWO,
    )
    assert build(d, 0.0).groups.yards.yards[0].rows == (4, 6)
    found = solve(d)
    assert found.running == {"n": (2, 2)}
    assert recount(d, found) == []


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([1, 2, 3, 4, 5, 6, 8]), min_size=1, max_size=6),
    st.sampled_from([4, 6, 8, 12]),
    st.sampled_from([0, 2, 4, 6]),
)
def test_instances_of_the_program_hold_the_replicas_whatever_the_degrees(degrees, size, domain):
    supply = Supply("s", "H", size, nvlink_domain=domain)
    largest = min(domain or size, size)
    columns = [column(f"m{i}", part("H", degree, 2)) for i, degree in enumerate(degrees) if degree <= largest]
    if columns:
        d = data(columns, [supply], [lot("n", supply, 1.0)])
        assert recount(d, solve(d)) == []


def test_parts_of_several_gpu_types_share_the_load_and_count_as_pools():
    """Four GPUs of each type where eight of one cannot be had: (4 x 1 + 4 x 2) x 100 h."""
    other = Supply("other", "L", 1)
    lots = [lot("a", SINGLE, 1.0, available=(4,)), lot("b", other, 2.0, available=(5,))]
    parts = (part("H", 1, 4), part("L", 1, 4))
    columns = [column("m", part("H", 1, 8)), column("m", part("L", 1, 8)), column("m", parts)]
    assert solve(data(columns, [other, SINGLE], lots)).usd == pytest.approx(1200)
    assert solve(data(columns, [other, SINGLE], lots, max_pools=1)) is None


def test_two_parts_in_one_yard_add_up():
    """One column with replicas of 1 and of 2 GPUs on the same node: 2 x 1 + 3 x 2 = 8 GPUs."""
    d = data([column("m", (part("H", 1, 2), part("H", 2, 3)))], [NODE], [lot("n", NODE, 1.0)])
    assert solve(d).running == {"n": (1,)}


def test_two_regions_carry_twice_the_need():
    """With two regions either must hold all: 2 x 3 replicas."""
    supplies = [Supply(r, "H", 1, region=r) for r in ("east", "west")]
    d = data([column("m", part("H", 1, 3, spread="m"))], supplies, [lot(s.id, s, 1.0) for s in supplies])
    assert solve(d).running == {"east": (3,), "west": (3,)}
    assert solve(replace(d, supplies=d.supplies[:1], lots=d.lots[:1])) is None


# ---------------------------------------------------------------- what is bought


def test_a_commitment_without_price_for_running_has_one_variable():
    """Reserved at 1 USD all the time beats 3 on demand for 60 h; no cap sees it run, so it always does."""
    c = lot("c", SINGLE, reserved=1.0, kind=LotKind.NEW_COMMITMENT)
    d = data([column("m", part("H", 1, 1, 0))], [SINGLE], [lot("a", SINGLE, 3.0), c], periods=TWO)
    program = build(d, 0.0)
    assert program.x["c", 0] is program.x["c", 1] is program.reserved["c"]
    found = solve(d)
    assert (found.reserved, found.usd) == ({"c": 1}, pytest.approx(100))
    capped = replace(d, lots=(d.lots[0], replace(c, power_kw=2.0)), caps=Caps(power_kw=5.0))
    assert build(capped, 0.0).x["c", 0] is not build(capped, 0.0).reserved["c"]


def test_quota_counts_what_is_held_and_what_is_reserved():
    """Quota of 4 GPUs: 2 are held, 1 is reserved all the time, so 1 is left on demand by night."""
    held = lot("h", SINGLE, available=(2, 2), kind=LotKind.EXISTING_COMMITMENT)
    c = lot("c", SINGLE, reserved=0.5, kind=LotKind.NEW_COMMITMENT)
    columns = [column("m", part("H", 1, 3, 4))]
    quota = Quota(name="q", gpu="H", max_gpus=4)
    d = data(columns, [SINGLE], [lot("a", SINGLE, 3.0), c, held], periods=TWO, quotas=(quota,))
    found = solve(d)
    assert recount(d, found) == []
    assert found.usd == pytest.approx(2 * 0.5 * 100)  # both are needed by night; reserved costs 50, on demand 120
    assert solve(replace(d, quotas=(quota.model_copy(update={"max_gpus": 3}),))) is None


def test_quota_counts_reserved_instances_in_every_period():
    """One type peaks at 3 by day, the other by night: 4 run at any time, but 3 + 3 are reserved."""
    other = Supply("other", "L", 1)
    lots = [lot(g, s, 0.1, reserved=1.0, kind=LotKind.BOUGHT) for g, s in (("h", SINGLE), ("l", other))]
    columns = [column("a", part("H", 1, 3, 1)), column("b", part("L", 1, 1, 3))]
    d = data(columns, [other, SINGLE], lots, periods=TWO, quotas=(Quota(name="q", max_gpus=6),))
    assert solve(d).reserved == {"h": 3, "l": 3}
    assert solve(replace(d, quotas=(Quota(name="q", max_gpus=5),))) is None


def test_quota_matching():
    one = offer("o", "H100-SXM", 8, "aws", "us-east-1")
    assert quota_covers(Quota(name="q", max_gpus=1), one)
    assert quota_covers(Quota(name="q", provider="aws", gpu="H100-SXM", offer="o", max_gpus=1), one)
    assert not quota_covers(Quota(name="q", provider="aws", region="eu", max_gpus=1), one)
    assert not quota_covers(Quota(name="q", offer="other", max_gpus=1), one)


def test_moved_gpus_are_counted_at_the_largest_period():
    """Columns peak by day or by night; neither period's row follows from the other."""
    columns = [column("m", part("H", 1, 4, 1)), column("m", part("H", 1, 1, 3), 0.9e9)]
    d = data(columns, [SINGLE], [lot("a", SINGLE, 1.0)], periods=TWO, movement=Movement({("m", "H"): 1}, 2))
    assert len(build(d, 0.0).rows["movement"]) == 3
    assert solve(d, theta=1.0).columns == (columns[1],)
    flat = data([column("m", part("H", 1, 4, 1))], [SINGLE], d.lots, periods=TWO, movement=d.movement)
    assert build(flat, 0.0).rows["movement"] == ["moved(0,0)", "movement"]


def test_instances_that_nothing_needs_are_trimmed():
    """Four replicas of 1 and one of 8: of 9 single GPUs 4 stay, the dearer go first, and 2 nodes of 3 need not be paid.

    The one node stays whatever single GPUs there are; an idle type goes altogether.
    """
    other = Supply("other", "L", 1)
    columns = [column("a", part("H", 1, 4)), column("b", part("H", 8, 1))]
    lots = [
        lot("cheap", SINGLE, 1.0), lot("dear", SINGLE, 2.0), lot("idle", other),
        lot("node", NODE, reserved=5.0, kind=LotKind.NEW_COMMITMENT),
    ]  # fmt: skip
    d = data(columns, [NODE, other, SINGLE], lots)
    running, reserved = trimmed(
        build(d, 0.0), d, columns, {"cheap": (6,), "dear": (3,), "idle": (2,), "node": (1,)}, {"node": 3}
    )
    assert (running, reserved) == ({"cheap": (4,), "node": (1,)}, {"node": 1})


# ---------------------------------------------------------------- what is short


def test_what_is_short_of_each_limit():
    """Six GPUs are needed of H; each limit falls short by one unit of its own."""
    m = column("m", part("H", 1, 6))
    a = lot("a", SINGLE, 3.0, power=2.0, carbon=0.5)
    d = data([m], [SINGLE], [a])
    assert short(d) == {}
    assert short(replace(d, quotas=(Quota(name="small", max_gpus=5),))) == {"quota[small]": 1}
    assert short(replace(d, caps=Caps(budget_usd=1799.0))) == {"budget": 1}
    assert short(replace(d, caps=Caps(power_kw=11.0))) == {"power": 1}
    assert short(replace(d, caps=Caps(carbon_kg=299.0))) == {"carbon": 1}
    assert short(replace(d, lots=(replace(a, available=(5,)),))) == {"available[a]": 1}
    assert short(replace(d, movement=Movement({("m", "H"): 2}, 3))) == {"movement": 1}
    owing = lot("c", SINGLE, reserved=1.0, liability=10.0, kind=LotKind.NEW_COMMITMENT)
    assert short(replace(d, lots=(owing,), caps=Caps(liability_usd=59.0))) == {"liability": 1}


def test_what_is_short_of_pools_regions_and_columns():
    low, high = column("m", part("H", 1, 1), 1e9, 0, 1), column("m", part("H", 1, 1), 1e9, 1, 2)
    assert short(data([low, high], [SINGLE], [lot("a", SINGLE, 1.0)], max_pools=1)) == {"pools[m]": 1}
    east = Supply("e", "H", 1, region="east")
    assert short(data([column("m", part("H", 1, 2, spread="m 0-1"))], [east], [lot("e", east, 1.0)])) == {
        "spread[m 0-1]": 2
    }
    assert short(data([low], [SINGLE], [lot("a", SINGLE, 1.0)], models=("m", "none"))) == {"serve[none]": 1}


def test_a_shortage_is_the_largest_over_the_periods_and_the_least_in_gpus():
    """4 GPUs short by night, 1 by day: 4. The other type needs 12, its quota allows 11: one is less than four."""
    other = Supply("other", "L", 1)
    h, low = column("m", part("H", 1, 6, 9)), column("m", part("L", 1, 12, 12))
    quotas = (Quota(name="H", gpu="H", max_gpus=5), Quota(name="L", gpu="L", max_gpus=11))
    lots = [lot("a", SINGLE, 1.0), lot("b", other, 1.0)]
    assert short(data([h], [SINGLE], lots[:1], periods=TWO, quotas=quotas)) == {"quota[H]": 4}
    assert short(data([h, low], [other, SINGLE], lots, periods=TWO, quotas=quotas)) == {"quota[L]": 1}


# ---------------------------------------------------------------- degenerate inputs, names and text


def test_a_model_without_columns_cannot_be_served():
    d = data([column("m", part("H", 1, 1))], [SINGLE], [lot("a", SINGLE, 1.0)], models=("m", "none"))
    assert solve(d) is None
    assert recount(d, decision(d, d.columns, {"a": (1,)}, placed={(Placement("H", 1), "single"): (1,)})) == [
        "none: served up to node 0 of 1"
    ]


def test_supplies_without_lots_and_lots_without_supplies_hold_nothing():
    columns = [column("m", part("H", 1, 1))]
    assert solve(data(columns, [SINGLE], [])) is None
    assert solve(data(columns, [], [lot("a", SINGLE, 1.0)])) is None
    other = Supply("other", "L", 1)
    d = data(columns, [other, SINGLE], [lot("a", SINGLE, 1.0), lot("b", other, 0.0)])
    assert solve(d).running == {"a": (1,)}


def test_nothing_to_serve_costs_nothing():
    assert solve(data([], [SINGLE], [lot("a", SINGLE, 1.0, sunk=7.0)])).usd == 7.0


def test_lost_tokens_are_counted_against_the_best_path():
    """Two bands served apart serve 1.9e9 at best; together 1.8e9: 0.1e9 are lost, whatever the other arcs are."""
    whole, low, less, high = (
        column("m", part("H", 1, 1), served, a, b)
        for served, a, b in ((1.8e9, 0, 2), (1e9, 0, 1), (0.9e9, 0, 1), (0.9e9, 1, 2))
    )
    d = data([whole, low, less, high], [SINGLE], [lot("a", SINGLE, 1.0)])
    lost = lost_tokens(d, d.columns)
    assert [lost[c.key] for c in d.columns] == pytest.approx([0.1e9, 0.0, 0.1e9, 0.0])


def test_every_row_is_named_once_and_found_in_the_problem():
    columns = [column("m", part("H", 1, 1, 2, interruptible=True)), column("n", part("H", 2, 1, 1))]
    spot = Supply("spot", "H", 8, spot=True, usable_share=0.8)
    d = data(columns, [SINGLE, spot], [lot("a", SINGLE, 1.0), lot("s", spot, 4.0)], periods=TWO)
    program = build(d, 0.0)
    names = [name for family in program.rows.values() for name in family]
    assert len(names) == len(set(names)) == len(program.problem.constraints())
    assert all(program.problem.get_constraint_by_name(name) is not None for name in names)


def test_lp_text_means_the_same_to_another_reader(tmp_path):
    """HiGHS reads the file by itself and finds the same optimum."""
    spot = Supply("spot", "H", 8, spot=True, usable_share=0.8)
    columns = [column("m", part("H", 1, 3, 9, interruptible=True)), column("n", part("H", 2, 1, 4))]
    lots = [lot("a", NODE, 9.0, available=(3, 3)), lot("c", NODE, reserved=5.0), lot("s", spot, 3.0)]
    d = data(columns, [NODE, spot], lots, periods=TWO, quotas=(Quota(name="q", max_gpus=40),))
    program = build(d, 1e-9)
    write_lp(program, d, tmp_path / "fleet.lp")
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    assert highs.readModel(str(tmp_path / "fleet.lp")) == highspy.HighsStatus.kOk
    highs.run()
    assert highs.getInfo().objective_function_value == pytest.approx(solve_program(program, EXACT).objective)


def test_building_twice_gives_the_same_text():
    d = data([column("m", part("H", 1, 1)), column("n", part("H", 2, 1))], [NODE], [lot("a", NODE, 1.0)])
    assert lp_text(build(d, 1e-9), d) == lp_text(build(d, 1e-9), d)


# ---------------------------------------------------------------- the recount by itself


def test_recount_reports_what_has_no_family():
    """Unknown names, wrong shapes and wrong totals."""
    d = data([column("m", part("H", 1, 1))], [SINGLE], [lot("a", SINGLE, 3.0)])
    good = solve(d)
    assert recount(d, good) == []
    stranger = column("m", part("H", 1, 2))
    assert recount(d, replace(good, columns=(stranger,))) == [f"column '{stranger.key}' is not one of the program's"]
    assert recount(d, replace(good, running={"b": (1,)})) == ["lot 'b' is not one of the program's"]
    assert recount(d, replace(good, running={"a": (1, 1)})) == ["lot 'a' has 2 periods, not 1"]
    assert recount(d, replace(good, running={"a": (-1,)})) == [
        "lot 'a' has a count that is not a whole number of at least 0"
    ]
    assert recount(d, replace(good, usd=301.0)) == ["cost is stated as 301 and counts to 300"]
    assert recount(d, replace(good, served_tokens=2e9)) == [
        "served tokens is stated as 2000000000 and counts to 1000000000"
    ]


def test_recount_sees_two_paths_and_gaps():
    low, high = column("m", part("H", 1, 1), 1e9, 0, 1), column("m", part("H", 1, 1), 1e9, 1, 2)
    again = replace(low, key="again")
    d = data([low, again, high], [SINGLE], [lot("a", SINGLE, 1.0)])
    twice = decision(d, d.columns, {"a": (3,)}, placed={(Placement("H", 1), "single"): (3,)})
    assert recount(d, twice) == ["m: its columns go from 1 on at 0, not as one path"]
    late = decision(d, [high], {"a": (1,)}, placed={(Placement("H", 1), "single"): (1,)})
    assert recount(d, late) == ["m: its columns go from 0 on at 1, not as one path"]


@given(st.lists(st.sampled_from([1, 2, 4, 8]), max_size=7), st.lists(st.sampled_from([1, 2, 4, 6, 8]), max_size=4))
def test_first_fit_by_decreasing_size_is_exact_where_sizes_divide_each_other(sizes, bins):
    def any_order_fits():
        for order in set(permutations(sizes)):
            free, fits = list(bins), True
            for size in order:
                place = next((i for i, left in enumerate(free) if left >= size), None)
                fits = fits and place is not None
                if place is not None:
                    free[place] -= size
            if fits:
                return True
        return False

    fits = first_fit(sizes, bins)
    assert fits or len(sizes) > 6 or not any_order_fits()
    if fits:
        assert sum(sizes) <= sum(bins)


def test_periods_named_in_words_are_those_that_break():
    d = data([column("m", part("H", 1, 1))], [SINGLE], [lot("a", SINGLE, 3.0)], periods=ONE)
    assert recount(d, decision(d, d.columns, {"a": (1,)}))[0].startswith("all: 1 replicas of H x 1 are needed and 0")
