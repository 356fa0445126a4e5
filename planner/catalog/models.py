"""The catalogue's model configs: an index with the source of each file; the files are read when asked for."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from planner.catalog.csv_table import read_table
from planner.errors import InputError, Problem, Problems

QUANT_FOLDER = "quant"
QUANT_COMPANION = "hf_quant_config.json"
"""Name of the quantisation companion beside a checkpoint's ``config.json``."""


class ModelSource(BaseModel):
    """One row of ``catalogs/models/sources.csv``: where a file comes from."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    file: str = Field(min_length=1)
    """Path below ``catalogs/models``."""
    hf_id: str = Field(min_length=1)
    source: str = Field(min_length=1)
    commit: str = ""
    as_of: dt.date
    """Day on which the source was read."""
    notes: str = ""


class ModelAlias(BaseModel):
    """One row of ``catalogs/models/aliases.csv``: an id whose config has the sizes of another that is here."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    alias: str = Field(min_length=1)
    hf_id: str = Field(min_length=1)
    """Id in ``sources.csv`` whose config is read."""
    reason: str = Field(min_length=1)
    source: str = Field(min_length=1)
    as_of: dt.date

    @property
    def note(self) -> str:
        """What a user of the alias is told."""
        return f"read as {self.hf_id}: {self.reason} ({self.source}, {self.as_of})"


def read_aliases(folder: Path, configs: Mapping[str, ModelSource], problems: Problems) -> dict[str, ModelAlias]:
    """Aliases by id; each must lead to a config, and none may hide one."""
    path = folder / "aliases.csv"
    aliases: dict[str, ModelAlias] = {}
    known = {hf_id.casefold() for hf_id in configs}
    for number, row in read_table(path, ModelAlias, problems) if path.is_file() else ():
        if row.hf_id not in configs:
            problems.add(
                str(path), f"{row.hf_id} is not in sources.csv", "Name a model that is", row=str(number), field="hf_id"
            )
        if row.alias.casefold() in known:
            problems.add(str(path), f"{row.alias} is known already", "Drop the row", row=str(number), field="alias")
        known.add(row.alias.casefold())
        aliases[row.alias] = row
    return aliases


def read_model_index(folder: Path, problems: Problems) -> tuple[dict[str, ModelSource], dict[str, ModelSource]]:
    """Model configs and quantisation companions by Hugging Face id, checked against the files that are there."""
    configs: dict[str, ModelSource] = {}
    companions: dict[str, ModelSource] = {}
    seen: set[tuple[bool, str]] = set()
    index = folder / "sources.csv"
    present = {path.relative_to(folder).as_posix() for path in folder.rglob("*.json")} - {"class_defaults.json"}
    for number, row in read_table(index, ModelSource, problems):
        target = companions if row.file.startswith(f"{QUANT_FOLDER}/") else configs
        name = (target is companions, row.hf_id.casefold())
        if name in seen:
            problems.add(str(index), f"second row for {row.hf_id}", "Keep one of them", row=str(number), field="hf_id")
        if row.file not in present:
            problems.add(
                str(index), f"{row.file} is not there", "Add the file or drop the row", row=str(number), field="file"
            )
        seen.add(name)
        target[row.hf_id] = row
        present.discard(row.file)
    for stray in sorted(present):
        problems.add(str(folder / stray), "file without a row in sources.csv", "Say where it comes from")
    return configs, companions


def read_json_object(path: Path) -> Mapping[str, Any]:
    """A JSON file that holds an object.

    Raises
    ------
    InputError
        If the file cannot be read, is no JSON, or holds something else.
    """
    try:
        loaded = json.loads(path.read_text(encoding="utf-8-sig"))
    except RecursionError as error:
        raise InputError(Problem(str(path), "is nested too deeply to be a Hugging Face config.json")) from error
    except OSError as error:
        raise InputError(Problem(str(path), f"cannot be read: {error.strerror or error}")) from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(Problem(str(path), f"is not JSON: {error}")) from error
    except ValueError as error:
        raise InputError(Problem(str(path), "holds a number of thousands of digits")) from error
    if not isinstance(loaded, dict):
        raise InputError(Problem(str(path), "holds no JSON object", "A Hugging Face config.json is expected"))
    return loaded
