"""Candidates: every approved way to run a model on every GPU type that is on offer, with its replica need.

For each model: GPU type x tp x weight dtype x KV dtype x max_model_len (from the real tail) x operating point
(max_num_seqs). Memory says which of them start and what pool they leave; speed says how long a step takes; queueing
says how many replicas the load needs. Everything that the integer program chooses among is computed here, outside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.catalog.gpu import Gpu
from planner.catalog.model_shape import ModelShape
from planner.catalog.offer import Offer
from planner.memory.calibration import calibrated_size
from planner.memory.types import Deployment, KvDtype, Sizing, WeightDtype
from planner.optimise.types import Column, Config, LengthChoice, Need, Rejection, Serving, Workload
from planner.queueing.footprint import Marks, Moments, marks_of, moments_of, stack_moments
from planner.queueing.holding import Holding, holding_of, pool_token_equivalents
from planner.queueing.load import Candidates, Demand, Limits, dispersion_of, scaled, used_shares
from planner.queueing.replicas import MAX_REPLICAS, least_replicas
from planner.queueing.waiting import prompt_points
from planner.request import Policy
from planner.speed.chain import SpeedSources, speed_of
from planner.speed.curve import Loads
from planner.speed.step import stack
from planner.speed.types import Band, SpeedModel
from planner.traffic.law import length_at_tail, refused_shares, truncate
from planner.units import ms_to_s

DEFAULT_DEGREES = (1, 2, 4, 8)
EDGES = ("lower", "middle", "upper")
"""Edges of the speed band: fast, middle, slow."""
LENGTH_STEP = 256
"""max_model_len is rounded up to a multiple of this; every engine block size in the catalogue divides it."""


@dataclass(frozen=True)
class CandidateSet:
    """All usable configurations of one model with their needs, and why the others are not usable."""

    needs: tuple[Need, ...]
    rejections: tuple[Rejection, ...]


def length_choices(workload: Workload) -> tuple[LengthChoice, ...]:
    """Values of max_model_len worth trying: from the least that keeps the tail budget to one that refuses nothing.

    Empty when even the model's own maximum refuses more than the budget.
    """
    model_maximum = workload.shape.max_position_embeddings
    budget = workload.request.tail_budget
    shortest = length_at_tail(workload.traffic, budget)
    longest = int(workload.traffic.law.max_total.max())
    wanted = {shortest, longest, (shortest + longest) // 2}
    lengths = sorted({min(-(-length // LENGTH_STEP) * LENGTH_STEP, model_maximum) for length in wanted})
    choices = []
    for length in lengths:
        requests, tokens = refused_shares(workload.traffic, length)
        if requests <= budget:
            choices.append(LengthChoice(length, requests, tokens, truncate(workload.traffic, length)))
    return tuple(choices)


def configurations(
    workload: Workload, gpus: Sequence[Gpu], serving: Serving, policy: Policy
) -> tuple[tuple[Config, ...], tuple[Rejection, ...]]:
    """Every configuration that starts, and the refusals of the others."""
    lengths = length_choices(workload)
    if not lengths:
        model_maximum = workload.shape.max_position_embeddings
        share = refused_shares(workload.traffic, model_maximum)[0]
        detail = (
            f"max_model_len {model_maximum} refuses {share:.3%} of requests, budget {workload.request.tail_budget:.3%}"
        )
        return (), (Rejection(workload.name, "any", 0, "tail length", detail, share),)
    geometry: dict[tuple[int, Holding], tuple[Marks, Moments]] = {}
    configs: list[Config] = []
    rejections: list[Rejection] = []
    for gpu in gpus:
        for deployment, length in _deployments(workload, gpu, lengths, serving.utilization):
            sizing = calibrated_size(workload.shape, gpu, serving.facts, deployment, calibration=serving.calibration)
            if sizing.refusals:
                refusal = sizing.refusals[0]
                rejections.append(
                    Rejection(workload.name, gpu.id, deployment.tp, refusal.rule, refusal.message, np.inf)
                )
                continue
            configs.append(_config(workload, gpu, sizing, length, serving.speed, policy, geometry))
    return tuple(configs), tuple(rejections)


def _deployments(
    workload: Workload, gpu: Gpu, lengths: Sequence[LengthChoice], utilization: float | None
) -> list[tuple[Deployment, LengthChoice]]:
    """The grid of deployments of one model on one GPU type."""
    request = workload.request
    dtypes: list[tuple[WeightDtype, KvDtype]] = [(w, k) for w in request.weight_dtypes for k in request.kv_dtypes]
    return [
        (
            Deployment(
                tp, weights, kv, max_model_len=length.max_model_len, max_num_seqs=sequences,
                gpu_memory_utilization=utilization,
            ),
            length,
        )
        for tp in request.tp_degrees or dividing_degrees(workload.shape)
        if tp <= gpu.max_gpus_per_node
        for weights, kv in dtypes
        for length in lengths
        for sequences in request.max_num_seqs
    ]  # fmt: skip


def dividing_degrees(shape: ModelShape) -> tuple[int, ...]:
    """Tensor-parallel degrees that are tried when the request names none."""
    return tuple(tp for tp in DEFAULT_DEGREES if shape.attention_heads % tp == 0)


def _config(
    workload: Workload,
    gpu: Gpu,
    sizing: Sizing,
    length: LengthChoice,
    speed: SpeedSources,
    policy: Policy,
    geometry: dict[tuple[int, Holding], tuple[Marks, Moments]],
) -> Config:
    """One configuration; length laws in the same pool geometry share their moments."""
    key = (length.max_model_len, holding_of(sizing))
    if key not in geometry:
        marks = marks_of(length.law, sizing)
        geometry[key] = (marks, moments_of(marks, length.law))
    marks, moments = geometry[key]
    expected = expected_loads(sizing.max_num_seqs, moments)
    model = speed_of(workload.shape, gpu, sizing, speed, expected)
    tpot_edge, ttft_edge = edges_of(model, expected, policy)
    pool_tokens = pool_token_equivalents(sizing)
    return Config(workload.name, gpu, sizing, model, length, marks, moments, pool_tokens, tpot_edge, ttft_edge)


def expected_loads(max_num_seqs: int, moments: Moments) -> Loads:
    """Loads that bound those of a replica: few sequences and its cap, at the mean context of a live sequence.

    A sequence met at a random step is longer than the mean request: it holds E[P O + O² / 2] / E[O] tokens.
    """
    output = max(float(moments.mean_output), 2.0)
    prompt = max(float(moments.read_tokens) / output - output / 2, 1.0)
    clients = np.array([max(1.0, max_num_seqs / 8), float(max_num_seqs)])
    return Loads(clients, np.full(2, prompt), np.full(2, output))


def edges_of(model: SpeedModel, expected: Loads, policy: Policy) -> tuple[str, str]:
    """Edges of the TPOT and TTFT bands that constraints see.

    That of measured deployments holds only if the cap on sequences and the mean context lie within reach of the
    measurements, whatever the load turns out to be: a curve is not extrapolated to save replicas.
    """
    reach = model.reach
    within = reach is not None and reach.covers(float(expected.clients.max()), float(expected.context_tokens.max()))
    if reach is None or not within:
        return policy.speed_edge, policy.speed_edge
    return (
        policy.measured_speed_edge if reach.tpot else policy.speed_edge,
        policy.measured_speed_edge if reach.ttft else policy.speed_edge,
    )


def demand_of(workload: Workload, length: LengthChoice) -> Demand:
    """The planning demand of the requests that a max_model_len accepts; the cut law never holds too few of them."""
    accepted = workload.planning_rate_per_s * length.law.requests / workload.traffic.law.requests
    return Demand(accepted, dispersion_of(workload.traffic.burst), prompt_points(length.law))


def limits_of(workload: Workload, policy: Policy) -> Limits:
    """The limits of a model's replicas."""
    targets = workload.request.targets
    return Limits(
        overflow_probability=policy.overflow_probability,
        max_work_share=policy.max_work_share,
        tpot_s=ms_to_s(targets.tpot_ms) if targets.tpot_ms is not None else np.inf,
        ttft_s=ms_to_s(targets.ttft_ms) if targets.ttft_ms is not None else np.inf,
        ttft_percentile=targets.ttft_percentile,
    )


