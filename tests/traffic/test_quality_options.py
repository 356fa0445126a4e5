"""What the command line can say about a log, and what the report and the manifest say back."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from planner.cli import main
from planner.errors import InputError
from planner.traffic.canonical import read
from planner.traffic.ingest import Order, ingest
from planner.traffic.readers.aliases import parse_aliases
from planner.traffic.readers.columns import Stamps
from planner.traffic.schema import Manifest, iso_utc
from planner.traffic.source import load_traffic
from planner.traffic.times import moment_us

START = 1_788_445_327
MAPPING = {"timestamp": "t", "prompt": "p", "output": "o"}


def _manifest(path: Path, header: str, rows: list[str], **order: Any) -> Manifest:
    path.write_text(header + "\n" + "\n".join(rows) + "\n")
    mapping = order.pop("mapping", None) or MAPPING
    return ingest(Order((path,), mapping=mapping, **order)).manifest


def _run(monkeypatch: pytest.MonkeyPatch, *args: str) -> int:
    monkeypatch.setattr("sys.argv", ["planner", *args])
    try:
        main()
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def test_stamps_of_completion(tmp_path: Path) -> None:
    rows = [f"{START + 100 * i},10,5,2500" for i in range(3)] + [f"{START + 300},10,5,"]
    mapping = MAPPING | {"duration": "ms"}
    found = _manifest(
        tmp_path / "log.csv",
        "t,p,o,ms",
        rows,
        mapping=mapping,
        stamps=Stamps.COMPLETION,
        options={"duration_unit": "ms"},
    )
    assert found.ts_meaning == "arrival from completion"
    assert found.window_start == iso_utc(START * 1_000_000 - 2_500_000)
    assert found.counts.adjusted_by_reason == {"arrival computed from completion": 3}
    assert "1 kept requests have no usable duration: they stand at their completion" in found.remarks


def test_stamps_of_completion_without_durations_stay_and_are_called_so(tmp_path: Path) -> None:
    found = _manifest(tmp_path / "log.csv", "t,p,o", [f"{START},10,5"], stamps=Stamps.COMPLETION)
    assert (found.ts_meaning, found.window_start) == ("completion", iso_utc(START * 1_000_000))
    assert any("time stamps are those of completion" in remark for remark in found.remarks)


def test_a_log_that_has_completions_only(tmp_path: Path) -> None:
    mapping = {"completion": "t", "prompt": "p", "output": "o", "duration": "s"}
    found = _manifest(tmp_path / "log.csv", "t,p,o,s", [f"{START},10,5,7"], mapping=mapping)
    assert (found.ts_meaning, found.window_start) == ("arrival from completion", iso_utc((START - 7) * 1_000_000))


def test_an_unknown_unit_or_operations_without_their_meaning(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'h' is not a unit"):
        _manifest(tmp_path / "log.csv", "t,p,o", ["1,1,1"], options={"duration_unit": "h"})
    with pytest.raises(InputError, match="which operations are text generations"):
        _manifest(tmp_path / "log.csv", "t,p,o,k", ["1,1,1,chat"], mapping=MAPPING | {"operation": "k"})


def test_operations_of_a_plain_log(tmp_path: Path) -> None:
    rows = [f"{START},10,5,Chat", f"{START},10,5,embedding", f"{START},10,5,text"]
    mapping = MAPPING | {"operation": "k"}
    found = _manifest(tmp_path / "log.csv", "t,p,o,k", rows, mapping=mapping, options={"generations": "chat|text"})
    assert (found.counts.kept, found.counts.dropped_by_reason) == (2, {"not a text generation": 1})


def test_a_sampling_fraction_in_a_column_reaches_the_manifest(tmp_path: Path) -> None:
    mapping = MAPPING | {"sampling": "f"}
    found = _manifest(tmp_path / "log.csv", "t,p,o,f", [f"{START},10,5,0.1", f"{START},9,5,"], mapping=mapping)
    assert found.sampling_fraction == 0.1
    assert any("the log holds 10 % of the requests" in remark for remark in found.remarks)


def test_several_sampling_fractions_are_one_clear_error(tmp_path: Path) -> None:
    mapping = MAPPING | {"sampling": "f"}
    with pytest.raises(InputError, match=r"several sampling fractions are stated: 0\.1, 0\.5.*apart") as caught:
        _manifest(tmp_path / "log.csv", "t,p,o,f", [f"{START},10,5,0.1", f"{START},9,5,0.5"], mapping=mapping)
    assert len(caught.value.problems) == 1
    with pytest.raises(InputError, match="sampling fraction 3 is no share"):
        _manifest(tmp_path / "log.csv", "t,p,o,f", [f"{START},10,5,3"], mapping=mapping)


def test_a_sampling_fraction_that_is_given(tmp_path: Path) -> None:
    found = _manifest(tmp_path / "log.csv", "t,p,o", [f"{START},10,5"], sampling_fraction=0.25)
    assert found.sampling_fraction == 0.25
    for wrong in (0.0, 1.5, -1.0):
        with pytest.raises(InputError, match="no share of the requests"):
            _manifest(tmp_path / "log.csv", "t,p,o", [f"{START},10,5"], sampling_fraction=wrong)
    mapping = MAPPING | {"sampling": "f"}
    with pytest.raises(InputError, match="several sampling fractions"):
        _manifest(tmp_path / "log.csv", "t,p,o,f", [f"{START},1,1,0.1"], mapping=mapping, sampling_fraction=0.5)


def test_dates_mean_nothing_in_a_log_without_dates(tmp_path: Path) -> None:
    for order in ({"aliases": parse_aliases("", ["m=a@2026-08-01"])}, {"since_us": 5}, {"until_us": 5}):
        with pytest.raises(InputError, match="counts time from its own start"):
            _manifest(tmp_path / "log.csv", "t,p,o", ["0,1,1", "7,1,1"], **order)
    found = _manifest(tmp_path / "log.csv", "t,p,o", ["0,1,1", "7,1,1"], aliases=parse_aliases("", ["default=a"]))
    assert found.models == {"a": 2}
    with pytest.raises(InputError, match="nothing lies between"):
        _manifest(tmp_path / "log.csv", "t,p,o", [f"{START},1,1"], since_us=9, until_us=9)


def test_a_fraction_of_requests_that_are_drawn(examples: Path) -> None:
    traces = tuple(sorted((examples / "servegen-deepseek-r1").iterdir()))
    found = ingest(Order(traces, options={"window_s": 1200}, sampling_fraction=0.5)).manifest
    assert (found.sampling_fraction, found.columns_read) == (0.5, [])


@pytest.mark.parametrize(
    ("zone", "first", "last", "words"),
    [
        ("Europe/Berlin", "2026-10-24 23:30:00", "2026-10-26 01:00:00", "changed on 2026-10-25: in stamps without "
         "a zone, the hour that comes twice"),
        ("Europe/Berlin", "2026-03-28 12:00:00", "2026-03-30 12:00:00", "changed on 2026-03-29: in stamps without "
         "a zone, the hour that is left out"),
        ("Europe/Berlin", "2026-07-01 00:00:00", "2026-09-30 00:00:00", ""),
        ("UTC", "2026-01-01 00:00:00", "2026-12-30 00:00:00", ""),
    ],
)  # fmt: skip
def test_a_change_of_clocks_is_remarked(zone: str, first: str, last: str, words: str, tmp_path: Path) -> None:
    found = _manifest(tmp_path / "log.csv", "t,p,o", [f"{first},1,1", f"{last},1,1"], time_zone=zone)
    remarks = [remark for remark in found.remarks if "the clocks of" in remark]
    assert len(remarks) == (1 if words else 0)
    assert all(words in remark for remark in remarks)


def test_coarse_stamps_are_remarked(tmp_path: Path) -> None:
    coarse = _manifest(tmp_path / "log.csv", "t,p,o", [f"{START + 3 * (i // 4)},10,5" for i in range(400)])
    assert any("time stamps are 3 s apart at the finest" in remark for remark in coarse.remarks)
    fine = _manifest(tmp_path / "log.csv", "t,p,o", [f"{START + i + i * i % 97 / 100:.2f},10,5" for i in range(400)])
    assert not any("apart at the finest" in remark for remark in fine.remarks)


def test_refusals_and_aborts_are_remarked(tmp_path: Path) -> None:
    rows = [f"{START + i},10,5,200" for i in range(90)] + [f"{START + 90 + i},10,0,429" for i in range(8)]
    rows += [f"{START + 99},10,0,499", f"{START + 100},10,4,499"]
    found = _manifest(tmp_path / "log.csv", "t,p,o,s", rows, mapping=MAPPING | {"status": "s"})
    assert found.counts.dropped_by_reason == {"rejected before prefill": 8, "aborted before any output": 1}
    assert (found.counts.kept, found.counts.offered) == (91, 100)
    assert found.counts.adjusted_by_reason == {"aborted stream": 1}
    assert any("8 % of the arrivals were refused" in remark for remark in found.remarks)
    assert any("1 requests were aborted before any output" in remark for remark in found.remarks)


def test_rows_of_a_typed_file_are_named(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    table = {"t": [START] * 4, "p": [10, -1, 10, 10], "o": [5, 5, None, 5], "s": [200, 200, 200, 429]}
    pq.write_table(pa.table(table), path)
    found = ingest(Order((path,), mapping=MAPPING | {"status": "s"})).manifest.counts
    assert found.kept == 1
    rows = {reason: [(r["row"], r["field"], r["value"]) for r in rows] for reason, rows in found.dropped_rows.items()}
    assert rows == {
        "negative token count": [(2, "p", "-1")],
        "missing token count": [(3, "o", "empty")],
        "rejected before prefill": [(4, "s", "429")],
    }


LOG = "t,p,o,m,s,c\n" + "".join(
    f"2026-{month:02}-15 12:00:{i:02},100,{10 * month},chat,{status},{'40' if i else '900'}\n"
    for month in (7, 8)
    for i, status in enumerate(("200", "200", "500", "429"))
)


def test_everything_through_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log, table, out = tmp_path / "log.csv", tmp_path / "aliases.csv", tmp_path / "out"
    log.write_text(LOG)
    table.write_text("alias,weights,since,version\nchat,llama-70b,,2026-q3\n")
    args = ["ingest", str(log), "-o", str(out), "--map", "timestamp=t,prompt=p,output=o,model=m,status=s,cached=c"]
    args += ["--aliases", str(table), "--alias", "chat=llama-3.3-70b@2026-08-01", "--until", "2026-08-15T12:00:02Z"]
    assert _run(monkeypatch, *args) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for words in ("Rows adjusted", "model renamed", "more cached than prompt tokens", "rejected before prefill",
                  "outside the window", "Columns read: c, m, o, p, s, t.", "no text, no user, no key"):  # fmt: skip
        assert words in shown, words
    found = read(out).manifest
    assert found.models == {"llama-70b": 2, "llama-3.3-70b": 2}
    assert found.alias_map_version == "2026-q3"
    assert found.alias_map == {"chat": "llama-70b", "chat from 2026-08-01T00:00:00Z": "llama-3.3-70b"}
    assert found.filters_applied == ["before 2026-08-15T12:00:02Z"]
    assert found.counts.adjusted_by_reason == {"more cached than prompt tokens": 2, "model renamed": 4}
    assert found.counts.dropped_by_reason["outside the window"] == 2


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--alias", "chat"], "is not of the form name=value"),
        (["--alias", "chat=a", "--alias", "chat=b"], "'chat' is given twice"),
        (["--aliases", "none.csv"], "none.csv"),
        (["--since", "yesterday"], "'yesterday' is no time"),
        (["--sampling", "2"], "no share of the requests"),
        (["--map", "timestamp=t,prompt=p,output=o,model=m", "--option", "duration_unit=h"], "'h' is not a unit"),
    ],
)
def test_what_cannot_be_meant(
    args: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log.csv"
    log.write_text(LOG)
    given = args if "--map" in args else ["--map", "timestamp=t,prompt=p,output=o", *args]
    assert _run(monkeypatch, "ingest", str(log), "-o", str(tmp_path / "out"), *given) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_report_as_json_says_what_was_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log.csv"
    log.write_text(LOG)
    args = ["--map", "timestamp=t,prompt=p,output=o", "--stamps", "completion", "--json"]
    assert _run(monkeypatch, "ingest", str(log), "-o", str(tmp_path / "out"), *args) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["columns_read"], report["ts_meaning"]) == (["o", "p", "t"], "completion")
    assert report["sampling_fraction"] == 1.0


def test_rows_of_a_nested_format_are_named(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    row = {
        "id": "a", "type": "GENERATION", "start_time": "2026-09-03 14:22:07.113000", "level": "DEFAULT",
        "provided_model_name": "chat", "usage_details": {"input": 10, "output": 5, "total": 15},
    }  # fmt: skip
    rows = [row, row | {"id": "b", "level": "ERROR"}, row | {"id": "c", "start_time": "soon"}, row | {"id": "d"}, row]
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    found = ingest(Order((path,))).manifest.counts
    assert (found.kept, found.offered) == (2, 3)
    named = {reason: [r["row"] for r in rows] for reason, rows in found.dropped_rows.items()}
    assert named == {"failed request": [2], "unparseable timestamp": [3], "duplicate request id": [5]}


def test_dated_aliases_reach_a_plan_too(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(LOG)
    options = {"map": "timestamp=t,prompt=p,output=o,model=m", "alias": "chat=old,chat=new@2026-08-01"}
    for model, output in (("old", 70), ("new", 80)):
        found = load_traffic(path, model=model, options=options, name="x")
        assert found.law.sum_output.sum() == 4 * output


@pytest.mark.parametrize(
    ("zone", "stamp", "utc"),
    [
        ("UTC", "2026-07-01 12:00:00", "2026-07-01T12:00:00Z"),
        ("Europe/Berlin", "2026-07-01 12:00:00", "2026-07-01T10:00:00Z"),
        ("Europe/Berlin", "2026-01-01 12:00:00", "2026-01-01T11:00:00Z"),
        ("Asia/Kolkata", "2026-07-01 12:00:00", "2026-07-01T06:30:00Z"),
        ("Europe/Berlin", "2026-07-01 12:00:00+00:00", "2026-07-01T12:00:00Z"),
        ("Europe/Berlin", "2026-07-01T12:00:00Z", "2026-07-01T12:00:00Z"),
    ],
)
@pytest.mark.parametrize("typed", [False, True])
def test_the_zone_is_that_of_stamps_without_one(zone: str, stamp: str, utc: str, typed: bool, tmp_path: Path) -> None:
    if typed:
        moment = datetime.fromisoformat(stamp)
        kind = pa.timestamp("us", tz="UTC" if moment.tzinfo else None)
        path = tmp_path / "log.parquet"
        pq.write_table(pa.table({"t": pa.array([moment], kind), "p": [1], "o": [1]}), path)
        found = ingest(Order((path,), mapping=MAPPING, time_zone=zone)).manifest
    else:
        found = _manifest(tmp_path / "log.csv", "t,p,o", [f"{stamp},1,1"], time_zone=zone)
    assert iso_utc(found.window_start_us) == utc
    assert found.tz_of_source == zone


@pytest.mark.parametrize(
    ("since", "until", "kept"),
    [
        ("2026-07-01T12:00:00Z", "2026-07-01T14:00:00Z", [12, 13]),
        ("2026-07-01T12:00:00+02:00", "2026-07-01T14:00:00+02:00", [10, 11]),
        ("2026-07-01T12:00:00", "", [12, 13, 14, 15]),
        ("", "2026-07-01T07:30:00-05:00", [8, 9, 10, 11, 12]),
        ("2026-07-01", "2026-07-02", [*range(8, 16)]),
    ],
)
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_the_ends_of_the_window_have_zones_of_their_own(
    since: str, until: str, kept: list[int], zone: str, tmp_path: Path
) -> None:
    """Whatever the zone of the stamps is."""
    local = ZoneInfo(zone)
    moments = [datetime(2026, 7, 1, hour, tzinfo=UTC).astimezone(local).replace(tzinfo=None) for hour in range(8, 16)]
    found = _manifest(
        tmp_path / "log.csv",
        "t,p,o",
        [f"{moment},1,1" for moment in moments],
        time_zone=zone,
        since_us=moment_us("--since", since),
        until_us=moment_us("--until", until),
    )
    assert found.counts.kept == len(kept)
    assert found.counts.dropped_by_reason.get("outside the window", 0) + len(kept) == 8
