"""Metrics from a running Prometheus, by its HTTP interface (prometheus.io, "HTTP API", ``/api/v1/query_range``)."""

from __future__ import annotations

import http.client
import json
import math
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from planner.errors import InputError, Problem
from planner.json_text import objects_in
from planner.prometheus import Series, answers

MOST_POINTS = 1_000
"""Of a series in one answer; Prometheus refuses more than 11,000."""
LEAST_STEP_S = 15.0
MOST_BYTES = 1 << 28
AGAIN = "Check the address; it is the one whose /api/v1/query_range answers"


@dataclass(frozen=True)
class Window:
    """Time that is looked at, seconds since 1970."""

    start_s: float
    end_s: float

    @property
    def step_s(self) -> float:
        """Between two points of an answer: whole seconds."""
        return max(LEAST_STEP_S, math.ceil((self.end_s - self.start_s) / MOST_POINTS))


def is_address(place: str) -> bool:
    """Whether a place is a server rather than a file."""
    return place.startswith(("http://", "https://"))


def live_series(
    base: str, names: Iterable[str], window: Window, timeout_s: float, token: str = ""
) -> tuple[Series, ...]:
    """Raw series of metrics, all targets.

    Parameters
    ----------
    token
        Sent as a bearer token, where the server wants one.

    Raises
    ------
    InputError
        If the server does not answer in time, or with something else than series.
    """
    query = "{__name__=~" + json.dumps("|".join(re.escape(name) for name in sorted(set(names)))) + "}"
    asked = {"query": query, "start": f"{window.start_s:.3f}", "end": f"{window.end_s:.3f}"}
    data = urllib.parse.urlencode({**asked, "step": f"{window.step_s:g}"})
    shown = base.rstrip("/") + "/api/v1/query_range"
    text = _answer(shown, f"{shown}?{data}", timeout_s, token)
    return tuple(answers(objects_in(shown, text, "an answer of Prometheus", AGAIN)))


def _answer(shown: str, address: str, timeout_s: float, token: str) -> str:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        request = urllib.request.Request(address, headers=headers)
        with urllib.request.urlopen(request, timeout=timeout_s) as reply:
            raw = reply.read(MOST_BYTES + 1)
    except urllib.error.HTTPError as error:
        raise InputError(Problem(shown, f"answers {error.code}: {_reason(error)}", AGAIN)) from None
    except TimeoutError:
        raise InputError(Problem(shown, f"gives no answer within {timeout_s:g} s", "Ask for less time")) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise InputError(Problem(shown, f"cannot be reached: {getattr(error, 'reason', error)}", AGAIN)) from None
    if len(raw) > MOST_BYTES:
        raise InputError(Problem(shown, f"answers more than {MOST_BYTES >> 20} MiB", "Ask for less time"))
    return str(raw.decode("utf-8", errors="replace"))


def token_in(path: Path | None) -> str:
    """The token that a file holds; empty without a file. It is never shown.

    Raises
    ------
    InputError
        If the file cannot be read, or holds something else than one word.
    """
    if path is None:
        return ""
    try:
        text = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            Problem(str(path), f"cannot be read: {type(error).__name__}", "Give a readable file")
        ) from None
    if not text.isprintable() or len(text.split()) != 1:
        raise InputError(Problem(str(path), "holds no single token", "Put nothing but the bearer token there"))
    return text


def _reason(error: urllib.error.HTTPError) -> str:
    """What Prometheus says, or the words of HTTP where something else answers."""
    try:
        said = json.loads(error.read(10_000))
        return f"{said['error']!s:.200}"
    except (OSError, ValueError, TypeError, KeyError, http.client.HTTPException):
        return str(error.reason)
