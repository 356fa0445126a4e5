"""The refit of overheads: repeatable, equal to the catalogue, and honest about what it left out."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from shutil import copytree

import pytest
from typer.testing import CliRunner

from planner.catalog.load import load_catalog
from planner.cli import app
from planner.errors import InputError
from planner.memory import fit as refit
from planner.memory.fit import Coefficient, Start, fit, fragment, read_logs, stale, starts, with_coefficients

CATALOG = load_catalog()
STARTED = starts(read_logs(CATALOG.root), CATALOG)
COEFFICIENTS = fit(STARTED)
RUN = CliRunner()


def test_the_catalogue_holds_what_the_logs_give() -> None:
    assert stale(CATALOG.engines, COEFFICIENTS) == ()
    for coefficient in COEFFICIENTS:
        facts = next(
            f for f in CATALOG.engines if f.name == "vllm" and f.sources[coefficient.fact].since == coefficient.since
        )
        assert facts.sources[coefficient.fact].origin == "fitted"
        same = [c for c in COEFFICIENTS if (c.fact, c.since) == (coefficient.fact, coefficient.since)]
        assert facts.sources[coefficient.fact].source == refit.source_text(same)


def test_a_median_of_three_by_hand() -> None:
    """Libraries of 0.9 to 0.17: five logs of 0.13 GiB, one of 0.14; TP2 0.54, so that NCCL adds 0.41."""
    found = {(c.fact, c.since, c.tp): c for c in COEFFICIENTS}
    libraries = found["libraries_gib", "0.9.0", None]
    assert (libraries.value, len(libraries.logs), libraries.worst_residual) == (0.13, 6, pytest.approx(0.01))
    assert found["nccl_gib", "0.9.0", 2].value == 0.41


def test_logs_that_are_not_to_be_fitted_on_are_left_out() -> None:
    used = {log for coefficient in COEFFICIENTS for log in coefficient.logs}
    assert used
    assert not used & {start.log.id for start in STARTED if not start.log.fit}


def test_the_order_of_the_logs_does_not_matter() -> None:
    values = [(c.fact, c.since, c.tp, c.value) for c in COEFFICIENTS]
    assert [(c.fact, c.since, c.tp, c.value) for c in fit(STARTED[::-1])] == values


def test_a_changed_log_changes_the_fit() -> None:
    moved = [
        Start(s.log.model_copy(update={"non_torch_gib": 0.5}), s.catalog, s.facts) if s.log.tp == 1 else s
        for s in STARTED
    ]
    assert {c.fact for c in stale(CATALOG.engines, fit(moved))} >= {"libraries_gib", "nccl_gib"}


def test_refitted_facts_replace_the_catalogues() -> None:
    facts = CATALOG.engine("vllm", "0.19.0")
    higher = [replace(c, value=c.value + 1) for c in COEFFICIENTS]
    changed = with_coefficients(facts, higher).vllm
    assert changed.libraries_gib == facts.vllm.libraries_gib + 1
    assert [f.gib for f in sorted(changed.fused_allreduce_gib, key=lambda f: f.min_tp)] == pytest.approx(
        [0, 2.41, 2.55]
    )
    assert changed.sampler == facts.vllm.sampler


def test_a_source_left_out_is_predicted_from_the_others() -> None:
    """Without the one source of TP2 logs of 0.11, NCCL is left at nothing and its log predicted 0.4 GiB too high."""
    apart = {p.log.id: p.predicted_gib for p in refit.leave_one_source_out(STARTED)}
    within = {p.log.id: p.predicted_gib for p in refit.predictions(STARTED)}
    assert apart["L013"] - within["L013"] == pytest.approx(0.41, abs=0.06)
    assert set(apart) == set(within)


def test_the_fragment_is_a_catalogue_file() -> None:
    facts = tomllib.loads(fragment(COEFFICIENTS, STARTED[0].log.as_of))["fact"]
    assert {fact["name"] for fact in facts} == {c.fact for c in COEFFICIENTS}
    assert all(fact["origin"] == "fitted" and "start-up log" in fact["source"] for fact in facts)


def test_command_prints_checks_and_writes(tmp_path: Path) -> None:
    target = tmp_path / "facts.toml"
    result = RUN.invoke(app, ["fit", "overheads", "--check", "-o", str(target)])
    assert result.exit_code == 0, result.output
    for text in ("libraries_gib", "median residual", "Errors, each source predicted from the others", "The worst 10"):
        assert text in result.output
    assert tomllib.loads(target.read_text(encoding="utf-8"))["fact"]


def test_check_fails_where_the_catalogue_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "catalogs"
    copytree(CATALOG.root, root)
    engine = root / "engines" / "vllm.toml"
    text = engine.read_text(encoding="utf-8")
    engine.write_text(
        text.replace('value = 0.25\nsource = "memory outside', 'value = 0.3\nsource = "memory outside'), "utf-8"
    )
    monkeypatch.setenv("PLANNER_CATALOGS", str(root))
    result = RUN.invoke(app, ["fit", "overheads", "--check"])
    assert result.exit_code == 1
    assert "libraries_gib" in result.output
    assert RUN.invoke(app, ["fit", "overheads"]).exit_code == 0


def test_a_bad_table_is_refused_row_by_row(tmp_path: Path) -> None:
    header, first, *_ = (CATALOG.root / refit.TABLE).read_text(encoding="utf-8").splitlines()
    (tmp_path / "engines").mkdir()
    table = tmp_path / refit.TABLE
    table.write_text("\n".join((header, first, first)), encoding="utf-8")
    with pytest.raises(InputError, match="second row for"):
        read_logs(tmp_path)
    table.write_text(header, encoding="utf-8")
    with pytest.raises(InputError, match="holds no start-up log"):
        read_logs(tmp_path)


def test_residuals_are_sizes() -> None:
    coefficient = Coefficient("libraries_gib", "0.9.0", None, 0.2, (-0.1, 0.05, 0.3), ("a", "b", "c"))
    assert (coefficient.median_residual, coefficient.worst_residual) == (0.1, 0.3)
