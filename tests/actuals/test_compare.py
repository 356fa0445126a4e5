"""Every figure by hand on small logs, and what cannot be told said."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path

import pytest

from planner.actuals import store as stores
from planner.actuals.assign import split
from planner.actuals.compare import actuals_of
from planner.actuals.logs import HowToRead
from planner.actuals.words import change, growth, verdict
from planner.errors import InputError
from planner.plan import FleetPlan
from planner.study import Actuals, ModelActual
from planner.traffic.canonical import write
from planner.traffic.ingest import Order, ingest
from tests.actuals.plans import Spec, plan_of
from tests.traffic.handmade import START_US, canonical_of

MONDAY, FRIDAY = dt.date(2026, 1, 5), dt.date(2026, 1, 9)
Row = tuple[str, int, int, str]
"""Time, prompt, output, model."""
ONE = Spec("m", "m", (0.01,), (2,), planning=(0.02,), prompt=100, output=50, stated=0.008, growth=1.25)


def log(path: Path, rows: Sequence[Row]) -> Path:
    lines = ["timestamp,prompt,output,model", *(f"2026-01-0{when}Z,{p},{o},{model}" for when, p, o, model in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def compare(plan: FleetPlan, *logs: str | Path, how: HowToRead | None = None, until_us: int | None = None) -> Actuals:
    return actuals_of(plan, [split(str(text), plan) for text in logs], how or HowToRead(), until_us)


def only(found: Actuals) -> ModelActual:
    (model,) = found.models
    return model


def every(seconds: int, count: int, prompt: int = 100, output: int = 50, day: int = 5, model: str = "m") -> list[Row]:
    """Requests at a fixed distance from 10:00 on."""
    start = dt.datetime(2026, 1, day, 10)
    times = [start + dt.timedelta(seconds=n * seconds) for n in range(count)]
    return [(f"{at:%d}T{at:%H:%M:%S}"[1:], prompt, output, model) for at in times]


def test_every_figure(tmp_path: Path) -> None:
    """361 requests 10 s apart: 10:00:00 to 11:00:10 (the stamps show a clock of 10 s), 3610 s.

    Planned: 0.01/s x 3610 s = 36.1 requests of 100 + 50 tokens. The last 36 requests are of 5000 tokens and refused.
    Money: 1 reserved instance at 20 and 2 running at 40 USD/h: 100 USD/h. Peak: 60 requests in ten minutes, 0.1/s.
    """
    rows = every(10, 361)
    rows[-36:] = [(when, 4000, 1000, model) for when, _, _, model in rows[-36:]]
    found = only(compare(plan_of([ONE], MONDAY, FRIDAY), log(tmp_path / "a.csv", rows)))
    assert found.hours == pytest.approx(3610 / 3600)
    assert found.planned_requests == pytest.approx(36.1)
    assert found.actual_requests == 361
    assert found.planned_input_mtok == pytest.approx(36.1e-4)
    assert found.actual_input_mtok == pytest.approx((325 * 100 + 36 * 4000) / 1e6)
    assert found.planned_output_mtok == pytest.approx(36.1 * 50e-6)
    assert found.actual_output_mtok == pytest.approx((325 * 50 + 36 * 1000) / 1e6)
    assert found.planned_peak_per_s == pytest.approx(0.02)
    assert found.actual_peak_per_s == pytest.approx(0.1)
    assert found.planned_refused_share == 0
    assert found.actual_refused_share == pytest.approx(36 / 361)
    assert (found.allowed_overflow, found.actual_overflow) == (0.01, 0.0)
    usd = 100 * 3610 / 3600
    assert found.planned_usd == pytest.approx(usd)
    assert found.planned_usd_per_mtok == pytest.approx(usd / (36.1 * 150e-6))
    assert found.actual_usd_per_mtok == pytest.approx(usd / (325 * 150e-6))
    assert found.growth == pytest.approx(1.25 * 361 / 36.1)
    assert found.mean_rate_per_s == pytest.approx(0.008 * 1.25 * 361 / 36.1)


def test_overflow_by_hand(tmp_path: Path) -> None:
    """A pool of 400 tokens a replica; two replicas in turn; TTFT 1 s, 10 tokens/s; 300 + 100 tokens, 11 s a request.

    Every 10 s a request, every 20 s one on each replica: never two at once, at most 400 tokens, which fit. With 5 s,
    one every 10 s on a replica: they overlap for 1 s of each 10 s, 300 + nearly 400 tokens: over.
    """
    spec = Spec("m", "m", (0.1,), (2,), prompt=300, output=100, pool_tokens=400, ttft_s=1.0, decode_per_s=10.0)
    plan = plan_of([spec], MONDAY, FRIDAY)
    assert only(compare(plan, log(tmp_path / "a.csv", every(10, 100, 300, 100)))).actual_overflow == 0
    found = only(compare(plan, log(tmp_path / "b.csv", every(5, 200, 300, 100))))
    # 1000 s on two replicas; from its second request on, each of the 100 a replica meets its predecessor for 1 s.
    assert found.actual_overflow == pytest.approx(2 * 99 / (2 * 1000))
    assert "175% of the pool" in found.note
    assert verdict(found).endswith("overflow 9.90% where only 1.00% was allowed")


def test_what_a_request_holds_beside_its_tokens(tmp_path: Path) -> None:
    """Half of the pool: a request of 100 + 50 tokens and 60 more never fits into 200; of 49 more it always does."""
    rows = log(tmp_path / "a.csv", every(100, 20))
    for extra, over in ((49.0, False), (60.0, True)):
        spec = Spec("m", "m", (0.01,), (1,), extra=extra, pool_tokens=200, ttft_s=1.0, decode_per_s=50.0)
        found = only(compare(plan_of([spec], MONDAY, FRIDAY), rows))
        assert bool(found.actual_overflow) is over


def test_periods_and_zone(tmp_path: Path) -> None:
    """Mornings of Berlin are 23:00 to 11:00 of UTC: of 10:00 to 12:00 UTC one hour is planned at 1/s, one at 3/s.

    1 replica, then 2: 20 + 40 and 20 + 80 USD.
    """
    spec = Spec("m", "m", (1.0, 3.0), (1, 2), planning=(2.0, 5.0))
    periods = [(48.0, "Mon-Sun 00-12"), (48.0, "Mon-Sun 12-24")]
    plan = plan_of([spec], MONDAY, FRIDAY, periods=periods, zone="Europe/Berlin")
    rows = log(tmp_path / "a.csv", every(10, 720))
    found = only(compare(plan, rows))
    assert found.hours == 2.0
    assert found.planned_requests == pytest.approx(3600 + 3 * 3600)
    assert found.planned_peak_per_s == 5
    assert found.planned_usd == pytest.approx(60 + 100)
    quiet = only(compare(plan, log(tmp_path / "b.csv", every(10, 300))))
    assert quiet.planned_requests == pytest.approx(3000)
    assert "no hour of the plan's busiest period is in the logs" in quiet.note


def test_money_of_the_hours_that_were_seen(tmp_path: Path) -> None:
    """Before noon a has 3 of 4 replicas, after it 1 of 2: an hour of each, then both.

    Reserved 1 x 20 and sunk 96 / 96 h: 21 USD/h; 4 x 40 before noon, 2 x 40 after. Of a: (21 + 160) x 3/4, then
    (21 + 80) x 1/2; of both hours (42 + 240) x 4/6.
    """
    specs = [Spec("a", "a", (0.1, 0.1), (1, 3)), Spec("b", "b", (0.1, 0.1), (1, 1))]
    periods = [(48.0, "Mon-Sun 12-24"), (48.0, "Mon-Sun 00-12")]
    plan = plan_of(specs, MONDAY, FRIDAY, periods=periods, zone="UTC", sunk_usd=96.0)
    rows = [row for row in every(10, 1080, model="a") if row[0] >= "5T11"]
    for name, mine, usd in (
        ("before", rows[:360], 181 * 3 / 4),
        ("after", rows[360:720], 101 / 2),
        ("both", rows[:720], 282 * 4 / 6),
    ):
        found = only(compare(plan, log(tmp_path / f"{name}.csv", mine)))
        assert found.planned_usd == pytest.approx(usd)


def test_a_plan_that_refuses(tmp_path: Path) -> None:
    """Rates that a pool accepts are less than what arrives: the planned peak is of arrivals."""
    spec = Spec("m", "m", (0.1,), (1,), planning=(0.2,), refused=0.2)
    found = only(compare(plan_of([spec], MONDAY, FRIDAY), log(tmp_path / "a.csv", every(10, 360))))
    assert found.planned_peak_per_s == pytest.approx(0.2)
    assert found.planned_refused_share == pytest.approx(0.2)
    assert (found.planned_requests, found.planned_input_mtok) == (pytest.approx(360), pytest.approx(0.036))
    assert found.planned_usd_per_mtok == pytest.approx(60 / (360 * 150e-6 * 0.8))
    assert verdict(found).startswith("peak 50% below plan; USD per Mtok 20% below plan")


def test_the_fullest_pool_speaks_for_the_model(tmp_path: Path) -> None:
    """Requests of 150 tokens for 2 s every 10 s: the short pool never holds them, the long one always does."""
    specs = [
        Spec("m/1", "m", (0.1,), (1,), high=200, share=0.5, pool_tokens=90),
        Spec("m/2", "m", (0.1,), (1,), low=200, share=0.5),
    ]
    rows = [(when, 100 if n % 2 else 300, 50, "m") for n, (when, *_) in enumerate(every(10, 360))]
    found = only(compare(plan_of(specs, MONDAY, FRIDAY), log(tmp_path / "a.csv", rows)))
    assert found.actual_overflow == pytest.approx(0.1)
    assert "167% of the pool of m/1 (more than full 10.00% of the time), 0% of the pool of m/2" in found.note


def test_periods_that_the_plan_does_not_place(tmp_path: Path) -> None:
    """Mean of both: (1 x 24 + 3 x 72) / 96 = 2.5/s; replicas differ, so overflow cannot be told; alike it can."""
    rows = log(tmp_path / "a.csv", every(10, 361))
    for replicas, known in (((1, 2), False), ((2, 2), True)):
        spec = Spec("m", "m", (1.0, 3.0), replicas)
        plan = plan_of([spec], MONDAY, FRIDAY, periods=[(24.0, ""), (72.0, "")])
        found = compare(plan, rows)
        model = only(found)
        assert model.planned_requests == pytest.approx(2.5 * 3610)
        assert (model.actual_overflow is not None) is known
        assert ("replicas differ by period" in model.note) is not known
        assert "does not say which hours" in found.notes[0]


def test_replicas_that_do_not_run(tmp_path: Path) -> None:
    spec = Spec("m", "m", (1.0, 3.0), (0, 1))
    plan = plan_of([spec], MONDAY, FRIDAY, periods=[(48.0, "Mon-Sun 00-12"), (48.0, "Mon-Sun 12-24")], zone="UTC")
    found = only(compare(plan, log(tmp_path / "a.csv", every(10, 1000))))
    assert "720 requests came while the plan runs no replica of m" in found.note
    assert found.actual_overflow == 0
    nowhere = only(compare(plan, log(tmp_path / "b.csv", every(10, 10))))
    assert nowhere.actual_overflow is None


def test_two_models_in_one_log(tmp_path: Path) -> None:
    """By name and by weights; a third model belongs to nothing; money is split by GPU-hours, 1 to 3."""
    specs = [Spec("a", "a", (0.01,), (1,)), Spec("b", "b", (0.02,), (3,), weights="meta/llama")]
    rows = every(10, 100, model="a") + every(10, 200, model="meta/llama") + every(10, 7, model="other")
    found = compare(plan_of(specs, MONDAY, FRIDAY), log(tmp_path / "a.csv", rows))
    assert [(model.model, model.actual_requests) for model in found.models] == [("a", 100), ("b", 200)]
    assert found.models[1].planned_usd == pytest.approx(3 * found.models[0].planned_usd)
    assert sum(model.planned_usd for model in found.models) == pytest.approx(180 * 2000 / 3600)
    assert any("requests of 'other' (7) are of no model" in note for note in found.notes)
    without = compare(plan_of([*specs, Spec("c", "c", (1.0,), (1,))], MONDAY, FRIDAY), tmp_path / "a.csv")
    assert "no log of c" in without.notes


def test_several_logs_of_one_model(tmp_path: Path) -> None:
    """Two gateways at the same time and one on another day: hours are counted once, requests added."""
    plan = plan_of([ONE], MONDAY, FRIDAY)
    paths = [
        log(tmp_path / "a.csv", every(10, 361)),
        log(tmp_path / "b.csv", every(20, 181)),
        log(tmp_path / "c.csv", every(10, 361, day=6)),
    ]
    found = only(compare(plan, *paths))
    assert found.hours == pytest.approx((3620 + 3610) / 3600)
    assert found.actual_requests == 361 + 181 + 361
    assert found.actual_peak_per_s == pytest.approx(0.15)
    assert compare(plan, *paths) == compare(plan, *paths)
    with pytest.raises(InputError, match="given twice"):
        compare(plan, paths[0], f"{paths[0]}=m")


def test_outside_the_horizon(tmp_path: Path) -> None:
    """Tuesday only: of 48 hours of requests from Monday 10:00 on, 14 h before and 10 h after do not count."""
    tuesday = plan_of([ONE], dt.date(2026, 1, 6), dt.date(2026, 1, 7))
    path = log(tmp_path / "a.csv", every(60, 2881))
    found = compare(tuesday, path)
    assert only(found).hours == 24
    assert only(found).actual_requests == 1440
    assert "1,441 requests lie outside" in only(found).note
    assert (found.start, found.end) == (
        dt.datetime(2026, 1, 6, tzinfo=dt.UTC),
        dt.datetime(2026, 1, 7, tzinfo=dt.UTC),
    )
    noon = dt.datetime(2026, 1, 6, 12, tzinfo=dt.UTC)
    assert only(compare(tuesday, path, until_us=int(noon.timestamp()) * 10**6)).actual_requests == 720
    with pytest.raises(InputError, match="outside the plan's horizon"):
        compare(plan_of([ONE], dt.date(2026, 2, 1), dt.date(2026, 2, 2)), path)


def test_what_cannot_be_assigned(tmp_path: Path) -> None:
    specs = [Spec("a", "a", (0.01,), (1,)), Spec("b", "b", (0.02,), (1,))]
    plan = plan_of(specs, MONDAY, FRIDAY)
    strange = log(tmp_path / "x.csv", every(10, 10, model="x") + every(10, 10, model="y"))
    named = log(tmp_path / "z.csv", every(10, 10, model="z"))
    with pytest.raises(InputError, match=r"holds 'x', 'y', and the plan has 'a', 'b'") as error:
        compare(plan, strange, named)
    assert len(error.value.problems) == 2
    with pytest.raises(InputError, match="and none is called 'a'"):
        compare(plan, f"{strange}=a")
    with pytest.raises(InputError, match="no model 'c'"):
        compare(plan, f"{named}=c")
    assert only(compare(plan, f"{named}=b")).model == "b"
    odd = log(tmp_path / "x=1.csv", every(10, 10, model="a"))
    assert only(compare(plan, odd)).model == "a"


def test_the_only_model(tmp_path: Path) -> None:
    path = log(tmp_path / "a.csv", every(10, 10, model="whatever"))
    assert only(compare(plan_of([ONE], MONDAY, FRIDAY), path)).actual_requests == 10


def test_failed_requests(tmp_path: Path) -> None:
    """Arrivals, but without lengths."""
    path = log(tmp_path / "a.csv", [*every(10, 100), ("5T10:05:03", 0, 0, "m")])
    found = only(compare(plan_of([ONE], MONDAY, FRIDAY), path))
    assert found.actual_requests == 101
    assert "1 requests have no lengths" in found.note
    assert found.actual_input_mtok == pytest.approx(0.01)


def test_canonical_folder(tmp_path: Path) -> None:
    """The same log ingested: the same figures, but no overflow; refusals from the exact tail."""
    rows = every(10, 361)
    rows[-36:] = [(when, 4000, 1000, model) for when, _, _, model in rows[-36:]]
    path = log(tmp_path / "a.csv", rows)
    write(ingest(Order(files=(path,))), tmp_path / "folder")
    plan = plan_of([ONE], MONDAY, FRIDAY)
    raw, folder = only(compare(plan, path)), only(compare(plan, tmp_path / "folder"))
    assert folder.actual_overflow is None
    assert "overflow cannot be told: not every log shows single requests" in folder.note
    for name in ModelActual.model_fields:
        if name not in ("actual_overflow", "note"):
            assert getattr(folder, name) == pytest.approx(getattr(raw, name)), name


def test_refusals_of_a_canonical_folder_by_band(tmp_path: Path) -> None:
    """Short prompts may be 200 tokens in all, long ones 4096: 10 of 30 short and 5 of 20 long ones are refused."""
    specs = [
        Spec("m/1", "m", (0.01,), (1,), high=256, share=0.6, max_model_len=200),
        Spec("m/2", "m", (0.01,), (1,), low=256, share=0.4),
    ]
    lengths = [(100, 50)] * 20 + [(100, 150)] * 10 + [(3000, 1096)] * 15 + [(3000, 2000)] * 5
    rows = [(when, p, o, "m") for (when, _, _, _), (p, o) in zip(every(10, 50), lengths, strict=True)]
    path = log(tmp_path / "a.csv", rows)
    write(ingest(Order(files=(path,))), tmp_path / "folder")
    plan = plan_of(specs, MONDAY, FRIDAY)
    for place in (path, tmp_path / "folder"):
        found = only(compare(plan, place))
        assert found.actual_refused_share == pytest.approx(15 / 50)
        fitted = (20 * 150 + 15 * 4096) / 1e6
        assert found.actual_usd_per_mtok * fitted == pytest.approx(found.planned_usd)


def test_tenants(tmp_path: Path) -> None:
    """Live requests may be 200 tokens long, all others 4096; a class that is no tenant of the plan takes turns."""
    specs = [
        Spec("m/fast", "m", (0.01,), (1,), share=0.5, max_model_len=200, tenants=("live",)),
        Spec("m/slow", "m", (0.01,), (1,), share=0.5, tenants=("batch",)),
    ]
    plan = plan_of(specs, MONDAY, FRIDAY)
    path, how = (
        tmp_path / "a.csv",
        HowToRead(mapping={role: role for role in ("timestamp", "prompt", "output", "traffic_class")}),
    )
    times = [when for when, *_ in every(10, 100)]
    for classes, refused, unknown in (
        (("live", "batch"), 0.5, ""),
        (("live", "x"), 0.75, "50 requests name no tenant"),
    ):
        lines = [f"2026-01-0{when}Z,300,50,{classes[n % 2]}" for n, when in enumerate(times)]
        path.write_text("\n".join(["timestamp,prompt,output,traffic_class", *lines]) + "\n", encoding="utf-8")
        found = only(compare(plan, path, how=how))
        assert found.actual_refused_share == pytest.approx(refused, abs=0.011)
        assert unknown in found.note


def test_sampled_and_relative(tmp_path: Path) -> None:
    """A tenth of the requests, in a log that counts from its own start: scaled up and placed."""
    rows = [("m", minute, 100, 50) for minute in range(60)]
    canonical = canonical_of(rows, start_us=0, sampling_fraction=0.1, time_base="start of the log")
    write(canonical, tmp_path / "folder")
    plan = plan_of([ONE], MONDAY, FRIDAY)
    with pytest.raises(InputError, match="it has no dates"):
        compare(plan, tmp_path / "folder")
    found = only(compare(plan, tmp_path / "folder", how=HowToRead(starts_us=START_US + 3_600_000_000)))
    assert (found.hours, found.actual_requests) == (1.0, 600.0)
    assert found.actual_input_mtok == pytest.approx(0.06)
    write(canonical_of(rows), tmp_path / "dated")
    with pytest.raises(InputError, match="every log has dates of its own"):
        compare(plan, tmp_path / "dated", how=HowToRead(starts_us=START_US))


def test_small_parts_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows in any order, written and read in parts of a few rows, or in order of time."""
    spec = Spec("m", "m", (0.1,), (3,), pool_tokens=220, ttft_s=2.0, decode_per_s=2.0)
    plan = plan_of([spec], MONDAY, FRIDAY)
    rows = every(7, 3000)
    path = log(tmp_path / "a.csv", rows[::2] + rows[1::2][::-1])
    whole = compare(plan, path)
    assert 0 < (only(whole).actual_overflow or 0) < 1
    assert only(compare(plan, log(tmp_path / "b.csv", rows))) == only(whole)
    monkeypatch.setattr(stores, "PART_ROWS", 1)
    monkeypatch.setattr(stores, "HELD_ROWS", 10)
    parts = only(compare(plan, path))
    assert parts.actual_overflow == pytest.approx(only(whole).actual_overflow, abs=1e-9)
    assert parts.model_copy(update={"actual_overflow": None}) == only(whole).model_copy(
        update={"actual_overflow": None}
    )


