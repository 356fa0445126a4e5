"""The catalogue as one frozen object: GPUs, offers, engines, models.

Tables are read and checked at once; model configs and engine facts are read when they are asked for.
"""

from __future__ import annotations

import datetime as dt
import difflib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from planner.catalog.csv_table import read_table
from planner.catalog.gpu import Gpu
from planner.catalog.models import (
    QUANT_COMPANION,
    ModelAlias,
    ModelSource,
    read_aliases,
    read_json_object,
    read_model_index,
)
from planner.catalog.offer import Offer
from planner.catalog.offers import Provider, read_offers, read_providers
from planner.errors import InputError, Problem, Problems

if TYPE_CHECKING:
    from planner.catalog.engine import EngineFacts
    from planner.catalog.model_shape import ModelShape

ROOT_VARIABLE = "PLANNER_CATALOGS"
"""Environment variable that names another catalogue folder: a whole one, or one laid over the shipped one."""


def default_root() -> Path:
    """The catalogue folder: ``$PLANNER_CATALOGS``, else the shipped one."""
    chosen = os.environ.get(ROOT_VARIABLE)
    return Path(chosen) if chosen else shipped_root()


def shipped_root() -> Path:
    """The catalogue folder inside the wheel, else the repository's."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "_catalogs"
    return installed if installed.is_dir() else package.parent / "catalogs"


@dataclass(frozen=True)
class Catalog:
    """Everything that exists and what it costs.

    Attributes
    ----------
    root
        Folder that the catalogue was read from.
    gpus
        GPUs by id.
    offers
        Offers whose price holds, ordered by provider and row; ids are unique.
    model_sources
        Where each model config comes from, by Hugging Face id.
    quant_sources
        The same for quantisation companions.
    aliases
        Ids whose config has the sizes of another one that is here.
    providers
        How providers that sell by the GPU fill one machine.
    retired
        Prices that held before, or are to hold later; several may have one id.
    own
        Folder of the user whose ``offers`` are laid over those of `root`.
    """

    root: Path
    gpus: Mapping[str, Gpu]
    offers: tuple[Offer, ...]
    model_sources: Mapping[str, ModelSource]
    quant_sources: Mapping[str, ModelSource]
    providers: tuple[Provider, ...] = ()
    aliases: Mapping[str, ModelAlias] = field(default_factory=lambda: MappingProxyType({}))
    retired: tuple[Offer, ...] = ()
    own: Path | None = None

    def gpu(self, gpu_id: str) -> Gpu:
        """One GPU, in any letter case.

        Raises
        ------
        InputError
            If there is no such GPU; names the closest.
        """
        return self.gpus[_pick(gpu_id, self.gpus, "GPU")]

    def offer(self, offer_id: str) -> Offer:
        """One offer, in any letter case; where nobody offers it any more, its last price.

        Raises
        ------
        InputError
            If there is no such offer; names the closest.
        """
        return self.known_offers[_pick(offer_id, self.known_offers, "offer")]

    @cached_property
    def known_offers(self) -> Mapping[str, Offer]:
        """Offers by id, with the last price of each that nobody offers any more: contracts for it may still run."""
        ended = [offer for offer in self.retired if offer.effective_to is not None]
        ended.sort(key=lambda offer: offer.effective_to or dt.date.max)
        return {offer.id: offer for offer in (*ended, *self.offers)}

    def model_ids(self) -> tuple[str, ...]:
        """Hugging Face ids of the catalogue's models, sorted."""
        return tuple(sorted(self.model_sources, key=str.casefold))

    def model_shape(self, id_or_path: str, base: Path | None = None) -> ModelShape:
        """The shape of a catalogue model or of a ``config.json``.

        Parameters
        ----------
        id_or_path
            A catalogue id or alias in any letter case, or a path to a config file or to the folder that holds
            ``config.json``. An alias keeps its own id; a note says whose config was read.
        base
            Folder that a relative path starts from, tried before the working directory.

        Raises
        ------
        InputError
            If neither exists, or the config cannot be used.
        """
        from planner.catalog.hf.config import read_model_shape  # noqa: PLC0415  the readers load only when needed

        alias = self._alias(id_or_path)
        config, companion, name = self._find_config(alias.hf_id if alias else id_or_path, base)
        problems = Problems()
        quant = problems.attempt(lambda: read_json_object(companion)) if companion is not None else None
        raw = problems.attempt(lambda: read_json_object(config))
        problems.raise_if_any()
        assert raw is not None
        shape = read_model_shape(
            raw, alias.alias if alias else name, quant_config=quant, class_defaults=self._class_defaults
        )
        return replace(shape, notes=(alias.note, *shape.notes)) if alias else shape

    def _alias(self, wanted: str) -> ModelAlias | None:
        return {name.casefold(): alias for name, alias in self.aliases.items()}.get(wanted.casefold())

    def _find_config(self, id_or_path: str, base: Path | None) -> tuple[Path, Path | None, str]:
        """Config file, quantisation companion, and the id to report."""
        folded = {known.casefold(): known for known in self.model_sources}
        known = folded.get(id_or_path.casefold())
        if known is not None:
            quant = self.quant_sources.get(known)
            models = self.root / "models"
            return models / self.model_sources[known].file, models / quant.file if quant else None, known
        for start in (base, Path.cwd()):
            config = _config_file(id_or_path, start)
            if config is not None:
                companion = config.parent / QUANT_COMPANION
                return config, companion if companion.is_file() else None, id_or_path
        fix = "Give an id of `planner catalog list models`, or the path of a Hugging Face config.json"
        raise _unknown(id_or_path, (*self.model_sources, *self.aliases), "model", fix)

    @cached_property
    def _class_defaults(self) -> Mapping[str, Any]:
        return read_json_object(self.root / "models" / "class_defaults.json")

    @cached_property
    def engines(self) -> tuple[EngineFacts, ...]:
        """Facts of all engines and versions."""
        from planner.catalog.engine import load_engines  # noqa: PLC0415  the readers load only when needed

        return load_engines(self.root)

    def engine(self, name: str, version: str) -> EngineFacts:
        """Facts of one engine version.

        Raises
        ------
        InputError
            If the engine or the version is unknown.
        """
        from planner.catalog.engine import find_engine  # noqa: PLC0415  the readers load only when needed

        return find_engine(self.engines, name, version)

    def files(self) -> tuple[Path, ...]:
        """Every data file of the catalogue, sorted: what a digest over the inputs must cover."""
        kinds = (
            "*.csv",
            "offers/*.csv",
            "engines/*.toml",
            "engines/*.csv",
            "models/*.csv",
            "models/*.json",
            "models/quant/*.json",
            "speed/*.toml",
        )
        found = {path for kind in kinds for path in self.root.glob(kind) if path.is_file()}
        found -= set((self.root / OFFERS).glob("*.csv"))
        return tuple(sorted((*found, *offer_files(self.root, self.own))))

    def name_of(self, path: Path) -> str:
        """Name of a data file inside the catalogue."""
        folder = self.own if self.own is not None and path.is_relative_to(self.own) else self.root
        return str(path.relative_to(folder))


