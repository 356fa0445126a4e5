"""Start-up logs of both engines, as public captures quote them, and logs that nobody should have to trust."""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path

import pytest

from planner.catalog.load import load_catalog
from planner.errors import InputError
from planner.memory.starts.log_start import Overrides, case_of
from planner.memory.starts.startup_log import StartupLog, parse_log, read_log, records

LOGS = Path(__file__).parents[1] / "data" / "logs"


def log(name: str) -> StartupLog:
    return read_log(LOGS / name)


def test_vllm_0_6_prints_a_breakdown_and_blocks() -> None:
    found = log("vllm-0.6.6-ui-tars.log")
    assert (found.engine, found.version, found.model) == ("vllm", "0.6.6", "/weights/checkpoints/UI-TARS")
    assert found.tightest.figures == {
        "weights": 15.5083,
        "total": 23.67,
        "utilization": 0.9,
        "non_torch": 0.28,
        "activation": 1.16,
        "available": 4.36,
        "graphs_actual": 1.92,
    }
    assert found.figures == {"blocks": 5102, "max_model_len": 8192, "max_concurrency": 9.96}
    assert found.setting("kv_cache_dtype") == "auto"


def test_vllm_0_10_wrapped_by_a_terminal_with_two_workers() -> None:
    """``tensor_parallel_si / ze=2`` and ``'Qwe / n2-7B-Instruct'`` are broken in the middle of words."""
    found = log("vllm-0.10.1.1-qwen2-7b-tp2-wrapped.log")
    assert (found.version, found.model, found.setting("tensor_parallel_size")) == ("0.10.1.1", "Qwen2-7B-Instruct", "2")
    assert {rank.rank for rank in found.ranks} == {"TP0", "TP1"}
    assert found.figure("available") == 31.83
    assert (found.figures["kv_tokens"], found.figures["blocks"]) == (1_192_160, 74_510)
    assert found.figures["max_num_batched_tokens"] == 2048


def test_vllm_0_11_behind_docker_compose() -> None:
    found = log("vllm-0.11.0rc2-gemma-3-27b-docker.log")
    assert (found.version, found.setting("max_seq_len")) == ("0.11.0rc2.dev98+g393de22d2", "4096")
    assert found.figures["kv_tokens"] == 205_696
    assert found.figure("weights") == 51.7891


def test_vllm_0_19_estimates_graphs() -> None:
    found = log("vllm-0.19.1-qwen3-0.6b-w4a16.log")
    assert (found.figure("graphs_estimate"), found.figure("graphs_actual")) == (0.27, 0.27)
    assert found.figures["max_concurrency"] == 30.71
    assert found.setting("quantization") == "compressed-tensors"


def test_vllm_0_26_breaks_down_by_worker() -> None:
    found = log("vllm-0.26.0-glm-5.2-nvfp4-tp4.log")
    assert [rank.rank for rank in found.ranks] == ["TP0", "TP2", "TP3", "TP1"]
    for rank in found.ranks:
        assert (rank.get("weights"), rank.get("activation"), rank.get("non_torch")) == (106.69, 6.31, 0.95)
        assert (rank.get("graphs_estimate"), rank.get("total"), rank.get("budget")) == (4.99, 184.31, 169.56)
    assert found.setting("kv_cache_dtype") == "fp8_e4m3"
    assert found.setting("enable_expert_parallel") == "True"


def test_vllm_0_31_logs_what_is_consumed() -> None:
    found = log("vllm-0.31.0-llama-3.1-8b.log")
    assert found.engine == "vllm"
    assert (found.figure("consumed"), found.figure("activation"), found.figure("weights")) == (15.26, 1.44, 15.0)
    assert found.figures == {"kv_tokens": 460_496, "max_model_len": 131_072, "max_concurrency": 3.51}


def test_sglang_with_arguments() -> None:
    found = log("sglang-2025-02-r1-distill-qwen-7b.log")
    assert (found.engine, found.version, found.day) == ("sglang", "", "2025-02-04")
    assert (found.setting("mem_fraction_static"), found.setting("tp_size")) == ("0.88", "1")
    assert (found.figure("free_before"), found.figure("free_after"), found.figure("available")) == (22.76, 8.37, 5.64)
    assert (found.figures["kv_tokens"], found.figures["max_running_requests"]) == (105_531, 2_049)


