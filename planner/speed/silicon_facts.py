"""What the product knows of aiconfigurator: GPUs that its databases cover and how its answers met measurements.

Read from ``catalogs/speed/aiconfigurator.toml``; every figure with its source.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from pydantic import Field, model_validator

from planner.speed.fact_files import Fact, Strict, read_facts
from planner.speed.types import Band

SILICON_FILE = Path("speed") / "aiconfigurator.toml"


class SiliconBand(Strict):
    """Multipliers of a prediction that hold 80 % of measurements, and how large the errors were."""

    low: float = Field(gt=0, le=1)
    high: float = Field(ge=1)
    median_error: float = Field(ge=0)
    """Median of |prediction / measurement − 1|."""
    p90_error: float = Field(ge=0)
    points: int = Field(ge=0)
    """Measurements behind the band; 0 for a guess."""
    source: str = Field(min_length=1)

    @property
    def band(self) -> Band:
        """The two multipliers alone."""
        return Band(self.low, self.high)


class SiliconBands(Strict):
    """Bands of one GPU."""

    tpot: SiliconBand
    ttft: SiliconBand


class SiliconFacts(Strict):
    """GPUs that the databases cover, and the bands of what comes of them."""

    as_of: dt.date
    systems: dict[str, str] = Field(min_length=1)
    """By GPU id of the catalogue: the name of the system in the databases."""
    backends: dict[str, str] = Field(min_length=1)
    """By engine: the name of the backend."""
    ttft_floor_ms: Fact
    """Time to a first token beyond computing (tokeniser, HTTP, scheduling)."""
    bands: dict[str, SiliconBands]
    """By GPU id; ``other`` for GPUs without a measurement."""

    @model_validator(mode="after")
    def _other_is_there(self) -> SiliconFacts:
        if "other" not in self.bands:
            raise ValueError("bands.other is missing")
        return self

    def bands_of(self, gpu_id: str) -> SiliconBands:
        """The bands of a GPU, or those of GPUs that were not measured."""
        return self.bands.get(gpu_id, self.bands["other"])


def load_silicon_facts(root: Path) -> SiliconFacts:
    """The facts of a folder of catalogues; see `read_facts`."""
    return read_facts(root, SILICON_FILE, SiliconFacts)
