"""A replica under load: the fixed point of Little's law, and every constraint as planned against limit.

All functions are vectorised over candidates: arrays of equal length, one entry a candidate.

The fixed point. A replica that receives ``rate`` requests per second has, on average, L = rate * E[O] * w requests in
decode, where w is the time per output token; and w is the step time at the concurrency that a request meets, stretched
by the prompts that share the steps:

    w = step(L_seen, T_seen) / (1 − rate * E[prefill work]) + held up by prompts of the same burst
    L_seen = L + D,  T_seen = T * L_seen / L,  T = rate * w * E[P O + O^2 / 2]

A token is made in a batch of more than the mean: an arrival finds L others and adds itself (Poisson, equally long
outputs, D = 1), and more when arrivals come in bursts and when steps and prompts slow a full replica down
(`planner.queueing.feedback`). The right-hand side grows with w, so iterating from an empty replica rises to the
smallest solution, the one that a replica settles in when load comes up from below.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from enum import StrEnum

import numpy as np

from planner.queueing.dispersion import Dispersion, Dispersions
from planner.queueing.feedback import feedback_of
from planner.queueing.footprint import Moments
from planner.queueing.live_tokens import (
    batch_mean,
    quantile_lower_bound,
    quantile_upper_bound,
    request_quantile,
    screened_quantile,
    thinned_idc,
)
from planner.queueing.residence import Residence, dispersion_scale_s
from planner.queueing.waiting import PromptPoints, longest_wait, ttft_quantile_s
from planner.speed.step import decode_step_s, interfered_tpot_s, mean_prefill_work_s
from planner.speed.types import StepCoefficients
from planner.traffic.types import FloatArray, IntArray


class Constraint(StrEnum):
    """Constraints of a replica, in the words that reports use."""

    TOKEN_POOL = "token pool"
    SEQUENCES = "concurrent sequences"
    WORK = "work share"
    TPOT = "TPOT target"
    TTFT = "TTFT target"


ITERATIONS = 400
TOLERANCE = 1e-7
STEEPEST = 0.98
"""Steepest slope that a step of the fixed point is lengthened by."""
SATURATION = 0.995


@dataclass(frozen=True)
class Demand:
    """What one model asks of a pool, with everything that does not depend on the candidate.

    ``rate_per_s`` is the planning rate of the whole pool, ``load_cv`` how unsure what a request holds is, as a
    coefficient of variation.
    """

    rate_per_s: float
    dispersion: Dispersion
    prompts: PromptPoints
    load_cv: float = 0.0


@dataclass(frozen=True)
class Candidates:
    """Candidates of one model, column by column.

    Attributes
    ----------
    coefficients
        Step coefficients at the edge of the speed band that constraints see, stacked.
    moments
        Stacked footprint moments of the distinct (length law, pool geometry); ``moment_index`` names a candidate's.
    pool_tokens
        Token-equivalents that the pool of one replica holds.
    max_num_seqs
        Cap on concurrent sequences.
    ttft_edge
        Factor from the TTFT computed at the edge of the step time to the edge of the TTFT band.
    """

    coefficients: StepCoefficients
    moments: Moments
    moment_index: IntArray
    pool_tokens: FloatArray
    max_num_seqs: FloatArray
    ttft_edge: FloatArray

    def __len__(self) -> int:
        return len(self.pool_tokens)


@dataclass(frozen=True)
class Limits:
    """What a replica must satisfy at the planning rate."""

    overflow_probability: float
    max_work_share: float
    tpot_s: float = np.inf
    ttft_s: float = np.inf
    ttft_percentile: float = 0.95


@dataclass(frozen=True)
class ReplicaLoad:
    """The settled state of one replica, per candidate; infinite where no steady state exists.

    Attributes
    ----------
    idc
        Index of dispersion of the replica's arrivals over the time that swings of the live tokens live.
    live_dispersion
        Variance over mean of the live requests (`planner.queueing.feedback`).
    token_idc
        Index of dispersion of the batch-Poisson arrivals that swing the live tokens of a replica of constant speed as
        far as these swing this one.
    """

    rate_per_s: FloatArray
    idc: FloatArray
    live_dispersion: FloatArray
    token_idc: FloatArray
    token_s: FloatArray
    live_requests: FloatArray
    work_share: FloatArray
    prefill_share: FloatArray
    stay: Residence
    time_in_system_s: FloatArray

    def at(self, index: IntArray) -> ReplicaLoad:
        """Of many candidates, those at ``index``."""
        columns = {item.name: getattr(self, item.name)[index] for item in fields(self) if item.name != "stay"}
        return replace(self, stay=self.stay.at(index), **columns)


def scaled(coefficients: StepCoefficients, factor: FloatArray | float) -> StepCoefficients:
    """Coefficients with every time multiplied by ``factor``: a step at another edge of the band."""
    times = (
        "dense_read_s", "expert_read_s", "kv_read_s_per_token", "sliding_read_s_per_token", "compute_s_per_token",
        "fixed_s", "sequence_s", "allreduce_s_per_token", "prefill_s_per_token", "prefill_s_per_token2", "ttft_floor_s",
        "ttft_client_s",
    )  # fmt: skip
    return replace(coefficients, **{name: np.asarray(getattr(coefficients, name)) * factor for name in times})


def settle(candidates: Candidates, demand: Demand, replicas: FloatArray) -> ReplicaLoad:
    """The fixed point of each candidate when ``replicas`` share the demand equally.

    Raises nothing: a candidate without a steady state gets infinite times and a work share of 1.
    """
    moments = candidates.moments.at(candidates.moment_index)
    rate = demand.rate_per_s / replicas
    return settle_at(candidates.coefficients, moments, demand.dispersion, rate, replicas, load_cv=demand.load_cv)


def settle_at(
    c: StepCoefficients,
    m: Moments,
    dispersion: Dispersion | Dispersions,
    rate: FloatArray,
    replicas: FloatArray,
    longest_token_s: FloatArray | float = np.inf,
    load_cv: FloatArray | float = 0.0,
) -> ReplicaLoad:
    """`settle` for candidates of one pool or of many, each at its own rate.

    Parameters
    ----------
    c, m
        One entry for each candidate.
    rate
        Requests per second of one replica.
    replicas
        Replicas among which the pool's bursts are divided.
    longest_token_s
        A candidate whose time per token exceeds this counts as one without a steady state: for callers that would
        refuse it, and need not know by how much.
    load_cv
        Coefficient of variation of what a request holds: the live count's mean is unsure by as much.
    """
    prompt_s = mean_prefill_work_s(c, m.mean_prompt, m.mean_prompt2)
    prefill_share, work_share = rate * prompt_s, rate * work_s(c, m)
    room = np.maximum(1.0 - prefill_share, 1e-6)
    answer = feedback_of(m, prefill_share, work_share, prompt_s)
    empty_s = decode_step_s(c, np.zeros_like(rate), np.zeros_like(rate)) / room
    ceiling = np.minimum(empty_s / (1.0 - SATURATION), longest_token_s * (1.0 + TOLERANCE))

    def swing_idc(token_s: FloatArray) -> FloatArray:
        return thinned_idc(dispersion.at(answer.swing_s(m.mean_output * token_s)), replicas)

    def next_token_s(token_s: FloatArray) -> FloatArray:
        live, idc = rate * m.mean_output * token_s, swing_idc(token_s)
        seen = live + answer.met_beyond_mean(idc)
        held = rate * m.read_tokens * token_s * seen / np.maximum(live, 1e-12)
        return np.minimum(interfered_tpot_s(c, seen, held, prefill_share) + answer.held_up_s(idc), ceiling)

    token_s = _fixed_point(next_token_s, np.minimum(empty_s, ceiling), ceiling)
    stay = _residence(c, token_s, room)
    settled = (token_s < ceiling * (1 - 1e-9)) & (prefill_share < 1.0)
    life_s, scale_s = stay.mean_s(m), dispersion_scale_s(m, stay)
    idc, swings = thinned_idc(dispersion.at(scale_s * answer.stretch), replicas), swing_idc(token_s)
    dispersion_of_live = answer.dispersion(swings) + np.square(load_cv) * rate * life_s
    added = dispersion_of_live - answer.passive_dispersion(swings)
    # Tokens follow the count: Var(T) / T^2 rises by as much as Var(n) / n^2, which `squared_mean_integral` then scales.
    token_idc = idc + added * scale_s / np.maximum(m.mean_output * token_s, 1e-12)
    return ReplicaLoad(
        rate_per_s=rate,
        idc=idc,
        live_dispersion=dispersion_of_live,
        token_idc=token_idc,
        token_s=np.where(settled, token_s, np.inf),
        live_requests=rate * life_s,
        work_share=np.where(settled, work_share, 1.0),
        prefill_share=prefill_share,
        stay=stay,
        time_in_system_s=np.where(settled, life_s, np.inf),
    )


def _fixed_point(rises: Callable[[FloatArray], FloatArray], start: FloatArray, ceiling: FloatArray) -> FloatArray:
    """The smallest fixed point of a function that grows, from below it.

    Each step goes where the line through the last two points meets the diagonal, which is exact where the function is
    straight; never back below what plain iteration has reached from below, and never beyond `ceiling`.
    """
    before = start
    value_before = rises(before)
    now = value_before
    for _ in range(ITERATIONS):
        value = rises(now)
        if bool(np.all(np.abs(value - now) <= TOLERANCE * now)):
            return value
        run = now - before
        slope = np.where(run != 0.0, (value - value_before) / np.where(run != 0.0, run, 1.0), 0.0)
        step = (value - now) / (1.0 - np.clip(slope, 0.0, STEEPEST))
        before, value_before = now, value
        now = np.minimum(now + step, ceiling)
    return now


def work_s(c: StepCoefficients, m: Moments) -> FloatArray:
    """Time of a replica that one request takes for itself, s: what is left of a step when its fixed cost is shared out.

    E[prefill work] + E[O] * (overhead of a sequence + the longer of reading the mean cache and computing a token). Its
    inverse is the rate at which the replica saturates: with ever larger batches a step costs this much a sequence.
    """
    mean_held = m.read_tokens / np.maximum(m.mean_output, 1e-12)
    window_held = np.minimum(mean_held, c.window_tokens)
    read_s = c.kv_read_s_per_token * mean_held + c.sliding_read_s_per_token * window_held
    token_s = c.sequence_s + c.allreduce_s_per_token + np.maximum(read_s, c.compute_s_per_token)
    return np.asarray(mean_prefill_work_s(c, m.mean_prompt, m.mean_prompt2) + m.mean_output * token_s)


def _residence(c: StepCoefficients, token_s: FloatArray, room: FloatArray) -> Residence:
    """Time in the replica: the prompt's own work, the decode step of each of its chunks, the steps until it is taken.

    An engine looks for new requests every few steps (``ttft_wait_steps``, `planner.speed.ttft`); one at least runs when
    a request arrives.
    """
    step = token_s * room
    size = np.ones_like(step)
    return Residence(
        s0=step * np.maximum(1.0, c.ttft_wait_steps),
        s1=c.prefill_s_per_token + step / c.chunk_tokens,
        s2=c.prefill_s_per_token2 * size,
        token_s=token_s,
    )


def live_request_quantile(load: ReplicaLoad, overflow: float) -> FloatArray:
    """Requests in the replica that are exceeded with probability at most ``overflow``."""
    return request_quantile(load.live_requests, load.live_dispersion, overflow)


def ttft_s(candidates: Candidates, demand: Demand, load: ReplicaLoad, percentile: float) -> FloatArray:
    """TTFT quantile at the settled load, before the band's edge, s."""
    replicas = demand.rate_per_s / load.rate_per_s
    scales = demand.dispersion.scales_s
    batch = batch_mean(thinned_idc(demand.dispersion.at(scales)[:, None], replicas[None, :]))
    wait = longest_wait(load.rate_per_s, batch, scales, demand.prompts, load.stay, percentile)
    front_end = front_end_s(candidates.coefficients, load)
    return ttft_quantile_s(wait, demand.prompts, load.stay, front_end, percentile)


