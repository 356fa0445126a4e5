"""Candidates of many models: replicas shared by models of the same weights, models shared out over processes.

A model's candidates depend on nothing but the arguments, so the order and the number of processes change nothing.
"""

from __future__ import annotations

import gc
import io
import multiprocessing
import pickle
import sys
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import cast

from planner.catalog.gpu import Gpu
from planner.catalog.model_shape import ModelShape
from planner.errors import InputError, PlannerError, Problem
from planner.optimise.needs.candidates import CandidateSet, candidate_needs
from planner.optimise.needs.configurations import Links, Replicas
from planner.optimise.types import Period, Serving, Workload
from planner.request import Policy

FEW_MODELS = 8
"""Fewer models are not worth a second process."""


@dataclass(frozen=True)
class Job:
    """What the candidates of all models depend on; the same in every process."""

    workloads: tuple[Workload, ...]
    gpus: tuple[tuple[Gpu, ...], ...]
    """GPU types that each model may use."""
    serving: Serving
    policy: Policy
    periods: tuple[Period, ...]
    multi_node: Links
    replicas: dict[ModelShape, Replicas] | None = None
    """Of other jobs under the same ``serving`` and ``multi_node``, to save time; this one's are added in this process.
    ``None``: none are kept."""

    def candidates_of(self, numbers: Sequence[int]) -> list[CandidateSet]:
        """Of some models of the same weights."""
        shape = self.workloads[numbers[0]].shape
        known = {} if self.replicas is None else self.replicas
        replicas = known.setdefault(shape, Replicas(shape, self.serving, self.multi_node))
        return [
            candidate_needs(
                self.workloads[number], self.gpus[number], self.serving, self.policy, self.periods, self.multi_node,
                replicas=replicas,
            )
            for number in numbers
        ]  # fmt: skip

    def alike(self) -> list[tuple[int, ...]]:
        """Numbers of models with the same weights, the largest groups first."""
        groups: dict[object, list[int]] = {}
        for number, workload in enumerate(self.workloads):
            groups.setdefault(workload.shape, []).append(number)
        return sorted(map(tuple, groups.values()), key=lambda group: (-len(group), group))


def all_candidates(job: Job, processes: int = 1) -> Iterator[tuple[int, CandidateSet]]:
    """Candidates of every model, with its number, as they are found; groups of the same weights in a fixed order.

    Raises
    ------
    InputError
        If the facts of a model cannot be used.
    PlannerError
        If the system ends one of the processes.
    """
    groups = job.alike()
    if processes == 1 or len(job.workloads) < FEW_MODELS:
        for group in groups:
            yield from zip(group, job.candidates_of(group), strict=True)
        return
    shared = Shared(job)
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    try:
        with ProcessPoolExecutor(processes, context, _begin, (job,)) as pool:
            for group, found in zip(groups, _started(pool, groups), strict=True):
                if not isinstance(found, bytes):
                    raise InputError(found)
                yield from zip(group, cast("list[CandidateSet]", shared.loads(found)), strict=True)
    except BrokenProcessPool as error:
        text = f"A process that looked for candidates was ended, perhaps for lack of memory ({processes} processes)"
        raise PlannerError(f"{text}; try with solver.threads = 1") from error


def _started(pool: ProcessPoolExecutor, groups: Sequence[tuple[int, ...]]) -> Iterator[bytes | tuple[Problem, ...]]:
    """Begin the work; results come in the order of the groups.

    From Python 3.12 on, forking beside threads warns of locks that they may hold. The only other threads here are those
    of numerical libraries, which prepare for forks themselves.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return pool.map(_work, groups)


class Shared:
    """Pickles that name what both ends of a pipe hold already: slices, their traffic and laws, GPU types."""

    def __init__(self, job: Job) -> None:
        slices = [each for workload in job.workloads for each in workload.slices]
        parts = [part for each in slices for part in (each, each.traffic, each.traffic.law, each.traffic.burst)]
        self._held: list[object] = [*parts, *(gpu for gpus in job.gpus for gpu in gpus)]
        self._number = {id(each): number for number, each in enumerate(self._held)}

    def dumps(self, found: object) -> bytes:
        """As bytes."""
        number, buffer = self._number, io.BytesIO()

        class Pickler(pickle.Pickler):
            def persistent_id(self, each: object) -> int | None:
                return number.get(id(each))

        Pickler(buffer, protocol=pickle.HIGHEST_PROTOCOL).dump(found)
        return buffer.getvalue()

    def loads(self, data: bytes) -> object:
        """From bytes."""
        held = self._held

        class Unpickler(pickle.Unpickler):
            def persistent_load(self, number: int) -> object:
                return held[number]

        return Unpickler(io.BytesIO(data)).load()


_at_work: list[tuple[Job, Shared]] = []
"""What this process works on, where it is one of several: set once, when it begins."""


def _begin(job: Job) -> None:
    gc.freeze()  # what a fork inherits is never garbage: looking for some would copy all of its pages
    _at_work[:] = [(job, Shared(job))]


def _work(group: tuple[int, ...]) -> bytes | tuple[Problem, ...]:
    """Candidates of a group as bytes, or why there are none."""
    job, shared = _at_work[0]
    try:
        return shared.dumps(job.candidates_of(group))
    except InputError as error:
        return error.problems
