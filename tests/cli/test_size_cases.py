"""`planner size --cases`: a table in, the same rows out, and the score of its predictions."""

from __future__ import annotations

import csv
import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from planner.memory.starts.case_answers import answer_columns
from planner.memory.starts.case_rows import CaseTable

HEADER = (
    "id,engine,version,model,gpu,tp,weight_quant,kv_dtype,gpu_memory_utilization,max_model_len,max_num_batched_tokens,"
    "weights_gib_per_gpu,available_kv_gib_per_gpu,kv_tokens,notes"
)
ROWS = (
    'L1,vllm,0.10.1.1,Qwen/Qwen2-7B-Instruct,A100-80GB,1,none(bf16),auto,0.5,16384,2048,14.2488,24.83,464848,"a, b"',
    "L2,vllm,0.11.0,no/such-model,H100-80GB,1,none(bf16),auto,0.9,8192,8192,1,2,3,",
    "L3,vllm,0.11.0,Qwen/Qwen3-30B-A3B-FP8,,4,fp8 block,auto,0.9,8192,8192,,,,",
)


def table(tmp_path: Path, *lines: str, header: str = HEADER) -> str:
    path = tmp_path / "cases.csv"
    path.write_text("\n".join((header, *lines)) + "\n", encoding="utf-8")
    return str(path)


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_same_rows_come_out_with_predictions(run: Any, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    code, printed, err = run("--cases", table(tmp_path, *ROWS), "-o", str(out))
    assert (code, err) == (0, "")
    assert "3 rows of start-up logs, 2 answered" in printed
    rows = read(out)
    assert list(rows[0]) == [*HEADER.split(","), *answer_columns(CaseTable.LOGS)]
    assert [row["id"] for row in rows] == ["L1", "L2", "L3"]
    assert rows[0]["notes"] == "a, b"
    assert [row["predicted_starts"] for row in rows] == ["y", "", "n"]
    assert "not in the catalogue" in rows[1]["reasons"]
    assert "128" in rows[2]["reasons"]


def test_given_terms_are_taken_as_known(run: Any, tmp_path: Path) -> None:
    """24.83 GiB at 56 KiB a token in blocks of 16."""
    out = tmp_path / "out.csv"
    run("--cases", table(tmp_path, *ROWS), "-o", str(out), "--given", "weights,available")
    row = read(out)[0]
    assert row["predicted_weights_gib_per_gpu"] == "14.2488"
    assert row["predicted_num_blocks"] == str(int(24.83 * 2**30) // (28 * 4 * 128 * 2 * 2 * 16))
    assert float(row["predicted_kv_tokens"]) == pytest.approx(464_848, rel=0.001)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--given", "kv_tokens", "-o", "OUT"], "--given"),
        (["--score", "--score-by", "colour"], "--score-by"),
        ([], "-o"),
        (["-o", "OUT", "--models", "/no/such/folder"], "--models"),
    ],
)
def test_options_that_cannot_be_used_exit_2(run: Any, tmp_path: Path, arguments: list[str], text: str) -> None:
    typed = [str(tmp_path / "out.csv") if word == "OUT" else word for word in arguments]
    code, _, err = run("--cases", table(tmp_path, *ROWS), *typed)
    assert code == 2
    assert text in err


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("", "is empty"),
        ("name,price\nx,1\n", "no table of cases"),
        ("model,gpu,tp,tp\nx,y,1,2\n", "occurs twice"),
        ("model,gpu,tp\n" + "x" * 200_000 + ",y,1\n", "row 2: is no CSV"),
        ('model,gpu,tp\nx,y,1\n"x,y,1\nx,y,1\n', "row 4: is no CSV: a quote"),
        ("model;gpu;tp\nx;y;1\n", "separated by semicolons"),
        ("model\tgpu\ttp\nx\ty\t1\n", "separated by tabs"),
        ("m\0o\0d\0e\0l\0,\0", "no UTF-8 text"),
        ("model,gpu\nx,y\n", "lacks tp (it has model, gpu)"),
    ],
)
def test_a_file_that_is_no_table_exits_2(run: Any, tmp_path: Path, content: str, text: str) -> None:
    path = tmp_path / "cases.csv"
    path.write_text(content, encoding="utf-8")
    code, _, err = run("--cases", str(path), "-o", str(tmp_path / "out.csv"))
    assert code == 2
    assert text in err
    assert not (tmp_path / "out.csv").exists()


def test_ragged_rows_and_foreign_bytes_pass_through(run: Any, tmp_path: Path) -> None:
    path, out = tmp_path / "cases.csv", tmp_path / "out.csv"
    path.write_bytes(b"id,model,gpu,tp,notes\nA,x\nB,y,H100-80GB,1,n\xe9,more\n\nC,Qwen/Qwen3-8B,H100-80GB,1,\n")
    code, _, _ = run("--cases", str(path), "-o", str(out))
    assert code == 0
    lines = out.read_bytes().splitlines()
    assert lines[1].startswith(b"A,x,,,,")
    assert b'"n\xe9,more"' in lines[2]
    assert len(lines) == 4
    assert b",y," in lines[3]


