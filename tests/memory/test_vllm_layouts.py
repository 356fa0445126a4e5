"""Layers of made-up and of real hybrids against the planning code of 23 releases of vLLM."""

from __future__ import annotations

import csv
import lzma
from collections.abc import Mapping

import pytest

from planner.catalog.engine_rules.vllm import VllmRules
from planner.catalog.load import Catalog
from planner.memory.vllm.blocks import (
    Layout,
    layout,
    layout_rules,
    logged_tokens,
    longest_request,
    request_blocks,
    request_bytes,
)
from planner.memory.vllm.groups import Group

from .conftest import DATA


def planned() -> dict[str, list[dict[str, str]]]:
    """Rows by version."""
    found: dict[str, list[dict[str, str]]] = {}
    with lzma.open(DATA / "vllm_layouts.csv.xz", "rt", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            found.setdefault(row["version"], []).append(row)
    return found


PLANNED = planned()


def kind_of(text: str) -> Group:
    layers, block, page, window, chunked, recurrent, held, latent, ranks = text.split(":")
    return Group(
        int(layers),
        int(block),
        int(page),
        int(window) if window else None,
        chunked=chunked == "1",
        recurrent=recurrent == "1",
        held_blocks=int(held) if held else None,
        latent=latent == "1",
        ranks=int(ranks),
    )


def pool_of_row(row: Mapping[str, str], rules: VllmRules) -> Layout:
    kinds = tuple(kind_of(text) for text in row["kinds"].split(";"))
    manager, compressed = row["layout"] != "no manager", row["layout"] == "compressed"
    return layout(kinds, layout_rules(rules, kinds, hybrid_manager=manager, compressed=compressed))


def answer(row: Mapping[str, str], rules: VllmRules) -> dict[str, str]:
    """The row's own figures, predicted."""
    pool = pool_of_row(row, rules)
    in_flight, length = int(row["in_flight_tokens"]), int(row["max_model_len"])
    available = int(row["available_bytes"])
    room = available - rules.null_blocks * pool.bytes_per_block
    if pool.refusal:
        return {"refused": "y"}
    if room <= 0:
        return {"refused": "y", "longest_request": ""}
    if request_bytes(pool, length, in_flight, rules.start_check) > room:
        longest = longest_request(pool, room, in_flight, rules.start_check, length)
        return {"refused": "y", "longest_request": str(longest or "")}
    num_blocks = available // pool.bytes_per_block
    concurrency = num_blocks / request_blocks(pool, length, in_flight)
    found = {
        "refused": "n",
        "num_groups": str(len(pool.groups)),
        "num_blocks": str(num_blocks),
        "max_concurrency": repr(concurrency),
    }
    if row["kv_cache_size_tokens_logged"]:
        found["kv_cache_size_tokens_logged"] = str(logged_tokens(rules, pool, num_blocks, concurrency, length))
    return found


@pytest.mark.parametrize("version", PLANNED)
def test_layers_are_grouped_as_the_release_does(catalog: Catalog, version: str) -> None:
    rules = catalog.engine("vllm", version).vllm
    wrong = []
    for row in PLANNED[version]:
        found = answer(row, rules)
        if found != {key: row[key] for key in found}:
            wrong.append((row, found))
    assert not wrong, wrong[:3]


def test_every_release_and_every_outcome_is_covered() -> None:
    assert len(PLANNED) == 23
    for version, rows in PLANNED.items():
        assert {row["refused"] for row in rows} == {"y", "n"}, version
        assert {"", "no manager"} <= {row["layout"] for row in rows}, version
