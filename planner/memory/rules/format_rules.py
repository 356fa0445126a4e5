"""Rules of quantised weights: methods that a release knows, GPUs that run them, and sizes that blocks and groups need.

Sizes are checked on every quantised matrix of the inventory, fused as the engine fuses them. Every function returns
refusals and never raises.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from planner.catalog.engine import EngineFacts
from planner.catalog.engine_rules.shared import MethodCapability
from planner.catalog.engine_rules.vllm import VllmRules
from planner.catalog.gpu import Gpu
from planner.catalog.matrix import Matrix, Part, Split, Stored
from planner.catalog.model_shape import ModelShape
from planner.memory.kv import heads_per_rank
from planner.memory.types import Deployment, Refusal, WeightDtype

LOWER_TP = "Use a lower tensor-parallel degree"
BY_EXPERTS = "Use a lower tensor-parallel degree, or expert parallelism"
METHODS = {
    WeightDtype.FP8: "fp8",
    WeightDtype.INT4_AWQ: "awq",
    WeightDtype.INT4_GPTQ: "gptq",
    WeightDtype.INT8_GPTQ: "gptq",
    WeightDtype.MXFP4: "mxfp4",
    WeightDtype.MXFP8: "mxfp8",
    WeightDtype.NVFP4: "modelopt_fp4",
    WeightDtype.INT8: "compressed-tensors",
    WeightDtype.W4A16: "compressed-tensors",
    WeightDtype.W8A16: "compressed-tensors",
    WeightDtype.BNB_4BIT: "bitsandbytes",
    WeightDtype.BNB_INT8: "bitsandbytes",
}
"""Method that serves a format where the checkpoint does not name one."""
SCHEMES = {
    WeightDtype.FP8: "fp8",
    WeightDtype.W4A16: "int4",
    WeightDtype.W8A16: "int4",
    WeightDtype.INT8: "int8",
    WeightDtype.NVFP4: "nvfp4",
}
"""compressed-tensors schemes with a capability of their own (packed int4 and int8 share one)."""
MARLIN_ROWS, MARLIN_COLUMNS = 64, 128
"""A rank's share of a Marlin matrix must be a multiple of these (outputs, inputs)."""
LAST_OF_MERGED = "kv_a_proj_with_mqa"
"""Latent down-projections are merged as queries, then keys and values (fused_qkv_a_proj of deepseek_v2.py)."""
INT4_PER_WORD = 8
"""Packed values of an int32: outputs of an AWQ or GPTQ matrix must be a multiple."""


def is_stored(shape: ModelShape, deployment: Deployment) -> bool:
    """Whether the checkpoint itself is loaded, and not another one in another format."""
    return shape.native_weight_dtype == deployment.weight_dtype or shape.native_weight_dtype.startswith("unsupported")


def method_of(shape: ModelShape, deployment: Deployment) -> str:
    """The quantisation method that serves the weights; empty at 16 bits."""
    if is_stored(shape, deployment):
        return shape.quant_method
    return METHODS.get(deployment.weight_dtype, "")


def method_known(shape: ModelShape, facts: EngineFacts, deployment: Deployment) -> list[Refusal]:
    """The method must be in the release's registry (``_verify_quantization``)."""
    rules, method = (facts.vllm if facts.name == "vllm" else facts.sglang), method_of(shape, deployment)
    if not method or method in rules.quant_methods:
        return []
    listed = ", ".join(f"'{name}'" for name in rules.quant_methods)
    message = f"Unknown quantization method: {method}. Must be one of [{listed}]"
    return [Refusal("quantisation method", message, "Use another weight format or another engine version")]


def bitsandbytes_whole(shape: ModelShape, facts: EngineFacts, deployment: Deployment) -> list[Refusal]:
    """A checkpoint that bitsandbytes quantised cannot be split by columns (vllm bitsandbytes_loader.py)."""
    stored = is_stored(shape, deployment) and method_of(shape, deployment) == "bitsandbytes"
    if facts.name != "vllm" or not stored or deployment.tp == 1:
        return []
    message = "Prequant BitsAndBytes models with tensor parallelism is not supported"
    return [Refusal("bitsandbytes % tp", message, "Use TP 1 or pipeline parallelism")]


