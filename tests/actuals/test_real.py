"""Public traces cut in half: planned from the first, compared with the second, figures checked by other code."""

from __future__ import annotations

import datetime as dt
import shutil
from pathlib import Path

import numpy as np
import pytest

from planner.actuals.compare import actuals_of
from planner.actuals.logs import HowToRead
from planner.actuals.timetable import hours_by_period, timetable_of
from planner.plan import read_plan
from planner.study import ModelActual
from planner.traffic.times import moment_us
from tests.actuals.plans import Spec, plan_of
from tests.queueing.replay import Trace, azure, live_path, mooncake, write_plain

ROOT = Path(__file__).parents[2]
TRACES = ROOT / "catalogs" / "example" / "traffic"
DATA = ROOT / "tests" / "data" / "traffic"
START, END = dt.date(2023, 11, 14), dt.date(2023, 11, 16)
"""`write_plain` begins at 22:13:20 on the first of these days."""
REPLICAS, DECODE, TTFT = 2, 25.0, 0.5


def halves(trace: Trace) -> tuple[Trace, Trace]:
    middle = trace.arrival_s[-1] / 2
    return trace.part(trace.arrival_s < middle), trace.part(trace.arrival_s >= middle)


def load(name: str) -> Trace:
    if name == "mooncake":
        return mooncake(TRACES / "mooncake_conversation_head2500.jsonl")
    return azure(TRACES / f"AzureLLMInferenceTrace_{name}.csv")


def live_of(trace: Trace, at_s: np.ndarray) -> np.ndarray:
    """Live tokens of each replica, requests dealt out in turn; a row for each."""
    turn = np.arange(trace.arrival_s.size) % REPLICAS
    return np.array([live_path(trace.part(turn == r), DECODE, TTFT, at_s) for r in range(REPLICAS)])


@pytest.mark.parametrize("name", ["code", "conv", "mooncake"])
def test_second_half_on_a_plan_of_the_first(name: str, tmp_path: Path) -> None:
    first, second = halves(load(name))
    length = int(np.quantile(first.prompt + first.output, 0.99))
    fits = first.part(first.prompt + first.output <= length)
    at_s = np.arange(0.0, first.arrival_s[-1], 0.05)
    pool = int(np.quantile(live_of(fits, at_s), 0.98))
    rate = first.arrival_s.size / (second.arrival_s[0] - first.arrival_s[0])
    spec = Spec(
        name, name, (rate,), (REPLICAS,), prompt=float(first.prompt.mean()), output=float(first.output.mean()),
        max_model_len=length, pool_tokens=pool, ttft_s=TTFT, decode_per_s=DECODE, stated=rate,
    )  # fmt: skip
    path = write_plain(second, tmp_path / "log.csv")
    (found,) = actuals_of(plan_of([spec], START, END), [(path, name)], HowToRead()).models
    total = second.prompt + second.output
    assert found.actual_requests == total.size
    assert found.actual_refused_share == pytest.approx(np.mean(total > length), abs=1e-12)
    assert found.actual_input_mtok == pytest.approx(second.prompt.sum() / 1e6)
    assert found.actual_output_mtok == pytest.approx(second.output.sum() / 1e6)
    span = second.arrival_s[-1] - second.arrival_s[0]
    # A log ends one tick of its own clock after its last stamp: 3 s in the trace of Mooncake.
    assert 0 < found.hours * 3600 - span <= 3.0
    assert found.planned_requests == pytest.approx(rate * found.hours * 3600)
    assert found.growth == pytest.approx(total.size / (rate * found.hours * 3600))
    fitted = second.part(total <= length)
    at_s = np.arange(second.arrival_s[0] + 0.025, second.arrival_s[-1], 0.05)
    assert found.actual_overflow == pytest.approx(np.mean(live_of(fitted, at_s) > pool), abs=3e-4)
    assert found.actual_overflow is not None
    assert found.actual_overflow > 0
    assert found.actual_usd_per_mtok == pytest.approx(found.planned_usd * 1e6 / total[total <= length].sum())


