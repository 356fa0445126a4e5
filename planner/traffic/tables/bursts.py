"""Counts per window of several scales inside one-hour blocks, and the sizes of batches that share one stamp."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from planner.traffic.schema import BURST
from planner.traffic.tables.definitions import BLOCK_S, MIN_FREEDOM, SCALES_S, Window
from planner.traffic.tables.hours import Hours
from planner.traffic.tables.rows import Column

_SECOND_US = 1_000_000
_DENSE_SECONDS = 8
"""Seconds per row up to which seconds are counted in a dense array."""


_FEW_ROWS = 20_000
_SPARE_BITS = 2
"""A hash table has about four slots per key."""
_ODDS = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))
"""Multiplicative hashing: the highest bits of the product with a large odd number."""


@dataclass(frozen=True)
class Counts:
    """How many arrivals each window of one scale has, for the windows that have any; by model and window."""

    model: Column
    window: Column
    """Number of the window since the start."""
    n: Column

    def folded(self, ratio: int) -> Counts:
        """The same in windows that are ``ratio`` times as long."""
        return _summed(self.model, self.window // ratio, self.n)

    def take(self, places: Column) -> Counts:
        """The windows at these places."""
        return Counts(self.model[places], self.window[places], self.n[places])


def _summed(model: Column, window: Column, n: Column) -> Counts:
    new = np.ones(len(window), dtype=bool)
    new[1:] = (window[1:] != window[:-1]) | (model[1:] != model[:-1])
    first = np.flatnonzero(new)
    if not len(first):
        return Counts(model, window, n)
    return Counts(model[first], window[first], np.add.reduceat(n, first))


class Bursts:
    """Sums over blocks, exact whole numbers; the last block of the log waits until the end of the window is known."""

    def __init__(self, models: tuple[str, ...], start_us: int, last_us: int) -> None:
        self._models = models
        self._start_us = start_us
        self._last_block = (last_us - start_us) // (BLOCK_S * _SECOND_US)
        shape = (len(SCALES_S), len(models))
        self._total = np.zeros(len(models), dtype=np.int64)
        self._squares = np.zeros(shape, dtype=np.int64)
        """Sum over windows of the square of the count."""
        self._block_squares = np.zeros(len(models), dtype=np.int64)
        """Sum over blocks of the square of the count of the block: at most all rows times those of the busiest hour."""
        self._most = np.zeros(shape, dtype=np.int64)
        self._hours: list[Counts] = []
        self._held: list[Counts] = []
        self._batches: dict[tuple[int, int], int] = {}
        self._seen = np.zeros(len(models), dtype=bool)

    def add(self, hours: Hours) -> None:
        """Count the arrivals of some whole hours, later than all before."""
        rows = hours.arrivals()
        if not len(rows.ts_us):
            return
        second = (rows.ts_us - self._start_us) // _SECOND_US
        first, last = int(second.min()) // BLOCK_S, int(second.max()) // BLOCK_S
        size = len(self._models) * (last - first + 1) * BLOCK_S
        if size > _DENSE_SECONDS * len(second) + 100_000:
            self._count_batches(rows, np.bincount(rows.model, minlength=len(self._models)))
            self._add_sparse(_seconds(rows.model, second))
            return
        key = rows.model * ((last - first + 1) * BLOCK_S)
        key += second
        key -= first * BLOCK_S
        counts = np.bincount(key, minlength=size).reshape(len(self._models), -1)
        self._count_batches(rows, counts.sum(axis=1))
        if last >= self._last_block:
            whole = (self._last_block - first) * BLOCK_S
            model, place = np.nonzero(counts[:, whole:])
            self._held.append(Counts(model, place + self._last_block * BLOCK_S, counts[:, whole:][model, place]))
            counts = counts[:, :whole]
        self._add_dense(counts, first)

    def _add_sparse(self, seconds: Counts) -> None:
        whole = seconds.window < self._last_block * BLOCK_S
        if not whole.all():
            self._held.append(seconds.take(np.flatnonzero(~whole)))
            seconds = seconds.take(np.flatnonzero(whole))
        self._add_blocks(seconds)

    def _add_dense(self, counts: Column, first_block: int) -> None:
        """Add whole blocks; ``counts`` has a row per model and a column per second, also where there is no arrival."""
        if not counts.size:
            return
        before = 1
        for row, scale in enumerate(SCALES_S):
            ratio, before = scale // before, scale
            if ratio > 1:
                parts = (counts[:, place::ratio] for place in range(ratio))
                counts = sum(parts, start=np.zeros((len(counts), counts.shape[1] // ratio), dtype=np.int64))
            self._squares[row] += np.einsum("mw,mw->m", counts, counts)
            self._most[row] = np.maximum(self._most[row], counts.max(axis=1))
        self._total += counts.sum(axis=1)
        self._block_squares += np.einsum("mw,mw->m", counts, counts)
        model, block = np.nonzero(counts)
        self._hours.append(Counts(model, block + first_block, counts[model, block]))

    def _count_batches(self, rows: Hours, by_model: Column) -> None:
        """Rows of one model with the same stamp are one batch."""
        self._seen |= by_model > 0
        models = len(self._models)
        key = (rows.ts_us - int(rows.ts_us.min())) * models + rows.model
        shared = _perhaps_equal(key)
        singles = by_model
        if len(shared):
            key = np.sort(key.take(shared))
            singles = singles - np.bincount(key % models, minlength=models)
            ends = np.flatnonzero(np.append(key[1:] != key[:-1], True))
            sizes = np.diff(ends, prepend=-1)
            model = key[ends] % models
            singles += np.bincount(model[sizes == 1], minlength=models)
            several = np.flatnonzero(sizes > 1)
            packed, counts = np.unique(model[several] << 40 | sizes[several], return_counts=True)
            for name, n in zip(packed.tolist(), counts.tolist(), strict=True):
                self._note_batches(name >> 40, name & (1 << 40) - 1, n)
        for model_place, n in enumerate(singles.tolist()):
            if n:
                self._note_batches(model_place, 1, n)

    def _note_batches(self, model: int, size: int, n: int) -> None:
        self._batches[model, size] = self._batches.get((model, size), 0) + n

    def _add_blocks(self, seconds: Counts) -> None:
        """Add whole blocks."""
        counts, before = seconds, 1
        for row, scale in enumerate(SCALES_S):
            counts = counts.folded(scale // before) if scale > before else counts
            before = scale
            np.add.at(self._squares[row], counts.model, counts.n * counts.n)
            np.maximum.at(self._most[row], counts.model, counts.n)
        np.add.at(self._total, counts.model, counts.n)
        np.add.at(self._block_squares, counts.model, counts.n * counts.n)
        self._hours.append(counts)

    def table(self, window: Window) -> pa.Table:
        """Rows of `BURST`.

        ``idc = variance / mean``, with the mean over all whole windows. Up to 300 s the variance is pooled within
        blocks: the squares of the counts less, per block, the square of its total over its number of windows, summed
        over blocks and divided by the windows less the blocks. At 3600 s it is half the mean square of the difference
        between neighbouring hours, so that a daily swell does not count as a burst. Windows that the end of the log
        cuts off do not count. ``resolution_ok`` is false where the time stamps are too coarse for the scale or the
        window is too short. The sums are whole numbers, divided once at the end.

        Of kind ``batch``: ``windows`` stamps of the model are shared by exactly ``max_n`` arrivals.
        """
        found = (
            self._row(model, place, window) for model in range(len(self._models)) for place in range(len(SCALES_S))
        )
        rows = [row for row in found if row is not None]
        for (model, size), n in self._batches.items():
            batch = {"model": self._models[model], "kind": "batch", "windows": n, "max_n": size}
            rows.append({**batch, "scale_s": window.resolution_us / 1e6})
        rows.sort(key=lambda row: (row["model"], row["kind"] != "window", row["scale_s"], row["max_n"]))
        return pa.Table.from_pylist(rows, schema=BURST)

    def _row(self, model: int, place: int, window: Window) -> dict[str, Any] | None:
        if not self._seen[model]:
            return None
        scale_s = SCALES_S[place]
        bins = bins_per_block(window, scale_s)
        held = self._held_counts(model, scale_s, bins[self._last_block] if self._last_block < len(bins) else 0)
        total = int(self._total[model]) + sum(held)
        windows = sum(bins)
        mean = total / windows if windows else 0.0
        if scale_s == BLOCK_S:
            hours = self._hourly(model, held, [b for b, k in enumerate(bins) if k])
            freedom = len(hours) - 1
            spread = Fraction(sum((b - a) ** 2 for a, b in itertools.pairwise(hours)), 2)
        else:
            freedom = sum(k - 1 for k in bins if k)
            inner = Fraction(int(self._block_squares[model]), BLOCK_S // scale_s)
            spread = int(self._squares[place, model]) - inner + sum(n * n for n in held)
            spread -= Fraction(sum(held) ** 2, bins[self._last_block]) if held else 0
        enough = freedom >= MIN_FREEDOM and mean > 0
        variance = float(spread / freedom) if enough else None
        return {
            "model": self._models[model],
            "kind": "window",
            "scale_s": float(scale_s),
            "windows": windows,
            "mean_n": mean,
            "var_n": variance,
            "idc": variance / mean if variance is not None else None,
            "max_n": max([int(self._most[place, model]), *held]),
            "resolution_ok": enough and _resolved(window, scale_s),
        }

    def _held_counts(self, model: int, scale_s: int, bins: int) -> list[int]:
        """Counts of the last block's whole windows, for those that have any."""
        found: dict[int, int] = {}
        for counts in self._held:
            mine = np.flatnonzero(counts.model == model)
            place = (counts.window[mine] - self._last_block * BLOCK_S) // scale_s
            for bin_, n in zip(place.tolist(), counts.n[mine].tolist(), strict=True):
                if 0 <= bin_ < bins:
                    found[bin_] = found.get(bin_, 0) + n
        return [found[bin_] for bin_ in sorted(found)]

    def _hourly(self, model: int, held: list[int], blocks: list[int]) -> list[int]:
        """Arrivals of each whole hour, those without any included."""
        hours = dict.fromkeys(blocks, 0)
        for counts in self._hours:
            mine = np.flatnonzero(counts.model == model)
            hours |= dict(zip(counts.window[mine].tolist(), counts.n[mine].tolist(), strict=True))
        if held:
            hours[self._last_block] = sum(held)
        return [hours[block] for block in sorted(hours)]


