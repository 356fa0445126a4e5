from __future__ import annotations

import contextlib
import csv
from pathlib import Path
from typing import Any

import pytest

from planner.catalog.hf.config import read_model_shape
from planner.catalog.hf.families import NOT_YET, REGISTRY
from planner.catalog.load import Catalog, load_catalog
from planner.catalog.model_shape import AttentionFamily, CacheKind, CacheRole, ModelShape
from planner.errors import InputError
from planner.memory.states import VLLM_STATES, states_bytes

SHAPES = Path(__file__).parents[1] / "data" / "models" / "shapes.csv"
CATALOG = load_catalog()

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 576,
    "num_hidden_layers": 4,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "intermediate_size": 1536,
    "vocab_size": 1000,
    "max_position_embeddings": 2048,
}


def read(config: dict[str, Any], **options: Any) -> ModelShape:
    return read_model_shape(config, "test/model", **options)


@pytest.fixture(scope="module")
def references() -> list[dict[str, str]]:
    with SHAPES.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


OTHER_COUNT = {
    "allenai/Olmo-3-7B": "config without layer_types: three of four layers slide, which the reference missed",
    "MiniMaxAI/MiniMax-M3": "the reference leaves the index cache out: 57 layers x 128 x 2 B",
    "nvidia/MiniMax-M3-NVFP4": "the reference leaves the index cache out: 57 layers x 128 x 2 B",
    "meta-llama/Llama-3.2-11B-Vision-Instruct": "engines give the 8 cross-attention layers a cache too: 40, not 32",
    "meta-llama/Llama-3.2-90B-Vision-Instruct": "engines give the 20 cross-attention layers a cache too: 100, not 80",
}


def sixteen_bit_bytes(shape: ModelShape) -> tuple[int, int, int, int]:
    """Bytes of a token at 16 bits in full and sliding layers and in indexes, and of the states of a sequence.

    A window at least as long as the longest context counts as full; entries that stand for several tokens by their
    share; states of a compressor not at all.
    """
    full, sliding, index = 0.0, 0.0, 0
    for layers in shape.cache_layers:
        if layers.role is CacheRole.INDEX:
            index += layers.count * (layers.fixed_bytes_per_token or 0) * (layers.tokens_per_state == 1)
        elif layers.role is CacheRole.TOKENS:
            size = layers.count * layers.kv_heads * (layers.key_dim + layers.value_dim) * 2 / layers.tokens_per_state
            slides = layers.kind is CacheKind.SLIDING and (layers.window_tokens or 0) < shape.max_position_embeddings
            full, sliding = full + size * (not slides), sliding + size * slides
    return int(full), int(sliding), index, states_bytes(shape.state_layers, 1, VLLM_STATES)


def test_bytes_per_token_equal_an_independent_computation(references: list[dict[str, str]]) -> None:
    """Every config of the catalogue; where they differ, `OTHER_COUNT` says why, and nowhere else do they."""
    columns = (
        "kv_bytes_per_token",
        "sliding_kv_bytes_per_token",
        "indexer_bytes_per_token",
        "state_bytes_per_sequence",
    )
    wrong = {}
    for row in references:
        found = sixteen_bit_bytes(CATALOG.model_shape(row["hf_id"]))
        expected = tuple(int(row[column]) for column in columns)
        if found != expected:
            wrong[row["hf_id"]] = (found, expected)
    assert {model: wrong[model] for model in wrong if model not in OTHER_COUNT} == {}
    assert set(wrong) == set(OTHER_COUNT)
    assert len(references) > 200


def test_every_config_loads_or_is_refused_for_its_kind() -> None:
    """All configs of the catalogue; the refused ones are an encoder and RWKV."""
    refused = {}
    for model in CATALOG.model_ids():
        try:
            shape = CATALOG.model_shape(model)
        except InputError as error:
            refused[model] = str(error)
            continue
        assert shape.cache_layers or shape.state_layers, model
        assert shape.parameters.total == sum(matrix.elements for matrix in shape.matrices), model
    assert sorted(refused) == ["BAAI/bge-large-en-v1.5", "RWKV/rwkv-5-world-3b"], refused
    assert "encoder keeps no KV cache" in refused["BAAI/bge-large-en-v1.5"]
    assert "RWKV keeps a state per sequence" in refused["RWKV/rwkv-5-world-3b"]


