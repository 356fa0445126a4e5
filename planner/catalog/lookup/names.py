"""Names as people and logs write them, and what was found under one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Generic, TypeVar

Found = TypeVar("Found")


@dataclass(frozen=True)
class Named(Generic[Found]):
    """A model or GPU under the name it was asked for."""

    found: Found
    weights: str = ""
    """Weight format that the name states beyond the checkpoint it was read from."""
    sibling: bool = False
    """Read from a relative (sizes are the same, the way weights are stored may not be), or a card that stands in."""
    notes: tuple[str, ...] = ()


def outside_brackets(text: str) -> str:
    """The text without what stands in round brackets."""
    return " ".join(part.strip() for part in re.split(r"\([^()]*\)", text)).strip()


def in_brackets(text: str) -> list[str]:
    """What stands in round brackets."""
    return re.findall(r"\(([^()]*)\)", text)
