"""Series from files and servers: real captures, what Prometheus itself computes, and input that nobody should trust."""

from __future__ import annotations

import http.server
import json
import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import InputError
from planner.observe.explain import Assumption
from planner.observe.exported import saved_series
from planner.observe.live import Window, live_series, token_in
from planner.observe.metrics import metric_names
from planner.observe.observed import increase, observed_of
from planner.observe.tracks import assigned, tracks_in, wanted_names
from planner.observe.watch import Ask, watched
from planner.plan import Pool
from planner.plan_file import plan_at
from planner.prometheus import Series, answers, exposed
from planner.traffic.histograms.series import Track
from tests.observe.exposition import SECONDS, START_S, answer_of, fleet, text_of

PLAN = plan_at(Path("tests/data/fleet/plan.json"))
DATA = Path("tests/data/observe")
SGLANG = Path("tests/data/load_tests/sglang_metrics.prom")
ALL = Window(-math.inf, math.inf)
NAMES = metric_names()
FLEET = fleet(PLAN, 3)


def pool_of(engine: str, weights: str) -> Pool:
    return PLAN.pools[0].model_copy(update={"engine": engine, "weights": weights})


def observed(pool: Pool, path: Path, at_s: float | None = None):  # type: ignore[no-untyped-def]
    plan = PLAN.model_copy(update={"pools": (pool,)})
    tracks = tracks_in(saved_series(path, at_s), wanted_names(NAMES), -math.inf, math.inf)
    return observed_of(pool, assigned(plan, tracks).pools[pool.name], NAMES)


def test_a_real_scrape_of_vllm() -> None:
    """One request of 5 and 7 tokens after 20 s; 64 of 117 looked-up tokens hit; 6 gaps between tokens of 0.1902 s."""
    pool = pool_of("vllm", "facebook/opt-125m")
    seen = observed(pool, DATA / "vllm_metrics.prom", 1718140578.3)
    assert (seen.replicas, seen.live_requests, seen.kv_usage) == (1, 0.0, 0.0)
    assert seen.rate_per_s == pytest.approx(1 / 20.0)
    assert (seen.prompt_tokens, seen.output_tokens) == (5.0, 7.0)
    assert seen.tpot_s == pytest.approx(0.19016313552856445 / 6)
    assert seen.ttft_s == pytest.approx(0.25 + 0.95 * 0.25)
    assert seen.cached_share == pytest.approx(64 / 117)
    assert seen.pool_ratio == pytest.approx(7281 * 16 / (pool.memory.num_blocks * pool.memory.block_size_tokens))
    assert any("gap between tokens" in note for note in seen.notes)


def test_a_real_scrape_of_sglang() -> None:
    """2,826 requests wait, and most first tokens came after the last bucket."""
    seen = observed(pool_of("sglang", "meta-llama/Llama-3.1-8B-Instruct"), SGLANG)
    assert (seen.kv_usage, seen.waiting) == (0.28, 2826.0)
    assert seen.ttft_s == 30.0
    assert "TTFT lies beyond the last bucket: it is more than 30 s" in seen.notes
    assert (seen.rate_per_s, seen.seconds, seen.preemptions_per_s) == (None, None, None)


def test_ranks_and_priorities_count_once() -> None:
    own = 'pool="code-complete",instance="a",model_name="m"'
    text = (
        f'sglang:num_running_reqs{{{own},tp_rank="0",priority=""}} 14\n'
        f'sglang:num_running_reqs{{{own},tp_rank="0",priority="3"}} 9\n'
        f'sglang:num_running_reqs{{{own},tp_rank="1",priority=""}} 14\n'
    )
    tracks = tracks_in(exposed("here", text), wanted_names(NAMES), -math.inf, math.inf)
    assert [float(track.value[0]) for track in tracks] == [14.0]


def counter(values: list[float]) -> Track:
    return Track("x_total", {}, np.arange(len(values), dtype=float) * 60, np.asarray(values))


def test_restarts_of_counters() -> None:
    """Grows by 10, restarts at 3, grows by 4: 17."""
    assert increase(counter([100.0, 110.0, 3.0, 7.0])) == pytest.approx(17.0)


@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=8), st.integers(0, 7))
@settings(max_examples=40, deadline=None)
def test_an_increase_does_not_depend_on_restarts(steps: list[float], at: int) -> None:
    """What was counted is counted, wherever the server began anew from zero."""
    total = [float(v) for v in np.cumsum([5.0, *steps])]
    cut = min(at, len(steps) - 1) + 1
    again = total[:cut] + [float(v) for v in np.cumsum(steps[cut - 1 :])]
    restarted = again[cut] < total[cut - 1]
    assert increase(counter(total)) == pytest.approx(sum(steps))
    if restarted:
        assert increase(counter(again)) == pytest.approx(sum(steps))


