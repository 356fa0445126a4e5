"""`planner solve-table`: its figures, its JSON, its words and its refusals."""

import json
from pathlib import Path

import pytest

DATA = Path(__file__).parents[1] / "data" / "melange"
SMALL = str(DATA / "b25_sf4_g4_r400.json")


def test_json_has_every_figure(planner):
    code, out, err = planner("solve-table", SMALL, "--json")
    found = json.loads(out)
    assert (code, err) == (0, "")
    # CBC found 348.16 with whole slices and proved 348.11 (results.json); with shared buckets 347.61 is enough.
    assert (found["status"], found["cost"]) == ("optimal", pytest.approx(347.61))
    assert found["bound"] <= found["cost"]
    assert found["gap"] <= found["gap_asked"] == 1e-4
    prices = {name: gpu["cost"] for name, gpu in json.loads(Path(SMALL).read_text())["gpu_info"].items()}
    assert found["cost"] == pytest.approx(sum(prices[name] * n for name, n in found["fleet"].items()))
    assert all(found["busy"][name] <= n for name, n in found["fleet"].items())
    assert found["solve_cpu_s"] > 0
    assert (found["solver"], found["buckets"], found["slice_factor"]) == ("HiGHS", 25, 4)
    assert found["shares"].startswith("continuous")


def test_same_bytes_but_for_the_cpu_time(planner):
    first, second = (json.loads(planner("solve-table", SMALL, "--json")[1]) for _ in range(2))
    first.pop("solve_cpu_s")
    second.pop("solve_cpu_s")
    assert json.dumps(first) == json.dumps(second)


def test_text_says_the_status_in_words(planner):
    code, out, err = planner("solve-table", SMALL, "--solver", "cbc")
    assert (code, err) == (0, "")
    assert "347.61 USD/h for 400 requests/s in 25 buckets" in out
    assert "optimal: proven within the gap asked for (0.01 %)" in out
    assert "a bucket may be split over GPU types" in out
    assert "CBC" in out


def test_the_program_is_written(planner, tmp_path):
    path = tmp_path / "t.lp"
    assert planner("solve-table", SMALL, "--lp", str(path))[0] == 0
    text = path.read_text()
    assert "Generals" in text
    assert "cut0:" in text


def test_infeasible_names_what_is_short(planner, tmp_path):
    path = tmp_path / "t.json"
    table = {"gpu_info": {"a": {"cost": 1, "tputs": [[2, 0]]}}, "workload_distribution": [[0.5, 0.5]]}
    path.write_text(json.dumps(table | {"total_request_rate": 1}))
    code, out, err = planner("solve-table", str(path))
    assert (code, out) == (3, "")
    assert "bucket (1, 2)" in err
    table["gpu_info"] = {"a": {"cost": 1, "tputs": [[0.1, 0.1]], "available": 5}}
    path.write_text(json.dumps(table | {"total_request_rate": 1}))
    code, _, err = planner("solve-table", str(path))
    assert code == 3
    assert "at most 50.00 %" in err  # 10 busy, 5 to be had
    assert "a: 5 can be had, the cheapest fleet without limits takes 10" in err


def test_bad_input_lists_every_problem(planner, tmp_path):
    path = tmp_path / "t.json"
    path.write_text('{"gpu_info": {"a": {"cost": -1, "tputs": [[NaN]]}}, "workload_distribution": [[0.9]]}')
    code, out, err = planner("solve-table", str(path))
    assert (code, out) == (2, "")
    for part in ("4 problems", "adds up to 0.9", "total_request_rate: is missing", "cost: is -1", "'NaN', no number"):
        assert part in err


def test_options_out_of_range(planner):
    code, _, err = planner("solve-table", SMALL, "--gap", "1", "--time-limit", "0", "--threads", "0", "--seed", "-1")
    assert code == 2
    for option in ("--gap", "--time-limit", "--threads", "--seed"):
        assert option in err
