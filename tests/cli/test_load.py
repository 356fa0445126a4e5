"""`planner load`: its figures, its JSON, its defaults, and its refusals."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from planner.cli import main
from tests.traffic.histograms.engine import answer as prometheus_answer
from tests.traffic.histograms.test_engines import vllm

TRACES = Path(__file__).parents[2] / "catalogs" / "example" / "traffic"
CONV = str(TRACES / "AzureLLMInferenceTrace_conv.csv")
ASKED = ("--decode-rate", "40", "--prefill", "0.2")


def run(monkeypatch, capsys, *arguments: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["planner", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    printed = capsys.readouterr()
    return int(caught.value.code or 0), printed.out, printed.err


@pytest.fixture
def answer(monkeypatch, capsys):
    def ask(*arguments: str) -> dict:
        code, out, err = run(monkeypatch, capsys, "load", *arguments, "--json")
        assert (code, err) == (0, "")
        return json.loads(out)

    return ask


@pytest.fixture(scope="module")
def two_models(tmp_path_factory) -> Path:
    rng = np.random.default_rng(0)
    rows = [
        f"{1_700_000_000 + t:.3f},{p},{o},{model}\n"
        for model, p, o in (("a", 1000, 100), ("b", 200, 400))
        for t in np.sort(rng.uniform(0, 1800, 3000))
    ]
    path = tmp_path_factory.mktemp("log") / "log.csv"
    path.write_text("timestamp,prompt,output,model\n" + "".join(rows))
    return path


def test_every_figure_is_there(answer):
    found = answer(CONV, *ASKED, "--overflow", "0.01", "--replicas", "4")
    keys = {"model", "rate_per_s", "mean_tokens", "quantile_tokens", "dispersion", "live_requests",
            "mean_formula_tokens", "overflow", "replicas"}  # fmt: skip
    assert keys <= found.keys()
    assert (found["replicas"], found["overflow"], found["figures_are_of"]) == (4, 0.01, "one replica")
    assert found["rate_per_s"] == pytest.approx(5.53, abs=0.01)
    assert found["rate_per_replica_per_s"] == pytest.approx(found["rate_per_s"] / 4)
    assert found["mean_tokens"] < found["quantile_tokens"] < found["stress"]["quantile_tokens"]
    assert 0.9 < found["mean_over_formula"] < 1.1
    assert 3 < found["dispersion"]["idc"] < 6
    assert found["dispersion"]["idc_of_a_replica"] == pytest.approx(1 + (found["dispersion"]["idc"] - 1) / 4)
    assert found["stretch"]["whole_log"]
    assert found["couplings"] == {}


def test_the_same_from_the_canonical_folder(monkeypatch, capsys, answer, tmp_path):
    folder = tmp_path / "canonical"
    assert run(monkeypatch, capsys, "ingest", CONV, "-o", str(folder))[0] == 0
    raw, canonical = answer(CONV, *ASKED), answer("--traffic", str(folder), *ASKED)
    assert raw == canonical


def test_stated_rate_burst_and_doubt_leave_nothing_to_the_log(answer):
    found = answer(CONV, *ASKED, "--rate", "8", "--idc", "1", "--rate-cv", "0")
    assert found["rate_per_s"] == 8
    assert (found["dispersion"]["idc"], found["dispersion"]["stated"], found["dispersion"]["rate_cv"]) == (1, True, 0)
    burstier = answer(CONV, *ASKED, "--rate", "8", "--idc", "4", "--rate-cv", "0", "--routing", "affinity")
    assert burstier["quantile_tokens"] > found["quantile_tokens"]


def test_options_of_the_footprint_lower_it(answer):
    plain = answer(CONV, *ASKED)
    for options in (
        ("--sliding-window", "512", "--sliding-share", "0.8", "--chunk-tokens", "512"),
        ("--chunk-tokens", "256"), ("--max-model-len", "2048"), ("--shared-prefix-tokens", "128"),
        ("--block-tokens", "1"),
    ):  # fmt: skip
        assert answer(CONV, *ASKED, *options)["mean_tokens"] < plain["mean_tokens"]
    assert answer(CONV, *ASKED, "--max-model-len", "2048")["refused_share"] > 0.01
    assert answer(CONV, *ASKED, "--block-tokens", "1056")["mean_tokens"] > 1.2 * plain["mean_tokens"]


def test_a_model_must_be_named_where_there_are_two(monkeypatch, capsys, answer, two_models):
    code, _, err = run(monkeypatch, capsys, "load", str(two_models), *ASKED)
    assert code == 2
    assert "holds several models" in err
    assert "a, b" in err
    found = answer(str(two_models), *ASKED, "--model", "b")
    assert (found["model"], found["mean_prompt_tokens"]) == ("b", 200)


def test_text_says_what_was_assumed(monkeypatch, capsys):
    code, out, _ = run(monkeypatch, capsys, "load", CONV, *ASKED, "--replicas", "2")
    assert code == 0
    for words in ("live tokens, mean", "the same at 1.2 times the rate", "product of means", "the whole log",
                  "finds its replica at random", "coefficient of variation", "one of 2"):  # fmt: skip
        assert words in out


def test_every_problem_at_once(monkeypatch, capsys):
    code, out, err = run(
        monkeypatch, capsys, "load", CONV, "--traffic", CONV, "--decode-rate", "-1", "--overflow", "1", "--replicas",
        "0", "--sliding-share", "2", "--block-tokens", "0", "--rate", "nan", "--rate-cv", "9", "--max-model-len", "0",
    )  # fmt: skip
    assert (code, out) == (2, "")
    for name in ("DIR", "--decode-rate", "--prefill", "--overflow", "--replicas", "--sliding-share", "--block-tokens",
                 "--rate", "--rate-cv", "--max-model-len"):  # fmt: skip
        assert f"\n{name}: " in err
    assert "9 problem" in err or "10 problem" in err


@pytest.mark.parametrize("options", [("--sliding-window", "128"), ("--sliding-share", "0.5"), ("--idc", "0.5"),
                                     ("--coupling", "comonotone"), ("--max-model-len", "1")])  # fmt: skip
def test_refusals_are_no_tracebacks(monkeypatch, capsys, options):
    code, out, err = run(monkeypatch, capsys, "load", CONV, *ASKED, *options)
    assert (code, out) == (2, "")
    assert "cannot be used" in err
    assert "Traceback" not in err


def test_a_log_too_short_for_bursts_names_the_option(monkeypatch, capsys, answer, tmp_path):
    log = tmp_path / "log.csv"
    log.write_text("timestamp,prompt,output\n" + "".join(f"{1_700_000_000 + 60 * i},9,1\n" for i in range(5)))
    code, _, err = run(monkeypatch, capsys, "load", str(log), *ASKED)
    assert code == 2
    assert "--idc 3" in err
    assert answer(str(log), *ASKED, "--idc", "2")["dispersion"]["idc"] == 2


def test_metrics_give_both_couplings(answer, tmp_path):
    path = tmp_path / "vllm.json"
    path.write_text(json.dumps(prometheus_answer(vllm())))
    plain = answer(str(path), *ASKED, "--idc", "2")
    found = plain["couplings"]
    assert set(found) == {"comonotone", "countermonotone"}
    assert found["countermonotone"]["mean_tokens"] < found["comonotone"]["mean_tokens"]
    assert plain["mean_tokens"] == found["comonotone"]["mean_tokens"], "the larger one is planned for"
    other = answer(str(path), *ASKED, "--idc", "2", "--coupling", "countermonotone")
    assert other["mean_tokens"] == found["countermonotone"]["mean_tokens"]
