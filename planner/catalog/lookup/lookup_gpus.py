"""Find a GPU under the name that a log or a table uses."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from planner.catalog.csv_table import read_rows
from planner.catalog.gpu import Gpu
from planner.catalog.load import Catalog
from planner.catalog.lookup.names import Named, in_brackets, outside_brackets
from planner.errors import InputError, Problem


class GpuAlias(BaseModel):
    """One row of ``catalogs/gpu_aliases.csv``: a name that logs or price catalogues use for a GPU of the catalogue."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    alias: str = Field(min_length=1)
    gpu_id: str = Field(min_length=1)
    reason: str = Field(min_length=1)
    as_of: dt.date
    used_by: Literal["logs", "offers", "gpuhunt", "skypilot"] = "logs"
    """``offers``: every price catalogue. A log may be read as the common form of a card, a price never."""
    provider: str = ""
    """Of offers: the only provider that it holds for."""
    instance: str = ""
    """Of offers: a pattern of instance types, ``*`` for any text, in any letter case."""
    memory_gb: float | None = Field(default=None, gt=0)
    """Of offers: the memory that the row must state."""


SMALL_CARD, LARGE_CARD, LARGE_CARD_GB = "RTX4090", "H100-SXM", 48
"""Cards whose rules a card known by its memory only is given."""
VISIBLE_SHARE = 0.975
"""Share of a nameplate (as GiB) that CUDA shows: 0.97 to 0.98 on cards of 12 to 32 GB without ECC."""


@dataclass(frozen=True)
class Series:
    """Cards of one maker and generation, by words of their names."""

    words: re.Pattern[str]
    card: str
    """The catalogue's card that stands in for them."""
    visible_share: float = VISIBLE_SHARE


_ANY = re.compile("")
_AMD = re.compile(r"\bAMD\b|Radeon|Instinct|\bMI\d{2,3}|\bgfx\d|Strix|ROCm", re.IGNORECASE)
AMD_SHARE = 0.9985
"""AMD's cards show 191.69 GiB of 192, 23.98 of 24, 15.98 of 16 (start-up logs)."""
JETSON_SHARE = 0.9595
"""Jetson Thor shows 122.82 GiB of 128 (six public error messages of vLLM), Orin 61.4 of 64."""
SERIES = (
    Series(_AMD, "MI210", AMD_SHARE),
    Series(re.compile(r"Jetson|\bThor\b|\bOrin\b", re.IGNORECASE), "GB10", JETSON_SHARE),
    Series(re.compile(r"RTX ?50[5-9]0|RTX PRO \d|RTX 50-series|Blackwell|SM_?120", re.IGNORECASE), "RTX5090"),
    Series(re.compile(r"RTX ?30[5-9]0|RTX ?A[2-6]000", re.IGNORECASE), "RTX3090"),
    Series(re.compile(r"RTX ?20[6-8]0|\b2080 ?Ti|Turing", re.IGNORECASE), "T4"),
)


def series_of(name: str, memory_gb: int) -> Series:
    """The series that the name states, else consumer cards below 48 GB and data-centre cards from there."""
    rest = Series(_ANY, SMALL_CARD if memory_gb < LARGE_CARD_GB else LARGE_CARD)
    return next((series for series in SERIES if series.words.search(name)), rest)


