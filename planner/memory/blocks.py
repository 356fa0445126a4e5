"""vLLM's pool in blocks: groups of layers, bytes per block, blocks of one request, concurrency, the logged figure.

A block of the pool holds one page for each of ``group_size`` layers. Layers of different kinds (full, sliding) form
several groups of that many layers each; every group draws its blocks from the one pool.
Source: vllm/v1/core/kv_cache_utils.py and vllm/v1/kv_cache_interface.py of the versions in the catalogue.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import gcd

from planner.catalog.engine import LatentBlocks, VllmRules
from planner.catalog.gpu import Gpu
from planner.catalog.model_shape import AttentionFamily, CacheKind, CacheLayers
from planner.memory.kv import layer_bytes_per_token
from planner.memory.types import KvDtype


def ceil_div(a: int, b: int) -> int:
    """Smallest whole number of ``b`` that covers ``a``."""
    return -(-a // b)


@dataclass(frozen=True)
class Group:
    """``layers`` layers of one kind that share a block table.

    ``page_bytes`` is one layer's page; ``window_tokens`` is ``None`` for layers that keep every token.
    """

    layers: int
    block_tokens: int
    page_bytes: int
    window_tokens: int | None


@dataclass(frozen=True)
class Layout:
    """How the pool is cut up.

    Attributes
    ----------
    group_size
        Layers that a block of the pool has room for; a group with fewer wastes the rest.
    bytes_per_block
        ``group_size x page``.
    """

    groups: tuple[Group, ...]
    group_size: int
    bytes_per_block: int

    @property
    def block_tokens(self) -> int:
        """Smallest block size of the groups, tokens: what the engine logs with."""
        return min(group.block_tokens for group in self.groups)


class UnevenPagesError(Exception):
    """The layers' pages cannot be made equal."""


@lru_cache(maxsize=4096)
def layout(
    cache_layers: tuple[CacheLayers, ...],
    tp: int,
    kv_dtype: KvDtype,
    block_tokens: int,
    group_size_rule: str,
    uneven_pages: str,
) -> Layout:
    """Groups of a model.

    Raises
    ------
    UnevenPagesError
        If page sizes differ and this version cannot unify them.
    """
    kinds = _unified(cache_layers, tp, kv_dtype, block_tokens, uneven_pages)
    counts = [kind.layers for kind in kinds]
    size = group_size(counts, group_size_rule)
    groups: list[Group] = []
    for kind in kinds:
        n_groups = ceil_div(kind.layers, size)
        for index in range(n_groups):
            layers = kind.layers // n_groups + (index < kind.layers % n_groups)
            groups.append(Group(layers, kind.block_tokens, kind.page_bytes, kind.window_tokens))
    return Layout(tuple(groups), size, size * kinds[0].page_bytes)


def group_size(counts: list[int], rule: str) -> int:
    """Layers per group: the fewest of any kind; with ``fewest-or-most``, the most if below 1.5 x the fewest."""
    fewest, most = min(counts), max(counts)
    if rule == "fewest-or-most" and most < 1.5 * fewest:
        return most
    return fewest


def _unified(
    cache_layers: tuple[CacheLayers, ...], tp: int, kv_dtype: KvDtype, block_tokens: int, uneven_pages: str
) -> list[Group]:
    """One entry per kind of layer, with block sizes raised until all pages are equal."""
    per_token = [layer_bytes_per_token(layers, tp, kv_dtype) for layers in cache_layers]
    largest = max(per_token)
    kinds = []
    for layers, size in zip(cache_layers, per_token, strict=True):
        if largest % size or (size != largest and uneven_pages == "refuse"):
            raise UnevenPagesError
        window = layers.window_tokens if layers.kind is CacheKind.SLIDING else None
        kinds.append(Group(layers.count, block_tokens * (largest // size), block_tokens * largest, window))
    return kinds


def block_tokens(rules: VllmRules, gpu: Gpu, family: AttentionFamily, kv_dtype: KvDtype) -> int:
    """Block size that the engine picks, tokens: by the attention backend for latent caches, else the default."""
    if family is not AttentionFamily.MLA:
        return rules.block_size_tokens
    blocks: LatentBlocks = rules.latent_block_fp8 if kv_dtype is KvDtype.FP8 else rules.latent_block_16bit
    if gpu.compute_capability.startswith("9."):
        return blocks.hopper
    if gpu.compute_capability.startswith("10."):
        return blocks.blackwell
    return blocks.other


def blocks_of_request(group: Group, tokens: int, in_flight_tokens: int) -> int:
    """Blocks that one request of ``tokens`` may hold in a group.

    Full: ``ceil(tokens / block)``. Sliding: ``ceil(min(window − 1 + in_flight, tokens) / block) + 1``, the one more
    because a window may start inside a block.
    """
    if group.window_tokens is None:
        return ceil_div(tokens, group.block_tokens)
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
        group.layers * blocks_of_request(group, tokens, in_flight_tokens) * group.page_bytes for group in pool.groups
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


def common_block(pool: Layout) -> int:
    """Largest block size that divides every group's block."""
    value = 0
    for group in pool.groups:
        value = gcd(value, group.block_tokens)
    return value
