from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from planner.catalog.load import Catalog
from planner.errors import InputError
from planner.speed.facts import SPEED_FILE, SpeedFacts, load_speed_facts, version_of
from planner.speed.fit.refit import as_toml


def test_every_gpu_named_is_in_the_catalogue(facts: SpeedFacts, catalog: Catalog) -> None:
    named = {gpu for family in facts.gpu.values() for gpu in family.gpus} | set(facts.cautions)
    assert named <= set(catalog.gpus)


def test_fit_is_found_by_board(facts: SpeedFacts) -> None:
    fit = facts.fitted_gpu("H100-SXM")
    assert fit is not None
    assert fit is facts.gpu["H100"]
    assert facts.fitted_gpu("H100-PCIe") is None  # other board, never measured


def test_every_fitted_coefficient_has_points_and_a_source(facts: SpeedFacts) -> None:
    """int8 and the default are priors, and say that they are."""
    for table in (facts.dense_compute, facts.expert_compute):
        assert table.int8.points == 0
        assert "not measured" in table.int8.source
        assert min(table.bf16.points, table.fp8.points, table.fp4.points) > 0
    assert facts.bandwidth_efficiency_default.points == 0
    assert "prior" in facts.bandwidth_efficiency_default.source
    assert all(fit.points >= 20 for fit in facts.gpu.values())  # fewer say nothing about hardware


def test_gpu_with_few_or_old_points_keeps_the_wide_band(facts: SpeedFacts) -> None:
    assert {name for name, fit in facts.gpu.items() if not fit.wide_band} == {"H100", "H200", "B200", "B300"}


def test_less_knowledge_never_narrows_a_band(facts: SpeedFacts) -> None:
    for bands in (facts.tpot_bands, facts.ttft_bands):
        for near, far in ((bands.known, bands.new_model), (bands.new_model, bands.new_gpu)):
            assert far.low <= near.low
            assert far.high >= near.high


def _eras(facts: SpeedFacts, *before: str) -> SpeedFacts:
    """vLLM's newest era, and older ones that end before these versions."""
    newest = next(era for era in facts.engine if era.engine == "vllm")
    eras = [newest.model_copy(update={"before_version": version}) for version in (*before, "")]
    return facts.model_copy(update={"engine": tuple(eras)})


@pytest.mark.parametrize(
    ("version", "before"),
    [
        ("0.7.3", "0.8"),
        ("0.8.0rc1", "0.8"),  # of the old code still
        ("0.8", "0.19.1"),
        ("0.8.5.post1", "0.19.1"),
        ("v0.8.5", "0.19.1"),
        ("0.19.1rc1.dev339+gedc364896", "0.19.1"),
        ("0.19.1", ""),
        ("0.19.2.dev1+g0123abc", ""),
        ("1.3.0rc20", ""),
        ("glm5-hopper", ""),  # no version: the newest
        ("nightly-dev", ""),
        ("", ""),
    ],
)
def test_era_of_a_version(facts: SpeedFacts, version: str, before: str) -> None:
    era = _eras(facts, "0.8", "0.19.1").era("vllm", version)
    assert era is not None
    assert era.before_version == before


def test_era_of_an_unknown_engine(facts: SpeedFacts) -> None:
    assert facts.era("lmdeploy", "0.7.3") is None
    assert {facts.era(engine, "").engine for engine in ("vllm", "sglang", "trtllm")} == {"vllm", "sglang", "trtllm"}


@pytest.mark.parametrize("text", ["", "latest", "0.8.", "v", "0.8-beta-x"])
def test_what_is_no_version(text: str) -> None:
    assert version_of(text) is None


def _write(folder: Path, text: str) -> Path:
    path = folder / SPEED_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return folder


def _changed(facts: SpeedFacts, change: Callable[[dict[str, Any]], None]) -> str:
    tree = tomllib.loads(as_toml(facts))
    change(tree)
    return tomli_w.dumps(tree)


def test_every_problem_is_reported_at_once(facts: SpeedFacts, tmp_path: Path) -> None:
    def spoil(tree: dict[str, Any]) -> None:
        tree["gpu"]["H100"]["bandwidth_efficiency"] = 1.95
        tree["ttft_floor_ms"]["valu"] = tree["ttft_floor_ms"].pop("value")
        tree["engine"][0]["before_version"] = "the old one"
        tree["dense_compute"]["fp8"]["value"] = float("nan")
        tree["tpot_bands"]["known"]["low"] = 1.2
        del tree["expert_compute"]["fp4"]

    with pytest.raises(InputError) as caught:
        load_speed_facts(_write(tmp_path, _changed(facts, spoil)))
    assert {problem.field for problem in caught.value.problems} == {
        "gpu.H100.bandwidth_efficiency",
        "ttft_floor_ms.value",
        "ttft_floor_ms.valu",
        "engine.0",
        "dense_compute.fp8.value",
        "tpot_bands.known.low",
        "expert_compute.fp4",
    }
    assert any("'the old one' is no version" in str(problem) for problem in caught.value.problems)


def test_gpu_fitted_twice_is_refused(facts: SpeedFacts, tmp_path: Path) -> None:
    text = _changed(facts, lambda tree: tree["gpu"]["B300"].update(gpus=["B200"]))
    with pytest.raises(InputError, match="fitted more than once: B200"):
        load_speed_facts(_write(tmp_path, text))


@pytest.mark.parametrize(("text", "message"), [("a = [", "is not valid TOML"), (None, "no such file")])
def test_unreadable_file(tmp_path: Path, text: str | None, message: str) -> None:
    root = tmp_path if text is None else _write(tmp_path, text)
    with pytest.raises(InputError, match=message):
        load_speed_facts(root)
