"""Folders of checkpoints: companions, weights, the Hub's cache, and files that are not what they should be."""

from __future__ import annotations

import json
import os

import pytest

from planner.catalog.checkpoint import read_checkpoint
from planner.catalog.model_name import file_name, model_name, name_from_path
from planner.catalog.untrusted_json import MOST_BYTES, same_meaning
from planner.errors import InputError
from tests.catalog.adding.checkpoints import LLAMA, write_checkpoint, write_weights

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def problems_of(path) -> str:
    with pytest.raises(InputError) as caught:
        read_checkpoint(path)
    assert all(len(str(problem)) < 600 for problem in caught.value.problems)
    return str(caught.value)


def test_a_folder_with_all_companions(tmp_path):
    quant = {"quantization": {"quant_algo": "FP8"}}
    write_checkpoint(tmp_path, LLAMA, hf_quant_config=quant)
    size = write_weights(tmp_path / "model.safetensors", {"w": ("BF16", [3, 5])})
    found = read_checkpoint(tmp_path)
    assert (found.config, found.companion, found.note) == (LLAMA, quant, "verbatim")
    assert found.weights is not None
    assert (found.weights.total_bytes, found.weights.by_dtype) == (size, {"BF16": 30})
    assert (found.name, found.source, found.commit, found.remarks) == ("", "", "", ())


def test_the_text_is_kept_as_it_is(tmp_path):
    text = b'\xef\xbb\xbf{"model_type":"llama",   "x": Infinity}'
    (tmp_path / "config.json").write_bytes(text)
    found = read_checkpoint(tmp_path / "config.json")
    assert found.config_text == text
    assert found.config["x"] == float("inf")


def test_shards_that_are_all_there_count_by_their_headers(tmp_path):
    write_checkpoint(tmp_path, LLAMA)
    names = [f"model-0000{n}-of-00002.safetensors" for n in (1, 2)]
    sizes = [write_weights(tmp_path / name, {name: ("F16", [n, 100])}) for n, name in enumerate(names, start=1)]
    index = {"metadata": {"total_size": sum(sizes)}, "weight_map": dict(zip("ab", names, strict=True))}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    found = read_checkpoint(tmp_path)
    assert found.weights is not None
    assert (found.weights.total_bytes, found.weights.source, found.remarks) == (600, "headers of 2 files", ())
    index["metadata"]["total_size"] = 1000
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    again = read_checkpoint(tmp_path)
    assert again.weights == found.weights
    assert "states 1,000 bytes, the files hold 600" in again.remarks[0]
    (tmp_path / names[1]).unlink()
    partly = read_checkpoint(tmp_path)
    assert partly.weights is not None
    assert (partly.weights.total_bytes, dict(partly.weights.by_dtype)) == (1000, {})
    assert "1 of 2 files of weights are not there" in partly.remarks[0]


def test_a_second_copy_of_the_weights_is_not_counted(tmp_path):
    """Mistral's repositories hold ``consolidated.safetensors`` beside the same weights in other files."""
    write_checkpoint(tmp_path, LLAMA)
    write_weights(tmp_path / "consolidated.safetensors", {"w": ("BF16", [10])})
    write_weights(tmp_path / "model.safetensors", {"w": ("BF16", [10])})
    found = read_checkpoint(tmp_path)
    assert found.weights is not None
    assert found.weights.total_bytes == 20


@pytest.mark.parametrize(
    ("name", "stated", "method"),
    [
        ("quantize_config", {"bits": 4, "group_size": 128, "desc_act": False}, "gptq"),
        ("quant_config", {"w_bit": 4, "q_group_size": 128, "zero_point": True}, "awq"),
        ("quantize_config", {"quant_method": "awq", "bits": 4}, "awq"),
    ],
)
def test_an_older_companion_becomes_the_quantisation_of_the_config(tmp_path, name, stated, method):
    found = read_checkpoint(write_checkpoint(tmp_path, LLAMA, **{name: stated}))
    assert found.config == {**LLAMA, "quantization_config": {"quant_method": method, **stated}}
    assert found.note == f"verbatim; quantization_config from {name}.json"


def test_a_config_that_names_its_quantisation_goes_before_an_older_companion(tmp_path):
    config = {**LLAMA, "quantization_config": {"quant_method": "gptq", "bits": 8}}
    assert read_checkpoint(write_checkpoint(tmp_path, config, quantize_config={"bits": 4})).config == config


