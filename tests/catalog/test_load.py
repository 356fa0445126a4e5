"""The committed catalogue: what it must hold, and that every figure of it can be traced."""

from __future__ import annotations

import csv
import datetime as dt
import time
from pathlib import Path

import pytest

from planner.catalog.load import ROOT_VARIABLE, default_root, load_catalog
from planner.catalog.model_shape import AttentionFamily
from planner.catalog.models import read_aliases
from planner.catalog.offer import PriceKind, Term
from planner.errors import InputError, Problems

CATALOG = load_catalog()


def test_holds_what_a_planner_needs():
    whole = [offer for offer in CATALOG.offers if offer.gpus_per_instance >= 1]
    assert len(CATALOG.gpus) >= 25
    assert len(CATALOG.model_ids()) >= 60
    assert len({offer.gpu for offer in whole}) >= 12
    assert len({offer.provider for offer in whole}) >= 5
    assert {offer.term for offer in CATALOG.offers} == set(Term)


def test_loads_fast_enough_to_be_read_by_every_command():
    start = time.perf_counter()
    load_catalog()
    assert time.perf_counter() - start < 1.0


def test_every_gpu_has_a_source_a_date_and_a_peak():
    for gpu in CATALOG.gpus.values():
        assert "://" in gpu.source_url or "package" in gpu.source_url, gpu.id
        assert gpu.as_of == dt.date(2026, 11, 29), gpu.id
        assert gpu.bf16_tflops, gpu.id


@pytest.mark.parametrize(
    ("gpu_id", "visible_gib", "driver_mib"),
    [
        ("H100-SXM", 79.18, 81559),
        ("H200-SXM", 139.802, 143771),
        ("L40S", 44.394, 46068),
        ("L4", 22.036, 23034),
        ("A100-80GB-SXM", 79.25, 81920),
        ("T4", 14.562, 15360),
        ("B200", 178.344, 183359),
    ],
)
def test_visible_memory_is_the_driver_total_less_a_reserve(gpu_id, visible_gib, driver_mib):
    gpu = CATALOG.gpu(gpu_id)
    assert gpu.visible_memory_gib == pytest.approx(visible_gib)
    assert gpu.memory_driver_mib == driver_mib
    assert 0 < driver_mib / 1024 - visible_gib < 1.0


def test_no_card_is_seen_larger_than_its_driver_total():
    for gpu in CATALOG.gpus.values():
        if gpu.memory_driver_mib is not None:
            assert gpu.visible_memory_gib < gpu.memory_driver_mib / 1024, gpu.id


def test_l40s_states_its_ecc_variant():
    gpu = CATALOG.gpu("L40S")
    assert "ECC on" in gpu.memory_visible_source
    assert "ECC off" in gpu.notes


def test_gpus_without_bf16_units_say_that_their_peak_is_fp16():
    old = [gpu for gpu in CATALOG.gpus.values() if not gpu.supports_bf16]
    assert {gpu.id for gpu in old} == {"T4", "V100-16GB", "V100-32GB"}
    assert all("FP16" in gpu.notes for gpu in old)


def test_recalled_figures_are_marked():
    assert "memory_bandwidth_gb_s" in CATALOG.gpu("RTXPRO6000-Server").unverified
    assert "interconnect_gb_s" not in CATALOG.gpu("V100-16GB").unverified, "checked at its second source"


@pytest.mark.parametrize("name", ["H100", "H200", "A100-80GB", "A100-40GB", "RTXPRO6000"])
def test_a_name_without_form_factor_is_no_gpu(name):
    with pytest.raises(InputError) as caught:
        CATALOG.gpu(name)
    assert f"{name}-" in str(caught.value)
    assert not [offer for offer in CATALOG.offers if offer.gpu == name]


def test_offer_ids_are_unique_and_say_what_they_are():
    ids = [offer.id for offer in CATALOG.offers]
    assert len(ids) == len(set(ids)) == len({offer_id.casefold() for offer_id in ids})
    for offer in CATALOG.offers:
        provider, *_, region, term = offer.id.split("/")
        assert (provider, term) == (offer.provider, offer.term.value)
        assert region == (offer.region.replace(" ", "-") or "any")


