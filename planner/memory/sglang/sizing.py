"""SGLang's pool: ``mem_fraction_static`` is derived from flags, nothing is profiled, and the pool is counted in tokens.

    rest = free after weights − free before weights x (1 − fraction) − kept back for images − pool of states
    tokens = rest // bytes per token, in whole pages

With data-parallel attention a replica has as many workers, each on its own ranks and with its own pool: every figure
here, requests included, is one worker's; `Sizing.workers` says how many there are.

Source: python/sglang/srt/arg_groups/memory_hook.py, mem_cache/kv_cache_configurator.py and
model_executor/pool_configurator.py of the versions in the catalogue.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner import units
from planner.catalog.engine import EngineFacts, SglangRules
from planner.catalog.gpu import Gpu
from planner.catalog.model_shape import ModelShape
from planner.memory.loading import loading_of
from planner.memory.options import option_terms
from planner.memory.overheads import given_overhead
from planner.memory.rules import start_rules
from planner.memory.sglang.sglang_compressed import CompressedPools, compressed_cells, compressed_pools
from planner.memory.sglang.sglang_pools import TOO_SMALL, Cells, Pools, cells_of, pools_of
from planner.memory.sglang.sglang_server import (
    Generation,
    Server,
    on_large_hopper,
    prefill_graph_sizes,
    resolve,
)
from planner.memory.sglang.sglang_states import StatePool, state_pool, too_few_states
from planner.memory.terms import memory_term, no_room, weights_term
from planner.memory.types import Deployment, GivenTerms, Origin, Refusal, Sizing, Term, WeightBytes
from planner.memory.weights import weight_bytes

BASE_TOWER = (24, 1024)
"""Layers and hidden size of the vision tower (ViT-L/14) that the fraction is reduced for as it stands."""


@dataclass(frozen=True)
class Plan:
    """The figures that the engine logs, per worker.

    Attributes
    ----------
    rest_bytes
        Bytes that are left for the token pools; negative when there are none.
    context_tokens
        Longest context that is served.
    max_running
        Most requests that run at once.
    compressed
        Pools of compressed attention.
    refusals
        Why the server would not start.
    """

    server: Server
    fraction: float
    rest_bytes: int
    context_tokens: int
    cells: Cells
    pools: Pools
    states: StatePool | None
    max_running: int
    compressed: CompressedPools | None = None
    refusals: tuple[Refusal, ...] = ()

    @property
    def request_rows(self) -> int:
        """Rows of the table that leads from a request's tokens to the pool; one is spare."""
        return self.max_running + 1


@dataclass(frozen=True)
class FreeMemory:
    """Free memory of a GPU before and after the weights are loaded, GiB."""

    before_gib: float
    after_gib: float


def mem_fraction_static(
    rules: SglangRules, shape: ModelShape, server: Server, deployment: Deployment, driver_mib: float
) -> float:
    """Share of the free memory for weights and pools.

        (M − max(512 + 1.5 x chunk + 1024 x tp x pp / 8 + graphs, floor)) / M,  M in MiB, rounded to 3 digits

    reduced for images and then not rounded (`share_with_images`).
    """
    asked = deployment.gpu_memory_utilization
    if asked is None:
        fraction = round((driver_mib - reserved_mb(rules, server, deployment, driver_mib)) / driver_mib, 3)
        fraction *= share_with_images(rules, shape) if server.reduced_for_images else 1.0
    else:
        fraction = asked
    return fraction * rules.rocm_long_context_share if _aiter_long(rules, shape, server, deployment) else fraction


def _aiter_long(rules: SglangRules, shape: ModelShape, server: Server, deployment: Deployment) -> bool:
    """AMD's attention backend needs a workspace for long contexts (arg_groups/attention_hook.py)."""
    context = deployment.max_model_len or shape.max_position_embeddings
    return (
        server.generation is Generation.ROCM and server.backend == "aiter" and context > rules.rocm_long_context_tokens
    )


def reserved_mb(rules: SglangRules, server: Server, deployment: Deployment, driver_mib: float) -> float:
    """What is left out of the fraction: metadata, activations of a prefill chunk, ranks, graphs.

    At least 10 GiB on large GPUs.
    """
    chunk = server.chunk_tokens if server.chunk_tokens > 0 else rules.unchunked_prefill_tokens
    reserved = rules.metadata_mb + rules.mb_per_chunk_token * max(chunk, rules.min_chunk_tokens)
    reserved += rules.mb_per_rank * deployment.tp * deployment.pp
    reserved += graphs_mb(rules, server)
    return max(reserved, rules.large_gpu_floor_mb) if driver_mib > rules.large_gpu_mib else reserved


