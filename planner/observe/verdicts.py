"""Observed against planned, figure by figure: the report of `planner watch`, in types and in words."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator, Sequence
from enum import StrEnum

from planner import units
from planner.observe.expected import Expected, allowed_preemptions_per_s, quantile_requests, quantile_usage
from planner.observe.explain import Assumption, Band, Explained
from planner.observe.metrics import Figure, MetricName, names_of
from planner.observe.observed import Observed
from planner.observe.tracks import STARTED
from planner.plan import Frozen, Pool
from planner.units import MS_PER_S

WAITING = 1.0
"""Requests that may wait at a replica on average: the plan holds every request as it comes, and an engine looks for
new ones once a step."""


class Verdict(StrEnum):
    """Where a figure lies."""

    WITHIN = "within"
    ABOVE = "above"
    BELOW = "below"
    MISSING = "missing"
    UNPLANNED = "not planned"
    """The plan states nothing to compare it with."""


class Row(Frozen):
    """One figure."""

    figure: str
    unit: str
    observed: float | None
    low: float | None
    """Least and most that the plan allows, before the tolerance; ``None``: no such limit."""
    high: float | None
    verdict: Verdict
    assumption: bool
    """Whether the plan assumes it; otherwise it follows from what is assumed."""
    effect: float | None = None
    """Its part of ln(observed / planned KV usage)."""
    words: str = ""
    """What is off, in a sentence."""

    @property
    def off(self) -> bool:
        """Whether it lies outside of what the plan allows."""
        return self.verdict in (Verdict.ABOVE, Verdict.BELOW)


class PoolWatch(Frozen):
    """One pool."""

    pool: str
    model: str
    period: str
    rows: tuple[Row, ...]
    off: tuple[str, ...]
    """What is off in words: assumptions first, the one that explains most before others."""
    missing: tuple[str, ...]
    """Metrics that were not found, by name."""
    deviation: float | None
    """ln(observed / planned KV usage)."""
    unexplained: float | None
    """The part of it that no assumption explains."""
    notes: tuple[str, ...]


class Watch(Frozen):
    """A fleet against its plan."""

    run_id: str
    title: str
    start: dt.datetime | None
    end: dt.datetime | None
    tolerance: float
    pools: tuple[PoolWatch, ...]
    notes: tuple[str, ...]

    @property
    def within(self) -> bool:
        """Whether nothing that was seen is off."""
        return not any(pool.off for pool in self.pools)


_SOURCES = {
    Assumption.DEMAND: (Figure.REQUESTS,),
    Assumption.REPLICAS: (Figure.RUNNING,),
    Assumption.PROMPTS: (Figure.PROMPT_LENGTH, Figure.PROMPT_TOKENS),
    Assumption.OUTPUTS: (Figure.OUTPUT_LENGTH, Figure.OUTPUT_TOKENS),
    Assumption.DECODE: (Figure.TPOT, Figure.TOKEN_GAP),
    Assumption.TTFT: (Figure.TTFT,),
    Assumption.POOL: (Figure.POOL,),
    Assumption.CACHE: (Figure.CACHE_HITS, Figure.CACHE_QUERIES),
    "live requests": (Figure.RUNNING,),
    "KV cache in use": (Figure.KV_USAGE,),
    "waiting": (Figure.WAITING,),
    "preemptions": (Figure.PREEMPTIONS,),
    "output tokens": (Figure.OUTPUT_TOKENS,),
}

_RATES = (Assumption.DEMAND, "preemptions", "output tokens")
"""Figures that are counts over time."""


def rows_of(pool: Pool, plan: Expected, seen: Observed, why: Explained, tolerance: float) -> tuple[Row, ...]:
    """Every figure of a pool: what the plan assumes, then what follows."""
    return tuple(_assumed(plan, seen, why, tolerance)) + tuple(_following(pool, plan, seen, tolerance))


def _assumed(plan: Expected, seen: Observed, why: Explained, tolerance: float) -> Iterator[Row]:
    figures: tuple[tuple[Assumption, str, float | None], ...] = (
        (Assumption.DEMAND, "requests/s", seen.rate_per_s),
        (Assumption.REPLICAS, "replicas", seen.replicas),
        (Assumption.PROMPTS, "tokens", seen.prompt_tokens),
        (Assumption.OUTPUTS, "tokens", seen.output_tokens),
        (Assumption.DECODE, "ms per token", seen.tpot_s),
        (Assumption.TTFT, f"ms, P{100 * plan.ttft_percentile:g}", seen.ttft_s),
        (Assumption.POOL, "of the planned size", seen.pool_ratio),
        (Assumption.CACHE, "share", seen.cached_share),
    )
    for name, unit, value in figures:
        band = why.bands.get(name)
        slack = 0.0 if name is Assumption.REPLICAS else tolerance
        verdict = _verdict(value, band, slack)
        in_ms = name in (Assumption.DECODE, Assumption.TTFT)
        row = _row(name, unit, value, band, verdict, why.effects.get(name, 0.0), MS_PER_S if in_ms else 1)
        yield row.model_copy(update={"words": assumption_words(name, value, band)}) if row.off else row


def _following(pool: Pool, plan: Expected, seen: Observed, tolerance: float) -> Iterator[Row]:
    full, most = quantile_usage(pool, plan.live_ratio), quantile_requests(pool, plan.live_ratio)
    figures: tuple[tuple[str, str, float | None, Band | None], ...] = (
        ("live requests", "requests a replica", seen.live_requests, Band(0.0, most)),
        ("KV cache in use", "share", seen.kv_usage, Band(0.0, full)),
        ("waiting", "requests a replica", seen.waiting, Band(0.0, WAITING)),
        ("preemptions", "per s", seen.preemptions_per_s, Band(0.0, allowed_preemptions_per_s(pool))),
        ("output tokens", "tokens/s", seen.output_tokens_per_s, None),
    )
    for name, unit, value, band in figures:
        verdict = _verdict(value, band, tolerance)
        row = _row(name, unit, value, band, verdict, None)
        said = f"{name}: {value:.4g} {unit} where the plan has at most {band.high:.4g}" if row.off and band else ""
        yield row.model_copy(update={"words": said})


def _row(
    name: str,
    unit: str,
    value: float | None,
    band: Band | None,
    verdict: Verdict,
    effect: float | None,
    scale: float = 1.0,
) -> Row:
    """A row whose figures are shown in a unit ``scale`` times as fine."""
    low = None if band is None else band.low * scale
    high = None if band is None or not math.isfinite(band.high) else band.high * scale
    return Row(
        figure=str(name),
        unit=unit,
        observed=None if value is None else value * scale,
        low=low,
        high=high,
        verdict=verdict,
        assumption=isinstance(name, Assumption),
        effect=effect,
    )


def _verdict(value: float | None, band: Band | None, tolerance: float) -> Verdict:
    if value is None:
        return Verdict.MISSING
    if band is None:
        return Verdict.UNPLANNED
    wide = band.widened(tolerance)
    if wide.holds(value):
        return Verdict.WITHIN
    return Verdict.ABOVE if value > wide.high else Verdict.BELOW


def assumption_words(name: Assumption, value: float | None, band: Band | None) -> str:
    """What is off with an assumption, in a sentence."""
    if value is None or band is None:
        return ""
    planned = band.nearest(value)
    if name is Assumption.REPLICAS:
        missing = round(planned - value)
        if missing > 0:
            return f"{missing} of {planned:.0f} planned replicas {'is' if missing == 1 else 'are'} missing"
        return f"{value:.0f} replicas run where {planned:.0f} are planned"
    if not planned > 0:
        return f"{name}: {value:.4g} where the plan has none"
    change = abs(value / planned - 1.0)
    more, less = _CHANGES[name]
    said = more if value > planned else less
    form = "{:.4g} where the plan has {:.4g}"
    if name in (Assumption.DECODE, Assumption.TTFT):
        value, planned = units.s_to_ms(value), units.s_to_ms(planned)
        form = "{:,.4g} ms where the plan has {:,.4g}"
    return f"{said.format(change=f'{change:.0%}')} ({form.format(value, planned)})"


_CHANGES = {
    Assumption.DEMAND: ("demand is {change} above the planning rate", "demand is {change} below the planned mean"),
    Assumption.PROMPTS: ("prompts are {change} longer than planned", "prompts are {change} shorter than planned"),
    Assumption.OUTPUTS: ("outputs are {change} longer than planned", "outputs are {change} shorter than planned"),
    Assumption.DECODE: (
        "a token takes {change} longer than the plan has at this load",
        "a token takes {change} less than the best case of the plan at this load",
    ),
    Assumption.TTFT: ("first tokens come {change} later than planned", "first tokens come {change} sooner"),
    Assumption.POOL: ("the KV cache is {change} larger than planned", "the KV cache is {change} smaller than planned"),
    Assumption.CACHE: ("cache hits are {change} more than planned", "cache hits are {change} fewer than planned"),
}


def off_words(rows: Sequence[Row]) -> tuple[str, ...]:
    """What is off: assumptions by what each explains, then what follows from none of them."""
    off = [row for row in rows if row.off]
    assumed = sorted((row for row in off if row.assumption), key=lambda row: (-abs(row.effect or 0.0), row.figure))
    return tuple(row.words for row in (*assumed, *(row for row in off if not row.assumption)))


def missing_names(
    pool: Pool, rows: Sequence[Row], names: Sequence[MetricName], seconds: float | None
) -> tuple[str, ...]:
    """Metrics without which a figure is not known, as this pool's release calls them.

    Parameters
    ----------
    seconds
        Time over which counters counted; where it is not known, rates are not.
    """
    found: dict[str, None] = {}
    for row in rows:
        if row.verdict is Verdict.MISSING:
            options = [n for f in _SOURCES[row.figure] for n in names_of(names, pool.engine, pool.engine_version, f)]
            exported = " or ".join(options) if options else f"not exported by {pool.engine} {pool.engine_version}"
            rate = row.figure in _RATES and seconds is None and bool(options)
            needs = f"{exported}: two scrapes, or one with its time and {STARTED}" if rate else exported
            found[f"{row.figure} ({needs})"] = None
    return tuple(found)
