"""YAML documents: quoting is the library's, order is ours, and equal documents give equal bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from planner.deploy.words import comment

Document = Mapping[str, Any]
WIDTH = 1_000_000
"""No line is folded: an argument stays on one line."""


class _Writer(yaml.SafeDumper):
    """Without anchors: what stands twice is written twice."""

    def ignore_aliases(self, data: Any) -> bool:
        """Always."""
        return True


def yaml_text(documents: Sequence[Document], heading: Sequence[str] = ()) -> str:
    """Documents one after the other, below a comment."""
    above = "".join(f"# {comment(line)}\n" for line in heading)
    body = yaml.dump_all(
        list(documents), Dumper=_Writer, sort_keys=False, width=WIDTH, explicit_start=True, allow_unicode=True
    )
    return above + body
