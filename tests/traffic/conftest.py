from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "catalogs" / "example" / "traffic"
AZURE_HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


@pytest.fixture(scope="session")
def examples() -> Path:
    return EXAMPLES


@pytest.fixture(scope="session")
def code_rows() -> np.ndarray:
    """Prompt and output of the Azure code trace, read without any of the product's code."""
    with (EXAMPLES / "AzureLLMInferenceTrace_code.csv").open() as stream:
        return np.array([(int(r["ContextTokens"]), int(r["GeneratedTokens"])) for r in csv.DictReader(stream)])


@pytest.fixture(scope="session")
def conv_rows() -> np.ndarray:
    with (EXAMPLES / "AzureLLMInferenceTrace_conv.csv").open() as stream:
        return np.array([(int(r["ContextTokens"]), int(r["GeneratedTokens"])) for r in csv.DictReader(stream)])


@pytest.fixture(scope="session")
def mooncake_rows() -> np.ndarray:
    lines = (EXAMPLES / "mooncake_conversation_head2500.jsonl").read_text().splitlines()
    return np.array([(r["input_length"], r["output_length"]) for r in map(json.loads, lines)])
