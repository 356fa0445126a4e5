"""How bursty the requests of bands of prompt lengths are, against three rules that know only the whole's index.

    python -m tests.benchmarks.prompt_bursts LOG [NAME=VALUE ...] -- LOG ...

``NAME=VALUE`` are options of the log's reader, such as ``window_s=7200``. For every log: eight bands of equal work, all
stretches of them but the whole, windows of 1 to 60 s; for each rule the largest ratio of the measured index to
it, after two standard deviations that a Poisson process would show. Above 1 the rule fails.
"""

from __future__ import annotations

import itertools
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from planner.traffic.prompt_bands import cuts_of
from planner.traffic.prompt_bursts import burst_of_prompts, requests_between
from planner.traffic.source import load_traffic
from planner.traffic.types import FloatArray, Traffic

BANDS = 8
LONGEST_S = 60.0
LARGEST_SD = 0.3
"""Scales at which chance alone moves the index by more are left out."""


def ratios(traffic: Traffic) -> dict[str, float]:
    """Largest ratio of the measured index to each rule."""
    if traffic.prompt_bursts is None or traffic.burst.poisson_sd is None:
        raise ValueError(f"{traffic.source} shows no bursts by prompt length")
    whole, sd = traffic.burst.idc, traffic.burst.poisson_sd
    used = (traffic.burst.scale_s <= LONGEST_S) & np.isfinite(whole) & (sd <= LARGEST_SD)
    blind = replace(traffic, prompt_bursts=None)
    edges = [0, *cuts_of(traffic.law, BANDS, within=traffic.prompt_bursts.edges), None]
    worst = {"thinning": 0.0, "whole": 0.0, "bound": 0.0}
    for lo, hi in itertools.combinations(edges, 2):
        if lo is None or (lo, hi) == (0, None):
            continue
        share = requests_between(traffic, lo, hi) / traffic.law.requests
        found = burst_of_prompts(traffic, lo, hi).idc / (1.0 + 2.0 * sd)
        rules: dict[str, FloatArray] = {
            "thinning": 1.0 + share * (whole - 1.0),
            "whole": whole,
            "bound": burst_of_prompts(blind, lo, hi).idc,
        }
        for name, rule in rules.items():
            worst[name] = max(worst[name], float((found / np.maximum(rule, 1.0))[used].max(initial=0.0)))
    return worst


def main(words: list[str]) -> None:
    """Print a line for each log."""
    for given, path in enumerate(" ".join(words).split(" -- ")):
        name, *options = path.split()
        pairs = dict(option.split("=", 1) for option in options)
        traffic = load_traffic(Path(name), name=f"log {given + 1}", options=pairs, prompt_bursts=True)
        shown = "  ".join(f"{rule} {value:6.2f}" for rule, value in ratios(traffic).items())
        print(f"{Path(name).name[:40]:40} {' '.join(options):44} {traffic.law.requests:10,} requests  {shown}")


if __name__ == "__main__":
    main(sys.argv[1:])
