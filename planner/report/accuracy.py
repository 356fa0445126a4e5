"""How near predictions came: text tables for the terminal, and the tables that the README keeps."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from planner.errors import InputError, Problem
from planner.memory.starts.case_rows import CaseTable, Row
from planner.memory.starts.cases import Answer
from planner.memory.starts.scores import SAME, Errors, Score, score

HEADER = ("group", "rows", "answered", "figure", "compared", "identical", "median", "p90", "worst", "starts right")
Answered = Sequence[tuple[Row, Answer]]
Group = Callable[[Row, Answer], str]

GROUPS: Mapping[str, Group] = {
    "family": lambda row, result: result.family or "model not found",
    "gpu": lambda row, result: result.sizing.gpu_id if result.sizing else "not answered",
    "version": lambda row, result: (
        f"{result.sizing.engine} {result.sizing.engine_version}" if result.sizing else "not answered"
    ),
    "assumed": lambda row, result: f"{' and '.join(result.assumed)} assumed" if result.assumed else "nothing assumed",
    "model": lambda row, result: row.get("hf_id") or row.get("model", ""),
}
"""What scores can be grouped by."""


def grouping(words: Sequence[str]) -> Group:
    """The group that a row belongs to, named by each word's part.

    Raises
    ------
    InputError
        If a word is none to group by.
    """
    for word in words:
        if word not in GROUPS:
            raise InputError(Problem("--score-by", f"{word!r:.40} is unknown", f"Choose among {', '.join(GROUPS)}"))
    return lambda row, result: ", ".join(GROUPS[word](row, result) for word in words)


def score_lines(scores: Mapping[str, Score]) -> list[tuple[str, ...]]:
    """One line per group and figure."""
    lines: list[tuple[str, ...]] = []
    for name, found in sorted(scores.items()):
        head = (name or "all", f"{found.rows:,}", f"{found.answered:,}")
        starts = f"{_right(found, True)} started, {_right(found, False)} refused"
        for figure, errors in found.errors.items():
            compared = f"{len(errors.found):,}/{errors.stated:,}"
            spread = (_percent(errors.median), _percent(errors.at(0.9)), _percent(errors.at(1.0)))
            lines.append((*head, figure, compared, f"{errors.identical:,}", *spread, starts))
        if not found.errors:
            lines.append((*head, "", "", "", "", "", "", starts))
    return lines


def _right(found: Score, truth: bool) -> str:
    """Predicted right, of those that started or of those that were refused: ``60/61``."""
    right, wrong = found.starts.get((truth, truth), 0), found.starts.get((truth, not truth), 0)
    return f"{right:,}/{right + wrong:,}"


def _percent(error: float) -> str:
    if math.isnan(error):
        return ""
    return f"{100 * error:.2f} %" if error > SAME else "0"


BEGIN, END = "<!-- accuracy: begin -->", "<!-- accuracy: end -->"
"""Marks in a Markdown file between which the tables stand."""


def with_accuracy(text: str, tables: str, place: str) -> str:
    """The Markdown text with the tables between its marks.

    Raises
    ------
    InputError
        If the marks are not there once each, in order.
    """
    begin, end = text.find(BEGIN), text.find(END)
    if not 0 <= begin < end or text.count(BEGIN) != 1 or text.count(END) != 1:
        raise InputError(Problem(place, "does not have the marks of the tables", f"Put {BEGIN} and {END} into it"))
    return f"{text[: begin + len(BEGIN)]}\n{tables}{text[end:]}"


def accuracy_tables(answered: Answered, table: CaseTable, by: Sequence[str]) -> str:
    """Markdown: one table per grouping, over the rows in which nothing that decides the answer is left open."""
    usable = [(row, result) for row, result in answered if result.sizing is not None and not result.assumed]
    unanswered = sum(result.sizing is None for _, result in answered)
    left_open = len(answered) - len(usable) - unanswered
    parts = [
        f"{len(usable)} of {len(answered)} published starts are compared; {left_open} leave the GPU, the memory share\n"
        f"or the version open, and {unanswered} cannot be answered.\n"
        "Errors are relative: median / 90th percentile / worst (rows).\n"
    ]
    for word in by:
        parts.append(_markdown(word, score(table, usable, GROUPS[word])))
    return "\n".join(parts)


def _markdown(word: str, scores: Mapping[str, Score]) -> str:
    lines = [
        f"| {word} | rows | weights | available KV | KV tokens | starts right | refusals right |",
        "|---|---:|---|---|---|---:|---:|",
    ]
    for name, found in sorted(scores.items(), key=lambda item: _order(item[0])):
        spreads = (_spread(found.errors.get(figure)) for figure in ("weights", "available KV", "KV tokens"))
        lines.append(
            f"| {name} | {found.rows} | {' | '.join(spreads)} | {_right(found, True)} | {_right(found, False)} |"
        )
    return "\n".join(lines) + "\n"


def _order(name: str) -> tuple[object, ...]:
    """Versions by number, everything else by name."""
    engine, _, version = name.rpartition(" ")
    parts = version.split(".")
    return (engine, *map(int, parts)) if engine and all(part.isdigit() for part in parts) else (name.casefold(),)


def _spread(errors: Errors | None) -> str:
    if errors is None or not errors.found:
        return ""
    figures = " / ".join(f"{100 * errors.at(share):.1f}" for share in (0.5, 0.9, 1.0))
    return f"{figures} % ({len(errors.found)})"
