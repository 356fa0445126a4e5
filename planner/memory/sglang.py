"""SGLang's pool: ``mem_fraction_static`` is derived from flags, nothing is profiled, and the pool is counted in tokens.

Source: python/sglang/srt/arg_groups/memory_hook.py, mem_cache/kv_cache_configurator.py and
model_executor/pool_configurator.py of the versions in the catalogue.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner import units
from planner.catalog.engine import EngineFacts, SglangRules, SglangTier
from planner.catalog.gpu import Gpu
from planner.catalog.model_shape import AttentionFamily, CacheKind, ModelShape
from planner.memory import start_rules
from planner.memory.blocks import is_sparse
from planner.memory.kv import layer_bytes_per_token
from planner.memory.overheads import given_overhead
from planner.memory.terms import memory_term, no_room, weights_term
from planner.memory.types import Deployment, GivenTerms, KvDtype, Origin, Refusal, Sizing, Term
from planner.memory.weights import weight_bytes


@dataclass(frozen=True)
class Pool:
    """SGLang's token pools.

    ``full_bytes`` and ``sliding_bytes`` are per token and rank; ``ratio`` is sliding tokens per full token.
    """

    cell_bytes: float
    window_tokens: int
    ratio: float

    def tokens(self, rest_bytes: int, page: int) -> int:
        """``rest // cell``, down to whole pages."""
        return max(0, int(rest_bytes // self.cell_bytes) // page * page)


def tier_of(rules: SglangRules, driver_mib: float) -> SglangTier:
    """Defaults for a GPU by its nvidia-smi total; the largest tier for one beyond all of them."""
    tiers = sorted(rules.tiers, key=lambda tier: tier.below_mib)
    return next((tier for tier in tiers if driver_mib < tier.below_mib), tiers[-1])


PREFILL_GRAPHS = ((4, 32, 4), (48, 256, 16), (288, 512, 32), (576, 1024, 64), (1280, 4096, 256))
"""Captured prefill sizes: first, last, step."""
LARGE_PREFILL_GRAPHS = (4608, 512)
"""The first of the sizes beyond those, and their step."""


def prefill_graph_sizes(chunk_tokens: int) -> int:
    """How many prefill sizes are captured up to the chunk."""
    first, step = LARGE_PREFILL_GRAPHS
    ranges = (*PREFILL_GRAPHS, (first, chunk_tokens, step))
    return sum(len(range(start, min(last, chunk_tokens) + 1, gap)) for start, last, gap in ranges)


def mem_fraction_static(
    rules: SglangRules,
    driver_mib: float,
    tp: int,
    *,
    latent: bool,
    multimodal: bool = False,
    chunk_tokens: int | None = None,
    graph_max_batch: int | None = None,
) -> float:
    """Share of memory for weights and cache, rounded to 3 digits.

        (M − max(512 + 1.5 x chunk + 1024 x tp / 8 + graphs, floor)) / M,  M in MiB

    graphs: 2 MB per sequence of the largest decode graph, plus 8 MB per captured prefill size (1,536 MB for MLA) where
    the version captures prefill graphs (not for multimodal models other than MLA).
    """
    tier = tier_of(rules, driver_mib)
    chunk = chunk_tokens or tier.chunked_prefill_tokens
    batch = graph_max_batch or (tier.graph_max_batch if tp < 4 else tier.graph_max_batch_tp4)
    graphs = rules.mb_per_graph_sequence * batch
    if latent:
        graphs += rules.latent_prefill_graphs_mb if rules.latent_prefill_graphs else 0.0
    elif rules.prefill_graphs and not multimodal:
        graphs += rules.mb_per_prefill_graph * prefill_graph_sizes(chunk)
    reserved = rules.metadata_mb + rules.mb_per_chunk_token * max(chunk, rules.min_chunk_tokens)
    reserved += rules.mb_per_rank * tp + graphs
    if driver_mib > rules.large_gpu_mib:
        reserved = max(reserved, rules.large_gpu_floor_mb)
    return round((driver_mib - reserved) / driver_mib, 3)


def is_multimodal(rules: SglangRules, shape: ModelShape) -> bool:
    """Whether the server loads the model with its vision tower by default."""
    return shape.vision_encoder is not None and shape.model_type not in rules.text_only_model_types


def default_fraction(rules: SglangRules, shape: ModelShape, driver_mib: float, tp: int, chunk_tokens: int) -> float:
    """`mem_fraction_static`, reduced for a multimodal model (and then not rounded).

        fraction x 0.95 x clamp(1 − 0.1 x (layers x hidden² / (24 x 1024²) − 1), 0.8, 1.05)

    with 24 layers and 1,024 where the vision config does not state them under the usual names.
    """
    multimodal, latent = is_multimodal(rules, shape), shape.family is AttentionFamily.MLA
    fraction = mem_fraction_static(
        rules, driver_mib, tp, latent=latent, multimodal=multimodal, chunk_tokens=chunk_tokens
    )
    if not multimodal or shape.vision_encoder is None:
        return fraction
    layers, hidden = (shape.vision_encoder[0] or 24, shape.vision_encoder[1] or 1024)
    size = layers * hidden**2 / (24 * 1024**2)
    return fraction * rules.multimodal_share * min(max(1 - 0.1 * (size - 1), 0.8), 1.05)


def multimodal_reserved_gib(rules: SglangRules, shape: ModelShape, driver_mib: float) -> float:
    """What is kept back for images, GiB; 0 for a text model."""
    if not is_multimodal(rules, shape):
        return 0.0
    large = shape.model_type in rules.multimodal_large_types and driver_mib > rules.large_gpu_mib
    return units.mib_to_gib(rules.multimodal_reserved_large_mib if large else rules.multimodal_reserved_mib)


def pool_of(rules: SglangRules, shape: ModelShape, tp: int, kv_dtype: KvDtype) -> Pool:
    """Bytes per token ("cell").

    Sliding layers are charged at full length, except for the listed model types, whose sliding pool holds ``ratio``
    tokens per full token: ``cell = full + ratio x sliding``.
    """
    own_pool = shape.model_type in rules.swa_model_types
    ratio = rules.swa_full_tokens_ratio if own_pool else 1.0
    cell, window = 0.0, 0
    for layers in shape.cache_layers:
        per_token = layers.count * layer_bytes_per_token(layers, tp, kv_dtype)
        if layers.kind is CacheKind.SLIDING and own_pool:
            cell += ratio * per_token
            window = max(window, layers.window_tokens or 0)
        else:
            cell += per_token
    return Pool(cell, window, ratio)


def max_running_requests(rules: SglangRules, tokens: int, context_tokens: int, asked: int | None) -> int:
    """``clamp(tokens / context x 512, 2048, 4096)``, and at most half the tokens."""
    derived = min(max(int(tokens / context_tokens * rules.running_factor), rules.min_running), rules.max_running)
    return max(1, min(asked or derived, max(1, tokens // 2)))


def size_sglang(shape: ModelShape, gpu: Gpu, facts: EngineFacts, deployment: Deployment, given: GivenTerms) -> Sizing:
    """Size one replica as SGLang does.

    ``rest = free before weights x fraction − weights``; the fraction is taken of the nvidia-smi total, the free memory
    is what CUDA reports less the context. A typed overhead replaces both: ``rest = fraction x total − weights −
    overhead``, on the same total as for vLLM.
    """
    rules = facts.sglang
    driver_mib, guessed = driver_total_mib(gpu, given)
    tier = tier_of(rules, driver_mib)
    chunk = deployment.max_num_batched_tokens or tier.chunked_prefill_tokens
    fraction = deployment.gpu_memory_utilization or default_fraction(rules, shape, driver_mib, deployment.tp, chunk)
    weights = weight_bytes(shape, deployment.weight_dtype, deployment.tp)
    memory = memory_term(gpu, given)
    budget_gib = fraction * memory.gib
    terms = [weights_term(shape, deployment, weights, given)]
    if given.overhead_gib is not None:
        terms.append(given_overhead(given.overhead_gib))
    else:
        terms.extend(_sglang_overheads(shape, facts, fraction, driver_mib))
    available = units.gib_to_bytes(budget_gib) - sum(units.gib_to_bytes(term.gib) for term in terms)
    max_model_len = deployment.max_model_len or shape.max_position_embeddings
    pool = pool_of(rules, shape, deployment.tp, deployment.kv_dtype)
    page = rules.sparse_page_size_tokens if is_sparse(shape) else rules.page_size_tokens
    tokens = pool.tokens(int(available), page) if available > 0 else 0
    refusals: list[Refusal] = [
        *start_rules.before_sizing(shape, gpu, facts, deployment, given.weights_gib is not None),
        *start_rules.length_allowed(shape, max_model_len, deployment.max_model_len),
    ]
    if available <= 0:
        refusals.append(no_room(available))
    elif pool.window_tokens and pool.window_tokens + page >= int(tokens * pool.ratio):
        message = f"the sliding pool ({int(tokens * pool.ratio)} tokens) cannot hold one window of {pool.window_tokens}"
        refusals.append(Refusal("sliding pool", message, "Raise mem_fraction_static or quantise the weights"))
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
        utilization=fraction,
        budget=_budget(facts, deployment, budget_gib, fraction, guessed=guessed),
        terms=tuple(terms),
        available_kv_gib=units.bytes_to_gib(available),
        bytes_per_token=pool.cell_bytes,
        sliding_bytes_per_token=(1 / pool.ratio - 1) * pool.cell_bytes,
        window_tokens=pool.window_tokens,
        sliding_reserve_tokens=pool.window_tokens + page if pool.window_tokens else 0,
        block_size_tokens=page,
        largest_block_tokens=page,
        num_blocks=tokens // page,
        bytes_per_block=int(pool.cell_bytes * page),
        pool_tokens=tokens,
        logged_tokens=tokens,
        max_concurrency=tokens / max_model_len,
        max_model_len=max_model_len,
        max_num_seqs=max_running_requests(rules, tokens, max_model_len, deployment.max_num_seqs),
        max_num_batched_tokens=chunk,
        refusals=tuple(refusals),
    )


def _sglang_overheads(shape: ModelShape, facts: EngineFacts, fraction: float, driver_mib: float) -> list[Term]:
    """What lowers the free memory that the fraction is taken of, and what is kept back for images."""
    terms = [
        Term(
            "CUDA context's share (held before SGLang measures)",
            fraction * facts.sglang.context_gib,
            facts.origin("context_gib"),
            facts.source("context_gib"),
        )
    ]
    reserved = multimodal_reserved_gib(facts.sglang, shape, driver_mib)
    if reserved:
        fact = "multimodal_reserved_mib"
        terms.append(Term("reserved for images", reserved, facts.origin(fact), facts.source(fact)))
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
