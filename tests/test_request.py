"""The request file: every key documented, mistakes explained in the user's words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from planner.errors import InputError
from planner.request import Quota, _known_keys, read_request

ROOT = Path(__file__).parents[1]
EXAMPLE = (ROOT / "catalogs" / "example" / "quarter.toml").read_text()


def problems(tmp_path: Path, text: str) -> str:
    (tmp_path / "q.toml").write_text(text)
    with pytest.raises(InputError) as caught:
        read_request(tmp_path / "q.toml")
    return str(caught.value)


def test_example_is_valid():
    request = read_request(ROOT / "catalogs" / "example" / "quarter.toml")
    assert request.quarter.hours == 90 * 24
    assert len(request.model) == 6


def test_every_key_is_documented_in_the_readme():
    readme = (ROOT / "README.md").read_text()
    section = readme[readme.index("## The request") : readme.index("## How far to trust it")]
    keys = {key for keys in _known_keys().values() for key in keys}
    forms = "`{}`", "`[{}]`", "`[[{}]]`", "`[model.{}]`"
    assert {key for key in keys if not any(form.format(key) in section for form in forms)} == set()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("max_work_share", "max_work_shares", "field policy.max_work_shares: is not a known key. Did you mean"),
        (
            "speed_edge",
            "budget_usd = 5\nspeed_edge",
            "field policy.budget_usd: is not a known key. It belongs at the top",
        ),
        (
            "tail_budget = 0.001",
            "tail_budget = 2",
            "model 'code-complete', field tail_budget: input should be less than 1",
        ),
        ('kv_dtypes = ["bf16"]', "kv_dtypes = []", "field kv_dtypes: a list should have at least 1 item"),
        ("start = 2027-01-01", "start = 2028-01-01", "field quarter: end must be later than start"),
        ("end = 2027-04-01", "end = 9999-12-31", "must not be longer than 1830 days"),
        (
            'name = "chat-large"',
            'name = "code-complete"',
            "names must be unique, upper and lower case alike: code-complete",
        ),
        (
            "rate_per_s = 40",
            "rate_per_s = 1e7",
            "field traffic.rate_per_s: input should be less than or equal to 1000000",
        ),
        ('"bf16", "fp8", "int4-awq"', '"bf17"', "weight_dtypes"),
    ],
)
def test_mistakes_are_explained(tmp_path, old, new, said):
    assert old in EXAMPLE
    text = problems(tmp_path, EXAMPLE.replace(old, new, 1))
    assert said in text
    assert "after validation" not in text
    assert "datetime" not in text


def test_a_quota_cannot_take_the_name_of_the_budget_row(tmp_path):
    text = "budget_usd = 1e6\n" + EXAMPLE.replace('name = "B200 anywhere"', 'name = "budget"')
    assert "quota names must be unique, upper and lower case alike: budget" in problems(tmp_path, text)


def test_one_table_instead_of_a_list(tmp_path):
    text = EXAMPLE[: EXAMPLE.index("[[model]]")] + "[model]\nname = 'x'\n"
    assert "Write [[model]] above each one" in problems(tmp_path, text)


def test_all_mistakes_at_once(tmp_path):
    text = re.sub(r"tail_budget = 0.001", "tail_budget = -1", EXAMPLE)
    assert problems(tmp_path, text).count("tail_budget") == 6


def test_byte_order_mark_is_accepted(tmp_path):
    (tmp_path / "q.toml").write_bytes(b"\xef\xbb\xbf" + EXAMPLE.encode())
    assert read_request(tmp_path / "q.toml").quarter.owner == "platform team"


@pytest.mark.parametrize("name", ["", " a", "a ", "(none)", "a\tb", "a_x000D_b"])
def test_names_that_a_workbook_would_not_find(name):
    with pytest.raises(ValidationError):
        Quota(name=name, max_gpus=1)


@pytest.mark.parametrize(
    "name", ["Q1", "A1", "1e5", "=1+1", "a*?~", "[x]", "x'y", "chat-large", "客服", "3rd party", "x" * 300]
)
def test_names_of_any_kind(name):
    assert Quota(name=name, max_gpus=1).name == name
