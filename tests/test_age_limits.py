"""Ages against the limits of a request: what is refused, where it stands and what to do; and what a plan notes."""

from __future__ import annotations

import datetime as dt
import shutil
from types import SimpleNamespace

import pytest

from planner.age_limits import check_ages
from planner.assemble.ages import ages_of
from planner.assumptions import assumptions_of
from planner.catalog.engine_ages import dated_facts
from planner.catalog.load import load_catalog
from planner.errors import InputError, Problem
from planner.plan import AgeKind
from planner.request import PlanRequest
from tests.cli.test_plan import EXAMPLE, SMALL, run
from tests.cli.test_plan import NOW as PLAN_DAY
from tests.report.sample import sample_plan

CATALOG = load_catalog()
FACTS = CATALOG.engine("vllm", "0.33.0")
ARCHITECTURES = ("LlamaForCausalLM", "Qwen3ForCausalLM", "UnheardOfForCausalLM")
OFFER = min(CATALOG.offers, key=lambda offer: (offer.as_of, offer.id))
NOW = dt.date(2026, 12, 1)


def request(**changes: object) -> PlanRequest:
    return PlanRequest.model_validate(
        {
            "quarter": {"title": "q", "start": dt.date(2027, 1, 1), "end": dt.date(2027, 4, 1), "owner": "o"},
            "engine": {"version": "0.33.0"},
            "model": [
                {"name": "m", "weights": "x/y", "weight_dtypes": ["fp8"], "kv_dtypes": ["fp8"],
                 "traffic": {"path": "log.csv"}}
            ],
            **changes,
        }
    )  # fmt: skip


def problems_of(asked: PlanRequest, now: dt.date = NOW) -> list[Problem]:
    try:
        check_ages(asked, CATALOG, FACTS, ARCHITECTURES, now, "quarter.toml")
    except InputError as error:
        return list(error.problems)
    return []


def test_facts_in_force_come_oldest_first_with_their_place():
    facts = dated_facts(FACTS, ARCHITECTURES)
    assert len(facts) == len(FACTS.sources) + 2, "an architecture that is not listed has no date"
    assert [fact.as_of for fact in facts] == sorted(fact.as_of for fact in facts)
    assert all(fact.source and fact.entry for fact in facts)
    assert {fact.file for fact in facts} == {"engines/vllm.toml", "engines/vllm_architectures.csv"}
    assert all((CATALOG.root / fact.file).is_file() for fact in facts)


def test_no_limit_on_facts_by_default():
    assert problems_of(request(), dt.date(2040, 1, 1)) == []


def test_facts_at_the_limit_hold_and_older_ones_are_refused_each_by_its_row():
    facts = dated_facts(FACTS, ARCHITECTURES)
    age = (NOW - facts[0].as_of).days
    assert problems_of(request(policy={"max_engine_fact_age_days": age})) == []
    found = problems_of(request(policy={"max_engine_fact_age_days": age - 1}))
    assert len(found) == sum(fact.as_of == facts[0].as_of for fact in facts) > 0
    first = found[0]
    assert first.where == str(CATALOG.root / facts[0].file)
    assert (first.row, first.field) == (facts[0].entry, "as_of")
    assert f"{age} days before {NOW}, at most {age - 1} are allowed" in first.message
    assert "max_engine_fact_age_days" in first.fix


def test_a_contract_at_an_old_price_of_the_catalogue_is_refused_by_its_row():
    age = (NOW - OFFER.as_of).days
    held = {"offer": OFFER.id, "instances": 1, "until": dt.date(2027, 2, 1)}
    policy = {"max_price_age_days": age}
    assert problems_of(request(commitment=[held], policy=policy)) == []
    policy = {"max_price_age_days": age - 1}
    (problem,) = problems_of(request(commitment=[{**held, "usd_per_instance_h": 3.0}, held], policy=policy))
    assert (problem.where, problem.row, problem.field) == ("quarter.toml", "commitment number 2", "usd_per_instance_h")
    assert str(OFFER.as_of) in problem.message
    assert "State the contract's price" in problem.fix
    unknown = {**held, "offer": "nobody/nothing/any/on_demand"}
    assert problems_of(request(commitment=[unknown], policy=policy)) == [], "said by the check of the supply"


