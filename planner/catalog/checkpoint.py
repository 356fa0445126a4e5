"""What is read of a checkpoint to size it: config, quantisation companion, bytes of its weights. Here from a folder."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.catalog.model_name import name_from_path
from planner.catalog.models import QUANT_COMPANION
from planner.catalog.safetensors import CheckpointBytes, checkpoint_bytes, read_header, read_index
from planner.catalog.untrusted_json import MOST_BYTES, object_of
from planner.errors import InputError, Problem, Problems

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
SINGLE_FILE = "model.safetensors"
OLDER_COMPANIONS = ("quantize_config.json", "quant_config.json")
"""Files that older quantisers left beside a config that says nothing (vLLM, ``get_config_filenames`` of GPTQ, AWQ)."""
AWQ_KEYS = frozenset({"w_bit", "q_group_size", "zero_point"})
"""Keys that tell AWQ from GPTQ where no method is stated."""
VERBATIM = "verbatim"


@dataclass(frozen=True)
class Checkpoint:
    """What was read.

    Attributes
    ----------
    where
        Path or address of the config, for problems.
    name
        The model's name where the path states it; empty otherwise.
    config_text, companion_text
        As they are kept; the second is ``hf_quant_config.json``, ``None`` where there is none.
    weights
        ``None`` where neither an index nor files of weights are there.
    source, commit
        Where it comes from, as far as the path says so.
    note
        How the text came about.
    remarks
        What a reader should know of the files.
    """

    where: str
    name: str
    config_text: bytes
    companion_text: bytes | None = None
    weights: CheckpointBytes | None = None
    source: str = ""
    commit: str = ""
    note: str = VERBATIM
    remarks: tuple[str, ...] = ()

    @property
    def config(self) -> dict[str, Any]:
        """The config as an object."""
        return object_of(self.config_text, self.where)

    @property
    def companion(self) -> dict[str, Any] | None:
        """The companion as an object."""
        text = self.companion_text
        return None if text is None else object_of(text, f"{self.where}: {QUANT_COMPANION}")


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a folder with a ``config.json``, or a config file.

    Companions and weights are looked for beside a file that is named ``config.json``. Links are followed, as the cache
    of the Hugging Face Hub is made of them; pipes and devices are refused.

    Raises
    ------
    InputError
        If there is no config, or a file cannot be used; lists every problem.
    """
    config = path / CONFIG if path.is_dir() else path
    if path.is_dir() and not config.exists():
        raise InputError(
            Problem(str(path), f"holds no {CONFIG}", "Give the folder of a checkpoint, or its config file")
        )
    problems = Problems()
    text = problems.attempt(lambda: read_file(config))
    parsed = problems.attempt(lambda: object_of(text or b"", str(config))) if text is not None else None
    beside = config.parent if config.name == CONFIG else None
    companion = older = weights = None
    if beside is not None:
        companion = problems.attempt(lambda: _optional(beside / QUANT_COMPANION))
        older = problems.attempt(lambda: _older_companion(beside)) if parsed and silent(parsed) else None
        weights = problems.attempt(lambda: weights_in(beside))
    problems.raise_if_any()
    assert text is not None
    assert parsed is not None
    name, commit = name_from_path(path.absolute())
    merged = None if older is None else with_quantisation(parsed, *older)
    found, remarks = weights or (None, ())
    return Checkpoint(
        where=str(config),
        name=name,
        config_text=text if merged is None else merged[0],
        companion_text=companion,
        weights=found,
        source=f"https://huggingface.co/{name}/blob/{commit}/{CONFIG}" if commit else "",
        commit=commit,
        note=VERBATIM if merged is None else merged[1],
        remarks=remarks,
    )


def read_file(path: Path) -> bytes:
    """A regular file of bounded size.

    Raises
    ------
    InputError
        If it is not there, too large, or something else.
    """
    try:
        if not path.exists():
            raise InputError(Problem(str(path), "no such file or folder"))
        if not path.is_file():
            raise InputError(Problem(str(path), "is no regular file"))
        with path.open("rb") as file:
            text = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        raise InputError(Problem(str(path), f"cannot be read: {getattr(error, 'strerror', None) or error}")) from None
    if len(text) > MOST_BYTES:
        raise InputError(Problem(str(path), f"is longer than {MOST_BYTES:,} bytes", "Give the config of a model"))
    return text


def _optional(path: Path) -> bytes | None:
    """A companion, checked to be an object; ``None`` where there is none."""
    if not path.exists():
        return None
    text = read_file(path)
    object_of(text, str(path))
    return text


def silent(config: Mapping[str, Any]) -> bool:
    """Whether a config names no quantisation."""
    return config.get("quantization_config") is None and config.get("compression_config") is None


def _older_companion(folder: Path) -> tuple[str, bytes] | None:
    """Name and text of an older quantiser's companion."""
    found = ((name, _optional(folder / name)) for name in OLDER_COMPANIONS)
    return next(((name, text) for name, text in found if text is not None), None)


def with_quantisation(config: Mapping[str, Any], name: str, text: bytes) -> tuple[bytes, str]:
    """The config with an older companion as its ``quantization_config``, as newer writers keep it, and a note."""
    stated = object_of(text, name)
    method = "awq" if AWQ_KEYS & stated.keys() else "gptq"
    both = {**config, "quantization_config": {"quant_method": method, **stated}}
    return json.dumps(both, indent=2).encode() + b"\n", f"verbatim; quantization_config from {name}"


def weights_in(folder: Path) -> tuple[CheckpointBytes | None, tuple[str, ...]]:
    """Bytes of the weights in a folder, and remarks.

    Headers of all files count where they are all there; else the total that the index states. Without an index, files
    whose names begin with ``model`` count, as some checkpoints hold a second copy of the weights under another name.

    Raises
    ------
    InputError
        If the index or a header cannot be used.
    """
    text = _optional(folder / INDEX)
    index = None if text is None else read_index(text, str(folder / INDEX))
    if index is None:
        every = sorted(path for path in folder.glob("*.safetensors"))
        files = [path for path in every if path.name.startswith("model")] or every
    else:
        files = [folder / name for name in index.files]
    missing = [path.name for path in files if not path.exists()]
    if files and not missing:
        found = _headers(files)
        stated = None if index is None else index.total_bytes
        if stated is not None and stated != found.total_bytes:
            return found, (f"{INDEX} states {stated:,} bytes, the files hold {found.total_bytes:,}: the files count",)
        return found, ()
    if index is None or index.total_bytes is None:
        return None, ()
    absent = f"{len(missing)} of {len(files)} files of weights are not there: bytes by dtype are not known"
    return CheckpointBytes(index.total_bytes, {}, f"total of {INDEX}"), (absent,)


def _headers(files: list[Path]) -> CheckpointBytes:
    problems = Problems()
    sizes = [problems.attempt(lambda path=path: _header(path)) for path in files]  # type: ignore[misc]
    problems.raise_if_any()
    count = f"{len(files)} files" if len(files) > 1 else files[0].name
    return checkpoint_bytes([each for each in sizes if each is not None], f"headers of {count}")


def _header(path: Path) -> Counter[str]:
    try:
        if not path.is_file():
            raise InputError(Problem(str(path), "is no regular file"))
        with path.open("rb") as file:
            return read_header(file, path.stat().st_size, str(path))
    except OSError as error:
        raise InputError(Problem(str(path), f"cannot be read: {error.strerror or error}")) from None
