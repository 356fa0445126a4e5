"""Files in storage, through fsspec's memory: names, refusals, threads, and what may be shown."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from planner.errors import InputError
from planner.traffic.ingest import Order, ingest, log_files
from planner.traffic.source import load_traffic
from planner.traffic.storage.engine import Handle
from planner.traffic.storage.files import RemoteFile, identity, shown
from planner.traffic.storage.refusals import DRIVERS, refusal

CONTENT = "timestamp,prompt,output,model\n" + "".join(
    f"2026-01-01 00:{i // 60:02}:{i % 60:02},{i + 1},{i % 7},{'ab'[i % 2]}\n" for i in range(300)
)


@pytest.mark.parametrize("name", ["log.csv", "log.csv.gz", "log.parquet", "log.jsonl.zst"])
def test_memory_and_disk_are_the_same(name: str, logs: dict[str, Path], memory: Any) -> None:
    memory.pipe(f"/logs/{name}", logs[name].read_bytes())
    remote = ingest(Order(log_files(f"memory://logs/{name}"), log_format="plain"))
    local = ingest(Order((logs[name],), log_format="plain"))
    assert remote.tables() == local.tables()
    assert remote.manifest == local.manifest


def test_a_folder_of_many_files(memory: Any) -> None:
    rows = CONTENT.splitlines()
    for i in range(10):
        memory.pipe(f"/many/day={i:03}/log[{i}]*.csv", "\n".join([rows[0], *rows[30 * i + 1 : 30 * i + 31]]).encode())
    found = ingest(Order(log_files("memory://many/**/*.csv")))
    assert found.manifest.counts.kept == 300
    assert len(found.manifest.files) == 10


def test_dropped_rows_are_named(memory: Any) -> None:
    memory.pipe("/logs/bad.csv", (CONTENT + "2026-01-01 00:00:00,-4,1,a\nx\n").encode())
    counts = ingest(Order(log_files("memory://logs/bad.csv"))).manifest.counts
    assert [row["row"] for rows in counts.dropped_rows.values() for row in rows] == [303, 302]


def test_a_file_that_grows_between_two_looks(memory: Any) -> None:
    memory.pipe("/logs/log.csv", CONTENT.encode())
    files = log_files("memory://logs/log.csv")
    memory.pipe("/logs/log.csv", (CONTENT + "2026-01-01 00:06:00,1,1,a\n").encode())
    with pytest.raises(InputError, match="changed while it was read"):
        ingest(Order(files))


@pytest.mark.parametrize("address", ["s3://bucket/logs/log.csv", "s3://bucket/logs/*.csv", "gs://bucket/canonical"])
def test_a_plan_reads_no_storage(address: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="only planner ingest reads from there") as raised:
        load_traffic(tmp_path / address, name="m")
    assert address in str(raised.value)


def test_servegen_is_read_from_a_disk(examples: Path, memory: Any) -> None:
    trace = min((examples / "servegen-deepseek-r1").glob("*trace.csv*"))
    memory.pipe(f"/logs/{trace.name}", trace.read_bytes())
    with pytest.raises(InputError, match="is one of two files of a ServeGen client, read from a disk"):
        ingest(Order(log_files(f"memory://logs/{trace.name}")))


def test_a_file_given_twice(memory: Any) -> None:
    memory.pipe("/logs/log.csv", CONTENT.encode())
    with pytest.raises(InputError, match="given twice"):
        ingest(Order(log_files("memory://logs/log.csv") * 2))


@pytest.mark.parametrize("name", ["cut.parquet", "cut.csv.gz", "cut.jsonl.zst"])
def test_a_file_cut_short(name: str, logs: dict[str, Path], memory: Any) -> None:
    content = logs[name.replace("cut", "log")].read_bytes()
    memory.pipe(f"/logs/{name}", content[: len(content) // 2])
    with pytest.raises(InputError, match="not a complete") as raised:
        ingest(Order(log_files(f"memory://logs/{name}"), log_format="plain"))
    assert f"memory://logs/{name}" in str(raised.value)


@pytest.mark.parametrize(("name", "fails_at"), [("log.csv", 2), ("log.parquet", 4), ("log.csv.gz", 3)])
def test_storage_that_refuses_on_the_way(
    name: str, fails_at: int, logs: dict[str, Path], memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error inside the engine's reads is told in the words of the storage, without a word of the engine's."""
    memory.pipe(f"/logs/{name}", logs[name].read_bytes())
    files = log_files(f"memory://logs/{name}")
    opens = iter(range(100))
    opened = type(memory).open

    def refuse(self: Any, path: str, *args: Any, **kwargs: Any) -> Any:
        if next(opens) >= fails_at:
            raise PermissionError("Access Denied by policy ?sig=SECRET")
        return opened(self, path, *args, **kwargs)

    monkeypatch.setattr(type(memory), "open", refuse)
    with pytest.raises(InputError, match=r"access is refused \(Access Denied by policy\)") as raised:
        ingest(Order(files, log_format="plain"))
    assert "Traceback" not in str(raised.value)
    assert "SECRET" not in str(raised.value)


