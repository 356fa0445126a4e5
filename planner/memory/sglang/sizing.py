"""SGLang's pool: ``mem_fraction_static`` is derived from flags, nothing is profiled, and the pool is counted in tokens.

With data-parallel attention a replica has as many workers, each on its own ranks and with its own pool: every figure
here, requests included, is one worker's; `Sizing.workers` says how many there are.
"""

from __future__ import annotations

from planner import units
from planner.catalog.engine import EngineFacts
from planner.catalog.gpu import Gpu
from planner.catalog.model_shape import ModelShape
from planner.memory.loading import loading_of
from planner.memory.options import option_terms
from planner.memory.overheads import given_overhead
from planner.memory.rules import start_rules
from planner.memory.sglang.fraction import images_gib
from planner.memory.sglang.plan import FreeMemory, Plan, plan_sglang
from planner.memory.terms import memory_term, weights_term
from planner.memory.types import Deployment, GivenTerms, Pool, Sizing, Term
from planner.memory.weights import weight_bytes
from planner.origin import Origin


def size_sglang(shape: ModelShape, gpu: Gpu, facts: EngineFacts, deployment: Deployment, given: GivenTerms) -> Sizing:
    """Size one replica as SGLang does; the figures are those of one worker.

    Free memory before the weights is what CUDA reports less the context, free memory after them is that less the
    weights. A typed overhead replaces both: ``rest = fraction x total − weights − overhead``, on the same total as for
    vLLM.
    """
    driver_mib, guessed = driver_total_mib(gpu, given)
    weights = weight_bytes(shape, deployment.weight_dtype, loading_of(facts, deployment))
    memory = memory_term(gpu, given)
    loaded = weights_term(shape, deployment, weights, given)
    options = option_terms(shape, facts, deployment, gpu) if given.weights_gib is None else ()
    free = free_memory(facts, memory, loaded.gib + sum(term.gib for term in options), given)
    plan = plan_sglang(shape, facts, gpu, deployment, driver_mib, given.available_gib, free)
    if given.overhead_gib is not None and given.available_gib is None:
        rest = plan.fraction * memory.gib - loaded.gib - sum(term.gib for term in options) - given.overhead_gib
        plan = plan_sglang(shape, facts, gpu, deployment, driver_mib, rest, free)
    refusals = (
        *start_rules.before_sizing(shape, gpu, facts, deployment, given.weights_gib is not None),
        *start_rules.length_allowed(shape, plan.context_tokens, deployment.max_model_len),
        *plan.refusals,
    )
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
        utilization=plan.fraction,
        budget=_budget(facts, deployment, plan.fraction * memory.gib, plan.fraction, guessed=guessed),
        terms=(loaded, *options, *_overheads(shape, facts, deployment, plan, driver_mib, given)),
        available_kv_gib=units.bytes_to_gib(plan.rest_bytes),
        max_model_len=plan.context_tokens,
        max_num_seqs=max(1, plan.max_running),
        max_num_batched_tokens=_batched(facts, plan),
        refusals=refusals,
        **vars(pool_figures(plan)),
    )


def free_memory(facts: EngineFacts, memory: Term, loaded_gib: float, given: GivenTerms) -> FreeMemory:
    """Free memory before and after loading: typed, or predicted from the total, the context and what is loaded."""
    before = given.free_before_weights_gib
    if before is None:
        before = memory.gib - facts.sglang.context_gib
    after = given.free_after_weights_gib
    return FreeMemory(before, before - loaded_gib if after is None else after)


