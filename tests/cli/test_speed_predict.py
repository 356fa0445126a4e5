"""`planner speed predict`: one deployment under a load."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

LLAMA = ("meta-llama/Llama-3.1-8B-Instruct", "--gpu", "H100-SXM", "--input", "1024", "--output", "512")


@pytest.fixture
def predict(planner: Any) -> Any:
    return partial(planner, "speed", "predict")


@pytest.fixture
def data(predict: Any) -> Any:
    def data(*options: str) -> dict[str, Any]:
        code, printed, err = predict(*options, "--json")
        assert (code, err) == (0, "")
        found: dict[str, Any] = json.loads(printed)
        return found

    return data


def test_figures_come_with_band_and_source(predict: Any) -> None:
    code, printed, err = predict(*LLAMA, "--batch", "16")
    assert (code, err) == (0, "")
    for word in ("TPOT ms", "TTFT ms", " to ", "Source: roofline", "reading weights", "prompts of other requests"):
        assert word in printed
    assert "Note: KV cache assumed bf16" in printed


def test_a_guess_says_so(predict: Any) -> None:
    _, printed, _ = predict(
        "mistralai/Mistral-7B-v0.1", "--gpu", "A10G", "--batch", "1", "--input", "9", "--output", "9"
    )
    assert "guess" in printed


def test_several_batches_make_a_table(data: Any) -> None:
    found = data(*LLAMA, "--batch", "1", "--batch", "16", "--batch", "128")
    tpots = [point["tpot_ms"]["value"] for point in found["points"]]
    assert tpots == sorted(tpots)
    assert [point["load"]["concurrency"] for point in found["points"]] == [1, 16, 128]
    one = data(*LLAMA, "--batch", "16")
    assert one["points"] == found["points"][1:2]


def test_json_is_stable(data: Any) -> None:
    found = data(*LLAMA, "--batch", "16")
    assert list(found) == [
        "model", "gpu", "engine", "engine_version", "tp", "pp", "ep", "attention_dp", "weights", "kv", "provider",
        "source", "notes", "points",
    ]  # fmt: skip
    (point,) = found["points"]
    assert list(point) == [
        "load", "tpot_ms", "ttft_ms", "decode_tok_s", "output_tok_s", "total_tok_s", "concurrency", "reason", "step",
    ]  # fmt: skip
    assert point["decode_tok_s"]["value"] == pytest.approx(1000 / point["tpot_ms"]["value"])
    assert point["decode_tok_s"]["low"] == pytest.approx(1000 / point["tpot_ms"]["high"])
    assert data(*LLAMA, "--batch", "16") == found


def test_arrivals_are_served_as_asked(data: Any) -> None:
    (point,) = data(*LLAMA, "--rate", "2")["points"]
    assert point["output_tok_s"] == {"value": 1024, "low": 1024, "high": 1024}
    assert 1 < point["concurrency"] < 100


def test_max_load_is_faster_than_any_batch(data: Any) -> None:
    (full,) = data(*LLAMA, "--max-load")["points"]
    (some,) = data(*LLAMA, "--batch", "16")["points"]
    assert full["output_tok_s"]["value"] > some["output_tok_s"]["value"]
    assert full["ttft_ms"] is None
    assert "queue" in full["reason"]


def test_cached_prompts_answer_sooner(data: Any) -> None:
    plain, cached = (data(*LLAMA, "--batch", "16", "--cached-share", share)["points"][0] for share in ("0", "0.9"))
    assert cached["ttft_ms"]["value"] < plain["ttft_ms"]["value"]
    quick = data(*LLAMA, "--batch", "16", "--acceptance", "2")["points"][0]
    assert quick["tpot_ms"]["value"] < 0.7 * plain["tpot_ms"]["value"]


def test_formats_and_engines(data: Any) -> None:
    found = data(*LLAMA, "--batch", "1", "--weights", "fp8", "--kv", "fp8", "--engine", "trtllm", "--version", "1.2")
    assert (found["weights"], found["kv"], found["engine"], found["engine_version"]) == ("fp8", "fp8", "trtllm", "1.2")
    plain = data(*LLAMA, "--batch", "1")
    assert plain["engine_version"]
    assert found["points"][0]["tpot_ms"]["value"] < plain["points"][0]["tpot_ms"]["value"]


def test_names_as_tables_write_them(data: Any) -> None:
    found = data("Mixtral-8x7B", "--gpu", "a100_sxm", "--tp", "2", "--batch", "4", "--input", "100", "--output", "100")
    assert found["gpu"] == "A100-80GB-SXM"
    assert any("is read as" in note for note in found["notes"])


def test_measured_points_correct_it(data: Any, tmp_path: Path) -> None:
    points = tmp_path / "points.csv"
    points.write_text(
        "engine,version,model,gpu,tp,weight_dtype,kv_dtype,load,input_tokens,output_tokens,concurrency,tpot_p50_ms\n"
        "vllm,0.19.0,meta-llama/Llama-3.1-8B-Instruct,H100-SXM,1,bf16,bf16,closed loop,1024,512,16,14\n"
    )
    found = data(*LLAMA, "--batch", "16", "--version", "0.19.0", "--calibrate-with", str(points))
    assert found["provider"] == "measured point"
    assert found["points"][0]["tpot_ms"]["value"] == pytest.approx(14, rel=0.15)


def test_what_the_engine_would_refuse_is_said(data: Any) -> None:
    plain = data(*LLAMA, "--batch", "1")
    assert not any("would not start" in note for note in plain["notes"])
    refused = data(*LLAMA, "--batch", "1", "--weights", "nvfp4", "--tp", "3")
    assert any("would not start" in note for note in refused["notes"])


def test_more_requests_than_the_cache_holds_wait(data: Any) -> None:
    few, many = (data(*LLAMA, "--batch", batch)["notes"] for batch in ("1", "5000"))
    assert not any("others wait" in note for note in few)
    assert any("of 5,000 requests at once: the others wait" in note for note in many)


def test_every_problem_is_told_at_once(predict: Any) -> None:
    code, _, err = predict("no/such", "--gpu", "B60", "--tp", "0", "--rate", "-1", "--input", "0", "--output", "nan")
    assert code == 2
    for word in ("MODEL", "--gpu", "--tp", "--rate", "--input", "--output"):
        assert word in err


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ((), "one of them is needed"),
        (("--batch", "1", "--rate", "2"), "only one of them"),
        (("--batch", "1", "--max-load"), "only one of them"),
        (("--batch", "0"), "--batch: must be above 0"),
        (("--batch", "inf"), "--batch: must be above 0"),
        (("--batch", "1", "--cached-share", "2"), "--cached-share"),
        (("--batch", "1", "--acceptance", "0"), "--acceptance"),
        (("--batch", "1", "--attention-dp", "2"), "must divide --tp 1"),
    ],
)
def test_options_that_cannot_be(predict: Any, options: tuple[str, ...], problem: str) -> None:
    code, _, err = predict(*LLAMA, *options)
    assert code == 2
    assert problem in err


def test_what_does_not_fit_is_bad_input(predict: Any) -> None:
    code, _, err = predict("deepseek-ai/DeepSeek-R1", "--gpu", "L4", "--batch", "1", "--input", "10", "--output", "10")
    assert code == 2
    assert "deepseek-ai/DeepSeek-R1 on 1 x L4: does not fit" in err
