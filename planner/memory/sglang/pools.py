"""SGLang's pools: bytes of a token ("cell"), and tokens of each pool that the bytes left over hold.

Every figure is of one rank of one worker of data-parallel attention.

Source: python/sglang/srt/model_executor/pool_configurator.py (0.5.16, 0.5.23).
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.catalog.engine_rules.sglang import SglangRules
from planner.catalog.model_shape import CacheKind, CacheLayers, CacheRole, ModelShape
from planner.memory.kv import heads_per_rank
from planner.memory.sglang.backends import Generation, prefix_off
from planner.memory.sglang.server import Server, keeps_states
from planner.memory.types import Deployment, Refusal

BLOCK_SCALE_TOKENS = 32
"""Elements that share a byte of scale in an mxfp8 cache."""
FP4_BLOCK = 16
"""Elements that share a byte of scale in an nvfp4 cache."""
ONE_BYTE = ("fp8_e4m3", "fp8_e5m2", "mxfp8")
TOO_SMALL = "Raise mem_fraction_static, use more or larger GPUs, or quantise the weights"


@dataclass(frozen=True)
class Cells:
    """Bytes per token.

    ``cell`` is what one token of the full pool costs with its share of the sliding pool. ``full`` and ``sliding`` are
    per token of their own pool; ``sliding`` is 0 where no layer has a pool of its own.
    """

    cell: float
    full: int
    sliding: int
    ratio: float
    window_tokens: int


@dataclass(frozen=True)
class Pools:
    """Tokens of each pool; ``full`` and ``sliding`` are ``None`` where all layers share one pool."""

    tokens: int
    full_tokens: int | None = None
    sliding_tokens: int | None = None
    refusal: Refusal | None = None


def element_bytes(kv_dtype: str) -> int:
    """Bytes per element; an nvfp4 element is counted as the byte that holds two."""
    return 1 if kv_dtype in ONE_BYTE or kv_dtype == "nvfp4" else 2


def cells_of(rules: SglangRules, shape: ModelShape, server: Server, deployment: Deployment) -> Cells:
    """Bytes per token of the pools that this model gets."""
    if has_sliding_pool(rules, shape):
        return _sliding_cells(rules, shape, server, deployment)
    cell = _one_pool_cell(rules, shape, server, deployment.pp)
    draft = deployment.speculative.draft_layers if deployment.speculative is not None else 0
    layers = attention_layers(rules, shape, deployment.pp)
    if draft and layers:
        cell += _draft_cell(rules, shape, server, cell, draft, layers)
    return Cells(float(cell), cell, 0, 1.0, 0)


def has_sliding_pool(rules: SglangRules, shape: ModelShape) -> bool:
    """Whether sliding layers get a pool of their own (``is_hybrid_swa_model``): by architecture, not by layers."""
    sliding = any(layers.kind is CacheKind.SLIDING for layers in shape.cache_layers)
    return sliding and shape.architecture in rules.swa_architectures


def attention_layers(rules: SglangRules, shape: ModelShape, pp: int = 1) -> int:
    """Layers that are charged, on the pipeline stage that has the most.

    With a pool of states the layers that keep tokens; otherwise every layer of the config, caches or not: the engine
    does not know of layers that share a cache, or have none.
    """
    kept = sum(c.count + c.sharing_layers for c in shape.cache_layers if c.role is CacheRole.TOKENS)
    count = kept if keeps_states(rules, shape) else max(kept, shape.num_layers)
    return -(-count // pp)


def token_layer(shape: ModelShape) -> CacheLayers | None:
    """The layers whose size stands for all where the engine charges every layer alike; the full ones if there are."""
    plain = [layers for layers in shape.cache_layers if layers.role is CacheRole.TOKENS]
    full = (layers for layers in plain if layers.kind is CacheKind.FULL)
    return next(full, plain[0] if plain else None)


def layer_elements(layers: CacheLayers, server: Server) -> int:
    """Elements of a token in one layer on one rank: ``heads x (key_dim + value_dim)``."""
    return heads_per_rank(layers.kv_heads, server.attention_tp) * (layers.key_dim + layers.value_dim)


def layer_bytes(layers: CacheLayers, server: Server) -> int:
    """Bytes of a token in one layer on one rank: ``heads x (key_dim + value_dim) x element``.

    A block-scaled fp8 cache adds a byte for 32 elements.
    """
    elements = layer_elements(layers, server)
    scales = elements // BLOCK_SCALE_TOKENS if server.kv_dtype == "mxfp8" else 0
    return elements * element_bytes(server.kv_dtype) + scales


def _one_pool_cell(rules: SglangRules, shape: ModelShape, server: Server, pp: int) -> int:
    """``DefaultPoolConfigurator._compute_cell_size``."""
    layers, count = token_layer(shape), attention_layers(rules, shape, pp)
    if layers is None:
        return 0
    if server.latent:
        return count * latent_bytes(rules, shape, layers, server) + index_bytes(rules, shape, server, pp)
    if shape.architecture in rules.index_architectures:
        return _indexed_cell(rules, shape, layers, count, server, pp)
    if server.kv_dtype == "nvfp4":
        return _fp4_cell(layers, count, server)
    return count * layer_bytes(layers, server)


def latent_bytes(rules: SglangRules, shape: ModelShape, layers: CacheLayers, server: Server) -> int:
    """Bytes of a latent: ``(rank + rope) x element`` on every rank.

    With an indexer an fp8 latent keeps scales and a 16-bit rotary key (656 B), except on TensorRT-LLM's backend, which
    data-centre and consumer Blackwell take, and on ROCm (``calculate_mla_kv_cache_dim``); 0.5.16 does not count them.
    """
    elements = latent_elements(shape, layers)
    if server.kv_dtype == "nvfp4":
        return elements // 2 + elements // FP4_BLOCK
    scaled = server.sparse and server.kv_dtype == "fp8_e4m3" and layers.fp8_bytes_per_token is not None
    if scaled and rules.sparse_scales_counted and not raw_sparse_latent(rules, shape, server):
        assert layers.fp8_bytes_per_token is not None
        return layers.fp8_bytes_per_token
    return elements * element_bytes(server.kv_dtype)


def raw_sparse_latent(rules: SglangRules, shape: ModelShape, server: Server) -> bool:
    """Whether an fp8 latent with an indexer is stored without scales (``_dsa_split_backend_resolution``)."""
    if server.generation is Generation.BLACKWELL_CONSUMER:
        return shape.architecture not in rules.scaled_sparse_architectures
    return server.generation in (Generation.BLACKWELL, Generation.ROCM)


def latent_elements(shape: ModelShape, layers: CacheLayers) -> int:
    """``kv_lora_rank + qk_rope_head_dim``, also of a model whose cache another engine keeps expanded."""
    if layers.value_dim == 0:
        return layers.key_dim
    down = [m.out_features for m in shape.matrices if m.module.endswith("kv_a_proj_with_mqa")]
    return down[0] if down else layers.key_dim + layers.value_dim


def index_bytes(rules: SglangRules, shape: ModelShape, server: Server, pp: int = 1) -> int:
    """Indexer keys of sparse attention, fp8 with their scale.

    Every layer with an indexer of its own; in 0.5.16 every layer.
    """
    indexed = [layers for layers in shape.cache_layers if layers.role is CacheRole.INDEX] if server.sparse else []
    own = rules.shared_indexers_left_out
    counts = (-(-(layers.count if own else shape.num_layers) // pp) for layers in indexed)
    return sum(count * (layers.fixed_bytes_per_token or 0) for count, layers in zip(counts, indexed, strict=True))


def _indexed_cell(
    rules: SglangRules, shape: ModelShape, layers: CacheLayers, count: int, server: Server, pp: int
) -> int:
    """Block-sparse attention with an index pool (MiniMax-M3): one head of index keys, values in some layers.

    Scales are not counted. Index rows are in the model's precision, except with an e4m3 cache on Hopper, and on
    TensorRT-LLM's backend on data-centre Blackwell (0.5.23).
    """
    fp8 = server.kv_dtype == "fp8_e4m3" and rules.index_narrowed
    on_blackwell = server.generation is Generation.BLACKWELL and server.backend == "trtllm_mha"
    narrow = fp8 and (server.generation is Generation.HOPPER or on_blackwell)
    elements = sum(
        -(-index.count // pp) * (index.key_dim + index.value_dim)
        for index in shape.cache_layers
        if index.role is CacheRole.INDEX
    )
    plain = count * layer_elements(layers, server) * element_bytes(server.kv_dtype)
    return plain + elements * (1 if narrow else 2)


def _fp4_cell(layers: CacheLayers, count: int, server: Server) -> int:
    """``NVFP4KVCacheMethod.compute_cell_size``: packed pairs, a byte of scale for 16, and a workspace where prefill
    reads fp8 (every generation but data-centre Blackwell).
    """
    heads, dim = heads_per_rank(layers.kv_heads, server.attention_tp), layers.key_dim
    packed, scales = heads * (dim // 2) * count * 2, heads * (dim // FP4_BLOCK) * count * 2
    native = server.generation is Generation.BLACKWELL
    return packed + scales + (0 if native else heads * dim * 2)


def _draft_cell(rules: SglangRules, shape: ModelShape, server: Server, cell: int, draft: int, layers: int) -> int:
    """Draft layers, charged like the model's own; each has an indexer of its own where the model has them."""
    index = index_bytes(rules, shape, server)
    indexed = [c for c in shape.cache_layers if c.role is CacheRole.INDEX] if server.sparse else []
    return int((cell - index) * draft / layers) + sum(draft * (c.fixed_bytes_per_token or 0) for c in indexed[:1])


