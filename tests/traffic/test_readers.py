from __future__ import annotations

import gzip
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from planner.errors import InputError
from planner.traffic.ingest import Order, ingest
from planner.traffic.readers.servegen import parse_law
from planner.traffic.source import load_traffic

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
GOOD = "2023-11-16 18:17:03.9799600,10,5\n"


def _counts(path: Path, content: str | bytes, **order: object) -> dict[str, object]:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return ingest(Order((path,), **order)).manifest.counts.model_dump()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("row", "reason", "offered"),
    [
        ("nope,1,2", "unparseable timestamp", False),
        (",1,2", "unparseable timestamp", False),
        ("1999-01-01 00:00:00,1,2", "implausible timestamp", False),
        ("2023-11-16 18:18:00,,2", "missing token count", True),
        ("2023-11-16 18:18:00,NaN,2", "token count is not a whole number", True),
        ("2023-11-16 18:18:00,3,Infinity", "token count is not a whole number", True),
        ("2023-11-16 18:18:00,3,-inf", "token count is not a whole number", True),
        ("2023-11-16 18:18:00,3,1.5", "token count is not a whole number", True),
        ("2023-11-16 18:18:00,=1+1,4", "token count is not a whole number", True),
        ("2023-11-16 18:18:00," + "9" * 10_000 + ",4", "token count is not a whole number", True),
        ("2023-11-16 18:18:00,-3,4", "negative token count", True),
        ("2023-11-16 18:18:00,99999999999999999999999,4", "absurd token count", True),
        ("2023-11-16 18:18:00,10000001,4", "absurd token count", True),
        ("2023-11-16 18:18:00,0,4", "zero prompt tokens", True),
        ("2023-11-16 18:18:00,3", "malformed line", False),
        ("2023-11-16 18:18:00,3,4,5", "malformed line", False),
        ('=HYPERLINK("http://x"),=cmd|x,@y', "unparseable timestamp", False),
        ('"2023-11-16 18:18:00,3,4', "unparseable timestamp", False),
        ("x" * 3_000_000, "malformed line", False),
    ],
)
def test_a_bad_row_is_counted_by_reason(row: str, reason: str, offered: bool, tmp_path: Path) -> None:
    counts = _counts(tmp_path / "log.csv", HEADER + GOOD + row + "\n" + GOOD)
    assert counts["dropped_by_reason"] == {reason: 1}
    assert (counts["rows_read"], counts["kept"], counts["offered"]) == (3, 2, 3 if offered else 2)


def test_bytes_that_are_no_text_are_one_bad_row(tmp_path: Path) -> None:
    content = (HEADER + GOOD).encode() + b"2023-11-16 18:18:00,\xff\xfe,2\n" + GOOD.encode()
    counts = _counts(tmp_path / "log.csv", content)
    assert (counts["kept"], counts["dropped_by_reason"]) == (2, {"malformed line": 1})