def front_end_s(c: StepCoefficients, load: ReplicaLoad) -> FloatArray:
    """What a first token takes beside waiting and computing, s."""
    return np.asarray(c.ttft_floor_s + c.ttft_client_s * load.live_requests)


class PoolCheck(StrEnum):
    """How the token pool of many candidates is judged at once."""

    BOUND = "bound"
    """By a figure that the quantile cannot fall below: what it rejects is infeasible."""
    SURE = "sure"
    """By a figure that the quantile cannot exceed: what it accepts is feasible."""
    GUESS = "guess"
    """By the three-moment gamma: close, in both directions."""
    NONE = "none"
    """Not at all, for callers that check it exactly."""


def pool_figure(check: PoolCheck, load: ReplicaLoad, moments: Moments, overflow: float) -> FloatArray:
    """Live tokens that the pool of each candidate is judged by, token-equivalents."""
    if check is PoolCheck.NONE:
        return np.zeros_like(load.rate_per_s)
    figure = {
        PoolCheck.BOUND: quantile_lower_bound,
        PoolCheck.SURE: quantile_upper_bound,
        PoolCheck.GUESS: screened_quantile,
    }[check]
    return np.asarray(figure(load.rate_per_s, load.token_idc, moments, load.stay, overflow))


def used_shares(
    candidates: Candidates,
    demand: Demand,
    replicas: FloatArray,
    limits: Limits,
    check: PoolCheck = PoolCheck.BOUND,
) -> dict[str, FloatArray]:
    """Planned over limit for every constraint of a replica; a candidate is feasible when none exceeds 1.

    What the token pool accepts here must be checked exactly before a plan may rely on it.
    """
    load = settle(candidates, demand, replicas)
    moments = candidates.moments.at(candidates.moment_index)
    tokens = pool_figure(check, load, moments, limits.overflow_probability)
    shares: dict[str, FloatArray] = {
        Constraint.TOKEN_POOL: tokens / candidates.pool_tokens,
        Constraint.SEQUENCES: live_request_quantile(load, limits.overflow_probability) / candidates.max_num_seqs,
        Constraint.WORK: load.work_share / limits.max_work_share,
    }
    if np.isfinite(limits.tpot_s):
        shares[Constraint.TPOT] = load.token_s / limits.tpot_s
    if np.isfinite(limits.ttft_s):
        ttft = ttft_s(candidates, demand, load, limits.ttft_percentile) * candidates.ttft_edge
        shares[Constraint.TTFT] = ttft / limits.ttft_s
    # Without a steady state nothing else means anything: the work itself does not fit.
    unsettled = ~np.isfinite(load.token_s)
    shares = {name: np.where(unsettled, 0.0, share) for name, share in shares.items()}
    shares[Constraint.WORK] = np.where(unsettled, np.inf, shares[Constraint.WORK])
    return shares