def test_the_old_table_stays_until_the_new_one_is_whole(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.csv"
    out.write_text("old", encoding="utf-8")
    monkeypatch.setattr("planner.cli.size_cases.one_answer", Mock(side_effect=KeyboardInterrupt))
    code, _, _ = run("--cases", table(tmp_path, *ROWS), "-o", str(out))
    assert code == 130
    assert out.read_text(encoding="utf-8") == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cases.csv", "out.csv"]


def test_predictions_of_an_answered_table_are_replaced(run: Any, tmp_path: Path) -> None:
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    run("--cases", table(tmp_path, *ROWS), "-o", str(first))
    code, _, _ = run("--cases", str(first), "-o", str(second))
    assert code == 0
    assert second.read_bytes() == first.read_bytes()


@pytest.mark.parametrize("target", ["cases.csv", ".", "no/folder/out.csv"])
def test_a_target_that_cannot_be_written_exits_2_before_an_answer(run: Any, tmp_path: Path, target: str) -> None:
    cases = table(tmp_path, *ROWS)
    before = Path(cases).read_bytes()
    code, out, err = run("--cases", cases, "-o", str(tmp_path / target))
    assert (code, out) == (2, "")
    assert "cannot be written" in err or "is the table that --cases reads" in err
    assert Path(cases).read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["cases.csv"]


def test_options_without_effect_are_all_named(run: Any, tmp_path: Path) -> None:
    code, _, err = run("--cases", table(tmp_path, *ROWS), "-o", str(tmp_path / "o.csv"), "--tp", "4", "--json")
    assert code == 2
    assert "--tp: has no effect with --cases" in err
    assert "--json: has no effect with --cases" in err
    code, _, err = run("Qwen/Qwen3-8B", "--gpu", "L40S", "--score", "--models", str(tmp_path))
    assert code == 2
    assert "--score: has no effect without --cases" in err
    assert "--models: has no effect without --cases" in err


def test_hostile_cells_are_reasons_and_take_no_time(run: Any, tmp_path: Path) -> None:
    long = 100_000
    lines = (
        f"A,x{' ' * long}y,H100-80GB,1,",
        f"B,Qwen/Qwen3-8B,H{' ' * long}x,1,",
        f"C,Qwen/Qwen3-8B,H100-80GB,1,{'fp8 ' * (long // 4)}",
        f"D,{'a' * 5000}.json,H100-80GB,1,",
        "E,../../../etc/passwd,H100-80GB,1,",
        *(f"F,Qwen/Qwen3-8B,H100-80GB,{tp}," for tp in ("-2", "1e309", "NaN", "-0", "1" + 30 * "0", "=1+1")),
    )
    out = tmp_path / "out.csv"
    started = time.monotonic()
    code, _, _ = run("--cases", table(tmp_path, *lines, header="id,model,gpu,tp,flags"), "-o", str(out))
    assert code == 0
    assert time.monotonic() - started < 20
    for row in read(out):
        assert row["reasons"] or row["id"] == "C"


@pytest.mark.parametrize("config_file", ["a" * 5000, "/etc/passwd", "/dev/zero", ".", "no\0where.json"])
def test_a_config_file_that_is_none_is_a_reason(run: Any, tmp_path: Path, config_file: str) -> None:
    out = tmp_path / "out.csv"
    lines = (f"A,no/such,L40S,1,{config_file}", "B,Qwen/Qwen3-8B,L40S,1,")
    code, _, _ = run("--cases", table(tmp_path, *lines, header="id,model,gpu,tp,config_file"), "-o", str(out))
    assert code == 0
    bad, good = read(out)
    assert bad["reasons"]
    assert good["predicted_starts"] == "y"


def test_a_missing_table_is_said_so(run: Any, tmp_path: Path) -> None:
    code, _, err = run("--cases", str(tmp_path / "none.csv"), "-o", str(tmp_path / "out.csv"))
    assert code == 2
    assert "none.csv" in err


def test_further_models_are_found_in_a_folder(run: Any, tmp_path: Path) -> None:
    from planner.catalog.load import load_catalog

    folder = tmp_path / "models"
    folder.mkdir()
    config = (load_catalog().root / "models" / "Qwen--Qwen3-8B.json").read_bytes()
    (folder / "acme--Other-8B.json").write_bytes(config)
    line = "L1,vllm,0.11.0,acme/Other-8B,H100-80GB,1,bf16,auto,0.9,8192,8192,,,,"
    out = tmp_path / "out.csv"
    run("--cases", table(tmp_path, line), "-o", str(out))
    assert read(out)[0]["predicted_starts"] == ""
    run("--cases", table(tmp_path, line), "-o", str(out), "--models", str(folder))
    assert read(out)[0]["predicted_starts"] == "y"


def test_the_score_compares_with_the_tables_own_columns(run: Any, tmp_path: Path) -> None:
    code, printed, _ = run("--cases", table(tmp_path, *ROWS), "--score", "--score-by", "family,gpu,version")
    assert code == 0
    for text in ("GQA, A100-80GB-SXM, vllm", "weights", "available KV", "KV tokens", "1/1 started"):
        assert text in printed


def test_a_sizing_needs_a_model_and_a_gpu(run: Any) -> None:
    code, _, err = run()
    assert code == 2
    assert "MODEL" in err
    assert "--gpu" in err
