"""Where price catalogues come from: files, folders, zips, servers."""

from __future__ import annotations

import http.server
import io
import threading
import zipfile

import pytest

from planner.catalog.imports.fetch import source_files
from planner.errors import InputError


def zipped(**members: str) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return data.getvalue()


@pytest.fixture
def server():
    answers = {"/aws/catalog.zip": zipped(**{"aws.csv": "a,b\n"}), "/aws.csv": b"a,b\n"}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path == "/away":
                self.send_response(302)
                self.send_header("Location", "http://elsewhere.example/aws.csv")
                self.end_headers()
                return
            body = answers.get(self.path)
            self.send_response(404 if body is None else 200)
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *_):
            pass

    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=running.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{running.server_port}"
    running.shutdown()
    running.server_close()


def test_a_server_gives_a_file_or_a_zip(server):
    assert [f.name for f in source_files(f"{server}/aws/catalog.zip")] == ["aws.csv"]
    assert source_files(f"{server}/aws.csv")[0].text == "a,b\n"


@pytest.mark.parametrize(
    ("path", "said"), [("/nothing", "HTTP 404"), ("/away", "is not followed"), ("/aws/catalog.zip", "larger than 3")]
)
def test_what_a_server_must_not_do(server, path, said):
    with pytest.raises(InputError, match=said):
        source_files(server + path, most_bytes=3)


def test_plain_http_elsewhere_is_refused():
    with pytest.raises(InputError, match="cannot be used"):
        source_files("http://prices.example/aws.csv")


@pytest.mark.parametrize("name", ["../aws.csv", "/etc/aws.csv", "a\\aws.csv", "C:aws.csv"])
def test_a_zip_that_names_a_place_outside_is_refused(tmp_path, name):
    (tmp_path / "c.zip").write_bytes(zipped(**{name: "a"}))
    with pytest.raises(InputError, match="outside itself"):
        source_files(str(tmp_path / "c.zip"))


def test_a_zip_bomb_is_not_unpacked(tmp_path):
    (tmp_path / "c.zip").write_bytes(zipped(**{"aws.csv": "0" * 5_000_000}))
    with pytest.raises(InputError, match="larger than"):
        source_files(str(tmp_path / "c.zip"), most_bytes=100_000)


def test_broken_and_empty_sources(tmp_path):
    (tmp_path / "c.zip").write_bytes(b"PK broken")
    (tmp_path / "b.csv").write_bytes(b"\xff\xfe")
    (tmp_path / "none").mkdir()
    for path in ("c.zip", "b.csv", "none", "missing.csv"):
        with pytest.raises(InputError):
            source_files(str(tmp_path / path))


def test_a_byte_order_mark_is_passed_over(tmp_path):
    (tmp_path / "b.csv").write_bytes(b"\xef\xbb\xbfa,b\r\n")
    assert source_files(str(tmp_path / "b.csv"))[0].text.startswith("a,b")
