"""`planner catalog add-model` at the keyboard, and what it leaves in the folder: all of an entry, or nothing."""

from __future__ import annotations

import csv
import datetime as dt
import json
import os
import shutil
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from planner.catalog import file_changes
from planner.catalog.add_model import State, Stated, addition_of
from planner.catalog.checkpoint import read_checkpoint
from planner.catalog.load import default_root, load_catalog
from planner.cli.catalog import register
from planner.errors import InputError
from tests.catalog.adding.checkpoints import (
    LLAMA,
    LLAMA_PARAMETERS,
    tensors_of,
    write_checkpoint,
    write_weights,
)
from tests.cli.test_plan import EXAMPLE, NOW, SMALL
from tests.cli.test_plan import run as run_planner

APP = typer.Typer()
register(APP)
APP.callback()(lambda: None)
TODAY = dt.date(2026, 12, 1)
KEPT = "meta-llama--Llama-3.1-8B-Instruct.json"
COMPANIONED = "nvidia--Qwen3-32B-NVFP4.json"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A whole catalogue with the real tables and two models, one of them with a companion and an alias."""
    shipped, root = default_root(), tmp_path / "catalogue"
    shutil.copytree(shipped / "engines", root / "engines")
    shutil.copytree(shipped / "speed", root / "speed", ignore=shutil.ignore_patterns("points"))
    (root / "offers").mkdir()
    (root / "models" / "quant").mkdir(parents=True)
    names = ["gpus.csv", "gpu_aliases.csv", "providers.csv", "offers/verda.csv", "models/class_defaults.json"]
    files = [KEPT, COMPANIONED, f"quant/{COMPANIONED}"]
    for name in [*names, *(f"models/{file}" for file in files)]:
        shutil.copyfile(shipped / name, root / name)
    for table, column in (("sources.csv", "file"), ("aliases.csv", "hf_id")):
        text = (shipped / "models" / table).read_text(encoding="utf-8")
        rows = list(csv.DictReader(text.splitlines()))
        wanted = [row for row in rows if row[column] in (*files, "meta-llama/Llama-3.1-8B-Instruct")]
        with (root / "models" / table).open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, rows[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows(wanted)
    return root


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small Llama."""
    return write_checkpoint(tmp_path / "checkpoint", LLAMA)


