"""Files that were never meant to be read: each gives a clear error or a counted drop, through the command line."""

from __future__ import annotations

import gzip
import io
import json
import os
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from planner.cli import main
from planner.traffic.canonical import read
from planner.traffic.readers import packed

HEADER = "timestamp,prompt,output,model,status\n"
GOOD = "2026-09-03 14:22:07.113,10,5,m,200\n"
LOG = HEADER + GOOD * 3
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
JSON_GOOD = '{"timestamp": 1788445327, "prompt": 10, "output": 5, "model": "m"}\n'
MAP = ("--map", "timestamp=timestamp,prompt=prompt,output=output")
MALFORMED, NOT_WHOLE, BAD_TIME = "malformed line", "token count is not a whole number", "unparseable timestamp"
IMPLAUSIBLE = "implausible timestamp"
BIG_LOG = (
    HEADER + "".join(f"2026-09-03 14:{i // 60 % 60:02}:{i % 60:02}.5,{i + 1},5,m,200\n" for i in range(20_000))
).encode()


@dataclass(frozen=True)
class Case:
    """One hostile file and what must come of it: kept rows and drops, or the words of an error."""

    name: str
    content: bytes | str | Callable[[Path], None]
    kept: int | None = None
    dropped: dict[str, int] = field(default_factory=dict)
    says: str = ""
    args: tuple[str, ...] = ()

    def write(self, folder: Path) -> Path:
        path = folder / self.name
        if callable(self.content):
            self.content(path)
        else:
            path.write_bytes(self.content.encode() if isinstance(self.content, str) else self.content)
        return path


def _rows(*rows: str) -> str:
    return LOG + "".join(f"{row}\n" for row in rows)


def _json(*lines: str) -> str:
    return JSON_GOOD * 3 + "".join(f"{line}\n" for line in lines)


