"""What an infeasible request is told: the excess that is named makes it feasible, and each way out admits its GPU."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest

from planner.errors import InfeasibleError, SolverError
from planner.optimise.explain.reasons import rejected_classes
from planner.optimise.explain.relax import (
    BOUND,
    LEAST,
    least_excess,
    raise_short,
    shortage_line,
    ways_out,
    without_route,
)
from planner.optimise.solve.fleet import Fleet
from planner.optimise.types import Caps, LotKind, Movement, ProgramData
from planner.request import Quota, Targets
from tests.optimise.world import SETTINGS, candidates, fleet, offer, workload

L4, H100 = offer("L4", 1, 0.8), offer("H100-SXM", 1, 3.0)


def changed(made: Fleet, **rules) -> Fleet:
    """The same needs under other rules of the program."""
    other = made.with_rules()
    other._data = replace(made._data, **rules)
    return other


def relaxed(made: Fleet, amounts: dict[str, float]) -> Fleet:
    """The fleet with every limit widened by what is said to be short, as a reader would: rounded up as printed."""
    data = made._data
    rules: dict[str, object] = {}
    quotas = [
        q.model_copy(update={"max_gpus": q.max_gpus + up(amounts.get(f"quota[{q.name}]", 0))}) for q in data.quotas
    ]
    rules["quotas"] = tuple(quotas)
    rules["lots"] = tuple(
        lot if lot.available is None
        else replace(lot, available=tuple(n + up(amounts.get(f"available[{lot.id}]", 0)) for n in lot.available))
        for lot in data.lots
    )  # fmt: skip
    named = {"budget_usd": "budget", "power_kw": "power", "carbon_kg": "carbon", "liability_usd": "liability"}
    caps = {field: getattr(data.caps, field) for field in named}
    rules["caps"] = Caps(**{f: None if v is None else v + cents(amounts.get(named[f], 0)) for f, v in caps.items()})
    rules["max_pools"] = {m: n + up(amounts.get(f"pools[{m}]", 0)) for m, n in data.max_pools.items()}
    if data.movement is not None:
        most = data.movement.max_moved_gpus + up(amounts.get("movement", 0))
        rules["movement"] = replace(data.movement, max_moved_gpus=most)
    return changed(made, **rules)


def up(value: float) -> int:
    return int(-(-(value - 1e-6) // 1)) if value > 0 else 0


def cents(value: float) -> float:
    return -(-value * 100 // 1) / 100


def lines_of(made: Fleet, rejections=()) -> tuple[str, ...]:
    with pytest.raises(InfeasibleError) as caught:
        raise_short(made, SETTINGS, {"m": rejections})
    assert str(caught.value).startswith(LEAST)
    return caught.value.shortages


def assert_true(made: Fleet, *kinds: str) -> dict[str, float]:
    """What is short is of these kinds; with it there is a fleet, without it, or with a little less, there is none."""
    assert made.solve(SETTINGS) is None
    excess = least_excess(made, SETTINGS)
    assert excess.heading == LEAST
    assert sorted({name.split("[")[0] for name in excess.amounts}) == sorted(kinds)
    assert relaxed(made, dict(excess.amounts)).solve(SETTINGS) is not None
    for name, amount in excess.amounts.items():
        step = 1.0 if name.split("[")[0] in ("quota", "available", "pools", "movement") else 0.02
        assert relaxed(made, dict(excess.amounts) | {name: max(0.0, amount - step)}).solve(SETTINGS) is None
        assert shortage_line(name, amount, made.data()) in lines_of(made)
    return dict(excess.amounts)


@pytest.fixture(scope="module")
def world() -> Fleet:
    """A bursty model on L4 alone: the screen's bound is below the exact need."""
    return fleet([workload("m", rate=20.0, idc=20.0, tp_degrees=(1,))], [L4])


def need(made: Fleet) -> int:
    return made.solve(SETTINGS).columns[0].parts[0].running[0]


def test_a_quota_is_short_of_what_the_exact_need_takes(world):
    """One tp-1 model on 1-GPU instances: a quota of 3 is short of the exact replicas less 3."""
    bound = fleet([workload("m", rate=20.0, idc=20.0, tp_degrees=(1,))], [L4]).data()
    least = min(column.parts[0].running[0] for column in bound.columns)
    exact = need(world)
    assert exact > least  # or this test would not see the difference
    fresh = fleet([workload("m", rate=20.0, idc=20.0, tp_degrees=(1,))], [L4])
    short = changed(fresh, quotas=(Quota(name="few", max_gpus=3),))
    assert assert_true(short, "quota") == {"quota[few]": pytest.approx(exact - 3)}
    assert lines_of(short)[0] == f"quota 'few': short by {exact - 3} GPUs (limit 3)"


