from __future__ import annotations

import csv
import itertools
import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from planner.cli import app
from planner.traffic.burstiness import idc_at
from planner.traffic.canonical import read
from planner.traffic.prompt_bands import cuts_of, restrict_prompts
from planner.traffic.prompt_bursts import (
    BOUNDED,
    MEASURED,
    burst_assumption,
    burst_of_prompts,
    requests_between,
    unsampled_bursts,
)
from planner.traffic.source import load_traffic
from planner.traffic.types import Burst, PromptBursts, Traffic
from tests.queueing.laws import burst_of, law_of_requests
from tests.traffic.test_prompt_bands import EXAMPLES, sampled

LOGS = {
    "code": "AzureLLMInferenceTrace_code.csv",
    "conv": "AzureLLMInferenceTrace_conv.csv",
    "mooncake": "mooncake_conversation_head2500.jsonl",
}
SCALES = (1, 5, 15, 60)


def measured_by_hand() -> Traffic:
    """Three bands of 4, 2 and 2 requests; counts per window have means 4, 2, 2 and the covariances below."""
    prompt = np.array([1, 1, 1, 1, 10, 10, 128, 128])
    traffic = sampled(prompt, np.ones(8, dtype=np.int64), 8)
    covariance = np.array([[8.0, 1.0, 0.5], [1.0, 2.0, 0.0], [0.5, 0.0, 6.0]])
    bands = PromptBursts(np.array([0, 10, 128]), np.array([5.0]), np.array([[4.0, 2.0, 2.0]]), covariance[None])
    one = np.array([5.0])
    # Var of all = 8 + 2 + 6 + 2 (1 + 0.5 + 0) = 19, mean 8.
    burst = Burst(one, np.array([8.0]), np.array([19.0]), np.array([19 / 8]), np.array([20.0]), one > 0, one / 50)
    return replace(traffic, burst=burst, prompt_bursts=bands)


def test_bursts_of_measured_bands_are_sums_of_covariances() -> None:
    """[0, 10): 8/4. [10, inf): (2 + 6 + 2 x 0) / 4. [0, 128): (8 + 2 + 2 x 1) / 6."""
    traffic = measured_by_hand()
    for (lo, hi), idc, mean in (
        ((0, 10), 2.0, 4.0),
        ((10, None), 2.0, 4.0),
        ((0, 128), 2.0, 6.0),
        ((10, 128), 1.0, 2.0),
    ):
        burst = burst_of_prompts(traffic, lo, hi)
        assert burst.idc.tolist() == pytest.approx([idc])
        assert burst.mean_n.tolist() == pytest.approx([mean])
        assert burst.var_n.tolist() == pytest.approx([idc * mean])
        assert burst.max_n.tolist() == [20.0]
        assert burst.poisson_sd is not None
        assert burst.poisson_sd.tolist() == pytest.approx([0.1])
    assert burst_of_prompts(traffic, 0, None).idc.tolist() == [19 / 8]
    # Between the bands' edges and the prompts there is nothing: still the measured bands.
    assert burst_of_prompts(traffic, 2, 50).idc.tolist() == pytest.approx([1.0])


def test_a_stretch_that_is_not_measured_has_all_the_excess_of_the_smallest_one_that_is() -> None:
    """Bands [0, 128) and [128, inf): of the 6 requests of the first, 2 are in [10, 128): 1 + (2 - 1) x 6/2 = 4."""
    traffic = measured_by_hand()
    bands = traffic.prompt_bursts
    assert bands is not None
    covariance = np.array([[[12.0, 0.5], [0.5, 6.0]]])
    coarse = PromptBursts(np.array([0, 128]), bands.scale_s, np.array([[6.0, 2.0]]), covariance)
    burst = burst_of_prompts(replace(traffic, prompt_bursts=coarse), 10, 128)
    assert burst.idc.tolist() == pytest.approx([4.0])
    assert burst.poisson_sd is not None
    assert burst.poisson_sd.tolist() == pytest.approx([0.3])
    # Nothing measured: 1 + (19/8 - 1) x 8/2 = 6.5.
    assert burst_of_prompts(replace(traffic, prompt_bursts=None), 10, 128).idc.tolist() == pytest.approx([6.5])


def test_a_part_of_a_poisson_process_is_poisson_whatever_is_known() -> None:
    traffic = replace(measured_by_hand(), prompt_bursts=None, burst=burst_of(1.0))
    part = restrict_prompts(traffic, 128, None)
    assert part.burst.idc.tolist() == [1.0] * 6
    assert idc_at(part.burst, 20.0) == 1.0
    # Less than Poisson is no excess to hand on.
    assert burst_of_prompts(replace(traffic, burst=burst_of(0.5)), 128, None).idc.tolist() == [1.0] * 6


