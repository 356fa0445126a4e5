"""vLLM's metrics on the Azure conversation trace, in every form of export, against the trace itself."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest

from planner.errors import InputError
from planner.traffic import law
from planner.traffic.burstiness import unmeasured
from planner.traffic.canonical import Canonical, read, write
from planner.traffic.ingest import Order, ingest, log_files
from planner.traffic.readers.columns import Alias
from planner.traffic.schema import Coupling, Kind
from planner.traffic.source import load_traffic, to_traffic
from planner.traffic.types import Traffic

from . import engine
from .engine import CONTEXT, MODEL, PREFILL_S, TOKENS_PER_S, Requests, Target

STEP_S = 15.0


@pytest.fixture(scope="module")
def trace(examples: Path) -> Requests:
    return engine.requests_of(examples / "AzureLLMInferenceTrace_conv.csv")


@pytest.fixture(scope="module")
def scrapes(trace: Requests) -> np.ndarray:
    return np.arange(np.floor(trace.done_s[0] / 60) * 60, trace.done_s[-1] + STEP_S, STEP_S)


@pytest.fixture(scope="module")
def pods(trace: Requests) -> list[Target]:
    """Three replicas: one restarts, one has other buckets, one comes later than the others."""
    turn = np.arange(trace.done_s.size) % 3
    late_s = float(trace.done_s[0] + 1200)
    turn[(turn == 2) & (trace.done_s < late_s)] = 0
    restart_s = float(trace.done_s[0] + 1803)
    # Between its last scrape and its restart a server must not finish a request that nobody has seen.
    lost = (turn == 0) & (trace.done_s > np.floor(restart_s / STEP_S) * STEP_S) & (trace.done_s <= restart_s)
    turn[lost] = 1
    return [
        Target({"engine": "0", "pod": "a"}, trace.where(turn == 0), restarts_s=[restart_s]),
        Target({"engine": "0", "pod": "b"}, trace.where(turn == 1), edges=engine.EDGES[:-2]),
        Target({"engine": "0", "pod": "c"}, trace.where(turn == 2), since_s=late_s),
    ]


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory, pods: list[Target], scrapes: np.ndarray) -> Path:
    return engine.write_answer(tmp_path_factory.mktemp("prometheus") / "vllm.json", pods, scrapes)


def ingested(*files: Path, **more: object) -> Canonical:
    options = {"max_model_len": CONTEXT, **more.pop("options", {})}  # type: ignore[dict-item]
    return ingest(Order(files, options=options, **more))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def canonical(answered: Path) -> Canonical:
    return ingested(answered)


def traffic_of(canonical: Canonical, coupling: Coupling | None = None) -> Traffic:
    return to_traffic(canonical, model=MODEL, name=MODEL, where=Path("x"), sha256="", coupling=coupling)


def test_totals_and_means_are_those_of_the_trace(canonical: Canonical, trace: Requests) -> None:
    assert canonical.manifest.kind is Kind.MARGINALS
    assert canonical.manifest.models == {MODEL: trace.done_s.size}
    for coupling in (Coupling.COMONOTONE, Coupling.COUNTERMONOTONE):
        found = traffic_of(canonical, coupling).law
        assert found.requests == trace.done_s.size
        assert found.sum_prompt.sum() == trace.prompt.sum()
        assert found.sum_output.sum() == trace.output.sum()


def test_arrivals_a_minute_are_right_within_one_scrape(
    canonical: Canonical, trace: Requests, scrapes: np.ndarray
) -> None:
    rates = canonical.rates.to_pandas()
    assert rates["n"].sum() == trace.done_s.size
    assert (rates["sum_prompt"].sum(), rates["sum_output"].sum()) == (trace.prompt.sum(), trace.output.sum())
    minute = (trace.done_s // 60).astype(int)
    observed = np.bincount(minute - minute[0])
    counted = np.zeros_like(observed)
    at = (rates["minute_utc"].astype("int64") // 60_000_000 - minute[0]).to_numpy()
    counted[at] = rates["n"]
    busiest = np.histogram(trace.done_s, bins=scrapes)[0].max()
    assert np.abs(np.cumsum(counted) - np.cumsum(observed)).max() <= busiest
    # Three scrapes of four end within the minute that they began in.
    assert np.abs(counted - observed).max() <= busiest


def test_live_tokens_of_the_trace_lie_between_the_couplings(canonical: Canonical, trace: Requests) -> None:
    def mean_live(prompt: float, product: float, square: float) -> float:
        """Live tokens of one request a second: E[P (s + O / v) + O^2 / 2v]."""
        return (prompt * PREFILL_S + product / TOKENS_PER_S + square / (2 * TOKENS_PER_S)) / trace.done_s.size

    p, o = trace.prompt.astype(float), trace.output.astype(float)
    observed = mean_live(p.sum(), p @ o, o @ o)
    bounds = {
        coupling: mean_live(found.sum_prompt.sum(), found.sum_po.sum(), found.sum_oo.sum())
        for coupling in (Coupling.COMONOTONE, Coupling.COUNTERMONOTONE)
        for found in [traffic_of(canonical, coupling).law]
    }
    assert bounds[Coupling.COUNTERMONOTONE] < observed < bounds[Coupling.COMONOTONE]
    assert traffic_of(canonical).law.sum_po.sum() == traffic_of(canonical, Coupling.COMONOTONE).law.sum_po.sum()


def test_bursts_finer_than_ten_scrapes_are_unknown(canonical: Canonical, trace: Requests) -> None:
    burst = {row["scale_s"]: row for row in canonical.burst.to_pylist()}
    for scale in (1, 5, 15, 60):
        assert (burst[scale]["idc"], burst[scale]["var_n"], burst[scale]["resolution_ok"]) == (None, None, False)
        most = np.histogram(trace.done_s, bins=np.arange(trace.done_s[0], trace.done_s[-1], scale))[0].max()
        assert most <= burst[scale]["max_n"] <= trace.done_s.size
    start = canonical.manifest.window_start_us / 1e6
    counts = np.histogram(trace.done_s, bins=start + np.arange(13) * 300)[0][: int(burst[300]["windows"])]
    assert burst[300]["resolution_ok"]
    assert burst[300]["idc"] == pytest.approx(counts.var(ddof=1) / counts.mean(), rel=1e-6)
    assert any("bursts at 1 s, 5 s, 15 s, 60 s are not known" in remark for remark in canonical.manifest.remarks)
    assert unmeasured(traffic_of(canonical).burst)["the clock of the log is too coarse"] == [1, 5, 15, 60]


def test_the_tail_is_the_largest_possible_total(canonical: Canonical) -> None:
    assert [row["prompt"] + row["output"] for row in canonical.tail.to_pylist()] == [CONTEXT]
    assert law.length_at_tail(traffic_of(canonical), 0.0) == CONTEXT
    assert canonical.manifest.remarks[0].startswith("marginals only")


def test_restarts_and_squares_are_in_the_report(canonical: Canonical) -> None:
    remarks = " / ".join(canonical.manifest.remarks)
    assert "1 restart: what was counted after the last scrape before is lost" in remarks
    assert "mean of the squared outputs is a guess" in remarks
    assert "requests are counted as they end" in remarks


def test_the_canonical_folder_comes_back_and_plans(canonical: Canonical, tmp_path: Path) -> None:
    write(canonical, tmp_path / "traffic")
    assert read(tmp_path / "traffic").lengths.equals(canonical.lengths)
    largest = load_traffic(tmp_path / "traffic", name="m")
    smallest = load_traffic(tmp_path / "traffic", name="m", options={"coupling": "countermonotone"})
    assert smallest.law.sum_po.sum() < largest.law.sum_po.sum()
    assert "long prompts are taken to have long outputs" in largest.notes[-1]
    with pytest.raises(InputError, match="'joint' is no coupling"):
        load_traffic(tmp_path / "traffic", name="m", options={"coupling": "joint"})


def test_couplings_are_for_marginals(examples: Path) -> None:
    with pytest.raises(InputError, match="observed together"):
        load_traffic(
            examples / "AzureLLMInferenceTrace_code.csv", name="m", options={"coupling": "comonotone", "idc": 1}
        )


class TestForms:
    def test_csv_of_grafana(self, answered: Path, canonical: Canonical, tmp_path: Path) -> None:
        # The browser that saved it stood two hours east of UTC.
        path = engine.write_grafana(tmp_path / "panel.csv", answered, zone_offset_s=7200)
        found = ingested(path, time_zone="Africa/Johannesburg")
        assert found.manifest.source == "grafana-csv (vllm)"
        assert same_tables(found, canonical)

    def test_csv_with_a_sample_a_row(self, answered: Path, canonical: Canonical, tmp_path: Path) -> None:
        found = ingested(engine.write_long(tmp_path / "long.csv", answered))
        assert found.manifest.source == "prometheus-csv (vllm)"
        assert same_tables(found, canonical)

    def test_answers_in_pieces_that_overlap_in_any_order(
        self, answered: Path, canonical: Canonical, tmp_path: Path
    ) -> None:
        whole = json.loads(answered.read_text())
        pieces = []
        for number, (low, high) in enumerate(((0, 130), (100, 1000))):
            cut = [{**one, "values": one["values"][low:high]} for one in whole["data"]["result"]]
            pieces.append(tmp_path / f"{number}.json.gz")
            pieces[-1].write_bytes(gzip.compress(json.dumps(engine.answer(c for c in cut if c["values"])).encode()))
        assert same_tables(ingested(*pieces), canonical)
        assert log_files(tmp_path) == tuple(pieces)
        backwards = ingested(*reversed(pieces))
        assert backwards.manifest == ingested(*pieces).manifest
        assert same_tables(backwards, canonical)

    def test_snapshots_named_by_time(self, trace: Requests, scrapes: np.ndarray, tmp_path: Path) -> None:
        ends = [float(scrapes[k]) for k in (0, 50, 120, -1)]
        files = engine.write_snapshots(tmp_path, trace, ends)
        found = ingested(*files)
        assert found.manifest.source == "prometheus-exposition (vllm)"
        seen = trace.where(trace.done_s > ends[0])
        assert traffic_of(found).law.requests == seen.done_s.size
        assert traffic_of(found).law.sum_output.sum() == seen.output.sum()
        assert pc.sum(found.rates["n"]).as_py() == seen.done_s.size

    def test_one_snapshot_counts_from_the_stated_start(
        self, trace: Requests, scrapes: np.ndarray, tmp_path: Path
    ) -> None:
        (path,) = engine.write_snapshots(tmp_path, trace, [float(scrapes[-1])])
        with pytest.raises(InputError, match="has one sample, which counts from a time that is not known"):
            ingested(path)
        started = float(scrapes[0])
        found = ingested(path, options={"started": str(int(started))})
        assert traffic_of(found).law.requests == trace.done_s.size
        assert found.manifest.window_start_us == started * 1e6
        with path.open("a") as stream:
            stream.write(f"process_start_time_seconds {started}\n")
        assert same_tables(ingested(path), found)


def same_tables(one: Canonical, other: Canonical) -> bool:
    return all(one.tables()[name].equals(table) for name, table in other.tables().items())


def test_twin_servers_count_once(answered: Path, canonical: Canonical, tmp_path: Path) -> None:
    result = json.loads(answered.read_text())["data"]["result"]
    twins = [{**one, "metric": {**one["metric"], "prometheus_replica": r}} for one in result for r in ("a", "b")]
    path = tmp_path / "twins.json"
    path.write_text(json.dumps(engine.answer(twins)))
    assert same_tables(ingested(path), canonical)


def test_a_gap_is_said_and_spread(trace: Requests, scrapes: np.ndarray, tmp_path: Path) -> None:
    gap = float(scrapes[100]), float(scrapes[160])
    target = Target({"engine": "0"}, trace, skipped=[(gap[0] + 1, gap[1] - 1)])
    found = ingested(engine.write_answer(tmp_path / "gap.json", [target], scrapes))
    assert found.manifest.models == {MODEL: trace.done_s.size}
    assert any("1 gap of 0.25 h in all without a scrape" in remark for remark in found.manifest.remarks)
    windows = {row["scale_s"]: row["windows"] for row in found.burst.to_pylist()}
    assert windows[60] < (scrapes[-1] - scrapes[0]) / 60 - 14


def test_a_step_finer_than_the_scrapes_shows_nothing_more(trace: Requests, scrapes: np.ndarray, tmp_path: Path) -> None:
    coarse = scrapes[::4]
    real = ingested(engine.write_answer(tmp_path / "minute.json", [Target({"engine": "0"}, trace)], coarse))
    whole = json.loads((tmp_path / "minute.json").read_text())
    steps = np.arange(coarse[0], coarse[-1] + 1, STEP_S)
    for one in whole["data"]["result"]:  # Prometheus answers each step with the last value before it
        at = np.searchsorted([t for t, _ in one["values"]], steps, side="right") - 1
        one["values"] = [[float(t), one["values"][k][1]] for t, k in zip(steps, at, strict=True)]
    (tmp_path / "quarter.json").write_text(json.dumps(whole))
    found = ingested(tmp_path / "quarter.json")
    assert found.manifest.ts_resolution_ms == 60_000
    assert same_tables(found, real)


def test_time_between_since_and_until(answered: Path, trace: Requests, scrapes: np.ndarray) -> None:
    low, high = float(scrapes[40]), float(scrapes[80])
    found = ingested(answered, since_us=int(low * 1e6), until_us=int(high * 1e6))
    assert found.manifest.models == {MODEL: int(((trace.done_s > low) & (trace.done_s <= high)).sum())}


def test_models_are_renamed_and_chosen(answered: Path, trace: Requests) -> None:
    found = ingested(answered, aliases=(Alias(MODEL, "weights", None),), model="weights")
    assert found.manifest.models == {"weights": trace.done_s.size}
    with pytest.raises(InputError, match="holds no model 'other'"):
        ingested(answered, model="other")


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ({"options": {"max_model_length": 4096}}, "Did you mean 'max_model_len'"),
        ({"options": {"max_model_len": "long"}}, "'long' is no number of tokens"),
        ({"options": {"max_model_len": f"{MODEL}:8192"}}, "longer than max_model_len of 8,192 allows|the sum says"),
        ({"options": {"started": "yesterday"}}, "'yesterday' is no time"),
        ({"options": {"engine": "ollama"}}, "'ollama' is not known"),
        ({"options": {"engine": "sglang"}}, "holds no histogram of prompt and output lengths of sglang"),
        ({"sampling_fraction": 0.5}, "--sampling"),
        ({"mapping": {"prompt": "p"}, "log_format": "prometheus"}, "--map"),
        ({"aliases": (Alias(MODEL, "new", 1_700_000_000_000_000),)}, "cannot be told apart by date"),
    ],
)
def test_what_cannot_be_done_is_said(answered: Path, order: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ingested(answered, **order)


def test_an_open_bucket_without_a_context_is_refused(answered: Path) -> None:
    with pytest.raises(
        InputError, match=r"open bucket above .* State the longest context: --option max_model_len=TOKENS"
    ):
        ingest(Order((answered,)))
