"""Answers to cases as cells of a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from planner import units
from planner.memory.options import loaded_weights_gib
from planner.memory.starts.case_rows import CaseTable
from planner.memory.starts.cases import Answer
from planner.memory.types import Sizing

Figure = Callable[[Sizing], float | int | None]

COMMON: Mapping[str, Figure] = {
    "predicted_weights_gib_per_gpu": loaded_weights_gib,
    "predicted_available_kv_gib_per_gpu": lambda s: s.available_kv_gib,
    "predicted_num_blocks": lambda s: s.num_blocks if s.starts else None,
    "predicted_kv_tokens": lambda s: s.logged_tokens if s.starts else None,
    "predicted_max_concurrency": lambda s: s.max_concurrency if s.starts else None,
}
"""Columns of every table. A start that is refused has no pool: its figures are empty."""

FRACTION_DIGITS = 6
"""Digits of a memory fraction that tables print."""

OF_TABLE: Mapping[CaseTable, Mapping[str, Figure]] = {
    CaseTable.LOGS: {},
    CaseTable.VLLM: {"predicted_bytes_per_block": lambda s: s.bytes_per_block},
    CaseTable.WEIGHTS: {"predicted_weight_bytes_per_rank": lambda s: round(units.gib_to_bytes(s.terms[0].gib))},
    CaseTable.SGLANG: {
        "predicted_mem_fraction_static": lambda s: round(s.utilization, FRACTION_DIGITS),
        "predicted_cell_size_bytes": lambda s: s.bytes_per_token,
        "predicted_max_total_num_tokens": lambda s: s.logged_tokens,
        "predicted_swa_max_tokens": lambda s: s.sliding_pool_tokens,
        "predicted_mamba_slots": lambda s: s.state_slots,
        "predicted_max_running_requests": lambda s: s.max_num_seqs,
    },
}
"""Columns that a table adds. SGLang's planning code has figures whatever building the model would then refuse."""

VERDICT = ("predicted_starts", "reasons", "predicted_notes")


def answer_columns(table: CaseTable) -> tuple[str, ...]:
    """Names of the columns that `answer_cells` fills."""
    return (*COMMON, *OF_TABLE[table], *VERDICT)


def answer_cells(table: CaseTable, answer: Answer) -> dict[str, str]:
    """The answer as cells: numbers in full, ``y`` or ``n``, reasons and notes joined by semicolons."""
    sizing = answer.sizing
    cells = {
        name: _cell(figure(sizing)) if sizing is not None else ""
        for figures in (COMMON, OF_TABLE[table])
        for name, figure in figures.items()
    }
    verdict = "" if sizing is None else "y" if sizing.starts else "n"
    return cells | dict(zip(VERDICT, (verdict, "; ".join(answer.reasons), "; ".join(answer.notes)), strict=True))


def _cell(value: float | int | None) -> str:
    if value is None:
        return ""
    return str(int(value)) if value == int(value) else repr(float(value))
