"""`planner speed fit-measured`: what it cannot use, it says; the refit itself is tested in tests/speed/fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run

ROW = "id,engine,version,model,system,precision,isl,osl,tp,concurrency,batch_size,silicon_tpot_ms"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("missing.csv", None, "cannot be read"),
        ("one.csv", f"{ROW}\n1,vllm,0.19.0,Qwen/Qwen3-32B,h200_sxm,bf16,1024,512,2,8,8,12.5\n", "A fit needs 100"),
    ],
)
def test_points_that_are_too_few_are_an_error(
    planner: Run, tmp_path: Path, name: str, text: str | None, message: str
) -> None:
    file, out = tmp_path / name, tmp_path / "measured.toml"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    code, _, err = planner("speed", "fit-measured", "--points", str(file), "-o", str(out))
    assert code == 2
    assert message in err
    assert name in err
    assert not out.exists()


def test_a_date_that_is_none_is_an_error(planner: Run) -> None:
    code, _, err = planner("speed", "fit-measured", "--as-of", "30.11.2026")
    assert code == 2
    assert "--as-of" in err