def test_known_prices():
    assert CATALOG.offer("aws/p5.48xlarge/us-east-1/on_demand").usd_per_h == 55.04
    assert CATALOG.offer("aws/p5.48xlarge/us-east-1/commit_3y").usd_per_h == 20.695054
    assert CATALOG.offer("aws/p5.4xlarge/us-east-1/on_demand").usd_per_gpu_h == 6.88
    runpod = CATALOG.offer("runpod/H100-SXM-Secure/any/on_demand")
    assert (runpod.usd_per_h, runpod.as_of) == (3.99, dt.date(2026, 11, 9)), "not the 3.49 of September"


def test_prices_per_gpu_fall_with_the_size_of_a_lambda_machine():
    names = [f"lambda/{size}x-H100-SXM/any/on_demand" for size in (1, 2, 4, 8)]
    assert [CATALOG.offer(name).usd_per_gpu_h for name in names] == pytest.approx([4.29, 4.19, 4.09, 3.99])


@pytest.mark.parametrize(
    ("offer_id", "gpus", "usd_per_h", "as_of"),
    [
        ("coreweave/HGX-H100/north-america/on_demand", 8, 49.24, dt.date(2026, 9, 20)),
        ("coreweave/HGX-H200/north-america/spot", 8, 20.93, dt.date(2026, 9, 20)),
        ("coreweave/GB200-NVL72-(4-GPU-node)/north-america/on_demand", 4, 42.0, dt.date(2026, 9, 20)),
        ("hyperstack/H100-SXM/any/on_demand", 1, 3.2, dt.date(2026, 8, 26)),
        ("crusoe/L40S-48GB/any/on_demand", 1, 1.5, dt.date(2026, 9, 20)),
        ("crusoe/L40S-48GB/any/spot", 1, 0.5, dt.date(2025, 12, 1)),
        ("akash/H100-80GB-SXM5/any/on_demand", 1, 2.71, dt.date(2026, 9, 20)),
    ],
)
def test_the_newest_rate_card_wins_for_each_term(offer_id, gpus, usd_per_h, as_of):
    offer = CATALOG.offer(offer_id)
    assert (offer.gpus_per_instance, offer.usd_per_h, offer.as_of) == (gpus, usd_per_h, as_of)


def test_no_offer_is_older_than_2025_or_known_to_be_superseded():
    for offer in CATALOG.offers:
        assert offer.as_of >= dt.date(2025, 1, 1), offer.id
        assert "changed this price" not in offer.notes, offer.id


def test_a_price_that_its_source_estimated_is_marked():
    guessed = [offer for offer in CATALOG.offers if "estimated" in offer.notes]
    assert len(guessed) == 10
    assert {offer.price_kind for offer in guessed} == {PriceKind.ESTIMATE}


def test_capacity_blocks_are_not_on_demand():
    blocks = [offer for offer in CATALOG.offers if offer.term is Term.CAPACITY_BLOCK]
    assert {offer.instance_type for offer in blocks} == {"p5e.48xlarge", "p5en.48xlarge"}
    assert not [o for o in CATALOG.offers if o.term is Term.ON_DEMAND and o.instance_type == "p5e.48xlarge"]


def test_what_cannot_be_bought_on_demand_is_not_offered_so():
    names = {o.instance_type for o in CATALOG.offers if o.provider == "gcp" and o.term is Term.ON_DEMAND}
    assert "a3-highgpu-8g" in names
    assert not names & {"a3-highgpu-1g", "a3-highgpu-2g", "a3-highgpu-4g"}
    assert not [o for o in CATALOG.offers if o.instance_type.endswith("s_v3") and o.gpu.startswith("V100")]


