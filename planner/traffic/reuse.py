"""How much of the prompts an LRU prefix cache of any size would have answered, from the hashes of their blocks.

A hash stands for its block and for all blocks before it, so a block can only be answered when those before it are.
Prompts arrive one after the other. A prompt is looked up as a whole and then touched from its last block to its first,
as engines free a finished sequence (the end of a prompt goes first), so a block is never more recent than the one
before it. Requests that run at the same time, and the room that their outputs take, are left out.

An LRU cache of C blocks holds the C most recent ones at every moment (Mattson et al. 1970, IBM Systems Journal 9(2)),
so one pass gives the answer for all sizes: the rank of a block in the stack at its lookup is the smallest cache that
holds it. Ranks are counted exactly, as a dominance count over previous touches, for all blocks at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.traffic.types import IntArray

NEVER = np.iinfo(np.int64).max
"""Rank of a block that was not met before: no cache answers it."""


@dataclass(frozen=True)
class Prompts:
    """Prompts in the order of their arrival."""

    tokens: IntArray
    """Length of each prompt."""
    blocks: IntArray
    """Number of hashes of each prompt."""
    hashes: IntArray
    """Those of all prompts, one prompt after the other, each from its first block on."""


@dataclass(frozen=True)
class ReuseCurve:
    """Prompt tokens that caches of growing size answer."""

    cache_blocks: IntArray
    """Powers of two, up to the first that holds every block."""
    answered_tokens: IntArray


def reuse_curve(prompts: Prompts, block_tokens: int) -> ReuseCurve:
    """Tokens answered by caches of 1, 2, 4 ... blocks; the last one is as good as an endless one.

    Parameters
    ----------
    block_tokens
        Size of a block; the last one of a prompt may be shorter, and tokens behind the last hash are never answered.
    """
    request = np.repeat(np.arange(len(prompts.blocks)), prompts.blocks)
    depth = _within(prompts.blocks)
    tokens = np.clip(prompts.tokens[request] - depth * block_tokens, 0, block_tokens)
    names, code = np.unique(prompts.hashes, return_inverse=True)
    first = _first_of_prompt(request, code)
    ranks = _ranks(request[first], code[first])
    sizes = 1 << np.arange(int(max(len(names) - 1, 0)).bit_length() + 1, dtype=np.int64)
    found = ranks < NEVER
    smallest = np.searchsorted(sizes, ranks[found])
    answered = np.zeros(len(sizes), dtype=np.int64)
    np.add.at(answered, smallest, tokens[first][found])
    return ReuseCurve(sizes, np.cumsum(answered))


def _within(counts: IntArray) -> IntArray:
    """0, 1, 2 ... within each group of ``counts`` members."""
    starts = np.cumsum(counts) - counts
    return np.arange(int(counts.sum())) - np.repeat(starts, counts)


def _first_of_prompt(request: IntArray, code: IntArray) -> IntArray:
    """Places less those where a prompt repeats a hash of its own, which chained hashes never do."""
    order = np.lexsort((code, request))
    repeats = np.zeros(len(code), dtype=bool)
    again = (np.diff(request[order]) == 0) & (np.diff(code[order]) == 0)
    repeats[order[1:][again]] = True
    return np.flatnonzero(~repeats)


def _ranks(request: IntArray, code: IntArray) -> IntArray:
    """The smallest LRU cache, in blocks, that answers each block and all blocks before it in its prompt."""
    counts = np.bincount(request)
    start = np.repeat(np.cumsum(counts) - counts, counts)
    depth = np.arange(len(code)) - start
    touch = start + counts[request] - 1 - depth
    touched = np.empty_like(code)
    touched[touch] = code
    before = _previous(touched)
    last_touch = before[touch]
    met = np.flatnonzero(last_touch >= 0)
    ranks = np.full(len(code), NEVER, dtype=np.int64)
    # Touches since the last one of the block, less those of blocks that were touched again since: distinct blocks.
    since = start[met] - 1 - last_touch[met]
    ranks[met] = since - _count_above(before + 1, start[met], last_touch[met] + 1) + 1
    return _running_maximum(ranks, request)


def _previous(codes: IntArray) -> IntArray:
    """For each place, the one before it with the same code; -1 where there is none."""
    order = np.argsort(codes, kind="stable")
    same = np.diff(codes[order]) == 0
    previous = np.full(len(codes), -1, dtype=np.int64)
    previous[order[1:][same]] = order[:-1][same]
    return previous


def _count_above(values: IntArray, ends: IntArray, bounds: IntArray) -> IntArray:
    """For each query, how many of ``values[:end]`` are above ``bound``; a wavelet matrix, one bit at a time.

    Whole numbers from 0 up to ``len(values)``. Time is O((n + q) log n), and each step is one pass of numpy.
    """
    total: Any = np.zeros(len(ends), dtype=np.int64)
    low, high = np.zeros(len(ends), dtype=np.int64), ends.astype(np.int64)
    for bit in range(len(values).bit_length() - 1, -1, -1):
        is_one = (values >> bit) & 1 == 1
        ones = np.concatenate([[0], np.cumsum(is_one)])
        zeros = len(values) - int(ones[-1])
        wants_one = (bounds >> bit) & 1 == 1
        total += np.where(wants_one, 0, ones[high] - ones[low])
        low = np.where(wants_one, zeros + ones[low], low - ones[low])
        high = np.where(wants_one, zeros + ones[high], high - ones[high])
        values = np.concatenate([values[~is_one], values[is_one]])
    return np.asarray(total)


def _running_maximum(ranks: IntArray, request: IntArray) -> IntArray:
    """The largest rank so far within each prompt: a block behind a missing one is missing."""
    top = len(ranks) + 1
    known = np.minimum(ranks, top) + request * (top + 1)
    highest = np.maximum.accumulate(known) - request * (top + 1) if len(known) else known
    return np.where(highest >= top, NEVER, highest)