def test_parameters_equal_an_independent_computation(references: list[dict[str, str]]) -> None:
    """Within 0.01 %: the reference leaves out some biases and norms. Gemma-4: values that are copies of keys."""
    wrong = []
    for row in references:
        if row["total_params"]:
            shape = CATALOG.model_shape(row["hf_id"])
            counted = shape.parameters.total - shape.parameters.vision
            tolerance = 0.004 if shape.model_type == "gemma4_text" else 1e-4
            if counted != pytest.approx(int(row["total_params"]), rel=tolerance):
                wrong.append((row["hf_id"], counted, row["total_params"]))
    assert wrong == []


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("meta-llama/Meta-Llama-3.1-8B", AttentionFamily.GQA),
        ("facebook/opt-6.7b", AttentionFamily.MHA),
        ("google/gemma-2b-it", AttentionFamily.MQA),
        ("tiiuae/falcon-40b", AttentionFamily.GQA),
        ("deepseek-ai/DeepSeek-V2-Lite", AttentionFamily.MLA),
        ("moonshotai/Kimi-K2-Instruct", AttentionFamily.MLA),
        ("openbmb/MiniCPM3-4B", AttentionFamily.MHA),
        ("deepseek-ai/deepseek-vl2-tiny", AttentionFamily.MHA),
        ("openai/gpt-oss-20b", AttentionFamily.HYBRID),
        ("google/gemma-2-2b", AttentionFamily.HYBRID),
        ("Qwen/Qwen3.5-27B", AttentionFamily.HYBRID),
        ("moonshotai/Kimi-K3", AttentionFamily.HYBRID),
        ("deepseek-ai/DeepSeek-V4-Flash", AttentionFamily.HYBRID),
        ("nvidia/Llama-3_3-Nemotron-Super-49B-v1", AttentionFamily.GQA),
        ("tiiuae/falcon-mamba-7b", AttentionFamily.NONE),
    ],
)
def test_family(model: str, family: AttentionFamily) -> None:
    assert CATALOG.model_shape(model).family is family


@pytest.mark.parametrize("config", [{"model_type": name} for name in sorted(NOT_YET)])
def test_families_not_supported_yet_are_refused_with_a_reason(config: dict[str, Any]) -> None:
    with pytest.raises(InputError) as error:
        read(config)
    assert NOT_YET[config["model_type"]] in str(error.value)


def test_an_unknown_model_type_is_refused() -> None:
    """A type that is spelled like others names them; one that is like none does not."""
    with pytest.raises(InputError, match="'zzzz_new' is not supported") as error:
        read({**LLAMA, "model_type": "zzzz_new"})
    assert "among them" not in error.value.problems[0].fix
    with pytest.raises(InputError, match="among them qwen3"):
        read({**LLAMA, "model_type": "qwen3x"})


def test_no_type_is_both_supported_and_refused() -> None:
    assert not set(REGISTRY) & set(NOT_YET)


def test_an_absent_value_without_class_default_names_the_key() -> None:
    config = {key: value for key, value in LLAMA.items() if key != "num_hidden_layers"}
    with pytest.raises(InputError, match="num_hidden_layers"):
        read({"model_type": "llava", "text_config": config})
    defaults = {"defaults": {"llama": {"num_hidden_layers": 32}}}
    shape = read({"model_type": "llava", "text_config": config}, class_defaults=defaults)
    assert shape.num_layers == 32
    assert any("class defaults" in note for note in shape.notes)


