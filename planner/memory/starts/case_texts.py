"""Cells of a table of cases, as people and logs write them, read by stated rules.

A rule that does not apply says so (`InputError`) or returns ``None``; nothing is guessed in silence.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping

from planner.errors import InputError, Problem
from planner.memory.types import KvDtype, WeightDtype

UNKNOWN = frozenset({"", "?", "-", "n/a", "unknown", "none given"})
"""Cells that say nothing."""
LARGEST = 2**31 - 1
_REMARK = re.compile(r"\([^()]*\)\s*$")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?:\D|$))")


def whole(text: str, column: str) -> int | None:
    """A count; ``None`` where the cell says nothing.

    Raises
    ------
    InputError
        If the cell holds something else.
    """
    value = number(text, column)
    if value is None:
        return None
    if value != int(value) or abs(value) > LARGEST:
        raise InputError(Problem("case", f"{column} is no whole number (got {text!r:.40})", field=column))
    return int(value)


def number(text: str, column: str) -> float | None:
    """A number; ``None`` where the cell says nothing.

    A ``~`` before it, commas between thousands and a remark in brackets behind it are passed over.

    Raises
    ------
    InputError
        If the cell holds something else.
    """
    bare = _REMARK.sub("", text).strip().removeprefix("~").lower()
    if bare in UNKNOWN:
        return None
    try:
        value = float(_THOUSANDS.sub("", bare))
    except ValueError:
        value = float("nan")
    if not -1e18 < value < 1e18:
        raise InputError(Problem("case", f"{column} is no number (got {text!r:.40})", field=column))
    return value


def yes(text: str) -> bool | None:
    """``y``, ``True``, ``1`` or their opposites; ``None`` for anything else."""
    word = text.strip().lower()
    if word in ("y", "yes", "true", "1", "on"):
        return True
    return False if word in ("n", "no", "false", "0", "off") else None


_VISIBLE_GIB = re.compile(r"(?<![\w.])(\d{1,3}\.\d{1,2})(?= ?GiB\b|[;)])")
"""Memory that a GPU shows: ``12.00 GiB``, ``(95.01; ...)``. A nameplate is whole."""


def stated_memory(text: str) -> float | None:
    """GiB of GPU memory that a text states beside the card's name, as the engine sees them; ``None`` if it does not."""
    found = _VISIBLE_GIB.search(text)
    return float(found.group(1)) if found else None


_RELEASE = re.compile(r"(?<![\w.])v?([01](?:\.\d{1,3}){1,3}(?:\.?(?:rc|dev)\d{1,6})*)(\.?x)?(?![\d.]*\d)", re.ASCII)
_OR_NEWER = re.compile(r"\+(?!\w)")
_OTHERS = re.compile(r"\b(?:rocm|cuda|python|torch) *[\d.]+", re.IGNORECASE)
_DAY = re.compile(r"\b(20\d\d)-(\d\d)(?:-(\d\d))?\b")
_QUARTER = re.compile(r"\b(20\d\d)-?q([1-4])\b", re.IGNORECASE)
_MONTH = re.compile(r"\b(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]* (20\d\d)\b", re.IGNORECASE)
_YEAR = re.compile(r"\b(20\d\d)(?:/(\d\d))?\b")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
DEVELOPMENT = "0.1.dev"
"""A build without tags calls itself 0.1.dev, whatever it was built from."""


def stated_version(text: str) -> str:
    """The version that a text names: its first dotted number (``0.7.x-0.8.x (worker.py:267)`` is 0.7); empty if none.

    ``0.2x`` is 0.20. Both engines are below 2, so that 25.09 is no version, nor is a number after ROCm or CUDA.
    ``0.1.dev...`` names no release (builds without tags call themselves that), and of ``0.21+`` with a date the date
    says more.
    """
    plain = _OTHERS.sub("", text.replace(DEVELOPMENT, ""))
    found = _RELEASE.search(plain)
    if not found or (_OR_NEWER.match(plain, found.end()) and stated_date(text)):
        return ""
    return f"{found.group(1)}0" if found.group(2) == "x" else found.group(1)


def stated_date(text: str) -> dt.date | None:
    """The date that a text names: a day, a month (its middle), a quarter or year (its middle)."""
    day = _DAY.search(text)
    if day and 1 <= int(day.group(2)) <= 12 and int(day.group(3) or 1) <= 28:
        return dt.date(int(day.group(1)), int(day.group(2)), int(day.group(3) or 15))
    if day and 1 <= int(day.group(2)) <= 12:
        return dt.date(int(day.group(1)), int(day.group(2)), 28)
    quarter = _QUARTER.search(text)
    if quarter:
        return dt.date(int(quarter.group(1)), 3 * int(quarter.group(2)) - 1, 15)
    month = _MONTH.search(text)
    if month:
        return dt.date(int(month.group(2)), _MONTHS.index(month.group(1).lower()) + 1, 15)
    year = _YEAR.search(text)
    if year is None:
        return None
    return dt.date(int(year.group(1)) + 1, 1, 1) if year.group(2) else dt.date(int(year.group(1)), 7, 1)


