from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from planner.cli import main
from planner.traffic.source import load_traffic


def _run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["planner", "ingest", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    return int(caught.value.code or 0)


def test_report_says_what_was_read_and_writes_the_folder(
    examples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = examples / "AzureLLMInferenceTrace_code.csv"
    assert _run(monkeypatch, str(source), "-o", str(tmp_path / "out")) == 0
    printed = capsys.readouterr()
    for words in ("8,819 rows read, 8,819 kept", "2,047.8", "7,841", "4 % of prompt lengths sit at the cap of 7,437"):
        assert words in printed.out
    assert printed.err == "", "no progress bar in a pipe"
    assert load_traffic(tmp_path / "out", name="m").law.requests == 8819
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_json_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log.csv"
    rows = "".join(f"{1_700_000_000 + 3 * i},{i + 1},2,[red]a\n" for i in range(200))
    log.write_text("t,i,o,m\n" + rows + "soon,1,1,a\n1700000000,-1,1,[red]a\n")
    mapping = "timestamp=t,prompt=i,output=o,model=m"
    assert _run(monkeypatch, str(log), "-o", str(tmp_path / "out"), "--map", mapping, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    dropped = {"unparseable timestamp": 1, "negative token count": 1}
    assert report["counts"] == {"rows_read": 202, "kept": 200, "offered": 201, "dropped_by_reason": dropped}
    model = report["models"]["[red]a"]
    assert (model["mean_prompt_tokens"], model["length_at_tail_tokens"]["0"]) == (100.5, 202)
    assert _run(monkeypatch, str(log), "-o", str(tmp_path / "out"), "--map", mapping) == 0
    table = capsys.readouterr().out
    assert "negative token count" in table
    assert "[red]a" in table


def test_servegen_options(
    examples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(examples / "servegen-deepseek-r1")
    options = ("--option", "window_start_s=7200", "--option", "window_s=3600,seed=3", "--model", "r1")
    assert _run(monkeypatch, folder, "-o", str(tmp_path / "out"), *options) == 0
    assert "with seed 3" in capsys.readouterr().out
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["models"] == {"r1": 60592}


@pytest.mark.parametrize(
    ("content", "arguments", "message"),
    [
        ("a,b\n1,2\n", (), "no known log format"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\nx,1,1\n", (), "no row remains"),
        ("timestamp,prompt,output\n1700000000,1,1\n", ("--format", "nonsense"), "not a log format"),
        ("timestamp,prompt,output\n1700000000,1,1\n", ("--tz", "Nowhere"), "not a time zone"),
        ("timestamp,prompt,output\n1700000000,1,1\n", ("--option", "sed=1"), "is not known"),
    ],
)
def test_bad_input_is_exit_2_with_a_message_and_no_output(
    content: str,
    arguments: tuple[str, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "log.csv").write_text(content)
    assert _run(monkeypatch, str(tmp_path / "log.csv"), "-o", str(tmp_path / "out"), *arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert [p.name for p in tmp_path.iterdir()] == ["log.csv"]


def test_missing_file_is_exit_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _run(monkeypatch, str(tmp_path / "none.csv"), "-o", str(tmp_path / "out")) == 2


@pytest.mark.skipif(sys.platform == "win32", reason="signals differ")
def test_interrupted_run_leaves_nothing(examples: Path, tmp_path: Path) -> None:
    """Ctrl-C in the middle of a long draw: no folder, no scratch file, no traceback."""
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    command = [
        sys.executable,
        "-m",
        "planner",
        "ingest",
        str(examples / "servegen-m-small"),
        "-o",
        str(tmp_path / "out"),
    ]
    command += ["--option", "window_s=28800"]
    run = subprocess.Popen(
        command, env={**os.environ, "TMPDIR": str(scratch)}, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while not list(scratch.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.3)
    run.send_signal(signal.SIGINT)
    _, error = run.communicate(timeout=60)
    assert run.returncode != 0
    assert "Traceback" not in error
    assert [p.name for p in tmp_path.iterdir()] == ["tmp"]
    assert list(scratch.iterdir()) == []
