"""Rules that a degree of parallelism must follow: what is divided among ranks divides evenly, or the engine refuses.

Every function returns refusals and never raises.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from planner.catalog.engine import EngineFacts
from planner.catalog.matrix import Matrix, Part, Split
from planner.catalog.model_shape import ModelShape, StateKind, StateLayers
from planner.memory.tensors import VOCABULARY_PADDING, padded
from planner.memory.types import Deployment, Refusal

LOWER_TP = "Use a tensor-parallel degree that divides it"
DEGREES = (1, 2, 4, 8, 16)
"""Degrees that a fix may name."""


def heads_divide(shape: ModelShape, tp: int) -> list[Refusal]:
    """``heads % tp == 0``, and KV heads must split or replicate evenly (vllm/config/model.py, asserts of the models).

    KV heads of every kind of layer count; a latent has one, which is replicated.
    """
    found = []
    degrees = [degree for degree in DEGREES if degree != tp and fits_heads(shape, degree)]
    fix = f"Use a tensor-parallel degree of {', '.join(str(d) for d in degrees)}" if degrees else "Use TP 1"
    if shape.attention_heads % tp:
        message = (
            f"Total number of attention heads ({shape.attention_heads}) must be divisible by "
            f"tensor parallel size ({tp})"
        )
        found.append(Refusal("attention heads % tp", message, fix))
    for heads in kv_heads(shape):
        if heads % tp and tp % heads:
            message = f"{heads} KV heads neither divide by nor into tensor parallel size {tp}"
            found.append(Refusal("KV heads % tp", message, fix))
    return found


def fits_heads(shape: ModelShape, tp: int) -> bool:
    """Whether attention and KV heads allow the degree."""
    return not shape.attention_heads % tp and not any(heads % tp and tp % heads for heads in kv_heads(shape))


@lru_cache(maxsize=4096)
def kv_heads(shape: ModelShape) -> tuple[int, ...]:
    """The different numbers of KV heads of the layers; none where a latent is cached."""
    if shape.has_latent_cache:
        return ()
    layers = (layer.kv_heads for layer in shape.cache_layers if layer.value_dim)
    return tuple(sorted({shape.kv_heads, *layers} - {0}))


def states_divide(shape: ModelShape, facts: EngineFacts, tp: int, *, quantised: bool) -> list[Refusal]:
    """Heads of recurrent layers must divide among ranks; groups of Mamba-2 too, unless there is one.

    With quantised weights older releases want even one group to divide (vllm/model_executor/layers/mamba,
    mamba_mixer2.py; ``divide`` of the others; python/sglang/srt/layers/attention/mamba/mamba.py).
    """
    strict = quantised and (facts.name == "sglang" or facts.vllm.quantised_groups_divide)
    messages = (_state_message(layers, tp, strict=strict) for layers in shape.state_layers)
    return [Refusal("state heads % tp", message, LOWER_TP) for message in messages if message]


def _state_message(layers: StateLayers, tp: int, *, strict: bool) -> str:
    if layers.kind is StateKind.SHORT_CONVOLUTION:
        uneven = layers.conv_channels % tp
        return f"{layers.conv_channels} is not divisible by {tp} (channels of the short convolution)" if uneven else ""
    if layers.heads % tp:
        return f"Tensor parallel world size must divide num heads ({layers.heads} {layers.kind} heads, TP {tp})"
    if layers.kind is StateKind.MAMBA2 and layers.groups % tp:
        if layers.groups > 1:
            return (
                "If tensor parallel world size does not divide num_groups, then num_groups must equal 1 "
                f"({layers.groups} groups, TP {tp})"
            )
        if strict:
            return (
                "Tensor parallel currently supported for quantized models only if tensor parallel world size divides "
                f"num groups ({layers.groups} group, TP {tp})"
            )
    return ""


def widths_divide(shape: ModelShape, deployment: Deployment) -> list[Refusal]:
    """Widths of dense and expert MLPs must divide among ranks.

    Dense: ``divide`` (vllm/distributed/utils.py). Experts: ``intermediate_size % tp`` (fused_moe), unless they are
    divided whole (expert parallelism).
    """
    tp = deployment.tp
    if tp == 1:
        return []
    return [
        Refusal("expert width % tp" if expert else "MLP width % tp", message, LOWER_TP)
        for expert, message in _uneven_widths(shape, tp, deployment.expert_parallel)
    ]


@lru_cache(maxsize=4096)
def _uneven_widths(shape: ModelShape, tp: int, expert_parallel: bool) -> tuple[tuple[bool, str], ...]:
    found: dict[tuple[bool, int], str] = {}
    for expert, width, name in _widths(shape):
        if width % tp == 0 or (expert and expert_parallel):
            continue
        what = "expert width" if expert else f"width of {name}"
        found.setdefault((expert, width), f"{what} {width} is not divisible by tensor parallel size {tp}")
    return tuple((expert, message) for (expert, _), message in found.items())


def _widths(shape: ModelShape) -> Iterator[tuple[bool, int, str]]:
    if not shape.matrices:
        if shape.is_moe:
            yield True, shape.moe_intermediate_size, "experts"
        return
    for matrix in shape.matrices:
        if matrix.part in (Part.MLP, Part.SHARED_EXPERTS, Part.EXPERTS) and matrix.in_features > 1:
            width = split_size(matrix)
            if width:
                yield matrix.part is Part.EXPERTS, width, matrix.module


def split_size(matrix: Matrix) -> int:
    """The side that ranks divide; 0 where none is."""
    if matrix.split is Split.COLUMN:
        return matrix.out_features
    return matrix.in_features if matrix.split is Split.ROW else 0


def vocabulary_divides(shape: ModelShape, facts: EngineFacts, tp: int) -> list[Refusal]:
    """The vocabulary, padded to a multiple of 64, must divide (vocab_parallel_embedding.py); SGLang pads further."""
    rows = padded(shape.vocab_size, VOCABULARY_PADDING)
    if facts.name != "vllm" or not rows % tp:
        return []
    return [Refusal("vocabulary % tp", f"{rows} is not divisible by {tp} (rows of the embedding, padded)", LOWER_TP)]


def context_parallel(shape: ModelShape, facts: EngineFacts, deployment: Deployment) -> list[Refusal]:
    """Decode context parallelism: ``tp % dcp == 0``; without a latent also ``dcp <= tp / KV heads`` and its heads.

    Sliding windows are not divided by tokens. Source: vllm/config/parallel.py, vllm/config/model.py
    (``verify_with_parallel_config``), vllm/v1/kv_cache_interface.py; SGLang has ``--dcp-size`` of the same meaning.
    """
    if deployment.dcp == 1:
        return []
    message = _context_parallel_message(shape, facts, deployment.tp, deployment.dcp)
    return [Refusal("decode context parallelism", message, "Use a smaller degree, or none")] if message else []


def _context_parallel_message(shape: ModelShape, facts: EngineFacts, tp: int, dcp: int) -> str:
    heads = max(kv_heads(shape), default=0)
    if tp % dcp:
        return f"tp_size={tp} must be divisible by dcp_size={dcp}"
    if facts.name == "vllm" and any(layers.window_tokens is not None for layers in shape.cache_layers):
        return "DCP not support sliding window"
    if not heads:
        return ""
    queries = shape.attention_heads // heads
    checks = (
        (
            facts.name == "vllm" and not facts.vllm.context_parallel_for_groups,
            f"only MLA supports decode context parallelism in {facts.name} {facts.version}",
        ),
        (
            tp <= heads,
            f"Decode context parallelism for GQA/MQA requires `--tensor-parallel-size` ({tp}) to be greater than "
            f"the model's total number of KV heads ({heads})",
        ),
        (
            dcp > tp // heads,
            f"`--decode-context-parallel-size` ({dcp}) exceeds the maximum supported value ({tp // heads}) for "
            f"`--tensor-parallel-size` ({tp}) and {heads} model KV heads",
        ),
        (
            queries % dcp != 0,
            f"The model's number of query heads per KV head ({queries}) must be divisible by "
            f"`--decode-context-parallel-size` ({dcp}) for GQA/MQA",
        ),
    )
    return next((message for refused, message in checks if refused), "")


def experts_present(shape: ModelShape, deployment: Deployment) -> list[Refusal]:
    """Expert parallelism needs experts (vllm/config/model.py, ``_verify_with_expert_parallelism``)."""
    if not deployment.expert_parallel or shape.is_moe:
        return []
    message = "Number of experts in the model must be greater than 0 when expert parallelism is enabled"
    return [Refusal("expert parallelism", message, "Leave out --enable-expert-parallel")]


def pipeline_allowed(shape: ModelShape, facts: EngineFacts, deployment: Deployment) -> list[Refusal]:
    """Pipeline stages: the architecture must support them, and each stage needs a layer."""
    if deployment.pp == 1:
        return []
    rule, fix = "pipeline parallelism", "Use tensor parallelism instead"
    if facts.name == "vllm" and shape.architecture in facts.vllm.no_pipeline:
        message = (
            "Pipeline parallelism is not supported for this model. "
            "Supported models implement the `SupportsPP` interface"
        )
        return [Refusal(rule, message, fix)]
    if deployment.pp > shape.num_layers:
        return [Refusal(rule, f"{shape.num_layers} layers cannot fill {deployment.pp} pipeline stages", fix)]
    return []


def lora_allowed(shape: ModelShape, facts: EngineFacts, deployment: Deployment) -> list[Refusal]:
    """LoRA: the architecture must support it, ranks come from a list, one adapter at least (vllm/config/lora.py)."""
    lora = deployment.lora
    if lora is None or facts.name != "vllm":
        return []
    found, rules = [], facts.vllm
    if shape.architecture in rules.no_lora:
        message = (
            f"LoRA is not supported for {shape.architecture} ({shape.id}). "
            "Supported models implement the `SupportsLoRA` interface"
        )
        found.append(Refusal("LoRA", message, "Run this model without --enable-lora, or use another engine version"))
    if lora.max_rank not in rules.lora_ranks:
        message = f"max_lora_rank ({lora.max_rank}) must be one of {rules.lora_ranks}"
        higher = [rank for rank in rules.lora_ranks if rank > lora.max_rank]
        found.append(Refusal("LoRA rank", message, f"Use {higher[0] if higher else rules.lora_ranks[-1]}"))
    if shape.architecture in rules.lora_tables and shape.vocab_size > rules.lora_most_vocabulary:
        message = f"When using LoRA, vocab size must be <= {rules.lora_most_vocabulary} (got {shape.vocab_size})"
        found.append(Refusal("LoRA", message, "Run this model without --enable-lora"))
    if shape.is_moe and deployment.expert_parallel and rules.lora_experts and not rules.lora_with_expert_parallel:
        message = "EP support for Fused MoE LoRA is not implemented yet"
        found.append(Refusal("LoRA", message, "Leave out --enable-expert-parallel or --enable-lora"))
    if lora.max_loras < 1:
        found.append(Refusal("LoRA", f"max_loras ({lora.max_loras}) must be >= 1", "Set --max-loras to at least 1"))
    return found