OFFERS = "offers"


def layers(root: Path | None = None) -> tuple[Path, Path | None]:
    """The folder that all tables come from, and the user's that is laid over it, if any.

    A folder with ``offers`` but without tables such as ``gpus.csv`` and without ``engines`` is laid over the shipped
    one: each ``offers/<provider>.csv`` of it takes the place of the shipped file of that provider. Others are whole.
    """
    folder = default_root() if root is None else root
    whole = any(folder.glob("*.csv")) or (folder / "engines").is_dir()
    laid_over = (folder / OFFERS).is_dir() and not whole
    return (shipped_root(), folder) if laid_over else (folder, None)


def offer_files(root: Path, own: Path | None) -> tuple[Path, ...]:
    """One file of offers a provider: the user's where there is one."""
    folders = [root, own] if own is not None else [root]
    files = {path.name: path for folder in folders for path in (folder / OFFERS).glob("*.csv")}
    return tuple(files[name] for name in sorted(files))


def load_catalog(root: Path | None = None, on: dt.date | None = None) -> Catalog:
    """Read and check the catalogue.

    Parameters
    ----------
    root
        Catalogue folder; `default_root` if not given. See `layers`.
    on
        Day whose prices are offered; if not given, those that have no end.

    Raises
    ------
    InputError
        Listing every problem found, with file, row and field.
    """
    folder, own = layers(root)
    if not folder.is_dir():
        fix = f"Point the environment variable {ROOT_VARIABLE} at a catalogue folder"
        raise InputError(Problem(str(folder), "catalogue folder not found", fix))
    problems = Problems()
    gpus = _read_gpus(folder / "gpus.csv", problems)
    providers = read_providers(folder / "providers.csv", problems)
    offers = read_offers(offer_files(folder, own), gpus, providers, problems)
    configs, companions = read_model_index(folder / "models", problems)
    aliases = read_aliases(folder / "models", configs, problems)
    problems.raise_if_any()
    return Catalog(
        root=folder,
        gpus=MappingProxyType(gpus),
        offers=tuple(offer for offer in offers if offer.holds_on(on)),
        model_sources=MappingProxyType(configs),
        quant_sources=MappingProxyType(companions),
        providers=tuple(providers.values()),
        aliases=MappingProxyType(aliases),
        retired=tuple(offer for offer in offers if not offer.holds_on(on)),
        own=own,
    )


