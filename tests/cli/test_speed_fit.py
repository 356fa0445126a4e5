"""`planner speed fit`: what it cannot use, it says, all at once; the refit itself is tested in tests/speed."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Run

ROW = "id,engine,version,model,system,precision,isl,osl,tp,concurrency,batch_size,tpot_ms"


def test_every_file_that_cannot_be_used_is_named(planner: Run, tmp_path: Path) -> None:
    (tmp_path / "page.csv").write_text("<html><body>not found</body></html>\n", encoding="utf-8")
    (tmp_path / "broken.csv.gz").write_bytes(b"\x1f\x8b\x08 no gzip")
    out = tmp_path / "roofline.toml"
    names = ("missing.csv", "page.csv", "broken.csv.gz")
    arguments = [word for name in names for word in ("--points", str(tmp_path / name))]
    code, _, err = planner("speed", "fit", *arguments, "-o", str(out))
    assert code == 2
    assert "3 problems" in err
    assert all(name in err for name in names)
    assert not out.exists()


def test_too_few_points_are_an_error(planner: Run, tmp_path: Path) -> None:
    file = tmp_path / "one.csv"
    file.write_text(f"{ROW}\n1,vllm,0.19.0,Qwen/Qwen3-32B,h200_sxm,bf16,1024,512,2,8,8,12.5\n", encoding="utf-8")
    code, _, err = planner("speed", "fit", "--points", str(file))
    assert code == 2
    assert "hold 1 points" in err
    assert "A fit needs 100" in err


def test_a_date_that_is_none_is_an_error(planner: Run) -> None:
    code, _, err = planner("speed", "fit", "--as-of", "30.11.2026")
    assert code == 2
    assert "--as-of" in err


def test_tables_need_a_file_that_is_there(planner: Run, tmp_path: Path) -> None:
    code, _, err = planner("speed", "fit", "--tables-into", str(tmp_path / "none.md"))
    assert code == 2
    assert "none.md" in err


def test_points_without_ttft_are_an_error(planner: Run, tmp_path: Path) -> None:
    file = tmp_path / "tpot.csv"
    rows = (f"{i},vllm,0.19.0,Qwen/Qwen3-32B,h200_sxm,bf16,{1000 + i},512,2,8,8,12.5" for i in range(120))
    file.write_text("\n".join((ROW, *rows)) + "\n", encoding="utf-8")
    code, _, err = planner("speed", "fit", "--points", str(file))
    assert code == 2
    assert "0 points of fitted GPUs and engines hold a TTFT" in err
    assert "TPOT" not in err
