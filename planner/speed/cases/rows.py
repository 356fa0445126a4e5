"""Rows of a table of speeds as points, or the reason why a row is none."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from planner.catalog.engine import EngineFacts
from planner.catalog.gpu import Gpu
from planner.catalog.lookup.lookup import Lookup
from planner.errors import InputError, Problem
from planner.memory.starts.case_texts import stated_version
from planner.memory.types import KvDtype, WeightDtype
from planner.speed.cases.checkpoints import Checkpoints, Stored, kv_dtype
from planner.speed.cases.layouts import MEANS, MEASURED, Cells, Layout, Row
from planner.speed.cases.loads import load_of
from planner.speed.cases.names import KNOWN_ENGINES, STAND_IN, Names, engine_name
from planner.speed.cases.splits import Split, split_of
from planner.speed.formats import has_fp4_units
from planner.speed.points import Figures, Load, LoadKind, Point, Served

PRECISIONS = {
    Layout.SILICON: ("precision", "gemm"),
    Layout.THROUGHPUT: ("weight_dtype",),
    Layout.POINTS: ("weight_dtype",),
}
"""Columns of the weight format, the first that says something."""
SIZED_ENGINES = ("vllm", "sglang")
"""Engines whose memory the catalogue knows."""
TOTALS = ("output_tok_s", "total_tok_s")
TRTLLM, TRTLLM_BENCH = "trtllm", "trtllm-bench"
"""Served, and driven offline by ``trtllm-bench``, whose loop has no front end."""
ARGONNE = re.compile(r"LLM-Inference-Bench", re.IGNORECASE)
ARGONNE_VERSIONS = {"vllm": "0.6.0", TRTLLM: "0.12.0"}
"""Of the runs in K. T. Chitty-Venkata et al., "LLM-Inference-Bench", arXiv:2411.00136, which states none; eras only."""


@dataclass(frozen=True)
class Case:
    """One row: its id, and the point that it means, without what was measured.

    Attributes
    ----------
    point
        ``None`` where the row is none; ``reason`` then says why.
    notes
        What was assumed or read instead of what is written.
    """

    id: str
    point: Point | None
    reason: str = ""
    notes: tuple[str, ...] = ()


@dataclass
class Reader:
    """Reads rows; names and checkpoints are found once."""

    lookup: Lookup
    _engines: dict[tuple[str, str], tuple[EngineFacts, str]] = field(default_factory=dict)

    @cached_property
    def names(self) -> Names:
        """Where GPUs and models are found."""
        return Names(self.lookup)

    @cached_property
    def checkpoints(self) -> Checkpoints:
        """Where checkpoints are found."""
        return Checkpoints(self.names)

    def read(self, layout: Layout, row: Row) -> Case:
        """The row as a point; whatever stands in the way is its reason, never an exception."""
        cells = Cells(row)
        try:
            point, notes = self._point(layout, cells)
        except InputError as error:
            return Case(row.get("id", ""), None, "; ".join(_said(problem) for problem in error.problems))
        return Case(row.get("id", ""), point, notes=notes)

    def _point(self, layout: Layout, cells: Cells) -> tuple[Point, tuple[str, ...]]:
        """The point and notes.

        Raises
        ------
        InputError
            If something is missing, out of range or not known; a row that lacks its names says only that.
        """
        model, card = cells.text("model"), _card(cells)
        missing = [name for name, text in (("model", model), ("gpu", card)) if not text]
        if missing:
            raise InputError([Problem("row", "is empty", field=name) for name in missing])
        gpu = self.names.gpu(card)
        engine = engine_name(cells.text("engine") or STAND_IN)
        version, version_note = version_of_row(cells)
        stored = self.checkpoints.find(model, cells.text(*PRECISIONS[layout]), exact=layout is Layout.POINTS)
        load = load_of(layout, cells)
        split = split_of(layout, cells, stored, gpu.found, engine)
        if engine == TRTLLM and load.kind is LoadKind.MAX_LOAD:
            engine = TRTLLM_BENCH
        served, kv_note = self._served(cells, stored, gpu.found, split, (engine, version))
        load = shared(load, split.replicas)
        notes = (*gpu.notes, *stored.notes, *split.notes, kv_note, version_note, *_engine_notes(cells, engine))
        return Point(cells.text("id"), served, load, source=cells.text("source", "source_url")), _kept(notes)

    def _served(
        self, cells: Cells, stored: Stored, gpu: Gpu, split: Split, release: tuple[str, str]
    ) -> tuple[Served, str]:
        engine, version = release
        cache, note = kv_dtype(cells.text("kv_dtype"), engine, stored, self.facts(engine, version))
        if not cells.text("kv_dtype") and quantised_on_blackwell(stored, gpu):
            cache, note = KvDtype.FP8, "KV cache assumed fp8, as benchmarks of quantised weights on Blackwell start it"
        served = Served(
            engine=engine,
            version=version,
            model=stored.shape.id,
            gpu=gpu.id,
            tp=split.tp,
            weight_dtype=stored.weights,
            kv_dtype=cache,
            pp=split.pp,
            ep=split.ep,
            attention_dp=split.attention_dp,
            replicas=split.replicas,
            decode_only=split.decode_only,
        )
        return served, note

    def facts(self, engine: str, version: str) -> EngineFacts:
        """Facts of the version, for its memory; engines that the catalogue lacks are sized as the newest vLLM."""
        key = (engine, version)
        if key not in self._engines:
            known = engine in SIZED_ENGINES
            stated = stated_version(version) if known else ""
            self._engines[key] = self.lookup.engine(engine if known else STAND_IN, stated)
        return self._engines[key][0]


def version_of_row(cells: Cells) -> tuple[str, str]:
    """The engine's version, and a note where the source's date stands in for it."""
    stated = cells.text("version")
    if stated or not ARGONNE.search(cells.text("source", "source_url")):
        return stated, ""
    version = ARGONNE_VERSIONS.get(engine_name(cells.text("engine") or STAND_IN), "")
    return version, f"version taken as {version}: LLM-Inference-Bench measured releases of 2024" if version else ""


def quantised_on_blackwell(stored: Stored, gpu: Gpu) -> bool:
    """Whether a benchmark of this pair runs an FP8 cache unless it says otherwise."""
    return stored.weights is not WeightDtype.BF16 and has_fp4_units(gpu)


def measured_of(layout: Layout, row: Row, replicas: int = 1) -> Figures:
    """What the row measured, for a replica; cells that are no positive number are empty.

    Load points hold means as well, which stand in where a median is empty.
    """
    cells = Cells(row)
    found: dict[str, float | None] = {}
    for name, column in MEASURED[layout].items():
        value = _measured(cells, column)
        if value is None and layout is Layout.POINTS and name in MEANS:
            value = _measured(cells, MEANS[name])
        found[name] = value / replicas if value is not None and name in TOTALS else value
    return Figures(**found)


def read_measured(reader: Reader, layout: Layout, rows: Iterable[Row]) -> tuple[Point, ...]:
    """Points of a table with their measured figures; rows that are none, or measured nothing, are left out."""
    points = []
    for row in rows:
        case = reader.read(layout, row)
        if case.point is not None:
            measured = measured_of(layout, row, case.point.served.replicas)
            if measured != Figures():
                points.append(replace(case.point, measured=measured))
    return tuple(points)


def shared(load: Load, replicas: int) -> Load:
    """The load of one of several equal replicas."""
    if replicas == 1:
        return load
    concurrency = load.concurrency / replicas if load.concurrency is not None else None
    rate = load.rate_per_s / replicas if load.rate_per_s is not None else None
    return replace(load, concurrency=concurrency, rate_per_s=rate)


def lowered(row: Mapping[str, str]) -> dict[str, str]:
    """The row under lower-case column names; the first of two columns that differ in case wins."""
    found: dict[str, str] = {}
    for name, text in row.items():
        found.setdefault(name.strip().casefold(), text)
    return found


def _card(cells: Cells) -> str:
    """The GPU as written; Argonne's A100 are the 40 GB boards of Polaris (K. Chitty-Venkata et al.,
    "LLM-Inference-Bench", arXiv:2411.00136), which its file does not say.
    """
    card = cells.text("system", "gpu")
    argonne = cells.text("id").startswith("anl_") or "argonne-lcf" in cells.text("source_url", "source")
    return "A100-40GB" if argonne and card.upper() == "A100" else card


def _measured(cells: Cells, column: str) -> float | None:
    try:
        value = cells.number(column)
    except InputError:
        return None
    return value if value is not None and math.isfinite(value) and value > 0 else None


def _engine_notes(cells: Cells, engine: str) -> tuple[str, ...]:
    if not cells.text("engine"):
        return (f"engine not given: {STAND_IN} assumed",)
    return () if engine in KNOWN_ENGINES else (f"engine {engine:.30} is read as {STAND_IN}",)


def _kept(notes: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(note for note in notes if note))


def _said(problem: Problem) -> str:
    """The problem without its place and remedy, which one row of a table has no use for."""
    return (
        f"{problem.field}: {problem.message}" if problem.field else str(replace(problem, where="", fix="")).strip(": ")
    )