def test_only_a_nested_config_may_leave_its_sizes_to_the_class() -> None:
    """transformers writes every size of a model's own config.json; nested configs are differences from their class."""
    config = {key: value for key, value in LLAMA.items() if key != "num_hidden_layers"}
    with pytest.raises(InputError, match="num_hidden_layers"):
        read(config, class_defaults={"llama": {"num_hidden_layers": 32}})


def test_head_dim_is_divided_only_when_not_stated() -> None:
    assert read(LLAMA).head_dim == 64
    assert read({**LLAMA, "head_dim": None}).head_dim == 64
    stated = read({**LLAMA, "head_dim": 128})
    assert stated.head_dim == 128
    assert any("head_dim 128" in note for note in stated.notes)


@pytest.mark.parametrize(
    ("stated", "window"), [({}, 4096), ({"sliding_window": None}, None), ({"sliding_window": 64}, 64)]
)
def test_mistral_window_absent_is_the_class_default_and_null_is_none(
    stated: dict[str, Any], window: int | None
) -> None:
    config = {**LLAMA, "model_type": "mistral", **stated}
    shape = read(config, class_defaults={"mistral": {"sliding_window": 4096}})
    assert [layers.window_tokens for layers in shape.cache_layers] == [window]


def test_qwen_window_counts_only_when_used_and_leaves_the_first_layers_full() -> None:
    config = {**LLAMA, "model_type": "qwen2", "sliding_window": 1024, "max_window_layers": 3}
    assert [c.window_tokens for c in read({**config, "use_sliding_window": False}).cache_layers] == [None]
    used = read({**config, "use_sliding_window": True}).cache_layers
    assert [(c.count, c.window_tokens) for c in used] == [(3, None), (1, 1024)]


def test_a_pattern_may_be_text_or_a_number() -> None:
    config = {**LLAMA, "num_hidden_layers": 8, "sliding_window": 512}
    text = read({**config, "model_type": "exaone4", "sliding_window_pattern": "LLLG"}).cache_layers
    assert [(c.count, c.window_tokens) for c in text] == [(6, 512), (2, None)]
    number = read({**config, "model_type": "gemma3_text", "sliding_window_pattern": 4}).cache_layers
    assert [(c.count, c.window_tokens) for c in number] == [(6, 512), (2, None)]


def test_a_null_beats_the_class_default() -> None:
    """DeepSeek-V2-Lite states q_lora_rank null: queries have no latent, whatever the class says."""
    assert CATALOG.model_shape("deepseek-ai/DeepSeek-V2-Lite").parameters.total == pytest.approx(15.7e9, rel=0.01)


def test_a_nested_text_config_falls_back_to_the_outer_one() -> None:
    config = {
        "model_type": "llava",
        "architectures": ["LlavaForConditionalGeneration"],
        "text_config": LLAMA,
        "tie_word_embeddings": True,
        "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 64},
    }
    shape = read(config)
    assert shape.tied_embeddings
    assert shape.native_weight_dtype == "int4-awq"
    assert {m.stored.scale_rows * m.stored.scale_columns for m in shape.matrices if m.stored} == {64}
    assert any("text_config" in note for note in shape.notes)


