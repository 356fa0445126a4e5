"""Least regret: the choice by hand, and cells of fleets with commitments against counts done by hand."""

from __future__ import annotations

import pytest

from planner.futures.adjust import adjust
from planner.futures.regret import NONE_SERVES_ALL, cells_of, regret_of
from planner.inputs import Inputs
from planner.pipeline import plan_inputs
from planner.request_study import Adjustments
from planner.study import RegretCell, Scenario
from tests.futures.world import HOURS, NOW, QUOTA, SITE, committed, inputs_of, request, with_offers
from tests.optimise.world import offer

ON_DEMAND, COMMITTED = 3.0, 2.0


def table(rows: dict[str, list[float | None]]) -> list[RegretCell]:
    futures = list(rows)
    return [
        RegretCell(fleet=fleet, future=future, usd=usd, regret_usd=None)
        for fleet, row in rows.items()
        for future, usd in zip(futures, row, strict=True)
    ]


def test_the_fleet_whose_largest_regret_is_least():
    """Best by future: 10, 5, 20. Regrets: A 0 4 9, B 3 0 14, C 2 6 0. Largest: 9, 14, 6."""
    found = regret_of(table({"A": [10, 9, 29], "B": [13, 5, 34], "C": [12, 11, 20]}))
    assert [cell.regret_usd for cell in found.cells] == [0, 4, 9, 3, 0, 14, 2, 6, 0]
    assert (found.choice, found.largest_usd) == ("C", 6)


def test_ties_go_to_the_first():
    found = regret_of(table({"A": [10, 7], "B": [12, 5]}))
    assert (found.choice, found.largest_usd) == ("A", 2)


def test_a_fleet_that_is_cheaper_within_the_gap_is_the_best_of_that_future():
    found = regret_of(table({"A": [100.0, 50.0], "B": [99.9, 50.2]}))
    assert [cell.regret_usd for cell in found.cells] == [0.1, 0.0, 0.0, 0.2]
    assert found.choice == "A"


def test_a_fleet_that_fails_somewhere_is_not_chosen():
    found = regret_of(table({"A": [10, None], "B": [30, 20]}))
    assert (found.choice, found.largest_usd) == ("B", 20)
    assert found.cells[1].regret_usd is None
    assert not any(cell.note for cell in found.cells)


def test_where_every_fleet_fails_one_of_those_that_fail_least_is_chosen_and_it_is_said():
    found = regret_of(table({"A": [10, None, None], "B": [12, 20, None], "C": [None, 21, 30]}))
    assert (found.choice, found.largest_usd) == ("C", 1)
    assert [(c.fleet, c.future) for c in found.cells if c.note == NONE_SERVES_ALL] == [("C", "C")]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Inputs:
    """One GPU type, on demand or for a year."""
    found = inputs_of(request(tmp_path_factory.mktemp("regret"), QUOTA.format(gpus=7), targets="{ tpot_ms = 40 }"))
    return with_offers(found, offer("H100-SXM", 1, ON_DEMAND), committed("H100-SXM", COMMITTED))


def planned(inputs: Inputs, name: str) -> Scenario:
    return Scenario(name=name, words="", plan=plan_inputs(inputs, created_at=NOW).plan)


CHANGES = {
    "Base": Adjustments(),
    "Low": Adjustments(growth=0.4),
    "High": Adjustments(growth=2.0),
    "Dear": Adjustments(price=1.5),
    "Strict": Adjustments(tail=0.2),
}


@pytest.fixture(scope="module")
def fleets(inputs) -> tuple[Scenario, ...]:
    return tuple(planned(adjust(inputs, change), name) for name, change in CHANGES.items())


def reserved(scenario: Scenario) -> int:
    return sum(p.reserved_instances for p in scenario.plan.purchases)


def test_commitments_are_paid_in_every_future_and_the_rest_is_had_on_demand(inputs, fleets):
    """With a and f instances reserved by the fleet and by the future's own: H (2 a + 3 max(f − a, 0)) USD."""
    base, low, high, *_ = fleets
    counts = [reserved(each) for each in (base, low, high)]
    assert counts == sorted({*counts}, key=counts.index)
    assert counts[1] < counts[0] < counts[2]  # or nothing is tested
    for future in (base, low, high):
        cells = cells_of(future, adjust(inputs, CHANGES[future.name]), fleets[:3])
        for fleet, cell in zip(fleets[:3], cells, strict=True):
            a, f = reserved(fleet), reserved(future)
            assert cell.usd == pytest.approx(HOURS * (COMMITTED * a + ON_DEMAND * max(f - a, 0)), abs=0.01)