def test_a_folder_of_scrapes_is_the_answer_of_a_server(tmp_path: Path) -> None:
    for k, stamp in enumerate(("080000", "080500", "081000", "081500")):
        (tmp_path / f"2027-01-15T{stamp}Z.prom").write_text(text_of(FLEET, k * 300.0), encoding="utf-8")
    found = watched(PLAN, saved_series(tmp_path), ALL, Ask())
    assert found.within
    assert found.start is not None
    assert f"{found.start:%Y-%m-%d %H:%M}" == "2027-01-15 08:00"
    demand = next(row for row in found.pools[1].rows if row.figure == Assumption.DEMAND)
    assert demand.observed == pytest.approx(FLEET[1].rate_per_s)


def test_scrapes_of_a_folder_must_say_when(tmp_path: Path) -> None:
    (tmp_path / "a.prom").write_text(text_of(FLEET[:1]), encoding="utf-8")
    (tmp_path / "b.prom").write_text("<html>", encoding="utf-8")
    with pytest.raises(InputError) as caught:
        saved_series(tmp_path)
    assert [problem.message for problem in caught.value.problems] == [
        "does not say when it was taken",
        "is no sample: '<html>'",
    ]
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="holds no file"):
        saved_series(tmp_path / "empty")


HOSTILE = {
    "html": ("<!DOCTYPE html><html>502</html>", "is no sample"),
    "cut off": (answer_of(FLEET[:1])[:-40], "ends in the middle"),
    "other json": ('{"hello": 1}', "an answer of Prometheus that failed: no data"),
    "failed": ('{"status":"error","errorType":"bad_data","error":"parse error"}', "parse error"),
    "scalar": ('{"status":"success","data":{"resultType":"scalar","result":[1,"2"]}}', "no series"),
    "infinite": ('vllm:num_requests_running{pool="chat-large"} +Inf\n', "infinite"),
    "twice": (
        'vllm:num_requests_running{pool="chat-large"} 1\nvllm:num_requests_running{pool="chat-large"} 2\n',
        "at one time",
    ),
    "nothing of ours": ("up 1\n# EOF\n", "no series belongs to a pool"),
    "nothing at all": ("go_goroutines 12\n", "none of the metrics"),
    "empty": ("", "is empty"),
    "deep": ("[" * 100_000, "is no JSON"),
    "other models": ('vllm:num_requests_running{model_name="x"} 1\n', "they name x"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_files_end_in_one_error(tmp_path: Path, case: str) -> None:
    text, says = HOSTILE[case]
    path = tmp_path / "metrics.prom"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        watched(PLAN, saved_series(path), ALL, Ask())
    assert len(caught.value.problems) == 1
    assert says in str(caught.value)


def test_figures_that_are_none_are_missing() -> None:
    """NaN is how Prometheus writes what it cannot divide."""
    text = 'vllm:num_requests_running{pool="chat-large"} NaN\nvllm:num_requests_waiting{pool="chat-large"} 0\n'
    pool = watched(PLAN, exposed("here", text), ALL, Ask(pools=("chat-large",))).pools[0]
    assert "live requests (vllm:num_requests_running)" in pool.missing
    assert pool.off == ()


def test_twin_servers_count_once() -> None:
    parsed = json.loads(answer_of(FLEET[:1]))
    result = parsed["data"]["result"]
    both = [{**one, "metric": {**one["metric"], "prometheus_replica": twin}} for one in result for twin in "ab"]
    parsed["data"]["result"] = both
    found = watched(PLAN, answers([("here", parsed)]), ALL, Ask(pools=(FLEET[0].pool.name,)))
    assert found.within
    assert next(row for row in found.pools[0].rows if row.figure == Assumption.REPLICAS).observed == 5


def without_pool(text: str) -> Iterator[Series]:
    for one in exposed("here", text, START_S):
        yield Series(one.name, {name: value for name, value in one.labels.items() if name != "pool"}, one.samples)


def test_pools_by_the_name_of_the_model() -> None:
    """One pool serves the weights: found by that name, and what has no model's name follows its target."""
    state = next(s for s in FLEET if s.pool.name == "ticket-triage")
    found = watched(PLAN, without_pool(text_of([state])), ALL, Ask(pools=("ticket-triage",))).pools[0]
    rows = {row.figure: row.observed for row in found.rows}
    assert (rows[Assumption.REPLICAS], rows[Assumption.POOL]) == (2, 1.0)


def test_a_model_of_two_pools_needs_the_label() -> None:
    state = next(s for s in FLEET if s.pool.name == "assistant/1")
    with pytest.raises(InputError, match="is served by pools assistant/1, assistant/2"):
        watched(PLAN, without_pool(text_of([state])), ALL, Ask())


def test_strange_pools_are_named() -> None:
    other = replace(FLEET[0], pool=FLEET[0].pool.model_copy(update={"name": "old"}))
    found = watched(PLAN, exposed("here", text_of([FLEET[0], other]), START_S), ALL, Ask())
    assert "'old' is no pool of the plan: its series are left out" in found.notes


Answer = Callable[[http.server.BaseHTTPRequestHandler], None]


@pytest.fixture
def server() -> Iterator[Callable[[Answer], str]]:
    """A server that answers as it is told."""
    told: list[Answer] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            told[0](self)

        def log_message(self, *args: object) -> None:
            pass

    here = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=here.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()

    def answering(answer: Answer) -> str:
        told[:] = [answer]
        return f"http://127.0.0.1:{here.server_port}/"

    yield answering
    here.shutdown()
    thread.join()
    here.server_close()


def said(status: int, body: str, length: int | None = None) -> Answer:
    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(body.encode()) if length is None else length))
        handler.end_headers()
        handler.wfile.write(body.encode())

    return answer