AUTO_KV = "auto"
_FP8_KV = re.compile(r"^(fp8|float8|mxfp8|nvfp4|fp4|int8|deepseek)", re.IGNORECASE)
_16BIT = re.compile(r"^(bf16|bfloat16|fp16|float16|half|16)", re.IGNORECASE)


def kv_format(text: str) -> tuple[KvDtype | None, str]:
    """The cache format, ``None`` for the engine's own choice, and the engine's name of it where that says more.

    ``auto(bf16)`` and an empty cell are the engine's choice; ``fp8_e5m2`` is fp8 under its own name, ``fp8_e5m2?``
    under one that is not sure.

    Raises
    ------
    InputError
        If the format is none that an engine knows.
    """
    word = re.split(r"[ (?]", text.strip(), maxsplit=1)[0].lower()
    if word in UNKNOWN or word == AUTO_KV:
        return None, ""
    if _16BIT.match(word):
        return KvDtype.BF16, ""
    if _FP8_KV.match(word):
        return KvDtype.FP8, "" if word == "fp8" or "?" in text else word
    raise InputError(Problem("case", f"KV-cache format {text!r:.40} is not known", field="kv_dtype"))


_WEIGHT_WORDS: tuple[tuple[re.Pattern[str], WeightDtype | None], ...] = tuple(
    (re.compile(rf"(?<![a-z])(?:{words})", re.IGNORECASE), dtype)
    for words, dtype in (
        ("mxfp4", WeightDtype.MXFP4),
        ("mxfp8", WeightDtype.MXFP8),
        ("nvfp4|fp4", WeightDtype.NVFP4),
        ("fp8", WeightDtype.FP8),
        ("w8a8|int8", WeightDtype.INT8),
        ("w8a16", WeightDtype.W8A16),
        ("w4a16", WeightDtype.W4A16),
        ("bnb|bitsandbytes", WeightDtype.BNB_4BIT),
        ("awq", WeightDtype.INT4_AWQ),
        ("gptq|auto-?round", WeightDtype.INT4_GPTQ),
        (r"int4|4-?bit\b", WeightDtype.INT4_GPTQ),
        (r"f32\b|fp32\b|float32\b", None),
        (r"bf16|bfloat16|fp16|float16|half\b|none\b", WeightDtype.BF16),
    )
)
"""Words of a weight format in the order they are looked for; ``None``: no checkpoint of the catalogue is started so."""


def weight_format(text: str) -> tuple[bool, WeightDtype | None]:
    """Whether the text names a weight format, and the one that a 16-bit checkpoint would be started with.

    ``fp8 block`` is fp8, ``none(bf16)`` 16 bits, ``gptq/awq int4`` AWQ: the first of the list above that occurs. A
    checkpoint that is stored quantised is loaded as stored whatever the text says.
    """
    for words, dtype in _WEIGHT_WORDS:
        if words.search(text):
            return True, dtype
    return False, None


