"""Pieces of HTML: whatever is not markup already is escaped on its way in (markupsafe)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from planner.report.text import one_line

Cell = str
"""Text, which is escaped, or `Markup`, which is not."""
NAME_CHARACTERS = 72
"""Of a name of a model, pool, lot or file; longer ones are cut, with the mark of a cut."""
SENTENCE_CHARACTERS = 240
"""Of a text within a sentence."""
FOLD_CHARACTERS = 280
"""Longer texts are folded."""
KEPT_CHARACTERS = 4000
"""Of a text from outside; the plan has the whole of it."""
_NO_TEXT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069\ufdd0-\ufdef\ufffe\uffff]")


def without_controls(page: str) -> str:
    """The page without characters that HTML forbids, halves of surrogate pairs, and marks that turn lines around."""
    return _NO_TEXT.sub("", page)


def join(parts: Iterable[str], between: str = "") -> Markup:
    """Parts in a row; plain text among them is escaped."""
    return Markup(between).join(parts)


def short(name: str, most: int = NAME_CHARACTERS) -> str:
    """A name on one line; a cut is marked."""
    return one_line(name, most)


def prose(text: str) -> Markup:
    """A text from outside; a long one is folded behind its beginning, a very long one is cut, and says so."""
    line = " ".join(text.split())
    if len(line) <= FOLD_CHARACTERS:
        return Markup("{}").format(line)
    kept = line if len(line) <= KEPT_CHARACTERS else f"{line[:KEPT_CHARACTERS]} [cut: {len(line):,} characters]"
    beginning = one_line(line, FOLD_CHARACTERS // 2)
    return Markup('<details class="more"><summary>{}</summary>{}</details>').format(beginning, kept)


def remark(text: str) -> Markup:
    """A text from outside as a paragraph; no ``p``, which must not hold what is folded."""
    return Markup('<div class="remark">{}</div>').format(prose(text))


def badge(text: str, kind: str = "") -> Markup:
    """A small label; ``kind`` is one of ``good``, ``warn``, ``bad`` or empty."""
    return Markup('<span class="badge {}">{}</span>').format(kind, text)


def section(anchor: str, heading: str, *parts: str, lead: str = "") -> Markup:
    """A section of the page with its heading and a line on what it shows."""
    line = Markup('<p class="lead">{}</p>').format(lead) if lead else Markup()
    return Markup('<section id="{0}" aria-labelledby="{0}-h">\n<h2 id="{0}-h">{1}</h2>\n{2}{3}\n</section>\n').format(
        anchor, heading, line, join(parts, "\n")
    )


def folded(summary: str, *parts: str, kind: str = "fold", opened: bool = False) -> Markup:
    """Parts that a reader unfolds."""
    state = Markup(" open") if opened else Markup()
    return Markup('<details class="{}"{}><summary>{}</summary>\n{}\n</details>').format(
        kind, state, summary, join(parts, "\n")
    )


def pairs(items: Iterable[tuple[str, str]], kind: str = "facts") -> Markup:
    """Terms and what they are."""
    rows = (Markup("<div><dt>{}</dt><dd>{}</dd></div>").format(term, what) for term, what in items)
    return Markup('<dl class="{}">{}</dl>').format(kind, join(rows))


@dataclass(frozen=True)
class Col:
    """One column of a table."""

    header: str
    kind: str = ""
    """``n``: a number, to the right; ``w``: a sentence, which may wrap and needs room."""


def table(
    caption: str, columns: Sequence[Col], rows: Iterable[Sequence[Cell]], *, kind: str = "", wide: bool = True,
    foot: Sequence[Cell] = (),
) -> Markup:  # fmt: skip
    """A table with a caption; the first cell of a row is its header.

    Parameters
    ----------
    wide
        Whether it scrolls in a box of its own where the window is narrow.
    foot
        A last row of totals.
    """
    head = join(Markup('<th scope="col"{}>{}</th>').format(_class(column.kind), column.header) for column in columns)
    body = join((_row(columns, cells) for cells in rows), "\n")
    last = Markup("\n<tfoot>{}</tfoot>").format(_row(columns, foot)) if foot else Markup()
    made = Markup("<table{}>\n<caption>{}</caption>\n<thead><tr>{}</tr></thead>\n<tbody>{}</tbody>{}\n</table>").format(
        _class(kind), caption, head, body, last
    )
    return scrolling(caption, made) if wide else made


def scrolling(label: str, made: Markup) -> Markup:
    """A box that scrolls sideways, by keyboard too."""
    return Markup('<div class="scroll" role="region" tabindex="0" aria-label="{}">{}</div>').format(label, made)


def _row(columns: Sequence[Col], cells: Sequence[Cell]) -> Markup:
    first = Markup('<th scope="row"{}>{}</th>').format(_class(columns[0].kind), cells[0])
    rest = (
        Markup("<td{}>{}</td>").format(_class(column.kind), cell)
        for column, cell in zip(columns[1:], cells[1:], strict=True)
    )
    return Markup("<tr>{}{}</tr>").format(first, join(rest))


def _class(kind: str) -> Markup:
    return Markup(' class="{}"').format(kind) if kind else Markup()
