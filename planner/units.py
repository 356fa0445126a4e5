"""The one place where units are converted.

A name carries its unit (``_gib``, ``_bytes``, ``_tokens``, ``_usd_per_h``); GB (10**9) and GiB (2**30) meet only here.
"""

from __future__ import annotations

BYTES_PER_KIB = 1024
BYTES_PER_MIB = 1024**2
BYTES_PER_GIB = 1024**3
BYTES_PER_GB = 10**9
TOKENS_PER_MTOK = 10**6
SECONDS_PER_HOUR = 3600
HOURS_PER_DAY = 24
DAYS_PER_YEAR = 365
"""Of a contract and of a price list: 8,760 hours a year and 730 a month."""
MONTHS_PER_YEAR = 12
MS_PER_S = 1000
FLOPS_PER_TFLOP = 10**12


def gib_to_bytes(gib: float) -> float:
    """GiB to bytes (not rounded)."""
    return gib * BYTES_PER_GIB


def bytes_to_gib(n_bytes: float) -> float:
    """Bytes to GiB."""
    return n_bytes / BYTES_PER_GIB


def gb_to_bytes(gb: float) -> float:
    """GB (10**9) to bytes (not rounded)."""
    return gb * BYTES_PER_GB


def bytes_to_gb(n_bytes: float) -> float:
    """Bytes to GB (10**9)."""
    return n_bytes / BYTES_PER_GB


def gb_to_gib(gb: float) -> float:
    """GB (10**9 bytes) to GiB (2**30 bytes)."""
    return gb * BYTES_PER_GB / BYTES_PER_GIB


def gib_to_gb(gib: float) -> float:
    """GiB (2**30 bytes) to GB (10**9 bytes)."""
    return gib * BYTES_PER_GIB / BYTES_PER_GB


def mib_to_gib(mib: float) -> float:
    """MiB to GiB."""
    return mib / 1024


def gib_to_mib(gib: float) -> float:
    """GiB to MiB."""
    return gib * 1024


def gb_per_s_to_bytes_per_s(gb_per_s: float) -> float:
    """GB/s (10**9) to bytes/s."""
    return gb_per_s * BYTES_PER_GB


def tflops_to_flops(tflops: float) -> float:
    """TFLOP/s to FLOP/s."""
    return tflops * FLOPS_PER_TFLOP


def s_to_ms(seconds: float) -> float:
    """Seconds to milliseconds."""
    return seconds * MS_PER_S


def ms_to_s(milliseconds: float) -> float:
    """Milliseconds to seconds."""
    return milliseconds / MS_PER_S


def minutes_to_s(minutes: float) -> float:
    """Minutes to seconds."""
    return minutes * 60.0


def hours_to_s(hours: float) -> float:
    """Hours to seconds."""
    return hours * SECONDS_PER_HOUR


def days_to_hours(days: float) -> float:
    """Days to hours."""
    return days * HOURS_PER_DAY


def years_to_hours(years: float) -> float:
    """Years of 365 days to hours."""
    return years * DAYS_PER_YEAR * HOURS_PER_DAY


def per_year_to_per_h(per_year: float) -> float:
    """A yearly amount by the hour, at 8,760 hours a year."""
    return per_year / years_to_hours(1)


def per_month_to_per_h(per_month: float) -> float:
    """A monthly amount by the hour, at 730 hours a month."""
    return per_year_to_per_h(per_month * MONTHS_PER_YEAR)


def w_to_kw(watts: float) -> float:
    """W to kW."""
    return watts / 1000


def usd_per_mtok(usd: float, tokens: float) -> float:
    """USD and tokens to USD per million tokens."""
    return usd * TOKENS_PER_MTOK / tokens
