"""The oldest price and the oldest engine fact: in the plan, the summary, the page, the workbook and `explain`."""

from __future__ import annotations

import contextlib
import datetime as dt
import io
import json
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from planner.plan import Age, AgeKind, FleetPlan, plan_to_json, read_plan
from planner.report import facts
from planner.report.page.document import render_page
from planner.report.summary import render_summary
from planner.report.workbook import write_workbook
from planner.study import Study
from tests.report.sample import sample_plan

FACT = Age(
    kind=AgeKind.ENGINE_FACT,
    what="vllm 0.33.0: block_size_tokens",
    as_of=dt.date(2026, 10, 1),
    age_days=59,
    source="vllm/config/cache.py, <b>block_size</b>",
)


@pytest.fixture(scope="module")
def aged() -> FleetPlan:
    plan = sample_plan()
    lot = min(plan.purchases, key=lambda p: (p.price_as_of, p.offer_id))
    day, days = facts.oldest_price(plan)
    price = Age(kind=AgeKind.PRICE, what=lot.offer_id, as_of=day, age_days=days, source=lot.source_url)
    return plan.model_copy(update={"oldest": (price, FACT)})


def test_a_plan_is_read_as_it_was_written_and_older_ones_lack_the_ages(aged, tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(plan_to_json(aged), encoding="utf-8")
    assert read_plan(path) == aged
    older = json.loads(plan_to_json(aged))
    del older["oldest"]
    path.write_text(json.dumps({**older, "schema_version": 2}), encoding="utf-8")
    read = read_plan(path)
    assert read.oldest == ()
    assert facts.oldest_engine_fact(read) is None
    (price,) = facts.ages(read)
    assert price == facts.ages(aged)[0], "the price follows from the purchases"


def test_the_summary_says_both(aged):
    out = io.StringIO()
    render_summary(aged, Console(file=out, width=110))
    flat = " ".join(out.getvalue().split())
    assert "the oldest is of 2026-07-20, 132 days before planning" in flat
    assert "the oldest fact is of 2026-10-01, 59 days before planning (vllm 0.33.0: block_size_tokens)" in flat


def test_the_page_says_both(aged):
    page = render_page(Study(plan=aged))
    price = aged.oldest[0]
    assert f"the oldest is of 2026-07-20, 132 days before planning ({price.what}; {price.source[:40]}" in page
    fact = "2026-10-01, 59 days before planning (vllm 0.33.0: block_size_tokens; vllm/config/cache.py, &lt;b&gt;"
    assert f"The oldest engine fact is of {fact}block_size&lt;/b&gt;)." in page
    assert "The oldest engine fact" not in render_page(Study(plan=sample_plan()))


def test_the_cover_of_the_workbook_says_both(aged, tmp_path: Path):
    write_workbook(aged, tmp_path / "plan.xlsx")
    cover = pd.read_excel(tmp_path / "plan.xlsx", sheet_name="Cover", header=None)
    row = next(i for i in range(len(cover)) if cover.iat[i, 0] == "Oldest engine fact")
    assert str(cover.iat[row, 1])[:10] == "2026-10-01"
    assert cover.iat[row, 2] == f"{FACT.what}: {FACT.source}"
    assert cover.iat[row + 1, 1] == facts.created_utc(aged).date().toordinal() - FACT.as_of.toordinal()


def test_explain_lists_both_with_their_sources(aged, tmp_path, monkeypatch, capsys):
    from planner.cli import main

    (tmp_path / "plan.json").write_text(plan_to_json(aged), encoding="utf-8")
    for extra, check in ((), _text), (("--json",), _data):
        monkeypatch.setattr("sys.argv", ["planner", "explain", str(tmp_path), *extra])
        with contextlib.suppress(SystemExit):
            main()
        check(capsys.readouterr().out)


def _text(out: str) -> None:
    flat = " ".join(out.split())
    assert "oldest price: 2026-07-20, 132 days before planning" in flat
    assert "oldest engine fact: 2026-10-01, 59 days before planning: vllm 0.33.0: block_size_tokens" in flat
    assert f"from {FACT.source}" in flat


def _data(out: str) -> None:
    price, fact = json.loads(out)["oldest"]
    assert (price["kind"], price["age_days"], price["as_of"]) == ("price", 132, "2026-07-20")
    assert fact == json.loads(FACT.model_dump_json())
