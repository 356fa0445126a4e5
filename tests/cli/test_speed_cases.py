"""`planner speed --cases`: a table in, one row of predictions out for each, and the score of the predictions."""

from __future__ import annotations

import csv
import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from planner.speed.cases.cells import COLUMNS
from planner.speed.cases.layouts import MEASURED, Layout

SILICON = (
    "id,mode,engine,version,model,system,precision,isl,osl,tp,attention_dp,moe_tp,moe_ep,concurrency,ttft_ms,tpot_ms",
    "a,agg,vllm,0.19.0,meta-llama/Llama-3.1-8B-Instruct,h100_sxm,,1024,512,1,1,1,1,16,120,9.5",
    "b,agg,trtllm,1.2.0,deepseek-ai/DeepSeek-R1,b200_sxm,fp4,1024,1024,64,1,8,8,64,400,20",
    "c,agg,sglang,0.5.9,zhipuai/GLM-5,h200_sxm,fp8,8192,1024,8,1,8,1,8,900,18",
    "d,agg,vllm,0.19.0,no/such-model,h100_sxm,,1024,512,1,1,1,1,16,120,9.5",
)
THROUGHPUT = (
    "id,source_url,engine,version,model,gpu,gpus,tp,pp,ep,weight_dtype,kv_dtype,input_len,output_len,"
    "concurrency_or_rate,output_tok_s_total,total_tok_s,req_s,ttft_ms_p50,ttft_p99,tpot_ms_p50,tpot_p99,notes",
    "t1,u,trtllm,1.0,Llama-3.3-70B,B200,1,1,1,,fp4,,1000,1000,max-load,9000,,,,,,,offline max throughput",
    "anl_2,u,vllm,,Meta-Llama-3-8B,H100,1,1,,,,,128,128,16,,3000,,,,,,static batch; batch latency_s=1.3",
    "t3,u,vllm,0.7.3,Qwen2.5-0.5B-Instruct,L4,1,1,1,1,bf16,,95,150,2 req/s,,,,30,40,9,10,suite A; online Poisson",
    "t4,u,mlperf-sut,v5.1,Llama-2-70B,H200,8,,,,,,,,offline,30000,,,,,,,scenario Offline",
)
POINTS = (
    "id,engine,version,model,gpu,tp,weight_dtype,kv_dtype,load,input_tokens,output_tokens,concurrency,rate_per_s,"
    "ttft_p50_ms,tpot_p50_ms",
    "p1,vllm,0.19.0,meta-llama/Llama-3.1-8B-Instruct,H100-SXM,1,bf16,bf16,closed loop,1024,512,16,,100,14",
    "p2,vllm,0.19.0,meta-llama/Llama-3.1-8B-Instruct,H100-SXM,1,bf16,bf16,closed loop,1024,512,64,,200,24",
)
TABLES = {Layout.SILICON: SILICON, Layout.THROUGHPUT: THROUGHPUT, Layout.POINTS: POINTS}


@pytest.fixture
def speed(planner: Any) -> Any:
    return partial(planner, "speed")


def table(folder: Path, lines: Any, name: str = "cases.csv") -> str:
    path = folder / name
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def answered(speed: Any, folder: Path, lines: Any, *options: str) -> list[dict[str, str]]:
    out = folder / "out.csv"
    code, _, err = speed("--cases", table(folder, lines), "-o", str(out), *options)
    assert code == 0, err
    with out.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(("layout", "done"), [(Layout.SILICON, 3), (Layout.THROUGHPUT, 3), (Layout.POINTS, 2)])
def test_every_layout_is_answered(speed: Any, tmp_path: Path, layout: Layout, done: int) -> None:
    lines = TABLES[layout]
    out = tmp_path / "out.csv"
    code, printed, err = speed("--cases", table(tmp_path, lines), "-o", str(out))
    assert (code, err) == (0, "")
    assert f"{len(lines) - 1} rows of {layout}, {done} answered" in printed
    text = out.read_text(encoding="utf-8")
    assert text.splitlines()[0] == ",".join(COLUMNS)
    rows = list(csv.DictReader(text.splitlines()))
    assert [row["id"] for row in rows] == [line.split(",")[0] for line in lines[1:]]
    for row in rows:
        assert bool(row["predicted_output_tok_s_total"]) is bool(row["source"])
        assert row["source"] or row["reason"]


