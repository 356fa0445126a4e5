"""Find a model under the name that a log or a table uses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from planner.catalog.hf.config import read_model_shape
from planner.catalog.load import Catalog
from planner.catalog.lookup.names import Named, in_brackets, outside_brackets
from planner.catalog.model_shape import ModelShape
from planner.catalog.models import QUANT_FOLDER, read_json_object
from planner.errors import InputError, Problem

COMPANIONS = (QUANT_FOLDER, "hf_quant_configs", "../hf_quant_configs")
"""Folders, from that of further models, which hold ``hf_quant_config.json`` companions under the models' file names."""


@dataclass
class ModelNames:
    """Models of a folder and of the catalogue, the folder's first.

    Attributes
    ----------
    folder
        Further configs.
    beside
        The folder from which a config's path is taken, besides the working directory.
    """

    catalog: Catalog
    folder: Path | None = None
    beside: Path | None = None

    def find(self, name: str, config_file: str) -> Named[ModelShape]:
        """The model; the rules are those of `planner.catalog.lookup.lookup.Lookup.model`.

        Raises
        ------
        InputError
            If no rule finds it, or its config cannot be used.
        """
        if config_file:
            found = self._file(config_file) or self._exact(_id_of(Path(config_file).name))
            if found is not None:
                return found
        bare = outside_brackets(name)
        if not bare:
            raise InputError(Problem(f"model {name!r:.60}", "no model is named"))
        for text in (bare, *in_brackets(name)):
            found = self._by_rules(text)
            if found is not None:
                return found
        raise InputError(Problem(f"model {name!r:.60}", "not in the catalogue", "Give its config.json with --models"))

    def _by_rules(self, text: str) -> Named[ModelShape] | None:
        """The first rule that finds the text, as a whole or its first word; literal rules come first."""
        whole = tuple(dict.fromkeys((text, text.replace(" ", "-"))))
        first = re.split(r"[ ,;+]", text)[0]
        literal = (self._exact, self._path, self._mirror)
        derived = (self._stated_format, self._sibling)
        for rules, names in ((literal, whole), (literal, (first,)), (derived, (*whole, first))):
            for rule in rules:
                for words in names:
                    found = rule(words) if words else None
                    if found is not None:
                        rest = text[len(words) :].strip()
                        return replace(found, weights=" ".join(filter(None, (found.weights, rest))))
        return None

    def _exact(self, name: str) -> Named[ModelShape] | None:
        """The id, or an alias of it."""
        path = self._configs.get(_folded(name))
        if path is not None:
            return self._read(path)
        known = self._ids.get(_folded(name))
        return Named(self.catalog.model_shape(known)) if known is not None else None

    def _file(self, config_file: str) -> Named[ModelShape] | None:
        """The file itself, where it is there; a file of `folder` that has its name comes first."""
        path = Path(config_file)
        named = self._configs.get(_folded(_id_of(path.name)))
        places = (named, path, self.beside / path if self.beside is not None else None)
        there = next((place for place in places if place is not None and _is_file(place)), None)
        return self._read(there) if there is not None else None

    def _path(self, name: str) -> Named[ModelShape] | None:
        """A path of a config."""
        return Named(self.catalog.model_shape(name)) if name.endswith(".json") else None

    def _mirror(self, name: str) -> Named[ModelShape] | None:
        """The one model whose name after the organisation is the same."""
        known = self._names.get(_model_name(name), ())
        return self._read_as(known[0], "the same name") if len(known) == 1 else None

    def _stated_format(self, name: str) -> Named[ModelShape] | None:
        """The model whose name, followed by a weight format, is the one asked for."""
        stem, _, suffix = name.rpartition("-")
        while stem and _FORMAT.fullmatch(suffix):
            found = self._exact(stem) or self._mirror(stem)
            if found is not None:
                stated = name[len(stem) + 1 :]
                note = f"sizes of {found.found.id}, weights as {stated}"
                return replace(found, weights=stated, notes=(*found.notes, note))
            stem, _, suffix = stem.rpartition("-")
        return None

    def _sibling(self, name: str) -> Named[ModelShape] | None:
        """A model of the same name apart from tuning and weight format, whose sizes are taken to be the same."""
        known = self._siblings.get(_untuned(_model_name(name)), ())
        if not known:
            return None
        found = self._read_as(known[0], "its sizes are taken to be the same, its longest context may differ")
        return replace(found, weights=_formats_in(name), sibling=True)

    def _read_as(self, known: str, why: str) -> Named[ModelShape]:
        found = self._exact(known)
        assert found is not None
        return replace(found, notes=(*found.notes, f"read as {known}: {why}"))

    def _read(self, path: Path) -> Named[ModelShape]:
        companion = next((p for name in COMPANIONS if (p := path.parent / name / path.name).is_file()), None)
        quant = read_json_object(companion) if companion is not None else None
        raw = read_json_object(path)
        return Named(read_model_shape(raw, _id_of(path.name), quant_config=quant, class_defaults=self._defaults))

    @cached_property
    def _defaults(self) -> Mapping[str, Any]:
        return read_json_object(self.catalog.root / "models" / "class_defaults.json")

    @cached_property
    def _configs(self) -> Mapping[str, Path]:
        if self.folder is None:
            return {}
        if not self.folder.is_dir():
            raise InputError(Problem(f"--models {self.folder}", "is no folder", "Name a folder of config.json files"))
        return {_folded(_id_of(path.name)): path for path in sorted(self.folder.glob("*.json"))}

    @cached_property
    def _ids(self) -> Mapping[str, str]:
        return {_folded(name): name for name in (*self.catalog.aliases, *self.catalog.model_sources)}

    @cached_property
    def _names(self) -> Mapping[str, tuple[str, ...]]:
        """Ids by their name without the organisation; an alias of an id that has the same name is no second one."""
        names: dict[str, tuple[str, ...]] = {}
        for known in self._all_ids:
            key = _model_name(known)
            names[key] = tuple(dict.fromkeys((*names.get(key, ()), known)))
        return names

    @cached_property
    def _siblings(self) -> Mapping[str, tuple[str, ...]]:
        """Ids by their name without tuning and format, 16-bit checkpoints first."""
        names: dict[str, tuple[str, ...]] = {}
        for known in sorted(self._all_ids, key=lambda known: (bool(_formats_in(known)), known.casefold())):
            key = _untuned(_model_name(known))
            names[key] = (*names.get(key, ()), known)
        return names

    @property
    def _all_ids(self) -> tuple[str, ...]:
        return (*(_id_of(path.name) for path in self._configs.values()), *self._ids.values())


