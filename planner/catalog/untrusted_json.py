"""JSON from files that somebody else wrote: bounded in size and depth, and of one meaning."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from planner import units
from planner.errors import InputError, Problem

MOST_BYTES = 16 * units.BYTES_PER_MIB
"""Of a config, a quantisation companion or an index of weights; the largest known ones hold 3 MiB."""


class _DoubledKeyError(ValueError):
    """A key occurs twice in one object."""


def object_of(text: bytes, where: str, *, most_bytes: int = MOST_BYTES) -> dict[str, Any]:
    """The object that a JSON text holds.

    ``NaN`` and ``Infinity`` are read, as Python's writers produce them (``time_step_limit`` of Mamba-2 models ends at
    infinity); whoever uses a key says what becomes of them. A key that occurs twice is refused: readers disagree on
    which one counts.

    Parameters
    ----------
    text
        UTF-8, with or without a byte-order mark.
    where
        The file, for problems.
    most_bytes
        Longest text that is parsed.

    Raises
    ------
    InputError
        If it is too long, no JSON, nested too deeply, ambiguous, or holds something else than an object.
    """
    if len(text) > most_bytes:
        raise InputError(Problem(where, f"is longer than {most_bytes:,} bytes", "Give the file of a model"))
    try:
        found = json.loads(text.decode("utf-8-sig"), object_pairs_hook=_unique)
    except _DoubledKeyError as error:
        raise InputError(Problem(where, str(error), "Keep one of them")) from None
    except RecursionError:
        raise InputError(Problem(where, "is nested too deeply")) from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(Problem(where, f"is not JSON: {error}")) from None
    except ValueError:  # what int() refuses: more digits than sys.get_int_max_str_digits() allows
        raise InputError(Problem(where, "holds a number of thousands of digits")) from None
    if not isinstance(found, dict):
        kind = "a list" if isinstance(found, list) else "no object"
        raise InputError(Problem(where, f"holds {kind}", "An object in braces is expected"))
    return found


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _DoubledKeyError(f"the key {key!r:.60} occurs twice in one object")
        found[key] = value
    return found


def same_meaning(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two objects hold the same, whatever the order of their keys; NaN equals NaN here."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
