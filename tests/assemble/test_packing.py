from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.assemble.packing import instances_needed, over_the_reserve
from planner.plan import PlanSupply


def supply(size: int, **rules: object) -> PlanSupply:
    return PlanSupply(id="g", gpu="H100-SXM", gpus_per_instance=size, **rules)


@pytest.mark.parametrize(
    ("size", "rules", "replicas", "needed"),
    [
        (8, {}, [(4, 3), (1, 4)], 2),  # 12 + 4 = 16
        (8, {}, [(4, 3), (1, 5)], 3),
        (8, {}, [], 0),
        (8, {}, [(8, 0)], 0),
        (8, {"nvlink_domain": 4}, [(8, 1)], None),
        (8, {"nvlink_domain": 4}, [(2, 3), (4, 1)], 2),  # 4 | 2 2 | 2
        (6, {"nvlink_domain": 4}, [(4, 1), (2, 1)], 1),  # the two GPUs left over are a domain of their own
        (8, {}, [(16, 1)], None),
        (8, {"multi_node": True}, [(16, 2), (4, 1)], 5),
        (8, {"multi_node": True}, [(12, 1)], None),
    ],
)
def test_instances_by_hand(size: int, rules: dict, replicas: list, needed: int | None):
    assert instances_needed(supply(size, **rules), replicas) == needed


@given(st.lists(st.tuples(st.sampled_from([1, 2, 4, 8]), st.integers(0, 9)), max_size=4, unique_by=lambda r: r[0]))
def test_sizes_that_divide_each_other_leave_no_waste(replicas):
    """The least number is GPUs over the size of an instance, rounded up."""
    gpus = sum(size * count for size, count in replicas)
    assert instances_needed(supply(8), replicas) == -(-gpus // 8)


@settings(deadline=None)
@given(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=4))
def test_never_fewer_instances_than_the_best_packing(sizes):
    """Against trying every way to put up to four replicas into instances of eight GPUs."""
    best = min(
        len(set(choice))
        for choice in itertools.product(range(len(sizes)), repeat=len(sizes))
        if all(sum(s for s, c in zip(sizes, choice, strict=True) if c == i) <= 8 for i in set(choice))
    )
    found = instances_needed(supply(8), [(size, 1) for size in sizes])
    assert found is not None
    assert found >= best


def test_the_reserve_is_a_share_of_the_room():
    """5 spot instances of 8 at 80 %: 32 GPUs count; replicas of 3 fill 6 of 8, so 24 count for them."""
    spot = supply(8, spot=True, usable_share=0.8)
    assert over_the_reserve(spot, [(4, 8)], 5) == pytest.approx(0.0)
    assert over_the_reserve(spot, [(4, 8), (1, 1)], 5) == pytest.approx(1.0)
    assert over_the_reserve(spot, [(3, 8)], 5) == pytest.approx(0.0)
    assert over_the_reserve(spot, [(3, 9)], 5) == pytest.approx(3.0)
