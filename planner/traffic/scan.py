"""One look at every row of the files: read and judged by the embedded engine, handed on in batches of numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa

from planner.errors import InputError
from planner.traffic.engine import sql_text
from planner.traffic.readers.base import Opened
from planner.traffic.readers.columns import TableFile, Wanted
from planner.traffic.readers.head import check_gzip
from planner.traffic.readers.judge import judged_queries, judged_sql
from planner.traffic.readers.relation import broken, rejected_lines, relation
from planner.traffic.tables.rows import NO_RANK, Column, Names, Rows

BATCH_ROWS = 122_880
SAMPLE_ROWS = 50_000
"""Rows at the start of a file in which the usual names of models are looked up."""
_MOST_NAMES = 200
_MOST_COMBINATIONS = 10_000
NAME_ROLES = ("model", "fallback_model", "traffic_class")
_NONE, _UNKNOWN = -2, -1
"""Codes of a name that is absent, and of one that is not among the usual ones."""
_SIMPLE = frozenset(
    {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "FLOAT", "DOUBLE"}
)
Watch = Callable[[int, int], None]
"""Told the place of the file that is read, and how many of its rows have been."""


@dataclass
class Scan:
    """Reads the rows of opened files; ``malformed`` counts lines that never became a row, once the rows are read."""

    connection: duckdb.DuckDBPyConnection
    opened: Opened
    wanted: Wanted
    names: Names
    watch: Watch = lambda place, rows: None
    malformed: int = 0

    def rows(self) -> Iterator[Rows]:
        """All rows, in no particular order.

        Raises
        ------
        InputError
            If a file breaks off.
        """
        for place, select in enumerate(self.opened.selects):
            table = self.opened.tables[place] if self.opened.tables else None
            if table is not None:
                check_gzip(table.head)
            try:
                yield from self._file(place, select, table)
            except duckdb.InterruptException:
                raise
            except (duckdb.Error, pa.ArrowException) as error:
                where = str(table.head.path) if table else "the drawn requests"
                raise InputError(broken(where, error)) from None

    def _file(self, place: int, select: str, table: TableFile | None) -> Iterator[Rows]:
        self.connection.execute("DROP TABLE IF EXISTS reject_errors")
        self.connection.execute("DROP TABLE IF EXISTS reject_scans")
        query = _query(self.connection, select, table, self.wanted)
        done = 0
        for batch in self.connection.sql(query.sql).to_arrow_reader(BATCH_ROWS):
            yield from query.rows(batch, self.names)
            done += batch.num_rows
            self.watch(place, done)
        if table is not None and table.head.is_csv:
            self.malformed += rejected_lines(self.connection)


@dataclass(frozen=True)
class _Query:
    """The judged rows of one file as SQL, and how its batches become `Rows`."""

    sql: str
    name_roles: tuple[str, ...]
    """Roles whose codes are read instead of the name of the model; empty: the names themselves are read."""
    usual: tuple[tuple[str, ...], ...]
    """By role, the names that have a code."""
    resolve: Callable[[list[tuple[str | None, ...]]], list[tuple[str, str]]]
    """Model and class of the given texts of `name_roles`."""
    resolved: dict[tuple[str | None, ...], tuple[str, str]]
    """What `resolve` has said."""
    rare: bool
    """Whether there may be other names than the usual ones; their texts are in columns of their own."""
    pair_of_key: Column
    """By combination of codes; -1 where it was not met yet."""

    def rows(self, batch: pa.RecordBatch, names: Names) -> Iterator[Rows]:
        """The kept rows of one batch, then the dropped ones."""
        columns = {name: batch.column(place) for place, name in enumerate(batch.schema.names)}
        verdict = columns["verdict"]
        pair = self._coded(columns, names) if self.name_roles else _named(columns, names)
        if verdict.null_count == len(verdict):
            yield _rows(columns, pair, None, None)
            return
        kept = verdict.is_null().to_numpy(zero_copy_only=False)
        yield _rows(columns, pair, np.flatnonzero(kept), None)
        yield _rows(columns, pair, np.flatnonzero(~kept), _raw(verdict).astype(np.int16))

    def _coded(self, columns: dict[str, pa.Array], names: Names) -> Column:
        """Pair of each row, by way of a table of all usual combinations of names."""
        key = np.zeros(len(columns["ts_us"]), dtype=np.int64)
        unknown = np.zeros(len(key) if self.rare else 0, dtype=np.bool_)
        for role, known in zip(self.name_roles, self.usual, strict=True):
            code = _raw(columns[f"code_{role}"])
            if self.rare:
                unknown |= code == _UNKNOWN
            key *= len(known) + 2
            key += code
            key += 2
        pair = self.pair_of_key.take(key)
        if int(pair.min(initial=0)) < 0:
            met = np.unique(key[pair < 0]).tolist()
            usual = {m: texts for m in met if (texts := self._texts(m)) is not None}
            self.pair_of_key[met] = 0
            self.pair_of_key[list(usual)] = self._pairs(list(usual.values()), names)
            pair = self.pair_of_key.take(key)
        places = np.flatnonzero(unknown)
        if len(places):
            taken = (columns[f"rare_{role}"].take(pa.array(places)).to_pylist() for role in self.name_roles)
            rare = list(zip(*taken, strict=True))
            unique = list(dict.fromkeys(rare))
            pairs = dict(zip(unique, self._pairs(unique, names), strict=True))
            pair[places] = [pairs[texts] for texts in rare]
        return pair

    def _texts(self, key: int) -> tuple[str | None, ...] | None:
        """The texts that a combination of codes stands for; none when one of them is not usual."""
        texts: list[str | None] = []
        for usual in reversed(self.usual):
            key, code = divmod(key, len(usual) + 2)
            if code - 2 == _UNKNOWN:
                return None
            texts.append(None if code - 2 == _NONE else usual[code - 2])
        return tuple(reversed(texts))

    def _pairs(self, texts: list[tuple[str | None, ...]], names: Names) -> list[int]:
        new = [text for text in texts if text not in self.resolved]
        if new:
            self.resolved.update(zip(new, self.resolve(new), strict=True))
        return [names.code(*self.resolved[text]) for text in texts]


def _query(connection: duckdb.DuckDBPyConnection, select: str, table: TableFile | None, wanted: Wanted) -> _Query:
    """The cheap way to read the names where they follow from a few columns; else as they are judged."""
    if table is not None and not any(a.since_us is not None for a in wanted.aliases):
        roles = tuple(role for role in NAME_ROLES if getattr(table.columns, role))
        plain_names = roles and not wanted.model and select == judged_queries((table,), wanted)[0]
        usual = _usual(connection, table, wanted, roles) if plain_names else None
        if usual is not None:
            return _coded_query(connection, table, wanted, roles, usual)
    sql = (
        "SELECT model, traffic_class, ts_us, coalesce(prompt, 0) AS p, coalesce(output, 0) AS o, "
        "coalesce(cached, 0) AS cached, verdict, adjusted, id_hash, "
        f"coalesce(rank, {NO_RANK + 1} - 1) AS rank, logical_hash FROM ({select})"
    )
    return _Query(sql, (), (), lambda texts: [], {}, rare=False, pair_of_key=np.empty(0, dtype=np.int64))


def _usual(
    connection: duckdb.DuckDBPyConnection, table: TableFile, wanted: Wanted, roles: Sequence[str]
) -> tuple[tuple[str, ...], ...] | None:
    """The names at the start of the file; none where one of the columns is no text, or has very many.

    Of a Parquet file all of them, which is nearly free: they stand in the dictionaries of its columns.
    """
    if any(table.typed.get(role, "VARCHAR") != "VARCHAR" for role in roles):
        return None
    places = table.places()
    found = []
    for role in roles:
        limit = "" if _names_are_complete(table) else f"LIMIT {SAMPLE_ROWS}"
        rows = connection.execute(
            f'SELECT DISTINCT CAST("{places[role]}" AS VARCHAR) AS name FROM '
            f'(SELECT "{places[role]}" FROM {relation(table)} {limit}) WHERE name IS NOT NULL LIMIT {_MOST_NAMES + 1}'
        ).fetchall()
        if len(rows) > _MOST_NAMES:
            return None
        found.append(tuple(sorted(name for (name,) in rows)))
    return tuple(found) if math.prod(len(names) + 2 for names in found) <= _MOST_COMBINATIONS else None


def _names_are_complete(table: TableFile) -> bool:
    return table.head.is_parquet and not table.relation


def _coded_query(
    connection: duckdb.DuckDBPyConnection,
    table: TableFile,
    wanted: Wanted,
    roles: tuple[str, ...],
    usual: tuple[tuple[str, ...], ...],
) -> _Query:
    rare = not _names_are_complete(table)
    codes = {role: _code_sql(f"r_{role}", names, rare=rare) for role, names in zip(roles, usual, strict=True)}
    columns = ["verdict", "ts_us", "p", "o", "cached", "adjusted"]
    if rare:
        some = " OR ".join(f"code_{role} = {_UNKNOWN}" for role in roles)
        columns += [f"CASE WHEN {some} THEN r_{role} END AS rare_{role}" for role in roles]
    if table.columns.request_id:
        columns.append("id_hash")
    if table.columns.version:
        columns.append(f"coalesce(rank, {NO_RANK + 1} - 1) AS rank")
    if table.columns.logical_id:
        columns.append("logical_hash")
    outer = [*(f"code_{role}" for role in roles), *columns]
    inner = ", ".join(["*", *(f"{sql} AS code_{role}" for role, sql in codes.items())])
    judged = judged_sql(relation(table), table, wanted)
    sql = f"WITH {judged} SELECT {', '.join(outer)} FROM (SELECT {inner} FROM judged)"
    kinds = dict(zip(*_described(connection, sql), strict=True))
    for short, long in (("p", "prompt"), ("o", "output")):
        if kinds[short] not in _SIMPLE:
            outer[outer.index(short)] = f"coalesce({long}, 0) AS {short}"
    sql = f"WITH {judged} SELECT {', '.join(outer)} FROM (SELECT {inner} FROM judged)"
    unmet = np.full(math.prod(len(names) + 2 for names in usual), -1, dtype=np.int64)
    resolve = _resolver(connection, table, wanted, roles)
    return _Query(sql, roles, usual, resolve, {}, rare=rare, pair_of_key=unmet)


def _described(connection: duckdb.DuckDBPyConnection, sql: str) -> tuple[list[str], list[str]]:
    found = connection.sql(sql)
    return list(found.columns), [str(kind) for kind in found.types]


def _code_sql(column: str, usual: Sequence[str], *, rare: bool) -> str:
    missing = f"CASE WHEN {column} IS NULL THEN {_NONE} ELSE {_UNKNOWN} END" if rare else str(_NONE)
    if not usual:
        return f"CAST({missing} AS INTEGER)"
    names = ", ".join(sql_text(name) for name in usual)
    return f"coalesce(CAST(enum_code(TRY_CAST({column} AS ENUM({names}))) AS INTEGER), {missing})"


def _resolver(
    connection: duckdb.DuckDBPyConnection, table: TableFile, wanted: Wanted, roles: Sequence[str]
) -> Callable[[list[tuple[str | None, ...]]], list[tuple[str, str]]]:
    """Asks the judge which model and class the texts of the roles mean, on a connection of its own."""

    def resolve(texts: list[tuple[str | None, ...]]) -> list[tuple[str, str]]:
        rows = pa.table(
            {
                "place": pa.array(range(len(texts))),
                **{role: pa.array([t[i] for t in texts], type=pa.string()) for i, role in enumerate(roles)},
            }
        )
        known = {role: f"CAST({role} AS VARCHAR)" if role in roles else "NULL" for role in table.places()}
        columns = [
            f'CAST({known[role]} AS {table.typed.get(role, "VARCHAR")}) AS "{place}"'
            for role, place in table.places().items()
        ]
        aside = connection.cursor()
        try:
            aside.register("met_names", rows)
            source = f"(SELECT place, {', '.join(columns)} FROM met_names)"
            found = aside.execute(
                f"WITH {judged_sql(source, table, wanted, 'place')} "
                "SELECT model, traffic_class FROM judged ORDER BY place"
            ).fetchall()
        finally:
            aside.close()
        return [(str(model), str(name)) for model, name in found]

    return resolve


def _named(columns: dict[str, pa.Array], names: Names) -> Column:
    """Pair of each row, from the names themselves."""
    model, traffic_class = (columns[name].dictionary_encode() for name in ("model", "traffic_class"))
    classes = traffic_class.dictionary.to_pylist()
    key = _raw(model.indices).astype(np.int64) * max(len(classes), 1) + _raw(traffic_class.indices)
    met, place = np.unique(key, return_inverse=True)
    models = model.dictionary.to_pylist()
    pairs = [names.code(models[k // len(classes)], classes[k % len(classes)]) for k in met.tolist()]
    return np.array(pairs, dtype=np.int64)[place] if pairs else np.empty(0, dtype=np.int64)


def _rows(columns: dict[str, pa.Array], pair: Column, places: Column | None, verdict: Column | None) -> Rows:
    """The rows at some places, or all of them; dropped rows, those with a verdict, have no tokens."""

    def chosen(name: str) -> Column:
        column = _raw(columns[name])
        return column.copy() if places is None else column.take(places)

    def tokens(name: str) -> Column:
        return chosen(name).astype(np.int32, copy=False) if verdict is None else np.zeros(len(ts_us), dtype=np.int32)

    ts_us, adjusted = chosen("ts_us"), chosen("adjusted")
    identity = _identity(columns, "id_hash", "has_id", places) | _identity(
        columns, "logical_hash", "has_logical", places
    )
    return Rows(
        pair=pair if places is None else pair.take(places),
        ts_us=ts_us,
        prompt=tokens("p"),
        output=tokens("o"),
        cached=tokens("cached"),
        verdict=verdict if verdict is None or places is None else verdict[places],
        adjusted=adjusted if adjusted.any() else None,
        id_hash=identity["id_hash"],
        has_id=identity["has_id"],
        rank=chosen("rank") if "rank" in columns else None,
        logical_hash=identity["logical_hash"],
        has_logical=identity["has_logical"],
    )


def _identity(columns: dict[str, pa.Array], name: str, flag: str, places: Column | None) -> dict[str, Column | None]:
    column = columns.get(name)
    if column is None or column.null_count == len(column):
        return {name: None, flag: None}
    value, there = _raw(column), column.is_valid().to_numpy(zero_copy_only=False)
    return {name: value.copy(), flag: there} if places is None else {name: value[places], flag: there[places]}


def _raw(column: pa.Array) -> Column:
    """The numbers of a column as they lie in memory; where it is null, anything."""
    kind = column.type.to_pandas_dtype()
    buffer = column.buffers()[1]
    values = np.frombuffer(buffer, dtype=kind) if buffer is not None else np.empty(0, dtype=kind)
    return values[column.offset : column.offset + len(column)]
