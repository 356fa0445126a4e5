"""The reuse curve against caches that are played through block by block."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from planner.traffic.reuse import Prompts, reuse_curve

Rows = list[tuple[int, list[int]]]


def _prompts(rows: Rows) -> Prompts:
    return Prompts(
        np.array([tokens for tokens, _ in rows], dtype=np.int64),
        np.array([len(hashes) for _, hashes in rows], dtype=np.int64),
        np.array([h for _, hashes in rows for h in hashes], dtype=np.int64),
    )


def _curve(rows: Rows, block_tokens: int) -> dict[int, int]:
    found = reuse_curve(_prompts(rows), block_tokens)
    return dict(zip(found.cache_blocks.tolist(), found.answered_tokens.tolist(), strict=True))


def _played(rows: Rows, size: int, block_tokens: int) -> int:
    """Tokens that an LRU cache of ``size`` blocks answers, one prompt after the other."""
    stack: list[int] = []
    answered = 0
    for tokens, hashes in rows:
        held = set(stack[:size])
        for place, name in enumerate(hashes):
            if name not in held:
                break
            answered += min(max(tokens - place * block_tokens, 0), block_tokens)
        touched = set(hashes)
        stack = [*hashes, *(name for name in stack if name not in touched)]
    return answered


def test_a_case_by_hand() -> None:
    """Blocks of 10 tokens; the third prompt finds 1 and 2, the fourth finds 4 and, half as long, 5."""
    rows = [(25, [1, 2, 3]), (20, [4, 5]), (25, [1, 2, 6]), (15, [4, 5])]
    # Before the third prompt the stack is 4 5 1 2 3: block 1 is third, 2 is fourth. Then it is 1 2 6 4 5 3.
    assert _curve(rows, 10) == {1: 0, 2: 0, 4: 10 + 10 + 10, 8: 20 + 15}


def test_nothing_comes_again() -> None:
    assert _curve([(10, [1]), (10, [2]), (10, [])], 10) == {1: 0, 2: 0}


def test_no_hashes_at_all() -> None:
    assert _curve([(10, []), (10, [])], 10) == {1: 0}


def test_a_hash_behind_a_missing_one_is_not_answered() -> None:
    """Chained hashes cannot do this; if a log's can, the prefix still has to be whole."""
    assert _curve([(20, [1, 2]), (20, [9, 2]), (20, [1, 2])], 10) == {1: 0, 2: 0, 4: 20}


def test_a_hash_twice_in_one_prompt_is_answered_once() -> None:
    assert _curve([(20, [1, 1]), (20, [1, 1])], 10) == {1: 10}


@pytest.mark.parametrize("seed", range(60))
def test_every_size_equals_a_cache_that_is_played_through(seed: int) -> None:
    rng = np.random.default_rng(seed)
    names: dict[tuple[int, ...], int] = {}
    rows: Rows = []
    for _ in range(int(rng.integers(1, 40))):
        path: tuple[int, ...] = ()
        hashes = []
        for branch in rng.integers(0, 2 + seed % 3, size=rng.integers(0, 7)).tolist():
            path = (*path, branch)
            hashes.append(names.setdefault(path, 7 * len(names) - 50))
        rows.append((int(rng.integers(0, 40)), hashes))
    for size, answered in _curve(rows, 5).items():
        assert answered == _played(rows, size, 5), size


def test_mooncake_at_every_size(examples: Path) -> None:
    lines = (examples / "mooncake_conversation_head2500.jsonl").read_text().splitlines()
    trace = sorted((json.loads(line) for line in lines), key=lambda row: row["timestamp"])
    rows = [(row["input_length"], row["hash_ids"]) for row in trace][:800]
    curve = _curve(rows, 512)
    assert all(a <= b for a, b in pairwise(curve.values()))
    for size in (1, 64, 1024, 4096, max(curve)):
        assert curve[size] == _played(rows, size, 512)
