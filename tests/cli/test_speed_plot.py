"""`planner speed plot`: pictures and pages of deployments and of plans, and every kind of bad input."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import typer

from planner.catalog.load import load_catalog
from planner.cli import speed_plot
from planner.cli.speed_plot import sources_of
from planner.cli.speed_plot_options import KINDS, PlotOptions
from planner.cli.speed_plot_plan import file_names, pool_curve
from planner.plan import FleetPlan, plan_to_json, read_plan
from planner.report.chart_file import FileKind

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
LENGTHS = ("--input", "2048", "--output", "512")
EXAMPLE = Path(__file__).parents[2] / "reports" / "example" / "plan.json"
HEADER = (
    "id,engine,version,model,gpu,tp,weight_dtype,kv_dtype,load,input_tokens,output_tokens,concurrency,output_tok_s,"
    "ttft_p50_ms,tpot_p50_ms,source"
)
ROWS = (
    f"a,vllm,0.19.0,{MODEL},H100-SXM,1,bf16,bf16,closed loop,2048,512,8,900,150,8.7,bench-a.json",
    f"b,vllm,0.19.0,{MODEL},H100-SXM,1,bf16,bf16,closed loop,2048,512,32,2300,260,13.1,bench-b.json",
    f"c,vllm,0.19.0,{MODEL},L40S,1,bf16,bf16,closed loop,2048,512,8,250,400,30,bench-c.json",
)
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def plot(planner: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command in a group of its own."""
    app, group = typer.Typer(), typer.Typer()
    group.callback()(lambda: None)
    speed_plot.register(group)
    app.add_typer(group, name="speed")
    monkeypatch.setattr("planner.cli.app", app)
    return partial(planner, "speed", "plot")


@pytest.fixture
def points(tmp_path: Path) -> Path:
    path = tmp_path / "points.csv"
    path.write_text("\n".join((HEADER, *ROWS)) + "\n")
    return path


@pytest.fixture(scope="module")
def example() -> FleetPlan:
    return read_plan(EXAMPLE)


def test_suffixes_are_those_of_the_files() -> None:
    assert tuple(FileKind) == KINDS