_COUNTS: Mapping[str, str] = {
    "max_model_len": r"max[_-](?:model|seq)[_-]len(?:gth)?|context[_-]length",
    "max_num_seqs": r"max[_-]num[_-]seqs|max[_-]running[_-]requests",
    "max_num_batched_tokens": r"max[_-]num[_-]batched[_-]tokens|chunked[_-]prefill[_-]size",
    "pp": r"pipeline[_-]parallel(?:[_-]size)?|-pp|pp[_-]size",
    "dcp": r"decode[_-]context[_-]parallel[_-]size|dcp(?:[_-]size)?",
    "dp": r"data[_-]parallel[_-]size|-dp|dp[_-]size",
    "block_size": r"block[_-]size",
    "page_size": r"page[_-]size",
    "max_cudagraph_capture_size": r"max[_-]cudagraph[_-]capture[_-]size",
    "cuda_graph_max_bs": r"cuda[_-]graph[_-]max[_-]bs",
    "max_total_tokens": r"max[_-]total[_-]tokens",
    "max_mamba_cache_size": r"max[_-]mamba[_-]cache[_-]size",
    "speculative_tokens": r"mtp n|num[_-]speculative[_-]tokens|speculative[_-]num[_-]steps",
}
_SHARES: Mapping[str, str] = {
    "utilization": r"gpu[_-]memory[_-]utilization|mem[_-]fraction[_-]static|util",
    "swa_full_tokens_ratio": r"swa[_-]full[_-]tokens[_-]ratio",
    "mamba_full_memory_ratio": r"mamba[_-]full[_-]memory[_-]ratio",
}
_NAMES: Mapping[str, str] = {
    "kv_dtype": r"kv[_-]cache[_-]dtype|kv(?= (?:fp8|bf16))",
    "quantization": r"quantization|-q",
    "dtype": r"(?<![a-z0-9][_-])dtype(?: auto ->)?",
    "attention_backend": r"attention[_-]backend",
    "mamba_ssm_dtype": r"mamba[_-]ssm[_-](?:cache[_-])?dtype|mamba ssm(?= (?:fp|bf))",
    "mamba_cache_mode": r"mamba[_-]cache[_-]mode|prefix caching(?= (?:align|all) mode)",
    "speculative_algorithm": r"speculative[_-]algorithm",
}
_SWITCHES: Mapping[str, str] = {
    "enforce_eager": r"enforce[_-]eager",
    "language_model_only": r"language[_-]model[_-]only",
    "language_only": r"--language[_-]only",
    "disable_cuda_graph": r"disable[_-]cuda[_-]graph",
    "disable_radix_cache": r"disable[_-]radix[_-]cache",
    "disable_overlap_schedule": r"disable[_-]overlap[_-]schedule",
    "enable_multimodal": r"enable[_-]multimodal",
    "unified_memory": r"enable[_-]unified[_-]memory",
    "enable_dp_attention": r"enable[_-]dp[_-]attention|dp attention",
    "no_prefix_caching": r"no[_-]enable[_-]prefix[_-]caching",
    "prefix_caching": r"(?<!no[_-])enable[_-]prefix[_-]caching",
    "flashinfer_sampler": r"flashinfer sampler|VLLM_USE_FLASHINFER_SAMPLER[= ]1",
    "no_flashinfer_sampler": r"flashinfer (?:is )?not (?:installed|available)|VLLM_USE_FLASHINFER_SAMPLER[= ]0",
    "offline": r"\boffline LLM\b",
    "mtp": r"(?<!no )(?<!without )(?<![\w-])MTP\b(?! (?:off|not|layers? not))",
    "expert_parallel": r"enable[_-]expert[_-]parallel|(?<!\w)-ep\b|\bep on\b",
}
_GAP = r"(?:\s{0,20}[=:]\s{0,20}|\s{1,20})"
_COMPILED: tuple[tuple[str, re.Pattern[str]], ...] = (
    *((k, re.compile(rf"(?<![a-z_])(?:--)?(?:{v}){_GAP}(-?\d+)(?![\d.]*\d)", re.I)) for k, v in _COUNTS.items()),
    *((k, re.compile(rf"(?<![a-z_])(?:--)?(?:{v}){_GAP}(\d*\.\d+|1)(?![\d.])", re.I)) for k, v in _SHARES.items()),
    *((k, re.compile(rf"(?<![a-z_])(?:--)?(?:{v}){_GAP}([a-z]\w+)", re.I)) for k, v in _NAMES.items()),
    *((k, re.compile(rf"(?:{v})(?!\s*[=:]?\s*(?:false|off)\b)", re.I)) for k, v in _SWITCHES.items()),
)


_KV_WORDS = re.compile(r"\b(fp8\w*|bf16) kv\b", re.IGNORECASE)
_CONTEXT = re.compile(r"(?<![\w.])(\d{1,4})([kM]) (?:ctx|context)\b")
_ONLINE = re.compile(r"\b(fp8)\b[\w -]{0,80} online\b", re.IGNORECASE)


def stated_flags(text: str) -> dict[str, str]:
    """Settings that a text names, whether typed as a command line or in words.

    ``--kv-cache-dtype fp8``, ``util 0.9, max_model_len 16000``, ``max_num_seqs=128, block 16``, ``MTP n=3``. A switch
    has the value ``y``.
    """
    found: dict[str, str] = {}
    if not text:
        return found
    for name, pattern in _COMPILED:
        match = pattern.search(text)
        if match:
            found[name] = match.group(1) if pattern.groups else "y"
    for name, pattern in (("kv_dtype", _KV_WORDS), ("quantization", _ONLINE)):
        match = pattern.search(text)
        if match and name not in found:
            found[name] = match.group(1)
    context = _CONTEXT.search(text)
    if context and "max_model_len" not in found:
        found["max_model_len"] = str(int(context.group(1)) * (1024**2 if context.group(2) == "M" else 1024))
    return found
