"""Files that are broken, lie or attack: a clear message, never a traceback, and nothing is guessed."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from planner.errors import InputError
from planner.traffic import documents
from planner.traffic.aggregated import find_aggregated
from planner.traffic.documents import peek
from planner.traffic.histograms.readers import Exposition
from planner.traffic.ingest import Order, ingest

from .engine import answer
from .test_engines import vllm

WHOLE = json.dumps(answer(vllm()))
GRAFANA = 'Time,"vllm:request_prompt_tokens_count{model_name=""llama""}"\n2026-09-03 14:00:00,5\n'
LONG = "__name__,le,timestamp,value\nvllm:request_prompt_tokens_bucket,10,1788445320,5\n"
TEXT = "# TYPE vllm:request_prompt_tokens histogram\nvllm:request_prompt_tokens_count 5\n"

HOSTILE = {
    "cut.json": (WHOLE[: len(WHOLE) // 2], "ends in the middle"),
    "failed.json": ('{"status":"error","errorType":"bad_data","error":"query: too many points"}', "too many points"),
    "scalar.json": ('{"status":"success","data":{"resultType":"scalar","result":[1,"2"]}}', "holds a scalar"),
    "list.json": ('{"status":"success","data":{"resultType":"matrix","result":[1,2]}}', "no series"),
    "empty.json": ('{"status":"success","data":{"resultType":"matrix","result":[]}}', "no histogram"),
    "odd.json": (WHOLE.replace('"values": [[', '"values": [["x", "1"], [', 1), "no figure"),
    "words.json": (WHOLE.replace('"0.0"', '"many"', 1), "no figure"),
    "other.json": (WHOLE.replace("vllm:request", "other:request"), "no histogram"),
    "nested.json": ('{"status":"success","data":{"resultType":' + "[" * 100_000, "ends in the middle|no JSON"),
    "words.csv": (GRAFANA.replace("5", "5 K"), "'5 K' is no number"),
    "infinite.csv": (GRAFANA.replace(",5", ",+Inf"), "'.Inf' is no number"),
    "time.csv": (GRAFANA.replace("2026-09-03 14:00:00", "yesterday"), "'yesterday' is no time"),
    "legend.csv": ('Time,"p99 =""x"""\n2026-09-03 14:00:00,5\n', "has no column that names a series"),
    "no-rows.csv": (GRAFANA.splitlines()[0] + "\n", "no histogram"),
    "short.csv": (LONG + "vllm:x,1\n", "has 2 cells where the header has 4"),
    "value.csv": (LONG.replace(",5\n", ",five\n"), "'five' is no number"),
    "when.prom": (TEXT, "does not say when it was taken"),
    "broken_2026-09-03T142207Z.prom": (TEXT + "vllm:x{\n", "is no sample"),
    "one_2026-09-03T142207Z.prom": (TEXT, "no histogram"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_get_a_message(name: str, tmp_path: Path) -> None:
    content, message = HOSTILE[name]
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message) as caught:
        ingest(Order((tmp_path / name,)))
    assert name in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (gzip.compress(WHOLE.encode())[:-200], "not a complete gzip file"),
        (WHOLE.encode().replace(b"llama", b"ll\xffma"), "is not UTF-8 text"),
    ],
)
def test_bytes_that_are_no_text(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / ("a.json.gz" if content[:2] == b"\x1f\x8b" else "a.json")
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        ingest(Order((path,)))


def test_a_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "MAX_BYTES", 1 << 20)
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(WHOLE.encode() + b" " * (8 << 20)))
    with pytest.raises(InputError, match="is larger than"):
        ingest(Order((path,)))


def test_the_same_file_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(WHOLE)
    (tmp_path / "link.json").symlink_to(path)
    with pytest.raises(InputError, match="the same file is given twice"):
        ingest(Order((path, tmp_path / "link.json")))


def test_targets_with_the_same_labels_are_refused(tmp_path: Path) -> None:
    other = json.loads(WHOLE)
    for one in other["data"]["result"]:
        one["values"] = [[t, repr(float(v) * 2)] for t, v in one["values"]]
    (tmp_path / "a.json").write_text(WHOLE)
    (tmp_path / "b.json").write_text(json.dumps(other))
    with pytest.raises(InputError, match=r"is 3 and 6 at one time.*ingest them apart and merge"):
        ingest(Order((tmp_path / "a.json", tmp_path / "b.json")))


def test_snapshots_of_two_targets_in_one_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "all_2026-09-03T142207Z.prom"
    path.write_text(TEXT + TEXT.replace(" 5", " 7"))
    with pytest.raises(InputError, match="is 5 and 7 at one time"):
        ingest(Order((path,)))


def test_metrics_and_logs_are_not_mixed(tmp_path: Path, examples: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(WHOLE)
    with pytest.raises(InputError, match="is prometheus, but all files"):
        ingest(Order((path, examples / "AzureLLMInferenceTrace_code.csv")))


@pytest.mark.parametrize(
    "text",
    [
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,1,2\n",
        "timestamp,value\n1,# TYPE x\n",
        '{"timestamp": 1, "input_length": 2, "output_length": 3}\n',
        'time,prompt,output\n"# HELP x","a{b=""c""} 1",3\n',
        "",
    ],
)
def test_request_logs_are_left_to_their_readers(text: str, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(text)
    assert find_aggregated(Order((path,))) is None


def test_samples_without_comments_are_an_exposition(tmp_path: Path) -> None:
    path = tmp_path / "grep.txt"
    path.write_text('vllm:num_requests_running{engine="0",model_name="llama"} 2.0\n')
    assert Exposition().claims(peek(path))