@pytest.mark.parametrize("name", ["log.csv", "log.parquet", "log.jsonl.zst"])
def test_ctrl_c_while_the_engine_waits_for_the_storage(
    name: str, logs: dict[str, Path], memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.pipe(f"/logs/{name}", logs[name].read_bytes())
    files = log_files(f"memory://logs/{name}")

    def interrupted(*_: Any) -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr(Handle, "read", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ingest(Order(files, log_format="plain"))


@pytest.mark.parametrize(
    ("protocol", "extra"), [("s3", "s3"), ("gs", "gcs"), ("az", "azure"), ("abfs", "azure"), ("https", "http")]
)
def test_a_missing_driver_says_how_to_install_it(protocol: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: Any, **__: Any) -> Any:
        raise ImportError("no driver")

    monkeypatch.setattr("planner.traffic.storage.find.url_to_fs", missing)
    with pytest.raises(InputError, match="cannot be read without") as raised:
        log_files(f"{protocol}://bucket/log.csv")
    assert f"pip install 'planner[{extra}]'" in str(raised.value)


@pytest.mark.parametrize(
    "given", ["ftp://host/log.csv", "simplecache::s3://b/log.csv", "zip://a::s3://b/x.zip", "x://"]
)
def test_other_protocols_are_refused(given: str) -> None:
    with pytest.raises(InputError, match="is not read"):
        log_files(given)


def test_a_file_address_is_a_path(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(CONTENT)
    assert log_files(f"file://{tmp_path}/log.csv") == (tmp_path / "log.csv",)


@pytest.mark.parametrize(
    ("address", "is_shown"),
    [
        ("https://user:pw@host/a/log.csv?sig=SECRET#part", "https://host/a/log.csv"),
        ("https://token@host/log.csv", "https://host/log.csv"),
        ("s3://key:secret@bucket/log.csv", "s3://bucket/log.csv"),
        ("s3://bucket/a?b#c.csv", "s3://bucket/a?b#c.csv"),
        ("abfs://box@account.dfs.core.windows.net/log.csv", "abfs://box@account.dfs.core.windows.net/log.csv"),
    ],
)
def test_addresses_are_shown_without_secrets(address: str, is_shown: str) -> None:
    assert shown(address) == is_shown
    file = RemoteFile(address, "key", None, 1)
    assert str(file) == is_shown
    assert "SECRET" not in file.engine_path
    assert identity(file) != identity(RemoteFile(f"{address}2", "key", None, 1))


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (type("NoCredentialsError", (Exception,), {})("Unable to locate"), "no credentials are set"),
        (type("HttpError", (Exception,), {})("Anonymous caller does not have access, 401"), "access is refused"),
        (type("ClientAuthenticationError", (Exception,), {})("403 AuthorizationFailure"), "access is refused"),
        (type("EndpointConnectionError", (Exception,), {})("Could not"), "cannot be reached"),
        (type("FileExpired", (OSError,), {})("gone"), "changed while it was read"),
        (TimeoutError(), "cannot be reached"),
        (RuntimeError("odd\nlines"), r"cannot be read: RuntimeError \(odd lines\)"),
        (ValueError("The HTTP server doesn't appear to support range requests."), "sends whole files only"),
    ],
)
@pytest.mark.parametrize("protocol", DRIVERS)
def test_refusals(protocol: str, error: Exception, says: str) -> None:
    assert re.search(says, refusal("there", f"{protocol}://bucket/log.csv", error).message)


def test_threads_share_a_handle_without_mixing_places() -> None:
    data = np.arange(1 << 18, dtype=np.uint32).tobytes()
    handle = Handle(BytesIO(data))
    barrier = threading.Barrier(8)

    def read(seed: int) -> bool:
        random = np.random.default_rng(seed)
        barrier.wait()
        for place in random.integers(0, len(data) - 64, 500).tolist():
            handle.seek(place)
            if handle.read(64) != data[place : place + 64]:
                return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(8)))
    handle.seek(0)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(partial(handle.read, 10)).result() == data[:10]
    assert handle.read(10) == data[10:20]


@pytest.fixture
def server() -> Iterator[str]:
    """A web server that answers ranges, asks for a signature, and holds one Parquet file."""
    sink = BytesIO()
    rows = [line.split(",") for line in CONTENT.splitlines()[1:]]
    table = pa.table({"timestamp": [r[0] for r in rows], **{n: [int(r[i]) for r in rows] for i, n in
                      ((1, "prompt"), (2, "output"))}})  # fmt: skip
    pq.write_table(table, sink)

    class Answers(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def _answer(self, *, body: bool) -> None:
            data, code = sink.getvalue(), 200
            if "sig=SECRET" not in self.path:
                data, code = b"denied", 403
            total, asked = len(data), self.headers.get("Range")
            if asked and code == 200:
                first, _, last = asked.removeprefix("bytes=").partition("-")
                data, code = data[int(first) : int(last or total) + 1], 206
            self.send_response(code)
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Accept-Ranges", "bytes")
            if code == 206:
                self.send_header("Content-Range", f"bytes {asked.removeprefix('bytes=')}/{total}")
            self.end_headers()
            if body:
                self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=httpd.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{httpd.server_port}"
    httpd.shutdown()
    thread.join()
    httpd.server_close()


def test_a_signed_address(server: str) -> None:
    pytest.importorskip("aiohttp")
    found = ingest(Order(log_files(f"{server}/logs/log.parquet?sig=SECRET"), model="m"))
    assert found.manifest.counts.kept == 300
    assert found.manifest.files == ["log.parquet"]
    assert "SECRET" not in found.manifest.model_dump_json()


@pytest.mark.parametrize(
    ("address", "says"),
    [("{}/log.parquet", "access is refused"), ("http://127.0.0.1:9/log.csv?sig=SECRET", "cannot be reached")],
)
def test_a_web_server_that_refuses(address: str, says: str, server: str) -> None:
    pytest.importorskip("aiohttp")
    with pytest.raises(InputError, match=says) as raised:
        log_files(address.format(server))
    assert "SECRET" not in str(raised.value)
