"""`planner replay-week` at the keyboard."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOG = ROOT / "catalogs" / "example" / "traffic" / "AzureLLMInferenceTrace_conv.csv"
BASE = ("replay-week", str(ROOT / "reports" / "example"), "--traffic", f"{LOG}=chat-large", "--pool", "chat-large")


def test_the_command(planner):
    short = (*BASE, "--share", "0.05")
    code, out, err = planner(*short)
    assert (code, err) == (0, "")
    assert "every promise stands" in out
    assert "stands for all of them" in " ".join(out.split())
    _, first, _ = planner(*short, "--json")
    _, second, _ = planner(*short, "--json")
    assert first == second
    told = json.loads(first)["pools"][0]
    assert sum(row["hours"] for row in told["periods"]) == sum(hour["weight"] for hour in told["hours"]) == 168


def test_every_hour_of_a_stretch(planner):
    _, out, _ = planner(*BASE, "--share", "0.02", "--hours", "6:10", "--full", "--json")
    hours = json.loads(out)["pools"][0]["hours"]
    assert [(hour["number"], hour["weight"]) for hour in hours] == [(6, 1), (7, 1), (8, 1), (9, 1)]


def test_what_is_refuted_ends_with_1(planner):
    code, out, _ = planner(*BASE, "--share", "2.5", "--hours", "0:1")
    assert code == 1
    assert "refuted: chat-large" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--pool", "nobody"), "is no pool of the plan"),
        (("--hours", "5"), "is no stretch of hours"),
        (("--hours", "8:4"), "must be FROM:TO"),
        (("--share", "nan"), "must be above 0"),
        (("--part", "1:0"), "is no stretch"),
    ],
)
def test_what_cannot_be_replayed(planner, arguments, words):
    code, out, err = planner(*BASE, *arguments)
    assert (code, out) == (2, "")
    assert words in err
