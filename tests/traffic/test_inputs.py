from __future__ import annotations

import errno
import gzip
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from planner.errors import InputError
from planner.traffic.canonical import write
from planner.traffic.ingest import Order, ingest, log_files

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
