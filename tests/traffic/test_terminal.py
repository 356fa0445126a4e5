"""What people see while they wait at a terminal, and what is left when they press Ctrl-C."""

from __future__ import annotations

import gzip
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from planner.traffic.progress import expected_rows
from planner.traffic.readers.head import read_head

pty = pytest.importorskip("pty", reason="there are no pseudo-terminals here")
ROWS = 2_500_000
PATIENCE_S = 60
ENTRY = "from planner.cli import main; main()"


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log that takes a few seconds to ingest, of two models."""
    path = tmp_path_factory.mktemp("long") / "log.parquet"
    with duckdb.connect() as connection:
        connection.execute(f"""
            COPY (SELECT TIMESTAMP '2026-09-01' + to_microseconds(i * 250000) AS timestamp, i % 30011 + 1 AS prompt,
                         i % 997 AS output, 'm' || i % 2 AS model FROM range({ROWS}) t(i))
            TO '{path}' (FORMAT parquet)
        """)
    return path


class Terminal:
    """A run whose standard error is a pseudo-terminal."""

    def __init__(self, tmp_path: Path, *arguments: str) -> None:
        self.scratch = tmp_path / "scratch"
        self.scratch.mkdir()
        self.out = tmp_path / "out"
        self.shown = ""
        self._master, slave = pty.openpty()
        environment = {**os.environ, "TMPDIR": str(self.scratch), "TERM": "xterm", "COLUMNS": "100"}
        self.run: subprocess.Popen[Any] = subprocess.Popen(
            [sys.executable, "-c", ENTRY, "ingest", *arguments, "-o", str(self.out)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=slave,
            env=environment,
        )
        os.close(slave)

    def until(self, pattern: str) -> None:
        """Read on until the pattern has been shown, or the run has ended."""
        deadline = time.monotonic() + PATIENCE_S
        while not re.search(pattern, self.shown) and time.monotonic() < deadline:
            if select.select([self._master], [], [], 0.1)[0]:
                try:
                    self.shown += os.read(self._master, 1 << 16).decode(errors="replace")
                except OSError:  # the other end is closed
                    return

    def end(self) -> int:
        """Wait for the end, and return the exit code."""
        self.until(r"\Z(?!)")
        return self.run.wait(PATIENCE_S)

    def close(self) -> None:
        if self.run.poll() is None:
            self.run.kill()
            self.run.wait()
        os.close(self._master)


@pytest.fixture
def terminal(log: Path, tmp_path: Path) -> Iterator[Terminal]:
    found = Terminal(tmp_path, str(log))
    yield found
    found.close()


def test_a_bar_is_shown_at_a_terminal_and_taken_away(terminal: Terminal) -> None:
    assert terminal.end() == 0
    assert "reading logs" in terminal.shown
    seen = [int(number) for number in re.findall(r"(\d+)%", terminal.shown)]
    assert seen == sorted(seen)
    assert seen[0] == 0 < len(set(seen)) - 1, "it moves"
    assert "\x1b[2K" in terminal.shown.rpartition("%")[2], "the line is erased at the end"
    assert (terminal.out / "manifest.json").is_file()
    assert list(terminal.scratch.iterdir()) == []


def test_ctrl_c_while_the_bar_moves_leaves_nothing(terminal: Terminal) -> None:
    terminal.until(r"[1-9]\d*%")
    assert list(terminal.scratch.iterdir()), "it has been working"
    terminal.run.send_signal(signal.SIGINT)
    assert terminal.end() == 130
    assert "Traceback" not in terminal.shown
    assert "Error" not in terminal.shown
    assert not terminal.out.exists()
    assert list(terminal.scratch.iterdir()) == []
    assert [path.name for path in terminal.out.parent.iterdir()] == ["scratch"]


def test_a_pipe_gets_no_bar_and_ctrl_c_keeps_the_older_distribution(log: Path, tmp_path: Path) -> None:
    small = tmp_path / "small.csv"
    small.write_text("timestamp,prompt,output\n2026-01-01 00:00:00,1,1\n")
    command = [sys.executable, "-c", ENTRY, "ingest", str(small), "-o", str(tmp_path / "out")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    terminal = Terminal(tmp_path, str(log))
    try:
        terminal.until(r"[1-9]\d*%")
        terminal.run.send_signal(signal.SIGINT)
        assert terminal.end() == 130
    finally:
        terminal.close()
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before


@pytest.mark.parametrize("layout", ["csv", "jsonl", "pretty.json", "json", "parquet", "csv.gz"])
def test_the_bar_knows_about_how_many_rows_come(layout: str, tmp_path: Path) -> None:
    rows = [{"timestamp": 1788445327 + i, "prompt": i % 7000, "output": 5, "more": {"a": i}} for i in range(40_000)]
    path = tmp_path / f"log.{layout}"
    if layout == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif layout.startswith("csv"):
        text = "timestamp,prompt,output\n" + "".join(f"{r['timestamp']},{r['prompt']},5\n" for r in rows)
        path.write_bytes(gzip.compress(text.encode()) if layout.endswith("gz") else text.encode())
    elif layout == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        path.write_text(json.dumps(rows, indent=2 if layout == "pretty.json" else None))
    assert expected_rows(read_head(path)) == pytest.approx(len(rows), rel=0.5 if layout == "csv.gz" else 0.05)