def test_a_budget_is_short_of_the_difference(world):
    usd = need(world) * 0.8 * 2160
    short = changed(world, caps=Caps(budget_usd=1000.0))
    assert assert_true(short, "budget") == {"budget": pytest.approx(usd - 1000.0)}
    assert lines_of(short)[0] == f"budget: short by {usd - 1000:,.2f} USD (budget_usd is 1,000.00 USD)"


def test_power_carbon_and_liability(world):
    """0.1 kW and 0.02 kg/h an instance; reserved instead, 50 USD are owed for each afterwards."""
    count = need(world)
    lots = tuple(replace(lot, power_kw=0.1, carbon_kg_per_h=0.02) for lot in world._data.lots)
    made = changed(world, lots=lots, caps=Caps(power_kw=0.15))
    assert assert_true(made, "power") == {"power": pytest.approx(0.1 * count - 0.15)}
    made = changed(world, lots=lots, caps=Caps(carbon_kg=10.0))
    assert assert_true(made, "carbon") == {"carbon": pytest.approx(0.02 * 2160 * count - 10.0)}
    owing = tuple(
        replace(lot, kind=LotKind.NEW_COMMITMENT, reserved_usd_per_h=0.5, used_usd_per_h=0.0, liability_after_usd=50.0)
        for lot in lots
    )
    made = changed(world, lots=owing, caps=Caps(liability_usd=75.0))
    assert assert_true(made, "liability") == {"liability": pytest.approx(50.0 * count - 75.0)}


def test_instances_that_cannot_be_had(world):
    count = need(world)
    made = changed(world, lots=tuple(replace(lot, available=(2,)) for lot in world._data.lots))
    lot = world._data.lots[0].id
    assert assert_true(made, "available") == {f"available[{lot}]": pytest.approx(count - 2)}
    assert lines_of(made)[0] == f"'{lot}': short by {count - 2} instances"


def test_movement(world):
    count = need(world)
    made = changed(world, movement=Movement({("m", "L4"): 1}, 1))
    assert assert_true(made, "movement") == {"movement": pytest.approx(count - 2)}
    assert count > 3
    assert lines_of(made)[0] == f"movement: {count - 2} GPUs more than max_moved_gpus (limit 1)"


def test_two_limits_that_are_short_together(world):
    """Neither alone would do."""
    made = changed(world, quotas=(Quota(name="few", max_gpus=3),), caps=Caps(budget_usd=1000.0))
    assert_true(made, "budget", "quota")


def test_pools():
    """Long prompts run on H100s alone, and there is one; short ones on L4s: two pools where one is allowed."""
    work = workload("m", rate=20.0, tp_degrees=(1,), cuts=(1024,))
    two = fleet([work], [L4], routing={"max_pools": 2, "cuts": [1024]})
    whole = lambda column: column.end - column.start == 2  # noqa: E731
    columns = tuple(c for c in two.data().columns if not whole(c))
    assert columns
    data: ProgramData = replace(two.data(), columns=columns, max_pools={"m": 1})
    assert without_route(data) == ()

    class Halves(Fleet):
        def data(self, keep=None):
            made = super().data()
            return replace(made, columns=tuple(c for c in made.columns if not whole(c)))

    halves = changed(two, max_pools={"m": 1})
    halves.__class__ = Halves
    excess = least_excess(halves, SETTINGS)
    assert excess.amounts == {"pools[m]": 1.0}
    assert shortage_line("pools[m]", 1.0, halves.data()) == "m: 1 pool more than max_pools (limit 1)"


def test_a_region_to_fall_back_on():
    """All replicas in one region: as many are missing elsewhere as there are; without the rule there is a fleet."""
    work = workload("m", rate=20.0, tp_degrees=(1,), survives_region_loss=True)
    made = fleet([work], [offer("L4", 1, 0.8, region="r1")])
    assert made.solve(SETTINGS) is None
    excess = least_excess(made, SETTINGS)
    plain = fleet([workload("m", rate=20.0, tp_degrees=(1,))], [L4])
    assert list(excess.amounts.values()) == [pytest.approx(need(plain))]
    assert "more must stand elsewhere, as in a further region" in lines_of(made)[0]
    both = fleet([work], [offer("L4", 1, 0.8, region="r1"), offer("L4", 1, 0.8, region="r2")])
    assert both.solve(SETTINGS) is not None