@pytest.mark.parametrize(
    ("stated", "dtype"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8"),
        ({"quant_method": "mxfp4"}, "mxfp4"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, "int4-gptq"),
        ({"quant_method": "gptq", "bits": 8, "group_size": 128}, "int8-gptq"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "bnb-int8"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
    ],
)
def test_storage_format(stated: dict[str, Any], dtype: str) -> None:
    assert read({**LLAMA, "quantization_config": stated}).native_weight_dtype == dtype


def test_a_modelopt_companion_declares_weights_and_cache() -> None:
    """vLLM passes over a companion that does not name ModelOpt as its producer."""
    formats = {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}
    companion = {"quantization": formats, "producer": {"name": "modelopt"}}
    shape = read(LLAMA, quant_config=companion)
    assert shape.native_weight_dtype == "fp8"
    assert shape.declares_fp8_kv
    assert read(LLAMA, quant_config={"quantization": formats}).modelopt_unnamed


@pytest.mark.parametrize(
    ("model", "length"),
    [
        ("meta-llama/Meta-Llama-3.1-8B", 131_072),
        ("THUDM/chatglm3-6b", 8_192),
        ("google/gemma-3-27b-it", 131_072),
        ("Qwen/Qwen2.5-7B-Instruct", 32_768),
    ],
)
def test_longest_context(model: str, length: int) -> None:
    assert CATALOG.model_shape(model).max_position_embeddings == length


def test_rope_scaling_multiplies_unless_it_is_counted_in() -> None:
    linear = {"rope_scaling": {"rope_type": "linear", "factor": 4.0}}
    llama3 = {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}
    assert read({**LLAMA, **linear}).max_position_embeddings == 8192
    assert read({**LLAMA, **llama3}).max_position_embeddings == 2048


def test_moe_layers_and_experts() -> None:
    deepseek = CATALOG.model_shape("deepseek-ai/DeepSeek-V3")
    assert (deepseek.num_layers, deepseek.num_moe_layers, deepseek.num_experts) == (61, 58, 256)
    assert deepseek.shared_expert_intermediate_size == 2048
    assert deepseek.active_parameters == pytest.approx(36.6e9, rel=0.01)
    assert CATALOG.model_shape("meta-llama/Meta-Llama-3.1-8B").num_experts == 0


def test_the_catalogue_of_the_tests_is_the_shipped_one() -> None:
    assert isinstance(CATALOG, Catalog)
    assert CATALOG.model_ids()


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"num_attention_heads": "nine"}, "num_attention_heads"),
        ({"num_hidden_layers": 2.5}, "num_hidden_layers"),
        ({"hidden_size": -4}, "hidden_size"),
        ({"vocab_size": True}, "vocab_size"),
        ({"num_key_value_heads": [1, 2]}, "num_key_value_heads"),
        ({"num_key_value_heads": 0}, "num_key_value_heads"),
        ({"num_key_value_heads": 4}, "num_key_value_heads"),
        ({"intermediate_size": None}, "intermediate_size"),
    ],
)
def test_an_unusable_value_is_named(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as error:
        read({**LLAMA, **changes})
    assert [problem.field for problem in error.value.problems] == [field]


def test_every_missing_size_is_named_at_once() -> None:
    with pytest.raises(InputError) as error:
        read({"model_type": "llama"})
    fields = [problem.field for problem in error.value.problems]
    assert sorted(fields) == [
        "hidden_size",
        "intermediate_size",
        "max_position_embeddings",
        "num_attention_heads",
        "num_hidden_layers",
        "vocab_size",
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"rope_scaling": "yarn"},
        {"model_type": "gemma3_text", "sliding_window": 64, "layer_types": 3},
        {"model_type": "gemma3_text", "sliding_window": 64, "sliding_window_pattern": ""},
        {"quantization_config": {"quant_method": "fp8", "weight_block_size": "128"}},
        {"num_attention_heads": 9, "head_dim": 0, "hidden_size": 4},
    ],
)
def test_a_malformed_config_is_bad_input_or_read(changes: dict[str, Any]) -> None:
    """Never another exception."""
    with contextlib.suppress(InputError):
        assert read({**LLAMA, **changes}).num_layers == 4


@pytest.mark.parametrize(
    ("config", "parameters"),
    [
        (
            {"model_type": "phi", "hidden_size": 2560, "num_hidden_layers": 32, "num_attention_heads": 32,
             "intermediate_size": 10240, "vocab_size": 51200, "max_position_embeddings": 2048,
             "tie_word_embeddings": False},
            2_779_683_840,
        ),
        (
            {"model_type": "bloom", "n_embed": 4096, "n_layer": 30, "n_head": 32, "vocab_size": 250880,
             "seq_length": 2048},
            7_069_016_064,
        ),
    ],
    ids=["phi-2", "bloom-7b1"],
)  # fmt: skip
def test_published_parameter_counts(config: dict[str, Any], parameters: int) -> None:
    assert read(config).parameters.total == parameters
