"""What is known of a deployment before it is measured: ``catalogs/speed/measured.toml``, every figure with its source.

A model's coefficients are off by a factor for each group of them (`planner.speed.curve.GROUPS`). How far off they are
from one deployment to the next, and how far measurements scatter around the corrected model, was fitted over many
measured deployments; it says how much of a few measured points to believe.
"""

from __future__ import annotations

import datetime as dt
import tomllib
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from planner.errors import InputError, Problem
from planner.speed.facts import Fact

PRIOR_FILE = Path("speed") / "measured.toml"


class SpeedPrior(BaseModel):
    """Spread of deployments around a model, and of measurements around a corrected model; natural logarithms."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    as_of: dt.date
    decode: Fact
    """Standard deviation of the factor on every decode coefficient together."""
    fixed: Fact
    weights: Fact
    sequence: Fact
    cache: Fact
    prefill: Fact
    floor: Fact
    tpot_noise: Fact
    """Standard deviation of a measured TPOT around the corrected model."""
    ttft_noise: Fact
    tpot_edge: Fact
    """Standard deviations from the middle to the edges that hold 80 % of held-out points."""
    ttft_edge: Fact


def load_prior(root: Path) -> SpeedPrior:
    """Read ``<root>/speed/measured.toml``.

    Raises
    ------
    InputError
        If the file is missing, is not TOML, or a key is unknown, missing or out of range; lists every problem.
    """
    path = root / PRIOR_FILE
    try:
        return SpeedPrior.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        fix = f"Give a catalogue folder with {PRIOR_FILE.as_posix()}"
        raise InputError(Problem(str(path), "no such file", fix)) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(Problem(str(path), f"cannot be read: {error}")) from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(Problem(str(path), f"is not valid TOML: {error}")) from None
    except ValidationError as error:
        raise InputError([_problem(path, item) for item in error.errors()]) from None


def _problem(path: Path, item: Any) -> Problem:
    field = ".".join(str(part) for part in item["loc"])
    message = str(item["msg"])
    return Problem(str(path), f"{message[0].lower()}{message[1:]}", "Correct the value", field=field)
