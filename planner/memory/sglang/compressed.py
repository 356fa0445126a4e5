"""Pools of compressed attention (DeepSeek-V4) in SGLang: a full, a sliding and two compressed pools, and state rings.

Every layer keeps latents of the window. A layer of compression ratio r keeps one more for every r tokens, and with
ratio 4 an index key beside it. What a compressor has in hand is a ring of rows: one for each page of the sliding pool
(ratio 4; 0.5.16: each window), or for each running request (ratio 128).

SGLang reads whether it may use a denser layout for latents from the GPU at hand; this is the general one.

Source: python/sglang/srt/model_executor/pool_configurator.py, ``DSV4PoolConfigurator`` (0.5.23).
"""

from __future__ import annotations

from planner.catalog.engine_rules.sglang import SglangRules
from planner.catalog.model_shape import CacheKind, CacheLayers, CacheRole, ModelShape
from planner.memory.sglang.pools import Cells, Pools, paged, sliding_pool_too_small
from planner.memory.sglang.server import Server
from planner.memory.types import Deployment

SHORT, LONG = 4, 128
"""Compression ratios that the engine knows."""
OVERLAPPED = 4
"""Values per element of a ratio-4 compressor's row: keys and scores of two overlapping groups."""
PLAIN = 2
"""Values per element of a ratio-128 compressor's row: a key and a score."""


def latents(shape: ModelShape, ratio: int) -> CacheLayers | None:
    """The layers that keep one latent for ``ratio`` tokens; those of the window for a ratio of 1."""
    kept = (c for c in shape.cache_layers if c.role is CacheRole.TOKENS and c.tokens_per_state == ratio)
    return next((c for c in kept if ratio > 1 or c.kind is CacheKind.SLIDING), None)


def index_keys(shape: ModelShape) -> CacheLayers | None:
    """The index keys beside short compressed latents."""
    return next((c for c in shape.cache_layers if c.role is CacheRole.INDEX), None)


def bytes_per_row(rules: SglangRules, layers: CacheLayers, page: int) -> float:
    """Bytes of a latent in one layer with its share of a page's padding.

        ceil(page x row / 576) x 576 / page

    0.5.16 does not count the padding.
    """
    align = rules.compressed.page_align_bytes
    return -(-page * (layers.fixed_bytes_per_token or 0) // align) * align / page


def compressed_cells(rules: SglangRules, shape: ModelShape, server: Server, deployment: Deployment) -> Cells:
    """Bytes of a full token with its share of the sliding pool: ``ratio x sliding + compressed``.

    A sliding token costs a latent in every layer and the ratio-4 compressors' rings, one a page. A full token costs a
    share ``1 / r`` of a compressed latent, and of an index key. Draft layers inflate all by their number.
    """
    window, page = latents(shape, 1), server.page_tokens
    layers = -(-shape.num_layers // deployment.pp)
    sliding = full = 0.0
    if window is not None:
        sliding = bytes_per_row(rules, window, page) * layers
    for ratio in (SHORT, LONG):
        kept = latents(shape, ratio)
        if kept is not None:
            full += bytes_per_row(rules, kept, page // ratio) / ratio * -(-kept.count // deployment.pp)
    index = index_keys(shape)
    if index is not None:
        full += (index.fixed_bytes_per_token or 0) / SHORT * -(-index.count // deployment.pp)
    sliding += _ring_bytes(rules, shape, deployment)
    inflation = 1.0
    if deployment.speculative is not None:
        inflation = (layers + 1) / layers
    ratio_asked = deployment.sglang.swa_full_tokens_ratio
    share = rules.compressed.sliding_ratio if ratio_asked is None else ratio_asked
    cell = (share * sliding + full) * inflation
    return Cells(cell, int(full * inflation), int(sliding * inflation), share, window_of(window))


def window_of(window: CacheLayers | None) -> int:
    """Tokens of the window."""
    return (window.window_tokens or 0) if window is not None else 0


def _ring_bytes(rules: SglangRules, shape: ModelShape, deployment: Deployment) -> float:
    """Rings of the ratio-4 compressors, latents and index keys, per sliding token."""
    short, index = latents(shape, SHORT), index_keys(shape)
    if short is None:
        return 0.0
    elements = short.key_dim + short.value_dim + (index.key_dim if index is not None else 0)
    rows = ring_rows(rules, deployment, SHORT) / rules.compressed.ring_tokens
    return rows * OVERLAPPED * elements * rules.compressed.state_bytes * -(-short.count // deployment.pp)


def ring_rows(rules: SglangRules, deployment: Deployment, ratio: int) -> int:
    """Rows of a compressor's ring; more with speculative decoding."""
    rings = rules.compressed.ring_rows if deployment.speculative is None else rules.compressed.speculative_ring_rows
    return dict(rings)[ratio]


def long_state_bytes(rules: SglangRules, shape: ModelShape, deployment: Deployment, requests: int) -> int:
    """Rings of the ratio-128 compressors: one for each running request and a spare, up to whole groups of 128 rows."""
    long = latents(shape, LONG)
    if long is None:
        return 0
    ring = ring_rows(rules, deployment, LONG)
    rows = -(-((requests + 1) * ring + ring + 1) // LONG) * LONG
    elements = PLAIN * (long.key_dim + long.value_dim)
    return rows * elements * rules.compressed.state_bytes * -(-long.count // deployment.pp)


def compressed_pools(
    rules: SglangRules, shape: ModelShape, cells: Cells, server: Server, deployment: Deployment, rest_bytes: int
) -> Pools:
    """Tokens that the bytes left over hold, after the cap that a flag sets, in whole pages."""
    page, cap = server.page_tokens, deployment.sglang.max_total_tokens
    requests = max(1, (server.max_running or rules.compressed.max_running) // server.workers)
    left = max(0, rest_bytes - long_state_bytes(rules, shape, deployment, requests))
    full = paged(int(left / cells.cell), page)
    if cap is not None and cap < full:
        full = paged(cap, page)
    sliding = paged(int(full * cells.ratio), page)
    refusal = None
    if rules.compressed.window_checked and cells.window_tokens + page >= sliding:
        refusal = sliding_pool_too_small(sliding, cells.window_tokens, page)
    return Pools(full, full, sliding, refusal)
