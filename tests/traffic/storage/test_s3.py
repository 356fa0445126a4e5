"""Logs in a bucket, against an S3 server on this machine."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from planner.cli import main
from planner.errors import InputError
from planner.traffic.canonical import read
from planner.traffic.ingest import Order, ingest, log_files

s3fs = pytest.importorskip("s3fs")
server_of = pytest.importorskip("moto.server")
SECRET = "topsecretkey"


@pytest.fixture(scope="module")
def endpoint(logs: dict[str, Path]) -> Iterator[str]:
    """A server with one bucket that holds the logs, and a pattern's worth of other names."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = server_of.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    filesystem = s3fs.S3FileSystem(key="k", secret=SECRET, endpoint_url=url, skip_instance_cache=True)
    filesystem.mkdir("bucket")
    for name, path in logs.items():
        filesystem.pipe(f"bucket/logs/{name}", path.read_bytes())
    filesystem.pipe("bucket/logs/deep/er/größe 1?.csv", logs["log.csv"].read_bytes())
    filesystem.pipe("bucket/logs/notes.txt", b"x")
    filesystem.pipe("bucket/canonical/manifest.json", b"{}")
    filesystem.pipe("bucket/canonical/lengths.parquet", b"x")
    yield url
    server.stop()


@pytest.fixture(autouse=True)
def _account(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true", "AWS_MAX_ATTEMPTS": "1",
        "AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="module")
def local(logs: dict[str, Path]) -> dict[str, Any]:
    return {name: ingest(Order((path,), log_format="plain")) for name, path in logs.items()}


@pytest.mark.parametrize("name", ["log.csv", "log.csv.gz", "log.parquet", "log.jsonl.zst"])
def test_a_file_in_a_bucket_is_the_file_on_disk(name: str, local: dict[str, Any]) -> None:
    found = ingest(Order(log_files(f"s3://bucket/logs/{name}"), log_format="plain"))
    assert found.tables() == local[name].tables()
    assert found.manifest == local[name].manifest


def test_patterns_and_folders_are_looked_up_in_the_bucket() -> None:
    def names(given: str) -> list[str]:
        return [str(path) for path in log_files(given)]

    everything = ["log.csv", "log.csv.gz", "log.jsonl.zst", "log.parquet"]
    assert names("s3://bucket/logs") == [f"s3://bucket/logs/{name}" for name in everything]
    assert names("s3://bucket/logs/") == names("s3://bucket/logs")
    assert names("s3://bucket/logs/*.csv*") == [f"s3://bucket/logs/{name}" for name in everything[:2]]
    assert names("s3://bucket/**/*.csv") == ["s3://bucket/logs/deep/er/größe 1?.csv", "s3://bucket/logs/log.csv"]
    assert names("s3://bucket/logs/deep/er/größe 1?.csv") == ["s3://bucket/logs/deep/er/größe 1?.csv"]


def test_a_name_with_a_question_mark_is_that_object() -> None:
    found = ingest(Order(log_files("s3://bucket/logs/deep/er/größe 1?.csv")))
    assert found.manifest.files == ["größe 1?.csv"]
    assert found.manifest.counts.kept == 300


@pytest.mark.parametrize("grows", [True, False])
def test_an_object_that_is_replaced_meanwhile(grows: bool, endpoint: str) -> None:
    filesystem = s3fs.S3FileSystem(key="k", secret=SECRET, endpoint_url=endpoint, skip_instance_cache=True)
    text = b"timestamp,prompt,output\n" + b"2026-01-01 00:00:00,1,1\n" * 3
    filesystem.pipe("bucket/new/log.csv", text)
    files = log_files("s3://bucket/new/*.csv")
    filesystem.pipe("bucket/new/log.csv", text * 2 if grows else text.replace(b"1,1", b"2,2"))
    with pytest.raises(InputError, match=r"s3://bucket/new/log\.csv: changed while it was read"):
        ingest(Order(files))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("s3://bucket/logs/*.xml", "no file matches this pattern"),
        ("s3://nobucket/logs/*.csv", "no such bucket or folder"),
        ("s3://nobucket/log.csv", "no such object or bucket"),
        ("s3://bucket/logs/absent.csv", "no such object or bucket"),
        ("s3://bucket/logs/deep", "the folder holds no log file"),
        ("s3://bucket/canonical", "is a canonical folder, which is read from a disk only"),
        ("s3://No_Bucket!/log.csv", "no such object or bucket"),
        ("s3://", "names no bucket"),
        ("s3://bucket/logs/notes.txt", "no known log format"),
    ],
)
def test_what_is_not_there_is_said(given: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as raised:
        ingest(Order(log_files(given)))
    assert len(raised.value.problems) == 1
    assert SECRET not in str(raised.value)


def test_no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(InputError, match=r"no credentials are set.*Set AWS_PROFILE"):
        log_files("s3://bucket/logs/log.csv")


def test_a_server_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setattr("s3fs.core.S3FileSystem.retries", 1)
    with pytest.raises(InputError, match=r"cannot be reached.*AWS_ENDPOINT_URL"):
        log_files("s3://bucket/logs/log.csv")


def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    given = ["planner", "ingest", "s3://bucket/logs/*.parquet", "--format", "plain", "-o", str(out)]
    monkeypatch.setattr("sys.argv", given)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert "300 rows read, 300 kept" in capsys.readouterr().out
    assert read(out).manifest.files == ["log.parquet"]
    assert SECRET not in (out / "manifest.json").read_text()
