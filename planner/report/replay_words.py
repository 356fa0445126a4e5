"""A replay in words that the workbook and the page share."""

from __future__ import annotations

from planner.replay.record import PoolRecord, ReplayRecord

NOT_REPLAYED = "not replayed"
FEWER = "With one replica fewer in each pool, one pool at a time, at the planning rate all the time"
MEANS = "A fleet by the rule of means: mean load and a factor of headroom, at the planning rate all the time"
DRILLS = "Failure drills: what clients see when something goes wrong, and when it is over"
EDGES = {"": "the plan's own", "upper": "upper (slow)", "middle": "middle (as predicted)", "lower": "lower (fast)"}


def verdict(record: ReplayRecord | None) -> str:
    """What came out, in a few words."""
    if record is None:
        return NOT_REPLAYED
    if record.passed:
        return "passed: no limit is refuted"
    return f"refuted: {len(record.refuted)} of {sum(len(pool.promises) for pool in record.pools)} limits"


def how_to_read(record: ReplayRecord) -> str:
    """What an interval says, and when a limit is refuted."""
    return (
        f"Observed is the mean of the repeats. With {record.confidence:.0%} confidence the true mean lies within the "
        "interval; a limit is refuted only where the whole interval lies beyond it."
    )


def what_was_asked(record: ReplayRecord) -> tuple[tuple[str, str | int | float], ...]:
    """Item and value of every option of the replay."""
    when = "kept all the time" if record.sustained else "in the busiest ten minutes of each repeat, as planned"
    lost = ", ".join(f"{count} of {pool}" for pool, count in record.lost)
    return (
        ("Repeats", record.repeats),
        ("Hours of a repeat", record.hours),
        ("Planning rate", when),
        ("Factor on the rate", record.stress),
        ("Speed band, edge", EDGES.get(record.edge, record.edge)),
        ("Factor on step times", record.slower),
        ("Replicas lost", lost or "none"),
        ("Stretch of each log", f"{record.part} (shares of its time)"),
        ("Seed", record.seed),
        ("Confidence", record.confidence),
        *((f"Log of {one.model}", f"{one.file}, at {one.rate_per_s:,.2f} requests/s") for one in record.sources),
        *((f"Log of {name}", "none: not replayed") for name in record.not_replayed),
    )


def notes(pools: tuple[PoolRecord, ...]) -> str:
    """Notes of pools, each once."""
    return "; ".join(dict.fromkeys(f"{pool.pool}: {note}" for pool in pools for note in pool.notes))
