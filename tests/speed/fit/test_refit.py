"""Second stage, statements and files of a refit, on synthetic points whose truth is known."""

from __future__ import annotations

import tomllib
from collections.abc import Callable

import numpy as np
import pytest

from planner.report.speed_accuracy import HEADINGS, accuracy_lines, accuracy_markdown, accuracy_text
from planner.speed.facts import SpeedFacts
from planner.speed.fit.first_token import fit_first_token, without_first_token
from planner.speed.fit.refit import Refit, as_toml, differences, fittable, spoken_for
from planner.speed.fit.sample import Sample
from planner.speed.fit.validate import Ratios, ratios_of, score


@pytest.fixture(scope="module")
def sample(sample_under: Callable[[SpeedFacts], Sample], facts: SpeedFacts) -> Sample:
    return sample_under(facts)


def test_first_tokens_are_found_again(sample: Sample, facts: SpeedFacts) -> None:
    """Measured TTFT are those of the facts; from the priors the fit comes near them."""
    began = without_first_token(facts)
    before = np.abs(np.log(sample.operating(began).ttft_s / sample.ttft_s))
    after = np.abs(np.log(sample.operating(fit_first_token(sample, began)).ttft_s / sample.ttft_s))
    assert np.median(after) < 0.03
    assert np.median(after) < np.median(before) / 3


def test_what_the_facts_said_before_has_no_influence(sample: Sample, facts: SpeedFacts) -> None:
    changed = facts.model_copy(
        update={
            "engine": tuple(
                era.model_copy(update={"first_token": era.first_token.model_copy(update={"floor_ms": 900.0})})
                if era.first_token
                else era
                for era in facts.engine
            )
        }
    )
    assert without_first_token(changed) == without_first_token(facts)


def test_an_era_without_points_keeps_what_it_says(sample: Sample, facts: SpeedFacts) -> None:
    found = fit_first_token(sample, facts)
    for before, after in zip(facts.engine, found.engine, strict=True):
        if before.engine == "trtllm":
            assert after == before


def test_few_points_do_not_speak_for_a_gpu(sample: Sample, facts: SpeedFacts) -> None:
    """Eighteen points on each GPU are fewer than the twenty that a fit asks for; sglang and vllm have 12 and 24."""
    gpus, eras = spoken_for(sample, facts)
    assert gpus == ()
    assert set(eras) <= {"vllm", "sglang"}
    assert len(fittable(sample, facts)) == 0


def test_facts_survive_their_file(facts: SpeedFacts) -> None:
    again = SpeedFacts.model_validate(tomllib.loads(as_toml(facts)))
    assert again == facts
    assert differences(again, facts) == []


def test_differences_name_what_moved(facts: SpeedFacts) -> None:
    fact = facts.compute_tp_factor
    moved = facts.model_copy(update={"compute_tp_factor": fact.model_copy(update={"value": fact.value * 1.02})})
    assert differences(moved, facts) == ["compute_tp_factor.value"]
    barely = facts.model_copy(update={"compute_tp_factor": fact.model_copy(update={"value": fact.value * 1.002})})
    assert differences(barely, facts) == []


def test_score_by_hand() -> None:
    """Measured over predicted 1, 2, 0.5: predictions off by 0, 50 and 100 %."""
    found = score(np.array([1.0, 2.0, 0.5, np.nan]))
    assert (found.points, found.median, found.bias) == (3, 50.0, 1.0)
    assert found.p90 == pytest.approx(90.0)


def test_tables_hold_every_group_once(sample: Sample, facts: SpeedFacts) -> None:
    ratios: Ratios = ratios_of(sample, sample.operating(facts))
    found = Refit(facts, ratios, (ratios, ratios), ratios, ratios)
    tables = accuracy_lines(found, sample)
    assert [len(lines) for lines in tables.values()] == [1 + 2 + 2 + 2, 1 + 2, 1 + 2]
    for lines in tables.values():
        for line in lines:
            assert len(line.cells) == len(HEADINGS)
            assert line.tpot.median == pytest.approx(0, abs=1e-6)
            assert line.tpot_in_band == 1
    text, markdown = accuracy_text(found, sample, {"no TPOT": 3}), accuracy_markdown(found, sample, {"no TPOT": 3})
    assert "3 no TPOT" in text
    assert "3 no TPOT" in markdown
    assert "nan" not in text
    assert markdown.count("| H100-SXM |") == 1
