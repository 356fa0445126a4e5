"""Commands of pools: every figure of the plan, nothing that contradicts it, and words that arrive as they are."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.deploy.commands import Argument, Checkpoint, Command, command_of
from planner.deploy.flags import load_flags
from planner.deploy.words import container_words, shell_script
from planner.errors import InputError
from planner.memory.types import Deployment, KvDtype, SglangFlags, VllmFlags, WeightDtype
from planner.plan import Pool
from tests.deploy.plans import CATALOG, example, pool_of, sizing_of

LISTS = load_flags(CATALOG.root)
HOSTILE = [
    "a'; touch /tmp/owned; '",
    'b"$(touch /tmp/owned)"`id`',
    "c\nexec evil",
    "$(POD_IP) $$(HOME) ${HOME} $@",
    "--trust-remote-code",
    "-o",
    "model: {evil: yes}\n- x",
    "# no comment",
    "ünïcode 模型",
]


def command(pool: Pool, checkpoint: Checkpoint | None = None) -> Command:
    return command_of(pool, LISTS[pool.engine], checkpoint)


def words_of(made: Command) -> list[str]:
    """As a process gets them."""
    found = [*made.program, made.model]
    for argument in made.arguments:
        found += [argument.flag] if argument.value is None else [argument.flag, argument.value]
    return found


def test_a_pool_of_the_example_is_started_with_every_figure_of_the_plan() -> None:
    pool = next(pool for pool in example().pools if pool.name == "assistant/2")
    assert words_of(command(pool)) == [
        "vllm", "serve", "Qwen/Qwen3-32B",
        "--tensor-parallel-size", "1", "--max-model-len", "8192", "--gpu-memory-utilization", "0.92",
        "--max-num-seqs", "1024", "--max-num-batched-tokens", "8192", "--quantization", "fp8_per_tensor",
        "--kv-cache-dtype", "fp8", "--served-model-name", "assistant", "--host", "0.0.0.0", "--port", "8000",
    ]  # fmt: skip


def test_figures_that_the_launch_command_leaves_out_come_from_the_pool() -> None:
    pool = example().pools[0].model_copy(update={"launch_command": "vllm serve some/model", "kv_dtype": "fp8"})
    made = command(pool)
    assert made.value("--max-model-len") == str(pool.max_model_len)
    assert made.value("--max-num-seqs") == str(pool.max_num_seqs)
    assert made.value("--kv-cache-dtype") == "fp8"


def test_sglang_counts_requests_and_chunks_over_all_workers() -> None:
    sizing = sizing_of("Qwen/Qwen3-30B-A3B", "H100-SXM", "sglang", tp=8, attention_dp=4, kv_dtype=KvDtype.FP8)
    made = command(pool_of("agents", sizing))
    assert made.value("--max-running-requests") == str(sizing.max_num_seqs * 4)
    assert made.value("--chunked-prefill-size") == str(sizing.max_num_batched_tokens * 4)
    assert made.value("--kv-cache-dtype") == "fp8_e4m3"
    uncut = sizing_of("Qwen/Qwen3-32B", "H100-SXM", "sglang", tp=2, sglang=SglangFlags(chunked_prefill=False))
    assert command(pool_of("chat", uncut)).value("--chunked-prefill-size") == "-1"


def test_a_rank_is_known_to_the_node_alone() -> None:
    sizing = sizing_of("deepseek-ai/DeepSeek-R1", "H100-SXM", "sglang", tp=16, weight_dtype=WeightDtype.FP8)
    made = command(pool_of("reasoning", sizing, nodes=2))
    words = container_words(made)
    assert words[words.index("--node-rank") + 1] == "$(LWS_WORKER_INDEX)"
    assert words[words.index("--dist-init-addr") + 1] == "$(LWS_LEADER_ADDRESS):20000"
    assert '"${NODE_RANK:?' in shell_script(made, [])


def test_a_backend_before_it_was_a_flag_is_a_variable() -> None:
    sizing = sizing_of("Qwen/Qwen3-32B", "H100-SXM", "vllm", "0.11.0", vllm=VllmFlags(attention_backend="FLASHINFER"))
    made = command(pool_of("chat", sizing))
    assert dict(made.environment) == {"VLLM_ATTENTION_BACKEND": "FLASHINFER"}
    assert "export VLLM_ATTENTION_BACKEND=FLASHINFER\n" in shell_script(made, [])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_model_len": 4096}, "says --max-model-len 7936, the pool's max_model_len is 4096"),
        ({"tp": 2}, "says --tensor-parallel-size 1, the pool's tp is 2"),
        (
            {"gpu_memory_utilization": 0.9},
            "says --gpu-memory-utilization 0.92, the pool's gpu_memory_utilization is 0.9",
        ),
        ({"launch_command": "rm -rf /"}, "does not start vllm as vllm serve MODEL"),
        ({"launch_command": "vllm serve --port 1"}, "does not start vllm as vllm serve MODEL"),
        ({"launch_command": "vllm serve"}, "does not start vllm as vllm serve MODEL"),
        ({"launch_command": "vllm serve 'x"}, "cannot be read: No closing quotation"),
        ({"launch_command": "env LD_PRELOAD=x vllm serve m"}, "does not start vllm as vllm serve MODEL"),
        ({"launch_command": "vllm serve m extra"}, "'extra', which belongs to no flag"),
        ({"launch_command": "vllm serve m --max-num-seqs 64 65"}, "'65', which belongs to no flag"),
        ({"launch_command": "vllm serve m --no-such-flag 1"}, "vllm 0.33.0 has no flag --no-such-flag"),
        ({"launch_command": "vllm serve m --swap-space 4"}, "vllm 0.33.0 has no flag --swap-space"),
        ({"launch_command": "vllm serve m --max-model-len"}, "says --max-model-len None"),
        ({"engine_version": "0.5.0"}, "older than every version that was read"),
        ({"launch_command": "vllm serve '<int4-gptq checkpoint of m>'"}, "leaves open which checkpoint to load"),
        ({"launch_command": 'vllm serve m --speculative-config \'{"model": "<draft>"}\''}, "leaves open a part of"),
        ({"model": "nul\x00"}, "cannot be an argument of a command"),
    ],
)
def test_what_contradicts_the_plan_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        command(example().pools[0].model_copy(update=changes))


def test_all_contradictions_are_told_at_once() -> None:
    with pytest.raises(InputError) as error:
        command(example().pools[0].model_copy(update={"tp": 2, "max_num_seqs": 3, "engine_version": "0.5.0"}))
    assert len(error.value.problems) == 3


def test_a_checkpoint_that_the_plan_leaves_open_is_named_by_the_user() -> None:
    sizing = sizing_of("Qwen/Qwen3-32B", "H100-SXM", weight_dtype=WeightDtype.INT4_GPTQ)
    pool = pool_of("chat", sizing)
    with pytest.raises(InputError, match="--checkpoint chat=org/name, or chat=org/name@revision"):
        command(pool)
    made = command(pool, Checkpoint("Qwen/Qwen3-32B-GPTQ", "abc123"))
    assert (made.model, made.value("--revision")) == ("Qwen/Qwen3-32B-GPTQ", "abc123")


def expanded(word: str, variables: dict[str, str]) -> str:
    """What the kubelet makes of a word (third_party/forked/golang/expansion of Kubernetes): ``$$`` and ``$(NAME)``."""
    out, place = "", 0
    while place < len(word):
        rest = word[place:]
        name = re.match(r"\$\(([^)]*)\)", rest)
        if rest.startswith("$$"):
            out, place = out + "$", place + 2
        elif name:
            out, place = out + variables.get(name[1], name[0]), place + len(name[0])
        else:
            out, place = out + rest[0], place + 1
    return out


def run(script: str, folder: Path) -> list[str]:
    """Words that ``vllm`` gets when a shell runs the script."""
    (folder / "vllm").write_text("#!/bin/sh\nprintf '%s\\0' \"$@\"\n", encoding="utf-8")
    (folder / "vllm").chmod(0o755)
    path = folder / "start.sh"
    path.write_text(script, encoding="utf-8", newline="")
    environment = {"PATH": f"{folder}:{os.environ['PATH']}", "HOME": "/nowhere"}
    done = subprocess.run(["/bin/sh", str(path)], capture_output=True, check=True, env=environment, cwd=folder)
    return done.stdout.decode("utf-8").split("\0")[:-1]


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_names_arrive_as_one_word(hostile: str, tmp_path: Path) -> None:
    pool = example().pools[0].model_copy(update={"model": hostile, "name": hostile, "launch_command": "vllm serve m"})
    made = command(pool, Checkpoint(hostile.lstrip("-")))
    words = run(shell_script(made, [hostile, f"pool {hostile}"]), tmp_path)
    joined = hostile.startswith("-")
    assert words[:2] == ["serve", hostile.lstrip("-")]
    assert (f"--served-model-name={hostile}" in words) if joined else (hostile in words[2:])
    assert [expanded(word, {"POD_IP": "1.2.3.4", "HOME": "/root"}) for word in container_words(made)] == [
        "vllm",
        *words,
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["start.sh", "vllm"]


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=30)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(model=TEXTS, value=TEXTS, why=TEXTS)
def test_any_words_arrive_as_they_are(model: str, value: str, why: str, tmp_path: Path) -> None:
    made = Command(("vllm", "serve"), model, (Argument("--a", value, why), Argument("--b", None, why)))
    words = run(shell_script(made, [why, model]), tmp_path)
    numeric = re.fullmatch(r"-\d+(\.\d+)?", value)
    given_value = [f"--a={value}"] if value.startswith("-") and not numeric else ["--a", value]
    assert words == ["serve", model, *given_value, "--b"]
    assert [expanded(word, {}) for word in container_words(made)] == ["vllm", *words]


def test_every_deployment_field_of_a_pool_is_an_argument() -> None:
    """What a pool has of a deployment and what is compared: none is forgotten when one is added."""
    compared = {"tp", "max_model_len", "max_num_seqs", "max_num_batched_tokens"}
    shared = set(Pool.model_fields) & set(Deployment.__dataclass_fields__)
    assert shared - {"weight_dtype", "kv_dtype", "gpu_memory_utilization"} == compared
