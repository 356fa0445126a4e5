"""Every key of a future: what it changes, what it leaves, and how it is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.errors import InputError
from planner.futures.adjust import adjust, adjusted
from planner.futures.check import check_futures
from planner.futures.words import words_of
from planner.inputs import Inputs
from planner.request import Targets, TenantRequest, TenantTraffic
from planner.request_study import Adjustments
from tests.futures.world import OWNED, QUOTA, SITE, inputs_of, request


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Inputs:
    tables = SITE + OWNED + QUOTA.format(gpus=100)
    return inputs_of(request(tmp_path_factory.mktemp("adjust"), tables, targets="{ tpot_ms = 40, ttft_ms = 2000 }"))


def test_nothing_changes_without_a_factor(inputs):
    same = adjust(inputs, Adjustments())
    assert same.request == inputs.request
    assert same.offers == inputs.offers
    assert [m.rates for m in same.models] == [m.rates for m in inputs.models]
    assert words_of(Adjustments()) == "as the request"


def test_growth_of_one_model(inputs):
    made = adjust(inputs, Adjustments(growth=1.3, models=("chat",)))
    assert [m.rates.growth for m in made.models] == [1.3, 1.0]
    assert [m.request.traffic.growth for m in made.models] == [1.3, 1.0]
    assert [m.traffic for m in made.models] == [m.traffic for m in inputs.models]
    assert made.models[0].rates.planning_rate_per_s == pytest.approx(1.3 * inputs.models[0].rates.planning_rate_per_s)
    assert made.request.model == tuple(m.request for m in made.models)


def test_prices_of_matching_offers_say_why(inputs):
    made = adjust(inputs, Adjustments(price=1.5, gpus=("L40S",)), "scenario X: prices x 1.5")
    for before, after in zip(inputs.offers.usable, made.offers.usable, strict=True):
        factor = 1.5 if before.gpu == "L40S" else 1.0
        assert after.usd_per_h == before.usd_per_h * factor
        assert after.notes.endswith(f"scenario X: prices x 1.5 (catalogue: {before.usd_per_h:g} USD/h)") == (factor > 1)
    elsewhere = adjust(inputs, Adjustments(price=1.5, providers=("aws",)))
    assert elsewhere.offers == inputs.offers


def test_targets_and_tail_budgets_of_models_and_tenants(inputs):
    tenant = TenantRequest(name="t", traffic=TenantTraffic(path="x"), targets=Targets(tpot_ms=30), tail_budget=0.02)
    chat = inputs.request.model[0].model_copy(update={"tenant": (tenant,)})
    asked = inputs.request.model_copy(update={"model": (chat, inputs.request.model[1])})
    made = adjusted(asked, Adjustments(targets=0.5, tail=2.0, models=("chat",)))
    assert made.model[0].targets == Targets(tpot_ms=20, ttft_ms=1000)
    assert made.model[0].tail_budget == 0.02
    assert made.model[0].tenant[0].targets == Targets(tpot_ms=15)
    assert made.model[0].tenant[0].tail_budget == 0.04
    assert made.model[1] == asked.model[1]


def test_electricity_quotas_speed_edge_and_engine(inputs):
    made = adjust(inputs, Adjustments(electricity=1.5, quotas=0.29, speed_edge="middle", engine_version="0.33.0"))
    assert made.request.site[0].usd_per_kwh == pytest.approx(0.3)
    assert made.request.quota[0].max_gpus == 29  # 0.29 x 100 is 28.999... in binary
    assert made.request.policy.speed_edge == "middle"
    assert made.facts == inputs.catalog.engine("vllm", "0.33.0")
    assert made.facts != inputs.facts
    assert made.serving.speed.version == "0.33.0"
    assert adjust(inputs, Adjustments(quotas=0.999)).request.quota[0].max_gpus == 99


def test_all_in_words():
    change = Adjustments(
        growth=1.3, models=("chat",), price=1.1, providers=("aws",), gpus=("L4",), targets=0.9, tail=2, electricity=1.2,
        quotas=0.5, engine_version="0.33.0", speed_edge="middle",
    )  # fmt: skip
    assert words_of(change) == (
        "arrivals of chat x 1.3; prices of aws, L4 x 1.1; latency targets of chat x 0.9; tail budgets of chat x 2; "
        "electricity x 1.2; quotas x 0.5; engine version 0.33.0; middle edge of the speed band"
    )


def problems(path: Path) -> str:
    with pytest.raises(InputError) as found:
        check_futures(inputs_of(path))
    return str(found.value)


def test_what_cannot_be_meant_is_listed_together(tmp_path):
    tables = """
[[scenario]]
name = "A"
growth = 2
models = ["chta"]
providers = ["awz"]
gpus = ["H100"]
engine_version = "99"
[[scenario]]
name = "B"
quotas = 0.5
electricity = 2
targets = 0.5
tail = 200
[[sensitivity]]
driver = "price"
low = 0.9
high = 1.1
[[sensitivity]]
driver = "price"
low = 0.8
high = 1.2
"""
    text = problems(request(tmp_path, tables))
    for words in (
        "scenario 'A', field models: 'chta' is not a model of the request. Known: chat, code",
        "scenario 'A', field providers: 'awz' has no offer that the plan may use. Known: verda",
        "scenario 'A', field gpus: 'H100'",
        "scenario 'A', field growth: nothing in the request is multiplied by 'growth'",
        "scenario 'B', field quotas: nothing",
        "scenario 'B', field electricity: nothing",
        "scenario 'B', field targets: nothing",
        "scenario 'B', field tail: the tail budget of 'chat' becomes 2, and must stay below 1",
        "sensitivity 'price', field name: the name stands twice",
    ):
        assert words in text


def test_a_free_tail_cannot_be_varied(tmp_path):
    path = request(tmp_path, '[[sensitivity]]\ndriver = "tail"\nlow = 0.5\nhigh = 2\n')
    path.write_text(path.read_text().replace("tail_budget = 0.01", "tail_budget = 0"))
    assert "nothing in the request is multiplied by 'tail'" in problems(path)