def gpu_runs(shape: ModelShape, gpu: Gpu, facts: EngineFacts, deployment: Deployment) -> list[Refusal]:
    """Compute capability that the method, or its compressed-tensors scheme, needs (``get_min_capability``)."""
    method, capability = method_of(shape, deployment), compute_capability(gpu)
    if not method:
        return []
    fix = "Use another weight format or a newer GPU"
    if capability is None:
        if method == "fp8" and gpu.fp8_weights == "no":
            return [Refusal("dtype support", f"{gpu.id} has no kernels for fp8 weights", fix)]
        return []
    rules = facts.vllm if facts.name == "vllm" else facts.sglang
    found = []
    least = least_capability(rules.method_capability, method)
    have = "".join(str(part) for part in capability)
    if least and capability < least:
        message = (
            f"The quantization method {method} is not supported for the current GPU. "
            f"Minimum capability: {least[0]}{least[1]}. Current capability: {have} ({gpu.id})"
        )
        found.append(Refusal("dtype support", message, fix))
    scheme = SCHEMES.get(deployment.weight_dtype) if method == "compressed-tensors" else None
    least = least_capability(rules.method_capability, f"{method} {scheme}") if scheme else None
    if least and capability < least and not found:
        message = (
            f"Quantization scheme is not supported for the current GPU. "
            f"Min capability: {least[0]}{least[1]}. Current capability: {have} ({gpu.id}, {scheme})"
        )
        found.append(Refusal("dtype support", message, fix))
    return found


def least_capability(table: tuple[MethodCapability, ...], method: str) -> tuple[int, int] | None:
    """The entry of a method; ``None`` where the release has none."""
    return next((entry.capability for entry in table if entry.method == method), None)


def compute_capability(gpu: Gpu) -> tuple[int, int] | None:
    """CUDA compute capability as numbers; ``None`` for a GPU that has none (AMD's gfx names)."""
    major, _, minor = gpu.compute_capability.partition(".")
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else None


def weights_readable(shape: ModelShape, deployment: Deployment, weights_given: bool) -> list[Refusal]:
    """MXFP4 converts routed experts, so a dense model has nothing to convert."""
    if deployment.weight_dtype is WeightDtype.MXFP4 and not shape.is_moe and not weights_given:
        return [Refusal("weight format", "mxfp4 holds routed experts, and the model has none", "Use bf16, fp8 or int4")]
    return []


@dataclass(frozen=True)
class BlockRules:
    """How a release checks fp8 blocks.

    Attributes
    ----------
    experts_refined_to
        Least block that a block which does not divide an expert's share is refined to; 0 where it is refused.
    merged_columns
        Whether each part of a merged matrix must divide by the block's rows.
    """

    experts_refined_to: int
    merged_columns: bool


def block_rules(facts: EngineFacts, method: str) -> BlockRules:
    """The release's checks; SGLang's are those of old vLLM releases (fp8.py and fp8_utils.py of 0.5.16 and 0.5.23)."""
    if facts.name == "sglang":
        return BlockRules(experts_refined_to=0, merged_columns=True)
    rules: VllmRules = facts.vllm
    whole = method == "compressed-tensors"  # compressed_tensors_moe_w8a8_fp8.py never refines
    return BlockRules(
        experts_refined_to=0 if whole else rules.fp8_moe_least_block,
        merged_columns=rules.fp8_merged_columns_checked,
    )


def blocks_divide(shape: ModelShape, facts: EngineFacts, deployment: Deployment) -> list[Refusal]:
    """fp8 blocks must divide each rank's share of a matrix (``validate_fp8_block_shape`` and its MoE sibling).

    A matrix split by columns needs ``inputs / tp % block columns == 0``; one split by rows, or merged of several,
    ``outputs / tp % block rows == 0`` for each part (not for the last part of a merged matrix that is not split).
    Experts need ``width / tp`` to divide by both, or by a block refined to the greatest common divisor.
    """
    if not is_stored(shape, deployment):
        return []
    rules = block_rules(facts, shape.quant_method)
    messages = _block_messages(shape, deployment.tp, deployment.expert_parallel, rules)
    return _together("fp8 block", messages, BY_EXPERTS)


def _together(rule: str, messages: tuple[str, ...], fix: str) -> list[Refusal]:
    """One refusal for every matrix that does not fit; the engine stops at the first."""
    return [Refusal(rule, "; ".join(messages), fix)] if messages else []


@lru_cache(maxsize=4096)
def _block_messages(shape: ModelShape, tp: int, expert_parallel: bool, rules: BlockRules) -> tuple[str, ...]:
    found: list[str] = []
    for parts in merged(shape):
        block = _block(parts[0].stored)
        if block is None:
            continue
        if parts[0].part is Part.EXPERTS:
            found.extend(_expert_block(shape, parts, tp, expert_parallel, block, rules))
        else:
            found.extend(_dense_block(parts, tp, block, rules))
    return tuple(dict.fromkeys(found))


