"""What all splits share: models taken out, and parts of one window put together."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from planner.errors import Problems
from planner.traffic.canonical import Canonical
from planner.traffic.canonical_tables import in_order, largest_totals, table_of
from planner.traffic.operations.merge_bursts import burst_order
from planner.traffic.operations.multiples import running
from planner.traffic.schema import BURST, RATES


def chosen_models(canonical: Canonical, models: Iterable[str]) -> list[str]:
    """The models that are asked for, or all.

    Raises
    ------
    InputError
        If a model is not there.
    """
    wanted = list(dict.fromkeys(models)) or list(canonical.models())
    problems = Problems()
    for model in wanted:
        if model not in canonical.manifest.models:
            known = ", ".join(canonical.models())
            problems.add("--model", f"the distribution holds no model '{model}'", f"It holds: {known}")
    problems.raise_if_any()
    return wanted


def without_models(canonical: Canonical, gone: Sequence[str]) -> Canonical:
    """The distribution without some models."""
    left = pa.array([model for model in canonical.models() if model not in gone], type=pa.string())
    tables = {name: t.filter(pc.is_in(t["model"], value_set=left)) for name, t in canonical.tables().items()}
    kept = {model: n for model, n in canonical.manifest.models.items() if model not in gone}
    caps = {model: sides for model, sides in canonical.manifest.caps.items() if model not in gone}
    return Canonical(canonical.manifest.model_copy(update={"models": kept, "caps": caps}), **tables)


def together(canonical: Canonical, parts: Sequence[Canonical], what: str, remarks: Sequence[str]) -> Canonical:
    """Parts of one window as one distribution."""
    manifest = canonical.manifest
    named = {name for part in parts for name in part.tables()}
    order = {"rates": ("model", "minute_utc"), "prefix": ("model", "kind", "hour_of_week", "cache_tokens")}
    tables = {
        name: pa.concat_tables([part.tables()[name] for part in parts if name in part.tables()]) for name in named
    }
    tables["lengths"] = in_order(tables["lengths"])
    tables["tail"] = largest_totals(tables["tail"])
    for name, keys in order.items():
        if name in tables:
            tables[name] = tables[name].sort_by([(key, "ascending") for key in keys]).combine_chunks()
    rows = sorted(tables["burst"].to_pylist(), key=burst_order)
    tables["burst"] = pa.Table.from_pylist(rows, schema=BURST)
    update = {
        "models": dict(sorted((model, n) for part in parts for model, n in part.manifest.models.items())),
        "caps": dict(sorted((model, sides) for part in parts for model, sides in part.manifest.caps.items())),
        "history": [*manifest.history, what],
        "remarks": list(dict.fromkeys([*manifest.remarks, *remarks])),
    }
    return Canonical(manifest.model_copy(update=update), **tables)


Band = tuple[Fraction, Fraction]
"""A share of a whole, as a stretch of the unit interval."""


def bands_of(amounts: Sequence[int]) -> list[Band]:
    """The amounts as stretches of their sum, one after the other."""
    total = max(sum(amounts), 1)
    ends = list(itertools.accumulate(amounts, initial=0))
    return [(Fraction(low, total), Fraction(high, total)) for low, high in itertools.pairwise(ends)]


def rates_of_band(rates: pa.Table, name: str, bands: Sequence[Band]) -> pa.Table:
    """The minute counts, prompt and output tokens of one model that fall to a band of each, under a new name.

    They are differences of rounded multiples, so that the bands of a whole add up to it in every minute.
    """
    columns: dict[str, Any] = {}
    for column, (start, end) in zip(("n", "sum_prompt", "sum_output"), bands, strict=True):
        low, high = (running(rates[column].to_pylist(), point) for point in (start, end))
        columns[column] = [b - a for a, b in zip(low, high, strict=True)]
    keep = [any(row) for row in zip(*columns.values(), strict=True)]
    columns = {c: [v for v, kept in zip(values, keep, strict=True) if kept] for c, values in columns.items()}
    columns["minute_utc"] = rates["minute_utc"].filter(pa.array(keep, type=pa.bool_()))
    columns["model"] = [name] * len(columns["n"])
    return table_of(columns, RATES)
