"""What a GPU is: memory, bandwidth, peaks, links; every row with its source."""

from __future__ import annotations

import datetime as dt
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from planner import units

Support = Literal["native", "emulated", "no", "unknown"]


class Gpu(BaseModel):
    """One accelerator type, as a row of ``catalogs/gpus.csv``.

    Figures are per GPU. TFLOP/s are dense. ``interconnect_gb_s`` is the bidirectional total that vendors print.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    id: str
    """Name with form factor, such as ``H100-SXM``."""
    vendor: str
    architecture: str
    compute_capability: str
    """CUDA compute capability, or AMD's gfx name."""
    memory_nominal_gb: float = Field(gt=0)
    memory_driver_mib: int | None = Field(default=None, gt=0)
    """What nvidia-smi reports as total; SGLang's memory fraction is computed from this."""
    memory_visible_gib: float | None = Field(default=None, gt=0)
    """What CUDA reports as total; vLLM's budget is a share of this."""
    memory_visible_source: str = ""
    memory_bandwidth_gb_s: float = Field(gt=0)
    multiprocessors: int | None = Field(default=None, gt=0)
    """Streaming multiprocessors (AMD: compute units): one row of scratch each in vLLM's Triton sampler."""
    bf16_tflops: float | None = Field(default=None, gt=0)
    """Dense 16-bit tensor peak; the FP16 figure where the GPU has no BF16 units."""
    fp8_tflops: float | None = Field(default=None, gt=0)
    fp4_tflops: float | None = Field(default=None, gt=0)
    int8_tops: float | None = Field(default=None, gt=0)
    supports_bf16: bool
    fp8_weights: Support
    fp8_kv: Support
    interconnect: str
    interconnect_gb_s: float | None = Field(default=None, gt=0)
    max_gpus_per_node: int = Field(ge=1)
    scale_up_domain: int = Field(ge=1)
    tdp_w: float | None = Field(default=None, gt=0)
    release_year: int
    source_url: str = Field(min_length=1)
    as_of: dt.date
    notes: str = ""
    unverified: tuple[str, ...] = ()
    """Fields that the source marks as recalled: printed as guesses wherever they are used."""

    @field_validator("unverified", mode="before")
    @classmethod
    def _split_names(cls, value: object) -> object:
        return tuple(name.strip() for name in value.split(";") if name.strip()) if isinstance(value, str) else value

    @property
    def visible_memory_gib(self) -> float:
        """Memory that the engine sees, GiB: CUDA's figure, else the driver's, else the nameplate.

        Vendors print GB where they mean GiB, so a nameplate read as GB errs low, except for GDDR cards that keep ECC
        bits in their memory (an L40S shows 44.39 GiB where 48 GB are 44.70 GiB): those need a reading.
        """
        if self.memory_visible_gib is not None:
            return self.memory_visible_gib
        if self.memory_driver_mib is not None:
            return units.mib_to_gib(self.memory_driver_mib)
        return units.gb_to_gib(self.memory_nominal_gb)

    @property
    def visible_memory_origin(self) -> str:
        """Where `visible_memory_gib` comes from, for the term that uses it."""
        if self.memory_visible_gib is not None:
            return f"CUDA-visible memory: {self.memory_visible_source}"
        if self.memory_driver_mib is not None:
            return "nvidia-smi total (driver reserve unknown, not deducted): guess"
        return "nameplate GB read as 10**9 bytes: guess"