def test_spread_counts_what_must_stand_at_all():
    """One region of 2 instances: the replicas beyond them are missing there too, whatever the rule says."""
    work = workload("m", rate=20.0, tp_degrees=(1,), survives_region_loss=True)
    made = fleet([work], [offer("L4", 1, 0.8, region="r1")])
    made = changed(made, lots=tuple(replace(lot, available=(2,)) for lot in made._data.lots))
    count = need(fleet([workload("m", rate=20.0, tp_degrees=(1,))], [L4]))
    amounts = least_excess(made, SETTINGS).amounts
    assert sorted(amounts.values()) == [pytest.approx(count - 2), pytest.approx(count)]


def test_a_model_that_no_limit_would_help():
    """A model on tp 2 alone, and instances of one GPU: nothing holds a replica, and the other model is not blamed."""
    works = [workload("m", rate=5.0, tp_degrees=(2,)), workload("n", rate=5.0, tp_degrees=(1,))]
    made = fleet(works, [L4])
    assert without_route(made.data()) == ("m",)
    lines = lines_of(made)
    said = "no GPU type on offer where it may stand holds a whole replica for every slice of its routing"
    assert lines == (f"model 'm': {said}",)


def test_each_way_out_admits_its_gpu():
    """A TPOT target that only H100s keep: the share named admits each other type, a little less does not."""
    gpus = ("A100-80GB-SXM", "H100-SXM", "L4", "L40S")
    work = workload("m", rate=20.0, targets=Targets(tpot_ms=15.0), tp_degrees=(1,))
    found = candidates(work, gpus)
    kept = {need.config.gpu.id for need in found.needs}
    columns = fleet([work], [H100]).data().columns
    lines = ways_out({"m": found.rejections}, columns)
    assert len(lines) == 1  # 1.58 times on A100; L40S and L4 miss by more than twice
    for line in lines:
        factor, gpu = re.fullmatch(r"m: targets\.tpot_ms looser by ([\d.]+) % or more admits (\S+) tp1", line).groups()
        assert gpu not in kept
        looser = candidates(of_target(15.0 * (1 + float(factor) / 100)), gpus)
        assert gpu in {need.config.gpu.id for need in looser.needs}
        nearly = candidates(of_target(15.0 * (1 + (float(factor) - 0.2) / 100)), gpus)
        assert gpu not in {need.config.gpu.id for need in nearly.needs}


def of_target(tpot_ms: float):
    return workload("m", rate=20.0, targets=Targets(tpot_ms=tpot_ms), tp_degrees=(1,))


def test_a_target_that_is_not_all_that_is_missed_is_no_way_out():
    """With a TTFT target out of reach as well, no TPOT target would admit anything."""
    work = workload("m", rate=20.0, targets=Targets(tpot_ms=9.0, ttft_ms=0.9), tp_degrees=(1,))
    found = candidates(work, ("A100-80GB-SXM", "L4", "L40S"))
    assert found.rejections
    assert not any("tpot_ms" in line for line in ways_out({"m": found.rejections}, ()))


def test_rejected_classes_count_and_name_the_nearest():
    work = workload("m", rate=20.0, targets=Targets(tpot_ms=15.0), tp_degrees=(1,))
    rejections = candidates(work, ("A100-80GB-SXM", "L4")).rejections
    rows = rejected_classes({"m": rejections})
    assert sum(row.configurations for row in rows) == len(rejections)
    nearest = min((r for r in rejections if r.reason == rows[0].reason), key=lambda r: r.excess)
    assert rows[0].example.startswith(f"{nearest.gpu} tp{nearest.tp}: ")
    assert f"{nearest.excess:.2f} times" in rows[0].example


def test_without_an_answer_nothing_is_claimed(world, monkeypatch):
    """The request is infeasible all the same; what is short is not known."""

    def no_answer(*_):
        raise SolverError("no plan in time")

    monkeypatch.setattr("planner.optimise.explain.relax.solve_program", no_answer)
    with pytest.raises(InfeasibleError) as caught:
        raise_short(changed(world, quotas=(Quota(name="few", max_gpus=3),)), SETTINGS, {})
    assert caught.value.shortages == ("what is short was not found within 60 s (solver.time_limit_s)",)


def test_needs_that_are_not_exact_in_time_are_a_bound(monkeypatch):
    """The clock jumps after the first solve: the screen's bound is what is claimed, as a bound."""
    fresh = fleet([workload("m", rate=20.0, idc=20.0, tp_degrees=(1,))], [L4])
    least = min(column.parts[0].running[0] for column in fresh.data().columns)
    ticks = iter([0.0, 1e9])
    monkeypatch.setattr("planner.optimise.explain.relax.time", SimpleNamespace(monotonic=lambda: next(ticks)))
    short = changed(fresh, quotas=(Quota(name="few", max_gpus=3),))
    excess = least_excess(short, SETTINGS)
    assert excess.amounts == {"quota[few]": pytest.approx(least - 3)}
    assert excess.heading == BOUND
