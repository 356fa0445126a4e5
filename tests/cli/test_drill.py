"""`planner drill` at the keyboard."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOG = ROOT / "catalogs" / "example" / "traffic" / "AzureLLMInferenceTrace_conv.csv"
BASE = ("drill", str(ROOT / "reports" / "example"), "--traffic", f"{LOG}=chat-large")
SHORT = ("--hours", "0.25", "--at", "2", "--for", "2", "--warm-up", "1", "--drill", "replica")


def test_the_command(planner):
    code, out, err = planner(*BASE, *SHORT)
    assert (code, err) == (0, "")
    assert "chat-large, replica: loses 1 of 5 replicas, which serve again after 3 min" in out
    _, first, _ = planner(*BASE, *SHORT, "--json")
    _, second, _ = planner(*BASE, *SHORT, "--json")
    assert first == second
    told = json.loads(first)["drills"][0]
    assert told["drill"]["until_s"] == 300.0
    assert sum(window["requests"] for window in told["windows"]) == told["requests"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--pool", "nobody"), "is no pool of the plan"),
        (("--for", "0"), "must be above 0"),
        (("--hours", "0.5"), "the outage and warm-up end"),
        (("--hours", "0.123"), "whole number of minutes"),
        (("--hours", "nan"), "whole number of minutes"),
        (("--warm-up", "-1"), "--warm-up: must not be below 0"),
        (("--part", "1:0"), "is no stretch"),
    ],
)
def test_what_cannot_be_drilled(planner, arguments, words):
    code, out, err = planner(*BASE, *arguments)
    assert (code, out) == (2, "")
    assert words in err
