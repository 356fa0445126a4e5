"""What somebody meets who ingests a log for the first time: foreign dates, forgotten columns, daily files."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from planner.traffic.canonical import read

Run = Callable[..., tuple[int, str, str]]

START = datetime(2026, 7, 1, 10, tzinfo=UTC)
MAPPED = "timestamp=Zeit,prompt=Eingabe,output=Ausgabe"


@pytest.fixture
def excel(tmp_path: Path) -> Path:
    """As a German Excel writes CSV: semicolons, a mark at the start, days first, decimal commas."""
    rows = [
        f"{START + timedelta(seconds=20 * i):%d.%m.%Y %H:%M:%S};{100 + i};{10 + i};{'a' if i % 3 else 'b'};0,{i}\n"
        for i in range(90)
    ]
    path = tmp_path / "export.csv"
    path.write_text("Zeit;Eingabe;Ausgabe;model;Dauer\n" + "".join(rows), encoding="utf-8-sig")
    return path


def test_a_pattern_reads_days_first_in_the_zone_of_the_log(excel: Path, tmp_path: Path, planner: Run) -> None:
    pattern = ("--option", "time=%d.%m.%Y %H:%M:%S", "--tz", "Europe/Berlin")
    code, out, err = planner(
        "ingest", str(excel), "-o", str(tmp_path / "out"), "--map", f"{MAPPED},model=model", *pattern
    )
    assert (code, err) == (0, "")
    assert "90 rows read, 90 kept" in out
    found = read(tmp_path / "out").manifest
    assert found.window_start == "2026-07-01T08:00:00Z"
    assert found.models == {"a": 60, "b": 30}


def test_dates_that_are_not_iso_are_explained(excel: Path, tmp_path: Path, planner: Run) -> None:
    code, _, err = planner("ingest", str(excel), "-o", str(tmp_path / "out"), "--map", MAPPED)
    assert code == 2
    assert "row 2, Zeit: 01.07.2026 10:00:00" in err
    assert "--option 'time=%d/%m/%Y %H:%M:%S'" in err


@pytest.mark.parametrize("pattern", ["%H:%M", "%d/%Q/%m/%Y", "%"])
def test_a_pattern_without_a_date_is_refused(pattern: str, excel: Path, tmp_path: Path, planner: Run) -> None:
    code, _, err = planner(
        "ingest", str(excel), "-o", str(tmp_path / "out"), "--map", MAPPED, "--option", f"time={pattern}"
    )
    assert code == 2
    assert "is no pattern of a date" in err


def test_a_forgotten_model_column_is_named(excel: Path, tmp_path: Path, planner: Run) -> None:
    asked = ("ingest", str(excel), "-o", str(tmp_path / "out"), "--option", "time=%d.%m.%Y %H:%M:%S", "--map")
    hint = "all requests are taken as one model"
    assert hint in planner(*asked, MAPPED)[1]
    assert hint not in planner(*asked, f"{MAPPED},model=model")[1]
    assert hint not in planner(*asked, MAPPED, "--model", "chat")[1]


def test_daily_files_of_one_shape_are_one_problem(tmp_path: Path, planner: Run) -> None:
    for day in range(5):
        (tmp_path / f"{day}.csv").write_text("when,in,out\n2026-07-01,1,1\n")
    (tmp_path / "other.csv").write_text("x,y\n1,2\n")
    code, _, err = planner("ingest", str(tmp_path), "-o", str(tmp_path / "out"))
    assert code == 2
    assert "(2 problems)" in err
    assert "0.csv, row 1" in err
    assert "as are 4 more files with these columns" in err


def test_what_is_wrong_with_many_files_is_said_once(tmp_path: Path, planner: Run) -> None:
    for day in range(12):
        (tmp_path / f"{day:02d}.csv").write_text("when,in,out,user\n2026-07-01,1,1,ann\n")
    mapping = "timestamp=when,prompt=in,output=out,model=user"
    code, _, err = planner("ingest", str(tmp_path), "-o", str(tmp_path / "out"), "--map", mapping)
    assert code == 2
    assert "(1 problem)" in err
    assert "00.csv and 11 more, up to" in err
    assert "it is not read for model" in err


def test_counts_with_thousands_separators_are_explained(tmp_path: Path, planner: Run) -> None:
    path = tmp_path / "log.csv"
    path.write_text("timestamp;prompt;output\n2026-07-01 10:00:00;2.338;1.5\n")
    code, _, err = planner("ingest", str(path), "-o", str(tmp_path / "out"))
    assert code == 2
    assert "without thousands separators" in err


def test_rare_lengths_are_merged_on_request(excel: Path, tmp_path: Path, planner: Run) -> None:
    asked = ("ingest", str(excel), "-o", str(tmp_path / "out"), "--option", "time=%d.%m.%Y %H:%M:%S", "--map", MAPPED)
    assert planner(*asked)[0] == 0
    assert min(read(tmp_path / "out").lengths["n"].to_pylist()) < 5
    code, shown, _ = planner(*asked, "--min-cell", "5")
    assert code == 0
    assert "merged into cells of at least 5 requests" in shown
    assert json.loads(planner(*asked, "--min-cell", "5", "--json")[1])["smallest_cell"] == 5
    merged = read(tmp_path / "out")
    assert min(merged.lengths["n"].to_pylist()) >= 5
    assert merged.manifest.smallest_cell == 5
    assert planner(*asked, "--min-cell", "0")[0] == 2


def test_a_log_without_dates_shows_none(tmp_path: Path, planner: Run) -> None:
    path = tmp_path / "log.csv"
    path.write_text("timestamp,prompt,output\n0,1,1\n30,1,1\n")
    words = "counted from the start of the log: no dates"
    assert words in planner("ingest", str(path), "-o", str(tmp_path / "out"))[1]
    assert words in planner("traffic", "show", str(tmp_path / "out"))[1]


def test_the_column_that_says_failed_is_named(tmp_path: Path, planner: Run) -> None:
    source = Path(__file__).parents[1] / "data" / "traffic" / "portkey" / "logs.csv"
    out = planner("ingest", str(source), "-o", str(tmp_path / "out"))[1]
    assert "row 7, response_status_code: 500" in out
    assert "row 8, is_success" in out, "its status is 200"
