"""Who stands where, and what is bought for it: hand-made decisions, two periods of 100 and 300 hours."""

from __future__ import annotations

import datetime as dt
from types import SimpleNamespace

import pytest

from planner.assemble.limits import limits_of
from planner.assemble.purchases import purchases_of
from planner.assemble.stands import standings
from planner.catalog.offer import Offer, Term
from planner.errors import PlannerError
from planner.optimise.types import (
    Caps,
    Column,
    Decision,
    Lot,
    LotKind,
    Movement,
    Part,
    Period,
    Placement,
    ProgramData,
    Supply,
)
from planner.plan import SolveStatus
from planner.request import Quota

PERIODS = (Period("day", 100.0), Period("night", 300.0))
TWO = Placement("H100-SXM", 2)
EAST, WEST = (Supply(f"H100-SXM {name}", "H100-SXM", 8, name) for name in ("east", "west"))


def part(running: tuple[int, ...], placement: Placement = TWO, *, model: str = "m", low: int = 0, share: float = 1.0,
         refused: float = 0.0, tenants: tuple[str, ...] = ()) -> Part:  # fmt: skip
    piece = SimpleNamespace(model=model, tenants=tenants, prompt_lo_tokens=low)
    config = SimpleNamespace(label=placement.gpu, length=SimpleNamespace(refused_token_share=refused))
    return Part(placement, SimpleNamespace(slice=piece, config=config), running, share)  # type: ignore[arg-type]


def column(*parts: Part, served: float = 100.0) -> Column:
    return Column(f"{parts[0].need.slice.model}{parts[0].need.slice.prompt_lo_tokens}", "m", 0, 1, parts, served)


def decision(*columns: Column, placed=None, running=None, reserved=None) -> Decision:
    return Decision(
        columns, running or {}, reserved or {}, placed or {}, SolveStatus.OPTIMAL, 1.0, 1.0, 1.0, 1, "s", "1"
    )


def offer(name: str = "a/b/c", usd_per_h: float = 10.0) -> Offer:
    return Offer(
        id=name, provider="a", instance_type="b", region="east", gpu="H100-SXM", gpus_per_instance=8,
        usd_per_h=usd_per_h, term=Term.ON_DEMAND, as_of=dt.date(2026, 7, 1), source_url="https://example.org",
    )  # fmt: skip


def data(*lots: Lot, **rules: object) -> ProgramData:
    return ProgramData(("m",), {"m": 1}, {"m": 4}, PERIODS, (EAST, WEST), lots, (), **rules)  # type: ignore[arg-type]


def test_the_supply_with_the_most_is_filled_first_and_pools_share_what_stands():
    """Night: 5 replicas are wanted, 4 + 1 stand; the first pool takes 3 of the first supply."""
    placed = {(TWO, EAST.id): (1, 1), (TWO, WEST.id): (4, 4)}
    one, two = standings(decision(column(part((2, 3))), column(part((3, 2), low=4096)), placed=placed), ("m",))
    assert (one.name, two.name) == ("m/1", "m/2")
    assert dict(one.on) == {WEST.id: (2, 3)}
    assert dict(two.on) == {WEST.id: (2, 1), EAST.id: (1, 1)}
    assert two.replicas == (3, 2)
    assert two.gpu_hours(WEST.id, [100.0, 300.0]) == 2 * (2 * 100 + 1 * 300)


def test_replicas_beyond_those_that_run_are_not_handed_out():
    (only,) = standings(decision(column(part((1, 1))), placed={(TWO, EAST.id): (2, 5)}), ("m",))
    assert only.name == "m"
    assert dict(only.on) == {EAST.id: (1, 1)}


def test_a_pool_that_survives_a_region_keeps_all_that_stands_for_it():
    spread = Placement("H100-SXM", 2, spread="m all")
    placed = {(spread, EAST.id): (3, 2), (spread, WEST.id): (3, 2)}
    (only,) = standings(decision(column(part((3, 2), spread)), placed=placed), ("m",))
    assert only.replicas == (6, 4)


def test_fewer_standing_than_running_is_a_bug():
    with pytest.raises(PlannerError, match="3 replicas run in period 2, and fewer stand"):
        standings(decision(column(part((1, 3))), placed={(TWO, EAST.id): (1, 2)}), ("m",))


