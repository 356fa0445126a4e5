"""What a start-up log of vLLM or SGLang says: how the engine was started, what it measured, and the pool it made."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from planner.errors import InputError, Problem
from planner.memory.starts import log_patterns as patterns


def _nothing() -> Mapping[str, Any]:
    return MappingProxyType({})


@dataclass(frozen=True)
class RankLog:
    """Figures of one worker, by name; GiB unless the name says otherwise."""

    rank: str
    """``TP0``, a process id, or empty where the log has one worker."""
    figures: Mapping[str, float] = field(default_factory=_nothing)

    def get(self, name: str) -> float | None:
        """A figure, ``None`` where the worker does not state it."""
        return self.figures.get(name)


@dataclass(frozen=True)
class StartupLog:
    """A start-up log as read.

    Attributes
    ----------
    engine, version, model, gpu
        Empty where the log does not say.
    settings
        Arguments and resolved settings by the engine's own names; ``None`` of the engine is left out.
    ranks
        Workers, in the order of their first figure.
    figures
        Figures of the whole engine: ``kv_tokens``, ``max_concurrency``, ``blocks``, ``max_running_requests``.
    refusal
        The engine's reason for not starting; empty where it started or the log ends before.
    day
        First date in the log, ``YYYY-MM-DD``; empty where it has none.
    """

    engine: str = ""
    version: str = ""
    model: str = ""
    gpu: str = ""
    day: str = ""
    settings: Mapping[str, str] = field(default_factory=_nothing)
    ranks: tuple[RankLog, ...] = ()
    figures: Mapping[str, float] = field(default_factory=_nothing)
    refusal: str = ""
    notes: tuple[str, ...] = ()

    @property
    def tightest(self) -> RankLog:
        """The worker with the least memory for the cache: the pool is the minimum over workers."""
        measured = [rank for rank in self.ranks if rank.get("available") is not None]
        if measured:
            return min(measured, key=lambda rank: rank.figures["available"])
        return self.ranks[0] if self.ranks else RankLog("")

    def figure(self, name: str) -> float | None:
        """A figure of the tightest worker, else the largest that another worker states."""
        own = self.tightest.get(name)
        others = [x for rank in self.ranks if (x := rank.get(name)) is not None]
        return own if own is not None else max(others, default=None)

    def setting(self, *names: str) -> str:
        """The first of these settings that is stated; empty if none."""
        return next((text for name in names if (text := self.settings.get(name, ""))), "")


MOST_BYTES = 512 * 2**20
"""Bytes of a log that are read."""
LONGEST_LINE = 100_000
"""Characters after which a line is cut."""
LONGEST_RECORD = 400_000


def read_log(path: Path) -> StartupLog:
    """Read a start-up log, compressed with gzip or not.

    Raises
    ------
    InputError
        If the file cannot be read, or holds no line of either engine.
    """
    try:
        with path.open("rb") as file:
            packed = file.peek(2)[:2] == b"\x1f\x8b"
            raw = gzip.GzipFile(fileobj=file) if packed else file
            log = parse_log(line.decode("utf-8", "replace") for line in _lines(raw.readline))
    except (OSError, EOFError, zlib.error) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise InputError(Problem(str(path), f"cannot be read: {reason}")) from error
    if not log.engine:
        fix = "Give the log of `vllm serve` or `sglang.launch_server` from its first line on"
        raise InputError(Problem(str(path), "holds no line of a vLLM or SGLang start", fix))
    return log


def _lines(readline: Callable[[int], bytes]) -> Iterator[bytes]:
    """Lines of the first `MOST_BYTES`, each cut at `LONGEST_LINE`."""
    read = 0
    while read < MOST_BYTES and (line := readline(LONGEST_LINE)):
        read += len(line)
        yield line


def parse_log(lines: Iterable[str]) -> StartupLog:
    """Read the lines of a start-up log; of several starts the last one that got as far as memory.

    Every worker's first figure of a name is kept: later ones are rounder, or a draft model's.
    """
    start, earlier = _Start(), 0
    for record in records(lines):
        if patterns.BEGINS.search(record) and start.measured:
            start, earlier = _Start(), earlier + 1
        start.read(record)
    log = start.finished()
    note = f"the log holds {earlier + 1} starts: the last is read"
    return replace(log, notes=(*log.notes, note)) if earlier else log


_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]{0,200}\x07|[\x00-\x08\x0b-\x1f]")


def records(lines: Iterable[str]) -> Iterator[str]:
    """Log records: escapes and container wrappers are taken off, lines that a terminal wrapped are joined."""
    parts: list[str] = []
    length = 0
    for line in lines:
        text = _unwrapped(_ESCAPES.sub("", line.rstrip("\r\n")))
        if parts and (length > LONGEST_RECORD or patterns.RECORD.match(text)):
            yield "".join(parts)
            parts, length = [], 0
        parts.append(text)
        length += len(text)
    if parts:
        yield "".join(parts)


def _unwrapped(line: str) -> str:
    """The message inside a container runtime's JSON line."""
    if not line.startswith('{"'):
        return line
    try:
        outer = json.loads(line)
    except (json.JSONDecodeError, RecursionError):
        return line
    inner = next((outer[key] for key in ("log", "message", "msg", "textPayload") if key in outer), line)
    return inner.rstrip("\n") if isinstance(inner, str) else line


