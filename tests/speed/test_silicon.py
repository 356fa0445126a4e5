"""The optional provider: its logic against a made-up engine; the package itself where it is installed."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner.catalog.load import Catalog
from planner.errors import InputError
from planner.memory.types import KvDtype, Sizing, WeightDtype
from planner.speed import silicon_facade
from planner.speed.silicon import NotAvailable, SiliconProvider, nearest, silicon_model, silicon_source
from planner.speed.silicon_facts import SILICON_FILE, SiliconFacts, load_silicon_facts
from planner.speed.silicon_fit import FitShape, fit_surface
from planner.speed.step import decode_step_s, prefill_s
from planner.speed.types import Provider, SpeedModel

INSTALLED = importlib.util.find_spec("aiconfigurator_core") is not None
with_package = pytest.mark.skipif(not INSTALLED, reason="aiconfigurator-core is not installed")
without_package = pytest.mark.skipif(INSTALLED, reason="aiconfigurator-core is installed")

LLAMA, LLAMA_BUNDLED = "meta-llama/Llama-3.1-8B-Instruct", "org--same-as-llama_config.json"
MakeSizing = Callable[..., Sizing]
DENSE = FitShape(0.0, 0.0, 8192.0, 400_000.0, 32_768.0, 0.03)


@dataclass
class FakeEngine:
    """A surface of known coefficients, milliseconds: 4 fixed, 2 experts, 1e-5 a live token, 0.02 a sequence."""

    hit: float = 0.0
    window: float = 0.0
    bend: float = 0.0

    def decode_step_latency(self, gen_tokens: int, isl: int, osl: int) -> float:
        live = gen_tokens * isl
        windowed = 3e-5 * min(live, gen_tokens * self.window)
        expert = 2.0 * (1 - (1 - self.hit) ** gen_tokens)
        return (4.0 + expert + 1e-5 * live + windowed + 0.02 * gen_tokens) * (1 + self.bend * (gen_tokens > 16))

    def predict_prefill_latency(self, bs: int, isl: int) -> float:
        return 4.0 + 0.02 * isl + 1e-7 * isl**2

    def decode_step_per_op(self, gen_tokens: int, isl: int, osl: int) -> list[tuple[str, float, float, str]]:
        return [("gemm", 3.0, 0.0, "silicon"), ("norm", 1.0, 0.0, "empirical")]


@dataclass
class FakeFacade:
    """Answers for whatever `refuses` does not name, and remembers what it was asked."""

    models: Path
    release: str = "0.12.0"
    refuses: tuple[str, ...] = ()
    engine: FakeEngine = field(default_factory=FakeEngine)
    asked: list[Mapping[str, Any]] = field(default_factory=list)
    configs: list[dict[str, Any]] = field(default_factory=list)
    listed: tuple[str, ...] = ("0.24.0", "0.27.0")

    def versions(self, system: str, backend: str) -> tuple[str, ...]:
        return self.listed

    def compile(
        self, config: str, companion: str | None, system: str, backend: str, version: str, options: Mapping[str, Any]
    ) -> FakeEngine:
        self.asked.append({"system": system, "backend": backend, "version": version, **options})
        self.configs.append(json.loads(config))
        if any(options.get(name) in self.refuses for name in ("gemm_quant_mode", "fmha_quant_mode")):
            raise RuntimeError("perf database error: data missing for this key at /home/someone/data/x\nmore")
        return self.engine


@pytest.fixture(scope="module")
def silicon_facts(catalog: Catalog) -> SiliconFacts:
    return load_silicon_facts(catalog.root)


@pytest.fixture
def facade(tmp_path: Path, catalog: Catalog) -> FakeFacade:
    text = (catalog.root / "models" / "meta-llama--Llama-3.1-8B-Instruct.json").read_text(encoding="utf-8")
    (tmp_path / LLAMA_BUNDLED).write_text(text, encoding="utf-8")
    return FakeFacade(tmp_path)


@pytest.fixture
def llama(catalog: Catalog, sizing_of: MakeSizing) -> Callable[..., tuple[Any, Any, Sizing]]:
    def build(gpu: str = "H100-SXM", version: str = "0.26.0", **options: Any) -> tuple[Any, Any, Sizing]:
        shape = catalog.model_shape(LLAMA)
        sizing = sizing_of(shape, gpu, **options)
        return shape, catalog.gpu(gpu), replace(sizing, engine="vllm", engine_version=version)

    return build


def found(answer: SpeedModel | NotAvailable) -> SpeedModel:
    assert isinstance(answer, SpeedModel), answer
    return answer


def reason(answer: SpeedModel | NotAvailable) -> str:
    assert isinstance(answer, NotAvailable)
    return answer.reason


def test_known_coefficients_are_found_again() -> None:
    fit = fit_surface(FakeEngine(), DENSE)
    c = fit.coefficients
    assert float(c.dense_read_s + c.fixed_s) == pytest.approx(4e-3, rel=1e-6)
    assert float(c.kv_read_s_per_token) == pytest.approx(1e-8, rel=1e-6)
    assert float(c.sequence_s) == pytest.approx(2e-5, rel=1e-6)
    assert float(c.prefill_s_per_token) == pytest.approx(2e-5, rel=1e-6)
    assert float(c.prefill_s_per_token2) == pytest.approx(1e-10, rel=1e-6)
    assert float(prefill_s(c, 2048)) == pytest.approx(4e-3 + 2048 * 2e-5 + 2048**2 * 1e-10, rel=1e-6)
    assert float(c.ttft_floor_s) == pytest.approx(0.03)
    assert fit.decode_worst < 1e-6


def test_experts_and_windows_are_told_apart_from_the_rest() -> None:
    shape = replace(DENSE, expert_hit_share=1 / 16, window_tokens=1024.0)
    c = fit_surface(FakeEngine(hit=1 / 16, window=1024.0), shape).coefficients
    assert float(c.expert_read_s) == pytest.approx(2e-3, rel=1e-4)
    assert float(c.sliding_read_s_per_token) == pytest.approx(3e-8, rel=1e-4)
    assert float(decode_step_s(c, 4, 4 * 3000)) == pytest.approx(
        1e-3 * FakeEngine(hit=1 / 16, window=1024.0).decode_step_latency(4, 3000, 2), rel=1e-4
    )


def test_no_coefficient_is_negative_on_a_crooked_surface() -> None:
    class Falling(FakeEngine):
        def decode_step_latency(self, gen_tokens: int, isl: int, osl: int) -> float:
            return 10.0 - 0.01 * gen_tokens - 1e-4 * isl

    c = fit_surface(Falling(), DENSE).coefficients
    for name in ("dense_read_s", "fixed_s", "kv_read_s_per_token", "sequence_s", "prefill_s_per_token"):
        assert float(getattr(c, name)) >= 0


@pytest.mark.parametrize("value", [0.0, float("nan"), float("inf"), -1.0])
def test_latency_that_is_none_is_refused(value: float) -> None:
    class Broken(FakeEngine):
        def decode_step_latency(self, gen_tokens: int, isl: int, osl: int) -> float:
            return value

    with pytest.raises(ValueError, match="not positive"):
        fit_surface(Broken(), DENSE)


def test_surface_is_not_looked_at_beyond_the_pool() -> None:
    class Watching(FakeEngine):
        live = 0

        def decode_step_latency(self, gen_tokens: int, isl: int, osl: int) -> float:
            Watching.live = max(Watching.live, gen_tokens * isl)
            return super().decode_step_latency(gen_tokens, isl, osl)

    fit_surface(Watching(), replace(DENSE, pool_tokens=100_000.0))
    assert 50_000 < Watching.live <= 100_000


def test_model_with_source_band_and_provider(
    facade: FakeFacade, llama: Callable[..., Any], silicon_facts: SiliconFacts
) -> None:
    answer = found(SiliconProvider(facade).model(*llama(), silicon_facts))
    assert answer.provider is Provider.SILICON
    assert answer.tpot_band == silicon_facts.bands["H100-SXM"].tpot.band
    for text in (
        "aiconfigurator-core 0.12.0", "vllm 0.24.0 on h100_sxm (planned: 0.26.0)", "org/same-as-llama",
        "75% silicon, 25% empirical", "decode median 0.0%",
    ):  # fmt: skip
        assert text in answer.source
    assert "do not follow" not in answer.source
    assert not answer.measured


def test_poor_fit_is_said(facade: FakeFacade, llama: Callable[..., Any], silicon_facts: SiliconFacts) -> None:
    facade.engine = FakeEngine(bend=2.0)
    assert "do not follow it well" in found(SiliconProvider(facade).model(*llama(), silicon_facts)).source


def test_gpu_without_a_measurement_gets_the_wide_band(
    facade: FakeFacade, llama: Callable[..., Any], silicon_facts: SiliconFacts
) -> None:
    answer = found(SiliconProvider(facade).model(*llama("L40S"), silicon_facts))
    assert answer.tpot_band == silicon_facts.bands["other"].tpot.band
    assert "no measurement of L40S" in answer.source
    known = [bands for gpu, bands in silicon_facts.bands.items() if gpu != "other"]
    assert answer.tpot_band.high >= max(bands.tpot.high for bands in known)
    assert answer.tpot_band.low <= min(bands.tpot.low for bands in known)


def test_one_compile_serves_every_candidate_of_a_configuration(
    facade: FakeFacade, llama: Callable[..., Any], silicon_facts: SiliconFacts
) -> None:
    provider = SiliconProvider(facade)
    for _ in range(5):
        provider.model(*llama(), silicon_facts)
    assert len(facade.asked) == 1
    provider.model(*llama(tp=2), silicon_facts)
    assert [asked["tp_size"] for asked in facade.asked] == [1, 2]


def test_formats_are_tried_in_order_and_named(
    facade: FakeFacade, llama: Callable[..., Any], silicon_facts: SiliconFacts
) -> None:
    facade.refuses = ("fp8",)
    options = {"weight_dtype": WeightDtype.FP8, "kv_dtype": KvDtype.FP8}
    answer = found(SiliconProvider(facade).model(*llama(**options), silicon_facts))
    assert facade.asked[0]["gemm_quant_mode"] == "fp8"
    assert facade.asked[-1]["gemm_quant_mode"] == "fp8_block"
    assert {asked["kvcache_quant_mode"] for asked in facade.asked} == {"fp8"}
    assert "moe_quant_mode" not in facade.asked[-1]
    assert "fp8_block matrices" in answer.source


def test_missing_data_is_a_reason_without_paths(
    facade: FakeFacade, llama: Callable[..., Any], silicon_facts: SiliconFacts
) -> None:
    facade.refuses = ("nvfp4", "nvfp4_wo")
    text = reason(SiliconProvider(facade).model(*llama(weight_dtype=WeightDtype.NVFP4), silicon_facts))
    assert "data missing for this key" in text
    assert "/home" not in text
    assert "more" not in text


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"gpu": "L4"}, "L4 is not covered"),
        ({"gpu": "MI300X"}, "MI300X is not covered"),
        ({"weight_dtype": WeightDtype.BNB_4BIT}, "bnb-4bit weights have no format there"),
    ],
)
def test_what_is_not_covered(
    facade: FakeFacade, llama: Callable[..., Any], silicon_facts: SiliconFacts, change: dict[str, Any], expected: str
) -> None:
    assert expected in reason(SiliconProvider(facade).model(*llama(**change), silicon_facts))


def test_deployments_that_no_argument_stands_for(
    facade: FakeFacade, llama: Callable[..., Any], silicon_facts: SiliconFacts
) -> None:
    shape, gpu, sizing = llama()
    piped = replace(sizing, deployment=replace(sizing.deployment, pp=2))
    assert "pipeline parallelism" in reason(SiliconProvider(facade).model(shape, gpu, piped, silicon_facts))
    other = replace(sizing, engine="llama.cpp")
    assert "llama.cpp is not covered" in reason(SiliconProvider(facade).model(shape, gpu, other, silicon_facts))


def test_model_of_other_dimensions(
    facade: FakeFacade, catalog: Catalog, sizing_of: MakeSizing, silicon_facts: SiliconFacts
) -> None:
    shape = catalog.model_shape("meta-llama/Llama-3.1-70B-Instruct")
    sizing = replace(sizing_of(shape, "H100-SXM", tp=4), engine_version="0.24.0")
    answer = SiliconProvider(facade).model(shape, catalog.gpu("H100-SXM"), sizing, silicon_facts)
    assert "Llama-3.1-70B-Instruct in bf16 with bf16 cache, tp 4 on H100-SXM: no bundled model has its" in reason(
        answer
    )


def test_broken_bundled_config_is_a_reason(
    facade: FakeFacade, llama: Callable[..., Any], silicon_facts: SiliconFacts
) -> None:
    (facade.models / "org--cut_config.json").write_text('{"architectures": [', encoding="utf-8")
    assert "bundled configs cannot be read" in reason(SiliconProvider(facade).model(*llama(), silicon_facts))


def test_formats_of_the_checkpoint_are_left_out_where_others_are_asked(
    facade: FakeFacade, llama: Callable[..., Any], silicon_facts: SiliconFacts
) -> None:
    bundled = facade.models / LLAMA_BUNDLED
    config = json.loads(bundled.read_text(encoding="utf-8"))
    config["quantization_config"] = {"quant_method": "fp8", "activation_scheme": "dynamic"}
    bundled.with_name("org--same-as-llama-fp8_config.json").write_text(json.dumps(config), encoding="utf-8")
    bundled.unlink()
    provider = SiliconProvider(facade)
    found(provider.model(*llama(weight_dtype=WeightDtype.FP8), silicon_facts))
    found(provider.model(*llama(weight_dtype=WeightDtype.INT4_AWQ), silicon_facts))
    assert ["quantization_config" in config for config in facade.configs] == [True, False]
    assert "gemm_quant_mode" not in facade.asked[0]
    assert facade.asked[1]["gemm_quant_mode"] == "int4_wo"


def test_backend_without_data(facade: FakeFacade, llama: Callable[..., Any], silicon_facts: SiliconFacts) -> None:
    facade.listed = ()
    assert "no data of vllm on h100_sxm" in reason(SiliconProvider(facade).model(*llama(), silicon_facts))


@pytest.mark.parametrize(
    ("version", "expected"), [("0.26.1", "0.24.0"), ("0.30", "0.27.0"), ("0.9", "0.24.0"), ("test", "0.27.0")]
)
def test_nearest_version(version: str, expected: str) -> None:
    assert nearest(version, ("0.27.0", "0.24.0")) == expected


def test_other_releases_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silicon_facade.metadata, "version", lambda name: "0.13.0")
    silicon_facade.find_facade.cache_clear()
    try:
        answer = silicon_facade.find_facade()
    finally:
        silicon_facade.find_facade.cache_clear()
    assert isinstance(answer, NotAvailable)
    assert "0.13.0 is installed" in answer.reason


def test_import_that_fails_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silicon_facade.metadata, "version", lambda name: "0.12.3")
    monkeypatch.setitem(sys.modules, "aiconfigurator_core.sdk", None)
    silicon_facade.find_facade.cache_clear()
    try:
        answer = silicon_facade.find_facade()
    finally:
        silicon_facade.find_facade.cache_clear()
    assert isinstance(answer, NotAvailable)
    assert "cannot be imported" in answer.reason


def test_facts_without_a_band_for_other_gpus(tmp_path: Path, catalog: Catalog) -> None:
    text = (catalog.root / SILICON_FILE).read_text(encoding="utf-8")
    (tmp_path / "speed").mkdir()
    (tmp_path / SILICON_FILE).write_text(text.replace("bands.other", "bands.L40S"), encoding="utf-8")
    with pytest.raises(InputError, match=r"bands\.other is missing"):
        load_silicon_facts(tmp_path)
    with pytest.raises(InputError, match="no such file"):
        load_silicon_facts(tmp_path / "nowhere")


def test_systems_are_gpus_of_the_catalogue(catalog: Catalog, silicon_facts: SiliconFacts) -> None:
    assert set(silicon_facts.systems) <= set(catalog.gpus)
    assert set(silicon_facts.bands) - {"other"} <= set(silicon_facts.systems)


@without_package
def test_absent_package_is_a_reason(catalog: Catalog, llama: Callable[..., Any], silicon_facts: SiliconFacts) -> None:
    assert "not installed" in reason(silicon_model(*llama(), silicon_facts))
    answer = silicon_source(catalog.root)(*llama())
    assert isinstance(answer, str)
    assert "planner[silicon]" in answer


@with_package
def test_installed_package_answers(
    llama: Callable[..., Any], silicon_facts: SiliconFacts, capfd: pytest.CaptureFixture[str]
) -> None:
    answer = found(silicon_model(*llama(version="0.24.0"), silicon_facts))
    step_ms = 1e3 * float(decode_step_s(answer.coefficients, 32, 32 * 2048))
    assert 7.5 <= step_ms <= 10.0  # its own answer is 8.6 ms
    assert "meta-llama/Meta-Llama-3.1-8B" in answer.source
    assert capfd.readouterr() == ("", "")


@with_package
def test_installed_package_is_never_on_the_network(tmp_path: Path) -> None:
    """A model that the package lists without bundling it as such, with every socket refused."""
    code = (
        "import socket\n"
        "def no(*a, **k): raise AssertionError('network')\n"
        "socket.socket.connect = socket.getaddrinfo = socket.create_connection = no\n"
        "from planner.speed.silicon_facade import find_facade\n"
        "f = find_facade()\n"
        "text = (f.models / 'mistralai--Mixtral-8x7B-v0.1_config.json').read_text()\n"
        "e = f.compile(text, None, 'h100_sxm', 'vllm', '0.24.0', {'tp_size': 2, 'moe_tp_size': 2})\n"
        "print(e.decode_step_latency(8, 1024, 2) > 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("True\n", "")


@with_package
def test_fit_follows_the_package_on_a_dense_model(llama: Callable[..., Any], silicon_facts: SiliconFacts) -> None:
    shape, gpu, sizing = llama(version="0.24.0")
    answer = found(silicon_model(shape, gpu, replace(sizing, pool_tokens=400_000, max_model_len=32_768), silicon_facts))
    prompts = np.array([1024.0, 4096.0])
    assert 1e3 * prefill_s(answer.coefficients, prompts) == pytest.approx([22.0, 92.0], rel=0.15)
