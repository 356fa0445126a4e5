"""Each exporter's names, and what is measured beside the lengths: small series whose sums are solved by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from planner.errors import InputError
from planner.traffic.canonical import Canonical
from planner.traffic.ingest import Order, ingest

from .engine import answer

MONDAY_S = 1_788_739_200
"""2026-09-07 00:00 UTC, a Monday."""
STEPS = 241
"""An hour of scrapes every 15 s."""


def ramp(name: str, a_step: float, first: float = 0.0, **labels: str) -> dict[str, Any]:
    """A counter that grows evenly from ``first``."""
    return values(name, [first + a_step * k for k in range(STEPS)], **labels)


def values(name: str, figures: Sequence[float], **labels: str) -> dict[str, Any]:
    pairs = [[MONDAY_S + 15 * k, repr(float(v))] for k, v in enumerate(figures)]
    return {"metric": {"__name__": name, **labels}, "values": pairs}


def histogram(name: str, upto: dict[str, float], tokens: float, **labels: str) -> Iterator[dict[str, Any]]:
    """A histogram that grows evenly: requests up to each bound, and tokens, in every step."""
    for le, n in upto.items():
        yield ramp(f"{name}_bucket", n, le=le, **labels)
    yield ramp(f"{name}_sum", tokens, **labels)
    yield ramp(f"{name}_count", max(upto.values()), **labels)


def ingested(folder: Path, *series: dict[str, Any], **options: str) -> Canonical:
    path = folder / "answer.json"
    path.write_text(json.dumps(answer(series)))
    return ingest(Order((path,), options=options))


def vllm(**more: str) -> list[dict[str, Any]]:
    labels = {"model_name": "llama", "engine": "0", **more}
    return [
        *histogram("vllm:request_prompt_tokens", {"1000.0": 3, "+Inf": 3}, 1500, **labels),
        *histogram("vllm:request_generation_tokens", {"500.0": 3, "+Inf": 3}, 600, **labels),
    ]


def remarks(canonical: Canonical, word: str) -> list[str]:
    return [remark for remark in canonical.manifest.remarks if word in remark]


BOTH = {
    "sglang": lambda: [
        *histogram("sglang:prompt_tokens_histogram", {"1000.0": 3, "+Inf": 3}, 1500, model_name="llama"),
        *histogram("sglang:generation_tokens_histogram", {"500.0": 3, "+Inf": 3}, 600, model_name="llama"),
        # The second rank of the replica says the same again.
        *histogram("sglang:prompt_tokens_histogram", {"1000.0": 3, "+Inf": 3}, 9, model_name="llama", tp_rank="1"),
    ],
    "tgi": lambda: [
        *histogram("tgi_request_input_length", {"1000": 3, "+Inf": 3}, 1500, model_id="llama"),
        *histogram("tgi_request_generated_tokens", {"500": 3, "+Inf": 3}, 600, model_id="llama"),
    ],
    "dynamo": lambda: [
        *histogram("dynamo_frontend_input_sequence_tokens", {"1000": 3, "+Inf": 3}, 1500, model="llama"),
        *histogram("dynamo_frontend_output_sequence_tokens", {"500": 3, "+Inf": 3}, 600, model="llama"),
    ],
    "otel": lambda: [
        series
        for kind, upto, tokens in (("input", "1024", 1500), ("output", "1024", 600), ("cache_read", "1024", 300))
        for series in histogram(
            "gen_ai_client_token_usage",
            {upto: 3, "+Inf": 3},
            tokens,
            gen_ai_token_type=kind,
            gen_ai_request_model="chat",
            gen_ai_response_model="llama",
        )
    ],
    "vllm": vllm,
}


@pytest.mark.parametrize("engine", BOTH)
def test_lengths_of_every_exporter(engine: str, tmp_path: Path) -> None:
    found = ingested(tmp_path, *BOTH[engine]())
    assert found.manifest.source == f"prometheus-query-range ({engine})"
    assert found.manifest.models == {"llama": 720}
    assert found.rates.to_pandas()[["n", "sum_prompt", "sum_output"]].sum().tolist() == [720, 360_000, 144_000]
    assert found.rates.num_rows == 60
    assert found.manifest.ts_meaning == ("arrival" if engine == "tgi" else "completion")


def test_the_context_that_the_frontend_states_bounds_the_open_bucket(tmp_path: Path) -> None:
    labels = {"model": "llama"}
    series = [
        *histogram("dynamo_frontend_input_sequence_tokens", {"1000": 2, "+Inf": 3}, 3600, **labels),
        *histogram("dynamo_frontend_output_sequence_tokens", {"500": 3, "+Inf": 3}, 600, **labels),
    ]
    with pytest.raises(InputError, match="240 requests lie in the open bucket above 1,000"):
        ingested(tmp_path, *series)
    found = ingested(tmp_path, *series, values("dynamo_frontend_model_context_length", [4096.0] * STEPS, **labels))
    (row,) = found.tail.to_pylist()
    assert row["prompt"] + row["output"] == 4096


def test_an_engine_is_believed_before_the_gateway_in_front_of_it(tmp_path: Path) -> None:
    series = [*BOTH["otel"](), *BOTH["vllm"](), *BOTH["dynamo"]()]
    assert ingested(tmp_path, *series).manifest.source.endswith("(vllm)")
    assert ingested(tmp_path, *series, engine="dynamo").manifest.source.endswith("(dynamo)")


def test_an_idle_model_is_left_out_and_said(tmp_path: Path) -> None:
    idle = with_figures([{**one, "metric": {**one["metric"], "model_name": "idle"}} for one in vllm()], "7")
    found = ingested(tmp_path, *vllm(), *idle)
    assert found.manifest.models == {"llama": 720}
    assert remarks(found, "without any request, and left out: idle")


def test_a_label_that_is_no_model_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="look like text, a key or an address"):
        ingested(tmp_path, *vllm(model_name="jane.doe@example.com"))


def test_names_without_colons_are_the_same(tmp_path: Path) -> None:
    expected = ingested(tmp_path, *vllm()).rates
    for prefix in ("vllm_", "ray_vllm_", "ray_vllm:", "vllm."):
        renamed = json.loads(json.dumps(vllm()).replace("vllm:", prefix))
        assert ingested(tmp_path, *renamed).rates.equals(expected)


def test_prompts_counted_at_arrival_may_outnumber_outputs(tmp_path: Path) -> None:
    found = ingested(
        tmp_path,
        *histogram("tgi_request_input_length", {"1000": 4, "+Inf": 4}, 2000),
        *histogram("tgi_request_generated_tokens", {"500": 3, "+Inf": 3}, 600),
    )
    counts = found.manifest.counts
    assert (counts.offered, counts.kept, counts.dropped_by_reason) == (960, 720, {"failed request": 240})
    assert found.lengths.to_pandas().query("coupling == 'comonotone'")["sum_prompt"].sum() == 720 * 500
    assert found.rates.to_pandas()["n"].sum() == 960
    assert remarks(found, "960 prompts and 720 outputs")


def test_a_target_that_starts_later_counts_from_zero(tmp_path: Path) -> None:
    late = [{**one, "values": one["values"][120:]} for one in vllm(pod="late")]
    for one in late:  # from its start at step 119 on
        base = float(one["values"][0][1]) / 120
        one["values"] = [[t, repr(base * (k + 1))] for k, (t, _) in enumerate(one["values"])]
    found = ingested(tmp_path, *vllm(pod="early"), *late)
    assert found.manifest.models == {"llama": 3 * 240 + 3 * 121}


def test_a_target_that_was_only_found_later_does_not(tmp_path: Path) -> None:
    old = [{**one, "values": one["values"][120:]} for one in vllm(pod="old")]
    for one in old:
        one["values"] = [[t, repr(float(v) * 1000)] for t, v in one["values"]]
    for one in old:
        first = float(one["values"][0][1])
        one["values"] = [[t, repr(first + (float(v) - first) / 1000)] for t, v in one["values"]]
    found = ingested(tmp_path, *vllm(pod="early"), *old)
    assert found.manifest.models == {"llama": 3 * 240 + 3 * 120}
    assert remarks(found, "360,000 requests of a target that was first scraped later are left out")


def test_cached_tokens_by_hour_of_the_week(tmp_path: Path) -> None:
    labels = {"model_name": "llama", "engine": "0"}
    found = ingested(
        tmp_path,
        *vllm(),
        ramp("vllm:prefix_cache_queries_total", 1600, **labels),
        ramp("vllm:prefix_cache_hits_total", 400, **labels),
        # The name that earlier releases had is there for a while beside the new one.
        ramp("vllm:gpu_prefix_cache_queries_total", 1600, **labels),
        ramp("vllm:gpu_prefix_cache_hits_total", 400, **labels),
    )
    assert found.prefix is not None
    (row,) = found.prefix.to_pylist()
    assert (row["kind"], row["hour_of_week"], row["n"]) == ("cached", 0, 720)
    assert (row["sum_prompt"], row["sum_cached"]) == (240 * 1600, 240 * 400)
    lengths = found.lengths.to_pandas().query("coupling == 'comonotone'")
    assert lengths["sum_cached"].sum() == pytest.approx(360_000 * 0.25, abs=len(lengths))


def test_an_upgrade_that_renames_a_counter_loses_nothing(tmp_path: Path) -> None:
    labels = {"model_name": "llama", "engine": "0"}

    def renamed(name: str, old: str, a_step: float) -> Iterator[dict[str, Any]]:
        before, after = ramp(old, a_step, **labels), ramp(name, a_step, **labels)
        yield {**before, "values": before["values"][:120]}
        yield {**after, "values": [[t + 15 * 120, v] for t, v in after["values"][:121]]}

    found = ingested(
        tmp_path,
        *vllm(),
        *renamed("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total", 1600),
        *renamed("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total", 400),
    )
    assert found.prefix is not None
    (row,) = found.prefix.to_pylist()
    # 119 steps before the restart, none in the step of it, 120 after it.
    assert (row["sum_prompt"], row["sum_cached"]) == (239 * 1600, 239 * 400)


def test_embeddings_are_no_generations(tmp_path: Path) -> None:
    label = {"gen_ai_token_type": "input", "gen_ai_response_model": "llama", "gen_ai_operation_name": "embeddings"}
    series = [*BOTH["otel"](), *histogram("gen_ai_client_token_usage", {"1024": 9, "+Inf": 9}, 90, **label)]
    found = ingested(tmp_path, *series)
    assert (found.manifest.counts.offered, found.manifest.models) == (720, {"llama": 720})


def test_prefill_of_no_known_request_is_said(tmp_path: Path) -> None:
    labels = {"model_name": "llama", "engine": "0"}
    found = ingested(tmp_path, *vllm(), ramp("vllm:prompt_tokens_total", 2000, **labels))
    assert remarks(found, "25.0 % of the prefilled tokens belong to requests in no histogram")


class TestLiveTokens:
    def test_of_sglang_are_exported(self, tmp_path: Path) -> None:
        labels = {"model_name": "llama"}
        used = [1000.0] * 120 + [3000.0] * 121
        found = ingested(
            tmp_path,
            *BOTH["sglang"](),
            values("sglang:num_used_tokens", used, instance="a", **labels),
            values("sglang:num_used_tokens", [500.0] * STEPS, instance="b", **labels),
        )
        (remark,) = remarks(found, "measured live tokens")
        mean = (120 * 1500 + 121 * 3500) / 241
        assert f"sglang_num_used_tokens, 2 replicas): mean {mean:,.0f}" in remark
        assert "largest 3,500; fullest replica 99 % of the time at most 3,000" in remark

    def test_of_vllm_are_usage_times_the_pool(self, tmp_path: Path) -> None:
        labels = {"model_name": "llama", "engine": "0"}
        found = ingested(
            tmp_path,
            *vllm(),
            values("vllm:kv_cache_usage_perc", [0.25] * STEPS, **labels),
            values("vllm:cache_config_info", [1.0] * STEPS, engine="0", num_gpu_blocks="1000", block_size="16"),
            values("vllm:cache_config_info", [1.0] * STEPS, engine="1", num_gpu_blocks="9999", block_size="16"),
        )
        (remark,) = remarks(found, "measured live tokens")
        assert "vllm_kv_cache_usage_perc, 1 replica): mean 4,000, half of the time at most 4,000" in remark

    def test_engines_of_one_server_share_the_blocks_that_each_states(self, tmp_path: Path) -> None:
        pool = {"num_gpu_blocks": "2000", "block_size": "16"}
        found = ingested(
            tmp_path,
            *vllm(),
            *(
                series
                for engine in ("0", "1")
                for series in (
                    values("vllm:kv_cache_usage_perc", [0.25] * STEPS, model_name="llama", engine=engine),
                    values("vllm:cache_config_info", [1.0] * STEPS, engine=engine, **pool),
                )
            ),
        )
        assert "2 replicas): mean 8,000, half" in remarks(found, "measured live tokens")[0]

    def test_a_stated_size_is_believed_before_blocks(self, tmp_path: Path) -> None:
        pool = {"num_gpu_blocks": "2000", "block_size": "16", "kv_cache_size_tokens": "10000"}
        found = ingested(
            tmp_path,
            *vllm(),
            values("vllm:kv_cache_usage_perc", [0.25] * STEPS, model_name="llama", engine="0"),
            values("vllm:cache_config_info", [1.0] * STEPS, engine="0", **pool),
        )
        assert "1 replica): mean 2,500, half" in remarks(found, "measured live tokens")[0]

    def test_without_a_pool_nothing_is_said(self, tmp_path: Path) -> None:
        series = values("vllm:kv_cache_usage_perc", [0.25] * STEPS, model_name="llama", engine="0")
        assert not remarks(ingested(tmp_path, *vllm(), series), "measured live tokens")


def with_figures(series: list[dict[str, Any]], figure: str) -> list[dict[str, Any]]:
    return [{**one, "values": [[t, figure] for t, _ in one["values"]]} for one in series]


def without(series: list[dict[str, Any]], word: str) -> list[dict[str, Any]]:
    return [one for one in series if word not in one["metric"]["__name__"]]


def at_times(series: list[dict[str, Any]], factor: int) -> list[dict[str, Any]]:
    return [{**one, "values": [[t * factor, v] for t, v in one["values"]]} for one in series]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda series: without(series, "_sum"), "has no _sum"),
        (lambda series: without(series, "generation"), "no histogram of prompt and output"),
        (lambda series: [{**one, "values": one["values"][:1]} for one in series], "has one sample"),
        (lambda series: with_figures(series, "5"), "no request was counted"),
        (lambda series: with_figures(series, "0.2"), "a rate rather than"),
        (lambda series: with_figures(series, "NaN"), "no histogram"),
        (lambda series: with_figures(series, "-3"), "a rate rather than"),
        (lambda series: with_figures(series, "+Inf"), "is infinite"),
        (lambda series: at_times(series, 1000), "outside of 2015 to 2100"),
        (lambda series: at_times(series, 0), "at one time"),
    ],
    ids=["no-sum", "no-outputs", "one-sample", "idle", "rates", "nan", "negative", "infinite", "ms", "zero"],
)
def test_what_cannot_be_a_histogram_is_refused(change: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        ingested(tmp_path, *change(vllm()))
