from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from planner.memory.types import KvDtype, WeightDtype
from planner.plan import FleetPlan, read_plan
from planner.report import speed_curve as module
from planner.report.speed_curve import Room, Series, SpeedCurve, concurrency_grid, planned_point, room_of, speed_curve
from planner.speed.curve import Loads
from planner.speed.points import Figures, Load, LoadKind, Point, Served
from planner.speed.types import Band, Provider, SpeedModel

SERVED = Served("vllm", "0.19.0", "org/model", "H100-SXM", 1, WeightDtype.BF16, KvDtype.BF16)


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> SpeedModel:
    """TPOT 10 ms and TTFT 100 ms at any concurrency: what follows from them is then hand-solved."""

    def constant(coefficients: object, clients: Any, prompt: float, output: float) -> SimpleNamespace:
        return SimpleNamespace(tpot_s=np.full(np.shape(clients), 0.01), ttft_s=np.full(np.shape(clients), 0.1))

    monkeypatch.setattr(module, "closed_loop", constant)
    return SpeedModel(
        coefficients=None,  # type: ignore[arg-type]
        tpot_band=Band(0.8, 1.25),
        ttft_band=Band(0.5, 2.0),
        source="roofline 2026: fitted",
        provider=Provider.ROOFLINE,
    )


def curve_of(model: SpeedModel, concurrency: tuple[float, ...] = (1, 2, 4), **more: Any) -> SpeedCurve:
    return speed_curve(model, SERVED, concurrency, input_tokens=1000, output_tokens=11, label="one", **more)


def test_bands_of_each_figure(model: SpeedModel) -> None:
    """A request lives 0.1 + 10 x 0.01 = 0.2 s, so 4 clients get 4 x 11 / 0.2 = 220 tokens/s."""
    curve = curve_of(model)
    assert curve.tpot_ms == Series((8.0,) * 3, (10.0,) * 3, (12.5,) * 3)
    assert curve.ttft_ms == Series((50.0,) * 3, (100.0,) * 3, (200.0,) * 3)
    assert curve.decode_tok_s.low == pytest.approx((80.0,) * 3)
    assert curve.decode_tok_s.mid == pytest.approx((100.0,) * 3)
    assert curve.decode_tok_s.high == pytest.approx((125.0,) * 3)
    assert curve.output_tok_s.mid == pytest.approx((55.0, 110.0, 220.0))
    assert curve.output_tok_s.low[2] == pytest.approx(44 / (0.2 + 0.125))
    assert curve.output_tok_s.high[2] == pytest.approx(44 / (0.05 + 0.08))
    assert curve.full_at is None


def test_more_clients_than_room_wait_their_turn(model: SpeedModel) -> None:
    """2 run and live 0.2 s; of 4 clients 2 wait, for 2 departures at 10/s: 0.2 s more until the first token."""
    curve = curve_of(model, room=Room(2.0, "KV pool"))
    assert curve.full_at == 2.0
    assert curve.full_why == "KV pool"
    assert curve.output_tok_s.mid == pytest.approx((55.0, 110.0, 110.0))
    assert curve.ttft_ms.mid == pytest.approx((100.0, 100.0, 300.0))
    assert curve.ttft_ms.high[2] == pytest.approx(200 + 325)
    assert curve.tpot_ms.mid == (10.0,) * 3
    in_flight = curve.output_tok_s.mid[2] / 11 * (curve.ttft_ms.mid[2] / 1000 + 10 * 0.01)
    assert in_flight == pytest.approx(4.0)


def test_the_point_where_it_is_full_is_drawn(model: SpeedModel) -> None:
    curve = curve_of(model, room=Room(3.0, "max_num_seqs"))
    assert curve.concurrency == (1.0, 2.0, 3.0, 4.0)
    assert curve_of(model, room=Room(300.0, "KV pool")).full_at is None


def test_the_source_names_its_provider_once(model: SpeedModel) -> None:
    assert curve_of(model).source == "roofline: 2026: fitted"
    measured = replace(model, provider=Provider.MEASURED_CURVE, source="5 points; corrects roofline 2026: fitted")
    assert curve_of(measured).source == "measured curve: 5 points; corrects roofline 2026: fitted"


def test_grid_holds_both_ends_and_every_power_of_two() -> None:
    grid = concurrency_grid(3, 100)
    assert grid[0] == 3
    assert grid[-1] == 100
    assert {4.0, 8.0, 16.0, 32.0, 64.0} < set(grid)
    assert list(grid) == sorted(grid)
    assert len(concurrency_grid(1, 256)) == 33