def _block(stored: Stored | None) -> tuple[int, int] | None:
    """Rows and columns of a block; ``None`` where scales are per matrix, row or group."""
    if stored is None or stored.bits != 8 or stored.scale_rows <= 1 or stored.scale_columns <= 1:
        return None
    return stored.scale_rows, stored.scale_columns


@lru_cache(maxsize=4096)
def merged(shape: ModelShape) -> tuple[tuple[Matrix, ...], ...]:
    """Quantised matrices, those of one fused module of the same layers together; equal ones once."""
    groups: dict[tuple[str, tuple[int, ...]], dict[Matrix, None]] = {}
    for matrix in shape.matrices:
        if matrix.stored is not None and matrix.in_features > 1 and matrix.part is not Part.VISION:
            name = matrix.fused if matrix.fused and matrix.part is not Part.EXPERTS else matrix.module
            groups.setdefault((name, matrix.layers), {})[matrix] = None
    return tuple({_sizes(parts): tuple(parts) for parts in groups.values()}.values())


def _sizes(parts: Iterable[Matrix]) -> tuple[tuple[int, int, str, int, str, Stored | None], ...]:
    return tuple((m.out_features, m.in_features, m.split, m.heads, m.part, m.stored) for m in parts)


def outputs_of_rank(matrix: Matrix, tp: int) -> int:
    """Rows of a matrix on one rank."""
    if matrix.split is Split.KV_HEADS and matrix.heads:
        return heads_per_rank(matrix.heads, tp) * (matrix.out_features // matrix.heads)
    return matrix.out_features // tp if matrix.split in (Split.COLUMN, Split.VOCABULARY) else matrix.out_features


def inputs_of_rank(matrix: Matrix, tp: int) -> int:
    """Columns of a matrix on one rank."""
    return matrix.in_features // tp if matrix.split is Split.ROW else matrix.in_features


def _dense_block(parts: tuple[Matrix, ...], tp: int, block: tuple[int, int], rules: BlockRules) -> Iterator[str]:
    rows, columns = block
    if tp > 1 and parts[0].split is Split.ROW and inputs_of_rank(parts[0], tp) % columns:
        yield (
            f"Weight input_size_per_partition = {inputs_of_rank(parts[0], tp)} is not divisible by "
            f"weight quantization block_k = {columns} ({parts[0].module})"
        )
    divided = tp > 1 and parts[0].split in (Split.COLUMN, Split.KV_HEADS)
    if len(parts) > 1 and not rules.merged_columns:
        return
    ordered = sorted(parts, key=lambda part: part.module.endswith(LAST_OF_MERGED))
    for part in ordered if divided else ordered[:-1]:
        if outputs_of_rank(part, tp) % rows:
            yield (
                f"Weight output_partition_size = {outputs_of_rank(part, tp)} is not divisible by "
                f"weight quantization block_n = {rows} ({part.module})"
            )


def _expert_block(
    shape: ModelShape, parts: tuple[Matrix, ...], tp: int, whole: bool, block: tuple[int, int], rules: BlockRules
) -> Iterator[str]:
    rows, columns = block
    matrix, divisor = parts[0], 1 if whole else tp
    down = matrix.split is Split.ROW
    share = (matrix.in_features if down else matrix.out_features) // divisor
    side, of_block = ("input_size of down's", columns) if down else ("output_size of gate's and up's", rows)
    if share % of_block == 0 or (down and tp == 1):
        return
    if rules.experts_refined_to and math.gcd(rows, columns, share, shape.hidden_size) >= rules.experts_refined_to:
        return
    name = "block_k" if down else "block_n"
    width = share * divisor
    yield (
        f"The {side} weight = {share} is not divisible by weight quantization {name} = {of_block} "
        f"(routed experts: {width} / {divisor})"
    )


def groups_divide(shape: ModelShape, facts: EngineFacts, deployment: Deployment) -> list[Refusal]:
    """Groups of packed int4 and int8 must divide each rank's inputs; kernels add limits of their own.

    AWQ and GPTQ: ``inputs / rank % group == 0`` and ``outputs / rank % 8 == 0`` (awq.py, gptq.py). GPTQ and
    compressed-tensors run on Marlin, which needs ``outputs % 64 == 0`` and ``inputs % 128 == 0`` unless the release
    pads (marlin_utils.py). Experts halve a group that does not fit, down to 32 (moe_wna16.py).
    """
    if not is_stored(shape, deployment):
        return []
    tiles = facts.name == "vllm" and not facts.vllm.marlin_pads and shape.quant_method != "awq"
    messages = _group_messages(shape, deployment.tp, deployment.expert_parallel, tiles)
    return _together("quantisation group", messages, LOWER_TP)


LEAST_EXPERT_GROUP = 32


@lru_cache(maxsize=4096)
def _group_messages(shape: ModelShape, tp: int, expert_parallel: bool, tiles: bool) -> tuple[str, ...]:
    found: list[str] = []
    for parts in merged(shape):
        stored, first = parts[0].stored, parts[0]
        if stored is None or stored.scale_columns <= 1 or stored.scale_rows != 1 or not _packed(stored):
            continue
        inputs = inputs_of_rank(first, 1 if first.part is Part.EXPERTS and expert_parallel else tp)
        if first.part is Part.EXPERTS:
            if inputs % math.gcd(stored.scale_columns, LEAST_EXPERT_GROUP):
                found.append(
                    _not_divisible("input_size_per_partition", inputs, "group_size", LEAST_EXPERT_GROUP, first)
                )
            continue
        outputs = sum(outputs_of_rank(part, tp) for part in parts)
        if stored.scale_columns < first.in_features and inputs % stored.scale_columns:
            found.append(_not_divisible("input_size_per_partition", inputs, "group_size", stored.scale_columns, first))
        if outputs % INT4_PER_WORD:
            found.append(_not_divisible("output_size_per_partition", outputs, "pack_factor", INT4_PER_WORD, first))
        elif tiles and outputs % MARLIN_ROWS:
            found.append(_not_divisible("output_size_per_partition", outputs, "min_thread_n", MARLIN_ROWS, first))
        if tiles and inputs % MARLIN_COLUMNS:
            found.append(_not_divisible("input_size_per_partition", inputs, "min_thread_k", MARLIN_COLUMNS, first))
    return tuple(dict.fromkeys(found))


def tiles_fit(shape: ModelShape, gpu: Gpu, facts: EngineFacts, deployment: Deployment) -> list[Refusal]:
    """fp8 weights on a GPU without fp8 are repacked for Marlin, whose tiles a rank's share must fill.

    Releases that pad have no such limit (``prepare_fp8_layer_for_marlin``, ``gptq_marlin_repack``). NVFP4 needs
    ``inputs / rank % 16 == 0`` on every GPU (modelopt.py).
    """
    capability = compute_capability(gpu)
    if facts.name != "vllm" or not is_stored(shape, deployment) or capability is None:
        return []
    repacked = deployment.weight_dtype is WeightDtype.FP8 and capability < FP8_CAPABILITY and not facts.vllm.marlin_pads
    if not repacked and deployment.weight_dtype is not WeightDtype.NVFP4:
        return []
    messages = _tile_messages(shape, deployment.tp, repacked)
    return _together("quantisation group", messages, LOWER_TP)


FP8_CAPABILITY = (8, 9)
REPACKED_ROWS = 64
TILE_COLUMNS = 16


@lru_cache(maxsize=4096)
def _tile_messages(shape: ModelShape, tp: int, repacked: bool) -> tuple[str, ...]:
    found: list[str] = []
    for parts in merged(shape):
        first = parts[0]
        if first.part is Part.EXPERTS or first.stored is None or first.stored.bits == FULL_BITS:
            continue
        inputs, outputs = inputs_of_rank(first, tp), sum(outputs_of_rank(part, tp) for part in parts)
        if repacked and outputs % REPACKED_ROWS:
            found.append(f"size_n = {outputs} is not divisible by tile_n_size = {REPACKED_ROWS} ({first.module})")
        if inputs % TILE_COLUMNS:
            found.append(
                f"size_k = {inputs} is not divisible by tile_k_size = {TILE_COLUMNS} ({first.module})"
                if repacked
                else f"Unsupported model when in features size is not multiple of 16 (got {inputs}, {first.module})"
            )
    return tuple(dict.fromkeys(found))


FULL_BITS = 16


def _packed(stored: Stored) -> bool:
    """Integers packed in words with 16-bit scales: AWQ, GPTQ, compressed-tensors ``pack-quantized``."""
    return stored.bits in (4, 8) and stored.scale_bytes == 2


def _not_divisible(what: str, size: int, name: str, divisor: int, matrix: Matrix) -> str:
    return f"Weight {what} = {size} is not divisible by {name} = {divisor} ({matrix.module})"


def ordering_accepted(shape: ModelShape, facts: EngineFacts, deployment: Deployment) -> list[Refusal]:
    """Newer releases refuse a GPTQ checkpoint quantised in order of activation."""
    stored = is_stored(shape, deployment)
    if facts.name != "vllm" or not (shape.gptq_activation_order and stored) or facts.vllm.gptq_activation_order:
        return []
    message = "GPTQ group activation ordering (desc_act=True) is no longer supported"
    fix = "Use a checkpoint with static activation ordering or without desc_act"
    return [Refusal("GPTQ ordering", message, fix)]
