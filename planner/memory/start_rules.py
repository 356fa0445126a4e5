"""Rules that make an engine refuse to start, each with the engine's own reason and a fix.

Every function returns refusals and never raises; `size` puts them together.
"""

from __future__ import annotations

from planner.catalog.engine import EngineFacts
from planner.catalog.gpu import Gpu
from planner.catalog.model_shape import AttentionFamily, ModelShape
from planner.memory.types import Deployment, KvDtype, Refusal, WeightDtype


def heads_divide(shape: ModelShape, tp: int) -> list[Refusal]:
    """``heads % tp == 0``, and KV heads must split or replicate evenly (vllm/config, models' own asserts)."""
    found = []
    degrees = _fitting_degrees(shape, tp)
    fix = f"Use a tensor-parallel degree of {', '.join(str(d) for d in degrees)}" if degrees else "Use TP 1"
    if shape.attention_heads % tp:
        message = (
            f"Total number of attention heads ({shape.attention_heads}) must be divisible by "
            f"tensor parallel size ({tp})"
        )
        found.append(Refusal("attention heads % tp", message, fix))
    latent = shape.family is AttentionFamily.MLA
    if not latent and shape.kv_heads % tp and tp % shape.kv_heads:
        message = f"{shape.kv_heads} KV heads neither divide by nor into tensor parallel size {tp}"
        found.append(Refusal("KV heads % tp", message, fix))
    return found


def _fitting_degrees(shape: ModelShape, tp: int) -> list[int]:
    latent = shape.family is AttentionFamily.MLA
    return [
        degree
        for degree in (1, 2, 4, 8, 16)
        if degree != tp
        and shape.attention_heads % degree == 0
        and (latent or shape.kv_heads % degree == 0 or degree % shape.kv_heads == 0)
    ]


