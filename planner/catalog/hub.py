"""A checkpoint's small files from the Hugging Face Hub, only where the user asks for it.

Addresses are ``ENDPOINT/ID/resolve/REVISION/FILE``; the answer, or the redirection before it, names the commit in
``X-Repo-Commit``; both gated and missing repositories answer 401. Source: huggingface_hub, ``constants.py``,
``file_download.py``, ``utils/_http.py``. No credentials are sent.
"""

from __future__ import annotations

import http.client
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from email.message import Message
from typing import IO, Any, BinaryIO, TypeVar

from planner import units
from planner.catalog.checkpoint import (
    CONFIG,
    INDEX,
    OLDER_COMPANIONS,
    SINGLE_FILE,
    VERBATIM,
    Checkpoint,
    silent,
    with_quantisation,
)
from planner.catalog.model_name import COMMIT, model_name
from planner.catalog.models import QUANT_COMPANION
from planner.catalog.safetensors import (
    LENGTH_BYTES,
    MOST_HEADER_BYTES,
    CheckpointBytes,
    checkpoint_bytes,
    read_header,
    read_index,
)
from planner.catalog.untrusted_json import MOST_BYTES, object_of
from planner.catalog.web_address import is_allowed, may_follow
from planner.errors import InputError, Problem

ENDPOINT = "https://huggingface.co"
TIMEOUT_S = 20.0
"""For a connection and for each part of an answer; the whole answer may take ten times as long."""
MAIN = "main"
_CHUNK_BYTES = units.BYTES_PER_MIB
BY_HAND = "Download config.json by other means and give its folder with --name"

Result = TypeVar("Result")


@dataclass
class Hub:
    """One session with a hub."""

    endpoint: str = ENDPOINT
    timeout_s: float = TIMEOUT_S
    commit: str = field(default="", init=False)
    """Of the first answer; later files are read at the same one."""

    def __post_init__(self) -> None:
        self.endpoint = self.endpoint.rstrip("/")
        if not is_allowed(self.endpoint):
            fix = "Give an https address; http is for a server on this machine only"
            raise InputError(Problem("--endpoint", f"{self.endpoint!r:.120} cannot be used", fix))
        self._opener = urllib.request.build_opener(_Redirects(self))

    def address(self, model_id: str, file: str) -> str:
        """Where a file lies."""
        return f"{self.endpoint}/{urllib.parse.quote(model_id)}/resolve/{self.commit or MAIN}/{file}"

    def note_commit(self, headers: Message) -> None:
        """Keep the commit that an answer names."""
        named = headers.get("X-Repo-Commit", "")
        if not self.commit and COMMIT.fullmatch(named):
            self.commit = named

    def file(self, model_id: str, name: str) -> bytes | None:
        """A small file; ``None`` where the repository has none of this name.

        Raises
        ------
        InputError
            If the hub cannot be reached or refuses, or the file is too large.
        """
        address = self.address(model_id, name)
        return self._answer(address, {}, lambda answer: self._bounded(address, answer))

    def header(self, model_id: str, name: str) -> CheckpointBytes | None:
        """Bytes by dtype of a file of weights, of which the header alone is read; ``None`` where there is none.

        Raises
        ------
        InputError
            If the hub cannot be reached or refuses, or the header is unusable.
        """
        address = self.address(model_id, name)
        part = {"Range": f"bytes=0-{LENGTH_BYTES + MOST_HEADER_BYTES - 1}"}

        def read(answer: http.client.HTTPResponse) -> CheckpointBytes:
            whole = _whole_bytes(answer)
            return checkpoint_bytes([read_header(_Timed(answer, self._ends()), whole, address)], f"header of {name}")

        return self._answer(address, part, read)

    def _answer(
        self, address: str, headers: dict[str, str], read: Callable[[http.client.HTTPResponse], Result]
    ) -> Result | None:
        request = urllib.request.Request(address, headers={"User-Agent": "planner", **headers})
        try:
            with self._opener.open(request, timeout=self.timeout_s) as answer:
                self.note_commit(answer.headers)
                return read(answer)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == http.HTTPStatus.NOT_FOUND:
                return None
            raise InputError(_refused(address, error.code)) from None
        except (OSError, ValueError, http.client.HTTPException) as error:  # ValueError: an address that is none
            reason = getattr(error, "reason", None) or error or type(error).__name__
            raise InputError(Problem(address, f"cannot be reached: {reason!s:.200}", BY_HAND)) from None

    def _ends(self) -> float:
        return time.monotonic() + 10 * self.timeout_s

    def _bounded(self, address: str, answer: http.client.HTTPResponse) -> bytes:
        text = _Timed(answer, self._ends()).read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES:
            raise InputError(Problem(address, f"is longer than {MOST_BYTES:,} bytes", BY_HAND))
        return text


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirections to https only, and takes note of the commit that they name."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub

    def http_error_302(self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any) -> Any:
        """Follow, or end the connection."""
        try:
            return super().http_error_302(req, fp, code, msg, headers)
        except (ValueError, InputError):
            fp.close()
            raise

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        """The next request."""
        self.hub.note_commit(headers)
        if not may_follow(req.full_url, newurl):
            raise InputError(Problem(req.full_url, f"leads to {newurl!r:.120}, which is not followed", BY_HAND))
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class _Timed:
    """A stream whose reading ends with an error at a moment of the monotonic clock."""

    def __init__(self, stream: BinaryIO | http.client.HTTPResponse, ends: float) -> None:
        self.stream, self.ends = stream, ends

    def read(self, most: int) -> bytes:
        """So many bytes, or all that are left."""
        parts: list[bytes] = []
        while most > 0:
            if time.monotonic() > self.ends:
                raise TimeoutError("the answer takes too long")
            part = self.stream.read1(min(most, _CHUNK_BYTES))  # type: ignore[union-attr]
            if not part:
                break
            parts.append(part)
            most -= len(part)
        return b"".join(parts)


