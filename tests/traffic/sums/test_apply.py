"""A real distribution brought to the rates and means of a usage report."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow.compute as pc
import pytest

from planner.errors import InputError
from planner.traffic.canonical import Canonical, read, write
from planner.traffic.ingest import Order, ingest
from planner.traffic.source import to_traffic
from planner.traffic.sums.apply import scale_to_sums

from .test_ingest import HOUR_S, bucket, result

N, PROMPT, OUTPUT = 50_000, 50_000 * 2500, 50_000 * 60


@pytest.fixture(scope="module")
def base(examples: Path) -> Canonical:
    return ingest(Order((examples / "AzureLLMInferenceTrace_code.csv",), model="llama"))


@pytest.fixture(scope="module")
def sums(tmp_path_factory: pytest.TempPathFactory) -> Canonical:
    path = tmp_path_factory.mktemp("usage") / "usage.json"
    path.write_text(json.dumps({"data": [bucket(HOUR_S, 3600, result(N, PROMPT, OUTPUT))]}))
    return ingest(Order((path,)))


def test_means_and_rates_are_those_of_the_report(base: Canonical, sums: Canonical, tmp_path: Path) -> None:
    write(scale_to_sums(base, sums), tmp_path / "scaled")
    found = read(tmp_path / "scaled")
    traffic = to_traffic(found, model="llama", name="m", where=tmp_path, sha256="")
    assert traffic.offered_rate_per_s == pytest.approx(N / 3600)
    # Lengths are whole tokens, rounded up where they are not known one by one: half a token a request at most.
    assert traffic.law.mean_prompt == pytest.approx(PROMPT / N, abs=0.5)
    assert traffic.law.mean_output == pytest.approx(OUTPUT / N, abs=0.5)
    assert found.rates.equals(sums.rates)
    assert traffic.window_s == 3600


def test_longest_lengths_grow_and_bursts_stay(base: Canonical, sums: Canonical) -> None:
    found = scale_to_sums(base, sums)
    factor = PROMPT / N / (pc.sum(base.tail["n"]).as_py() and mean_prompt(base))
    assert pc.max(found.tail["prompt"]).as_py() == pytest.approx(pc.max(base.tail["prompt"]).as_py() * factor, abs=1)
    old, new = (dispersion(base), dispersion(found))
    assert new[60] == pytest.approx(old[60])
    assert "no observation" in found.manifest.remarks[-1]
    assert "scaled to openai-usage usage.json" in found.manifest.history[-1]


def dispersion(canonical: Canonical) -> dict[float, float]:
    return {row["scale_s"]: row["idc"] for row in canonical.burst.to_pylist() if row["kind"] == "window"}


def mean_prompt(canonical: Canonical) -> float:
    cells = canonical.lengths.filter(pc.equal(canonical.lengths["period"], "all"))
    return float(pc.sum(cells["sum_prompt"]).as_py() / pc.sum(cells["n"]).as_py())


def test_other_kinds_are_refused(base: Canonical, sums: Canonical) -> None:
    with pytest.raises(InputError, match="holds requests, no sums"):
        scale_to_sums(base, base)
    with pytest.raises(InputError, match="holds sums, no lengths"):
        scale_to_sums(sums, sums)


def test_models_without_lengths_are_named(base: Canonical, sums: Canonical) -> None:
    other = replace(base, manifest=base.manifest.model_copy(update={"models": {"qwen": 1}}))
    with pytest.raises(InputError, match=r"has no lengths of llama.*It holds: qwen"):
        scale_to_sums(other, sums)
