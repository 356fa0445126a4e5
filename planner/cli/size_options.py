"""Options of `planner size`, and the deployment and typed terms that they make."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Literal

import typer

from planner import units
from planner.errors import InputError, Problem, Problems
from planner.memory.types import (
    Deployment,
    GivenTerms,
    KvDtype,
    LoraAdapters,
    SglangFlags,
    Speculative,
    VllmFlags,
    WeightDtype,
)

Count = int | None
Gib = float | None


def _option(help_text: str, *names: str, metavar: str | None = "N") -> typer.models.OptionInfo:
    return typer.Option(*names, metavar=metavar, help=help_text)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class SizeOptions:
    """What was typed."""

    model: Annotated[str, typer.Argument(help="Catalogue id, or path of a Hugging Face config.json.")] = ""
    gpu: Annotated[str, _option("GPU id, such as H100-SXM.", metavar="ID")] = ""
    tp: Annotated[int, _option("Tensor-parallel degree.")] = 1
    pp: Annotated[int, _option("Pipeline-parallel degree.")] = 1
    expert_parallel: Annotated[
        bool, _option("Divide routed experts whole among ranks.", "--expert-parallel", "--ep", metavar=None)
    ] = False
    dcp: Annotated[int, _option("Decode-context-parallel degree (vLLM).")] = 1
    dp_attention: Annotated[int, _option("Data-parallel degree of attention (SGLang).")] = 1
    weights: Annotated[
        WeightDtype | None, _option(f"Weight format: {', '.join(WeightDtype)}. Default as stored.", metavar="TYPE")
    ] = None
    kv: Annotated[Literal["auto", "bf16", "fp8"], _option("KV-cache format: auto, bf16, fp8.", metavar="TYPE")] = "auto"
    engine: Annotated[Literal["vllm", "sglang"], _option("vllm or sglang.", metavar="NAME")] = "vllm"
    engine_version: Annotated[str, _option("Default the newest in the catalogue.", metavar="VERSION")] = ""
    utilization: Annotated[
        float | None, _option("gpu_memory_utilization (SGLang: mem_fraction_static).", metavar="X")
    ] = None
    max_model_len: Annotated[Count, _option("Longest request, tokens.")] = None
    max_num_batched_tokens: Annotated[Count, _option("Tokens per step (SGLang: chunked_prefill_size).")] = None
    max_num_seqs: Annotated[Count, _option("Concurrent sequences (SGLang: max_running_requests).")] = None
    no_prefix_caching: Annotated[
        bool, _option("Without prefix caching (SGLang: radix cache).", "--no-prefix-caching", metavar=None)
    ] = False
    enforce_eager: Annotated[bool, _option("Without CUDA graphs.", "--enforce-eager", metavar=None)] = False
    language_model_only: Annotated[bool, _option("Load no vision tower.", "--language-model-only", metavar=None)] = (
        False
    )
    block_size: Annotated[Count, _option("Tokens of a cache block (vLLM).")] = None
    page_size: Annotated[Count, _option("Tokens of a cache page (SGLang).")] = None
    cuda_graph_max_batch: Annotated[Count, _option("Largest batch of a decode graph (SGLang).")] = None
    max_total_tokens: Annotated[Count, _option("Most tokens of the pool (SGLang).")] = None
    speculative: Annotated[
        str, _option("Speculative decoding: mtp, eagle or draft, and its tokens a step.", metavar="METHOD:N")
    ] = ""
    lora: Annotated[str, _option("LoRA adapters kept on the GPU, and their largest rank.", metavar="N:RANK")] = ""
    draft_model: Annotated[str, _option("The other model of --speculative draft:N.", metavar="ID")] = ""
    cpu_offload_gib: Annotated[float, _option("Weights of each GPU kept in host memory (vLLM).", metavar="X")] = 0.0
    kv_offload_gib: Annotated[
        float, _option("Host memory for blocks that leave the pool, all ranks together (vLLM).", metavar="X")
    ] = 0.0
    prefix_hit_share: Annotated[
        float | None, _option("Measured share of prompt tokens found in the cache, 0 to 1.", metavar="X")
    ] = None
    attention_backend: Annotated[str, _option("Attention backend, as the engine names it.", metavar="NAME")] = ""
    dtype: Annotated[str, _option("Precision of the model: bfloat16 or float16 (vLLM).", metavar="NAME")] = ""
    host_memory_gib: Annotated[
        float | None, _option("Memory of the machine, for the swap space of older vLLM.", metavar="X")
    ] = None
    weights_gib: Annotated[Gib, _option("Weights per GPU, instead of the prediction.", metavar="X")] = None
    overhead_gib: Annotated[
        Gib, _option("All that is neither weights nor pool, per GPU, instead of the prediction.", metavar="X")
    ] = None
    available_gib: Annotated[
        Gib, _option("What is left for the KV cache, as the engine logs it, instead of the subtraction.", metavar="X")
    ] = None
    gpu_memory_gib: Annotated[Gib, _option("GPU memory, instead of the catalogue's.", metavar="X")] = None
    gpu_memory_mib: Annotated[
        Gib, _option("As --gpu-memory-gib, in MiB, as nvidia-smi prints it (81559 on an H100).", metavar="X")
    ] = None
    weights_gb: Annotated[Gib, _option("As --weights-gib, in GB (10**9 bytes).", metavar="X")] = None
    overhead_gb: Annotated[Gib, _option("As --overhead-gib, in GB.", metavar="X")] = None
    gpu_memory_gb: Annotated[Gib, _option("As --gpu-memory-gib, in GB.", metavar="X")] = None
    calibration: Annotated[
        Path | None, _option("Terms measured by `planner check-log --calibrate`, used first.", metavar="FILE")
    ] = None
    as_json: Annotated[bool, _option("Print JSON.", "--json", metavar=None)] = False
    cases: Annotated[
        Path | None, _option("Answer a table of cases instead: start-up logs or oracle rows.", metavar="FILE")
    ] = None
    output: Annotated[Path | None, _option("Where --cases writes.", "-o", "--output", metavar="FILE")] = None
    given: Annotated[str, _option("Logged terms that --cases takes as known: weights, available.", metavar="TERMS")] = (
        ""
    )
    models: Annotated[
        Path | None, _option("Folder of further configs (org--name.json) for --cases.", metavar="DIR")
    ] = None
    score: Annotated[bool, _option("Print the errors of --cases against its columns.", "--score", metavar=None)] = False
    score_by: Annotated[
        str, _option("Group --score by family, gpu, version, assumed, model (with commas).", metavar="WHAT")
    ] = ""
    score_into: Annotated[
        Path | None, _option("Put tables of the errors between the marks of a Markdown file.", metavar="FILE")
    ] = None


ONLY_WITH_CASES = ("output", "given", "models", "score", "score_by", "score_into")
WITH_BOTH = ("cases", "engine")
_TYPED_AS = {"model": "MODEL", "as_json": "--json"}
_ENGINE_OF = {
    **dict.fromkeys(("block_size", "cpu_offload_gib", "kv_offload_gib", "dtype", "host_memory_gib"), "vllm"),
    **dict.fromkeys(("dp_attention", "page_size", "cuda_graph_max_batch", "max_total_tokens"), "sglang"),
}
"""Options that only one engine has."""


def check_together(asked: SizeOptions) -> None:
    """Whether every option that was typed has an effect: those of one sizing have none on a table, and the reverse.

    Raises
    ------
    InputError
        Naming each that has none.
    """
    problems = Problems()
    for field in fields(asked):
        of_cases = field.name in ONLY_WITH_CASES
        useless = of_cases == (asked.cases is None) and field.name not in WITH_BOTH
        if useless and getattr(asked, field.name) != field.default:
            option = _TYPED_AS.get(field.name, f"--{field.name.replace('_', '-')}")
            message = "has no effect without --cases" if of_cases else "has no effect with --cases: its rows say it"
            problems.add(option, message, "Leave it out")
        other = _ENGINE_OF.get(field.name, asked.engine)
        if other != asked.engine and getattr(asked, field.name) != field.default:
            problems.add(f"--{field.name.replace('_', '-')}", f"is an option of {other}, not of {asked.engine}")
    problems.raise_if_any()


TYPED_WITH: Mapping[str, str] = {
    "tp": "--tp",
    "pp": "--pp",
    "dcp": "--dcp",
    "attention_dp": "--dp-attention",
    "max_model_len": "--max-model-len",
    "max_num_seqs": "--max-num-seqs",
    "max_num_batched_tokens": "--max-num-batched-tokens",
    "utilization": "--utilization",
    "block_size_tokens": "--block-size",
    "page_size_tokens": "--page-size",
    "cuda_graph_max_batch": "--cuda-graph-max-batch",
    "max_total_tokens": "--max-total-tokens",
    "available_gib": "--available-gib",
}
"""Option that a field of the deployment is typed with."""


def deployment_of(asked: SizeOptions, problems: Problems) -> Deployment:
    """The deployment; formats that are not typed are placeholders until the model is known."""
    speculative = problems.attempt(lambda: _draft(asked))
    problems.attempt(lambda: _in_range(asked))
    lora = problems.attempt(lambda: _pair("--lora", asked.lora))
    adapters = problems.attempt(lambda: _whole("--lora", lora[0])) if lora else None
    return Deployment(
        tp=asked.tp,
        pp=asked.pp,
        dcp=asked.dcp,
        attention_dp=asked.dp_attention,
        expert_parallel=asked.expert_parallel,
        weight_dtype=asked.weights or WeightDtype.BF16,
        kv_dtype=KvDtype.BF16,
        max_model_len=asked.max_model_len,
        max_num_seqs=asked.max_num_seqs,
        max_num_batched_tokens=asked.max_num_batched_tokens,
        gpu_memory_utilization=asked.utilization,
        prefix_caching=False if asked.no_prefix_caching else None,
        enforce_eager=asked.enforce_eager,
        speculative=speculative,
        lora=LoraAdapters(adapters, lora[1]) if lora and adapters else None,
        vllm=VllmFlags(
            block_size_tokens=asked.block_size,
            language_model_only=asked.language_model_only,
            attention_backend=asked.attention_backend,
            dtype=asked.dtype,
            cpu_offload_gib=asked.cpu_offload_gib,
            kv_offload_gib=asked.kv_offload_gib,
            host_memory_gib=asked.host_memory_gib,
        ),
        sglang=SglangFlags(
            page_size_tokens=asked.page_size,
            cuda_graph_max_batch=asked.cuda_graph_max_batch,
            max_total_tokens=asked.max_total_tokens,
            language_only=asked.language_model_only,
            attention_backend=asked.attention_backend,
        ),
    )


DRAFT_METHODS = ("mtp", "eagle", "draft")


def _draft(asked: SizeOptions) -> Speculative | None:
    """Speculative decoding as typed; the draft model itself is looked up in the catalogue later."""
    typed = _pair("--speculative", asked.speculative)
    if typed is None:
        if asked.draft_model:
            raise InputError(Problem("--draft-model", "needs --speculative draft:N", "Say how many tokens it drafts"))
        return None
    if typed[0] not in DRAFT_METHODS:
        methods = ", ".join(DRAFT_METHODS)
        raise InputError(Problem("--speculative", f"{typed[0]!r:.20} is no method", f"Choose one of {methods}"))
    if (typed[0] == "draft") != bool(asked.draft_model):
        message = "draft needs --draft-model" if typed[0] == "draft" else f"{typed[0]} takes no --draft-model"
        raise InputError(Problem("--speculative", message, "Write --speculative draft:3 --draft-model ID"))
    return Speculative(*typed)


def _in_range(asked: SizeOptions) -> None:
    """Whether the optional terms are in range."""
    problems = Problems()
    for option, gib in (("--cpu-offload-gib", asked.cpu_offload_gib), ("--kv-offload-gib", asked.kv_offload_gib)):
        if not 0 <= gib <= MOST_OPTION_GIB:
            problems.add(option, f"must be from 0 to {MOST_OPTION_GIB:,} GiB (got {gib:g})")
    if asked.host_memory_gib is not None and not 0 < asked.host_memory_gib <= MOST_OPTION_GIB:
        problems.add("--host-memory-gib", f"must be above 0 and at most {MOST_OPTION_GIB:,} GiB")
    if asked.dtype not in DTYPES:
        problems.add("--dtype", f"{asked.dtype!r:.40} is no precision", "Choose bfloat16 or float16")
    if asked.prefix_hit_share is not None and not 0 <= asked.prefix_hit_share < 1:
        problems.add("--prefix-hit-share", f"must be from 0 to below 1 (got {asked.prefix_hit_share:g})")
    problems.raise_if_any()


MOST_OPTION_GIB = 1_000_000
DTYPES = ("", "auto", "bfloat16", "float16", "half", "float32")


def _pair(option: str, text: str) -> tuple[str, int] | None:
    """``WORD:N``; ``None`` where nothing is typed."""
    if not text:
        return None
    word, _, number = text.partition(":")
    return word.strip().lower(), _whole(option, number)


def _whole(option: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text[:10]) < MOST):
        raise InputError(Problem(option, f"{text!r:.20} is no whole number above 0", "Write it like mtp:3 or 4:16"))
    return int(text)


MOST = 2**31


TO_GIB: Mapping[str, Callable[[float], float]] = {
    "gib": lambda gib: gib,
    "gb": units.gb_to_gib,
    "mib": units.mib_to_gib,
}


def given_of(asked: SizeOptions, typed_with: dict[str, str], problems: Problems) -> GivenTerms:
    """Typed terms in GiB; ``typed_with`` learns which option each was typed with."""
    memory = {"gib": asked.gpu_memory_gib, "gb": asked.gpu_memory_gb, "mib": asked.gpu_memory_mib}
    weights = {"gib": asked.weights_gib, "gb": asked.weights_gb}
    overhead = {"gib": asked.overhead_gib, "gb": asked.overhead_gb}
    return GivenTerms(
        gpu_memory_gib=_gib("gpu_memory_gib", memory, typed_with, problems),
        weights_gib=_gib("weights_gib", weights, typed_with, problems),
        overhead_gib=_gib("overhead_gib", overhead, typed_with, problems),
        available_gib=asked.available_gib,
    )


def _gib(field: str, typed: Mapping[str, float | None], typed_with: dict[str, str], problems: Problems) -> float | None:
    """The term in GiB, typed in one of several units."""
    stem = field.removesuffix("_gib").replace("_", "-")
    values = {unit: value for unit, value in typed.items() if value is not None}
    names = [f"--{stem}-{unit}" for unit in values]
    if len(names) > 1:
        problems.add(names[-1], f"cannot be given together with {' and '.join(names[:-1])}", "Keep one of them")
    if not values:
        return None
    typed_with[field] = names[0]
    unit, value = next(iter(values.items()))
    gib = TO_GIB[unit](value)
    return gib if math.isfinite(gib) else value  # out of range either way, and shown as typed
