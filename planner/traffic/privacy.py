"""What must not be read: texts, people and keys. A log is read by an allow-list, and this is the second lock.

The names are those of the exports that this planner reads (LiteLLM ``messages``, ``proxy_server_request`` and
``metadata``; Langfuse ``input``, ``output``; Helicone ``request_body``; Portkey ``request.body``; APIM
``RequestMessages``; Bedrock ``inputBodyJson``, ``identity.arn``; Databricks ``request``, ``requester``; Vertex
``full_request``; OpenTelemetry ``gen_ai.input.messages``; ShareGPT ``conversations``) and of common relatives.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

import duckdb
import pyarrow.parquet as pq

from planner.errors import InputError, Problems
from planner.traffic.readers.columns import TableFile
from planner.traffic.readers.projections import columns_taken
from planner.traffic.readers.records import Budget, records
from planner.traffic.readers.relation import broken
from planner.traffic.storage.files import stream_of

TEXTS = frozenset(
    {
        "answer", "answers", "arguments", "attachments", "body", "bodyjson", "chat", "choice", "choices_text",
        "comment", "comments", "completion", "completions", "content", "contents", "conversation", "conversations",
        "description", "document", "documents", "full_request", "full_response", "gen_ai_input_messages",
        "gen_ai_output_messages", "gen_ai_system_instructions", "input", "input_body", "input_body_json",
        "input_messages", "input_text", "inputbodyjson", "inputs", "instruction", "instructions", "log_message",
        "message", "messages", "metadata", "model_parameters", "note", "notes", "original_prompt", "output",
        "output_body", "output_body_json", "output_messages", "output_text", "outputbodyjson", "outputs", "payload",
        "prompt", "prompt_text", "prompts", "properties", "proxy_server_request", "query", "question", "raw_request",
        "raw_response", "request", "request_body", "request_messages", "request_payload", "request_tags", "requestbody",
        "requestmessages", "response", "response_body", "response_messages", "response_payload", "response_text",
        "responsebody", "responsemessages", "status_text", "summary", "system", "system_prompt", "tags", "text",
        "title", "tool_calls", "tools", "transcript",
    }
)  # fmt: skip
"""Columns that hold what people or models wrote, unless they hold token counts."""
PEOPLE = frozenset(
    {
        "account", "account_id", "accountid", "api_key", "api_key_alias", "api_key_hash", "apikey", "arn", "auth",
        "authorization", "bearer", "caller", "calleripaddress", "client_ip", "clientip", "cookie", "cookies",
        "customer", "customer_id", "device_id", "email", "end_user", "end_user_id", "enduser", "first_name",
        "full_name", "header", "headers", "host", "hostname", "identity", "ip", "ip_address", "key", "key_alias",
        "key_name", "last_name", "login", "mail", "member", "name", "org", "org_id", "organisation", "organization",
        "organization_id", "owner", "password", "person", "phone", "proxy_key_id", "remote_addr", "remote_ip",
        "requester", "requester_ip_address", "secret", "session", "session_id", "sessionid", "team", "team_id",
        "tenant", "token", "user", "user_agent", "user_email", "user_id", "user_name", "useragent", "userid",
        "username", "users", "virtual_key",
    }
)  # fmt: skip
"""Columns that say who asked."""
STORED = ("model", "fallback_model", "traffic_class")
"""Roles whose values are written as they are."""
HASHED = ("request_id", "logical_id")
"""Roles whose values are compared and then forgotten: a session may tie attempts together."""
IDENTIFIERS = frozenset(("session", "session_id", "sessionid"))
HARMLESS = frozenset(("latencies.request", "attributes.gen_ai.operation.name", "message", "@message"))
"""What the nested formats take for all its name.

