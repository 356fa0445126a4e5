"""gpuhunt's catalogue, version 3: one CSV a provider, one row an instance type, location and spot or not.

Columns and their meaning: gpuhunt 0.1.34, ``RawCatalogItem`` and ``CatalogItem``; prices are USD per hour of the
instance, ``gpu_memory`` is GB of one GPU, ``location`` is a region, or a zone for gcp. It is published as
``https://dstack-gpu-pricing.s3.eu-west-1.amazonaws.com/v3/<provider>/latest/catalog.zip``.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from planner.catalog.imports.instances import Instances, Unknown
from planner.catalog.imports.rows import Found
from planner.catalog.imports.shared import Imported, SourceFile, number, positive, priced, table, usable_price
from planner.catalog.load import Catalog
from planner.catalog.offer import PriceKind, Term
from planner.catalog.offers import ImportedFrom
from planner.errors import InputError, Problem

REQUIRED = ("instance_name", "location", "price", "gpu_count", "gpu_name", "gpu_memory", "spot")
PROVIDERS = {"lambdalabs": "lambda", "datacrunch": "verda", "vastai": "vast-ai"}
"""Providers that the catalogue calls by another name than gpuhunt."""
MARKETS = frozenset({"vast-ai", "tensordock", "salad", "akash"})
"""Providers whose prices are offers of a market."""
_VERSION = re.compile(r"(?:^|[/\\])(20\d{2})(\d{2})(\d{2})-\d+(?:[/\\]|$)")
_ZONE = re.compile(r"^[a-z]+-[a-z]+\d+-[a-z]$")


def read_gpuhunt(
    files: Sequence[SourceFile], catalog: Catalog, today: dt.date, provider: str = "", as_of: dt.date | None = None
) -> tuple[Imported, ...]:
    """Prices of every provider in the files.

    Parameters
    ----------
    files
        Named ``<provider>.csv``.
    today
        Day of the prices where neither `as_of` nor a version folder (``20261120-3``) tells it.
    provider
        Only this one, by gpuhunt's name or the catalogue's; for a single file, whatever its name.

    Raises
    ------
    InputError
        If a file cannot be used, or none is of the provider.
    """
    instances = Instances(catalog, ImportedFrom.GPUHUNT)
    read = []
    for file, name in _wanted(files, provider):
        day = as_of or version_day(file.where) or today
        read.append(_provider(file, PROVIDERS.get(name, name), instances, day))
    return tuple(read)


def _wanted(files: Sequence[SourceFile], provider: str) -> list[tuple[SourceFile, str]]:
    named = [(file, PurePosixPath(file.name).stem) for file in files]
    if not provider:
        return named
    if len(files) == 1:
        return [(files[0], provider)]
    chosen = [(file, name) for file, name in named if provider in (name, PROVIDERS.get(name))]
    if len(chosen) != 1:
        names = ", ".join(sorted({name for _, name in named}))
        message = f"{len(chosen)} of the files are {provider!r:.60}'s"
        raise InputError(Problem("--provider", message, f"The files are named: {names}"))
    return chosen


def version_day(where: str) -> dt.date | None:
    """The day of a version folder such as ``20261120-3`` in a path or address."""
    found = _VERSION.search(where)
    if found is None:
        return None
    try:
        return dt.date(*map(int, found.groups()))
    except ValueError:
        return None


def _provider(file: SourceFile, provider: str, instances: Instances, day: dt.date) -> Imported:
    found = Found()
    empty = True
    for line, cells in table(file, REQUIRED):
        empty = False
        try:
            _take(cells, provider, instances, found, _common(file, provider, day))
        except ValueError as error:
            found.tally.add(f"row {line}, {cells['instance_name']}", str(error))
    if empty:
        raise InputError(Problem(file.where, "holds no row", "Get the file again"))
    return Imported(
        provider=provider,
        source=ImportedFrom.GPUHUNT,
        as_of=day,
        prices=found.chosen(),
        terms=frozenset({Term.ON_DEMAND, Term.SPOT, Term.CAPACITY_BLOCK}),
        kept=frozenset(found.kept),
        skipped=found.tally.skipped(),
        notes=tuple(found.notes),
    )


def _common(file: SourceFile, provider: str, day: dt.date) -> dict[str, object]:
    address = file.where if file.where.startswith("http") else ""
    return {
        "provider": provider,
        "as_of": day,
        "source_url": address or f"gpuhunt catalogue v3, {PurePosixPath(file.name).name}",
        "price_kind": PriceKind.MARKETPLACE if provider in MARKETS else PriceKind.LIST,
        "imported_from": ImportedFrom.GPUHUNT,
    }


def _take(cells: dict[str, str], provider: str, instances: Instances, found: Found, common: dict[str, object]) -> None:
    """One row, if it is of a GPU.

    Raises
    ------
    ValueError
        If it names no instance, or a number is none.
    """
    count = number(cells["gpu_count"]) or 0.0
    if count == 0 or not cells["gpu_name"]:
        return
    instance, memory = cells["instance_name"], positive(cells["gpu_memory"])
    if not instance:
        raise ValueError("no instance name")
    if count < 0:
        raise ValueError("GPUs below 0")
    spot = _flag(cells["spot"])
    place = cells["location"]
    region, term = region_of(place, provider), Term.SPOT if spot else Term.ON_DEMAND
    gpu = instances.gpu(cells["gpu_name"], provider, instance, memory)
    if isinstance(gpu, Unknown):
        found.tally.add(cells["gpu_name"], gpu.why)
        return
    try:
        price = usable_price(cells["price"])
    except ValueError as error:
        found.refuse(instance, region, term, str(error))
        return
    if price is None:
        found.refuse(instance, region, term, "no price")
        return
    count = instances.count(count, provider, instance)
    note = instances.memory_note(gpu, memory)
    if note and count >= 1:
        found.notes[note] = None
    row = {
        **common,
        **({} if spot else instances.offer_facts(provider, instance)),
        **_printed(cells),
        "region": region,
        "gpu": gpu,
        "gpu_count": count,
    }
    found.add(priced(row, term, price), place)


def _flag(text: str) -> bool:
    found = {"true": True, "false": False}.get(text.casefold())
    if found is None:
        raise ValueError(f"spot is {text!r:.20}, neither True nor False")
    return found


def _printed(cells: dict[str, str]) -> dict[str, object]:
    """Cells that an offer takes as they are."""
    return {
        "instance_type": cells["instance_name"],
        "vcpus": positive(cells.get("cpu", "")),
        "memory_gib": positive(cells.get("memory", "")),
        "notes": f"flags {cells['flags']}" if cells.get("flags") else "",
    }


def region_of(place: str, provider: str) -> str:
    """The region of a location: gcp prints zones."""
    return place[:-2] if provider == "gcp" and _ZONE.fullmatch(place) else place
