"""`planner speed import` as typed: the file, the table, the reasons, the exit codes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import typer

from planner.cli import speed_import
from planner.speed.load_tests.points_file import read_points

DATA = Path(__file__).parents[1] / "data" / "load_tests"
SERVED = ("--gpu", "H100", "--tp", "1", "--weights", "bf16", "--kv", "bf16", "--engine", "vllm", "--version", "0.11.0")
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(planner: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command alone in an application, so that it depends on no other of its group."""
    app, group = typer.Typer(pretty_exceptions_enable=False), typer.Typer()
    speed_import.register(group)
    group.callback()(lambda: None)
    app.add_typer(group, name="speed")
    app.callback()(lambda: None)
    monkeypatch.setattr("planner.cli.app", app)
    return partial(planner, "speed", "import")


def test_points_are_written_and_shown(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "points.csv"
    code, shown, errors = run(str(DATA / "vllm_bench.json"), str(DATA / "guidellm.json"), *SERVED, "-o", str(out))
    assert (code, errors) == (0, "")
    points = read_points(out)
    assert [point.load.concurrency for point in points] == [16, 0.98, 15.68, 11.76, None]
    assert points[0].measured.tpot_ms == 21.56
    assert points[0].served.gpu == "H100-SXM"
    for word in ("closed loop 16 (Little's law)", "98 ms p50", "21.56 ms p50", "1024/256", f"{out}: 5 points written"):
        assert word in shown


def test_command_is_in_its_group(planner: Run) -> None:
    code, shown, _ = planner("speed", "import", "--help")
    assert code == 0
    assert "measured points" in shown


def test_rejected_runs_are_shown_with_their_reasons(run: Run, tmp_path: Path) -> None:
    files = [str(DATA / name) for name in ("inference_perf", "inference_perf_kubecon", "vllm_bench.json")]
    model = ("--model", "meta-llama/Llama-3.1-8B-Instruct")
    code, shown, _ = run(*files, files[-1], *SERVED, *model, "-o", str(tmp_path / "p.csv"))
    assert code == 0
    assert "3 rejected:" in shown
    assert "TPOT is 9.172 ms where 18.99 ms are left" in shown
    assert "is the same run as" in shown
    assert "Skipped: " in shown
    assert "summaries of several stages (1)" in shown


def test_same_bytes_from_the_same_files(run: Run, tmp_path: Path) -> None:
    outs = [tmp_path / "a.csv", tmp_path / "b.csv"]
    for out in outs:
        assert run(str(DATA / "guidellm.json"), *SERVED, "-o", str(out))[0] == 0
    assert outs[0].read_bytes() == outs[1].read_bytes()


def test_everything_missing_is_named_at_once(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "p.csv"
    code, _, errors = run(str(DATA / "inference_perf"), "-o", str(out))
    assert code == 2
    assert "--model, --gpu, --engine, --tp, --weights, --kv: are missing" in errors
    assert "(1 problem)" in errors
    assert not out.exists()


def test_nothing_to_import_is_an_error_with_every_reason(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "p.csv"
    code, _, errors = run(str(DATA / "inference_perf_kubecon"), *SERVED, "-o", str(out))
    assert code == 2
    assert errors.count("gives no point") == 2
    assert not out.exists()
    (tmp_path / "empty").mkdir()
    code, _, errors = run(str(tmp_path / "empty"), *SERVED, "-o", str(out))
    assert code == 2
    assert "holds no run of a load test" in errors


def test_contradiction_leaves_the_old_file(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "p.csv"
    out.write_text("old")
    code, _, errors = run(str(DATA / "vllm_append.jsonl"), *SERVED, "-o", str(out))
    assert code == 2
    assert "field tp: says 2, --tp 1" in errors
    assert out.read_text() == "old"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--format", "wrk"), "--format: 'wrk' is not known"),
        (("--tp", "0"), "--tp: must be at least 1"),
        (("--cached-share", "25"), "--cached-share: must be from 0 to 1"),
        (("--acceptance", "2", "--no-speculative"), "--acceptance: has no effect with --no-speculative"),
        (("-o", str(DATA / "vllm_bench.json")), "is one of the files to import"),
        (("-o", "/no/such/folder/p.csv"), "cannot be written"),
        (("--weights", "fp3"), "fp3"),
    ],
)
def test_options_are_checked(run: Run, tmp_path: Path, options: tuple[str, ...], message: str) -> None:
    code, _, errors = run(str(DATA / "vllm_bench.json"), *SERVED, "-o", str(tmp_path / "p.csv"), *options)
    assert code == 2
    assert message in errors


def test_shares_go_into_every_point(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "p.csv"
    options = ("--cached-share", "0.5", "--acceptance", "1.5", "--replicas", "2")
    assert run(str(DATA / "vllm_bench.json"), *SERVED, *options, "-o", str(out))[0] == 0
    (point,) = read_points(out)
    assert (point.load.cached_share, point.load.acceptance, point.load.concurrency) == (0.5, 1.5, 8)


@pytest.mark.parametrize("content", [b"", b"<html>", b"{", b"\0\1", b"[]", b'{"model_id": 1}'])
def test_no_traceback_ever(run: Run, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "x.json"
    file.write_bytes(content)
    for tool in ("auto", "vllm-bench", "prometheus", "guidellm"):
        code, _, errors = run(str(file), *SERVED, "--format", tool, "-o", str(tmp_path / "p.csv"))
        assert code == 2
        assert "internal error" not in errors
