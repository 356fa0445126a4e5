"""Last quarter's plan and actuals: read, refused when they cannot be meant, and a rate taken from them."""

from __future__ import annotations

import datetime as dt
import hashlib
from pathlib import Path

import pytest

from planner.errors import InputError
from planner.pipeline import plan_quarter
from planner.plan import plan_to_json
from planner.study import Actuals, ModelActual
from tests.futures.world import NOW, inputs_of, request, study_of
from tests.optimise.world import catalog

LAST = '\n[last_quarter]\nplan = "last"\nactuals = "actuals.json"\n'


def actual(model: str = "chat", requests: float = 7200.0, hours: float = 2.0) -> ModelActual:
    shared = {"planned_requests": 1.0, "planned_input_mtok": 1.0, "actual_input_mtok": 1.0, "planned_output_mtok": 1.0}
    more = {"actual_output_mtok": 1.0, "planned_peak_per_s": 1.0, "actual_peak_per_s": 1.0, "planned_usd": 1.0}
    shares = {"planned_refused_share": 0.0, "actual_refused_share": 0.0, "allowed_overflow": 0.01}
    costs = {"actual_overflow": None, "planned_usd_per_mtok": 1.0, "actual_usd_per_mtok": 1.0}
    values = shared | more | shares | costs
    return ModelActual(model=model, hours=hours, actual_requests=requests, **values)


def actuals(run_id: str, *models: ModelActual, end: str = "2026-12-31T00:00:00Z") -> Actuals:
    return Actuals(
        run_id=run_id, title="last", start=dt.datetime(2026, 10, 2, tzinfo=dt.UTC), end=dt.datetime.fromisoformat(end),
        models=models, files=(),
    )  # fmt: skip


@pytest.fixture(scope="module")
def last(tmp_path_factory):
    """A plan of the quarter before."""
    path = request(tmp_path_factory.mktemp("last"))
    text = path.read_text().replace("2027-04-01", "2027-01-01").replace("start = 2027-01-01", "start = 2026-10-01")
    path.write_text(text)
    created_at = dt.datetime(2026, 9, 15, tzinfo=dt.UTC)
    return plan_quarter(path, catalog(), created_at=created_at)


@pytest.fixture
def path(tmp_path, last) -> Path:
    (tmp_path / "last").mkdir()
    (tmp_path / "last" / "plan.json").write_text(plan_to_json(last))
    (tmp_path / "actuals.json").write_text(actuals(last.run_id, actual()).model_dump_json())
    return request(tmp_path, LAST)


def refused(path: Path) -> str:
    with pytest.raises(InputError) as found:
        inputs_of(path)
    return str(found.value)


def test_both_files_are_in_the_study_and_among_the_plans_inputs(path, last):
    found = study_of(path)
    sha256 = hashlib.sha256((path.parent / "last" / "plan.json").read_bytes()).hexdigest()
    assert (found.last.path, found.last.sha256) == ("last", sha256)
    assert found.last.plan == last
    assert found.last.actuals.models == (actual(),)
    files = {file.role: file for file in found.plan.inputs}
    assert files["last quarter's plan"].sha256 == sha256
    assert files["last quarter's actuals"].path == "actuals.json"
    assert found.regret is None


def test_files_that_are_not_there_or_something_else_are_listed_together(path):
    (path.parent / "last" / "plan.json").unlink()
    (path.parent / "actuals.json").write_text('{"title": 1}')
    text = refused(path)
    assert "last_quarter.plan: " in text
    assert "no such file. Give the plan.json that `planner plan` writes, or its folder" in text
    assert "is no actuals: Field required. Give the file that `planner actuals` writes" in text


def test_horizons_that_reach_into_the_new_quarter_are_refused(path, last):
    (path.parent / "last" / "plan.json").write_text(
        plan_to_json(last.model_copy(update={"horizon_end": dt.date(2027, 1, 2)}))
    )
    (path.parent / "actuals.json").write_text(actuals("other", actual(), end="2027-01-01T01:00:00Z").model_dump_json())
    text = refused(path)
    assert "the plan runs to 2027-01-02 (exclusive), and the new quarter starts on 2027-01-01" in text
    assert "the actuals run to 2027-01-01T01:00:00+00:00 (exclusive)" in text
    assert f"the actuals are of plan other, and the plan is {last.run_id}" in text


def test_a_rate_from_the_actuals(path, last):
    """7,200 requests in 2 h are one a second, counted from the middle of the logs; growth applies to it as usual."""
    text = path.read_text().replace("rate_per_s = 40", "rate_from_actuals = true\ngrowth = 1.5\nsource = 'gateway'", 1)
    path.write_text(text)
    chat, code = inputs_of(path).models
    assert (chat.rates.stated_rate_per_s, chat.rates.mean_rate_per_s) == (1.0, 1.5)
    assert not chat.rates.rate_measured
    assert chat.request.traffic.source == f"actuals of plan {last.run_id}: 7,200 requests in 2 h; gateway"
    assert chat.request.traffic.source_date == dt.date(2026, 11, 16)
    assert code.rates.stated_rate_per_s == 15
    rows = {row.id: row for row in plan_quarter(path, catalog(), created_at=NOW).assumptions}
    assert rows["rate_chat"].value == 1.0
    assert rows["rate_chat"].source.startswith("actuals of plan")


@pytest.mark.parametrize("found", [actual("other"), actual(requests=0.0), actual(hours=0.0)])
def test_a_model_that_the_actuals_lack(path, last, found):
    (path.parent / "actuals.json").write_text(actuals(last.run_id, found).model_dump_json())
    path.write_text(path.read_text().replace("rate_per_s = 40", "rate_from_actuals = true", 1))
    text = refused(path)
    assert "model 'chat', field traffic.rate_from_actuals: the actuals hold no requests of it" in text


def test_a_rate_from_actuals_that_are_not_named(tmp_path):
    path = request(tmp_path)
    path.write_text(path.read_text().replace("rate_per_s = 40", "rate_from_actuals = true", 1))
    assert "the request names no actuals. Add actuals to [last_quarter]" in refused(path)


def test_two_rates(tmp_path):
    path = request(tmp_path)
    path.write_text(path.read_text().replace("rate_per_s = 40", "rate_per_s = 40\nrate_from_actuals = true", 1))
    assert "rate_per_s and rate_from_actuals both say what the rate is: keep one" in refused(path)
