"""A plain load table: GPU types with the most requests/s that each serves of every bucket of lengths, and a demand.

The form is that of Mélange (Griggs et al., arXiv 2404.14527; github.com/tyler-griggs/melange-release, read 2026-11-30):

    {"gpu_info": {NAME: {"cost": USD/h, "tputs": [[max requests/s of bucket (i, j)]], "available": optional count}},
     "workload_distribution": [[share of the requests]], "total_request_rate": requests/s, "slice_factor": count}

``slice_factor`` cuts each bucket into equal slices that Mélange gives whole to one GPU type. Here a bucket is shared
continuously, so it is read and not needed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np

from planner.errors import InputError, Problem, Problems
from planner.traffic.types import FloatArray

MOST_GPUS = 1e6
"""Beyond so many instances a figure is taken for one in a wrong unit."""
MOST_USD_PER_H = 1e6
SUM_TOLERANCE = 1e-6
GPU_KEYS = ("cost", "tputs", "available")
FORM = 'The form is {"gpu_info": …, "workload_distribution": …, "total_request_rate": …, "slice_factor": …}'


@dataclass(frozen=True)
class LoadTable:
    """A demand in buckets, and what a bucket weighs on each GPU type; G types in the order of their names, B buckets.

    Buckets without requests are left out.
    """

    gpus: tuple[str, ...]
    usd_per_h: FloatArray
    """Price of one instance of each type, shape (G,)."""
    load: FloatArray
    """Instances that the whole bucket keeps busy: requests/s ÷ most requests/s; inf where the type cannot serve it.
    Shape (G, B)."""
    available: tuple[int | None, ...]
    """Instances that can be had of each type; ``None``: no limit."""
    buckets: tuple[tuple[int, int], ...]
    """Row and column of each bucket in the file, counted from 1."""
    rate_per_s: float
    slice_factor: int | None = None
    """Slices of a bucket in the file; ``None`` if it states none."""


def read_load_table(path: Path) -> LoadTable:
    """Read a load table from a JSON file.

    Raises
    ------
    InputError
        With every problem of the file.
    """
    where = str(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(Problem(where, f"cannot be read: {error.strerror or error}")) from None
    except UnicodeDecodeError:
        raise InputError(Problem(where, "is no UTF-8 text", FORM)) from None
    try:
        # NaN and Infinity come back as texts, which no number check lets through.
        document = json.loads(text, object_pairs_hook=_without_repeats, parse_constant=str)
    except json.JSONDecodeError as error:
        raise InputError(Problem(where, f"is no JSON: {error.msg}", FORM, row=str(error.lineno))) from None
    except (RecursionError, ValueError) as error:
        raise InputError(Problem(where, f"is no JSON that can be read: {error}", FORM)) from None
    return load_table(document, where)


def load_table(document: object, where: str) -> LoadTable:
    """The load table of a parsed document.

    Raises
    ------
    InputError
        With every problem of the document.
    """
    if not isinstance(document, dict):
        raise InputError(Problem(where, f"holds a {type(document).__name__} where an object is expected", FORM))
    problems = Problems()
    rate = _positive(document, "total_request_rate", where, problems)
    share = _distribution(document, where, problems)
    slices = _count(document, "slice_factor", 1, where, "", problems)
    gpus = document.get("gpu_info")
    if not isinstance(gpus, dict) or not gpus:
        problems.add(where, "names no GPU types", "Give an object by name with cost and tputs", field="gpu_info")
        problems.raise_if_any()
    assert isinstance(gpus, dict)
    shape = None if share is None else share.shape
    names = tuple(sorted(gpus))
    entries = [_gpu(gpus[name], shape, where, f"gpu_info {name}", problems) for name in names]
    problems.raise_if_any()
    assert share is not None
    table = _table(names, entries, share, rate, slices)
    _check_sizes(table, where, problems)
    problems.raise_if_any()
    return table


@dataclass(frozen=True)
class _Gpu:
    usd_per_h: float
    most_per_s: FloatArray
    available: int | None


def _table(
    names: tuple[str, ...], entries: list[_Gpu], share: FloatArray, rate: float, slices: int | None
) -> LoadTable:
    used = share.ravel() > 0
    most = np.array([entry.most_per_s.ravel()[used] for entry in entries])
    with np.errstate(divide="ignore", over="ignore"):
        load = rate * share.ravel()[used] / most
    return LoadTable(
        gpus=names,
        usd_per_h=np.array([entry.usd_per_h for entry in entries]),
        load=load,
        available=tuple(entry.available for entry in entries),
        buckets=tuple((int(i) + 1, int(j) + 1) for i, j in np.argwhere(share > 0)),
        rate_per_s=rate,
        slice_factor=slices,
    )


def _check_sizes(table: LoadTable, where: str, problems: Problems) -> None:
    """No bucket, and no fleet, of more than `MOST_GPUS` instances: beyond that no solver is exact."""
    fix = "Check the units; where a type cannot serve a bucket, write 0"
    for name, load in zip(table.gpus, table.load, strict=True):
        huge = np.flatnonzero(np.isfinite(load) & (load > MOST_GPUS))
        if huge.size:
            row, column = table.buckets[huge[0]]
            message = f"bucket ({row}, {column}) alone keeps {load[huge[0]]:.3g} instances busy"
            problems.add(where, message, fix, row=f"gpu_info {name}", field="tputs")
    least = table.load.min(axis=0)
    if least[np.isfinite(least)].sum() > MOST_GPUS:
        problems.add(where, f"needs more than {MOST_GPUS:,.0f} instances", fix, field="total_request_rate")


def _distribution(document: Mapping[str, object], where: str, problems: Problems) -> FloatArray | None:
    key = "workload_distribution"
    share = _matrix(document.get(key), where, "", key, problems)
    if share is None:
        return None
    total = float(share.sum())
    if abs(total - 1) > SUM_TOLERANCE:
        problems.add(where, f"adds up to {total:.9g}, not to 1", "Divide every share by the sum", field=key)
    return share


def _gpu(entry: object, shape: tuple[int, ...] | None, where: str, row: str, problems: Problems) -> _Gpu:
    if not isinstance(entry, dict):
        problems.add(where, "is no object", "Give cost and tputs", row=row)
        return _Gpu(0.0, np.zeros((0, 0)), None)
    for key in sorted(set(entry) - set(GPU_KEYS)):
        problems.add(where, "is not a known key", f"Known are {', '.join(GPU_KEYS)}", row=row, field=key)
    usd = _positive(entry, "cost", where, problems, row, MOST_USD_PER_H)
    most = _matrix(entry.get("tputs"), where, row, "tputs", problems, empty=True)
    if most is not None and shape is not None and most.shape != shape:
        message = f"has {most.shape[0]} x {most.shape[1]} buckets, workload_distribution {shape[0]} x {shape[1]}"
        problems.add(where, message, row=row, field="tputs")
    available = _count(entry, "available", 0, where, row, problems)
    return _Gpu(usd, np.zeros((0, 0)) if most is None else most, available)


def _matrix(
    value: object, where: str, row: str, key: str, problems: Problems, *, empty: bool = False
) -> FloatArray | None:
    """A matrix of finite numbers of at least 0, or ``None`` with its problems noted; ``empty``: null is 0."""
    if not isinstance(value, list) or not value or not all(isinstance(line, list) and line for line in value):
        problems.add(where, "is missing or is no list of lists of numbers", row=row, field=key)
        return None
    if len({len(line) for line in value}) > 1:
        problems.add(where, "has rows of different lengths", "Give every row the same number", row=row, field=key)
        return None
    kinds = {int, float, type(None)} if empty else {int, float}
    if not {kind for line in value for kind in map(type, line)} <= kinds:
        i, j = next((i, j) for i, line in enumerate(value) for j, x in enumerate(line) if type(x) not in kinds)
        problems.add(where, f"holds {value[i][j]!r}, no number, at ({i + 1}, {j + 1})", row=row, field=key)
        return None
    try:
        matrix = np.array([[0 if x is None else x for x in line] for line in value], dtype=float)
    except OverflowError:
        matrix = np.full((1, 1), np.inf)
    bad = np.argwhere(~(np.isfinite(matrix) & (matrix >= 0)))
    if bad.size:
        i, j = bad[0]
        message = f"holds {len(bad)} numbers that are negative or not finite, the first at ({i + 1}, {j + 1})"
        problems.add(where, message, row=row, field=key)
        return None
    return matrix


def _positive(
    source: Mapping[str, object], key: str, where: str, problems: Problems, row: str = "", most: float = math.inf
) -> float:
    value = source.get(key)
    if key not in source:
        problems.add(where, "is missing", FORM if not row else "Give USD per hour", row=row, field=key)
    elif type(value) not in (int, float) or not value > 0 or value > min(most, 1e300):  # type: ignore[operator]
        limit = "" if math.isinf(most) else f" and at most {most:,.0f}"
        problems.add(where, f"is {value!r}; it must be a number above 0{limit}", row=row, field=key)
    else:
        return float(value)  # type: ignore[arg-type]
    return 1.0


def _count(source: Mapping[str, object], key: str, least: int, where: str, row: str, problems: Problems) -> int | None:
    """An optional whole number; a figure such as 4.0 counts as one."""
    value = source.get(key)
    if value is None:
        return None
    if type(value) in (int, float) and least <= value <= MOST_GPUS and value == int(value):  # type: ignore
        return int(value)  # type: ignore[call-overload, no-any-return]
    problems.add(where, f"is {value!r}; it must be a whole number of at least {least}", row=row, field=key)
    return None


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        _repeated(next(key for i, (key, _) in enumerate(pairs) if key in dict(pairs[:i])))
    return found


def _repeated(key: str) -> NoReturn:
    raise ValueError(f"the key {key!r} is there twice")