def test_other_commands_do_not_load_the_charts() -> None:
    code = (
        "import sys, planner.cli, planner.cli.speed_plot; sys.exit(bool({'altair', 'vl_convert'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_page_holds_the_prediction_and_the_points(plot: Run, points: Path, tmp_path: Path) -> None:
    out = tmp_path / "speed.html"
    arguments = (MODEL, "--gpu", "h100-sxm", *LENGTHS, "--measured", str(points), "-o", str(out))
    code, said, err = plot(*arguments)
    assert (code, err) == (0, "")
    assert said.startswith(f"{out}: 1 deployment, 2 of 3 measured points")
    page = out.read_text(encoding="utf-8")
    assert "bench-a.json" in page
    assert "bench-c.json" not in page
    first = out.read_bytes()
    plot(*arguments)
    assert out.read_bytes() == first


def test_deployments_are_compared_in_one_picture(plot: Run, tmp_path: Path) -> None:
    out = tmp_path / "speed.svg"
    code, said, _ = plot(
        MODEL, "--gpu", "H100-SXM", "--gpu", "L40S", "--weights", "bf16", "--weights", "fp8", *LENGTHS,
        "--concurrency", "1:16", "-o", str(out),
    )  # fmt: skip
    assert code == 0
    assert "4 deployments" in said
    picture = out.read_text(encoding="utf-8")
    for label in ("1 x H100-SXM, bf16", "1 x H100-SXM, fp8", "1 x L40S, bf16", "1 x L40S, fp8"):
        assert label in picture
    for text in ("Decode rate of one stream, tokens/s", "roofline", "2,048"):
        assert text in picture


def test_measured_points_correct_the_curve_where_asked(plot: Run, points: Path, tmp_path: Path) -> None:
    out = tmp_path / "speed.svg"
    arguments = (MODEL, "--gpu", "H100-SXM", *LENGTHS, "--engine-version", "0.19.0", "-o", str(out))
    plot(*arguments)
    assert "measured curve" not in out.read_text(encoding="utf-8")
    code, _, err = plot(*arguments, "--calibrate-with", str(points))
    assert (code, err) == (0, "")
    assert "measured curve" in out.read_text(encoding="utf-8")


def test_a_table_of_cases_is_drawn_as_it_is(plot: Run, tmp_path: Path) -> None:
    table, out = tmp_path / "silicon.csv", tmp_path / "speed.html"
    table.write_text(
        "id,mode,engine,version,model,system,precision,isl,osl,tp,concurrency,batch_size,ttft_ms,tpot_ms\n"
        f"s1,agg,vllm,0.19.0,{MODEL},h100_sxm,bf16,2048,512,1,8,8,151,8.61\n"
    )
    arguments = (MODEL, "--gpu", "H100-SXM", *LENGTHS, "-o", str(out), "--measured")
    code, said, err = plot(*arguments, str(table))
    assert (code, err) == (0, "")
    assert "1 of 1 measured points" in said
    assert "8.61" in out.read_text(encoding="utf-8")
    table.write_text("id,isl,osl,system\ns1,2048,512,h100_sxm\n")
    code, _, err = plot(*arguments, str(table))
    assert code == 2
    assert "holds no measured point" in err


def test_everything_wrong_is_listed_and_nothing_is_written(plot: Run, tmp_path: Path) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text("\n".join((HEADER, ROWS[0].replace("bf16", "bf61", 1))) + "\n")
    code, _, err = plot(
        "meta-llama/Llama-3.1-8B-Instrukt", "--gpu", "H100-SXN", "--gpu", "L40S", "--gpu", "l40s", "--input", "0",
        "--concurrency", "9:3", "--measured", str(bad), "--engine-version", "0.0.1", "--width", "9", "--tp", "0",
        "-o", str(tmp_path / "speed.gif"),
    )  # fmt: skip
    assert code == 2
    for words in (
        "Llama-3.1-8B-Instruct", "H100-SXM", "--gpu: names l40s twice", "--input: must be", "--output: is missing",
        "--concurrency: '9:3'", "weight_dtype", "older than every version", "--width", "--tp: must be",
        "speed.gif is no kind",
    ):  # fmt: skip
        assert words in err, words
    assert "Traceback" not in err
    assert sorted(tmp_path.iterdir()) == [bad]


@pytest.mark.parametrize("text", ["8", "0:8", "8:8", "1:2:3", "a:b", "-1:8", "1:99999999999999999999", "1:１６"])
def test_ranges_that_are_none(plot: Run, tmp_path: Path, text: str) -> None:
    code, _, err = plot(MODEL, "--gpu", "L40S", *LENGTHS, f"--concurrency={text}", "-o", str(tmp_path / "a.png"))
    assert code == 2
    assert "--concurrency" in err
    assert list(tmp_path.iterdir()) == []


def test_deployments_that_do_not_start_are_listed_together(plot: Run, tmp_path: Path) -> None:
    arguments = ("meta-llama/Llama-3.1-70B-Instruct", "--gpu", "L40S", "--gpu", "H100-SXM", "--tp", "1", *LENGTHS)
    code, _, err = plot(*arguments, "-o", str(tmp_path / "a.png"))
    assert code == 2
    assert "1 x L40S, bf16: does not start" in err
    assert "1 x H100-SXM, bf16: does not start" in err
    assert list(tmp_path.iterdir()) == []


def test_too_many_deployments(plot: Run, tmp_path: Path) -> None:
    gpus = [word for name in ("L40S", "H100-SXM", "H200-SXM", "B200") for word in ("--gpu", name)]
    code, _, err = plot(MODEL, *gpus, "--tp", "1", "--tp", "2", *LENGTHS, "-o", str(tmp_path / "a.png"))
    assert code == 2
    assert "make 8 deployments" in err


def test_a_target_that_is_a_folder(plot: Run, tmp_path: Path) -> None:
    folder = tmp_path / "a.png"
    folder.mkdir()
    code, _, err = plot(MODEL, "--gpu", "L40S", *LENGTHS, "-o", str(folder))
    assert code == 2
    assert "is a folder" in err


def test_a_plan_gets_a_picture_and_a_page_for_each_pool(plot: Run, example: FleetPlan, tmp_path: Path) -> None:
    pool = example.pools[0].model_copy(update={"name": "../a b"})
    path, out = tmp_path / "plan.json", tmp_path / "out"
    path.write_text(plan_to_json(example.model_copy(update={"pools": (pool,)})), encoding="utf-8")
    code, _, err = plot("--plan", str(path), "-o", str(out))
    assert (code, err) == (0, "")
    assert sorted(file.name for file in out.iterdir()) == ["a-b.html", "a-b.png"]
    page = (out / "a-b.html").read_text(encoding="utf-8")
    assert "Open diamond: the plan." in page
    assert re.search(r"planned: [\d,.]+ requests live on average", page)


def test_a_pools_curve_reaches_past_its_plan(example: FleetPlan) -> None:
    catalog = load_catalog()
    sources = sources_of(catalog, PlotOptions())
    for pool in example.pools:
        curve = pool_curve(pool, catalog, sources)
        assert curve.planned is not None
        assert curve.planned.concurrency < curve.concurrency[-1]
        assert curve.concurrency[-1] >= pool.load.quantile_live_requests
        assert (curve.served.gpu, curve.served.tp) == (pool.gpu, pool.tp)
        assert all(math.isfinite(tpot) and tpot > 0 for tpot in curve.tpot_ms.high)


def test_a_plan_from_other_figures_says_so(example: FleetPlan) -> None:
    pool = example.pools[0]
    tpot = pool.speed.tpot_ms.model_copy(update={"source": "roofline of last year"})
    old = pool.model_copy(update={"speed": pool.speed.model_copy(update={"tpot_ms": tpot})})
    catalog = load_catalog()
    curve = pool_curve(old, catalog, sources_of(catalog, PlotOptions()))
    assert curve.planned is not None
    assert "another source: roofline of last year" in curve.planned.note


def test_what_a_plan_lacks_in_the_catalogue_is_listed_for_all_pools(
    plot: Run, example: FleetPlan, tmp_path: Path
) -> None:
    changes: tuple[dict[str, Any], ...] = ({"weights": "org/gone"}, {"gpu": "X100"}, {"weight_dtype": "fp3"})
    pools = tuple(pool.model_copy(update=change) for pool, change in zip(example.pools, changes, strict=False))
    path, out = tmp_path / "plan.json", tmp_path / "out"
    path.write_text(plan_to_json(example.model_copy(update={"pools": pools})), encoding="utf-8")
    code, _, err = plot("--plan", str(path), "-o", str(out))
    assert code == 2
    for pool, word in zip(pools, ("org/gone", "X100", "fp3"), strict=True):
        assert f"pool {pool.name}" in err
        assert word in err
    assert not out.exists()


@pytest.mark.parametrize("content", [b"{}", b"not json", b"\xff\xfe", b'{"pools": [{}]}'])
def test_files_that_are_no_plan(plot: Run, tmp_path: Path, content: bytes) -> None:
    path, out = tmp_path / "plan.json", tmp_path / "out"
    path.write_bytes(content)
    code, _, err = plot("--plan", str(path), "-o", str(out))
    assert code == 2
    assert "plan.json" in err
    assert "Traceback" not in err
    assert not out.exists()


def test_options_without_effect_on_a_plan_are_named(plot: Run) -> None:
    code, _, err = plot(MODEL, "--plan", "nothing.json", "--gpu", "L40S", "--input", "5", "--concurrency", "1:8")
    assert code == 2
    for option in ("MODEL", "--gpu", "--input", "--concurrency"):
        assert f"{option}: has no effect with --plan" in err
    assert "-o: is missing" in err
    assert "nothing.json: cannot be read" in err


def test_pools_of_the_same_file_name_are_numbered(example: FleetPlan) -> None:
    names = ("a/b", "A b", "a-b", "..", "a-b-2")
    pools = tuple(example.pools[0].model_copy(update={"name": name}) for name in names)
    assert file_names(example.model_copy(update={"pools": pools})) == ["a-b", "A-b-2", "a-b-3", "pool", "a-b-2-2"]
