"""`load_traffic`: the canonical distribution of one model, from a canonical folder or straight from raw logs."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from planner.errors import InputError, Problem, Problems
from planner.traffic.aggregated import check_format
from planner.traffic.burstiness import state_idc
from planner.traffic.canonical import Canonical, digest, is_canonical, read, table_files
from planner.traffic.canonical_tables import floats, ints, law_of, of_model
from planner.traffic.coupling import coupling_note, coupling_of, lengths_to_plan
from planner.traffic.disk import usable
from planner.traffic.dropped import heavy_loss
from planner.traffic.grid import Span
from planner.traffic.ingest import Order, ingest, log_files
from planner.traffic.prompt_bursts import unsampled_bursts
from planner.traffic.readers.aliases import parse_aliases
from planner.traffic.readers.columns import OptionValue
from planner.traffic.schema import Coupling, Kind, Manifest
from planner.traffic.tables.definitions import BLOCK_S, MINUTE_US
from planner.traffic.types import Burst, Cap, IntArray, PromptBursts, Tail, Traffic

FILES_NAMED = 12
"""So many files of a log are named one by one."""


def load_traffic(
    path: Path,
    *,
    log_format: str = "auto",
    model: str = "",
    options: Mapping[str, OptionValue] | None = None,
    name: str,
    prompt_bursts: bool = False,
) -> Traffic:
    """Read one model's traffic.

    Parameters
    ----------
    path
        A canonical folder, a log file, or a folder of log files of one format.
    log_format
        ``auto``, or the name of a reader; a canonical folder has none.
    model
        The model inside the log; needed only where the log holds several.
    options
        ``map`` (``timestamp=ts,prompt=in,output=out``), ``alias`` (``alias=model,alias=model@2026-08-01,...``),
        ``tz``, and the options of the reader; for every source ``idc``, the index of dispersion at every scale, stated
        instead of measured; for histograms ``coupling`` (``comonotone`` or ``countermonotone``).
    name
        What the model is called from here on; empty for its name inside the log.
    prompt_bursts
        Whether to measure bursts by band of prompt lengths in raw logs, for pools by prompt length; a canonical folder
        has them if it was ingested so. Where an index of dispersion is stated, they are not used.

    Raises
    ------
    InputError
        If the source cannot be read, or the model is not in it or not the only one.
    """
    check_format(log_format)
    of_source = dict(options or {})
    stated_idc = _stated_idc(of_source.pop("idc", None))
    coupling = coupling_of(of_source.pop("coupling", None))
    with usable(path):
        if path.is_dir() and is_canonical(path):
            _check_canonical(path, log_format, of_source)
            canonical = read(path)
            sha256 = digest(table_files(path))
        else:
            canonical = ingest(_order(path, log_format, model, of_source, prompt_bursts=prompt_bursts))
            sha256 = canonical.manifest.files_sha256
    traffic = to_traffic(canonical, model=model, name=name, where=path, sha256=sha256, coupling=coupling)
    if path.is_dir() and is_canonical(path):
        traffic = replace(traffic, notes=(*traffic.notes, *assumed(canonical, model)))
    return traffic if stated_idc is None else _with_idc(traffic, stated_idc)


def assumed(canonical: Canonical, model: str) -> list[str]:
    """Of a folder that was merged, scaled or split: the remarks on this model and on all; they say what was assumed."""
    if not canonical.manifest.history:
        return []
    others = tuple(f"{other}: " for other in canonical.models() if other != model)
    return [remark for remark in canonical.manifest.remarks if not (model and remark.startswith(others))]


def _stated_idc(given: OptionValue | None) -> float | None:
    if given is None:
        return None
    try:
        idc = float(given)
    except ValueError:
        idc = math.nan
    if not 1 <= idc < math.inf:
        fix = "Give a number of at least 1; 1 is Poisson"
        raise InputError(Problem("traffic.options", f"{given!r} is no index of dispersion", fix, field="idc"))
    return idc


def _with_idc(traffic: Traffic, idc: float) -> Traffic:
    note = f"index of dispersion stated: {idc:.12g}"
    return replace(traffic, burst=state_idc(traffic.burst, idc), notes=(*traffic.notes, note), prompt_bursts=None)


def _check_canonical(folder: Path, log_format: str, options: Mapping[str, OptionValue]) -> None:
    problems = Problems()
    if log_format != "auto":
        problems.add(str(folder), f"a canonical folder has no format (given: {log_format})", "Leave format out")
    for name in options:
        fix = "Leave it out, or give it to planner ingest with the raw logs"
        problems.add(str(folder), "this option does nothing for a canonical folder", fix, field=name)
    problems.raise_if_any()


def _order(
    path: Path, log_format: str, model: str, options: Mapping[str, OptionValue], *, prompt_bursts: bool
) -> Order:
    own = {key: value for key, value in options.items() if key not in ("map", "alias", "tz")}
    return Order(
        files=log_files(path),
        log_format=log_format,
        model=model,
        mapping=parse_pairs("map", str(options.get("map", ""))),
        aliases=parse_aliases("alias", [str(options.get("alias", ""))]),
        time_zone=str(options.get("tz", "UTC")),
        options=own,
        prompt_bursts=prompt_bursts,
    )


def parse_pairs(where: str, text: str) -> dict[str, str]:
    """``a=b,c=d`` as a mapping.

    Raises
    ------
    InputError
        If a part is no pair or a key comes twice.
    """
    pairs: dict[str, str] = {}
    for part in (piece.strip() for piece in text.split(",") if piece.strip()):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not (key and equals and value):
            raise InputError(Problem(where, f"'{part}' is not of the form name=value"))
        if key in pairs:
            raise InputError(Problem(where, f"'{key}' is given twice"))
        pairs[key] = value
    return pairs


def to_traffic(
    canonical: Canonical, *, model: str, name: str, where: Path, sha256: str, coupling: Coupling | None = None
) -> Traffic:
    """One model out of a canonical distribution; of marginals with the largest load, unless a coupling is named.

    Raises
    ------
    InputError
        If the model is not in it or not the only one, or the distribution holds sums only.
    """
    inside = _choose(canonical, model, where)
    manifest = canonical.manifest
    window = manifest.window
    cells = lengths_to_plan(canonical, where, coupling)
    return Traffic(
        model=name or inside,
        law=law_of(of_model(cells, inside)),
        tail=_tail(of_model(canonical.tail, inside)),
        burst=_burst(of_model(canonical.burst, inside), manifest),
        minute_counts=_minutes(of_model(canonical.rates, inside), window, manifest.sampling_fraction),
        window_s=window.seconds,
        source=f"{manifest.source}: {_files(manifest.files)}",
        sha256=sha256,
        window_start_us=manifest.window_start_us,
        calendar_time=manifest.time_base == "UTC",
        sampling_fraction=manifest.sampling_fraction,
        marginals=manifest.kind is Kind.MARGINALS,
        caps=_caps(manifest.caps.get(inside, {})),
        notes=tuple(str(note) for note in _notes(canonical, coupling) if note),
        prompt_bursts=_prompt_bursts(canonical.prompt_burst, inside, manifest.sampling_fraction),
    )


def _files(names: Sequence[str]) -> str:
    """By name; of a quarter of daily files the first and the last."""
    if len(names) <= FILES_NAMED:
        return ", ".join(names)
    return f"{len(names):,} files, {names[0]} to {names[-1]}"


def _notes(canonical: Canonical, coupling: Coupling | None) -> list[str]:
    manifest = canonical.manifest
    return [*manifest.filters_applied, coupling_note(canonical, coupling), heavy_loss(manifest.counts)]


def _choose(canonical: Canonical, model: str, where: Path) -> str:
    models = canonical.models()
    if not model and len(models) == 1:
        return models[0]
    if model in models:
        return model
    shown = ", ".join(models[:20])
    if not model:
        raise InputError(Problem(str(where), "holds several models", f"Set model to one of: {shown}", field="model"))
    close = difflib.get_close_matches(model, models, n=1)
    fix = f"Did you mean '{close[0]}'?" if close else f"It holds: {shown}"
    raise InputError(Problem(str(where), f"holds no model '{model}'", fix, field="model"))


def _tail(table: pa.Table) -> Tail:
    return Tail(ints(table, "prompt"), ints(table, "output"), ints(table, "n"))


def _burst(table: pa.Table, manifest: Manifest) -> Burst:
    """Bursts of all requests: a random sample of a share p shows IDC − 1 p times as large as it is."""
    windows = table.filter(pc.equal(table["kind"], "window"))
    share, scale = manifest.sampling_fraction, floats(windows, "scale_s")
    mean = floats(windows, "mean_n") / share
    idc = np.maximum(1.0 + (floats(windows, "idc") - 1.0) / share, 0.0)
    # Counts are compared within one-hour blocks, each of which spends one degree of freedom on its own mean.
    blocks = np.ceil(manifest.window.seconds / BLOCK_S)
    freedom = np.maximum(floats(windows, "windows") - np.where(scale < BLOCK_S, blocks, 1.0), 1.0)
    return Burst(
        scale_s=scale,
        mean_n=mean,
        var_n=idc * mean,
        idc=idc,
        max_n=floats(windows, "max_n") / share,
        resolution_ok=np.asarray(windows["resolution_ok"].to_numpy(), dtype=np.bool_),
        poisson_sd=np.sqrt(2.0 / freedom) / share,
        resolution_s=manifest.ts_resolution_ms / 1000,
    )


def _prompt_bursts(table: pa.Table | None, model: str, share: float) -> PromptBursts | None:
    rows = None if table is None else of_model(table, model)
    if rows is None or not rows.num_rows:
        return None
    edges, scale = np.unique(ints(rows, "prompt_lo")), np.unique(floats(rows, "scale_s"))
    shape = (scale.size, edges.size, edges.size)
    ordered = rows.sort_by([(name, "ascending") for name in ("scale_s", "prompt_lo", "other_lo")])
    mean = floats(ordered, "mean_n").reshape(shape)[:, :, 0]
    return unsampled_bursts(edges, scale, mean, floats(ordered, "covariance").reshape(shape), share)


def _minutes(table: pa.Table, window: Span, share: float) -> IntArray:
    """Dense counts per minute over the window; the first and last minute may be only partly observed.

    A log that holds a share of the requests is scaled up to all of them, minute by minute, to whole requests.
    """
    first, last = window.start_us // MINUTE_US, (window.end_us - 1) // MINUTE_US
    counts = np.zeros(last - first + 1, dtype=np.int64)
    minutes = table["minute_utc"].cast(pa.int64()).to_numpy() // MINUTE_US
    counts[minutes - first] = np.rint(ints(table, "n") / share)
    return counts


def _caps(found: Mapping[str, Mapping[str, float]]) -> tuple[Cap, ...]:
    return tuple(
        Cap(side=side, tokens=int(cap["tokens"]), requests=int(cap["n"]), share=float(cap["share"]))
        for side, cap in sorted(found.items(), reverse=True)
    )