def test_hardware_at_an_old_price_is_refused_by_its_name():
    old, young = NOW - dt.timedelta(days=101), NOW - dt.timedelta(days=100)
    rack = {
        "name": "rack", "gpu": "B200", "gpus_per_instance": 8, "max_instances": 4, "capex_usd": 4e5, "life_years": 5,
        "power_kw": 14.3, "source": "quote", "source_date": old,
    }  # fmt: skip
    lab = {"name": "lab", "gpu": "L40S", "gpus_per_instance": 4, "instances": 2, "source": "list", "source_date": old}
    asked = request(
        buying=[rack, {**rack, "name": "new", "source_date": young}, {**rack, "name": "undated", "source_date": None}],
        owned=[lab, {**lab, "name": "priced", "usd_per_instance_h": 1.5}],
        policy={"max_price_age_days": 100},
    )
    assert [(p.row, p.field) for p in problems_of(asked)] == [
        ("owned 'priced'", "source_date"),
        ("buying 'rack'", "source_date"),
    ]


def test_the_limit_on_facts_is_an_assumption_where_it_is_stated():
    asked = request(policy={"max_engine_fact_age_days": 90})
    (row,) = [row for row in assumptions_of(asked, [], CATALOG) if row.id == "max_engine_fact_age_days"]
    assert (row.value, row.unit) == (90, "days")
    assert not [row for row in assumptions_of(request(), [], CATALOG) if row.id == "max_engine_fact_age_days"]


def context(catalog: object) -> SimpleNamespace:
    shape = SimpleNamespace(architecture="LlamaForCausalLM")
    return SimpleNamespace(
        request=request(),
        catalog=catalog,
        created_at=dt.datetime(2026, 12, 1, 8, tzinfo=dt.UTC),
        workloads={"m": SimpleNamespace(shape=shape)},
    )


def test_a_plan_notes_the_oldest_of_each_kind():
    purchases = sample_plan().purchases
    older = purchases[3].model_copy(update={"price_as_of": dt.date(2026, 1, 1), "source_url": "https://old.example"})
    price, fact = ages_of(context(CATALOG), (*purchases, older))  # type: ignore[arg-type]
    assert (price.kind, price.what, price.as_of, price.age_days, price.source) == (
        AgeKind.PRICE, older.offer_id, dt.date(2026, 1, 1), 334, "https://old.example",
    )  # fmt: skip
    oldest = dated_facts(FACTS, ["LlamaForCausalLM"])[0]
    assert (fact.kind, fact.what, fact.as_of) == (AgeKind.ENGINE_FACT, f"vllm 0.33.0: {oldest.name}", oldest.as_of)
    assert fact.age_days == (NOW - oldest.as_of).days


def test_a_plan_without_catalogue_or_purchases_notes_what_it_has():
    (price,) = ages_of(context(None), sample_plan().purchases)  # type: ignore[arg-type]
    assert price.kind is AgeKind.PRICE
    assert ages_of(context(None), ()) == ()  # type: ignore[arg-type]


@pytest.mark.parametrize("days", [0, -1, 1.5, "many"])
def test_the_limit_is_a_whole_number_above_zero(days):
    with pytest.raises(ValueError, match="max_engine_fact_age_days"):
        request(policy={"max_engine_fact_age_days": days})


def test_the_limit_ends_a_plan_before_it_is_solved(tmp_path):
    """At the keyboard: exit code 2, the row of the fact, and what to do; also where another input is wrong."""
    shutil.copy(EXAMPLE / "traffic" / "AzureLLMInferenceTrace_conv.csv", tmp_path / "log.csv")
    text = SMALL.replace("[offers]", "[policy]\nmax_engine_fact_age_days = 20\n\n[offers]")
    (tmp_path / "quarter.toml").write_text(text.replace("tail_budget = 0.01", "tail_budget = 0.01\ntp_degrees = [3]"))
    ended = run("plan", "quarter.toml", "-o", "out", "--now", PLAN_DAY, cwd=tmp_path)
    assert ended.returncode == 2
    assert (
        "vllm.toml, fact block_size_tokens since 0.11.0, field as_of: holds for vllm 0.19.0 and is of 2026-10-01"
        in (ended.stderr)
    )
    assert "raise policy.max_engine_fact_age_days" in ended.stderr
    assert "tp 3 does not divide" in ended.stderr
    assert not (tmp_path / "out" / "plan.json").exists()
