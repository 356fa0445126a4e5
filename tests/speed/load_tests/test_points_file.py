"""The points file: what is written is what is read, and every mistake of a hand-made file is named."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest

from planner.errors import InputError
from planner.memory.types import KvDtype, WeightDtype
from planner.speed.load_tests.points_file import COLUMNS, read_points, write_points
from planner.speed.load_tests.types import Record, Spread
from planner.speed.points import Figures, Load, LoadKind, Served

SERVED = Served("vllm", "0.11.0", "a/b", "H100-SXM", 2, WeightDtype.FP8, KvDtype.BF16, pp=1, ep=2, attention_dp=4)
RECORD = Record(
    id="p1",
    served=SERVED,
    load=Load(LoadKind.CLOSED_LOOP, 1024.0, 256.0, 16.0, None, 0.25, 2.5),
    concurrency_from="Little's law",
    cached_share=0.25,
    acceptance=2.5,
    output_tok_s=717.338004,
    total_tok_s=3586.69,
    ttft=Spread(100.0, 98.0, 115.0, 140.0),
    tpot=Spread(22.0, 21.56, None, 30.8),
    measured_on="2026-01-10",
    source="a, b.json",
)
HEADER = (
    "id,engine,version,model,gpu,tp,pp,ep,attention_dp,replicas,weight_dtype,kv_dtype,load,input_tokens,output_tokens,"
    "concurrency,concurrency_from,rate_per_s,cached_share,acceptance,output_tok_s,total_tok_s,ttft_mean_ms,ttft_p50_ms,"
    "ttft_p90_ms,ttft_p99_ms,tpot_mean_ms,tpot_p50_ms,tpot_p90_ms,tpot_p99_ms,measured_on,source"
)


def text(*records: Record) -> str:
    file = io.StringIO()
    write_points(file, records)
    return file.getvalue()


def read(tmp_path: Path, content: str) -> list[str]:
    path = tmp_path / "p.csv"
    path.write_text(content)
    with pytest.raises(InputError) as caught:
        read_points(path)
    return [str(problem).removeprefix(f"{path}, ") for problem in caught.value.problems]


def test_columns_and_bytes() -> None:
    row = (
        "p1,vllm,0.11.0,a/b,H100-SXM,2,1,2,4,1,fp8,bf16,closed loop,1024,256,16,Little's law,,0.25,2.5,717.338,3586.69,"
        '100,98,115,140,22,21.56,,30.8,2026-01-10,"a, b.json"'
    )
    assert text(RECORD) == f"{HEADER}\n{row}\n"
    assert ",".join(COLUMNS) == HEADER


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    other = replace(RECORD, id="p2", load=Load(LoadKind.OPEN_LOOP, 9.0, 8.0, None, 3.0), tpot=Spread(22.0))
    path.write_text(text(RECORD, replace(other, cached_share=None, acceptance=None, ttft=Spread())))
    first, second = read_points(path)
    assert first.served == SERVED
    assert first.load == RECORD.load
    assert first.measured == Figures(21.56, 98.0, 717.338, 3586.69, 30.8, 140.0)
    assert (first.id, first.source) == ("p1", "a, b.json")
    assert second.load == other.load
    assert (second.measured.tpot_ms, second.measured.ttft_ms) == (22.0, None)


def test_totals_of_replicas_are_divided(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text(text(replace(RECORD, served=replace(SERVED, replicas=4))))
    (point,) = read_points(path)
    assert (point.load.concurrency, point.measured.output_tok_s) == pytest.approx((4.0, 717.338 / 4))
    assert (point.measured.tpot_ms, point.served.replicas) == (21.56, 4)


def test_hand_made_file_needs_few_columns(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text(
        "id,engine,model,gpu,tp,weight_dtype,kv_dtype,load,input_tokens,output_tokens,concurrency,tpot_p50_ms\n"
        "a,vllm,m,H100-SXM,1,bf16,bf16,static batch,100,50,8,9.5\n"
    )
    (point,) = read_points(path)
    assert point.load == Load(LoadKind.STATIC_BATCH, 100.0, 50.0, 8.0)
    assert point.measured == Figures(tpot_ms=9.5)


def test_every_problem_has_its_row_and_field(tmp_path: Path) -> None:
    good = text(RECORD).splitlines()[1]
    lines = [
        good,
        good,
        good.replace("p1", "p3").replace("H100-SXM", "").replace("16,Little", "-1,Little"),
        good.replace("p1", "p4").replace("closed loop", "closed").replace(",fp8,", ",fp7,"),
        good.replace("p1", "p5").replace("16,Little's law", ",").replace(",98,", ",500,"),
        good.replace("p1", "p6").replace("717.338,3586.69,100,98,115,140,22,21.56,,30.8", ",,,,,,,,,"),
        good.replace("p1", "p7").replace("717.338", "NaN").replace("0.25", "25"),
        "p8,short",
    ]
    problems = read(tmp_path, "\n".join([HEADER, *lines]))
    found = "\n".join(problems)
    for expected in (
        "row 3, field id: is that of row 2 too",
        "row 4, field gpu:",
        "row 4, field concurrency:",
        "row 5, field load:",
        "row 5, field weight_dtype:",
        "row 6, field concurrency: is empty in a closed loop point",
        "row 6, field ttft_p50_ms: 500 is above p90, 115",
        "row 7: holds no measured figure",
        "row 8, field output_tok_s:",
        "row 8, field cached_share:",
        "row 9: 2 cells where the header has 32",
    ):
        assert expected in found
    assert len(problems) == 11


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "row 1, field id: column is missing"),
        ("id,engin\n", "row 1, field engin: unknown column. Did you mean engine?"),
        ("<html>\n", "unknown column"),
    ],
)
def test_other_files_are_named(tmp_path: Path, content: str, expected: str) -> None:
    assert any(expected in problem for problem in read(tmp_path, content))


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no\.csv: cannot be read"):
        read_points(tmp_path / "no.csv")
