"""Coefficients of the built-in roofline, read from ``catalogs/speed/roofline.toml``; every one with its source."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from packaging.version import InvalidVersion, Version
from pydantic import Field, model_validator

from planner.speed.fact_files import Fact, Strict, read_facts
from planner.speed.types import Band

SPEED_FILE = Path("speed") / "roofline.toml"


class ComputeEfficiency(Strict):
    """Share of a unit's dense peak that matrices reach, by the format multiplied."""

    bf16: Fact
    fp8: Fact
    int8: Fact
    fp4: Fact


class GpuFit(Strict):
    """What was fitted for a family of GPUs."""

    gpus: tuple[str, ...] = Field(min_length=1)
    bandwidth_efficiency: float = Field(gt=0, le=1)
    overhead_factor: float = Field(default=1.0, gt=0)
    """Fixed times of a step relative to other GPUs' hosts."""
    wide_band: bool = False
    """Measurements are few or of old engines: predictions keep the band of a GPU that was not measured."""
    points: int = Field(ge=0)
    source: str = Field(min_length=1)


class FirstTokenFacts(Strict):
    """What an engine adds to a first token beyond the prompt's own steps (`planner.speed.ttft`)."""

    floor_ms: float = Field(ge=0)
    client_ms: float = Field(ge=0)
    """For each running request."""
    wait_steps: float = Field(ge=0)
    """Steps of the running batch until the first token."""
    together_share: float = Field(ge=0, le=1)
    """Share of the other running requests whose prompts arrive together with this one; set, not fitted."""
    points: int = Field(ge=0)
    source: str = Field(min_length=1)


class EraFacts(Strict):
    """Overheads of an engine's releases before a version."""

    engine: str
    before_version: str = ""
    """Empty for the newest era."""
    step_ms: float = Field(ge=0)
    """Fixed time of a step."""
    dense_layer_ms: float = Field(ge=0)
    moe_layer_ms: float = Field(ge=0)
    sequence_ms: float = Field(ge=0)
    """Time of a step for each sequence in it (scheduling, sampling)."""
    prefill_factor: float = Field(gt=0)
    """Compute of a prompt's tokens relative to the shared efficiencies."""
    first_token: FirstTokenFacts | None = None
    """``None`` where no TTFT was measured: a first token then takes ``ttft_floor_ms`` and the prompt's own steps."""
    points: int = Field(ge=0)
    source: str = Field(min_length=1)

    @model_validator(mode="after")
    def _version_is_one(self) -> EraFacts:
        if self.before_version and version_of(self.before_version) is None:
            raise ValueError(f"before_version {self.before_version!r} is no version")
        return self


class BandFact(Strict):
    """Multipliers of a prediction that hold 80 % of measurements."""

    low: float = Field(gt=0, le=1)
    high: float = Field(ge=1)
    points: int = Field(ge=1)
    source: str = Field(min_length=1)

    @property
    def band(self) -> Band:
        """The two multipliers alone."""
        return Band(self.low, self.high)


class Bands(Strict):
    """Bands by what is known of a deployment's kind."""

    known: BandFact
    """GPU and architecture are among the measurements."""
    new_model: BandFact
    """No measurement of the architecture."""
    new_gpu: BandFact
    """No measurement of the GPU."""


class SpeedFacts(Strict):
    """Everything that the roofline takes from measurements."""

    as_of: dt.date
    dense_compute: ComputeEfficiency
    expert_compute: ComputeEfficiency
    compute_tp_factor: Fact
    """Compute time grows by this factor with each doubling of tp: slices of a matrix multiply less well."""
    expert_read_efficiency: Fact
    """Relative to the bandwidth that dense weights reach."""
    cache_read_efficiency: Fact
    allreduce_latency_ms: Fact
    allreduce_transfer_factor: Fact
    """Time over the wire relative to the link's one-way bandwidth."""
    sparse_layer_ms: Fact
    """Fixed time of a layer's indexer."""
    linear_layer_ms: Fact
    """Fixed time of a recurrent layer beyond that of any layer."""
    ttft_floor_ms: Fact
    bandwidth_efficiency_default: Fact
    gpu: dict[str, GpuFit]
    engine: tuple[EraFacts, ...]
    """By engine and era; of one engine the eras ascend."""
    architectures: tuple[str, ...]
    """Those among the measurements."""
    tpot_bands: Bands
    ttft_bands: Bands
    cautions: dict[str, str] = Field(default_factory=dict)
    """By GPU id: measurements that contradict the default, told to the reader, never used as a coefficient."""

    @model_validator(mode="after")
    def _each_gpu_once(self) -> SpeedFacts:
        gpus = [gpu for family in self.gpu.values() for gpu in family.gpus]
        doubles = sorted({gpu for gpu in gpus if gpus.count(gpu) > 1})
        if doubles:
            raise ValueError(f"fitted more than once: {', '.join(doubles)}")
        return self

    def fitted_gpu(self, gpu_id: str) -> GpuFit | None:
        """The fit that covers this GPU, if there is one."""
        return next((family for family in self.gpu.values() if gpu_id in family.gpus), None)

    def era(self, engine: str, version: str) -> EraFacts | None:
        """The overheads of an engine's version: of the oldest era that ends after it; the newest if it is unknown."""
        eras = [era for era in self.engine if era.engine == engine]
        found = version_of(version)
        if found is not None:
            for era in eras:
                if era.before_version and found < Version(era.before_version):
                    return era
        return eras[-1] if eras else None


def version_of(text: str) -> Version | None:
    """A version as engines write it (``0.19.1rc1.dev339+gedc364896``); ``None`` where it is none."""
    try:
        return Version(text)
    except InvalidVersion:
        return None


def load_speed_facts(root: Path) -> SpeedFacts:
    """The facts of a folder of catalogues; see `read_facts`."""
    return read_facts(root, SPEED_FILE, SpeedFacts)