@dataclass
class GpuNames:
    """GPUs of the catalogue under their aliases, and cards that stand in for others."""

    catalog: Catalog

    def find(self, name: str) -> Named[Gpu]:
        """The GPU; the rules are those of `planner.catalog.lookup.lookup.Lookup.gpu`.

        Raises
        ------
        InputError
            If no GPU of the catalogue is meant, and neither memory nor compute capability is stated.
        """
        for text in (name, outside_brackets(name), *in_brackets(name)):
            known = self.names.get(_gpu_key(text)) or self.names.get(_gpu_key(_SIZE.sub("", text)))
            if known is not None:
                return Named(self.catalog.gpus[known])
        for text in outside_brackets(name).split("/"):
            known = self.names.get(_gpu_key(text))
            if known is not None:
                return Named(self.catalog.gpus[known], notes=(f"GPU {name!r:.60} is read as {known}",))
        known = self.names.get(_gpu_key(_CLASS.sub("", outside_brackets(name))))
        if known is not None:
            return Named(self.catalog.gpus[known], notes=(f"GPU {name!r:.60} is read as {known}",), sibling=True)
        size = re.search(r"(\d+) ?GB\b", outside_brackets(name), re.IGNORECASE)
        if size is not None:
            return self._of_memory(int(size.group(1)), name)
        capability = re.search(r"\bSM_?(\d{1,2})(\d)\b", name, re.IGNORECASE)
        if capability is not None:
            return self._of_capability(f"{capability.group(1)}.{capability.group(2)}", name)
        fix = "Add it to gpu_aliases.csv or gpus.csv"
        raise InputError(Problem(f"GPU {name!r:.60}", "not in the catalogue", fix))

    def _of_capability(self, capability: str, name: str) -> Named[Gpu]:
        """A card of a compute capability: the smallest of the catalogue, else its oldest as if it had that one."""
        cards = sorted(self.catalog.gpus.values(), key=lambda gpu: gpu.visible_memory_gib)
        known = [card for card in cards if card.compute_capability == capability]
        oldest = min((card for card in cards if card.vendor == "NVIDIA"), key=lambda gpu: gpu.release_year)
        stand_in = known[0] if known else oldest.model_copy(update={"id": name, "compute_capability": capability})
        note = f"GPU {name!r:.60} is read as {stand_in.id} for its compute capability {capability}"
        return Named(stand_in, notes=(note,), sibling=True)

    def _of_memory(self, memory_gb: int, name: str) -> Named[Gpu]:
        """A card of a memory size, by the rules of a card of its series."""
        series = series_of(name, memory_gb)
        card = self.catalog.gpu(series.card)
        visible = round(series.visible_share * memory_gb, 2)
        source = f"{series.visible_share:.1%} of the {memory_gb} GB that its name states: a guess"
        stand_in = card.model_copy(
            update={
                "id": f"{memory_gb} GB card",
                "interconnect": card.interconnect if card.id == LARGE_CARD else "pcie",
                "memory_nominal_gb": float(memory_gb),
                "memory_driver_mib": None,
                "memory_visible_gib": visible,
                "memory_visible_source": source,
            }
        )
        note = f"GPU {name!r:.60} is not in the catalogue: {card.id} with {visible} GiB stands in"
        return Named(stand_in, notes=(note,), sibling=True)

    @cached_property
    def names(self) -> Mapping[str, str]:
        """Ids by every name, folded."""
        aliases = read_rows(self.catalog.root / "gpu_aliases.csv", GpuAlias)
        names = {_gpu_key(row.alias): row.gpu_id for row in aliases if row.used_by == "logs"}
        return names | {_gpu_key(gpu): gpu for gpu in self.catalog.gpus}

    def of_size(self, driver_mib: int, capability: str) -> Gpu:
        """A GPU known by its nvidia-smi total and compute capability only.

        Raises
        ------
        InputError
            If no card of the catalogue has this capability.
        """
        name = f"{driver_mib} MiB, compute capability {capability}"
        cards = [gpu for gpu in self.catalog.gpus.values() if gpu.compute_capability == capability]
        if not cards:
            raise InputError(Problem(f"GPU {name}", "no card of the catalogue has this compute capability"))
        card = min(cards, key=lambda gpu: abs((gpu.memory_driver_mib or 1024 * gpu.visible_memory_gib) - driver_mib))
        memory = {"id": name, "memory_driver_mib": driver_mib, "memory_visible_gib": None}
        return card if card.memory_driver_mib == driver_mib else card.model_copy(update=memory)


_CLASS = re.compile(r"[ -]class\b.*", re.IGNORECASE)
_SIZE = re.compile(r"[ -]\d+ ?GB\b", re.IGNORECASE)
_MAKERS = re.compile(r"^\d+\s*x\s*(?=[a-z])|nvidia|amd|geforce|\bx\s*\d+\b|\bx\d+$|[\s_-]", re.IGNORECASE)


def _gpu_key(name: str) -> str:
    """Case, spaces, hyphens, makers' names and a count (``x16``, ``8x``) make no difference."""
    return _MAKERS.sub("", name.casefold())
