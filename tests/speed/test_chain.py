"""Which provider answers, and what its source says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from planner.catalog.load import Catalog
from planner.errors import InputError
from planner.memory.types import KvDtype, Sizing, WeightDtype
from planner.speed.chain import MEASURED, ROOFLINE, SILICON, Silicon, SpeedSources, bands_of, load_sources, speed_of
from planner.speed.curve import Loads
from planner.speed.measured import MeasuredSet
from planner.speed.operating import closed_loop
from planner.speed.points import Figures, Load, LoadKind, Point, Served
from planner.speed.roofline import speed_model
from planner.speed.types import Provider, SpeedModel

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
