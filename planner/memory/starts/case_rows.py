"""Rows of a table of cases as starts: which columns are read, and how.

Four tables are known by their header: start-up logs (and breakdowns, failures and SGLang logs), figures of vLLM's
planning code, of its weights, and of SGLang's. Columns that hold answers are not read unless they are named as given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache

from planner import units
from planner.errors import InputError, Problem
from planner.memory.starts.case_texts import number, stated_flags, stated_memory, whole, yes
from planner.memory.types import Deployment, GivenTerms, KvDtype, SglangFlags, Speculative, VllmFlags, WeightDtype

Row = Mapping[str, str]


class CaseTable(StrEnum):
    """What kind of table the rows come from."""

    LOGS = "start-up logs"
    VLLM = "vLLM's planning code"
    WEIGHTS = "vLLM's weights"
    SGLANG = "SGLang's planning code"


class Given(StrEnum):
    """Logged terms that may be taken as known."""

    WEIGHTS = "weights"
    AVAILABLE = "available"


GIVEN_COLUMNS: Mapping[Given, tuple[str, ...]] = {
    Given.WEIGHTS: ("weights_gib_per_gpu", "weights_gib"),
    Given.AVAILABLE: ("available_kv_gib_per_gpu", "available_kv_gib", "available_gib"),
}


@dataclass(frozen=True)
class Case:
    """One start as the row states it.

    Attributes
    ----------
    version, gpu, weights, kv
        As written; read by the rules of `planner.memory.starts.case_texts` and `planner.catalog.lookup.lookup`.
    gpu_mib, gpu_capability
        A GPU known by these alone (``gpu`` is then empty).
    visible_gib
        Memory that the GPU shows, where the row states it: it varies with the driver and with ECC.
    constructed
        Weights are asked for as the engine creates the parameters, before it loads and repacks them.
    planning_only
        The engine's planning code is asked, which sees neither the model's modules nor its weights.
    share_unknown
        The row does not say which share of memory the engine was given, nor that it is the default.
    length_open
        The row does not say which ``max_model_len`` a start that is known to have succeeded had.
    deployment
        Numbers and flags; its formats are placeholders until the model is known, and ``tp`` is 0 where it is not given.
    """

    model: str
    config_file: str
    engine: str
    version: str
    gpu: str
    weights: str
    kv: str
    deployment: Deployment
    given: GivenTerms
    gpu_mib: int = 0
    gpu_capability: str = ""
    visible_gib: float | None = None
    constructed: bool = False
    planning_only: bool = False
    share_unknown: bool = False
    length_open: bool = False


def table_of(header: Sequence[str]) -> CaseTable:
    """The table that a header belongs to.

    Raises
    ------
    InputError
        If it is none of them.
    """
    columns = set(header)
    if "sglang_version" in columns:
        return CaseTable.SGLANG
    if {"hf_id", "available_bytes_per_gpu"} <= columns:
        return CaseTable.VLLM
    if {"hf_id", "vllm_version"} <= columns:
        return CaseTable.WEIGHTS
    if {"model", "gpu", "tp"} <= columns:
        return CaseTable.LOGS
    missing = ", ".join(name for name in ("model", "gpu", "tp") if name not in columns)
    shown = ", ".join(header)
    fix = (
        "A table of starts needs model, gpu and tp; others (version, max_model_len, …) may stand beside them. "
        "The oracle tables are known by hf_id with vllm_version, or sglang_version"
    )
    message = f"is that of no table of cases: of a table of starts it lacks {missing} (it has {shown:.120})"
    raise InputError(Problem("header", message, fix))


def read_case(table: CaseTable, row: Row, given: frozenset[Given] = frozenset(), engine: str = "") -> Case:
    """A row as a case.

    Parameters
    ----------
    given
        Logged terms that are taken as known; no other logged figure is read.
    engine
        Engine of a row that names none.

    Raises
    ------
    InputError
        If a cell cannot be read.
    """
    return READERS[table](row, given, engine or "vllm")


def _log_case(row: Row, given: frozenset[Given], engine: str) -> Case:
    """A row of a start-up log table; settings also stand in the free texts ``flags`` and ``notes``."""
    flags = _flags(f"{row.get('flags', '')}; {row.get('notes', '')}; {row.get('model', '')}")
    kv = _first(row, "kv_dtype", "kv_cache") or flags.get("kv_dtype", "")
    settings = {
        "max_model_len": _first(row, "max_model_len", "context_len"),
        "max_num_seqs": _first(row, "max_num_seqs"),
        "max_num_batched_tokens": _first(row, "max_num_batched_tokens", "chunked_prefill_size"),
        "utilization": _first(row, "gpu_memory_utilization", "utilization", "mem_fraction_static"),
        "pp": _first(row, "pp"),
    }
    flags = flags | {name: text for name, text in settings.items() if text}
    deployment = deployment_of(whole(row.get("tp", ""), "tp") or 0, flags)
    parallel = whole(flags.get("dp") or row.get("dp", ""), "dp") or 1
    return Case(
        model=_first(row, "hf_id", "model"),
        config_file=row.get("config_file", ""),
        engine=row.get("engine") or ("sglang" if "mem_fraction_static" in row else engine),
        version=row.get("version", ""),
        gpu=row.get("gpu", ""),
        visible_gib=stated_memory(f"{row.get('total_gib', '')}) {row.get('gpu', '')} {row.get('gpu_mem_note', '')}"),
        weights=_first(row, "weight_quant", "quant", "weights") or flags.get("quantization", ""),
        kv=kv,
        deployment=replace(
            deployment,
            enforce_eager=yes(row.get("enforce_eager", "")) or deployment.enforce_eager,
            attention_dp=parallel if "enable_dp_attention" in flags else 1,
        ),
        given=GivenTerms(
            weights_gib=_given(row, Given.WEIGHTS, given), available_gib=_given(row, Given.AVAILABLE, given)
        ),
        share_unknown="utilization" not in flags and not row.get("failure_kind") and not _default_share(row),
        length_open=deployment.max_model_len is None and not row.get("failure_kind"),
    )


def _default_share(row: Row) -> bool:
    return bool(yes(next((text for name, text in row.items() if name.startswith("util_is_default")), "")))


def _vllm_case(row: Row, given: frozenset[Given], engine: str) -> Case:
    """A row of vLLM's planning code: the available bytes are an input; a length that was refused is the one asked."""
    length = row.get("max_model_len") or row.get("max_model_len_requested", "")
    settings = {
        "max_model_len": "" if length == "model_max" else length,
        "max_num_seqs": row.get("max_num_seqs", ""),
        "max_num_batched_tokens": row.get("max_num_batched_tokens", ""),
    }
    available = number(row.get("available_bytes_per_gpu", ""), "available_bytes_per_gpu")
    deployment = deployment_of(whole(row.get("tp", ""), "tp") or 0, {k: v for k, v in settings.items() if v})
    return Case(
        model=row["hf_id"],
        config_file=row.get("config_file", ""),
        engine="vllm",
        version=row.get("vllm_version", ""),
        gpu=row.get("gpu") or ORACLE_GPU,
        weights="",
        kv=row.get("kv_cache_dtype", ""),
        deployment=replace(deployment, prefix_caching=yes(row.get("prefix_caching", ""))),
        given=GivenTerms(available_gib=None if available is None else units.bytes_to_gib(available)),
    )