def test_a_seller_of_gpus_becomes_whole_machines():
    one = CATALOG.offer("runpod/H100-SXM-Secure/any/on_demand")
    eight = CATALOG.offer("runpod/8x-H100-SXM-Secure/any/on_demand")
    assert eight.gpus_per_instance == 8
    assert eight.usd_per_h == pytest.approx(8 * one.usd_per_h)
    assert "8 GPUs" in eight.notes
    sizes = {o.gpus_per_instance for o in CATALOG.offers if (o.provider, o.gpu) == ("modal", "A10")}
    assert sizes == {1, 2, 4}, "Modal puts at most four A10 in one container"


def test_prices_that_leave_out_cpu_and_memory_are_marked():
    for offer in CATALOG.offers:
        if "billed separately" in offer.notes:
            assert offer.price_kind is PriceKind.GPU_ONLY, offer.id


def test_skypilots_catalogue_is_left_to_the_users_import():
    assert not [offer.id for offer in CATALOG.offers if "skypilot" in offer.source_url.casefold()]


def test_every_source_of_a_price_stands_in_the_notice():
    notice = (Path(__file__).parents[2] / "NOTICE").read_text(encoding="utf-8")
    for source in {offer.source_url for offer in CATALOG.offers if offer.price_kind is not PriceKind.ESTIMATE}:
        package = source.startswith("Python package ")
        owner = source.split("(")[0].strip() if package else source.split("/")[3]
        assert owner in notice, source


def test_notes_are_short_remarks():
    for offer in CATALOG.offers:
        for remark in offer.notes.split("; "):
            assert len(remark) <= 170, (offer.id, remark)
            assert not remark.endswith("."), (offer.id, remark)


def test_every_offer_names_a_public_source():
    for offer in CATALOG.offers:
        assert offer.source_url.startswith(("https://", "Python package ")), offer.id


def test_model_configs_are_found_in_any_case_and_by_path(tmp_path):
    by_id = CATALOG.model_shape("META-LLAMA/llama-3.1-8b-instruct")
    assert by_id.id == "meta-llama/Llama-3.1-8B-Instruct"
    assert by_id.family is AttentionFamily.GQA
    assert by_id.parameters.total == 8_030_261_248

    folder = tmp_path / "checkpoint"
    folder.mkdir()
    source = CATALOG.root / "models" / "meta-llama--Llama-3.1-8B-Instruct.json"
    (folder / "config.json").write_bytes(source.read_bytes())
    for path in ("checkpoint", "checkpoint/config.json"):
        shape = CATALOG.model_shape(path, base=tmp_path)
        assert (shape.id, shape.parameters) == (path, by_id.parameters)


def test_a_quantisation_companion_is_read(tmp_path):
    model_id = "nvidia/Llama-3.1-70B-Instruct-FP8"
    name = "nvidia--Llama-3.1-70B-Instruct-FP8.json"
    models = CATALOG.root / "models"
    assert CATALOG.model_shape(model_id).native_weight_dtype == "fp8"

    (tmp_path / "config.json").write_bytes((models / name).read_bytes())
    assert CATALOG.model_shape(str(tmp_path)).native_weight_dtype == "bf16", "without its companion"
    (tmp_path / "hf_quant_config.json").write_bytes((models / "quant" / name).read_bytes())
    assert CATALOG.model_shape(str(tmp_path)).native_weight_dtype == "fp8"


def test_an_unknown_model_names_the_closest():
    with pytest.raises(InputError) as caught:
        CATALOG.model_shape("meta-llama/Llama-3.1-8B-Instrct")
    assert "meta-llama/Llama-3.1-8B-Instruct" in str(caught.value)


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("meta-llama/Llama-3.3-70B", "meta-llama/Llama-3.3-70B-Instruct"),
        ("meta-llama/Llama-3-8B", "meta-llama/Meta-Llama-3-8B"),
        ("Qwen3-32B", "Qwen/Qwen3-32B"),
    ],
)
def test_a_part_of_a_name_finds_it(typed, offered):
    with pytest.raises(InputError) as caught:
        CATALOG.model_shape(typed)
    assert offered in str(caught.value)


