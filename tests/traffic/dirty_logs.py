"""Dirty plain logs from a seed, and what each row means by `planner.traffic.rules`: told without the product's SQL."""

from __future__ import annotations

import csv
import gzip
import json
import math
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq

from planner.traffic.buckets import EDGES
from planner.traffic.ingest import Order
from planner.traffic.readers.columns import Alias, Stamps
from planner.traffic.rules import Adjustment, Rule
from tests.traffic.reference import HOUR, Asked, Row, micro


def judge(raw: Mapping[str, str], asked: Asked, roles: Collection[str]) -> Row:
    """One row of text values by role; roles that the log does not have are not in ``roles``."""
    has = set(roles)
    text = {role: (raw.get(role) or "").strip(" ") for role in has}
    end, began = moment(text.get("completion", ""), asked.zone), moment(text.get("timestamp", ""), asked.zone)
    seconds = number(text.get("duration", ""))
    seconds = seconds if seconds is not None and 0 <= seconds <= 7 * 86_400 else None
    length = round_half_away(seconds * 1e6) if seconds is not None else 0
    computed = False
    if asked.completes:
        ts, computed = (None if began is None else began - length), seconds is not None
    elif began is not None or end is None:
        ts = began
    else:
        ts, computed = end - length, seconds is not None
    named = text.get("model", "") or asked.model or "default"
    model = alias(named, ts, asked)
    prompt, output = number(text["prompt"]), number(text["output"])
    if "cached_beside" in has:
        prompt = None if prompt is None else prompt + beside(text["cached_beside"])
    if "reasoning_beside" in has:
        output = None if output is None else output + beside(text["reasoning_beside"])
    row = Row(model, traffic_class(text.get("traffic_class", "")), ts, id=text.get("request_id") or None)
    row = replace(row, rank=rank(text.get("version", "")), logical=text.get("logical_id") or None)
    outcome = outcome_of(text)
    rule = first_rule(text, has, asked, row, prompt, output, outcome)
    if rule is not None or prompt is None or output is None:
        return row.dropped(rule or Rule.MISSING_TOKENS)
    cached = number(text.get("cached_beside", text.get("cached", "")))
    if {"cached", "cached_beside"} <= has:
        cached = beside(text["cached_beside"]) + beside(text["cached"])
    cached = cached if cached is not None and 0 <= cached <= 1e300 else 0.0
    adjusted = {
        Adjustment.ABORTED: outcome == "aborted",
        Adjustment.CACHED_ADDED: (number(text.get("cached_beside", "")) or 0) > 0,
        Adjustment.CACHED_CAPPED: "cached" in has and cached > prompt,
        Adjustment.REASONING_ADDED: (number(text.get("reasoning_beside", "")) or 0) > 0,
        Adjustment.ARRIVAL_COMPUTED: computed,
        Adjustment.ALIASED: model != named,
        Adjustment.SEVERAL_CHOICES: 1 < (number(text.get("choices", "")) or 0) < math.inf,
    }
    return replace(
        row, prompt=int(prompt), output=int(output), cached=round(min(cached, prompt)),
        adjusted=frozenset(name for name, holds in adjusted.items() if holds),
    )  # fmt: skip


def first_rule(
    text: Mapping[str, str],
    has: Collection[str],
    asked: Asked,
    row: Row,
    prompt: float | None,
    output: float | None,
    outcome: str,
) -> Rule | None:
    """The first rule that drops the row."""
    empty = {role: not text.get(role) for role in ("timestamp", "completion", "prompt", "output")}
    early, late = micro(datetime(2015, 1, 1, tzinfo=UTC)), micro(datetime(2100, 1, 1, tzinfo=UTC))
    numbers = [n for n in (prompt, output) if n is not None]
    finite = len(numbers) == 2 and all(map(math.isfinite, numbers))
    beside_negative = any((number(text.get(r, "")) or 0) < 0 for r in ("cached_beside", "reasoning_beside"))
    operation = text.get("operation", "").lower()
    tests: list[tuple[Rule, Callable[[], bool]]] = [
        (Rule.MALFORMED, lambda: all(empty.values())),
        (Rule.OTHER_MODEL, lambda: bool(asked.model) and "model" in has and row.model != asked.model),
        (Rule.BAD_TIMESTAMP, lambda: row.ts is None),
        (Rule.IMPLAUSIBLE_TIMESTAMP, lambda: not early <= row.ts <= late),
        (Rule.OUTSIDE_WINDOW, lambda: asked.since is not None and row.ts < asked.since),
        (Rule.OUTSIDE_WINDOW, lambda: asked.until is not None and row.ts >= asked.until),
        (Rule.NOT_A_GENERATION, lambda: "operation" in has and bool(operation) and operation not in asked.generations),
        (Rule.NOT_A_GENERATION, lambda: "operation" in has and not operation and empty["prompt"] and empty["output"]),
        (Rule.CACHE_HIT, lambda: text.get("cache_hit", "").lower() in ("true", "hit", "1", "semantic hit")),
        (Rule.REJECTED, lambda: outcome == "refused"),
        (Rule.FAILED, lambda: outcome == "failed"),
        (Rule.ABORTED_EMPTY, lambda: outcome == "aborted" and not (output and math.isfinite(output))),
        (Rule.MISSING_TOKENS, lambda: empty["prompt"] or empty["output"]),
        (Rule.NOT_WHOLE_TOKENS, lambda: not finite),
        (Rule.NEGATIVE_TOKENS, lambda: min(numbers) < 0 or beside_negative),
        (Rule.ABSURD_TOKENS, lambda: max(numbers) > 10_000_000),
        (Rule.NOT_WHOLE_TOKENS, lambda: any(n != int(n) for n in numbers)),
        (Rule.ZERO_TOKENS, lambda: prompt == 0),
    ]
    return next((rule for rule, test in tests if test()), None)


