"""The Hub, played by a server on this machine: files of one commit, redirections, refusals, answers that never end."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from planner.catalog import hub as hub_module
from planner.catalog.hub import Hub, fetch_checkpoint
from planner.errors import InputError
from tests.catalog.adding.checkpoints import LLAMA, header_of
from tests.cli.test_plan import run as run_planner

COMMIT = "89abcdef0123456789abcdef0123456789abcdef"
NAME = "acme/small"


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.status = 200
        self.asked: list[str] = []
        self.slow = False

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        name = self.path.rpartition("/")[2]
        if self.path.startswith("/old/"):
            self._send(307, b"", Location=self.path.replace("/old/", "/acme/"), **{"X-Repo-Commit": COMMIT})
        elif name.startswith("redirect"):
            self._send(302, b"", Location=self.server.files[name].decode())
        elif self.server.slow:
            self._drip()
        elif self.server.status != 200:
            self._send(self.server.status, b"no")
        elif name not in self.server.files:
            self._send(404, b"", **{"X-Error-Code": "EntryNotFound"})
        else:
            body = self.server.files[name]
            if self.headers.get("Range"):
                whole = len(body)
                self._send(206, body, **{"Content-Range": f"bytes 0-{whole - 1}/{whole}", "X-Repo-Commit": COMMIT})
            else:
                self._send(200, body, **{"X-Repo-Commit": COMMIT})

    def _send(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(ConnectionError):
            self.wfile.write(body)

    def _drip(self) -> None:
        self.send_response(200)
        self.end_headers()
        with contextlib.suppress(ConnectionError):
            for _ in range(100):
                self.wfile.write(b" ")
                self.wfile.flush()
                time.sleep(0.02)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[_Server]:
    found = _Server()
    found.files["config.json"] = json.dumps(LLAMA).encode()
    thread = threading.Thread(target=lambda: found.serve_forever(poll_interval=0.01), daemon=True)
    thread.start()
    yield found
    found.shutdown()
    found.server_close()


def refused(server: _Server, name: str = NAME) -> str:
    with pytest.raises(InputError) as caught:
        fetch_checkpoint(name, Hub(server.address, timeout_s=2))
    return str(caught.value)


def test_a_model_with_an_index(server):
    quant = {"quantization": {"quant_algo": "FP8"}}
    server.files["hf_quant_config.json"] = json.dumps(quant).encode()
    index = {"metadata": {"total_size": 4321}, "weight_map": {"a": "model-00001-of-00001.safetensors"}}
    server.files["model.safetensors.index.json"] = json.dumps(index).encode()
    found = fetch_checkpoint(NAME, Hub(server.address))
    assert (found.config, found.companion, found.commit, found.name) == (LLAMA, quant, COMMIT, NAME)
    assert found.source == f"{server.address}/{NAME}/blob/{COMMIT}/config.json"
    assert found.weights is not None
    assert (found.weights.total_bytes, found.weights.by_dtype) == (4321, {})
    assert server.asked[0] == f"/{NAME}/resolve/main/config.json"
    assert all(f"/resolve/{COMMIT}/" in path for path in server.asked[1:]), "all files are of the commit that was met"


def test_the_header_of_a_single_file_is_all_that_is_read_of_it(server):
    header, size = header_of({"a": ("BF16", [1000, 1000]), "b": ("F32", [7])})
    server.files["model.safetensors"] = len(header).to_bytes(8, "little") + header + bytes(size)
    found = fetch_checkpoint(NAME, Hub(server.address))
    assert found.weights is not None
    assert found.weights.by_dtype == {"BF16": 2_000_000, "F32": 28}
    server.files["model.safetensors"] = server.files["model.safetensors"][:-1]
    assert "describes 2,000,028 bytes of tensors and has 2,000,027" in refused(server)
    server.files["model.safetensors"] = (2**63).to_bytes(8, "little") + b"{}"
    assert "safetensors reads 100,000,000 at most" in refused(server)


def test_without_weights_and_with_an_older_companion(server):
    server.files["quantize_config.json"] = b'{"bits": 4, "group_size": 128}'
    found = fetch_checkpoint(NAME, Hub(server.address))
    assert found.weights is None
    assert found.config["quantization_config"] == {"quant_method": "gptq", "bits": 4, "group_size": 128}


def test_a_redirection_of_the_hub_is_followed_and_its_commit_noted(server):
    found = fetch_checkpoint("old/small", Hub(server.address))
    assert (found.config, found.commit) == (LLAMA, COMMIT)


@pytest.mark.parametrize("target", ["file:///etc/passwd", "http://example.org/x", "ftp://example.org/x", "//[bad"])
def test_a_redirection_elsewhere_is_not_followed(server, target):
    server.files["redirect"] = target.encode()
    with pytest.raises(InputError) as caught:
        Hub(server.address).file(NAME, "redirect")
    assert caught.value.problems[0].where.startswith(server.address)


def test_redirections_in_a_circle_end(server):
    server.files["redirect"] = f"{server.address}/{NAME}/resolve/main/redirect".encode()
    with pytest.raises(InputError):
        Hub(server.address).file(NAME, "redirect")
    assert len(server.asked) < 20


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (401, "does not exist, is private, or asks to accept its terms"),
        (403, "does not exist, is private, or asks to accept its terms"),
        (404, "not found (HTTP 404)"),
        (429, "HTTP 429"),
        (500, "HTTP 500"),
    ],
)
def test_refusals_say_what_to_do(server, status, words):
    server.status = status
    text = refused(server)
    assert words in text
    assert "config.json" in text


def test_a_hub_that_cannot_be_reached():
    with pytest.raises(InputError, match=r"cannot be reached: .*Download config\.json by other means"):
        fetch_checkpoint(NAME, Hub("http://127.0.0.1:9", timeout_s=1))


def test_an_answer_that_never_ends_is_given_up(server):
    server.slow = True
    begun = time.monotonic()
    with pytest.raises(InputError, match="takes too long"):
        Hub(server.address, timeout_s=0.03).file(NAME, "config.json")
    assert time.monotonic() - begun < 1.5


def test_a_file_that_is_too_large_is_refused(server, monkeypatch):
    monkeypatch.setattr(hub_module, "MOST_BYTES", 100)
    assert "is longer than 100 bytes" in refused(server)


@pytest.mark.parametrize("body", [b"[]", b"{", b"<html>", b'{"a": 1, "a": 2}'])
def test_what_is_no_config_is_refused(server, body):
    server.files["config.json"] = body
    assert "config.json: " in refused(server)


def test_at_the_keyboard(server, tmp_path):
    """With --online alone is anything asked for; the rows name address and commit."""
    shown = run_planner("catalog", "add-model", NAME, "--json", cwd=tmp_path, env={"HF_ENDPOINT": server.address})
    assert shown.returncode == 2
    assert server.asked == []
    arguments = ("catalog", "add-model", NAME, "--online", "--endpoint", server.address, "--as-of", "2026-12-01")
    ended = run_planner(*arguments, "--json", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    (row,) = json.loads(ended.stdout)["rows"]
    assert (row["source"], row["commit"]) == (f"{server.address}/{NAME}/blob/{COMMIT}/config.json", COMMIT)
    assert (row["as_of"], row["notes"]) == ("2026-12-01", "verbatim")
    server.status = 401
    ended = run_planner(*arguments, cwd=tmp_path)
    assert ended.returncode == 2
    assert "Download config.json by other means" in ended.stderr


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/../b", "a/b?x=1", "a/b#c", "https://evil.example/x", "gpt2"])
def test_hostile_names_are_never_asked_for(server, name):
    assert "is no name of a model" in refused(server, name)
    assert server.asked == []


@pytest.mark.parametrize(
    "endpoint", ["http://huggingface.co", "file:///tmp", "ftp://127.0.0.1", "", "huggingface.co", "http://[bad"]
)
def test_only_https_or_this_machine(endpoint):
    with pytest.raises(InputError, match="cannot be used"):
        Hub(endpoint)
