from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import numpy as np
import pytest

from planner.errors import InputError
from planner.traffic import canonical
from planner.traffic.burstiness import idc_at, unmeasured
from planner.traffic.ingest import Order, ingest
from planner.traffic.law import length_at_tail, truncate
from planner.traffic.source import load_traffic, to_traffic
from planner.traffic.types import Traffic

CASES = [
    ("AzureLLMInferenceTrace_code.csv", "code_rows"),
    ("AzureLLMInferenceTrace_conv.csv", "conv_rows"),
    ("mooncake_conversation_head2500.jsonl", "mooncake_rows"),
]


@pytest.mark.parametrize(("file", "rows"), CASES)
def test_sums_and_maxima_equal_the_raw_rows(
    file: str, rows: str, examples: Path, request: pytest.FixtureRequest
) -> None:
    raw = request.getfixturevalue(rows)
    prompt, output = raw[:, 0], raw[:, 1]
    law = load_traffic(examples / file, name="m").law
    assert law.requests == len(raw)
    assert law.sum_prompt.sum() == prompt.sum()
    assert law.sum_output.sum() == output.sum()
    assert law.mean_prompt == prompt.mean()
    assert law.sum_pp.sum() == (prompt**2).sum()
    assert law.sum_po.sum() == (prompt * output).sum()
    assert law.sum_oo.sum() == (output**2).sum()
    assert law.max_prompt.max() == prompt.max()
    assert law.max_output.max() == output.max()
    assert law.max_total.max() == (prompt + output).max()


@pytest.mark.parametrize(("file", "rows"), CASES)
def test_tail_is_the_thousand_largest_totals_with_ties(
    file: str, rows: str, examples: Path, request: pytest.FixtureRequest
) -> None:
    raw = request.getfixturevalue(rows)
    totals = np.sort(raw.sum(axis=1))[::-1]
    expected = totals[totals >= totals[999]]
    tail = load_traffic(examples / file, name="m").tail
    assert np.repeat(tail.total, tail.n).tolist() == expected.tolist()
    pairs = {tuple(pair) for pair in raw.tolist()}
    assert all(pair in pairs for pair in zip(tail.prompt.tolist(), tail.output.tolist(), strict=True))


def test_minutes_and_window_hold_every_arrival(examples: Path) -> None:
    traffic = load_traffic(examples / "AzureLLMInferenceTrace_conv.csv", name="m")
    assert traffic.minute_counts.sum() == traffic.law.requests == 19_366
    assert traffic.window_s == pytest.approx(3501.72, abs=0.01)
    assert traffic.observed_rate_per_s == traffic.offered_rate_per_s


def test_caps_are_found_where_lengths_were_cut(examples: Path) -> None:
    code = load_traffic(examples / "AzureLLMInferenceTrace_code.csv", name="m")
    conv = load_traffic(examples / "AzureLLMInferenceTrace_conv.csv", name="m")
    assert [(c.side, c.tokens, c.requests) for c in code.caps] == [("prompt", 7437, 355)]
    assert code.caps[0].share == pytest.approx(0.0403, abs=1e-4)
    assert [(c.side, c.tokens, c.requests) for c in conv.caps] == [("output", 1000, 11)]