def stacked(configs: Sequence[Config], edge: str | None = None) -> Candidates:
    """Configurations as columns of arrays, with step times at an edge of the band.

    ``edge`` is one of `EDGES`, or ``None`` for those that each configuration's constraints see.
    """
    tpot_edge = np.array([_edge(c.speed.tpot_band, edge or c.tpot_edge) for c in configs])
    ttft_edge = np.array([_edge(c.speed.ttft_band, edge or c.ttft_edge) for c in configs])
    distinct = {id(c.moments): c.moments for c in configs}
    position = {key: index for index, key in enumerate(distinct)}
    return Candidates(
        coefficients=scaled(stack([c.speed for c in configs]), tpot_edge),
        moments=stack_moments(list(distinct.values())),
        moment_index=np.array([position[id(c.moments)] for c in configs], dtype=np.int64),
        pool_tokens=np.array([c.pool_token_equivalents for c in configs]),
        max_num_seqs=np.array([float(c.sizing.max_num_seqs) for c in configs]),
        ttft_edge=ttft_edge / tpot_edge,
    )


def _edge(band: Band, edge: str) -> float:
    return {"lower": band.low, "middle": 1.0, "upper": band.high}[edge]


def candidate_needs(
    workload: Workload,
    gpus: Sequence[Gpu],
    serving: Serving,
    policy: Policy,
) -> CandidateSet:
    """Configurations of one model with the screened (lower-bound) replica need of each, and all rejections."""
    configs, rejections = configurations(workload, gpus, serving, policy)
    limits = limits_of(workload, policy)
    needs: list[Need] = []
    missed: list[Rejection] = []
    for length in {id(c.length): c.length for c in configs}.values():
        group = [c for c in configs if c.length is length]
        demand = demand_of(workload, length)
        candidates = stacked(group)
        replicas = least_replicas(candidates, demand, limits)
        needs += [Need(c, demand, limits, int(n), exact=False) for c, n in zip(group, replicas, strict=True) if n > 0]
        missed += _missed(group, candidates, demand, limits, replicas == 0)
    return CandidateSet(tuple(needs), (*rejections, *missed))