class _Start:
    """What has been read of one start."""

    def __init__(self) -> None:
        self.engine = self.version = self.gpu = self.day = self.refusal = ""
        self.settings: dict[str, str] = {}
        self.ranks: dict[str, dict[str, float]] = {}
        self.labels: dict[str, str] = {}
        self.figures: dict[str, float] = {}

    @property
    def measured(self) -> bool:
        """Whether the start got as far as its memory."""
        return bool(self.figures.keys() & {"kv_tokens", "blocks"}) or bool(self.refusal)

    def read(self, record: str) -> None:
        """Take everything that a record states."""
        if not patterns.HINT.search(record):
            return
        self._identity(record)
        sampler = patterns.FLASHINFER_SAMPLES.search(record)
        if sampler:
            self.settings.setdefault(patterns.FLASHINFER_SAMPLER, str(bool(sampler.group(1))))
        if patterns.STATES.search(record):
            self._settings(record)
        worker = self._worker(record)
        for wording in patterns.OF_WORKER:
            _keep(wording, record, lambda: self.ranks.setdefault(worker, {}))
        for wording in patterns.OF_ENGINE:
            _keep(wording, record, lambda: self.figures)
        failed = patterns.FAILED.search(record)
        if failed and not self.refusal:
            self.refusal = f"{failed.group(1)}: {failed.group(2).strip()}"
        if patterns.STARTED.search(record):
            self.refusal = ""

    def _identity(self, record: str) -> None:
        for engine, version in patterns.VERSIONS.items():
            found = version.search(record)
            if found and not self.version:
                self.engine, self.version = engine, found.group(1)
            if not self.engine and patterns.MARKS[engine].search(record):
                self.engine = engine
        self.gpu = self.gpu or next((m.group(1) for p in patterns.GPU_NAMES if (m := p.search(record))), "")
        if not self.day:
            day = re.search(r"\b20\d\d-\d\d-\d\d\b", record)
            self.day = day.group() if day else ""

    def _settings(self, record: str) -> None:
        for name, value in patterns.SETTING.findall(record):
            text = value.strip("'\"")
            if text not in ("None", "") and name not in self.settings:
                self.settings[name] = text.removeprefix("torch.")

    def _worker(self, record: str) -> str:
        """Which worker a record is of; its label is the tensor-parallel rank where one is shown."""
        found = patterns.VLLM_WORKER.search(record)
        if found:
            name, rank, pid, host = found.groups()
            key = f"{pid}@{host}" if host else pid
            if patterns.EP_RANK.search(name):
                self.settings.setdefault("enable_expert_parallel", "True")
            label = patterns.TP_RANK.search(name)
            if label:
                self.labels[key] = f"TP{label.group(1) or label.group(2)}"
            elif rank:
                self.labels[key] = f"TP{rank}"
            return key
        ranks = patterns.SGLANG_RANK.search(record)
        return ranks.group(1).strip() if ranks else ""

    def finished(self) -> StartupLog:
        """The start as read; workers without figures of memory are left out."""
        ranks = tuple(
            RankLog(self.labels.get(key, key), MappingProxyType(_with_pool(figures)))
            for key, figures in self.ranks.items()
            if figures
        )
        return StartupLog(
            engine=self.engine,
            version=self.version,
            model=self.settings.get("model") or self.settings.get("model_path", ""),
            gpu=self.gpu.replace("_", " "),
            day=self.day,
            settings=MappingProxyType(self.settings),
            ranks=ranks,
            figures=MappingProxyType(self.figures),
            refusal=self.refusal,
        )


def _keep(wording: patterns.Wording, record: str, kept: Callable[[], dict[str, float]]) -> None:
    found = wording.phrase.search(record)
    if found:
        figures = kept()
        for name, text in zip(wording.names, found.groups(), strict=True):
            figures.setdefault(name, float(text.replace(",", "")))


def _with_pool(figures: dict[str, float]) -> dict[str, float]:
    """SGLang states the cache by its halves: their sum is what was available; states come on top of it."""
    if "available" not in figures:
        if "reserved" in figures:
            figures["available"] = figures["reserved"]
        elif "kv_size" in figures:
            figures["available"] = figures["kv_size"]
        elif "k_size" in figures:
            figures["available"] = figures["k_size"] + figures["v_size"]
    if "conv" in figures:
        figures["states"] = figures["conv"] + figures["ssm"]
    return figures
