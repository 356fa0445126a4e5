"""Every way to start a replica of a model: GPU type x tp x approved formats x max_num_seqs x max_model_len.

Memory says which of them start and what pool they leave; speed says how long a step takes. Neither depends on the slice
that is served, but for a measured speed, whose band depends on the load.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby

import numpy as np

from planner.catalog.gpu import Gpu
from planner.catalog.model_shape import ModelShape
from planner.memory.calibration import calibrated_size
from planner.memory.types import Deployment, GivenTerms, Sizing
from planner.memory.vllm.replica import Replica
from planner.optimise.needs.approved import Formats
from planner.optimise.types import Rejection, Serving, Workload
from planner.queueing.footprint import Moments
from planner.queueing.holding import pool_token_equivalents
from planner.request import ModelRequest, Policy
from planner.speed.chain import MEASURED, SILICON, speed_of
from planner.speed.curve import Loads
from planner.speed.types import SpeedModel

DEFAULT_DEGREES = (1, 2, 4, 8)
Links = Mapping[str, float]
"""By GPU id, the bandwidth between nodes for replicas that span several, GB/s a GPU."""


@dataclass(frozen=True)
class Place:
    """A way to start a replica, but for its max_model_len."""

    gpu: Gpu
    tp: int
    formats: Formats
    max_num_seqs: int

    @property
    def family(self) -> tuple[str, int, Formats]:
        """Places that differ in their cap on sequences alone share it."""
        return (self.gpu.id, self.tp, self.formats)

    @property
    def key(self) -> tuple[str, int, Formats, int]:
        """Tells places apart, and sorts and hashes faster than the GPU itself."""
        return (*self.family, self.max_num_seqs)


@dataclass(frozen=True)
class Way:
    """A place with a max_model_len: it starts.

    ``longer`` is its sizing, or that of a longer max_model_len, from which it differs in that length alone. Where the
    place was measured, ``speed`` is ``None``: it depends on the load.
    """

    place: Place
    max_model_len: int
    longer: Sizing
    speed: SpeedModel | None

    @cached_property
    def sizing(self) -> Sizing:
        """The sizing of the place with the way's own max_model_len."""
        return at_length(self.longer, self.max_model_len)

    @cached_property
    def pool_token_equivalents(self) -> float:
        """Its pool, which depends on no length beyond that of `longer`."""
        return pool_token_equivalents(self.longer)


def dividing_degrees(shape: ModelShape) -> tuple[int, ...]:
    """Tensor-parallel degrees that are tried when the request names none."""
    return tuple(tp for tp in DEFAULT_DEGREES if shape.attention_heads % tp == 0)


def places_of(
    request: ModelRequest,
    shape: ModelShape,
    gpus: Sequence[Gpu],
    formats: Sequence[Formats],
    multi_node: Links,
) -> tuple[Place, ...]:
    """All places to try. A degree beyond one node takes whole nodes, where ``multi_node`` says that they are linked."""

    def allowed(gpu: Gpu, tp: int) -> bool:
        node = gpu.max_gpus_per_node
        return tp <= node or (gpu.id in multi_node and tp % node == 0)

    return tuple(
        Place(gpu, tp, pair, sequences)
        for gpu in sorted(gpus, key=lambda gpu: gpu.id)
        for tp in sorted(set(request.tp_degrees or dividing_degrees(shape)))
        if allowed(gpu, tp)
        for pair in formats
        for sequences in sorted(set(request.max_num_seqs))
    )


