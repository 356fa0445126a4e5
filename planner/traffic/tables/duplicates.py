"""Rows of one request id are one request, and which of them counts; attempts at one logical request."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import numpy as np
import pyarrow as pa

from planner.traffic.attempts import further_attempts
from planner.traffic.rules import BITS, CODES, Adjustment, Rule
from planner.traffic.tables.rows import KEPT, NO_RANK, OFFERED, Column, Names
from planner.traffic.tables.spool import Spool

PART_ROWS = 4_000_000
"""Ids that are sorted in memory at a time."""
SETTLE_ROWS = 1_000_000
"""Rows of repeated ids that are looked at together, unless one part of the ids has more."""
_HASHES = {"id_hash": "has_id", "logical_hash": "has_logical"}


def mark_duplicates(spool: Spool, names: Names) -> Column:
    """Give all but one of the rows of each request id the duplicate verdict; returns the places of the ones left.

    Of the rows that count as arrivals under one id, the one that counts is the one of the highest rank, then a kept
    one before a failed one, then the earliest, then by model, length, class and logical request: no order of rows or
    files matters. The ids are compared as 64-bit hashes.
    """
    left = [np.empty(0, dtype=np.int64)]
    for places in _repeated(spool, "id_hash"):
        rows = spool.gathered(places)
        # NumPy sorts by the last key first. The bitwise complement reverses an order without overflow.
        lengths = (~rows[name].astype(np.int64) for name in ("prompt", "output", "cached"))
        keys = (
            rows["id_hash"], ~rows["rank"], rows["verdict"], rows["ts_us"], names.model_of_pair()[rows["pair"]],
            *lengths, names.class_of_pair()[rows["pair"]], rows["adjusted"],
            np.where(rows["has_logical"], rows["logical_hash"], np.uint64(0)),
        )  # fmt: skip
        order = np.lexsort(keys[::-1])
        ids = rows["id_hash"][order]
        dropped = np.sort(order[1:][ids[1:] == ids[:-1]])
        gone = {"verdict": CODES[Rule.DUPLICATE], "prompt": 0, "output": 0, "cached": 0, "adjusted": 0}
        for chunk, inside, _ in spool.within(places[dropped]):
            spool.change(chunk, inside, gone)
        left.append(np.delete(places, dropped))
    return np.sort(np.concatenate(left))


def mark_further_attempts(spool: Spool, names: Names) -> Column:
    """Apply the rules of `planner.traffic.attempts` to the arrivals; returns the places of the refused, retried."""
    retried = [np.empty(0, dtype=np.int64)]
    for places in _repeated(spool, "logical_hash"):
        rows = spool.gathered(places)
        ties = [
            names.model_of_pair()[rows["pair"]],
            *(rows[name] for name in ("prompt", "output", "cached", "id_hash")),
        ]
        found = further_attempts(rows["logical_hash"], rows["ts_us"], rows["verdict"].astype(np.int64), ties)
        rows["verdict"][found.retried] = CODES[Rule.REJECTED_RETRIED]
        rows["adjusted"][found.further] |= np.uint16(BITS[Adjustment.RETRY])
        for chunk, inside, ours in spool.within(places):
            spool.change(chunk, inside, {name: rows[name][ours] for name in ("verdict", "adjusted")})
        retried.append(places[found.retried])
    return np.sort(np.concatenate(retried))


def stage(connection: duckdb.DuckDBPyConnection, rows: dict[str, Column], names: Names) -> None:
    """Put rows into the table ``staged``, in whose terms further rules and reports are written."""
    kept = rows["verdict"] == KEPT
    pairs = list(names.pairs)
    columns = {
        "model": pa.array([model for model, _ in pairs], type=pa.string()).take(pa.array(rows["pair"])),
        "traffic_class": pa.array([name for _, name in pairs], type=pa.string()).take(pa.array(rows["pair"])),
        "ts_us": rows["ts_us"],
        **{name: pa.array(rows[name], mask=~kept) for name in ("prompt", "output")},
        "cached": rows["cached"],
        "id_hash": pa.array(rows["id_hash"], mask=~rows["has_id"]),
        "rank": pa.array(rows["rank"], mask=rows["rank"] == NO_RANK),
        "verdict": pa.array(rows["verdict"], mask=kept),
        "adjusted": rows["adjusted"],
        "logical_hash": pa.array(rows["logical_hash"], mask=~rows["has_logical"]),
    }
    connection.register("rows_to_stage", pa.table(columns))
    connection.execute("INSERT INTO staged BY NAME SELECT * FROM rows_to_stage")
    connection.unregister("rows_to_stage")


def _repeated(spool: Spool, name: str) -> Iterator[Column]:
    """Places of the arrivals whose id came more than once, sorted, all rows of an id together.

    Part by part of the ids, by the highest bits of the hash, so that a part holds at most about `PART_ROWS`.
    """
    bits = 0
    while spool.rows > PART_ROWS << bits:
        bits += 1
    waiting: list[Column] = []
    for part in range(1 << bits):
        waiting.append(_repeated_in(spool, name, part, bits))
        if sum(map(len, waiting)) > SETTLE_ROWS or part == (1 << bits) - 1:
            places = np.sort(np.concatenate(waiting))
            waiting = []
            if len(places):
                yield places


def _repeated_in(spool: Spool, name: str, part: int, bits: int) -> Column:
    ids, places = [np.empty(0, dtype=np.uint64)], [np.empty(0, dtype=np.int64)]
    flag = _HASHES[name]
    for chunk in spool.chunks:
        found = spool.read(chunk, (name, flag, "verdict"))
        mask = found[flag] & OFFERED[found["verdict"]]
        if bits:
            mask &= found[name] >> np.uint64(64 - bits) == part
        inside = np.flatnonzero(mask)
        ids.append(found[name][inside])
        places.append(inside + chunk.start)
    every = np.concatenate(ids)
    order = np.argsort(every)
    every = every[order]
    same = np.zeros(len(every) + 1, dtype=bool)
    same[1:-1] = every[1:] == every[:-1]
    return np.asarray(np.concatenate(places)[order[same[1:] | same[:-1]]])