def test_order_of_columns_does_not_matter_and_names_never_collide():
    columns = [column(part((1, 1), low=4096)), column(part((1, 1), model="m/1")), column(part((1, 1)))]
    placed = {(TWO, EAST.id): (3, 3)}
    names = [
        [p.name for p in standings(decision(*order, placed=placed), ("m", "m/1"))] for order in (columns, columns[::-1])
    ]
    assert names[0] == names[1] == ["m/2", "m/3", "m/1"]


def test_parts_of_a_split_column_share_its_tokens_as_they_serve_them():
    """1/4 that refuses nothing and 3/4 that refuses a fifth: 0.25 to 0.6 of 0.85."""
    other = Placement("A100", 1)
    split = column(part((1, 1), share=0.25), part((1, 1), other, share=0.75, refused=0.2), served=85.0)
    placed = {(TWO, EAST.id): (1, 1), (other, "A100"): (1, 1)}
    tokens = {p.part.placement.gpu: p.served_tokens for p in standings(decision(split, placed=placed), ("m",))}
    assert tokens == pytest.approx({"H100-SXM": 25.0, "A100": 60.0})


def lots() -> tuple[Lot, ...]:
    return (
        Lot("held", EAST.id, LotKind.EXISTING_COMMITMENT, offer("x"), 8, sunk_usd=500.0, available=(2, 0)),
        Lot("od", EAST.id, LotKind.ON_DEMAND, offer("od"), 8, used_usd_per_h=10.0, power_kw=5.0, carbon_kg_per_h=2.0),
        Lot("own", WEST.id, LotKind.OWNED, offer("own"), 8, used_usd_per_h=1.0, available=(9, 9)),
        Lot("year", EAST.id, LotKind.NEW_COMMITMENT, offer("yr"), 8, reserved_usd_per_h=4.0, liability_after_usd=900.0),
    )


def bought():
    """East: 9 replicas of 2 GPUs by day, 4 by night; held 1 of 2, year 1 of 1 reserved, od 1 by day."""
    made = decision(
        column(part((9, 4))), placed={(TWO, EAST.id): (9, 4)},
        running={"held": (1, 0), "od": (1, 0), "year": (1, 1)}, reserved={"year": 1},
    )  # fmt: skip
    return made, standings(made, ("m",))


def test_lots_cost_what_is_reserved_used_and_sunk():
    made, pools = bought()
    rows = {p.offer_id: p for p in purchases_of(data(*lots()), made, pools)}
    assert set(rows) == {"held", "od", "year"}, "what neither runs nor costs is no purchase"
    assert rows["held"].usd == 500
    assert rows["held"].paid_by_period == (2, 0)
    assert rows["held"].gpus_bought == 16
    assert rows["od"].usd == 10 * 100
    assert rows["od"].power_kw == 5
    assert rows["od"].carbon_kg == 2 * 100
    assert rows["year"].usd == 4 * 400
    assert rows["year"].liability_after_usd == 900
    assert rows["year"].paid_by_period == (1, 1)


def test_lots_of_a_supply_are_filled_in_order():
    """18 GPUs by day: 8 on the held one, 8 on the year's, 2 on demand; 8 by night on the year's."""
    made, pools = bought()
    rows = {p.offer_id: p.gpus_used for p in purchases_of(data(*lots()), made, pools)}
    assert rows == {"held": 8, "od": 2, "year": 8}


def test_limits_count_held_reserved_and_running_in_the_busiest_period():
    """Day: 16 held + 8 reserved + 8 on demand = 32; liability 900, power 5 kW, carbon 200 kg; 18 - 10 GPUs moved."""
    caps = Caps(budget_usd=1e6, liability_usd=1000.0, power_kw=6.0, carbon_kg=300.0)
    rules = data(*lots(), quotas=(Quota(name="q", gpu="H100-SXM", max_gpus=32),), caps=caps,
                 movement=Movement({("m", "H100-SXM"): 10}, 9))  # fmt: skip
    made, pools = bought()
    rows = limits_of(rules, purchases_of(rules, made, pools), pools, {"q": 12.5})
    assert [(r.name, r.used, r.limit) for r in rows] == [
        ("q", 32, 32),
        ("budget", 500 + 1000 + 1600, 1e6),
        ("liability", 900, 1000),
        ("power", 5, 6),
        ("carbon", 200, 300),
        ("movement", 8, 9),
    ]
    assert rows[0].worth_usd == 12.5
    assert rows[1].worth_usd is None