def test_the_choice_of_the_whole_table_follows(inputs, fleets):
    """Too many reserved cost 2 USD an hour each, too few 1 USD."""
    cells = [c for f in fleets[:3] for c in cells_of(f, adjust(inputs, CHANGES[f.name]), fleets[:3])]
    count = {each.name: reserved(each) for each in fleets[:3]}
    found = regret_of(sorted(cells, key=lambda cell: list(count).index(cell.fleet)))

    def regret(fleet: str, future: str) -> float:
        over = count[fleet] - count[future]
        return HOURS * (COMMITTED * over if over > 0 else (ON_DEMAND - COMMITTED) * -over)

    for cell in found.cells:
        assert cell.regret_usd == pytest.approx(regret(cell.fleet, cell.future), abs=0.02)
    worst = {fleet: max(regret(fleet, future) for future in count) for fleet in count}
    assert found.choice == min(worst, key=worst.__getitem__)
    assert found.largest_usd == pytest.approx(min(worst.values()), abs=0.02)


def test_commitments_are_paid_at_the_prices_that_come(inputs, fleets):
    dear = fleets[3]
    cell, *_ = cells_of(dear, adjust(inputs, CHANGES["Dear"]), fleets[:1])
    assert cell.usd == pytest.approx(1.5 * COMMITTED * HOURS * reserved(fleets[0]))
    assert cell.usd == pytest.approx(dear.plan.totals.usd)


def test_pools_that_refuse_too_much_cannot_serve_a_stricter_future(inputs, fleets):
    """1 % of the requests are long: a budget of 1 % need not serve them, one of 0.2 % must."""
    base, strict = fleets[0], fleets[4]
    pools = tuple(pool.model_copy(update={"max_model_len": 8192}) for pool in base.plan.pools)
    short = Scenario(name="Short", words="", plan=base.plan.model_copy(update={"pools": pools}))
    there, *_ = cells_of(strict, adjust(inputs, CHANGES["Strict"]), (short,))
    assert there.usd is None
    assert "max_model_len 8,192 refuses more than the tail budget of 0.200%" in there.note
    here, *_ = cells_of(base, inputs, (short,))
    assert here.usd is not None
    assert here.usd >= base.plan.totals.usd * (1 - inputs.request.solver.gap)


def test_a_fleet_whose_commitments_exceed_a_quota_that_shrinks(inputs, fleets):
    change = Adjustments(quotas=0.45, growth=0.4)  # 3 of 7 GPUs
    future = planned(adjust(inputs, change), "Short")
    assert reserved(fleets[2]) > 3
    cell, *_ = cells_of(future, adjust(inputs, change), (fleets[2],))
    assert cell.usd is None
    assert "quota" in cell.note


def test_targets_that_a_pool_cannot_hold_are_named(inputs, fleets):
    change = Adjustments(targets=0.1)
    cell, *_ = cells_of(fleets[0].model_copy(update={"name": "Fast"}), adjust(inputs, change), (fleets[1],))
    assert cell.usd is None
    assert "TPOT target" in cell.note


BUYING = """
[[buying]]
name = "rack"
gpu = "H100-SXM"
gpus_per_instance = 1
max_instances = 9
region = "here"
capex_usd = 20000
life_years = 4
power_kw = 1
source = "quote"
"""
FEW_H100 = '\n[[quota]]\nname = "few"\ngpu = "H100-SXM"\nmax_gpus = 2\n\n[routing]\nmax_pools = 2\n'


@pytest.mark.parametrize(("tables", "kind"), [(SITE + BUYING, "bought"), (FEW_H100, "split")], ids=["bought", "split"])
def test_a_fleet_in_its_own_future_costs_what_its_plan_says(tmp_path, tables, kind):
    """Needs, routes, shares and commitments are found again from the plan alone."""
    inputs = inputs_of(request(tmp_path, tables, targets="{ tpot_ms = 80 }"))
    inputs = adjust(inputs, Adjustments(growth=6 if kind == "split" else 1))  # so much that two H100 are too few
    own = planned(inputs, "Own")
    found = {
        "split": min(pool.load_share for pool in own.plan.pools) < 1,
        "bought": any(p.kind == "bought" and p.reserved_instances for p in own.plan.purchases),
    }
    assert found[kind]  # or nothing is tested
    (cell,) = cells_of(own, inputs, (own.model_copy(update={"name": "again"}),))
    assert cell.usd == pytest.approx(own.plan.totals.usd, abs=0.01)
