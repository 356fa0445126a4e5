"""Rows of the canonical tables as arrays, and adding rows of the same key exactly."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from planner.traffic.schema import LENGTHS, TAIL
from planner.traffic.tables.definitions import TAIL_SIZE
from planner.traffic.types import FloatArray, IntArray, LengthLaw

LAW_KEY = ("model", "traffic_class", "period", "coupling")
"""What makes one length law."""
EDGES_KEY = ("prompt_lo", "prompt_hi", "output_lo", "output_hi")
SUMS = ("n", "sum_prompt", "sum_output", "sum_cached", "sum_pp", "sum_po", "sum_oo")
MAXIMA = ("max_prompt", "max_output", "max_total")

Columns = dict[str, npt.NDArray[Any]]


def columns_of(table: pa.Table) -> Columns:
    """The columns as arrays."""
    return {name: np.asarray(table[name].to_numpy()) for name in table.column_names}


def table_of(columns: Mapping[str, Any], schema: pa.Schema) -> pa.Table:
    """Arrays as a table; sums of squares may come as whole numbers of any size."""
    return pa.table([pa.array(columns[field.name], type=field.type) for field in schema], schema=schema)


def add_rows(table: pa.Table, key: Sequence[str], sums: Sequence[str], maxima: Sequence[str] = ()) -> pa.Table:
    """One row for each key: sums and maxima of its rows, ordered by key.

    Whole numbers are added exactly. Sums of squares are whole numbers in floating point: each total is rounded once,
    whatever the order of the rows, and exact below 2^53.
    """
    if not table.num_rows:
        return table
    ordered = table.sort_by([(name, "ascending") for name in key])
    rows = columns_of(ordered)
    starts = np.zeros(ordered.num_rows, dtype=bool)
    starts[0] = True
    for name in key:
        starts[1:] |= rows[name][1:] != rows[name][:-1]
    first = np.flatnonzero(starts)
    found: dict[str, Any] = {name: rows[name][first] for name in key}
    for name in sums:
        values = rows[name]
        whole = values.dtype.kind in "iu"
        found[name] = np.add.reduceat(values, first) if whole else _added(values, first)
    found |= {name: np.maximum.reduceat(rows[name], first) for name in maxima}
    return table_of(found, table.schema)


def _added(values: npt.NDArray[np.float64], first: IntArray) -> npt.NDArray[np.float64]:
    """Sums of the groups, each rounded once."""
    ends = [*first[1:].tolist(), values.size]
    return np.array([math.fsum(values[a:b]) for a, b in zip(first.tolist(), ends, strict=True)])


def add_cells(lengths: pa.Table) -> pa.Table:
    """Cells of the same law and the same edges become one, in the order of `planner.traffic.canonical` tables."""
    added = add_rows(lengths, (*LAW_KEY, *EDGES_KEY), SUMS, MAXIMA)
    return in_order(added)


def in_order(lengths: pa.Table) -> pa.Table:
    """Cells by period, then model, then cell: as they are written."""
    names = ("period", "model", "traffic_class", "coupling", "prompt_lo", "output_lo", "prompt_hi", "output_hi")
    return lengths.select(LENGTHS.names).sort_by([(name, "ascending") for name in names]).combine_chunks()


def largest_totals(tail: pa.Table, size: int = TAIL_SIZE) -> pa.Table:
    """The ``size`` largest totals of each model, with every tie of the last one; longest first."""
    rows = columns_of(add_rows(tail.select(TAIL.names), ("model", "prompt", "output"), ("n",)))
    if not rows["n"].size:
        return tail.select(TAIL.names)
    total = rows["prompt"] + rows["output"]
    order = np.lexsort((-rows["prompt"], -total, rows["model"].astype(str)))
    rows = {name: values[order] for name, values in rows.items()}
    total = total[order]
    keep = np.zeros(total.size, dtype=bool)
    for model in sorted(set(rows["model"].tolist())):
        mine = np.flatnonzero(rows["model"] == model)
        reached = np.flatnonzero(np.cumsum(rows["n"][mine]) >= size)
        least = total[mine[reached[0]]] if reached.size else total[mine[-1]]
        keep[mine] = total[mine] >= least
    return table_of({name: values[keep] for name, values in rows.items()}, TAIL)


def of_model(table: pa.Table, model: str) -> pa.Table:
    """The rows of one model."""
    return table.filter(pc.equal(table["model"], model))


def with_model(table: pa.Table, model: str, rows: pa.Table) -> pa.Table:
    """The table with the rows of a model replaced, in their place."""
    names = table["model"].to_pylist()
    if model not in names:
        return table
    at = names.index(model)
    return pa.concat_tables([table.slice(0, at), rows, table.slice(at + names.count(model))]).combine_chunks()


def renamed(table: pa.Table, names: Mapping[str, str]) -> pa.Table:
    """The table with models renamed."""
    models = pa.array([names.get(model, model) for model in table["model"].to_pylist()], type=pa.string())
    return table.set_column(table.column_names.index("model"), "model", models)


def ints(table: pa.Table, column: str) -> IntArray:
    """A column of whole numbers."""
    return np.asarray(table[column].to_numpy(), dtype=np.int64)


def floats(table: pa.Table, column: str) -> FloatArray:
    """A column of real numbers; nulls become NaN."""
    return np.asarray(table[column].to_numpy(), dtype=np.float64)


def law_of(cells: pa.Table) -> LengthLaw:
    """The length law of some rows of ``lengths``."""
    whole = ("n", "max_prompt", "max_output", "max_total", "prompt_lo", "output_lo")
    sums = ("sum_prompt", "sum_output", "sum_cached", "sum_pp", "sum_po", "sum_oo")
    columns: dict[str, Any] = {name: ints(cells, name) for name in whole}
    columns |= {name: floats(cells, name) for name in sums}
    return LengthLaw(**columns)
