"""A command imports what it needs, and no more."""

from __future__ import annotations

import subprocess
import sys

import pytest

from planner.cli import COMMANDS
from planner.cli.lazy import LazyCommands


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_found_under_its_name(name: str) -> None:
    commands = LazyCommands(COMMANDS)
    assert commands[name].name == name
    assert commands[name] is commands[name]


def test_what_ingest_does_not_need_is_not_imported() -> None:
    slow = ("scipy", "ibis", "altair", "pulp", "openpyxl", "planner.cli.plan", "planner.cli.load")
    code = (
        "import sys; from planner.cli import main; sys.argv = ['planner', 'ingest', '--help']\n"
        "try: main()\nexcept SystemExit: pass\n"
        f"print([name for name in {slow} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Usage" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"