def _whole_bytes(answer: http.client.HTTPResponse) -> int | None:
    """Length of the whole file, of which the answer may be a part."""
    given = answer.headers.get("Content-Range", "").rpartition("/")[2]
    if answer.status != http.HTTPStatus.PARTIAL_CONTENT:
        given = answer.headers.get("Content-Length", "")
    return int(given) if given.isascii() and given.isdigit() and len(given) < len(str(2**63)) else None


def _refused(address: str, code: int) -> Problem:
    if code in (http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.FORBIDDEN):
        message = f"refused (HTTP {code}): the model does not exist, is private, or asks to accept its terms first"
        return Problem(address, message, f"Check the name. {BY_HAND}")
    return Problem(address, f"HTTP {code}", BY_HAND)


def fetch_checkpoint(model_id: str, hub: Hub) -> Checkpoint:
    """Config, companions and bytes of the weights of a model on the Hub, all of one commit.

    Raises
    ------
    InputError
        If the name is none, the Hub cannot be reached or refuses, or a file cannot be used.
    """
    model_name(model_id, "MODEL")
    where = hub.address(model_id, CONFIG)
    text = hub.file(model_id, CONFIG)
    if text is None:
        raise InputError(Problem(where, "not found (HTTP 404)", "Check the name; the model may have no config.json"))
    config = object_of(text, where)
    companion = hub.file(model_id, QUANT_COMPANION)
    if companion is not None:
        object_of(companion, hub.address(model_id, QUANT_COMPANION))
    older = _older(model_id, hub) if silent(config) and companion is None else None
    merged = None if older is None else with_quantisation(config, *older)
    return Checkpoint(
        where=where,
        name=model_id,
        config_text=text if merged is None else merged[0],
        companion_text=companion,
        weights=_weights(model_id, hub),
        source=f"{hub.endpoint}/{model_id}/blob/{hub.commit or MAIN}/{CONFIG}",
        commit=hub.commit,
        note=VERBATIM if merged is None else merged[1],
    )


def _older(model_id: str, hub: Hub) -> tuple[str, bytes] | None:
    """Name and text of an older quantiser's companion."""
    found = ((name, hub.file(model_id, name)) for name in OLDER_COMPANIONS)
    return next(((name, text) for name, text in found if text is not None), None)


def _weights(model_id: str, hub: Hub) -> CheckpointBytes | None:
    text = hub.file(model_id, INDEX)
    if text is None:
        return hub.header(model_id, SINGLE_FILE)
    index = read_index(text, hub.address(model_id, INDEX))
    return None if index.total_bytes is None else CheckpointBytes(index.total_bytes, {}, f"total of {INDEX}")
