"""Candidates of many models: sharing replicas, and sharing models out over processes, change nothing."""

from __future__ import annotations

import os
import sys
from dataclasses import fields, is_dataclass

import numpy as np
import pytest
from pydantic import BaseModel

from planner.errors import InputError, PlannerError, Problem
from planner.optimise.needs import many
from planner.optimise.needs.candidates import CandidateSet, candidate_needs
from planner.optimise.needs.many import FEW_MODELS, Job, all_candidates
from planner.request import Policy, Targets
from tests.optimise.world import catalog, periods_of, serving, workload

LLAMA, NEMOTRON = "meta-llama/Llama-3.1-8B-Instruct", "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"
GPUS = ("H100-SXM", "L4")
forks = pytest.mark.skipif(sys.platform != "linux", reason="what is patched here reaches a process only by forking")


def job(models: int) -> Job:
    """Models of two weights in turn; each with bursts, a rate and targets of its own, one on one GPU type only."""
    workloads = tuple(
        workload(
            f"m{number}", LLAMA if number % 3 else NEMOTRON, rate=2.0 + 3.0 * number, idc=1.0 + number,
            rates=(1.0, 0.4), cuts=(512,), targets=Targets(tpot_ms=30.0 + 10 * number, ttft_ms=2500),
            max_num_seqs=(64, 256),
        )
        for number in range(models)
    )  # fmt: skip
    chosen = tuple(catalog().gpu(name) for name in GPUS)
    gpus = tuple(chosen if number else chosen[:1] for number in range(models))
    return Job(workloads, gpus, serving(), Policy(), periods_of(workloads[0]), {})


def plain(value: object) -> object:
    """Down to what can be compared: arrays by their bytes, models of the catalogue by their figures."""
    if is_dataclass(value) and not isinstance(value, type):
        return (type(value).__name__, *(plain(getattr(value, field.name)) for field in fields(value)))
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, BaseModel):
        return value.model_dump_json()
    if isinstance(value, tuple | list):
        return [plain(each) for each in value]
    return value


def found(asked: Job, processes: int) -> dict[int, CandidateSet]:
    return dict(all_candidates(asked, processes))


def test_several_processes_find_what_one_finds_down_to_the_last_bit():
    asked = job(FEW_MODELS)
    alone, together = found(asked, 1), found(asked, 2)
    assert sorted(alone) == sorted(together) == list(range(FEW_MODELS))
    for number, candidates in alone.items():
        assert candidates.needs
        assert plain(candidates) == plain(together[number])
    assert list(alone) == list(together), "in the same order"


def test_needs_from_another_process_hold_the_slices_and_gpu_types_of_this_one():
    """Copies of them would take the memory of all logs again, model by model."""
    asked = job(FEW_MODELS)
    for number, candidates in all_candidates(asked, 2):
        mine = {id(each) for each in asked.workloads[number].slices}
        assert {id(need.slice) for need in candidates.needs} <= mine
        assert {id(need.config.gpu) for need in candidates.needs} <= {id(gpu) for gpu in asked.gpus[number]}


def test_models_of_the_same_weights_share_replicas_and_each_finds_what_it_finds_alone():
    asked = job(4)  # Nemotron, Llama, Llama, Nemotron
    assert asked.alike() == [(0, 3), (1, 2)]
    for number, candidates in all_candidates(asked):
        model, gpus = asked.workloads[number], asked.gpus[number]
        assert plain(candidates) == plain(candidate_needs(model, gpus, serving(), Policy(), asked.periods))


def test_few_models_start_no_process(monkeypatch):
    monkeypatch.setattr(many, "ProcessPoolExecutor", None)
    assert sorted(found(job(2), 2)) == [0, 1]


@forks
def test_what_is_wrong_with_the_input_is_told_from_any_process(monkeypatch):
    problem = Problem("facts.csv", "cannot be read", row="7")

    def fails(*args, **kwargs):
        raise InputError(problem)

    monkeypatch.setattr(many, "candidate_needs", fails)
    with pytest.raises(InputError) as told:
        found(job(FEW_MODELS), 2)
    assert told.value.problems == (problem,)


@forks
def test_a_process_that_is_ended_is_an_error_in_words(monkeypatch):
    monkeypatch.setattr(many, "candidate_needs", lambda *args, **kwargs: os._exit(9))
    with pytest.raises(PlannerError, match="lack of memory"):
        found(job(FEW_MODELS), 2)
