"""`planner replay` at the keyboard."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOGS = ROOT / "catalogs" / "example" / "traffic"
MODEL = "chat-large"
CONV = ("--traffic", f"{LOGS / 'AzureLLMInferenceTrace_conv.csv'}={MODEL}")


def test_the_command(planner):
    arguments = ("replay", str(ROOT / "reports" / "example"), "--traffic",
                 f"{LOGS / 'AzureLLMInferenceTrace_conv.csv'}={MODEL}", "--hours", "0.1", "--repeat", "2")  # fmt: skip
    code, out, err = planner(*arguments)
    assert (code, err) == (0, "")
    assert "every promise stands" in out
    assert "Not replayed" in out
    code, first, _ = planner(*arguments, "--json")
    _, second, _ = planner(*arguments, "--json")
    assert first == second
    told = json.loads(first)
    assert told["passed"] is True
    assert {"constraint", "planned", "observed", "interval", "limit", "passed", "unit"} == set(
        told["pools"][0]["promises"][0]
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "one of the two is needed"),
        (("--traffic", "x.csv=nobody"), "the plan has no model"),
        (("--part", "1:0"), "is no stretch"),
        (("--edge", "left"), "is none of"),
        (("--slower", "0"), "must be above 0"),
        (("--lose", "nobody"), "is no pool"),
        ((*CONV, "--repeat", "0"), "at least 1"),
        (("--traffic", f"={MODEL}"), "no log is named"),
        ((*CONV, "--hours", "1e-12"), "--hours: must be at least 1 s"),
        ((*CONV, "--hours", "1e9"), "requests of one model in a repeat"),
        ((*CONV, "--repeat", "1000000000"), "requests in all repeats"),
        ((*CONV, "--stress", "1e9"), "requests of one model in a repeat"),
        ((*CONV, "--seed", "-3"), "--seed: must not be below 0"),
    ],
)
def test_what_cannot_be_replayed(planner, arguments, words):
    code, out, err = planner("replay", str(ROOT / "reports" / "example"), *arguments)
    assert (code, out) == (2, "")
    assert words in err


def test_a_plan_whose_routes_lead_nowhere(planner, tmp_path):
    told = json.loads((ROOT / "reports" / "example" / "plan.json").read_text())
    for row in told["routes"]:
        row["pool"] += "?"
    (tmp_path / "plan.json").write_text(json.dumps(told))
    code, out, err = planner("replay", str(tmp_path), *CONV, "--hours", "0.1", "--repeat", "1")
    assert (code, out) == (2, "")
    assert f"routes of '{MODEL}' lead to" in err


def test_a_plan_without_a_rate(planner, tmp_path):
    told = json.loads((ROOT / "reports" / "example" / "plan.json").read_text())
    for pool in told["pools"]:
        pool["stated_rate_per_s"] = 0.0
    (tmp_path / "plan.json").write_text(json.dumps(told))
    code, out, err = planner("replay", str(tmp_path), *CONV, "--hours", "0.1", "--repeat", "1")
    assert (code, out) == (2, "")
    assert "the plan's rate is 0" in err
