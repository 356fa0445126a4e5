"""Which deployment: names in the catalogue's words, everything that is missing at once, contradictions refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.catalog.lookup.lookup import Lookup
from planner.errors import InputError, Problems
from planner.memory.types import KvDtype, WeightDtype
from planner.speed.load_tests.identity import Given, Identities, check_given
from planner.speed.load_tests.types import Run
from planner.speed.points import LoadKind, Served

MODEL = "meta-llama/Llama-3.1-8B-Instruct"


def run(**stated: str) -> Run:
    return Run("x.json", "vllm-bench", LoadKind.CLOSED_LOOP, stated)


def served(lookup: Lookup, given: Given, *runs: Run) -> tuple[Served | None, list[str]]:
    identities = Identities(given, lookup, Problems())
    found = [identities.served(one) for one in runs]
    identities.say_missing()
    return found[0], [str(problem) for problem in identities.problems.found]


def test_options_alone(lookup: Lookup, given: Given) -> None:
    found, problems = served(lookup, given, run())
    assert problems == []
    assert found == Served("vllm", "", MODEL, "H100-SXM", 1, WeightDtype.BF16, KvDtype.BF16)


def test_file_alone(lookup: Lookup) -> None:
    stated = {"model": "Llama-3.1-8B-Instruct", "gpu": "NVIDIA H100 80GB HBM3", "engine": "TensorRT-LLM", "tp": "2"}
    more = {"weights": "fp8", "kv": "fp8_e5m2", "version": "1.0", "pp": "2", "expert_parallel": "True"}
    found, problems = served(lookup, Given(), run(**stated, **more))
    assert problems == []
    assert found == Served("trtllm", "1.0", MODEL, "H100-SXM", 2, WeightDtype.FP8, KvDtype.FP8, pp=2, ep=2)


def test_all_that_is_missing_is_named_once(lookup: Lookup) -> None:
    _, problems = served(lookup, Given(), run(model=MODEL), run(model=MODEL), run(engine="vllm"))
    (problem,) = problems
    assert problem.startswith("--model, --gpu, --engine, --tp, --weights, --kv: are missing: ")
    assert problem.count("x.json") == 1


def test_checkpoint_that_is_stored_quantised_needs_no_weight_format(lookup: Lookup, given: Given) -> None:
    found, problems = served(lookup, replace(given, model="openai/gpt-oss-120b", weights=None), run())
    assert problems == []
    assert found is not None
    assert found.weight_dtype == WeightDtype.MXFP4


@pytest.mark.parametrize(
    ("name", "stated"),
    [
        ("model", "Qwen/Qwen3-0.6B"),
        ("gpu", "A100"),
        ("engine", "sglang"),
        ("tp", "4"),
        ("weights", "fp8"),
        ("kv", "fp8"),
    ],
)
def test_contradictions_are_refused(lookup: Lookup, given: Given, name: str, stated: str) -> None:
    _, problems = served(lookup, given, run(**{name: stated}))
    (problem,) = problems
    assert problem.startswith(f"x.json, field {name}: says {stated}, --{name} ")


@pytest.mark.parametrize("stated", ["Llama-3.1-8B-Instruct", "my-chat-model", "/models/llama"])
def test_served_name_gives_way_to_the_users(lookup: Lookup, given: Given, stated: str) -> None:
    found, problems = served(lookup, given, run(model=stated))
    assert problems == []
    assert found is not None
    assert found.model == MODEL


def test_unknown_names_are_refused(lookup: Lookup, given: Given) -> None:
    _, problems = served(lookup, replace(given, model="", gpu="Voodoo2"), run(model="my-chat-model"))
    assert any("my-chat-model" in problem for problem in problems)
    assert any(problem.startswith("--gpu: ") for problem in problems)


@pytest.mark.parametrize("stated", ["two", "0", "-1", "1.5", "1" + "0" * 400, "²"])
def test_degree_has_to_be_a_whole_number(lookup: Lookup, given: Given, stated: str) -> None:
    _, problems = served(lookup, replace(given, tp=None), run(tp=stated))
    assert any("not a whole number of at least 1" in problem for problem in problems)


def test_data_parallel_ranks_need_the_users_word(lookup: Lookup, given: Given) -> None:
    _, problems = served(lookup, given, run(data_parallel="4"))
    assert "Give --attention-dp 4 if ranks share the experts, --replicas 4" in problems[0]
    found, problems = served(lookup, replace(given, replicas=4), run(data_parallel="4"))
    assert problems == []
    assert found is not None
    assert found.replicas == 4


def test_automatic_kv_format_is_not_guessed(lookup: Lookup, given: Given) -> None:
    _, problems = served(lookup, replace(given, kv=None), run(kv="auto"))
    assert "does not say the KV-cache format" in problems[0]


def test_shares_of_file_and_user_must_agree(lookup: Lookup, given: Given) -> None:
    identities = Identities(replace(given, cached_share=0.5, acceptance=2.0), lookup, Problems())
    assert identities.share(run(), "cached_share") == 0.5
    assert identities.share(replace(run(), acceptance=2.01), "acceptance") == 2.01
    assert not identities.problems.found
    identities.share(replace(run(), cached_share=0.25), "cached_share")
    assert "says 0.25, --cached-share 0.5" in str(identities.problems.found[0])


def test_options_have_ranges() -> None:
    problems = Problems()
    check_given(Given(tp=0, attention_dp=-1, cached_share=1.5, acceptance=0.5), problems)
    with pytest.raises(InputError) as caught:
        problems.raise_if_any()
    assert [problem.where for problem in caught.value.problems] == [
        "--tp",
        "--attention-dp",
        "--cached-share",
        "--acceptance",
    ]


def test_ranks_of_vllm_count_all_gpus_of_the_replica(lookup: Lookup, given: Given) -> None:
    """Two GPUs for each of four ranks are a replica of eight, over which experts are divided."""
    told = replace(given, tp=None, attention_dp=4)
    found, problems = served(lookup, told, run(tp="2", data_parallel="4", expert_parallel="True"))
    assert problems == []
    assert found is not None
    assert (found.tp, found.attention_dp, found.ep) == (8, 4, 8)


def test_ranks_have_to_divide_the_gpus(lookup: Lookup, given: Given) -> None:
    found, problems = served(lookup, replace(given, tp=2, attention_dp=4), run())
    assert found is None
    assert "attention-dp 4 does not divide tp 2" in problems[0]