def test_burst_matches_counts_made_by_hand(examples: Path) -> None:
    import csv
    from datetime import datetime

    with (examples / "AzureLLMInferenceTrace_code.csv").open() as stream:
        stamps = [datetime.fromisoformat(r["TIMESTAMP"][:26]) for r in csv.DictReader(stream)]
    seconds = np.array([int((s - stamps[0]).total_seconds()) for s in stamps])
    burst = load_traffic(examples / "AzureLLMInferenceTrace_code.csv", name="m").burst
    for scale in (1, 5, 15, 60, 300):
        bins = 3435 // scale
        counts = np.bincount(seconds // scale, minlength=bins)[:bins]
        at = burst.scale_s.tolist().index(scale)
        assert burst.mean_n[at] == pytest.approx(counts.mean())
        assert burst.var_n[at] == pytest.approx(counts.var(ddof=1))
        assert burst.max_n[at] == counts.max()
    assert burst.scale_s.tolist() == [1, 5, 15, 60, 300, 3600]
    assert not burst.resolution_ok[-1], "one hour says nothing about hours"


def test_a_poisson_stream_has_an_idc_of_one(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    stamps = np.sort(rng.integers(0, 7200_000, 30_000))
    path = tmp_path / "poisson.jsonl"
    lengths = '"input_length": 9, "output_length": 1, "hash_ids": []'
    path.write_text("".join(f'{{"timestamp": {t}, {lengths}}}\n' for t in stamps))
    burst = load_traffic(path, name="m").burst
    for scale in (1, 5, 15, 60):
        assert idc_at(burst, scale) == pytest.approx(1.0, abs=0.2)


def test_mooncake_stamps_are_too_coarse_for_small_scales(examples: Path) -> None:
    found = ingest(Order((examples / "mooncake_conversation_head2500.jsonl",)))
    assert found.manifest.ts_resolution_ms == pytest.approx(3000, abs=2)
    burst = load_traffic(examples / "mooncake_conversation_head2500.jsonl", name="m").burst
    good = dict(zip(burst.scale_s.tolist(), burst.resolution_ok.tolist(), strict=True))
    assert good == {1: False, 5: False, 15: False, 60: True, 300: False, 3600: False}


def test_whole_second_stamps_count_at_one_second(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    rng = np.random.default_rng(1)
    seconds = np.sort(rng.integers(0, 3600, 5000))
    path.write_text("timestamp,prompt,output\n" + "".join(f"{1_700_000_000 + s},9,1\n" for s in seconds))
    burst = load_traffic(path, name="m").burst
    assert burst.resolution_ok[:4].all()
    assert idc_at(burst, 1) == pytest.approx(1.0, abs=0.1)


def _same(a: Traffic, b: Traffic) -> None:
    for part in ("law", "tail", "burst"):
        for name, value in dataclasses.asdict(getattr(a, part)).items():
            np.testing.assert_array_equal(value, getattr(getattr(b, part), name), err_msg=name)
    np.testing.assert_array_equal(a.minute_counts, b.minute_counts)
    assert (a.model, a.window_s, a.caps, a.notes) == (b.model, b.window_s, b.caps, b.notes)


def test_canonical_folder_gives_the_same_traffic_as_the_raw_log(examples: Path, tmp_path: Path) -> None:
    raw = examples / "AzureLLMInferenceTrace_code.csv"
    canonical.write(ingest(Order((raw,))), tmp_path / "c")
    _same(load_traffic(raw, name="m"), load_traffic(tmp_path / "c", name="m"))


def test_bytes_repeat(examples: Path, tmp_path: Path) -> None:
    options = {"window_start_s": 7200, "window_s": 3600, "seed": 5}
    order = Order(tuple(sorted((examples / "servegen-deepseek-r1").glob("*_trace.csv.gz"))), options=options)
    for name in ("a", "b"):
        canonical.write(ingest(order), tmp_path / name)
    names = sorted(p.name for p in (tmp_path / "a").iterdir())
    assert names == ["burst.parquet", "lengths.parquet", "manifest.json", "rates.parquet", "tail.parquet"]
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name


def test_order_of_rows_does_not_matter(examples: Path, tmp_path: Path) -> None:
    header, *rows = (examples / "AzureLLMInferenceTrace_code.csv").read_text().splitlines()
    random.Random(0).shuffle(rows)
    (tmp_path / "shuffled.csv").write_text("\n".join([header, *rows]) + "\n")
    a = ingest(Order((examples / "AzureLLMInferenceTrace_code.csv",)))
    b = ingest(Order((tmp_path / "shuffled.csv",)))
    for name in canonical.TABLES:
        assert getattr(a, name).equals(getattr(b, name)), name


def test_two_files_are_one_log(examples: Path, tmp_path: Path) -> None:
    header, *rows = (examples / "AzureLLMInferenceTrace_code.csv").read_text().splitlines()
    (tmp_path / "1.csv").write_text("\n".join([header, *rows[:4000]]) + "\n")
    (tmp_path / "2.csv").write_text("\n".join([header, *rows[4000:]]))
    (tmp_path / "README.md").write_text("not a log")
    _same(load_traffic(examples / "AzureLLMInferenceTrace_code.csv", name="m"), load_traffic(tmp_path, name="m"))


def test_peak_cells_are_the_busiest_minutes(examples: Path) -> None:
    found = ingest(Order((examples / "AzureLLMInferenceTrace_conv.csv",)))
    cells = found.lengths.to_pandas()
    rates = found.rates.to_pandas()
    load = (rates.sum_prompt + rates.sum_output).sort_values(ascending=False)
    busiest = rates.loc[load.index[:3]]
    peak = cells[cells.period == "peak"]
    assert peak.n.sum() == busiest.n.sum()
    assert peak.sum_prompt.sum() == busiest.sum_prompt.sum()


def test_several_models_must_be_chosen_by_name(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    rows = "".join(f"{1_700_000_000 + i},{i + 1},1,{'big' if i % 3 else 'small'}\n" for i in range(600))
    path.write_text("timestamp,prompt,output,model\n" + rows)
    with pytest.raises(InputError, match=r"several models.*big, small"):
        load_traffic(path, name="m")
    with pytest.raises(InputError, match=r"no row remains: 600 of 600 dropped as 'other model'"):
        load_traffic(path, model="bigg", name="m")
    small = load_traffic(path, model="small", name="m")
    assert (small.law.requests, small.window_s) == (200, 600.0)
    canonical.write(ingest(Order((path,))), tmp_path / "c")
    with pytest.raises(InputError, match="Did you mean 'small'"):
        load_traffic(tmp_path / "c", model="smal", name="m")
    _same(dataclasses.replace(small, notes=()), load_traffic(tmp_path / "c", model="small", name="m"))


@pytest.mark.parametrize(
    ("files", "replaced"),
    [
        ({"manifest.json": "{}"}, False),
        ({"manifest.json": '{"name": "a web page"}', "index.html": ""}, False),
        ({"manifest.json": '{"schema_version": 1}', "notes.txt": ""}, False),
        ({"manifest.json": '{"schema_version": 1}'}, True),
        ({"manifest.json": "damaged", "lengths.parquet": "", ".DS_Store": ""}, True),
    ],
)
def test_only_distributions_are_replaced(files: dict[str, str], replaced: bool, examples: Path, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    new = ingest(Order((examples / "AzureLLMInferenceTrace_code.csv",)))
    if replaced:
        canonical.write(new, tmp_path)
        assert canonical.read(tmp_path).manifest == new.manifest
    else:
        with pytest.raises(InputError, match="holds other files"):
            canonical.write(new, tmp_path)
        assert {path.name: path.read_text() for path in tmp_path.iterdir()} == files


def test_damaged_canonical_folders_are_refused(examples: Path, tmp_path: Path) -> None:
    folder = tmp_path / "c"
    canonical.write(ingest(Order((examples / "AzureLLMInferenceTrace_code.csv",))), folder)
    manifest = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text(manifest.replace('"schema_version": 2', '"schema_version": 99'))
    with pytest.raises(InputError, match=r"schema version 99.*A later planner wrote it: update this one"):
        load_traffic(folder, name="m")
    for older in ("1", "null", '"2"'):
        (folder / "manifest.json").write_text(
            manifest.replace('"schema_version": 2', f'"schema_version": {older}').replace('"counts"', '"row_counts"')
        )
        with pytest.raises(
            InputError, match=r"this planner reads 2. Run planner ingest again on the raw logs"
        ) as caught:
            load_traffic(folder, name="m")
        assert len(caught.value.problems) == 1
    (folder / "manifest.json").write_text(manifest)
    (folder / "tail.parquet").write_bytes(b"PAR1 nothing")
    (folder / "rates.parquet").unlink()
    with pytest.raises(InputError) as caught:
        load_traffic(folder, name="m")
    assert {Path(p.where).name for p in caught.value.problems} == {"tail.parquet", "rates.parquet"}


def test_an_interrupted_write_leaves_the_old_folder_and_nothing_else(
    examples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = ingest(Order((examples / "AzureLLMInferenceTrace_code.csv",)))
    canonical.write(found, tmp_path / "c")
    before = {p.name: p.read_bytes() for p in (tmp_path / "c").iterdir()}
    written = []

    def interrupt(table: object, path: Path, **_: object) -> None:
        path.write_bytes(b"half")
        written.append(path)
        if len(written) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(canonical.pq, "write_table", interrupt)
    with pytest.raises(KeyboardInterrupt):
        canonical.write(found, tmp_path / "c")
    assert [p.name for p in tmp_path.iterdir()] == ["c"]
    assert {p.name: p.read_bytes() for p in (tmp_path / "c").iterdir()} == before


def test_other_peoples_files_are_not_overwritten(examples: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    found = ingest(Order((examples / "AzureLLMInferenceTrace_code.csv",)))
    with pytest.raises(InputError, match="holds other files"):
        canonical.write(found, tmp_path / "mine")
    with pytest.raises(InputError, match="is a file"):
        canonical.write(found, tmp_path / "mine" / "thesis.txt")
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


@pytest.fixture(scope="module")
def folder(examples: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A canonical folder that no test changes."""
    path = tmp_path_factory.mktemp("canonical") / "c"
    canonical.write(ingest(Order((examples / "AzureLLMInferenceTrace_code.csv",))), path)
    return path


def test_a_symlink_loop_or_an_impossible_path_is_bad_input(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for path in (loop, loop / "log.csv"):
        with pytest.raises(InputError, match=r"cannot be read: .*link"):
            load_traffic(path, name="m")
    with pytest.raises(InputError, match="null character"):
        load_traffic(tmp_path / "a\0b", name="m")
    with pytest.raises(InputError, match=r"cannot be read: .*long"):
        load_traffic(tmp_path / ("x" * 300), name="m")


@pytest.mark.parametrize("method", ["read_text", "is_file", "is_dir", "open"])
def test_a_folder_that_may_not_be_read_is_bad_input(method: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a user without the right; tests may run as root, who has every right."""

    def refuse(path: Path, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, method, refuse)
    with pytest.raises(InputError, match=r"cannot be read: Permission denied\. Ask for the right"):
        load_traffic(folder, name="m")


def test_a_disk_error_while_writing_names_the_folder_and_leaves_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(table: object, path: Path, **_: object) -> None:
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    found = canonical.read(folder)
    monkeypatch.setattr(canonical.pq, "write_table", full)
    with pytest.raises(InputError, match="c: cannot be written: No space left on device"):
        canonical.write(found, tmp_path / "c")
    assert list(tmp_path.iterdir()) == []


def test_a_temporary_folder_that_is_full_is_bad_input(examples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "/tmp/scratch")

    monkeypatch.setattr("planner.traffic.engine.tempfile.TemporaryDirectory", full)
    with pytest.raises(InputError, match="/tmp/scratch: cannot be read: No space left"):
        load_traffic(examples / "AzureLLMInferenceTrace_code.csv", name="m")


def test_a_link_to_an_output_folder_stays_a_link(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    canonical.write(canonical.read(folder), tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert canonical.is_canonical(tmp_path / "real")


def test_a_manifest_without_its_entries_is_refused(folder: Path, tmp_path: Path) -> None:
    canonical.write(canonical.read(folder), tmp_path / "c")
    for text, message in (('{"schema_version": 2}', "field window_end_us"), ("[" * 100_000, "is not JSON")):
        (tmp_path / "c" / "manifest.json").write_text(text)
        with pytest.raises(InputError, match=message):
            load_traffic(tmp_path / "c", name="m")


def test_a_format_is_known_and_not_given_for_a_canonical_folder(folder: Path, tmp_path: Path) -> None:
    for path in (folder, tmp_path / "none.csv"):
        with pytest.raises(InputError, match="'foo' is not a log format"):
            load_traffic(path, log_format="foo", name="m")
    with pytest.raises(InputError) as caught:
        load_traffic(folder, log_format="azure", options={"seed": 1}, name="m")
    assert "a canonical folder has no format (given: azure). Leave format out" in str(caught.value)
    assert "field seed: this option does nothing" in str(caught.value)
    assert load_traffic(folder, log_format="auto", name="m").law.requests == 8819


def test_a_stated_dispersion_holds_at_every_scale(folder: Path, examples: Path) -> None:
    for path in (folder, examples / "AzureLLMInferenceTrace_code.csv"):
        stated = load_traffic(path, options={"idc": 3}, name="m")
        measured = load_traffic(path, name="m")
        assert [idc_at(stated.burst, s) for s in (0.1, 1, 60, 3600, 1e6)] == [3.0] * 5
        assert stated.burst.resolution_ok.all()
        assert unmeasured(stated.burst) == {}
        assert stated.notes == ("index of dispersion stated: 3",)
        np.testing.assert_array_equal(stated.burst.mean_n, measured.burst.mean_n)
        np.testing.assert_array_equal(stated.burst.var_n, 3 * measured.burst.mean_n)
    drawn = load_traffic(examples / "servegen-deepseek-r1", options={"window_s": 600, "idc": "1.5"}, name="m")
    assert idc_at(drawn.burst, 5) == 1.5
    assert drawn.notes[-1] == "index of dispersion stated: 1.5"


@pytest.mark.parametrize("value", [0.99, 0, -3, "nan", "inf", float("inf"), "three", ""])
def test_a_dispersion_below_one_or_without_end_is_refused(value: str | float, folder: Path) -> None:
    with pytest.raises(InputError, match=r"field idc: .* is no index of dispersion"):
        load_traffic(folder, options={"idc": value}, name="m")


def test_a_log_too_short_for_any_burst_says_how_to_state_one(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("timestamp,prompt,output\n" + "".join(f"{1_700_000_000 + 60 * i},9,1\n" for i in range(5)))
    traffic = load_traffic(path, name="m")
    with pytest.raises(InputError, match=r"traffic.options = \{idc = 3\}"):
        idc_at(traffic.burst, 5)
    assert idc_at(load_traffic(path, options={"idc": 2.5}, name="m").burst, 5) == 2.5


def _plain(path: Path, rows: list[tuple[float, int, int]]) -> Traffic:
    path.write_text("timestamp,prompt,output\n" + "".join(f"{t},{p},{o}\n" for t, p, o in rows))
    return load_traffic(path, name="m")


START = 1_700_000_000.0


@pytest.mark.parametrize(
    "rows",
    [
        [(START, 500, 20)],
        [(START, 500, 20)] * 50,
        [(START + 60 * (i // 10), 500, 20) for i in range(200)],
        [(START + i, 500, 20) for i in range(200)],
        [(START + i, 500 + i, 0) for i in range(200)],
        [(START + i, 1, 0) for i in range(200)],
    ],
    ids=["single", "one stamp", "whole minutes", "all alike", "no output", "least"],
)
def test_degenerate_logs_end_cleanly(rows: list[tuple[float, int, int]], tmp_path: Path) -> None:
    traffic = _plain(tmp_path / "log.csv", rows)
    assert traffic.law.requests == traffic.minute_counts.sum() == len(rows)
    assert traffic.law.mean_output == np.mean([o for _, _, o in rows])
    assert traffic.window_s >= 60
    longest = max(p + o for _, p, o in rows)
    assert length_at_tail(traffic, 0.0) == longest
    assert truncate(traffic, longest).requests == len(rows)
    assert traffic.caps == (), "nothing was cut"
    assert np.isfinite(traffic.burst.idc[traffic.burst.resolution_ok]).all()
    assert sum(map(len, unmeasured(traffic.burst).values())) == (~traffic.burst.resolution_ok).sum()


def test_a_cap_needs_shorter_lengths_below_it(tmp_path: Path) -> None:
    alike = [(START + i, 4096, 7) for i in range(1000)]
    assert _plain(tmp_path / "alike.csv", alike).caps == ()
    cut = _plain(tmp_path / "cut.csv", [*alike, (START, 100, 7)]).caps
    assert [(c.side, c.tokens, c.requests) for c in cut] == [("prompt", 4096, 1000)]


def test_a_sampled_log_is_scaled_up_to_all_requests(examples: Path) -> None:
    """Counts over p, and IDC − 1 over p: a random sample of a share p shows only that much of a burst."""
    whole = ingest(Order(files=(examples / "AzureLLMInferenceTrace_conv.csv",)))
    plain = to_traffic(whole, model="", name="m", where=examples, sha256="")
    thinned = dataclasses.replace(whole, manifest=whole.manifest.model_copy(update={"sampling_fraction": 0.25}))
    sampled = to_traffic(thinned, model="", name="m", where=examples, sha256="")
    assert sampled.offered_rate_per_s == pytest.approx(4 * plain.offered_rate_per_s)
    assert sampled.observed_rate_per_s == pytest.approx(4 * plain.observed_rate_per_s)
    assert sampled.law.requests == plain.law.requests
    good = plain.burst.resolution_ok
    np.testing.assert_allclose(sampled.burst.idc[good] - 1, 4 * (plain.burst.idc[good] - 1))
    np.testing.assert_allclose(sampled.burst.mean_n, 4 * plain.burst.mean_n)
