from __future__ import annotations

import csv
import io
import json

from planner.plan import Route
from planner.report.routing import NOTES, routing_csv, routing_json

ROUTES = (
    Route(model="chat", tenant="", prompt_lo_tokens=0, prompt_hi_tokens=4096, pool="chat/short"),
    Route(model="chat", tenant="", prompt_lo_tokens=4096, prompt_hi_tokens=None, pool="chat/long-h100", share=0.25),
    Route(model="chat", tenant="", prompt_lo_tokens=4096, prompt_hi_tokens=None, pool="chat/long-h200", share=0.75),
    Route(model="code, old", tenant="acme", prompt_lo_tokens=0, prompt_hi_tokens=None, pool="code/acme"),
    Route(model="code, old", tenant="rest", prompt_lo_tokens=0, prompt_hi_tokens=None, pool="code/rest"),
)


def test_csv_has_a_row_for_each_route() -> None:
    assert routing_csv(ROUTES) == (
        "model,tenant,prompt_from_tokens,prompt_below_tokens,pool,share\n"
        "chat,*,0,4096,chat/short,1\n"
        "chat,*,4096,,chat/long-h100,0.25\n"
        "chat,*,4096,,chat/long-h200,0.75\n"
        '"code, old",acme,0,,code/acme,1\n'
        '"code, old",rest,0,,code/rest,1\n'
    )
    assert len(list(csv.DictReader(io.StringIO(routing_csv(ROUTES))))) == 5


def test_json_nests_models_tenants_and_stretches() -> None:
    found = json.loads(routing_json(ROUTES))
    assert found["notes"] == list(NOTES)
    chat, code = found["models"]
    assert chat == {
        "model": "chat",
        "tenants": [
            {
                "tenant": "*",
                "rules": [
                    {"prompt_tokens": {"from": 0, "below": 4096}, "pools": [{"pool": "chat/short", "share": 1.0}]},
                    {
                        "prompt_tokens": {"from": 4096, "below": None},
                        "pools": [{"pool": "chat/long-h100", "share": 0.25}, {"pool": "chat/long-h200", "share": 0.75}],
                    },
                ],
            }
        ],
    }
    assert [tenant["tenant"] for tenant in code["tenants"]] == ["acme", "rest"]


def test_labels_include_both_ends() -> None:
    """A scheduler by labels takes 4095 for the short pool and 4096 for the long ones, never both."""
    labels = {
        pool: own["llm-d.ai/context-length-range"] for pool, own in json.loads(routing_json(ROUTES))["labels"].items()
    }
    assert labels == {
        "chat/short": "0-4095",
        "chat/long-h100": "4096-10000000",
        "chat/long-h200": "4096-10000000",
        "code/acme": "0-10000000",
        "code/rest": "0-10000000",
    }


def test_it_says_how_tokens_are_counted() -> None:
    text = " ".join(NOTES)
    for word in ("tokenizer", "chat template", "characters or bytes", "at random, by share", "last row of its tenant"):
        assert word in text
