"""Measured terms: written from a log, and used only where they hold."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path

import pytest

from planner.catalog.engine import EngineFacts
from planner.catalog.gpu import Gpu
from planner.catalog.load import load_catalog
from planner.catalog.model_shape import ModelShape
from planner.errors import InputError
from planner.memory.calibration import (
    Calibration,
    MeasuredStart,
    calibrated_size,
    calibration_text,
    measured_start,
    read_calibration,
)
from planner.memory.size import size
from planner.memory.starts.startup_log import parse_log
from planner.memory.types import Deployment, GivenTerms, KvDtype, WeightDtype
from planner.origin import Origin

DEPLOYMENT = Deployment(1, WeightDtype.BF16, KvDtype.BF16, max_model_len=8192)
DAY = dt.date(2026, 11, 29)


@pytest.fixture(scope="module")
def world() -> tuple[ModelShape, Gpu, EngineFacts]:
    catalog = load_catalog()
    return (
        catalog.model_shape("meta-llama/Llama-3.1-8B-Instruct"),
        catalog.gpu("H100-SXM"),
        catalog.engine("vllm", "0.19.0"),
    )


def start(world: tuple[ModelShape, Gpu, EngineFacts], **terms: object) -> MeasuredStart:
    """A measurement of exactly `DEPLOYMENT`, with these terms."""
    shape, gpu, facts = world
    sizing = size(shape, gpu, facts, DEPLOYMENT)
    known = {
        "engine": "vllm",
        "version": "0.19.0",
        "facts_version": "0.19.0",
        "model": shape.id,
        "gpu": gpu.id,
        "tp": 1,
        "weight_dtype": "bf16",
        "max_num_seqs": sizing.max_num_seqs,
        "max_num_batched_tokens": sizing.max_num_batched_tokens,
        "source": "serve.log",
        "as_of": DAY,
    }
    return MeasuredStart.model_validate(known | terms)


def test_the_subtraction_is_made_with_measured_terms(world: tuple[ModelShape, Gpu, EngineFacts]) -> None:
    """0.9 x 79 = 71.1 GiB; less 15, 2, 0.5 and 0.6 are 53 GiB; a token takes 128 KiB."""
    shape, gpu, facts = world
    measured = start(
        world, gpu_memory_gib=79.0, weights_gib=15.0, activation_gib=2.0, non_torch_gib=0.5, graphs_gib=0.6
    )
    sizing = calibrated_size(shape, gpu, facts, DEPLOYMENT, calibration=Calibration((measured,)))
    deducted = {term.name.split(" ")[0].lower(): term.gib for term in sizing.terms}
    assert (deducted["weights"], deducted["activation"], deducted["memory"]) == (15.0, 2.0, 0.5)
    assert all(term.origin is Origin.MEASURED for term in sizing.terms if "CUDA graph" not in term.name)
    assert sizing.gpu_memory.gib == 79.0
    left = 0.9 * 79.0 - sum(term.gib for term in sizing.terms)
    assert sizing.available_kv_gib == pytest.approx(left, abs=1e-6)
    assert sizing.num_blocks == int(sizing.available_kv_gib * 2**30) // (16 * 131072)


def test_all_else_in_one_term(world: tuple[ModelShape, Gpu, EngineFacts]) -> None:
    shape, gpu, facts = world
    measured = start(world, weights_gib=15.0, overhead_gib=3.0)
    sizing = calibrated_size(shape, gpu, facts, DEPLOYMENT, calibration=Calibration((measured,)))
    assert [term.gib for term in sizing.terms] == [15.0, 3.0]
    assert sizing.available_kv_gib == pytest.approx(0.9 * 79.18 - 18.0, abs=1e-6)


@pytest.mark.parametrize(
    ("change", "still"),
    [
        ({"tp": 2}, set()),
        ({"gpu": "A100-80GB-SXM"}, {"weights"}),
        ({"facts_version": "0.18.0"}, {"weights"}),
        ({"model": "Qwen/Qwen3-8B"}, {"memory"}),
        ({"weight_dtype": "fp8"}, {"activation", "memory"}),
        ({"max_num_seqs": 7}, {"weights", "memory"}),
        ({"max_num_batched_tokens": 7}, {"weights", "memory"}),
        ({"pp": 2}, {"activation", "memory"}),
        ({"engine": "sglang"}, set()),
    ],
)
def test_a_term_holds_only_where_what_it_depends_on_is_the_same(
    world: tuple[ModelShape, Gpu, EngineFacts], change: dict[str, object], still: set[str]
) -> None:
    shape, gpu, facts = world
    measured = start(world, weights_gib=15.0, activation_gib=2.0, non_torch_gib=0.5, **change)
    sizing = calibrated_size(shape, gpu, facts, DEPLOYMENT, calibration=Calibration((measured,)))
    used = {term.name.split(" ")[0].lower() for term in sizing.terms if term.origin is Origin.MEASURED}
    assert used == still
    if not still:
        assert sizing == size(shape, gpu, facts, DEPLOYMENT)


def test_typed_terms_come_before_measured_ones(world: tuple[ModelShape, Gpu, EngineFacts]) -> None:
    shape, gpu, facts = world
    calibration = Calibration((start(world, weights_gib=15.0, activation_gib=2.0),))
    typed = calibrated_size(shape, gpu, facts, DEPLOYMENT, GivenTerms(weights_gib=14.0), calibration)
    assert (typed.terms[0].gib, typed.terms[0].origin) == (14.0, Origin.GIVEN)
    known = calibrated_size(shape, gpu, facts, DEPLOYMENT, GivenTerms(available_gib=20.0), calibration)
    assert known == size(shape, gpu, facts, DEPLOYMENT, GivenTerms(available_gib=20.0))
    overhead = calibrated_size(shape, gpu, facts, DEPLOYMENT, GivenTerms(overhead_gib=6.0), calibration)
    assert [term.gib for term in overhead.terms] == [15.0, 6.0]


def test_without_a_calibration_nothing_changes(world: tuple[ModelShape, Gpu, EngineFacts]) -> None:
    shape, gpu, facts = world
    assert calibrated_size(shape, gpu, facts, DEPLOYMENT) == size(shape, gpu, facts, DEPLOYMENT)


def test_the_newest_measurement_wins(world: tuple[ModelShape, Gpu, EngineFacts]) -> None:
    shape, gpu, facts = world
    older = start(world, weights_gib=15.0)
    newer = start(world, weights_gib=16.0, max_num_seqs=9)
    sizing = calibrated_size(shape, gpu, facts, DEPLOYMENT, calibration=Calibration((older, newer)))
    assert sizing.terms[0].gib == 16.0
    assert Calibration((older,)).with_start(start(world, weights_gib=17.0)).starts[0].weights_gib == 17.0


def test_a_log_that_parts_everything_tells_what_graphs_were_deducted(
    world: tuple[ModelShape, Gpu, EngineFacts],
) -> None:
    """169.56 − 106.69 − 6.31 − 0.95 − 50.62 = 4.99 GiB."""
    shape, gpu, facts = world
    sizing = size(shape, gpu, facts, DEPLOYMENT)
    line = (
        "Free memory on device (181.84/184.31 GiB) on startup. Desired GPU memory utilization is (0.92, 169.56 GiB). "
        "Actual usage is 106.69 GiB for weight, 6.31 GiB for peak activation, 0.95 GiB for non-torch memory, and "
        "4.13 GiB for CUDAGraph memory. Current kv cache memory in use is 50.62 GiB."
    )
    found = measured_start(parse_log([line]), sizing, "a.log", DAY)
    assert found.graphs_gib == pytest.approx(4.99, abs=0.001)
    assert (found.overhead_gib, found.gpu_memory_gib) == (None, 184.31)


def test_sglang_measures_weights_and_the_memory_before_them() -> None:
    catalog = load_catalog()
    shape, gpu = catalog.model_shape("Qwen/Qwen2.5-7B"), catalog.gpu("RTX3090")
    facts = catalog.engine("sglang", "")
    deployment = replace(DEPLOYMENT, gpu_memory_utilization=0.88)
    plain = size(shape, gpu, facts, deployment)
    lines = ("Load weight begin. avail mem=22.76 GB", "Load weight end. avail mem=8.37 GB")
    log = parse_log(f"[2026-01-01 00:00:00] {line}" for line in lines)
    measured = measured_start(log, plain, "sglang.log", DAY)
    assert (measured.weights_gib, measured.free_before_gib) == (14.39, 22.76)
    sizing = calibrated_size(shape, gpu, facts, deployment, calibration=Calibration((measured,)))
    assert (sizing.terms[0].gib, sizing.terms[0].origin) == (14.39, Origin.MEASURED)
    assert sizing.logged_tokens < plain.logged_tokens


def test_the_file_is_read_back(world: tuple[ModelShape, Gpu, EngineFacts], tmp_path: Path) -> None:
    path = tmp_path / "calibration.toml"
    calibration = Calibration((start(world, weights_gib=15.25, source='odd "name"\\\n.log'), start(world, tp=2)))
    path.write_text(calibration_text(calibration), encoding="utf-8")
    assert read_calibration(path) == calibration


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[[start]]\nengine = 1\n", "start 1"),
        ("[[start]\n", "cannot be read"),
        ("other = 1\n", "is no key"),
        ("start = 3\n", "start 1"),
        ('[[start]]\nweights_gib = -1\nsurprise = "x"\n', "weights_gib"),
        ("[[start]]\nweights_gib = nan\n", "weights_gib"),
    ],
)
def test_a_file_that_cannot_be_used_is_said_so(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "calibration.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=problem):
        read_calibration(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_calibration(tmp_path / "none.toml")
