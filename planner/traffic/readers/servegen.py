"""ServeGen client samples: per-client rates and length laws, from which requests are drawn.

A client is two files. ``*_trace.csv`` (or ``*-trace.csv``; also ``.gz``) has no header and one row per 600 s:
``start_s, rate_per_s, cv, law, shape, scale``. ``*_lengths.json`` (or ``*-dataset.json``) holds, per 21,600 s, the
probability of each prompt and output length. Source: ServeGen, arXiv 2505.09999.

Arrivals are a Gamma or Weibull renewal process with the published shape, drawn given the published count of every
600 s: the gaps are scaled so that exactly ``rate * 600`` arrivals fall into the 600 s (for Gamma gaps that is the
exact conditional law, a Dirichlet; for Weibull gaps an approximation). Started afresh every 600 s without that
condition, a law with a coefficient of variation above 10 would add hundreds of arrivals that nobody observed.
Prompt and output are drawn independently within a client, because only the marginals are published.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import duckdb
import numpy as np
import pyarrow as pa

from planner.errors import InputError, Problem, Problems
from planner.traffic.buckets import MAX_TOKENS
from planner.traffic.engine import sql_text
from planner.traffic.readers.base import Opened
from planner.traffic.readers.columns import OptionValue, Wanted
from planner.traffic.readers.head import Head
from planner.traffic.rules import CODES, Rule
from planner.traffic.storage.files import LogFile, RemoteFile
from planner.traffic.types import FloatArray, IntArray

RATE_PERIOD_S = 600
LENGTH_PERIOD_S = 21_600
TRACE_NAME = re.compile(r"^(?P<client>.+)[_-]trace\.csv(\.gz)?$")
LENGTH_NAMES = ("_lengths.json", "-dataset.json", "-lengths.json", "_dataset.json")
PROMPT_KEYS = ("input_tokens", "text_tokens", "image_tokens", "audio_tokens", "video_tokens")
MAX_DRAWN = 20_000_000
OPTIONS = {
    "window_start_s": "start of the window, seconds from the start of the sample (a multiple of 600; default 0)",
    "window_s": "length of the window in seconds (a multiple of 600; default: to the end of the sample)",
    "seed": "seed of the draw (default 0)",
}


SELECT = """
SELECT {model} AS model, 'default' AS traffic_class, ts_us, prompt, output, CAST(0 AS INTEGER) AS cached,
       CAST(NULL AS UBIGINT) AS id_hash, CAST(NULL AS BIGINT) AS rank, verdict, CAST(0 AS USMALLINT) AS adjusted,
       CAST(NULL AS UBIGINT) AS logical_hash
