"""A case whose names are all found: the model, the GPU, the engine's facts, the formats."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, replace
from functools import lru_cache

from planner import units
from planner.catalog.engine import EngineFacts
from planner.catalog.gpu import Gpu
from planner.catalog.lookup.lookup import Lookup
from planner.catalog.lookup.names import Named
from planner.catalog.model_shape import ModelShape
from planner.errors import InputError, Problem
from planner.memory.kv import auto_kv
from planner.memory.loading import as_constructed, loading_of
from planner.memory.size import MODELLED_DTYPES, stored_dtype
from planner.memory.starts.case_rows import Case
from planner.memory.starts.case_texts import AUTO_KV, kv_format, stated_date, stated_version, weight_format
from planner.memory.types import Deployment, GivenTerms, WeightDtype
from planner.memory.weights import weight_bytes


@dataclass(frozen=True)
class Start:
    """A case whose names are all found: what `size` takes.

    Attributes
    ----------
    gpu
        ``None`` where it is not known; ``unknown_gpu`` then says so.
    notes
        What was read instead of what is written.
    assumed
        As in `Answer`.
    length_open, planning_only
        As in `Case`.
    """

    shape: ModelShape
    gpu: Gpu | None
    facts: EngineFacts
    deployment: Deployment
    given: GivenTerms
    notes: tuple[str, ...] = ()
    unknown_gpu: InputError | None = None
    assumed: tuple[str, ...] = ()
    length_open: bool = False
    planning_only: bool = False


def start_of(case: Case, lookup: Lookup) -> Start:
    """Find everything that the case names.

    Raises
    ------
    InputError
        If the model, the engine or a format is not known, or ``tp`` is not given.
    """
    facts, version_note = _facts(case.engine, case.version, lookup)
    named = lookup.model(case.model, case.config_file)
    weights, weights_note = _weights(case, named)
    asked, kv_name = _kv(case.kv)
    if not case.deployment.tp:
        raise InputError(Problem("case", "tp is not given"))
    deployment = replace(
        case.deployment,
        weight_dtype=weights,
        kv_dtype=asked or auto_kv(named.found, facts),
        kv_cache_dtype_name=kv_name if asked else AUTO_KV,
    )
    open_share = case.share_unknown and case.given.available_gib is None
    share_note = "the memory share is not given: the engine's default is assumed" if open_share else ""
    notes = tuple(filter(None, (*named.notes, version_note, weights_note, share_note)))
    assumed = ("utilization",) if open_share else ()
    if case.version and not _version(case.version)[0]:
        assumed = ("version", *assumed)
    try:
        gpu = Named(lookup.gpu_of_size(case.gpu_mib, case.gpu_capability)) if case.gpu_mib else lookup.gpu(case.gpu)
    except InputError as error:
        return Start(
            named.found, None, facts, deployment, case.given, notes, error, ("GPU", *assumed), case.length_open
        )
    given = case.given
    if case.visible_gib is not None and given.gpu_memory_gib is None:
        given = replace(given, gpu_memory_gib=case.visible_gib)
    if case.constructed:
        loading = as_constructed(facts, loading_of(facts, deployment, gpu.found))
        given = replace(given, weights_gib=units.bytes_to_gib(weight_bytes(named.found, weights, loading).total))
    assumed = ("GPU", *assumed) if gpu.sibling else assumed
    return Start(
        named.found,
        gpu.found,
        facts,
        deployment,
        given,
        (*notes, *gpu.notes),
        assumed=assumed,
        length_open=case.length_open,
        planning_only=case.planning_only,
    )


_kv = lru_cache(maxsize=1024)(kv_format)


def _facts(engine: str, version: str, lookup: Lookup) -> tuple[EngineFacts, str]:
    """Facts of the engine; a fork (``vllm-ascend``) is read as the engine it forks."""
    name = engine.split("-", 1)[0].strip().lower()
    facts, note = lookup.engine(name, *_version(version))
    fork = f"{engine} is read as {name}" if name != engine.strip().lower() else ""
    return facts, "; ".join(filter(None, (fork, note)))


@lru_cache(maxsize=4096)
def _version(text: str) -> tuple[str, dt.date | None]:
    stated = stated_version(text)
    return stated, None if stated else stated_date(text)


def _weights(case: Case, named: Named[ModelShape]) -> tuple[WeightDtype, str]:
    """The format to load, and a note.

    As stored where the checkpoint is quantised, else what the row states; the model's name where a relative stands in,
    whose config says nothing of the format: that can only be read where the bytes of the weights do not matter.

    Raises
    ------
    InputError
        If the bytes of the format are not modelled and the row's question depends on them.
    """
    shape = named.found
    needless = case.given.weights_gib is not None or case.given.available_gib is not None
    text = named.weights or case.weights or (case.model if named.sibling else "")
    stated, dtype = weight_format(text)
    unmodelled = InputError(Problem(shape.id, f"weights as {text!r:.40} are not modelled"))
    if stated and dtype is None:
        raise unmodelled
    if shape.native_weight_dtype == WeightDtype.BF16:
        return dtype or WeightDtype.BF16, ""
    other = named.sibling and stated and dtype != shape.native_weight_dtype
    if other and not needless:
        raise InputError(Problem(shape.id, f"is stored as {shape.native_weight_dtype}, not as {text!r:.40}"))
    if other or (needless and shape.native_weight_dtype not in MODELLED_DTYPES):
        return dtype or WeightDtype.BF16, f"the bytes of {text!r:.40} weights are not predicted"
    return stored_dtype(shape), ""