def test_sglang_without_arguments_names_its_card_in_a_table() -> None:
    found = log("sglang-2025-08-qwen3-0.6b.log")
    assert found.gpu == "NVIDIA GeForce RTX 5080"
    assert (found.figure("weights"), found.figures["kv_tokens"]) == (1.25, 104_273)


def test_sglang_ranks_whose_lines_are_cut() -> None:
    found = log("sglang-2026-02-kimi-k2.5-tp8.log")
    assert {rank.rank for rank in found.ranks} == {f"TP{n}" for n in (0, 2, 3, 4, 5, 6, 7)}
    assert found.figure("available") == 160.63
    assert found.figure("weights") == 73.58


def test_the_pool_follows_the_tightest_worker() -> None:
    found = parse_log(
        [
            "(VllmWorkerProcess pid=11) INFO worker.py:267] the rest of the memory reserved for KV Cache is 5.71GiB.",
            "INFO worker.py:267] model weights take 3.00GiB; the rest of the memory reserved for KV Cache is 3.58GiB.",
            "INFO executor_base.py:110] # CUDA blocks: 4190, # CPU blocks: 4681",
        ]
    )
    assert found.figure("available") == 3.58
    assert (found.tightest.rank, found.figures["blocks"]) == ("", 4190)


def test_ray_workers_on_two_hosts_are_two_workers() -> None:
    found = parse_log(
        f"\x1b[36m(RayWorkerWrapper pid=500, ip=10.0.0.{host})\x1b[0m INFO [gpu_worker.py:276] "
        f"Available KV cache memory: {gib} GiB [repeated 2x across cluster]"
        for host, gib in ((1, 45.32), (2, 45.10))
    )
    assert [(rank.rank, rank.get("available")) for rank in found.ranks] == [
        ("500@10.0.0.1", 45.32),
        ("500@10.0.0.2", 45.10),
    ]
    assert found.figure("available") == 45.10


def test_a_draft_model_does_not_replace_the_model_that_is_loaded_first() -> None:
    found = parse_log(
        [
            "[2026-08-28 21:19:30] Load weight begin. avail mem=111.97 GB",
            "[2026-08-28 21:32:38] Load weight end. elapsed=7.5 s, type=Main, avail mem=29.01 GB, mem usage=82.97 GB.",
            "[2026-08-28 21:32:39] Load weight begin. avail mem=28.81 GB",
            "[2026-08-28 21:34:13] Load weight end. elapsed=9 s, type=MTP, avail mem=30.67 GB, mem usage=-1.86 GB.",
            "[2026-08-28 21:34:15] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 159552, "
            "K size: 1.83 GB, V size: 1.83 GB",
        ]
    )
    assert (found.figure("weights"), found.figure("free_before"), found.figure("available")) == (82.97, 111.97, 3.66)


def test_states_and_sliding_pools_of_sglang() -> None:
    found = parse_log(
        [
            "[2026-02-01 00:05:03 TP0] Mamba Cache is allocated. max_mamba_cache_size: 38, conv_state size: 0.03GB, "
            "ssm_state size: 2.74GB ",
            "[2026-02-01 00:05:03 TP0] SWAKVPool mem usage: 79.94 GB, swa size: 798276, full size: 997846",
        ]
    )
    (rank,) = found.ranks
    assert (rank.get("state_slots"), rank.get("states")) == (38, 2.77)
    assert (rank.get("sliding_tokens"), rank.get("available")) == (798_276, 79.94)


@pytest.mark.parametrize(
    "line",
    [
        "(EngineCore pid=1) ERROR [core.py:9] ValueError: No available memory for the cache blocks. Try increasing it.",
        "ValueError: To serve at least one request with the model's max seq len (131072), (16.00 GiB KV cache is "
        "needed, which is larger than the available KV cache memory (5.11 GiB).",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 784.00 MiB.",
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
    ],
)
def test_a_refusal_is_kept_and_a_start_takes_it_back(line: str) -> None:
    begun = ["INFO [api_server.py:1] vLLM API server version 0.11.0", line]
    assert parse_log(begun).refusal.split(": ", 1)[1] in line
    assert parse_log([*begun, "INFO:     Application startup complete."]).refusal == ""