def test_figures_have_bands(speed: Any, tmp_path: Path) -> None:
    for row in answered(speed, tmp_path, SILICON)[:3]:
        for name in ("tpot", "ttft"):
            low, value, high = (float(row[f"predicted_{name}_ms{end}"]) for end in ("_low", "", "_high"))
            assert 0 < low < value < high
        assert row["reason"] == ""
    assert answered(speed, tmp_path, THROUGHPUT)[0]["reason"] == "no TTFT: all requests queue at once"


def changed(lines: Any, layout: Layout, cell: str) -> list[str]:
    """The table with every measured cell replaced."""
    header = lines[0].split(",")
    measured = set(MEASURED[layout].values())
    rows = [
        [cell if name in measured else text for name, text in zip(header, row, strict=True)]
        for row in csv.reader(lines[1:])
    ]
    return [lines[0], *(",".join(row) for row in rows)]


@pytest.mark.parametrize("layout", list(TABLES))
def test_what_was_measured_changes_no_byte(speed: Any, tmp_path: Path, layout: Layout) -> None:
    out = tmp_path / "out.csv"
    answered(speed, tmp_path, TABLES[layout])
    first = out.read_bytes()
    for cell in ("", "1e9", "nan", "-5", "abc"):
        answered(speed, tmp_path, changed(TABLES[layout], layout, cell))
        assert out.read_bytes() == first


@pytest.mark.parametrize("layout", list(TABLES))
def test_measured_columns_may_be_absent(speed: Any, tmp_path: Path, layout: Layout) -> None:
    lines = TABLES[layout]
    whole = answered(speed, tmp_path, lines)
    header = lines[0].split(",")
    kept = [place for place, name in enumerate(header) if name not in MEASURED[layout].values()]
    random.Random(1).shuffle(kept)
    cut = [",".join(row[place] for place in kept) for row in csv.reader(lines)]
    assert answered(speed, tmp_path, cut) == whole


def test_the_order_of_rows_does_not_matter(speed: Any, tmp_path: Path) -> None:
    forward = answered(speed, tmp_path, SILICON)
    assert answered(speed, tmp_path, (SILICON[0], *reversed(SILICON[1:]))) == forward[::-1]


def test_marks_blanks_cases_and_further_columns(speed: Any, tmp_path: Path) -> None:
    header, *rows = SILICON
    lines = ["\ufeff" + header.upper() + ",whatever", "", f"{rows[0]},x", "   ", f"{rows[1]},", "," * 16, "short"]
    found = answered(speed, tmp_path, lines)
    assert [row["id"] for row in found] == ["a", "b", "", "short"]
    assert found[:2] == answered(speed, tmp_path, SILICON)[:2]
    assert found[2]["reason"] == found[3]["reason"] == "model: is empty; gpu: is empty"