FROM drawn
"""


@dataclass(frozen=True)
class Period:
    """One published 600 s of a client."""

    start_s: int
    count: int
    law: str
    shape: float


@dataclass(frozen=True)
class Client:
    """One client: its periods, and its length laws by start of the 21,600 s."""

    name: str
    periods: tuple[Period, ...]
    lengths: Mapping[int, Mapping[str, tuple[IntArray, FloatArray]]]


@dataclass(frozen=True)
class Window:
    """Which part of the sample is drawn, and with which seed."""

    start_s: int
    end_s: int
    seed: int


@dataclass(frozen=True)
class ServeGen:
    """Requests are drawn, not observed: the manifest says so and names window and seed."""

    name: str = "servegen"
    source: str = "servegen-sample"
    options: Mapping[str, str] = field(default_factory=lambda: OPTIONS)

    def claims(self, head: Head) -> bool:
        """The file name says trace, and the first line is six fields that start with two numbers."""
        return bool(TRACE_NAME.match(head.path.name)) and not head.is_json and _is_period_row(head.columns)

    def open(self, connection: duckdb.DuckDBPyConnection, heads: tuple[Head, ...], wanted: Wanted) -> Opened:
        """Draw the requests of every client in the window into a table of their own."""
        clients = _read_clients(heads)
        window = _window(wanted.options, clients)
        connection.execute("CREATE TEMP TABLE drawn (ts_us BIGINT, prompt INTEGER, output INTEGER, verdict UTINYINT)")
        for client in clients:
            _insert(connection, draw_client(client, window))
        text = f"drawn from {len(clients)} clients over [{window.start_s}, {window.end_s}) s with seed {window.seed}"
        return Opened(
            selects=(SELECT.format(model=sql_text(wanted.model or "default")),),
            relative_time=True,
            window_us=(window.start_s * 1_000_000, window.end_s * 1_000_000),
            filters=(text,),
        )


def published_counts(traces: Sequence[Path]) -> tuple[int, IntArray]:
    """Requests of all clients in every published 600 s: the start of the first one (s), and the counts.

    Rates are published, so their week needs no draw.

    Raises
    ------
    InputError
        If a file cannot be read.
    """
    problems = Problems()
    read = [problems.attempt(lambda p=path: list(_read_periods(p))) for path in traces]  # type: ignore[misc]
    problems.raise_if_any()
    periods = [period for client in read for period in client or ()]
    if not periods:
        raise InputError(Problem(", ".join(map(str, traces)), "holds no rates", "Download it again"))
    at = np.array([period.start_s for period in periods], dtype=np.int64) // RATE_PERIOD_S
    counts = np.zeros(int(at.max() - at.min()) + 1, dtype=np.int64)
    np.add.at(counts, at - at.min(), [period.count for period in periods])
    return int(at.min()) * RATE_PERIOD_S, counts


@dataclass(frozen=True)
class Drawn:
    """Drawn requests of one client; tokens are -1 where the sample publishes no lengths."""

    ts_us: IntArray
    prompt: IntArray
    output: IntArray


def draw_client(client: Client, window: Window) -> Drawn:
    """Requests of one client in the window; the draw depends on seed and client name only, not on file order."""
    rng = np.random.default_rng([window.seed, zlib.crc32(client.name.encode())])
    parts = [
        _draw_period(rng, period, client.lengths.get(period.start_s // LENGTH_PERIOD_S * LENGTH_PERIOD_S, {}))
        for period in client.periods
        if window.start_s <= period.start_s < window.end_s and period.count > 0
    ]
    empty = np.empty(0, dtype=np.int64)
    if not parts:
        return Drawn(empty, empty, empty)
    return Drawn(*(np.concatenate([getattr(p, name) for p in parts]) for name in ("ts_us", "prompt", "output")))


def _draw_period(rng: np.random.Generator, period: Period, laws: Mapping[str, tuple[IntArray, FloatArray]]) -> Drawn:
    gaps = _log_gaps(rng, period)
    shares = np.exp(gaps - gaps.max())
    ends = np.cumsum(shares[:-1]) / shares.sum()
    ts_us = period.start_s * 1_000_000 + np.minimum((ends * RATE_PERIOD_S * 1e6).astype(np.int64), 599_999_999)
    prompts = [laws[key] for key in PROMPT_KEYS if key in laws]
    if not prompts or "output_tokens" not in laws:
        lost = np.full(period.count, -1, dtype=np.int64)
        return Drawn(ts_us, lost, lost)
    prompt = np.zeros(period.count, dtype=np.int64)
    for values, weights in prompts:
        prompt += rng.choice(values, size=period.count, p=weights)
    values, weights = laws["output_tokens"]
    return Drawn(ts_us, prompt, rng.choice(values, size=period.count, p=weights))


def _log_gaps(rng: np.random.Generator, period: Period) -> FloatArray:
    """Logarithms of ``count + 1`` gaps, up to a common factor; logarithms because tiny shapes underflow."""
    size = period.count + 1
    if period.law == "Weibull":
        return np.asarray(np.log(rng.standard_exponential(size)) / period.shape)
    # Gamma(k) is Gamma(k + 1) * U^(1/k): stays finite in logarithms for any k > 0.
    uniform = 1.0 - rng.random(size)
    return np.asarray(np.log(rng.standard_gamma(period.shape + 1.0, size)) + np.log(uniform) / period.shape)


def _insert(connection: duckdb.DuckDBPyConnection, drawn: Drawn) -> None:
    lost = drawn.prompt < 0
    verdict = np.where(lost, CODES[Rule.NO_LENGTH_LAW], np.where(drawn.prompt == 0, CODES[Rule.ZERO_TOKENS], -1))
    table = pa.table({"ts_us": drawn.ts_us, "prompt": drawn.prompt, "output": drawn.output, "verdict": verdict})
    connection.register("draw", table)
    connection.execute(
        "INSERT INTO drawn SELECT ts_us, CASE WHEN verdict < 0 THEN prompt END, "
        "CASE WHEN verdict < 0 THEN output END, CASE WHEN verdict >= 0 THEN verdict END FROM draw"
    )
    connection.unregister("draw")


def _is_period_row(row: tuple[str, ...]) -> bool:
    try:
        return len(row) == 6 and float(row[0]) >= 0 and float(row[1]) >= 0
    except ValueError:
        return False


def _whole(value: OptionValue) -> int:
    """The option as a whole number; -1 where it is none or below 0."""
    try:
        return int(value) if float(value) == int(value) >= 0 else -1
    except (ValueError, OverflowError):
        return -1


def _window(options: Mapping[str, OptionValue], clients: tuple[Client, ...]) -> Window:
    problems = Problems()
    end = max((p.start_s for c in clients for p in c.periods), default=0) + RATE_PERIOD_S
    values = {name: _whole(options.get(name, 0)) for name in OPTIONS}
    for name in (name for name, value in values.items() if value < 0):
        problems.add(f"option {name}", f"must be a whole number, at least 0 (got {options[name]!r})")
    for name in ("window_start_s", "window_s"):
        if values[name] > 0 and values[name] % RATE_PERIOD_S:
            problems.add(f"option {name}", f"must be a multiple of {RATE_PERIOD_S}: rates are published per 600 s")
    problems.raise_if_any()
    start = values["window_start_s"]
    stop = start + values["window_s"] if values["window_s"] else end
    if start >= end or stop > end:
        problems.add("option window_s", f"the window [{start}, {stop}) s ends after the sample, which has {end} s")
    total = sum(p.count for c in clients for p in c.periods if start <= p.start_s < stop)
    if total > MAX_DRAWN:
        fix = f"Shorten it with --option window_s=SECONDS: at most {MAX_DRAWN:,} are drawn"
        problems.add("option window_s", f"the window holds {total:,} requests", fix)
    problems.raise_if_any()
    return Window(start, stop, values["seed"])


def _read_clients(heads: tuple[Head, ...]) -> tuple[Client, ...]:
    problems = Problems()
    clients = []
    for head in sorted(heads, key=lambda h: h.path.name):
        try:
            clients.append(_read_client(_on_disk(head.path)))
        except InputError as error:
            problems.found.extend(error.problems)
    problems.raise_if_any()
    return tuple(clients)


def lengths_path(trace: LogFile) -> Path | None:
    """The file of length laws that belongs to a trace file, if it is there; it is looked for on a disk only."""
    if isinstance(trace, RemoteFile):
        return None
    match = TRACE_NAME.match(trace.name)
    stem = match["client"] if match else ""
    names = (f"{stem}{ending}{gz}" for ending in LENGTH_NAMES for gz in ("", ".gz"))
    return next((trace.with_name(name) for name in names if trace.with_name(name).is_file()), None)


def _on_disk(path: LogFile) -> Path:
    if isinstance(path, RemoteFile):
        raise InputError(Problem(str(path), "is one of two files of a ServeGen client, read from a disk", "Copy both"))
    return path


def _read_client(path: Path) -> Client:
    match = TRACE_NAME.match(path.name)
    lengths = lengths_path(path)
    if match is None or lengths is None:
        fix = "A client is two files: NAME_trace.csv and NAME_lengths.json (or -trace.csv and -dataset.json)"
        raise InputError(Problem(str(path), "the file of length laws that belongs to it is missing", fix))
    return Client(match["client"], tuple(_read_periods(path)), _read_lengths(lengths))


def _open(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", newline="")
    return path.open(encoding="utf-8", newline="")


def _read_periods(path: Path) -> Iterator[Period]:
    problems = Problems()
    try:
        with _open(path) as stream:
            rows = list(csv.reader(stream))
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        raise InputError(Problem(str(path), f"cannot be read: {error}", "Download it again")) from None
    for number, row in enumerate(rows, start=1):
        try:
            period = _period(row)
        except ValueError as error:
            problems.add(str(path), str(error), "Expected start_s,rate,cv,Gamma|Weibull,shape,scale", row=str(number))
        else:
            yield period
    problems.raise_if_any()


def _period(row: list[str]) -> Period:
    if len(row) != 6:
        raise ValueError(f"has {len(row)} fields instead of 6")
    start, rate, shape, scale = float(row[0]), float(row[1]), float(row[4]), float(row[5])
    if not (start >= 0 and start % RATE_PERIOD_S == 0 and 0 <= rate < 1e6):
        raise ValueError(
            f"start {start} must be a multiple of {RATE_PERIOD_S} s and rate {rate} finite and not negative"
        )
    count = round(rate * RATE_PERIOD_S)
    if count and not (row[3] in ("Gamma", "Weibull") and 0 < shape < 1e6 and 0 < scale < 1e12):
        raise ValueError(f"a rate above 0 needs a law Gamma or Weibull with positive shape and scale (got {row[3]!r})")
    return Period(int(start), count, row[3], shape)


def _read_lengths(path: Path) -> Mapping[int, Mapping[str, tuple[IntArray, FloatArray]]]:
    try:
        with _open(path) as stream:
            raw = json.load(stream)
        return {int(start): _laws(path, start, fields) for start, fields in raw.items()}
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, ValueError, AttributeError) as error:
        raise InputError(Problem(str(path), f"is not a file of length laws: {error}", "Download it again")) from None


def _laws(path: Path, start: str, fields: Mapping[str, Any]) -> Mapping[str, tuple[IntArray, FloatArray]]:
    laws = {}
    for key in (*PROMPT_KEYS, "output_tokens"):
        law = parse_law(str(fields.get(key, "{}")))
        if law:
            values = np.fromiter(law, dtype=np.int64, count=len(law))
            weights = np.fromiter(law.values(), dtype=np.float64, count=len(law))
            laws[key] = (values, weights / weights.sum())
    return laws


def parse_law(text: str) -> dict[int, float]:
    """A printed Python dict of whole numbers to probabilities, read without evaluating it.

    Raises
    ------
    ValueError
        If the text is anything else, a length is absurd, or a probability is negative or not finite.
    """
    quoted = re.sub(r"(?<![\w.+-])(\d+)(?=\s*:)", r'"\1"', text)
    law = {int(key): float(weight) for key, weight in json.loads(quoted).items()}
    if any(not (0 <= weight < float("inf")) or value > MAX_TOKENS for value, weight in law.items()):
        raise ValueError("a length law holds an absurd length or probability")
    if law and sum(law.values()) <= 0:
        raise ValueError("a length law has no weight")
    return law
