from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from planner.errors import InputError
from planner.traffic.canonical import Canonical
from planner.traffic.ingest import Order, ingest
from planner.traffic.readers.json_start import leading_values

DATA = Path(__file__).parents[2] / "data" / "traffic" / "otel"
START_NS = 1_788_445_327_113_000_000


def _sums(found: Canonical) -> list[int]:
    whole = [row for row in found.lengths.to_pylist() if row["period"] == "all"]
    return [sum(row[name] for row in whole) for name in ("n", "sum_prompt", "sum_output", "sum_cached")]


@pytest.mark.parametrize(("name", "malformed"), [("collector.jsonl", 2), ("spans.jsonl", 0), ("sdk.jsonl", 0)])
def test_the_three_shapes_read_the_same(name: str, malformed: int) -> None:
    found = ingest(Order((DATA / name,)))
    counts = found.manifest.counts
    assert (counts.rows_read, counts.kept, counts.offered) == (9 + malformed, 4, 5)
    assert counts.dropped_by_reason == {
        **({"malformed line": malformed} if malformed else {}),  # metrics, and a line that is cut off
        "not a text generation": 3,  # an HTTP span, an agent (it repeats the sums of its calls), an embedding
        "failed request": 1,
        "duplicate request id": 1,  # exported twice
    }
    # New names, old names, a server's span of the first call, and one call with three choices.
    assert _sums(found) == [4, 1834 + 300 + 1834 + 50, 212 + 20 + 212 + 600, 1024]
    assert counts.adjusted_by_reason == {"several choices in one request": 1}
    assert found.manifest.models == {"llama-70b": 4}
    assert found.manifest.window_start_us == START_NS // 1000


@pytest.mark.parametrize("name", ["collector.jsonl", "spans.jsonl", "sdk.jsonl"])
@pytest.mark.parametrize(("kind", "sums"), [("client", [3, 2184, 832, 1024]), ("server", [1, 1834, 212, 0])])
def test_a_kind_of_span_can_be_asked_for(name: str, kind: str, sums: list[int]) -> None:
    """A client's and a server's span of one call would count twice."""
    found = ingest(Order((DATA / name,), options={"span_kind": kind}))
    assert _sums(found) == sums
    assert f"span kind = {kind}" in found.manifest.filters_applied


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(InputError, match="'customer' is no kind"):
        ingest(Order((DATA / "spans.jsonl",), options={"span_kind": "customer"}))


def _line(**attributes: object) -> str:
    pairs = [{"key": key.replace("__", "."), "value": {"intValue": value}} for key, value in attributes.items()]
    span = {"traceId": "t", "spanId": str(len(pairs)), "startTimeUnixNano": START_NS, "attributes": pairs}
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}) + "\n"


def test_numbers_need_not_be_strings_and_archives_are_read(tmp_path: Path) -> None:
    path = tmp_path / "traces.json.gz"
    path.write_bytes(gzip.compress(_line(gen_ai__usage__input_tokens=7, gen_ai__usage__output_tokens="5").encode()))
    assert _sums(ingest(Order((path,)))) == [1, 7, 5, 0]


def test_more_cached_than_prompt_tokens_are_marked(tmp_path: Path) -> None:
    """Some instrumentation leaves cached tokens out of the prompt, against the convention."""
    path = tmp_path / "traces.json"
    attributes = {"gen_ai__usage__input_tokens": 7, "gen_ai__usage__output_tokens": 5}
    path.write_text(_line(**attributes, gen_ai__usage__cache_read__input_tokens=900))
    assert ingest(Order((path,))).manifest.counts.adjusted_by_reason == {"more cached than prompt tokens": 1}


@pytest.mark.parametrize(
    ("operation", "kept"),
    [("chat", 2), ("CHAT", 2), ("unknown", 2), ("generate", 2), ("execute_tool", 1), ("rerank", 1)],
)
def test_what_kind_of_call_it_was(operation: str, kept: int, tmp_path: Path) -> None:
    path = tmp_path / "traces.json"
    usage = {"gen_ai__usage__input_tokens": 7, "gen_ai__usage__output_tokens": 5}
    named = _line(**usage, llm__request__type=operation).replace(
        '"intValue": "' + operation, '"stringValue": "' + operation
    )
    path.write_text(_line(**usage) + named)
    assert ingest(Order((path,))).manifest.counts.kept == kept


def test_a_time_that_is_no_number_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "traces.json"
    good = _line(gen_ai__usage__input_tokens=7, gen_ai__usage__output_tokens=5)
    path.write_text(good + good.replace(str(START_NS), '"soon"').replace('"2"', '"3"'))
    assert ingest(Order((path,))).manifest.counts.dropped_by_reason == {"unparseable timestamp": 1}


def test_a_line_of_thousands_of_spans_is_read(tmp_path: Path) -> None:
    """The Collector writes a batch a line; the head looks at one MiB of it, and may cut a character in two."""
    span = json.loads(_line(gen_ai__usage__input_tokens=7, gen_ai__usage__output_tokens=5))["resourceSpans"][0][
        "scopeSpans"
    ][0]["spans"][0]
    spans = [{**span, "spanId": str(number), "name": "SECRET ü" * 100} for number in range(1500)]
    path = tmp_path / "traces.json"
    batch = {"resource": {}, "resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}
    path.write_text(json.dumps(batch, ensure_ascii=False) + "\n", encoding="utf-8")
    assert path.stat().st_size > 1 << 20
    assert _sums(ingest(Order((path,)))) == [1500, 10_500, 7_500, 0]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"a": 1, "b": {"c": [1, 2', {"a": 1, "b": None}),
        ('{"a": [1], "b', {"a": [1]}),
        (' {"resourceSpans":[', {"resourceSpans": None}),
        ('{"a": "cut', {"a": None}),
        ("{", None),
        ('{"a" 1', None),
        ("{1: 2", None),
        ("[1, 2", None),
        ("{" + "[" * 100_000, None),
    ],
)
def test_keys_of_an_object_that_is_cut_off(text: str, found: dict[str, object] | None) -> None:
    assert leading_values(text) == found