def graphs_mb(rules: SglangRules, server: Server) -> float:
    """What graphs take (``reserve_for_graph_mb``).

    2 MB a sequence of the largest decode graph; 8 MB a captured prefill size, or 1.5 GiB for latents. Data-parallel
    attention pads: 3 MB a sequence and worker, 4.5 MB for large graphs, graphs or not.
    """
    batch, graphs = server.decode_graph_batch, 0.0
    if server.decode_graphs:
        graphs += rules.mb_per_graph_sequence * batch
    if server.workers > 1:
        large = rules.mb_per_large_dp_graph_sequence if batch > rules.large_dp_graph_batch else 0.0
        graphs += (rules.mb_per_dp_graph_sequence + large) * batch * server.workers
    if server.prefill_graphs:
        latent, sizes = rules.latent_prefill_graphs_mb, prefill_graph_sizes(server.prefill_graph_tokens)
        graphs += latent if server.latent else rules.mb_per_prefill_graph * sizes
    return graphs


def share_with_images(rules: SglangRules, shape: ModelShape) -> float:
    """What a multimodal model keeps of the fraction (``adjust_mem_fraction_for_vlm``).

        0.95 x clamp(1 − 0.1 x (layers x hidden² / (24 x 1024²) − 1), 0.8, 1.05)

    of what the vision config states under the usual names, else of the tower that the architecture's config class
    builds of itself, else of 24 layers and 1,024; 1 without any tower.
    """
    own = next((row for row in rules.class_towers if shape.architecture in row.architectures), None)
    if shape.vision_encoder is None and own is None:
        return 1.0
    base_layers, base_hidden = layers, hidden = BASE_TOWER
    if own is not None:
        layers, hidden = own.layers, own.hidden
    if shape.vision_encoder is not None:
        layers, hidden = shape.vision_encoder[0] or layers, shape.vision_encoder[1] or hidden
    if shape.architecture in rules.unread_tower_architectures:
        layers, hidden = BASE_TOWER
    size = layers * hidden**2 / (base_layers * base_hidden**2)
    return rules.multimodal_share * max(0.8, min(1.05, 1.0 - 0.1 * (size - 1.0)))


def images_gib(rules: SglangRules, shape: ModelShape, server: Server, deployment: Deployment, mib: float) -> float:
    """What is kept back for images, GiB: embeddings, or on large Hopper GPUs a pool to transfer them."""
    if not server.multimodal:
        return 0.0
    if not on_large_hopper(rules, shape, server.generation, mib, server.multimodal):
        return units.mib_to_gib(rules.multimodal_cache_mib)
    busy = deployment.max_num_seqs is not None and deployment.max_num_seqs >= rules.hopper_busy_requests
    return units.mib_to_gib(rules.hopper_busy_transfer_mib if busy else rules.hopper_transfer_mib)


