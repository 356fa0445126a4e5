"""Coefficients of the built-in roofline, read from ``catalogs/speed/roofline.toml``; every one with its source."""

from __future__ import annotations

import datetime as dt
import tomllib
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from planner.errors import InputError, Problem
from planner.speed.types import Band

SPEED_FILE = Path("speed") / "roofline.toml"


class Fact(BaseModel):
    """One coefficient: its value, how many measurements stand behind it, and where they come from."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    value: float = Field(gt=0)
    points: int = Field(ge=0)
    """Measurements behind the value; 0 for a prior."""
    source: str = Field(min_length=1)


class FittedGpu(BaseModel):
    """Bandwidth efficiency that was fitted for a family of GPUs."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    gpus: tuple[str, ...] = Field(min_length=1)
    bandwidth_efficiency: float = Field(gt=0, le=1)
    source: str = Field(min_length=1)


class BandFact(BaseModel):
    """Multipliers of a prediction that hold 80 % of measurements."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    low: float = Field(gt=0, le=1)
    high: float = Field(ge=1)
    points: int = Field(ge=1)
    source: str = Field(min_length=1)

    @property
    def band(self) -> Band:
        """The two multipliers alone."""
        return Band(self.low, self.high)


class Bands(BaseModel):
    """Bands of GPUs with and without a fitted bandwidth efficiency."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tpot_fitted: BandFact
    ttft_fitted: BandFact
    tpot_unfitted: BandFact
    ttft_unfitted: BandFact


class SpeedFacts(BaseModel):
    """Everything that the roofline takes from measurements."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    as_of: dt.date
    compute_efficiency: Fact
    fp4_derate: Fact
    moe_layer_overhead_ms: Fact
    dense_layer_overhead_ms: Fact
    sequence_overhead_ms: Fact
    allreduce_latency_ms: Fact
    ttft_floor_ms: Fact
    bandwidth_efficiency_default: Fact
    fitted: dict[str, FittedGpu]
    bands: Bands
    cautions: dict[str, str] = Field(default_factory=dict)
    """By GPU id: measurements that contradict the default, told to the reader, never used as a coefficient."""

    @model_validator(mode="after")
    def _each_gpu_once(self) -> SpeedFacts:
        gpus = [gpu for family in self.fitted.values() for gpu in family.gpus]
        doubles = sorted({gpu for gpu in gpus if gpus.count(gpu) > 1})
        if doubles:
            raise ValueError(f"fitted more than once: {', '.join(doubles)}")
        return self

    def fitted_gpu(self, gpu_id: str) -> FittedGpu | None:
        """The fit that covers this GPU, if there is one."""
        for family in self.fitted.values():
            if gpu_id in family.gpus:
                return family
        return None


def load_speed_facts(root: Path) -> SpeedFacts:
    """Read ``<root>/speed/roofline.toml``.

    Parameters
    ----------
    root
        Folder of the catalogues.

    Raises
    ------
    InputError
        If the file is missing, is not TOML, or a key is unknown, missing or out of range; lists every problem.
    """
    path = root / SPEED_FILE
    try:
        return SpeedFacts.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise InputError(
            Problem(str(path), "no such file", "Give a catalogue folder with speed/roofline.toml")
        ) from None
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
