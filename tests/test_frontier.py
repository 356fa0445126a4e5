"""The frontier of cost against a limit: monotone, alike to plans made one by one, and clear about what is not there."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import numpy as np
import pytest

from planner.catalog.load import load_catalog
from planner.errors import InputError
from planner.frontier import Axis, frontier, varied
from planner.inputs import Inputs, read_inputs
from planner.pipeline import decide, prepare
from planner.report.frontier_chart import frontier_chart

TODAY = dt.date(2026, 11, 29)
MODEL = """
[[model]]
name = "{name}"
weights = "meta-llama/Llama-3.1-8B-Instruct"
weight_dtypes = ["bf16"]
kv_dtypes = ["bf16"]
tp_degrees = [1]
max_num_seqs = [256]
tail_budget = 0.01
[model.traffic]
path = "log.csv"
format = "azure"
rate_per_s = {rate}
"""
REQUEST = """
[quarter]
title = "small"
start = 2027-01-01
end = 2027-04-01
owner = "o"

[engine]
name = "vllm"
version = "0.19.0"

[offers]
providers = ["verda"]
gpus = ["H100-SXM", "L40S"]
"""


def write(folder: Path) -> Path:
    """Two models on 400 invented requests, of which four are long."""
    rng = np.random.default_rng(5)
    begun = np.cumsum(rng.exponential(2.0, 400))
    prompt = np.append(np.round(rng.lognormal(6, 0.7, 396)), [9000, 9000, 9000, 9000]).astype(int)
    output = np.round(rng.lognormal(4.5, 0.6, 400)).astype(int) + 1
    lines = ["TIMESTAMP,ContextTokens,GeneratedTokens"]
    for at, p, o in zip(begun, rng.permutation(prompt), output, strict=True):
        lines.append(f"{dt.datetime(2026, 11, 2) + dt.timedelta(seconds=float(at))},{p},{o}")
    (folder / "log.csv").write_text("\n".join(lines) + "\n")
    models = MODEL.format(name="chat", rate=40) + MODEL.format(name="code", rate=15)
    (folder / "quarter.toml").write_text(REQUEST + models)
    return folder / "quarter.toml"


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    return write(tmp_path_factory.mktemp("frontier"))


@pytest.fixture(scope="module")
def inputs(path) -> Inputs:
    return read_inputs(path, load_catalog(), TODAY)


@pytest.fixture(scope="module")
def by_tpot(inputs):
    return frontier(inputs, Axis.TPOT, [200, 3, 60, 12, 60.0], ["chat"])


def test_sorted_once_each_and_never_dearer_when_looser(by_tpot):
    assert [point.value for point in by_tpot] == [3, 12, 60, 200]
    usd = [point.fleet.usd_per_mtok for point in by_tpot[1:]]
    assert usd == sorted(usd, reverse=True)
    assert usd[0] > usd[-1]  # or nothing is varied


def test_a_value_that_nothing_holds_says_so(by_tpot):
    assert by_tpot[0].fleet is None
    assert "No configuration can serve model 'chat'" in by_tpot[0].why
    assert "\n" not in by_tpot[0].why


def test_each_point_is_what_a_plan_of_its_own_would_be(inputs, by_tpot):
    """What is kept from point to point changes nothing: each is within both gaps of a plan made from scratch."""
    for point in by_tpot[1:]:
        request = varied(inputs.request, Axis.TPOT, point.value, ["chat"])
        alone = decide(prepare(inputs.under(request)), request)
        assert point.fleet.usd_per_mtok == pytest.approx(alone.usd_per_token * 1e6, rel=2 * request.solver.gap)


def test_the_other_model_keeps_its_target(inputs):
    request = varied(inputs.request, Axis.TPOT, 20.0, ["chat"])
    assert [model.targets.tpot_ms for model in request.model] == [20.0, None]
    request = varied(inputs.request, Axis.TTFT, 900.0)
    assert [model.targets.ttft_ms for model in request.model] == [900.0, 900.0]


def test_a_wider_tail_budget_refuses_and_saves(inputs):
    """Four of 400 requests are long: a budget of 0 serves all, one of 2 % need not."""
    none, some = frontier(inputs, Axis.TAIL, [0.0, 0.02])
    assert none.fleet.served_share == pytest.approx(1.0)
    assert some.fleet.usd_per_mtok <= none.fleet.usd_per_mtok
    assert some.fleet.served_share <= none.fleet.served_share


def test_overflow_is_the_policys(inputs):
    tight, loose = frontier(inputs, Axis.OVERFLOW, [1e-6, 0.2])
    assert tight.fleet.usd_per_mtok >= loose.fleet.usd_per_mtok
    with pytest.raises(InputError, match="the policy's"):
        frontier(inputs, Axis.OVERFLOW, [0.01], ["chat"])


def test_time_that_is_up_is_not_called_infeasible(inputs):
    solver = inputs.request.solver.model_copy(update={"time_limit_s": 1e-9})
    hurried = inputs.under(inputs.request.model_copy(update={"solver": solver}))
    (point,) = frontier(hurried, Axis.TPOT, [60])
    assert point.fleet is None
    assert "time_limit_s" in point.why
    assert "infeasible" not in point.why.lower()


@pytest.mark.parametrize(
    ("axis", "values", "models", "words"),
    [
        (Axis.TPOT, [], [], "no value is given"),
        (Axis.TPOT, [0], [], "0 is not above 0"),
        (Axis.TTFT, [float("nan"), float("inf")], [], "nan is not above 0"),
        (Axis.TAIL, [-0.1, 1.0], [], r"-0.1 is not in \[0, 1\)"),
        (Axis.OVERFLOW, [0.0], [], r"0 is not in \(0, 1\)"),
        (Axis.TPOT, [20], ["nobody"], "'nobody' is not in the request"),
    ],
)
def test_values_and_models_that_cannot_be_meant(inputs, axis, values, models, words):
    with pytest.raises(InputError, match=words):
        frontier(inputs, axis, values, models)


def test_the_chart_is_the_same_each_time_and_leaves_out_what_is_not_there(by_tpot):
    chart = frontier_chart(by_tpot, Axis.TPOT, "small")
    assert json.dumps(chart) == json.dumps(frontier_chart(by_tpot, Axis.TPOT, "small"))
    assert "No fleet was found at 3." in json.dumps(chart)
    assert "nan" not in json.dumps(chart).lower().replace("finance", "")
