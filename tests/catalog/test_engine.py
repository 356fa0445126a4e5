from __future__ import annotations

from pathlib import Path

import pytest

from planner.catalog.engine import find_engine, load_engines, version_key
from planner.catalog.load import default_root
from planner.errors import InputError
from planner.memory.types import Origin

ENGINES = load_engines(default_root())


def test_every_fact_has_a_source_and_a_date() -> None:
    for facts in ENGINES:
        for name in type(facts.rules).model_fields:
            assert facts.sources[name].source, (facts.version, name)
            assert facts.sources[name].as_of.year >= 2026


@pytest.mark.parametrize(
    ("version", "listed", "utilization"),
    [("0.11.0", "0.11.0", 0.90), ("0.12.4", "0.11.0", 0.90), ("0.19.0", "0.19.0", 0.90), ("0.30.0", "0.22.0", 0.92)],
)
def test_the_nearest_older_version_is_taken(version: str, listed: str, utilization: float) -> None:
    facts = find_engine(ENGINES, "vllm", version)
    assert facts.version == listed
    assert facts.vllm.default_utilization == utilization


def test_without_a_version_the_newest_is_taken() -> None:
    assert find_engine(ENGINES, "vllm").version == "0.33.0"
    assert find_engine(ENGINES, "sglang").version == "0.5.23"


@pytest.mark.parametrize(("name", "version"), [("vllm", "0.6.3"), ("tgi", "1.0"), ("vllm", "latest")])
def test_unknown_engines_and_versions_are_refused(name: str, version: str) -> None:
    with pytest.raises(InputError):
        find_engine(ENGINES, name, version)


def test_versions_compare_by_number() -> None:
    assert version_key("0.9.2") < version_key("0.11.0") == version_key("v0.11")


def test_fits_and_guesses_are_marked() -> None:
    newest, fitted = find_engine(ENGINES, "vllm", "0.33.0"), find_engine(ENGINES, "vllm", "0.19.0")
    assert newest.origin("cudagraph_gib") is Origin.GUESS
    assert fitted.origin("sampler_copies") is Origin.FITTED
    assert newest.origin("default_utilization") is Origin.CATALOGUE


def test_rules_that_changed() -> None:
    rules = [find_engine(ENGINES, "vllm", version).vllm for version in ("0.11.0", "0.19.0", "0.33.0")]
    assert [r.null_blocks for r in rules] == [0, 0, 1]
    assert [r.batches_in_flight for r in rules] == [1, 1, 2]
    assert [r.logged_tokens for r in rules] == ["pool", "pool", "concurrency"]
    assert [r.start_check for r in rules] == ["layers", "groups", "groups"]
    assert [r.latent_block_16bit.hopper for r in rules] == [64, 16, 16]


def test_problems_of_a_file_are_collected(tmp_path: Path) -> None:
    (tmp_path / "engines").mkdir()
    (tmp_path / "engines" / "vllm.toml").write_text(
        'engine = "vllm"\n[[version]]\nid = "1.0.0"\n'
        '[[fact]]\nname = "null_blocks"\nsince = "1.0.0"\nvalue = -1\nsource = "x"\nas_of = 2026-01-01\n'
        '[[fact]]\nname = "mystery"\nsince = "1.0.0"\nvalue = 1\nsource = "x"\nas_of = 2026-01-01\n',
        encoding="utf-8",
    )
    (tmp_path / "engines" / "tgi.toml").write_text('engine = "tgi"\n', encoding="utf-8")
    with pytest.raises(InputError) as error:
        load_engines(tmp_path)
    text = str(error.value)
    assert "unknown engine 'tgi'" in text
    assert "null_blocks" in text
    assert "mystery" in text
    assert "default_utilization" in text
