"""Every coefficient of a step on a toy machine with round figures, and what a real GPU reaches."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from planner.catalog.load import Catalog
from planner.memory.types import WeightDtype
from planner.speed.facts import EraFacts, SpeedFacts
from planner.speed.formats import Unit
from planner.speed.terms import Machine, machine_of, reached, step_coefficients
from planner.speed.types import StepCoefficients
from planner.speed.work import StepWork

WORK = {
    "dense_bytes": 4e9,
    "expert_bytes": 8e9,
    "expert_hit_share": 0.25,
    "cache_bytes_per_token": 1e5,
    "window_bytes_per_token": 2e5,
    "window_tokens": 128,
    "state_bytes": 1e7,
    "dense_flops_4bit": 4e9,
    "dense_flops_8bit": 6e9,
    "dense_flops_16bit": 8e9,
    "expert_flops_4bit": 1e9,
    "expert_flops_8bit": 2e9,
    "expert_flops_16bit": 3e9,
    "head_flops": 5e9,
    "attention_flops": 1e5,
    "window_flops": 2e9,
    "dense_layers": 3,
    "moe_layers": 5,
    "sparse_layers": 7,
    "linear_layers": 11,
    "allreduces": 13,
    "allreduce_bytes": 3e6,
    "tp": 4,
    "chunk_tokens": 2048,
}
MACHINE = {
    "dense_read": 1e12,
    "expert_read": 8e11,
    "cache_read": 5e11,
    "dense_4bit": 4e15,
    "dense_8bit": 2e15,
    "dense_16bit": 1e15,
    "expert_4bit": 1e15,
    "expert_8bit": 5e14,
    "expert_16bit": 2.5e14,
    "link": 1e11,
    "compute_tp_factor": 1.1,
    "step_s": 1e-3,
    "dense_layer_s": 1e-4,
    "moe_layer_s": 1e-5,
    "sparse_layer_s": 1e-6,
    "linear_layer_s": 1e-7,
    "allreduce_s": 1e-8,
    "sequence_s": 2e-5,
    "prefill_factor": 1.5,
    "ttft_floor_s": 0.05,
    "ttft_client_s": 1e-3,
    "ttft_wait_steps": 3,
    "ttft_together_share": 0.1,
}


def toy(work: dict[str, float] | None = None, machine: dict[str, float] | None = None) -> StepCoefficients:
    return step_coefficients(
        StepWork(**{name: np.asarray(value, dtype=float) for name, value in (WORK | (work or {})).items()}),
        Machine(**{name: np.asarray(value, dtype=float) for name, value in (MACHINE | (machine or {})).items()}),
    )


# dense 1 + 3 + 8 us, experts 1 + 4 + 12 us, and two doublings of tp
BODY_S = (1 + 3 + 8 + 1 + 4 + 12) * 1e-6 * 1.1**2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("dense_read_s", 4e-3),
        ("expert_read_s", 10e-3),
        ("expert_hit_share", 0.25),
        ("kv_read_s_per_token", 2e-7),
        ("sliding_read_s_per_token", 4e-7),
        ("window_tokens", 128),
        ("compute_s_per_token", BODY_S + 5e-6 * 1.21),
        ("fixed_s", 1e-3 + 3e-4 + 5e-5 + 7e-6 + 11e-7 + 13e-8),
        ("sequence_s", 2e-5 + 1e-5),
        ("allreduce_s_per_token", 3e-5),
        ("prefill_s_per_token", (BODY_S + 2e-6) * 1.5 + 3e-5),
        ("prefill_s_per_token2", 1e-10 * 1.5),
        ("chunk_tokens", 2048),
        ("ttft_floor_s", 0.05),
        ("ttft_client_s", 1e-3),
        ("ttft_wait_steps", 3),
        ("ttft_together_share", 0.1),
    ],
)
def test_coefficient_by_hand(name: str, value: float) -> None:
    assert float(getattr(toy(), name)) == pytest.approx(value, rel=1e-12)


def test_every_coefficient_is_solved_above() -> None:
    solved = {case[0] for case in test_coefficient_by_hand.pytestmark[0].args[1]}
    assert solved == {item.name for item in fields(StepCoefficients)}


def test_alone_nothing_is_sliced_or_exchanged() -> None:
    c = toy({"tp": 1, "allreduces": 0, "allreduce_bytes": 0}, {"link": np.inf})
    assert float(c.allreduce_s_per_token) == 0
    assert float(c.compute_s_per_token) == pytest.approx(BODY_S / 1.1**2 + 5e-6)


def test_columns_equal_each_alone() -> None:
    names = {name: np.array([value, 2 * value]) for name, value in WORK.items()}
    machine = Machine(**{name: np.asarray(value, dtype=float) for name, value in MACHINE.items()})
    both = step_coefficients(StepWork(**names), machine)
    twice = toy({name: 2 * value for name, value in WORK.items()})
    for item in fields(StepCoefficients):
        column = np.broadcast_to(getattr(both, item.name), 2)
        np.testing.assert_allclose(column, [getattr(toy(), item.name), getattr(twice, item.name)], rtol=1e-14)


@pytest.fixture
def round_facts(facts: SpeedFacts) -> SpeedFacts:
    """Facts with round figures: each unit reaches another share."""
    one = facts.bandwidth_efficiency_default

    def said(value: float) -> object:
        return one.model_copy(update={"value": value})

    shares = {"bf16": said(0.8), "fp8": said(0.5), "int8": said(0.4), "fp4": said(0.25)}
    experts = {"bf16": said(0.4), "fp8": said(0.1), "int8": said(0.2), "fp4": said(0.05)}
    fitted = facts.gpu["H100"].model_copy(update={"bandwidth_efficiency": 0.9, "overhead_factor": 2.0})
    return facts.model_copy(
        update={
            "dense_compute": facts.dense_compute.model_copy(update=shares),
            "expert_compute": facts.expert_compute.model_copy(update=experts),
            "bandwidth_efficiency_default": said(0.6),
            "expert_read_efficiency": said(0.5),
            "cache_read_efficiency": said(0.75),
            "allreduce_transfer_factor": said(1.5),
            "allreduce_latency_ms": said(0.01),
            "sparse_layer_ms": said(0.1),
            "linear_layer_ms": said(0.02),
            "ttft_floor_ms": said(40.0),
            "gpu": {"H100": fitted},
        }
    )


@pytest.fixture
def era() -> EraFacts:
    return EraFacts(
        engine="vllm", step_ms=0.5, dense_layer_ms=0.03, moe_layer_ms=0.07, sequence_ms=0.01, prefill_factor=1.2,
        points=0, source="test",
    )  # fmt: skip


def test_machine_of_a_fitted_gpu_by_hand(catalog: Catalog, round_facts: SpeedFacts, era: EraFacts) -> None:
    """H100-SXM: 3,350 GB/s, 989 and 1,979 TFLOP/s, NVLink 900 GB/s both ways; its host takes twice as long."""
    m = machine_of(catalog.gpu("H100-SXM"), WeightDtype.FP8, round_facts, era)
    assert float(m.dense_read) == pytest.approx(3350e9 * 0.9)
    assert float(m.expert_read) == pytest.approx(3350e9 * 0.9 * 0.5)
    assert float(m.cache_read) == pytest.approx(3350e9 * 0.9 * 0.75)
    assert float(m.dense_8bit) == pytest.approx(1979e12 * 0.5)
    assert float(m.dense_4bit) == float(m.dense_16bit) == pytest.approx(989e12 * 0.8)
    assert float(m.expert_8bit) == pytest.approx(1979e12 * 0.1)
    assert float(m.expert_16bit) == pytest.approx(989e12 * 0.4)
    assert float(m.link) == pytest.approx(450e9 / 1.5)
    on_host = {"step_s": 0.5, "dense_layer_s": 0.03, "moe_layer_s": 0.07, "sparse_layer_s": 0.1, "linear_layer_s": 0.02}
    for name, ms in (on_host | {"allreduce_s": 0.01}).items():
        assert float(getattr(m, name)) == pytest.approx(2 * ms / 1e3), name
    assert float(m.sequence_s) == pytest.approx(1e-5)  # not the host's
    assert float(m.prefill_factor) == 1.2
    assert float(m.ttft_floor_s) == pytest.approx(0.04)


def test_machine_without_points_takes_the_defaults(catalog: Catalog, round_facts: SpeedFacts, era: EraFacts) -> None:
    m = machine_of(catalog.gpu("A100-80GB-SXM"), WeightDtype.FP8, round_facts, era)
    assert float(m.dense_read) == pytest.approx(2039e9 * 0.6)
    assert float(m.step_s) == pytest.approx(0.5e-3)
    # no FP8 units: widened by Marlin, so 8 bits multiply as 16
    assert float(m.dense_8bit) == float(m.dense_16bit) == pytest.approx(312e12 * 0.8)


@pytest.mark.parametrize(
    ("gpu", "peak", "share"),
    [("B200", 9000e12, 0.25), ("H200-SXM", 989e12, 0.8)],  # FP4 units on Blackwell; widened on Hopper
)
def test_fp4_by_generation(
    catalog: Catalog, round_facts: SpeedFacts, era: EraFacts, gpu: str, peak: float, share: float
) -> None:
    m = machine_of(catalog.gpu(gpu), WeightDtype.MXFP4, round_facts, era)
    assert float(m.dense_4bit) == pytest.approx(peak * share)


def test_no_link_exchanges_nothing(catalog: Catalog, round_facts: SpeedFacts, era: EraFacts) -> None:
    gpu = catalog.gpu("H100-SXM").model_copy(update={"interconnect_gb_s": None})
    assert np.isinf(machine_of(gpu, WeightDtype.BF16, round_facts, era).link)


def test_each_unit_has_a_share_of_its_own(round_facts: SpeedFacts) -> None:
    assert [reached(round_facts.dense_compute, unit) for unit in Unit] == [0.8, 0.5, 0.4, 0.25]


def test_more_bandwidth_is_never_slower(catalog: Catalog, round_facts: SpeedFacts, era: EraFacts) -> None:
    gpu = catalog.gpu("H100-SXM")
    faster = gpu.model_copy(update={"memory_bandwidth_gb_s": 2 * gpu.memory_bandwidth_gb_s})
    slow, fast = (machine_of(each, WeightDtype.BF16, round_facts, era) for each in (gpu, faster))
    assert float(fast.dense_read) == 2 * float(slow.dense_read)
    assert replace(fast, dense_read=slow.dense_read, expert_read=slow.expert_read, cache_read=slow.cache_read) == slow