def point(**more: Any) -> Point:
    load = Load(LoadKind.CLOSED_LOOP, 1000, 11, concurrency=4)
    return replace(Point("a", SERVED, load, Figures(tpot_ms=11.0)), **more)


def test_points_of_the_deployment_belong_to_the_curve(model: SpeedModel) -> None:
    curve = curve_of(model)
    assert curve.covers(point())
    assert curve.covers(point(served=replace(SERVED, version="0.8.5")))
    assert curve.covers(point(load=replace(point().load, input_tokens=1090)))
    assert curve.covers(point(load=replace(point().load, kind=LoadKind.OPEN_LOOP, rate_per_s=2.0)))


@pytest.mark.parametrize(
    "other",
    [
        {"served": replace(SERVED, gpu="L40S")},
        {"served": replace(SERVED, engine="sglang")},
        {"served": replace(SERVED, tp=2)},
        {"served": replace(SERVED, weight_dtype=WeightDtype.FP8)},
        {"served": replace(SERVED, kv_dtype=KvDtype.FP8)},
        {"served": replace(SERVED, decode_only=True)},
        {"load": Load(LoadKind.CLOSED_LOOP, 1000, 11)},
        {"load": Load(LoadKind.CLOSED_LOOP, 1200, 11, concurrency=4)},
        {"load": Load(LoadKind.CLOSED_LOOP, 1000, 20, concurrency=4)},
        {"load": Load(LoadKind.STATIC_BATCH, 1000, 11, concurrency=4)},
        {"load": Load(LoadKind.CLOSED_LOOP, 1000, 11, concurrency=4, cached_share=0.5)},
        {"load": Load(LoadKind.CLOSED_LOOP, 1000, 11, concurrency=4, acceptance=1.8)},
    ],
    ids=str,
)
def test_points_of_anything_else_do_not(model: SpeedModel, other: dict[str, Any]) -> None:
    assert not curve_of(model).covers(point(**other))


def test_room_is_the_pool_or_the_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    """1,000-token requests, held at 1,005.5 halfway: 10,055 tokens hold ten of them, if the cap allows."""
    monkeypatch.setattr(module, "holding_of", lambda sizing: SimpleNamespace(of_mean=lambda p, o: p + o / 2))
    monkeypatch.setattr(module, "pool_token_equivalents", lambda sizing: 10_055.0)
    sizing: Any = SimpleNamespace(workers=2, max_num_seqs=64)
    assert room_of(sizing, 1000, 11) == Room(20.0, "KV pool")
    sizing = SimpleNamespace(workers=1, max_num_seqs=8)
    assert room_of(sizing, 1000, 11) == Room(8.0, "max_num_seqs")


def test_planned_point_is_what_the_constraints_saw(plan: FleetPlan) -> None:
    pool = plan.pools[0]
    planned = planned_point(pool)
    assert planned.tpot_ms == pool.speed.tpot_ms.used
    assert planned.ttft_ms == pool.speed.ttft_ms.used
    assert planned.concurrency == pool.load.mean_live_requests
    assert planned.output_tok_s == pool.load.rate_per_replica_per_s * pool.mean_output_tokens
    assert planned.decode_tok_s == pytest.approx(pool.speed.decode_tokens_per_s)
    assert "upper edge" in planned.note
    assert "TTFT P95" in planned.note


def test_planned_points_of_the_example_obey_little() -> None:
    """Live requests are at least rate x (decode time): what lives also waits for its first token."""
    example = read_plan(Path(__file__).parents[2] / "reports" / "example" / "plan.json")
    for pool in example.pools:
        planned = planned_point(pool)
        decoding = pool.load.rate_per_replica_per_s * pool.mean_output_tokens * planned.tpot_ms / 1000
        assert planned.concurrency >= 0.95 * decoding


def test_a_measured_band_is_drawn_as_wide_as_it_is_at_each_load(model: SpeedModel) -> None:
    """Bands that depend on the load: from four clients on TPOT may be three times as long, before them twice."""

    def bands_at(loads: Loads) -> tuple[tuple[Band, Band], ...]:
        return tuple((Band(1.0, 3.0 if n >= 4 else 2.0), Band(1.0, 1.0)) for n in loads.clients)

    curve = curve_of(replace(model, bands_at=bands_at))
    assert curve.tpot_ms == Series((10.0,) * 3, (10.0,) * 3, pytest.approx((20.0, 20.0, 30.0)))  # type: ignore[arg-type]
    assert curve.ttft_ms.high == curve.ttft_ms.low