def test_ten_minutes(tmp_path: Path) -> None:
    """The busiest ten minutes of the conversation trace, by pandas-free counting of whole minutes."""
    trace = load("conv")
    path = write_plain(trace, tmp_path / "log.csv")
    (found,) = actuals_of(plan_of([Spec("m", "m", (5.0,), (2,))], START, END), [(path, "")], HowToRead()).models
    minute = ((trace.arrival_s + 20) // 60).astype(int)  # the log begins 20 s into a minute
    counts = np.bincount(minute)[1:-1]
    best = max(counts[at : at + 10].sum() for at in range(counts.size - 9))
    assert found.actual_peak_per_s == pytest.approx(best / 600)


def test_a_drawn_log_without_dates(tmp_path: Path) -> None:
    """Clients of ServeGen, placed by --starts: drawn requests are replayed, and the log says that they are drawn."""
    how = HowToRead(
        options={"seed": 7, "window_start_s": 32400, "window_s": 1200}, starts_us=moment_us("", "2023-11-14")
    )
    plan = plan_of([Spec("m", "m", (70.0,), (2,), pool_tokens=300_000)], START, END)
    found = actuals_of(plan, [(TRACES / "servegen-m-mid", "m")], how)
    (model,) = found.models
    assert model.hours == pytest.approx(1 / 3)
    assert model.actual_overflow is not None
    assert "live tokens at most" in model.note
    assert "have no lengths" not in model.note
    assert any("servegen-m-mid: " in note for note in found.notes)


def test_metrics_show_no_requests(tmp_path: Path) -> None:
    """Sums by hour of a usage report: rates and money; refusals are the plan's, and said to be."""
    folder = tmp_path / "usage"
    folder.mkdir()
    (folder / "days.csv").write_text(
        "date,model,prompt_tokens,completion_tokens,successful_requests,failed_requests\n"
        "2023-11-14,m,864000,432000,8640,0\n",
        encoding="utf-8",
    )
    spec = Spec("m", "m", (0.1,), (2,), refused=0.01)
    (found,) = actuals_of(plan_of([spec], START, END), [(folder / "days.csv", "")], HowToRead()).models
    assert found.actual_overflow is None
    assert "refused share is taken as planned" in found.note
    assert (found.hours, found.actual_requests) == (24.0, 8640)
    assert found.actual_refused_share == pytest.approx(0.01)
    assert found.actual_usd_per_mtok == pytest.approx(found.planned_usd / (0.864 + 0.432) / 0.99)


def test_the_example_plan() -> None:
    """A plan that the product wrote: its words give every hour its period, in Berlin's time."""
    plan = read_plan(ROOT / "reports" / "example" / "plan.json")
    table = timetable_of(plan)
    assert table.note == ""
    assert hours_by_period(table, (table.horizon,)) == pytest.approx([period.hours for period in plan.periods])


def test_the_whole_horizon_is_the_plan(tmp_path: Path) -> None:
    """Where logs cover the horizon from end to end, planned figures are the plan's own."""
    plan = read_plan(ROOT / "reports" / "example" / "plan.json")
    shutil.copy(ROOT / "reports" / "example" / "plan.json", tmp_path)
    days = ["2027-01-01T00:00:00Z", "2027-03-31T23:59:59.999999Z"]
    path = tmp_path / "log.csv"
    lines = [f"{day},100,10,{model}" for day in days for model in dict.fromkeys(pool.model for pool in plan.pools)]
    path.write_text("\n".join(["timestamp,prompt,output,model", *lines]) + "\n", encoding="utf-8")
    found = actuals_of(plan, [(path, "")], HowToRead())
    assert sum(model.planned_usd for model in found.models) == pytest.approx(plan.totals.usd)
    for model in found.models:
        pools = [pool for pool in plan.pools if pool.model == model.model]
        assert model.planned_requests == pytest.approx(sum(pool.offered_requests for pool in pools))
        served = sum(pool.served_mtok for pool in pools)
        assert model.planned_usd == pytest.approx(sum(pool.usd for pool in pools))
        assert model.planned_usd_per_mtok == pytest.approx(model.planned_usd / served)
        assert isinstance(model, ModelActual)
