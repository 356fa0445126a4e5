"""Groups of a cache whose pages of unequal size lie side by side inside one block (DeepSeek-V4).

Layers of one type form a bucket. A bucket whose page sizes all occur equally often is a repeating pattern, and is split
into groups of equally many repeats; the others stay whole. The widest group sets the bytes of a block.
Source: vllm/v1/core/kv_cache_planning.py, ``_get_packed_kv_cache_groups`` (0.33.0).

Before 0.29 the layers that keep every token set how many repeats a group has. Before 0.27 a block had slots for their
pages too, and other pages were padded to theirs: ``_get_kv_cache_groups_uniform_groups``,
``_get_kv_cache_config_deepseek_v4``, ``_get_kv_cache_config_packed`` and ``_get_packed_kv_cache_layout``
(vllm/v1/core/kv_cache_utils.py, 0.20.0 to 0.28.0).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from planner.memory.vllm.groups import Group, ceil_div


@dataclass(frozen=True)
class Bucket:
    """Layers that may share a block table: one block size and one window, pages of one or several sizes."""

    kinds: tuple[Group, ...]

    @property
    def layers_by_page(self) -> Counter[int]:
        """Layers by page size."""
        counts: Counter[int] = Counter()
        for kind in self.kinds:
            counts[kind.page_bytes] += kind.layers
        return counts

    @property
    def repeats(self) -> int:
        """Layers of the commonest page size: repeats of the pattern."""
        return max(self.layers_by_page.values())

    @property
    def is_pattern(self) -> bool:
        """Whether every page size occurs equally often."""
        return len(set(self.layers_by_page.values())) == 1

    @property
    def layers(self) -> int:
        """All of its layers."""
        return sum(kind.layers for kind in self.kinds)

    def widest_bytes(self, groups: int) -> int:
        """Bytes of the widest of ``groups`` groups that it is split into."""
        return sum(ceil_div(layers, groups) * page for page, layers in self.layers_by_page.items())

    def split(self, groups: int) -> list[Group]:
        """Its groups, each with the sum of its pages as one page."""
        if groups == 1:
            return [replace(self.kinds[0], layers=1, page_bytes=self.widest_bytes(1))]
        pattern = sum(self.layers_by_page)
        share, left = divmod(self.repeats, groups)
        return [
            replace(self.kinds[0], layers=1, page_bytes=(share + (index < left)) * pattern) for index in range(groups)
        ]


def packed_groups(kinds: Iterable[Group]) -> tuple[Group, ...]:
    """Groups of layers of unequal pages, packed side by side."""
    buckets = _buckets(kinds)
    patterns = [bucket for bucket in buckets if bucket.is_pattern]
    least = max((bucket.repeats for bucket in patterns if len(bucket.layers_by_page) > 1), default=0)
    repeats = least_padding([bucket.repeats for bucket in patterns], least) if least else None

    def pattern_groups(bucket: Bucket) -> int:
        return ceil_div(bucket.repeats, repeats) if repeats and bucket.is_pattern else 1

    def holds_states(bucket: Bucket) -> bool:
        first = bucket.kinds[0]
        slides = first.window_tokens is not None and not first.chunked
        return first.recurrent or (repeats is None and slides)

    anchor = max(
        bucket.widest_bytes(bucket.layers if holds_states(bucket) else pattern_groups(bucket)) for bucket in buckets
    )
    groups: list[Group] = []
    for bucket in buckets:
        number = pattern_groups(bucket)
        if holds_states(bucket):
            states_per_block = max(anchor // bucket.kinds[0].page_bytes, 1)
            number = max(number, ceil_div(bucket.layers, states_per_block))
        groups += bucket.split(number)
    return tuple(groups)


@dataclass(frozen=True)
class Slots:
    """Groups whose layers take slots of a block.

    Attributes
    ----------
    bytes_per_block
        Of all slots.
    checked_block_bytes
        Of as many slots of every page size as any has: what the start-up check counts for a block.
    """

    groups: tuple[Group, ...]
    bytes_per_block: int
    checked_block_bytes: int


def slotted_groups(kinds: Iterable[Group], how: str) -> Slots:
    """Groups as many repeats wide as the layers that keep every token, which come first.

    Bytes of a block: ``equal-slots``: the most slots, of every page size; ``slots``: ``sum over page sizes of page x
    slots``; ``overlaid``: pages are not padded, and the widest group sets them.
    """
    first, *others = sorted(_buckets(kinds), key=lambda bucket: bucket.kinds[0].window_tokens is not None)
    sizes = sorted(first.layers_by_page)
    if how != "overlaid":
        others = [_padded_to(bucket, sizes) for bucket in others]
    repeats = least_padding([bucket.repeats for bucket in (first, *others)], first.repeats)
    slots, groups = Counter(first.layers_by_page), first.split(1)
    for bucket in others:
        number = ceil_div(bucket.repeats, repeats)
        groups += bucket.split(number)
        for page, layers in bucket.layers_by_page.items():
            slots[page] = max(slots[page], ceil_div(layers, number))
    most = max(slots.values()) * sum(sizes)
    bytes_per_block = {
        "equal-slots": most,
        "slots": sum(page * number for page, number in slots.items()),
        "overlaid": max(group.page_bytes for group in groups),
    }
    return Slots(tuple(groups), bytes_per_block[how], most)


def _padded_to(bucket: Bucket, sizes: Sequence[int]) -> Bucket:
    """The bucket with its pages padded to those of ascending ``sizes``."""
    return Bucket(tuple(replace(kind, page_bytes=next_larger(kind.page_bytes, sizes)) for kind in bucket.kinds))


def next_larger(page_bytes: int, sizes: Sequence[int]) -> int:
    """The smallest of the ascending ``sizes`` that holds a page; the page itself where none does."""
    return next((size for size in sizes if size >= page_bytes), page_bytes)


def least_padding(counts: Sequence[int], least: int) -> int:
    """The chunk from ``least`` on that adds least when each count is rounded up to it; the largest of equals."""

    def padding(chunk: int) -> int:
        return sum(-count % chunk for count in counts)

    return min(range(least, max(least, *counts) + 1), key=lambda chunk: (padding(chunk), -chunk))


def _buckets(kinds: Iterable[Group]) -> list[Bucket]:
    """Kinds by type, in order of first appearance."""
    found: dict[tuple[object, ...], list[Group]] = {}
    for kind in kinds:
        found.setdefault(kind.table_key, []).append(kind)
    return [Bucket(tuple(members)) for members in found.values()]
