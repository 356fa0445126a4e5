"""Names for Kubernetes."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from planner.deploy.names import LONGEST, names_of

DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


@settings(max_examples=200)
@given(st.lists(st.text(max_size=80), min_size=1, max_size=8))
def test_names_are_dns_labels_and_tell_apart_what_differs(texts: list[str]) -> None:
    names = names_of(texts)
    assert set(names) == set(texts)
    assert all(DNS_LABEL.fullmatch(name) and len(name) <= LONGEST for name in names.values())
    assert len(set(names.values())) == len(set(texts))


def test_names_stay_readable() -> None:
    assert names_of(["chat/1", "Chat Large", "2024"]) == {
        "chat/1": "chat-1",
        "Chat Large": "chat-large",
        "2024": "p-2024",
    }


def test_names_do_not_depend_on_the_order_of_the_others() -> None:
    assert names_of(["a/1", "a-1"]) == names_of(["a-1", "a/1"])
    assert names_of(["a/1", "a-1"])["a/1"].startswith("a-1-")


def test_a_digest_never_meets_a_name_that_looks_like_one() -> None:
    taken = names_of(["a/1", "a-1"])["a/1"]
    assert len(set(names_of(["a/1", "a-1", taken]).values())) == 3