class Replicas:
    """Sizings and speeds of replicas of one model's weights, each computed once.

    The only state is the cache; the answers depend on the arguments alone, so that models of the same weights may share
    it.
    """

    def __init__(self, shape: ModelShape, serving: Serving, multi_node: Links) -> None:
        self._shape = shape
        self._serving = serving
        self._multi_node = multi_node
        self._sizings: dict[object, Sizing] = {}
        self._alike: dict[object, Replica] = {}
        self._speeds: dict[object, SpeedModel] = {}
        self._measured: dict[object, bool] = {}

    def sizing(self, place: Place, max_model_len: int) -> Sizing:
        """The sizing of a place with a max_model_len."""
        key = (place.key, max_model_len)
        if key not in self._sizings:
            deployment = Deployment(
                place.tp, place.formats.weights, place.formats.kv, max_model_len=max_model_len,
                max_num_seqs=place.max_num_seqs, gpu_memory_utilization=self._serving.utilization,
            )  # fmt: skip
            self._sizings[key] = calibrated_size(
                self._shape, place.gpu, self._serving.facts, deployment,
                calibration=self._serving.calibration, replica=self._alike_of(place, deployment),
            )  # fmt: skip
        return self._sizings[key]

    def _alike_of(self, place: Place, deployment: Deployment) -> Replica:
        """What the sizings of a place's family share: their deployments differ in caps alone."""
        if place.family not in self._alike:
            self._alike[place.family] = Replica(
                self._shape, place.gpu, self._serving.facts, deployment, GivenTerms()
            )  # fmt: skip
        return self._alike[place.family]

    def speed(self, place: Place, sizing: Sizing) -> SpeedModel | None:
        """The speed of a place that was not measured, ``None`` for one that was.

        The built-in model reads of a sizing neither its pool nor its caps, so that places of a family share it.
        """
        if self.is_measured(place, sizing):
            return None
        if SILICON in self._serving.speed.providers:
            key: object = (place.key, sizing.max_model_len)
        else:
            per_token = (sizing.bytes_per_token, sizing.sliding_bytes_per_token, sizing.window_tokens)
            key = (place.family, sizing.max_num_batched_tokens, per_token)
        if key not in self._speeds:
            self._speeds[key] = self.speed_under(place, sizing, None)
        return self._speeds[key]

    def is_measured(self, place: Place, sizing: Sizing) -> bool:
        """Whether measured points hold for a place."""
        sources = self._serving.speed
        if MEASURED not in sources.providers or not sources.measured.points:
            return False
        if place.family not in self._measured:
            match = sources.measured.match(sizing, sources.version or sizing.engine_version)
            self._measured[place.family] = match is not None
        return self._measured[place.family]

    def speed_under(self, place: Place, sizing: Sizing, expected: Loads | None) -> SpeedModel:
        """The speed of a place under expected loads; over several nodes the collectives run over their network."""
        gpu, nodes = place.gpu, -(-place.tp // place.gpu.max_gpus_per_node)
        if nodes == 1:
            return speed_of(self._shape, gpu, sizing, self._serving.speed, expected)
        network = min(self._multi_node[gpu.id], gpu.interconnect_gb_s or np.inf)
        slower = gpu.model_copy(update={"interconnect_gb_s": network})
        model = speed_of(self._shape, slower, sizing, self._serving.speed, expected)
        return replace(model, source=f"{model.source}; tensor-parallel over {nodes} nodes at {network:g} GB/s a GPU")


def ways_of(
    workload: Workload, places: Sequence[Place], lengths: Sequence[int], replicas: Replicas
) -> tuple[tuple[Way, ...], tuple[Rejection, ...]]:
    """Every place and max_model_len that starts, and the refusals of the others."""
    ways: list[Way] = []
    rejections: list[Rejection] = []
    for _, family in groupby(places, key=lambda place: place.family):
        for place, length, sizing in _sizings_of(tuple(family), sorted(lengths), replicas):
            if sizing.refusals:
                refusal = sizing.refusals[0]
                rejections.append(
                    Rejection(workload.name, place.gpu.id, place.tp, refusal.rule, refusal.message, np.inf)
                )
            else:
                ways.append(Way(place, length, sizing, replicas.speed(place, sizing)))
    return tuple(ways), tuple(rejections)


def _sizings_of(
    family: Sequence[Place], lengths: Sequence[int], replicas: Replicas
) -> Iterator[tuple[Place, int, Sizing]]:
    """Sizings of places that differ in their cap on sequences alone, ascending, for each length, ascending.

    What is refused with the least cap and the shortest length is refused with every larger one, and said once. Where
    the sizing of the longest length is that of the shortest but for the length itself, so are those in between.
    """
    least = replicas.sizing(family[0], lengths[0])
    if least.refusals:
        yield family[0], lengths[0], least
        return
    flat = at_length(replicas.sizing(family[0], lengths[-1]), lengths[0]) == least
    for place in family:
        longest = replicas.sizing(place, lengths[-1])
        for length in lengths:
            alike = flat and longest.starts
            yield place, length, longest if alike else replicas.sizing(place, length)


def at_length(sizing: Sizing, max_model_len: int) -> Sizing:
    """A sizing with another max_model_len, where nothing but the number of such requests that fit depends on it."""
    if max_model_len == sizing.max_model_len:
        return sizing
    blocks = -(-max_model_len // sizing.block_size_tokens)
    return replace(
        sizing,
        deployment=replace(sizing.deployment, max_model_len=max_model_len),
        max_model_len=max_model_len,
        max_concurrency=sizing.num_blocks / blocks,
    )


def expected_loads(max_num_seqs: int, moments: Moments) -> Loads:
    """Loads that bound those of a replica: few sequences and its cap, at the mean context of a live sequence.

    A sequence met at a random step is longer than the mean request: it holds E[P O + O² / 2] / E[O] tokens.
    """
    output = max(float(moments.mean_output), 2.0)
    prompt = max(float(moments.read_tokens) / output - output / 2, 1.0)
    clients = np.array([max(1.0, max_num_seqs / 8), float(max_num_seqs)])
    return Loads(clients, np.full(2, prompt), np.full(2, output))


def edges_of(model: SpeedModel, expected: Loads | None, policy: Policy) -> tuple[str, str]:
    """Edges of the TPOT and TTFT bands that constraints see.

    That of measured deployments holds only if the cap on sequences and the mean context lie within reach of the
    measurements, whatever the load turns out to be: a curve is not extrapolated to save replicas. Without expected
    loads nothing counts as measured.
    """
    reach = model.reach
    if reach is None or expected is None:
        return policy.speed_edge, policy.speed_edge
    if not reach.covers(float(expected.clients.max()), float(expected.context_tokens.max())):
        return policy.speed_edge, policy.speed_edge
    return (
        policy.measured_speed_edge if reach.tpot else policy.speed_edge,
        policy.measured_speed_edge if reach.ttft else policy.speed_edge,
    )
