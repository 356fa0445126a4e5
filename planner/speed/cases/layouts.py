"""Which columns of a table say what: three layouts, known by their header.

A layout is recognised by columns of its own, so any part of its columns will do, in any order, with others between.
Columns of measured figures are listed apart: whoever answers a table never reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from planner.errors import InputError, Problem
from planner.memory.starts.case_texts import number, whole

Row = Mapping[str, str]
Value = TypeVar("Value", int, float)
NOTHING = frozenset({"", "nan", "none", "null", "na", "<na>", "nat"})
"""Cells that programs write where there is nothing."""
LONGEST_CELL = 2000


class Layout(StrEnum):
    """What kind of table the rows come from."""

    SILICON = "silicon points"
    THROUGHPUT = "measured throughput"
    POINTS = "load points"


OWN_COLUMNS: Mapping[Layout, frozenset[str]] = {
    Layout.SILICON: frozenset({"system", "isl", "osl", "attention_dp", "moe_tp", "moe_ep", "precision", "decode_tp"}),
    Layout.THROUGHPUT: frozenset({"input_len", "output_len", "concurrency_or_rate"}),
    Layout.POINTS: frozenset({"input_tokens", "output_tokens", "load", "rate_per_s", "cached_share"}),
}
"""Columns that only this layout has, but for ``attention_dp``, which the load points share with silicon."""
MEASURED: Mapping[Layout, Mapping[str, str]] = {
    Layout.SILICON: {"tpot_ms": "tpot_ms", "ttft_ms": "ttft_ms"},
    Layout.THROUGHPUT: {
        "output_tok_s": "output_tok_s_total",
        "total_tok_s": "total_tok_s",
        "ttft_ms": "ttft_ms_p50",
        "tpot_ms": "tpot_ms_p50",
        "ttft_p99_ms": "ttft_p99",
        "tpot_p99_ms": "tpot_p99",
    },
    Layout.POINTS: {
        "output_tok_s": "output_tok_s",
        "total_tok_s": "total_tok_s",
        "ttft_ms": "ttft_p50_ms",
        "tpot_ms": "tpot_p50_ms",
        "ttft_p99_ms": "ttft_p99_ms",
        "tpot_p99_ms": "tpot_p99_ms",
    },
}
"""Columns of measured figures, by the names of `planner.speed.points.Figures`."""
MEANS = {"ttft_ms": "ttft_mean_ms", "tpot_ms": "tpot_mean_ms"}
"""Columns of load points that stand in where a median is empty."""


@dataclass(frozen=True)
class Cells:
    """One row, read by column: text without the words for nothing, and numbers that are numbers."""

    row: Row

    def text(self, *columns: str) -> str:
        """The first of the columns that says something, else empty."""
        for name in columns:
            text = self.row.get(name, "").strip()
            if text.casefold() not in NOTHING:
                return text[:LONGEST_CELL]
        return ""

    def number(self, *columns: str) -> float | None:
        """The first of the columns that says something, as a finite number.

        Raises
        ------
        InputError
            If the cell holds something else.
        """
        return self._read(number, columns)

    def whole(self, *columns: str) -> int | None:
        """The same for a count (``8.0`` is 8).

        Raises
        ------
        InputError
            If the cell holds something else.
        """
        return self._read(whole, columns)

    def _read(self, read: Callable[[str, str], Value | None], columns: Sequence[str]) -> Value | None:
        for name in columns:
            text = self.text(name)
            if text:
                return read(text, name)
        return None


def layout_of(header: Sequence[str]) -> Layout:
    """The layout that most of the header's own columns belong to.

    Raises
    ------
    InputError
        If no layout has a column of its own there.
    """
    names = frozenset(name.casefold() for name in header)
    counts = {layout: len(own & names) for layout, own in OWN_COLUMNS.items()}
    best = max(counts, key=lambda layout: counts[layout])
    if not counts[best]:
        known = "; ".join(f"{layout}: {', '.join(sorted(own))}" for layout, own in OWN_COLUMNS.items())
        raise InputError(
            Problem("header", "is that of no table of speeds", f"It needs columns of one layout ({known})")
        )
    return best
