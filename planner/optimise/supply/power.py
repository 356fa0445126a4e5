"""Electric power and emission of instances, by the site that they stand at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from planner import units
from planner.catalog.gpu import Gpu
from planner.request import Policy, Site

HOST_POWER_FACTOR = 2.04
"""Power of a whole machine over the TDP of its GPUs, rounded up from the largest of three printed figures.

- DGX A100: 6.5 kW for 8 x 400 W, 2.03, read 2026-11-30 in
  https://pcnews.ru/news/vycislitelnaa_sistema_nvidia_dgx_a100_ampere_osnasaetsa_sestu_blokami_pitania_po_3_kvt-985106.html
- DGX H100: 10.2 kW for 8 x 700 W, 1.82, read 2026-11-30 in
  https://www.supercluster.blog/p/6-ai-supercluster-nvidia-dgx-h100
- GB200 tray: 6.667 kW for 4 x 1,200 W, 1.39, read 2026-11-30 in
  https://docs.nvidia.com/datacenter/dps/versions/latest/guides/concepts/device-specifications.html

A provider's machine may draw less; a cap must not be broken, so the largest is used, and called a guess.
"""


@dataclass(frozen=True)
class Draw:
    """What a running instance takes; ``None``: not known."""

    power_kw: float | None
    """At the meter, PUE included."""
    carbon_kg_per_h: float | None

    def lacks(self, policy: Policy) -> bool:
        """Whether a figure is missing that a cap of the policy needs."""
        return (policy.max_power_kw is not None and self.power_kw is None) or (
            policy.max_carbon_kg is not None and self.carbon_kg_per_h is None
        )


NO_DRAW = Draw(None, None)


def has_cap(policy: Policy) -> bool:
    """Whether power or emission of the fleet is limited."""
    return policy.max_power_kw is not None or policy.max_carbon_kg is not None


def site_of(sites: Sequence[Site], region: str) -> Site | None:
    """The site of a region: its own row, else the row with an empty region, which stands for every other one."""
    by_region = {site.region: site for site in sites}
    return by_region.get(region) or by_region.get("")


def host_power_kw(gpu: Gpu, gpus: int) -> float | None:
    """Guess of the power of a machine at full load, before PUE: ``gpus * TDP * HOST_POWER_FACTOR``."""
    return None if gpu.tdp_w is None else units.w_to_kw(gpus * gpu.tdp_w * HOST_POWER_FACTOR)


def draw_of(power_kw: float | None, site: Site | None) -> Draw:
    """Power at the meter and emission: ``kW * PUE`` and ``kW * PUE * kg per kWh``; unknown without a site."""
    if power_kw is None or site is None:
        return NO_DRAW
    at_meter = power_kw * site.pue
    carbon = None if site.carbon_kg_per_kwh is None else at_meter * site.carbon_kg_per_kwh
    return Draw(at_meter, carbon)
