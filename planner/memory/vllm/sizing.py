"""vLLM's subtraction and pool.

    available = ceil(utilization x memory) − weights − activation peak − memory outside PyTorch (− CUDA graph estimate)
    blocks = floor(available / bytes_per_block)

Source: vllm/v1/worker/gpu_worker.py and vllm/v1/core/kv_cache_utils.py of the versions in the catalogue.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from planner import units
from planner.catalog.engine import EngineFacts
from planner.catalog.engine_rules.vllm import MemoryTier, VllmRules
from planner.catalog.gpu import Gpu
from planner.catalog.model_shape import ModelShape
from planner.memory.overheads import ProfilingRun, given_overhead, vllm_overheads
from planner.memory.rules import start_rules
from planner.memory.terms import MORE_ROOM, no_room
from planner.memory.types import Deployment, GivenTerms, Pool, Refusal, Sizing, Term
from planner.memory.vllm import blocks
from planner.memory.vllm.replica import Replica, layout_of
from planner.origin import Origin

ONE_REQUEST = "one request of max_model_len must fit"
"""Name of the rule that a shorter ``max_model_len`` satisfies."""


def size_vllm(
    shape: ModelShape,
    gpu: Gpu,
    facts: EngineFacts,
    deployment: Deployment,
    given: GivenTerms,
    replica: Replica | None = None,
) -> Sizing:
    """Size one replica as vLLM does at start-up; see the module for the formula.

    ``replica`` is what another deployment, which differs in its caps alone, has found out already.
    """
    replica = replica or Replica(shape, gpu, facts, deployment, given)
    memory = replica.memory
    max_model_len = deployment.max_model_len or default_length(shape, facts)
    max_num_seqs, batched_tokens = scheduler_limits(facts, gpu, memory.gib, deployment, max_model_len)
    utilization = deployment.gpu_memory_utilization or facts.vllm.default_utilization
    run = ProfilingRun(shape, gpu, facts, deployment, max_num_seqs, batched_tokens, max_model_len)
    terms = terms_of(run, replica)
    available = left_for_cache(memory, utilization, terms, given)
    pool, no_memory = pool_of(
        shape, gpu, facts, deployment, math.floor(available), max_model_len, batched_tokens,
        layout=replica.layout(max_model_len),
    )  # fmt: skip
    graphs_captured = given.available_gib is None  # planning alone, to which the memory is given, captures none
    if graphs_captured and not no_memory:
        no_memory = start_rules.seqs_within_state_blocks(shape, facts, deployment, max_num_seqs, pool.num_blocks)
    return Sizing(
        model_id=shape.id,
        native_weight_dtype=shape.native_weight_dtype,
        declares_fp8_kv=shape.declares_fp8_kv,
        gpu_id=gpu.id,
        engine=facts.name,
        engine_version=facts.version,
        deployment=deployment,
        weights=replica.weights,
        gpu_memory=memory,
        utilization=utilization,
        budget=budget_term(facts, deployment, memory, utilization),
        terms=terms,
        available_kv_gib=units.bytes_to_gib(available),
        max_model_len=max_model_len,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=batched_tokens,
        refusals=(*refusals_before_memory(run, utilization, memory.gib, replica), *no_memory),
        **vars(pool),
    )


def terms_of(run: ProfilingRun, replica: Replica) -> tuple[Term, ...]:
    """What is taken from the budget: weights, options, and overheads, typed or predicted."""
    given = replica.given
    overheads = (
        vllm_overheads(run, replica.outside) if given.overhead_gib is None else (given_overhead(given.overhead_gib),)
    )
    return (*replica.loaded, *overheads)


def refusals_before_memory(
    run: ProfilingRun, utilization: float, memory_gib: float, replica: Replica
) -> tuple[Refusal, ...]:
    """Why the engine would stop before it knows the pool."""
    given, asked_len = replica.given, run.deployment.max_model_len
    return (
        *replica.early_refusals,
        *start_rules.length_allowed(run.shape, run.max_model_len, asked_len),
        *start_rules.scheduler_budget(run.batched_tokens, run.max_num_seqs),
        *start_rules.whole_prompts(run.facts, run.batched_tokens, run.max_model_len),
        *(start_rules.memory_free(run.facts, run.gpu, utilization, memory_gib) if given.available_gib is None else ()),
    )


def left_for_cache(memory: Term, utilization: float, terms: Sequence[Term], given: GivenTerms) -> float:
    """Bytes left for the cache: as given, else ``ceil(utilization x memory) − terms``."""
    if given.available_gib is not None:
        return units.gib_to_bytes(given.available_gib)
    budget = math.ceil(units.gib_to_bytes(memory.gib) * utilization)
    return budget - sum(units.gib_to_bytes(term.gib) for term in terms)


def pool_of(
    shape: ModelShape,
    gpu: Gpu,
    facts: EngineFacts,
    deployment: Deployment,
    available_bytes: int,
    max_model_len: int,
    batched_tokens: int,
    layout: blocks.Layout | None = None,
) -> tuple[Pool, list[Refusal]]:
    """Blocks, tokens and concurrency that ``available_bytes`` give, and what the memory checks refuse."""
    rules, refusals = facts.vllm, []
    pool = layout or layout_of(shape, gpu, facts, deployment, max_model_len)
    if pool.refusal:
        message = f"{facts.name} {facts.version} cannot hold this model's layers in one pool: {pool.refusal}"
        refusals.append(Refusal("page sizes", message, "Use a newer engine version or another tp"))
    in_flight = in_flight_tokens(rules, deployment, batched_tokens)
    num_blocks = max(0, available_bytes // pool.bytes_per_block)
    per_request = blocks.request_blocks(pool, max_model_len, in_flight)
    concurrency = num_blocks / per_request
    if available_bytes <= 0:
        refusals.append(no_room(available_bytes))
    else:
        refusals += _one_request_fits(shape, facts, pool, available_bytes, in_flight, max_model_len)
    live = live_bytes(pool, max_model_len, in_flight)
    per_token = live.keep or live.slide
    figures = Pool(
        bytes_per_token=live.keep,
        sliding_bytes_per_token=live.slide,
        window_tokens=live.window,
        sliding_reserve_tokens=live.reserve,
        state_bytes_per_request=live.state,
        block_size_tokens=pool.block_tokens,
        largest_block_tokens=pool.largest_block_tokens,
        num_blocks=num_blocks,
        bytes_per_block=pool.bytes_per_block,
        pool_tokens=int(num_blocks * pool.bytes_per_block // per_token if per_token else concurrency * max_model_len),
        logged_tokens=blocks.logged_tokens(rules, pool, num_blocks, concurrency, max_model_len),
        max_concurrency=concurrency,
    )
    return figures, refusals


def in_flight_tokens(rules: VllmRules, deployment: Deployment, batched_tokens: int) -> int:
    """Tokens that are scheduled and not yet settled: a batch for each stage, and one more with async scheduling.

    Versions that count a single batch do so at every pipeline degree (vllm/config/vllm.py, ``max_in_flight_tokens``).
    """
    if rules.batches_in_flight == 1:
        return batched_tokens
    overlapped = deployment.vllm.async_scheduling is not False
    return (deployment.pp + (rules.batches_in_flight - 1 if overlapped else 0)) * batched_tokens


@dataclass(frozen=True)
class LiveBytes:
    """Bytes of pool that a request holds: with t live tokens, in whole blocks, at most
    ``keep x t + slide x min(t, reserve) + state``.

    ``keep`` and ``slide`` are bytes per token of layers that keep everything and of those that slide, group padding
    included; ``reserve`` is the most tokens that the latter hold.
    """

    keep: float = 0.0
    slide: float = 0.0
    window: int = 0
    reserve: int = 0
    state: int = 0


def live_bytes(pool: blocks.Layout, max_model_len: int, in_flight: int) -> LiveBytes:
    """What a request holds by its live tokens. A window at least as long as ``max_model_len`` never slides."""
    keep = slide = 0.0
    window = reserve = states = 0
    for group in pool.groups:
        if group.held_blocks is not None:
            states += group.held_blocks
            continue
        per_token = pool.bytes_per_block / group.block_tokens
        if group.window_tokens is None or group.window_tokens >= max_model_len:
            keep += per_token / group.ranks
            continue
        slide += per_token
        window = max(window, group.window_tokens)
        held = blocks.blocks_of_request(group, max_model_len, in_flight) * group.block_tokens
        reserve = max(reserve, held)
    return LiveBytes(keep, slide, window, reserve, states * pool.bytes_per_block)


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
    if room <= 0:
        return [no_room(room)]
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
    return [Refusal(ONE_REQUEST, message, fix)]


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
    """``max_num_seqs`` and ``max_num_batched_tokens``, typed or the defaults of the API server or the ``LLM`` class."""
    rules = facts.vllm
    small = any(name in gpu.id.lower() for name in rules.small_tier_gpus)
    tier_gib = 0.0 if small else memory_gib
    seqs = deployment.max_num_seqs
    tokens = deployment.max_num_batched_tokens
    if tokens is None:
        tiers = rules.batched_tokens_offline if deployment.vllm.offline else rules.batched_tokens
        tokens = at_memory(tiers, tier_gib)
        if max_model_len <= rules.unchunked_up_to_tokens:
            tokens = max(tokens, max_model_len)
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
