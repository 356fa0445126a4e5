"""Predictions of a table of cases against what its columns say: errors by group, and starts right and wrong."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from planner import units
from planner.memory.options import loaded_weights_gib
from planner.memory.starts.case_answers import FRACTION_DIGITS
from planner.memory.starts.case_rows import CaseTable, Row
from planner.memory.starts.case_texts import number
from planner.memory.starts.cases import Answer
from planner.memory.types import Sizing

SAME = 1e-9
"""Relative difference below which two figures are identical: what a printed float loses."""


@dataclass(frozen=True)
class Comparison:
    """A predicted figure and the columns that hold the true one."""

    name: str
    figure: Callable[[Sizing], float | None]
    columns: tuple[str, ...]


_AVAILABLE = Comparison(
    "available KV",
    lambda s: s.available_kv_gib,
    ("available_kv_gib_per_gpu", "available_kv_gib", "available_gib", "kv_gb"),
)
COMPARISONS: Mapping[CaseTable, tuple[Comparison, ...]] = {
    CaseTable.LOGS: (
        Comparison("weights", loaded_weights_gib, ("weights_gib_per_gpu", "weights_gib", "weights_gb_per_gpu")),
        _AVAILABLE,
        Comparison("KV tokens", lambda s: s.logged_tokens, ("kv_tokens", "kv_tokens_or_blocks")),
        Comparison("concurrency", lambda s: s.max_concurrency, ("max_concurrency",)),
    ),
    CaseTable.VLLM: (
        Comparison("bytes per block", lambda s: s.bytes_per_block, ("bytes_per_block",)),
        Comparison("blocks", lambda s: s.num_blocks, ("num_blocks",)),
        Comparison("logged tokens", lambda s: s.logged_tokens, ("kv_cache_size_tokens_logged",)),
        Comparison("concurrency", lambda s: s.max_concurrency, ("max_concurrency",)),
    ),
    CaseTable.WEIGHTS: (
        Comparison("weight bytes", lambda s: units.gib_to_bytes(s.terms[0].gib), ("weight_bytes_per_rank",)),
    ),
    CaseTable.SGLANG: (
        Comparison("mem_fraction_static", lambda s: round(s.utilization, FRACTION_DIGITS), ("mem_fraction_static",)),
        Comparison("cell bytes", lambda s: s.bytes_per_token, ("cell_size_bytes",)),
        Comparison("max_total_num_tokens", lambda s: s.logged_tokens, ("max_total_num_tokens",)),
        Comparison("sliding tokens", lambda s: s.sliding_pool_tokens, ("swa_max_tokens",)),
        Comparison("Mamba slots", lambda s: s.state_slots, ("mamba_slots",)),
        Comparison("running requests", lambda s: s.max_num_seqs, ("max_running_requests",)),
    ),
}


@dataclass
class Errors:
    """One figure in one group: rows that state it, and the relative errors of those that were answered."""

    stated: int = 0
    found: list[float] = field(default_factory=list)

    @property
    def identical(self) -> int:
        """Rows without difference."""
        return sum(error <= SAME for error in self.found)

    def at(self, share: float) -> float:
        """The error that ``share`` of the rows do not exceed; NaN without rows."""
        ordered = sorted(self.found)
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan

    @property
    def median(self) -> float:
        """Middle error; NaN without rows."""
        return statistics.median(self.found) if self.found else math.nan


@dataclass
class Score:
    """One group of rows."""

    rows: int = 0
    answered: int = 0
    errors: dict[str, Errors] = field(default_factory=dict)
    starts: dict[tuple[bool, bool], int] = field(default_factory=dict)
    """Rows by (started, predicted to start)."""


def score(
    table: CaseTable, answered: Iterable[tuple[Row, Answer]], by: Callable[[Row, Answer], str] = lambda row, answer: ""
) -> dict[str, Score]:
    """Scores of each group, also of figures that a start predicted to be refused would have had."""
    scores: dict[str, Score] = {}
    for row, result in answered:
        group = scores.setdefault(by(row, result), Score())
        group.rows += 1
        for comparison in COMPARISONS[table]:
            _compare(group, comparison, row, result)
        if result.sizing is not None:
            group.answered += 1
            truth = started(table, row)
            if truth is not None:
                verdict = (truth, result.sizing.starts)
                group.starts[verdict] = group.starts.get(verdict, 0) + 1
    return scores


def _compare(group: Score, comparison: Comparison, row: Row, result: Answer) -> None:
    truth = _stated(row, comparison.columns)
    if not truth:
        return
    errors = group.errors.setdefault(comparison.name, Errors())
    errors.stated += 1
    figure = comparison.figure(result.sizing) if result.sizing is not None else None
    if figure is not None:
        errors.found.append(abs(figure / truth - 1))


def _stated(row: Row, columns: tuple[str, ...]) -> float | None:
    """The true figure; ``5519 blocks`` is no figure of tokens."""
    text = next((text for name in columns if (text := row.get(name, ""))), "")
    return None if " " in text else number(text, columns[0])


def started(table: CaseTable, row: Row) -> bool | None:
    """Whether the engine started: a logged row did, unless it is of a table of failures or nothing was left for KV.

    ``None`` where the table does not say: weights that were counted were never loaded, and a config that SGLang's code
    could not take (``config_error``) is no refusal.
    """
    if table is CaseTable.WEIGHTS:
        return None
    if table is CaseTable.VLLM:
        return row.get("refused", "n") != "y"
    if table is CaseTable.SGLANG:
        return {"ok": True, "refused": False}.get(row.get("status", "ok"))
    left = _stated(row, _AVAILABLE.columns)
    return not row.get("failure_kind") and (left is None or left > 0)
