"""PyTorch's CUDA caching allocator, as far as loading goes (``c10/cuda/CUDACachingAllocator.cpp``).

Sizes are rounded to 512 B. A tensor of up to 1 MiB is cut from a segment of 2 MiB, one below 10 MiB from a segment of
20 MiB, a larger one gets its own of whole 2 MiB. The smallest free block that fits is taken first; what is left of it
stays free, unless it is below 512 B (small segments) or at most 1 MiB (large ones), which then counts as allocated.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass

from planner import units

ALIGNMENT = 512
SMALL_TENSOR = units.BYTES_PER_MIB
SMALL_SEGMENT = 2 * units.BYTES_PER_MIB
LARGE_TENSOR = 10 * units.BYTES_PER_MIB
SHARED_SEGMENT = 20 * units.BYTES_PER_MIB
SEGMENT_MULTIPLE = 2 * units.BYTES_PER_MIB
KEPT_REMAINDER = units.BYTES_PER_MIB


@dataclass(frozen=True)
class Occupied:
    """Bytes that tensors take: ``allocated`` to them, and ``reserved`` from the device in segments."""

    allocated: int
    reserved: int


def occupy(sizes: Iterable[int]) -> Occupied:
    """Allocate tensors of these sizes in order, freeing none."""
    free_small: list[int] = []
    free_large: list[int] = []
    allocated = reserved = 0
    for size in sizes:
        rounded = -(-size // ALIGNMENT) * ALIGNMENT
        small = rounded <= SMALL_TENSOR
        free = free_small if small else free_large
        fit = bisect_left(free, rounded)
        if fit < len(free):
            block = free.pop(fit)
        else:
            block = segment(rounded)
            reserved += block
        remainder = block - rounded
        if remainder >= ALIGNMENT if small else remainder > KEPT_REMAINDER:
            insort(free, remainder)
            block = rounded
        allocated += block
    return Occupied(allocated, reserved)


def segment(size: int) -> int:
    """Segment that is reserved for a tensor where no free block fits."""
    if size <= SMALL_TENSOR:
        return SMALL_SEGMENT
    return SHARED_SEGMENT if size < LARGE_TENSOR else rounded_up(size, SEGMENT_MULTIPLE)


def rounded_up(size: int, multiple: int) -> int:
    """The next multiple."""
    return -(-size // multiple) * multiple
