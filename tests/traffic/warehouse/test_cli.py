"""`planner ingest --backend` at the keyboard: files, printed SQL, saved answers, and everything that can be wrong."""

from __future__ import annotations

import json
import sys

import duckdb
import pytest
from typer.testing import CliRunner

from planner.cli import app
from planner.errors import InputError
from planner.traffic.canonical import read
from planner.traffic.warehouse.address import hidden, secrets, shown

from .dirty import MAPPING, rows, saved
from .same import assert_same

pytestmark = pytest.mark.filterwarnings("ignore:fetch_arrow_table:DeprecationWarning")
MAP = ["--map", ",".join(f"{role}={column}" for role, column in MAPPING.items())]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return saved(rows(800, seed=11), tmp_path_factory.mktemp("cli") / "rows.parquet")


def run(*words):
    return CliRunner().invoke(app, ["ingest", *map(str, words)])


def refused(*words) -> str:
    result = run(*words)
    assert isinstance(result.exception, InputError), result
    assert "Traceback" not in result.output
    return str(result.exception)


def test_a_table_is_ingested_and_the_printed_sql_run_by_hand_gives_the_same(table, tmp_path):
    result = run("--backend", "duckdb", table, "-o", tmp_path / "asked", *MAP, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["source"] == "duckdb"

    printed = run("--backend", "duckdb", "requests", "--sql-only", *MAP).stdout
    answers = tmp_path / "answers"
    answers.mkdir()
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"CREATE VIEW requests AS FROM '{table}'")
        for block in printed.split("\n-- ")[1:]:
            name, _, query = block.partition(":")
            if query.startswith(" save the result"):
                text = query.partition("\n")[2].strip().removesuffix(";")
                connection.execute(f"COPY ({text}) TO '{answers / name}.csv' (HEADER)")
    result = run("--backend", "duckdb", "requests", "--from-tables", answers, "-o", tmp_path / "by_hand", *MAP)
    assert result.exit_code == 0, result.output
    by_hand, asked = read(tmp_path / "by_hand"), read(tmp_path / "asked")
    assert_same(by_hand, asked)
    assert by_hand.manifest.files_sha256 == asked.manifest.files_sha256

    message = refused("--backend", "duckdb", "requests", "--from-tables", answers, "-o", tmp_path / "no")
    assert "needs to know which columns were read" in message

    (answers / "tail.csv").unlink()
    (answers / "gaps.csv").write_text("gap_us,n\n1.5,2\n")
    (answers / "hours.csv").write_text("hour_us\n1\n")
    message = refused("--backend", "duckdb", "x", "--from-tables", answers, "-o", tmp_path / "no", *MAP)
    assert "tail: no such file" in message
    assert "gaps.csv, row 2, field gap_us: '1.5' is no whole number" in message
    assert "hours.csv, row 1: lacks the columns n" in message
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--backend", "postgrs", "t"], "Did you mean 'postgres'"),
        (["--backend", "duckdb", "t", "u"], "2 are given"),
        (["--connect", "local[2]", "t"], "--backend: is not given"),
        (["--backend", "duckdb", "no_such_table"], "no_such_table: no such table can be read"),
        (["--backend", "duckdb", "a.b.c.d"], "is no name of a table"),
        (["--backend", "duckdb", "/nowhere/at/all.parquet"], "cannot be read as Parquet"),
        (["--backend", "duckdb", "--connect", "/nowhere/at/all.duckdb", "t"], "cannot connect"),
        (["--backend", "duckdb", "t", "--tz", "Europe/Berlin"], "convert"),
        (["--backend", "duckdb", "t", "--sampling", "2"], "is no share"),
        (["--backend", "duckdb", "t", "--format", "litellm", "--map", "timestamp=a"], "cannot be used with --format"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_asked(tmp_path, words, message):
    assert message in refused(*words, "-o", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_columns_that_do_not_fit_are_all_named(table, tmp_path):
    mapping = "timestamp=messages,prompt=hit,output=o,model=mdl"
    message = refused("--backend", "duckdb", table, "-o", tmp_path / "out", "--map", mapping)
    assert "has no column 'mdl' for model" in message
    message = refused("--backend", "duckdb", table, "-o", tmp_path / "out", "--map", mapping.replace("mdl", "m"))
    assert "field messages: is string, but timestamp must be one of" in message
    assert "field hit: is boolean, but prompt must be one of" in message


def test_texts_are_not_read(table, tmp_path):
    mapping = "timestamp=ts,prompt=p,output=o,model=messages"
    message = refused("--backend", "duckdb", table, "-o", tmp_path / "out", "--map", mapping)
    assert "may hold text or say who asked" in message


def test_a_missing_package_is_named_with_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "snowflake", None)
    message = refused("--backend", "snowflake", "--connect", "snowflake://me:hunter2@a/d", "t", "-o", tmp_path / "o")
    assert "pip install 'planner[snowflake]'" in message
    assert "hunter2" not in message


SECRET = [
    ("postgres://me:hunter2@host:1/db", {"hunter2"}),
    ("postgres://me:hun%2Fter2@host/db", {"hun%2Fter2", "hun/ter2"}),
    ("postgres://me:hun/t@er2@host/db", {"hun/t@er2"}),
    ("databricks://host/path?access_token=dapi123&x=1", {"dapi123"}),
    ("snowflake://me@acc/db?warehouse=w&private_key_pwd=a%20b", {"a b", "a%20b"}),
    ("bigquery://project/set", set()),
    ("local[2]", set()),
    ("", set()),
]


@pytest.mark.parametrize(("url", "found"), SECRET)
def test_passwords_and_tokens_are_found_and_hidden(url, found):
    assert bool(secrets(url)) == bool(found)
    for secret in found:
        assert secret not in shown(url)
    if not found:
        assert shown(url) == url


def test_a_driver_that_repeats_the_password_does_not_show_it():
    url = "postgres://me:hun%2Fter2@host/db"
    assert hidden("login hun/ter2 (hun%2Fter2) refused", url) == "login *** (***) refused"
