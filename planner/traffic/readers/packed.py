"""Files that are packed: refused with what to do about it, and kept from filling memory or time when they unpack."""

from __future__ import annotations

import shlex

from planner.errors import InputError, Problem
from planner.traffic.storage.files import LogFile, size_of

UNPACK = "Unpack it, and give the files inside"
AS_CSV = "Save the sheet as UTF-8 CSV"
EXPORT = "Export it as CSV, JSON lines or Parquet"
SIGNATURES: tuple[tuple[bytes, str, str], ...] = (
    (b"PK\x03\x04", "is a zip archive or an Excel workbook", f"{UNPACK}; {AS_CSV[0].lower()}{AS_CSV[1:]}"),
    (b"PK\x05\x06", "is an empty zip archive", UNPACK),
    (b"7z\xbc\xaf\x27\x1c", "is a 7z archive", UNPACK),
    (b"Rar!\x1a\x07", "is a rar archive", UNPACK),
    (b"\xfd7zXZ\x00", "is packed with xz", "Unpack it with unxz, or pack it with gzip or zstd"),
    (b"BZh", "is packed with bzip2", "Unpack it with bunzip2, or pack it with gzip or zstd"),
    (b"\x04\x22\x4d\x18", "is packed with lz4", "Unpack it with lz4 -d, or pack it with gzip or zstd"),
    (b"\x1f\x8b", "is packed with gzip", "Let its name end in .gz"),
    (b"\x28\xb5\x2f\xfd", "is packed with Zstandard", "Let its name end in .zst"),
    (b"PAR1", "is a Parquet file", "Let its name end in .parquet"),
    (b"ORC", "is an ORC file", EXPORT),
    (b"Obj\x01", "is an Avro file", EXPORT),
    (b"ARROW1", "is an Arrow file", EXPORT),
    (b"\xd0\xcf\x11\xe0", "is an old Excel workbook", AS_CSV),
    (b"SQLite format 3\x00", "is an SQLite database", EXPORT),
    (
        b"PGDMP",
        "is a PostgreSQL dump in the custom format",
        r"Export the table: \copy (SELECT ...) TO 'log.csv' CSV HEADER",
    ),
    (b"%PDF", "is a PDF", EXPORT),
)
"""First bytes, what such a file is, and what to do; from the list of file signatures of the ``file`` utility."""
ZIP = b"PK\x03\x04"
TAR_AT, TAR = 257, b"ustar"

MOST_EXPANSION = 1_000
"""A log packs 5 to 100 times; gzip cannot do more than 1,032, Zstandard can do a million."""
MOST_ROWS_A_BYTE = 10
"""A row of a log takes some bytes even when it is packed well: stamps and token counts differ."""
FREE_ROWS = 10_000_000
FREE_BYTES = 1 << 30
"""An archive that unpacks to less is harmless whatever its ratio."""


def refuse_packed(path: LogFile, start: bytes, *, inside: bool = False) -> None:
    """Refuse a file by its first bytes; ``inside`` where they have been unpacked already.

    Raises
    ------
    InputError
        If it is an archive or a binary table of a kind that is not read here.
    """
    what, fix = next(((what, fix) for sign, what, fix in SIGNATURES if _starts(start, sign)), ("", ""))
    if start[TAR_AT : TAR_AT + len(TAR)] == TAR:
        what, fix = "is a tar archive", UNPACK
    if start.startswith(ZIP) and path.suffix == ".zip":
        what, fix = "is a zip archive", _unzip(path)
    if what:
        raise InputError(Problem(str(path), f"holds a file that {what}" if inside else what, fix))


def _unzip(path: LogFile) -> str:
    name, stem = shlex.quote(path.name), shlex.quote(path.name.removesuffix(".zip"))
    return (
        f"If it holds one CSV: unzip -p {name} > {stem}.csv; if several files: unzip {name} -d {stem}, and give {stem}"
    )


def _starts(start: bytes, sign: bytes) -> bool:
    """Short signatures of letters could begin a header, so what follows must be no text."""
    if not start.startswith(sign):
        return False
    return not sign.isalnum() or any(byte < 9 or 13 < byte < 32 or byte > 126 for byte in start[len(sign) : 64])


def refuse_bomb(path: LogFile, unpacked_bytes: int) -> None:
    """Refuse an archive that has unpacked to far more than any log does.

    Raises
    ------
    InputError
        If it is more than `FREE_BYTES` and more than `MOST_EXPANSION` times the size of the file.
    """
    if unpacked_bytes > FREE_BYTES and unpacked_bytes > MOST_EXPANSION * max(size_of(path), 1):
        limits = f"{MOST_EXPANSION:,} times its size and more than {FREE_BYTES >> 20:,} MiB"
        what = f"unpacks to more than {limits}: no log does"
        raise InputError(Problem(str(path), what, "If it is one, unpack it yourself and give the file"))


def refuse_rows(path: LogFile, rows: int) -> None:
    """Refuse a table that says it has more rows than a log of its size can have.

    Raises
    ------
    InputError
        If it has more than `FREE_ROWS` and more than `MOST_ROWS_A_BYTE` of them for each of its bytes.
    """
    if rows > FREE_ROWS and rows > MOST_ROWS_A_BYTE * max(size_of(path), 1):
        what = f"says that it has {rows:,} rows, more than {MOST_ROWS_A_BYTE} for each of its bytes: no log does"
        raise InputError(Problem(str(path), what, "Export it again"))
