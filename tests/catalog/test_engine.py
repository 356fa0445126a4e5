from __future__ import annotations

from pathlib import Path

import pytest

from planner.catalog.engine import find_engine, load_engines, substitution
from planner.catalog.load import default_root
from planner.catalog.versions import version_key
from planner.errors import InputError
from planner.origin import Origin

ENGINES = load_engines(default_root())


def test_every_fact_has_a_source_and_a_date() -> None:
    for facts in ENGINES:
        for name in type(facts.rules).model_fields:
            assert facts.sources[name].source, (facts.version, name)
            assert facts.sources[name].as_of.year >= 2026


@pytest.mark.parametrize(
    ("version", "listed", "utilization"),
    [("0.11.0", "0.11.0", 0.90), ("0.11.4", "0.11.0", 0.90), ("0.19.0", "0.19.0", 0.90), ("0.20.2", "0.20.1", 0.92)],
)
def test_the_nearest_older_version_is_taken(version: str, listed: str, utilization: float) -> None:
    facts = find_engine(ENGINES, "vllm", version)
    assert facts.version == listed
    assert facts.vllm.default_utilization == utilization


def test_without_a_version_the_newest_is_taken() -> None:
    assert find_engine(ENGINES, "vllm").version == "0.33.0"
    assert find_engine(ENGINES, "sglang").version == "0.5.23"


@pytest.mark.parametrize(
    ("name", "version", "field"),
    [
        ("vllm", "0.6.2", "version"),
        ("tgi", "1.0", "name"),
        ("vllm", "latest", "version"),
        ("vllm", "0.33.0 or so", "version"),
        ("vllm", "0.33.x", "version"),
        ("vllm", "1" * 300, "version"),
        ("vllm", "-1", "version"),
    ],
)
def test_unknown_engines_and_versions_are_refused_in_neutral_words(name: str, version: str, field: str) -> None:
    """A request has no option: the place is the engine's field."""
    with pytest.raises(InputError) as error:
        find_engine(ENGINES, name, version)
    assert [(problem.where, problem.field) for problem in error.value.problems] == [("engine", field)]
    assert "--" not in str(error.value)


@pytest.mark.parametrize("version", ["0.33.0", "v0.33", "0.33.0rc1", "0.33.0.post2", "0.33.0.dev3+g1a2b3c"])
def test_a_suffix_does_not_make_another_version(version: str) -> None:
    assert substitution(ENGINES, find_engine(ENGINES, "vllm", version), version) == ""


@pytest.mark.parametrize(
    ("name", "version", "used", "why"),
    [
        ("vllm", "99.0", "0.33.0", "newer than every version"),
        ("sglang", "0.33.0", "0.5.23", "newer than every version"),
        ("vllm", "0.20.2", "0.20.1", "not in the catalogue"),
    ],
)
def test_a_substituted_version_is_told(name: str, version: str, used: str, why: str) -> None:
    note = substitution(ENGINES, find_engine(ENGINES, name, version), version)
    assert note.startswith(f"engine facts of {name} {used} are used for {version}")
    assert why in note


def test_versions_compare_by_number() -> None:
    assert version_key("0.9.2") < version_key("0.11.0") == version_key("v0.11")


def test_fits_and_guesses_are_marked() -> None:
    newest, oldest = find_engine(ENGINES, "vllm", "0.33.0"), find_engine(ENGINES, "vllm", "0.6.3")
    assert newest.origin("nccl_pcie_gib") is Origin.GUESS
    assert newest.origin("libraries_gib") is Origin.FITTED
    assert newest.origin("default_utilization") is Origin.CATALOGUE
    assert oldest.origin("default_utilization") is Origin.GUESS, "read in 0.11.0 only"
    assert oldest.registry is None


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
        '[[fact]]\nname = "mystery"\nsince = "1.0.0"\nvalue = 1\nsource = "x"\nas_of = 2026-01-01\n'
        '[[fact]]\nname = "undated"\nsince = "soon"\nvalue = 1\nsource = "x"\nas_of = 2026-01-01\n',
        encoding="utf-8",
    )
    (tmp_path / "engines" / "tgi.toml").write_text('engine = "tgi"\n', encoding="utf-8")
    with pytest.raises(InputError) as error:
        load_engines(tmp_path)
    text = str(error.value)
    assert "unknown engine 'tgi'" in text
    assert "null_blocks" in text
    assert "mystery" in text
    assert "vllm.toml, fact undated: 'soon' is not a version" in text
    assert "default_utilization" in text
