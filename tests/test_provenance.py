"""What a plan says about its inputs: owned figures with source and date, and what its signer must know."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from types import SimpleNamespace

import pytest

from planner.assemble.stands import standings
from planner.assumptions import assumptions_of
from planner.catalog.load import load_catalog
from planner.optimise.types import Column, Decision, Lot, LotKind, Part, Period, Placement, ProgramData, Supply
from planner.plan import SolveStatus
from planner.provenance import _contract_caveats, _single_caveats, _spot_caveats, _stock_caveats
from planner.request import PlanRequest, Quota
from planner.traffic.demand import DemandRates
from tests.assemble.test_stands import offer

JULY = dt.date(2026, 7, 1)
MODEL = {
    "name": "chat",
    "weights": "x/y",
    "owner": "chat team",
    "traffic": {"path": "chat.csv", "source": "forecast", "source_date": dt.date(2026, 11, 15), "week": "week.csv"},
    "weight_dtypes": ["fp8"],
    "kv_dtypes": ["fp8"],
    "max_pools": 3,
    "interruptible": True,
    "scaling": {"min_replicas": 2, "warm_up_min": 10},
    "max_score_drop": 0.02,
    "quality": [
        {"weight_dtype": "fp8", "kv_dtype": "fp8", "score_drop": 0.01, "source": "eval 7", "source_date": JULY}
    ],
    "tenant": [
        {"name": "gold", "traffic": {"path": "gold.csv", "share": 0.3}, "targets": {"tpot_ms": 30}},
        {"name": "rest", "traffic": {"path": "rest.csv"}, "tail_budget": 0.01},
    ],
}
REQUEST = PlanRequest.model_validate(
    {
        "quarter": {
            "title": "q", "start": dt.date(2027, 1, 1), "end": dt.date(2027, 4, 1), "owner": "platform",
            "stated_on": dt.date(2026, 11, 1),
        },
        "policy": {"max_power_kw": 100.0},
        "engine": {"version": "0.33.0"},
        "time": {"zone": "Europe/Paris", "week_periods": 5, "holidays": [dt.date(2027, 1, 1)]},
        "routing": {"max_pools": 2, "cuts": [4096]},
        "owned": [
            {"name": "lab", "gpu": "H100-SXM", "gpus_per_instance": 8, "instances": 2, "power_kw": 10.2,
             "source": "asset list", "source_date": JULY}
        ],
        "buying": [
            {"name": "rack", "gpu": "B200", "gpus_per_instance": 8, "max_instances": 4, "capex_usd": 4e5,
             "life_years": 5, "power_kw": 14.3, "source": "quote 12"}
        ],
        "site": [{"region": "", "pue": 1.3, "usd_per_kwh": 0.11, "source": "utility bill", "source_date": JULY}],
        "commitment": [{"offer": "a/b/c", "instances": 3, "until": dt.date(2027, 2, 1)}],
        "multi_node": [{"gpu": "B200", "network_gb_s": 50, "source": "provider page"}],
        "movement": {"last_plan": "last.json", "max_moved_gpus": 40},
        "model": [MODEL],
    }
)  # fmt: skip


@pytest.fixture(scope="module")
def rows():
    law = SimpleNamespace(mean_prompt=1000.0, mean_output=200.0, requests=5000)
    traffic = SimpleNamespace(law=law, source="gateway", notes=("thinned",), calendar_time=False)
    rates = DemandRates(4.0, 1.1, 1.5)
    workload = SimpleNamespace(request=REQUEST.model[0], name="chat", traffic=traffic, rates=rates, slices=(None,))
    found = assumptions_of(REQUEST, [workload], load_catalog())  # type: ignore[list-item]
    assert not [name for name, count in Counter(row.id for row in found).items() if count > 1]
    assert all(row.source and row.owner for row in found)
    return {row.id: row for row in found}


@pytest.mark.parametrize(
    ("name", "value", "source", "date", "owner"),
    [
        ("owned_lab_instances", 2, "asset list", JULY, "platform"),
        ("owned_lab_power", 10.2, "asset list", JULY, "platform"),
        ("bought_rack_capex", 4e5, "quote 12", dt.date(2026, 11, 1), "platform"),
        ("bought_rack_life", 5, "quote 12", dt.date(2026, 11, 1), "platform"),
        ("site__usd_per_kwh", 0.11, "utility bill", JULY, "platform"),
        ("commitment_1_until", "2027-02-01", "request", dt.date(2026, 11, 1), "platform"),
        ("commitment_1_price", "the catalogue's", "request", dt.date(2026, 11, 1), "platform"),
        ("multi_node_1", 50, "provider page", dt.date(2026, 11, 1), "platform"),
        ("max_moved_gpus", 40, "request", dt.date(2026, 11, 1), "platform"),
        ("periods", 5, "request", dt.date(2026, 11, 1), "platform"),
        ("periods_zone", "Europe/Paris", "request", dt.date(2026, 11, 1), "platform"),
        ("cuts", "4,096", "request", dt.date(2026, 11, 1), "platform"),
        ("spot_reserve", 0.2, "request", dt.date(2026, 11, 1), "platform"),
        ("rate_chat", 4.0, "forecast", dt.date(2026, 11, 15), "chat team"),
        ("growth_chat", 1.1, "forecast", dt.date(2026, 11, 15), "chat team"),
        ("lengths_chat", "5,000 requests", "gateway", dt.date(2026, 11, 1), "chat team"),
        ("week_chat", "week.csv", "request", dt.date(2026, 11, 1), "chat team"),
        ("max_pools_chat", 3, "request", dt.date(2026, 11, 1), "chat team"),
        ("min_replicas_chat", 2, "request", dt.date(2026, 11, 1), "chat team"),
        ("tenant_gold_chat", 0.3, "request", dt.date(2026, 11, 1), "chat team"),
        ("tail_rest_chat", 0.01, "request", dt.date(2026, 11, 1), "chat team"),
        ("quality_fp8/fp8_chat", 0.01, "eval 7", JULY, "chat team"),
    ],
)
def test_every_owned_figure_has_its_source_date_and_owner(rows, name, value, source, date, owner):
    row = rows[name]
    assert (row.value, row.source, row.source_date, row.owner) == (value, source, date, owner)


def test_targets_of_a_tenant_are_said_in_words(rows):
    assert rows["targets_gold_chat"].value == "TPOT 30 ms, no TTFT target at 95%"


def test_power_of_rented_machines_is_called_a_guess(rows):
    assert rows["host_power_factor"].note.startswith("guess")


def test_a_plain_request_has_no_rows_for_rules_that_it_does_not_state():
    plain = PlanRequest.model_validate(
        {
            "quarter": {"title": "q", "start": dt.date(2027, 1, 1), "end": dt.date(2027, 4, 1), "owner": "p"},
            "engine": {"version": "0.33.0"},
            "model": [{**{k: MODEL[k] for k in ("name", "weights", "weight_dtypes", "kv_dtypes")},
                       "traffic": {"path": "c.csv"}}],
        }
    )  # fmt: skip
    ids = {row.id for row in assumptions_of(plain, [], load_catalog())}
    assert not ids & {"spot_reserve", "host_power_factor", "cuts", "bands", "max_moved_gpus", "periods_zone"}
    assert "periods" in ids


PERIODS = (Period("day", 100.0), Period("night", 300.0))
SPOT = Supply("H100-SXM spot", "H100-SXM", 8, spot=True)


def _data(*lots: Lot, quotas: tuple[Quota, ...] = ()) -> ProgramData:
    return ProgramData(("m",), {"m": 1}, {"m": 1}, PERIODS, (SPOT,), lots, (), quotas)


def _decision(running: dict, reserved: dict, replicas: tuple[int, int] = (2, 1)) -> Decision:
    placement = Placement("H100-SXM", 2, interruptible=True)
    piece = SimpleNamespace(model="m", tenants=(), prompt_lo_tokens=0)
    config = SimpleNamespace(label="c", length=SimpleNamespace(refused_token_share=0.0))
    part = Part(placement, SimpleNamespace(slice=piece, config=config), replicas)  # type: ignore[arg-type]
    placed = {(placement, SPOT.id): replicas}
    return Decision(
        (Column("c", "m", 0, 1, (part,), 1.0),),
        running,
        reserved,
        placed,
        SolveStatus.OPTIMAL,
        1.0,
        1.0,
        1.0,
        1,
        "",
        "",
    )


def test_spot_and_single_replicas_are_named_pool_by_pool():
    data, decision = _data(), _decision({}, {})
    pools = standings(decision, ("m",))
    assert list(_spot_caveats(data, pools)) == [
        "m: stands on spot (H100-SXM spot); instances may be taken away at any time"
    ]
    assert list(_single_caveats(data, pools)) == [
        "m: one replica and no spare in night; a failure or a restart stops the pool"
    ]
    always = standings(_decision({}, {}, (1, 1)), ("m",))
    assert list(_single_caveats(data, always)) == ["m: one replica and no spare; a failure or a restart stops the pool"]


def test_contracts_after_inside_and_beside_the_plan():
    """Reserved 2 x 900 USD afterwards; held 3 x 400 h paid, 1 x 100 h run; the request's ends in February."""
    data = _data(
        Lot("held", SPOT.id, LotKind.EXISTING_COMMITMENT, offer(), 8, sunk_usd=1.0, available=(3, 3)),
        Lot("year", SPOT.id, LotKind.NEW_COMMITMENT, offer(), 8, reserved_usd_per_h=1.0, liability_after_usd=900.0),
    )
    assert list(_contract_caveats(REQUEST, data, _decision({"held": (1, 0)}, {"year": 2}))) == [
        "year: 1,800 USD more is due after the horizon, which is in no cost of this plan",
        "commitment to a/b/c ends on 2027-02-01, inside the horizon; nothing runs on it afterwards",
        "held: 1,100 of 1,200 paid instance-hours are not used",
    ]


def test_rented_instances_without_a_quota_are_not_confirmed():
    lot = Lot("od", SPOT.id, LotKind.ON_DEMAND, offer(), 8, used_usd_per_h=1.0)
    own = Lot("own", SPOT.id, LotKind.OWNED, offer(), 8, used_usd_per_h=1.0, available=(1, 1))
    decision = _decision({"od": (2, 1), "own": (1, 1)}, {})
    assert list(_stock_caveats(_data(lot, own), decision, [lot, own])) == [
        "od: no stock or quota row limits it; that 16 GPUs can be had is not confirmed"
    ]
    quotas = (Quota(name="q", gpu="H100-SXM", max_gpus=16),)
    assert list(_stock_caveats(_data(lot, quotas=quotas), decision, [lot])) == []
