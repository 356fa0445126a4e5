"""`planner traffic`: every command from the keyboard, and every kind of bad input."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from planner.traffic.canonical import read, write
from tests.traffic.handmade import canonical_of, window_row

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def traffic(planner: Run) -> Run:
    return partial(planner, "traffic")


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    """Two regions of an hour each, side by side."""
    for name, model in (("east", "chat"), ("west", "chat-west")):
        rows = [(model, minute, 100 + 7 * minute, 20) for minute in range(60) for _ in range(3)]
        burst = [window_row(model, 1.0, 3600, 0.05, 2.0, 4), window_row(model, 60.0, 60, 3.0, 2.0, 4)]
        write(canonical_of(rows, source=name, burst=burst), tmp_path / name)
    return tmp_path


def test_merge(traffic: Run, folders: Path) -> None:
    code, out, err = traffic(
        "merge", str(folders / "east"), str(folders / "west"), "-o", str(folders / "all"), "--rename", "chat-west=chat"
    )
    assert (code, err) == (0, "")
    assert "chat: 360 requests observed, 0.1 arrivals per s" in out
    assert "taken as independent" in out
    found = read(folders / "all")
    assert found.manifest.models == {"chat": 360}
    assert found.rates["n"].to_pylist() == [6] * 60


def test_scale(traffic: Run, folders: Path) -> None:
    east, new = str(folders / "east"), folders / "new"
    code, out, err = traffic("scale", east, "-o", str(new), "--model", "chat=12/s", "--output-factor", "2", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["models"]["chat"]["arrivals_per_s"] == pytest.approx(12)
    assert sum(read(new).lengths["sum_output"].to_pylist()) == 180 * 40
    code, _, _ = traffic("scale", east, "-o", str(new), "--rate-factor", "1.5", "--burst", "amplify")
    assert code == 0
    assert read(new).burst["idc"].to_pylist()[0] == 2.5
    code, out, _ = traffic("scale", east, "-o", str(new), "--rate-per-s", "0.1", "--only", "chat", "--json")
    assert code == 0
    assert json.loads(out)["models"]["chat"]["arrivals_per_s"] == pytest.approx(0.1)


def test_scale_to_sums_and_whole(traffic: Run, folders: Path) -> None:
    sampled = canonical_of([("chat", m, 10, 5) for m in range(60)], sampling_fraction=0.5)
    write(sampled, folders / "sampled")
    code, out, _ = traffic("scale", str(folders / "sampled"), "-o", str(folders / "whole"), "--unsample", "--json")
    assert code == 0
    assert json.loads(out)["models"]["chat"]["arrivals_per_s"] == pytest.approx(120 / 3600)
    code, _, err = traffic("scale", str(folders / "east"), "-o", str(folders / "x"), "--to", str(folders / "west"))
    assert code == 2
    assert "sums" in err


def test_split(traffic: Run, folders: Path) -> None:
    east = str(folders / "east")
    code, out, err = traffic("split", east, "-o", str(folders / "length"), "--by-length", "256")
    assert (code, err) == (0, "")
    assert read(folders / "length").models() == ("chat/long", "chat/short")
    assert "chat/short: 69 requests observed" in out
    code, _, _ = traffic("split", east, "-o", str(folders / "share"), "--share", "a=0.7,b=0.3")
    assert code == 0
    assert read(folders / "share").models() == ("chat/a", "chat/b")
    code, out, _ = traffic("split", east, "-o", str(folders / "days"), "--by-day", "--json")
    assert code == 0
    assert list(json.loads(out)["parts"]) == ["2026-01-05"]
    assert read(folders / "days" / "2026-01-05").manifest.models == {"chat": 180}
    code, out, _ = traffic("split", east, "-o", str(folders / "late"), "--since", "2026-01-05T01:30+01:00", "--json")
    assert code == 0
    assert json.loads(out)["window_start"] == "2026-01-05T00:30:00Z"
    code, _, err = traffic("split", east, "-o", str(folders / "days"), "--by-week")
    assert code == 2
    assert "is not empty" in err


def test_show(traffic: Run, folders: Path) -> None:
    code, out, err = traffic("show", str(folders / "east"))
    assert (code, err) == (0, "")
    for words in ("180 rows read", "total tokens, P99.9", "busiest hour", "burst (IDC) at 60 s", "needs at least"):
        assert words in out
    code, out, _ = traffic("show", str(folders / "east"), "--json", "--model", "chat")
    assert code == 0
    found = json.loads(out)
    assert found["models"]["chat"]["lengths_tokens"]["prompt"]["max"] == 513
    assert found["window_end"] == "2026-01-05T01:00:00Z"


def test_show_draws_the_same_files_twice(traffic: Run, folders: Path) -> None:
    taken = []
    for name in ("one", "two"):
        code, out, err = traffic("show", str(folders / "east"), "--plots", str(folders / name))
        assert (code, err) == (0, "")
        assert "traffic.html" in out
        taken.append({path.name: path.read_bytes() for path in sorted((folders / name).iterdir())})
    assert taken[0] == taken[1]
    assert {"lengths.png", "lengths.svg", "shares.png", "rates.png", "bursts.png", "traffic.html"} <= set(taken[0])


BAD: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("merge", "{gone}", "{east}", "{here}", "-o", "{new}"), ("no such folder", "no canonical folder")),
    (("merge", "{east}", "{east}", "-o", "{new}"), ("given twice",)),
    (("merge", "{east}", "-o", "{new}", "--rename", "nobody=x"), ("holds a model 'nobody'", "They hold: chat")),
    (("merge", "{east}", "-o", "{new}", "--rename", "chat"), ("not of the form",)),
    (("merge", "{east}", "-o", "{here}"), ("holds other files",)),
    (("scale", "{east}", "-o", "{new}"), ("nothing to scale",)),
    (("scale", "{east}", "-o", "{new}", "--unsample", "--rate-factor", "2"), ("no other factor",)),
    (("scale", "{east}", "-o", "{new}", "--model", "chat=fast", "--only", "zed"), ("no model 'zed'",)),
    (("scale", "{east}", "-o", "{new}", "--model", "chat=fast"), ("no factor and no rate",)),
    (("scale", "{east}", "-o", "{new}", "--model", "chat=-1/s"), ("no rate per second",)),
    (("scale", "{east}", "-o", "{new}", "--rate-factor", "nan"), ("rate factor",)),
    (("scale", "{east}", "-o", "{new}", "--prompt-factor", "1e5"), ("above 10,000,000",)),
    (("scale", "{east}", "-o", "{new}", "--rate-per-s", "3", "--rate-factor", "2"), ("cannot be used with",)),
    (("split", "{east}", "-o", "{new}"), ("needs a way to split",)),
    (("split", "{east}", "-o", "{new}", "--by-day", "--by-week"), ("two ways",)),
    (("split", "{east}", "-o", "{new}", "--by-day", "--model", "chat"), ("no effect",)),
    (("split", "{east}", "-o", "{new}", "--by-length", "many"), ("no token counts",)),
    (("split", "{east}", "-o", "{new}", "--share", "a=much,b=0.3"), ("no number",)),
    (("split", "{east}", "-o", "{new}", "--since", "noon", "--until", "9"), ("'noon' is no time", "'9' is no time")),
    (("show", "{gone}"), ("no such folder",)),
    (("show", "{east}", "--model", "zed", "--model", "z"), ("no model 'zed'", "no model 'z'")),
    (("show", "{east}", "--plots", "{east}/manifest.json"), ("is a file",)),
)


@pytest.mark.parametrize(("arguments", "words"), BAD)
def test_bad_input_is_named_and_nothing_is_written(
    traffic: Run, folders: Path, arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    places = {"east": folders / "east", "gone": folders / "gone", "new": folders / "new", "here": folders}
    before = sorted(folders.iterdir())
    code, out, err = traffic(*(part.format(**places) for part in arguments))
    assert (code, out) == (2, "")
    for word in words:
        assert word in err
    assert "Traceback" not in err
    assert sorted(folders.iterdir()) == before


def test_a_damaged_folder_is_named(traffic: Run, folders: Path) -> None:
    (folders / "east" / "rates.parquet").write_bytes(b"PAR1")
    (folders / "west" / "manifest.json").write_text("{")
    code, _, err = traffic("merge", str(folders / "east"), str(folders / "west"), "-o", str(folders / "new"))
    assert code == 2
    assert "rates.parquet" in err
    assert "is not JSON" in err
    assert not (folders / "new").exists()


def test_a_model_name_cannot_act_on_the_terminal(traffic: Run, tmp_path: Path) -> None:
    write(canonical_of([("[red]\x1b[31mevil", 0, 5, 5)]), tmp_path / "evil")
    for command in (("show", str(tmp_path / "evil")), ("merge", str(tmp_path / "evil"), "-o", str(tmp_path / "again"))):
        code, out, _ = traffic(*command)
        assert code == 0
        assert "\x1b" not in out
        assert "[red]?[31mevil" in out
