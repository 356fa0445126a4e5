"""vLLM's pool in blocks: groups of layers, bytes per block, blocks of one request, concurrency, the logged figure.

A block of the pool holds one page for each of ``group_size`` layers. Layers of different kinds (full, sliding,
recurrent) form several groups of that many layers each; every group draws its blocks from the one pool.
Source: vllm/v1/core/kv_cache_utils.py, kv_cache_planning.py and vllm/v1/kv_cache_interface.py of the versions in the
catalogue. What the kinds and their pages are: `planner.memory.vllm.pages`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from planner.catalog.engine_rules.vllm import VllmRules
from planner.memory.vllm.groups import Group, ceil_div
from planner.memory.vllm.packing import packed_groups, slotted_groups


@dataclass(frozen=True)
class Layout:
    """How the pool is cut up.

    Attributes
    ----------
    bytes_per_block
        Pages of the widest group; a group with fewer layers wastes the rest.
    checked
        Kinds as the start-up check of single layers counts them, where they differ from the groups of the pool.
    checked_block_bytes
        Bytes that the start-up check counts for a block, where they differ from `bytes_per_block`; else 0.
    weighted
        Concurrency counts blocks by the pages in them, in blocks of the first group.
    refusal
        Why this version cannot hold these layers in one pool; the figures are then an upper bound of the padding.
    """

    groups: tuple[Group, ...]
    bytes_per_block: int
    checked: tuple[Group, ...] = ()
    checked_block_bytes: int = 0
    weighted: bool = False
    refusal: str = ""

    @property
    def block_tokens(self) -> int:
        """Smallest block size of the groups, tokens: what the engine logs with."""
        return min(group.block_tokens for group in self.groups)

    @property
    def largest_block_tokens(self) -> int:
        """Largest block size of the groups whose blocks follow the tokens; 1 where none does."""
        return max((group.block_tokens for group in self.groups if group.held_blocks is None), default=1)


@dataclass(frozen=True)
class LayoutRules:
    """What a version does with layers of several kinds.

    Attributes
    ----------
    group_size, uneven_pages
        As in `VllmRules`.
    local_kept_apart
        Windows and chunks get groups of their own; else the whole model is allocated as if every layer kept everything.
    side_by_side
        How pages of unequal size are packed into one block (`planner.memory.vllm.packing`); empty where they are not.
    """

    group_size: str
    uneven_pages: str
    local_kept_apart: bool = True
    side_by_side: str = ""


def layout_rules(rules: VllmRules, kinds: Sequence[Group], *, hybrid_manager: bool, compressed: bool) -> LayoutRules:
    """The part of a version's rules, and of the flags, that shapes the pool.

    Versions that do not keep chunks apart turn the hybrid manager off for the whole model that has them.
    """
    chunks_allowed = rules.chunks_kept_apart or not any(kind.chunked for kind in kinds)
    side_by_side = rules.compressed_layout if compressed else ""
    return LayoutRules(rules.group_size_rule, rules.uneven_pages, hybrid_manager and chunks_allowed, side_by_side)


@lru_cache(maxsize=4096)
def layout(kinds: tuple[Group, ...], rules: LayoutRules) -> Layout:
    """Groups of a model that has layers of these kinds (``get_kv_cache_groups``)."""
    checked: tuple[Group, ...] = ()
    kinds = merged(kinds)
    if not rules.local_kept_apart and not share_a_table(kinds):
        kinds, checked = merged(kept_whole(kinds)), kinds
        if not becomes_one_type(checked):
            padded, _ = equal_pages(kinds, rules)
            return replace(_by_kind(padded, rules), refusal="without the hybrid manager, layers must be of one type")
    if share_a_table(kinds):
        table = one_table(kinds)
        return Layout((table,), table.layers * table.page_bytes, checked)
    if rules.side_by_side:
        return _packed(kinds, rules.side_by_side)
    padded, possible = equal_pages(kinds, rules)
    if not possible and rules.uneven_pages == "scale-pad-or-keep-whole" and windows_can_be_kept_whole(kinds):
        table = one_table(merged(kept_whole(kinds)))
        return Layout((table,), table.page_bytes)
    refusal = "" if possible else "pages of its layers differ in size"
    return replace(_by_kind(padded, rules), checked=() if padded == kinds else kinds, refusal=refusal)


def _packed(kinds: Sequence[Group], how: str) -> Layout:
    """Groups of unequal pages in one block: ``dense``, or as older versions made them."""
    if how == "dense":
        groups = packed_groups(kinds)
        return Layout(groups, max(group.page_bytes for group in groups))
    slots = slotted_groups(kinds, how)
    weighted = how != "overlaid"
    return Layout(slots.groups, slots.bytes_per_block, checked_block_bytes=slots.checked_block_bytes, weighted=weighted)


def _by_kind(kinds: Sequence[Group], rules: LayoutRules) -> Layout:
    """Groups of equally many layers, one kind in each (``_get_kv_cache_groups_uniform_page_size``)."""
    size = group_size([kind.layers for kind in kinds], rules.group_size)
    groups: list[Group] = []
    for kind in kinds:
        share, left = divmod(kind.layers, n_groups := ceil_div(kind.layers, size))
        groups += [replace(kind, layers=share + (index < left)) for index in range(n_groups)]
    return Layout(tuple(groups), max(group.layers for group in groups) * kinds[0].page_bytes)


def on_fullest_stage(pool: Layout, model_layers: int, stages: int) -> Layout:
    """The part of the pool on the pipeline stage with most layers, ``ceil(layers / stages)`` of them.

    Groups are made for the whole model, and a stage holds its layers of each (``_project_kv_cache_groups_to_worker``);
    kinds are taken to alternate evenly over the layers.
    """
    if stages == 1:
        return pool
    held = ceil_div(model_layers, stages)

    def share(count: int) -> int:
        return ceil_div(count * held, model_layers)

    def on_stage(group: Group) -> Group:
        if group.layers == 1:
            return replace(group, page_bytes=share(group.page_bytes))
        return replace(group, layers=share(group.layers))

    widest = max(group.layers for group in pool.groups)
    page = pool.bytes_per_block // widest
    bytes_per_block = share(page) if widest == 1 else share(widest) * page
    return replace(
        pool,
        groups=tuple(map(on_stage, pool.groups)),
        checked=tuple(map(on_stage, pool.checked)),
        bytes_per_block=bytes_per_block,
    )


def merged(kinds: Sequence[Group]) -> tuple[Group, ...]:
    """Kinds that differ in the number of layers only, put together."""
    layers: dict[Group, int] = {}
    for kind in kinds:
        alike = replace(kind, layers=0)
        layers[alike] = layers.get(alike, 0) + kind.layers
    return tuple(replace(alike, layers=count) for alike, count in layers.items())


def kept_whole(kinds: Sequence[Group]) -> list[Group]:
    """Windows and chunks allocated as if their layers kept every token (``unify_hybrid_kv_cache_specs``)."""
    return [replace(kind, window_tokens=None, chunked=False) for kind in kinds]


def becomes_one_type(kinds: Sequence[Group]) -> bool:
    """Whether keeping windows whole leaves one type: beside layers that keep everything, and of one length.

    Source: ``unify_hybrid_kv_cache_specs`` and ``FullAttentionSpec.merge_window_sizes``.
    """
    windows = {(kind.chunked, kind.window_tokens) for kind in kinds if kind.window_tokens is not None}
    lengths = len(windows) - len({chunked for chunked, _ in windows})
    return lengths == 0 and any(kind.window_tokens is None for kind in kinds) and share_a_table(kept_whole(kinds))


def windows_can_be_kept_whole(kinds: Sequence[Group]) -> bool:
    """Whether windows beside latents, of pages that cannot be made equal, are allocated as if nothing slid.

    Source: ``_try_get_full_allocation_fallback_groups`` (0.27.0), for sliding layers that are no latents.
    """
    sliding = [kind for kind in kinds if kind.window_tokens is not None]
    plain = not any(kind.latent or kind.chunked for kind in sliding)
    return bool(sliding) and plain and any(kind.latent for kind in kinds) and share_a_table(kept_whole(kinds))


def share_a_table(kinds: Sequence[Group]) -> bool:
    """Whether one block table serves all layers: they need the same number of blocks, of whatever size."""
    return len({kind.table_key for kind in kinds}) == 1


def one_table(kinds: Sequence[Group]) -> Group:
    """The one group of layers that share a block table (a latent and its indexer)."""
    if len(kinds) == 1:
        return kinds[0]
    return replace(kinds[0], layers=1, page_bytes=sum(kind.layers * kind.page_bytes for kind in kinds))


def group_size(counts: Sequence[int], rule: str) -> int:
    """Layers per group: the fewest of any kind; where the rule says so, the most if below a factor of the fewest."""
    factor = {"fewest": 1.0, "fewest-or-most-below-1.25": 1.25, "fewest-or-most": 1.5}[rule]
    fewest, most = min(counts), max(counts)
    return most if most < factor * fewest else fewest


def equal_pages(kinds: Sequence[Group], rules: LayoutRules) -> tuple[tuple[Group, ...], bool]:
    """The kinds with pages as large as the largest, and whether the version can do that.

    Blocks are lengthened where the largest page is a whole multiple. Otherwise pages are padded: those of recurrent
    states, and in newer versions those of attention whose rows are not indexed (``unify_kv_cache_spec_page_size``).
    """
    largest = max(kind.page_bytes for kind in kinds)
    possible, found = True, []
    for kind in kinds:
        ratio, rest = divmod(largest, kind.page_bytes)
        longer = not kind.recurrent and not rest
        padded = kind.recurrent or (rules.uneven_pages.startswith("scale-") and not kind.latent)
        if ratio > 1 or rest:
            possible = possible and rules.uneven_pages != "refuse" and (longer or padded)
        found.append(replace(kind, page_bytes=largest, block_tokens=kind.block_tokens * (ratio if longer else 1)))
    return tuple(found), possible


def blocks_of_request(group: Group, tokens: int, in_flight_tokens: int) -> int:
    """Blocks that one request of ``tokens`` may hold in a group.

    Full: ``ceil(tokens / block)``, of its rank's share of the tokens. Sliding:
    ``ceil(min(window − 1 + in_flight, tokens) / block) + 1``, the one more because a window may start inside a block.
    Chunked: ``ceil(min(chunk + in_flight, tokens) / block)``. Recurrent: however many states it keeps.
    """
    if group.held_blocks is not None:
        return group.held_blocks
    if group.window_tokens is None:
        return ceil_div(ceil_div(tokens, group.ranks), group.block_tokens)
    if group.chunked:
        return ceil_div(min(group.window_tokens + in_flight_tokens, tokens), group.block_tokens)
    held = min(group.window_tokens - 1 + in_flight_tokens, tokens)
    return ceil_div(held, group.block_tokens) + 1


def request_blocks(pool: Layout, tokens: int, in_flight_tokens: int) -> int:
    """Blocks of the pool that one request of ``tokens`` may hold, over all groups.

    Some versions weigh them: ``ceil(sum of blocks x bytes of the group / bytes of the first group)``.
    """
    held = [blocks_of_request(group, tokens, in_flight_tokens) for group in pool.groups]
    if not pool.weighted:
        return sum(held)
    held_bytes = sum(count * group.page_bytes for count, group in zip(held, pool.groups, strict=True))
    return ceil_div(held_bytes, pool.groups[0].page_bytes)


def request_bytes(pool: Layout, tokens: int, in_flight_tokens: int, start_check: str) -> int:
    """What the start-up check counts for one request: blocks of every group or of the first, or real layers only."""
    if start_check == "layers":
        return sum(
            group.layers * blocks_of_request(group, tokens, in_flight_tokens) * group.page_bytes
            for group in pool.checked or pool.groups
        )
    counted = pool.groups[:1] if start_check == "first-group" else pool.groups
    held = sum(blocks_of_request(group, tokens, in_flight_tokens) for group in counted)
    return held * (pool.checked_block_bytes or pool.bytes_per_block)


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
    return num_blocks // len(pool.groups) * pool.block_tokens * max(group.ranks for group in pool.groups)