WINDOW = Window(START_S, START_S + SECONDS)


def test_a_server_is_asked_for_raw_series(server: Callable[[Answer], str]) -> None:
    asked: list[str] = []
    tokens: list[str | None] = []

    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        asked.append(handler.path)
        tokens.append(handler.headers.get("Authorization"))
        said(200, answer_of(FLEET))(handler)

    series = live_series(server(answer), wanted_names(NAMES), WINDOW, 5.0)
    assert watched(PLAN, series, WINDOW, Ask()).within
    path, query = urlsplit(asked[0]).path, parse_qs(urlsplit(asked[0]).query)
    assert path == "/api/v1/query_range"
    assert (query["start"], query["end"], query["step"]) == (["1800000000.000"], ["1800000900.000"], ["15"])
    assert "vllm:kv_cache_usage_perc" in query["query"][0]
    assert "vllm:time_to_first_token_seconds_bucket" in query["query"][0]
    live_series(server(answer), wanted_names(NAMES), WINDOW, 5.0, "abc")
    assert tokens == [None, "Bearer abc"]


def test_a_token_is_one_word(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc\n")
    assert token_in(tmp_path / "token") == "abc"
    (tmp_path / "token").write_text("user: abc\n")
    with pytest.raises(InputError, match="holds no single token") as caught:
        token_in(tmp_path / "token")
    assert "abc" not in str(caught.value)


def test_a_ttft_that_its_bucket_does_not_decide() -> None:
    """The plan's 1.578 s and the observed lie in one bucket: the verdict is the interpolation's."""
    seen = watched(PLAN, answers([("here", json.loads(answer_of(FLEET[:1])))]), ALL, Ask()).pools[0]
    assert seen.notes == ("TTFT lies in the bucket from 1 to 1.66084 s, as the planned 1.578 s does",)


BAD = {
    "500": (said(500, "<html>oops</html>"), "answers 500: Internal Server Error"),
    "422": (said(422, '{"status":"error","error":"too many points"}'), "answers 422: too many points"),
    "html": (said(200, "<html>login</html>"), "is no JSON"),
    "cut": (said(200, answer_of(FLEET[:1])[:-30]), "ends in the middle"),
    "short": (said(200, '{"status":', 1000), "ends in the middle"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_answers_end_in_one_error(server: Callable[[Answer], str], case: str) -> None:
    answer, says = BAD[case]
    with pytest.raises(InputError) as caught:
        live_series(server(answer), wanted_names(NAMES), WINDOW, 5.0)
    assert len(caught.value.problems) == 1
    assert says in str(caught.value)


def test_a_server_that_is_silent_or_gone(server: Callable[[Answer], str]) -> None:
    with pytest.raises(InputError, match=r"gives no answer within 0\.2 s"):
        live_series(server(lambda handler: time.sleep(0.6)), wanted_names(NAMES), WINDOW, 0.2)
    with pytest.raises(InputError, match="cannot be reached"):
        live_series("http://127.0.0.1:9", wanted_names(NAMES), WINDOW, 0.5)
    with pytest.raises(InputError, match="cannot be reached"):
        live_series("http://[::1", wanted_names(NAMES), WINDOW, 0.5)


LABEL = st.from_regex(r"[a-z_]{1,5}", fullmatch=True)


@settings(max_examples=20, deadline=None)
@given(st.dictionaries(LABEL, st.text(max_size=12), max_size=3), st.floats(0, 1e12))
def test_labels_survive_the_text_format(labels: dict[str, str], value: float) -> None:
    """Written as the exposition format says (backslash, quote and line feed escaped), read back the same."""
    shown = {name: text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for name, text in labels.items()}
    line = f"x{{{','.join(f'{name}={chr(34)}{text}{chr(34)}' for name, text in shown.items())}}} {value!r}\n"
    found = list(exposed("here", line, 1.0))
    assert found == [Series("x", labels, ((1.0, value),))]
