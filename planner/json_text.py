"""Objects in the text of a JSON document, of a list in it, or of JSON lines, each with its place."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from planner.errors import InputError, Problem

Placed = tuple[str, Mapping[str, object]]
"""Where an object stands, and the object."""


def objects_in(where: str, text: str, expected: str, again: str) -> Iterator[Placed]:
    """The objects of a text.

    The tokens ``NaN`` and ``Infinity``, which Python's writers produce, are read; the fields say what becomes of them.

    Parameters
    ----------
    where
        The file, for problems.
    expected
        What each object is, in words: ``an object``.
    again
        What to do about a broken file.

    Raises
    ------
    InputError
        If it is no JSON, or holds anything else than objects.
    """
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        if error.msg != "Extra data":
            raise _broken(where, error, error.lineno, again) from None
        yield from _lines(where, text, expected, again)
        return
    except (RecursionError, ValueError):
        raise InputError(Problem(where, "is no JSON that can be read", again)) from None
    listed = isinstance(document, list)
    for number, item in enumerate(document if listed else [document], start=1):
        yield _placed(where, f"entry {number}" if listed else "", item, expected, again)


def _lines(where: str, text: str, expected: str, again: str) -> Iterator[Placed]:
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            yield _placed(where, f"line {number}", json.loads(line), expected, again)
        except json.JSONDecodeError as error:
            raise _broken(where, error, number, again) from None
        except (RecursionError, ValueError):
            raise InputError(Problem(where, "is no JSON that can be read", again, row=str(number))) from None


def _placed(where: str, entry: str, item: object, expected: str, again: str) -> Placed:
    if not isinstance(item, dict):
        message = f"holds a {type(item).__name__} where {expected} is expected"
        raise InputError(Problem(where, message, again, row=entry))
    return (f"{where}, {entry}" if entry else where), item


def _broken(where: str, error: json.JSONDecodeError, line: int, again: str) -> InputError:
    ends = error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated")
    message = "ends in the middle: the file is cut off" if ends else f"is no JSON: {error.msg}"
    return InputError(Problem(where, message, again, row=str(line)))
