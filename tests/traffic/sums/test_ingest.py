"""Usage reports: what each writes, summed by hand; and why nothing is planned from them alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from planner.errors import InputError
from planner.traffic.canonical import Canonical, write
from planner.traffic.ingest import Order, ingest
from planner.traffic.readers.columns import Alias
from planner.traffic.schema import Kind
from planner.traffic.source import load_traffic
from planner.traffic.sums.table import Sums, added

HOUR_S = 1_788_444_000
"""2026-09-03 14:00 UTC."""


def bucket(start_s: int, width_s: int, *results: dict[str, Any]) -> dict[str, Any]:
    return {"object": "bucket", "start_time": start_s, "end_time": start_s + width_s, "results": list(results)}


def result(n: int, prompt: int, output: int, model: str | None = "llama", **more: Any) -> dict[str, Any]:
    return {
        "object": "organization.usage.completions.result",
        "num_model_requests": n,
        "input_tokens": prompt,
        "output_tokens": output,
        "input_cached_tokens": prompt // 2,
        "model": model,
        **more,
    }


def ingested(path: Path, content: object, **order: Any) -> Canonical:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return ingest(Order((path,), **order))


class TestOpenAi:
    def test_pages_of_minutes(self, tmp_path: Path) -> None:
        page = {
            "object": "page",
            "data": [
                bucket(HOUR_S, 60, result(96, 182_734, 20_933), result(4, 1000, 100, project_id="p")),
                bucket(HOUR_S + 60, 60),
                bucket(HOUR_S + 120, 60, result(7, 700, 70), result(1, 10, 1, model="qwen")),
            ],
            "has_more": False,
        }
        found = ingested(tmp_path / "usage.json", page)
        assert (found.manifest.kind, found.manifest.source) == (Kind.SUMS, "openai-usage")
        assert found.manifest.models == {"llama": 107, "qwen": 1}
        rows = [(r["model"], r["n"], r["sum_prompt"], r["sum_output"]) for r in found.rates.to_pylist()]
        assert rows == [("llama", 100, 183_734, 21_033), ("llama", 7, 700, 70), ("qwen", 1, 10, 1)]
        assert (found.lengths.num_rows, found.tail.num_rows, found.burst.num_rows) == (0, 0, 0)
        assert found.manifest.window_end_us - found.manifest.window_start_us == 180_000_000

    def test_days_are_spread_evenly_with_exact_totals(self, tmp_path: Path) -> None:
        day = HOUR_S - 14 * 3600
        days = [bucket(day, 86_400, result(1000, 7_001, 333)), bucket(day + 2 * 86_400, 86_400, result(1, 1, 1))]
        found = ingested(tmp_path / "usage.jsonl", "\n".join(json.dumps(d) for d in days))
        rates = found.rates.to_pandas()
        first = rates[rates["minute_utc"] < "2026-09-04"]
        assert first[["n", "sum_prompt", "sum_output"]].sum().tolist() == [1000, 7001, 333]
        assert first["n"].max() == 1
        assert set(first["sum_prompt"]) == {4, 5}
        assert len(rates[(rates["minute_utc"] >= "2026-09-04") & (rates["minute_utc"] < "2026-09-05")]) == 0
        assert rates[rates["minute_utc"] >= "2026-09-05"]["n"].sum() == 1
        assert any("86,400 s are spread evenly" in remark for remark in found.manifest.remarks)

    def test_without_models_they_get_the_name_that_is_asked_for(self, tmp_path: Path) -> None:
        page = {"data": [bucket(HOUR_S, 3600, result(5, 50, 5, model=None))]}
        assert ingested(tmp_path / "a.json", page).manifest.models == {"default": 5}
        assert ingested(tmp_path / "b.json", page, model="llama").manifest.models == {"llama": 5}

    def test_two_widths_of_one_time_are_refused(self, tmp_path: Path) -> None:
        buckets = [bucket(HOUR_S, 3600, result(5, 50, 5)), bucket(HOUR_S + 60, 60, result(1, 10, 1))]
        with pytest.raises(InputError, match="spans of llama overlap at 2026-09-03T14:01:00Z"):
            ingested(tmp_path / "usage.json", {"data": buckets})

    @pytest.mark.parametrize(
        ("page", "message"),
        [
            ({"data": [bucket(HOUR_S, 60, result(-1, 5, 5))]}, "-1 is no count"),
            ({"data": [bucket(HOUR_S, 60, result(1, 5, 5, output_tokens=1.5))]}, "1.5 is no count"),
            ({"data": [bucket(HOUR_S, 60, result(1, 5, 5, output_tokens=True))]}, "True is no count"),
            ({"data": [bucket(HOUR_S, 60, result(1, 5, 5, input_tokens="9" * 40))]}, "is no count"),
            ({"data": [bucket(HOUR_S, 60, result(1, 5, 5, input_tokens="nan"))]}, "'nan' is no count"),
            ({"data": [bucket(HOUR_S, 0, result(1, 5, 5))]}, "has no span"),
            ({"data": [bucket(HOUR_S * 1000, 60, result(1, 5, 5))]}, "outside of 2015 to 2100"),
            ({"data": [bucket(HOUR_S, 60, result(1, 5, 5)), "bucket"]}, "is no bucket with results"),
            ({"data": [{**bucket(HOUR_S, 60, result(1, 5, 5)), "results": ["input_tokens"]}]}, "a str where a result"),
            ({"data": [bucket(HOUR_S, 60, result(0, 0, 0))]}, "holds no request"),
        ],
    )
    def test_what_is_no_report_is_refused(self, page: object, message: str, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=message):
            ingested(tmp_path / "usage.json", page)


LITELLM = """date,api_key,model,model_group,prompt_tokens,completion_tokens,cache_read_input_tokens,spend,api_requests,\
successful_requests,failed_requests
2026-09-03,k1,hosted_vllm/llama,chat,1000,100,400,0.1,12,10,2
2026-09-03,k2,hosted_vllm/llama,chat,500,50,0,0.1,5,5,0
2026-09-04,k1,qwen,,70,7,0,0.1,1,1,0
"""


def test_litellm_daily(tmp_path: Path) -> None:
    found = ingested(tmp_path / "daily.csv", LITELLM, aliases=(Alias("chat", "llama", None),))
    assert (found.manifest.source, found.manifest.models) == ("litellm-daily-spend", {"llama": 15, "qwen": 1})
    counts = found.manifest.counts
    assert (counts.offered, counts.kept, counts.dropped_by_reason) == (18, 16, {"failed request": 2})
    llama = found.rates.to_pandas().query("model == 'llama'")
    assert llama[["n", "sum_prompt", "sum_output"]].sum().tolist() == [17, 1500, 150]


OPENROUTER = [
    {
        "date": "2026-09-03",
        "model": "qwen/qwen3-32b",
        "model_permaslug": "qwen/qwen3-32b-04-28",
        "provider_name": "DeepInfra",
        "requests": 8123,
        "prompt_tokens": 14_900_233,
        "completion_tokens": 1_722_076,
        "reasoning_tokens": 0,
    },
    {
        "date": "2026-09-03 00:00:00",
        "model": "qwen/qwen3-32b",
        "provider_name": "Other",
        "requests": 77,
        "prompt_tokens": 100,
        "completion_tokens": 10,
    },
]


@pytest.mark.parametrize("form", ["json", "csv"])
def test_openrouter_activity(form: str, tmp_path: Path) -> None:
    names = list(OPENROUTER[0])
    lines = [",".join(names), *(",".join(str(row.get(name, "")) for name in names) for row in OPENROUTER)]
    content = {"data": OPENROUTER} if form == "json" else "\n".join(lines)
    found = ingested(tmp_path / f"activity.{form}", content)
    assert (found.manifest.source, found.manifest.models) == ("openrouter-activity", {"qwen/qwen3-32b": 8200})
    assert found.rates.to_pandas()["sum_prompt"].sum() == 14_900_333


def azure(**points: list[tuple[dict[str, str], int]]) -> dict[str, Any]:
    """An answer of Azure Monitor with one point a series."""
    return {
        "cost": 0,
        "timespan": "2026-09-03T14:00:00Z/2026-09-03T15:00:00Z",
        "interval": "PT1H",
        "value": [
            {
                "name": {"value": metric, "localizedValue": metric},
                "timeseries": [
                    {
                        "metadatavalues": [{"name": {"value": k}, "value": v} for k, v in labels.items()],
                        "data": [{"timeStamp": "2026-09-03T14:00:00Z", "total": total}],
                    }
                    for labels, total in series
                ],
            }
            for metric, series in points.items()
        ],
    }


AZURE = {
    "AzureOpenAIRequests": [
        ({"modeldeploymentname": "chat", "statuscode": "200"}, 100),
        ({"modeldeploymentname": "chat", "statuscode": "429"}, 7),
    ],
    "ProcessedPromptTokens": [({"modeldeploymentname": "chat"}, 5000)],
    "GeneratedTokens": [({"modeldeploymentname": "chat"}, 600)],
}


def test_azure_monitor(tmp_path: Path) -> None:
    found = ingested(tmp_path / "metrics.json", azure(**AZURE))
    assert (found.manifest.source, found.manifest.models) == ("azure-monitor-metrics", {"chat": 100})
    assert found.manifest.counts.dropped_by_reason == {"failed request": 7}
    assert found.rates.to_pandas()[["n", "sum_prompt", "sum_output"]].sum().tolist() == [107, 5000, 600]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (azure(ProcessedPromptTokens=AZURE["ProcessedPromptTokens"]), "holds no AzureOpenAIRequests, GeneratedTokens"),
        ({**azure(**AZURE), "interval": "hourly"}, "'hourly' is no time grain"),
        ({**azure(**AZURE), "value": [{"timeseries": [], "id": "GeneratedTokens"}, 3]}, "no answer of Azure Monitor"),
    ],
)
def test_azure_monitor_says_what_is_missing(answer: object, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        ingested(tmp_path / "metrics.json", answer)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("2026-09-04", "04.09.2026", "'04.09.2026' is no date"),
        ("500,50,0", "500,fifty,0", "'fifty' is no count"),
        ("70,7,0,0.1,1,1,0", "70", "has no|is no count|holds no"),
    ],
)
def test_bad_rows_name_their_place(old: str, new: str, message: str, tmp_path: Path) -> None:
    text = LITELLM.replace(old, new)
    if new == "70":
        assert ingested(tmp_path / "d.csv", text).manifest.models == {"chat": 15, "qwen": 0}
        return
    with pytest.raises(InputError, match=rf"row \d.*{message}"):
        ingested(tmp_path / "daily.csv", text)


def test_time_and_model_are_chosen(tmp_path: Path) -> None:
    second = 1_788_480_000_000_000  # 2026-09-04
    assert ingested(tmp_path / "a.csv", LITELLM, since_us=second).manifest.models == {"qwen": 1}
    assert ingested(tmp_path / "b.csv", LITELLM, model="chat").manifest.models == {"chat": 15}
    with pytest.raises(InputError, match="holds no request of the model"):
        ingested(tmp_path / "c.csv", LITELLM, model="chat", since_us=second)


def test_nothing_is_planned_from_sums(tmp_path: Path) -> None:
    write(ingested(tmp_path / "daily.csv", LITELLM), tmp_path / "sums")
    with pytest.raises(InputError, match=r"holds sums only.*planner traffic scale BASE --to DIR"):
        load_traffic(tmp_path / "sums", model="qwen", name="m")


def test_rows_of_one_model_and_span_add_up() -> None:
    rows = [Sums("m", 60, 60, 1, 2, 3, 4, 5), Sums("m", 0, 60, 1, 1, 1), Sums("m", 60, 60, 1, 2, 3, 4, 5)]
    assert added(rows) == [Sums("m", 0, 60, 1, 1, 1), Sums("m", 60, 60, 2, 4, 6, 8, 10)]
