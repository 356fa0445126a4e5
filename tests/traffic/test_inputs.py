from __future__ import annotations

import errno
import gzip
from datetime import datetime
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from planner.errors import InputError
from planner.traffic.canonical import write
from planner.traffic.ingest import Order, ingest, log_files
from planner.traffic.measure import lengths

CONTENT = "timestamp,prompt,output,model\n" + "".join(
    f"2026-01-01 00:{i // 60:02}:{i % 60:02},{i + 1},{i % 7},{'ab'[i % 2]}\n" for i in range(300)
)


def _logs(folder: Path) -> dict[str, Path]:
    """One log in every way in which it may lie on disk."""
    csv = folder / "log.csv"
    csv.write_text(CONTENT)
    (folder / "log.csv.gz").write_bytes(gzip.compress(CONTENT.encode(), mtime=0))
    with pa.output_stream(str(folder / "log.csv.zst"), compression="zstd") as stream:
        stream.write(CONTENT.encode())
    with duckdb.connect() as connection:
        source = f"read_csv('{csv}', types = {{'timestamp': 'TIMESTAMP'}})"
        connection.execute(f"COPY (SELECT * FROM {source}) TO '{folder / 'log.parquet'}' (FORMAT PARQUET)")
        connection.execute(f"COPY (SELECT * FROM read_csv('{csv}', all_varchar = true)) TO '{folder / 'log.jsonl'}'")
    packed = (folder / "log.jsonl").read_bytes()
    (folder / "log.jsonl.gz").write_bytes(gzip.compress(packed, mtime=0))
    with pa.output_stream(str(folder / "log.jsonl.zst"), compression="zstd") as stream:
        stream.write(packed)
    return {path.name: path for path in folder.iterdir()}


def test_every_container_gives_the_same_tables(tmp_path: Path) -> None:
    found = {name: ingest(Order((path,), log_format="plain")) for name, path in _logs(tmp_path).items()}
    assert len(found) == 7
    first = found.pop("log.csv")
    for name, canonical in found.items():
        for table, rows in first.tables().items():
            assert canonical.tables()[table].equals(rows), (name, table)
        assert canonical.manifest.counts == first.manifest.counts, name


def test_patterns_and_folders(tmp_path: Path) -> None:
    for name in ("a/one.csv", "a/two.csv.zst", "a/b/three.parquet", "a/b/notes.txt", "a/.hidden.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()

    def names(pattern: str) -> list[str]:
        return [str(path.relative_to(tmp_path)) for path in log_files(tmp_path / pattern)]

    assert names("a") == ["a/one.csv", "a/two.csv.zst"]
    assert names("a/*.csv*") == ["a/one.csv", "a/two.csv.zst"]
    assert names("**/*.parquet") == ["a/b/three.parquet"]
    assert names("a/[ot]*") == ["a/one.csv", "a/two.csv.zst"]
    with pytest.raises(InputError, match="no file matches this pattern"):
        names("a/*.jsonl")


def test_a_file_with_the_name_of_a_pattern_is_that_file(tmp_path: Path) -> None:
    path = tmp_path / "log[1].csv"
    path.touch()
    assert log_files(path) == (path,)


def test_a_link_to_a_folder_above_does_not_loop(tmp_path: Path) -> None:
    for name in ("a/b/log.csv", "a/c/log.csv", "a/.d/log.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    for place in ("a/b", "a/c"):
        (tmp_path / place / "up").symlink_to(tmp_path / "a")
        (tmp_path / place / "again").symlink_to(tmp_path)
    (tmp_path / "a" / "self.csv").symlink_to("self.csv")
    expected = tuple(tmp_path / name for name in ("a/b/log.csv", "a/c/log.csv"))
    assert log_files(tmp_path / "**" / "*.csv") == expected
    assert log_files(str(tmp_path / "a" / "*" / "*.csv")) == expected
    assert log_files(tmp_path / "a" / ".*" / "*.csv") == (tmp_path / "a/.d/log.csv",)
    (tmp_path / "b").symlink_to(tmp_path / "a" / "b")
    assert log_files(tmp_path / "?" / "*.csv") == (tmp_path / "b/log.csv",)


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "csv.zst", "jsonl", "parquet"])
@pytest.mark.parametrize("stem", ["log[1]", "log*", "log?", "größe 日誌", "o'brien", 'a"b', "[!a]"])
def test_a_name_is_no_pattern_for_the_engine(stem: str, ending: str, tmp_path: Path) -> None:
    """The neighbours would match: log1, logs and so on."""
    logs = _logs(tmp_path)
    (tmp_path / "in").mkdir()
    for neighbour in ("log1", "logs", "b"):
        (tmp_path / "in" / f"{neighbour}.{ending}").write_bytes(b"not a log")
    path = tmp_path / "in" / f"{stem}.{ending}"
    path.write_bytes(logs[f"log.{ending}"].read_bytes())
    found = ingest(Order(log_files(str(path)), log_format="plain"))
    assert found.manifest.counts.kept == 300


def test_a_file_that_grows_while_it_is_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log.csv"
    path.write_text(CONTENT)

    def growing(read: object, minutes: object, spool: object) -> object:
        with path.open("a") as stream:
            stream.write("2026-01-01 00:06:00,1,1,a\n")
        return lengths(read, minutes, spool)  # type: ignore[arg-type]

    monkeypatch.setattr("planner.traffic.ingest.lengths", growing)
    with pytest.raises(InputError, match=r"log\.csv: changed while it was read"):
        ingest(Order((path,)))


def test_a_column_without_any_value_is_as_good_as_absent(tmp_path: Path) -> None:
    nothing = pa.nulls(3)
    columns = {"timestamp": [datetime(2026, 9, 3, 14, 22, second) for second in range(3)], "output": [5, 5, 5]}
    optional = dict.fromkeys(("model", "status", "request_id", "cached_tokens"), nothing)
    path = tmp_path / "log.parquet"
    pq.write_table(pa.table(columns | {"prompt": [1, 2, 3]} | optional), path)
    found = ingest(Order((path,)))
    assert found.manifest.models == {"default": 3}
    assert found.manifest.columns_read == ["output", "prompt", "timestamp"]
    pq.write_table(pa.table(columns | {"prompt": nothing}), path)
    with pytest.raises(InputError, match="the column 'prompt' holds nothing"):
        ingest(Order((path,)))


def test_tables_of_a_canonical_folder_are_no_logs(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(CONTENT)
    write(ingest(Order((tmp_path / "log.csv",))), tmp_path / "out")
    with pytest.raises(InputError, match="already a canonical folder"):
        log_files(tmp_path / "out")
    with pytest.raises(InputError, match="no file matches"):
        log_files(tmp_path / "out" / "*.parquet")


@pytest.mark.parametrize(
    ("name", "message"),
    [("log.parquet", "not a complete Parquet file"), ("log.csv.zst", "not a complete Zstandard file")],
)
def test_a_file_cut_short_is_refused(name: str, message: str, tmp_path: Path) -> None:
    content = _logs(tmp_path)[name].read_bytes()
    (tmp_path / f"cut-{name}").write_bytes(content[: len(content) // 2])
    with pytest.raises(InputError, match=message):
        ingest(Order((tmp_path / f"cut-{name}",), log_format="plain"))


def test_a_full_disk_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "log.csv").write_text(CONTENT)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("planner.traffic.tables.spool._write", full)
    with pytest.raises(InputError, match=r"the temporary folder cannot be written: No space left.*TMPDIR"):
        ingest(Order((tmp_path / "log.csv",)))
    assert list(scratch.iterdir()) == []
