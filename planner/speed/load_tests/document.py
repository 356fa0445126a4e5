"""Files of load tests: beginnings, JSON, JSON lines and CSV, whatever state they are in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from planner.errors import InputError, Problem
from planner.json_text import Placed, objects_in
from planner.speed.load_tests.types import Head

HEAD_BYTES = 1 << 17
MAX_BYTES = 1 << 29
"""Largest JSON document that is read whole: one with every request of a long test is smaller."""

_KEY = re.compile(r'"([\w.:-]+)"\s*:')
AGAIN = "Run the load test again, or fetch its result again"


def head_of(path: Path) -> Head:
    """How the file begins.

    Raises
    ------
    InputError
        If it cannot be read, is empty, is no text, or is a web page.
    """
    try:
        with path.open("rb") as file:
            begin = file.read(HEAD_BYTES)
    except OSError as error:
        raise InputError(Problem(str(path), f"cannot be read: {error.strerror or error}")) from error
    if not begin.strip():
        raise InputError(Problem(str(path), "is empty", AGAIN))
    if b"\0" in begin:
        raise InputError(Problem(str(path), "is no text", "Unpack it first if it is an archive"))
    text = begin.decode("utf-8-sig", errors="replace")
    if re.match(r"\s*<(!doctype|html|head|\?xml)", text, re.IGNORECASE):
        raise InputError(Problem(str(path), "is a web page, such as an error that a server answered with", AGAIN))
    return Head(text, frozenset(_KEY.findall(text)))


def json_objects(path: Path) -> Iterator[Placed]:
    """Objects of a JSON document, of a list in it, or of JSON lines, each with its place.

    The tokens ``NaN`` and ``Infinity``, which Python's writers produce, are read; the fields say what becomes of them.

    Raises
    ------
    InputError
        If it is no JSON, or holds anything else than objects.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InputError(Problem(str(path), f"is larger than {MAX_BYTES >> 20} MiB", "Leave out its requests"))
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InputError(Problem(str(path), f"cannot be read: {error.strerror or error}")) from error
    except UnicodeDecodeError as error:
        raise InputError(Problem(str(path), "is no UTF-8 text", "Save it as UTF-8")) from error
    yield from objects_in(str(path), text, "the result of a run", AGAIN)
