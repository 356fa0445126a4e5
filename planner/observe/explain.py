"""How far a pool is from its plan, and how much each assumption explains of it.

The share of the KV cache that is live is a product (Little's law for work held):

    usage = rate / replicas × stay × tokens a live request / pool,    stay = prefill + output × TPOT

so the logarithm of observed over planned usage is a sum of one term for each factor. Sums within a factor are split by
the logarithmic mean (LMDI-I: B. W. Ang, "Decomposition analysis for policymaking in energy", Energy Policy 32, 2004),
which leaves no remainder. Work that more load brings slows every token; that part of TPOT counts with the load.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from planner.observe.expected import MOST_WORK, Expected
from planner.observe.observed import Observed

HALF = 0.5
"""A request holds its prompt and on average half of its output."""


class Assumption(StrEnum):
    """What a plan assumes of a pool, and a running fleet shows."""

    DEMAND = "demand"
    REPLICAS = "replicas"
    PROMPTS = "prompt length"
    OUTPUTS = "output length"
    DECODE = "decode speed"
    TTFT = "time to first token"
    POOL = "KV cache size"
    CACHE = "cached share"


@dataclass(frozen=True)
class Band:
    """What the plan allows of a figure, both ends included."""

    low: float
    high: float

    def nearest(self, value: float) -> float:
        """The value itself where it lies within, else the end next to it."""
        return min(max(value, self.low), self.high)

    def widened(self, tolerance: float) -> Band:
        """With a relative tolerance at both ends."""
        return Band(self.low * (1.0 - tolerance), self.high * (1.0 + tolerance))

    def holds(self, value: float) -> bool:
        """Whether it lies within, but for rounding."""
        slack = 1e-9 * max(abs(self.low), abs(self.high) if math.isfinite(self.high) else 0.0)
        return self.low - slack <= value <= self.high + slack


@dataclass(frozen=True)
class Explained:
    """One pool against its plan.

    Attributes
    ----------
    bands
        What the plan allows, before any tolerance.
    effects
        Contribution of each assumption to ln(observed / planned KV usage).
    deviation
        That logarithm; ``None`` where the usage was not seen.
    rest
        What of it no assumption explains: the mix of lengths, sharing of prefixes, and figures that were not seen.
    tpot_by_load_s
        Time per output token that the plan's speed gives at the load that was seen; where that load has no steady
        state, at the load that the observed time shows.
    """

    bands: Mapping[Assumption, Band]
    effects: Mapping[Assumption, float]
    deviation: float | None
    rest: float
    tpot_by_load_s: float


def explained(plan: Expected, seen: Observed, cached_share: float = 0.0) -> Explained:
    """Bands and effects of every assumption.

    Parameters
    ----------
    cached_share
        Share of prompt tokens that the plan takes as cached.
    """
    ratios = _ratios(plan, seen, cached_share)
    demand = Band(min(plan.mean_rate_per_s, plan.planning_rate_per_s), plan.planning_rate_per_s)
    rate = demand.high if seen.rate_per_s is None else demand.nearest(seen.rate_per_s)
    base = plan.rate_ratio * rate / max(plan.planning_rate_per_s, 1e-12)
    factor = base * ratios[Assumption.DEMAND] / ratios[Assumption.REPLICAS]
    before = plan.work_at(base)
    after = plan.work_at(factor, ratios[Assumption.PROMPTS] * ratios[Assumption.CACHE], ratios[Assumption.OUTPUTS])
    saturated = after >= MOST_WORK
    if saturated and seen.tpot_s is not None:
        after = _work_of(plan, seen.tpot_s, before)
    slower = plan.tpot_ratio(after)
    decode = Band(plan.tpot_low_s * slower, math.inf if saturated else plan.tpot_s * slower)
    tpot = plan.tpot_s * slower if seen.tpot_s is None else seen.tpot_s
    bands = {
        Assumption.DEMAND: demand,
        Assumption.REPLICAS: Band(plan.replicas, plan.replicas),
        Assumption.PROMPTS: Band(plan.prompt_tokens, plan.prompt_tokens),
        Assumption.OUTPUTS: Band(plan.output_tokens, plan.output_tokens),
        Assumption.DECODE: decode,
        Assumption.TTFT: Band(0.0, plan.ttft_s),
        Assumption.POOL: Band(1.0, 1.0),
    }
    if cached_share > 0:
        bands[Assumption.CACHE] = Band(cached_share, cached_share)
    state = _State(plan, ratios, base, before, after, tpot / decode.nearest(tpot) if tpot > 0 else 1.0)
    state_tpot_s = decode.nearest(tpot) / slower * plan.tpot_ratio(before)
    effects = state.effects(state_tpot_s, seen)
    deviation = state.deviation(state_tpot_s, seen)
    rest = 0.0 if deviation is None else deviation - sum(effects.values())
    return Explained(bands, effects, deviation, rest, plan.tpot_s * slower)


def _work_of(plan: Expected, tpot_s: float, least: float) -> float:
    """Work share at which the plan's speed gives a time per token, from ``least`` to `MOST_WORK`.

    For a load that by the plan has no steady state: the time that was seen then says how much of it there was.
    """
    work = 1.0 - (1.0 - min(plan.work_share, MOST_WORK)) * plan.tpot_s / tpot_s if tpot_s > 0 else least
    return min(max(work, least), MOST_WORK)


def _ratios(plan: Expected, seen: Observed, cached_share: float) -> dict[Assumption, float]:
    """Observed over the nearest that the plan allows; 1 where a figure was not seen."""
    low = min(plan.mean_rate_per_s, plan.planning_rate_per_s)
    demand = Band(low, plan.planning_rate_per_s)
    computed = 1.0
    if seen.cached_share is not None and cached_share > 0:
        computed = max(1.0 - seen.cached_share, 1e-3) / max(1.0 - cached_share, 1e-3)
    return {
        Assumption.DEMAND: _ratio(seen.rate_per_s, demand.nearest(seen.rate_per_s or 0.0)),
        Assumption.REPLICAS: _ratio(seen.replicas, plan.replicas),
        Assumption.PROMPTS: _ratio(seen.prompt_tokens, plan.prompt_tokens),
        Assumption.OUTPUTS: _ratio(seen.output_tokens, plan.output_tokens),
        Assumption.POOL: _ratio(seen.pool_ratio, 1.0),
        Assumption.CACHE: computed,
    }


def _ratio(seen: float | None, planned: float) -> float:
    return seen / planned if seen is not None and seen > 0 and planned > 0 else 1.0


@dataclass(frozen=True)
class _State:
    """The planned state next to what was seen, and the ratios between them."""

    plan: Expected
    ratios: Mapping[Assumption, float]
    base: float
    """Planned rate of one replica over the rate at which the plan's figures hold."""
    work_before: float
    work_after: float
    slow: float
    """Observed time per output token over what the plan's speed gives at the observed load."""

    @property
    def prefill_s(self) -> float:
        """Part of the planned stay that is not decode."""
        return max(self.plan.stay_s - self.plan.output_tokens * self.plan.tpot_s, 0.0)

    def usage(self, tpot_s: float) -> float:
        """Planned KV usage at the demand's nearest allowed rate."""
        stay = self.prefill_s + self.plan.output_tokens * tpot_s
        return self.base * self.plan.kv_usage * stay / max(self.plan.stay_s, 1e-12)

    def deviation(self, tpot_s: float, seen: Observed) -> float | None:
        """ln(observed / planned usage)."""
        planned = self.usage(tpot_s)
        if seen.kv_usage is None or not seen.kv_usage > 0 or not planned > 0:
            return None
        return math.log(seen.kv_usage / planned)

    def effects(self, tpot_s: float, seen: Observed) -> dict[Assumption, float]:
        """Every term; ``tpot_s`` is planned at the planned load."""
        logs = {name: math.log(ratio) for name, ratio in self.ratios.items()}
        decode0 = self.plan.output_tokens * tpot_s
        load = math.log(self.plan.tpot_ratio(self.work_after) / self.plan.tpot_ratio(self.work_before))
        decode1 = decode0 * self.ratios[Assumption.OUTPUTS] * math.exp(load) * self.slow
        prefill0 = self.prefill_s
        prefill1 = self._prefill_seen(seen, decode1)
        weight, other = _weights(decode0, decode1, prefill0, prefill1)
        found = {
            Assumption.DEMAND: logs[Assumption.DEMAND],
            Assumption.REPLICAS: -logs[Assumption.REPLICAS],
            Assumption.PROMPTS: 0.0,
            Assumption.OUTPUTS: weight * logs[Assumption.OUTPUTS],
            Assumption.DECODE: weight * math.log(self.slow),
            Assumption.TTFT: other * _log_ratio(prefill1, prefill0),
            Assumption.POOL: -logs[Assumption.POOL],
            Assumption.CACHE: 0.0,
        }
        for name, part in (*self._held(logs), *self._load(logs, weight * load)):
            found[name] += part
        return found

    def _prefill_seen(self, seen: Observed, decode_s: float) -> float:
        """Time that requests were live before decode, by Little's law; as planned where it cannot be told."""
        if seen.live_requests is None or seen.rate_per_s is None or not seen.rate_per_s > 0:
            return self.prefill_s
        stay = seen.live_requests * (seen.replicas or self.plan.replicas) / seen.rate_per_s
        return stay - decode_s if stay > decode_s and self.prefill_s > 0 else self.prefill_s

    def _held(self, logs: Mapping[Assumption, float]) -> tuple[tuple[Assumption, float], ...]:
        """Parts of ln of the tokens that a live request holds, prompt and half of the output."""
        prompt0, output0 = self.plan.prompt_tokens, HALF * self.plan.output_tokens
        prompt1, output1 = prompt0 * self.ratios[Assumption.PROMPTS], output0 * self.ratios[Assumption.OUTPUTS]
        weight, other = _weights(prompt0, prompt1, output0, output1)
        return (
            (Assumption.PROMPTS, weight * logs[Assumption.PROMPTS]),
            (Assumption.OUTPUTS, other * logs[Assumption.OUTPUTS]),
        )

    def _load(self, logs: Mapping[Assumption, float], effect: float) -> tuple[tuple[Assumption, float], ...]:
        """What more work does to the time per token, by what made the work more."""
        prefill0 = self.plan.prefill_work_share * self.base
        decode0 = self.work_before - prefill0
        rate = self.ratios[Assumption.DEMAND] / self.ratios[Assumption.REPLICAS]
        prefill1 = prefill0 * rate * self.ratios[Assumption.PROMPTS] * self.ratios[Assumption.CACHE]
        decode1 = decode0 * rate * self.ratios[Assumption.OUTPUTS]
        grown = _log_ratio(prefill1 + decode1, prefill0 + decode0)
        if abs(grown) < 1e-12:
            return ()
        weight, other = _weights(prefill0, prefill1, decode0, decode1)
        parts = {
            Assumption.DEMAND: (weight + other) * logs[Assumption.DEMAND],
            Assumption.REPLICAS: -(weight + other) * logs[Assumption.REPLICAS],
            Assumption.PROMPTS: weight * logs[Assumption.PROMPTS],
            Assumption.CACHE: weight * logs[Assumption.CACHE],
            Assumption.OUTPUTS: other * logs[Assumption.OUTPUTS],
        }
        return tuple((name, part / grown * effect) for name, part in parts.items())


def _weights(part0: float, part1: float, other0: float, other1: float) -> tuple[float, float]:
    """Weights of two parts of a sum with which their own logarithms add up to that of the sum's ratio (LMDI-I).

        ln(S1 / S0) = w ln(part1 / part0) + v ln(other1 / other0),    w = L(part1, part0) / L(S1, S0)

    with the logarithmic mean L. They add up to 1 or a little less.
    """
    whole = _log_mean(part0 + other0, part1 + other1)
    if not whole > 0:
        return 0.0, 0.0
    return _log_mean(part0, part1) / whole, _log_mean(other0, other1) / whole


def _log_mean(a: float, b: float) -> float:
    """(a − b) / ln(a / b); a where both are equal, 0 where one is 0."""
    if a <= 0 or b <= 0:
        return 0.0
    if abs(a / b - 1.0) < 1e-9:
        return a
    return (a - b) / math.log(a / b)


def _log_ratio(a: float, b: float) -> float:
    return math.log(a / b) if a > 0 and b > 0 else 0.0
