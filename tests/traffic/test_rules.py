from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from planner.errors import InputError
from planner.traffic.engine import connect
from planner.traffic.readers.aliases import alias_map, parse_aliases, read_aliases
from planner.traffic.readers.columns import Columns, Stamps, TableFile, TimeKind, Wanted
from planner.traffic.readers.head import Head
from planner.traffic.readers.judge import JUDGED, judged_sql
from planner.traffic.rules import BITS, CODES, REMARKS, TREATMENTS, Adjustment, Rule, adjusted_by_reason
from planner.traffic.times import moment_us

START = 1_788_445_327
"""2026-09-03 14:22:07 UTC."""
RULES = {code: rule for rule, code in CODES.items()}


def judge(row: dict[str, Any], wanted: Wanted | None = None, **table: Any) -> dict[str, Any]:
    """One row, given by role, as the judge sees it: as text, and typed where the value is no text."""
    return judge_all([row], wanted, **table)[0]


def judge_all(rows: list[dict[str, Any]], wanted: Wanted | None = None, **table: Any) -> list[dict[str, Any]]:
    base = {"timestamp": str(START), "prompt": "100", "output": "10"}
    rows = [base | row for row in rows]
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = Columns(**({"timestamp": "", "prompt": "", "output": ""} | {name: name for name in names}))
    found = pa.table({name: [row.get(name) for row in rows] for name in names})
    with connect((wanted or Wanted()).time_zone) as connection:
        connection.register("log", found)
        types = {name: kind for name, kind, *_ in connection.sql("DESCRIBE log").fetchall() if kind != "VARCHAR"}
        head = Head(Path("log.parquet"), True, tuple(names), "", ())
        given = TableFile(head, columns, **({"time": TimeKind.EPOCH_S, "typed": types} | table))
        result = connection.execute(
            f"WITH {judged_sql('log', given, wanted or Wanted())} SELECT {', '.join(JUDGED.names)} FROM judged"
        )
        names = [column[0] for column in result.description or ()]
        return [_read(dict(zip(names, values, strict=True))) for values in result.fetchall()]


def _read(row: dict[str, Any]) -> dict[str, Any]:
    row["rule"] = None if row["verdict"] is None else RULES[row["verdict"]]
    row["adjusted"] = {a for a, bit in BITS.items() if row["adjusted"] & bit}
    return row


def test_every_rule_and_adjustment_is_explained() -> None:
    assert set(TREATMENTS) == set(Rule)
    assert set(REMARKS) == set(Adjustment)
    assert sum(BITS.values()) < 1 << 16


def test_a_plain_row_is_kept_as_it_is() -> None:
    row = judge({})
    assert (row["model"], row["traffic_class"], row["ts_us"]) == ("default", "default", START * 1_000_000)
    assert (row["prompt"], row["output"], row["cached"], row["rule"], row["adjusted"]) == (100, 10, 0, None, set())
    assert (row["id_hash"], row["rank"], row["logical_hash"]) == (None, None, None)


@pytest.mark.parametrize(
    "status",
    ["success", "Success", " OK ", "200", "204.0", "1", "true", "DEFAULT", "stop", "None", None, "", 200, True],
)
def test_a_success(status: Any) -> None:
    assert judge({"status": status})["rule"] is None


@pytest.mark.parametrize(
    ("status", "rule"),
    [
        ("failure", Rule.FAILED),
        ("ERROR", Rule.FAILED),
        ("500", Rule.FAILED),
        ("404", Rule.FAILED),
        ("0", Rule.FAILED),
        ("STATUS_CODE_ERROR", Rule.FAILED),
        ("words that nobody knows", Rule.FAILED),
        (500, Rule.FAILED),
        (0, Rule.FAILED),
        (False, Rule.FAILED),
        ("429", Rule.REJECTED),
        ("503.0", Rule.REJECTED),
        ("HTTP 429", Rule.REJECTED),
        ("rate_limited", Rule.REJECTED),
        ("Too Many Requests", Rule.REJECTED),
        (429, Rule.REJECTED),
        (529.0, Rule.REJECTED),
        ("4290", Rule.FAILED),
    ],
)
def test_a_failure_or_a_refusal(status: Any, rule: Rule) -> None:
    row = judge({"status": status})
    assert row["rule"] is rule
    assert TREATMENTS[rule].offered
    assert (row["prompt"], row["output"]) == (None, None)