def _perhaps_equal(key: Column) -> Column:
    """Places of all keys that occur more than once, and of a few others: those that share slots of hash tables."""
    places = np.arange(len(key))
    for odd in _ODDS:
        if len(places) < _FEW_ROWS:
            break
        places = places.take(_sharing(key.take(places), odd))
    return places


def _sharing(key: Column, odd: np.uint64) -> Column:
    """Places of the keys that share their slot of a hash table with another."""
    bits = len(key).bit_length() + _SPARE_BITS
    slot = (key.view(np.uint64) * odd >> np.uint64(64 - bits)).view(np.int64)
    counts = np.zeros(1 << bits, dtype=np.uint8)
    np.add.at(counts, slot, np.uint8(1))
    shared = np.flatnonzero(counts.take(slot) != 1)
    if np.count_nonzero(counts == 1) != len(key) - len(shared):  # more than 255 in one slot: the count went round
        return np.arange(len(key))
    return shared


def _seconds(model: Column, second: Column) -> Counts:
    first = int(second.min())
    width = int(second.max()) - first + 1
    key, n = np.unique(model * width + (second - first), return_counts=True)
    return Counts(key // width, key % width + first, n)


def bins_per_block(window: Window, scale_s: int) -> list[int]:
    """Whole windows of ``scale_s`` in each one-hour block; the last block may be short."""
    blocks = max(1, -int(-window.seconds // BLOCK_S))
    left = window.seconds - (blocks - 1) * BLOCK_S
    return [BLOCK_S // scale_s] * (blocks - 1) + [int(min(left, BLOCK_S) // scale_s)]


def _resolved(window: Window, scale_s: int) -> bool:
    """Ten ticks a window, or exact ticks that divide it."""
    scale_us = scale_s * 1_000_000
    divides = window.exact_ticks and scale_us % window.resolution_us == 0
    return divides or scale_us >= 10 * window.resolution_us