def _weights_case(row: Row, given: frozenset[Given], engine: str) -> Case:
    """A row of vLLM's weights: parameters as created, of the language model alone where this release can."""
    return Case(
        model=row["hf_id"],
        config_file=row.get("config_file", ""),
        engine="vllm",
        version=row.get("vllm_version", ""),
        gpu=row.get("gpu") or ORACLE_GPU,
        weights=row.get("quantization", ""),
        kv="",
        deployment=deployment_of(whole(row.get("tp", ""), "tp") or 0, {"language_model_only": "y"}),
        given=GivenTerms(),
        constructed=True,
    )


def _sglang_case(row: Row, given: frozenset[Given], engine: str) -> Case:
    """A row of SGLang's planning code: free memory before and after the weights is an input.

    Flags are those of ``extra_args``; a table without that column states them in columns of their own, where
    ``chunked_prefill_size`` is what one of ``dp`` attention ranks has.
    """
    dp = whole(row.get("dp", ""), "dp") or 1
    parallel = dp if yes(row.get("enable_dp_attention", "")) else 1
    flags = dict(_flags(row["extra_args"])) if "extra_args" in row else _stated_settings(row, parallel)
    if yes(row.get("mem_fraction_given", "")) and row.get("mem_fraction_static"):
        flags["utilization"] = row["mem_fraction_static"]
    deployment = deployment_of(whole(row.get("tp", ""), "tp") or 0, flags)
    return Case(
        model=row["hf_id"],
        config_file=row.get("config_file", ""),
        engine="sglang",
        version=row.get("sglang_version", ""),
        gpu="",
        gpu_mib=whole(row.get("gpu_mem_mib", ""), "gpu_mem_mib") or 0,
        gpu_capability=row.get("gpu_cc", ""),
        weights="",
        kv=row.get("kv_cache_dtype", ""),
        deployment=replace(deployment, attention_dp=parallel),
        given=GivenTerms(
            free_before_weights_gib=number(row.get("pre_model_load_gib", ""), "pre_model_load_gib"),
            free_after_weights_gib=number(row.get("available_gib_after_weights", ""), "available_gib_after_weights"),
        ),
        planning_only=True,
    )


