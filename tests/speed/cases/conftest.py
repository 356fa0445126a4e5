"""Rows of tables, and what reads and answers them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from planner.catalog.load import load_catalog
from planner.catalog.lookup.lookup import Lookup
from planner.speed.cases.deployments import Deployments
from planner.speed.cases.layouts import Row
from planner.speed.cases.rows import Reader
from planner.speed.chain import load_sources

MakeRow = Callable[..., Row]


@pytest.fixture(scope="session")
def reader() -> Reader:
    return Reader(Lookup(load_catalog()))


@pytest.fixture(scope="session")
def deployments(reader: Reader) -> Deployments:
    return Deployments(reader, load_sources(reader.lookup.catalog.root))


@pytest.fixture
def silicon() -> MakeRow:
    def silicon(**cells: str) -> Row:
        row = {
            "id": "s1",
            "mode": "agg",
            "engine": "vllm",
            "version": "0.19.0",
            "model": "meta-llama/Llama-3.1-8B-Instruct",
            "system": "h100_sxm",
            "isl": "1024",
            "osl": "512",
            "tp": "1.0",
            "concurrency": "16.0",
        }
        return row | cells

    return silicon


@pytest.fixture
def throughput() -> MakeRow:
    def throughput(**cells: str) -> Row:
        row = {
            "id": "x1",
            "engine": "vllm",
            "version": "0.7.3",
            "model": "Llama-3.1-8B-Instruct",
            "gpu": "H100",
            "gpus": "1",
            "tp": "1.0",
            "weight_dtype": "bf16",
            "input_len": "280",
            "output_len": "310",
            "concurrency_or_rate": "1",
            "notes": "",
        }
        return row | cells

    return throughput


@pytest.fixture
def point() -> MakeRow:
    def point(**cells: str) -> Row:
        row = {
            "id": "p1",
            "engine": "vllm",
            "version": "0.19.0",
            "model": "meta-llama/Llama-3.1-8B-Instruct",
            "gpu": "H100-SXM",
            "tp": "1",
            "weight_dtype": "bf16",
            "kv_dtype": "bf16",
            "load": "closed loop",
            "input_tokens": "1024",
            "output_tokens": "512",
            "concurrency": "16",
        }
        return row | cells

    return point
