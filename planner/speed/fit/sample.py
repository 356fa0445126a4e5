"""Measured points in columns, ready to be predicted again and again with other coefficients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt

from planner.catalog.gpu import Gpu
from planner.memory.types import WeightDtype
from planner.speed.facts import SpeedFacts
from planner.speed.max_load import RESERVED_SHARE, max_load
from planner.speed.operating import Operating, closed_loop
from planner.speed.points import LoadKind, Point
from planner.speed.terms import Machine, machine_of, step_coefficients
from planner.speed.types import FloatArray, StepCoefficients
from planner.speed.work import StepWork, stack_work

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Kind:
    """What decides the machine's coefficients."""

    gpu: Gpu
    dtype: WeightDtype
    engine: str
    version: str


@dataclass(frozen=True)
class FitPoint:
    """One measured point of a closed loop, or of a full load, with its work."""

    point: Point
    kind: Kind
    work: StepWork
    room: float
    """Requests that the pool holds at once."""
    architecture: str
    most_sequences: float = np.inf
    """``max_num_seqs`` of a full load."""


@dataclass(frozen=True)
class Sample:
    """Points as columns.

    Attributes
    ----------
    kinds, kind_index
        The distinct kinds, and which one each point has.
    deployment, model, gpu, engine
        Names to split and to report by.
    """

    points: tuple[Point, ...]
    work: StepWork
    kinds: tuple[Kind, ...]
    kind_index: IntArray
    clients: FloatArray
    input_tokens: FloatArray
    output_tokens: FloatArray
    room: FloatArray
    most_sequences: FloatArray
    full: npt.NDArray[np.bool_]
    """Full loads: of these the throughput was measured, of closed loops TPOT and TTFT."""
    tpot_s: FloatArray
    """Measured; NaN where it was not."""
    ttft_s: FloatArray
    output_tok_s: FloatArray
    deployment: npt.NDArray[np.str_]
    model: npt.NDArray[np.str_]
    gpu: npt.NDArray[np.str_]
    engine: npt.NDArray[np.str_]

    def __len__(self) -> int:
        return len(self.points)

    def machine(self, facts: SpeedFacts) -> Machine:
        """What each point's GPU and engine reach under these facts."""
        found = []
        for kind in self.kinds:
            era = facts.era(kind.engine, kind.version)
            assert era is not None
            found.append(machine_of(kind.gpu, kind.dtype, facts, era))
        return Machine(
            **{f.name: np.array([getattr(m, f.name) for m in found])[self.kind_index] for f in fields(Machine)}
        )

    def coefficients(self, facts: SpeedFacts) -> StepCoefficients:
        """Step coefficients of every point."""
        return step_coefficients(self.work, self.machine(facts))

    def operating(self, facts: SpeedFacts) -> Operating:
        """Where every point settles: as a closed loop, or as full as it can be."""
        c = self.coefficients(facts)
        clients = np.where(self.full, 1.0, self.clients)
        closed = closed_loop(c, clients, self.input_tokens, self.output_tokens, room=self.room)
        if not self.full.any():
            return closed
        held = self.input_tokens + RESERVED_SHARE * self.output_tokens
        full = max_load(
            c,
            self.room * held,
            self.most_sequences,
            self.input_tokens,
            self.output_tokens,
            held_share=RESERVED_SHARE,
            requests=np.where(self.full, self.clients, 1.0),
        )
        return Operating(
            **{f.name: np.where(self.full, getattr(full, f.name), getattr(closed, f.name)) for f in fields(Operating)}
        )

    def log_ratio(self, facts: SpeedFacts) -> FloatArray:
        """Logarithm of predicted over measured time of a token: TPOT, or the inverse throughput of a full load."""
        found = self.operating(facts)
        tokens = np.log(self.output_tok_s / found.output_tok_s)
        return np.asarray(np.where(self.full, tokens, np.log(found.tpot_s / self.tpot_s)))

    def at(self, chosen: npt.NDArray[np.bool_]) -> Sample:
        """The chosen points."""
        columns = {
            f.name: getattr(self, f.name)[chosen] for f in fields(self) if f.name not in ("points", "work", "kinds")
        }
        work = StepWork(**{f.name: getattr(self.work, f.name)[chosen] for f in fields(StepWork)})
        points = tuple(point for point, is_in in zip(self.points, chosen, strict=True) if is_in)
        return replace(self, points=points, work=work, **columns)


def sample_of(found: Sequence[FitPoint]) -> Sample:
    """Points as columns; figures in seconds."""
    kinds = tuple(dict.fromkeys(each.kind for each in found))
    position = {kind: index for index, kind in enumerate(kinds)}
    loads = [each.point.load for each in found]
    served = [each.point.served for each in found]

    def seconds(values: list[float | None]) -> FloatArray:
        return np.array([np.nan if value is None else value for value in values]) / 1e3

    return Sample(
        points=tuple(each.point for each in found),
        work=stack_work([each.work for each in found]),
        kinds=kinds,
        kind_index=np.array([position[each.kind] for each in found], dtype=np.int64),
        clients=np.array([load.concurrency or np.inf for load in loads]),
        input_tokens=np.array([load.input_tokens for load in loads]),
        output_tokens=np.array([load.output_tokens for load in loads]),
        room=np.array([each.room for each in found]),
        most_sequences=np.array([each.most_sequences for each in found]),
        full=np.array([load.kind is LoadKind.MAX_LOAD for load in loads]),
        tpot_s=seconds([each.point.measured.tpot_ms for each in found]),
        ttft_s=seconds([each.point.measured.ttft_ms for each in found]),
        output_tok_s=np.array([each.point.measured.output_tok_s or np.nan for each in found]),
        deployment=np.array([f"{s.engine} {s.model} {s.gpu} tp{s.tp} {s.weight_dtype}" for s in served]),
        model=np.array([each.architecture for each in found]),
        gpu=np.array([s.gpu for s in served]),
        engine=np.array([s.engine for s in served]),
    )
