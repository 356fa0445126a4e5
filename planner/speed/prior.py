"""What is known of a deployment before it is measured: ``catalogs/speed/measured.toml``, every figure with its source.

A model's coefficients are off by a factor for each group of them (`planner.speed.curve.GROUPS`). How far off they are
from one deployment to the next, and how far measurements scatter around the corrected model, was fitted over many
measured deployments; it says how much of a few measured points to believe.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from planner.speed.fact_files import Fact, Strict, read_facts

PRIOR_FILE = Path("speed") / "measured.toml"


class SpeedPrior(Strict):
    """Spread of deployments around a model, and of measurements around a corrected model; natural logarithms."""

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
    """The spreads of a folder of catalogues; see `read_facts`."""
    return read_facts(root, PRIOR_FILE, SpeedPrior)
