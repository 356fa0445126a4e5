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
from planner.cli.numbers import number, percent
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
    rows = {
        "unparseable timestamp": [{"file": "log.csv", "row": 202, "field": "t", "value": "text of length 4"}],
        "negative token count": [{"file": "log.csv", "row": 203, "field": "i", "value": "-1"}],
    }
    assert report["counts"] == {
        "adjusted_by_reason": {},
        "rows_read": 202,
        "kept": 200,
        "offered": 201,
        "dropped_by_reason": dropped,
        "dropped_rows": rows,
    }
    assert report["warnings"] == []
    model = report["models"]["[red]a"]
    assert (model["mean_prompt_tokens"], model["length_at_tail_tokens"]["0"]) == (100.5, 202)
    assert _run(monkeypatch, str(log), "-o", str(tmp_path / "out"), "--map", mapping) == 0
    table = capsys.readouterr().out
    assert "negative token count" in table
    assert "row 203, i: -1" in table
    assert "WARNING" not in table
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
    while not list(scratch.glob("planner-ingest-*")) and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.3)
    run.send_signal(signal.SIGINT)
    _, error = run.communicate(timeout=60)
    assert run.returncode != 0
    assert "Traceback" not in error
    assert [p.name for p in tmp_path.iterdir()] == ["tmp"]
    assert list(scratch.iterdir()) == []


def test_heavy_loss_is_a_visible_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.csv"
    rows = "".join(f"{1_700_000_000 + i},{'' if i % 3 else 5},1,{'ab'[i % 2]}\n" for i in range(60))
    log.write_text("timestamp,prompt,output,model\n" + rows)
    assert _run(monkeypatch, str(log), "-o", str(tmp_path / "out")) == 0
    assert "WARNING: 40 of 60 rows were dropped, most of them as 'missing token count'" in capsys.readouterr().out
    assert any("40 of 60 rows" in note for note in load_traffic(tmp_path / "out", model="a", name="m").notes)
    assert _run(monkeypatch, str(log), "-o", str(tmp_path / "out"), "--model", "a", "--json") == 0
    assert "20 of 30 rows" in json.loads(capsys.readouterr().out)["warnings"][0]


def test_rows_of_other_models_are_no_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "".join(f"{1_700_000_000 + i},5,1,{'a' if i % 5 else 'b'}\n" for i in range(60))
    (tmp_path / "log.csv").write_text("timestamp,prompt,output,model\n" + rows)
    assert _run(monkeypatch, str(tmp_path / "log.csv"), "-o", str(tmp_path / "out"), "--model", "b") == 0
    printed = capsys.readouterr().out
    assert "WARNING" not in printed
    assert "row 3, model" in printed


def test_a_dash_for_a_burst_is_explained_by_scale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.csv"
    log.write_text("timestamp,prompt,output\n" + "".join(f"{1_700_000_000 + i // 9 * 3},5,1\n" for i in range(900)))
    assert _run(monkeypatch, str(log), "-o", str(tmp_path / "out")) == 0
    printed = capsys.readouterr().out
    assert "the burst (IDC) at 1 s, 5 s is not measurable: the clock of the log is too coarse" in printed
    assert "the burst (IDC) at 60 s, 300 s, 3600 s is not measurable: the log is too short" in printed
    assert printed.count(" - ") == 5


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [(0, 3, "0"), (12345.6, 4, "12,346"), (1234, 3, "1,234"), (2.5664, 4, "2.566"), (0.00001234, 3, "0.0000123")],
)
def test_numbers_have_no_exponent(value: float, digits: int, text: str) -> None:
    assert number(value, digits) == text


@pytest.mark.parametrize(
    ("share", "text"), [(0.0403, "4"), (0.5, "50"), (0.996, "99.60"), (0.99999, "99.99"), (1e-6, "0.0001")]
)
def test_a_share_is_never_rounded_to_all(share: float, text: str) -> None:
    assert percent(share) == text


def test_a_canonical_folder_or_its_file_is_named_as_such(
    examples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(monkeypatch, str(examples / "AzureLLMInferenceTrace_code.csv"), "-o", str(tmp_path / "c")) == 0
    for path in ("c", "c/tail.parquet", "c/manifest.json"):
        assert _run(monkeypatch, str(tmp_path / path), "-o", str(tmp_path / "d")) == 2
        error = capsys.readouterr().err
        assert "already a" in error
        assert "as it is" in error
        assert "no log file" not in error
    assert not (tmp_path / "d").exists()


def test_a_symlink_loop_is_exit_2_as_input_and_as_output(
    examples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    loop = tmp_path / "loop.csv"
    loop.symlink_to(loop)
    assert _run(monkeypatch, str(loop), "-o", str(tmp_path / "out")) == 2
    assert "loop.csv: cannot be read: " in capsys.readouterr().err
    assert _run(monkeypatch, str(examples / "AzureLLMInferenceTrace_code.csv"), "-o", str(loop)) == 2
    assert "leads nowhere" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["loop.csv"]


def test_idc_is_not_an_option_of_ingest(
    examples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = str(examples / "AzureLLMInferenceTrace_code.csv")
    assert _run(monkeypatch, source, "-o", str(tmp_path / "out"), "--option", "idc=3") == 2
    assert "traffic.options = {idc = 3}" in capsys.readouterr().err