def quantised_shares_divide(shape: ModelShape, deployment: Deployment, *, fp8_moe_block_checked: bool) -> list[Refusal]:
    """Blocks and groups of a quantised checkpoint must divide each rank's share of a matrix.

    fp8 blocks: expert width / tp (gate and up by rows, down by columns when split), dense MLP width / tp.
    int4 groups: the split dimension of row-parallel matrices.
    """
    tp, found = deployment.tp, []
    stored = shape.native_weight_dtype == deployment.weight_dtype
    if deployment.weight_dtype is WeightDtype.FP8 and stored and shape.weight_block:
        block_n, block_k = shape.weight_block
        shares = []
        if shape.is_moe and fp8_moe_block_checked:
            shares.append(("routed experts", shape.moe_intermediate_size))
        if shape.shared_expert_intermediate_size:
            shares.append(("shared experts", shape.shared_expert_intermediate_size))
        if shape.num_moe_layers < shape.num_layers:
            shares.append(("dense MLP", shape.intermediate_size))
        for name, width in shares:
            if (tp > 1 or name == "routed experts") and (width % tp or (width // tp) % max(block_n, block_k)):
                message = (
                    f"The output_size of gate's and up's weight = {width // tp} is not divisible by "
                    f"weight quantization block_n = {block_n} ({name}: {width} / {tp})"
                )
                found.append(Refusal("fp8 block", message, "Use a lower tensor-parallel degree, or expert parallelism"))
    if deployment.weight_dtype in (WeightDtype.INT4_AWQ, WeightDtype.INT4_GPTQ) and tp > 1:
        group = (shape.group_size if stored else None) or 128
        dense = [] if shape.num_moe_layers == shape.num_layers else [("MLP", shape.intermediate_size)]
        experts = [("experts", shape.moe_intermediate_size)] if shape.is_moe else []
        for name, width in dense + experts:
            if width % tp or (width // tp) % group:
                message = f"{name} width {width} / {tp} is not divisible by the quantisation group {group}"
                found.append(Refusal("quantisation group", message, "Use a lower tensor-parallel degree"))
    if shape.is_moe and shape.moe_intermediate_size % tp:
        message = f"expert width {shape.moe_intermediate_size} is not divisible by tensor parallel size {tp}"
        found.append(Refusal("expert width % tp", message, "Use a tensor-parallel degree that divides it"))
    return found


def gpu_supports(gpu: Gpu, deployment: Deployment, engine: str) -> list[Refusal]:
    """What the GPU's generation allows.

    fp8 weights need units or an emulation (Marlin, capability 8.0); AWQ needs 7.5; fp8 KV needs a backend for the GPU.
    """
    found = []
    capability = compute_capability(gpu)
    weight = deployment.weight_dtype
    if weight is WeightDtype.FP8 and (gpu.fp8_weights == "no" or (capability is not None and capability < (7, 5))):
        found.append(
            Refusal(
                "dtype support", f"{gpu.id} has no kernels for fp8 weights", "Use bf16 or int4 weights, or a newer GPU"
            )
        )
    least = {WeightDtype.INT4_AWQ: (7, 5), WeightDtype.INT4_GPTQ: (6, 0), WeightDtype.MXFP4: (8, 0)}.get(weight)
    if least and capability is not None and capability < least:
        message = (
            f"{weight} needs compute capability {least[0]}.{least[1]}; {gpu.id} has {capability[0]}.{capability[1]}"
        )
        found.append(Refusal("dtype support", message, "Use another weight format or a newer GPU"))
    if deployment.kv_dtype is KvDtype.FP8 and gpu.fp8_kv == "no":
        message = f"no attention backend of {engine} stores an fp8 KV cache on {gpu.id}"
        found.append(Refusal("fp8 KV support", message, "Use a 16-bit KV cache or a newer GPU"))
    return found


def compute_capability(gpu: Gpu) -> tuple[int, int] | None:
    """CUDA compute capability as numbers; ``None`` for a GPU that has none (AMD's gfx names)."""
    major, _, minor = gpu.compute_capability.partition(".")
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else None


def length_allowed(shape: ModelShape, max_model_len: int, asked: int | None) -> list[Refusal]:
    """``max_model_len`` at most what the model's config allows."""
    if asked is None or asked <= shape.max_position_embeddings:
        return []
    message = (
        f"User-specified max_model_len ({max_model_len}) is greater than the derived max_model_len "
        f"({shape.max_position_embeddings})"
    )
    return [
        Refusal("model's longest context", message, f"Set max_model_len to at most {shape.max_position_embeddings}")
    ]


def scheduler_budget(batched_tokens: int, max_num_seqs: int) -> list[Refusal]:
    """``max_num_batched_tokens >= max_num_seqs`` (vllm/config/scheduler.py)."""
    if batched_tokens >= max_num_seqs:
        return []
    message = (
        f"max_num_batched_tokens ({batched_tokens}) must be greater than or equal to max_num_seqs ({max_num_seqs})"
    )
    return [Refusal("scheduler budget", message, "Lower max_num_seqs or raise max_num_batched_tokens")]


def weights_readable(shape: ModelShape, deployment: Deployment, weights_given: bool) -> list[Refusal]:
    """MXFP4 converts routed experts, so a dense model has nothing to convert."""
    if deployment.weight_dtype is WeightDtype.MXFP4 and not shape.is_moe and not weights_given:
        return [Refusal("weight format", "mxfp4 holds routed experts, and the model has none", "Use bf16, fp8 or int4")]
    return []


def checkpoint_accepted(shape: ModelShape, gpu: Gpu, facts: EngineFacts, deployment: Deployment) -> list[Refusal]:
    """What this vLLM version knows: architectures, GPTQ orderings, fp8 caches by compute capability."""
    rules, release = facts.vllm, f"{facts.name} {facts.version}"
    found = []
    if shape.architecture in rules.missing_architectures:
        message = f"architecture {shape.architecture} is not in the model registry of {release}"
        found.append(Refusal("architecture", message, "Use another engine version"))
    stored = shape.native_weight_dtype == deployment.weight_dtype
    if shape.gptq_activation_order and stored and not rules.gptq_activation_order:
        message = f"GPTQ group activation ordering (desc_act=True) is not supported by {release}"
        found.append(Refusal("GPTQ ordering", message, "Use a checkpoint without desc_act, or another weight format"))
    capability, least = compute_capability(gpu), rules.fp8_kv_min_capability
    if deployment.kv_dtype is KvDtype.FP8 and capability is not None and capability < least:
        message = (
            f"an fp8 KV cache needs compute capability {least[0]}.{least[1]} in {release}; "
            f"{gpu.id} has {capability[0]}.{capability[1]}"
        )
        found.append(Refusal("fp8 KV support", message, "Use a 16-bit KV cache or a newer GPU"))
    return found


def before_sizing(
    shape: ModelShape, gpu: Gpu, facts: EngineFacts, deployment: Deployment, weights_given: bool
) -> list[Refusal]:
    """Every rule that does not depend on memory."""
    block_checked = facts.name == "sglang" or facts.vllm.fp8_moe_block_checked
    return [
        *heads_divide(shape, deployment.tp),
        *quantised_shares_divide(shape, deployment, fp8_moe_block_checked=block_checked),
        *gpu_supports(gpu, deployment, facts.name),
        *weights_readable(shape, deployment, weights_given),
        *(checkpoint_accepted(shape, gpu, facts, deployment) if facts.name == "vllm" else ()),
    ]
