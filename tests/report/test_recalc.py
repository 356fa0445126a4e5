from __future__ import annotations

import sys
from pathlib import Path

import pytest

from planner.errors import PlannerError
from planner.report import picture, recalc


def test_missing_libreoffice_is_a_clear_error(xlsx, tmp_path: Path, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda _name: None)
    with pytest.raises(PlannerError, match="soffice"):
        recalc.recalculate_with_libreoffice(xlsx, tmp_path / "out")
    with pytest.raises(PlannerError, match="pdftoppm"):
        picture.render_pictures(xlsx, tmp_path / "out")


def test_a_stale_target_is_not_believed(xlsx, tmp_path: Path, monkeypatch):
    """LibreOffice may end with status 0 and write nothing."""
    silent = tmp_path / "soffice"
    silent.write_text(f"#!{sys.executable}\n")
    silent.chmod(0o755)
    monkeypatch.setattr("shutil.which", lambda _name: str(silent))
    out = tmp_path / "out"
    out.mkdir()
    (out / xlsx.name).write_bytes(b"stale")
    with pytest.raises(PlannerError, match=r"wrote no plan\.xlsx"):
        recalc.recalculate_with_libreoffice(xlsx, out)


def test_the_source_is_never_the_target(xlsx):
    with pytest.raises(PlannerError, match="another folder"):
        recalc.recalculate_with_libreoffice(xlsx, xlsx.parent)


def test_tools_that_fail_or_hang_are_clear_errors():
    with pytest.raises(PlannerError, match="failed with status 3"):
        recalc.run_tool([sys.executable, "-c", "raise SystemExit(3)"], 10)
    with pytest.raises(PlannerError, match="took longer than"):
        recalc.run_tool([sys.executable, "-c", "import time; time.sleep(5)"], 0.2)
    with pytest.raises(PlannerError, match="cannot be run"):
        recalc.run_tool(["/no/such/tool"], 1)


@pytest.mark.libreoffice
def test_pictures_show_the_pages(xlsx, tmp_path: Path):
    assert picture.main([str(xlsx), "-o", str(tmp_path), "--dpi", "60"]) == 0
    for name in ("summary.png", "plan.png"):
        data = (tmp_path / name).read_bytes()
        assert data.startswith(b"\x89PNG")
        width, height = int.from_bytes(data[16:20]), int.from_bytes(data[20:24])
        assert width > 400
        assert 50 < height < width


def test_picture_of_an_unknown_sheet_is_a_clear_error(xlsx, tmp_path: Path, capsys, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    assert picture.main([str(xlsx), "-o", str(tmp_path), "--sheet", "Nope"]) == 1
    assert "has no sheet Nope" in capsys.readouterr().err