@pytest.mark.parametrize(
    "content",
    [
        "\ufeff" + HEADER + GOOD,
        (HEADER + GOOD).replace(",", ";"),
        (HEADER + GOOD).replace(",", "\t"),
        (HEADER + GOOD).replace("\n", "\r\n"),
        (HEADER + GOOD).rstrip("\n"),
        HEADER + GOOD + "\n\n",
        "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n2025-01-01 00:00:00.1234567+00:00,3,10,5\n",
    ],
)
def test_harmless_variants_are_read(content: str, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    assert _counts(path, content)["dropped_by_reason"] == {}
    assert (load_traffic(path, name="m").law.sum_prompt.sum(), load_traffic(path, name="m").law.requests) == (10, 1)


def test_seven_fractional_digits_and_offsets_are_utc(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(HEADER + GOOD)
    assert ingest(Order((path,))).manifest.window_start == "2023-11-16T18:17:03.979960Z"
    berlin = ingest(Order((path,), time_zone="Europe/Berlin")).manifest.window_start
    assert berlin == "2023-11-16T17:17:03.979960Z"
    path.write_text(HEADER + "2023-11-16 18:17:03.9799600+02:00,10,5\n")
    assert ingest(Order((path,), time_zone="Asia/Tokyo")).manifest.window_start == "2023-11-16T16:17:03.979960Z"


BIG = (
    HEADER + "".join(f"2023-11-16 18:{i // 60 % 60:02}:{i % 60:02}.{i:07},{i + 1},5\n" for i in range(60_000))
).encode()


def _flipped(data: bytes) -> bytes:
    flipped = bytearray(data)
    flipped[len(data) // 2] ^= 0xFF
    return bytes(flipped)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.csv", b"", "is empty"),
        ("blank.csv", b"\n\n", "is empty"),
        ("header.csv", HEADER.encode(), "no row was found"),
        ("utf16.csv", (HEADER + GOOD).encode("utf-16"), "not UTF-8"),
        ("binary.csv", bytes(range(256)) * 20, "not UTF-8"),
        ("latin.csv", "Zeit,Länge,Ausgabe\n".encode("latin-1"), "not UTF-8"),
        ("short.csv.gz", gzip.compress(BIG, mtime=0)[:-5000], "not a complete gzip file"),
        ("tiny.csv.gz", gzip.compress(HEADER.encode(), mtime=0)[:-9], "not a complete gzip file"),
        ("flipped.csv.gz", _flipped(gzip.compress(BIG, mtime=0)), "not a complete gzip file"),
        ("plain.csv.gz", (HEADER + GOOD).encode(), "not a complete gzip file"),
        (
            "doubled.csv",
            b"TIMESTAMP,ContextTokens,GeneratedTokens,ContextTokens\n2024-01-01,1,2,3\n",
            "2 columns named",
        ),
        ("unknown.csv", b"when,in,out\n2024-01-01,1,2\n", "no known log format"),
        ("wrong.csv", (HEADER + GOOD).replace(",", "^").encode(), "no known log format"),
        ("array.jsonl", b'[{"timestamp": 1}]', "in no known log format"),
        ("broken.jsonl", b'{"timestamp": 1,', "not one JSON object"),
        ("bad.csv", (HEADER + "x,1,2\ny,3,4\n2024-01-01,NaN,1\n").encode(), "no row remains: 2 of 3"),
    ],
)
def test_a_hopeless_file_is_refused_with_the_reason(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message) as caught:
        _counts(tmp_path / name, content)
    assert name in str(caught.value)


def test_a_first_prompt_longer_than_the_csv_limit_is_read(tmp_path: Path) -> None:
    rows = "request_id,prompt_tokens,completion_tokens,startTime,messages\n"
    counts = _counts(tmp_path / "log.csv", rows + 'a,1,2,2026-01-01 00:00:00,"' + "x" * 200_000 + '"\n')
    assert (counts["kept"], counts["dropped_by_reason"]) == (1, {})


@pytest.mark.skipif(sys.platform == "win32", reason="no pipes in folders")
def test_a_pipe_is_refused_rather_than_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log.csv")
    with pytest.raises(InputError, match="is a pipe"):
        load_traffic(tmp_path / "log.csv", name="m")


def test_missing_files_and_folders(tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(InputError, match="no such file") as caught:
        ingest(Order((tmp_path / "none.csv", tmp_path / "folder.csv")))
    assert len(caught.value.problems) == 2
    with pytest.raises(InputError, match="holds no log file"):
        load_traffic(tmp_path / "folder.csv", name="m")


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root reads everything")
def test_unreadable_file(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(HEADER + GOOD)
    path.chmod(0)
    with pytest.raises(InputError, match="cannot be read"):
        ingest(Order((path,)))


def test_formats_are_not_mixed_and_a_file_counts_once(examples: Path, tmp_path: Path) -> None:
    azure = examples / "AzureLLMInferenceTrace_code.csv"
    with pytest.raises(InputError, match="one format"):
        ingest(Order((azure, examples / "mooncake_conversation_head2500.jsonl")))
    with pytest.raises(InputError, match="given twice"):
        ingest(Order((azure, azure)))
    with pytest.raises(InputError, match="not a log format"):
        ingest(Order((azure,), log_format="azur"))


def test_a_quote_that_is_never_closed_counts_every_line_it_swallows(tmp_path: Path) -> None:
    rows = "".join(f"{1_700_000_000 + i},{i + 1},1,note\n" for i in range(100))
    content = "timestamp,prompt,output,comment\n" + rows + '1700000200,1,1,"oops\n' + rows
    counts = _counts(tmp_path / "log.csv", content)
    assert (counts["kept"], counts["rows_read"]) == (100, 201)
    assert counts["dropped_by_reason"] == {"malformed line": 101}


def test_mooncake_lines_that_are_no_json_are_counted(tmp_path: Path) -> None:
    good = json.dumps({"timestamp": 5, "input_length": 7, "output_length": 2, "hash_ids": [1, 2]})
    text = json.dumps({"timestamp": 6, "input_length": {"a": 1}, "output_length": 2})
    counts = _counts(tmp_path / "log.jsonl", "\n".join([good, "not json", text, good]))
    assert counts["kept"] == 2
    assert counts["dropped_by_reason"] == {"malformed line": 1, "token count is not a whole number": 1}


LITELLM = (
    "request_id,call_type,prompt_tokens,completion_tokens,total_tokens,startTime,endTime,model,model_group,status,"
    "cache_hit,messages\n"
    "a,acompletion,1834,212,2046,2026-09-03 14:22:07.113,2026-09-03 14:22:12.871,hosted_vllm/llama-70b,chat,success,"
    'None,"[{""role"": ""user"",\n""content"": ""hello, world""}]"\n'
    "b,acompletion,0,0,0,2026-09-03 14:22:08.113,,hosted_vllm/llama-70b,chat,failure,None,{}\n"
    "c,acompletion,50,60,110,2026-09-03 14:22:09.113,,hosted_vllm/llama-70b,chat,success,True,{}\n"
    "d,acompletion,10,20,30,2026-09-03 14:22:10.113,,hosted_vllm/llama-70b,,success,False,{}\n"
    "e,acompletion,11,21,32,2026-09-03 14:22:11.113,,hosted_vllm/llama-70b,chat-large,success,,{}\n"
    "e,acompletion,11,21,32,2026-09-03 14:22:11.113,,hosted_vllm/llama-70b,chat-large,success,,{}\n"
)


def test_litellm_failures_cache_hits_duplicates_and_models(tmp_path: Path) -> None:
    path = tmp_path / "spend.csv"
    path.write_text(LITELLM)
    manifest = ingest(Order((path,))).manifest
    assert manifest.source == "litellm-spendlogs"
    assert manifest.models == {"chat": 1, "chat-large": 1, "hosted_vllm/llama-70b": 1}
    assert manifest.counts.model_dump(exclude={"adjusted_by_reason"}) == {
        "rows_read": 6,
        "kept": 3,
        "offered": 4,
        "dropped_by_reason": {"failed request": 1, "response-cache hit": 1, "duplicate request id": 1},
        "dropped_rows": {
            "failed request": [{"file": "spend.csv", "row": 3, "field": "status", "value": "text of length 7"}],
            "response-cache hit": [{"file": "spend.csv", "row": 4, "field": "cache_hit", "value": ""}],
            "duplicate request id": [{"file": "spend.csv", "row": 7, "field": "request_id", "value": ""}],
        },
    }
    chat = load_traffic(path, model="chat", name="m")
    assert (chat.law.requests, chat.minute_counts.sum()) == (1, 2), "the failed request is still an arrival"


def test_litellm_aliases_merge_models(tmp_path: Path) -> None:
    path = tmp_path / "spend.csv"
    path.write_text(LITELLM)
    alias = "chat=llama-70b,chat-large=llama-70b,hosted_vllm/llama-70b=llama-70b"
    merged = load_traffic(path, options={"alias": alias}, name="m")
    assert (merged.law.requests, merged.law.sum_prompt.sum()) == (3, 1834 + 10 + 11)


def test_text_columns_never_reach_the_output(tmp_path: Path) -> None:
    path = tmp_path / "spend.csv"
    path.write_text(LITELLM)
    found = ingest(Order((path,)))
    everything = found.manifest.model_dump_json() + "".join(
        str(getattr(found, t).to_pylist()) for t in ("lengths", "rates")
    )
    assert "hello" not in everything


def test_plain_mapping(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    rows = "".join(f"{i},gpt,{i + 1},{i},{200 if i % 10 else 500}\n" for i in range(100))
    path.write_text("ts,m,in_tokens,out_tokens,code\n" + rows)
    mapping = {"timestamp": "ts", "prompt": "in_tokens", "output": "out_tokens", "model": "m", "status": "code"}
    found = ingest(Order((path,), mapping=mapping)).manifest
    assert found.counts.dropped_by_reason == {"failed request": 10}
    assert found.time_base == "start of the log"
    with pytest.raises(InputError) as caught:
        ingest(Order((path,), mapping={"timestamp": "tss", "promt": "in_tokens", "output": "x"}))
    assert "Did you mean 'prompt'" in str(caught.value)
    with pytest.raises(InputError, match="Did you mean 'ts'"):
        ingest(Order((path,), mapping={"timestamp": "tss", "prompt": "in_tokens", "output": "out_tokens"}))
    with pytest.raises(InputError, match="is not of the form"):
        load_traffic(path, options={"map": "timestamp"}, name="m")


@pytest.mark.parametrize("time", ["1700000000", "1700000000000", "2023-11-14T22:13:20Z"])
def test_plain_time_is_told_from_the_first_row(time: str, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(f"timestamp,prompt,output\n{time},1,1\n")
    assert ingest(Order((path,))).manifest.window_start == "2023-11-14T22:13:20Z"


def test_unknown_options_and_zones_are_refused(examples: Path) -> None:
    azure = examples / "AzureLLMInferenceTrace_code.csv"
    with pytest.raises(InputError, match="option seed: is not known"):
        load_traffic(azure, options={"seed": 1}, name="m")
    with pytest.raises(InputError, match="not a time zone"):
        load_traffic(azure, options={"tz": "Mars/Base"}, name="m")


def test_servegen_draws_the_published_counts(examples: Path) -> None:
    import csv

    folder = examples / "servegen-deepseek-r1"
    published = 0
    for path in folder.glob("*_trace.csv.gz"):
        with gzip.open(path, "rt") as stream:
            published += sum(round(float(r[1]) * 600) for r in csv.reader(stream) if 7200 <= int(r[0]) < 10_800)
    traffic = load_traffic(folder, options={"window_start_s": 7200, "window_s": 3600}, name="m")
    assert traffic.law.requests == traffic.minute_counts.sum() == published
    assert (traffic.window_s, len(traffic.minute_counts)) == (3600.0, 60)
    assert "drawn from 6 clients" in traffic.notes[0]


def _client(folder: Path, law: str, shape: float, rate: float = 5.0) -> Path:
    folder.mkdir(exist_ok=True)
    rows = "".join(f"{600 * i},{rate},1,{law},{shape},1\n" for i in range(12))
    (folder / "c_trace.csv").write_text(rows)
    lengths = {"0": {"input_tokens": "{10: 0.25, 30: 0.75}", "output_tokens": "{4: 1.0}"}}
    (folder / "c_lengths.json").write_text(json.dumps(lengths))
    return folder


def test_servegen_lengths_and_gaps_follow_the_published_law(tmp_path: Path) -> None:
    bursty = load_traffic(_client(tmp_path / "a", "Gamma", 0.1), name="m")
    poisson = load_traffic(_client(tmp_path / "b", "Gamma", 1.0), name="m")
    regular = load_traffic(_client(tmp_path / "c", "Weibull", 5.0), name="m")
    assert poisson.law.requests == 12 * 3000
    assert poisson.law.mean_prompt == pytest.approx(25.0, abs=0.2)
    assert poisson.law.mean_output == 4.0
    assert poisson.burst.idc[1] == pytest.approx(1.0, abs=0.15)
    # For renewals the index of dispersion tends to the squared coefficient of variation: 1 / shape for Gamma.
    assert bursty.burst.idc[1] == pytest.approx(10.0, rel=0.25)
    assert regular.burst.idc[1] < 0.3


def test_servegen_seed_is_the_only_source_of_chance(tmp_path: Path) -> None:
    folder = _client(tmp_path / "a", "Gamma", 0.5)
    draws = [load_traffic(folder, options={"seed": seed}, name="m") for seed in (1, 1, 2)]
    np.testing.assert_array_equal(draws[0].minute_counts, draws[1].minute_counts)
    assert (draws[0].minute_counts != draws[2].minute_counts).any()


def test_servegen_survives_extreme_shapes(tmp_path: Path) -> None:
    assert load_traffic(_client(tmp_path / "a", "Gamma", 1e-6), name="m").law.requests == 36_000


def test_servegen_period_without_lengths_is_counted(tmp_path: Path) -> None:
    folder = _client(tmp_path / "a", "Gamma", 1.0)
    with (folder / "c_trace.csv").open("a") as stream:
        stream.write("21600,1,1,Gamma,1,1\n")
    counts = ingest(Order((folder / "c_trace.csv",))).manifest.counts.model_dump()
    assert counts["dropped_by_reason"] == {"no published length law": 600}
    assert counts["offered"] - counts["kept"] == 600


def test_servegen_windows_and_files_are_checked(tmp_path: Path) -> None:
    folder = _client(tmp_path / "a", "Gamma", 1.0)
    with pytest.raises(InputError) as caught:
        load_traffic(folder, options={"window_start_s": 100, "window_s": -5, "seed": "x"}, name="m")
    assert len(caught.value.problems) == 3
    with pytest.raises(InputError, match="ends after the sample"):
        load_traffic(folder, options={"window_start_s": 600, "window_s": 7200}, name="m")
    (folder / "c_trace.csv").write_text("0,5,1,Gamma,1,1\n600,nan,1,Gamma,1,1\n1200,5,1,Pareto,1,1\n1800,5\n")
    with pytest.raises(InputError) as caught:
        load_traffic(folder, name="m")
    assert [p.row for p in caught.value.problems] == ["2", "3", "4"]
    (folder / "c_lengths.json").unlink()
    with pytest.raises(InputError, match="length laws that belongs to it is missing"):
        load_traffic(folder, name="m")


def test_printed_dicts_are_parsed_not_evaluated() -> None:
    assert parse_law("{182: 0.25, 205: 7.5e-01}") == {182: 0.25, 205: 0.75}
    assert parse_law("{}") == {}
    for text in ("__import__('os')", "{1: __import__('os')}", "{1: -1}", "{1: 0}", "{99999999: 1}", "{1: NaN}", "[1]"):
        with pytest.raises((ValueError, AttributeError)):
            parse_law(text)