def outcome_of(text: Mapping[str, str]) -> str:
    """Of the words that the tests write, what they mean: a refusal wins, then a client that went away."""
    status, error = text.get("status", "").lower(), text.get("error", "").lower()
    if status in ("429", "503") or "429" in error or "rate limit" in error:
        return "refused"
    if status in ("499", "cancelled") or text.get("aborted", "").lower() in ("true", "1"):
        return "aborted"
    ok = status in ("", "success", "ok", "completed", "stop") or (number(status) or 0) == 200
    return "served" if ok and error in ("", "none", "null") else "failed"


def number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def beside(text: str) -> float:
    """An empty count is 0, an unreadable one spoils the sum."""
    found = number(text)
    return 0.0 if not text else math.nan if found is None else found


def round_half_away(value: float) -> int:
    return math.floor(value + 0.5)


def rank(text: str) -> int | None:
    found = number(text)
    if found is not None:
        return round(found * 1000)
    return moment(text, "UTC")


def moment(text: str, zone: str) -> int | None:
    """ISO 8601; a naive stamp of a skipped hour has the offset before the change, one of a double hour that after."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return None
    if when.tzinfo is None:
        first, second = (when.replace(tzinfo=ZoneInfo(zone), fold=fold) for fold in (0, 1))
        when = second if first.utcoffset() > second.utcoffset() else first
    return micro(when)


def alias(named: str, ts: int | None, asked: Asked) -> str:
    """The latest date that is not after the arrival counts; an undated one counts before all dates."""
    found = [(since or -(1 << 62), weights) for name, weights, since in asked.aliases if name == named]
    valid = [(since, weights) for since, weights in found if since == -(1 << 62) or (ts is not None and ts >= since)]
    return max(valid)[1] if valid else named


def traffic_class(text: str) -> str:
    word = text.lower()
    if word in ("", "default", "standard", "auto", "false", "0", "none", "null"):
        return "default"
    return "batch" if word in ("true", "1") else word if len(word) <= 40 and " " not in word else "other"


OPTIONAL = (
    "cached", "cached_beside", "reasoning_beside", "request_id", "version", "status", "error", "cache_hit", "operation",
    "traffic_class", "duration", "completion", "aborted", "logical_id", "choices", "model",
)  # fmt: skip
TOKENS = (
    "0", "", "  ", "-1", "-3.5", "NaN", "Infinity", "abc", "3.5", "10000000", "10000001", "1e3", "12.0", " 17 ", "1e30",
    "99999999999999999999", "-0", *(str(edge + k) for edge in EDGES[1:-1:9] for k in (-1, 0, 1)),
)  # fmt: skip
WORDS: dict[str, tuple[str, ...]] = {
    "cached": ("0", "5", "", "100", "x", "-4", "1e9", "3", "NaN"), "cached_beside": ("0", "5", "", "100", "x", "-4"),
    "reasoning_beside": ("0", "5", "", "100", "x", "-4"), "version": ("", "1", "2", "3", "1.5", "-1"),
    "status": ("200", "success", "", "ok", "500", "429", "503", "499", "weird", "cancelled"),
    "error": ("", "", "", "None", "boom", "429 Too Many Requests"), "cache_hit": ("", "False", "True", "HIT", "miss"),
    "operation": ("chat", "Chat", "", "embedding"), "traffic_class": ("", "default", "batch", "True", "a long text"),
    "duration": ("", "1.5", "0", "0.000001", "3600", "-1", "604801", "abc"), "aborted": ("", "false", "true", "1"),
    "choices": ("", "1", "2", "NaN"),
}  # fmt: skip
STARTS = ("2026-03-29T00:30", "2026-10-25T00:00", "2026-03-08T06:00", "2025-12-31T23:59", "2024-02-29T00:00")


@dataclass(frozen=True)
class Log:
    """The rows of a log as text by role, and how it is to be read."""

    roles: tuple[str, ...]
    rows: tuple[dict[str, str], ...]
    asked: Asked

    def judged(self) -> list[Row]:
        """What each row means."""
        return [judge(row, self.asked, self.roles) for row in self.rows]

    def order(self, *files: Path) -> Order:
        """To read the files as they were meant."""
        return Order(
            files,
            log_format="plain",
            mapping={role: role for role in self.roles},
            model=self.asked.model,
            time_zone=self.asked.zone,
            since_us=self.asked.since,
            until_us=self.asked.until,
            stamps=Stamps.COMPLETION if self.asked.completes else None,
            aliases=tuple(Alias(*alias) for alias in self.asked.aliases),
            options={"time": "iso"} | ({"generations": "chat"} if self.asked.generations else {}),
        )


def dirty_log(seed: int) -> Log:
    """Some roles, some options, and rows of which some are bad."""
    dice = random.Random(seed)
    roles = ("timestamp", "prompt", "output", *(role for role in OPTIONAL if dice.random() < 0.45))
    start = micro(datetime.fromisoformat(dice.choice(STARTS)).replace(tzinfo=UTC))
    width = dice.choice([0, 1, 1_000_000, HOUR, 5 * HOUR, 30 * HOUR, 400 * HOUR])
    grain = dice.choice([1, 1000, 1_000_000, 3_000_000, 60_000_000])
    zoned = dice.random() < 0.5
    models = ("m0", "m1", "m2", "chat", "é✓")[: dice.randint(1, 5)]
    rows = []
    for place in range(dice.choice([1, 8, 40, 150, 150])):
        us = start + dice.choice([dice.randint(0, width) // grain * grain, 0, width, HOUR, HOUR - 1])
        stamps = ("", "not a time", "2010-01-01T00:00:00Z", "2150-01-01T00:00:00Z")
        row = {role: words[0] if dice.random() < 0.7 else dice.choice(words) for role, words in WORDS.items()}
        row |= {
            "timestamp": _stamp(us, dice, zoned=zoned) if dice.random() < 0.95 else dice.choice(stamps),
            "completion": dice.choice(["", _stamp(us + dice.randint(0, 10_000_000), dice, zoned=zoned)]),
            "prompt": dice.choice(TOKENS) if dice.random() < 0.2 else str(dice.randint(1, 300)),
            "output": dice.choice(TOKENS) if dice.random() < 0.2 else str(dice.randint(0, 30)),
            "model": dice.choice(models) if dice.random() < 0.95 else "",
            "request_id": dice.choice(["", "a", f"r{dice.randint(0, 150)}", f"r{place}"]),
            "logical_id": dice.choice(["", "L", f"l{dice.randint(0, 70)}"]),
        }
        if "request_id" in roles and row["request_id"]:
            row["logical_id"] = f"l{len(row['request_id'])}"  # of duplicates that differ in it alone, any may count
        rows.append({role: row[role] for role in roles})
    since = start + dice.choice([0, width // 4]) if dice.random() < 0.25 else None
    asked = Asked(
        model=dice.choice(models) if dice.random() < 0.25 else "",
        zone=dice.choice(["UTC", "Europe/Berlin", "America/New_York"]),
        since=since,
        until=start + width // 2 + 1 if dice.random() < 0.25 else None,
        completes=dice.random() < 0.25,
        aliases=(("chat", "m0", None), ("chat", "m1", start + width // 2)) if dice.random() < 0.4 else (),
        generations=("chat",) if "operation" in roles else (),
    )
    return Log(roles, tuple(rows), asked)


def _stamp(us: int, dice: random.Random, *, zoned: bool) -> str:
    naive = datetime(1970, 1, 1) + timedelta(microseconds=us)
    if not zoned:
        return naive.isoformat(sep=dice.choice(["T", " "]))
    return f"{(naive + timedelta(minutes=345)).isoformat()}+05:45" if dice.random() < 0.5 else f"{naive.isoformat()}Z"


def write_log(log: Log, rows: Sequence[Mapping[str, str]], path: Path) -> Path:
    """CSV, JSON lines or Parquet, by the ending; compressed where it ends in ``.gz``."""
    if path.suffix == ".parquet":
        columns = {role: pa.array([row[role] or None for row in rows], pa.string()) for role in log.roles}
        pq.write_table(pa.table(columns), path, row_group_size=3)
        return path
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt", encoding="utf-8", newline="") as stream:
        if ".csv" in path.name:
            writer = csv.DictWriter(stream, log.roles)
            writer.writeheader()
            writer.writerows(rows)
        else:
            stream.writelines(json.dumps(row) + "\n" for row in rows)
    return path