def running_requests(rules: SglangRules, server: Server, tokens: int, context_tokens: int) -> int:
    """Most requests that run at once in one worker (``resolve_max_num_reqs``).

    As asked, over the workers; else ``clamp(tokens / context x 512, 2048, 4096)``; at most half the tokens.
    """
    if server.max_running is not None:
        wanted = max(1, server.max_running // server.workers)
    else:
        wanted = min(max(int(tokens / context_tokens * rules.running_factor), rules.min_running), rules.max_running)
    return min(wanted, tokens // 2)


def request_columns(plan: Plan, deployment: Deployment) -> int:
    """Columns of that table, 4 B each: the context, 4 more and the drafts (``get_req_to_token_extra_context_len``).

    With drafts and pages of more than one token, what two decode steps allocate in whole pages. The table comes out of
    what the fraction leaves.
    """
    drafts = deployment.speculative.num_tokens if deployment.speculative is not None else 0
    extra, page = 4 + drafts, plan.server.page_tokens
    if drafts and page > 1:
        extra = max(extra, 2 * drafts + page - 1)
    return plan.context_tokens + extra


def plan_sglang(
    shape: ModelShape,
    facts: EngineFacts,
    gpu: Gpu,
    deployment: Deployment,
    driver_mib: float,
    rest_gib: float | None,
    free: FreeMemory,
) -> Plan:
    """What the engine sets up, given free memory, or what is left for the token pools (``rest_gib``)."""
    rules = facts.sglang
    server = resolve(rules, shape, gpu, deployment, driver_mib)
    fraction = mem_fraction_static(rules, shape, server, deployment, driver_mib)
    context = deployment.max_model_len or shape.max_position_embeddings
    if rest_gib is None:
        left = free.after_gib - free.before_gib * (1 - fraction)
        left -= images_gib(rules, shape, server, deployment, driver_mib)
        states = state_pool(rules, shape, server, deployment, left)
        rest_gib = left if states is None else states.rest_gib
    else:
        ratio = deployment.sglang.mamba_full_memory_ratio or rules.state_policy.memory_ratio
        states = state_pool(rules, shape, server, deployment, rest_gib * (1 + ratio))
    rest_bytes = int(units.gib_to_bytes(rest_gib))
    if server.compressed:
        return _compressed_plan(rules, shape, server, deployment, fraction, rest_bytes, context, free)
    cells = cells_of(rules, shape, server, deployment)
    pools = pools_of(rules, cells, server, deployment, context, rest_bytes)
    running = running_requests(rules, server, pools.tokens, context)
    if states is not None:
        running = max(0, min(running, states.slots // server.state_slots_per_request))
    return Plan(
        server=server,
        fraction=fraction,
        rest_bytes=rest_bytes,
        context_tokens=context,
        cells=cells,
        pools=pools,
        states=states,
        max_running=running,
        refusals=_refusals(rest_gib, fraction, free, server, pools, states, running),
    )


def _compressed_plan(
    rules: SglangRules,
    shape: ModelShape,
    server: Server,
    deployment: Deployment,
    fraction: float,
    rest_bytes: int,
    context: int,
    free: FreeMemory,
) -> Plan:
    """The same for compressed attention (DeepSeek-V4)."""
    cells = compressed_cells(rules, shape, server, deployment)
    sizes = compressed_pools(rules, shape, cells, server, deployment, rest_bytes)
    running = running_requests(rules, server, sizes.pools.tokens, context)
    return Plan(
        server=server,
        fraction=fraction,
        rest_bytes=rest_bytes,
        context_tokens=context,
        cells=cells,
        pools=sizes.pools,
        states=None,
        max_running=running,
        compressed=sizes,
        refusals=_refusals(units.bytes_to_gib(rest_bytes), fraction, free, server, sizes.pools, None, running),
    )


def _refusals(
    rest_gib: float,
    fraction: float,
    free: FreeMemory,
    server: Server,
    pools: Pools,
    states: StatePool | None,
    running: int,
) -> tuple[Refusal, ...]:
    """The first reason, as the engine checks them: states, memory, sliding pool, tokens, requests."""
    if states is not None and states.refusal is not None:
        return (states.refusal,)
    if rest_gib <= 0:
        return (weights_leave_nothing(fraction, free, rest_gib),)
    if pools.refusal is not None:
        return (pools.refusal,)
    if pools.tokens <= 0:
        message = (
            "Not enough memory. Please try to increase --mem-fraction-static. "
            f"Current value: mem_fraction_static={fraction:.6g}"
        )
        return (Refusal("no room for KV cache", message, TOO_SMALL),)
    if states is not None and running <= 0:
        return (too_few_states(states.slots, server.state_slots_per_request),)
    return ()


def weights_leave_nothing(fraction: float, free: FreeMemory, rest_gib: float) -> Refusal:
    """``_profile_available_bytes``: the fraction that would be the least is named."""
    if not free.before_gib:
        return no_room(units.gib_to_bytes(rest_gib))
    least = 1 - free.after_gib / free.before_gib
    message = (
        f"Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static={fraction:.6g} "
        f"(minimum viable = 1 - available/pre = {least:.4f}; {rest_gib:.2f} GiB are left)"
    )
    return Refusal("no room for KV cache", message, TOO_SMALL)


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
    terms = (loaded, *options, *_overheads(shape, facts, deployment, plan, driver_mib, given))
    budget = _budget(facts, deployment, plan.fraction * memory.gib, plan.fraction, guessed=guessed)
    return _sizing(shape, gpu, facts, deployment, plan, weights, memory, budget, terms, refusals)


def free_memory(facts: EngineFacts, memory: Term, loaded_gib: float, given: GivenTerms) -> FreeMemory:
    """Free memory before and after loading: typed, or predicted from the total, the context and what is loaded."""
    before = given.free_before_weights_gib
    if before is None:
        before = memory.gib - facts.sglang.context_gib
    after = given.free_after_weights_gib
    return FreeMemory(before, before - loaded_gib if after is None else after)


def _sizing(
    shape: ModelShape,
    gpu: Gpu,
    facts: EngineFacts,
    deployment: Deployment,
    plan: Plan,
    weights: WeightBytes,
    memory: Term,
    budget: Term,
    terms: tuple[Term, ...],
    refusals: tuple[Refusal, ...],
) -> Sizing:
    """The plan in the terms that every engine shares.

    Two pools are told as one: a request of t tokens takes ``cell x (t + (full / sliding − 1) x min(t, window + page))``
    of ``cell x full``, which holds whichever pool is short. A model of states alone has their pool for its only one.
    """
    cells, pools, page, states = plan.cells, plan.pools, plan.server.page_tokens, plan.states
    only_states = states is not None and cells.cell == 0
    blocks, block_bytes = pools.tokens // page, int(cells.cell * page)
    if states is not None and only_states:
        blocks, block_bytes = max(0, states.slots), states.bytes_per_slot
    surplus = pools.tokens / pools.sliding_tokens - 1 if pools.full_tokens and pools.sliding_tokens else 0.0
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
        budget=budget,
        terms=terms,
        available_kv_gib=units.bytes_to_gib(plan.rest_bytes),
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
        max_model_len=plan.context_tokens,
        max_num_seqs=max(1, plan.max_running),
        max_num_batched_tokens=_batched(facts, plan),
        refusals=refusals,
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
