"""The command line in this process: arguments in, exit code and both streams out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from planner.cli import main

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def planner(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def planner(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["planner", *arguments])
        monkeypatch.setenv("COLUMNS", "160")
        try:
            main()
            code = 0
        except SystemExit as stopped:
            code = int(stopped.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return planner


@pytest.fixture
def run(planner: Run) -> Run:
    """`planner size`."""
    return partial(planner, "size")
