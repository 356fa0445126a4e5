from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from planner.cli import app, main
from planner.errors import InputError
from planner.traffic.season import WEEK_SLOTS
from planner.traffic.week_table import read_week

HEADER = "timestamp,prompt,output,model\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two weeks from Monday 2 March 2026: chat has one request a minute from 9 to 17 h, batch two from 22 to 24 h."""
    path = tmp_path_factory.mktemp("season")
    rows = [
        f"2026-03-{2 + day:02d}T{hour:02d}:{minute:02d}:00Z,100,10,{model}"
        for day in range(14)
        for model, hours, each in (("chat", range(9, 17), 1), ("batch", range(22, 24), 2))
        for hour in hours
        for minute in range(60)
        for _ in range(each)
    ]
    first, last = "2026-03-02T00:00:00Z,1,1,chat", "2026-03-15T23:59:59.999Z,1,1,chat"
    (path / "log.csv").write_text(HEADER + "\n".join([first, *rows, last]) + "\n")
    assert CliRunner().invoke(app, ["ingest", str(path / "log.csv"), "-o", str(path / "c")]).exit_code == 0
    return path / "c"


def _run(*words: str | Path) -> dict:
    result = CliRunner().invoke(app, ["traffic", "season", *map(str, words), "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_the_week_and_its_periods(folder: Path) -> None:
    found = _run(folder, "--periods", "3")
    chat = found["models"]["chat"]
    assert chat["weeks"] == 2
    assert chat["planning_rate_per_s"] == pytest.approx(1 / 60)
    assert chat["busiest"] == "Mon 09:00"
    rates = {round(p["hours_a_week"]): p["planning_rate_per_s"] for p in found["periods"]}
    assert rates[14]["batch"] == pytest.approx(2 / 60)
    assert rates[57] == pytest.approx({"batch": 0.0, "chat": 1 / 60}), (
        "the one request of Monday 00:00 goes with the day"
    )
    assert rates[97]["batch"] == 0.0
    assert sum(p["hours_a_week"] for p in found["periods"]) == pytest.approx(168)
    assert found["overstatement"]["batch"] == pytest.approx(0.0, abs=1e-9)
    assert found["flat_overstatement"]["batch"] == pytest.approx(11.0)


def test_holidays_and_zones(folder: Path) -> None:
    found = _run(folder, "--zone", "Europe/Berlin", "--holiday", "2026-03-04", "--holidays-of", "DE")
    assert found["models"]["chat"]["busiest"].endswith("10:00")
    assert "2026-03-04" in found["holidays"]
    assert "2026-12-25" in found["holidays"]


def test_the_tables_are_printed(folder: Path) -> None:
    result = CliRunner().invoke(app, ["traffic", "season", str(folder)])
    assert result.exit_code == 0
    assert "Representative periods" in result.stdout
    assert "fewer than 8 weeks" in " ".join(result.stdout.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--zone", "Nowhere"], "not a time zone"),
        (["--holiday", "Christmas"], "no date"),
        (["--holidays-of", "XX"], "no holidays are known"),
        (["--starts", "2026-01-01"], "dates of its own"),
        (["--starts", "soon"], "is no time"),
        (["--quantile", "2"], "not in"),
    ],
)
def test_bad_input_is_one_message(
    folder: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["planner", "traffic", "season", str(folder), *words])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    assert said in capsys.readouterr().err


def test_the_week_as_a_table(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "week.csv"
    shown = _run(folder, "--csv", path)["models"]["batch"]
    mean, peak = read_week(path, "batch")
    assert mean[:WEEK_SLOTS].tolist() == shown["mean_per_s"][:WEEK_SLOTS]
    assert peak[22] == pytest.approx(2 / 60)
    refused = CliRunner().invoke(app, ["traffic", "season", str(folder), "--csv", str(tmp_path / "no" / "week.csv")])
    assert isinstance(refused.exception, InputError)
