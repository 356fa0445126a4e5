"""Version numbers of engines, for ordering."""

from __future__ import annotations

import re
from functools import lru_cache

from planner.errors import InputError, Problem

VERSION = re.compile(r"v?(\d{1,6}(?:\.\d{1,6}){0,4})(?:\.?(?:a|b|rc|post|dev)\d{0,6})*(?:\+[\w.]{1,40})?", re.ASCII)


def is_development(version: str) -> bool:
    """Whether it is a build on the way to a release: ``0.26.1rc1.dev608``."""
    return "dev" in version or "rc" in version


@lru_cache(maxsize=1024)
def version_key(version: str) -> tuple[int, ...]:
    """``0.11.0`` as numbers, for ordering; a suffix such as ``rc1`` or ``.post2`` is ignored.

    Raises
    ------
    InputError
        If the text is no version.
    """
    match = VERSION.fullmatch(version.strip())
    if not match:
        raise InputError(
            Problem("engine", f"{version!r:.60} is not a version", "Write it like 0.33.0", field="version")
        )
    parts = [int(part) for part in match.group(1).split(".")]
    return tuple(parts + [0] * (3 - len(parts)))