def _missed(
    group: Sequence[Config], candidates: Candidates, demand: Demand, limits: Limits, never: np.ndarray
) -> list[Rejection]:
    """Configurations that no number of replicas saves: the constraint that stays broken on an almost idle replica."""
    if not never.any():
        return []
    shares = used_shares(candidates, demand, np.full(len(candidates), float(MAX_REPLICAS)), limits)
    names, table = list(shares), np.stack(list(shares.values()))
    worst = np.argmax(table, axis=0)
    return [
        Rejection(
            config.model, config.gpu.id, config.tp, str(names[worst[i]]),
            f"{config.label}: {table[worst[i], i]:.2f} times the limit even on an almost idle replica",
            float(table[worst[i], i]),
        )
        for i, config in enumerate(group)
        if never[i]
    ]  # fmt: skip


def columns_of(workload: Workload, needs: Sequence[Need], offers: Sequence[Offer], spare: int) -> tuple[Column, ...]:
    """Needs on every offer that can hold a replica, dominated ones left out.

    What is dominated on a GPU type is so on every offer of it: the dominating need has no larger tp, and fits wherever
    the other does.
    """
    by_gpu: dict[str, list[Need]] = {}
    for need in needs:
        by_gpu.setdefault(need.config.gpu.id, []).append(need)
    kept = {gpu: undominated_needs(workload, group, spare) for gpu, group in by_gpu.items()}
    columns = [
        _column(workload, need, offer, spare)
        for offer in offers
        for need in kept.get(offer.gpu, ())
        if need.config.tp <= offer.gpus_per_instance
    ]
    return tuple(sorted(columns, key=lambda c: c.key))


def undominated_needs(workload: Workload, needs: Sequence[Need], spare: int) -> list[Need]:
    """Needs on one GPU type without those that another of no larger tp beats in GPUs and served tokens.

    Among equals the dtypes that the owner names first win, so nothing is quantised without a gain.
    """

    def gpus(need: Need) -> int:
        return (need.replicas + spare) * need.config.tp

    def refused(need: Need) -> float:
        return need.config.length.refused_token_share

    kept: list[Need] = []
    order = sorted(
        needs, key=lambda n: (gpus(n), refused(n), n.config.tp, _preference(workload, n.config), _config_key(n.config))
    )
    for need in order:
        if not any(o.config.tp <= need.config.tp and refused(o) <= refused(need) for o in kept):
            kept.append(need)
    return kept


def _preference(workload: Workload, config: Config) -> tuple[int, int]:
    """Rank of a configuration's dtypes in the owner's order; smaller is preferred."""
    d, request = config.sizing.deployment, workload.request
    return request.weight_dtypes.index(d.weight_dtype), request.kv_dtypes.index(d.kv_dtype)


def _config_key(config: Config) -> str:
    """Configuration as text that sorts, without its GPU type."""
    d, sizing = config.sizing.deployment, config.sizing
    return f"tp{d.tp}|{d.weight_dtype}|{d.kv_dtype}|{sizing.max_model_len:07d}|{sizing.max_num_seqs:05d}"


def _column(workload: Workload, need: Need, offer: Offer, spare: int) -> Column:
    served = workload.offered_tokens * (1.0 - need.config.length.refused_token_share)
    key = f"{workload.name}|{offer.id}|{_config_key(need.config)}"
    return Column(key, workload.name, 0, 1, offer, need, spare, served)