def test_of_several_starts_the_last_is_read() -> None:
    begin = "INFO [core.py:77] Initializing a V1 LLM engine (v0.11.0) with config: model='{}', dtype=torch.bfloat16"
    pool = "INFO [kv_cache_utils.py:1087] GPU KV cache size: {} tokens"
    found = parse_log([begin.format("a/one"), pool.format("1,000"), begin.format("b/two"), pool.format("2,000")])
    assert (found.model, found.figures["kv_tokens"]) == ("b/two", 2000)
    assert "2 starts" in found.notes[0]


def test_a_truncated_log_keeps_what_it_has() -> None:
    text = (LOGS / "vllm-0.10.1.1-qwen2-7b-tp2-wrapped.log").read_text(encoding="utf-8")
    for end in range(0, len(text), 173):
        found = parse_log(text[:end].splitlines())
        assert found.figures.get("kv_tokens") in (None, 1_192_160)
        assert found.figure("available") in (None, 31.83)


def test_json_lines_of_a_container_runtime(tmp_path: Path) -> None:
    lines = (LOGS / "vllm-0.31.0-llama-3.1-8b.log").read_text(encoding="utf-8").splitlines()
    wrapped = [json.dumps({"log": f"{line}\n", "stream": "stderr"}) for line in lines]
    assert parse_log(wrapped).figures == parse_log(lines).figures


def test_compressed_logs_are_read(tmp_path: Path) -> None:
    packed = tmp_path / "serve.log.gz"
    packed.write_bytes(gzip.compress((LOGS / "vllm-0.31.0-llama-3.1-8b.log").read_bytes()))
    assert read_log(packed) == log("vllm-0.31.0-llama-3.1-8b.log")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"hello\n" * 1000,
        b"\x00\xff\xfe" * 5000,
        b"\x1f\x8b" + b"broken" * 20,
        b"total_gpu_memory (999999999999999999999999999GiB)\n",
        b"GPU weather: 31 degrees\n",
    ],
)
def test_what_is_no_start_up_log_is_said_so(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "serve.log"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"serve\.log"):
        read_log(path)


def test_a_missing_log_and_a_folder_are_said_so(tmp_path: Path) -> None:
    for path in (tmp_path / "none.log", tmp_path):
        with pytest.raises(InputError, match="cannot be read"):
            read_log(path)


@pytest.mark.parametrize(
    "line",
    [
        "(" * 50_000 + "INFO Available KV cache memory: 1.0 GiB",
        "INFO Free memory on device (" + "9" * 90_000,
        "INFO Load weight end." + " avail mem=" * 20_000,
        "server_args=ServerArgs(" + "model_path='a', " * 20_000,
        "[2025-01-01 00:00:00" + " TP0" * 20_000 + "] KV Cache is allocated. ",
        "\x1b[" * 40_000 + "INFO GPU KV cache size: 5 tokens",
    ],
)
def test_hostile_lines_take_no_time(line: str) -> None:
    began = time.perf_counter()
    parse_log([line] * 3)
    assert time.perf_counter() - began < 6


def test_records_join_what_a_terminal_wrapped_and_no_more() -> None:
    assert list(records(["INFO one tw", "o three", "INFO four"])) == ["INFO one two three", "INFO four"]
    assert list(records(["(EngineCore pid=1) a", "[2025-01-01 00:00:00] b"])) == [
        "(EngineCore pid=1) a",
        "[2025-01-01 00:00:00] b",
    ]


NO_FLASHINFER = "WARNING [topk_topp_sampler.py:59] FlashInfer is not available. Falling back to the native"


@pytest.mark.parametrize(
    ("lines", "setting", "flag"),
    [
        ("INFO 09-04 01:02:57 [topk_topp_sampler.py:50] Using FlashInfer for top-p & top-k sampling.", "True", True),
        (NO_FLASHINFER, "False", False),
        ("INFO 09-04 01:02:57 [cuda.py:328] FlashInfer is not the attention backend", "", None),
    ],
)
def test_a_log_tells_which_sampler_runs(lines: str, setting: str, flag: bool | None) -> None:
    """The start that the log describes takes it over."""
    head = "INFO [core.py:74] Initializing a V1 LLM engine (v0.10.1.1) with config: model='Qwen/Qwen3-8B'"
    found = parse_log([head, lines])
    assert found.setting("flashinfer_sampler") == setting
    case, _ = case_of(found, load_catalog(), Overrides(gpu="A100-80GB-SXM"))
    assert case.deployment.vllm.flashinfer_sampler is flag
