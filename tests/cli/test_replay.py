"""`planner replay` at the keyboard."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOGS = ROOT / "catalogs" / "example" / "traffic"
MODEL = "chat-large"


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
        (("--traffic", f"{LOGS / 'AzureLLMInferenceTrace_conv.csv'}={MODEL}", "--repeat", "0"), "at least 1"),
    ],
)
def test_what_cannot_be_replayed(planner, arguments, words):
    code, out, err = planner("replay", str(ROOT / "reports" / "example"), *arguments)
    assert (code, out) == (2, "")
    assert words in err