Kong's times, the kind of an OpenTelemetry operation, and the text inside which CloudWatch keeps the record of Bedrock:
it passes through memory, and nothing but counts, stamps, codes and the model is taken out of it.
"""
LOOKED_AT = 100
"""First rows by which a column of a suspicious name may show that it holds numbers."""
NUMBER = re.compile(r"\s*[+-]?(\d[\d_]*\.?\d*|\.\d+)([eE][+-]?\d+)?\s*|\s*[+-]?(nan|inf|infinity)\s*", re.IGNORECASE)
MOMENT = re.compile(r"\s*\d{4}-\d\d-\d\d([T ][\d:.,+ Zz-]*)?\s*")
FLAG = frozenset(("true", "false", "t", "f", "yes", "no", "none", "null"))

EMAIL = re.compile(r"[\w.+-]+@[\w-]+(\.[\w-]+)*\.[A-Za-z]{2,}")
KEY = re.compile(r"\b(sk|pk|rk|hf|ghp|gho|xox[a-z]|AKIA|ASIA|AIza|eyJ)[-_A-Za-z0-9]{8,}")
NAME_CHARS = 80
LONGEST_MODEL = 400
MOST_WORDS = 7
MOST_MODELS = 2_000


def check_allowed(connection: duckdb.DuckDBPyConnection, tables: Sequence[TableFile]) -> None:
    """Refuse to read texts and persons.

    A column called ``prompt``, ``output``, ``input`` or the like may be read where numbers are wanted and at least
    half of the values in its first rows are numbers: it holds token counts. Of a relation of a format's own, what it
    takes from the file counts, as the engine plans it.

    Raises
    ------
    InputError
        If a column that is read holds texts or says who asked.
    """
    problems = Problems()
    for table in tables:
        for what, name in _refused(connection, table):
            fix = "Map a column of numbers, or leave the role out"
            problems.add(
                str(table.head.path), f"the column '{name}' may hold text or say who asked: {what}", fix, field=name
            )
    problems.raise_if_any()


def _refused(connection: duckdb.DuckDBPyConnection, table: TableFile) -> Iterator[tuple[str, str]]:
    """What is refused, with the name of the column."""
    if table.relation:
        try:
            taken = columns_taken(connection, table)
        except duckdb.Error as error:
            raise InputError(broken(str(table.head.path), error)) from None
        yield from (("it is not read", name) for name in sorted(taken) if is_private(name) and name not in HARMLESS)
        return
    suspects = {role: name for role, name in table.columns.used().items() if _suspect(role, name)}
    plain = _plain_roles(table, [role for role in suspects if role not in (*STORED, *HASHED)])
    yield from ((f"it is not read for {role}", name) for role, name in suspects.items() if role not in plain)


def check_models(names: Iterable[str]) -> None:
    """Refuse to store what is no model name: the one text of a log that is written as it is.

    Raises
    ------
    InputError
        If the names are too many, or one is long, of many words or lines, or holds an e-mail address or a key.
    """
    found = sorted(names)
    bad = [name for name in found if _is_no_model(name)]
    problems = Problems()
    if bad:
        first = f"the first has {len(bad[0]):,} characters in {len(bad[0].split()):,} words"
        what = (
            f"{len(bad):,} of {len(found):,} model names look like text, a key or an address, not like models ({first})"
        )
        problems.add("model", what, "Check the column of the model; it is written as it is, so it must hold no text")
    if len(found) > MOST_MODELS:
        what = f"the log holds {len(found):,} different model names"
        problems.add(
            "model", what, "Check the column of the model, or merge names with --alias, or pick one with --model"
        )
    problems.raise_if_any()


def _is_no_model(name: str) -> bool:
    long = len(name) > LONGEST_MODEL or len(name.split()) > MOST_WORDS or len(name.splitlines()) > 1
    return long or bool(EMAIL.search(name) or KEY.search(name))


def is_private(name: str) -> bool:
    """Whether a column of this name, or the last part of a nested one, holds texts or says who asked."""
    folded = _folded(name)
    return any(part in TEXTS or part in PEOPLE for part in (folded, folded.rpartition(".")[2]))


def safe_name(name: str) -> str:
    """A file name without e-mail addresses, keys and characters that act on a terminal; cut to a sane length."""
    hidden = KEY.sub("KEY", EMAIL.sub("EMAIL", name))
    shown = "".join(c if c.isprintable() and c not in "[]<>" else "?" for c in hidden)
    return shown if len(shown) <= NAME_CHARS else f"{shown[: NAME_CHARS // 2]}…{shown[-NAME_CHARS // 3 :]}"


def columns_read(connection: duckdb.DuckDBPyConnection, tables: Sequence[TableFile]) -> list[str]:
    """The columns of the log that are read, by name: everything else stays in the file."""
    return sorted({safe_name(name) for table in tables for name in columns_taken(connection, table)})


def _folded(name: str) -> str:
    """``requestBody``, ``Request-Body`` and ``request body`` are one."""
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.strip())
    return re.sub(r"[^a-z0-9.]+", "_", snake.lower()).strip("_")


def _suspect(role: str, name: str) -> bool:
    if role in HASHED and _folded(name) in IDENTIFIERS:
        return False
    return is_private(name)


def _plain_roles(table: TableFile, roles: Sequence[str]) -> set[str]:
    """Of the roles, those whose columns hold numbers, dates or flags: by their type, or by their first values."""
    if not roles:
        return set()
    texts = _first_texts(table, roles)
    return {role for role in roles if _mostly_plain(texts[role])}


def _first_texts(table: TableFile, roles: Sequence[str]) -> dict[str, list[str | None]]:
    """The first values of the columns, as text."""
    names = table.columns.used()
    if table.head.is_parquet:
        with stream_of(table.head.path) as stream:
            file = pq.ParquetFile(stream)
            batch = next(file.iter_batches(LOOKED_AT, columns=[names[role] for role in roles]), None)
        rows = batch.to_pydict() if batch is not None else {}
        return {role: [_as_text(value) for value in rows.get(names[role], ())] for role in roles}
    seen = [record.texts for record in records(table, Budget(LOOKED_AT, 1 << 24)) if not record.fault]
    places = {role: place for place, role in enumerate(names)}
    return {role: [texts[places[role]] for texts in seen] for role in roles}


def _as_text(value: object) -> str | None:
    return None if value is None else str(value)


def _mostly_plain(texts: Sequence[str | None]) -> bool:
    values = [text for text in texts if text and text.strip()]
    plain = sum(bool(NUMBER.fullmatch(v) or MOMENT.fullmatch(v)) or v.strip().lower() in FLAG for v in values)
    return 2 * plain >= len(values)
