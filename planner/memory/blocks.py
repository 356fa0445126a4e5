"""vLLM's pool in blocks: groups of layers, bytes per block, blocks of one request, concurrency, the logged figure.

A block of the pool holds one page for each of ``group_size`` layers. Layers of different kinds (full, sliding) form
several groups of that many layers each; every group draws its blocks from the one pool.
Source: vllm/v1/core/kv_cache_utils.py and vllm/v1/kv_cache_interface.py of the versions in the catalogue.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from planner.catalog.engine import LatentBlocks, VllmRules
from planner.catalog.gpu import Gpu
from planner.catalog.model_shape import AttentionFamily, CacheKind, CacheLayers, ModelShape
from planner.memory.kv import layer_bytes_per_token
from planner.memory.types import KvDtype

SPARSE_LATENT_BLOCK = 64
"""Block of a latent cache with an indexer (vllm/v1/attention/backends/mla/indexer.py)."""
WIDE_HEAD = 512


def ceil_div(a: int, b: int) -> int:
    """Smallest whole number of ``b`` that covers ``a``."""
    return -(-a // b)


@dataclass(frozen=True)
class Group:
    """``layers`` layers of one kind that share a block table.

    ``page_bytes`` is one layer's page; ``window_tokens`` is ``None`` for layers that keep every token. ``chunked``: the
    window is a chunk that starts anew.
    """

    layers: int
    block_tokens: int
    page_bytes: int
    window_tokens: int | None
    chunked: bool = False


@dataclass(frozen=True)
class Layout:
    """How the pool is cut up.

    Attributes
    ----------
    group_size
        Layers that a block of the pool has room for; a group with fewer wastes the rest.
    bytes_per_block
        ``group_size x page``.
    checked
        Groups as the start-up check of single layers counts them, where they differ from those of the pool.
    """

    groups: tuple[Group, ...]
    group_size: int
    bytes_per_block: int
    checked: tuple[Group, ...] = ()

    @property
    def block_tokens(self) -> int:
        """Smallest block size of the groups, tokens: what the engine logs with."""
        return min(group.block_tokens for group in self.groups)

    @property
    def largest_block_tokens(self) -> int:
        """Largest block size of the groups, tokens."""
        return max(group.block_tokens for group in self.groups)


@dataclass(frozen=True)
class LayoutRules:
    """What a version does with layers of several kinds.

    ``group_size`` and ``uneven_pages`` as in `VllmRules`; ``chunks_kept_apart``: chunked layers get groups of their
    own, else the whole model is allocated as if every layer kept everything.
    """

    group_size: str
    uneven_pages: str
    chunks_kept_apart: bool


def layout_rules(rules: VllmRules) -> LayoutRules:
    """The part of a version's rules that shapes the pool."""
    return LayoutRules(rules.group_size_rule, rules.uneven_pages, rules.chunks_kept_apart)


