"""`planner catalog` at the keyboard."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from planner.catalog.load import load_catalog
from planner.cli.catalog import register
from planner.errors import InputError

CATALOG = load_catalog()
APP = typer.Typer()
register(APP)
APP.callback()(lambda: None)


def run(*arguments: str, env: dict[str, str] | None = None) -> str:
    result = CliRunner().invoke(APP, ["catalog", *arguments], env=env)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def test_lists_gpus_one_line_each():
    lines = run("list", "gpus").splitlines()
    assert len(lines) == 1 + len(CATALOG.gpus)
    (h100,) = [line for line in lines if line.startswith("H100-SXM ")]
    assert "79.18" in h100
    assert "3350" in h100


def test_lists_offers_by_price_with_filters():
    lines = run("list", "offers", "--gpu", "h100-sxm", "--provider", "aws", "--term", "on_demand").splitlines()[1:]
    assert [line.split()[0] for line in lines[:2]] == [
        "aws/p5.48xlarge/us-east-1/on_demand",
        "aws/p5.4xlarge/us-east-1/on_demand",
    ]
    prices = [float(line.split()[5]) for line in lines]
    assert prices == sorted(prices)


def test_json_holds_every_field():
    records = json.loads(run("list", "offers", "--provider", "aws", "--region", "us-east-1", "--json"))
    assert {record["region"] for record in records} == {"us-east-1"}
    assert all(record["source_url"] and record["as_of"] for record in records)
    models = json.loads(run("list", "models", "--json"))
    assert len(models) == len(CATALOG.model_ids()) + len(CATALOG.aliases)


def test_tables_fit_eighty_columns_on_a_terminal():
    output = run("list", "gpus", env={"FORCE_COLOR": "1", "COLUMNS": "80", "TERM": "xterm"})
    plain = re.sub(r"\x1b\[[0-9;]*m", "", output)
    assert "H100-SXM" in plain
    assert max(len(line.rstrip()) for line in plain.splitlines()) <= 80


@pytest.mark.parametrize(
    ("filters", "width"), [((), 80), (("--gpu", "H100-SXM", "--provider", "aws"), 80), (("--gpu", "T4"), 40)]
)
def test_offers_on_a_narrow_terminal_keep_their_prices_whole(filters, width):
    output = run("list", "offers", *filters, env={"FORCE_COLOR": "1", "COLUMNS": str(width), "TERM": "xterm"})
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in output.splitlines()]
    assert max(len(line) for line in lines) <= width
    piped = run("list", "offers", *filters).splitlines()[1:]
    first_lines = [line.split() for line in lines[1:] if " x " in line]
    assert len(first_lines) == len(piped)
    assert all(line.split()[5] in words for line, words in zip(piped, first_lines, strict=True))
    if "aws" in filters:
        assert [line.split()[0] for line in lines[1:]] == [line.split()[0] for line in piped]


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (("models", "--gpu", "H100-SXM"), ["--gpu"]),
        (("gpus", "--term", "spot"), ["--term"]),
        (("engines", "--provider", "aws", "--region", "nowhere"), ["--provider", "--region"]),
    ],
)
def test_a_filter_that_does_not_apply_is_an_error(arguments, options):
    with pytest.raises(InputError) as caught:
        run("list", *arguments)
    assert [problem.where for problem in caught.value.problems] == options
    assert all("does not apply" in problem.message and "offers" in problem.fix for problem in caught.value.problems)


def test_every_unknown_filter_is_named_at_once():
    with pytest.raises(InputError) as caught:
        run("list", "offers", "--gpu", "H100-SMX", "--provider", "x", "--region", "y")
    assert len(caught.value.problems) == 3


def test_lists_and_shows_aliases():
    assert re.search(r"Llama-3\.3-70B-Instruct\s.*as meta-llama/Llama-3\.1-70B-Instruct", run("list", "models"))
    text = run("show", "meta-llama/Llama-3.3-70B-Instruct")
    assert "read as meta-llama/Llama-3.1-70B-Instruct" in text
    assert re.search(r"config from\s+github:inference-sim", text)


def test_shows_a_gpu_with_its_guesses():
    text = run("show", "rtxpro6000-server")
    assert re.search(r"memory_bandwidth_gb_s\s+1597.*guess", text)
    assert "source_url" in text
    assert "2026-11-29" in text


def test_shows_an_offer():
    text = run("show", "aws/p5.48xlarge/us-east-1/on_demand")
    assert re.search(r"usd_per_h\s+55.04", text)
    assert re.search(r"usd_per_gpu_h\s+6.88", text)
    assert "karpenter" in text


def test_shows_a_model_with_its_cache_per_token():
    text = run("show", "meta-llama/Llama-3.1-8B-Instruct")
    assert "8,030,261,248" in text
    assert "128 KiB per token" in text, "2 x 32 layers x 8 heads x 128 x 2 bytes"
    assert re.search(r"config from\s+\S+", text)


def test_shows_an_engine():
    assert re.search(r"0\.11\.0", run("show", "vllm"))
    text = run("show", "vllm==0.11.0")
    assert re.search(r"facts of version\s+0\.11\.0", text)


def test_lists_engines():
    assert "vllm" in run("list", "engines")


def test_an_unknown_entry_names_the_closest():
    with pytest.raises(InputError) as caught:
        run("show", "H100")
    assert "H100-SXM" in str(caught.value)


@pytest.mark.parametrize("option", ["--provider", "--region"])
def test_an_unknown_filter_is_an_error_not_an_empty_list(option):
    with pytest.raises(InputError, match="occurs in no offer"):
        run("list", "offers", option, "nowhere")


def test_check_prints_counts():
    text = run("check", "--as-of", "2026-11-29")
    assert "catalogue is sound as of 2026-11-29" in text
    assert f"offers: {len(CATALOG.offers)}" in text


def test_check_ends_with_two_and_the_problems():
    command = [sys.executable, "-m", "planner", "catalog", "check", "--as-of", "2026-01-01"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "dated after 2026-01-01" in done.stderr
    assert "Traceback" not in done.stderr
