"""Columns: spares and scaling rules, placements, dominance over all periods."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.optimise.needs.columns import columns_of, placement_of, running, undominated_parts
from planner.optimise.types import Part, Placement, Supply
from planner.request import Scaling
from tests.optimise.world import candidates, periods_of, workload

SUPPLIES = (Supply("H100-SXM x1", "H100-SXM", 1), Supply("L4 x2", "L4", 2))
ALL = {"weight_dtypes": ("bf16", "fp8"), "kv_dtypes": ("bf16", "fp8"), "max_num_seqs": (64, 256)}


@pytest.mark.parametrize(
    ("need", "spare", "scaling", "expected"),
    [
        ((5, 2), 0, Scaling(), (5, 2)),
        ((5, 2), 1, Scaling(), (6, 3)),
        # Spares first, then the least count: max(2 + 1, 4) = 4.
        ((5, 2), 1, Scaling(min_replicas=4), (6, 4)),
        # Then whole steps of 4: 6 -> 8, 3 -> 4.
        ((5, 2), 1, Scaling(step=4), (8, 4)),
        ((5, 2), 1, Scaling(step=4, fixed=True), (8, 8)),
    ],
)
def test_running_by_hand(need, spare, scaling, expected):
    assert running(need, spare, scaling) == expected


@given(
    need=st.lists(st.integers(1, 500), min_size=1, max_size=6), spare=st.integers(0, 5), least=st.integers(1, 50),
    step=st.integers(1, 9), fixed=st.booleans(),
)  # fmt: skip
def test_running_is_the_least_that_keeps_every_rule(need, spare, least, step, fixed):
    kept = running(need, spare, Scaling(min_replicas=least, step=step, fixed=fixed))
    asked = [max(n + spare, least) for n in need]
    for n, found in zip([max(asked)] * len(asked) if fixed else asked, kept, strict=True):
        assert found >= n
        assert found % step == 0
        assert found - step < n


def test_placement_says_what_a_supplier_must_know():
    plain = workload("m")
    need = candidates(plain, ("L4",)).needs[0]
    assert placement_of(plain.request, need.slice, need.config) == Placement("L4", need.config.tp)
    careful = plain.request.model_copy(
        update={"interruptible": True, "regions": ("b", "a"), "survives_region_loss": True}
    )
    placed = placement_of(careful, need.slice, need.config)
    assert placed == Placement("L4", need.config.tp, True, ("a", "b"), need.slice.key)


def columns(work, spare=0, supplies=SUPPLIES, gpus=("H100-SXM", "L4"), **more):
    return columns_of(work, candidates(work, gpus, **more).needs, spare, periods_of(work), supplies)


def test_columns_stand_somewhere_and_serve_what_is_not_refused():
    work = workload("m", rate=20.0, rates=(1.0, 0.5), cuts=(512,), **ALL)
    found = columns(work)
    assert {c.parts[0].placement.gpu for c in found} == {"H100-SXM", "L4"}
    # A replica of two H100 fits no instance of one.
    assert {c.parts[0].placement.gpus_per_replica for c in found if c.parts[0].placement.gpu == "H100-SXM"} == {1}
    assert not columns(work, supplies=SUPPLIES[1:], gpus=("H100-SXM",))
    for column in found:
        (part,) = column.parts
        slice_ = part.need.slice
        assert (column.start, column.end) == (slice_.start, slice_.end)
        offered = slice_.offered_requests(periods_of(work)) * (
            slice_.traffic.law.mean_prompt + slice_.traffic.law.mean_output
        )
        assert column.served_tokens == pytest.approx(offered * (1 - part.need.config.length.refused_token_share))
    assert len({column.key for column in found}) == len(found)


def test_two_paths_serve_the_same_tokens():
    """Bands [0, 1) and [1, 2) together are the whole: 2160 h of 20/s, with half as many in the second half."""
    work = workload("m", rate=20.0, rates=(1.0, 0.5), cuts=(512,))
    served = {(c.start, c.end): c.served_tokens for c in columns(work)}
    law = work.traffic.law
    assert served[0, 2] == pytest.approx(20 * 0.75 * 2160 * 3600 * (law.mean_prompt + law.mean_output))
    assert served[0, 1] + served[1, 2] == pytest.approx(served[0, 2])


def test_spares_are_in_every_period():
    work = workload("m", rate=20.0, rates=(1.0, 0.3))
    plain, spare = columns(work), columns(work, spare=2)
    assert [tuple(n + 2 for n in c.parts[0].running) for c in plain] == [c.parts[0].running for c in spare]


def test_dominance_keeps_every_part_that_is_best_in_some_period():
    """By hand, tp 1: (4, 2) and (3, 3) are both kept; (4, 3) is beaten by each; equal ones leave the first format."""
    work = workload("m", rate=20.0, rates=(1.0, 0.5), tp_degrees=(1,), **ALL)
    needs = candidates(work, ("L4",), prune=False).needs
    first, other = (next(n for n in needs if n.config.sizing.deployment.weight_dtype == w) for w in ("bf16", "fp8"))

    def part(need, counts):
        made = replace(need, config=replace(need.config), replicas=counts)
        return Part(placement_of(work.request, need.slice, need.config), made, counts)

    parts = [part(first, (4, 2)), part(other, (3, 3)), part(other, (4, 3)), part(other, (4, 2))]
    for order in (parts, parts[::-1]):
        kept = undominated_parts(work, order, periods_of(work))
        assert sorted(p.running for p in kept) == [(3, 3), (4, 2)]
        assert {p.need.config.sizing.deployment.weight_dtype.value for p in kept if p.running == (4, 2)} == {"bf16"}


def test_a_larger_degree_does_not_leave_out_a_smaller_one_that_packs_where_it_cannot():
    """2 x tp 2 are 4 GPUs in pairs; 5 x tp 1 are 5 anywhere. 3 x tp 2 are beaten by 5 x tp 1."""
    work = workload("m", rate=20.0)
    needs = candidates(work, ("L4",), prune=False).needs
    one, two = (next(n for n in needs if n.config.tp == tp) for tp in (1, 2))

    def part(need, count):
        return Part(placement_of(work.request, need.slice, need.config), replace(need, replicas=(count,)), (count,))

    kept = undominated_parts(work, [part(one, 5), part(two, 2), part(two, 3)], periods_of(work))
    assert sorted((p.placement.gpus_per_replica, p.running) for p in kept) == [(1, (5,)), (2, (2,))]


def test_a_left_out_need_is_beaten_in_every_period():
    work = workload("m", rate=25.0, idc=4.0, rates=(1.0, 0.4, 0.1), cuts=(512,), **ALL)
    needs = candidates(work, ("H100-SXM", "L4"), prune=False).needs
    kept = [c.parts[0].need for c in columns_of(work, needs, 0, periods_of(work), SUPPLIES)]
    assert len(kept) < len(needs)
    for need in needs:
        gpus = np.array(need.replicas) * need.config.tp
        if need.config.gpu.id == "H100-SXM" and need.config.tp == 2:
            continue
        assert any(
            other.slice.key == need.slice.key
            and other.config.gpu.id == need.config.gpu.id
            and other.config.tp <= need.config.tp
            and other.config.length.refused_token_share <= need.config.length.refused_token_share
            and (np.array(other.replicas) * other.config.tp <= gpus).all()
            for other in kept
        )


def test_nothing_is_quantised_without_a_gain():
    """At a trickle every format needs one replica: the owner's first formats stay alone."""
    work = workload("m", rate=0.01, tp_degrees=(1,), **ALL)
    (column,) = columns(work, gpus=("H100-SXM",))
    deployment = column.parts[0].need.config.sizing.deployment
    assert (deployment.weight_dtype.value, deployment.kv_dtype.value) == ("bf16", "bf16")


def test_order_of_needs_does_not_matter():
    work = workload("m", rate=25.0, rates=(1.0, 0.4), cuts=(512,), **ALL)
    needs = candidates(work, ("H100-SXM", "L4")).needs
    one, two = (columns_of(work, n, 0, periods_of(work), SUPPLIES) for n in (needs, needs[::-1]))
    assert one == two