def test_hostile_cells_stay_in_their_row(speed: Any, tmp_path: Path) -> None:
    bad = [SILICON[1].replace(",16,", f",{cell},") for cell in ("-1", "inf", "1e308", "zero", "0", "'; DROP", "\u0661")]
    found = answered(speed, tmp_path, (SILICON[0], *bad, SILICON[1]))
    assert len(found) == 8
    assert all(row["reason"] and not row["predicted_tpot_ms"] for row in found[:6])
    assert found[7]["predicted_tpot_ms"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("id,isl,isl\n", "occurs twice"),
        ("id,isl,ISL\n", "occurs twice"),
        ("", "is empty"),
        ("id,model,gpu\na,b,c\n", "no table of speeds"),
        ("id;isl;osl\n", "semicolons"),
        ('isl,osl\n"1', "never closed"),
    ],
)
def test_a_file_that_is_no_table_is_named(speed: Any, tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "cases.csv"
    path.write_text(text, encoding="utf-8")
    out = tmp_path / "out.csv"
    code, _, err = speed("--cases", str(path), "-o", str(out))
    assert code == 2
    assert problem in err
    assert "cases.csv" in err
    assert not out.exists()


def test_every_problem_is_told_at_once(speed: Any, tmp_path: Path) -> None:
    code, _, err = speed("--cases", str(tmp_path / "no.csv"), "--score-by", "colour", "--calibrate-with", "nor.csv")
    assert code == 2
    for word in ("no.csv", "nor.csv", "colour", "-o: is missing", "needs --score"):
        assert word in err


def test_the_table_that_is_read_is_not_overwritten(speed: Any, tmp_path: Path) -> None:
    path = table(tmp_path, SILICON)
    code, _, err = speed("--cases", path, "-o", path)
    assert code == 2
    assert "is the table that --cases reads" in err
    code, _, err = speed("--cases", path, "-o", path, "--calibrate-with", path)
    assert err.count("Write to another file") == 2


def test_measured_points_correct_their_deployment(speed: Any, tmp_path: Path) -> None:
    plain = answered(speed, tmp_path, SILICON)
    points = table(tmp_path, POINTS, "points.csv")
    found = answered(speed, tmp_path, SILICON, "--calibrate-with", points)
    assert found[1:] == plain[1:]
    assert "2 measured points" in found[0]["source"]
    assert "points.csv" in found[0]["source"]
    assert abs(float(found[0]["predicted_tpot_ms"]) - 14) < abs(float(plain[0]["predicted_tpot_ms"]) - 14) / 2


def test_what_corrects_nothing_is_told(speed: Any, tmp_path: Path) -> None:
    """A static batch says nothing about a steady state, and these points are of no deployment of the table."""
    points = table(tmp_path, (POINTS[0], POINTS[1], POINTS[2].replace("closed loop", "static batch")), "points.csv")
    cases = table(tmp_path, (SILICON[0], SILICON[2]))
    code, printed, err = speed("--cases", cases, "-o", str(tmp_path / "out.csv"), "--calibrate-with", points)
    assert code == 0
    assert "1 answered, 0 of them from measured points" in printed
    assert "1 measured points not used: a static batch" in err


def test_a_table_may_correct_itself(speed: Any, tmp_path: Path) -> None:
    path = table(tmp_path, SILICON, "measured.csv")
    found = answered(speed, tmp_path, SILICON, "--calibrate-with", path)
    assert abs(float(found[0]["predicted_tpot_ms"]) / 9.5 - 1) < 0.1


def test_points_without_measurements_cannot_correct(speed: Any, tmp_path: Path) -> None:
    empty = table(tmp_path, changed(POINTS, Layout.POINTS, ""), "points.csv")
    code, _, err = speed("--cases", table(tmp_path, SILICON), "-o", str(tmp_path / "o"), "--calibrate-with", empty)
    assert code == 2
    assert "holds no measured point" in err


def test_the_score_is_of_rows_that_measured(speed: Any, tmp_path: Path) -> None:
    code, printed, err = speed("--cases", table(tmp_path, SILICON), "--score", "--score-by", "all,engine")
    assert (code, err) == (0, "")
    for word in ("TPOT", "TTFT", "trtllm", "in the band"):
        assert word in printed
    unmeasured = changed(SILICON, Layout.SILICON, "")
    assert "no row holds a measured figure" in speed("--cases", table(tmp_path, unmeasured), "--score")[1]


def test_without_a_table_the_commands_are_shown(speed: Any) -> None:
    code, printed, _ = speed()
    assert code == 2
    assert "predict" in printed
    code, _, err = speed("--score")
    assert code == 2
    assert "--cases: is missing" in err
    code, _, err = speed("--score", "predict", "x", "--gpu", "y", "--input", "1", "--output", "1")
    assert code == 2
    assert "--score: has no effect with predict" in err