@pytest.mark.parametrize(
    ("error", "rule"),
    [
        ("timeout", Rule.FAILED),
        ("ThrottlingException", Rule.REJECTED),
        ("litellm.RateLimitError: 429", Rule.REJECTED),
        ("ServiceUnavailableError", Rule.REJECTED),
        ("None", None),
        ("{}", None),
        ("", None),
        (None, None),
        (0, None),
        (7, Rule.FAILED),
        (False, None),
        (True, Rule.FAILED),
    ],
)
def test_an_error_wins_over_a_success(error: Any, rule: Rule | None) -> None:
    assert judge({"error": error, "status": "200"})["rule"] is rule


@pytest.mark.parametrize("flag", ["True", "true", "1", "HIT", "Hit", "SEMANTIC HIT", "cache_hit", True, 1])
def test_a_response_cache_hit_is_no_arrival(flag: Any) -> None:
    assert judge({"cache_hit": flag})["rule"] is Rule.CACHE_HIT
    assert not TREATMENTS[Rule.CACHE_HIT].offered


@pytest.mark.parametrize("flag", ["False", "None", "MISS", "Bypass", "Refresh", "DISABLED", "", None, False, 0])
def test_no_response_cache_hit(flag: Any) -> None:
    assert judge({"cache_hit": flag})["rule"] is None


@pytest.mark.parametrize(
    ("operation", "prompt", "rule"),
    [
        ("Chat", "5", None),
        ("embedding", "5", Rule.NOT_A_GENERATION),
        (None, "5", None),
        (None, None, Rule.NOT_A_GENERATION),
    ],
)
def test_only_generations_count(operation: str | None, prompt: str | None, rule: Rule | None) -> None:
    row = {"operation": operation, "prompt": prompt, "output": prompt}
    assert judge(row, generations=("chat",))["rule"] is rule


@pytest.mark.parametrize("how", [{"aborted": "true"}, {"aborted": True}, {"status": "499"}, {"status": "Cancelled"}])
def test_an_aborted_stream_counts_by_its_output(how: dict[str, Any]) -> None:
    kept = judge(how)
    assert (kept["rule"], kept["output"], kept["adjusted"]) == (None, 10, {Adjustment.ABORTED})
    for output in ("0", None):
        assert judge(how | {"output": output})["rule"] is Rule.ABORTED_EMPTY
    assert TREATMENTS[Rule.ABORTED_EMPTY].offered


def test_zero_tokens_are_a_failure_only_if_the_status_says_so() -> None:
    assert judge({"output": "0"})["output"] == 0
    assert judge({"prompt": "0"})["rule"] is Rule.ZERO_TOKENS
    assert judge({"prompt": "0", "output": "0", "status": "200"})["rule"] is Rule.ZERO_TOKENS
    assert judge({"prompt": "0", "output": "0", "status": "failure"})["rule"] is Rule.FAILED
    assert judge({"prompt": 0, "output": 0})["rule"] is Rule.ZERO_TOKENS


