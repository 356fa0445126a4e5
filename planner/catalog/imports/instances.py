"""Which GPUs an instance type of a price catalogue has, and how it can be had; never a guess."""

from __future__ import annotations

import datetime as dt
import fnmatch
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from pydantic import BaseModel, ConfigDict, Field

from planner.catalog.csv_table import read_rows
from planner.catalog.load import Catalog
from planner.catalog.lookup.lookup_gpus import GpuAlias
from planner.catalog.offer import Purchasable
from planner.catalog.offers import ImportedFrom

SAME_MEMORY = 0.07
"""Relative difference up to which two figures are the same memory: 22 and 24 GB of an L4 are, 40 and 80 are not."""
GPU_COUNT_DIGITS = 6


class InstanceFact(BaseModel):
    """One row of ``catalogs/instances.csv``: what price catalogues do not say about instance types."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    provider: str = Field(min_length=1)
    instance: str = Field(min_length=1)
    """A pattern, ``*`` for any text."""
    gpu: str = ""
    gpu_count: float | None = Field(default=None, gt=0)
    purchasable: Purchasable | None = None
    min_billing_s: float | None = Field(default=None, gt=0)
    quota_family: str = ""
    source_url: str = Field(min_length=1)
    as_of: dt.date
    note: str = ""


@dataclass(frozen=True)
class Unknown:
    """Why the GPU of a row is not known."""

    why: str


@dataclass(frozen=True)
class Instances:
    """Names and facts of instance types, from the catalogue."""

    catalog: Catalog
    source: ImportedFrom

    def gpu(self, name: str, provider: str, instance: str, memory_gb: float | None = None) -> str | Unknown:
        """The GPU that a price catalogue means.

        The alias that names an instance type or provider comes before a general one; a name that stands for several
        forms is known only where an alias, or the shipped offers of the same instance type, tell the form.
        """
        found = {row.gpu_id for row in self._narrowest(name, provider, instance, memory_gb)}
        if len(found) == 1:
            return found.pop()
        exact = [gpu for gpu in self.catalog.gpus if fold(gpu) == fold(name)]
        if exact:
            return exact[0]
        known = self._known_type(provider, instance)
        if known is not None and is_form_of(known[0], name) and not self.memory_note(known[0], memory_gb):
            return known[0]
        forms = sorted(gpu for gpu in self.catalog.gpus if is_form_of(gpu, name))
        if forms:
            return Unknown(f"{provider}: form or memory not stated ({', '.join(forms)})")
        return Unknown("GPU not in gpus.csv or gpu_aliases.csv")

    def known_gpus(self, provider: str, instance: str) -> tuple[str, float] | None:
        """GPU and count of an instance type by the catalogue and ``instances.csv``."""
        facts = self.facts(provider, instance)
        gpu, count = facts.get("gpu"), facts.get("gpu_count")
        if isinstance(gpu, str) and isinstance(count, float):
            return gpu, count
        return self._known_type(provider, instance)

    def count(self, stated: float, provider: str, instance: str) -> float:
        """GPUs of an instance; a part of one where the catalogue knows that the type has only a part."""
        known = self.known_gpus(provider, instance)
        return known[1] if known is not None and known[1] < 1 else round(stated, GPU_COUNT_DIGITS)

    def facts(self, provider: str, instance: str) -> Mapping[str, object]:
        """Cells of the rows that match; a later row comes before an earlier one."""
        found: dict[str, object] = {}
        for row in self._facts:
            if row.provider == provider and _like(row.instance, instance):
                filled = {name: value for name, value in row.model_dump().items() if value not in (None, "")}
                found |= filled
        return found

    def offer_facts(self, provider: str, instance: str) -> dict[str, object]:
        """Those cells that an offer has too."""
        names = ("purchasable", "min_billing_s", "quota_family")
        return {name: value for name, value in self.facts(provider, instance).items() if name in names}

    def memory_note(self, gpu: str, memory_gb: float | None) -> str:
        """A remark where a file states another memory than gpus.csv, whose figure holds."""
        known = self.catalog.gpus[gpu].memory_nominal_gb
        if memory_gb is None or _same(memory_gb, known):
            return ""
        return f"{gpu}: the file states {memory_gb:g} GB, gpus.csv {known:g} GB, which holds"

    def _narrowest(self, name: str, provider: str, instance: str, memory_gb: float | None) -> list[GpuAlias]:
        """Aliases that match, of the narrowest kind there is: by instance type, by provider, for all."""
        rows = [
            row
            for row in self._aliases.get(fold(name), ())
            if row.provider in ("", provider)
            and (not row.instance or _like(row.instance, instance))
            and (row.memory_gb is None or (memory_gb is not None and _same(memory_gb, row.memory_gb)))
        ]
        ranks = {id(row): (bool(row.provider), bool(row.instance)) for row in rows}
        best = max(ranks.values(), default=(False, False))
        return [row for row in rows if ranks[id(row)] == best]

    def _known_type(self, provider: str, instance: str) -> tuple[str, float] | None:
        return self._types.get((provider, instance.casefold()))

    @cached_property
    def _aliases(self) -> Mapping[str, list[GpuAlias]]:
        found: dict[str, list[GpuAlias]] = defaultdict(list)
        for row in read_rows(self.catalog.root / "gpu_aliases.csv", GpuAlias):
            if row.used_by in ("offers", self.source.value):
                found[fold(row.alias)].append(row)
        return found

    @cached_property
    def _facts(self) -> tuple[InstanceFact, ...]:
        return read_rows(self.catalog.root / "instances.csv", InstanceFact)

    @cached_property
    def _types(self) -> Mapping[tuple[str, str], tuple[str, float]]:
        """Instance types whose offers all name the same GPUs."""
        found: dict[tuple[str, str], set[tuple[str, float]]] = defaultdict(set)
        for offer in (*self.catalog.retired, *self.catalog.offers):
            key = (offer.provider, offer.instance_type.casefold())
            found[key].add((offer.gpu, offer.gpus_per_instance))
        return {key: next(iter(gpus)) for key, gpus in found.items() if len(gpus) == 1}


def fold(name: str) -> str:
    """Case, blanks, hyphens and underscores make no difference."""
    return re.sub(r"[\s_-]", "", name).casefold()


def is_form_of(gpu: str, name: str) -> bool:
    """Whether a GPU's id is the name with more parts: ``H100-SXM`` is a form of ``H100``, ``L40S`` none of ``L40``."""
    parts = gpu.split("-")
    return any(fold("".join(parts[:count])) == fold(name) for count in range(1, len(parts)))


def _like(pattern: str, text: str) -> bool:
    return fnmatch.fnmatchcase(text.casefold(), pattern.casefold())


def _same(one: float, other: float) -> bool:
    return abs(one - other) <= SAME_MEMORY * other