def test_the_cache_of_the_hub_states_name_and_commit_through_its_links(tmp_path):
    blobs, snapshot = tmp_path / "blobs", tmp_path / "models--acme--small-1b" / "snapshots" / COMMIT
    write_checkpoint(blobs, LLAMA)
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").symlink_to(blobs / "config.json")
    found = read_checkpoint(snapshot)
    assert (found.name, found.commit) == ("acme/small-1b", COMMIT)
    assert found.source == f"https://huggingface.co/acme/small-1b/blob/{COMMIT}/config.json"
    assert name_from_path(tmp_path / "elsewhere" / "acme--x.json") == ("acme/x", "")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"[]", "holds a list"),
        (b'"x"', "holds no object"),
        (b"", "is not JSON"),
        (b"{", "is not JSON"),
        (b"\xff\xfe{}", "is not JSON"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b'{"a": 1' + b"0" * 5000 + b"}", "a number of thousands of digits"),
        (b'{"hidden_size": 1, "hidden_size": 2}', "the key 'hidden_size' occurs twice"),
        (b'{"text_config": {"x": 1, "x": 1}}', "the key 'x' occurs twice"),
        (b" " * (MOST_BYTES + 1), "is longer than 16,777,216 bytes"),
    ],
)
def test_hostile_configs_are_refused(tmp_path, text, words):
    (tmp_path / "config.json").write_bytes(text)
    assert words in problems_of(tmp_path)


def test_every_bad_file_is_named_at_once(tmp_path):
    (tmp_path / "config.json").write_bytes(b"[]")
    (tmp_path / "hf_quant_config.json").write_bytes(b"{")
    (tmp_path / "model.safetensors").write_bytes(b"short")
    with pytest.raises(InputError) as caught:
        read_checkpoint(tmp_path)
    assert len(caught.value.problems) == 3


def test_folders_and_files_that_are_none(tmp_path):
    assert "holds no config.json" in problems_of(tmp_path)
    assert "no such file" in problems_of(tmp_path / "nothing.json")
    assert "no such file" in problems_of(tmp_path / "x" / "config.json")
    (tmp_path / "config.json").symlink_to(tmp_path / "config.json")
    assert problems_of(tmp_path)
    os.mkfifo(tmp_path / "pipe.json")
    assert "is no regular file" in problems_of(tmp_path / "pipe.json")
    assert "is no regular file" in problems_of(tmp_path / ".." / tmp_path.name / "pipe.json")


def test_truncated_weights_are_refused(tmp_path):
    write_checkpoint(tmp_path, LLAMA)
    path = tmp_path / "model.safetensors"
    write_weights(path, {"w": ("BF16", [1000])})
    os.truncate(path, path.stat().st_size - 1)
    assert "describes 2,000 bytes of tensors and has 1,999" in problems_of(tmp_path)


@pytest.mark.parametrize(
    "name", ["Qwen/Qwen3-8B", "a/b", "01-ai/Yi-34B", "x_y/z.1-2_3", "_a/b_", f"{'o' * 96}/{'n' * 96}"]
)
def test_names_of_models(name):
    assert model_name(name, "--name") == name
    assert file_name(name) == f"{name.replace('/', '--')}.json"


@pytest.mark.parametrize(
    "name",
    [
        "", "gpt2", "../etc/passwd", "../x", "a/..", "a/../b", "/etc/passwd", "a/b/c", "a//b", "a/.b", ".a/b", "a/b.",
        "a/b-", "-a/b", "a--b/c", "a/b--c", "a/b..c", "a/b.git", "a/b c", "a/b\n", "a\x00/b", "a\\b/c", "ä/b", "a/🤗",
        f"{'o' * 97}/n", "CON:/x", "a/b?c", "a/b#c", "a/%2e%2e",
    ],
)  # fmt: skip
def test_names_that_are_none(name):
    with pytest.raises(InputError, match="is no name of a model"):
        model_name(name, "--name")


def test_objects_of_one_meaning():
    assert same_meaning({"a": 1, "b": float("nan")}, {"b": float("nan"), "a": 1})
    assert not same_meaning({"a": 1}, {"a": True})
