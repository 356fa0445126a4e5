"""A plan whose rates come from canonical folders: where the workbook says that each figure comes from."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from openpyxl import load_workbook

Run = Callable[..., tuple[int, str, str]]

REQUEST = """
[quarter]
title = "t"
start = 2027-01-01
end = 2027-04-01
owner = "o"
stated_on = 2026-11-29

[engine]
name = "vllm"
version = "0.33.0"

[offers]
providers = ["lambda"]
gpus = ["H100-SXM"]

[[model]]
name = "chat"
weights = "meta-llama/Llama-3.1-8B-Instruct"
weight_dtypes = ["fp8"]
kv_dtypes = ["bf16"]
tail_budget = 0.01
[model.traffic]
path = "next"
peak_quantile = 0.95
growth_per_quarter = 0.1
steps = [{ on = 2027-02-01, factor = 1.5, why = "launch in France" }]
"""
FILES = 14
A_DAY = 720
"""One every two minutes, and three times as many from 12 to 13 UTC."""


@pytest.fixture
def folder(tmp_path: Path, planner: Run) -> Path:
    """Two weeks of daily logs, ingested and scaled."""
    (tmp_path / "logs").mkdir()
    for day in range(FILES):
        at = [timedelta(minutes=2 * i) for i in range(A_DAY)] + [timedelta(hours=12, seconds=60 * i) for i in range(60)]
        midnight = datetime(2026, 9, 1 + day, tzinfo=UTC)
        rows = [f"{midnight + t:%Y-%m-%d %H:%M:%S},{500 + 7 * (i % 90)},{50 + i % 40}\n" for i, t in enumerate(at)]
        (tmp_path / "logs" / f"2026-09-{1 + day:02d}.csv").write_text("timestamp,prompt,output\n" + "".join(rows))
    assert planner("ingest", str(tmp_path / "logs"), "-o", str(tmp_path / "log"))[0] == 0
    scaled = ("traffic", "scale", str(tmp_path / "log"), "-o", str(tmp_path / "next"), "--rate-factor", "200")
    assert planner(*scaled)[0] == 0
    (tmp_path / "quarter.toml").write_text(REQUEST)
    return tmp_path


def test_inputs_say_what_was_measured_and_what_assumed(folder: Path, planner: Run) -> None:
    asked = ("--now", "2026-11-30T12:00:00Z", "-o", str(folder / "plan"))
    code, _, err = planner("plan", str(folder / "quarter.toml"), *asked)
    assert (code, err) == (0, "")
    found = inputs(folder / "plan" / "plan.xlsx")
    rate, peak, growth = (found[f"demand/chat/{key}"] for key in ("rate", "peak", "growth"))
    assert rate["Value"] == pytest.approx(200 * FILES * (A_DAY + 60) / (FILES * 86_400), rel=1e-3)
    assert rate["Source"] == "plain: 14 files, 2026-09-01.csv to 2026-09-14.csv"
    assert rate["Source date"].date().isoformat() == "2026-09-14"
    assert "rates were multiplied by 200, an assumption" in rate["Note"]
    assert "the busiest ten minutes of" in rate["Note"]
    assert "launch in France" in rate["Note"]
    days = [(datetime(2027, 1, 1, tzinfo=UTC) + timedelta(days=d)) for d in range(90)]
    middle = datetime(2026, 9, 8, tzinfo=UTC)
    grown = [1.1 ** ((d - middle).days / 91.3125) * (1.5 if d.month > 1 else 1) for d in days]
    assert growth["Value"] == pytest.approx(sum(grown) / 90, rel=0.01)
    busiest = 200 * 15 / 600  # five of every two minutes, ten of every minute
    assert peak["Value"] == pytest.approx(busiest / rate["Value"] * max(grown) / growth["Value"], rel=0.01)


def inputs(workbook: Path) -> dict[str, dict[str, Any]]:
    rows = list(load_workbook(workbook)["Inputs"].iter_rows(values_only=True))
    head = next(row for row in rows if row[0] == "Id")
    return {str(row[0]): dict(zip(head, row, strict=True)) for row in rows if row[0]}
