"""Two laws of one length each to laws of both: long prompts with long outputs, and long with short."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from planner.traffic.buckets import EDGES
from planner.traffic.grid import whole_growth
from planner.traffic.histograms.place import Marginal
from planner.traffic.schema import ALL, DEFAULT_CLASS, LENGTHS, Coupling
from planner.traffic.types import FloatArray, IntArray


@dataclass(frozen=True)
class _Ranked:
    """A marginal by rank: from which rank on each value holds, cells ending at whole ranks."""

    marginal: Marginal
    end: FloatArray

    @classmethod
    def of(cls, marginal: Marginal) -> _Ranked:
        end = np.cumsum(marginal.weight)
        last = np.append(np.flatnonzero(np.diff(marginal.cell)), marginal.cell.size - 1)
        end[last] = np.rint(end[last])
        return cls(marginal, np.maximum.accumulate(end))

    def at(self, rank: FloatArray) -> IntArray:
        """Index of the value that holds at a rank."""
        return np.minimum(np.searchsorted(self.end, rank, side="right"), self.end.size - 1)

    def most_in_cell(self) -> IntArray:
        """The largest value that each value's cell may hold."""
        cell = self.marginal.cell
        last = np.append(np.flatnonzero(np.diff(cell)), cell.size - 1)
        return np.asarray(self.marginal.value[last[np.searchsorted(cell[last], cell)]], dtype=np.int64)


def coupled(
    model: str, prompt: Marginal, output: Marginal, coupling: Coupling, *, cached_share: float, limit: int | None
) -> pa.Table:
    """The rows of the ``lengths`` table of a model under a coupling.

    Counts, and sums of both lengths, are exactly those of the marginals. Largest lengths are the ends of the cells and
    buckets: bounds, not observations. Cached tokens are spread in proportion to the prompts.
    """
    if prompt.requests != output.requests:
        raise ValueError(f"{prompt.requests} prompts and {output.requests} outputs cannot be paired")
    first, second = _Ranked.of(prompt), _Ranked.of(output)
    n = float(prompt.requests)
    turned = coupling is Coupling.COUNTERMONOTONE
    ends = np.union1d(first.end, n - second.end if turned else second.end)
    ends = ends[(ends > 0) & (ends <= n)]
    starts = np.append(0.0, ends[:-1])
    middle, weight = (starts + ends) / 2, ends - starts
    p, o = first.at(middle), second.at(n - middle if turned else middle)
    pieces = np.flatnonzero((np.diff(prompt.cell[p], prepend=-1) != 0) | (np.diff(output.cell[o], prepend=-1) != 0))
    x, y = prompt.value[p].astype(np.float64), output.value[o].astype(np.float64)

    def whole(values: FloatArray, total: float) -> IntArray:
        upto = np.append(0.0, np.cumsum(np.add.reduceat(values * weight, pieces)))
        upto[-1] = total
        return whole_growth(upto).astype(np.int64)

    counts = whole(np.ones(weight.size), n)
    sums = whole(x, prompt.tokens), whole(y, output.tokens)
    columns = _columns(first, second, p[pieces], o[pieces], limit) | {
        "n": counts,
        "sum_prompt": sums[0],
        "sum_output": sums[1],
        "sum_cached": np.floor(sums[0] * cached_share).astype(np.int64),
        "sum_pp": np.maximum(np.add.reduceat(x * x * weight, pieces), sums[0] / counts * sums[0]),
        "sum_po": np.add.reduceat(x * y * weight, pieces),
        "sum_oo": np.maximum(np.add.reduceat(y * y * weight, pieces), sums[1] / counts * sums[1]),
    }
    words = {"model": model, "traffic_class": DEFAULT_CLASS, "period": ALL, "coupling": coupling.value}
    size = pieces.size
    arrays = [pa.array([words[f.name]] * size if f.name in words else columns[f.name], type=f.type) for f in LENGTHS]
    table = pa.Table.from_arrays(arrays, schema=LENGTHS)
    return table.sort_by([("prompt_lo", "ascending"), ("output_lo", "ascending")])


def _columns(first: _Ranked, second: _Ranked, p: IntArray, o: IntArray, limit: int | None) -> dict[str, IntArray]:
    """Bounds of each piece's cell, and the largest lengths that it may hold."""
    edges = np.asarray(EDGES, dtype=np.int64)
    found: dict[str, IntArray] = {}
    for side, ranked, at in (("prompt", first, p), ("output", second, o)):
        cell = ranked.marginal.cell[at]
        found |= {f"{side}_lo": edges[cell], f"{side}_hi": edges[cell + 1], f"max_{side}": ranked.most_in_cell()[at]}
    total = found["max_prompt"] + found["max_output"]
    if limit is not None:
        total = np.maximum(np.minimum(total, limit), found["prompt_lo"] + found["output_lo"])
    return found | {"max_total": total}


def largest_total(model: str, prompt: int, output: int, limit: int | None) -> dict[str, object]:
    """The row of the ``tail`` table: the largest total that the buckets allow, which nobody has seen.

    Parameters
    ----------
    prompt, output
        The largest lengths that the non-empty buckets may hold.
    limit
        The longest context, if it is stated.
    """
    total = prompt + output if limit is None else min(prompt + output, limit)
    longest = min(prompt, max(total - 1, 1))
    return {"model": model, "prompt": longest, "output": total - longest, "n": 1}
