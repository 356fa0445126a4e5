"""What to try when a replica would not start, cheapest first, each tried by sizing it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from planner.catalog.engine import EngineFacts
from planner.catalog.gpu import Gpu
from planner.catalog.model_shape import ModelShape
from planner.memory.size import size
from planner.memory.types import Deployment, GivenTerms, KvDtype, Sizing, WeightDtype

LEAST_USEFUL_LENGTH = 256
"""A cap below this serves nobody."""
DEGREE_RULES = frozenset(
    {"attention heads % tp", "KV heads % tp", "expert width % tp", "fp8 block", "quantisation group", "page sizes"}
)
"""Refusals that a lower tensor-parallel degree may lift."""
FORMAT_RULES = frozenset({"dtype support", "weight format", "GPTQ ordering", "fp8 block", "quantisation group"})
"""Refusals that another weight format may lift."""


@dataclass(frozen=True)
class Fix:
    """One change and what it gives."""

    change: str
    sizing: Sizing


def fixes(
    shape: ModelShape, gpu: Gpu, facts: EngineFacts, deployment: Deployment, given: GivenTerms, refused: Sizing
) -> tuple[Fix, ...]:
    """Changes in the order of what they cost: settings, shorter max_model_len, other formats, fewer or more GPUs.

    Each is tried alone on the refused deployment, and with the longest max_model_len that then fits where the asked one
    does not. Weights typed by the user no longer hold once their format or tp changes, and are predicted instead.
    """
    found = []
    shorter = _shortened(shape, gpu, facts, deployment, given, refused)
    if shorter is not None:
        found.append(Fix(f"cap max_model_len at {shorter.max_model_len:,}", shorter))
    for change, changed, terms in _changes(shape, gpu, deployment, given, refused):
        sizing = size(shape, gpu, facts, changed, terms)
        suffix = ""
        if not sizing.starts:
            capped = _shortened(shape, gpu, facts, changed, terms, sizing)
            if capped is None:
                continue
            sizing, suffix = capped, f" and cap max_model_len at {capped.max_model_len:,}"
        found.append(Fix(change + suffix, sizing))
        if changed.tp > deployment.tp and (not suffix or sizing.max_model_len == shape.max_position_embeddings):
            break  # still more GPUs would only cost more
    return tuple(found)


def _changes(
    shape: ModelShape, gpu: Gpu, deployment: Deployment, given: GivenTerms, refused: Sizing
) -> Iterator[tuple[str, Deployment, GivenTerms]]:
    predicted, rules = replace(given, weights_gib=None), {refusal.rule for refusal in refused.refusals}
    if refused.max_num_seqs > refused.max_num_batched_tokens:
        fewer = refused.max_num_batched_tokens
        yield f"max_num_seqs {fewer:,}", replace(deployment, max_num_seqs=fewer), given
    if deployment.kv_dtype is not KvDtype.FP8:
        yield "fp8 KV cache", replace(deployment, kv_dtype=KvDtype.FP8), given
    elif "fp8 KV support" in rules:
        yield "16-bit KV cache", replace(deployment, kv_dtype=KvDtype.BF16), given
    if deployment.weight_dtype is WeightDtype.BF16:
        yield "fp8 weights", replace(deployment, weight_dtype=WeightDtype.FP8), predicted
    if deployment.weight_dtype in (WeightDtype.BF16, WeightDtype.FP8):
        yield "int4 (AWQ) weights", replace(deployment, weight_dtype=WeightDtype.INT4_AWQ), predicted
    if deployment.weight_dtype is not WeightDtype.BF16 and rules & FORMAT_RULES:
        yield "16-bit weights", replace(deployment, weight_dtype=WeightDtype.BF16), predicted
    fewer_gpus = [tp for tp in (8, 4, 2, 1) if tp < deployment.tp] if rules & DEGREE_RULES else []
    more_gpus = [tp for tp in (2, 4, 8, 16) if tp > deployment.tp and tp <= gpu.max_gpus_per_node]
    for tp in fewer_gpus + more_gpus:
        if shape.attention_heads % tp:
            continue
        yield f"{tp} GPU{'s' if tp > 1 else ''} (TP {tp})", replace(deployment, tp=tp), predicted


def _shortened(
    shape: ModelShape, gpu: Gpu, facts: EngineFacts, deployment: Deployment, given: GivenTerms, sizing: Sizing
) -> Sizing | None:
    """The same with the longest max_model_len that starts, by bisection; ``None`` where none does."""

    def capped(length: int) -> Sizing:
        return size(shape, gpu, facts, replace(deployment, max_model_len=length), given)

    low, high = LEAST_USEFUL_LENGTH, min(sizing.max_model_len - 1, shape.max_position_embeddings)
    if high < low or not capped(low).starts:
        return None
    while low < high:
        middle = (low + high + 1) // 2
        if capped(middle).starts:
            low = middle
        else:
            high = middle - 1
    return capped(low)
