"""`planner actuals` from the keyboard: what it prints and writes, and every kind of bad input."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from planner.plan import plan_to_json
from planner.study import Actuals
from planner.traffic.canonical import write
from tests.actuals.plans import Spec, plan_of
from tests.traffic.handmade import START_US, canonical_of

Run = Callable[..., tuple[int, str, str]]
DAY = dt.date(2026, 1, 5)


@pytest.fixture
def actuals(planner: Run) -> Run:
    return partial(planner, "actuals")


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """Two models at 0.1/s, planned for one Monday."""
    specs = [Spec("chat", "chat", (0.1,), (1,), stated=0.1), Spec("code", "code", (0.1,), (1,), stated=0.1)]
    text = plan_to_json(plan_of(specs, DAY, DAY + dt.timedelta(days=1)))
    (tmp_path / "plan.json").write_text(text, encoding="utf-8")
    return tmp_path / "plan.json"


def log(path: Path, *models: str, seconds: int = 10, columns: str = "timestamp,prompt,output,model") -> Path:
    start = dt.datetime(2026, 1, 5, 9)
    times = [start + dt.timedelta(seconds=n * seconds) for n in range(0, 3600 // seconds)]
    lines = [columns, *(f"{at.isoformat()}Z,100,50,{model}" for at in times for model in models)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_print(actuals: Run, plan: Path, tmp_path: Path) -> None:
    fast = log(tmp_path / "a.csv", "chat", seconds=8)
    code, out, err = actuals(str(plan.parent), str(fast))
    assert (code, err) == (0, "")
    assert "R&D fleet, FY27 Q1 (plan 3fa9c1d20b7e), 2026-01-05 09:00 to 2026-01-05 10:00 UTC" in out
    assert "chat: traffic 25% above plan; peak 38% below plan; USD per Mtok 20% below plan" in out
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "in 1 h plan actual change" in lines
    assert "requests 360 450 +25%" in lines
    assert "overflow of the pool (plan: allowed) 1.000% 0.000%" in lines
    assert "for the next plan: 0.125 requests/s in these hours: x1.25 the 0.1 that the plan states" in lines
    assert "Note: no log of code" in lines


def test_json_is_stable_and_written_whole(actuals: Run, plan: Path, tmp_path: Path) -> None:
    path, out_file = log(tmp_path / "a.csv", "chat", "code"), tmp_path / "out.json"
    code, out, _ = actuals(str(plan), str(path), "--json", "-o", str(out_file))
    assert code == 0
    assert out_file.read_text(encoding="utf-8") == out
    found = Actuals.model_validate_json(out)
    assert [(model.model, model.actual_requests) for model in found.models] == [("chat", 360), ("code", 360)]
    assert found.files[0][0] == str(path)
    assert actuals(str(plan), str(path), "--json")[1] == out
    assert json.loads(out)["start"] == "2026-01-05T09:00:00Z"
    code, out, _ = actuals(str(plan), str(path), "-o", str(out_file))
    assert code == 0
    assert f"written: {out_file}" in out
    assert [file.name for file in tmp_path.iterdir() if file.name.endswith(".new")] == []


def test_options_of_the_log(actuals: Run, plan: Path, tmp_path: Path) -> None:
    path = log(tmp_path / "a.csv", "gpt", columns="when,in_tokens,out_tokens,deployment")
    options = (
        "--map",
        "timestamp=when,prompt=in_tokens,output=out_tokens,model=deployment",
        "--alias",
        "gpt=code",
        "--format",
        "plain",
    )
    code, out, err = actuals(str(plan), str(path), *options, "--json")
    assert (code, err) == (0, "")
    assert [model["model"] for model in json.loads(out)["models"]] == ["code"]
    code, out, _ = actuals(str(plan), f"{path}=chat", *options[:2], "--now", "2026-01-05T09:30", "--json")
    assert code == 0
    (model,) = json.loads(out)["models"]
    assert (model["model"], model["hours"], model["actual_requests"]) == ("chat", 0.5, 180)
    assert "180 requests lie outside" in model["note"]


def test_canonical_folder_without_dates(actuals: Run, plan: Path, tmp_path: Path) -> None:
    rows = [("chat", minute, 100, 50) for minute in range(60)]
    write(canonical_of(rows, start_us=0, time_base="start of the log"), tmp_path / "folder")
    folder = str(tmp_path / "folder")
    code, _, err = actuals(str(plan), folder)
    assert code == 2
    assert "Say when it began with --starts TIME" in err
    code, out, _ = actuals(str(plan), folder, "--starts", "2026-01-05T12:00", "--json")
    assert code == 0
    assert json.loads(out)["start"] == "2026-01-05T12:00:00Z"
    code, _, err = actuals(str(plan), folder, "--starts", "2026-01-05T12:00", "--tz", "Europe/Berlin", "--map", "a=b")
    assert code == 2
    assert "--tz: does nothing for canonical folders" in err
    assert "--map: does nothing for canonical folders" in err


def test_all_problems_at_once(actuals: Run, plan: Path, tmp_path: Path) -> None:
    path = log(tmp_path / "a.csv", "chat")
    code, out, err = actuals(
        str(tmp_path / "none"), str(path), "--now", "soon", "--map", "timestamp", "-o", str(tmp_path / "no" / "x.json")
    )
    assert (code, out) == (2, "")
    assert "(4 problems)" in err
    assert "no such file" in err
    assert "'soon' is no time" in err
    assert "'timestamp' is not of the form name=value" in err
    assert "its folder is not there" in err
    strange = log(tmp_path / "b.csv", "x", "y")
    late = tmp_path / "late"
    write(canonical_of([("chat", 0, 100, 50)], start_us=START_US + 10 * 86_400_000_000), late)
    code, _, err = actuals(str(plan), str(strange), str(late), str(tmp_path / "c.csv"), "-o", str(tmp_path / "x.json"))
    assert code == 2
    assert "(3 problems)" in err
    assert "holds 'x', 'y', and the plan has 'chat', 'code'" in err
    assert "late: lies outside the plan's horizon: 2026-01-15T00:00:00Z to 2026-01-15T01:00:00Z" in err
    assert "c.csv: no such file" in err
    assert not (tmp_path / "x.json").exists()


def test_a_moment_that_cannot_be_meant(actuals: Run, plan: Path, tmp_path: Path) -> None:
    path = str(log(tmp_path / "a.csv", "chat"))
    code, _, err = actuals(str(plan), path, "--now", "2026-01-01")
    assert code == 2
    assert "nothing of it is over" in err
    code, _, err = actuals(str(plan), path, "--now", "2026-01-05T10:00:01")
    assert code == 2
    assert "is no whole minute" in err
    code, _, err = actuals(str(plan), f"{path}=cod")
    assert code == 2
    assert "Did you mean 'code'?" in err


def test_names_from_outside_do_not_act(actuals: Run, plan: Path, tmp_path: Path) -> None:
    """A model's name in a log may hold markup; control characters do not reach the terminal."""
    path = log(tmp_path / "a.csv", "chat", "[red]\x1b[31mx")
    code, out, err = actuals(str(plan), str(path))
    assert (code, err) == (0, "")
    assert "requests of '[red]?[31mx' (360) are of no model of the plan" in out
    assert "\x1b" not in out
