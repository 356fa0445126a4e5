"""Files of facts about speed: figures with their sources, checked when read."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from planner.errors import InputError, Problem

Facts = TypeVar("Facts", bound="Strict")


class Strict(BaseModel):
    """A table whose keys are all known and whose figures are finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Fact(Strict):
    """One coefficient: its value, how many measurements stand behind it, and where they come from."""

    value: float = Field(gt=0)
    points: int = Field(ge=0)
    """Measurements behind the value; 0 for a prior."""
    source: str = Field(min_length=1)


def read_facts(root: Path, file: Path, kind: type[Facts]) -> Facts:
    """Read ``<root>/<file>``.

    Parameters
    ----------
    root
        Folder of the catalogues.
    file
        Path in it.
    kind
        What the file holds.

    Raises
    ------
    InputError
        If the file is missing, is not TOML, or a key is unknown, missing or out of range; lists every problem.
    """
    path = root / file
    try:
        return kind.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        fix = f"Give a catalogue folder with {file.as_posix()}"
        raise InputError(Problem(str(path), "no such file", fix)) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(Problem(str(path), f"cannot be read: {error}")) from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(Problem(str(path), f"is not valid TOML: {error}")) from None
    except ValidationError as error:
        raise InputError([_problem(path, item) for item in error.errors()]) from None


def _problem(path: Path, item: Any) -> Problem:
    """One pydantic error in the user's words."""
    name = ".".join(str(part) for part in item["loc"])
    message = str(item["msg"]).removeprefix("Value error, ")
    return Problem(str(path), f"{message[0].lower()}{message[1:]}", "Correct the value", field=name)
