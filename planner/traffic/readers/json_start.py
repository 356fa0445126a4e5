"""How a JSON file begins: one object a line, one array of objects, or an answer that wraps such an array."""

from __future__ import annotations

import json
import re
import shlex

from planner.errors import InputError, Problem
from planner.traffic.storage.files import LogFile

SPACE = re.compile(r"[ \t\r\n]*")
KEPT_WHOLE = ("resourceSpans",)
"""Lists that are read where they stand: OpenTelemetry's batches."""
UNPACKERS = {".gz": "gzip -dc", ".zst": "zstd -dc"}


def first_element(path: LogFile, text: str, *, cut: bool) -> tuple[dict[str, object], int]:
    """The first object of an array, and how many characters it has; of one that is cut off, its first keys.

    Raises
    ------
    InputError
        If the array is empty, or begins with anything else.
    """
    at = _skip(text, _skip(text, 0) + 1)
    if text[at : at + 1] == "]":
        raise InputError(Problem(str(path), "is an empty JSON array", "Give a log with at least one request"))
    try:
        value, end = json.JSONDecoder().raw_decode(text, at)
    except (ValueError, RecursionError):
        value, end = (leading_values(text[at:]) if cut else None), len(text)
    if not isinstance(value, dict):
        broken = value is None and text[at : at + 1] in ("{", "")
        what = "is a JSON array that breaks off" if broken else "is a JSON array that does not begin with an object"
        raise InputError(Problem(str(path), what, "Give an array of objects, or JSON lines: one object a line"))
    return value, end - at


def no_lines(path: LogFile, text: str) -> Problem:
    """Why a file that begins with a brace is not read line by line, and the command that makes lines of it."""
    first = text.lstrip().partition("\n")[0].strip()
    keys = leading_values(text) or {}
    wrapped = next((key for key in wrapping_keys(text) if key in keys), "")
    if wrapped and wrapped not in KEPT_WHOLE:
        what = f"is one JSON object with the rows in '{_printable(wrapped)}'"
        return Problem(str(path), what, unwrapped(path, wrapped), row="1")
    if first == "{" or (keys and wrapped):
        return Problem(str(path), "is JSON over several lines", _advice(path, "."), row="1")
    return Problem(str(path), "the first line is not one JSON object", "Give JSON lines: one object a line", row="1")


def wrapping_keys(text: str) -> tuple[str, ...]:
    """Keys, at any depth, whose value begins as a list of objects does."""
    return tuple(re.findall(r'"([^"\\\n]{1,80})"\s*:\s*\[\s*\{', text))


def unwrapped(path: LogFile, key: str) -> str:
    """The command that makes lines of the list under a key."""
    shown = _printable(key)
    return _advice(path, f".{shown}[]" if re.fullmatch(r"[A-Za-z_]\w*", shown) else f".{json.dumps(shown)}[]")


def _advice(path: LogFile, what: str) -> str:
    unpack = UNPACKERS.get(path.suffix)
    name, stem = shlex.quote(path.name), shlex.quote(f"{path.name.split('.')[0]}.jsonl")
    command = f"jq -c {shlex.quote(what)}" + ("" if unpack else f" {name}")
    return f"Write one object a line: {f'{unpack} {name} | ' if unpack else ''}{command} > {stem}"


def _printable(key: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in key)


def _skip(text: str, at: int) -> int:
    return SPACE.match(text, at).end()  # type: ignore[union-attr]


def leading_values(text: str) -> dict[str, object] | None:
    """Keys and values of an object that is cut off; the value that is cut is none. None where it is no object.

    One line of an OpenTelemetry file holds thousands of spans and is longer than what a head looks at.
    """
    decoder = json.JSONDecoder()
    found: dict[str, object] = {}
    at = _skip(text, 0)
    while at < len(text) and text[at] == ("," if found else "{"):
        try:
            key, at = decoder.raw_decode(text, _skip(text, at + 1))
            at = _skip(text, at)
        except (ValueError, RecursionError):
            break
        if not isinstance(key, str) or text[at : at + 1] != ":":
            return None
        found[key] = None
        try:
            found[key], at = decoder.raw_decode(text, _skip(text, at + 1))
            at = _skip(text, at)
        except (ValueError, RecursionError):
            break
    return found or None
