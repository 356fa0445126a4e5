"""Every export is claimed by one reader alone, and no text of it is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from planner.traffic.aggregated import AGGREGATED
from planner.traffic.documents import peek
from planner.traffic.readers import READERS
from planner.traffic.readers.head import read_head

EXPORTS = Path(__file__).parents[2] / "data" / "traffic"
FILES = sorted(
    str(path.relative_to(EXPORTS))
    for folder in EXPORTS.iterdir()
    if folder.is_dir()
    for path in folder.iterdir()
    if path.name.endswith((".csv", ".jsonl", ".parquet", ".gz", ".zst", ".json"))
)
TEXTS = frozenset(
    [
        "message", "@message", "messages",
        "response", "request", "body", "request_body", "response_body", "request.body", "response.body",
        "input", "output", "prompt", "completion", "proxy_server_request", "metadata", "metadata.value", "user",
        "user_id", "api_key", "session_id", "trace_id", "usage_context", "properties", "requester", "client_ip",
        "headers", "client_request_id", "external_user", "RequestMessages", "ResponseMessages", "text_input",
    ]
)  # fmt: skip
"""Columns and keys that hold somebody's words or name, in any of the formats."""
TAKEN_WHOLE = {
    "bedrock/cloudwatch_events.jsonl": frozenset({"message"}),
    "bedrock/insights.csv": frozenset({"@message"}),
}
"""Texts in which the whole record stands."""


@pytest.mark.parametrize("name", FILES)
def test_one_reader_claims_it(name: str) -> None:
    head = read_head(EXPORTS / name)
    claiming = [reader.name for reader in READERS if reader.claims(head)]
    claiming += [source.name for source in AGGREGATED if source.claims(peek(EXPORTS / name))]
    assert len(claiming) == 1, claiming
    assert claiming[0].partition("-")[0] == Path(name).parts[0]


def test_every_reader_has_an_export() -> None:
    claimed = {next(r.name for r in READERS if r.claims(read_head(EXPORTS / name))) for name in FILES}
    assert {reader.name for reader in READERS} - claimed <= {"servegen", "plain", "replay"}


@pytest.mark.parametrize("name", FILES)
def test_no_text_is_read_and_none_comes_out(name: str, columns_read: Callable, found: Callable) -> None:
    taken = columns_read(EXPORTS / name)
    assert taken
    assert not {column for column in taken if column in TEXTS} - TAKEN_WHOLE.get(name, frozenset())
    assert "SECRET" not in found(EXPORTS / name).everything