@pytest.mark.parametrize("typed", ["~nobody-here/config.json", "a" * 400, "zero\0byte", "nowhere.json"])
def test_what_leads_to_no_file_is_an_unknown_model(typed):
    with pytest.raises(InputError, match="not in the catalogue"):
        CATALOG.model_shape(typed)


@pytest.mark.parametrize(
    ("alias", "longest", "parameters"),
    [
        ("meta-llama/Llama-3.3-70B-Instruct", 131_072, 70_553_706_496),
        ("META-LLAMA/meta-llama-3-8b", 8_192, 8_030_261_248),
        ("meta-llama/Llama-3.1-8B", 131_072, 8_030_261_248),
    ],
)
def test_an_alias_keeps_its_id_and_says_whose_config_was_read(alias, longest, parameters):
    shape = CATALOG.model_shape(alias)
    assert shape.id.casefold() == alias.casefold()
    assert (shape.max_position_embeddings, shape.parameters.total) == (longest, parameters)
    row = CATALOG.aliases[shape.id]
    assert shape.notes[0].startswith(f"read as {row.hf_id}: ")
    assert row.source in shape.notes[0]


def test_aliases_lead_somewhere_and_hide_nothing(tmp_path):
    problems = Problems()
    configs = {"org/real": CATALOG.model_sources["meta-llama/Meta-Llama-3-70B"]}
    rows = ["org/a,org/missing,r,s,2026-01-01", "ORG/REAL,org/real,r,s,2026-01-01", "org/a,org/real,r,s,2026-01-01"]
    (tmp_path / "aliases.csv").write_text("\n".join(["alias,hf_id,reason,source,as_of", *rows]), encoding="utf-8")
    read_aliases(tmp_path, configs, problems)
    assert [(p.row, p.field) for p in problems.found] == [("2", "hf_id"), ("3", "alias"), ("4", "alias")]


def test_a_config_may_begin_with_a_byte_order_mark(tmp_path):
    source = CATALOG.root / "models" / "meta-llama--Llama-3.1-8B-Instruct.json"
    (tmp_path / "config.json").write_text(source.read_text(encoding="utf-8"), encoding="utf-8-sig")
    assert CATALOG.model_shape(str(tmp_path)).parameters.total == 8_030_261_248


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        (f'{{"a": {"9" * 5000}}}', "digits"),
    ],
    ids=["lists", "objects", "digits"],
)
def test_a_config_that_breaks_the_parser_is_refused(tmp_path, content, text):
    (tmp_path / "config.json").write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=text):
        CATALOG.model_shape(str(tmp_path))


def test_a_config_that_is_no_json_is_refused(tmp_path):
    (tmp_path / "config.json").write_text("{not json", encoding="utf-8")
    with pytest.raises(InputError, match="is not JSON"):
        CATALOG.model_shape(str(tmp_path))
    (tmp_path / "config.json").write_text("[1]", encoding="utf-8")
    with pytest.raises(InputError, match="no JSON object"):
        CATALOG.model_shape(str(tmp_path))


def test_models_and_their_index_agree():
    with (CATALOG.root / "models" / "sources.csv").open(encoding="utf-8", newline="") as handle:
        rows = list(csv.DictReader(handle))
    for row in rows:
        name = Path(row["file"]).name
        assert name == row["hf_id"].replace("/", "--") + ".json"
    assert len(rows) == len(CATALOG.model_sources) + len(CATALOG.quant_sources)


def test_files_cover_all_data_once():
    files = CATALOG.files()
    assert list(files) == sorted(set(files))
    names = {path.relative_to(CATALOG.root).as_posix() for path in files}
    assert {"gpus.csv", "providers.csv", "offers/aws.csv", "models/sources.csv", "engines/vllm.toml"} <= names
    assert not [name for name in names if name.endswith(".md")]


def test_the_environment_can_name_another_catalogue(tmp_path, monkeypatch):
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path / "nowhere"))
    assert default_root() == tmp_path / "nowhere"
    with pytest.raises(InputError, match="catalogue folder not found"):
        load_catalog()