@pytest.mark.parametrize(
    ("row", "prompt", "output", "cached", "adjusted"),
    [
        ({"cached": "40"}, 100, 10, 40, set()),
        ({"cached": 140}, 100, 10, 100, {Adjustment.CACHED_CAPPED}),
        ({"cached": "x"}, 100, 10, 0, set()),
        ({"cached": "-4"}, 100, 10, 0, set()),
        ({"cached_beside": "40"}, 140, 10, 40, {Adjustment.CACHED_ADDED}),
        ({"cached_beside": 40, "prompt": 0}, 40, 10, 40, {Adjustment.CACHED_ADDED}),
        ({"cached_beside": None}, 100, 10, 0, set()),
        ({"reasoning_beside": 90}, 100, 100, 0, {Adjustment.REASONING_ADDED}),
        ({"reasoning_beside": "0"}, 100, 10, 0, set()),
        ({"choices": "4"}, 100, 10, 0, {Adjustment.SEVERAL_CHOICES}),
        ({"choices": 1}, 100, 10, 0, set()),
    ],
)
def test_counts_beside_the_prompt_and_the_output(
    row: dict[str, Any], prompt: int, output: int, cached: int, adjusted: set[Adjustment]
) -> None:
    found = judge(row)
    assert (found["prompt"], found["output"], found["cached"]) == (prompt, output, cached)
    assert found["adjusted"] == adjusted


@pytest.mark.parametrize(
    ("row", "rule"),
    [
        ({"cached_beside": "many"}, Rule.NOT_WHOLE_TOKENS),
        ({"cached_beside": "-1"}, Rule.NEGATIVE_TOKENS),
        ({"reasoning_beside": 10_000_000}, Rule.ABSURD_TOKENS),
        ({"prompt": None}, Rule.MISSING_TOKENS),
        ({"prompt": 2**62, "cached_beside": 2**62}, Rule.ABSURD_TOKENS),
        ({"output": float("nan")}, Rule.NOT_WHOLE_TOKENS),
        ({"output": 1.5}, Rule.NOT_WHOLE_TOKENS),
        ({"output": -1}, Rule.NEGATIVE_TOKENS),
        ({"timestamp": None, "prompt": None, "output": None}, Rule.MALFORMED),
        ({"timestamp": None}, Rule.BAD_TIMESTAMP),
        ({"timestamp": 2**62}, Rule.BAD_TIMESTAMP),
        ({"timestamp": "1e18"}, Rule.BAD_TIMESTAMP),
        ({"timestamp": 5}, Rule.IMPLAUSIBLE_TIMESTAMP),
    ],
)
def test_counts_and_stamps_that_cannot_be(row: dict[str, Any], rule: Rule) -> None:
    assert judge(row)["rule"] is rule


@pytest.mark.parametrize(
    ("value", "name"),
    [(None, "default"), ("", "default"), ("False", "default"), ("Batch", "batch"), ("true", "batch"), (True, "batch"),
     (False, "default"), ("flex", "flex"), ("please help me, I am Alice", "other"), ("x" * 41, "other"),
     (" stream ", "stream"), (1, "batch")],
)  # fmt: skip
def test_a_class_is_a_short_word(value: Any, name: str) -> None:
    assert judge({"traffic_class": value})["traffic_class"] == name


def test_completion_less_duration_is_the_arrival() -> None:
    wanted = Wanted(stamps=Stamps.COMPLETION)
    row = judge({"duration": "2500"}, wanted, duration_unit_s=0.001)
    assert (row["ts_us"], row["adjusted"]) == (START * 1_000_000 - 2_500_000, {Adjustment.ARRIVAL_COMPUTED})
    for unusable in ("", None, "-1", "nan", "1e12"):
        row = judge({"duration": unusable}, wanted, duration_unit_s=0.001)
        assert (row["ts_us"], row["adjusted"]) == (START * 1_000_000, set())
    assert judge({"duration": 3})["ts_us"] == START * 1_000_000
    assert judge({"duration": 3}, stamps=Stamps.COMPLETION)["ts_us"] == (START - 3) * 1_000_000
    assert judge({"duration": 3}, Wanted(stamps=Stamps.ARRIVAL), stamps=Stamps.COMPLETION)["ts_us"] == START * 1_000_000


