"""vLLM's subtraction and pool.

    available = ceil(utilization x memory) − weights − activation peak − memory outside PyTorch (− CUDA graph estimate)
    blocks = floor(available / bytes_per_block)

Source: vllm/v1/worker/gpu_worker.py and vllm/v1/core/kv_cache_utils.py of the versions in the catalogue.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from planner import units
from planner.catalog.engine import EngineFacts, MemoryTier
from planner.catalog.gpu import Gpu
from planner.catalog.model_shape import ModelShape
from planner.memory import blocks, start_rules
from planner.memory.overheads import given_overhead, vllm_overheads
from planner.memory.terms import MORE_ROOM, memory_term, no_room, weights_term
from planner.memory.types import Deployment, GivenTerms, KvDtype, Origin, Refusal, Sizing, Term
from planner.memory.weights import weight_bytes


@dataclass(frozen=True)
class Pool:
    """The pool fields of a `Sizing`."""

    bytes_per_token: float
    sliding_bytes_per_token: float
    window_tokens: int
    sliding_reserve_tokens: int
    block_size_tokens: int
    largest_block_tokens: int
    num_blocks: int
    bytes_per_block: int
    pool_tokens: int
    logged_tokens: int
    max_concurrency: float


def size_vllm(shape: ModelShape, gpu: Gpu, facts: EngineFacts, deployment: Deployment, given: GivenTerms) -> Sizing:
    """Size one replica as vLLM does at start-up; see the module for the formula."""
    rules = facts.vllm
    memory = memory_term(gpu, given)
    max_model_len = deployment.max_model_len or default_length(shape, facts)
    max_num_seqs, batched_tokens = scheduler_limits(facts, gpu, memory.gib, deployment, max_model_len)
    utilization = deployment.gpu_memory_utilization or rules.default_utilization
    weights = weight_bytes(
        shape, deployment.weight_dtype, deployment.tp, (rules.mxfp4_padding.width, rules.mxfp4_padding.hidden)
    )
    terms = (
        weights_term(shape, deployment, weights, given),
        *(
            (given_overhead(given.overhead_gib),)
            if given.overhead_gib is not None
            else vllm_overheads(shape, facts, deployment, max_num_seqs, batched_tokens)
        ),
    )
    budget_bytes = math.ceil(units.gib_to_bytes(memory.gib) * utilization)
    available = budget_bytes - sum(units.gib_to_bytes(term.gib) for term in terms)
    refusals = [
        *start_rules.before_sizing(shape, gpu, facts, deployment, given.weights_gib is not None),
        *start_rules.length_allowed(shape, max_model_len, deployment.max_model_len),
        *start_rules.scheduler_budget(batched_tokens, max_num_seqs),
    ]
    pool, memory_refusals = pool_of(shape, gpu, facts, deployment, math.floor(available), max_model_len, batched_tokens)
    return Sizing(
        model_id=shape.id,
        native_weight_dtype=shape.native_weight_dtype,
        declares_fp8_kv=shape.declares_fp8_kv,
        gpu_id=gpu.id,
        engine=facts.name,
        engine_version=facts.version,
        deployment=deployment,
        weights=weights,
        gpu_memory=memory,
        utilization=utilization,
        budget=budget_term(facts, deployment, memory, utilization),
        terms=terms,
        available_kv_gib=units.bytes_to_gib(available),
        max_model_len=max_model_len,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=batched_tokens,
        refusals=(*refusals, *memory_refusals),
        **vars(pool),
    )


def pool_of(
    shape: ModelShape,
    gpu: Gpu,
    facts: EngineFacts,
    deployment: Deployment,
    available_bytes: int,
    max_model_len: int,
    batched_tokens: int,
) -> tuple[Pool, list[Refusal]]:
    """Blocks, tokens and concurrency that ``available_bytes`` give, and what the memory checks refuse."""
    rules = facts.vllm
    kv_dtype = effective_kv_dtype(shape, facts, deployment.kv_dtype)
    block = blocks.block_tokens(rules, gpu, shape, kv_dtype)
    layout_rules, refusals = blocks.layout_rules(rules), []
    if not blocks.pages_can_be_equal(shape.cache_layers, deployment.tp, kv_dtype, layout_rules):
        message = f"{facts.name} {facts.version} cannot hold layers whose pages differ in size in one pool"
        refusals.append(Refusal("page sizes", message, "Use a newer engine version or another tp"))
    pool = blocks.layout(shape.cache_layers, deployment.tp, kv_dtype, block, layout_rules)
    in_flight = rules.batches_in_flight * batched_tokens
    num_blocks = max(0, available_bytes // pool.bytes_per_block)
    per_request = blocks.request_blocks(pool, max_model_len, in_flight)
    concurrency = num_blocks / per_request
    if available_bytes <= 0:
        refusals.append(no_room(available_bytes))
    else:
        refusals += _one_request_fits(shape, facts, pool, available_bytes, in_flight, max_model_len)
    keep, slide, window, reserve = _live_bytes(pool, max_model_len, in_flight)
    figures = Pool(
        bytes_per_token=keep,
        sliding_bytes_per_token=slide,
        window_tokens=window,
        sliding_reserve_tokens=reserve,
        block_size_tokens=pool.block_tokens,
        largest_block_tokens=pool.largest_block_tokens,
        num_blocks=num_blocks,
        bytes_per_block=pool.bytes_per_block,
        pool_tokens=int(num_blocks * pool.bytes_per_block // (keep or slide)),
        logged_tokens=blocks.logged_tokens(rules, pool, num_blocks, concurrency, max_model_len),
        max_concurrency=concurrency,
    )
    return figures, refusals


def effective_kv_dtype(shape: ModelShape, facts: EngineFacts, asked: KvDtype) -> KvDtype:
    """The cache format in use: some versions store sparse latents in fp8 whatever is asked."""
    return KvDtype.FP8 if facts.vllm.sparse_latent_always_fp8 and blocks.is_sparse(shape) else asked


def _live_bytes(pool: blocks.Layout, max_model_len: int, in_flight: int) -> tuple[float, float, int, int]:
    """Bytes per token of layers that keep everything and of those that slide, the window, and the most they hold.

    With t live tokens in whole blocks, a request holds at most ``keep x t + slide x min(t, reserve)`` bytes of pool;
    group padding is in both figures. A window at least as long as ``max_model_len`` never slides.
    """
    keep = slide = 0.0
    window = reserve = 0
    for group in pool.groups:
        per_token = pool.bytes_per_block / group.block_tokens
        if group.window_tokens is None or group.window_tokens >= max_model_len:
            keep += per_token
            continue
        slide += per_token
        window = max(window, group.window_tokens)
        held = blocks.blocks_of_request(group, max_model_len, in_flight) * group.block_tokens
        reserve = max(reserve, held)
    return keep, slide, window, reserve


def _one_request_fits(
    shape: ModelShape,
    facts: EngineFacts,
    pool: blocks.Layout,
    available_bytes: int,
    in_flight: int,
    max_model_len: int,
) -> list[Refusal]:
    """The engine's check that one request of ``max_model_len`` fits (kv_cache_utils.py).

    The fix names no length that the model itself would refuse.
    """
    rules = facts.vllm
    room = available_bytes - rules.null_blocks * pool.bytes_per_block
    needed = blocks.request_bytes(pool, max_model_len, in_flight, rules.start_check)
    if needed <= room:
        return []
    longest = blocks.longest_request(pool, room, in_flight, rules.start_check, max_model_len)
    message = (
        f"To serve at least one request with the model's max seq len ({max_model_len}), "
        f"({units.bytes_to_gib(needed):.2f} GiB KV cache is needed, which is larger than the available KV cache memory "
        f"({units.bytes_to_gib(room):.2f} GiB). The estimated maximum model length is {longest}"
    )
    possible = min(longest, shape.max_position_embeddings)
    fix = f"Set max_model_len to at most {possible}" if possible else MORE_ROOM
    return [Refusal("one request of max_model_len must fit", message, fix)]


def budget_term(facts: EngineFacts, deployment: Deployment, memory: Term, utilization: float) -> Term:
    """``utilization x memory``."""
    if deployment.gpu_memory_utilization is not None:
        return Term("budget", memory.gib * utilization, Origin.GIVEN, f"{utilization} x GPU memory, as typed")
    source = f"{utilization} x GPU memory; {facts.source('default_utilization')}"
    return Term("budget", memory.gib * utilization, Origin.CATALOGUE, source)


def default_length(shape: ModelShape, facts: EngineFacts) -> int:
    """``max_model_len`` that the engine takes when none is given."""
    if facts.vllm.longrope_serves_original and shape.longrope_original_length:
        return shape.longrope_original_length
    return shape.max_position_embeddings


def scheduler_limits(
    facts: EngineFacts, gpu: Gpu, memory_gib: float, deployment: Deployment, max_model_len: int
) -> tuple[int, int]:
    """``max_num_seqs`` and ``max_num_batched_tokens``, typed or the API server's defaults."""
    rules = facts.vllm
    small = any(name in gpu.id.lower() for name in rules.small_tier_gpus)
    tier_gib = 0.0 if small else memory_gib
    seqs = deployment.max_num_seqs
    tokens = deployment.max_num_batched_tokens
    if tokens is None:
        tokens = at_memory(rules.batched_tokens, tier_gib)
        if seqs is not None:
            tokens = max(tokens, seqs)
        if rules.batched_tokens_capped_by_seqs:
            tokens = min(tokens, (seqs or at_memory(rules.max_num_seqs, tier_gib)) * max_model_len)
    if seqs is None:
        seqs = min(at_memory(rules.max_num_seqs, tier_gib), tokens)
    return seqs, tokens


def at_memory(tiers: tuple[MemoryTier, ...], memory_gib: float) -> int:
    """The value of the highest tier that the memory reaches."""
    return max(
        (tier for tier in tiers if tier.min_memory_gib <= memory_gib), key=lambda tier: tier.min_memory_gib
    ).value
