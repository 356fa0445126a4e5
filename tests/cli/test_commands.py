"""Every command: named in the README, with a help text that begins with a sentence."""

import re
from pathlib import Path

import pytest

from planner.cli import COMMANDS

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def test_the_help_lists_what_there_is(planner):
    code, out, _ = planner("--help")
    assert code == 0
    for name in COMMANDS:
        assert re.search(rf"(?m)^\W*{name}\b", out)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_readme_names_every_command(name):
    assert re.search(rf"\bplanner {name}\b", README)


@pytest.mark.parametrize("name", ["plan", "explain", "pareto", "baselines", "solve-table"])
def test_every_option_is_explained(planner, name):
    """An option without help would leave its last column empty."""
    code, out, _ = planner(name, "--help")
    assert code == 0
    options = re.findall(r"(?m)^\W*(?:\*\s+)?(--[a-z-]+)(.*)$", out)
    assert options
    for option, rest in options:
        assert re.search(r"[a-z]{3,}", rest.replace(option, "")), option
