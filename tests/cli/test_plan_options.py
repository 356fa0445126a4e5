"""Options of `planner plan` about the solve: what they change, what the plan says of them, and what is refused."""

import datetime as dt
import importlib
import json
import math
from pathlib import Path

import pytest

from planner import pipeline
from planner.catalog.load import load_catalog
from planner.cli.live import line_of, plainly, watching
from planner.errors import SolverError
from planner.inputs import read_inputs
from planner.optimise.solve.solvers import Report
from planner.optimise.solve.warm import warm_columns
from planner.plan import FleetPlan, plan_to_json
from planner.provenance import run_id
from planner.solve_options import SolveOptions
from tests.test_frontier import write

NOW = dt.datetime(2026, 11, 29, 12, tzinfo=dt.UTC)


@pytest.fixture(scope="module")
def request_file(tmp_path_factory) -> Path:
    """No request may be refused, so that the program's objective is the cost."""
    path = write(tmp_path_factory.mktemp("options"))
    path.write_text(path.read_text().replace("tail_budget = 0.01", "tail_budget = 0"))
    return path


@pytest.fixture(scope="module")
def plain(request_file) -> FleetPlan:
    """The plan without options, kept as last quarter's."""
    made = pipeline.plan_quarter(request_file, load_catalog(), created_at=NOW)
    (request_file.parent / "plan.json").write_text(plan_to_json(made))
    return made


def test_options_are_obeyed_and_recorded(planner, request_file, plain, tmp_path):
    """The LP file, solved by HiGHS itself, has the plan's cost, for no request is refused."""
    file, folder = tmp_path / "program.lp", request_file.parent
    code, out, err = planner(
        "plan", str(request_file), "-o", str(tmp_path / "out"), "--now", NOW.isoformat(), "--json",
        "--gap", "0.002", "--time-limit", "30", "--threads", "2", "--seed", "7", "--lp", str(file),
        "--warm-start", str(folder),
    )  # fmt: skip
    assert (code, err) == (0, "")  # silent in pipes
    made = json.loads(out)
    solve = made["solve"]
    assert (solve["gap_target"], solve["threads"], solve["seed"]) == (0.002, 2, 7)
    assert (plain.solve.gap_target, plain.solve.threads, plain.solve.seed) == (0.001, 1, 0)
    note = "solved with --gap 0.002, --seed 7, --threads 2, --time-limit 30.0 in place of the request's [solver]"
    assert note in made["warnings"]
    assert not any("in place of" in line for line in plain.warnings)
    assert [f["path"] for f in made["inputs"] if f["role"] == "start of the solve"] == [str(folder)]
    assert made["run_id"] != plain.run_id
    assert solve["objective"] == pytest.approx(plain.solve.objective, rel=0.003)
    highs = importlib.import_module("highspy").Highs()
    highs.setOptionValue("output_flag", False)
    highs.readModel(str(file))
    highs.run()
    assert highs.getInfo().objective_function_value == pytest.approx(solve["objective"], rel=0.003)
    assert "\\ model m = 0: chat" in file.read_text()


def test_a_start_names_the_columns_of_the_last_plan(request_file, plain):
    """From its own plan every choice is found again; a pool on a type that is not there any more is left out."""
    inputs = read_inputs(request_file, load_catalog(), NOW.date())
    quarter = pipeline.prepare(inputs)
    chosen = pipeline.decide(quarter, inputs.request).columns
    columns = quarter.fleet.data().columns
    assert warm_columns(plain, columns) == tuple(sorted(column.key for column in chosen))
    elsewhere = plain.pools[0].model_copy(update={"gpu": "B300"})
    changed = plain.model_copy(update={"pools": (elsewhere, *plain.pools[1:])})
    assert warm_columns(changed, columns) == tuple(c.key for c in chosen if c.model == plain.pools[1].model)


def test_each_setting_changes_the_run_id(plain):
    ids = {run_id(plain.inputs, SolveOptions({key: 1}).words) for key in ("gap", "seed", "threads")}
    assert len(ids | {run_id(plain.inputs)}) == 4


def test_runner_ups_that_time_does_not_allow_are_not_called_infeasible(request_file, monkeypatch):
    def none_left(settings, ends):
        raise SolverError("No time is left")

    monkeypatch.setattr(pipeline, "time_left", none_left)
    made = pipeline.plan_quarter(request_file, load_catalog(), created_at=NOW)
    for pool in made.pools:
        assert pool.runner_up is None
        assert "the next best was not found within the time limit" in pool.why
        assert "nothing else is feasible" not in pool.why


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--gap", "2", "--threads", "0", "--seed", "-1"), ("--gap: ", "--threads: ", "--seed: ", "3 problems")),
        (("--gap", "nan"), ("--gap: input should be a finite number",)),
        (("--time-limit", "0"), ("--time-limit: ",)),
        (("--threads", "100000", "--seed", "99999999999"), ("--threads: ", "--seed: ")),
        (("--solver", "gurobi"), ("--solver: input should be 'highs' or 'cbc' (got gurobi)",)),
        (("--warm-start", "nowhere"), ("nowhere: no such file",)),
        (("--warm-start", __file__), ("is no plan",)),
        (("--lp", "/nowhere/a.lp"), ("--lp: '/nowhere/a.lp' cannot be written: its folder is not there",)),
        (("--lp", "."), ("--lp: '.' cannot be written: it is a folder",)),
    ],
)
def test_what_is_refused_before_any_work(planner, tmp_path, options, words):
    """The request is not even there."""
    code, out, err = planner("plan", str(tmp_path / "none.toml"), "-o", str(tmp_path / "out"), *options)
    assert (code, out) == (2, "")
    for word in words:
        assert word in err
    assert not (tmp_path / "out").exists()


def test_the_live_line():
    early = Report(math.inf, -math.inf, math.inf, 0.4)
    assert line_of(early) == "solving the integer program: no fleet yet, no bound yet, gap unknown, 0 s"
    late = Report(123456.7, 120000.2, 0.0280, 12.3)
    assert line_of(late) == "solving the integer program: best 123,457 USD, bound 120,000 USD, gap 2.800%, 12 s"
    shown = []
    watching(shown.append, True)(late)
    plainly(shown.append)("candidates of [/bold]\nx")
    assert [text.plain for text in shown] == [line_of(late), "candidates of [/bold] x"]
    assert watching(shown.append, False) is None