def _sliding_cells(rules: SglangRules, shape: ModelShape, server: Server, deployment: Deployment) -> Cells:
    """``HybridSWAPoolConfigurator``: ``full layers x full + ratio x sliding layers x sliding``.

    Without full layers the cell is one token of the sliding pool.
    """
    pp, draft = deployment.pp, deployment.speculative.draft_layers if deployment.speculative is not None else 0
    full = sliding = draft_full = 0
    for layers in shape.cache_layers:
        count = -(-(layers.count + layers.sharing_layers) // pp)
        if layers.kind is CacheKind.SLIDING:
            sliding += count * layer_bytes(layers, server)
        else:
            full += count * layer_bytes(layers, server)
            draft_full = draft * layer_bytes(layers, server)
    ratio = sliding_ratio(rules, shape, deployment)
    window = window_tokens(rules, shape)
    if not full:
        return Cells(float(sliding), 0, sliding, 1.0, window)
    return Cells(full + draft_full + ratio * sliding, full + draft_full, sliding, ratio, window)


def sliding_ratio(rules: SglangRules, shape: ModelShape, deployment: Deployment) -> float:
    """Tokens of the sliding pool per token of the full pool: the flag, the architecture's default or the general."""
    asked = deployment.sglang.swa_full_tokens_ratio
    if asked is not None:
        return asked
    own = (row.value for row in rules.swa_ratios if shape.architecture in row.architectures)
    return next(own, rules.swa_full_tokens_ratio)


def window_tokens(rules: SglangRules, shape: ModelShape) -> int:
    """The window as the engine has it: one less for architectures whose config counts the token itself."""
    window = max((c.window_tokens or 0 for c in shape.cache_layers if c.kind is CacheKind.SLIDING), default=0)
    return window - 1 if shape.architecture in rules.swa_inclusive_architectures else window


def pools_of(
    rules: SglangRules, cells: Cells, server: Server, deployment: Deployment, context_tokens: int, rest_bytes: int
) -> Pools:
    """Tokens that the bytes left over hold, after the cap that a flag sets, in whole pages."""
    if not cells.sliding:
        return _one_pool(cells, server, deployment, context_tokens, rest_bytes)
    if capped_by_requests(cells, server, deployment):
        return _capped_pools(rules, cells, server, deployment, rest_bytes)
    return _ratio_pools(rules, cells, server, deployment, rest_bytes)


def _one_pool(cells: Cells, server: Server, deployment: Deployment, context_tokens: int, rest_bytes: int) -> Pools:
    """``rest // cell``; without bytes per token (states only) the cap, or one context."""
    cap = deployment.sglang.max_total_tokens
    tokens = int(rest_bytes // cells.full) if cells.full else cap or context_tokens
    tokens = paged(tokens, server.page_tokens)
    return Pools(tokens if cap is None or cap >= tokens else paged(cap, server.page_tokens))


def paged(tokens: int, page: int) -> int:
    """Down to whole pages."""
    return max(0, tokens) // page * page


def _ratio_pools(rules: SglangRules, cells: Cells, server: Server, deployment: Deployment, rest_bytes: int) -> Pools:
    """``full = rest // cell``, ``sliding = full x ratio``; a window and a page must fit into the sliding pool."""
    page, cap = server.page_tokens, deployment.sglang.max_total_tokens
    unified = deployment.sglang.unified_memory and rules.unified_pages and cells.full > 0
    tokens = _unified_tokens(cells, page, rest_bytes) if unified else int(rest_bytes // cells.cell)
    tokens = paged(tokens, page)
    if cap is not None and cap < tokens:
        tokens = paged(cap, page)
    if not cells.full:
        return Pools(tokens, 0, tokens)
    sliding = paged(int(tokens * cells.ratio), page)
    refusal = None
    if not deployment.sglang.unified_memory and cells.window_tokens + page >= sliding:
        refusal = sliding_pool_too_small(sliding, cells.window_tokens, page)
    return Pools(tokens, tokens, sliding, refusal)


def sliding_pool_too_small(sliding: int, window: int, page: int) -> Refusal:
    """``MemoryPoolConfigurator.validate_swa_pool_size``."""
    message = (
        f"SWA pool ({sliding} tokens) cannot hold even one request: the prefill admission floor is "
        f"sliding_window_size ({window}) + page_size ({page})"
    )
    return Refusal("sliding pool", message, f"Raise swa_full_tokens_ratio; {TOO_SMALL[0].lower()}{TOO_SMALL[1:]}")


def _unified_tokens(cells: Cells, page: int, rest_bytes: int) -> int:
    """Most whole pages of full tokens that fit with their sliding tokens in one buffer.

    The sliding pool is cut into pages as well, so a full page more may fit than ``rest // cell`` says, or one fewer.
    """
    pages = int(rest_bytes // cells.full // page)
    low, high = 0, pages
    while low < high:
        middle = (low + high + 1) // 2
        full = middle * page
        used = full * cells.full + paged(int(full * cells.ratio), page) * cells.sliding
        low, high = (middle, high) if used <= rest_bytes else (low, middle - 1)
    return low * page


def capped_by_requests(cells: Cells, server: Server, deployment: Deployment) -> bool:
    """Whether the sliding pool is sized from the running requests (``SWARequestCapPoolConfigurator``).

    Without prefix caching, with chunked prefill and a number of running requests.
    """
    asked = server.max_running is not None and server.worker_chunk_tokens > 0
    return bool(cells.full) and asked and prefix_off(deployment)


def request_cap_tokens(rules: SglangRules, cells: Cells, server: Server, deployment: Deployment) -> int:
    """Most sliding tokens that the scheduler holds at once (``compute_swa_request_cap``).

    requests x (window + eviction interval x drafts + 2 pages) + chunks in flight x chunk + page
    """
    assert server.max_running is not None
    page, drafts = server.page_tokens, 1
    decode = page
    if deployment.speculative is not None:
        drafts = deployment.speculative.num_tokens
        decode = 2 * drafts
    held = cells.window_tokens + rules.swa_eviction_tokens * drafts + page + decode
    requests = max(1, server.max_running // server.workers)
    in_flight = 2 if server.overlap else 1
    return held * requests + in_flight * server.worker_chunk_tokens + page


def _capped_pools(rules: SglangRules, cells: Cells, server: Server, deployment: Deployment, rest_bytes: int) -> Pools:
    """The sliding pool for the running requests first; the rest is the full pool."""
    page, cap = server.page_tokens, deployment.sglang.max_total_tokens
    sliding = -(-request_cap_tokens(rules, cells, server, deployment) // page) * page
    fixed = sliding * cells.sliding
    full = int((rest_bytes - fixed) // cells.full) // page * page
    if full <= 0:
        message = (
            f"SWA pool cap ({sliding} tokens, {fixed / 2**30:.2f} GiB) leaves no room for the full KV pool within the "
            f"available {rest_bytes / 2**30:.2f} GiB"
        )
        return Pools(0, 0, sliding, Refusal("sliding pool", message, f"Lower max_running_requests; {TOO_SMALL}"))
    if cap is not None and cap < full:
        full, sliding = paged(cap, page), min(sliding, cap)
    return Pools(full, full, sliding)
