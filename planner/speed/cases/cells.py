"""Answers as cells of a table."""

from __future__ import annotations

from planner.speed.cases.answers import Answer
from planner.speed.types import Banded

COLUMNS = (
    "id",
    "predicted_tpot_ms",
    "predicted_tpot_ms_low",
    "predicted_tpot_ms_high",
    "predicted_ttft_ms",
    "predicted_ttft_ms_low",
    "predicted_ttft_ms_high",
    "predicted_output_tok_s_total",
    "predicted_total_tok_s",
    "source",
    "reason",
)
"""Columns of the table of answers, in order."""
SIGNIFICANT_DIGITS = 6


def answer_cells(answer: Answer) -> tuple[str, ...]:
    """The cells of `COLUMNS`; empty where there is no figure."""
    return (
        answer.id,
        *_banded(answer.tpot_ms),
        *_banded(answer.ttft_ms),
        _cell(answer.output_tok_s),
        _cell(answer.total_tok_s),
        "; ".join(filter(None, (answer.source, *answer.notes))),
        answer.reason,
    )


def _banded(figure: Banded | None) -> tuple[str, str, str]:
    if figure is None:
        return "", "", ""
    return _cell(figure.value), _cell(figure.low), _cell(figure.high)


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.{SIGNIFICANT_DIGITS}g}"
