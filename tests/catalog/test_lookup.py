"""Models, GPUs and versions under the names that logs use."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from pathlib import Path

import pytest

from planner.catalog.load import Catalog, load_catalog
from planner.catalog.lookup.lookup import Lookup
from planner.errors import InputError


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


@pytest.fixture(scope="module")
def lookup(catalog: Catalog) -> Lookup:
    return Lookup(catalog)


@pytest.mark.parametrize(
    ("name", "known", "weights"),
    [
        ("qwen/qwen3-8b", "Qwen/Qwen3-8B", ""),
        ("unsloth/Llama-3.1-70B-Instruct", "meta-llama/Llama-3.1-70B-Instruct", ""),
        ("Qwen2-7B-Instruct", "Qwen/Qwen2-7B-Instruct", ""),
        ("google/gemma-3-27b-it (inferred)", "google/gemma-3-27b-it", ""),
        ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", "meta-llama/Llama-3.3-70B-Instruct", "FP8-dynamic"),
        ("GLM-5 NVFP4", "nvidia/GLM-5-NVFP4", ""),
        ("HuggingFaceTB/SmolLM-1.7B NVFP4", "HuggingFaceTB/SmolLM-1.7B", "NVFP4"),
        ("Qwen3-0.6B-class (1.34 GiB)", "Qwen/Qwen3-0.6B", ""),
        ("0.6B something (Qwen3-0.6B)", "Qwen/Qwen3-0.6B", ""),
    ],
)
def test_a_model_is_found_under_names_of_logs(lookup: Lookup, name: str, known: str, weights: str) -> None:
    found = lookup.model(name)
    assert (found.found.id, found.weights) == (known, weights)


def test_what_is_not_literal_is_told(lookup: Lookup) -> None:
    assert lookup.model("Qwen/Qwen3-8B").notes == ()
    assert "the same name" in lookup.model("unsloth/Llama-3.1-70B-Instruct").notes[0]
    relative = lookup.model("acme/SmolLM-1.7B-Instruct-2507")
    assert relative.sibling
    assert "longest context may differ" in relative.notes[0]


@pytest.mark.parametrize("name", ["", "(A100-80GB test, util low)", "some 27B model", "no/such-model", "bf16 models"])
def test_a_model_that_is_not_known_is_said_so(lookup: Lookup, name: str) -> None:
    with pytest.raises(InputError, match="model"):
        lookup.model(name)


def test_a_folder_of_configs_comes_before_the_catalogue(catalog: Catalog, tmp_path: Path) -> None:
    config = json.loads((catalog.root / "models" / "Qwen--Qwen3-8B.json").read_text(encoding="utf-8"))
    (tmp_path / "acme--NewModel-8B.json").write_text(json.dumps(config), encoding="utf-8")
    config["num_hidden_layers"] = 3
    (tmp_path / "Qwen--Qwen3-8B.json").write_text(json.dumps(config), encoding="utf-8")
    lookup = Lookup(catalog, tmp_path)
    assert lookup.model("acme/newmodel-8b").found.num_layers == 36
    assert lookup.model("Qwen/Qwen3-8B").found.num_layers == 3
    assert lookup.model("anything", "acme--NewModel-8B.json").found.id == "acme/NewModel-8B"


def test_a_table_may_name_files_beside_it(catalog: Catalog, tmp_path: Path) -> None:
    (tmp_path / "configs").mkdir()
    text = (catalog.root / "models" / "Qwen--Qwen3-8B.json").read_text(encoding="utf-8")
    (tmp_path / "configs" / "acme--NewModel-8B.json").write_text(text, encoding="utf-8")
    lookup = Lookup(catalog, beside=tmp_path)
    found = lookup.model("acme/NewModel-8B", "configs/acme--NewModel-8B.json").found
    assert (found.id, found.num_layers) == ("acme/NewModel-8B", 36)
    assert lookup.model("acme/NewModel-9B", str(tmp_path / "configs" / "acme--NewModel-8B.json")).found.num_layers == 36
    assert lookup.model("Qwen/Qwen3-8B", "configs/nowhere.json").found.id == "Qwen/Qwen3-8B"


def test_a_companion_lies_in_a_folder_beside_the_configs(catalog: Catalog, tmp_path: Path) -> None:
    name = "nvidia--Qwen3-235B-A22B-NVFP4.json"
    (tmp_path / "configs").mkdir()
    (tmp_path / "hf_quant_configs").mkdir()
    shutil.copy(catalog.root / "models" / name, tmp_path / "configs" / name)
    shutil.copy(catalog.root / "models" / "quant" / name, tmp_path / "hf_quant_configs" / name)
    found = Lookup(catalog, tmp_path / "configs").model("nvidia/Qwen3-235B-A22B-NVFP4").found
    assert found.native_weight_dtype == catalog.model_shape("nvidia/Qwen3-235B-A22B-NVFP4").native_weight_dtype


@pytest.mark.parametrize(
    ("name", "gpu"),
    [
        ("H100-SXM", "H100-SXM"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM"),
        ("fake SM90 (NVIDIA H100 80GB HBM3)", "H100-SXM"),
        ("fake SM89 (NVIDIA L40S)", "L40S"),
        ("fake SM80 (NVIDIA A100-SXM4-80GB)", "A100-80GB-SXM"),
        ("RTX3090 x16 (16 workers)", "RTX3090"),
        ("RTX4090 class (inferred from its memory)", "RTX4090"),
        ("MI355X-class (283.6 before load; inferred)", "MI355X"),
        ("H100-80GB (cluster pokprod)", "H100-SXM"),
        ("L40S/A40-48GB", "L40S"),
        ("NVIDIA GeForce RTX 5090", "RTX5090"),
        ("RTX 6000 Ada-48GB", "RTX6000Ada"),
        ("GB200-186GB", "GB200"),
        ("8x H200", "H200-SXM"),
        ("A100-40GB", "A100-40GB-SXM"),
    ],
)
def test_a_gpu_is_found_under_names_of_logs(lookup: Lookup, name: str, gpu: str) -> None:
    assert lookup.gpu(name).found.id == gpu


def test_a_card_known_by_its_memory_stands_in(lookup: Lookup) -> None:
    found = lookup.gpu("24GB-class")
    assert found.found.visible_memory_gib == pytest.approx(23.4)
    assert "stands in" in found.notes[0]


@pytest.mark.parametrize(
    ("name", "capability", "gib"),
    [
        ("24GB-class", "8.9", 23.4),
        ("96GB class", "9.0", 93.6),
        ("RTX 5060 Ti-16GB", "12.0", 15.6),
        ("RTX PRO 4000 Blackwell-24GB", "12.0", 23.4),
        ("RTX 50-series 16GB (sm_120)", "12.0", 15.6),
        ("RTX A5000-24GB", "8.6", 23.4),
        ("RTX 2000 Ada-16GB", "8.9", 15.6),
        ("2080Ti-22GB", "7.5", 21.45),
        ("Jetson Thor-128GB", "12.1", 122.82),
        ("Jetson Orin-64GB", "12.1", 61.41),
        ("Radeon 16GB", "gfx90a", 15.98),
        ("AMD 24GB (RX 7900 XTX)", "gfx90a", 23.96),
    ],
)
def test_a_card_of_a_series_follows_its_rules(lookup: Lookup, name: str, capability: str, gib: float) -> None:
    found = lookup.gpu(name)
    assert found.sibling
    assert found.found.compute_capability == capability
    assert found.found.visible_memory_gib == pytest.approx(gib)
    assert found.found.interconnect == ("nvlink" if capability == "9.0" else "pcie")


@pytest.mark.parametrize("name", ["", "(not in excerpt)", "some card", "Intel"])
def test_a_gpu_that_is_not_known_is_said_so(lookup: Lookup, name: str) -> None:
    with pytest.raises(InputError, match="GPU"):
        lookup.gpu(name)


def test_a_gpu_of_a_size_takes_everything_else_from_the_nearest_card(lookup: Lookup) -> None:
    known = lookup.gpu_of_size(81559, "9.0")
    assert known.memory_driver_mib == 81559
    odd = lookup.gpu_of_size(60000, "9.0")
    assert (odd.memory_driver_mib, odd.compute_capability, odd.memory_visible_gib) == (60000, "9.0", None)
    with pytest.raises(InputError, match="compute capability"):
        lookup.gpu_of_size(8000, "5.2")


def test_versions_between_and_before_those_listed(lookup: Lookup) -> None:
    between, note = lookup.engine("vllm", "0.32.0")
    assert between.version != "0.32.0" or note == ""
    oldest, note = lookup.engine("vllm", "0.2.5")
    assert oldest == lookup.catalog.engine("vllm", oldest.version)
    assert "older than the catalogue" in note
    newest, note = lookup.engine("sglang", "")
    assert newest == lookup.catalog.engine("sglang", "")
    assert "no sglang version" in note


def test_a_date_is_the_newest_release_of_that_day(lookup: Lookup) -> None:
    _, note = lookup.engine("vllm", "", dt.date(2026, 4, 3))
    assert "0.19.0: the newest release on 2026-04-03" in note
    _, note = lookup.engine("vllm", "", dt.date(2026, 4, 2))
    assert "0.18.1" in note


def test_every_alias_leads_to_a_gpu(lookup: Lookup) -> None:
    assert set(lookup.gpu_names.names.values()) <= set(lookup.catalog.gpus)
