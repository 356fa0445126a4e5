"""Which releases know an architecture."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.catalog.engine import find_engine
from planner.catalog.load import Catalog, load_catalog
from planner.catalog.registry import read_registry
from planner.errors import Problems

HEADER = "architecture,first,last,max_tp,source,as_of\n"


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


@pytest.mark.parametrize(
    ("architecture", "version", "tp", "known"),
    [
        ("LlamaForCausalLM", "0.11.0", 8, True),
        ("Qwen3_5ForConditionalGeneration", "0.16.0", 1, False),
        ("Qwen3_5ForConditionalGeneration", "0.17.0", 1, True),
        ("DeepseekV4ForCausalLM", "0.19.0", 1, False),
        ("DeepseekV4ForCausalLM", "0.33.0", 8, True),
        ("MiniMaxM1ForCausalLM", "0.23.0", 1, True),
        ("MiniMaxM1ForCausalLM", "0.33.0", 1, False),
        ("MllamaForConditionalGeneration", "0.19.0", 1, True),
        ("MllamaForConditionalGeneration", "0.19.0", 2, False),
        ("Step3p7FlashForCausalLM", "0.33.0", 1, False),
        ("", "0.33.0", 1, True),
    ],
)
def test_releases_that_know_an_architecture(
    catalog: Catalog, architecture: str, version: str, tp: int, *, known: bool
) -> None:
    assert catalog.engine("vllm", version).knows(architecture, tp) is known


def test_an_engine_without_a_list_refuses_none(catalog: Catalog) -> None:
    assert catalog.engine("sglang", "0.5.23").knows("Step3p7FlashForCausalLM", 8)


def test_a_development_build_may_have_what_the_next_release_has(catalog: Catalog) -> None:
    """Qwen3_5ForCausalLM came with 0.27: a build on the way to it ran the model in August 2026."""
    assert not catalog.engine("vllm", "0.26.0").knows("Qwen3_5ForCausalLM", 2)
    build = catalog.engine("vllm", "0.26.1rc1.dev608")
    assert (build.version, build.knows("Qwen3_5ForCausalLM", 2)) == ("0.26.0", True)
    assert not find_engine(catalog.engines, "vllm", "0.26.0rc1").successor


def test_advice_names_the_versions(catalog: Catalog) -> None:
    registry = catalog.engine("vllm", "0.33.0").registry
    assert registry is not None
    assert registry.advice("DeepseekV4ForCausalLM") == "Use version 0.20.0 or newer"
    assert registry.advice("MiniMaxM1ForCausalLM") == "Use version 0.11.0 to 0.23.0"
    assert registry.advice("MllamaForConditionalGeneration") == "Use version 0.11.0 to 0.19.0 at tp 1"
    assert "No version" in registry.advice("NoSuchModel")


def test_a_registry_names_each_architecture_once(tmp_path: Path) -> None:
    path = tmp_path / "x_architectures.csv"
    path.write_text(HEADER + "A,0.1.0,,,read,2026-11-29\n" * 2)
    problems = Problems()
    read_registry(path, problems)
    assert "second row for A" in str(problems.found[0])


def test_an_engine_needs_no_registry(tmp_path: Path) -> None:
    assert read_registry(tmp_path / "none.csv", Problems()) is None