def _zst(content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return sink.getvalue().to_pybytes()


def _zip(name: str, content: bytes) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        archive.writestr(name, content)
    return sink.getvalue()


def _parquet(**columns: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


STAMPS = [datetime(2026, 9, 3, 14, 22, second) for second in range(3)]
PARQUET = _parquet(timestamp=STAMPS, prompt=[10, 10, 10], output=[5, 5, 5])

ARCHIVES = [
    Case("log.zip", _zip("log.csv", LOG.encode()), says="unzip -p log.zip > log.csv"),
    Case("our log.zip", _zip("log.csv", LOG.encode()), says="unzip -p 'our log.zip' > 'our log'.csv"),
    Case("book.csv", _zip("xl/workbook.xml", b"<x/>"), says="Excel workbook"),
    Case("log.7z", b"7z\xbc\xaf\x27\x1c\x00\x04" + bytes(40), says="7z archive"),
    Case("log.csv.xz", b"\xfd7zXZ\x00\x00\x04" + bytes(40), says="packed with xz"),
    Case("log.csv.bz2", b"BZh91AY&SY" + bytes(40), says="packed with bzip2"),
    Case("log.rar", b"Rar!\x1a\x07\x00" + bytes(40), says="rar archive"),
    Case("log.xls", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), says="old Excel workbook"),
    Case("log.sqlite", b"SQLite format 3\x00" + bytes(600), says="SQLite database"),
    Case("named.csv", gzip.compress(LOG.encode()), says="Let its name end in .gz"),
    Case("named_zst.csv", _zst(LOG.encode()), says="Let its name end in .zst"),
    Case("named_parquet.csv", PARQUET, says="Let its name end in .parquet"),
    Case("tar.csv.gz", gzip.compress(bytes(257) + b"ustar\x00" + bytes(300)), says="tar archive"),
    Case("short.csv.gz", gzip.compress(BIG_LOG)[:-3000], says="not a complete gzip file"),
    Case("stub.csv.gz", gzip.compress(LOG.encode())[:7], says="not a complete gzip file"),
    Case("tail.csv.gz", gzip.compress(LOG.encode()) + b"garbage after the end", says="not a complete gzip file"),
    Case("short.csv.zst", _zst(BIG_LOG)[:-300], says="not a complete Zstandard file"),
    Case("tail.csv.zst", _zst(LOG.encode()) + b"garbage", says="not a complete Zstandard file"),
    Case("plain.csv.zst", LOG, says="not a complete Zstandard file"),
    Case("good.csv.zst", _zst(LOG.encode()), kept=3),
    Case("twice.csv.gz", gzip.compress(LOG.encode()) + gzip.compress(GOOD.encode()), kept=4),
]

TABLES = [
    Case("short.parquet", PARQUET[:-20], says="not a complete Parquet file"),
    Case("no_footer.parquet", PARQUET[:200], says="not a complete Parquet file"),
    Case("text.parquet", LOG, says="not a complete Parquet file"),
    Case("empty.parquet", b"", says="not a complete Parquet file"),
    Case("no_rows.parquet", _parquet(timestamp=pa.array([], pa.timestamp("us")), prompt=pa.array([], pa.int64()),
                                     output=pa.array([], pa.int64())), says="no row was found"),
    Case("nested.parquet", _parquet(timestamp=STAMPS, prompt=[{"n": 1}] * 3, output=[5] * 3), says="prompt"),
    Case("list.parquet", _parquet(timestamp=STAMPS, prompt=[[1, 2]] * 3, output=[5] * 3), says="prompt"),
    Case("binary.parquet", _parquet(timestamp=STAMPS, prompt=[b"\xff\x00"] * 3, output=[5] * 3), says="prompt"),
    Case("decimal.parquet", _parquet(timestamp=STAMPS, prompt=[Decimal("10.00"), Decimal("10.50"), Decimal("7.00")],
                                     output=[5] * 3), kept=2, dropped={NOT_WHOLE: 1}),
    Case("dictionary.parquet", _parquet(timestamp=STAMPS, prompt=[10] * 3, output=[5] * 3,
                                        model=pa.array(["a", "b", "a"]).dictionary_encode()), kept=3),
    Case("floats.parquet", _parquet(timestamp=STAMPS, prompt=[float("nan"), float("inf"), 7.0], output=[5.0, 5.0, 5.5]),
         says="no row remains"),
    Case("huge.parquet", _parquet(timestamp=STAMPS, prompt=[2**62, -(2**62), 7], output=[5, 5, None]),
         says="absurd token count"),
    Case("nulls.parquet", _parquet(timestamp=[*STAMPS[:2], None], prompt=[10, None, 7], output=[5, 5, 5]), kept=1,
         dropped={"missing token count": 1, BAD_TIME: 1}),
    Case("far.parquet", _parquet(timestamp=pa.array([2**62, 1, 1788445327000000], pa.timestamp("us")),
                                 prompt=[10] * 3, output=[5] * 3), kept=1, dropped={IMPLAUSIBLE: 2}),
    Case("nanoseconds.parquet", _parquet(timestamp=pa.array([1788445327 * 10**9] * 3, pa.timestamp("ns", "UTC")),
                                         prompt=pa.array([10] * 3, pa.uint64()), output=[5] * 3), kept=3),
    Case("text_numbers.parquet", _parquet(timestamp=["2026-09-03 14:22:07", "soon", None], prompt=["10", "10", "x"],
                                          output=["5", "5", "5"]), kept=1, dropped={BAD_TIME: 2}),
]  # fmt: skip

HEADERS = [
    Case("empty.csv", b"", says="is empty"),
    Case("blank.csv", b" \n\n\n", says="is empty"),
    Case("header_only.csv", HEADER, says="no row was found"),
    Case("bom.csv", "\ufeff" + LOG, kept=3),
    Case("utf16.csv", LOG.encode("utf-16"), says="not UTF-8 text"),
    Case("utf16_le.csv", LOG.encode("utf-16-le"), says="not UTF-8 text"),
    Case("utf32.csv", LOG.encode("utf-32"), says="not UTF-8 text"),
    Case("latin1_header.csv", "Zeit,Länge\n1,2\n".encode("latin-1"), says="the header is not UTF-8 text"),
    Case("semicolons.csv", LOG.replace(",", ";"), kept=3),
    Case("excel.csv", "sep=;\n" + LOG.replace(",", ";"), says="which only Excel reads"),
    Case("carets.csv", LOG.replace(",", "^"), says="no known log format"),
    Case("doubled.csv", "timestamp,prompt,prompt,output\n2026-09-03 14:22:07,1,2,3\n", says="2 columns named 'prompt'"),
    Case("comment.csv", "# exported by a tool\n" + LOG, says="no known log format"),
    Case("long_names.csv", f"timestamp,prompt,output,{'x' * 10_000}\n2026-09-03 14:22:07,1,2,3\n", kept=1),
    Case("million_columns.csv", "a," * 1_000_000 + "\n", says="first line is longer than 1 MiB"),
    Case("many_columns.csv", "a," * 100_000 + "\n" + "1," * 100_000 + "\n", says="100,001 columns"),
    Case("one_long_line.csv", b"a" * 3_000_000, says="first line is longer than 1 MiB"),
    Case("escape_header.csv", "time\x1b[31m,in,out\n1,2,3\n", says="no known log format"),
    Case("quoted_header.csv", '"timestamp","prompt","output"\n"2026-09-03 14:22:07","1","2"\n', kept=1),
    Case("cr_only.csv", LOG.replace("\n", "\r"), kept=3),
    Case("crlf.csv", LOG.replace("\n", "\r\n"), kept=3),
]

ROWS = [
    Case("short_and_long.csv", _rows("1,2", "2026-09-03 14:22:07,1,2,m,200,7,8"), kept=3, dropped={MALFORMED: 2}),
    Case("header_twice.csv", LOG + LOG, kept=6, dropped={BAD_TIME: 1}),
    Case("totals.csv", _rows("TOTAL,30,15,,"), kept=3, dropped={BAD_TIME: 1}),
    Case("comment_row.csv", _rows("# the end"), kept=3, dropped={MALFORMED: 1}),
    Case("formula.csv", _rows('"=HYPERLINK(""http://x"",1)",=1+1,@SUM(A1),=cmd|x,+200'), kept=3, dropped={BAD_TIME: 1}),
    Case("open_quote.csv", LOG + '2026-09-03 14:22:07,1,"2,m,200\n' + GOOD * 2, kept=3, dropped={MALFORMED: 3}),
    Case("nul.csv", LOG + GOOD * 200 + "2026-09-03 14:22:07,1\x002,5,m,200\n", kept=203, dropped={NOT_WHOLE: 1}),
    Case("nul_at_once.csv", _rows("2026-09-03 14:22:07,1\x002,5,m,200"), says="not UTF-8 text"),
    Case("mixed_encoding.csv", LOG.encode() + "2026-09-03 14:22:07,1,2,Größe,200\n".encode("latin-1"), kept=3,
         dropped={MALFORMED: 1}),
    Case("long_line.csv", _rows("2026-09-03 14:22:07,1,2,m,200" + "x" * 10_000), kept=3, dropped={"failed request": 1}),
    Case("longest_line.csv", _rows("x" * 3_000_000), kept=3, dropped={MALFORMED: 1}),
    Case("huge.csv", _rows("2026-09-03 14:22:07," + "9" * 400 + ",5,m,200",
                           "2026-09-03 14:22:07,18446744073709551616,5,m,200"),
         kept=3, dropped={NOT_WHOLE: 1, "absurd token count": 1}),
    Case("negative.csv", _rows("2026-09-03 14:22:07,-1,5,m,200", "2026-09-03 14:22:07,1,-0.0,m,200"), kept=4,
         dropped={"negative token count": 1}),
    Case("not_numbers.csv", _rows(*(f"2026-09-03 14:22:07,{value},5,m,200" for value in (
        "NaN", "Infinity", "-inf", "1e999", "0x1F", "true", '"1,834"', '"1.834,0"', "1 834", "٣", "1.5", "None", "#REF!"
    ))), kept=3, dropped={NOT_WHOLE: 13}),
    Case("odd_numbers.csv", _rows(*(f"2026-09-03 14:22:07,{value},5,m,200" for value in (
        "1e3", "+7", " 8 ", "9.0", "007"))), kept=8),
    Case("dates.csv", _rows(*(f"{value},1,1,m,200" for value in (
        "03/09/2026 14:22", "03.09.2026", "Sep 3 2026", "20260903", "now", "infinity", "2026-13-01", "2026-02-30",
        "1e999"
    ))), kept=3, dropped={BAD_TIME: 9}),
    Case("far_dates.csv", _rows("99999-01-01 00:00:00,1,1,m,200", "1969-12-31 23:59:59,1,1,m,200",
                                "0001-01-01 00:00:00,1,1,m,200"), kept=3, dropped={IMPLAUSIBLE: 3}),
    Case("mixed_epochs.csv", "timestamp,prompt,output\n1788445327,1,1\n1788445327113,1,1\n-5,1,1\n1788445328,1,1\n",
         kept=2, dropped={IMPLAUSIBLE: 2}),
    Case("epoch_overflow.csv", "timestamp,prompt,output\n1788445327,1,1\n1e300,1,1\nnan,1,1\n9223372036854775807,1,1\n",
         kept=1, dropped={BAD_TIME: 3}),
    Case("relative.csv", "timestamp,prompt,output\n0,1,1\n5,1,1\n-1,1,1\n1e12,1,1\n", kept=2, dropped={IMPLAUSIBLE: 2}),
    Case("wide_span.csv", "timestamp,prompt,output\n1500000000,1,1\n1788445327,1,1\n", says="the time stamps span"),
    Case("all_bad.csv", HEADER + "x,1,1,m,200\n", says="no row remains"),
    Case("models.csv", _rows("2026-09-03 14:22:07,1,1,\x1b[31m🦙\x07,200", f"2026-09-03 14:22:07,1,1,{'m' * 300},200",
                             "2026-09-03 14:22:07,1,1,[bold]x[/],200"), kept=6),
    Case("prompts_as_models.csv", _rows("2026-09-03 14:22:07,1,1,please write me a long letter to my bank today,200"),
         says="look like text, a key or an address"),
    Case("azure_quotes.csv", AZURE + '2026-09-03 14:22:07,10,5\n"2026-09-03 14:22:07",10,5\n', kept=1,
         dropped={BAD_TIME: 1}),
]  # fmt: skip

JSONS = [
    Case("array.jsonl", f"[{JSON_GOOD}]", kept=1),
    Case("pretty.jsonl", json.dumps({"timestamp": 1, "prompt": 2}, indent=2), says="jq -c ."),
    Case("scalar.jsonl", "17\n18\n", says="no known log format"),
    Case("broken_first.jsonl", '{"timestamp": \n' + JSON_GOOD, says="the first line is not one JSON object"),
    Case("deep_first.jsonl", '{"a": ' + "[" * 100_000 + "\n", says="the first line is not one JSON object"),
    Case("no_json.jsonl", _json("not json", "[1, 2]", "17", '"text"', "null"), kept=3,
         dropped={MALFORMED: 5}, args=MAP),
    Case("cut.jsonl", JSON_GOOD * 3 + '{"timestamp": 17884', kept=3, dropped={MALFORMED: 1}, args=MAP),
    Case("deep.jsonl", _json('{"a": ' + "[" * 5_000 + "]" * 5_000 + "}"), kept=3, dropped={MALFORMED: 1}, args=MAP),
    Case("numbers.jsonl", _json(
        '{"timestamp": 1788445327, "prompt": 1e999, "output": 5}',
        '{"timestamp": 1788445327, "prompt": NaN, "output": 5}',
        '{"timestamp": 1788445327, "prompt": true, "output": 5}',
        '{"timestamp": 1788445327, "prompt": [1], "output": 5}',
        '{"timestamp": 1788445327, "prompt": {"a": 1}, "output": 5}',
        '{"timestamp": 1788445327, "prompt": "12", "output": 5}'), kept=4, args=MAP),
    Case("twice.jsonl", _json('{"timestamp": 1788445327, "prompt": 10, "prompt": -1, "output": 5}'), args=MAP, kept=4),
    Case("surrogate.jsonl", _json('{"timestamp": 1788445327, "prompt": 10, "output": 5, "model": "\\ud800"}'),
         args=("--map", "timestamp=timestamp,prompt=prompt,output=output,model=model")),
    Case("nul.jsonl", _json('{"timestamp": 1788445327, "prompt": "1\\u00002", "output": 5}'), kept=3,
         dropped={NOT_WHOLE: 1}, args=MAP),
    Case("huge_ints.jsonl", _json('{"timestamp": 1788445327, "prompt": ' + "9" * 5_000 + ', "output": 5}'), kept=3,
         dropped={NOT_WHOLE: 1}, args=MAP),
    Case("bom.jsonl", "\ufeff" + JSON_GOOD * 3, kept=3, args=MAP),
    Case("utf16.jsonl", JSON_GOOD.encode("utf-16"), says="not UTF-8 text"),
    Case("cut.jsonl.gz", gzip.compress((JSON_GOOD * 5000).encode())[:-20], says="not a complete gzip file", args=MAP),
]  # fmt: skip


def _loop(path: Path) -> None:
    path.symlink_to(path)


def _loop_of_two(path: Path) -> None:
    other = path.with_name("other.csv")
    path.symlink_to(other)
    other.symlink_to(path)


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _odd_name(path: Path) -> None:
    path.write_text(LOG)


PLACES = [
    Case("loop.csv", _loop, says="symbolic links"),
    Case("loop_of_two.csv", _loop_of_two, says="symbolic links"),
    Case("dangling.csv", lambda path: path.symlink_to("nowhere.csv"), says="no such file"),
    Case("pipe.csv", _fifo, says="pipe or a device"),
    Case("device.csv", lambda path: path.symlink_to("/dev/zero"), says="pipe or a device"),
    Case("folder.csv", lambda path: path.mkdir(), says="holds no log file"),
    Case("new\nline [bold]<b>.csv", _odd_name, kept=3),
    Case('it\'s; -- "quoted".csv', _odd_name, kept=3),
    Case("glob*[a-z]?.csv", _odd_name, kept=3),
    Case("ünï🦙.csv", _odd_name, kept=3),
]
CASES = [*ARCHIVES, *TABLES, *HEADERS, *ROWS, *JSONS, *PLACES]


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *args: str) -> tuple[int, str, str]:
    """The exit code, standard output and standard error of the command line."""
    monkeypatch.setattr("sys.argv", ["planner", *args])
    try:
        main()
        code = 0
    except SystemExit as stop:
        code = int(stop.code or 0)
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_there_are_enough_of_them() -> None:
    assert len(CASES) >= 60
    assert len({case.name for case in CASES if case.says or case.kept}) >= 60


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.encode("ascii", "replace").decode())
def test_a_hostile_file(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    path, out = case.write(logs), tmp_path / "out"
    code, shown, error = run(capsys, monkeypatch, "ingest", str(path), "-o", str(out), "--json", *case.args)
    assert "Traceback" not in error
    assert "internal error" not in error
    assert all(c.isprintable() or c == "\n" for c in error.replace(str(path), "")), "acts on the terminal"
    assert {entry.name for entry in tmp_path.iterdir()} <= {"logs", "out"}, "scratch is left behind"
    if case.says:
        assert (code, shown) == (2, "")
        assert case.says in error
        assert not out.exists()
        return
    assert (code, error) == (0, "")
    counts = json.loads(shown)["counts"]
    assert counts["rows_read"] == counts["kept"] + sum(counts["dropped_by_reason"].values())
    assert read(out).manifest.counts.kept == counts["kept"]
    if case.kept is not None:
        assert counts["kept"] == case.kept
    if case.dropped:
        assert counts["dropped_by_reason"] == case.dropped


def test_the_report_of_odd_names_is_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "new\nline [bold]\x1b[31m.csv"
    path.write_text(_rows("2026-09-03 14:22:07,1,1,\x1b[31m🦙\x07[bold]x[/],200", "2026-09-03 14:22:07,-1,1,m,200"))
    code, shown, error = run(capsys, monkeypatch, "ingest", str(path), "-o", str(tmp_path / "out"))
    assert (code, error) == (0, "")
    assert "\x1b[31m" not in shown
    assert "\x07" not in shown
    assert "[bold]" in shown


@pytest.mark.parametrize("pack", [gzip.compress, _zst], ids=["gzip", "zstd"])
def test_a_bomb_is_refused_before_it_is_read_to_its_end(
    pack: Callable[[bytes], bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same with a smaller limit: 40 MiB that pack to 40 KiB or less."""
    monkeypatch.setattr(packed, "FREE_BYTES", 1 << 22)
    monkeypatch.setattr(packed, "MOST_EXPANSION", 100)
    path = tmp_path / f"bomb.csv.{'gz' if pack is gzip.compress else 'zst'}"
    path.write_bytes(pack(LOG.encode() + GOOD.encode() * 1_200_000))
    assert path.stat().st_size < 200_000
    code, shown, error = run(capsys, monkeypatch, "ingest", str(path), "-o", str(tmp_path / "out"))
    assert (code, shown) == (2, "")
    assert "unpacks to more than 100 times its size" in error
    assert not (tmp_path / "out").exists()


def test_a_table_of_too_many_rows_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few kilobytes can say one thing a billion times; here a million times, with a smaller limit."""
    monkeypatch.setattr(packed, "FREE_ROWS", 100_000)
    path = tmp_path / "bomb.parquet"
    rows = 1_000_000
    stamps = pa.array([1788445327000000], pa.timestamp("us")).take(pa.array([0] * rows))
    numbers = pa.array([7], pa.int64()).take(pa.array([0] * rows))
    pq.write_table(pa.table({"timestamp": stamps, "prompt": numbers, "output": numbers}), path, compression="zstd")
    code, shown, error = run(capsys, monkeypatch, "ingest", str(path), "-o", str(tmp_path / "out"))
    assert (code, shown) == (2, "")
    assert "says that it has 1,000,000 rows" in error


def test_an_older_folder_survives_a_hostile_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad, out = tmp_path / "good.csv", tmp_path / "bad.csv.gz", tmp_path / "out"
    good.write_text(LOG)
    bad.write_bytes(gzip.compress(BIG_LOG)[:-3000])
    assert run(capsys, monkeypatch, "ingest", str(good), "-o", str(out))[0] == 0
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    assert run(capsys, monkeypatch, "ingest", str(good), str(bad), "-o", str(out))[0] == 2
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
