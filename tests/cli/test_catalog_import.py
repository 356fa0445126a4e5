"""`planner catalog import` at the keyboard: shown, written, listed, and planned with."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from planner.catalog.load import ROOT_VARIABLE, load_catalog

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data" / "imports"
ON = ("--as-of", "2026-11-30")

REQUEST = """
[quarter]
title = "t"
start = 2027-01-01
end = 2027-04-01
owner = "o"

[engine]
name = "vllm"
version = "0.19.0"

[offers]
providers = ["nebius"]
gpus = ["L40S"]
price_kinds = ["list", "contracted"]

[[model]]
name = "chat"
weights = "meta-llama/Llama-3.1-8B-Instruct"
weight_dtypes = ["bf16"]
kv_dtypes = ["bf16"]
tail_budget = 0.01
[model.traffic]
path = "log.csv"
format = "azure"
rate_per_s = 0.5
"""


def test_nothing_is_written_without_apply(planner, tmp_path):
    code, out, err = planner("catalog", "import", "gpuhunt", str(DATA / "gpuhunt"), *ON, "--catalog", str(tmp_path))
    assert code == 0, err
    assert "nothing written" in out
    assert "left out: Gaudi" in out
    assert list(tmp_path.iterdir()) == []


def test_apply_needs_a_folder_of_ones_own(planner, monkeypatch):
    monkeypatch.delenv(ROOT_VARIABLE, raising=False)
    code, _, err = planner("catalog", "import", "gpuhunt", str(DATA / "gpuhunt"), *ON, "--apply")
    assert code == 2
    assert "Give --catalog DIR" in err


def test_json_has_every_change(planner, tmp_path):
    where = str(DATA / "skypilot" / "mithril" / "vms.csv")
    code, out, err = planner(
        "catalog", "import", "skypilot", where, "--cloud", "mithril", *ON, "--catalog", str(tmp_path), "--json"
    )
    assert code == 0, err
    (told,) = json.loads(out)["providers"]
    assert told["counts"]["suspicious"] == 2
    assert {change["change"] for change in told["changes"]} == {"new"}


@pytest.mark.parametrize("text", ["EUR", "EUR=0@2026-11-28", "EUR=1.1@soon", "EURO=1.1@2026-11-28"])
def test_a_rate_that_is_none(planner, text):
    code, _, err = planner("catalog", "import", "focus", str(DATA / "focus.csv"), "--rate", text)
    assert code == 2
    assert "Write EUR=1.08@2026-11-28" in err


def test_a_bill_shows_list_contracted_and_effective(planner):
    code, out, err = planner("catalog", "import", "focus", str(DATA / "focus.csv"), "--json")
    assert code == 0, err
    (told,) = [rate for rate in json.loads(out)["rates"] if rate["term"] == "commit_3y"]
    figures = [told[f"{kind}_usd_per_h"] for kind in ("list", "contracted", "effective")]
    assert figures == pytest.approx([55.04, 49.536, 20.695054])


def test_imported_prices_are_listed_and_planned_with(planner, tmp_path, monkeypatch):
    own = tmp_path / "own"
    for arguments in (
        ("gpuhunt", str(DATA / "gpuhunt" / "nebius.csv"), "--accept-suspicious", *ON),
        ("csv", str(tmp_path / "private.csv"), *ON),
    ):
        listed = "provider,instance_type,discount_on_demand,source_url\nnebius,*,0.2,contract 4711\n"
        (tmp_path / "private.csv").write_text(listed)
        code, out, err = planner("catalog", "import", *arguments, "--catalog", str(own), "--apply")
        assert code == 0, err
        assert "written: nebius.csv" in out
    monkeypatch.setenv(ROOT_VARIABLE, str(own))
    code, out, err = planner("catalog", "list", "offers", "--provider", "nebius", "--gpu", "L40S", "--json")
    assert code == 0, err
    prices = {record["id"]: record["usd_per_h"] for record in json.loads(out)}
    name = "nebius/gpu-l40s-a-1gpu-8vcpu-32gb/eu-north1/on_demand"
    assert prices[name] == 1.55
    assert prices[f"{name}/contracted"] == pytest.approx(0.8 * 1.55)
    assert load_catalog().own == own

    shutil.copy(ROOT / "catalogs/example/traffic/AzureLLMInferenceTrace_conv.csv", tmp_path / "log.csv")
    (tmp_path / "quarter.toml").write_text(REQUEST)
    code, out, err = planner(
        "plan", str(tmp_path / "quarter.toml"), "-o", str(tmp_path / "out"), "--format", "json",
        "--now", "2026-11-30T12:00:00Z",
    )  # fmt: skip
    assert code == 0, err
    plan = json.loads((tmp_path / "out" / "plan.json").read_text())
    (bought,) = plan["purchases"]
    assert bought["offer_id"] == f"{name}/contracted"
    assert bought["list_price"]["usd_per_h"] == 1.55
    assert "offers/nebius.csv" in {file["path"] for file in plan["inputs"]}
