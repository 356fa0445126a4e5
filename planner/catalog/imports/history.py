"""A provider's rows after an import: changed prices are closed and opened anew, prices that are gone are closed."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from planner.catalog.imports.diff import Change, Diff, Line, cut_off, id_of, suspicions
from planner.catalog.imports.shared import Imported, Key, key_of, price_of, single_prices
from planner.catalog.load import Catalog
from planner.catalog.offers import PRICE_COLUMNS, ImportedFrom, OfferRow

CATALOGUES = frozenset({ImportedFrom.HAND, ImportedFrom.GPUHUNT, ImportedFrom.SKYPILOT})
"""Rows that an import of a whole catalogue may retire: a private list or a bill is none of its business."""


@dataclass(frozen=True)
class Updated:
    """Rows of a provider's file after an import, and what changed."""

    rows: tuple[OfferRow, ...]
    diff: Diff


def updated(rows: Iterable[OfferRow], imported: Imported, catalog: Catalog, *, accept: bool = False) -> Updated:
    """Rows with the import in them; the order of what was there stays.

    A price that did not change keeps its first day and takes the new date and source. A price that changed ends on the
    day of the import, where a new row begins; on the very day that it began it is corrected instead. A price that the
    file lacks, of the terms that it speaks for, ends. What is older than the catalogue's changes nothing. Suspicious
    prices, and the end of prices by a file that may be cut off, are applied only if accepted.
    """
    old = [single for row in rows for single in single_prices(row)]
    standing = {key_of(row): row for row in old if row.effective_to is None}
    new, doubted = {key_of(row): row for row in imported.prices}, suspicions(imported, catalog)
    spoken_for = [row for key, row in standing.items() if _speaks_for(imported, key, row)]
    short = cut_off(imported, spoken_for)
    lines: list[Line] = []
    after: dict[int, list[OfferRow]] = {}
    older = unchanged = 0
    for key, row in standing.items():
        fresh = new.pop(key, None)
        if fresh is None:
            ends = key not in imported.kept and row.as_of <= imported.as_of and _speaks_for(imported, key, row)
            if ends:
                lines.append(Line(id_of(row), Change.GONE, price_of(row), None, short))
                if accept or not short:
                    after[id(row)] = _closed(row, imported.as_of)
        elif fresh.as_of < row.as_of:
            older += 1
        elif _same(row, fresh):
            unchanged += 1
            after[id(row)] = [fresh.model_copy(update={"effective_from": row.effective_from})]
        else:
            lines.append(_line(row, fresh, doubted.get(key, "")))
            if accept or key not in doubted:
                after[id(row)] = [*_closed(row, fresh.effective_from or imported.as_of), _opened(fresh)]
    result = [one for row in old for one in after.get(id(row), [row])]
    for key, fresh in new.items():
        lines.append(Line(id_of(fresh), Change.NEW, None, price_of(fresh), doubted.get(key, "")))
        if accept or key not in doubted:
            result.append(_opened(fresh))
    notes = (*imported.notes, *filter(None, [short]))
    diff = Diff(imported.provider, imported.as_of, tuple(lines), unchanged, older, imported.skipped, notes)
    return Updated(grouped(result), diff)


def _speaks_for(imported: Imported, key: Key, row: OfferRow) -> bool:
    origins = CATALOGUES if imported.source in CATALOGUES else frozenset({imported.source})
    return key[2] in imported.terms and row.imported_from in origins


def _same(old: OfferRow, new: OfferRow) -> bool:
    return (price_of(old), old.gpu, old.gpu_count, old.price_kind) == (
        price_of(new), new.gpu, new.gpu_count, new.price_kind,
    )  # fmt: skip


def _line(old: OfferRow, new: OfferRow, doubt: str) -> Line:
    before, after = price_of(old), price_of(new)
    change = Change.OTHER if before == after else Change.DEARER if after > before else Change.CHEAPER
    return Line(id_of(new), change, before, after, doubt)


def _closed(row: OfferRow, day: dt.date) -> list[OfferRow]:
    """The row with its last day; none where it began on that day."""
    if row.effective_from is not None and row.effective_from >= day:
        return []
    return [row.model_copy(update={"effective_to": day})]


def _opened(row: OfferRow) -> OfferRow:
    return row.model_copy(update={"effective_from": row.effective_from or row.as_of})


def grouped(prices: Iterable[OfferRow]) -> tuple[OfferRow, ...]:
    """Rows that differ in nothing but prices, of different terms, as one; in order of first appearance."""
    names = frozenset(PRICE_COLUMNS.values())
    found: dict[tuple[object, ...], list[dict[str, float]]] = {}
    first: dict[tuple[object, ...], OfferRow] = {}
    for row in prices:
        alike = tuple(value for name, value in row if name not in names)
        filled = {name: getattr(row, name) for name in sorted(names) if getattr(row, name) is not None}
        groups = found.setdefault(alike, [])
        first.setdefault(alike, row)
        room = next((group for group in groups if not group.keys() & filled.keys()), None)
        if room is None:
            groups.append(filled)
        else:
            room |= filled
    empty: Mapping[str, None] = dict.fromkeys(names)
    return tuple(
        first[alike].model_copy(update={**empty, **group}) for alike, groups in found.items() for group in groups
    )