def test_words(tmp_path: Path) -> None:
    found = only(compare(plan_of([ONE], MONDAY, FRIDAY), log(tmp_path / "a.csv", every(100, 37))))
    assert verdict(found) == "peak 50% below plan"
    assert growth(found) == "0.01 requests/s in these hours: x1.25 the 0.008 that the plan states"
    quiet = growth(found.model_copy(update={"mean_rate_per_s": 0.02, "growth": 2.5}))
    assert quiet.startswith(
        "0.01 requests/s in these hours, 0.02 over the horizon by the plan's own week: x2.5 the 0.008"
    )
    assert growth(found.model_copy(update={"mean_rate_per_s": 0.0, "growth": 0.0})) == "no request came"
    same = found.model_copy(update={"actual_peak_per_s": 0.021, "actual_overflow": 0.003})
    assert verdict(same) == "overflow 0.30% where 1.00% was allowed"
    assert verdict(same.model_copy(update={"actual_overflow": 0.0})) == "as planned, within 10 %"
    grown = same.model_copy(update={"actual_requests": 1.22 * same.planned_requests, "planned_refused_share": 0.01})
    assert verdict(grown).startswith("traffic 22% above plan; input per request 18% below plan;")
    assert "5.00% refused as too long where 1.00% was planned" in verdict(
        grown.model_copy(update={"actual_refused_share": 0.05})
    )
    assert (change(3, 2), change(1, 0), change(float("inf"), 1)) == ("+50%", "-", "-")
    unknown = growth(found.model_copy(update={"growth": None}))
    assert unknown == "0.01 requests/s in these hours, in which nothing was planned"