def test_a_log_with_completions_only() -> None:
    row = {"timestamp": None, "completion": str(START + 9), "duration": 4.5}
    found = judge(row)
    assert (found["ts_us"], found["adjusted"]) == ((START + 9) * 1_000_000 - 4_500_000, {Adjustment.ARRIVAL_COMPUTED})
    assert judge(row | {"timestamp": str(START)})["ts_us"] == START * 1_000_000
    assert judge(row | {"completion": None})["rule"] is Rule.BAD_TIMESTAMP


@pytest.mark.parametrize(
    ("zone", "text", "utc"),
    [
        ("UTC", "2026-09-03 14:22:07.1239999", "2026-09-03T14:22:07.123999Z"),
        ("UTC", "2026-09-03T16:22:07+02:00", "2026-09-03T14:22:07Z"),
        ("UTC", "2026-09-03 16:22:07 Europe/Paris", "2026-09-03T14:22:07Z"),
        ("UTC", "2026-09-03", "2026-09-03T00:00:00Z"),
        ("Europe/Berlin", "2026-09-03 14:22:07Z", "2026-09-03T14:22:07Z"),
        ("Europe/Berlin", "2026-09-03 16:22:07", "2026-09-03T14:22:07Z"),
        ("Europe/Berlin", "2026-03-29 02:30:00", "2026-03-29T01:30:00Z"),  # does not exist: the offset before counts
        ("Europe/Berlin", "2026-10-25 02:30:00", "2026-10-25T01:30:00Z"),  # comes twice: the second pass counts
        ("UTC", "2026-09-03 14:22:07 PM", None),
        ("UTC", "2026-09-03 14:22:07 and more", None),
        ("UTC", "03/09/2026 14:22", None),
        ("UTC", "infinity", None),
    ],
)
def test_naive_stamps_are_in_the_zone_that_was_given(zone: str, text: str, utc: str | None) -> None:
    row = judge({"timestamp": text}, Wanted(time_zone=zone), time=TimeKind.ISO)
    assert row["ts_us"] == (moment_us("", utc) if utc else None)


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata"])
def test_a_typed_stamp_is_read_like_its_text(zone: str) -> None:
    wanted = Wanted(time_zone=zone)
    naive = pa.scalar("2026-09-03 14:22:07.5").cast(pa.timestamp("us")).as_py()
    typed = judge({"timestamp": naive}, wanted, time=TimeKind.ISO)
    assert typed["ts_us"] == judge({"timestamp": "2026-09-03 14:22:07.5"}, wanted, time=TimeKind.ISO)["ts_us"]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (TimeKind.EPOCH_S, START + 0.25),
        (TimeKind.EPOCH_MS, START * 1000 + 250),
        (TimeKind.EPOCH_US, str(START * 1_000_000 + 250_000)),
        (TimeKind.EPOCH_NS, str(START * 10**9 + 250_000_000)),
        (TimeKind.EPOCH_NS, START * 10**9 + 250_000_000),
    ],
)
def test_epochs_in_every_unit(kind: TimeKind, value: Any) -> None:
    assert judge({"timestamp": value}, time=kind)["ts_us"] == START * 1_000_000 + 250_000


ALIASES = parse_aliases("--alias", ["chat=llama-70b, chat=llama-3.3-70b@2026-08-01", "code=claude@20240229"])


@pytest.mark.parametrize(
    ("model", "stamp", "weights"),
    [
        ("chat", "2026-07-31 23:59:59.999", "llama-70b"),
        ("chat", "2026-08-01 00:00:00", "llama-3.3-70b"),
        ("code", "2026-08-01 00:00:00", "claude@20240229"),
        ("other", "2026-08-01 00:00:00", "other"),
    ],
)
def test_an_alias_may_change_its_weights_within_the_quarter(model: str, stamp: str, weights: str) -> None:
    row = judge({"model": model, "timestamp": stamp}, Wanted(aliases=ALIASES), time=TimeKind.ISO)
    assert row["model"] == weights
    assert row["adjusted"] == ({Adjustment.ALIASED} if weights != model else set())


