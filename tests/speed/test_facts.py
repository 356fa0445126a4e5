from __future__ import annotations

from pathlib import Path

import pytest

from planner.catalog.load import Catalog
from planner.errors import InputError
from planner.speed.facts import SPEED_FILE, SpeedFacts, load_speed_facts


def test_every_gpu_named_is_in_the_catalogue(facts: SpeedFacts, catalog: Catalog) -> None:
    named = {gpu for family in facts.fitted.values() for gpu in family.gpus} | set(facts.cautions)
    assert named <= set(catalog.gpus)


def test_fit_is_found_by_board(facts: SpeedFacts) -> None:
    fit = facts.fitted_gpu("H100-SXM")
    assert fit is not None
    assert fit.bandwidth_efficiency == 0.95
    assert facts.fitted_gpu("H100-PCIe") is None  # other board, never measured


def _write(folder: Path, text: str) -> Path:
    path = folder / SPEED_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return folder


def test_every_problem_is_reported_at_once(catalog: Catalog, tmp_path: Path) -> None:
    text = (catalog.root / SPEED_FILE).read_text(encoding="utf-8")
    text = text.replace("bandwidth_efficiency = 0.95", "bandwidth_efficiency = 1.95")
    text = text.replace("[ttft_floor_ms]\nvalue = 96.0", "[ttft_floor_ms]\nvalu = 96.0")
    with pytest.raises(InputError) as caught:
        load_speed_facts(_write(tmp_path, text))
    fields = {problem.field for problem in caught.value.problems}
    assert fields == {"fitted.H100.bandwidth_efficiency", "ttft_floor_ms.value", "ttft_floor_ms.valu"}


def test_gpu_fitted_twice_is_refused(catalog: Catalog, tmp_path: Path) -> None:
    text = (catalog.root / SPEED_FILE).read_text(encoding="utf-8").replace('["B300"]', '["B200"]')
    with pytest.raises(InputError, match="fitted more than once: B200"):
        load_speed_facts(_write(tmp_path, text))


@pytest.mark.parametrize(("text", "message"), [("a = [", "is not valid TOML"), (None, "no such file")])
def test_unreadable_file(tmp_path: Path, text: str | None, message: str) -> None:
    root = tmp_path if text is None else _write(tmp_path, text)
    with pytest.raises(InputError, match=message):
        load_speed_facts(root)
