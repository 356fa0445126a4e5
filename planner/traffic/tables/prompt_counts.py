"""Counts of prompt-length bands per window, and how they vary together: the bursts of every stretch of bands follow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from planner.traffic.buckets import EDGES
from planner.traffic.canonical_tables import law_of, of_model
from planner.traffic.prompt_bands import cuts_of
from planner.traffic.schema import ALL, PROMPT_BURST
from planner.traffic.tables.bursts import bins_per_block
from planner.traffic.tables.definitions import BLOCK_S, MIN_FREEDOM, SCALES_S, Window
from planner.traffic.tables.hours import in_order
from planner.traffic.tables.rows import Column, Names
from planner.traffic.tables.spool import Spool
from planner.traffic.types import FloatArray, IntArray

BANDS = 32
"""Bands of about equal work that are told apart, as many as a plan may have."""
_SECOND_US = 1_000_000


class _Counts:
    """Sums over blocks of the counts of one model's bands; whole numbers, exact in floating point."""

    def __init__(self, bands: int, window: Window) -> None:
        self._bands = bands
        self._bins = {scale: bins_per_block(window, scale) for scale in SCALES_S}
        self._total = {scale: np.zeros(bands) for scale in SCALES_S}
        self._products = {scale: np.zeros((bands, bands)) for scale in SCALES_S}
        """Within blocks: products of counts less those of the blocks' means."""
        self._hours: dict[int, FloatArray] = {}

    def add(self, block: int, band: Column, second: Column) -> None:
        """Count the requests of one block; seconds since its start."""
        key = band * BLOCK_S + second
        counts = np.bincount(key, minlength=self._bands * BLOCK_S).reshape(self._bands, BLOCK_S).astype(np.float64)
        for scale in SCALES_S:
            bins = self._bins[scale][block]
            if not bins:
                continue
            folded = counts[:, : bins * scale].reshape(self._bands, bins, scale).sum(axis=2)
            inside = folded.sum(axis=1)
            self._total[scale] += inside
            self._products[scale] += folded @ folded.T - np.outer(inside, inside) / bins
            if scale == BLOCK_S:
                self._hours[block] = inside

    def mean(self, scale: int) -> FloatArray:
        """Mean count of a window, by band."""
        return np.asarray(self._total[scale] / max(sum(self._bins[scale]), 1))

    def covariance(self, scale: int) -> FloatArray:
        """Between bands; NaN where the log is too short, as in `planner.traffic.tables.bursts.Bursts.table`."""
        bins = self._bins[scale]
        if scale == BLOCK_S:
            blocks = [block for block, n in enumerate(bins) if n]
            hours = np.array([self._hours.get(block, np.zeros(self._bands)) for block in blocks])
            steps = np.diff(hours, axis=0) if len(blocks) > 1 else np.zeros((0, self._bands))
            freedom, products = len(blocks) - 1, steps.T @ steps / 2.0
        else:
            freedom, products = sum(n - 1 for n in bins if n), self._products[scale]
        if freedom < MIN_FREEDOM:
            return np.full((self._bands, self._bands), np.nan)
        return np.asarray(products / freedom)


def prompt_burst_table(spool: Spool, names: Names, window: Window, lengths: pa.Table) -> pa.Table:
    """Rows of `PROMPT_BURST`: bands of about equal work of each model, from its cells in ``lengths``."""
    edges = {model: _edges_of(lengths, model) for model in names.models}
    first = dict(zip(edges, np.cumsum([0, *(e.size for e in edges.values())]).tolist(), strict=False))
    label = _labels(names, edges, first)
    counts = {model: _Counts(edges[model].size, window) for model in edges}
    span = (window.start_us, window.end_us - 1)
    for hours in in_order(spool, names.model_of_pair(), span, label):
        second = (hours.ts_us - window.start_us) // _SECOND_US
        block = second // BLOCK_S
        for one in np.unique(block).tolist():
            here = np.flatnonzero(block == one)
            band, inside = hours.model.take(here), second.take(here) - one * BLOCK_S
            for model, start in first.items():
                mine = np.flatnonzero((band >= start) & (band < start + edges[model].size))
                if mine.size:
                    counts[model].add(one, band.take(mine) - start, inside.take(mine))
    rows = [row for model in sorted(edges) for row in _rows(model, edges[model], counts[model])]
    return pa.Table.from_pylist(rows, schema=PROMPT_BURST)


def _edges_of(lengths: pa.Table, model: str) -> IntArray:
    cells = of_model(lengths.filter(pc.equal(lengths["period"], ALL)), model)
    cuts = cuts_of(law_of(cells), BANDS) if cells.num_rows else ()
    return np.array([0, *cuts], dtype=np.int64)


def _labels(names: Names, edges: dict[str, IntArray], first: dict[str, int]) -> Column:
    """Number of the band of each pair of model and class, and each prompt bucket; bands end at edges of buckets."""
    buckets = np.asarray(EDGES, dtype=np.int64)
    found = np.zeros((len(names.pairs), buckets.size), dtype=np.int64)
    for (model, _), pair in names.pairs.items():
        found[pair] = first[model] + np.searchsorted(edges[model], buckets, side="right") - 1
    return found


def _rows(model: str, edges: IntArray, counts: _Counts) -> list[dict[str, Any]]:
    rows = []
    for scale in SCALES_S:
        mean, covariance = counts.mean(scale), counts.covariance(scale)
        for i, low in enumerate(edges.tolist()):
            for j, other in enumerate(edges.tolist()):
                value = float(covariance[i, j])
                rows.append({
                    "model": model, "scale_s": float(scale), "prompt_lo": low, "other_lo": other,
                    "mean_n": float(mean[i]), "covariance": value if np.isfinite(value) else None,
                })  # fmt: skip
    return rows