ORACLE_GPU = "H100 80GB HBM3"
"""The GPU of oracle rows that name none."""

READERS: Mapping[CaseTable, Callable[[Row, frozenset[Given], str], Case]] = {
    CaseTable.LOGS: _log_case,
    CaseTable.VLLM: _vllm_case,
    CaseTable.WEIGHTS: _weights_case,
    CaseTable.SGLANG: _sglang_case,
}

_flags = lru_cache(maxsize=4096)(stated_flags)


def _first(row: Row, *columns: str) -> str:
    return next((text for name in columns if (text := row.get(name, ""))), "")


def _given(row: Row, term: Given, given: frozenset[Given]) -> float | None:
    if term not in given:
        return None
    return next((x for name in GIVEN_COLUMNS[term] if (x := number(row.get(name, ""), name)) is not None), None)


def _stated_settings(row: Row, parallel: int) -> dict[str, str]:
    """Settings of a SGLang row in columns of their own."""
    named = {"page_size": "page_size", "max_model_len": "context_length", "cuda_graph_max_bs": "cuda_graph_max_bs"}
    flags = {name: row[column] for name, column in named.items() if row.get(column)}
    chunk = whole(row.get("chunked_prefill_size", ""), "chunked_prefill_size")
    return flags if chunk is None else flags | {"max_num_batched_tokens": str(max(-1, chunk * parallel))}


def deployment_of(tp: int, flags: Mapping[str, str]) -> Deployment:
    """Numbers and switches; formats are placeholders."""
    return _cached_deployment(tp, tuple(sorted(flags.items())))


@lru_cache(maxsize=4096)
def _cached_deployment(tp: int, items: tuple[tuple[str, str], ...]) -> Deployment:
    flags = dict(items)
    on = flags.__contains__
    steps = _count(flags, "speculative_tokens") or (1 if on("mtp") else None)
    chunked = flags.get("max_num_batched_tokens") != UNCHUNKED
    uncached = on("no_prefix_caching") or on("disable_radix_cache")
    return Deployment(
        tp=tp,
        weight_dtype=WeightDtype.BF16,
        kv_dtype=KvDtype.BF16,
        max_model_len=_count(flags, "max_model_len"),
        max_num_seqs=_count(flags, "max_num_seqs"),
        max_num_batched_tokens=_count(flags, "max_num_batched_tokens") if chunked else None,
        gpu_memory_utilization=number(flags.get("utilization", ""), "utilization"),
        pp=_count(flags, "pp") or 1,
        dcp=_count(flags, "dcp") or 1,
        expert_parallel=on("expert_parallel"),
        enforce_eager=on("enforce_eager") or on("disable_cuda_graph"),
        prefix_caching=False if uncached else on("prefix_caching") or None,
        speculative=Speculative(flags.get("speculative_algorithm", "mtp").lower(), steps) if steps else None,
        vllm=VllmFlags(
            block_size_tokens=_count(flags, "block_size"),
            language_model_only=on("language_model_only"),
            offline=on("offline"),
            flashinfer_sampler=on("flashinfer_sampler") or (False if on("no_flashinfer_sampler") else None),
            max_cudagraph_capture_size=_count(flags, "max_cudagraph_capture_size"),
            dtype="" if flags.get("dtype", "auto") == "auto" else flags["dtype"].lower(),
            mamba_cache_mode=flags.get("mamba_cache_mode"),
            mamba_ssm_cache_dtype=_SHORT_NAMES.get(flags.get("mamba_ssm_dtype", ""), flags.get("mamba_ssm_dtype")),
            attention_backend=flags.get("attention_backend", ""),
        ),
        sglang=SglangFlags(
            page_size_tokens=_count(flags, "page_size"),
            chunked_prefill=chunked,
            cuda_graph_max_batch=_count(flags, "cuda_graph_max_bs"),
            disable_overlap_schedule=on("disable_overlap_schedule"),
            max_total_tokens=_count(flags, "max_total_tokens"),
            swa_full_tokens_ratio=number(flags.get("swa_full_tokens_ratio", ""), "swa_full_tokens_ratio"),
            mamba_full_memory_ratio=number(flags.get("mamba_full_memory_ratio", ""), "mamba_full_memory_ratio"),
            mamba_ssm_dtype=flags.get("mamba_ssm_dtype"),
            max_mamba_cache_size=_count(flags, "max_mamba_cache_size"),
            enable_multimodal=on("enable_multimodal"),
            language_only=on("language_only"),
            attention_backend=flags.get("attention_backend", ""),
            unified_memory=on("unified_memory"),
        ),
    )


_SHORT_NAMES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}
UNCHUNKED = "-1"
"""SGLang's ``--chunked-prefill-size`` for a prompt in one piece."""


def _count(flags: Mapping[str, str], name: str) -> int | None:
    return whole(flags.get(name, ""), name)