def snapshot(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def run(*arguments: object) -> str:
    result = CliRunner().invoke(APP, ["catalog", "add-model", *map(str, arguments)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def refused(*arguments: object) -> str:
    with pytest.raises(InputError) as caught:
        run(*arguments)
    return str(caught.value)


def named(root: Path, *more: object) -> tuple[object, ...]:
    return ("--catalog", root, "--name", "acme/small", "--source", "https://acme.example/small", *more)


def test_without_apply_nothing_is_written(root, folder):
    before = snapshot(root)
    text = run(folder, "--catalog", root, "--name", "acme/small")
    assert snapshot(root) == before
    assert "acme/small: LlamaForCausalLM, model type llama, GQA" in text
    assert f"{LLAMA_PARAMETERS:,} parameters" in text
    assert "Would be written with --apply" in text
    assert "Needs --source" in text
    assert "--replace" not in text


def test_what_is_shown_can_be_computed_by_hand(root, folder):
    """2 layers x 2 heads x 32 x 2 x 2 bytes = 512 bytes a token; heads of 8, KV heads of 2, width 512, 1024 rows."""
    data = json.loads(run(folder, "--json", *named(root)))
    assert (data["state"], data["written"], data["needs_replace"], data["needs_source"]) == ("new", False, False, False)
    assert (data["family"], data["parameters"], data["max_position"]) == ("GQA", LLAMA_PARAMETERS, 4096)
    assert data["bytes_per_token"] == {"bf16": 512, "fp8": 256}
    assert data["state_bytes_per_sequence"] == {}
    assert data["weights"][0] == {
        "dtype": "bf16", "bytes": 2 * LLAMA_PARAMETERS, "own": True, "origin": "computed",
        "basis": "layers of the config, as the checkpoint's format stores them",
    }  # fmt: skip
    assert all(line["origin"] == "guess" for line in data["weights"][1:])
    degrees = {row["tp"]: row for row in data["tensor_parallel"]}
    assert [tp for tp, row in degrees.items() if row["divides"]] == [1, 2, 4, 8]
    assert [degrees[tp]["bytes_per_token"] for tp in (1, 2, 4, 8)] == [512, 256, 256, 256]
    assert [degrees[tp]["replicated"] for tp in (1, 2, 4, 8)] == [False, False, True, True]
    assert any("attention heads (8)" in text for text in degrees[16]["refusals"])
    engines = {row["engine"]: row for row in data["engines"]}
    assert engines["vllm"]["supported"]
    assert "0.11.0 or newer" in engines["vllm"]["text"]


def test_files_of_weights_make_the_bytes_exact(root, folder):
    shape = load_catalog(root).model_shape(str(folder))
    size = write_weights(folder / "model.safetensors", tensors_of(shape))
    assert size == 2 * LLAMA_PARAMETERS
    data = json.loads(run(folder, "--json", *named(root)))
    own = data["weights"][0]
    assert (own["bytes"], own["origin"], own["basis"]) == (size, "measured", "headers of model.safetensors")
    assert data["stored_bytes_by_dtype"] == {"BF16": size}
    assert f"files hold {size:,} (+0.00%)" in data["notes"][-1]
    assert data["rows"][0]["notes"] == f"verbatim; weights {size:,} bytes (headers of model.safetensors)"
    write_weights(folder / "model.safetensors", {**tensors_of(shape), "mtp": ("BF16", [1000, 1000])})
    assert "compare before signing" in json.loads(run(folder, "--json", *named(root)))["notes"][-1]


def test_applied_it_can_be_sized_and_the_same_again_changes_nothing(root, folder, monkeypatch):
    before = snapshot(root)
    text = run(folder, "--apply", "--as-of", "2026-11-30", *named(root))
    after = snapshot(root)
    assert text.count("Written: ") == 2
    assert after.keys() - before.keys() == {"models/acme--small.json"}
    assert after["models/acme--small.json"] == (folder / "config.json").read_bytes()
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"models/sources.csv"}
    new = set(after["models/sources.csv"].splitlines()) - set(before["models/sources.csv"].splitlines())
    assert new == {b"acme--small.json,acme/small,https://acme.example/small,,2026-11-30,verbatim"}
    assert len(after["models/sources.csv"].splitlines()) == len(before["models/sources.csv"].splitlines()) + 1
    for again in (("--apply",), ("--apply", "--replace"), ("--apply", "--as-of", "2026-11-30"), ()):
        assert "nothing changes" in run(folder, *again, *named(root))
        assert snapshot(root) == after
    sized = run_planner(
        "size", "acme/small", "--gpu", "H100-SXM", "--json", cwd=root, env={"PLANNER_CATALOGS": str(root)}
    )
    assert sized.returncode == 0, sized.stderr
    assert json.loads(sized.stdout)["bytes_per_token"] == 512


def test_an_added_model_can_be_planned(root, folder, tmp_path):
    real = json.loads((default_root() / "models" / KEPT).read_text(encoding="utf-8"))
    write_checkpoint(folder, {**real, "num_hidden_layers": 30})
    run(folder, "--apply", *named(root))
    shutil.copy(EXAMPLE / "traffic" / "AzureLLMInferenceTrace_conv.csv", tmp_path / "log.csv")
    (tmp_path / "quarter.toml").write_text(SMALL.replace("meta-llama/Llama-3.1-8B-Instruct", "acme/small"))
    ended = run_planner(
        "plan", "quarter.toml", "-o", "out", "--format", "json", "--now", NOW, cwd=tmp_path,
        env={"PLANNER_CATALOGS": str(root)},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    plan = json.loads((tmp_path / "out" / "plan.json").read_text())
    assert plan["pools"][0]["weights"] == "acme/small"
    price, fact = plan["oldest"]
    bought = min((p["price_as_of"], p["offer_id"]) for p in plan["purchases"])
    assert (price["kind"], price["as_of"], price["what"]) == ("price", *bought)
    assert (fact["kind"], fact["as_of"], fact["age_days"]) == ("engine fact", "2026-10-01", 60)
    assert fact["what"].startswith("vllm 0.19.0: ")
    assert fact["source"]


def test_another_content_is_shown_as_a_diff_and_needs_replace(root, folder):
    run(folder, "--apply", *named(root))
    before = snapshot(root)
    write_checkpoint(folder, {**LLAMA, "num_hidden_layers": 3})
    shown = run(folder, *named(root))
    assert '-  "num_hidden_layers": 2,' in shown
    assert '+  "num_hidden_layers": 3,' in shown
    assert "Would be written with --apply --replace" in shown
    text = refused(folder, "--apply", *named(root))
    assert "is in the catalogue and differs" in text
    assert '+  "num_hidden_layers": 3,' in text
    assert snapshot(root) == before
    run(folder, "--apply", "--replace", *named(root))
    assert load_catalog(root).model_shape("acme/small").num_layers == 3
    assert "nothing changes" in run(folder, "--apply", *named(root))


def test_another_layout_or_letter_case_is_the_same_entry(root, folder):
    run(folder, "--apply", *named(root))
    before = snapshot(root)
    (folder / "config.json").write_text(json.dumps(dict(reversed(LLAMA.items())), indent=7))
    text = run(folder, "--apply", "--catalog", root, "--name", "ACME/Small")
    assert "nothing changes" in text
    assert snapshot(root) == before


def test_a_later_reading_renews_the_date_where_it_is_stated(root, folder):
    run(folder, "--apply", "--as-of", "2026-11-01", *named(root))
    assert "nothing changes" in run(folder, "--apply", *named(root)), "no date is stated"
    assert "differs" in refused(folder, "--apply", "--as-of", "2026-12-01", *named(root))
    run(folder, "--apply", "--replace", "--as-of", "2026-12-01", *named(root))
    row = load_catalog(root).model_sources["acme/small"]
    assert (row.as_of, row.source, row.notes) == (TODAY, "https://acme.example/small", "verbatim")


def test_a_companion_is_added_and_taken_away_with_its_row(root, folder):
    write_checkpoint(
        folder, LLAMA, hf_quant_config={"quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}}
    )
    run(folder, "--apply", *named(root))
    catalog = load_catalog(root)
    assert catalog.quant_sources["acme/small"].file == "quant/acme--small.json"
    assert catalog.model_shape("acme/small").native_weight_dtype == "fp8"
    rows = [row.split(",")[0] for row in (root / "models" / "sources.csv").read_text().splitlines()[1:]]
    assert rows == sorted(rows, key=lambda name: (name.startswith("quant/"), name.casefold()))
    (folder / "hf_quant_config.json").unlink()
    assert "differs" in refused(folder, "--apply", *named(root))
    run(folder, "--apply", "--replace", *named(root))
    assert not (root / "models" / "quant" / "acme--small.json").exists()
    assert load_catalog(root).model_shape("acme/small").native_weight_dtype == "bf16"


def test_a_model_takes_the_place_of_an_alias(root, folder):
    alias = next(iter(load_catalog(root).aliases))
    stated = ("--catalog", root, "--name", alias, "--source", "s")
    assert "differs" in refused(folder, "--apply", *stated)
    run(folder, "--apply", "--replace", *stated)
    catalog = load_catalog(root)
    assert alias not in catalog.aliases
    assert catalog.model_shape(alias).num_layers == 2


def test_other_lines_of_the_table_stay_as_they_are(root, folder):
    path = root / "models" / "sources.csv"
    lines = path.read_bytes().replace(b"\n", b"\r\n").rstrip(b"\r\n")
    path.write_bytes(b"\xef\xbb\xbf" + lines)
    run(folder, "--apply", "--as-of", "2026-11-30", *named(root))
    text = path.read_bytes()
    assert text.startswith(b"\xef\xbb\xbffile,")
    assert text.count(b"\n") == text.count(b"\r\n") == lines.count(b"\r\n") + 2
    assert set(lines.splitlines()[1:]) <= set(text.splitlines())


@pytest.mark.parametrize("step", ["_replace", "_stage", "verify"])
def test_where_writing_fails_everything_is_as_it_was(root, folder, monkeypatch, step):
    before = snapshot(root)
    original, calls = getattr(file_changes, step, None), []

    def failing(*arguments):
        calls.append(arguments)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        return original(*arguments)

    def bad(*_):
        raise InputError([])

    if step == "verify":
        monkeypatch.setattr("planner.cli.catalog_add_model._verify", bad)
    else:
        monkeypatch.setattr(file_changes, step, failing)
    with pytest.raises(InputError):
        run(folder, "--apply", *named(root))
    monkeypatch.undo()
    assert snapshot(root) == before


def test_a_table_that_changes_meanwhile_is_not_overwritten(root, folder):
    addition = addition_of(load_catalog(root), read_checkpoint(folder), Stated("acme/small", "s"), TODAY)
    table = root / "models" / "sources.csv"
    table.write_text(table.read_text() + "\n")
    before = snapshot(root)
    with pytest.raises(InputError, match="has changed meanwhile"):
        file_changes.apply_changes(addition.changes, lambda: None)
    assert addition.state is State.NEW
    assert snapshot(root) == before


def test_nothing_is_written_through_links(root, folder, tmp_path):
    victim = tmp_path / "victim.json"
    victim.write_text("{}")
    (root / "models" / "acme--small.json").symlink_to(victim)
    assert refused(folder, "--apply", *named(root))
    (root / "models" / "acme--small.json").unlink()
    shutil.move(root / "models" / "sources.csv", tmp_path / "sources.csv")
    (root / "models" / "sources.csv").symlink_to(tmp_path / "sources.csv")
    assert "is reached through a link" in refused(folder, "--apply", *named(root))
    assert victim.read_text() == "{}"


@pytest.mark.parametrize("name", ["../../evil", "/etc/passwd", "a/../b", "a--b/c", "gpt2", "a/b\n", ""])
def test_names_that_leave_the_folder_are_refused(root, folder, name):
    before = snapshot(root.parent)
    assert refused(folder, "--apply", "--catalog", root, "--name", name, "--source", "s")
    assert snapshot(root.parent) == before


@pytest.mark.parametrize("source", ["=HYPERLINK(1)", "a\nb", "x" * 501, "@x", "\x1b[31m"])
def test_a_source_must_fit_a_table(root, folder, source):
    assert "--source" in refused(folder, "--apply", "--catalog", root, "--name", "acme/small", "--source", source)


def test_a_source_is_needed(root, folder):
    assert "nothing says where the config was read" in refused(
        folder, "--apply", "--catalog", root, "--name", "acme/small"
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "martian"}, ["model type 'martian' is not supported", "supported types"]),
        ({"model_type": "bert"}, ["an encoder keeps no KV cache"]),
        ({"model_type": None}, ["is not supported"]),
        ({"num_hidden_layers": None}, ["num_hidden_layers", "is missing"]),
        ({"num_attention_heads": -8}, ["num_attention_heads"]),
        ({"hidden_size": float("nan")}, ["hidden_size"]),
        ({"hidden_size": 10**30}, ["hidden_size"]),
        ({"vocab_size": "many"}, ["vocab_size"]),
        ({"num_hidden_layers": None, "vocab_size": None}, ["num_hidden_layers", "vocab_size"]),
        ({"architectures": "Llama"}, ["architectures"]),
        ({"quantization_config": []}, ["quantization_config"]),
        ({"num_key_value_heads": 3}, ["num_key_value_heads"]),
    ],
)
def test_what_cannot_be_sized_is_refused_with_what_is_missing(root, folder, changes, words):
    config = {key: value for key, value in {**LLAMA, **changes}.items() if value is not None}
    write_checkpoint(folder, config)
    before = snapshot(root)
    text = refused(folder, "--apply", *named(root))
    assert all(word in text for word in words)
    assert snapshot(root) == before


def test_sizes_that_leave_a_matrix_empty_are_refused(root, folder):
    real = json.loads((default_root() / "models" / "deepseek-ai--DeepSeek-V4-Flash.json").read_text(encoding="utf-8"))
    write_checkpoint(folder, {**real, "o_groups": 2**31 - 1})
    assert "its sizes leave no rows or columns of attn.wo_a" in refused(folder, *named(root))


def test_a_format_that_is_not_modelled_is_said(root, folder):
    write_checkpoint(folder, {**LLAMA, "quantization_config": {"quant_method": "aqlm"}})
    data = json.loads(run(folder, "--json", *named(root)))
    assert any("not modelled" in note for note in data["notes"])
    assert not any(line["own"] for line in data["weights"])


def test_the_end_at_the_keyboard(root, folder):
    """Exit code 2 and no traceback; an id is never looked up without --online."""
    ended = run_planner("catalog", "add-model", "acme/nowhere", cwd=root)
    assert ended.returncode == 2
    assert "To read it from the Hugging Face Hub, add --online" in ended.stderr
    for odd in ("x" * 5000, "a\x00b", ""):
        ended = run_planner("catalog", "add-model", odd, cwd=folder.parent)
        assert ended.returncode == 2, ended.stderr
        assert "internal error" not in ended.stderr
    ended = run_planner("catalog", "add-model", str(folder), "--catalog", str(root), cwd=root)
    assert "nothing says which model this is. Say --name ORG/NAME" in ended.stderr


def test_a_folder_of_offers_alone_holds_no_models(root, folder, tmp_path):
    own = tmp_path / "own"
    shutil.copytree(root / "offers", own / "offers")
    assert "holds offers only" in refused(folder, "--apply", *named(own))
    assert [path.name for path in own.iterdir()] == ["offers"]


def test_the_folder_of_an_installed_package_is_not_written_to(root, folder, tmp_path, monkeypatch):
    package = tmp_path / "_catalogs"
    os.rename(root, package)
    monkeypatch.setattr("planner.cli.catalog_add_model.shipped_root", lambda: package)
    before = snapshot(package)
    assert "is part of the installed package" in refused(folder, "--apply", *named(package))
    assert snapshot(package) == before
    assert "Would be written" in run(folder, *named(package))
