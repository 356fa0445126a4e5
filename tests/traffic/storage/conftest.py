from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

CONTENT = "timestamp,prompt,output,model\n" + "".join(
    f"2026-01-01 00:{i // 60:02}:{i % 60:02},{i + 1},{i % 7},{'ab'[i % 2]}\n" for i in range(300)
)


@pytest.fixture(scope="session")
def logs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One log in every way in which it may lie in storage."""
    folder = tmp_path_factory.mktemp("logs")
    csv = folder / "log.csv"
    csv.write_text(CONTENT)
    (folder / "log.csv.gz").write_bytes(gzip.compress(CONTENT.encode(), mtime=0))
    table = pa_csv.read_csv(csv)
    pq.write_table(table, folder / "log.parquet", row_group_size=50)
    lines = "\n".join(str(row | {"timestamp": str(row["timestamp"])}).replace("'", '"') for row in table.to_pylist())
    with pa.output_stream(str(folder / "log.jsonl.zst"), compression="zstd") as stream:
        stream.write(lines.encode())
    return {path.name: path for path in folder.iterdir()}


@pytest.fixture
def memory() -> Iterator[fsspec.AbstractFileSystem]:
    """The storage behind ``memory://``; empty again afterwards."""
    filesystem = fsspec.filesystem("memory")
    yield filesystem
    filesystem.store.clear()
    filesystem.pseudo_dirs[:] = [""]