_FORMAT = re.compile(
    r"fp8|awq|gptq|int4|int8|nvfp4|mxfp4|4bit|8bit|bnb|dynamic|static|block|quantized\.\w+|w\d+a\d+\w*", re.IGNORECASE
)
_TUNING = re.compile(r"instruct|it|chat|base|hf|thinking|pt|class|\d{4}", re.IGNORECASE)


def _is_file(path: Path) -> bool:
    """Whether there is such a file; a name that the system does not take, or a folder it does not open, holds none."""
    try:
        return path.is_file()
    except OSError:
        return False


def _model_name(name: str) -> str:
    """What follows the organisation, in one letter case."""
    return _folded(name.rsplit("/", 1)[-1])


def _untuned(name: str) -> str:
    """The name without words of tuning and weight format at its end, nor Meta's prefix."""
    words = name.removeprefix("meta-").split("-")
    while len(words) > 1 and (_TUNING.fullmatch(words[-1]) or _FORMAT.fullmatch(words[-1])):
        words.pop()
    return "-".join(words)


def _formats_in(name: str) -> str:
    return " ".join(word for word in name.split("-") if _FORMAT.fullmatch(word))


def _folded(name: str) -> str:
    return name.strip().casefold()


def _id_of(file_name: str) -> str:
    """``org--name.json`` is ``org/name``."""
    return file_name.removesuffix(".json").replace("--", "/", 1)
