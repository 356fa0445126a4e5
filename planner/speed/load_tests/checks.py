"""Which runs are steady points, and at which concurrency.

Concurrency, best first: the tool's measured mean, the engine's running mean, Little's law (requests per second times
mean latency), the client's cap; without any of them Little's law with the latency put together from its parts.
Client and server agree on a point only if

    output tokens/s = concurrency x n_out / (TTFT + (n_out - 1) x TPOT)

(Little's law again); means are used where they are known.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner import units
from planner.speed.load_tests.types import Rejected, Run
from planner.speed.points import LoadKind

CAP_TOLERANCE = 0.2
BALANCE_TOLERANCE = 0.1
WAVES = 5
"""Requests per client below which the beginning and the end of a test weigh on its means."""
FAILED_SHARE = 0.01
OVERLOAD_SHARE = 0.8
FULL_SHARE = 0.9
"""Share of the cap in flight from which a rate is no longer what limits the client."""

MOST = 1e12
"""More than any time in milliseconds, length or rate is."""

MEASURED = "measured mean"
RUNNING = "running mean of the engine"
LITTLE = "Little's law"
PARTS = "Little's law, latency from TTFT and TPOT"
CAP = "cap of the client"


@dataclass(frozen=True)
class Steady:
    """A run that is believed."""

    run: Run
    kind: LoadKind
    concurrency: float | None
    """``None`` at max load, where the replica itself decides it."""
    concurrency_from: str
    rate_per_s: float | None


def judged(run: Run, keep_speculative: bool = True) -> Steady | Rejected:
    """The steady point that a run is, or why it is none."""
    reason = _odd(run) or _bare(run) or _failures(run) or _speculation(run, keep_speculative)
    if reason:
        return Rejected(run.place, reason)
    concurrency, origin = in_flight(run)
    kind = _kind(run, concurrency)
    reason = (
        _against_cap(run, concurrency, origin)
        or _burst(run)
        or _overload(run, kind)
        or _parts(run)
        or _balance(run, kind, concurrency)
    )
    if not reason and concurrency is None and kind == LoadKind.CLOSED_LOOP:
        reason = "says nothing of its concurrency: no measured mean, latency or cap"
    if reason:
        return Rejected(run.place, reason)
    if kind == LoadKind.MAX_LOAD:
        return Steady(run, kind, None, "", None)
    return Steady(run, kind, concurrency, origin if concurrency else "", run.done_per_s if _open(kind) else None)


def in_flight(run: Run) -> tuple[float | None, str]:
    """Mean requests in flight and where the figure is from."""
    here = run.in_flight
    candidates = (
        (here.measured, MEASURED),
        (here.running, RUNNING),
        (_little(run, run.e2e_mean_ms), LITTLE),
        (here.cap, CAP),
        (_little(run, _latency_ms(run)), PARTS),
    )
    return next(((value, origin) for value, origin in candidates if value), (None, ""))


def _little(run: Run, latency_ms: float | None) -> float | None:
    return run.done_per_s * units.ms_to_s(latency_ms) if run.done_per_s and latency_ms else None


def _latency_ms(run: Run) -> float | None:
    """TTFT + (n_out - 1) x TPOT."""
    ttft_ms, tpot_ms, tokens = run.ttft.typical_ms, run.tpot.typical_ms, run.output_tokens
    return ttft_ms + (tokens - 1) * tpot_ms if ttft_ms and tpot_ms and tokens else None


def _open(kind: LoadKind) -> bool:
    return kind == LoadKind.OPEN_LOOP


def _odd(run: Run) -> str:
    """Figures that nothing can have."""
    if run.completed == 0:
        return "no request completed"
    figures = {
        "the mean prompt": run.input_tokens,
        "the mean output": run.output_tokens,
        "the rate": run.done_per_s,
        "the latency": run.e2e_mean_ms,
        "the throughput": run.output_tok_s,
        "the total throughput": run.total_tok_s,
        "the concurrency": in_flight(run)[0],
        **{f"{name} ({level[:-3]})": value for name, level, value in _times(run)},
    }
    odd = [name for name, value in figures.items() if value is not None and not 0 < value < MOST]
    if run.acceptance is not None and not 1 <= run.acceptance < MOST:
        odd.append("the accepted length")
    if run.cached_share is not None and not 0 <= run.cached_share <= 1:
        odd.append("the cached share")
    return f"cannot be: {', '.join(odd)}" if odd else ""


def _times(run: Run) -> list[tuple[str, str, float | None]]:
    spreads = (("TTFT", run.ttft), ("TPOT", run.tpot))
    return [(name, level, value) for name, spread in spreads for level, value in vars(spread).items()]


def _bare(run: Run) -> str:
    """What is missing for a point of any kind."""
    missing = [
        name for name, value in (("prompt length", run.input_tokens), ("output length", run.output_tokens)) if not value
    ]
    if missing:
        return f"says nothing of the mean {' and '.join(missing)}"
    if run.tpot.typical_ms is None and not (run.kind == LoadKind.MAX_LOAD and run.output_tok_s):
        return "holds no time per output token: answers were not streamed, or have one token"
    return ""


def _failures(run: Run) -> str:
    asked = run.asked or ((run.completed or 0) + (run.failed or 0))
    if not run.failed or not asked or run.failed <= FAILED_SHARE * asked:
        return ""
    return f"{run.failed:.0f} of {asked:.0f} requests failed, more than {FAILED_SHARE:.0%}"


def _speculation(run: Run, keep: bool) -> str:
    accepted = run.acceptance is not None and run.acceptance > 1
    if not keep and (accepted or run.speculative):
        return "speculative decoding was on, and --no-speculative leaves such runs out"
    if run.speculative and run.acceptance is None:
        return f"speculative decoding ({run.speculative}) was on, but not how much it yields: give --acceptance"
    return ""


def _kind(run: Run, concurrency: float | None) -> LoadKind:
    """A rate that the cap holds back is a closed loop: arrivals wait in the client."""
    cap = run.in_flight.cap
    held_back = _open(run.kind) and cap is not None and concurrency is not None and concurrency >= FULL_SHARE * cap
    return LoadKind.CLOSED_LOOP if held_back else run.kind


def _against_cap(run: Run, concurrency: float | None, origin: str) -> str:
    """Whether what was in flight contradicts the most that the client can have sent."""
    cap = run.in_flight.cap
    if cap is None or concurrency is None or origin == CAP:
        return ""
    if concurrency > (1 + CAP_TOLERANCE) * cap:
        return (
            f"{origin} gives {concurrency:.1f} requests in flight where the client sends at most {cap:.0f}: its times"
            " include a queue in the client"
        )
    if run.kind == LoadKind.CLOSED_LOOP and concurrency < (1 - CAP_TOLERANCE) * cap:
        return f"{concurrency:.1f} of {cap:.0f} clients were busy on average ({origin}): {_ramp(run, cap)}"
    return ""


def _burst(run: Run) -> str:
    """All at once is max load only if requests wait: then they last half the test on average, not all of it."""
    here = in_flight(run)[0]
    if run.kind != LoadKind.MAX_LOAD or not here or not run.completed or here < OVERLOAD_SHARE * run.completed:
        return ""
    return (
        f"all {run.completed:.0f} requests ran at once until the end: a single burst, neither steady nor max load; cap"
        " the concurrency, or send more"
    )


def _overload(run: Run, kind: LoadKind) -> str:
    if not _open(kind) or run.asked_per_s is None or run.done_per_s is None:
        return ""
    if run.done_per_s >= OVERLOAD_SHARE * run.asked_per_s:
        return ""
    notes = f" ({'; '.join(run.notes)})" if run.notes else ""
    return (
        f"{run.done_per_s:.3g} of {run.asked_per_s:.3g} requests/s asked for were finished: a queue grew as long as the"
        f" test ran, in the client or in the server{notes}"
    )


def _parts(run: Run) -> str:
    """Whether TTFT and TPOT make up the latency; where tokens are counted twice, TPOT is half of what it is."""
    ttft_ms, tpot_ms, tokens, e2e_ms = run.ttft.mean_ms, run.tpot.mean_ms, run.output_tokens, run.e2e_mean_ms
    together_ms = _latency_ms(run)
    if not (ttft_ms and tpot_ms and tokens and e2e_ms and together_ms) or tokens <= 1:
        return ""
    if abs(together_ms / e2e_ms - 1) <= BALANCE_TOLERANCE:
        return ""
    left_ms = (e2e_ms - ttft_ms) / (tokens - 1)
    return (
        f"its mean latency is {e2e_ms:.4g} ms, TTFT and TPOT make {together_ms:.4g} ms: TPOT is {tpot_ms:.4g} ms where"
        f" {left_ms:.4g} ms are left, so tokens or times were counted differently"
    )


def _balance(run: Run, kind: LoadKind, concurrency: float | None) -> str:
    """Whether throughput, concurrency and times belong together."""
    latency_ms, tokens = _latency_ms(run), run.output_tokens
    measured = run.output_tok_s or (run.done_per_s * tokens if run.done_per_s and tokens else None)
    if kind == LoadKind.MAX_LOAD or not (latency_ms and tokens and concurrency and measured):
        return ""
    expected = concurrency * tokens / units.ms_to_s(latency_ms)
    if abs(measured / expected - 1) <= BALANCE_TOLERANCE:
        return ""
    return (
        f"{measured:.4g} output tokens/s where {concurrency:.1f} requests in flight and these times make"
        f" {expected:.4g}: {_ramp(run, concurrency)}"
    )


def _ramp(run: Run, clients: float) -> str:
    """What most likely spoilt the means, with the figure that says so."""
    if run.in_flight.running is not None and run.in_flight.cap is None:
        return "the engine's gauges and its histograms are not of one steady time"
    if run.completed and run.completed < WAVES * clients:
        return (
            f"warm-up and drain weigh on it ({run.completed:.0f} requests, fewer than {WAVES} per client): send more"
            " requests"
        )
    return "warm-up, drain or a pause of the client weighs on it, or its figures are of different windows"