def test_before_its_first_date_an_alias_is_the_name_itself() -> None:
    wanted = Wanted(aliases=parse_aliases("", ["chat=new@2026-08-01T06:00:00+02:00"]))
    for stamp, weights in (("2026-08-01T03:59:59Z", "chat"), ("2026-08-01T04:00:00Z", "new")):
        assert judge({"model": "chat", "timestamp": stamp}, wanted, time=TimeKind.ISO)["model"] == weights


def test_aliases_that_contradict_each_other_or_are_none() -> None:
    with pytest.raises(InputError) as caught:
        parse_aliases("--alias", ["a", "b=", "c=x@2026-99-01"])
    assert len(caught.value.problems) == 3
    with pytest.raises(InputError, match="'a' is given twice from 2026-08-01T00:00:00Z on"):
        parse_aliases("--alias", ["a=x@2026-08-01,a=y@2026-08-01"])


def test_a_file_of_aliases_has_a_version(tmp_path: Path) -> None:
    path = tmp_path / "aliases.csv"
    path.write_text("alias,weights,since,version\nchat,a,,7\nchat,b,2026-08-01,7\n")
    found = read_aliases(path)
    assert found.version == "7"
    assert alias_map(found.aliases) == {"chat": "a", "chat from 2026-08-01T00:00:00Z": "b"}
    path.write_text("alias,weights\nchat,a\n")
    assert str(read_aliases(path).version).startswith("sha256:")
    path.write_text("alias,weights,since\nchat,,\nx,y,soon\n")
    with pytest.raises(InputError) as caught:
        read_aliases(path)
    assert [problem.row for problem in caught.value.problems] == ["2", ""]
    assert "row 3" in str(caught.value)


def test_the_window_that_was_asked_for() -> None:
    wanted = Wanted(since_us=START * 1_000_000, until_us=(START + 1) * 1_000_000)
    stamps = [str(START - 1), str(START), str(START + 0.999), str(START + 1)]
    rules = [judge({"timestamp": stamp}, wanted)["rule"] for stamp in stamps]
    assert rules == [Rule.OUTSIDE_WINDOW, None, None, Rule.OUTSIDE_WINDOW]


@pytest.mark.parametrize(
    ("early", "late"),
    [("9", "10"), ("2026-01-01 00:00:00", "2026-01-01 00:00:00.5"), (1, 2), (1788445327113000000, 1788445327114000000)],
)
def test_a_higher_version_ranks_higher(early: Any, late: Any) -> None:
    ranks = [judge({"request_id": "a", "version": v})["rank"] for v in (early, late)]
    assert ranks[0] < ranks[1]


VALUES = ["", "0", "1", "-3", "1.5", "7", "nan", "inf", "1e3", "99999999", "x", None]


def test_the_quick_test_of_a_good_row_changes_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rules alone, in their order, say the same about every row."""
    rows = [
        {"timestamp": t, "prompt": p, "output": o, "status": s, "cache_hit": c}
        for t in (str(START), "5", "x", None) for p in VALUES for o in VALUES
        for s, c in (("200", "no"), ("500", None), ("429", "True"), ("499", ""), (None, "no"))
    ]  # fmt: skip
    quick = judge_all(rows)
    monkeypatch.setattr("planner.traffic.readers.judge.MAX_TOKENS", 10_000_000)
    monkeypatch.setattr("planner.traffic.readers.judge.GOOD", "false")
    slow = judge_all(rows)
    assert [row["rule"] for row in quick] == [row["rule"] for row in slow]
    assert len({row["rule"] for row in quick}) == 12


def test_bit_counts_become_counts_by_name() -> None:
    both = BITS[Adjustment.ABORTED] | BITS[Adjustment.ALIASED]
    found = adjusted_by_reason({0: 5, BITS[Adjustment.ABORTED]: 2, both: 3})
    assert found == {"aborted stream": 5, "model renamed": 3}
