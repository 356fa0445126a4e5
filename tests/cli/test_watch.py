"""`planner watch` from the keyboard: what it prints, exit codes, and every kind of bad input."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from planner.plan_file import plan_at
from tests.observe.exposition import answer_of, fleet, loaded, text_of

Run = Callable[..., tuple[int, str, str]]
PLAN = "tests/data/fleet/plan.json"
FLEET = fleet(plan_at(Path(PLAN)), 3)


@pytest.fixture
def watch(planner: Run) -> Run:
    return partial(planner, "watch", PLAN)


def saved(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_within(watch: Run, tmp_path: Path) -> None:
    code, out, err = watch("--prometheus", saved(tmp_path / "a.json", answer_of(FLEET)))
    assert (code, err) == (0, "")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[0] == "FY27-Q1 example fleet (plan c7ac8894b515), 2027-01-15 08:00 to 2027-01-15 08:15 UTC"
    assert "chat-large: within the plan, period 4 of 4 (busiest)" in lines
    assert "demand 35.15 25.29 to 35.15 requests/s within" in lines
    assert lines.count("KV usage is x1.00 the planned: as planned") == len(FLEET)


def test_off(watch: Run, tmp_path: Path) -> None:
    more = loaded(replace(FLEET[1], rate_per_s=1.3 * FLEET[1].rate_per_s), 1.0)
    place = saved(tmp_path / "a.json", answer_of([more]))
    code, out, err = watch("--prometheus", place, "--pool", "chat-large")
    assert (code, err) == (1, "")
    assert "1. demand is 30% above the planning rate (45.7 where the plan has 35.15)" in out
    assert "chat-large: 3 off" in out
    assert "KV usage is x3.00 the planned: demand x3.00" in out


def test_tolerance(watch: Run, tmp_path: Path) -> None:
    """5 % more demand: off only where less is tolerated than the usual 10 %."""
    more = loaded(replace(FLEET[1], rate_per_s=1.05 * FLEET[1].rate_per_s), 1.0)
    place = saved(tmp_path / "a.json", answer_of([more]))
    assert watch("--prometheus", place, "--pool", "chat-large")[0] == 0
    code, out, _ = watch("--prometheus", place, "--pool", "chat-large", "--tolerance", "0.01")
    assert code == 1
    assert "1. demand is 5% above the planning rate" in out


def test_json_is_stable(watch: Run, tmp_path: Path) -> None:
    place = saved(tmp_path / "a.json", answer_of(FLEET))
    first = watch("--prometheus", place, "--json", "--pool", "chat-large")
    assert first == watch("--prometheus", place, "--json", "--pool", "chat-large")
    found = json.loads(first[1])
    assert (found["run_id"], found["pools"][0]["pool"]) == ("c7ac8894b515", "chat-large")
    rows = {row["figure"]: row for row in found["pools"][0]["rows"]}
    assert rows["replicas"]["verdict"] == "within"
    assert rows["decode speed"]["observed"] == pytest.approx(1000 * FLEET[1].tpot_s)


def test_a_window_of_a_file(watch: Run, tmp_path: Path) -> None:
    place = saved(tmp_path / "a.json", answer_of(FLEET))
    code, out, _ = watch(
        "--prometheus", place, "--at", "2027-01-15T08:12:00Z", "--window", "6m", "--pool", "chat-large"
    )
    assert code == 0
    assert "2027-01-15 08:06 to 2027-01-15 08:12 UTC" in out
    code, out, _ = watch("--prometheus", place, "--from", "2027-01-15T08:03:00Z", "--to", "2027-01-15T08:09:00Z")
    assert "2027-01-15 08:03 to 2027-01-15 08:09 UTC" in out
    code, _, err = watch("--prometheus", place, "--at", "2027-01-16")
    assert code == 2
    assert "hold none of the metrics of vLLM or SGLang in this time" in err


def test_what_is_missing_is_named(watch: Run, tmp_path: Path) -> None:
    code, out, _ = watch("--prometheus", saved(tmp_path / "a.prom", text_of(FLEET[:1])), "--pool", "code-complete")
    assert code == 0
    assert "missing: demand (vllm:request_success_total: two scrapes" in out
    assert "Note: the time of the scrape is not known (give --at)" in out


BAD = {
    "no file": (("--prometheus", "nowhere.prom"), "nowhere.prom"),
    "no pool": (("--prometheus", "FILE", "--pool", "x"), "'x' is no pool of the plan"),
    "tolerance": (("--prometheus", "FILE", "--tolerance", "1.5"), "--tolerance: must be from 0"),
    "cached": (("--prometheus", "FILE", "--cached-share", "2"), "--cached-share: must be from 0"),
    "time": (("--prometheus", "FILE", "--at", "noon"), "'noon' is no time"),
    "window": (("--prometheus", "FILE", "--window", "0m"), "'0m' is no length of time"),
    "both": (("--prometheus", "FILE", "--at", "2027-01-15", "--from", "2027-01-14"), "--at: excludes --from and --to"),
    "order": (("--prometheus", "FILE", "--from", "2027-01-15", "--to", "2027-01-14"), "--from: is not before --to"),
    "half": (("--prometheus", "FILE", "--to", "2027-01-14"), "--to: needs --from"),
    "every": (("--prometheus", "FILE", "--every", "60s"), "--every: looks at now"),
    "token": (("--prometheus", "FILE", "--token-file", "nowhere"), "nowhere: cannot be read: FileNotFoundError"),
    "gone": (("--prometheus", "http://127.0.0.1:9", "--timeout", "1s"), "cannot be reached"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(watch: Run, tmp_path: Path, case: str) -> None:
    arguments, says = BAD[case]
    place = saved(tmp_path / "a.json", answer_of(FLEET[:1]))
    code, out, err = watch(*(place if argument == "FILE" else argument for argument in arguments))
    assert (code, out) == (2, "")
    assert says in err
    assert "internal error" not in err


def test_all_problems_at_once(watch: Run) -> None:
    code, _, err = watch("--prometheus", "x", "--tolerance", "-1", "--window", "soon", "--timeout", "never")
    assert code == 2
    assert "(3 problems)" in err


def test_again_and_again(watch: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rounds, each at the moment that the clock shows; a sleep in between."""
    slept: list[float] = []
    moments = iter([1_800_000_900.0, 1_800_000_960.0])
    monkeypatch.setattr("planner.cli.watch.time.sleep", slept.append)
    monkeypatch.setattr("planner.cli.watch.time.time", lambda: next(moments))
    from planner.observe import exported

    place = Path(saved(tmp_path / "a.json", answer_of(FLEET[:2])))
    windows: list[float] = []

    def live(base: str, names: object, window: object, timeout_s: float, token: str) -> object:
        windows.append(window.end_s)  # type: ignore[attr-defined]
        return exported.saved_series(place)

    monkeypatch.setattr("planner.cli.watch.live_series", live)
    code, out, _ = watch("--prometheus", "http://prometheus:9090", "--every", "60s", "--rounds", "2", "--json")
    assert code == 0
    assert len(out.splitlines()) == 2
    assert (slept, windows) == ([60.0], [1_800_000_900.0, 1_800_000_960.0])