def test_scales_that_the_bands_lack_are_not_resolved() -> None:
    traffic = replace(measured_by_hand(), burst=burst_of(3.0))
    burst = burst_of_prompts(traffic, 0, 10)
    assert burst.resolution_ok.tolist() == [False, True, False, False, False, False]
    assert idc_at(burst, 60.0) == pytest.approx(2.0)


def test_no_request_no_burst() -> None:
    with pytest.raises(ValueError, match="no request"):
        burst_of_prompts(measured_by_hand(), 200, None)
    assert requests_between(measured_by_hand(), 200, None) == 0


def test_a_sample_is_brought_back_to_all_requests() -> None:
    """Half of all: mean 2 of 4; variance 5 = 0.25 (V - 4) + 2, so V = 16; covariance 1 = 0.25 C, so C = 4."""
    found = unsampled_bursts(
        np.array([0, 10]), np.array([5.0]), np.array([[2.0, 1.0]]), np.array([[[5.0, 1.0], [1.0, 1.0]]]), 0.5
    )
    assert found.mean_n.tolist() == [[4.0, 2.0]]
    assert found.covariance.tolist() == [[[16.0, 4.0], [4.0, 2.0]]]


@cache
def arrivals(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Seconds since the first arrival, and prompts, read without any of the product's code."""
    path = EXAMPLES / LOGS[name]
    if path.suffix == ".jsonl":
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        ms, prompt = (np.array([row[key] for row in rows]) for key in ("timestamp", "input_length"))
        return (ms - ms.min()) / 1000.0, prompt
    with path.open() as stream:
        found = [(row["TIMESTAMP"], int(row["ContextTokens"])) for row in csv.DictReader(stream)]
    us = np.array([np.datetime64(stamp[:26].replace(" ", "T"), "us") for stamp, _ in found]).astype(np.int64)
    return (us - us.min()) / 1e6, np.array([prompt for _, prompt in found])


@cache
def log(name: str, *, measured: bool = True) -> Traffic:
    return load_traffic(EXAMPLES / LOGS[name], name=name, prompt_bursts=measured)


def idc_of(seconds: np.ndarray, scale_s: int, window_s: float) -> tuple[float, float]:
    """Index of dispersion of counts in the whole windows of a log of less than an hour, and its error if Poisson."""
    bins = int(window_s // scale_s)
    counts = np.bincount((seconds[seconds < bins * scale_s] // scale_s).astype(int), minlength=bins)
    return float(counts.var(ddof=1) / counts.mean()), float(np.sqrt(2 / (bins - 1)))


def stretches(traffic: Traffic) -> list[tuple[int, int | None]]:
    """All stretches of eight bands of equal work but the whole."""
    within = None if traffic.prompt_bursts is None else traffic.prompt_bursts.edges
    edges = [0, *cuts_of(traffic.law, 8, within=within), None]
    return [(lo, hi) for lo, hi in itertools.combinations(edges, 2) if lo is not None and (lo, hi) != (0, None)]


@pytest.mark.parametrize("name", LOGS)
def test_measured_bursts_are_those_of_the_rows(name: str) -> None:
    traffic, (seconds, prompt) = log(name), arrivals(name)
    assert burst_assumption(traffic) == MEASURED
    assert len(stretches(traffic)) == 35
    for lo, hi in stretches(traffic):
        burst = burst_of_prompts(traffic, lo, hi)
        inside = (prompt >= lo) & (prompt < (np.inf if hi is None else hi))
        for place, scale in enumerate(SCALES):
            wanted, _ = idc_of(seconds[inside], scale, traffic.window_s)
            assert burst.idc[place] == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("name", LOGS)
def test_all_bands_together_are_the_whole(name: str) -> None:
    traffic = log(name)
    bands = traffic.prompt_bursts
    assert bands is not None
    together = bands.covariance.sum(axis=(1, 2)) / bands.mean_n.sum(axis=1)
    np.testing.assert_allclose(together, traffic.burst.idc, rtol=1e-9)


@pytest.mark.parametrize("name", LOGS)
def test_the_bound_holds_on_real_logs(name: str) -> None:
    """For every stretch that two standard deviations of chance leave a doubt about."""
    traffic, (seconds, prompt) = log(name, measured=False), arrivals(name)
    assert burst_assumption(traffic) == BOUNDED
    for lo, hi in stretches(traffic):
        burst = burst_of_prompts(traffic, lo, hi)
        inside = (prompt >= lo) & (prompt < (np.inf if hi is None else hi))
        for place, scale in enumerate(SCALES):
            found, sd = idc_of(seconds[inside], scale, traffic.window_s)
            assert found <= burst.idc[place] * (1 + 2 * sd)


def test_thinning_and_the_index_of_the_whole_both_fail_on_a_real_log() -> None:
    """The reason for the rule: long prompts of the conversation log come in bursts of their own."""
    traffic, (seconds, prompt) = log("conv"), arrivals("conv")
    whole, _ = idc_of(seconds, 60, traffic.window_s)
    inside = prompt >= 3757
    found, sd = idc_of(seconds[inside], 60, traffic.window_s)
    assert found > whole * (1 + 2 * sd)
    assert found > 9 * (1 + inside.mean() * (whole - 1)) * (1 + 2 * sd)


def test_a_canonical_folder_keeps_them(tmp_path: Path) -> None:
    raw = EXAMPLES / LOGS["conv"]
    done = CliRunner().invoke(app, ["ingest", str(raw), "-o", str(tmp_path / "c"), "--prompt-bursts", "--json"])
    assert done.exit_code == 0, done.output
    kept, direct = load_traffic(tmp_path / "c", name="conv").prompt_bursts, log("conv").prompt_bursts
    assert kept is not None
    assert direct is not None
    for name in ("edges", "scale_s", "mean_n", "covariance"):
        np.testing.assert_array_equal(getattr(kept, name), getattr(direct, name))
    plain = CliRunner().invoke(app, ["ingest", str(raw), "-o", str(tmp_path / "p"), "--json"])
    assert plain.exit_code == 0, plain.output
    assert read(tmp_path / "p").prompt_burst is None


def test_options_that_contradict_each_other(tmp_path: Path) -> None:
    raw = str(EXAMPLES / LOGS["mooncake"])
    for extra, said in ((["--min-cell", "5"], "--min-cell hides"), (["--backend", "spark"], "not in a warehouse")):
        done = CliRunner().invoke(app, ["ingest", raw, "-o", str(tmp_path / "c"), "--prompt-bursts", *extra])
        assert done.exit_code != 0
        assert said in " ".join(str(done.output).split()) + str(done.exception)


def test_a_stated_index_hides_what_was_measured() -> None:
    traffic = load_traffic(EXAMPLES / LOGS["mooncake"], name="m", options={"idc": 3}, prompt_bursts=True)
    assert traffic.prompt_bursts is None
    share = requests_between(traffic, 25268, None) / traffic.law.requests
    assert burst_of_prompts(traffic, 25268, None).idc.tolist() == pytest.approx([1 + 2 / share] * 6)


def test_several_models_classes_and_hours_of_a_log(tmp_path: Path) -> None:
    """Two models over nine hours, out of order, with failed rows: each model has its own bands and counts."""
    rng = np.random.default_rng(7)
    rows = []
    for model, n in (("a", 900), ("b", 300)):
        start = rng.uniform(0, 9 * 3600, n)
        rows += [(t, model, int(p), "ok") for t, p in zip(start, rng.integers(1, 4000, n), strict=True)]
    rows += [(float(t), "a", 10, "error") for t in rng.uniform(0, 9 * 3600, 50)]
    rows.sort(key=lambda row: row[2])
    stamp = np.datetime64("2026-01-05T00:00:00", "us")
    lines = ["timestamp,model,prompt,output,status"]
    for t, model, p, status in rows:
        at = stamp + np.timedelta64(int(t * 1e6), "us")
        lines.append(f"{at}Z,{model},{p},5,{'500' if status == 'error' else '200'}")
    path = tmp_path / "log.csv"
    path.write_text("\n".join(lines) + "\n")
    first = min(t for t, *_ in rows)
    for model in ("a", "b"):
        options = {"map": "timestamp=timestamp,model=model,prompt=prompt,output=output,status=status"}
        traffic = load_traffic(path, log_format="plain", model=model, options=options, name=model, prompt_bursts=True)
        bands = traffic.prompt_bursts
        assert bands is not None
        cut = int(bands.edges[len(bands.edges) // 2])
        got = burst_of_prompts(traffic, cut, None)
        times = np.array([t - first for t, m, p, status in rows if m == model and p >= cut and status == "ok"])
        windows = counts_in_blocks(times, 60, traffic.window_s)
        spread = sum(((block - block.mean()) ** 2).sum() for block in windows)
        freedom = sum(block.size - 1 for block in windows)
        mean = np.concatenate(windows).mean()
        assert got.idc[SCALES.index(60)] == pytest.approx(spread / freedom / mean, rel=1e-9)
        assert restrict_prompts(traffic, cut, None).law.requests == times.size


def counts_in_blocks(seconds: np.ndarray, scale_s: int, window_s: float) -> list[np.ndarray]:
    """Counts of the whole windows of each hour."""
    found = []
    for start in range(0, int(np.ceil(window_s)), 3600):
        bins = int(min(3600.0, window_s - start) // scale_s)
        here = seconds[(seconds >= start) & (seconds < start + bins * scale_s)] - start
        if bins:
            found.append(np.bincount((here // scale_s).astype(int), minlength=bins))
    return found


def test_law_of_requests_and_bands_agree() -> None:
    """Edges of the measured bands are admissible cuts of the law that they were made from."""
    prompt = np.random.default_rng(3).integers(1, 5000, 400)
    law = law_of_requests(prompt, np.full(400, 7))
    assert cuts_of(law, 8, within=np.array([0, *cuts_of(law, 32)])) != ()
