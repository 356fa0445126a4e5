"""Single requests of many logs on disk, by model and hour, so that a quarter is replayed in bounded memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from planner.actuals.spans import HOUR_US
from planner.traffic.grid import Span
from planner.traffic.tables.rows import Names
from planner.traffic.tables.spool import Chunk, Spool, full_disk
from planner.traffic.types import IntArray

PART_ROWS = 1_000_000
"""Requests that are held in memory at a time, unless one hour alone has more."""
HELD_ROWS = 500_000
"""Requests that wait to be written together."""
RECORD = np.dtype([("ts_us", np.int64), ("prompt", np.int32), ("output", np.int32), ("tenant", np.int16)])
Records = npt.NDArray[Any]


@dataclass(frozen=True)
class Part:
    """Some whole hours with their requests, in order of arrival."""

    span: Span
    ts_us: IntArray
    prompt: IntArray
    output: IntArray
    tenant: IntArray


class Store(AbstractContextManager["Store"]):
    """Requests within the horizon, by model of the plan.

    Parameters
    ----------
    horizon
        Requests outside are not kept.
    tenants
        By model, the tenants that its routing table tells apart, the unknown one first.
    """

    def __init__(self, horizon: Span, tenants: Mapping[str, tuple[str, ...]]) -> None:
        self._horizon = horizon
        self._tenants = tenants
        self._stack = ExitStack()
        self._folder = Path()
        self._rows: dict[tuple[str, int], int] = {}
        """Requests of each model and hour."""
        self._waiting: dict[str, list[Records]] = {}

    def __enter__(self) -> Store:
        with full_disk():
            self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="planner-actuals-")))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def add(self, names: Names, spool: Spool, models: Mapping[str, str], shift_us: int) -> None:
        """Keep the requests of a log.

        Parameters
        ----------
        models
            Model of the plan by name inside the log.
        shift_us
            Added to its time stamps.
        """
        model_of_pair = [models.get(model, "") for model, _ in names.pairs]
        tenant_of_pair = np.array([self._tenant(models.get(model, ""), name) for model, name in names.pairs])
        for chunk in spool.chunks:
            columns = spool.read(chunk, ("pair", "ts_us", "prompt", "output", *_verdict(chunk)))
            ts_us = columns["ts_us"] + shift_us
            inside = (ts_us >= self._horizon.start_us) & (ts_us < self._horizon.end_us)
            if "verdict" in columns:
                inside &= columns["verdict"] == -1
            for model in sorted(set(model_of_pair) - {""}):
                wanted = np.array([name == model for name in model_of_pair])
                rows = np.flatnonzero(inside & wanted[columns["pair"]])
                record = np.empty(rows.size, dtype=RECORD)
                record["ts_us"] = ts_us[rows]
                record["prompt"], record["output"] = columns["prompt"][rows], columns["output"][rows]
                record["tenant"] = tenant_of_pair[columns["pair"][rows]]
                self._take(model, record)
        for model in list(self._waiting):
            self._write(model)

    def rows(self, model: str) -> int:
        """Requests of a model."""
        return sum(n for (name, _), n in self._rows.items() if name == model)

    def parts(self, model: str) -> Iterator[Part]:
        """The horizon from end to end, some hours at a time."""
        held: list[int] = []
        start, waiting = self._horizon.start_us, 0
        for (name, hour), n in sorted(self._rows.items()):
            if name != model:
                continue
            if held and waiting + n > PART_ROWS:
                edge = hour * HOUR_US
                yield self._part(model, Span(start, edge), held)
                start, held, waiting = edge, [], 0
            held.append(hour)
            waiting += n
        yield self._part(model, Span(start, self._horizon.end_us), held)

    def _tenant(self, model: str, traffic_class: str) -> int:
        """Number of the tenant that the log names; 0 where it names none of the table."""
        known = self._tenants.get(model, ("",))
        return known.index(traffic_class) if traffic_class in known else 0

    def _take(self, model: str, record: Records) -> None:
        self._waiting.setdefault(model, []).append(record)
        if sum(part.size for part in self._waiting[model]) >= HELD_ROWS:
            self._write(model)

    def _write(self, model: str) -> None:
        record = np.concatenate([np.empty(0, dtype=RECORD), *self._waiting.pop(model)])
        hour = record["ts_us"] // HOUR_US
        record = record[np.argsort(hour, kind="stable")]
        hours, starts = np.unique(record["ts_us"] // HOUR_US, return_index=True)
        with full_disk():
            for at, piece in zip(hours.tolist(), np.split(record, starts[1:]), strict=False):
                with self._file(model, at).open("ab") as stream:
                    stream.write(piece.tobytes())
                self._rows[model, at] = self._rows.get((model, at), 0) + piece.size

    def _part(self, model: str, span: Span, hours: list[int]) -> Part:
        pieces = [np.fromfile(self._file(model, hour), dtype=RECORD) for hour in hours]
        record = np.concatenate([np.empty(0, dtype=RECORD), *pieces])
        order = np.argsort(record["ts_us"], kind="stable")
        ts_us, prompt, output, tenant = (record[name][order].astype(np.int64) for name in RECORD.names or ())
        return Part(span, ts_us, prompt, output, tenant)

    def _file(self, model: str, hour: int) -> Path:
        return self._folder / f"{sorted(self._tenants).index(model)}-{hour}"


def _verdict(chunk: Chunk) -> tuple[str, ...]:
    return () if chunk.all_kept else ("verdict",)
