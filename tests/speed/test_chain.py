"""Which provider answers, and what its source says."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from planner.catalog.load import Catalog
from planner.errors import InputError
from planner.memory.types import KvDtype, Sizing, WeightDtype
from planner.speed.chain import MEASURED, ROOFLINE, SILICON, Silicon, SpeedSources, bands_of, load_sources, speed_of
from planner.speed.curve import Loads, log_times
from planner.speed.measured import MeasuredSet
from planner.speed.operating import closed_loop
from planner.speed.points import Figures, Load, LoadKind, Point, Served
from planner.speed.roofline import speed_model
from planner.speed.step import decode_step_s
from planner.speed.types import FloatArray, Provider, SpeedModel

MODEL, GPU = "meta-llama/Llama-3.1-8B-Instruct", "H100-SXM"
SERVED = Served("vllm", "0.19.0", MODEL, GPU, 1, WeightDtype.BF16, KvDtype.BF16)


def point(
    tpot_ms: float | None = 14.0, ttft_ms: float | None = 200.0, clients: float = 32.0, **changes: object
) -> Point:
    load = Load(LoadKind.CLOSED_LOOP, 1024.0, 512.0, clients)
    parts = [replace(part, **{k: v for k, v in changes.items() if hasattr(part, k)}) for part in (SERVED, load)]
    return Point(f"{clients:g}", *parts, Figures(tpot_ms, ttft_ms), "lt.csv")  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def sources(catalog: Catalog) -> SpeedSources:
    return replace(load_sources(catalog.root), version="0.19.0")


@pytest.fixture
def ask(catalog: Catalog, sources: SpeedSources, sizing_of: Callable[..., Sizing]) -> Callable[..., SpeedModel]:
    shape, gpu = catalog.model_shape(MODEL), catalog.gpu(GPU)

    def answer(*points: Point, expected: Loads | None = None, **changes: object) -> SpeedModel:
        used = replace(sources, measured=MeasuredSet(points), **changes)
        return speed_of(shape, gpu, sizing_of(shape, GPU), used, expected)

    return answer


@pytest.fixture(scope="module")
def silicon(catalog: Catalog, sources: SpeedSources, sizing_of: Callable[..., Sizing]) -> Silicon:
    """A stand-in for the optional provider."""
    shape, gpu = catalog.model_shape(MODEL), catalog.gpu(GPU)
    model = speed_model(shape, gpu, sizing_of(shape, GPU), sources.facts)
    return lambda *_: replace(model, source="kernels", provider=Provider.SILICON)


def test_nothing_measured_is_the_roofline(ask: Callable[..., SpeedModel]) -> None:
    found = ask()
    assert found.provider is Provider.ROOFLINE
    assert not found.measured
    assert found.source.startswith("roofline")


def test_one_point_then_a_curve_come_first(ask: Callable[..., SpeedModel]) -> None:
    one = ask(point())
    assert (one.provider, one.measured) == (Provider.MEASURED_POINT, True)
    assert one.source.startswith("1 measured point at 32 sequences, vllm 0.19.0 (lt.csv); corrects roofline")
    assert one.reach is not None
    assert (one.reach.batch, one.reach.context_tokens) == (64.0, 2 * 1280.0)
    curve = ask(point(), point(20.0, 400.0, clients=128.0))
    assert curve.provider is Provider.MEASURED_CURVE
    assert "2 measured points at 32 to 128 sequences" in curve.source


def test_repeats_of_a_load_are_one_point(ask: Callable[..., SpeedModel]) -> None:
    """14 ms and 16 ms at one load are their geometric mean once, not two independent witnesses."""
    twice = ask(point(14.0), point(16.0))
    assert twice.provider is Provider.MEASURED_POINT
    once = ask(point((14.0 * 16.0) ** 0.5))
    assert float(twice.coefficients.fixed_s) == pytest.approx(float(once.coefficients.fixed_s), rel=1e-9)


def test_the_measured_load_comes_out_nearer_to_the_measurement(ask: Callable[..., SpeedModel]) -> None:
    before, after = (closed_loop(m.coefficients, 32.0, 1024.0, 512.0).tpot_s * 1e3 for m in (ask(), ask(point())))
    assert abs(np.log(after / 14.0)) < 0.15 * abs(np.log(before / 14.0))


@pytest.mark.parametrize(
    "changes",
    [
        {"engine": "sglang"}, {"gpu": "H200-SXM"}, {"tp": 2}, {"pp": 2}, {"ep": 2}, {"attention_dp": 2},
        {"model": "Qwen/Qwen3-32B"}, {"kv_dtype": KvDtype.FP8}, {"weight_dtype": WeightDtype.FP8},
    ],
    ids=str,
)  # fmt: skip
def test_a_point_of_another_deployment_is_not_used(ask: Callable[..., SpeedModel], changes: dict[str, object]) -> None:
    assert ask(point(**changes)).provider is Provider.ROOFLINE


def test_another_version_is_used_with_the_slow_edge_and_named(ask: Callable[..., SpeedModel]) -> None:
    found = ask(point(version="0.12.0"), point(version="0.18.1"))
    assert found.provider is Provider.MEASURED_POINT
    assert not found.measured
    assert "vllm 0.18.1 (planned 0.19.0: another version, so the slow edge of the band is kept)" in found.source
    assert "0.12.0" not in found.source
    both = ask(point(version="0.18.1"), point(version="v0.19.0+cu130"))
    assert both.measured


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"kind": LoadKind.STATIC_BATCH}, "static batch"),
        ({"kind": LoadKind.MAX_LOAD}, "max load"),
        ({"acceptance": 2.0}, "speculative"),
        ({"concurrency": None}, "concurrency"),
        ({"decode_only": True}, "decode-only"),
        ({"output_tokens": 1.0}, "one token"),
        ({"tpot_ms": None, "ttft_ms": None}, "neither"),
    ],
)
def test_points_that_say_nothing_are_left_out_with_the_reason(
    ask: Callable[..., SpeedModel], changes: dict[str, object], reason: str
) -> None:
    bad = point(**changes)
    assert ask(bad).provider is Provider.ROOFLINE
    (line,) = MeasuredSet((bad, bad, point())).left_out()
    assert line.startswith("2 measured points not used")
    assert reason in line


def test_ttft_of_an_open_loop_is_not_taken_for_a_closed_one_s(ask: Callable[..., SpeedModel]) -> None:
    found = ask(point(14.0, 5000.0, kind=LoadKind.OPEN_LOOP))
    assert found.reach is not None
    assert (found.reach.tpot, found.reach.ttft) == (True, False)


def test_beyond_twice_the_measured_load_the_model_s_band_holds(ask: Callable[..., SpeedModel]) -> None:
    def at(clients: float, prompt: float) -> Loads:
        return Loads(np.array([clients]), np.array([prompt]), np.array([512.0]))

    roofline = ask()
    inside, more, longer = (
        ask(point(), expected=at(*load)) for load in ((64.0, 2304.0), (65.0, 2304.0), (64.0, 2305.0))
    )
    assert inside.reach is not None
    assert inside.reach.covers(64.0, 2560.0)
    assert "beyond" not in inside.source
    for beyond in (more, longer):
        assert "beyond 2 x the measured load: at least the model's band" in beyond.source
        for name in ("tpot_band", "ttft_band"):
            band, model = getattr(beyond, name), getattr(roofline, name)
            assert band.low <= model.low
            assert band.high >= model.high


def test_each_load_has_its_own_band_where_measured(ask: Callable[..., SpeedModel]) -> None:
    loads = Loads(np.array([32.0, 60.0, 500.0]), np.array([1024.0, 100.0, 8000.0]), np.full(3, 512.0))
    found = bands_of(ask(point()), loads)
    tpot = [band.high for band, _ in found]
    assert tpot == sorted(tpot)
    assert tpot[0] < tpot[2]
    whole = ask(point(), expected=loads)
    assert whole.tpot_band == found[2][0]
    roofline = ask()
    assert bands_of(roofline, loads) == ((roofline.tpot_band, roofline.ttft_band),) * 3


def test_silicon_comes_before_the_roofline_where_it_is_asked_for(
    ask: Callable[..., SpeedModel], silicon: Silicon
) -> None:
    order = (MEASURED, SILICON, ROOFLINE)
    assert ask(silicon=silicon, providers=order).provider is Provider.SILICON
    assert ask(silicon=silicon).provider is Provider.ROOFLINE
    on_top = ask(point(), silicon=silicon, providers=order)
    assert on_top.provider is Provider.MEASURED_POINT
    assert "corrects kernels" in on_top.source


def test_a_provider_without_an_answer_is_named(ask: Callable[..., SpeedModel]) -> None:
    order = (MEASURED, SILICON, ROOFLINE)
    found = ask(silicon=lambda *_: "no data for H100-SXM", providers=order)
    assert found.provider is Provider.ROOFLINE
    assert found.source.endswith("no aiconfigurator: no data for H100-SXM")
    assert ask(providers=order).source.endswith("no aiconfigurator: not installed")
    with pytest.raises(InputError, match="no aiconfigurator: not installed"):
        ask(providers=(MEASURED, SILICON))


def test_measurements_are_not_used_unless_allowed(ask: Callable[..., SpeedModel]) -> None:
    assert ask(point(), providers=(ROOFLINE,)).provider is Provider.ROOFLINE


def times_s(model: SpeedModel, loads: Loads) -> FloatArray:
    """TPOT and TTFT of each load, shape (loads, 2)."""
    return np.exp(log_times(model.coefficients, 0.0, loads))


def edges_s(model: SpeedModel, loads: Loads) -> tuple[FloatArray, FloatArray]:
    """Lower and upper edges of the same."""
    bands = np.array([[(band.low, band.high) for band in row] for row in bands_of(model, loads)])
    return times_s(model, loads) * bands[..., 0], times_s(model, loads) * bands[..., 1]


FAR = Loads(np.array([65.0, 512.0, 4.0]), np.array([1024.0, 1024.0, 30000.0]), np.full(3, 512.0))
_GRID = np.array(list(itertools.product((1.0, 16.0, 64.0, 500.0), (200.0, 8000.0), (128.0, 1024.0))))
EVERYWHERE = Loads(*_GRID.T)


@pytest.mark.parametrize("tpot_ms", [2.0, 4.0, 14.0, 60.0])
def test_a_fast_point_never_hides_far_away_that_the_model_is_slow(
    ask: Callable[..., SpeedModel], tpot_ms: float
) -> None:
    """Beyond twice the measured load both intervals are held, in seconds: the corrected model's and the model's."""
    roofline, found = ask(), ask(point(tpot_ms, 20.0))
    low, high = edges_s(found, FAR)
    model_low, model_high = edges_s(roofline, FAR)
    assert (high >= model_high * (1 - 1e-9)).all()
    assert (low <= model_low * (1 + 1e-9)).all()
    assert (high >= times_s(found, FAR)).all()


def test_a_time_that_was_not_measured_keeps_the_model_s_interval(ask: Callable[..., SpeedModel]) -> None:
    here = Loads(np.array([32.0]), np.array([1024.0]), np.array([512.0]))
    roofline = ask()
    for column, only in ((1, point(14.0, None)), (0, point(None, 200.0))):
        found = ask(only)
        (_, high), (_, model_high) = edges_s(found, here), edges_s(roofline, here)
        assert high[0, column] >= model_high[0, column]
        assert found.reach is not None
        assert (found.reach.tpot, found.reach.ttft) == (column == 1, column == 0)
    both = edges_s(ask(point(14.0, 200.0)), here)
    assert (both[1] < edges_s(ask(point(14.0, None)), here)[1])[0, 1]


@pytest.mark.parametrize(("tpot_ms", "ttft_ms"), [(0.001, 200.0), (14.0, 0.001), (1e-9, None)])
def test_an_absurdly_fast_point_is_left_out_and_said_to_be(
    ask: Callable[..., SpeedModel], tpot_ms: float, ttft_ms: float | None
) -> None:
    alone = ask(point(tpot_ms, ttft_ms))
    assert alone.provider is Provider.ROOFLINE
    assert "1 measured point left out: faster than the model by" in alone.source
    assert alone.coefficients == ask().coefficients
    beside, good = ask(point(tpot_ms, ttft_ms, clients=64.0), point()), ask(point())
    assert "1 measured point at 32 sequences" in beside.source
    assert "1 measured point left out" in beside.source
    assert float(beside.coefficients.fixed_s) == float(good.coefficients.fixed_s)


def test_an_absurdly_slow_point_counts(ask: Callable[..., SpeedModel]) -> None:
    found = ask(point(1e6, 1e7))
    assert found.provider is Provider.MEASURED_POINT
    assert (times_s(found, EVERYWHERE) > times_s(ask(), EVERYWHERE)).all()


def test_points_that_contradict_each_other_widen_the_band(ask: Callable[..., SpeedModel]) -> None:
    """10 and 40 ms at one load: 20 ms, and each lies ln 2 away, which is the scatter then."""
    here = Loads(np.array([32.0]), np.array([1024.0]), np.array([512.0]))
    agreeing, apart = ask(point(20.0), point(20.0)), ask(point(10.0), point(40.0))
    assert times_s(apart, here) == pytest.approx(times_s(agreeing, here), rel=1e-4)
    narrow, wide = (np.log(bands_of(model, here)[0][0].high) for model in (agreeing, apart))
    assert wide > 3 * narrow
    assert wide > 0.9 * np.log(2.0)


def test_another_version_is_believed_less(ask: Callable[..., SpeedModel]) -> None:
    here = Loads(np.array([32.0]), np.array([1024.0]), np.array([512.0]))
    model, same, other = (
        times_s(ask(*points), here)[0, 0] for points in ((), (point(30.0),), (point(30.0, version="0.18.1"),))
    )
    assert model < other < same
    found = ask(point(4.0, version="0.18.1"))
    assert (edges_s(found, here)[1] >= edges_s(ask(), here)[1]).all()
    many = ask(*(point(30.0, clients=n, version="0.18.1") for n in (8.0, 16.0, 32.0, 64.0)))
    assert times_s(many, here)[0, 0] < same


def test_a_point_with_more_clients_than_room_is_within_its_own_reach(
    catalog: Catalog, sources: SpeedSources, sizing_of: Callable[..., Sizing]
) -> None:
    """The pool holds 40 requests of 1,024 + 256 tokens: 200 clients wait for it, and 80 may run within reach."""
    shape, gpu = catalog.model_shape(MODEL), catalog.gpu(GPU)
    sizing = sizing_of(shape, GPU)
    per_block = int(sizing.bytes_per_token * 16)
    full = replace(sizing, num_blocks=40 * 1280 // 16, bytes_per_block=per_block)
    assert full.pool_bytes == pytest.approx(40 * 1280 * sizing.bytes_per_token)
    base = speed_model(shape, gpu, full, sources.facts)
    loads = Loads(np.array([200.0]), np.array([1024.0]), np.array([512.0]), room=np.array([40.0]))
    tpot_ms, ttft_ms = (1e3 * times_s(base, loads)[0]).tolist()
    measured = MeasuredSet((point(1.3 * tpot_ms, 1.3 * ttft_ms, clients=200.0),))
    found = speed_of(shape, gpu, full, replace(sources, measured=measured))
    assert found.reach is not None
    assert found.reach.batch == pytest.approx(80.0)
    assert times_s(found, loads)[0] == pytest.approx(1.3 * times_s(base, loads)[0], rel=0.06)
    narrow, unrun = (bands_of(found, replace(loads, room=np.array([room])))[0][0] for room in (40.0, 81.0))
    assert narrow.high < base.tpot_band.high
    assert unrun.high >= base.tpot_band.high


def test_the_order_of_points_has_no_meaning(ask: Callable[..., SpeedModel]) -> None:
    points = [point(10.0 + n / 8, 100.0 + n, clients=n) for n in (1.0, 8.0, 32.0, 32.0, 128.0)]
    points += [point(16.5, None, clients=32.0), point(None, 170.0, clients=32.0, version="v0.19.0+cu130")]
    first, second = ask(*points), ask(*reversed(points))
    assert vars(first.coefficients) == vars(second.coefficients)
    assert first.source == second.source
    assert bands_of(first, EVERYWHERE) == bands_of(second, EVERYWHERE)


def test_a_slower_point_never_gives_a_faster_prediction(ask: Callable[..., SpeedModel]) -> None:
    """At any load, whatever the factor, but for half a per cent of curvature; no step gets faster with its load."""
    found = [times_s(ask(point(ms, None)), EVERYWHERE)[:, 0] for ms in (1.0, 3.0, 8.0, 14.0, 20.0, 40.0, 100.0, 1000.0)]
    assert (np.diff(np.log(found), axis=0) >= -0.005).all()
    batches, contexts = np.meshgrid(np.geomspace(1, 1024, 30), np.geomspace(100, 1e5, 30), indexing="ij")
    for ms in (2.0, 14.0, 300.0):
        steps = decode_step_s(ask(point(ms)).coefficients, batches, batches * contexts)
        assert (np.diff(steps, axis=0) >= 0).all()
        assert (np.diff(steps, axis=1) >= 0).all()
