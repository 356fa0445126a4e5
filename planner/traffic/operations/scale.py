"""A canonical distribution with other rates or other lengths."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from planner.errors import InputError, Problem, Problems
from planner.traffic.buckets import MAX_TOKENS
from planner.traffic.canonical import Canonical
from planner.traffic.canonical_tables import of_model, table_of, with_model
from planner.traffic.operations.multiples import exact, nearest, rounded_up, running
from planner.traffic.operations.scale_lengths import scale_lengths
from planner.traffic.schema import BURST, PREFIX, RATES

MOST = 1_000_000
"""Largest factor that is taken for one."""


class BurstRule(StrEnum):
    """What more traffic does to bursts."""

    KEEP = "keep"
    """Independent copies of the observed clients: the index of dispersion stays, as in requests."""
    AMPLIFY = "amplify"
    """Every client sends more in the same moments: the index of dispersion less one grows with the rate."""


@dataclass(frozen=True)
class Factors:
    """What to multiply for one model."""

    rate: float = 1.0
    prompt: float = 1.0
    output: float = 1.0


def scale(canonical: Canonical, factors: Mapping[str, Factors], burst: BurstRule = BurstRule.KEEP) -> Canonical:
    """The distribution with the rates and lengths of some models multiplied.

    Rates: minute counts are multiplied and rounded so that running totals are within half a request of the factor
    times the observed ones. The length law and the tail keep the observed requests: a higher rate is no more evidence.

    Lengths: a request's length becomes the nearest whole number to its multiple. This is exact for the largest totals,
    which are known one by one; of the other requests of a cell the sums are multiplied and rounded up, and maxima are
    multiplied. Cells keep their number and get the multiplied edges. The tail table keeps those rows that are surely
    the largest; it may be shorter than 1,000 when prompts and outputs have different factors.

    Parameters
    ----------
    canonical
        What to scale; with no factor but 1 it comes back as it is.
    factors
        By model; models that are not named stay.
    burst
        What a rate factor does to the index of dispersion.

    Raises
    ------
    InputError
        If a model is not there, a factor is no positive number, lengths become absurd, or no arrival remains.
    """
    _check(canonical, factors)
    work = {model: f for model, f in sorted(factors.items()) if f != Factors()}
    if not work:
        return canonical
    manifest = canonical.manifest
    found = canonical
    for model, wanted in work.items():
        found = _scaled(found, model, wanted, burst)
    return Canonical(
        manifest=manifest.model_copy(
            update={
                "caps": {m: _caps(sides, work.get(m, Factors())) for m, sides in manifest.caps.items()},
                "history": [*manifest.history, *(_history(model, f, burst) for model, f in work.items())],
                "remarks": [*manifest.remarks, *(line for m, f in work.items() for line in _remarks(m, f, burst))],
            }
        ),
        lengths=found.lengths,
        tail=found.tail,
        rates=found.rates,
        burst=found.burst,
        prefix=found.prefix,
    )


def _check(canonical: Canonical, factors: Mapping[str, Factors]) -> None:
    problems = Problems()
    for model, wanted in sorted(factors.items()):
        if model not in canonical.manifest.models:
            known = ", ".join(canonical.models())
            problems.add("--model", f"the distribution holds no model '{model}'", f"It holds: {known}")
            continue
        for name, value in (("rate", wanted.rate), ("prompt", wanted.prompt), ("output", wanted.output)):
            if not 1 / MOST <= value <= MOST:
                problems.add(f"{name} factor", f"{value!r} is not between {1 / MOST:g} and {MOST:,}", field=model)
        cells = of_model(canonical.lengths, model)
        for side, factor in (("prompt", wanted.prompt), ("output", wanted.output)):
            longest = (pc.max(cells[f"max_{side}"]).as_py() or 0) * (factor if math.isfinite(factor) else 0)
            if longest > MAX_TOKENS:
                what = f"makes lengths of {longest:,.0f} tokens, above {MAX_TOKENS:,}"
                problems.add(f"{side} factor", what, "Give a smaller factor", field=model)
    problems.raise_if_any()


def _scaled(canonical: Canonical, model: str, wanted: Factors, burst: BurstRule) -> Canonical:
    """The tables with one model scaled; the manifest as it was."""
    f = exact(wanted.rate), exact(wanted.prompt), exact(wanted.output)
    lengths, tail, prefix = canonical.lengths, canonical.tail, canonical.prefix
    if wanted.prompt != 1 or wanted.output != 1:
        lengths, tail = scale_lengths(canonical, model, f[1], f[2])
    rates = with_model(canonical.rates, model, scale_rates(of_model(canonical.rates, model), f[0], f[1], f[2]))
    bursts = with_model(canonical.burst, model, scale_burst(of_model(canonical.burst, model), wanted.rate, burst))
    if prefix is not None:
        prefix = with_model(prefix, model, _scale_prefix(of_model(prefix, model), f[1]))
    return Canonical(canonical.manifest, lengths, tail, rates, bursts, prefix)


def scale_rates(rates: pa.Table, rate: Fraction, prompt: Fraction, output: Fraction) -> pa.Table:
    """Minute counts and tokens of one model, multiplied; running totals are rounded, so that no error adds up.

    A minute that loses its last arrival is left out, and its tokens go to the next one.

    Raises
    ------
    InputError
        If no arrival remains.
    """
    counts = running(rates["n"].to_pylist(), rate)
    keep = [n > 0 for n in counts]
    if rates.num_rows and not any(keep):
        raise InputError(Problem("rate factor", "leaves no arrival in the whole window", "Give a larger factor"))
    columns: dict[str, Any] = {
        "model": [name for name, kept in zip(rates["model"].to_pylist(), keep, strict=True) if kept],
        "minute_utc": rates["minute_utc"].filter(pa.array(keep, type=pa.bool_())).combine_chunks(),
        "n": [n for n in counts if n > 0],
    }
    for name, factor in (("sum_prompt", rate * prompt), ("sum_output", rate * output)):
        columns[name] = running(rates[name].to_pylist(), factor, keep)
    return table_of(columns, RATES)


def scale_burst(burst: pa.Table, rate: float, rule: BurstRule) -> pa.Table:
    """Bursts of one model at ``rate`` times its arrivals.

    Kept: mean and variance grow alike. Amplified: the index of dispersion becomes ``1 + rate * (IDC - 1)``, as thinning
    makes it smaller. The largest count is multiplied where the rate grows, and stays where it falls: an upper bound.
    Batches stay as observed.
    """
    if rate == 1:
        return burst
    return pa.Table.from_pylist([_scale_row(row, rate, rule) for row in burst.to_pylist()], schema=BURST)


def _scale_row(row: dict[str, Any], rate: float, rule: BurstRule) -> dict[str, Any]:
    if row["kind"] != "window":
        return row
    mean, idc = row["mean_n"] * rate, row["idc"]
    if idc is not None and rule is BurstRule.AMPLIFY:
        idc = max(1 + rate * (idc - 1), 0.0)
    most = rounded_up(row["max_n"], exact(max(rate, 1.0)))
    return row | {"mean_n": mean, "idc": idc, "var_n": None if idc is None else idc * mean, "max_n": most}


def _scale_prefix(prefix: pa.Table, prompt: Fraction) -> pa.Table:
    rows = prefix.to_pylist()
    for row in rows:
        for name in ("sum_prompt", "sum_cached", "cache_tokens"):
            row[name] = None if row[name] is None else nearest(row[name], prompt)
    return pa.Table.from_pylist(rows, schema=PREFIX)


def _caps(sides: Mapping[str, Mapping[str, float]], wanted: Factors) -> dict[str, dict[str, float]]:
    factors = {"prompt": exact(wanted.prompt), "output": exact(wanted.output)}
    return {side: {**cap, "tokens": nearest(int(cap["tokens"]), factors[side])} for side, cap in sides.items()}


def _history(model: str, wanted: Factors, burst: BurstRule) -> str:
    found = {"rate": wanted.rate, "prompt": wanted.prompt, "output": wanted.output}
    changed = ", ".join(f"{name} x {value:.12g}" for name, value in found.items() if value != 1)
    return f"scale {model}: {changed}" + (f", bursts {burst.value}" if wanted.rate != 1 else "")


def _remarks(model: str, wanted: Factors, burst: BurstRule) -> list[str]:
    lines = []
    if wanted.rate != 1:
        why = {
            BurstRule.KEEP: "independent copies of the observed clients: the index of dispersion is the observed one",
            BurstRule.AMPLIFY: "the observed clients send more: the index of dispersion less one grows with the rate",
        }[burst]
        lines.append(f"{model}: rates were multiplied by {wanted.rate:.12g}, an assumption; {why}")
    if wanted.prompt != 1 or wanted.output != 1:
        lines.append(
            f"{model}: prompts were multiplied by {wanted.prompt:.12g}, outputs by {wanted.output:.12g}: an assumption"
        )
    return lines


def unsampled(canonical: Canonical) -> Canonical:
    """The whole traffic of which the log holds a random share ``p``: rates by ``1 / p``, bursts likewise.

    Thinning leaves ``IDC_p - 1 = p (IDC - 1)``, so that the index of dispersion of the whole follows.
    """
    fraction = canonical.manifest.sampling_fraction
    whole = scale(canonical, dict.fromkeys(canonical.models(), Factors(rate=1 / fraction)), BurstRule.AMPLIFY)
    return replace(whole, manifest=whole.manifest.model_copy(update={"sampling_fraction": 1.0}))


def to_rate(canonical: Canonical, rate_per_s: float, models: Sequence[str]) -> float:
    """The factor that brings the arrivals of the models together to a rate.

    Raises
    ------
    InputError
        If the rate is no positive number, or there are no arrivals.
    """
    if not 0 < rate_per_s < np.inf:
        raise InputError(Problem("rate", f"{rate_per_s!r} is no rate per second", "Give a number above 0"))
    manifest = canonical.manifest
    arrivals: int = sum(pc.sum(of_model(canonical.rates, model)["n"]).as_py() or 0 for model in models)
    if not arrivals:
        raise InputError(Problem("rate", "there are no arrivals to scale", field=", ".join(models)))
    return float(rate_per_s * manifest.window.seconds * manifest.sampling_fraction / arrivals)
