"""SkyPilot's catalogue, version 8: ``<cloud>/vms.csv``, price and spot price side by side, a row for each zone.

Columns by header: their order differs by cloud. ``GpuInfo`` is not read: it holds Python literals, JSON, or a bare
name, and its memory was wrong more than once. On gcp a machine's row holds the price of its CPUs and memory only; rows
without an instance type hold that of the GPUs, and both are added (skypilot-catalog, issue 31). It is published as
``https://raw.githubusercontent.com/skypilot-org/skypilot-catalog/master/catalogs/v8/<cloud>/vms.csv``.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from planner.catalog.imports.gpuhunt import MARKETS
from planner.catalog.imports.instances import Instances, Unknown
from planner.catalog.imports.rows import Found
from planner.catalog.imports.shared import Imported, SourceFile, number, positive, priced, table, usable_price
from planner.catalog.load import Catalog
from planner.catalog.offer import PriceKind, Term
from planner.catalog.offers import ImportedFrom
from planner.errors import InputError, Problem

FILE = "vms.csv"
REQUIRED = ("InstanceType", "AcceleratorName", "AcceleratorCount", "Price", "Region")
CLOUDS = {"do": "digitalocean", "vast": "vast-ai"}
"""Clouds that the catalogue calls by another name than SkyPilot."""
NOT_IN_USD = frozenset({"scaleway", "ovhcloud", "seeweb"})
"""Clouds that bill in EUR, while the file names no currency."""
SPLIT = "gcp"
"""The cloud whose machines and GPUs are priced apart."""
GLOBAL_REGIONS = 3
"""From so many regions on, all types in all of them at one price look like a cross product."""
COLUMNS = {Term.ON_DEMAND: "Price", Term.SPOT: "SpotPrice"}


@dataclass
class _Read:
    provider: str
    instances: Instances
    common: dict[str, object]
    found: Found = field(default_factory=Found)

    def gpu(self, name: str, instance: str) -> str | None:
        """The GPU of a row; ``None``, and counted, where it is not known."""
        gpu = self.instances.gpu(name, self.provider, instance)
        if isinstance(gpu, Unknown):
            self.found.tally.add(name, gpu.why)
            return None
        return gpu

    def take(self, cells: Mapping[str, str], gpu: str, count: float, extra: Mapping[Term, float] | None) -> None:
        """Prices of a row; `extra` is the price of its GPUs where they are priced apart."""
        instance, region, zone = cells["InstanceType"], cells["Region"], cells.get("AvailabilityZone", "")
        for term, column in COLUMNS.items():
            try:
                price = usable_price(cells.get(column, ""))
            except ValueError as error:
                self.found.refuse(instance, region, term, str(error))
                continue
            if price is None:
                continue
            if extra is not None:
                if term not in extra:
                    self.found.refuse(instance, region, term, "price of the machine without its GPUs")
                    continue
                price += extra[term]
            facts = self.instances.offer_facts(self.provider, instance) if term is Term.ON_DEMAND else {}
            row = {
                **self.common,
                **facts,
                "instance_type": instance,
                "region": region,
                "gpu": gpu,
                "gpu_count": self.instances.count(count, self.provider, instance),
                "vcpus": positive(cells.get("vCPUs", "")),
                "memory_gib": positive(cells.get("MemoryGiB", "")),
                "notes": "machine and GPUs added" if extra is not None else "",
            }
            self.found.add(priced(row, term, price), zone)


def read_skypilot(
    files: Sequence[SourceFile], catalog: Catalog, today: dt.date, cloud: str, as_of: dt.date | None = None
) -> tuple[Imported, ...]:
    """Prices of one cloud.

    Parameters
    ----------
    files
        The cloud's ``vms.csv``, alone or in a folder ``<cloud>``.

    Raises
    ------
    InputError
        If there is no such file, it cannot be used, or the cloud bills in another currency than the file says.
    """
    if cloud in NOT_IN_USD:
        fix = "Import its price list with `planner catalog import csv` and a rate"
        raise InputError(Problem("--cloud", f"{cloud} bills in EUR, and SkyPilot's file names no currency", fix))
    file = _wanted(files, cloud)
    provider, day = CLOUDS.get(cloud, cloud), as_of or today
    read = _Read(provider, Instances(catalog, ImportedFrom.SKYPILOT), _common(file, provider, cloud, day))
    rows = list(table(file, REQUIRED))
    if not rows:
        raise InputError(Problem(file.where, "holds no row", "Get the file again"))
    if cloud == SPLIT:
        _split_rows(rows, read)
    else:
        _plain_rows(rows, read)
    prices = read.found.chosen()
    note = _cross_product(provider, [cells for _, cells in rows if cells["AcceleratorName"]])
    return (
        Imported(
            provider=provider,
            source=ImportedFrom.SKYPILOT,
            as_of=day,
            prices=prices,
            terms=frozenset({Term.ON_DEMAND, Term.SPOT, Term.CAPACITY_BLOCK}),
            kept=frozenset(read.found.kept),
            skipped=read.found.tally.skipped(),
            notes=(*read.found.notes, *note),
        ),
    )


def _wanted(files: Sequence[SourceFile], cloud: str) -> SourceFile:
    if len(files) == 1:
        return files[0]
    chosen = [file for file in files if PurePosixPath(file.name).parts[-2:] == (cloud, FILE)]
    chosen = chosen or [file for file in files if file.name == FILE]
    if len(chosen) != 1:
        message = f"{len(chosen)} files are named {cloud}/{FILE}"
        raise InputError(Problem("--cloud", message, "Give the path of the file itself"))
    return chosen[0]


def _common(file: SourceFile, provider: str, cloud: str, day: dt.date) -> dict[str, object]:
    address = file.where if file.where.startswith("http") else ""
    return {
        "provider": provider,
        "as_of": day,
        "source_url": address or f"skypilot-catalog v8, {cloud}/{FILE}",
        "price_kind": PriceKind.MARKETPLACE if provider in MARKETS else PriceKind.LIST,
        "imported_from": ImportedFrom.SKYPILOT,
    }


def _plain_rows(rows: Iterable[tuple[int, dict[str, str]]], read: _Read) -> None:
    for line, cells in rows:
        name, instance = cells["AcceleratorName"], cells["InstanceType"]
        if not name:
            continue
        try:
            count = _count(cells)
        except ValueError as error:
            read.found.tally.add(f"row {line}, {instance or name}", str(error))
            continue
        if not instance:
            read.found.tally.add(name, "price of GPUs without a machine")
            continue
        gpu = read.gpu(name, instance)
        if gpu is not None:
            read.take(cells, gpu, count, None)


def _count(cells: Mapping[str, str]) -> float:
    count = number(cells["AcceleratorCount"])
    if count is None or count <= 0:
        raise ValueError("no number of GPUs")
    return count


def _split_rows(rows: Iterable[tuple[int, dict[str, str]]], read: _Read) -> None:
    """Machines plus their GPUs: price of a machine + price of that many GPUs of its type in the same zone."""
    rows = list(rows)
    gpus = _gpu_prices(rows, read)
    for _, cells in rows:
        instance = cells["InstanceType"]
        known = read.instances.known_gpus(read.provider, instance) if instance else None
        if known is None:
            if instance and cells["AcceleratorName"]:
                read.found.tally.add(instance, "GPUs of the machine not known")
            continue
        extra = gpus.get((_apart(instance, known[0]), known[1], cells["Region"], cells.get("AvailabilityZone", "")))
        read.take(cells, known[0], known[1], extra or {})


MEGA = "megagpu-8g"
"""A3 Mega has the GPU of A3 High, which is priced apart by another name."""


def _apart(instance: str, gpu: str) -> str:
    """What rows of GPUs are told apart by, beyond the GPU itself."""
    return f"{gpu} Mega" if instance == f"a3-{MEGA}" else gpu


def _gpu_prices(
    rows: Iterable[tuple[int, dict[str, str]]], read: _Read
) -> Mapping[tuple[str, float, str, str], dict[Term, float]]:
    """Prices of GPUs without a machine, by GPU, count, region and zone."""
    found: dict[tuple[str, float, str, str], dict[Term, float]] = defaultdict(dict)
    for line, cells in rows:
        name = cells["AcceleratorName"]
        if cells["InstanceType"] or not name:
            continue
        try:
            count = _count(cells)
            prices = {term: usable_price(cells.get(column, "")) for term, column in COLUMNS.items()}
        except ValueError as error:
            read.found.tally.add(f"row {line}, {name}", str(error))
            continue
        gpu = _gpu_apart(name, read)
        if gpu is not None:
            key = (gpu, count, cells["Region"], cells.get("AvailabilityZone", ""))
            found[key] |= {term: price for term, price in prices.items() if price is not None}
    return found


_MACHINES = {"A100": "a2-highgpu-1g", "A100-80GB": "a2-ultragpu-1g", "H100": "a3-highgpu-8g", "H200": "a3-ultragpu-8g"}
"""A machine that has the GPU of a row without one, where its name stands for several forms."""


def _gpu_apart(name: str, read: _Read) -> str | None:
    if name == "H100-MEGA":
        return _apart(f"a3-{MEGA}", "H100-SXM")
    return read.gpu(name, _MACHINES.get(name, ""))


def _cross_product(provider: str, rows: Sequence[Mapping[str, str]]) -> tuple[str, ...]:
    """Whether every type is in every region at one price: then a row says what it costs, not that it is there."""
    regions = {cells["Region"] for cells in rows}
    places: dict[str, set[str]] = defaultdict(set)
    prices: dict[str, set[str]] = defaultdict(set)
    for cells in rows:
        places[cells["InstanceType"]].add(cells["Region"])
        prices[cells["InstanceType"]].add(cells["Price"])
    alike = all(place == regions for place in places.values()) and all(len(found) == 1 for found in prices.values())
    if len(regions) >= GLOBAL_REGIONS and len(places) > 1 and alike:
        return (
            f"{provider}: every type is listed in all {len(regions)} regions at one price: "
            "a row does not say that the type can be had there",
        )
    return ()
