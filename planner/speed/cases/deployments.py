"""Deployments of a table, each modelled once: its step coefficients, where they come from, and the room of its pool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from planner.catalog.gpu import Gpu
from planner.catalog.model_shape import ModelShape
from planner.errors import InputError, Problem
from planner.memory.size import size
from planner.memory.types import Deployment, Sizing
from planner.speed.cases.loads import MOST_REQUESTS
from planner.speed.cases.names import KNOWN_ENGINES, STAND_IN
from planner.speed.cases.rows import TRTLLM, TRTLLM_BENCH, Reader
from planner.speed.chain import SpeedSources, speed_of
from planner.speed.max_load import held_share_of
from planner.speed.measured import NOTHING_MEASURED, MeasuredSet
from planner.speed.points import Load, Point, Served
from planner.speed.types import SpeedModel

TRTLLM_MOST_SEQUENCES = {TRTLLM: 2048, TRTLLM_BENCH: 4096}
"""``max_batch_size`` of a data-parallel rank. ``trtllm-serve`` starts with the default of ``BuildConfig``
(https://github.com/NVIDIA/TensorRT-LLM/blob/008b2b8d23af95e4e19fa6f354f9c5f6349b2bfc/tensorrt_llm/builder.py);
``trtllm-bench`` raises it as far as the cache goes, up to this for one pipeline stage
(https://github.com/NVIDIA/TensorRT-LLM/blob/04cba882084a25665e7f80f5bda71b35b9790b6f/tensorrt_llm/bench/build/
tuning.py)."""

MOST_UTILIZATION = 0.97
"""Share of the memory that is tried where the default leaves no room: what runs was started with more."""


@dataclass(frozen=True)
class Deployed:
    """A deployment ready to be asked.

    Attributes
    ----------
    pool
        Sizing whose pool the load fills.
    workers
        Pools of that size in the replica (data-parallel attention).
    most_sequences
        ``max_num_seqs`` of the replica where nothing is typed.
    notes
        What was assumed about it.
    """

    model: SpeedModel
    engine: str
    pool: Sizing
    workers: int
    most_sequences: float
    notes: tuple[str, ...] = ()

    def room(self, load: Load) -> float:
        """Requests of these lengths that the pool holds at once, without any cap; may be below 1.

        A request holds P + h O tokens in the mean (h: `held_share`), so the pool holds pool bytes / (bytes per token x
        that, windows and states on top).
        """
        tokens = load.input_tokens + self.held_share * load.output_tokens
        window = self.pool.sliding_bytes_per_token * min(tokens, self.pool.window_tokens)
        held = self.pool.bytes_per_token * tokens + window + self.pool.pool_state_bytes_per_request
        room = self.pool.pool_bytes * self.workers / held if held else MOST_REQUESTS
        return min(room, MOST_REQUESTS)

    @property
    def held_share(self) -> float:
        """Share of its output that a running request holds; TensorRT-LLM reserves all of it."""
        return held_share_of(self.engine)


@dataclass
class Deployments:
    """Models deployments of rows that share a catalogue; remembers them."""

    reader: Reader
    sources: SpeedSources
    _known: dict[Served, tuple[ModelShape, Gpu, Sizing, Sizing] | InputError] = field(default_factory=dict)

    def of(self, served: Served) -> Deployed:
        """The deployment; the number of its replicas does not matter.

        Raises
        ------
        InputError
            If the weights leave no room for a cache, or the GPU lacks a figure that its speed needs.
        """
        shape, gpu, sizing, pool = self.sized(replace(served, replicas=1, decode_only=False))
        measured = self._measured.get((served.model, served.gpu), NOTHING_MEASURED)
        model = speed_of(shape, gpu, sizing, replace(self.sources, measured=measured))
        workers = max(pool.workers, served.attention_dp)
        most = TRTLLM_MOST_SEQUENCES.get(served.engine, pool.max_num_seqs) * workers
        notes: tuple[str, ...] = ()
        if pool.deployment.gpu_memory_utilization is not None:
            notes = (f"memory utilisation of {MOST_UTILIZATION} assumed: the default leaves no room",)
        return Deployed(model, served.engine, pool, workers, float(most), notes)

    @cached_property
    def _measured(self) -> Mapping[tuple[str, str], MeasuredSet]:
        """What was measured, by model and GPU: a deployment is matched with those few."""
        points: dict[tuple[str, str], list[Point]] = {}
        for point in self.sources.measured.points:
            points.setdefault((point.served.model, point.served.gpu), []).append(point)
        return {key: MeasuredSet(tuple(found)) for key, found in points.items()}

    def sized(self, served: Served) -> tuple[ModelShape, Gpu, Sizing, Sizing]:
        """Model, GPU, and the sizing whose terms the steps need and whose pool the load needs.

        Raises
        ------
        InputError
            If the weights leave no room for a cache.
        """
        if served not in self._known:
            try:
                self._known[served] = self._size(served)
            except InputError as error:
                self._known[served] = error
        found = self._known[served]
        if isinstance(found, InputError):
            raise found
        return found

    def _size(self, served: Served) -> tuple[ModelShape, Gpu, Sizing, Sizing]:
        catalog = self.reader.lookup.catalog
        shape, gpu = self.reader.names.shape(served.model), catalog.gpu(served.gpu)
        facts = self.reader.facts(served.engine, served.version)
        asked = Deployment(
            served.tp,
            served.weight_dtype,
            served.kv_dtype,
            pp=served.pp,
            expert_parallel=served.ep > 1,
            attention_dp=served.attention_dp,
        )
        pool = size(shape, gpu, facts, asked)
        if pool.num_blocks <= 0 or pool.available_kv_gib <= 0:
            pool = size(shape, gpu, facts, replace(asked, gpu_memory_utilization=MOST_UTILIZATION))
        if pool.num_blocks <= 0 or pool.available_kv_gib <= 0:
            taken = sum(term.gib for term in pool.terms)
            message = f"does not fit: {taken:.1f} GiB taken of {pool.gpu_memory.gib:.1f} GiB on each {gpu.id}"
            raise InputError(Problem("row", message, field="tp"))
        engine = served.engine if served.engine in KNOWN_ENGINES else STAND_IN
        steps = replace(pool, engine=engine, engine_version=served.version, deployment=asked)
        return shape, gpu, steps, pool
