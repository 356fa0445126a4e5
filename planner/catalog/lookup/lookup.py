"""Find models, GPUs and engine versions under the names that logs and tables use.

Each rule is stated, and a match that is not literal comes with a note that says what was read instead.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from planner.catalog.engine import EngineFacts
from planner.catalog.gpu import Gpu
from planner.catalog.load import Catalog
from planner.catalog.lookup.lookup_engines import EngineVersions
from planner.catalog.lookup.lookup_gpus import GpuNames
from planner.catalog.lookup.lookup_models import ModelNames
from planner.catalog.lookup.names import Found, Named
from planner.catalog.model_shape import ModelShape
from planner.errors import InputError


@dataclass
class Lookup:
    """Everything that a table can name, remembered once found.

    Attributes
    ----------
    catalog
        What is known already.
    models
        Folder of further configs, each ``org--name.json``; looked at before the catalogue.
    beside
        Folder of the table, from which the paths of configs in it may start.
    """

    catalog: Catalog
    models: Path | None = None
    beside: Path | None = None
    _models: dict[tuple[str, str], Named[ModelShape] | InputError] = field(default_factory=dict)
    _gpus: dict[str, Named[Gpu] | InputError] = field(default_factory=dict)
    _engines: dict[tuple[str, str, dt.date | None], tuple[EngineFacts, str] | InputError] = field(default_factory=dict)

    @cached_property
    def model_names(self) -> ModelNames:
        """Where models are found."""
        return ModelNames(self.catalog, self.models, self.beside)

    @cached_property
    def gpu_names(self) -> GpuNames:
        """Where GPUs are found."""
        return GpuNames(self.catalog)

    @cached_property
    def engine_versions(self) -> EngineVersions:
        """Where engine versions are found."""
        return EngineVersions(self.catalog)

    def ready(self) -> None:
        """Read every table, so that what is wrong with the catalogue is said once and not for each name.

        Raises
        ------
        InputError
            Listing every problem of a table.
        """
        assert self.catalog.engines
        assert self.gpu_names.names
        assert self.engine_versions.releases

    def model(self, name: str, config_file: str = "") -> Named[ModelShape]:
        """The model of that name.

        Tried in this order: the file that ``config_file`` names, or the model of that file's name; the id among further
        models and in the catalogue, in any letter case, or an alias; the path of a config; the same name under another
        organisation, where only one has it (a mirror holds the same checkpoint); the name without its weight format,
        which then is the format to load; the name without its tuning (``-Instruct``, ``-it``, a date). Words after the
        first are tried as part of the name, then left out. Text in brackets is read only where the text before them
        names no model.

        Raises
        ------
        InputError
            If no rule finds it, or its config cannot be used.
        """
        key = (name, config_file)
        if key not in self._models:
            self._models[key] = _outcome(lambda: self.model_names.find(name, config_file))
        return _taken(self._models[key])

    def gpu(self, name: str) -> Named[Gpu]:
        """The GPU that a log's name means.

        The catalogue's id or an alias, apart from case, spaces, makers' names, a count (``RTX3090 x16``) and the memory
        behind the name, also inside brackets (``fake SM90 (NVIDIA H100 80GB HBM3)``); of alternatives
        (``L40S/A40-48GB``) the first; one that stands for its class (``RTX4090 class``); else a card of the memory
        (``24GB-class``) or compute capability (``SM75``) that the name states, which stands in for whatever card it
        was.

        Raises
        ------
        InputError
            If no GPU of the catalogue is meant and no memory is stated.
        """
        if name not in self._gpus:
            self._gpus[name] = _outcome(lambda: self.gpu_names.find(name))
        return _taken(self._gpus[name])

    def gpu_of_size(self, driver_mib: int, capability: str) -> Gpu:
        """A GPU known by its nvidia-smi total and compute capability only.

        Everything else is that of the catalogue's card of this capability whose memory is nearest.

        Raises
        ------
        InputError
            If no card of the catalogue has this capability.
        """
        key = f"{driver_mib} MiB, compute capability {capability}"
        if key not in self._gpus:
            self._gpus[key] = _outcome(lambda: Named(self.gpu_names.of_size(driver_mib, capability)))
        return _taken(self._gpus[key]).found

    def engine(self, name: str, version: str, day: dt.date | None = None) -> tuple[EngineFacts, str]:
        """Facts of a version and what a user must know of the choice.

        Without a version, the newest release of that day; without either, the newest in the catalogue. A version older
        than the catalogue's takes its oldest.

        Raises
        ------
        InputError
            If the engine is unknown.
        """
        key = (name, version, day)
        if key not in self._engines:
            self._engines[key] = _outcome(lambda: self.engine_versions.find(name, version, day))
        return _taken(self._engines[key])


def _outcome(step: Callable[[], Found]) -> Found | InputError:
    try:
        return step()
    except InputError as error:
        return error


def _taken(outcome: Found | InputError) -> Found:
    if isinstance(outcome, InputError):
        raise outcome
    return outcome
