"""The start that a start-up log describes, as a case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath, PureWindowsPath

from planner.catalog.load import Catalog
from planner.errors import InputError, Problem
from planner.memory.starts.case_rows import Case, deployment_of
from planner.memory.starts.case_texts import whole
from planner.memory.starts.log_patterns import FLASHINFER_SAMPLER
from planner.memory.starts.startup_log import StartupLog
from planner.memory.types import Deployment, GivenTerms
from planner.plan import Pool


@dataclass(frozen=True)
class Overrides:
    """What the user knows better than the log; empty or ``None`` where it is as logged."""

    model: str = ""
    gpu: str = ""
    version: str = ""
    tp: int | None = None


def case_of(log: StartupLog, catalog: Catalog, overrides: Overrides) -> tuple[Case, tuple[str, ...]]:
    """The start that a log describes, and what was inferred; its GPU is empty where it cannot be told.

    Raises
    ------
    InputError
        If the log names no model and none is given.
    """
    model = overrides.model or model_name(log.model)
    if not model:
        raise InputError(Problem("--model", "is missing: the log names no model", "Give the id of the model"))
    gpu, note = (overrides.gpu, "") if overrides.gpu else _gpu_of(log, catalog)
    case = Case(
        model=model,
        config_file="",
        engine=log.engine,
        version=overrides.version or log.version or log.day,
        gpu=gpu,
        weights=log.setting("quantization"),
        kv=log.setting("kv_cache_dtype"),
        deployment=_deployment(log, overrides.tp or _tp_of(log)),
        given=GivenTerms(),
    )
    return case, (note,) if note else ()


def _tp_of(log: StartupLog) -> int:
    """The degree that is stated, else as many ranks as the log shows."""
    ranks = max((int(r.rank[2:]) + 1 for r in log.ranks if r.rank[:2] == "TP" and r.rank[2:].isdigit()), default=1)
    return whole(log.setting("tensor_parallel_size", "tp_size"), "tp") or ranks


def _deployment(log: StartupLog, tp: int) -> Deployment:
    """Settings as stated, else as the engine resolved them."""
    flags = {ours: text for ours, theirs in SETTINGS.items() if (text := log.setting(*theirs))}
    flags |= {ours: "y" for ours, theirs in SWITCHES.items() if log.setting(*theirs) == "True"}
    if log.setting(FLASHINFER_SAMPLER) == "False":
        flags["no_flashinfer_sampler"] = "y"
    for name in ("max_num_batched_tokens", "max_model_len"):
        if name in log.figures:
            flags.setdefault(name, str(int(log.figures[name])))
    share = log.figure("utilization")
    if share is not None:
        flags.setdefault("utilization", str(share))
    parallel = whole(log.setting("dp_size", "data_parallel_size"), "dp") or 1
    caching = log.setting("enable_prefix_caching")
    return replace(
        deployment_of(tp, flags),
        attention_dp=parallel if log.setting("enable_dp_attention") == "True" else 1,
        prefix_caching=caching == "True" if caching else None,
    )


SETTINGS: Mapping[str, tuple[str, ...]] = {
    "max_model_len": ("max_model_len", "max_seq_len", "context_length"),
    "max_num_seqs": ("max_num_seqs", "max_running_requests"),
    "max_num_batched_tokens": ("max_num_batched_tokens", "chunked_prefill_size"),
    "utilization": ("gpu_memory_utilization", "mem_fraction_static"),
    "pp": ("pipeline_parallel_size", "pp_size"),
    "dcp": ("decode_context_parallel_size",),
    "block_size": ("block_size",),
    "page_size": ("page_size",),
    "cuda_graph_max_bs": ("cuda_graph_max_bs", "cuda_graph_max_bs_decode"),
    "max_total_tokens": ("max_total_tokens",),
    "swa_full_tokens_ratio": ("swa_full_tokens_ratio",),
    "mamba_full_memory_ratio": ("mamba_full_memory_ratio",),
    "mamba_ssm_dtype": ("mamba_ssm_dtype",),
    "attention_backend": ("attention_backend",),
}
SWITCHES: Mapping[str, tuple[str, ...]] = {
    "enforce_eager": ("enforce_eager",),
    "expert_parallel": ("enable_expert_parallel",),
    "flashinfer_sampler": (FLASHINFER_SAMPLER,),
    "language_model_only": ("language_model_only",),
    "disable_radix_cache": ("disable_radix_cache",),
    "disable_cuda_graph": ("disable_cuda_graph",),
    "disable_overlap_schedule": ("disable_overlap_schedule",),
}


def model_name(text: str) -> str:
    """The id that a path ends in: its last two parts, or the hub's ``models--org--name`` folder."""
    parts = (PureWindowsPath(text) if "\\" in text else PurePosixPath(text)).parts
    hub = next((part for part in parts if part.startswith("models--")), "")
    if hub:
        return hub.removeprefix("models--").replace("--", "/", 1)
    named = [part for part in parts if part not in ("/", "~", ".")]
    return "/".join(named[-2:])


def _gpu_of(log: StartupLog, catalog: Catalog) -> tuple[str, str]:
    """The card that the log names, else the one whose visible memory is nearest the logged total; else empty.

    Of two that show the same, the one with the faster link between GPUs, which is the commoner in servers.
    """
    if log.gpu:
        return log.gpu, ""
    total = log.figure("total")
    if total is None:
        return "", ""
    cards = [gpu for gpu in catalog.gpus.values() if gpu.memory_visible_gib is not None]
    nearest = min(cards, key=lambda gpu: (abs(gpu.visible_memory_gib - total), -(gpu.interconnect_gb_s or 0.0)))
    if abs(nearest.visible_memory_gib - total) > SAME_MEMORY * total:
        return "", f"no card of the catalogue shows {total:g} GiB"
    return nearest.id, f"GPU inferred from its {total:g} GiB: {nearest.id}"


def completed(overrides: Overrides, log: StartupLog, pools: Sequence[Pool]) -> Overrides:
    """What the log leaves open as the plan has it, where all its pools that may be meant agree.

    A pool may be meant if its model has the log's name after the organisation: a log often shows a path.
    """
    model = overrides.model or model_name(log.model)
    meant = [pool for pool in pools if not model or _last(pool.weights) == _last(model)]
    models, gpus = {pool.weights for pool in meant}, {pool.gpu for pool in meant}
    logged = bool(log.gpu) or log.figure("total") is not None
    return replace(
        overrides,
        model=model or (models.pop() if len(models) == 1 else ""),
        gpu=overrides.gpu or (gpus.pop() if len(gpus) == 1 and not logged else ""),
    )


def _last(name: str) -> str:
    return name.rsplit("/", 1)[-1].casefold()


SAME_MEMORY = 0.005
"""Share by which one card's visible memory differs between drivers."""
