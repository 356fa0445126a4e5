"""`planner deploy`, and `planner check-log --pool` that closes the loop."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from planner.plan import plan_to_json, read_plan
from tests.deploy.plans import across_nodes, example

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "tests" / "data" / "fleet"
LOOP = ROOT / "tests" / "data" / "deploy" / "loop"
LOG = ROOT / "tests" / "data" / "logs" / "vllm-0.31.0-llama-3.1-8b.log"


@pytest.fixture
def run(planner: Any) -> Any:
    """`planner deploy`."""
    return partial(planner, "deploy")


@pytest.fixture
def check(planner: Any) -> Any:
    """`planner check-log`."""
    return partial(planner, "check-log")


def tree(folder: Path) -> dict[str, str]:
    """Texts by path."""
    return {str(p.relative_to(folder)): p.read_text("utf-8") for p in sorted(folder.rglob("*")) if p.is_file()}


def written(plan: Any, tmp_path: Path) -> str:
    path = tmp_path / "plan.json"
    path.write_text(plan_to_json(plan), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("target", "files"),
    [
        (
            "kubernetes",
            {"kubernetes/assistant-2.yaml", "gateway/routes.yaml", "autoscaling/2027-01-01.yaml", "bands.json"},
        ),
        ("vllm", {"assistant-2.sh", "routing.json"}),
        ("helm", {"values.yaml", "gateway/routes.yaml"}),
        ("llm-d", {"assistant-2.values.yaml", "autoscaling/2027-01-01.yaml"}),
    ],
)
def test_a_plan_becomes_a_folder(target: str, files: set[str], run: Any, tmp_path: Path) -> None:
    out = tmp_path / "fleet"
    code, printed, err = run(str(EXAMPLE), "-o", str(out), "--target", target)
    assert (code, err) == (0, "")
    assert "begin with README.md" in printed
    found = tree(out)
    assert files | {"README.md", "prometheus/alerts.yaml"} <= set(found)
    assert found["README.md"].startswith("# Deployment of plan c7ac8894b515: FY27-Q1 example fleet\n")
    for path in found:
        assert f"| `{path}` |" in found["README.md"]
    assert not [path for path in tmp_path.iterdir() if path != out]


def test_scripts_can_be_run(run: Any, tmp_path: Path) -> None:
    run(str(LOOP), "-o", str(tmp_path / "fleet"), "--target", "vllm")
    assert (tmp_path / "fleet" / "chat.sh").stat().st_mode & 0o111
    assert not (tmp_path / "fleet" / "README.md").stat().st_mode & 0o111


def test_files_are_listed_as_json(run: Any, tmp_path: Path) -> None:
    code, printed, _ = run(str(LOOP), "-o", str(tmp_path / "fleet"), "--target", "vllm", "--json")
    data = json.loads(printed)
    assert code == 0
    assert data["target"] == "vllm"
    assert data["files"] == sorted(tree(tmp_path / "fleet"))


def test_an_earlier_deployment_is_replaced_as_a_whole(run: Any, tmp_path: Path) -> None:
    out = tmp_path / "fleet"
    run(str(LOOP), "-o", str(out), "--target", "vllm")
    (out / "left-over.sh").write_text("old", encoding="utf-8")
    assert run(str(LOOP), "-o", str(out), "--target", "helm")[0] == 0
    assert {"chat.sh", "left-over.sh"}.isdisjoint(tree(out))
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("holds", ["notes.txt", "README.md"])
def test_a_folder_with_something_else_is_left_alone(holds: str, run: Any, tmp_path: Path) -> None:
    (tmp_path / holds).write_text("mine", encoding="utf-8")
    code, _, err = run(str(LOOP), "-o", str(tmp_path))
    assert code == 2
    assert "holds something else than a deployment" in err
    assert tree(tmp_path) == {holds: "mine"}
    file = tmp_path / holds
    assert run(str(LOOP), "-o", str(file))[0] == 2
    assert tree(tmp_path) == {holds: "mine"}


def test_a_flag_that_the_version_lacks_stops_everything(run: Any, tmp_path: Path) -> None:
    plan = read_plan(LOOP / "plan.json")
    words = f"{plan.pools[0].launch_command} --swap-space 4"
    chat = plan.pools[0].model_copy(update={"launch_command": words})
    path = written(plan.model_copy(update={"pools": (chat, plan.pools[1])}), tmp_path)
    code, _, err = run(path, "-o", str(tmp_path / "fleet"))
    assert code == 2
    assert "pool chat, field --swap-space: vllm 0.31.0 has no flag --swap-space" in err
    assert not (tmp_path / "fleet").exists()


def test_a_target_that_cannot_serve_a_pool_is_refused(run: Any, tmp_path: Path) -> None:
    code, _, err = run(written(across_nodes("sglang"), tmp_path), "-o", str(tmp_path / "fleet"), "--target", "vllm")
    assert code == 2
    assert "pool reasoning: runs sglang, and --target vllm starts vllm. Use --target kubernetes" in err
    assert run(written(across_nodes("sglang"), tmp_path), "-o", str(tmp_path / "f"), "--target", "sglang")[0] == 0


def test_a_revision_is_pinned(run: Any, tmp_path: Path) -> None:
    out = tmp_path / "fleet"
    code, _, _ = run(str(LOOP), "-o", str(out), "--target", "vllm", "--checkpoint", "chat=org/copy@0e9e39f")
    assert code == 0
    text = (out / "chat.sh").read_text("utf-8")
    assert "vllm serve org/copy\n" in text
    assert "--revision 0e9e39f" in text
    assert "is pinned for search:" in (out / "README.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("chat", "is not POOL=ID or POOL=ID@REVISION"),
        ("chat=", "is not POOL=ID or POOL=ID@REVISION"),
        ("chat=a/b@", "is not POOL=ID or POOL=ID@REVISION"),
        ("chat=--evil", "is not POOL=ID or POOL=ID@REVISION"),
        ("gone=a/b", "the plan has no pool 'gone'"),
    ],
)
def test_a_checkpoint_that_cannot_be_used(text: str, message: str, run: Any, tmp_path: Path) -> None:
    code, _, err = run(str(LOOP), "-o", str(tmp_path / "fleet"), "--checkpoint", text)
    assert code == 2
    assert message in err


def test_the_loop_from_plan_to_log(run: Any, check: Any, tmp_path: Path) -> None:
    """Deploy, start (the log is a public capture), compare: the pool holds what was planned."""
    assert run(str(LOOP), "-o", str(tmp_path / "fleet"))[0] == 0
    code, printed, _ = check(str(LOG), "--plan", str(LOOP), "--pool", "chat")
    assert code == 0
    assert "KV pool: 460,496 tokens found, 462,880 planned (-0.5%). It holds the planned load" in printed
    assert "Started otherwise" not in printed


def test_a_pool_that_was_started_otherwise_does_not_hold(check: Any, tmp_path: Path) -> None:
    """Half of the memory share: the pool is as much smaller, and what was set differently is named."""
    text = LOG.read_text("utf-8")
    for old, new in (
        ("56.21 GiB", "19.76 GiB"),
        ("460,496", "161,872"),
        ("3.51x", "1.23x"),
        ("utilization is (0.92, 72.91 GiB)", "utilization is (0.46, 36.46 GiB)"),
    ):
        assert old in text
        text = text.replace(old, new)
    log = tmp_path / "serve.log"
    log.write_text(text, encoding="utf-8")
    code, printed, _ = check(str(log), "--plan", str(LOOP), "--pool", "chat")
    assert code == 3
    assert "It does NOT hold the planned load: 400,000 live tokens" in printed
    assert "Started otherwise than planned: utilization 0.46 instead of 0.92" in printed
    data = json.loads(check(str(log), "--plan", str(LOOP), "--pool", "chat", "--json")[1])
    assert data["pool"]["holds"] is False
    assert data["pool"]["found"] == 161_872


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--pool", "chat"], "--pool: needs a plan"),
        (["--plan", str(LOOP), "--pool", "gone"], "the plan has no pool 'gone'. It has chat, search"),
        (["--plan", str(LOOP), "--pool", "search"], "--plan: plans no pool of"),
    ],
)
def test_a_pool_that_cannot_be_compared(arguments: list[str], message: str, check: Any) -> None:
    log = LOG if "search" not in arguments else LOG.with_name("vllm-0.19.1-qwen3-0.6b-w4a16.log")
    code, _, err = check(str(log), *arguments)
    assert code == 2
    assert message in err


def test_the_example_of_the_repository_deploys_to_every_target_of_its_engine(run: Any, tmp_path: Path) -> None:
    code, _, err = run(str(EXAMPLE), "-o", str(tmp_path / "fleet"), "--target", "sglang")
    assert code == 2
    assert err.count("runs vllm, and --target sglang starts sglang") == len(example().pools)
