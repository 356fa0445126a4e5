"""Names of models, ``ORG/NAME``, as the Hugging Face Hub allows them, and the files that they are kept in."""

from __future__ import annotations

import re
from pathlib import Path

from planner.errors import InputError, Problem

MOST_LETTERS = 96
"""Of the organisation and of the name."""
_PART = rf"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{{0,{MOST_LETTERS - 2}}}[A-Za-z0-9_])?"
_ID = re.compile(rf"{_PART}/{_PART}")
_CACHED = re.compile(r"models--(.+?)--(.+)")
COMMIT = re.compile(r"[0-9a-f]{40}")


def model_name(text: str, where: str) -> str:
    """The text itself, if it is a model's full name.

    Letters, digits, ``-``, ``_`` and ``.`` in both parts, neither ``--`` nor ``..``, no ``.git`` at the end, and no
    more than 96 characters in a part. Source: huggingface_hub, ``utils/_validators.py`` (``validate_repo_id``).

    Raises
    ------
    InputError
        If it is not.
    """
    if not _ID.fullmatch(text) or "--" in text or ".." in text or text.endswith(".git"):
        fix = "Write ORG/NAME as on the Hugging Face Hub: letters, digits, '-', '_' and '.'"
        raise InputError(Problem(where, f"{text!r:.120} is no name of a model", fix))
    return text


def file_name(model_id: str) -> str:
    """``ORG--NAME.json``."""
    return f"{model_id.replace('/', '--')}.json"


def name_from_path(path: Path) -> tuple[str, str]:
    """The name and commit that a path itself states; both empty where it states none.

    ``.../models--ORG--NAME/snapshots/COMMIT`` is the Hub's own cache, ``ORG--NAME.json`` a file of this catalogue.
    """
    folder = path if path.is_dir() else path.parent
    cached = _CACHED.fullmatch(folder.parent.parent.name) if folder.parent.name == "snapshots" else None
    if cached and COMMIT.fullmatch(folder.name):
        return f"{cached.group(1)}/{cached.group(2)}", folder.name
    org, dashes, name = path.stem.partition("--")
    if dashes and path.suffix == ".json" and not path.is_dir():
        return f"{org}/{name}", ""
    return "", ""
