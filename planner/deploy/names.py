"""Names that Kubernetes accepts, from names that people chose."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping

LONGEST = 32
"""Characters of a name: charts and controllers put theirs around it, and a label of a host name ends at 63."""
DIGEST = 6
"""Hex digits that tell apart names which would be the same."""
_OTHER = re.compile(r"[^a-z0-9]+")
_DIGESTED = re.compile(rf"-[0-9a-f]{{{DIGEST}}}$")


def names_of(texts: Iterable[str]) -> Mapping[str, str]:
    """A name for each text: lower-case letters, digits and hyphens, starting with a letter (RFC 1035, 1123).

    Texts that differ get names that differ: a text that is cut, comes out as another one does, or looks as if it had
    a digest, gets one.
    """
    distinct = list(dict.fromkeys(texts))
    plain = {text: _plain(text) for text in distinct}
    often = Counter(plain.values())
    return {
        text: name
        if often[name] == 1 and len(name) <= LONGEST and not _DIGESTED.search(name)
        else _digested(name, text)
        for text, name in plain.items()
    }


def _plain(text: str) -> str:
    name = _OTHER.sub("-", text.lower()).strip("-")
    return name if name[:1].isalpha() else f"p-{name}".rstrip("-")


def _digested(name: str, text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST]
    return f"{name[: LONGEST - DIGEST - 1].rstrip('-')}-{digest}"