def pool_figures(plan: Plan) -> Pool:
    """The plan's pools as the one that every engine has.

    Two pools are told as one: a request of t tokens takes ``cell x (t + (full / sliding − 1) x min(t, window + page))``
    of ``cell x full``, which holds whichever pool is short. A model of states alone has their pool for its only one.
    """
    cells, pools, page, states = plan.cells, plan.pools, plan.server.page_tokens, plan.states
    blocks, block_bytes = pools.tokens // page, int(cells.cell * page)
    if states is not None and cells.cell == 0:
        blocks, block_bytes = max(0, states.slots), states.bytes_per_slot
    surplus = pools.tokens / pools.sliding_tokens - 1 if pools.full_tokens and pools.sliding_tokens else 0.0
    return Pool(
        bytes_per_token=cells.cell if pools.full_tokens != 0 else 0.0,
        sliding_bytes_per_token=max(0.0, surplus) * cells.cell if pools.full_tokens != 0 else cells.cell,
        window_tokens=cells.window_tokens,
        sliding_reserve_tokens=cells.window_tokens + page if cells.window_tokens else 0,
        block_size_tokens=page,
        largest_block_tokens=page,
        num_blocks=blocks,
        bytes_per_block=block_bytes,
        pool_tokens=pools.tokens,
        logged_tokens=pools.tokens,
        max_concurrency=min(pools.tokens / plan.context_tokens, plan.max_running),
        state_bytes_per_request=states.bytes_per_slot * plan.server.state_slots_per_request if states else 0.0,
        state_slots=states.slots if states is not None else None,
        sliding_pool_tokens=pools.sliding_tokens,
        workers=plan.server.workers,
    )


def _batched(facts: EngineFacts, plan: Plan) -> int:
    """Tokens of a prefill batch in one worker: the chunk, or what bounds a batch without chunks."""
    chunk = plan.server.worker_chunk_tokens
    return chunk if chunk > 0 else max(facts.sglang.unchunked_prefill_tokens, plan.context_tokens)


def _overheads(
    shape: ModelShape, facts: EngineFacts, deployment: Deployment, plan: Plan, driver_mib: float, given: GivenTerms
) -> list[Term]:
    """What lowers the free memory that the fraction is taken of, what is kept back for images, and the states."""
    rules, terms = facts.sglang, []
    if given.overhead_gib is not None:
        terms.append(given_overhead(given.overhead_gib))
    else:
        fact = "context_gib"
        context = plan.fraction * rules.context_gib
        name = "CUDA context's share (held before SGLang measures)"
        terms.append(Term(name, context, facts.origin(fact), facts.source(fact)))
        if images := images_gib(rules, shape, plan.server, deployment, driver_mib):
            fact = "multimodal_cache_mib"
            terms.append(Term("reserved for images", images, facts.origin(fact), facts.source(fact)))
    if plan.states is not None:
        pool = (plan.states.slots + rules.state_policy.padding_slots) * plan.states.bytes_per_slot
        source = f"{plan.states.slots:,} slots of {plan.states.bytes_per_slot:,} B: {facts.source('state_policy')}"
        terms.append(Term("pool of recurrent states", units.bytes_to_gib(pool), Origin.COMPUTED, source))
    return terms


def driver_total_mib(gpu: Gpu, given: GivenTerms) -> tuple[float, bool]:
    """The nvidia-smi total that the fraction is derived from, and whether it is a guess.

    Where the catalogue lacks it, the memory typed or visible stands in: a little too low, which lowers the fraction by
    less than a hundredth.
    """
    if gpu.memory_driver_mib is not None:
        return float(gpu.memory_driver_mib), False
    gib = given.gpu_memory_gib if given.gpu_memory_gib is not None else gpu.visible_memory_gib
    return units.gib_to_mib(gib), True


def _budget(facts: EngineFacts, deployment: Deployment, budget_gib: float, fraction: float, *, guessed: bool) -> Term:
    if deployment.gpu_memory_utilization is not None:
        return Term("budget", budget_gib, Origin.GIVEN, f"mem_fraction_static {fraction:.6g}, as typed")
    source = f"mem_fraction_static {fraction:.6g}, derived from flags: {facts.source('prefill_graphs')}"
    if guessed:
        return Term("budget", budget_gib, Origin.GUESS, f"{source}; nvidia-smi total not known, visible memory taken")
    return Term("budget", budget_gib, Origin.COMPUTED, source)
