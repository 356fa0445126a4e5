"""What every price importer does: tables of others read with care, and what became of each row."""

from __future__ import annotations

import csv
import datetime as dt
import io
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from planner.catalog.offer import PriceKind, Term
from planner.catalog.offers import PRICE_COLUMNS, ImportedFrom, OfferRow
from planner.errors import InputError, Problem

MOST_CELL_CHARS = 100_000
"""Longest cell: prices, names and a JSON remark are far shorter."""
PRICE_DIGITS = 6
"""Digits after the point that a price per hour keeps."""

Key = tuple[str, str, Term, bool]
"""Instance type, region, term, and whether the price is a contracted one: what one provider has one price for."""


@dataclass(frozen=True)
class SourceFile:
    """One table as it came: a file, a member of a zip, or an answer of a server."""

    name: str
    """Its own name, such as ``aws.csv``."""
    where: str
    """Path or address, for problems and as the source of prices."""
    text: str


@dataclass(frozen=True)
class Skipped:
    """What a file holds and the catalogue does not take, with the reason."""

    what: str
    why: str
    rows: int


@dataclass(frozen=True)
class Imported:
    """The prices of one provider.

    Attributes
    ----------
    prices
        Rows with one price each.
    terms
        Terms that the file speaks for: prices on them that it lacks are gone.
    kept
        Prices that the file names but that cannot be used: what the catalogue has of them stays.
    """

    provider: str
    source: ImportedFrom
    as_of: dt.date
    prices: tuple[OfferRow, ...]
    terms: frozenset[Term]
    kept: frozenset[Key] = frozenset()
    skipped: tuple[Skipped, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass
class Tally:
    """Rows that are left out, counted by what and why."""

    found: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, what: str, why: str) -> None:
        """Count one row."""
        self.found[what, why] += 1

    def skipped(self) -> tuple[Skipped, ...]:
        """One entry for each, sorted."""
        return tuple(Skipped(what, why, rows) for (what, why), rows in sorted(self.found.items()))


def key_of(row: OfferRow) -> Key:
    """What the one price of a row is the price of."""
    term, _ = next(row.prices())
    return row.name, row.region, term, row.price_kind is PriceKind.CONTRACTED


def price_of(row: OfferRow) -> float:
    """The one price of a row, USD per hour."""
    _, price = next(row.prices())
    return price


def priced(row: Mapping[str, object], term: Term, usd_per_h: float) -> OfferRow:
    """A row with one price."""
    return OfferRow.model_validate({**row, PRICE_COLUMNS[term]: round(usd_per_h, PRICE_DIGITS)})


def single_prices(row: OfferRow) -> Iterator[OfferRow]:
    """One row for each price of a row."""
    filled = [name for name in PRICE_COLUMNS.values() if getattr(row, name) is not None]
    for name in filled:
        yield row.model_copy(update={other: None for other in filled if other != name})


def table(source: SourceFile, required: tuple[str, ...]) -> Iterator[tuple[int, dict[str, str]]]:
    """Rows of a CSV file by column name, each with its number (the header is row 1); blank lines are passed over.

    Raises
    ------
    InputError
        If the file is empty, a column is missing or occurs twice, a row has more or fewer cells than the header, or a
        cell is longer than `MOST_CELL_CHARS` characters.
    """
    before = csv.field_size_limit(MOST_CELL_CHARS)
    try:
        yield from _rows(source, required)
    except csv.Error as error:
        raise InputError(Problem(source.where, f"is no CSV that can be read: {error}", AGAIN)) from None
    finally:
        csv.field_size_limit(before)


AGAIN = "Get the file again"


def _rows(source: SourceFile, required: tuple[str, ...]) -> Iterator[tuple[int, dict[str, str]]]:
    reader = csv.reader(io.StringIO(source.text.removeprefix("\ufeff"), newline=""))
    header = [name.strip() for name in next(reader, [])]
    _check_header(source, header, required)
    for number, cells in enumerate(reader, start=2):
        if not any(cell.strip() for cell in cells):
            continue
        if len(cells) != len(header):
            message = f"{len(cells)} cells where the header has {len(header)}: the file may be cut off"
            raise InputError(Problem(source.where, message, AGAIN, row=str(number)))
        yield number, {name: cell.strip() for name, cell in zip(header, cells, strict=True)}


def _check_header(source: SourceFile, header: list[str], required: tuple[str, ...]) -> None:
    if not any(header):
        raise InputError(Problem(source.where, "is empty", AGAIN))
    missing = [name for name in required if name not in header]
    twice = [name for name, count in Counter(header).items() if count > 1 and name in required]
    if missing or twice:
        problems = [Problem(source.where, "column is missing", AGAIN, row="1", field=name) for name in missing]
        problems += [Problem(source.where, "column occurs twice", AGAIN, row="1", field=name) for name in twice]
        raise InputError(problems)


def number(text: str) -> float | None:
    """A finite number; ``None`` for an empty cell.

    Raises
    ------
    ValueError
        If it is no number, or not finite.
    """
    if not text:
        return None
    if "_" in text:
        raise ValueError("is no number")
    try:
        value = float(text)
    except ValueError:
        raise ValueError("is no number") from None
    if not math.isfinite(value):
        raise ValueError("is not finite")
    return value


def usable_price(text: str) -> float | None:
    """A price above 0; ``None`` for an empty cell.

    Raises
    ------
    ValueError
        If it is none: catalogues print 0 for what has no price, and a fleet of free GPUs is no plan.
    """
    price = number(text)
    if price is None:
        return None
    if price == 0:
        raise ValueError("price 0: not a price")
    if price < 0:
        raise ValueError("price below 0")
    return price


def positive(text: str) -> float | None:
    """A number above 0, or ``None`` where the cell holds none: for figures that are shown but not planned with."""
    try:
        value = number(text)
    except ValueError:
        return None
    return value if value is not None and value > 0 else None