@lru_cache(maxsize=4096)
def layout(
    cache_layers: tuple[CacheLayers, ...], tp: int, kv_dtype: KvDtype, block_tokens: int, rules: LayoutRules
) -> Layout:
    """Groups of a model."""
    if len(cache_layers) > 1 and all(layers.kind is CacheKind.FULL for layers in cache_layers):
        return _one_table(cache_layers, tp, kv_dtype, block_tokens)
    kinds = _unified(cache_layers, tp, kv_dtype, block_tokens)
    checked: tuple[Group, ...] = ()
    if not rules.chunks_kept_apart and any(kind.chunked for kind in kinds):
        checked = tuple(kinds)
        kinds = [Group(sum(kind.layers for kind in kinds), kinds[0].block_tokens, kinds[0].page_bytes, None)]
    size = group_size([kind.layers for kind in kinds], rules.group_size)
    groups: list[Group] = []
    for kind in kinds:
        n_groups = ceil_div(kind.layers, size)
        for index in range(n_groups):
            groups.append(replace(kind, layers=kind.layers // n_groups + (index < kind.layers % n_groups)))
    return Layout(tuple(groups), size, size * kinds[0].page_bytes, checked)


def _one_table(cache_layers: tuple[CacheLayers, ...], tp: int, kv_dtype: KvDtype, block_tokens: int) -> Layout:
    """Layers that all keep everything but differ in size share one block table (a latent and its indexer)."""
    page = block_tokens * sum(layers.count * layer_bytes_per_token(layers, tp, kv_dtype) for layers in cache_layers)
    return Layout((Group(1, block_tokens, page, None),), 1, page)


def group_size(counts: list[int], rule: str) -> int:
    """Layers per group: the fewest of any kind; with ``fewest-or-most``, the most if below 1.5 x the fewest."""
    fewest, most = min(counts), max(counts)
    if rule == "fewest-or-most" and most < 1.5 * fewest:
        return most
    return fewest


def pages_can_be_equal(cache_layers: tuple[CacheLayers, ...], tp: int, kv_dtype: KvDtype, rules: LayoutRules) -> bool:
    """Whether this version can hold full and sliding layers in one pool.

    Equal sizes a token always; different ones where block sizes may be raised and the larger is a whole multiple.
    """
    if len({layers.kind for layers in cache_layers}) < 2:
        return True
    sizes = {layer_bytes_per_token(layers, tp, kv_dtype) for layers in cache_layers}
    return len(sizes) == 1 or (rules.uneven_pages == "scale" and all(max(sizes) % size == 0 for size in sizes))


def _unified(cache_layers: tuple[CacheLayers, ...], tp: int, kv_dtype: KvDtype, block_tokens: int) -> list[Group]:
    """One entry per kind of layer, with block sizes raised until all pages are equal.

    Where that is impossible, as `pages_can_be_equal` says, the smaller pages are padded: an upper bound.
    """
    largest = max(layer_bytes_per_token(layers, tp, kv_dtype) for layers in cache_layers)
    kinds = []
    for layers in cache_layers:
        window = layers.window_tokens if layers.kind is CacheKind.SLIDING else None
        block = block_tokens * (largest // layer_bytes_per_token(layers, tp, kv_dtype))
        kinds.append(Group(layers.count, block, block_tokens * largest, window, layers.chunked))
    return kinds


def block_tokens(rules: VllmRules, gpu: Gpu, shape: ModelShape, kv_dtype: KvDtype) -> int:
    """Block size that the engine picks, tokens: by the attention backend for latent caches, else the default.

    Sparse latents: always 64. Heads of 512 in an fp8 cache on Hopper: as the backend of that version wants.
    """
    if shape.family is not AttentionFamily.MLA:
        hopper = gpu.compute_capability.startswith("9.")
        wide = any(layers.key_dim >= WIDE_HEAD for layers in shape.cache_layers)
        if wide and hopper and kv_dtype is KvDtype.FP8:
            return rules.wide_head_fp8_block_hopper
        return rules.block_size_tokens
    if is_sparse(shape):
        return SPARSE_LATENT_BLOCK
    blocks: LatentBlocks = rules.latent_block_fp8 if kv_dtype is KvDtype.FP8 else rules.latent_block_16bit
    if gpu.compute_capability.startswith("9."):
        return blocks.hopper
    if gpu.compute_capability.startswith("10."):
        return blocks.blackwell
    return blocks.other


def is_sparse(shape: ModelShape) -> bool:
    """Whether an indexer picks the tokens to attend to (its keys are a second cache beside the latent)."""
    return any(layers.fixed_bytes_per_token is not None for layers in shape.cache_layers)


def blocks_of_request(group: Group, tokens: int, in_flight_tokens: int) -> int:
    """Blocks that one request of ``tokens`` may hold in a group.

    Full: ``ceil(tokens / block)``. Sliding: ``ceil(min(window − 1 + in_flight, tokens) / block) + 1``, the one more
    because a window may start inside a block. Chunked: ``ceil(min(chunk + in_flight, tokens) / block)``.
    """
    if group.window_tokens is None:
        return ceil_div(tokens, group.block_tokens)
    if group.chunked:
        return ceil_div(min(group.window_tokens + in_flight_tokens, tokens), group.block_tokens)
    held = min(group.window_tokens - 1 + in_flight_tokens, tokens)
    return ceil_div(held, group.block_tokens) + 1


def request_blocks(pool: Layout, tokens: int, in_flight_tokens: int) -> int:
    """Blocks of the pool that one request of ``tokens`` may hold, over all groups."""
    return sum(blocks_of_request(group, tokens, in_flight_tokens) for group in pool.groups)


def request_bytes(pool: Layout, tokens: int, in_flight_tokens: int, start_check: str) -> int:
    """What the start-up check counts for one request: whole blocks of every group, or real layers only."""
    if start_check == "groups":
        return request_blocks(pool, tokens, in_flight_tokens) * pool.bytes_per_block
    return sum(
        group.layers * blocks_of_request(group, tokens, in_flight_tokens) * group.page_bytes
        for group in pool.checked or pool.groups
    )


def longest_request(
    pool: Layout, available_bytes: int, in_flight_tokens: int, start_check: str, max_model_len: int
) -> int:
    """Longest request that the start-up check would accept (the engine's binary search), tokens."""
    low, high = 0, max_model_len
    while low < high:
        middle = (low + high + 1) // 2
        if request_bytes(pool, middle, in_flight_tokens, start_check) <= available_bytes:
            low = middle
        else:
            high = middle - 1
    return low


def logged_tokens(rules: VllmRules, pool: Layout, num_blocks: int, concurrency: float, max_model_len: int) -> int:
    """The figure that this version prints as "GPU KV cache size"."""
    if rules.logged_tokens == "concurrency":
        return int(concurrency * max_model_len)
    return num_blocks // len(pool.groups) * pool.block_tokens