def _read_gpus(path: Path, problems: Problems) -> dict[str, Gpu]:
    gpus: dict[str, Gpu] = {}
    for number, gpu in read_table(path, Gpu, problems):
        if gpu.id in gpus:
            problems.add(str(path), f"second row for {gpu.id}", "Keep one of them", row=str(number), field="id")
        for name in gpu.unverified:
            if name not in Gpu.model_fields:
                problems.add(str(path), f"{name!r} is no column", "", row=str(number), field="unverified")
        if gpu.memory_visible_gib is not None and not gpu.memory_visible_source:
            fix = "Say where the figure was read"
            problems.add(
                str(path), "visible memory without source", fix, row=str(number), field="memory_visible_source"
            )
        gpus[gpu.id] = gpu
    return gpus


def _pick(wanted: str, known: Iterable[str], kind: str) -> str:
    folded = {name.casefold(): name for name in known}
    found = folded.get(wanted.casefold())
    if found is None:
        raise _unknown(wanted, folded.values(), kind, f"See `planner catalog list {kind.lower()}s`")
    return found


def _config_file(name: str, start: Path | None) -> Path | None:
    """The config file that a path leads to; ``None`` where it leads nowhere, or is no path at all."""
    try:
        path = (start or Path()) / Path(name).expanduser()
        config = path / "config.json" if path.is_dir() else path
        return config if config.is_file() else None
    except (OSError, RuntimeError, ValueError):  # a name too long, an unknown home, a zero byte
        return None


CLOSEST = 5
"""Names that a message offers."""
LEAST_PART = 4
"""Letters from which a part of a name finds it."""


def _unknown(wanted: str, known: Iterable[str], kind: str, fix: str) -> InputError:
    folded = {name.casefold(): name for name in known}
    holding = [name for name in folded if len(wanted) >= LEAST_PART and wanted.casefold() in name]
    similar = difflib.get_close_matches(wanted.casefold(), folded, n=CLOSEST, cutoff=0.4)
    close = [folded[name] for name in dict.fromkeys((*holding, *similar))][:CLOSEST]
    hint = f"Close: {', '.join(close)}. " if close else ""
    return InputError(Problem(f"{kind} {wanted!r}", "not in the catalogue", f"{hint}{fix}"))
